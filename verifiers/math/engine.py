r"""The symbolic engine's half that runs inside the worker process: math-verify on bare expressions, nothing else.

No text is searched for an answer here, no unit stripped and no prose read: `normal.py` walks lists, names, units and
numbers, and this module is its `leaf`, asked only whether two expressions are equal.  It is the one module that
imports SymPy, and only once it runs in a worker.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from rlvr.verifiers.math.fold import fold
from rlvr.verifiers.math.forms import Choice, Flawed, Form, Named, Quantity, Sequence, Word
from rlvr.verifiers.math.normal import decide
from rlvr.verifiers.math.policy import MathPolicy
from rlvr.verifiers.math.reading import read

__all__ = ["Reply", "Request", "handle", "start"]

Request = tuple[str | None, str, MathPolicy]
"""Answer, reference, policy; without an answer only the reference is checked."""

Reply = tuple[bool | None, str]
"""Equal and the reason; None where the reference cannot be read, with what is wrong with it."""

_DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)(?![\d.])")
_TIMES = re.compile(r"(?<=\d)\s*(?=\()")  # math-verify reads 2(3) as a mixed number
_SCRIPT = re.compile(r"([_^]) ?(\d+)(?= )")  # \log_10 2: the space shows where the subscript ends
_UNCLEAR = re.compile(r"\d\s+\d|[\"$#@`]|\.\d*\.")  # two numbers side by side, prose, stray signs
_PROBE_DIGITS = 40


class _Unreadable(Exception):
    """math-verify has no reading of this expression."""


def start() -> Callable[[Request], Reply]:
    """Set up one worker: load everything, silence it, and run one comparison so that no item pays for warming up."""
    logging.disable(logging.CRITICAL)  # math-verify warns about switched-off alarms, and quotes hostile text
    handle((r"\frac{1}{2}x", r"0.5x+\sqrt{3}", MathPolicy()))
    return handle


def handle(request: Request) -> Reply:
    """Decide one pair.  The answer's faults are replies; only memory running out ends the worker."""
    answer, reference, policy = request
    right = read(fold(reference))
    try:
        for form in _expressions(right):
            _parse(_latex(form))
    except _Unreadable as unreadable:
        return None, str(unreadable)
    if answer is None:
        return True, "readable"
    try:
        decision = decide(read(fold(answer)), right, policy, partial(_equal, policy))
    except _Unreadable as unreadable:
        return False, f"unreadable: {unreadable}"
    except MemoryError:
        raise
    except (Exception, RecursionError) as error:  # noqa: BLE001  # SymPy raises anything; the answer made it do so
        return False, f"too-hard: {type(error).__name__}"
    return bool(decision.equal), decision.reason


def _expressions(form: Form) -> Iterator[Form]:
    """What in a reference has to be understood by the engine."""
    if isinstance(form, Quantity) and form.value is None:
        yield form
    elif isinstance(form, Sequence):
        for item in form.items:
            yield from _expressions(item)
    elif isinstance(form, Named):
        yield from _expressions(form.body)


def _equal(policy: MathPolicy, answer: Form, reference: Form) -> bool:
    """The leaf.  Both orders must agree, since math-verify treats its two sides differently."""
    in_radians = any(r"\pi" in form.text for form in (answer, reference))
    a, b = _parse(_latex(answer, in_radians)), _parse(_latex(reference, in_radians))
    if policy.rounding == "reference" and isinstance(reference, Quantity) and reference.places:
        return _rounds_to(a, b, reference.places + 2 * reference.percent)
    relations = _same_relation(a, b)
    if relations is not None:
        return relations
    return not _differ(a, b) and _verify(a, b) and _verify(b, a)


