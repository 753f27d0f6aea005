"""Checks of values that callers give.  An error names the value, the rule and, if it
is not obvious, the fix.

A check of numbers returns a plain int or float (numpy's 3 becomes 3), so that it can be recorded as
JSON.  True, False, NaN and infinities are not numbers here.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable
from numbers import Integral, Real
from typing import TypeGuard, TypeVar

from rlvr.errors import UsageError, brief

__all__ = [
    "is_number",
    "is_whole",
    "nearest",
    "read_key",
    "require_number",
    "require_one_of",
    "require_optional_whole",
    "require_processes",
    "require_seconds",
    "require_whole",
]

_T = TypeVar("_T")


def is_whole(value: object) -> TypeGuard[int]:
    """True for whole numbers of Python and numpy; False for True, False and 3.0.

    Args:
        value: any value.
    """
    # Asking for the exact type first: the other is a search in a registry.
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def is_number(value: object) -> TypeGuard[float]:
    """True for numbers of Python and numpy that are finite as a float, which 10**400 is not; False
    for True and False.

    Args:
        value: any value.
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # 10**400
        return False


def require_whole(
    name: str, value: object, least: int, most: int | None = None, *, hint: str = ""
) -> int:
    """The value as an int.

    Args:
        name: of the argument or setting, as the caller knows it.
        value: the value that was given.
        least, most: the least and the greatest allowed value; None for no greatest.
        hint: appended to the rule, such as "0 to score in this process".

    Raises:
        UsageError: the value is no whole number, or outside these limits.
    """
    if not is_whole(value) or value < least or (most is not None and value > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise UsageError(
            f"{name} is {_show_typed(value)}; it must be a whole number {limits}{_after(hint)}"
        )
    return int(value)


def require_processes(name: str, value: object, least: int, *, hint: str = "") -> int:
    """The value as an int: how many processes are started beside each other.

    Args:
        name, value, least, hint: see `require_whole`.

    Raises:
        UsageError: the value is no whole number, or outside `least` to 1024: more than any machine
            has cores, and a slip of the keys would take all memory.
    """
    return require_whole(name, value, least, 1024, hint=hint)


def require_optional_whole(name: str, value: object, least: int, *, none: str = "") -> int | None:
    """The value as an int, or None.

    Args:
        name, value, least: see `require_whole`.
        none: what None stands for, such as "all"; the rule then ends in "or None for all".

    Raises:
        UsageError: the value is neither None nor a whole number of at least `least`.
    """
    return (
        None
        if value is None
        else require_whole(name, value, least, hint=f"or None{none and f' for {none}'}")
    )


def require_number(
    name: str,
    value: object,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    above: float | None = None,
    below: float | None = None,
    infinite: bool = False,
    hint: str = "",
) -> float:
    """The value as an int or a float: a number in [least, most], above `above` and below `below`.

    Args:
        name: of the argument or setting, as the caller knows it.
        value: the value that was given.
        least, most: limits that are themselves allowed.
        above, below: limits that are not allowed themselves.
        infinite: whether infinity is allowed too.
        hint: appended to the rule.

    Raises:
        UsageError: the value is no number, outside these limits, or infinite without `infinite`.
    """
    real = isinstance(value, Real) and not isinstance(value, bool)
    fits = (
        real and (infinite or is_number(value)) and least <= value <= most  # type: ignore[operator]
    )
    if (
        fits
        and (above is None or value > above)  # type: ignore[operator]
        and (below is None or value < below)  # type: ignore[operator]
    ):
        return int(value) if is_whole(value) else float(value)  # type: ignore[arg-type]
    rules = [
        f"above {above:g}" if above is not None else "",
        f"of at least {least:g}" if least > -math.inf else "",
        f"below {below:g}" if below is not None else "",
        f"of at most {most:g}" if most < math.inf else "",
    ]
    rule = " and ".join(filter(None, rules))
    finite = "" if infinite or (rule and (not real or is_number(value))) else "finite "
    raise UsageError(
        f"{name} is {_show_typed(value)}; it must be a "
        f"{finite}number{rule and ' '}{rule}{_after(hint)}"
    )


def require_seconds(name: str, value: object, *, or_none: bool = False) -> float | None:
    """The value unchanged: a number of seconds above 0.  Infinity means no limit.

    Args:
        name: of the argument or setting, as the caller knows it.
        value: the value that was given.
        or_none: whether None is allowed too.

    Raises:
        UsageError: the value is no number above 0.
    """
    if value is None and or_none:
        return None
    is_real = isinstance(value, Real) and not isinstance(value, bool)
    # true for NaN, which no clock reaches
    if not is_real or not value > 0:  # type: ignore[operator]
        none = ", or None" if or_none else ""
        raise UsageError(
            f"{name} is {_show_typed(value)}; it must be a number of seconds above 0{none}"
        )
    return value  # type: ignore[return-value]


def require_one_of(name: str, value: _T, allowed: Iterable[_T], *, or_none: bool = False) -> _T:
    """The value unchanged: one of the allowed values.

    Args:
        name: of the argument or setting, as the caller knows it.
        value: the value that was given.
        allowed: the choices, in the order in which the error lists them.
        or_none: whether None is allowed too.

    Raises:
        UsageError: the value is not allowed; names the nearest choice.
    """
    choices = tuple(allowed)
    if (value is None and or_none) or value in choices:
        return value
    names = ", ".join(map(repr, choices))
    none = ", or None" if or_none else ""
    raise UsageError(
        f"{name} is {_show_typed(value)}; it must be one of {names}{none}{nearest(value, choices)}"
    )


def nearest(value: object, choices: Iterable[object]) -> str:
    """`; did you mean 'x'?` with the choice most like the value; empty if none is like it.

    Args:
        value: the value that was given.
        choices: the allowed values.
    """
    matches = difflib.get_close_matches(
        str(value), [str(choice) for choice in choices], n=1, cutoff=0.5
    )
    return f"; did you mean {matches[0]!r}?" if matches else ""


def _after(hint: str) -> str:
    if not hint:
        return ""
    return f", {hint}" if hint.startswith(("or ", "and ", "which ")) else f"; {hint}"


def _show_typed(value: object) -> str:
    """The value as it would be typed; with its type if it is too long to be shown whole."""
    text = brief(value)
    return text if text.endswith(("…", "shown")) else text.partition(" ")[2]


def read_key(variable: str | None) -> str:
    """The key in an environment variable; "" without one.

    Args:
        variable: its name; None where no key is wanted.

    Raises:
        UsageError: the variable is not set, or holds what is no key.
    """
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        # A key that was typed in place of the name is not repeated.
        name = f"{variable!r} " if re.fullmatch(r"[A-Z0-9]+(_[A-Z0-9]+)+", variable) else ""
        raise UsageError(
            f"the environment variable {name}that key_env names is not set or empty; put the key "
            "into one, as in `export MY_API_KEY=…`, and give the name of the variable"
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise UsageError(
            f"the environment variable {variable!r} holds a key with spaces or unusual characters"
        )
    return key
