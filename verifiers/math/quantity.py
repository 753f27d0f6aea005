r"""Numbers and expressions with what belongs to them: sign, currency, percent, degrees, unit, base, big-number word.

-\$1.8 million, 12.5\%, 30^\circ, 15 \text{ cm}^2, 52_8, 6.02 \times 10^{23}
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from fractions import Fraction

from rlvr.verifiers.math.arithmetic import NotArithmetic, Undefined, pi_multiple, rational
from rlvr.verifiers.math.forms import Flawed, Quantity, Word
from rlvr.verifiers.math.units import CURRENCIES, SCALES, canonical, is_known, measure
from rlvr.verifiers.math.words import plain

__all__ = ["compound", "literal", "measured", "quantity", "spaced", "word"]

_LITERAL = re.compile(r"([+-]?) ?([$£€]?)(?:(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d*))?|\.(\d+))(?:[eE]([+-]?\d+))?( ?%)?")
_FRACTION = re.compile(r"([+-]?) ?(?:\\frac\{(-?\d+)\}\{(\d+)\}|(\d+)/(\d+))")
_SPACED = re.compile(r"[+-]?\d{1,3}(?: \d{3})+")
_MONEY_FIRST = re.compile(rf"([+-]?) ?([{''.join(CURRENCIES)}]) ?(?=[\d.\\-])")
_MONEY_LAST = re.compile(rf" ?([{''.join(CURRENCIES)}])$")
_BASED = re.compile(r"\(? ?(\d[0-9A-Za-z]*) ?\)? ?_ ?\{? ?\(?(\d{1,2})\)? ?\}?")
_UNIT_POWER = re.compile(r" ?\^ ?\{?[23]\}?$")
_NO_CONSTANT = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]|[,_]")
_BESIDE = re.compile(r'"[^"]*"')
_UNIT_FRACTION = re.compile(r'\\frac\{ ?"([^"{}]{1,20})" ?\}\{ ?"([^"{}]{1,20})" ?\}$')
_TEMPERATURE = re.compile(r'\^\\circ ?"? ?([CF]) ?"?$')
_LETTER_UNIT = re.compile(r"[\d.,]+ ?([mgslLhWVJN](?: ?\^ ?\{? ?[23] ?\}?)?)")
_UNIT_SIGNS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'- ./*"
_ENVIRONMENT = re.compile(r"\\(?:begin|end) ?\{[a-z]+\}|\\mathbb")
_LONG_WORD = re.compile(r"(?<![\\A-Za-z])[^\W\d_]{4,}")
_COMPOUND_PART = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)")
_COMPOUND = re.compile(rf"{_COMPOUND_PART.pattern}(?:,? {_COMPOUND_PART.pattern}){{1,3}}")
_DEGREE = r"^\circ"
_PERCENT = frozenset(("percent", "percentage", "per cent", "pct"))


def spaced(text: str) -> Quantity | None:
    """`1 000 000`, as ISO 80000-1 writes it; two numbers side by side are never anything else."""
    return literal(text.replace(" ", "")) if _SPACED.fullmatch(text) else None


def literal(text: str) -> Quantity | None:
    """The quick way for what most answers are: one written-out number, perhaps with a currency or percent sign."""
    match = _LITERAL.fullmatch(text)
    if match is None:
        return _fraction(text)
    sign, money, whole, places, bare_places, exponent, percent = match.groups()
    places = places or bare_places or ""
    value: Fraction | int = int((whole or "").replace(",", "") + places)
    power = (int(exponent) if exponent else 0) - len(places)
    if power:
        value = value * 10**power if power > 0 else Fraction(value, 10**-power)
    unit = CURRENCIES[money] if money else ""
    return Quantity(
        text, text, -value if sign == "-" else value, unit, bool(percent), None if exponent else len(places) or None
    )


def _fraction(text: str) -> Quantity | None:
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    sign, above, below, left, right = match.groups()
    denominator = int(below or right)
    if denominator == 0:
        return None  # for `rational` to call undefined
    value = Fraction(int(above or left), denominator)
    return Quantity(text, text, -value if sign == "-" else value)


def quantity(text: str) -> Quantity | Word | Flawed:
    """Anything else that stands for one value; prose comes back as a `Word`."""
    if (special := spaced(text) or _based(text) or _compound(text)) is not None:
        return special
    core, unit = _strip_money(text)
    if degrees := _TEMPERATURE.search(text):
        core, unit = text[: degrees.start()].rstrip(), f"degree {canonical(degrees[1])}"
    if unit and '"' in core:
        core = core.replace('"', " ").strip()  # $5 "million"
    percent = core.endswith("%")
    if percent:
        core = core[:-1].rstrip()
    elif not unit:
        core, tail = _strip_words(core)
        if tail in _PERCENT:
            percent = True
        elif tail is None:
            return word(text)
        else:
            core, unit = _strip_degree(core, tail)
    core, unit, factor = _strip_scale(core, unit)
    try:
        value = rational(core) * factor
    except Undefined:
        return Flawed(text, "undefined")
    except NotArithmetic:
        if factor != 1 or '"' in core or _LONG_WORD.search(_ENVIRONMENT.sub("", core)):
            return word(text)
        if percent and _NO_CONSTANT.search(core):
            return Quantity(text, text)  # x^5 - x\%
        return Quantity(text, core, None, unit, percent, pis=pi_multiple(core))
    number = literal(core) if unit else None
    return Quantity(text, core, value, unit, percent, number.places if number else None)


def measured(text: str) -> Quantity | None:
    """The other reading of `5 m`, which is a product unless the other side has a unit."""
    found = _LETTER_UNIT.fullmatch(text)
    again = quantity(f'{text[: found.start(1)]} "{found[1]}"') if found else None
    return again if isinstance(again, Quantity) and again.value is not None else None


def word(text: str) -> Word:
    """Prose, compared letter by letter but for case, quotes, hyphens and a leading article."""
    return Word(text, plain(text))


def _based(text: str) -> Quantity | None:
    """52_8.  The base is kept as a unit: who is asked for base 8 has not answered with 42."""
    match = _BASED.fullmatch(text)
    if match is None or text.count("(") != text.count(")"):
        return None
    try:
        return Quantity(text, text, int(match[1], int(match[2])), f"base {match[2]}")
    except ValueError:  # a digit that the base does not have, or no base at all
        return None


def _compound(text: str) -> Quantity | None:
    """1 hour 30 minutes."""
    words = " ".join(text.replace('"', " ").split())
    if not _COMPOUND.fullmatch(words):
        return None
    parts = [Quantity("", "", Fraction(n), canonical(name) or "") for n, name in _COMPOUND_PART.findall(words)]
    return compound(text, parts)


def compound(text: str, parts: Sequence[Quantity]) -> Quantity | None:
    """Their sum in the last one's unit, if they are of one dimension and each unit is smaller than the one before."""
    sizes = [measure(part.unit) for part in parts]
    if len(parts) < 2 or any(part.value is None for part in parts):
        return None
    known = [size for size in sizes if size is not None]
    if len(known) < len(parts) or len({dimension for _, dimension in known}) > 1 or not known[0][1]:
        return None
    if any(larger[0] <= smaller[0] for larger, smaller in itertools.pairwise(known)):
        return None
    last = known[-1][0]
    value = sum(
        (Fraction(part.value or 0) * size / last for part, (size, _) in zip(parts, known, strict=True)), Fraction(0)
    )
    return Quantity(text, text, value, parts[-1].unit)


