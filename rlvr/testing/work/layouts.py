"""The layout of a program's standard input, guessed from the inputs that are known, and
new inputs of that layout.

A layout says which numbers are how many of something: how many lines follow, how many words a line
has.  Without these an input is a tuple of plain values, as the arguments of a call are (domain), so
that one guess of what is meant serves both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from rlvr.testing.work.domain import Input, Record

__all__ = ["Layout", "layout_of"]

_Rows: TypeAlias = "list[list[str]]"
_Counts: TypeAlias = "dict[tuple[int, int], int]"
# No leading zero and at most 18 digits: other digits are text, which is written as it was.
_INTEGER: Final = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9]\d*)\.\d+")
_HEADS: Final = 3  # lines before those that are counted, at most
_GROUP: Final = 4  # lines of a group, at most
# n lines, n - 1 of them, or one more than the number says.
_OFFSETS: Final = (0, -1, 1)  # a tree of n nodes has n - 1 edges


@dataclass(frozen=True, slots=True)
class _Line:
    """A line: words of a kind each, or any number of words of one kind.

    Attributes:
        kinds: "int", "decimal" or "text" for each word, or for all of them.
        bound: (line, word) of the number that says how many there are; None where each line has
            as many as `kinds`.
        is_free: there is no such number, and lines differ.
        outer: (line, word) of the head, for a line of a group that all groups have as long.
    """

    kinds: Sequence[str]
    bound: tuple[int, int] | None = None
    is_free: bool = False
    outer: tuple[int, int] | None = None

    @property
    def is_list(self) -> bool:
        return self.is_free or self.bound is not None


@dataclass(frozen=True, slots=True)
class Layout:
    """Lines at the head, and groups of lines that one of its numbers counts.

    Attributes:
        head: the first lines.
        group: the lines of a group; empty where there are none.
        bound: (line, word, offset) of the number of groups.
        fixed: (line, word) of numbers that all inputs share and that stay.
    """

    head: Sequence[_Line]
    group: Sequence[_Line]
    bound: tuple[int, int, int] | None
    fixed: Mapping[tuple[int, int], str]

    def parse(self, text: str) -> Input | None:
        """The values of an input, without those that count; None if it has another layout.

        Args:
            text: standard input.
        """
        rows = _rows(text)
        head, body = rows[: len(self.head)], rows[len(self.head) :]
        size = len(self.group) or 1
        # What is left over, or missing, is another layout.
        if len(head) < len(self.head) or len(body) % size or (body and not self.group):
            return None
        groups = [body[at : at + size] for at in range(0, len(body), size)]
        try:
            values = self._values(self.head, head, self._counting())
            if self.group:
                inner = [
                    self._values(self.group, group, _counts_of(self.group)) for group in groups
                ]
                values.append(
                    [
                        group_values[0] if len(group_values) == 1 else Record(group_values)
                        for group_values in inner
                    ]
                )
        except ValueError:
            return None
        args = tuple(values)
        written = self.write(args)
        # Only what is written again as it was has been understood.
        return args if written is not None and _rows(written) == rows else None

    def write(self, args: Input) -> str | None:
        """The input with these values, its counts as they are now; None if two lines disagree about
        a count.

        Args:
            args: as `parse` gives them.
        """
        counts: _Counts = {}
        values = list(args)
        groups: list[object] = values.pop() if self.group else []
        if self.bound is not None:
            line, word, offset = self.bound
            # The number is what it counts, without the offset.
            counts[line, word] = len(groups) - offset
        below: list[str] = []
        for group in groups:
            inner = list(group) if isinstance(group, Record) else [group]
            lines = _write_rows(self.group, inner, {}, {}, counts)
            if lines is None:
                return None
            below += lines
        rows = _write_rows(self.head, values, self.fixed, counts, {})
        return None if rows is None else "\n".join([*rows, *below]) + "\n"

    def _counting(self) -> set[tuple[int, int]]:
        return _counts_of(self.head) | _counts_below(self.group, self.bound) | set(self.fixed)

    def _values(
        self, lines: Sequence[_Line], rows: _Rows, counting: set[tuple[int, int]]
    ) -> list[object]:
        values: list[Any] = []
        for at, (line, row) in enumerate(zip(lines, rows, strict=True)):
            if line.is_list:
                values.append([_value(line.kinds[0], word) for word in row])
                continue
            if len(row) != len(line.kinds):
                raise ValueError("another number of words")
            values += [
                _value(kind, word)
                for place, (kind, word) in enumerate(zip(line.kinds, row, strict=True))
                if (at, place) not in counting
            ]
        return values


def layout_of(texts: Sequence[str]) -> Layout | None:
    """The layout that all inputs share, the simplest of several; None if there is none.

    Args:
        texts: standard inputs, at least two that differ.
    """
    every = [_rows(text) for text in dict.fromkeys(texts)]
    # One input shows no difference between what is fixed and what varies.
    if len(every) < 2 or not all(every):
        return None
    for heads, size, bound in _splittings(every):
        head = _lines([rows[:heads] for rows in every])
        groups = [
            (rows, rows[at : at + size])
            for rows in every
            for at in range(heads, len(rows), size or len(rows))
        ]
        group = _lines([lines for _, lines in groups]) if size and groups else []
        if head is None or group is None:
            continue
        group = [
            replace(line, outer=_outer(head, groups, at)) if line.is_free else line
            for at, line in enumerate(group)
        ]
        counting = _counts_of(head) | _counts_below(group, bound)
        layout = Layout(head, group, bound, _find_fixed(head, every, counting))
        # The first that reads all of them: fewer lines at the head come first.
        if all(layout.parse(text) is not None for text in texts):
            return layout
    return None


def _splittings(every: Sequence[_Rows]) -> list[tuple[int, int, tuple[int, int, int] | None]]:
    """Lines at the head, lines of a group, and the number that counts the groups."""
    splittings: list[tuple[int, int, tuple[int, int, int] | None]] = []
    shortest = min(map(len, every))
    for heads in range(1, min(_HEADS, shortest) + 1):
        words = min(len(row) for rows in every for row in rows[heads - 1 : heads])
        for word, size, offset in (
            (word, size, offset)
            for size in range(1, _GROUP + 1)
            for offset in _OFFSETS
            for word in range(words)
        ):
            if all(_is_counted(rows, heads, word, size, offset) for rows in every):
                splittings.append((heads, size, (heads - 1, word, offset)))
    if len({len(rows) for rows in every}) == 1:
        splittings.append((shortest, 0, None))
    return splittings


def _is_counted(rows: _Rows, heads: int, word: int, size: int, offset: int) -> bool:
    number = rows[heads - 1][word]
    return (
        _INTEGER.fullmatch(number) is not None
        and len(rows) - heads == (int(number) + offset) * size
        # Something must be counted, or any 0 would count it.
        and len(rows) > heads
    )


def _lines(samples: Sequence[_Rows]) -> list[_Line] | None:
    """What each line of all samples shares; None if their words differ in kind."""
    lines: list[_Line] = []
    for at in range(len(samples[0])):
        rows = [sample[at] for sample in samples]
        lengths = {len(row) for row in rows}
        bound = next(
            (
                (line, word)
                for line in range(at)
                if not lines[line].is_list
                for word, kind in enumerate(lines[line].kinds)
                if kind == "int" and all(int(s[line][word]) == len(s[at]) for s in samples)
            ),
            None,
        )
        if len(lengths) > 1 or (bound is not None and lengths != {1}):
            if not all(rows):
                return None
            kind = _kind([word for row in rows for word in row])
            lines.append(_Line([kind], bound, is_free=bound is None))
        else:
            columns = zip(*rows, strict=True)
            lines.append(_Line([_kind(list(column)) for column in columns]))
    return lines


def _outer(
    head: Sequence[_Line], groups: Sequence[tuple[_Rows, _Rows]], at: int
) -> tuple[int, int] | None:
    """The number of the head that says how long a line of all groups is; None if there is none."""
    for line, row in enumerate(head):
        for word, kind in enumerate(() if row.is_list else row.kinds):
            if kind == "int" and all(
                int(rows[line][word]) == len(group_rows[at]) for rows, group_rows in groups
            ):
                return line, word
    return None


def _kind(words: Sequence[str]) -> str:
    if all(map(_INTEGER.fullmatch, words)):
        return "int"
    if all(map(_DECIMAL.fullmatch, words)):
        # Decimals are written with as many places as the known ones have; differing ones are text.
        digits = {len(word.partition(".")[2]) for word in words}
        return f"decimal {max(digits)}" if len(digits) == 1 else "text"
    return "text"


def _find_fixed(
    head: Sequence[_Line], every: Sequence[_Rows], counting: set[tuple[int, int]]
) -> dict[tuple[int, int], str]:
    """Numbers of the head that are the same in all inputs: they may count something that was not
    seen."""
    return {
        (at, word): every[0][at][word]
        for at, line in enumerate(head)
        if not line.is_list
        for word, kind in enumerate(line.kinds)
        if (at, word) not in counting
        and kind == "int"
        and len({rows[at][word] for rows in every}) == 1
    }


def _counts_of(lines: Sequence[_Line]) -> set[tuple[int, int]]:
    return {line.bound for line in lines if line.bound is not None}


def _counts_below(
    group: Sequence[_Line], bound: tuple[int, int, int] | None
) -> set[tuple[int, int]]:
    """Numbers of the head that count what stands below it."""
    outer = {line.outer for line in group if line.outer is not None}
    return outer if bound is None else outer | {bound[:2]}


def _write_rows(
    lines: Sequence[_Line],
    values: Sequence[Any],
    fixed: Mapping[tuple[int, int], str],
    counts: _Counts,
    outer: _Counts,
) -> list[str] | None:
    """The lines of these values, the counts filled in; what a group's lines count at the head is
    added to `outer`."""
    remaining = iter(values)
    counting = _counts_of(lines) | counts.keys()
    rows: list[list[Any]] = []
    for at, line in enumerate(lines):
        if not line.is_list:
            places = [(at, word) for word in range(len(line.kinds))]
            rows.append(
                [
                    place if place in counting else fixed.get(place) or _word(kind, next(remaining))
                    for place, kind in zip(places, line.kinds, strict=True)
                ]
            )
            continue
        items = next(remaining)
        for place, of in ((line.bound, counts), (line.outer, outer)):
            if place is not None and of.setdefault(place, len(items)) != len(items):
                return None
        rows.append([_word(line.kinds[0], item) for item in items])
    return [" ".join(str(counts[w]) if isinstance(w, tuple) else w for w in row) for row in rows]


def _rows(text: str) -> _Rows:
    return [line.split() for line in text.rstrip().split("\n")]


def _value(kind: str, word: str) -> object:
    if kind == "int":
        return int(word)
    return float(word) if kind.startswith("decimal") else word


def _word(kind: str, value: object) -> str:
    if kind.startswith("decimal"):
        return f"{value:.{kind.split()[1]}f}"
    return str(value)
