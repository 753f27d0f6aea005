r"""math-verify, asked last: about bare expressions in which our own parser meets a command that it does not know.

It never gets an answer that our parser can read, so that those verdicts depend neither on it nor on the ANTLR runtime
that it finds.  Only its "equal" counts, if it says so in both directions and, for constants, the digits agree.  Its
own time limits are off, since they use signals; the worker process limits its time.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from rlvr.verifiers.math.latex.tree import Unreadable

__all__ = ["NOT_LOADED", "NotLoaded", "equal", "load", "patient", "readable"]

NOT_LOADED = "math-verify is not loaded"

patient = True
"""False in a worker's child: math-verify takes a second to load, which its parent should spend, once for all."""


class NotLoaded(Exception):
    """The worker is to call `load` and ask again."""


_DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)(?![\d.])")
_TIMES = re.compile(r"(?<=\d)\s*(?=\()")  # it reads 2(3) as a mixed number
# Two numbers side by side, prose, stray signs, marks and subscripts that it drops; and relations and lists, which it
# compares too generously.
_UNCLEAR = re.compile(r"\d\s+\d|[\"$#@`'%_]|\.\d*\.|[=<>,;?]|\\(?:[lg]e|ne|in|to|pm|mp|dots)(?![a-z])")
_DIGITS = 40


def equal(a: str, b: str) -> bool:
    """True only if it holds both ways.

    Raises:
        Unreadable: it cannot read one of them either.
    """
    left, right = _parse(a), _parse(b)
    return not _differ(left, right) and _verify(left, right) and _verify(right, left)


def readable(text: str) -> bool:
    """Does it have a reading of this expression?"""
    try:
        _parse(text)
    except Unreadable:
        return False
    return True


def load() -> None:
    """Load math-verify, and parse once, which builds ANTLR's tables."""
    global patient
    patient = True
    readable("x")


@lru_cache(maxsize=1024)
def _parse(text: str) -> Any:
    """A SymPy object with a value; of decimals fractions are made, since a float would bring a tolerance with it."""
    if _UNCLEAR.search(text):
        raise Unreadable(repr(text[:80]))
    if not patient:
        raise NotLoaded
    from latex2sympy2_extended import NormalizationConfig, latex2sympy
    from math_verify.grader import should_treat_as_complex

    latex = _DECIMAL.sub(lambda m: rf"\frac{{{int(m[1] + m[2])}}}{{{10 ** len(m[2])}}}", text)
    latex = _TIMES.sub(r"\\cdot ", latex)
    # Units and boxes stay as they are: what cannot be read must not be thrown away until it can.
    mending = NormalizationConfig(units=False, malformed_operators=True, nits=False, boxed="none")
    try:
        parsed = latex2sympy(latex, is_real=not should_treat_as_complex(latex), normalization_config=mending)
    except MemoryError:
        raise
    except (Exception, RecursionError):  # noqa: BLE001  # ANTLR and the converter raise bare Exceptions
        raise Unreadable(repr(text[:80])) from None
    return _sound(parsed, text)


def _sound(parsed: Any, text: str) -> Any:
    import sympy

    if not isinstance(parsed, sympy.Expr) or parsed.has(sympy.nan, sympy.zoo):
        raise Unreadable(f"{text[:80]!r} has no value")
    return parsed


def _verify(a: Any, b: Any) -> bool:
    from math_verify import verify

    return bool(verify(a, b, strict=True, allow_set_relation_comp=False, timeout_seconds=None))


def _differ(a: Any, b: Any) -> bool:
    """Two constants that differ in their first digits are unequal, whatever a tolerance makes of it."""
    import sympy

    if a.free_symbols or b.free_symbols:
        return False
    x, y = (sympy.N(side.doit(), _DIGITS) for side in (a, b))
    if not (x.is_number and y.is_number and x.is_finite and y.is_finite):
        return True
    return bool(abs(x - y) > sympy.Float(10) ** (10 - _DIGITS) * max(abs(x), abs(y)))
