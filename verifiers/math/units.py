r"""What may stand around a number: units, currencies, ordinals, big-number words.

    canonical("square inches") == canonical('"inches"^2') == "inch^2"

Unknown words are units too, under their own name: `12 apples`.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["CURRENCIES", "SCALES", "canonical", "is_known"]

CURRENCIES = {"$": "dollar", "£": "pound sterling", "€": "euro", "¥": "yen", "₹": "rupee", "¢": "cent"}

SCALES = {"dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
"""They multiply: 1.8 billion is a number, not 1.8 of something."""

_SYNONYMS = """
mm millimeter millimetre; cm centimeter centimetre; dm decimeter decimetre; m meter metre; km kilometer kilometre
inch inche in; foot feet ft; yard yd; mile mi; mg milligram; g gram gm gramme; kg kilogram kilo; ton tonne; ounce oz
lb pound; ml milliliter millilitre; l liter litre; gallon gal; second sec s; minute min; hour hr h; day; week wk
month; year yr; dollar usd buck; cent penny pennie; euro eur; yuan rmb; rupee; yen; mph; kph kmh; unit; degree deg °
radian rad; watt w; volt v; ohm; joule j; newton n; hertz hz; kelvin k; person people; man men; woman women
child children; boy; girl; egg; way; time; point; ordinal th st nd rd; student; dog; cat; car; hat; bag; box boxe; cup
"""
_KNOWN = {
    name: names.split()[0]
    for line in _SYNONYMS.strip().splitlines()
    for names in line.split(";")
    for name in names.split()
}
_POWERS = {"square": "^2", "squared": "^2", "sq": "^2", "cubic": "^3", "cubed": "^3", "cu": "^3"}
_ALLOWED = re.compile(r"[A-Za-z°'\- ./*()]{1,40}(?:\^ ?\{?-?\d\}?)?")
_HEDGES = frozenset("and or not maybe if when except unless about either neither approximately perhaps no for".split())
_WORD = re.compile(r"[A-Za-z°]+|/|\^-?\d")


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
    for word in _WORD.findall(text.lower().replace("{", "").replace(" ^", "^").replace("^ ", "^")):
        if word in _HEDGES or len(names) > 6:
            return None
        if word in _POWERS:
            if names and names[-1] != "/":  # "cm squared"
                names[-1] += _POWERS[word]
            else:
                power = _POWERS[word]
        elif word[0] == "^":
            names[-1:] = [names[-1] + word] if names else [word]
        elif word in ("per", "/"):
            names.append("/")
        elif word not in ("a", "an", "the", "of"):
            names.append(_singular(word) + power)
            power = ""
    return " ".join(names)


def is_known(text: str) -> bool:
    """True if every word is the name of a unit, so that it cannot be a product of variables."""
    words = re.findall(r"[A-Za-z°]+", text.lower())
    return bool(words) and all(w in _KNOWN or w in _POWERS or w == "per" or _singular(w) in _NAMES for w in words)


def _singular(word: str) -> str:
    if word in _KNOWN:
        return _KNOWN[word]
    for ending in ("es", "s"):
        if len(word) > 3 and word.endswith(ending) and word[: -len(ending)] in _KNOWN:
            return _KNOWN[word[: -len(ending)]]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


_NAMES = frozenset(_KNOWN.values())
