"""What stands around a number: units that convert exactly, money, angles, times of day, dates, durations."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from rlvr.verifiers.math import COMPETITION
from rlvr.verifiers.math.units import canonical, measure
from rlvr.verifiers.math.verifier import compare_bare

UNITS = [
    # (reference, answer, expected, reason)
    (r"12\text{ cm}", "12", True, "a unit may be left out"),
    ("12", "12 centimetres", True, "on either side"),
    (r"15\mbox{ cm}^2", "15 square centimeters", True, "square by word and by exponent"),
    ("24 ft^2", r"24\text{ square feet}", True, "a plural"),
    (r"10\text{ m/s}", "10 meters per second", True, "per"),
    (r"10 \frac{\text{m}}{\text{s}}", "10 m/s", True, "a fraction of units"),
    ("60 mph", "60 miles per hour", True, "an abbreviation of three words"),
    ("15:45", "15h45", True, "a time as the French write it"),
    ("15:45", "15h46", False, "another time"),
    ("150 minutes", "2h30m", True, "m is no metre behind hours"),
    ("150 minutes", "2h30min", True, "without spaces"),
    ("2 hours 30 minutes", "2h30s", False, "seconds"),
    ("307 seconds", "5m7s", True, "nor before seconds"),
    (r"5\text{ m}", r"\SI{5}{m}", True, "as siunitx writes it"),
    (r"5\text{ m}", r"5 m \approx 5.0 m", True, "the same again"),
    (r"50\text{ m}", r"50 m \approx 10 m", False, "two lengths"),
    (r"5\text{ mol/L}", "5 M", True, "the letter of chemistry"),
    ("5 cm", "50 mm", True, "the same length"),
    ("5 m", "5 cm", False, "one dimension, another size"),
    ("3 km^2", "3000000 m^2", True, "areas convert with the square"),
    ("1 mile", "5280 feet", True, "exact by definition"),
    ("1 inch", "2.54 cm", True, "exact by definition"),
    ("1 inch", "2.5 cm", False, "and not nearly"),
    ("10 m/s", "36 km/h", True, "speeds"),
    ("5 liters", "5000 cm^3", True, "a litre is a cubic decimetre"),
    (r"9\pi \text{ cm}^2", r"900\pi \text{ mm}^2", True, "multiples of π convert too"),
    (r"9\pi \text{ cm}^2", r"9\pi", True, "and may go without"),
    ("1 gallon", "4 quarts", True, "within one system"),
    ("1 ton", "2000 pounds", False, "there are several tons"),
    ("1 year", "365 days", False, "there are leap years"),
    ("5 cm", "5 seconds", False, "another dimension"),
    ("5 cm", "5 cm^2", False, "another power"),
    (r"12 \text{ apples}", "12", True, "what is counted may be left out"),
    ("12 apples", "12 apple", True, "in the singular"),
    ("12 apples", "12 pears", None, "it is not known whether these words mean the same"),
    ("5 m", "5 n", None, "letters beside a number are a product"),
    ("5", "5 m", None, "unless the other side has a unit"),
    (r"3\text{ N m}", r"3 N\cdot m", True, "as this one has"),
    (r"5\text{ kg m}^2\text{/s}^2", r"5 kg\,m^2\,s^{-2}", True, "with powers"),
    (r"10\text{ m/s}", r"10\frac{m}{s}", True, "and fractions"),
    ("12", "12 or 13 cm", False, "a hedge is no unit"),
    ("5", "5 because it is", None, "nor is a sentence"),
    ("15th day", "15", True, "an ordinal"),
    ("12", r"12^{\text{th}}", True, "raised"),
]

MONEY = [
    (r"\$5", "5 dollars", True, "sign and word"),
    (r"\$5", "$5.00", True, "an unescaped sign"),
    (r"\$5", "$5 dollars", True, "both at once"),
    (r"\$5", "$5 cents", None, "but not two that differ"),
    (r"\$15\text{ per hour}", "$15 per hour", True, "what it is for"),
    (r"\$1.8\text{ million}", "$1.8 million dollars", True, "with a big word"),
    (r"\$5", "5", True, "left out"),
    (r"\$5", "5 cents", False, "a cent is no dollar"),
    (r"\$0.50", "50 cents", True, "but a hundred are"),
    (r"\$5", "€5", False, "another currency"),
    (r"\$1.8\text{ million}", "1800000", True, "big words multiply"),
    ("-$5", r"-\$5", True, "the sign may stand before"),
    ("10,000 dollars", r"\$10{,}000", True, "thousands"),
]

ANGLES = [
    (r"30^\circ", "30", True, "degrees may be left out"),
    (r"30^\circ", "30 degrees", True, "by word"),
    ("30°", r"\frac{\pi}{6}", True, "in radians"),
    (r"120^\circ", r"2\pi/3", True, "a slash"),
    (r"120^\circ", r"\frac{2\pi}{3} \text{ radians}", True, "said to be radians"),
    (r"120^\circ", r"\frac23\pi", True, "a mixed look, but a product"),
    (r"60^\circ", r"\frac{2\pi}{3}", False, "another angle"),
    ("30", r"\frac{\pi}{6}", False, "without the sign it is a number"),
    (r"77^\circ", "77 radians", False, "one dimension, another size"),
    ("5 radians", "5", True, "radians may be left out"),
    (r"\pi", r"\frac{22}{7}", False, "a multiple of π is never rational"),
    (r"25^\circ\text{C}", "25 degrees Celsius", True, "temperatures"),
    (r"25^\circ\text{C}", r"25^\circ\text{F}", False, "two scales"),
]

TIMES = [
    ("3:30 PM", "3:30 p.m.", True, "spelling"),
    ("3:30 pm", "15:30", True, "24 hours"),
    ("03:30", "3:30", True, "a leading zero"),
    ("3 pm", "3:00 PM", True, "the full hour"),
    ("3:30 PM", "3:30", True, "am and pm may be left out, like a unit"),
    ("15:30", "3:30", False, "but 3:30 alone is no afternoon"),
    ("3:30 pm", "3:30 am", False, "half a day apart"),
    ("noon", "12:00 p.m.", True, "by name"),
    ("midnight", "12 am", True, "by name"),
    ("3:30", "3:45", False, "another time"),
    ("3:30 pm", "3.5", None, "hours are no time of day"),
    ("5:12", r"\frac{5}{12}", True, "it may have been a ratio"),
]

DATES = [
    ("July 4", "4 July", True, "either order"),
    ("July 4", r"\text{July } 4^{\text{th}}", True, "an ordinal"),
    ("4 July", "the 4th of July", True, "in words"),
    ("July 4, 2020", "4 Jul 2020", True, "short, with its year"),
    ("2020-07-04", "July 4, 2020", True, "ISO 8601"),
    ("July 4", "July 5", None, "another day"),
    ("July 4", "July 4, 2020", None, "a year on one side only"),
    ("July 4, 2020", "July 4, 2021", None, "another year"),
]

DURATIONS = [
    ("90 minutes", "1.5 hours", True, "exact"),
    ("90 minutes", "1 hour 30 minutes", True, "in two units"),
    ("90 minutes", r"1\text{ hour and }30\text{ minutes}", True, "joined"),
    ("1 hr 30 min", "1 hour, 30 minutes", True, "abbreviated"),
    ("63 inches", "5 feet 3 inches", True, "lengths too"),
    ("2 weeks", "14 days", True, "exact"),
    ("2 years", "24 months", True, "months are parts of years alone"),
    ("90 minutes", "1 hour 20 minutes", False, "another duration"),
    ("7, 4", "7 goats and 4 toys", True, "a list of counts stays a list"),
]


@pytest.mark.parametrize(
    ("reference", "answer", "expected", "why"),
    [*UNITS, *MONEY, *ANGLES, *TIMES, *DATES, *DURATIONS],
)
def test_what_stands_around_a_number_counts(reference, answer, expected, why):
    """Both ways round: no verdict depends on which side is trusted."""
    assert compare_bare(answer, reference) is expected, why
    assert compare_bare(reference, answer) is expected, why


def test_the_policy_says_what_units_are_worth():
    """Each setting against the default."""
    exact = replace(COMPETITION, convert_units=False)
    assert compare_bare("50 mm", "5 cm", exact) is False
    assert compare_bare("5 centimeters", "5 cm", exact) is True
    required = replace(COMPETITION, units="required")
    assert compare_bare("5", "5 cm", required) is False
    assert compare_bare("50 mm", "5 cm", required) is True
    assert compare_bare("3:30", "3:30 pm", required) is False
    assert compare_bare("5 m", r"5\text{ cm}", replace(COMPETITION, units="ignore")) is True


@pytest.mark.parametrize(
    ("text", "name", "size", "dimension"),
    [
        ("square inches", "inch^2", Fraction(127, 5000) ** 2, (("m", 2),)),
        ("km/h", "kilometre / hour", Fraction(5, 18), (("m", 1), ("s", -1))),
        ("cents", "cent", Fraction(1, 100), (("dollar", 1),)),
        (
            "cubic feet per minute",
            "foot^3 / minute",
            Fraction(381, 1250) ** 3 / 60,
            (("m", 3), ("s", -1)),
        ),
    ],
)
def test_a_unit_has_one_name_and_an_exact_size(text, name, size, dimension):
    """In metres, kilograms, seconds and so on."""
    assert canonical(text) == name
    assert measure(name) == (size, dimension)


def test_counted_things_are_units_without_a_size():
    """They are compared by name, and sentences are no units at all."""
    assert canonical("green bottles") == "green bottle"
    assert measure("green bottle") is None
    assert canonical("or 13 apples") is None
