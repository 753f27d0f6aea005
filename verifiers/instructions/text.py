"""Words, sentences and paragraphs of an answer, each in linear time and without data files.

The functions whose names begin with `reference_` split as the published checkers do: by the
tokenizer of the Penn Treebank as NLTK has it, and by the sentence rules of
google-research/instruction_following_eval.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Collection
from functools import lru_cache
from itertools import islice
from typing import Final

__all__ = [
    "PUNCTUATION",
    "bare_words",
    "chunk_tokens",
    "count_plain_words",
    "count_word",
    "count_words",
    "different_words",
    "fenced_alone",
    "folded_signs",
    "has_word",
    "has_words",
    "plain_words",
    "reference_sentences",
    "reference_tokens",
    "sentences",
    "sentences_by",
    "split_paragraphs",
    "squeezed_spaces",
    "without_punctuation",
    "words",
    "words_by",
]

PUNCTUATION: Final = string.punctuation
_NO_PUNCTUATION = str.maketrans("", "", PUNCTUATION)

# "don't", "well-known", "3.5" and "1,000" are one word each
_WORD = re.compile(r"[^\W_]+(?:['’\-.,][^\W_]+)*")
# Thai, Lao, Tibetan, Burmese, Khmer, kana and Chinese signs: scripts without spaces, in which each
# sign counts as a word
_NO_SPACES = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
)
_UNSPACED = re.compile(f"[{_NO_SPACES}]")
_LETTER = rf"(?:(?![{_NO_SPACES}])[^\W_])"
_WORD_OR_SIGN = re.compile(rf"[{_NO_SPACES}]|{_LETTER}+(?:['’\-.,]{_LETTER}+)*")
# a longer text is reduced to its different words before they are counted
_LONG = 100_000  # characters
_DIVIDER = re.compile(r"\s?\*\*\*\s?")


# Letters of Cyrillic and Greek that look like these of the Latin alphabet.
_LOOK_ALIKES = str.maketrans(
    "аеіјорсухѕԁһӏԛԝАВЕІЈКМНОРСТУХЅαικνορτυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeijopcyxsdhlqwABEIJKMHOPCTYXSaiknoptuxABEZHIKMNOPTYX",
)
_SCRIPTS = re.compile("[\u0370-\u052f]")  # Greek and Cyrillic
_LETTERS = re.compile(r"[^\W\d_]++")
# bold and other letters of mathematics, and full-width ones: to a reader they are plain letters
_STYLED = re.compile("[\U0001d400-\U0001d7ff\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]")
_JOINERS = "\u00ad\u200b-\u200f\u2060-\u2064\ufeff"
# signs of no width between or beside Latin letters: "s\u200bea" shows "sea"; in other scripts they
# may matter
_HIDDEN = re.compile(
    f"[{_JOINERS}](?:(?<=[A-Za-z].)[{_JOINERS}]*+|(?<![{_JOINERS}].)[{_JOINERS}]*+(?=[A-Za-z]))"
)


def folded_signs(text: str) -> str:
    """The text as it looks: no zero-width signs in Latin words, and plain letters for those that
    look the same.

    A letter of another alphabet is folded only in a word that has Latin letters too; words of one
    alphabet stay, and so do the joiners of Persian and of emoji.

    Args:
        text: any text.
    """
    if text.isascii():
        return text
    text = _STYLED.sub(lambda sign: unicodedata.normalize("NFKC", sign[0]), text)
    text = _HIDDEN.sub("", text)
    return _LETTERS.sub(_folded_word, text) if _SCRIPTS.search(text) else text


def _folded_word(word: re.Match[str]) -> str:
    # letters of two alphabets in one word: "s\u0435a", with a Cyrillic letter, shows "sea"; whole
    # words of Cyrillic stay
    is_mixed = not word[0].isascii() and re.search("[A-Za-z]", word[0]) is not None
    return word[0].translate(_LOOK_ALIKES) if is_mixed else word[0]


def different_words(text: str, enough: int, but: Collection[str] = ()) -> set[str]:
    """The different `words` of a text, in lower case; it stops when there are enough.

    Args:
        text: any text.
        enough: how many.
        but: words that do not count.
    """
    different: set[str] = set()
    if len(text) > _LONG:  # no word has a space in it
        text = " ".join(dict.fromkeys(text.split()))
    for word in (_WORD if text.isascii() else _WORD_OR_SIGN).finditer(text):
        folded = word[0].casefold()
        if folded not in but:
            different.add(folded)
            if len(different) >= enough:
                break
    return different


def words(text: str) -> list[str]:
    """Words as people count them: "don't", "3.14" and "well-known" are one; a character of an
    unspaced script is one.

    Args:
        text: any text.
    """
    if not text.isascii():
        text = _UNSPACED.sub(lambda found: f" {found[0]} ", text)
    return _WORD.findall(text)


_KINDS = bytes(
    97 if chr(code).isalnum() else 106 if chr(code) in "'-.," else 32 for code in range(128)
) + bytes(128)
_TYPOGRAPHIC = (("’", "'"), *((sign, " ") for sign in "“”‘—–•…"))


def count_words(text: str) -> int:
    """The number of `words`; quick for ASCII with the usual typographic signs.

    Args:
        text: any text.
    """
    if not text.isascii():
        # ’ joins letters as ' does; the other typographic signs separate words
        plain = text
        for sign, replacement in _TYPOGRAPHIC:
            plain = plain.replace(sign, replacement)
        if not plain.isascii():
            return len(words(text))
        text = plain
    # Letters and digits are "a", what joins two words is "j": a word begins where no "aj" stands
    # before its "a".
    kinds = b" " + text.encode().translate(_KINDS)
    return kinds.count(b" a") + kinds.count(b"jja") + kinds.count(b" ja")


def has_words(text: str, count: int) -> bool:
    """Whether a text has at least so many `words`; reads no further than these.

    Args:
        text: any text.
        count: how many.
    """
    matches = (_WORD if text.isascii() else _WORD_OR_SIGN).finditer(text)
    return sum(1 for _ in islice(matches, count)) == count


def plain_words(text: str) -> list[str]:
    r"""Runs of `\w`, which is what the published checkers count as words.

    Args:
        text: any text.
    """
    return re.findall(r"\w+", text)


_WORD_BYTES = bytes(97 if chr(code).isalnum() or code == 95 else 32 for code in range(128)) + bytes(
    128
)


def count_plain_words(text: str) -> int:
    """The number of `plain_words`, in a twentieth of the time for ASCII.

    Args:
        text: any text.
    """
    if text.isascii():
        return (b" " + text.encode().translate(_WORD_BYTES)).count(b" a")
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


@lru_cache(maxsize=4)
def _in_one_case(text: str) -> str:
    """The text in one case; the dotless i is an i, as it looks."""
    folded = text.casefold()
    # Turkish letters: "İ" folds to two characters
    return folded if folded.isascii() else folded.replace("ı", "i").replace("i\u0307", "i")


@lru_cache(maxsize=1024)
def _whole_word(word: str, endings: str = "") -> tuple[str, re.Pattern[str]]:
    """What a text in one case must hold of a word, and its pattern, which begins with a character
    to jump to."""
    parts = _in_one_case(word).split()
    inner = r"\s+".join(map(re.escape, parts))
    first, last = parts[0][0], parts[-1][-1]
    # the letter comes before the look-behind, so that the search jumps to letters that match
    if first.isalnum() or first == "_":
        head = re.escape(first)
        inner = rf"{head}(?<!\w{head}){inner[len(head) :]}"
    # "C++" ends with a sign, and has no end of a word there
    after = rf"{endings}(?!\w)" if last.isalnum() or last == "_" else ""
    return parts[0], re.compile(inner + after)


_EMPHASIS = re.compile(r"_(?<!\w_)_{0,2}+(?=[^\W_])|(?<=[^\W_])_{1,3}+(?!\w)")  # of "_sea_"


def _searched(word: str, text: str) -> str:
    """The text in one case, in which a word is looked for; without underscores around words, unless
    the word has some."""
    lowered = _in_one_case(text)
    return lowered if "_" not in lowered or "_" in word else _EMPHASIS.sub(" ", lowered)


def count_word(word: str, text: str) -> int:
    """How often a word or phrase stands in a text, literally and as a whole, in any case.

    Args:
        word: the word or phrase.
        text: any text.
    """
    lowered = _searched(word, text)
    part, pattern = _whole_word(word)
    return sum(1 for _ in pattern.finditer(lowered)) if part in lowered else 0


def has_word(word: str, text: str, *, inflected: bool = False) -> bool:
    """Whether a word or phrase stands in a text as a whole, in any case.

    Args:
        word: the word or phrase.
        text: any text.
        inflected: whether it may have the end of a plural or a genitive.
    """
    lowered = _searched(word, text)
    # "-s", "-es" and "'s": a forbidden word is not allowed by its plural
    part, pattern = _whole_word(word, r"(?:e?s|['’]s)?" if inflected else "")
    return part in lowered and pattern.search(lowered) is not None


_UNSEEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f]"
)


def squeezed_spaces(text: str) -> str:
    """The text in one case, with single spaces and without formatting characters that cannot be
    seen.

    Args:
        text: any text.
    """
    if not text.isascii():
        text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text))
    return " ".join(text.casefold().split())


def split_paragraphs(text: str, *, at: str) -> list[str] | None:
    r"""The paragraphs between dividers, without empty ones at both ends; None if one in the middle
    is empty.

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


