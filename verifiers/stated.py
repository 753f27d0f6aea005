r"""What the words around an answer say of it: it is asked, denied, taken back, or one of several.

A small grammar with tables of words, and no phrases.  Behind an answer a clause speaks of it as

    openings (wait, but, so …) · subject · function words · what is said

where the subject is the answer itself, "it", "this result" or "I", and what is said is good
("right", "works"), bad ("wrong", "fails"), or another value.  Each negation among the function
words turns good into bad and back; at any other word the clause speaks of something else.  The last
clause that speaks of the answer decides.  In front of an answer the words are read backwards from
it, over its verb and the subject of the verb: "it is not true that the sum is \boxed{5}".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice, pairwise
from typing import Literal, NamedTuple

from rlvr.text import same_statement

__all__ = ["StatementFlaw", "flaw_around", "in_one_statement", "withdraws"]

StatementFlaw = Literal["hedged", "denied", "asked", "retracted"]
_Flaw = tuple[StatementFlaw, tuple[str, ...]]
# of an answer: -1 that it is wrong, 1 that it is right, 0 nothing, or the others that are named
_Said = int | tuple[str, ...]


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_NEAR, _BEFORE, _AFTER = 80, 200, 1500  # characters around an answer that are read
_HEAD = 60  # characters that hold the first words of a sentence
_FARTHEST = 400  # characters between two answers of one list
_OPENERS = " \t\r\n\xa0:$*_({`[\\"
_CLOSERS = "} \t\r\n$*_`()[].\\"
_MARKS = ("\\boxed", "\\fbox", "\\framebox", "<answer>")  # in small letters
_CLOSED = re.compile(r"(?:</answer>|[ \t}$*_`)\]]|\\[)\]])*")  # what closes a box or a tag
_TOKEN = re.compile(r"[][,;:()…，；：、（）—–|]|-{2,}|[^][\s,;:()…，；：、（）—–|]+")
_BREAKS = frozenset("[],;()…，；、（）—–-|") | {"--", "---"}
_SENTENCE = re.compile(r"([.!?。！？\n](?:(?<![.!?])|(?=[\s)$\"”<]|\Z)))")
_NUMBER = re.compile(r"[+-]?(?:\d[\d,]*(?:\.\d+)?|\\[dt]?frac(?:\{\d+\}\{\d+\}|\d\d))(?:\\?%)?")
_HAS_VALUE = re.compile(r"[\d\\=^]")
_NO_SIGNS = dict.fromkeys(map(ord, ".,;:!?()[]*$|—–-…\n"), " ")

# ------------------------------------------------------------------------------ tables of words

_JOINS = _words("and but so because since as though although while whereas hence thus or")
_NOT = _words(
    "not never cannot can't isn't aren't wasn't weren't won't don't doesn't didn't couldn't",
    "shouldn't wouldn't hasn't haven't mustn't nor neither no nobody refuse far without beyond",
    "nicht nie keinesfalls kein keine pas non não nunca не niet inte ikke",
)
_NOUNS = _words(
    "answer result value solution box above verification check test antwort ergebnis réponse",
    "résultat respuesta resultado risposta risultato resposta ответ",
)
_GOOD = _words(
    "right correct true valid acceptable possible plausible justified reasonable accurate",
    "answer solution satisfy satisfies work works hold holds fit fits match matches stands case",
    "what richtig richtige antwort korrekt wahr stimmt juste bonne réponse vrai correcto",
    "correcta cierto respuesta giusto vero corretto certo risposta correto verdade resposta",
    "верно правильно ответом",
)
_FALSE = _words(
    "wrong incorrect false untrue mistaken nonsense mistake error impossible unlikely erroneous",
    "falsch fehler rechenfehler unmöglich faux fausse erreur falso incorrecto erróneo sbagliato",
    "errato erro errado ошибка неверно fout fel",
)
_BAD = _words(
    "slip invalid reject rejected discard discarded exclude excluded ruled extraneous",
    "inadmissible fail fails failed too off out contradiction contradicts violates",
).union(_FALSE)
# what a speaker does to an answer of his own
_TAKES_BACK = _words(
    "misread misspoke miscounted miscalculated slipped erred retract withdraw back forgot",
    "kidding equivoqué ошибся ошиблась",
)
_DROPS = _words("scratch strike scrap cross disregard ignore forget discard never")
_REFUSES = _words("reject discard exclude")  # what follows is refused
_PRONOUNS = _words("it this that which these they you it's that's das c'est è это eso sie")
_SPEAKERS = _words("i i've let me ich je я just")
_DETERMINERS = _words("the my our this that a an another die la")
_SURE = _words("correct right actual true real")
_QUALITIES = _words(
    "final acceptable valid possible alternative boxed above equally corrected"
).union(_SURE)
_OR = _words("or oder ou o oppure или 或 soit / and/or possibly maybe perhaps")
_MODAL = _words(
    "alternatively rather else vielleicht may might could should otherwise instead"
).union(_OR)
# what stands between a subject and what is said of it
_LINKS = _words(
    "is are was were be been being am has have had having to can must will would do does did",
    "seem seems looks appears going gives give leads yields made make the a an any all my our",
    "there we also clearly actually obviously probably simply certainly definitely surely",
    "therefore thus hence really quite ever longer well even still exactly used arithmetic",
    "calculation above now realise realize see think believe know hope say get sure afraid very",
    "such final count accept trust take equal equals mean meant from : = ist war leider ein",
    "eine kann lautet sein die glaube dass est n'est une un ne peut être crois certainement es",
    "puede ser igual una la que creo può essere pode é um uma credo acho был быть может точно",
    "является что kan är det na pewno",
).union(_PRONOUNS, _SPEAKERS, _MODAL)
_OPENINGS = _words(
    "however then therefore yet on upon second thought reflection checking please update oh",
    "wait hmm actually sorry oops unfortunately nein нет anzi perdón pardon correction edit",
    "erratum hold apologies alternatively rather else either vielleicht make otherwise instead",
    "also final :",
).union(_JOINS, _OR)
_ASIDES = _words("no wait hmm actually sorry oops unfortunately nein non нет")
# after one of these the speaker corrects himself
_TURNS = _words(
    "anzi perdón pardon correction edit erratum hold apologies reflection thought oh make bad"
).union(_ASIDES)
_POSSIBLE = _words("possible acceptable plausible valid")
_SEVERAL = _words("possibility candidate option possible potential")
# in front of one of these what is said holds for a case, or of something else
_CASES = _words("if when for unless where in at only with without that to about of until")
_IF = _words("if when unless for in suppose assuming otherwise falls si se если")
_BESIDE = _words("if when unless otherwise")
_VALUE_ENDS = _words("if when for depending instead though too unless as or")
_SHOWS = _words("shows show find see out means")
_YES = _words("yes yep indeed correct right ja oui sí да")
_WHY = _words("why warum pourquoi")
_ASKS = _words(
    "is are was were does do did can could should would will might may what who whether ist",
    "est-ce",
)
# in front of an answer: its verb, the words around the verb, and the subject
_FINITE = _words(
    "is are was were equals = : isn't aren't wasn't weren't ist war est är comes amounts lies",
    "sea sia seja soit",
)
_SAYS = _words("answer say think expect write guess claim conclude infer assume deduce")
_TO_BOX = _words(
    "be been being equal equals to than exactly necessarily possibly certainly definitely",
    "clearly surely really strictly just well ever going get give choose put arrive at the a an",
    "can could would should will must may might do does by means one out sein kann lautet n'est",
    "ne peut être certainement es puede ser igual è può essere é pode быть может точно kan na",
    "pewno",
).union(_SAYS)
_SUBJECTS = _words(
    "answer result value antwort ergebnis réponse résultat respuesta resultado risposta",
    "risultato resposta ответ it this that it's that's he she one x y n they guess total sum",
    "number box",
)
_MATRIX = _TO_BOX | _LINKS | _GOOD | {"way"}
_ADVERBS = _words("here therefore thus hence then also clearly would could must should")
_MISLEADS = _words(
    "trap doubt doubtful disregard ignore erroneously incorrectly wrongly mistakenly tempting",
    "careless reject rule",
).union(_FALSE)
_TRAPS = _words("mistake trap error")
_USUAL = _words("common easy typical frequent classic")
_EXCEPT = _words("but except than")
_ANYTHING = _words("anything everything")
_MORE = _words("smaller greater less more larger bigger fewer higher lower differs different")
_WOULD = _words("would might may often")
_UNSURE = _words("whether if ob")
_WONDERS = _words("myself wonder wonders know knows sure unsure unclear clear tell ask see")
# between two answers
_KINDS = _words(
    "option case candidate possibility alternative choice scenario approach version answer",
    "guess solution interpretation reading attempt method convention assumption hypothesis",
    "estimate bound fall möglichkeit cas caso случай",
)
_CONTRASTS = _words(
    "first second third one two other others another some with without primary backup either",
    "for under by suppose assuming assume let lower upper wenn falls erste zweite quand si",
    "cuando se если",
).union(_MODAL, _BESIDE)
_CASE_MARKS = _CONTRASTS | _KINDS
# quick looks
_JUDGING = frozenset().union(_NOT, _BAD, _TAKES_BACK, _DROPS, _ASIDES, _SEVERAL, ("would",))
_NAMING = frozenset().union(
    _TURNS, _MODAL, _NOUNS, _POSSIBLE, _BESIDE, _words("mean meant accept fact")
)
_TURNING = _JUDGING | _NAMING | {"for"}
_FAR = (_NOUNS | _TURNS | _DROPS | _BAD | _TAKES_BACK) - {"no", "non"}
_ENDS_DENIAL = _EXCEPT | _OR | _SAYS | _NOT | _MISLEADS | {"from", "below", "above"}
_LEADS = ((_TO_BOX | _FINITE | _SUBJECTS) - _ENDS_DENIAL) | {"it's", "that's"}
_DENYING = frozenset().union(_NOT, _MISLEADS, _UNSURE, _ANYTHING)

# ------------------------------------------------------------- scripts without spaces between words

_NEGATED = re.compile(r"不(?:可能|应该|应|会|能)?(?:是|为|等于)\Z|(?:≠|\\neq?| !=)\Z")
_IS_FALSE = re.compile(
    r"[。，. ]{0,3}(?:(?:\s?(?:是错|では(?:な|あり)|じゃな|[이가] 아[니닙]|değil)|"
    r"(?:这个?|该|此|等等|不|哦|啊|我|算|上述|结果|答案|是|いや|[、，\s]){0,8}"
    r"(?:不对|错了|错误|不正确|不成立|間違|틀렸))|\s*[✗✘❌])"
)
_NAMES = re.compile(rf"答案(?:是|为|应为|应该是) ?\$?({_NUMBER.pattern})")
_ASKING = "吗呢かですしょう "  # in front of a question mark
# a model that quotes a reference behind its own answer states two, and bets on the second
_OTHERS_ANSWER = re.compile(  # "The reference answer is \\boxed{6}" behind one's own
    r"\b(?:(?:reference|official|expected|provided|published|stated) (?:answer|solution|result)|"
    r"answer key|ground[- ]truth|gold answer)\b[^.\n]{0,40}\Z",
    re.IGNORECASE,
)
# bullets alone, and cells of a table: the answers are items of a list
_ITEM = re.compile(r"[ \t]*(?:[-*•]|\(?\w{1,2}[.)])[^\w]*(?:\\boxed)?\Z|[ \t]*\|")


class _Clause(NamedTuple):
    """A clause, and the words that open it.  Words are in small letters; numbers and formulas are
    as they were."""

    opening: list[str]
    words: list[str]


def flaw_around(text: str, start: int, stop: int, *, may_ask: bool) -> _Flaw | None:
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
    if rest and not rest.isdecimal() and _may_turn(rest):
        before = text[max(0, start - _BEFORE) : start]
        flaw = _flaw_behind(_unclosed(after), before, text[start:stop], may_ask)
        if flaw is not None:
            return flaw
    tail = _unopened(text[start - _NEAR if start > _NEAR else 0 : start])
    return _flaw_before(tail, text[start:stop]) if _may_deny(tail) else None


def withdraws(between: str) -> bool:
    """Whether a text between two answers takes the first one back.

    Args:
        between: the text after the first answer and before the second.
    """
    return _read_behind(_unclosed(between), "") == -1


def in_one_statement(text: str, first: int, between: str) -> bool:
    """Whether two answers belong to one statement, or are cases or candidates of one list.

    The second one is not a correction of the first.

    Args:
        text: the completion.
        first: where the first answer's mark begins.
        between: what stands between the two answers.
    """
    # before all else: a quoted reference never corrects, whatever is said in between
    if _OTHERS_ANSWER.search(between[-_NEAR:]):
        return True
    before = text[max(0, first - _BEFORE) : first]
    if not same_statement(between) and not _are_parallel(before, between):
        return False
    after = _unclosed(between)
    denied = _flaw_before(_unopened(before), "")
    if denied is not None and denied[0] == "denied":
        return not _OR.isdisjoint(_tokens(after)[:1])  # "not 4 or 5"
    return not _corrects(after)


def _unclosed(after: str) -> str:
    closed = _CLOSED.match(after)
    return after[closed.end() :] if closed else after


def _unopened(before: str) -> str:
    tail = before.removesuffix("\\boxed{").rstrip(_OPENERS)
    while tail.endswith(_MARKS):
        tail = tail[: max(tail.rfind("\\"), tail.rfind("<"))].rstrip(_OPENERS)
    opened = before[len(tail) :]
    if ":" in opened:  # "x:" says as much as "x is"
        return tail + " :"
    # "20 of them will not" ends with its line, "the answer is not" does not
    last = tail[-_NEAR // 2 :].lower().split()[-2:] if "\n" in opened else []
    is_ended = bool(last) and last[-1] in _NOT and _FINITE.isdisjoint(last)
    return "" if is_ended else tail


def _may_turn(rest: str) -> bool:
    """Whether a word behind an answer can take it back or name another one: a quick look."""
    small = rest.lower()
    if rest.isalpha() and rest.isascii():  # such as a unit
        return small in _BAD
    if not rest.isascii() or "?" in rest[:_BEFORE]:
        return True
    # a translation takes longer than all else
    plain = small if rest.replace(" ", "").isalnum() else small.translate(_NO_SIGNS)
    words = plain.split()
    if not _JUDGING.isdisjoint(words):
        return True
    names = not _NAMING.isdisjoint(words) or words.count("for") > 1
    return names and _HAS_VALUE.search(rest) is not None


def _may_deny(tail: str) -> bool:
    """Whether words in front of an answer can deny it: a quick look, since most do not."""
    words = tail[-_NEAR // 2 :].lower().split()
    word = words[-1] if words else ""
    if word in _LEADS:
        if not _DENYING.isdisjoint(words) or not tail.isascii():
            return True
        is_part = " that " in tail or "dass " in tail
        return is_part and not _DENYING.isdisjoint(tail.lower().replace(",", " ").split())
    return word in _ENDS_DENIAL or not word.isascii() or word.endswith(("\\ne", "\\neq", "!="))


def _tokens(text: str) -> list[str]:
    text = (
        text.replace("’", "'")
        .replace("\\(", "$")
        .replace("\\)", "$")
        .replace("*", " ")
        .replace('"', " ")
    )
    text = text.replace("in which case", "otherwise").replace("but in fact", "but actually")
    text = text.replace(", dass", " dass")
    if not text.isascii():
        text = text.replace(", что", " что")
        text = text.replace("或者", "或").replace("或", " 或 ")
    tokens = _TOKEN.findall(text)
    return [token.lower() if token.isalpha() or "'" in token else token for token in tokens]


def _last_sentence(text: str) -> list[str]:
    return _tokens(_SENTENCE.split(text)[-1])


def _value(token: str) -> str:
    """A number or formula; "" if the token is neither."""
    token = token.strip("$").rstrip("\\.!")
    return token if _HAS_VALUE.search(token) and token != "=" else ""


# --------------------------------------------------------------------------------- behind an answer


def _flaw_behind(after: str, before: str, answer: str, may_ask: bool) -> _Flaw | None:
    """Whether what follows an answer asks, takes it back or names another one."""
    if may_ask and _is_asked(after, before):
        return "asked", ()
    if not after.isascii():
        if _IS_FALSE.match(after):
            return "retracted", ()
        if named := _NAMES.search(after[:_BEFORE]):
            return "hedged", (named[1],)
    said = _read_behind(after, answer)
    if said == -1:
        return "retracted", ()
    return ("hedged", said) if isinstance(said, tuple) else None


def _is_asked(after: str, before: str) -> bool:
    end = _SENTENCE.search(after)
    if end is None or end[0] not in ("?", "？"):
        return False
    opening = [word for word in _last_sentence(before) if word not in _OPENINGS | _BREAKS][:1]
    if not _YES.isdisjoint(_tokens(after[end.end() :][:20])[:1]) or not _WHY.isdisjoint(opening):
        return False
    return not after[: end.start()].strip(_ASKING) or not _ASKS.isdisjoint(opening)


def _clauses(sentence: str) -> Iterator[_Clause]:
    opening: list[str] = []
    words: list[str] = []
    for token in (*_tokens(sentence), ","):
        is_break = token in _BREAKS or (token == "that" and words[-1:] and words[-1] in _SHOWS)
        if not is_break and not (token in _JOINS and words):
            words.append(token)
            continue
        at = 0
        while at < len(words) and _opens(words, at):
            at += 1
        opening += words[:at]
        if at < len(words):
            yield _Clause(opening, words[at:])
            opening = []
        words = [] if is_break else [token]
    if opening:
        yield _Clause(opening, [])


def _opens(words: Sequence[str], at: int) -> bool:
    following = words[at + 1] if at + 1 < len(words) else "it"
    if words[at] in ("no", "non"):  # "no, it is 5" and "no wait", not the "no" of "no doubt"
        return following in _TURNS or following in _PRONOUNS or following in ("i", "the")
    return words[at] in _OPENINGS or (
        words[at] in ("my", "bad") and following in ("bad", ":", "it")
    )


def _read_behind(after: str, answer: str) -> _Said:
    """What the text behind an answer says of it last."""
    last: _Said = 0
    near = True  # whether "it" and "that" still mean the answer
    mark = ""
    pieces = [*_SENTENCE.split(after), ""]
    final = max((at for at in range(0, len(pieces), 2) if pieces[at].strip()), default=0)
    for at in range(0, len(pieces), 2):
        sentence, asked, mark = pieces[at], mark == "?", pieces[at + 1]
        if not sentence.strip(_CLOSERS):
            continue
        spoken = sentence.lower().translate(_NO_SIGNS).split()
        if sentence.isascii() and (_TURNING if near else _FAR).isdisjoint(spoken):
            near = near and at == 0
            continue
        clauses = list(_clauses(sentence))
        said, near = _read_sentence(clauses, answer, is_own=at == 0, near=near)
        if isinstance(said, int) and mark in ("?", "？"):
            said = 0
        if said == 0 and at == final and not asked and clauses and _is_aside(clauses[-1]):
            said = -1
        last = last if said == 0 else said
        near = near and (at == 0 or not any(clause.words for clause in clauses))
    return last


def _read_sentence(
    clauses: Sequence[_Clause], answer: str, *, is_own: bool, near: bool
) -> tuple[_Said, bool]:
    """What a sentence says of the answer, and whether "it" still means the answer behind it.

    Args:
        clauses: of the sentence.
        answer: its text.
        is_own: whether the answer itself stands in front of the first clause.
        near: whether "it" means the answer in the first clause.
    """
    last: _Said = 0
    condition: list[str] = []
    previous = ""
    for clause in clauses:
        opening, words = clause
        if not condition and not _IF.isdisjoint(words[:1]):
            condition = opening + words
        said = _read_clause(clause, answer, condition, is_own=is_own, near=near)
        is_listed = _value(previous) and not _OR.isdisjoint(opening[-1:])  # "by 2, 3 or 4"
        if is_listed or (condition and isinstance(said, int)):
            said = 0
        last = last if said == 0 else said
        # a clause of something else is what "it" means behind it
        near = near and (is_own or said != 0 or not words or words[-1] in _SHOWS)
        is_own = False
        previous = words[-1] if words else ""
    return last, near


def _is_aside(clause: _Clause) -> bool:
    """ "The answer is Paris.  No, Lyon." corrects itself where nothing follows."""
    words = clause.words
    if _ASIDES.isdisjoint(clause.opening) or len(words) > 4:
        return False
    return not words or words[0] not in _SPEAKERS | _GOOD | {"for"}  # "sorry for …"


def _read_clause(
    clause: _Clause, answer: str, condition: Collection[str], *, is_own: bool, near: bool
) -> _Said:
    """What a clause says of the answer.

    Args:
        clause: from `_clauses`.
        answer: its text.
        condition: the words of a clause with "if" in the sentence, up to this clause.
        is_own: whether the answer itself stands in front of the clause.
        near: whether "it" means the answer.
    """
    opening, words = clause
    if not words:
        return 0
    turned, modal = not _TURNS.isdisjoint(opening), not _MODAL.isdisjoint(opening)
    if _value(words[0]):
        is_named = _is_beside(words, condition) or ((turned or modal) and _ends_value(words, 0))
        return _name(_value(words[0]), answer, turned, modal) if is_named else 0
    if noun := _noun_phrase(words):
        return _name(_walk(words, noun), answer, False, False)
    if words[0] in _BESIDE and "were" not in words:
        for at in range(1, len(words)):
            if words[at] in _NOUNS and words[at - 1] in _DETERMINERS:
                return _name(_walk(words, at + 1), answer, False, False)
    if words[0] in _DROPS and words[0] != "never" and len(words) == 1 and near:
        return -1  # "Please disregard."
    if words[0] in _DROPS and words[1:3] in (["what", "i"], ["all", "that"]):
        return -1  # "Forget what I said."
    if words[0] in _DROPS and not (_DETERMINERS | _PRONOUNS | {"mind"}).isdisjoint(words[1:2]):
        return -1 if len(words) == 2 or not (_NOUNS | {"out"}).isdisjoint(words[2:4]) else 0
    if words[0] in _SPEAKERS and not modal:
        said = _walk(words, 0, _BAD | _TAKES_BACK)
        names = not {"meant", "mean", "accept", "instead"}.isdisjoint(words)
        return _name(said, answer, turned, True) if names or isinstance(said, int) else 0
    if is_own and words[0] == "is" and not _SEVERAL.isdisjoint(words[2:3]):
        return () if words[1] in ("one", "a", "an", "another") else 0
    if is_own or turned or modal or (near and words[0] in _PRONOUNS):
        said = _walk(words, 0)
        if isinstance(said, int):  # "it may seem wrong" takes nothing back
            return 0 if modal or "may" in words or "might" in words else said
        modal = modal or not _MODAL.isdisjoint(words)
        return _name(said, answer, turned, modal) if turned or modal else 0
    is_order = words[0] in ("do", "don't") and (words[-1] in _PRONOUNS or words[-1] in _NOUNS)
    if near and (is_order or (len(words) == 1 and words[0] in _BAD)):
        return _name(_walk(words, 0), answer, False, False)
    return 0


def _noun_phrase(words: Sequence[str]) -> int:
    """How many words "the correct answer" has at the start of a clause; 0 for other subjects."""
    for at, word in enumerate(words, 1):
        if word in _NOUNS and words[at : at + 1] and words[at] not in _NOUNS:
            return at
        if word not in _DETERMINERS and word not in _QUALITIES and word not in _NOUNS:
            break
    return 0


def _is_beside(words: Sequence[str], condition: Collection[str]) -> bool:
    """Whether the value that a clause begins with is another answer: "28 if zero counts"."""
    following = words[1] if len(words) > 1 else ""
    if following in _BESIDE or (condition and following in ("for", "otherwise")):
        return True
    if not following:
        return not (_NOT | _BAD | {"but"}).isdisjoint(condition)
    return _walk(words, 1) == 1 and not _POSSIBLE.isdisjoint(words)


def _is_another(words: Sequence[str]) -> bool:
    """Whether an object is not the answer, as "the negative root"; "my final answer" is."""
    bare = [word for word in words if word not in _DETERMINERS and word not in _QUALITIES]
    return bool(bare) and bare[0] not in _NOUNS and bare[0] not in _PRONOUNS


def _ends_value(words: Sequence[str], at: int) -> bool:
    return at + 1 == len(words) or words[at + 1] in _VALUE_ENDS


def _name(said: int | str, answer: str, turned: bool, modal: bool) -> _Said:
    """What `_walk` read, where a value may be another answer: "the answer is" names one only beside
    a number, and one that corrects takes the answer back."""
    if isinstance(said, int):
        return said
    if said == answer:
        return 0
    if turned:
        return -1
    return (said,) if modal or (_NUMBER.fullmatch(said) and _NUMBER.fullmatch(answer)) else 0


def _walk(words: Sequence[str], at: int, bad: Collection[str] = _BAD) -> int | str:
    """What the words from a place on say of their subject, over function words: 1, -1 or 0, or the
    value that it is said to be."""
    sign = 1
    while at < len(words):
        word, following = words[at], words[at + 1] if at + 1 < len(words) else ""
        if word in _NOT:
            sign = -sign
        elif word in _GOOD or word in bad:
            if following in _CASES or (_value(following) and word not in _TAKES_BACK):
                is_unreal = following == "if" and word in _GOOD and "would" in words[:at]
                return -1 if is_unreal else 0
            tail = words[at + 1 :]
            if (word in _REFUSES and _is_another(tail)) or (word == "too" and not tail):
                return 0
            if following in _NOT:  # "das stimmt nicht"
                sign = -sign
            return sign if word in _GOOD else -sign
        elif value := _value(word):
            return value if sign > 0 and _ends_value(words, at) else 0
        elif word not in _LINKS:
            return 0
        at += 1
    return -1 if sign < 0 and (words[-1] in _PRONOUNS or words[-1] == "be") else 0


# ---------------------------------------------------------------------------- in front of an answer


def _flaw_before(tail: str, answer: str) -> _Flaw | None:
    """Whether what stands in front of an answer denies it, asks for it or names another one."""
    words = _last_sentence(tail)
    begin = next((at + 1 for at in reversed(range(len(words))) if _parts(words, at)), 0)
    if _NEGATED.search(tail.removesuffix(" :")) or _is_denied(words[begin:]):
        return "denied", ()
    for word, following in pairwise(words[begin:]):
        if word in _WONDERS and following in _UNSURE:
            return "asked", ()
    if words and words[-1] in _OR:
        at = -3 if words[-2:-1] == [","] else -2
        named = _value("".join(words[at : at + 1]))
        if _NUMBER.fullmatch(named) and _NUMBER.fullmatch(answer):
            return "hedged", (named,)
    return None


def _parts(words: Sequence[str], at: int) -> bool:
    """Whether a word stands between the clause of an answer and what is in front of the clause."""
    if words[at] == "but" and at and words[at - 1] in _ANYTHING:
        return False
    is_label = words[at] == ":" and at + 1 < len(words)
    return is_label or words[at] in _BREAKS or words[at] in _JOINS


def _is_denied(words: Sequence[str]) -> bool:
    """Whether a clause denies the answer at its end."""
    if words[-1:] == [":"] and _ends_verb("".join(words[-3:-2]), "".join(words[-2:-1])):
        words = words[:-1]  # "is not: 5", but "not won: 5"
    is_denied, compared, at = _read_verb(words)
    while at >= 0 and words[at] in _ADVERBS:
        at -= 1
    if at < 0:
        return is_denied
    if compared and words[at] in _NOUNS:  # "the answer is below"
        return True
    if words[at] in _TRAPS and not _USUAL.isdisjoint(words[at - 1 : at]):
        return True
    if words[at] in _TRAPS and words[at + 2 : at + 3] == ["to"]:  # "the trap is to answer"
        return True
    at = at - 1 if words[at] in _SUBJECTS else _before_that(words, at)
    # the clauses that this one is a part of: "it is false that", "I doubt that"
    while at >= 0:
        if words[at] in _NOT or words[at] in _MISLEADS:
            is_denied = not is_denied
        elif words[at] not in _MATRIX:
            at = _before_that(words, at)
            continue
        at -= 1
    return is_denied


def _read_verb(words: Sequence[str]) -> tuple[bool, bool, int]:
    """Of the verb in front of an answer, read backwards: whether it denies the answer or compares
    with it, and the place of its subject's last word; -1 where the subject says nothing."""
    is_denied = compared = False
    at = len(words) - 1
    while at >= 0:
        word, following = words[at], words[at + 1] if at + 1 < len(words) else ""
        previous = words[at - 1] if at else ""
        if previous in _MORE or word in ("below", "above"):
            at -= 1 + (previous in _MORE)
            if previous == "differs":
                return is_denied, True, at
            compared = at < 0 or words[at] not in _NOT
            if not compared:  # "no more than"
                at -= 1
            continue
        if word in _EXCEPT:  # "anything other than", "anything but"
            at -= 1 + (previous in ("other", "else"))
            if at < 0 or words[at] not in _ANYTHING:
                break
            is_denied = not is_denied
        elif word in _NOT:
            is_denied = not is_denied
            if word in _FINITE:
                return is_denied, compared, at - 1
        elif word in _MISLEADS and following not in _FINITE:
            is_denied = not is_denied
        elif word in _SAYS and previous in _WOULD and at > 1 and words[at - 2] not in ("i", "we"):
            return True, False, -1
        elif word in _SUBJECTS and word not in _TO_BOX:
            return is_denied, compared, at
        elif word in _FINITE:
            return is_denied, compared, at - 1
        elif word not in _TO_BOX and not (word == "have" and following in ("been", "to")):
            break
        at -= 1
    return is_denied, compared, -1