def _same_relation(a: Any, b: Any) -> bool | None:
    """Equations and inequalities are equal up to a factor; None if these are no two relations of expressions.

    math-verify would solve both and compare the solutions, and of two unsolvable equations it compares nothing.
    """
    import sympy
    from sympy.core.relational import Relational

    if not isinstance(a, Relational) or not isinstance(b, Relational):
        return None
    if not all(isinstance(side, sympy.Expr) for side in (*a.args, *b.args)):
        return None
    left, right = sympy.simplify(a.lhs - a.rhs), sympy.simplify(b.lhs - b.rhs)
    if left.is_zero or right.is_zero:
        return False
    ratio = sympy.simplify(left / right)
    if not ratio.is_number or ratio.is_zero:
        return False
    return type(a) is (type(b) if ratio.is_positive else type(b.reversed))


def _rounds_to(a: Any, b: Any, places: int) -> bool:
    """A constant that lies within half a unit of the reference's last place."""
    import sympy

    if not isinstance(a, sympy.Expr) or a.free_symbols:
        return False
    gap = abs(sympy.N(a.doit(), _PROBE_DIGITS) - b)
    return bool(gap.is_number and gap <= sympy.Rational(10) ** -places / 2)


def _latex(form: Form, in_radians: bool = False) -> str:
    r"""LaTeX without decimals, units or signs around it: a float would bring a tolerance with it."""
    if isinstance(form, Word | Choice | Flawed):
        raise _Unreadable(repr(form.text[:80]))
    if not isinstance(form, Quantity):
        return _exact(form.text)
    latex = _exact(form.core) if form.value is None else rf"\frac{{{form.value.numerator}}}{{{form.value.denominator}}}"
    if form.percent:
        latex = rf"\frac{{{latex}}}{{100}}"
    if form.unit == "degree" and in_radians:
        latex = rf"({latex})\cdot\frac{{\pi}}{{180}}"
    return latex


def _exact(text: str) -> str:
    text = _SCRIPT.sub(r"\1{\2}", text)
    if _UNCLEAR.search(text):
        raise _Unreadable(repr(text[:80]))
    text = _DECIMAL.sub(lambda m: rf"{{\frac{{{int(m[1] + m[2])}}}{{{10 ** len(m[2])}}}}}", text)
    return _TIMES.sub(r"\\cdot ", text)


@lru_cache(maxsize=1024)
def _parse(latex: str) -> Any:
    """A SymPy object.  The cache is what makes one reference cost one parse, however many answers it gets."""
    from latex2sympy2_extended import NormalizationConfig, latex2sympy
    from math_verify.grader import should_treat_as_complex

    # Units and boxes stay as they are: what cannot be read must not be thrown away until it can.
    mending = NormalizationConfig(units=False, malformed_operators=True, nits=False, boxed="none")
    try:
        parsed = latex2sympy(latex, is_real=not should_treat_as_complex(latex), normalization_config=mending)
    except MemoryError:
        raise
    except (Exception, RecursionError):  # noqa: BLE001  # ANTLR and the converter raise bare Exceptions
        raise _Unreadable(repr(latex[:80])) from None
    if not _is_finite(parsed):
        raise _Unreadable(f"{latex[:80]!r} has no value")
    return parsed


def _is_finite(parsed: Any) -> bool:
    import sympy

    return parsed is not None and not (hasattr(parsed, "has") and parsed.has(sympy.nan, sympy.zoo))


def _verify(a: Any, b: Any) -> bool:
    from math_verify import verify

    # No time limit here: math-verify's is a signal.  The pool kills the whole process instead.
    return bool(verify(a, b, strict=True, allow_set_relation_comp=True, timeout_seconds=None))


def _differ(a: Any, b: Any) -> bool:
    """Two constants that differ in their first digits are unequal, whatever a tolerance makes of it."""
    import sympy

    constants = all(isinstance(side, sympy.Expr) and not side.free_symbols for side in (a, b))
    if not constants:
        return False
    x, y = (sympy.N(side.doit(), _PROBE_DIGITS) for side in (a, b))
    if not (x.is_number and y.is_number and x.is_finite and y.is_finite):
        return False
    return bool(abs(x - y) > sympy.Float(10) ** (10 - _PROBE_DIGITS) * max(abs(x), abs(y)))