# ---------------------------------------------------------------------------------------- sentences

# Begins with a set of characters, which the search jumps to; what must stand before them is looked
# at afterwards.
_END = re.compile(
    r"[.!?。！？।؟\n](?:(?<!\n)(?<![.!?。！？।؟]{2})[.!?。！？।؟]*+[\"'”’)\]*_]*+(?=\s|$)|(?<=[。！？।])"
    r"(?![.!?。！？।؟])|"
    r"(?<=\n)[^\S\n]*+\n)"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|etc|e\.g|i\.e|approx|No|Inc|Ltd|Co|Fig|al|cf)|\b[A-Z]|"
    r"^\s*\d{1,3})\.$"
)


def sentences(text: str) -> list[str]:
    """Sentences that hold a letter or digit, split after . ! ? and their like, and at empty lines.

    Initials, titles ("Dr."), common abbreviations and the numbers of a list end none.

    Args:
        text: any text.
    """
    parts, start, length = [], 0, len(text.rstrip())
    for end in _END.finditer(text):
        stop = end.end()
        if (
            text[stop - 1] == "."
            and _ABBREVIATION.search(text, max(start, stop - 8), stop)
            and stop < length
        ):
            continue
        parts.append(text[start:stop].strip())
        start = stop
    parts.append(text[start:].strip())
    return [part for part in parts if any(map(str.isalnum, part))]


