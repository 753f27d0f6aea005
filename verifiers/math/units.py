r"""What may stand next to a number: units, currencies, big-number words.

    canonical("square inches") == canonical('inches^2') == "inch^2"
    measure("km / hour") == (Fraction(5, 18), (("m", 1), ("s", -1)))

Unknown words are units too, under their own name and without a size: `12 apples`.  Sizes are exact by definition:
the inch is 2.54 cm and the pound 0.45359237 kg (NIST Handbook 44, appendix C).
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from rlvr.verifiers.math.words import number

__all__ = ["CURRENCIES", "Measure", "SCALES", "canonical", "is_known", "measure"]

Measure: TypeAlias = tuple[Fraction, tuple[tuple[str, int], ...]]
"""A size, and the powers of the base units it is a size of."""

CURRENCIES = {"$": "dollar", "£": "pound sterling", "€": "euro", "¥": "yen", "₹": "rupee", "¢": "cent"}

SCALES = {"dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
"""They multiply: 1.8 billion is a number, not 1.8 of something."""

# base: size name other-names; …   A name alone on its line, or first in a group without a size, is a base by itself.
# Left out on purpose: what has several sizes (ton, gallon against litre, fluid ounce) converts only within its line.
_TABLE = """
m: 1/1000 mm millimeter millimetre; 1/100 cm centimeter centimetre; 1/10 dm decimeter decimetre; 1 m meter metre
m: 1000 km kilometer kilometre; 127/5000 inch in; 381/1250 foot feet ft; 1143/1250 yard yd; 201168/125 mile mi
kg: 1/1000000 mg milligram; 1/1000 g gram gm gramme; 1 kg kilogram kilo; 1000 tonne
kg: 45359237/1600000000 ounce oz; 45359237/100000000 lb pound
m3: 1/1000000 ml milliliter millilitre; 1/100000 cl centiliter centilitre; 1/1000 l liter litre
gallon: 1 gallon gal; 1/4 quart qt; 1/8 pint pt
s: 1/1000 ms millisecond; 1 second sec s; 60 minute min; 3600 hour hr h; 86400 day; 604800 week wk
month: 1 month; 12 year yr; 120 decade; 1200 century
dollar: 1 dollar usd buck; 1/100 cent penny pennie
euro: 1 euro eur
yuan: 1 yuan rmb
degree: 1 degree deg °
w: 1 watt w; 1000 kilowatt kw
j: 1 joule j; 1000 kilojoule kj
n: 1 newton n
hz: 1 hertz hz; 1000 kilohertz khz
"""
_SPEEDS = {"mph": "mile / hour", "kph": "km / hour", "kmh": "km / hour"}
# Without a size, but with several spellings.
_COUNTED = """
rupee; yen; unit; radian rad; celsius c; fahrenheit f; ordinal th st nd rd; volt v; ohm; kelvin k
person people; man men; woman women; child children; boy; girl
egg; way; time; point; student; dog; cat; car; hat; bag; box boxe; cup; ton; sheep; fish
"""


def _sized(table: str) -> tuple[dict[str, str], dict[str, tuple[Fraction, str]]]:
    """Every spelling with its name, every name with its size and base."""
    names, sizes = {}, {}
    for line in table.strip().splitlines():
        base, _, groups = line.partition(": ")
        for size, name, *others in map(str.split, groups.split(";")):
            sizes[name] = Fraction(size), base
            names.update(dict.fromkeys((name, *others), name))
    return names, sizes


_NAMES, _SIZES = _sized(_TABLE)
_NAMES |= {name: group.split()[0] for group in _COUNTED.replace("\n", ";").split(";") for name in group.split()}
_BASES = {"m3": ("m", 3)}

_FIRST_NAMES = frozenset(_NAMES.values())

_POWERS = {"square": "^2", "squared": "^2", "sq": "^2", "cubic": "^3", "cubed": "^3", "cu": "^3"}
_ALLOWED = re.compile(r"[A-Za-z°][A-Za-z°'\- ./*()]{0,39}(?:\^ ?\{? ?-?\d ?\}?)?")
# Who says more than a unit has not given one number: "12 or 13", "12, maybe".
_HEDGES = frozenset(
    "and or not maybe if when except unless about either neither approximately perhaps no for but to than because "
    "since so then as it is are was we this that which with by plus minus times over squared cubed percent wrong "
    "right correct incorrect false true answer ignore".split()
)
_WORD = re.compile(r"[A-Za-z°]+|/|\^-?\d")
_MOST_UNKNOWN = 3  # small green bottles
_NOTHING = frozenset(("a", "an", "the", "of"))


@lru_cache(maxsize=1024)
def canonical(text: str) -> str | None:
    """One name for one unit; None if the text is no unit at all, because it says more than a unit can.

    Args:
        text: folded text after a number, without quotes.
    """
    if not _ALLOWED.fullmatch(text):
        return None
    names: list[str] = []
    power = ""
    for word in _WORD.findall(re.sub(r"[{}]|(?<=\^) | (?=\^)", "", text.lower())):
        if len(names) > 6 or (word not in _NAMES and number(word) is not None):
            return None  # "three tenths" is no unit
        if word in _POWERS and names and names[-1] != "/":  # "cm squared"
            names[-1] += _POWERS[word]
        elif word in _POWERS:
            power = _POWERS[word]
        elif word in _HEDGES:
            return None
        elif word[0] == "^":
            names[-1:] = [names[-1] + word] if names else [word]
        elif word in ("per", "/"):
            names.append("/")
        elif word not in _NOTHING:
            names.append(_SPEEDS.get(word, _singular(word)) + power)
            power = ""
    unknown = sum(name.partition("^")[0] not in _FIRST_NAMES for name in names)
    return None if power or unknown > _MOST_UNKNOWN else " ".join(names)


@lru_cache(maxsize=1024)
def measure(name: str) -> Measure | None:
    """Size and dimension of a canonical name; None if a word in it has no size."""
    size, powers, below = Fraction(1), Counter[str](), 1
    for word in name.split():
        if word == "/":
            below = -1
            continue
        unit, _, raised = word.partition("^")
        if unit not in _SIZES:
            return None
        power = below * int(raised or 1)
        size *= _SIZES[unit][0] ** power
        base, times = _BASES.get(_SIZES[unit][1], (_SIZES[unit][1], 1))
        powers[base] += times * power
    return size, tuple(sorted((base, power) for base, power in powers.items() if power))


def is_known(text: str) -> bool:
    """True if every word is the name of a unit, so that it cannot be a product of variables."""
    words = re.findall(r"[A-Za-z°]+", text.lower())
    return bool(words) and all(
        word in _NAMES or word in _POWERS or word in _SPEEDS or word == "per" or _singular(word) in _NAMES
        for word in words
    )


def _singular(word: str) -> str:
    if word in _NAMES:
        return _NAMES[word]
    for ending in ("es", "s"):
        if len(word) > 3 and word.endswith(ending) and word[: -len(ending)] in _NAMES:
            return _NAMES[word[: -len(ending)]]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
