"""What the words around an answer say of it: it is asked, denied, taken back, or one of several.

`answers` finds where the answer stands.  Only the words near it are looked at, in linear time, and
what no rule names leaves it stated.
"""

from __future__ import annotations

import re
from typing import Literal

from rlvr.text import same_statement

__all__ = ["StatementFlaw", "flaw_around", "in_one_statement", "withdraws"]

StatementFlaw = Literal["hedged", "denied", "asked", "retracted"]

_BEFORE, _AFTER = 200, 1500  # characters around an answer in which it may be withdrawn
_NEAR = 80  # characters before it in which it may be denied
# what a speaker says before the correction itself: "no, wait, …", but not the "no" of "no other"
_ASIDE = (
    r"(?:(?:no(?=\s?[,.!…—–-]|\s(?:wait|actually|sorry|i|it|that|this)\b)|wait|hmm|actually|sorry|"
    r"oops|unfortunately|nein)[\s,.!…—–-]{1,4})"
)
# with these a sentence may also go on without a correction
_THOUGHT = r"(?:hold on|my bad|apologies|on (?:second thought|reflection))"
_PAUSE = rf"(?:{_ASIDE}|{_THOUGHT}[\s,.!:…—–-]{{1,4}})"
_CORRECTION = re.compile(  # "The answer is Paris. No, Lyon."
    rf"\A[\s.,;:!$*—–-]*{_ASIDE}{{1,3}}(?:it(?:['’]s| is) )?(?:[^\s.!?]|\.\d){{1,40}}"
    rf"(?: [^\s.!?]{{1,40}}){{0,3}}[.!]?\s*\Z",
    re.IGNORECASE,
)
_LEAST_WORD = 4  # characters: what takes an answer back, such as "not ", has no fewer
_ENDING = 300  # characters of a correction that ends the text
_OPENERS = " \t\r\n:$*_({`[\\"
_CLOSERS = "} \t\r\n$*_`()[].\\"
_PUNCTUATION = " .,;:!$*([—–-\n"
# the first words of what takes an answer back or names another one
_TURNS = frozenset(
    "or maybe perhaps possibly alternatively and and/or / i make rather it it's but though "
    "although however is one a an another if when for so hence thus therefore wrong incorrect "
    "false nonsense not no wait hmm actually sorry oops unfortunately was are were seems looks "
    "would must cannot can't couldn't isn't which that that's this the they my does doesn't "
    "just never correction edit erratum let please do don't scratch strike disregard ignore "
    "forget nein hold on my apologies ist est das c'est eso es oder ou o oppure".split()
)
# what ends a clause, behind which it may be taken back; or goes on with "but"
_BREAKS = (".", "!", "?", "\n", "-", "—", "–", ":", " but ")
_WRONG_ALONE = frozenset(("wrong", "incorrect", "false", "nonsense"))
# the last words of what denies, where nothing but openers stands between it and the answer
_DENIES = frozenset(
    "not cannot never be equal to but except than means neither disregard ignore box result guess "
    "get give say think write put choose <answer> nicht pas es niet nie".split()
)
# words that often stand before an answer: a denial has another word besides
_STATES = frozenset("is was it it's that equals answer answer,".split())
_FALSE = ("false", "wrong", "correct", "true", "the case")
_DENIALS = (
    *("not ", "n't ", "n’t ", "never ", "doubt", "no way", "wrong", "correct", "false"),
    *("mistake", "trap", "regard", "ignore", "nobody", "no one"),
)
_CLOSED = re.compile(r"(?:</answer>|[\s}$*_`)\]]|\\[)\]])*")  # what closes a box or a tag
# the same in front of an answer: "is not $\boxed{5}$" denies it as much as "is not 5"
_OPENED = r"(?:[\s:$*_({`\[]|\\[(\[]|\\(?:boxed|fbox|framebox)|<answer>){0,12}"
_ANSWER = r"(?:that|this|it|(?:that|this|the|my) (?:\w{1,12} )?(?:answer|result|value|box))"
_SAY = r"(?:answer|choose|get|give|put|say|think|write)"
_IS_NOT = (
    r"(?:(?:is|are|was|be|does|do|[a-z]+['’]s) (?:certainly |definitely |clearly |surely )?not|"
    r"(?:could|would|should|will|must|might) not(?= be)|can ?not|never|[a-z]+n['’]t)"
)
# "is not $\boxed{", "can never be", "isn't", "anything but", "the wrong answer is", "it is false
# that it is", right in front of the answer, in small letters
_DENIED = re.compile(
    rf"(?:\b(?=[a-z])(?:{_IS_NOT}(?: (?:ever )?(?:be|equal|equal to))?|by no means|neither|"
    rf"(?:do not|don['’]t|never|no ?(?:one|body) (?:would|should)) {_SAY}|"
    rf"(?:{_IS_NOT} (?:think|believe|say)|(?:i|we) (?:\w{{1,10}}ly |do |must )?doubt|no way)"
    rf"(?: that)? {_ANSWER}(?:['’]s| is| equals)|"
    # "cannot be anything but 5" affirms it
    r"(?<!not )(?<!n.t )(?<!not be )(?<!n.t be )(?<!never be )anything (?:but|except|other than)|"
    r"(?:disregard|ignore)(?: the (?:box|answer|result))?|"
    r"(?:wrong|incorrect|false) (?:answer|result|guess)(?: (?:is|was|would be))?|"
    # a task may ask for an error, or where a mistake is
    rf"(?:(?:mistake|error|trap) (?:is|would be)|"
    rf"(?<!not )(?<!n.t )(?<!never )be (?:a mistake|wrong)) to {_SAY}|"
    r"(?:common|easy) (?:mistake|trap) (?:is|would be)|"
    r"(?:is|[a-z]+['’]s) (?:false|wrong|incorrect|untrue|not true|not the case) that "
    r"(?:(?!\b(?:so|hence|thus|therefore|but|since|because)\b)[^.,;!?\n]){1,40}?|"
    r"nicht|n['’]est pas|no es|n(?:on|ão) [èé]|niet|to nie)|"
    r"(?:\A|[.!?;,\n] ?)not|\bне|不是|不等于)" + _OPENED + r"\Z"
)
# one of these is in what withdraws
_DOUBTS = (
    *("wrong", "correct", "false", "error", "not ", "n't ", "n’t ", "take", "nonsense", "retract"),
    *("withdraw", "scratch", "strike", "regard", "ignore", "forget", "far from", "would "),
    *("kidding", "never mind", "misspoke", "edit:", "erratum"),
)
_WRONG = (  # alone, or in another language, right behind an answer
    r"wrong|incorrect|false|not correct|ist (?:falsch|nicht (?:richtig|korrekt))|est fau(?:x|sse)|"
    r"das ist falsch|c['’]est faux|(?:eso )?es (?:falso|incorrecto)|это неверно|неверно|[✗✘❌]"
)
_IS_WRONG = re.compile(
    rf"\A[\s.,;:!—–(-]*(?:{_WRONG})[.!)\s]*(?:\Z|\n)|"
    r"\A(?:是错|不对|不正确|ではな|ではあり|じゃな|이 아니|가 아니|değil)",
    re.IGNORECASE,
)
# "wrong if x < 0" and "wrong for n = 1" speak of a case, and take nothing back
_NO_CASE = r"(?! (?:for|if|when|where|unless|in|at|only|with|to)\b)"
_NOT_RIGHT = (
    r"(?:clearly |also |actually |obviously |probably |simply |definitely |certainly )?(?:wrong|"
    r"incorrect|mistaken|false|nonsense|(?:a|my) mistake|an error|far from (?:right|correct|true)|"
    r"(?:the|an?) (?:wrong|incorrect) (?:answer|result)|"
    r"not (?:right|correct|true|what we want|(?:the|my) (?:right |correct |final )?answer))\b"
    + _NO_CASE
)
_BE_WRONG = (
    rf"(?:(?:is|are|was|were|seems|looks|would be|must be) {_NOT_RIGHT}|(?:(?:cannot|can['’]t|"
    rf"couldn['’]t) be|isn['’]t) (?:right|correct|the (?:right |correct )?answer)\b{_NO_CASE})"
)
_IT_IS_WRONG = rf"(?:{_ANSWER}(?: above)?|the above|they|you)(?:['’]s {_NOT_RIGHT}| {_BE_WRONG})"
# "\boxed{5}. Wait, that is wrong." and "I retract that.": what the text takes back is no statement,
# and would be paid if a box alone counted
_WITHDRAWN = re.compile(
    rf"\A[\s.,;:!—–(-]*(?:(?:but|and|however),? )?{_PAUSE}{{0,3}}"
    rf"(?:(?:which )?{_BE_WRONG}|{_IT_IS_WRONG}|"
    r"(?:does not|doesn['’]t) (?:hold|work)\b(?! (?:for|if|when)\b)|"
    r"would (?:be|have been) [^.!?\n]{0,40}(?<!even )\bif\b)|"
    rf"\A[^.!?\n]{{0,60}} but {_IT_IS_WRONG}|"
    rf"[.!?\n]\s{{0,4}}{_PAUSE}{{1,3}}{_IT_IS_WRONG}|"
    rf"(?:\A|(?:[.!?\n—–]|(?<!\w)-)\s{{0,4}}){_PAUSE}{{0,3}}(?:please )?(?:"
    r"just kidding\b|never mind\b(?! (?:the (?!above|box)|what |how |if ))|"
    r"(?:correction|edit|erratum):|"
    r"(?:i|let me) (?:now |hereby |must |have to )?"
    r"(?:retract|withdraw|take (?:that|this|it) back)\b|"
    r"i (?:misspoke|was wrong|(?:made|have made) an? (?:mistake|error))\b"
    r"(?! (?:at first|first|before|earlier|initially|in|with|about|to)\b)|"
    r"(?:do not|don['’]t) (?:accept|trust) (?:this|that|the)\b|"
    r"(?:scratch|strike|disregard|ignore|forget) (?:that|this|the (?:above|box))\b)",
    re.IGNORECASE,
)
# "\boxed{x} (perhaps y)", "\boxed{x}. I mean y.": any formula
_OR_FORMULA = re.compile(
    rf"\A[\s.,;:(\[—–-]{{0,4}}+{_PAUSE}{{0,3}}"
    rf"(?:{_THOUGHT}|(?:or )?(?:maybe|perhaps|possibly|vielleicht|rather)|"
    # "Alternatively, n = 3 gives 27." goes on about the same answer
    r"alternatively(?=[,:]? \S+(?:[.,;!?)\n]|\Z))|"
    r"or (?:else|is it)|i meant?|make that|it should (?:be|have been)|"
    r"(?:al)?though the answer may be|(?:but )?it (?:might|could)(?: also| well)? be)[,:]? "
    r"\$?([^\s.,;!?$()]*[\d\\+=^][^\s,;!?$()]*(?<!\.))\$?(?=[.,;!?)\]\s]|\Z)",
    re.IGNORECASE,
)
_ONE_OF_SEVERAL = re.compile(
    r"\A(?:is|,) (?:one|an?|another) (?:possib\w+|candidate|option|potential answer)\b",
    re.IGNORECASE,
)
_PLAIN_NUMBER = re.compile(r"[+-]?(?:\d[\d,]*(?:\.\d+)?|\\[dt]?frac(?:\{\d+\}\{\d+\}|\d\d))")
_A_NUMBER = rf"\$?((?:{_PLAIN_NUMBER.pattern})(?:\\?%)?)\$?"
_CLAUSE_END = r"(?=[.,](?!\d)|[;!?)\]\n。，]|\Z| (?:if|or|when|for|depending|is)\b)"
_IF = r"\A(?:if|when|for)\b[^.\n]{1,60}?"
# "\boxed{27} (or 28 if 0 counts)", "\boxed{27}, though 28 is possible": beside a plain number
_OR_NUMBER = re.compile(
    r"\A[\s.,;:(\[—–-]{0,4}+(?:(?:and/|but |(?:al)?though )?(?:or(?: even)?|(?:or )?it is|"
    r"(?:it|the answer) (?:could|might|may)(?: also| well)? be) |(?:oder|ou?|oppure|или|/) |或者?|"
    rf"(?:but|(?:al)?though) (?=\S+ is (?:also )?possible)){_A_NUMBER}{_CLAUSE_END}|"
    rf"\A\({_A_NUMBER} (?:if|when|unless|in case)\b|"
    rf"{_IF}(?:[,;]| and| or) {_A_NUMBER} (?:if|when|for|otherwise)\b|"
    rf"{_IF}[,;] otherwise,? {_A_NUMBER}{_CLAUSE_END}",
    re.IGNORECASE,
)
# "\boxed{27}. The correct answer is 28."
_RESTATED = re.compile(
    r"(?:\b(?:(?:correct|right|actual|true|final) (?:answer|value|result)|(?:the|my) answer) "
    r"(?:is|should be|must be):?|(?:\A|\n)(?:final )?answer:) "
    rf"{_A_NUMBER}{_CLAUSE_END}",
    re.IGNORECASE,
)
# what a line of a list begins with: "- ", "1. ", "**(a) "
_BULLET = r"[\s*_#>•.()\d-]{0,12}(?:\(?(?:[ivx]{1,4}|[a-z])[).] )?"
_KIND = (
    r"(?:option|case|candidate|possibility|alternative|choice|scenario|approach|version|"
    r"(?:possible )?answer|solution|guess|fall|cas|caso|случай)"
)
# "Case 1: \boxed{3}" and "Case 2: \boxed{5}" cover two answers; the last one must not be paid
_CANDIDATE = re.compile(
    rf"{_BULLET}(?:{_KIND}s? ?#?(?:\d+|[a-z]|one|two)\b|"
    rf"(?:(?:the|my) )?(?:first|second|third|one|other|another) {_KIND}\b|"
    r"(?:if|when|for|either|otherwise|else|or)\b|情况[一二三\d]|情形[一二三\d])",
    re.IGNORECASE,
)
# "\boxed{3}, or maybe \boxed{5}": two guesses
_ALSO = re.compile(
    rf"{_BULLET}(?:alternatively|another {_KIND}|or(?: else| maybe| perhaps)?|perhaps|maybe|"
    r"possibly|"
    r"it (?:could|might|may)(?: also)? be)\b",
    re.IGNORECASE,
)
# with one of these between two boxes, the second one follows from an argument: a correction
_SAYS_WHY = re.compile(
    r"\b(?:wait|actually|wrong|incorrect|mistake|error|correct|instead|but|however|contradict\w*|"
    r"not|no|so|thus|hence|"
    r"therefore|discard|reject\w*)\b",
    re.IGNORECASE,
)
# "not $\boxed{4}$, but …": the first box is no answer, and no hedge either
_REJECTED = re.compile(
    r"(?:\bnot|n['’]t|\bneither|\bnicht|\bpas|\bno es|\bn(?:on|ão) [èé]|\bне|不是|"
    rf"\b(?:at first|initially|first) (?:i|we) (?:thought|got|guessed)){_OPENED}\Z",
    re.IGNORECASE,
)
_INSTEAD = re.compile(
    r"[\s,，;:.—–-]{0,8}(?:而是|(?:but|rather|instead|actually|sondern|mais|sino|mas?|а|"
    r"(?:it|that)(?:['’]s| is)|the (?:\w{1,12} )?answer is)\b)",
    re.IGNORECASE,
)
_CORRECTS = re.compile(
    r"\b(?:correct|right|actual|true) (?:answer|value|result|one) (?:is|should be)\b", re.IGNORECASE
)
# a model that quotes a reference behind its own answer states two, and bets on the second
_OTHERS_ANSWER = re.compile(  # "The reference answer is \\boxed{6}" behind one's own
    r"\b(?:(?:reference|official|expected|provided|published|stated) (?:answer|solution|result)|"
    r"answer key|ground[- ]truth|gold answer)\b[^.\n]{0,40}\Z",
    re.IGNORECASE,
)
_HAS_LETTER = re.compile(r"[^\W\d_]")
# a sentence ends with its sign; the space and dollar signs after it belong to neither piece
_PIECE = re.compile(r"(?<=[.!?;])(?<![Cc]ase \d\.)[\s$]+|\n")


