"""Words, sentences and paragraphs of an answer, each in linear time and without data files.

The functions whose names begin with `reference_` split as the published checkers do: by the tokenizer of the Penn
Treebank as NLTK has it, and by the sentence rules of google-research/instruction_following_eval.
"""

from __future__ import annotations

import re
import string
import unicodedata
from functools import lru_cache
from typing import Final

__all__ = [
    "PUNCTUATION",
    "bare_words",
    "chunk_tokens",
    "count_plain_words",
    "count_word",
    "different_words",
    "fenced_alone",
    "plain_words",
    "reference_sentences",
    "reference_tokens",
    "sentences",
    "split_paragraphs",
    "squeezed_spaces",
    "without_punctuation",
    "words",
]

PUNCTUATION: Final = string.punctuation
_NO_PUNCTUATION = str.maketrans("", "", PUNCTUATION)

_WORD = re.compile(r"[^\W_]+(?:['’\-.,][^\W_]+)*")
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]"
)
_DIVIDER = re.compile(r"\s?\*\*\*\s?")


def different_words(text: str, enough: int) -> set[str]:
    """The different `words` of a text, in lower case; it stops when there are enough.

    Args:
        text: any text.
        enough: how many.
    """
    found: set[str] = set()
    text = text if text.isascii() else _UNSPACED.sub(lambda sign: f" {sign[0]} ", text)
    for word in _WORD.finditer(text):
        found.add(word[0].casefold())
        if len(found) >= enough:
            break
    return found


def words(text: str) -> list[str]:
    """Words as people count them: "don't", "3.14" and "well-known" are one; a character of an unspaced script is one.

    Args:
        text: any text.
    """
    if not text.isascii():
        text = _UNSPACED.sub(lambda found: f" {found[0]} ", text)
    return _WORD.findall(text)


def plain_words(text: str) -> list[str]:
    r"""Runs of `\w`, which is what the published checkers count as words.

    Args:
        text: any text.
    """
    return re.findall(r"\w+", text)


_WORD_BYTES = bytes(code if chr(code).isalnum() or code == 95 else 32 for code in range(128)) + bytes(128)


def count_plain_words(text: str) -> int:
    """The number of `plain_words`, in a twentieth of the time for ASCII.

    Args:
        text: any text.
    """
    if text.isascii():
        return len(text.encode().translate(_WORD_BYTES).split())
    return len(plain_words(text))


def without_punctuation(text: str) -> str:
    """The text without ASCII punctuation.

    Args:
        text: any text.
    """
    return text.translate(_NO_PUNCTUATION)


def bare_words(text: str) -> list[str]:
    """The words between white space, without ASCII punctuation.

    Args:
        text: any text.
    """
    return without_punctuation(text).split()


@lru_cache(maxsize=1024)
def _whole_word(word: str) -> re.Pattern[str]:
    inner = r"\s+".join(map(re.escape, word.split()))
    before = r"(?<!\w)" if word[:1].isalnum() or word[:1] == "_" else ""
    after = r"(?!\w)" if word[-1:].isalnum() or word[-1:] == "_" else ""
    return re.compile(before + inner + after, re.IGNORECASE)


def count_word(word: str, text: str) -> int:
    """How often a word or phrase stands in a text, literally and as a whole, in any case.

    Args:
        word: the word or phrase.
        text: any text.
    """
    if " " not in word and text.isascii() and word.lower() not in text.lower():
        return 0
    return sum(1 for _ in _whole_word(word).finditer(text))


_UNSEEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f]"
)


def squeezed_spaces(text: str) -> str:
    """The text in one case, with single spaces and without formatting characters that cannot be seen.

    Args:
        text: any text.
    """
    if not text.isascii():
        text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text))
    return " ".join(text.casefold().split())


def split_paragraphs(text: str, *, at: str) -> list[str] | None:
    r"""The paragraphs between dividers, without empty ones at both ends; None if one in the middle is empty.

    Args:
        text: any text.
        at: "***" or "\n\n".
    """
    parts = _DIVIDER.split(text) if at == "***" else text.split(at)
    inner = [part for index, part in enumerate(parts) if part.strip() or 0 < index < len(parts) - 1]
    return inner if all(part.strip() for part in inner) else None


def fenced_alone(text: str) -> str:
    """The text without a code fence that encloses all of it, as the published checkers remove it.

    Args:
        text: any text.
    """
    bare = text.strip()
    for opening in ("```json", "```Json", "```JSON", "```"):
        bare = bare.removeprefix(opening)
    return bare.removesuffix("```").strip()


# --------------------------------------------------------------------------------------------------- sentences

_END = re.compile(r"(?<![.!?。！？।؟])[.!?。！？।؟]++[\"'”’)\]*_]*+(?=\s|$)|[。！？।](?![.!?。！？।؟])|\n[^\S\n]*+\n")
_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|etc|e\.g|i\.e|approx|No|Inc|Ltd|Co|Fig|al|cf)|\b[A-Z]|^\s*\d{1,3})\.$"
)


