"""What an answer says beside its value: remarks in brackets, and sentences about it.

\\frac34 "(simplified)"  →  \\frac34           Twelve (12)  →  12
3:2 (boys to girls)  →  3:2, where the prompt speaks of boys to girls
Anna is taller than Ben  →  Anna, where it asks who is taller
"""

from __future__ import annotations

import re

from rlvr.verifiers.math.units import SCALES, is_measured
from rlvr.verifiers.math.words import number, plain, unquoted

__all__ = ["question", "without_remark"]

# Behind an answer to any task.
_SAYS_NOTHING = frozenset(
    "simplified|fully simplified|in simplest form|simplest form|in lowest terms|lowest terms|"
    "reduced|rectangular form|polar form|exponential form|standard form|slope intercept form|"
    "factored form|factored|expanded|interval notation|in interval notation|exact|exact value|"
    "exact form|exact answer|final answer|answer|qed|checked|verified|as required|proved".split("|")
)
# A remark with one of these may turn the answer round.
_CHANGES = frozenset(
    "not no nor never neither or and but if unless except only just without wrong false incorrect "
    "rejected extraneous least most about approximately nearly almost roughly times half twice "
    "thrice double triple percent per minus plus squared cubed negative opposite inverse "
    "reciprocal root square cube over under above below around".split()
)
_LITTLE = frozenset(
    "a an the of in to as by for than one it that which who is are was were will can does".split()
)
_REMARK = re.compile(r'[" ]{0,3}([A-Za-z][A-Za-z\'" -]{2,60})\)[" ]{0,2}')
# Yes, they are independent
_YES = re.compile(r'(?i)"?(yes|true|no|false)"?[,;:] ?"?([^" ;]{1,20} [^";]{1,120})"?')
# It is not divisible by 5, not divisible by 5, where it is asked whether it is
_CLAIM = re.compile(
    r'(?i)"?(?:(?:it|they|this|that|the [a-z]{3,20}|\d{1,15}) '
    r"(?:is|are|does|do|can|will|was|were|has|have)"
    r"(?P<short>n't)? )?(?P<no>not )?(?P<said>[^\",;]{2,60}?)[. ]{0,2}\"?",
)
# They are perpendicular, The lines are perpendicular
_SAID = re.compile(
    r"(?i)\"?(?:it|they|this|that|he|she|(?:the|these|those|both) "
    r"(?P<subject>[a-z]{3,20}(?: [a-z]{3,20})?)) (?:is|are|was|were) "
    r"(?P<said>[^\",;]{1,60}?)[. ]{0,2}\"?",
)
_IN_WORDS = re.compile(r"(?i)(?<!\\)\b[a-z]{3}")
_ASKS_WHETHER = re.compile(
    r"(?:\A|[.!?\n]\s{0,4})(?:Is|Are|Does|Do|Can|Will|Was|Were|Has|Have) (?![^?]{0,200} or )"
    r"[^?.\n]{3,200}\?\s{0,4}\Z"
)
_TOKEN = re.compile(r"[^\W_]+")
_DENIAL = re.compile(r"(?i)\b(?:not|no|never|neither|nor|cannot|impossible)\b|n't")
_HEDGES = frozenset(
    "but or if unless only maybe perhaps possibly sometimes except when yes true false".split()
)
_PER = re.compile(r'(.{1,60}?)[" ]{0,3}(?:\bper |/ ?"?)([a-z]+)"?')
# "vertex" (2, 5), Quadrant III
_NAME = re.compile(r'"?([A-Za-z]{4,20})"?[" ]([A-Z0-9(\\$[+-].{0,200})"?')
_SENTENCE = re.compile(
    r'"?(?P<subject>[^",;]{1,100}?)[" ]{1,3}(?:is|are|was|were|will|can|does|has|have|had)'
    r"(?P<about> [A-Za-z' -]{1,80}(?:than[\" ]{0,3}[^\",;]{1,60})?)\"?"
)