_KEPT, _STOP = "\ue000", "\ue001"  # a dot that ends nothing; the end of a sentence
_STARTER = (
    r"(?:(?:Mr|Mrs|Ms|Dr|Prof|Capt|Cpt|Lt|Wherever)|"
    r"(?:He|She|It|They|Their|Our|We|But|However|That|This)\s)"
)
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
    """Sentences by the rules of the published checkers, with their peculiarities: ".me" in
    ".meadow" ends nothing.

    Args:
        text: any text.
    """
    text = f" {text}  ".replace("\n", " ")
    for pattern, replacement in _REWRITES:
        if pattern.pattern == r"(\.{2,})":
            text = pattern.sub(lambda dots: _KEPT * len(dots[0]) + _STOP, text)
        else:
            text = pattern.sub(replacement, text)
    parts = [part.strip() for part in text.replace(_KEPT, ".").split(_STOP)]
    return parts[:-1] if parts and not parts[-1] else parts


# ---------------------------------------------------------------------------------- Treebank tokens

_SPLIT = re.compile(r"\.{2,}|--+|[;@#$%&?!()\[\]{}<>\"“”„«»‘’…]|`+|[:,](?=\D|$)")
_CONTRACTION = re.compile(r"(?<=[^' ])('[sSmMdD]|'ll|'LL|'re|'RE|'ve|'VE|n't|N'T|')(?=$)")
_JOINED = re.compile(
    r"(?i)\b(can)(?=not\b)|\b(d)(?='ye\b)|\b(gim)(?=me\b)|\b(gon)(?=na\b)|\b(got)(?=ta\b)|\b(lem)"
    r"(?=me\b)|"
    r"\b(wan)(?=na(?:\s|$))|\b(more)(?='n\b)"
)
_FINAL_DOT = re.compile(r"(?<=[^.])\.(?=[\])}>\"'»”’ ]*$)")


def reference_tokens(text: str) -> list[str]:
    """Tokens in the manner of NLTK's `word_tokenize`: punctuation apart, contractions in two,
    "U.S." in one piece.

    Args:
        text: any text.
    """
    tokens: list[str] = []
    for sentence in sentences(text) or [text]:
        for chunk in _FINAL_DOT.sub(" . ", sentence).split():
            tokens += chunk_tokens(chunk)
    return tokens


def sentences_by(text: str, strict: bool) -> list[str]:
    """The sentences of a text, as a policy splits it.

    Args:
        text: any text.
        strict: by `sentences`, or else by `reference_sentences`.
    """
    return sentences(text) if strict else reference_sentences(text)


def words_by(text: str, strict: bool) -> list[str]:
    """The words of a text, as a policy splits it.

    Args:
        text: any text.
        strict: by `words`, or else by `reference_tokens`.
    """
    return words(text) if strict else reference_tokens(text)


def chunk_tokens(chunk: str) -> list[str]:
    """The tokens of a text without white space; a full stop at its end stays with it.

    Args:
        chunk: the text.
    """
    if chunk.isalpha() and len(chunk) > 6:
        return [chunk]
    tokens: list[str] = []
    for part in _SPLIT.sub(lambda sign: f" {sign[0]} ", chunk).split():
        joined = (
            _JOINED.sub(lambda found: found[0] + " ", part) if part[0] in "cCdDgGlLwWmM" else part
        )
        if "'" in joined:
            joined = _CONTRACTION.sub(r" \1", joined)
        tokens += joined.split()
    return tokens
