"""Texts that share n-grams: near-duplicates within a set, and overlap of a set with a test set.

There are two normal forms of a text.  `folded` drops only case and the punctuation of sentences:
two texts with the same form are the same problem.  `words_and_signs` keeps only words and a
few signs, to compare runs of words, which another pair of brackets must not hide.  Runs that
occur in more than ten different texts of the set (such as an instruction that all prompts end
with) say nothing about one of them and are left out, as in GPT-3's filter (arXiv:2005.14165,
appendix C, which takes n = 13).
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from rlvr.data.parallel import in_chunks, map_chunks

__all__ = ["TestSetOverlap", "digest_of", "fold_text", "near_duplicates", "words_and_signs"]

_Words: TypeAlias = tuple[str, ...]

_COMMON: Final = 10  # a run of words in more texts than this is common
_SHORTEST: Final = 4  # a test of fewer words is not looked for within longer texts

# Thai, Lao, Burmese, Khmer, kana and Han are written without spaces: each character counts as a
# word.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])\w)+"
_WORD_OR_SIGN = re.compile(rf"{_WORD}|[-+*/^=<>×÷]")
_SIGNS: Final = frozenset("-+*/^=<>×÷")
_WORD_OR_ANY_SIGN = re.compile(rf"{_WORD}|[^\w\s]")
# What ends a clause or quotes; not 5!, f'(x), 3.5, 3:45 or the dots of a grid.
_LIGHT = re.compile(
    r"""(?<=[^\W\d_]{2})[?!]+(?!\S)"""
    r"""|(?<=[\w)\]}$%"'`])(?:[.,;:](?=["'`)\]}]*(?:\s|$))|\?+(?=["'`)\]}]*(?:\s|$))|,(?=\w))"""
    r"""|(?<=\s)[?!]+(?!\S)|(?<!\w)'|'(?!\w|\()(?<!\b\w')|["`]"""
)
_LETTERS = re.compile(r"\w")
_TYPED = str.maketrans("‘’′“”−–", "'''\"\"--")


def fold_text(text: str) -> _Words:
    """The words and signs of a text, in one case, without the punctuation of sentences.

    Superscripts are written with ^ and subscripts with _, since 2³ is not 23.  In a line without
    any letter or digit, such as a row of a puzzle's grid, every character counts.

    Args:
        text: any text.
    """
    tokens: list[str] = []
    for line in _plain(text).splitlines():
        if _LETTERS.search(line):
            tokens += _WORD_OR_ANY_SIGN.findall(_LIGHT.sub(" ", line))
        elif line.strip():
            tokens.append(line)
    return tuple(tokens)


def words_and_signs(text: str) -> _Words:
    """The words of a text, in one case.  Signs such as + and - are words of their own; all else is
    dropped.

    Args:
        text: any text.
    """
    return tuple(_WORD_OR_SIGN.findall(_plain(text)))


def _plain(text: str) -> str:
    marked = text if text.isascii() else "".join(map(_mark_char, text.translate(_TYPED)))
    return unicodedata.normalize("NFKC", marked).casefold()


def _mark_char(char: str) -> str:
    """Mark a character that NFKC would merge with its neighbours."""
    kind = unicodedata.decomposition(char).partition(" ")[0]
    return {"<super>": "^", "<sub>": "_", "<fraction>": " "}.get(kind, "") + char


class TestSetOverlap:
    """Finds what prompts share with a test set: n words in a row, or all words
    of a test that has fewer.

    Args:
        tests: the texts of the test set.
        n: number of words in a row.  A test with fewer than 4 words must equal a prompt or one of
            its messages.
    """

    __test__ = False  # no test for pytest to collect

    def __init__(self, tests: Iterable[str], n: int = 13) -> None:
        self._whole: dict[_Words, str] = {}
        self._runs: dict[int, dict[_Words, str]] = defaultdict(dict)  # by length
        self._n = n
        for test in tests:
            if folded_test := fold_text(test):
                self._whole.setdefault(folded_test, test)
            test_words = words_and_signs(test)
            length = min(n, len(test_words))
            if length >= min(_SHORTEST, n):
                for i in range(len(test_words) - length + 1):
                    self._runs[length].setdefault(test_words[i : i + length], test)

    def find(
        self, prompts: Iterable[str | Sequence[str]], *, processes: int | None = None
    ) -> Iterator[tuple[str, str] | None]:
        """For each prompt, (what is shared, the test that it is shared with); None for nothing.

        All prompts are read before the first result; what is remembered of them is what they share
        with tests.

        Args:
            prompts: texts, or the texts of each prompt's messages.
            processes: see `rlvr.data.parallel.map_chunks`; the results do not depend on it.
        """
        every = ((prompt,) if isinstance(prompt, str) else tuple(prompt) for prompt in prompts)
        hits: dict[int, tuple[list[_Words], _Words | None]] = {}
        counts: Counter[_Words] = Counter()
        counted: set[bytes] = set()  # of the prompts that share something: equal ones count once
        index = 0
        for chunk, looked in map_chunks(self._look, in_chunks(every), processes):
            for messages, (runs, whole_test) in zip(chunk, looked, strict=True):
                if runs or whole_test:
                    shared_runs = [tuple(run) for run in runs]
                    hits[index] = shared_runs, None if whole_test is None else tuple(whole_test)
                    if (digest := digest_of(messages)) not in counted:
                        counted.add(digest)
                        counts.update(set(shared_runs))
                index += 1
        for at in range(index):
            runs, whole_test = hits.get(at, ([], None))
            rare = next((run for run in runs if counts[run] <= _COMMON), None)
            if whole_test is not None:
                yield " ".join(whole_test), self._whole[whole_test]
            else:
                yield None if rare is None else (" ".join(rare), self._runs[len(rare)][rare])

    def _look(self, prompts: Sequence[_Words]) -> list[tuple[list[_Words], _Words | None]]:
        """For each prompt, given as its messages: the runs that it shares with tests, and the test
        that it equals."""
        looked = []
        for messages in prompts:
            wholes = map(fold_text, ("\n".join(messages), *messages))
            test = next((test_text for test_text in wholes if test_text in self._whole), None)
            looked.append((list(self._hits(words_and_signs("\n".join(messages)))), test))
        return looked

    def _hits(self, found: _Words) -> Iterator[_Words]:
        for length, runs in self._runs.items():
            for i in range(len(found) - length + 1):
                run = found[i : i + length]
                if run in runs and (length == self._n or not self._goes_on(found, i, i + length)):
                    yield run

    def _goes_on(self, found: _Words, start: int, end: int) -> bool:
        """Whether a sign follows or precedes: "what is 2 + 2" is another problem than "what is 2 +
        2 * 5"."""
        return bool(_SIGNS & {*found[max(start - 1, 0) : start], *found[end : end + 1]})