def flaw_around(
    text: str, start: int, stop: int, *, may_ask: bool
) -> tuple[StatementFlaw, tuple[str, ...]] | None:
    """Why the words around an answer keep it from being stated, and the other answers that they
    name; None if it is stated.

    Args:
        text: a completion.
        start, stop: the answer's span in it, in characters.
        may_ask: whether a question mark behind the answer asks for it.
    """
    after = text[stop : stop + _AFTER]
    # most answers stand at the end
    rest = after.strip(_CLOSERS)
    if rest and not rest.isdecimal() and (flaw := _flaw_behind(after, text[start:stop], may_ask)):
        return flaw
    before = text[start - _NEAR if start > _NEAR else 0 : start].lower()
    return ("denied", ()) if _may_be_denied(before) and _DENIED.search(before) else None


def withdraws(between: str) -> bool:
    """Whether a text between two answers takes the first one back.

    Args:
        between: the text after the first answer and before the second.
    """
    return len(between) >= _LEAST_WORD and _WITHDRAWN.search(between) is not None


def _may_be_denied(before: str) -> bool:
    """Whether what stands before an answer can end a denial: quicker than the pattern."""
    tail = before.removesuffix("\\boxed{").rstrip(_OPENERS)
    word = tail[tail.rfind(" ") + 1 :]
    if word in _STATES:
        return _has_any(before, _DENIALS)
    if word in _DENIES or word[-3:] == "n't" or not word.isascii():
        return True
    if "box" in word or "<" in word:
        return True
    return " that " in before and _has_any(before, _FALSE)


