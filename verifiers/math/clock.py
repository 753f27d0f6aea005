"""Times of day and dates: `3:30 pm` is `15:30`, `July 4` is `4 July`.

A time without am or pm equals both; a date without a year does not equal one with a year.
"""

from __future__ import annotations

import re

from rlvr.verifiers.math.forms import Clock, Word
from rlvr.verifiers.math.words import unquoted

__all__ = ["date", "time_of_day"]

_TIME = re.compile(
    r"(?i)(\d{1,2})(?: ?(?::|h(?= ?\d)|\.(?=\d\d ?[ap])) ?([0-5]\d))?(?: ?: ?([0-5]\d))?"
    r"(?: ?([ap])\.? ?m\.?| in the (?:(morning)|afternoon|evening))?"
    r"(?: ?o'? ?clock| ?h(?:ou)?rs?| ?h)?",
)
_NAMED = {"noon": 12 * 3600, "midnight": 0, "12 noon": 12 * 3600, "12 midnight": 0}
_MONTHS = (
    "january february march april may june july august september october november december".split()
)
_MONTH = {name[:length]: at for at, name in enumerate(_MONTHS, 1) for length in (3, len(name))} | {
    "sept": 9
}
_DATE_WORD = re.compile(r"[A-Za-z]+|\d+")
_DATE = re.compile(r"[A-Za-z0-9 ,.]{5,40}")
_ISO = re.compile(r"(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_FILLERS = frozenset("of on the st nd rd th".split())


def time_of_day(text: str) -> Clock | None:
    """A time in hours and minutes, or with am or pm; a bare number is none."""
    words = unquoted(text).removeprefix("at ")
    if (named := _NAMED.get(words.lower())) is not None:
        return Clock(text, named, True)
    match = _TIME.fullmatch(words)
    if match is None or words.isdecimal():
        return None
    hour, minute, second = (int(match[at] or 0) for at in (1, 2, 3))
    half = (match[4] or "").lower()
    if " in the " in words.lower():
        half = "a" if match[5] else "p"
    if words[-1].lower() in "hrs" and not match[2]:
        return None  # 8 hours
    # 24:00 is midnight; 24:30 is no time.
    if hour == 24 and not half and match[2] and minute == second == 0:
        return Clock(text, 0, True)  # 24:00
    # 13 pm and 0 am do not exist.
    if hour > (12 if half else 23) or (half and hour == 0):
        return None
    if half:
        # 12 am is 0 and 12 pm is 12, hence the remainder.
        hour = hour % 12 + 12 * (half == "p")
    return Clock(text, hour * 3600 + minute * 60 + second, bool(half))


def date(text: str) -> Word | None:
    """A day of a named month, perhaps of a year; the numeric form only year first, which has one
    reading."""
    words = unquoted(text)
    if iso := _ISO.fullmatch(words):
        year, month, day = map(int, iso.groups())
        return Word(text, f"date {year} {month} {day}")
    if not _DATE.fullmatch(words):
        return None
    tokens = [token for token in _DATE_WORD.findall(words.lower()) if token not in _FILLERS]
    months = [_MONTH[token] for token in tokens if token in _MONTH]
    numbers = [int(token) for token in tokens if token.isdecimal()]
    if len(months) != 1 or len(months) + len(numbers) != len(tokens) or not 1 <= len(numbers) <= 2:
        return None
    day, year = (*numbers, 0)[:2]
    # A year of fewer than four digits is rather a second day: `May 4, 12`.
    if not 1 <= day <= 31 or (year and year < 1000):
        return None
    return Word(text, f"date {year} {months[0]} {day}")
