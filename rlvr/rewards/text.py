"""Texts for the parts of a reward: templates, words, sentences and their language.

Everything here is linear in the text, which a policy wrote: no regular expression backtracks.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

__all__ = [
    "classify",
    "fits",
    "languages",
    "pattern",
    "prose",
    "prose_sentences",
    "script",
    "split_words",
]

# ---------------------------------------------------------------------------------------- templates


@lru_cache(maxsize=64)
def pattern(template: str) -> tuple[tuple[tuple[str, str, int], ...], str]:
    """A template taken apart: its literals in order, each with the gap before it and its count; and
    the last gap.

    Args:
        template: see `rlvr.rewards.Format`.

    Returns:
        (gap, literal, count) of each literal, and the last gap.  A gap is "any", "space" or "".
    """
    literals: list[tuple[str, str, int]] = []
    gap = ""
    for piece in re.split(r"(\.\.\.|\s+)", template):
        if piece == "..." or piece.isspace():
            gap = "any" if "..." in (piece, gap) or gap == "any" else "space"
        elif piece:
            literals.append((gap, piece, template.count(piece)))
            gap = ""
    return tuple(literals), gap


def fits(template: str, text: str) -> bool:
    """Whether a text has the form of a template.  Linear in the text: each literal is looked for
    once.

    Args:
        template: see `rlvr.rewards.Format`.
        text: the completion.
    """
    literals, last = pattern(template)
    text = text.strip()
    at = 0
    for i, (gap, literal, count) in enumerate(literals):
        # Greedy is enough: every literal occurs exactly as often
        # as in the template, so there is one way to place them.
        start = text.find(literal, at)
        if (
            start < 0
            or text.count(literal) != count
            or not _gap_holds(gap, text[at:start], open_end=i == 0)
        ):
            return False
        at = start + len(literal)
    return _gap_holds(last, text[at:], open_end=True)


def _gap_holds(gap: str, between: str, *, open_end: bool) -> bool:
    if gap == "any":
        return open_end or not _blank(between)  # tags with nothing between them do not count
    return _blank(between) if gap == "space" else not between


def _blank(text: str) -> bool:
    return not text or text.isspace()


# ------------------------------------------------------------------------------ words and languages

# Scripts written without spaces: Thai, Lao, Tibetan, Myanmar, Khmer, Kana, Han.
_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
)
_WORDS = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")
# Marks that `re` does not count as letters: accents, Hebrew and Arabic points, the vowels of Indian
# scripts.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0963\u0970-\u0dff"
_LETTERS = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])(?:[^\W\d_]|[{_MARKS}])){{2,}}")
_FORMULAS = (("```", "```"), ("$$", "$$"), ("$", "$"), ("\\[", "\\]"), ("\\(", "\\)"))
_SENTENCE_LETTERS = 24  # below that, py3langid guesses
_SENTENCES = 1000  # classify at most so many, so that 1 MB costs half a second at most


def split_words(text: str) -> list[str]:
    """The words of a text, split at white space; in scripts without spaces each character is a
    word.

    Args:
        text: any text.
    """
    return _WORDS.findall(text)


def prose(text: str) -> str:
    """The text without formulas and code.

    Args:
        text: any text, in Markdown.
    """
    for opening, closing in _FORMULAS:
        text = _without(text, opening, closing)
    return re.sub(r"\\[A-Za-z]+", " ", text)


def _without(text: str, opening: str, closing: str) -> str:
    """Without every opening…closing pair and what is between; linear, unlike a lazy regular
    expression."""
    pieces, at = [], 0
    while (start := text.find(opening, at)) >= 0:
        stop = text.find(closing, start + len(opening))
        if stop < 0:
            break
        pieces.append(text[at:start])
        at = stop + len(closing)
    return " ".join([*pieces, text[at:]])


def prose_sentences(prose: str) -> list[tuple[str, list[str]]]:
    """Runs of sentences, each with enough letters to identify its language, and their words; [] if
    there are too few.

    Args:
        prose: a text without formulas and code.
    """
    # Letters in a run; a long text gets longer runs, at most about `_SENTENCES` of them.
    enough = max(_SENTENCE_LETTERS, sum(map(len, _LETTERS.findall(prose))) // _SENTENCES)
    runs: list[tuple[str, list[str]]] = []
    texts: list[str] = []
    words: list[str] = []
    letters = 0
    for sentence in re.split(r"[.!?。！？।؟\n]+", prose):
        sentence_words = _LETTERS.findall(sentence)
        texts.append(sentence)
        words += sentence_words
        letters += sum(map(len, sentence_words))
        if letters >= enough:
            runs.append((". ".join(texts), words))
            texts, words, letters = [], [], 0
    if words and runs:  # a short rest goes with the last run
        text, run_words = runs.pop()
        runs.append((". ".join([text, *texts]), run_words + words))
    return runs


@lru_cache(maxsize=4096)
def script(char: str) -> str:
    """The script of a letter, such as "LATIN"; Han and Kana together are "CJK".

    Args:
        char: one character.
    """
    name = unicodedata.name(char, "?").partition(" ")[0].partition("-")[0]
    return "CJK" if name in ("HIRAGANA", "KATAKANA") else name


def classify(text: str) -> str:
    """The code of the language that py3langid identifies.

    Args:
        text: some sentences.
    """
    import py3langid

    code: str = py3langid.classify(text)[0]
    return code


@lru_cache(maxsize=1)
def languages() -> tuple[str, ...]:
    """Every code that py3langid knows."""
    import py3langid

    return tuple(sorted(code for code, _ in py3langid.rank("")))