_TURNS = ("in", "un", "non", "dis")
_SENTENCE_END = re.compile(r"[.!?]\s|\n")
_WORDS = re.compile(r"[A-Za-z'-]+")
_MOST_NAMES = 4  # words of a subject
# 3x + 1 = 22 \implies x = 7
_THEN = re.compile(r"\\(?:implies|Rightarrow)(?![a-zA-Z]) ?(?=[a-zA-Z] ?=)")
# She bought 36 apples
_TOLD = re.compile(
    r"(?P<about>[A-Z][A-Za-z\' ]{2,40}) (?P<amount>[-$]{0,2}\d[\d.,]*(?: ?%| [a-z ]{1,30})?)"
)
_WHO = frozenset("she he it they we there you i the each".split())
_COMPARES = frozenset("of than exceeds exceeded exceed".split())
# What an answer says, what the prompt must say then, and what of the answer stays.
_SAYINGS = tuple(
    (re.compile(says), asks, kept)
    for says, asks, kept in (
        (  # 6, when x = 3
            r'(?P<amount>[^",;()]{1,60}?)[" ,(]{1,4}(?:(?:which is |is )?'
            r'(?:attained|reached|achieved) )?(?:at|when|for)"? ?[a-z] ?= ?'
            r'[^",;()=<>]{1,30}[)"]{0,2}',
            r"(?i)\b(?:minim|maxim|smallest|largest|greatest|least)",
            r"\g<amount>",
        ),
        (  # in the year 1987
            r'(?i)"?(?:in )?(?:the )?(?:year )?"? ?(\d{4})"?(?: "?(?:AD|CE)"?)?',
            "year",
            r"\1",
        ),
        (  # an increase of 12 %
            r'(?i)"?(?:(?:it|they) )?(?:an? |the )?"? ?(?P<early>[\d.]{1,12} ?%)?[ "]{0,3}'
            r"(?P<change>increase|decrease|discount|drop|decline|growth|gain)[sd]?"
            r'(?:(?(early)\b|(?: (?:of|by))"? ?(?P<late>[\d.]{1,12} ?%)))"?',
            "(?i){change}",
            r"\g<early>\g<late>",
        ),
        (  # It ends on March 14
            r'(?i)"?(?:it|he|she|they|the [a-z]{3,20}) (?P<does>[a-z]{3,20}?)s?(?: [oi]n| at)"? ?'
            r'(?P<when>[A-Z\d][^";]{2,40})"?',
            r"(?i)(?<![^\W\d_])(?<!'){does}(?![^\W\d_]|')",
            r"\g<when>",
        ),
        (
            r'([\d.]{1,12} ?%) ?"?(?:per (?:year|annum)|annually|p\.?a|a year)"?',
            r"\brate\b|\binterest\b",
            r"\1",
        ),
    )
)
# The series is convergent, converges by the ratio test
_VERGE = re.compile(
    r'(?i)"?(?:(?:the |this )?(?:series|integral|sequence|sum|it) (?:is )?)?(con|di)verge(?:nt|s)?'
    r'(?: by the [a-z -]{3,30} test)?[. ]{0,2}"?'
)
_WHOLE = re.compile(r"-?\d[\d,]{0,20}")
_COUNTED = re.compile(r'([-+]?\$?\d[\d.,:]*(?: ?%)?)[" ]{1,3}([^\W\d_](?:[^\W\d_]|[ -]){2,60})"?')


def without_remark(text: str, prompt: str) -> str | None:
    """The answer without what it says beside its value; None if it says no more, or if that may
    change the value.

    Args:
        text: an answer, folded.
        prompt: the prompt's text, "" where it is not known.
    """
    if prompt and (answer := _noun(text, prompt)):
        return answer
    for says, asks, kept in _SAYINGS:
        match = says.fullmatch(text)
        if match and re.search(asks.format(**match.groupdict()), prompt):
            return match.expand(kept)
    if "verge" in prompt and (verge := _VERGE.fullmatch(text)):
        return f'"{verge[1].casefold()}verges"'
    if prompt and (claim := _CLAIM.fullmatch(text)) and _ASKS_WHETHER.search(prompt):
        asked, said = (
            " ".join(_TOKEN.findall(part.casefold())) for part in (prompt, claim["said"])
        )
        others = _opposites(said) if said != "true" else []
        is_opposite = said == "false" or any(asked.endswith(f" {other}") for other in others)
        if is_opposite or said == "true" or asked.endswith(f" {said}"):
            return "no" if bool(claim["no"] or claim["short"]) is not is_opposite else "yes"
    if reply := _YES.fullmatch(text):
        said = _plain_words(reply[2])
        known = f" {_plain_words(prompt)} "
        opposite = any(f" {other} " in known for other in _opposites(said.rpartition(" ")[2]))
        is_denied = bool(_DENIAL.search(reply[2])) is not opposite
        is_no = reply[1].casefold() in ("no", "false")
        agrees = is_denied is is_no or not _IN_WORDS.search(reply[2])  # No, 91 = 7 · 13
        return reply[1] if agrees and _HEDGES.isdisjoint(said.split()) else None
    if counted := _COUNTED.fullmatch(text.removeprefix("It is ").removeprefix('"It is ')):
        spoken = plain(counted[2]).split()
        for count in (0, 1, 2):  # 24 positive divisors, 12 feet from the wall
            if spoken[count:] and _repeats(" ".join(spoken[count:]), prompt):
                return f'{counted[1]} "{" ".join(spoken[:count])}"' if count else counted[1]
        return None
    before, *after = _THEN.split(text)
    if after and "=" in before:  # x = 8 \implies y = 7 says two things
        return after[-1] if after[-1][0] in before else None
    if prompt and (told := _TOLD.fullmatch(unquoted(text).rstrip("."))):
        about = _plain_words(told["about"])
        subject, *others = about.split()
        is_known = subject in _WHO or f" {subject} " in f" {_plain_words(prompt)} "
        may_change = _may_change(about) or _DENIAL.search(about)
        is_told = others and is_known and not may_change and _COMPARES.isdisjoint(others)
        return told["amount"] if is_told else None
    if sentence := _SAID.fullmatch(text):
        about = _plain_words(sentence["subject"] or "")
        is_known = set(about.split()) <= set(_plain_words(question(prompt)).split())
        if is_known and not _DENIAL.search(sentence["said"]):
            return sentence["said"]
    head, bracket, tail = text.rpartition("(")
    if not bracket or not tail.rstrip('" ').endswith(")"):
        return _subject(text, prompt) if prompt else None
    first, second = head.strip('" '), tail.strip(') "')
    for digits, words in ((first, second), (second, first)):  # Twelve (12)
        if _WHOLE.fullmatch(digits) and number(plain(words)) == int(digits.replace(",", "")):
            return digits
    remark = _REMARK.fullmatch(tail)
    if remark is None or head[-1:] not in ('"', " ") or not first:
        return None
    words = plain(remark[1])
    return first if words in _SAYS_NOTHING or _repeats(words, prompt) else None


