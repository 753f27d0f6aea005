"""Problems of one formula each; data are drawn in units of many sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from rlvr.verifiers.science import in_base_units

__all__ = ["PROBLEMS", "Problem", "draw_question"]


class Problem(NamedTuple):
    """A question with blanks, the quantities in them (smallest, greatest, units), the
    formula in SI units, its unit."""

    question: str
    given: dict[str, tuple[float, float, str]]
    formula: Callable[..., float]
    unit: str


# The problem names R = 8.314, which differs by less than the tolerance.
_GAS = 8.314462618  # J/(mol K), exact since 2019
_LIGHT = 299792458.0

PROBLEMS: Final = (
    Problem(
        "A train covers {d} in {t} at constant speed. What is its speed?",
        {"d": (0.5, 900, "km m"), "t": (2, 500, "min s")},
        lambda d, t: d / t,
        "m/s",
    ),
    Problem(
        "A ball is dropped from {h} and falls without air resistance, g = 9.81 m/s^2. "
        "How long does it fall?",
        {"h": (0.3, 900, "m cm")},
        lambda h: math.sqrt(2 * h / 9.81),
        "s",
    ),
    Problem(
        "A body of {m} is accelerated by a force of {F}. What is its acceleration?",
        {"m": (0.2, 900, "kg g"), "F": (1, 900, "N kN")},
        lambda m, f: f / m,
        "m/s^2",
    ),
    Problem(
        "What is the kinetic energy of a body of {m} that moves at {v}?",
        {"m": (0.5, 950, "kg g"), "v": (2, 300, "m/s km/h")},
        lambda m, v: m * v * v / 2,
        "J",
    ),
    Problem(
        "A machine does {W} of work in {t}. What is its mean power?",
        {"W": (1, 900, "kJ J MJ"), "t": (2, 400, "min s")},
        lambda w, t: w / t,
        "W",
    ),
    Problem(
        "A force of {F} acts evenly on an area of {A}. What is the pressure?",
        {"F": (1, 900, "N kN"), "A": (1.5, 800, "cm^2 dm^2")},
        lambda f, a: f / a,
        "Pa",
    ),
    Problem(
        "A spring is stretched by {x} by a force of {F}. What is its spring constant?",
        {"x": (1, 60, "cm mm"), "F": (0.5, 300, "N")},
        lambda x, f: f / x,
        "N/m",
    ),
    Problem(
        "A current of {I} flows through a resistor of {R}. What is the voltage across it?",
        {"I": (1.5, 900, "mA A"), "R": (1, 900, "Ω kΩ")},
        lambda i, r: i * r,
        "V",
    ),
    Problem(
        "A voltage of {U} is applied to a resistor of {R}. What power does it take up?",
        {"U": (1.5, 400, "V"), "R": (2, 900, "Ω kΩ")},
        lambda u, r: u * u / r,
        "W",
    ),
    Problem(
        "A capacitor of {C} is charged to {U}. What charge does it hold?",
        {"C": (1, 900, "µF nF"), "U": (1.5, 400, "V mV")},
        lambda c, u: c * u,
        "C",
    ),
    Problem(
        "Light in vacuum has a frequency of {f}. What is its wavelength, with c = 299792458 m/s?",
        {"f": (1.5, 900, "MHz GHz THz")},
        lambda f: _LIGHT / f,
        "m",
    ),
    Problem(
        "A wave has a frequency of {f} and a wavelength of {w}. What is its speed?",
        {"f": (1.5, 900, "Hz kHz"), "w": (1, 90, "cm mm m")},
        lambda f, w: f * w,
        "m/s",
    ),
    Problem(
        "How much heat warms {m} of water by {T}, with c = 4186 J/(kg K)?",
        {"m": (1.5, 900, "g kg"), "T": (2, 70, "K")},
        lambda m, t: m * 4186 * t,
        "J",
    ),
    Problem(
        "What volume do {n} of an ideal gas take up at {T} and {p}? R = 8.314 J/(mol K).",
        {"n": (0.2, 90, "mol mmol"), "T": (150, 900, "K"), "p": (20, 900, "kPa")},
        lambda n, t, p: n * _GAS * t / p,
        "m^3",
    ),
    Problem(
        "A solution of {V} holds {n} of a salt. What is its concentration?",
        {"V": (20, 900, "mL cm^3"), "n": (1.5, 900, "mmol")},
        lambda v, n: n / v,
        "mol/m^3",
    ),
    Problem(
        "A body of {m} has a volume of {V}. What is its density?",
        {"m": (1.5, 900, "g kg"), "V": (1.5, 900, "cm^3 dm^3 mL")},
        lambda m, v: m / v,
        "kg/m^3",
    ),
)


def draw_question(rng: Random, problem: Problem) -> tuple[str, str]:
    """A question with its data, and the answer in the SI unit to four significant digits.

    Args:
        rng: draws the data.
        problem: one of `PROBLEMS`.
    """
    quantities, values = {}, []
    for name, (low, high, units) in problem.given.items():
        # Spread evenly over orders of magnitude, to three digits.
        number = f"{math.exp(rng.uniform(math.log(low), math.log(high))):.3g}"
        unit = rng.choice(units.split())
        quantities[name] = f"{number} {unit}"
        # The number as it is printed, so that the answer is that of the text.
        values.append(float(in_base_units(float(number), unit)))
    result = problem.formula(*values)
    return problem.question.format(**quantities), f"{_write_number(result)} {problem.unit}"


def _write_number(number: float) -> str:
    """Four significant digits, without an exponent where that is short."""
    text = f"{number:.4g}"
    if "e" not in text:
        return text
    mantissa, _, power = text.partition("e")
    return f"{mantissa} \\times 10^{{{int(power)}}}"
