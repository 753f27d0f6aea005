"""Reactions and salts to draw from, put together from ions by their charges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Final

__all__ = ["named_salt", "reaction_sides", "write_equation"]

_CATIONS: Final = {
    "Li": ("lithium", 1), "Na": ("sodium", 1), "K": ("potassium", 1), "NH4": ("ammonium", 1),
    "Mg": ("magnesium", 2), "Ca": ("calcium", 2), "Sr": ("strontium", 2), "Ba": ("barium", 2),
    "Zn": ("zinc", 2), "Fe": ("iron(III)", 3), "Al": ("aluminium", 3), "Cr": ("chromium(III)", 3),
    "Ni": ("nickel(II)", 2), "Ag": ("silver", 1), "Cu": ("copper(II)", 2), "Pb": ("lead(II)", 2),
}  # fmt: skip
_ANIONS: Final = {
    "F": ("fluoride", 1), "Cl": ("chloride", 1), "Br": ("bromide", 1), "I": ("iodide", 1),
    "NO3": ("nitrate", 1), "OH": ("hydroxide", 1), "ClO4": ("perchlorate", 1), "O": ("oxide", 2),
    "S": ("sulfide", 2), "SO4": ("sulfate", 2), "SO3": ("sulfite", 2), "CO3": ("carbonate", 2),
    "CrO4": ("chromate", 2), "PO4": ("phosphate", 3),
}  # fmt: skip
_ACIDS: Final = ("Cl", "Br", "NO3", "SO4", "PO4", "ClO4")
_INSOLUBLE: Final = (
    ("Ag", "Cl"), ("Ag", "Br"), ("Ag", "PO4"), ("Ag", "CrO4"), ("Ba", "SO4"), ("Ba", "CO3"),
    ("Ba", "PO4"), ("Ca", "CO3"), ("Ca", "PO4"), ("Ca", "F"), ("Sr", "SO4"), ("Sr", "PO4"),
    ("Fe", "OH"), ("Al", "OH"), ("Cr", "OH"), ("Cu", "OH"), ("Ni", "OH"), ("Zn", "PO4"),
    ("Pb", "I"), ("Pb", "SO4"), ("Pb", "CrO4"), ("Mg", "PO4"), ("Cu", "S"),
)  # fmt: skip
_BASES: Final = ("Li", "Na", "K", "Ca", "Sr", "Ba", "Mg", "Al", "Fe", "Zn")
_BURNT: Final = ("Li", "Mg", "Ca", "Zn", "Al", "Cr", "Ni", "Cu")
_METALS: Final = ("Li", "Na", "K", "Mg", "Ca", "Zn", "Al")


def _salt(cation: str, anion: str) -> str:
    a, b = _CATIONS[cation][1], _ANIONS[anion][1]
    # Charges balance: the smallest numbers of ions whose charges sum to 0.
    return _times(cation, b // math.gcd(a, b)) + _times(anion, a // math.gcd(a, b))


def _acid(anion: str) -> str:
    return _times("H", _ANIONS[anion][1]) + anion


def _times(ion: str, count: int) -> str:
    if count == 1:
        return ion
    # Two elements or more need brackets: Ca(OH)2, but NaCl and Na2O.
    several = sum(map(str.isupper, ion)) > 1
    return f"({ion}){count}" if several else f"{ion}{count}"


def named_salt(rng: Random) -> tuple[str, str]:
    """The name and the formula of a salt.

    Args:
        rng: draws it.
    """
    cation, anion = rng.choice(list(_CATIONS)), rng.choice(list(_ANIONS))
    return f"{_CATIONS[cation][0]} {_ANIONS[anion][0]}", _salt(cation, anion)


def reaction_sides(rng: Random) -> tuple[list[str], list[str]]:
    """The formulas on the two sides of a reaction, in any order.

    Args:
        rng: draws it.
    """
    left, right = rng.choice(
        (_combustion,) * 3
        + (_precipitation,) * 3
        + (_neutralise, _gas, _oxide, _reduced, _displace_hydrogen)
    )(rng)
    return rng.sample(left, len(left)), rng.sample(right, len(right))


def _combustion(rng: Random) -> tuple[list[str], list[str]]:
    carbon, oxygen = rng.randint(1, 12), rng.randint(0, 4)
    # An even number of hydrogen atoms, up to that of an alkane.
    hydrogen = 2 * rng.randint(max(1, carbon // 2), carbon + 1)
    fuel = "".join(
        _times(element, count)
        for element, count in (("C", carbon), ("H", hydrogen), ("O", oxygen))
        if count
    )
    return [fuel, "O2"], ["CO2", "H2O"]


def _precipitation(rng: Random) -> tuple[list[str], list[str]]:
    cation, anion = rng.choice(_INSOLUBLE)
    # Silver and lead salts would fall out as chlorides: nitrates stay dissolved.
    soluble, partner = (
        rng.choice(("Na", "K", "NH4")),
        "NO3" if cation in ("Ag", "Pb") else rng.choice(("NO3", "Cl")),
    )
    return [_salt(cation, partner), _salt(soluble, anion)], [
        _salt(cation, anion),
        _salt(soluble, partner),
    ]


def _neutralise(rng: Random) -> tuple[list[str], list[str]]:
    base, acid = rng.choice(_BASES), rng.choice(_ACIDS)
    return [_acid(acid), _salt(base, "OH")], [_salt(base, acid), "H2O"]


def _gas(rng: Random) -> tuple[list[str], list[str]]:
    cation, acid = rng.choice(("Li", "Na", "K", "Mg", "Ca")), rng.choice(_ACIDS)
    return [_salt(cation, "CO3"), _acid(acid)], [_salt(cation, acid), "H2O", "CO2"]


def _oxide(rng: Random) -> tuple[list[str], list[str]]:
    metal = rng.choice(_BURNT)
    return [metal, "O2"], [_salt(metal, "O")]


def _reduced(rng: Random) -> tuple[list[str], list[str]]:
    metal, (agent, product) = (
        rng.choice(("Fe", "Cr", "Ni", "Cu", "Zn", "Pb")),
        rng.choice((("Al", "Al2O3"), ("C", "CO2"), ("H2", "H2O"), ("CO", "CO2"), ("Mg", "MgO"))),
    )
    return [_salt(metal, "O"), agent], [metal, product]


def _displace_hydrogen(rng: Random) -> tuple[list[str], list[str]]:
    metal, acid = rng.choice(_METALS), rng.choice(_ACIDS)
    return [metal, _acid(acid)], [_salt(metal, acid), "H2"]


def write_equation(left: Sequence[str], right: Sequence[str], counts: Sequence[int]) -> str:
    """The equation as a text.

    Args:
        left, right: the formulas.
        counts: the coefficients, left ones first; empty for none.
    """
    terms = [
        formula if not counts or counts[at] == 1 else f"{counts[at]} {formula}"
        for at, formula in enumerate((*left, *right))
    ]
    return f"{' + '.join(terms[: len(left)])} -> {' + '.join(terms[len(left) :])}"