def _strip_money(text: str) -> tuple[str, str]:
    if first := _MONEY_FIRST.match(text):
        return first[1] + text[first.end() :], CURRENCIES[first[2]]
    if last := _MONEY_LAST.search(text, max(0, len(text) - 2)):
        return text[: last.start()], CURRENCIES[last[1]]
    return text, ""


def _strip_words(text: str) -> tuple[str, str | None]:
    """The expression and the canonical name of the unit behind it; None where the words say more than a unit."""
    quoted = text.find('"')
    if quoted == 0:
        return text, None
    if fraction := _UNIT_FRACTION.search(text):
        text = f'{text[: fraction.start()]} "{fraction[1]} / {fraction[2]}"'
        quoted = text.find('"')
    if quoted > 0:
        if _BESIDE.sub("", text[quoted:]).strip(" /^{}0123456789-."):
            return text, None  # letters beside the words
        tail = text[quoted:].replace('"', " ").strip()
        return text[:quoted].rstrip(), tail.lower() if tail.lower() in _PERCENT else canonical(" ".join(tail.split()))
    power = _UNIT_POWER.search(text)
    end = power.start() if power else len(text)
    core = text[:end].rstrip(_UNIT_SIGNS)
    tail = text[len(core) :].strip()
    if not core or core[-1] not in "0123456789)}c" or not _is_unit(tail):
        return text, ""
    return core, tail.lower() if tail.lower() in _PERCENT else canonical(tail)


def _is_unit(tail: str) -> bool:
    """Unquoted letters are a unit if they are known as one, or too long for a product of variables."""
    letters = _UNIT_POWER.sub("", tail)
    return len(letters) > 1 and letters[0].isalpha() and (is_known(letters) or _LONG_WORD.search(letters) is not None)


def _strip_degree(core: str, unit: str) -> tuple[str, str]:
    if core.endswith(_DEGREE):
        return core[: -len(_DEGREE)].rstrip(), f"degree {unit}".rstrip()
    return core, unit


def _strip_scale(core: str, unit: str) -> tuple[str, str, int]:
    """1.8 billion dollars → 1.8, dollar, 10^9."""
    first, _, rest = unit.partition(" ")
    if first in SCALES:
        return core, rest, SCALES[first]
    head, _, last = core.rpartition(" ")
    return (head, unit, SCALES[last]) if last in SCALES else (core, unit, 1)