def sentences(text: str) -> list[str]:
    """Sentences that hold a letter or digit, split after . ! ? and their like, and at empty lines.

    Initials, titles ("Dr."), common abbreviations and the numbers of a list end none.

    Args:
        text: any text.
    """
    found, start, length = [], 0, len(text.rstrip())
    for end in _END.finditer(text):
        stop = end.end()
        if text[stop - 1] == "." and _ABBREVIATION.search(text, max(start, stop - 8), stop) and stop < length:
            continue
        found.append(text[start:stop].strip())
        start = stop
    found.append(text[start:].strip())
    return [one for one in found if any(map(str.isalnum, one))]


_KEPT, _STOP = "\ue000", "\ue001"  # a dot that ends nothing; the end of a sentence
_STARTER = r"(?:(?:Mr|Mrs|Ms|Dr|Prof|Capt|Cpt|Lt|Wherever)|(?:He|She|It|They|Their|Our|We|But|However|That|This)\s)"
_REWRITES: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(Mr|St|Mrs|Ms|Dr)\.", rf"\1{_KEPT}"),
        (r"\.(com|net|org|io|gov|edu|me)", rf"{_KEPT}\1"),
        (r"([0-9])\.([0-9])", rf"\1{_KEPT}\2"),
        (r"(\.{2,})", rf"\1{_STOP}"),
        (r"Ph\.D\.", f"Ph{_KEPT}D{_KEPT}"),
        (r"(\s[A-Za-z])\. ", rf" \1{_KEPT} "),
        (rf"((?:[A-Z]\.){{2,3}}) (?={_STARTER})", rf"\1{_STOP} "),
        (r"([A-Za-z])\.([A-Za-z])\.([A-Za-z])\.", rf"\1{_KEPT}\2{_KEPT}\3{_KEPT}"),
        (r"([A-Za-z])\.([A-Za-z])\.", rf"\1{_KEPT}\2{_KEPT}"),
        (rf" (Inc|Ltd|Jr|Sr|Co)\. (?={_STARTER})", rf" \1{_STOP} "),
        (r" (Inc|Ltd|Jr|Sr|Co)\.", rf" \1{_KEPT}"),
        (r" ([A-Za-z])\.", rf" \1{_KEPT}"),
        (r"\.([”\"])", r"\1."),
        (r"([!?])\"", r'"\1'),
        (r"([.!?])", rf"\1{_STOP}"),
    )
)


def reference_sentences(text: str) -> list[str]:
    """Sentences by the rules of the published checkers, with their peculiarities: ".me" in ".meadow" ends nothing.

    Args:
        text: any text.
    """
    text = f" {text}  ".replace("\n", " ")
    for pattern, replacement in _REWRITES:
        if pattern.pattern == r"(\.{2,})":
            text = pattern.sub(lambda dots: _KEPT * len(dots[0]) + _STOP, text)
        else:
            text = pattern.sub(replacement, text)
    found = [one.strip() for one in text.replace(_KEPT, ".").split(_STOP)]
    return found[:-1] if found and not found[-1] else found


# ---------------------------------------------------------------------------------------------- Treebank tokens

_SPLIT = re.compile(r"\.{2,}|--+|[;@#$%&?!()\[\]{}<>\"“”„«»‘’…]|`+|[:,](?=\D|$)")
_CONTRACTION = re.compile(r"(?<=[^' ])('[sSmMdD]|'ll|'LL|'re|'RE|'ve|'VE|n't|N'T|')(?=$)")
_JOINED = re.compile(
    r"(?i)\b(can)(?=not\b)|\b(d)(?='ye\b)|\b(gim)(?=me\b)|\b(gon)(?=na\b)|\b(got)(?=ta\b)|\b(lem)(?=me\b)|"
    r"\b(wan)(?=na(?:\s|$))|\b(more)(?='n\b)"
)
_FINAL_DOT = re.compile(r"(?<=[^.])\.(?=[\])}>\"'»”’ ]*$)")


def reference_tokens(text: str) -> list[str]:
    """Tokens in the manner of NLTK's `word_tokenize`: punctuation apart, contractions in two, "U.S." in one piece.

    Args:
        text: any text.
    """
    tokens: list[str] = []
    for sentence in sentences(text) or [text]:
        for chunk in _FINAL_DOT.sub(" . ", sentence).split():
            tokens += chunk_tokens(chunk)
    return tokens


def chunk_tokens(chunk: str) -> list[str]:
    """The tokens of a text without white space; a full stop at its end stays with it.

    Args:
        chunk: the text.
    """
    if chunk.isalpha() and len(chunk) > 6:
        return [chunk]
    tokens: list[str] = []
    for part in _SPLIT.sub(lambda sign: f" {sign[0]} ", chunk).split():
        joined = _JOINED.sub(lambda found: found[0] + " ", part) if part[0] in "cCdDgGlLwWmM" else part
        if "'" in joined:
            joined = _CONTRACTION.sub(r" \1", joined)
        tokens += joined.split()
    return tokens