def _flaw_behind(
    after: str, answer: str, may_ask: bool
) -> tuple[StatementFlaw, tuple[str, ...]] | None:
    """Whether what follows an answer asks, takes it back or names another one."""
    closed = _CLOSED.match(after)
    after = after[closed.end() :] if closed else after
    if may_ask and after.startswith("?"):
        return "asked", ()
    # one word, such as a unit
    if after.find(" ", 1) < 0 and ":" not in after and after.isascii():
        is_wrong = after.strip(" .,!()-").lower() in _WRONG_ALONE
        return ("retracted", ()) if is_wrong else None
    word = after[:30].lstrip(_PUNCTUATION).partition(" ")[0].rstrip(".,!)").lower()
    # else the sentence goes on, as behind units
    turns = word in _TURNS or not word.isascii() or (after[0] == "(" and word[:1].isdigit())
    if not turns and not _has_any(after.rstrip(" .\n"), _BREAKS):
        return None
    if _is_withdrawn(after, turns):
        return "retracted", ()
    others = _named_behind(after, answer, turns)
    return None if others is None else ("hedged", others)


def _is_withdrawn(after: str, turns: bool) -> bool:
    """Whether what follows an answer takes it back, or puts another one in its place."""
    if turns and (
        _IS_WRONG.match(after)
        # a correction such as "No, Lyon." ends the text: further on it is about something else
        or (len(after) < _ENDING and _CORRECTION.match(after))
    ):
        return True
    return _has_any(after.lower(), _DOUBTS) and _WITHDRAWN.search(after) is not None


