"""Which texts share 5-grams, for any number of texts: what grows with their length is on disk.

    texts ─▶ 5-grams of each, as numbers ─▶ a file
          ─▶ those that two texts share, with their first ten holders ─▶ pairs

In memory are about 50 bytes for each text, and tables of a fixed size.  Numbers of 64 bits stand
for 5-grams: that two of a hundred million are taken for one another has a chance of 3e-4.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["GramFile", "gram_numbers", "pack_arrays", "unpack_arrays"]

_Numbers: TypeAlias = NDArray[np.uint64]

# Words: rewordings of a problem keep runs of five, and few other texts share one by chance.
_NGRAM: Final = 5
_BASE: Final = 0x9E3779B97F4A7C15  # odd: its powers are distinct for longer than any 5-gram
# A multiplier of SplitMix64: with the shifts around it, each bit of the polynomial moves others.
_MIX: Final = 0xBF58476D1CE4E5B9
_SORTED: Final = 4_000_000  # 5-grams that are sorted at once: 100 MB
_READ: Final = 1 << 20  # numbers read at once
_BLOCK: Final = 200_000  # 5-grams whose pairs are looked at together: up to ten pairs for each


def gram_numbers(words: Sequence[str]) -> _Numbers:
    """The numbers of a text's 5-grams, each once, in order of size; the same in every process.

    Args:
        words: of the text.
    """
    count = len(words) - _NGRAM + 1
    if count < 1:
        return np.empty(0, dtype=np.uint64)
    hashed = np.fromiter(map(_word_number, words), dtype=np.uint64, count=len(words))
    numbers = np.zeros(count, dtype=np.uint64)
    for i in range(_NGRAM):  # a polynomial, modulo 2^64
        numbers = numbers * np.uint64(_BASE) + hashed[i : i + count]
    numbers = (numbers ^ (numbers >> np.uint64(31))) * np.uint64(_MIX)
    return np.unique(numbers ^ (numbers >> np.uint64(29)))


@lru_cache(maxsize=1 << 17)
def _word_number(word: str) -> int:
    return int.from_bytes(
        hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )


def pack_arrays(arrays: Sequence[_Numbers]) -> list[object]:
    """Arrays as JSON holds them: their lengths, and all their numbers as text.

    Args:
        arrays: any number of them.
    """
    numbers = np.concatenate(arrays) if arrays else np.empty(0, dtype=np.uint64)
    return [
        [len(array) for array in arrays],
        base64.b64encode(numbers.astype("<u8").tobytes()).decode(),
    ]


def unpack_arrays(value: list[Any]) -> list[_Numbers]:
    """The arrays of `packed`.

    Args:
        value: what it gave.
    """
    lengths, text = value
    numbers = np.frombuffer(base64.b64decode(text), dtype="<u8").astype(np.uint64)
    return np.split(numbers, np.cumsum(lengths)[:-1]) if lengths else []


class GramFile:
    """The 5-grams of texts, in a temporary file.

    Args:
        common: a 5-gram in more texts than this is common; of each, so many holders are remembered.
    """

    def __init__(self, common: int) -> None:
        self._common = common
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  as long as this object
        self._sizes = array("I")

    def __enter__(self) -> GramFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def add(self, numbers: _Numbers) -> None:
        """Add the next text.

        Args:
            numbers: of its 5-grams.
        """
        self._sizes.append(len(numbers))
        self._file.write(numbers.tobytes())

    def pairs(self, least: float) -> Iterator[tuple[int, int]]:
        """Pairs (earlier, later) of texts that share enough; see `near_duplicates`.

        Args:
            least: the least Jaccard index.
        """
        sizes = np.frombuffer(self._sizes, dtype=np.uint32).astype(np.int64)
        grams, counts, holders = self._share_grams(sizes)
        rare = np.zeros(len(sizes), dtype=np.int64)
        for start, stop, numbers in self._blocks(sizes):
            later = np.repeat(np.arange(start, stop), sizes[start:stop])
            place = np.searchsorted(grams, numbers)
            # Behind the last one: any place will do, as the numbers then differ.
            place[place == len(grams)] = 0
            shared = grams[place] == numbers if len(grams) else np.zeros(len(numbers), dtype=bool)
            later, place = later[shared], place[shared]
            is_rare = counts[place] <= self._common
            # Common 5-grams, such as phrases of a template, say nothing of two texts.
            rare[start:stop] = sizes[start:stop] - np.bincount(
                later[~is_rare] - start, minlength=stop - start
            )
            yield from self._near(later, holders[place], is_rare, sizes, rare, least)

    def _near(
        self, later: Any, holders: Any, is_rare: Any, sizes: Any, rare: Any, least: float
    ) -> Iterator[tuple[int, int]]:
        """The pairs of some texts: of the earlier texts that share enough with one, the one that
        shares most."""
        rows, columns = np.nonzero((holders >= 0) & (holders < later[:, None]))
        later_texts, earlier = later[rows], holders[rows, columns].astype(np.int64)
        pairs, which, shared_counts = np.unique(
            # Both places in one number, so that pairs can be sorted.
            later_texts << 32 | earlier,
            return_inverse=True,
            return_counts=True,
        )
        both_rare = np.bincount(which, weights=is_rare[rows], minlength=len(pairs))
        later_texts, earlier = pairs >> 32, pairs & 0xFFFFFFFF
        near = (both_rare > 0) & (
            # The Jaccard index without a division: what both have, of what either has.
            both_rare >= least * (rare[earlier] + rare[later_texts] - both_rare)
        )
        # Nearly the same text, whatever its 5-grams are.
        near |= shared_counts >= (1 + least) / 2 * (
            sizes[earlier] + sizes[later_texts] - shared_counts
        )
        # of one text, those that share most come first
        # `lexsort` sorts by its last key first.
        order = np.lexsort((earlier, -shared_counts, later_texts))
        hits = order[near[order]]
        _, firsts = np.unique(later_texts[hits], return_index=True)
        for hit in hits[firsts]:
            yield int(earlier[hit]), int(later_texts[hit])

    def _share_grams(self, sizes: Any) -> tuple[Any, Any, Any]:
        """The 5-grams that two texts share, in order of size; how many texts have each; the first
        holders."""
        total = int(sizes.sum())
        passes = max(1, -(-total // _SORTED))
        # The numbers are spread evenly, so equal ranges have about equal shares.
        bounds = [(i << 64) // passes for i in range(passes + 1)]
        grams, counts, holders = (_Table(kind) for kind in (np.uint64, np.int32, np.int32))
        for low, high in pairwise(bounds):
            numbers, texts = self._numbers_between(sizes, low, high - 1)
            order = np.argsort(numbers, kind="stable")  # so that the holders of each stay in order
            numbers, texts = numbers[order], texts[order]
            begins = (
                np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1]])
                if len(numbers)
                else np.empty(0, int)
            )
            many = np.diff(np.r_[begins, len(numbers)])
            begins, many = begins[many > 1], many[many > 1]
            of_each = np.full((len(begins), self._common), -1, dtype=np.int32)
            for i in range(self._common):
                longer = many > i
                of_each[longer, i] = texts[begins[longer] + i]
            grams.write(numbers[begins])
            counts.write(many)
            holders.write(of_each)
        return grams.mapped(), counts.mapped(), holders.mapped().reshape(-1, self._common)

    def _numbers_between(self, sizes: Any, low: int, high: int) -> tuple[Any, Any]:
        """The numbers from `low` to `high`, and the text of each."""
        numbers, texts = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.int32)]
        for start, stop, block in self._blocks(sizes, _READ):
            inside = (block >= np.uint64(low)) & (block <= np.uint64(high))
            numbers.append(block[inside])
            texts.append(
                np.repeat(np.arange(start, stop, dtype=np.int32), sizes[start:stop])[inside]
            )
        return np.concatenate(numbers), np.concatenate(texts)

    def _blocks(self, sizes: Any, most: int = _BLOCK) -> Iterator[tuple[int, int, Any]]:
        """(first text, text after the last, their numbers) of runs of texts with about `most`
        numbers."""
        self._file.seek(0)
        ends = np.cumsum(sizes)
        start, before = 0, 0
        while start < len(sizes):
            # At least one text, however long.
            stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
            count = int(ends[stop - 1]) - before
            yield start, stop, np.frombuffer(self._file.read(8 * count), dtype=np.uint64)
            start, before = stop, int(ends[stop - 1])


class _Table:
    """Numbers in a temporary file, mapped into memory: the system may take their pages back."""

    def __init__(self, kind: Any) -> None:
        self._kind = np.dtype(kind)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed when it is mapped

    def write(self, numbers: Any) -> None:
        self._file.write(numbers.astype(self._kind).tobytes())

    def mapped(self) -> Any:
        with self._file as file:
            # The mapping outlives the file, which is closed here and has no name.
            file.flush()
            size = file.tell()
            return np.memmap(file, self._kind, "r") if size else np.empty(0, dtype=self._kind)
