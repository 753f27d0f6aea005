"""Comparators of a program's output with the expected one, as contest judges have
them; linear in both texts.

A comparator is a function (input, output, expected) of texts that returns True, False, or a text
that says how they differ.  White space is that of ASCII, and only "\\n" ends a line; other Unicode
space is content.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar, Final, TypeAlias

from rlvr.errors import UsageError, brief
from rlvr.verifiers.code.equality import check_tolerances

__all__ = [
    "COMPARATORS",
    "Comparator",
    "Floats",
    "comparator",
    "exact",
    "lines",
    "tokens",
    "unordered",
]

Comparator: TypeAlias = Callable[[str, str, str], bool | str]
"""(input, output, expected) → True, False, or the difference.  Bytes that are not UTF-8
come as lone surrogates."""

_SPACE = " \t\r\n\f\v"
_TOKEN = re.compile(r"\S+", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
# neither nan, inf, hex nor 1_000
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_DIGITS = 1000  # a longer token is compared as text
_SHOWN = 60


def exact(input: str, output: str, expected: str) -> bool | str:
    """Every character counts.

    Args:
        input, output, expected: see `Comparator`.
    """
    return output == expected or "the output differs, if only in white space"


def lines(input: str, output: str, expected: str) -> bool | str:
    """White space at the ends of lines and blank lines at the end do not count.

    Args:
        input, output, expected: see `Comparator`.
    """
    if output.rstrip(_SPACE) == expected.rstrip(_SPACE):
        return True
    pairs = zip_longest(_lines(output.rstrip(_SPACE)), _lines(expected.rstrip(_SPACE)))
    return _first_difference("line", pairs)


def tokens(input: str, output: str, expected: str) -> bool | str:
    """Words separated by white space are compared; the amount of white space does not count.

    Args:
        input, output, expected: see `Comparator`.
    """
    if output == expected:
        return True
    return _first_difference("token", zip_longest(_tokens(output), _tokens(expected)))


def unordered(input: str, output: str, expected: str) -> bool | str:
    """The lines may stand in any order, each as often as expected; otherwise as `lines`.

    Args:
        input, output, expected: see `Comparator`.
    """
    output, expected = output.rstrip(_SPACE), expected.rstrip(_SPACE)
    got, due = output.count("\n") + bool(output), expected.count("\n") + bool(expected)
    if got != due:  # before a flood of lines is taken apart
        return f"{got} lines, not {due}"
    # Sorted rather than counted: no choice of lines makes sorting slow, as it can a hash table.
    return _first_difference(
        "sorted line", zip(sorted(_lines(output)), sorted(_lines(expected)), strict=True)
    )


@dataclass(frozen=True, slots=True)
class Floats:
    """As `tokens`, but numbers may differ by `abs_tol`, or by `rel_tol` times the expected number.

    Two whole numbers must be equal: a count that is off by one is wrong however large it is.  nan
    and inf are not read as numbers: they must be equal as texts.

    Attributes:
        abs_tol, rel_tol: tolerances of at least 0; a number that is within either one is right.

    Raises:
        UsageError: a tolerance is no number of at least 0.
    """

    abs_tol: float = 1e-6
    rel_tol: float = 1e-6
    __name__: ClassVar[str] = "floats"

    def __post_init__(self) -> None:
        check_tolerances(self)

    def __call__(self, input: str, output: str, expected: str) -> bool | str:
        if output == expected:
            return True
        return _first_difference(
            "token", zip_longest(_tokens(output), _tokens(expected)), self.close
        )

    def close(self, got: str, wanted: str) -> bool:
        """True if a token is close enough to the expected one.

        Args:
            got, wanted: the token of the output and the expected one.
        """
        if got == wanted:
            return True
        if max(len(got), len(wanted)) > _DIGITS or not (
            _NUMBER.fullmatch(got) and _NUMBER.fullmatch(wanted)
        ):
            return False
        if _INTEGER.fullmatch(got) and _INTEGER.fullmatch(wanted):
            return int(got) == int(wanted)
        return self.near(float(got), float(wanted))

    def near(self, got: float, wanted: float) -> bool:
        """True if a number is close enough to the expected one.

        Args:
            got, wanted: the number of the output and the expected one.
        """
        off = abs(got - wanted)  # infinite where a token is beyond all floats: 1e400
        return math.isfinite(off) and (off <= self.abs_tol or off <= self.rel_tol * abs(wanted))


COMPARATORS: Final[dict[str, Comparator]] = {
    "exact": exact,
    "lines": lines,
    "tokens": tokens,
    "floats": Floats(),
    "unordered": unordered,
}
"""The comparators by name, as data sets and options name them."""


def comparator(given: str | Comparator) -> Comparator:
    """The comparator with this name; a function is returned as it is.

    Args:
        given: a name of `COMPARATORS`, or a comparator.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(given, str) and given in COMPARATORS:
        return COMPARATORS[given]
    if isinstance(given, str) or not callable(given):
        raise UsageError(
            f"compare is {brief(given)}; give one of {', '.join(COMPARATORS)}, Floats(…), a "
            f"function (input, output, "
            "expected), or a checker Program"
        )
    return given


def _first_difference(
    what: str,
    pairs: Iterator[tuple[str | None, str | None]] | zip[tuple[str, str]],
    same: Callable[[str, str], bool] = str.__eq__,
) -> bool | str:
    """The first difference.  Both sides are read only as far as they agree, so that a huge output
    costs no time."""
    for number, (got, due) in enumerate(pairs, 1):
        if got is None or due is None:
            return f"{what} {number}: {'nothing' if got is None else _cut(got)}, not {_cut(due)}"
        if not same(got, due):
            return f"{what} {number}: {_cut(got)}, not {_cut(due)}"
    return True


def _cut(text: str | None) -> str:
    if text is None:
        return "the end"
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"


def _lines(text: str) -> Iterator[str]:
    return (line.rstrip(_SPACE) for line in io.StringIO(text, newline="\n"))


def _tokens(text: str) -> Iterator[str]:
    return (match[0] for match in _TOKEN.finditer(text))