def _ends_verb(before: str, word: str) -> bool:
    if word in _NOT:
        return before in _MATRIX | _FINITE | _SUBJECTS
    return word in _TO_BOX or word in _FINITE or word in _EXCEPT or word in _DROPS


def _before_that(words: Sequence[str], at: int) -> int:
    """The place in front of the last "that" before a place; -1."""
    while at >= 0 and words[at] not in ("that", "dass", "que"):
        at -= 1
    return at - 1 if at >= 0 else -1


# ---------------------------------------------------------------------------------- between answers


def _corrects(between: str) -> bool:
    """Whether what stands between two answers takes back the first one or turns to another one."""
    if _read_behind(between, "") == -1:
        return True
    for piece in _SENTENCE.split(between):
        for opening, words in _clauses(piece):
            is_sure = not _SURE.isdisjoint(words[:3]) or not {"but", "however"}.isdisjoint(opening)
            if not _TURNS.isdisjoint(opening) or (is_sure and not _NOUNS.isdisjoint(words[:4])):
                return True
    return False


def _are_parallel(before: str, between: str) -> bool:
    """Whether two answers are items of one list: both have a bullet alone, the second one is called
    a possibility, or their sentences begin with words that set cases against each other."""
    if len(between) > _FARTHEST:
        return False
    if _ITEM.match(before[before.rfind("\n") + 1 :]) and _ITEM.match(
        between[between.rfind("\n") + 1 :]
    ):
        return True
    last = next(_heads(between), None)
    if last is None or last[0] in ("so", "thus", "hence", "therefore"):
        return False
    if last[0] in _MODAL or last[:2] == ["it", "could"]:
        return True
    if last[0] == "another" and not _KINDS.isdisjoint(last[:3]):
        return True
    cases = [head for head in islice(_heads(before), 3) if not _CASE_MARKS.isdisjoint(head)]
    return bool(cases) and any(_are_cases(one, other) for other in _heads(between) for one in cases)


def _heads(text: str) -> Iterator[list[str]]:
    """The first words of each sentence and line that has some, from the last one on."""
    for piece in reversed(_SENTENCE.split(text)):
        words = [word for word in _tokens(piece[:_HEAD]) if word not in _BREAKS][:4]
        if any(map(str.isalpha, words)):
            yield words


def _are_cases(one: Sequence[str], other: Sequence[str]) -> bool:
    marks = _CASE_MARKS.intersection(other)
    return bool(marks) and (one[0] == other[0] or one[0] in _CONTRASTS or not marks.isdisjoint(one))
