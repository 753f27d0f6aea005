"""Whether an answer says anything: language, and neither a list of keywords, the
request again, nor a refusal.

It is no measure of quality, and the topic is no gate: one answer in thirty that follows its request
shares no content word with it.  Everything is linear in the text, deterministic, and looks at
40,000 characters at most.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import filterfalse
from typing import Final

from rlvr.text import fenced_blocks
from rlvr.verifiers.instructions.triples import FOLLOWING

__all__ = ["least_words", "senseless", "topic_share"]

_LOOKED_AT: Final = 40_000  # characters
# The first sign of a pattern is one that the search can jump to;
# what must not stand before it follows.
_WORD: Final = re.compile(r"[A-Za-z](?<![\w@/.:\\].)[A-Za-z]*+(?:['’][A-Za-z]+)?(?![\w@/\\])")
_ARTICLE: Final = re.compile(
    r"[AaTt](?<![\w'’-].)(?:(?<=a)n?|(?<=A)(?:n|N|(?![.)]))|(?<=[Tt])he|(?<=T)HE)(?![\w'’-])"
    r"(?=[ \t*_\"'“(]{0,4}([A-Za-z]+|[.,;!?\n]|\Z))"
)
_APART: Final = bytes(  # what may stand in a word, or keeps letters beside it from being one
    code if chr(code).isalnum() or chr(code) in "_@/.:\\'" or code > 127 else 32
    for code in range(256)
)
_SIGNS: Final = re.compile(r"(?:(?:[\n,;:.!?|{}\[\]\"*]|(?<!\w)-|-(?!\w)) ?)+")
_LONGEST_NAME: Final = 20  # letters
_FIRST: Final = re.compile(  # word of three letters of a line
    r"\n[^A-Za-z\n]*+(?:[A-Za-z]{1,2}+(?![A-Za-z])[^A-Za-z\n]*+)*+([A-Za-z]{3,})"
)
_DIGITS: Final = b"0123456789"
_LETTERS: Final = frozenset("bcdefghjklmnpqrstuvwxyz")  # that are no words alone
_MIXED: Final = re.compile(r"\b(?:[A-Za-z]+\d+|\d+[A-Za-z]{2,})\w*\b")
# What no noun phrase begins with, so that no article stands before it.
_FUNCTION: Final = frozenset(
    "a an the of in on at by for from with and or but as is are was were be been am do does did "
    "has have had that this these those it its he she they them his her their you your we our i my "
    "me if then than so such can could will would shall should may might must which who whom whose "
    "what when where why how there into after before against between through during to not no here "
    "over under about up down out off".split()
)
_OTHER_LANGUAGES: Final = frozenset(
    "de la el los las en que un una por con para es y le les et des du une dans est pour qui der "
    "die das und ist nicht ein eine zu den mit von il di che per una sono gli na ya wa kwa ni "
    "katika het een van niet dat och att det som en är på og ikke til yang dan untuk dengan ini "
    "itu ang ng sa mga bir ve bu için się nie jest do o a os da em não uma jak że ja on ei se että "
    "olen".split()
) - {"a", "on", "do", "per", "die", "den", "o", "y", "van", "dan", "bu", "dat"}
_REFUSAL: Final = re.compile(
    r"(?:i'?m|i am|we are) (?:really |very |so |truly )?(?:sorry|afraid|unable|not able)\b|"
    r"\bas an? (?:large )?(?:language model|ai)\b|\bi "
    r"(?:cannot|can'?t|can not|won'?t|am unable to) "
    r"(?:help|assist|do|fulfil|comply|provide|create|write|answer|generate|complete|continue)",
    re.IGNORECASE,
)
_EMPTY: Final = re.compile(
    r"(?:ok(?:ay)?|sure|yes|certainly|of course|absolutely|done|understood|got it|no problem|"
    r"great|alright|thanks?|"
    r"thank you|here (?:it )?(?:is|are)(?: the| your| a)?(?: (?!you\b)\w+){0,2}"
    r"(?: (?:that )?you(?:'ve)? (?:asked|requested|wanted)(?: for)?)?|as (?:you )?"
    r"(?:asked|requested)|"
    r"i hope this helps|let me know[^.!?\n]*)[\s.,!:;…-]*",
    re.IGNORECASE,
)
_FILLER: Final = re.compile(
    r"\s*[\[(<]?(?:todo\b|(?:insert|your) [\w ]{1,40} here\b)|.{0,80}?\blorem ipsum\b|"
    r"\s*(?:sorry,? )?i (?:really |honestly )?(?:do not|don['’]?t) know\b|"
    r"\s*(?:sure[,!.]? |okay[,!.]? )?(?:i['’]?ll|i will|let me|i am going to|i['’]?m going to) "
    r"(?:now )?"
    r"(?:write|create|compose|draft|provide|give|make|explain|describe|answer)\b[^.!?\n]*"
    r"[.!?:]*\s*\Z",
    re.IGNORECASE,
)
_LONG: Final = re.compile(
    r"\b(?:essay|stor(?:y|ies)|article|blog|speech|letter|e-?mail|report|script|review|resume|cv|"
    r"proposal|summary|"
    r"summari[sz]e|sum up|describe|discuss|explain|elaborate|itinerary|lyrics|dialogue|"
    r"advertisement|biography|"
    r"guide|rap|poem|limerick|essays|"
    r"write|tell|compose|draft|something about|pitch|template|press release|cover letter)\b",
    re.IGNORECASE,
)
_HAIKU: Final = re.compile(r"\bhaikus?\b", re.IGNORECASE)
_SHORT: Final = re.compile(
    r"\b(?:(?:(?P<count>two|three|four|five|six|[2-6]) )?names? (?:for|exactly|of)|"
    r"nick ?names?|(?:less|fewer) than (?:\d|ten|five|10|20) words)\b",
    re.IGNORECASE,
)
_COUNTS: Final = {
    word: count
    for count, words in enumerate(("two 2", "three 3", "four 4", "five 5", "six 6"), start=2)
    for word in words.split()
}
_WORK: Final = re.compile(
    r"\s*(?:please )?(?:write|compose|create|draft|generate) (?:me )?(?:an?|the) [^.\n]{0,40}?"
    r"\b(?:essay|story|article|blog post|report|proposal|speech|itinerary|song|biography)\b",
    re.IGNORECASE,
)
_CONDENSED: Final = re.compile(
    r"\b(?:short\w*|brief\w*|tiny|micro|title|headline|name|sentence|line|repeat|outline|"
    r"(?:less|fewer) than|at most|up to)\b",
    re.IGNORECASE,
)
_NAMES: Final = re.compile(
    r"\?|\b(?:what|who|which|when|where|is|are|does|can|nick ?names?|names?|title|slogan|json|"
    r"word|answer|yes|no)\b",
    re.IGNORECASE,
)


@lru_cache(maxsize=1024)
def least_words(prompt: str) -> int:
    """How many different words an answer needs, from what is asked for: 1 for a name, 5 for a
    haiku, 8 for a letter, 20 for an essay; as many as names are asked for.

    Args:
        prompt: the request; "" if unknown.
    """
    request = prompt[:_LOOKED_AT]
    if not request.strip():
        return 8
    if _HAIKU.search(request):
        return 5
    if (names := _SHORT.search(request)) is not None:
        return _COUNTS.get((names["count"] or "").lower(), 1)
    if _WORK.match(request) and _CONDENSED.search(request) is None:
        return 20
    if _LONG.search(request):
        return 8
    return 1 if _NAMES.search(request) else 5


def topic_share(text: str, prompt: str) -> float | None:
    """The share of the request's longer words whose beginnings occur in an answer; None if it has
    none.  No gate.

    Args:
        text: the answer.
        prompt: the request.
    """
    beginnings = _beginnings(prompt)
    text = text[:_LOOKED_AT].lower()
    return (
        round(sum(beginning in text for beginning in beginnings) / len(beginnings), 2)
        if beginnings
        else None
    )


@lru_cache(maxsize=1024)
def _beginnings(prompt: str) -> tuple[str, ...]:
    beginnings = (word[:5] for word in _WORD.findall(prompt[:_LOOKED_AT].lower()) if len(word) > 4)
    return tuple(
        dict.fromkeys(beginning for beginning in beginnings if beginning not in _FUNCTION)
    )[:8]


def senseless(
    text: str,
    keywords: Collection[str] = (),
    *,
    needed: int = 1,
    english: bool = True,
    lists: bool = False,
) -> str:
    """Why a text says nothing, whatever was asked for; "" if it says something.

    Args:
        text: the answer.
        keywords: words that the instructions ask for, in lower case: they are not counted as words
            of its own.
        needed: how many words the request needs at least; of 5 on, five
            words in a row are no answer.
        english: False: the answer is to be in another language, whose words and their order are not
            known here.
        lists: whether words without a sentence will do, since an instruction hardly leaves another
            way.
    """
    text = text[:_LOOKED_AT]
    prose = _without_code(text)
    counts = _count_words(prose)
    total = counts.total()
    if total < 60:
        if (refusal := _REFUSAL.search(prose[:250])) is not None:
            return f"refusal: {refusal[0]!r}"
        if (filler := _FILLER.match(prose)) is not None:
            return f"says-nothing: {filler[0].strip()[:40]!r}"
    remainder = prose.strip()
    while remainder and (match := _EMPTY.match(remainder)) is not None:
        remainder = remainder[match.end() :]
    if prose.strip() and not remainder.strip():
        return "says-nothing: an acknowledgement alone"
    if not english:
        return _repetition(prose)
    if total >= 50 and 10 * len(counts) <= total:
        return f"repeats-itself: {len(counts)} different words of {total}"
    own_counts = dict(counts)
    for word in keywords:
        own_counts.pop(word, None)
    return (
        _repetition(prose)
        or _no_words(prose, own_counts)
        or ("" if lists else _no_list(prose, own_counts, needed))
        or _no_order(prose, counts)
    )


def _count_words(text: str) -> Counter[str]:
    """How often each word stands in a text, in lower case."""
    spaced = text.lower().encode("utf-8", "surrogatepass").translate(_APART)
    # What is not ASCII is decoded as what is no letter.
    counts = Counter(spaced.decode("ascii", "surrogateescape").split())
    for chunk in [*filterfalse(str.isalpha, counts)]:
        times = counts.pop(chunk)
        if not chunk.isascii():
            chunk = chunk.encode("ascii", "surrogateescape").decode("utf-8", "surrogatepass")
        for word in _WORD.findall(chunk):
            counts[word] += times
    return counts


def _without_code(text: str) -> str:
    parts, at = [], 0
    for block in fenced_blocks(text):
        parts.append(text[at : block.start])
        at = min(block.end, len(text))
    without = "".join([*parts, text[at:]]).replace("```", "").replace("~~~", "")
    return without if without.strip() else ""


def _repetition(text: str) -> str:
    text = text.casefold()
    for end in ".!?*":
        text = text.replace(end, "\n")
    lines = [line for line in text.split("\n") if line.count(" ") >= 2]
    beginnings: list[list[str]] = []
    first_words: set[str] = set()
    for line in lines:
        words = line.split(None, 3)
        if len(words) >= 3:
            beginnings.append(words)
            first_words.add(words[0])
            if 4 * len(first_words) > len(lines):
                return ""
    total = len(beginnings)
    if total < 5 or 4 * len(first_words) > total:
        return ""
    different = len({tuple(" ".join(words).split()) for words in beginnings})
    if 4 * different <= total:
        return f"repeats-itself: {different} different sentences of {total}"
    return ""


def _no_words(text: str, own: Mapping[str, int]) -> str:
    """Letters, and words with letters in another order: their triples do not occur in words."""
    total = sum(own.values())
    letters = sum(own[letter] for letter in _LETTERS.intersection(own))
    if letters >= 8 and 3 * letters > total:
        return f"no-language: {letters} single letters"
    if total >= 3 and all(len(word) == 1 for word in own):
        return "no-language: nothing but single letters"
    fewest = max(8, total + 1)
    signs = text.encode("utf-8", "surrogatepass")
    if len(signs) - len(signs.translate(None, _DIGITS)) >= fewest:
        mixed = len(_MIXED.findall(text))
        if mixed >= fewest:
            return f"no-language: {mixed} words with digits"
    long_words = [word for word in own if len(word) >= 3]
    odd = set(filterfalse(_is_word, long_words))
    if len(own) == 1 and any(len(word) >= _LONGEST_NAME for word in odd):
        return f"no-language: {min(odd)[:40]!r}"
    long = len(long_words)
    if len(odd) < 2 or long < (4 if len(odd) < long else 3):  # one odd word is a name
        return ""
    foreign = sum(own[word] for word in _OTHER_LANGUAGES.intersection(own))
    if 10 * foreign > total:
        return ""
    if len(odd) > (0.25 if long >= 10 else 0.5) * long:
        return f"no-language: {len(odd)} of {long} words, such as {min(odd)!r}"
    return _odd_line(text, odd)


def _odd_line(text: str, odd: set[str]) -> str:
    """A title, bullet, postscript or paragraph of letters alone, within an answer that says
    something."""
    first_words = _FIRST.findall("\n" + text.replace("***", "\n"))
    if odd.isdisjoint(map(str.lower, first_words)):
        return ""
    for line in re.split(r"\n|\*\*\*+", text):
        first = _FIRST.match("\n" + line)
        if first is None or first[1].lower() not in odd:
            continue
        long_words = {word for word in _WORD.findall(line) if len(word) >= 3}
        is_name = any(
            word.istitle() and not set(word.lower()).isdisjoint("aeiouy") for word in long_words
        )
        if len(long_words) > 1 and not is_name and {word.lower() for word in long_words} <= odd:
            return f"no-language: the part {line.strip()[:40]!r}"
    return ""


@lru_cache(maxsize=1 << 15)
def _is_word(word: str) -> bool:
    """Whether a word of three letters or more may be one; those with an apostrophe are not looked
    at."""
    if "'" in word or "’" in word:
        return True
    padded = f"^{word[:40]}$"
    return all(
        padded[at + 2] in FOLLOWING.get(padded[at : at + 2], "") for at in range(len(padded) - 2)
    )


def _no_list(text: str, own: Mapping[str, int], needed: int) -> str:
    """Words in a row without a sentence: neither a function word, nor a sign between them."""
    total = sum(own.values())
    if total < (5 if needed >= 5 else 10) or not _FUNCTION.isdisjoint(own):
        return ""
    signs = sum(1 for _ in _SIGNS.finditer(text.strip()))
    if 5 * signs >= total or not _OTHER_LANGUAGES.isdisjoint(own):
        return ""
    return f"word-list: {total} words without a sentence"


def _no_order(text: str, counts: Mapping[str, int]) -> str:
    """English words in no order: articles before function words or signs."""
    if sum(counts.get(article, 0) for article in ("a", "an", "the")) < 3:
        return ""
    function_count = sum(map(counts.__getitem__, _FUNCTION.intersection(counts)))
    if 8 * function_count < sum(counts.values()):
        return ""  # another language, names, or a table
    after = _ARTICLE.findall(text)
    if len(after) < 3:
        return ""
    lost = sum(not token[:1].isalpha() or token.lower() in _FUNCTION for token in after)
    if lost < 2 or 20 * lost <= 3 * len(after):
        return ""
    return f"no-order: {lost} of {len(after)} articles have no noun"