def _named_behind(after: str, answer: str, turns: bool) -> tuple[str, ...] | None:
    """The other answers named behind an answer; none of them where it is called one of several."""
    if turns and (formula := _OR_FORMULA.match(after)):
        return (formula[1],)
    if turns and _ONE_OF_SEVERAL.match(after):
        return ()
    number = _OR_NUMBER.match(after) if turns else None
    # further on the text may have gone over to another question
    near = after[:_BEFORE]
    if number is None and _has_any(near, ("nswer", " value ", " result ")):
        number = _RESTATED.search(near)
    if number is None or not _PLAIN_NUMBER.fullmatch(answer):
        return None
    return (number[number.lastindex or 0],)


def _has_any(text: str, words: tuple[str, ...]) -> bool:
    for word in words:  # noqa: SIM110  # `any` takes twice the time
        if word in text:
            return True
    return False


def in_one_statement(text: str, first: int, between: str) -> bool:
    """Whether two answers belong to one statement, or are cases or candidates of one list.

    The second one is not a correction of the first.

    Args:
        text: the completion.
        first: where the first answer's mark begins.
        between: what stands between the two answers.
    """
    # before all else: a quoted reference never corrects, whatever is said in between
    if _OTHERS_ANSWER.search(between):
        return True
    if same_statement(between):
        return not _corrects(text[max(0, first - _NEAR) : first], between)
    # far apart, or with a reason in between: the second one is the answer the model has come to
    if len(between) > _BEFORE or _SAYS_WHY.search(between):
        return False
    second = _last_piece(between)
    if _ALSO.match(second):
        return True
    before = _last_piece(text[max(0, first - _BEFORE) : first])
    # both must look like items of a list: "Case 2" alone may sum up what was said before
    return bool(_CANDIDATE.match(second) and _CANDIDATE.match(before))


def _corrects(before: str, between: str) -> bool:
    r"""Whether the second of two answers of a statement stands for the first: `not \\boxed{4} but
    \\boxed{5}`."""
    closed = _CLOSED.match(between)
    after = between[closed.end() :] if closed else between
    if _CORRECTS.search(between) or _WITHDRAWN.match(after):
        return True
    return bool(_INSTEAD.match(after) and _REJECTED.search(before))


def _last_piece(text: str) -> str:
    """The last sentence or line that says something."""
    pieces = [piece for piece in _PIECE.split(text) if _HAS_LETTER.search(piece)]
    return pieces[-1] if pieces else ""
