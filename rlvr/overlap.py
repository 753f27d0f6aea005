"""Texts that share n-grams: near-duplicates within a set, and what a set shares with a test set.

Words are folded to one case and stripped of punctuation.  n-grams that stand in more than ten texts of the set say
nothing about two of them (an instruction that all prompts end with) and are left out, as GPT-3's filter did
(arXiv:2005.14165, appendix C, which takes n = 13).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

__all__ = ["Shared", "folded", "near_duplicates"]

_COMMON: Final = 10
_NEAR_NGRAM = 5
_WORD_OR_SIGN = re.compile(r"\w+|[-+*/^=<>×÷]")


def folded(text: str) -> tuple[str, ...]:
    """The words of a text, in one case, without punctuation.  Signs such as + and - stay, as words of their own."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return tuple(_WORD_OR_SIGN.findall(plain))


class Shared:
    """What texts share with a test set.

    Args:
        tests: the texts of the test set.
        n: words in an n-gram.  Of a test with fewer words, the whole has to be the same.
    """

    def __init__(self, tests: Iterable[str], n: int = 13) -> None:
        self._n = n
        self._whole: dict[tuple[str, ...], str] = {}
        self._grams: dict[tuple[str, ...], str] = {}
        for test in tests:
            words = folded(test)
            if words:
                self._whole.setdefault(words, test)
            for i in range(len(words) - n + 1):
                self._grams.setdefault(words[i : i + n], test)

    def found_in(self, texts: Sequence[str]) -> Iterator[tuple[str, str] | None]:
        """For each text, (what is shared, the test it is shared with), or None if nothing is."""
        every = [folded(text) for text in texts]
        hits = [self._hits(words) for words in every]
        counts = Counter(gram for found in hits for gram in set(found))
        for words, found in zip(every, hits, strict=True):
            rare = next((gram for gram in found if counts[gram] <= _COMMON), None)
            if words in self._whole:
                yield " ".join(words), self._whole[words]
            else:
                yield None if rare is None else (" ".join(rare), self._grams[rare])

    def _hits(self, words: tuple[str, ...]) -> list[tuple[str, ...]]:
        every = (words[i : i + self._n] for i in range(len(words) - self._n + 1))
        return [gram for gram in every if gram in self._grams]


def near_duplicates(texts: Sequence[str], least: float = 0.8) -> Iterator[tuple[int, int]]:
    """Pairs (earlier, later) of texts that share at least this part of their 5-grams, but are not the same.

    The Jaccard index over n-grams that stand in few texts.  Each later text is paired once, a repetition never.
    """
    first: dict[tuple[str, ...], int] = {}
    for index, text in enumerate(texts):
        first.setdefault(folded(text), index)
    grams = {index: _near(words) for words, index in first.items()}
    counts = Counter(gram for found in grams.values() for gram in found)
    holders: dict[int, list[int]] = defaultdict(list)
    for later, found in grams.items():
        rare = grams[later] = {gram for gram in found if counts[gram] <= _COMMON}
        shared = Counter(earlier for gram in rare for earlier in holders[gram])
        for earlier, common in shared.most_common(_COMMON):
            if common >= least * (len(grams[earlier]) + len(rare) - common):
                yield earlier, later
                break
        for gram in rare:
            holders[gram].append(later)


def _near(words: tuple[str, ...]) -> set[int]:
    return {hash(words[i : i + _NEAR_NGRAM]) for i in range(len(words) - _NEAR_NGRAM + 1)}