def near_duplicates(
    texts: Iterable[str], least: float = 0.8, *, processes: int | None = None
) -> Iterator[tuple[int, int]]:
    """Pairs (earlier, later) of texts that share a large part of their 5-grams, but are not the
    same.

    Compares the Jaccard index over the 5-grams of `folded` that occur in few texts with `least`.
    In a cluster of more than ten texts no such 5-gram is shared; there the index over all 5-grams
    must reach (1 + least) / 2, so that a long instruction at the end does not make texts
    near-duplicates.  Each later text is paired once, an exact duplicate never.

    The texts may be any number: see `rlvr.data.grams`.

    Args:
        texts: texts to compare; read once.
        least: the least Jaccard index of a pair, in (0, 1].
        processes: see `rlvr.data.parallel.map_chunks`; the pairs do not depend on it.

    Returns:
        Pairs of indices into `texts`, in the order of the later ones.
    """
    from rlvr.data.grams import GramFile, unpack_arrays  # here, since it imports numpy

    first: set[bytes] = set()
    indices = array("I")
    index = 0
    with GramFile(_COMMON) as grams:
        for _, (digests, numbers) in map_chunks(_near, in_chunks(texts), processes):
            for digest, text_numbers in zip(digests, unpack_arrays(numbers), strict=True):
                if (key := bytes.fromhex(digest)) not in first:
                    first.add(key)
                    indices.append(index)
                    grams.add(text_numbers)
                index += 1
        first.clear()
        for earlier, later in grams.pairs(least):
            yield indices[earlier], indices[later]


def digest_of(parts: Sequence[str]) -> bytes:
    """16 bytes that stand for a sequence of texts.

    Args:
        parts: the texts.
    """
    joined = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(joined, digest_size=16, key=b"%d" % len(parts)).digest()


def _near(texts: Sequence[str]) -> tuple[list[str], list[object]]:
    """What `near_duplicates` has to know of each text: a digest of `folded`, and the numbers of its
    5-grams."""
    from rlvr.data.grams import gram_numbers, pack_arrays

    every = [fold_text(text) for text in texts]
    return [digest_of(text_words).hex() for text_words in every], pack_arrays(
        [gram_numbers(text_words) for text_words in every]
    )