def _opposites(said: str) -> list[str]:
    """`linearly independent` of `linearly dependent`, and the other way round."""
    head, _, last = said.rpartition(" ")
    turned = [prefix + last for prefix in _TURNS] if len(last) > 3 else []
    turned += [last.removeprefix(prefix) for prefix in _TURNS if last.startswith(prefix)]
    return [f"{head} {word}".strip() for word in turned]


def _repeats(words: str, prompt: str) -> bool:
    """Whether the prompt has these words too, and none of them changes an answer."""
    known = f" {_plain_words(prompt)} "
    is_known = f" {words} " in known or f" {words.removesuffix('s')} " in known  # 220 committees
    return is_known and not _may_change(words)


def _subject(text: str, prompt: str) -> str | None:
    """`Anna` of `Anna is taller`, if what is said of her is asked, and than whom is in the
    prompt."""
    asked = _plain_words(question(prompt).partition("?")[0])
    if sentence := _SENTENCE.fullmatch(text):
        about, _, others = sentence["about"].partition("than")
        said, beside = (set(_plain_words(part).split()) - _LITTLE for part in (about, others))
        is_asked = said and said <= set(asked.split())
        is_known = beside <= set(_plain_words(prompt).split())
        if is_asked and is_known and not _may_change(" ".join(said | beside)):
            return sentence["subject"]
    words = _WORDS.findall(text.replace('"', " "))
    if "".join(words) != "".join(text.replace('"', "").split()):
        return None
    # The Reds scored more goals; Alice wins, where it is asked who does.
    shortest = 1 if {"who", "which"} & set(asked.split()) else 2
    for count in range(1, min(len(words) - shortest, _MOST_NAMES) + 1):
        verb, tail = words[count], " ".join(words[count:]).casefold()
        is_known = f" {tail} " in f" {asked} "
        # A verb may be called as a unit is: won.
        if is_known and verb.islower() and verb not in _LITTLE:
            return " ".join(words[:count])
    return None


def _noun(text: str, prompt: str) -> str | None:
    """III of `Quadrant III`, if the prompt asks for the quadrant; $640 of `$640 per week`, if it
    speaks of weeks so."""
    if (per := _PER.fullmatch(text)) and f" per {per[2]} " in f" {_plain_words(prompt)} ":
        return per[1]
    name = _NAME.fullmatch(text)
    noun = name[1].casefold() if name else ""
    asked = name and re.search(rf"\b(?i:which|what|the) (?:\w+ )?{noun}\b", prompt)
    return name[2] if name and asked and noun not in _HEDGES and not _may_change(noun) else None


def _may_change(words: str) -> bool:
    return any(
        word in _CHANGES or word in SCALES or number(word) is not None or is_measured(word)
        for word in words.split()
        if word not in _LITTLE
    )


def question(prompt: str) -> str:
    """The last question and what stands behind it; all the prompt where it has none.

    Args:
        prompt: its text.
    """
    head, mark, tail = prompt.rpartition("?")
    return _SENTENCE_END.split(head)[-1] + mark + tail if mark else prompt


def _plain_words(prompt: str) -> str:
    return " ".join(re.findall(r"(?:[^\W\d_]|')+", prompt.casefold()))
