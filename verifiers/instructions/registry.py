"""The registry of instructions: kind → typed arguments and a check, under two policies.

A check is a function of (text, strict, **arguments) that returns why the instruction is not
followed, "" if it is. `strict=False` decides as the published checker does where that is
deterministic; `strict=True` is the mended rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

from rlvr.errors import DataError, brief
from rlvr.types import JsonObject
from rlvr.validate import nearest

__all__ = [
    "Argument",
    "COUNT",
    "Check",
    "Instruction",
    "KINDS",
    "Kind",
    "LETTER",
    "PERCENTAGE",
    "POSITIVE",
    "RELATION",
    "TEXT",
    "WORD",
    "WORDS",
    "WORDS_NEEDED",
    "compare_count",
    "kind",
    "read_instruction",
    "register_renamed",
]

Check: TypeAlias = Callable[..., str]
"""(text, strict, **arguments) → why the instruction is not followed; "" if it is."""

WORDS_NEEDED: Final = 15
"""Different words of its own that an answer needs under `strict`, unless an
instruction asks for less."""

_LONGEST = 20_000  # characters of an argument
_GREATEST = 10**9  # a count


@dataclass(frozen=True, slots=True)
class Argument:
    """A type of arguments.

    Attributes:
        rule: what a value must be, for the error.
        read: the value as the check takes it; raises ValueError or TypeError for one that is none.
    """

    rule: str
    read: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of instruction.

    Attributes:
        name: such as "keywords:existence".
        family: "ifeval", "iftrain" or "ifbench", the set that it was published with.
        arguments: their types by name; all are needed.
        check: see `Check`.
        least: the least number of different words that an answer to it needs under `strict`, from
            the arguments.
        whole: whether it fixes the whole answer, so that repeating the prompt may be right.
    """

    name: str
    family: str
    arguments: Mapping[str, Argument]
    check: Check
    least: Callable[[Mapping[str, Any]], int]
    whole: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction that was read: its kind and arguments."""

    kind: Kind
    arguments: JsonObject

    def why_not(self, text: str, *, strict: bool) -> str:
        """Why the text does not follow it; "" if it does.

        Args:
            text: the answer.
            strict: which policy decides.
        """
        return self.kind.check(text, strict, **self.arguments)


KINDS: Final[dict[str, Kind]] = {}
"""All kinds by name."""


def kind(
    name: str,
    family: str,
    *,
    least: int | Callable[[Mapping[str, Any]], int] = WORDS_NEEDED,
    whole: bool = False,
    **arguments: Argument,
) -> Callable[[Check], Check]:
    """Decorator that registers a check.

    Args:
        name, family, least, whole: see `Kind`.
        arguments: the types of the arguments.
    """

    def add(check: Check) -> Check:
        needed = least if callable(least) else lambda _, fixed=least: fixed
        KINDS[name] = Kind(name, family, arguments, check, needed, whole)
        return check

    return add


def register_renamed(old: str, name: str, family: str) -> None:
    """Register a kind that another set has under another name.

    Args:
        old: its name.
        name, family: see `Kind`.
    """
    KINDS[name] = replace(KINDS[old], name=name, family=family)


def read_instruction(name: object, arguments: Mapping[str, object] | None) -> Instruction:
    """An instruction from a row; arguments that are None count as absent, as data sets with one
    schema have them.

    Args:
        name: of the kind.
        arguments: by name.

    Raises:
        DataError: there is no such kind, or an argument is missing, unknown, or of another type.
    """
    if isinstance(name, str) and isinstance(arguments, dict):
        items = tuple(
            (key, type(value), tuple(value) if type(value) is list else value)
            for key, value in arguments.items()
        )
        try:
            return _read_again(name, items)
        except TypeError:  # a value cannot be hashed
            pass
    return _read(name, arguments)


@lru_cache(maxsize=8192)
def _read_again(name: str, items: tuple[tuple[str, type, Any], ...]) -> Instruction:
    """The rows of a data set are read once; the types are there since 1 and True are equal."""
    return _read(name, {key: list(value) if kind is list else value for key, kind, value in items})


def _read(name: object, arguments: Mapping[str, object] | None) -> Instruction:
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise DataError(f"there is no instruction {name!r}{nearest(name, KINDS)}")
    if not isinstance(arguments, Mapping | None):
        raise DataError(f"{name}: the arguments are {brief(arguments)}; they must be a mapping")
    values = {key: value for key, value in (arguments or {}).items() if value is not None}
    if odd := values.keys() ^ kind.arguments.keys():
        what = "has no argument" if min(odd) in values else "needs the argument"
        raise DataError(
            f"{name} {what} {min(odd)!r}; it takes {', '.join(kind.arguments) or 'none'}"
        )
    read = {}
    for key, argument in kind.arguments.items():
        try:
            read[key] = argument.read(values[key])
        except (TypeError, ValueError):
            raise DataError(
                f"{name}: {key} is {brief(values[key])}; it must be {argument.rule}"
            ) from None
    return Instruction(kind, read)


# ------------------------------------------------------------------------------- types of arguments


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    if value > _GREATEST or value != int(value):
        raise ValueError
    return int(value)


def _at_least(least: int) -> Callable[[Any], int]:
    def read(value: object) -> int:
        if (number := _whole(value)) < least:
            raise ValueError
        return number

    return read


def _one_of(*choices: str) -> Callable[[Any], str]:
    def read(value: object) -> str:
        if value not in choices:
            raise ValueError
        return str(value)

    return read


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST:
        raise ValueError
    return value


def _word(value: object) -> str:
    return _text(value).strip()


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not value:
        raise ValueError
    return tuple(map(_word, value))


def _letter(value: object) -> str:
    letter = _word(value).lower()
    if len(letter) != 1:
        raise ValueError
    return letter


def _percentage(value: Any) -> float:
    if isinstance(value, bool) or not 0 <= value <= 100:
        raise ValueError
    return float(value)


COUNT: Final = Argument("a whole number from 0 to 1,000,000,000", _at_least(0))
POSITIVE: Final = Argument("a whole number from 1 to 1,000,000,000", _at_least(1))
PERCENTAGE: Final = Argument("a number from 0 to 100", _percentage)
_RELATIONS: Final = {
    **{one: one for one in ("less than", "at least", "at most", "around", "exactly")},
    "menos de": "less than",
    "al menos": "at least",
    "como máximo": "at most",
    "moins de": "less than",
    "au moins": "at least",
    "au plus": "at most",
    "未満": "less than",
    "以上": "at least",
    "以下": "at most",
}


def _relation(value: object) -> str:
    return _RELATIONS[_one_of(*_RELATIONS)(value)]


RELATION: Final = Argument(
    "'less than', 'at least', 'at most', 'around' or 'exactly', or what M-IFEval has for it",
    _relation,
)
WORD: Final = Argument("a text that is not empty", _word)
WORDS: Final = Argument("a list of texts that are not empty", _words)
TEXT: Final = Argument("a text that is not empty, of at most 20,000 characters", _text)
LETTER: Final = Argument("one character", _letter)


def compare_count(count: int, relation: str, bound: int, what: str) -> str:
    """Why a count is not as asked; "" if it is.

    Args:
        count: the count.
        relation: "less than", "at least", "at most", "exactly", or "around": within a tenth and at
            least one, and one for sentences (Tülu 3, arXiv:2411.15124).
        bound: what it is compared with.
        what: is counted, for the reason.
    """
    near = 1 if what == "sentences" else max(1, round(bound / 10))
    held = {
        "less than": count < bound,
        "at least": count >= bound,
        "at most": count <= bound,
        "exactly": count == bound,
        "around": abs(count - bound) <= near,
    }[relation]
    return "" if held else f"{count} {what}, not {relation} {bound}"
