"""Quantities with units, formulas and balanced equations."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlvr
from rlvr.verifiers.chemistry import ChemistryVerifier, balance_reaction, molar_mass, read_formula
from rlvr.verifiers.science import ScienceVerifier

GRAVITY = "9.81 m/s^2"
WATER = "2 H2 + O2 -> 2 H2O"
PERMANGANATE = "MnO4^- + 5 Fe^{2+} + 8 H^+ -> Mn^{2+} + 5 Fe^{3+} + 4 H2O"


def quantity(answer: str, reference: str = GRAVITY, **options: object) -> rlvr.Verdict:
    return ScienceVerifier(**options).verify(f"\\boxed{{{answer}}}", reference)


def formula(answer: str, reference: str) -> rlvr.Verdict:
    return ChemistryVerifier().verify(f"<answer>{answer}</answer>", reference)


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("9.81 m/s^2", GRAVITY),
        ("9.8 m/s^2", GRAVITY),
        ("981 cm/s^2", GRAVITY),
        (r"9.8 \frac{\text{m}}{\text{s}^2}", GRAVITY),
        (r"9.8\,\mathrm{m\,s^{-2}}", GRAVITY),
        ("9.81 m s⁻²", GRAVITY),
        ("g = 9.8 N/kg", GRAVITY),
        ("9.81 meters per second squared", GRAVITY),
        (r"\approx 9.8 m/s^2", GRAVITY),
        (r"3.00 \times 10^8 \text{ m/s}", "299792458 m/s"),
        ("300000 km/s", "2.998e8 m/s"),
        ("25 °C", "298.15 K"),
        ("3 sqm", "30000 cm^2"),
        ("1500 W s", "1.5 kJ"),
        ("2.5 N m", "2.5 J"),
        (r"50 \Omega", "50 ohm"),
        ("4.2 J/(g K)", "4200 J/(kg K)"),
        ("0.100 M", "0.1 mol/L"),
        (r"5.0 \mu\text{F}", "5e-6 F"),
        ("1.0 atm", "101325 Pa"),
        (r"\SI{9.81}{m/s^2}", GRAVITY),
        (r"\qty{981}{cm/s^2} downward", GRAVITY),
        ("9,81 m/s^2", GRAVITY),
        ("1.234,5 m", "1234.5 m"),
        ("0,500 m", "50 cm"),
        ("1,200 m", "1.2 km"),
        ("5 newton-meters", "5 J"),
        ("3 kilo-meter", "3000 m"),
        ("3.00 eV", "4.8065e-19 J"),
        ("5", "5"),
    ],
)
def test_a_quantity_in_any_unit_of_its_dimension_is_right(answer: str, reference: str):
    """Letters behind a number are a unit here, though `5 A` may be a product elsewhere."""
    assert quantity(answer, reference).correct


SIZES = {"mm": 1, "cm": 10, "m": 1000, "km": 10**6}
"""Of units of length, in millimetres."""


@given(
    st.integers(100, 999),
    st.sampled_from(list(SIZES)),
    st.sampled_from(list(SIZES)),
    st.integers(1, 2),
    st.integers(-3, 3),
)
def test_lengths_and_areas_convert_by_powers_of_ten(digits, unit, other, power, off):
    """By shifting digits; another power of ten is another length, a missing unit none."""
    mark = "^2" if power == 2 else ""
    shift = {1: 0, 10: 1, 1000: 3, 10**6: 6}
    exponent = power * (shift[SIZES[unit]] - shift[SIZES[other]]) + off
    answer = f"{digits}e{exponent} {other}{mark}"
    assert quantity(answer, f"{digits} {unit}{mark}").correct == (off == 0)
    assert not quantity(str(digits), f"{digits} {unit}{mark}").correct


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("9.8", "unit-omitted"),
        ("9.8 m/s", "different-unit"),
        ("9.8 km/s^2", "different-number"),
        ("10 m/s^2", "different-number"),
        ("-9.8 m/s^2", "different-number"),
        ("9.75 to 9.85 m/s^2", ""),
        ("9.7 m/s^2 or 9.8 m/s^2", ""),
        ("9.7 m/s^2, 9.8 m/s^2", ""),
        (r"9.8 \pm 5 m/s^2", ""),
        ("5 + 4.81 m/s^2", "unfinished"),
        ("not 9.81 m/s^2", ""),
        ("9.81 m/s^2 or more", ""),
        ("1 = 9.81 m/s^2", "chain"),
        (r"9.81 m \approx 98.1 m", "chain"),
        ("0,981 m/s^2", "different-number"),
        ("9.81 apples", ""),
        ("9.81 m/s^2" + " " * 300 + "x", "too-long"),
        ("", "empty-box"),
        ("nan m/s^2", ""),
        ("1" * 250 + " m/s^2", ""),
    ],
)
def test_another_unit_a_range_or_no_unit_is_wrong(answer: str, why: str):
    """With the reasons of the mathematics."""
    verdict = quantity(answer)
    assert not verdict.correct
    assert verdict.value == 0
    assert verdict.why.startswith(why)


def test_tolerance_and_digits_are_settings():
    """10 m/s^2 lies within 2 % of 9.81: with one digit it was hardly computed."""
    assert quantity("10 m/s^2", tolerance=0.02).correct
    assert quantity("10 m/s^2", tolerance=0.02, digits=3).why.startswith("too-few-digits: 2, of 3")
    assert quantity("9 m/s^2", "8.95 m/s^2").why.startswith("too-few-digits: 1, of 2")
    assert quantity("9 m/s^2", "9 m/s^2").correct
    assert quantity("9.0 m/s^2", "8.95 m/s^2").correct
    for written in ("v_0 = 3.1 m/s", "3.1e0 m/s", r"3.1 \cdot 10^2 cm/s", "+3.1 m/s"):
        assert quantity(written, "3.12 m/s").correct, written  # the digits of the number alone
    assert quantity("0.030 m", "2.99 cm").correct
    assert quantity("0.03 m", "2.99 cm").why.startswith("too-few-digits: 1, of 2")
    assert quantity("1,200 m", "1,207 m", digits=4).correct
    assert quantity("9.8", units="optional").correct
    assert not quantity("9.8 m", units="optional").correct
    with pytest.raises(rlvr.UsageError, match="tolerance is 2"):
        ScienceVerifier(tolerance=2)


@pytest.mark.parametrize("reference", ["", "some metres", "5 glorps", None, "1/0", "x m"])
def test_a_reference_that_is_no_quantity_is_an_error_of_the_row(reference: object):
    """Not a wrong answer of every completion."""
    with pytest.raises(rlvr.DataError):
        ScienceVerifier().read(reference)


@pytest.mark.parametrize(
    "answer",
    [
        WATER,
        r"2H_2 + O_2 \rightarrow 2H_2O",
        r"\ce{2H2 + O2 -> 2H2O}",
        r"2\,\mathrm{H_2} + \mathrm{O_2} \to 2\,\mathrm{H_2O}",
        "2 H₂(g) + O₂(g) → 2 H₂O(l)",
    ],
)
def test_a_balanced_equation_is_right_in_any_order_and_spelling(answer: str):
    """Its states are left out."""
    assert formula(answer, WATER).correct


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("0 H2 + 0 O2 -> 0 H2O", "no-equation"),
        ("H2 + H2 + O2 -> 2 H2O", "no-equation"),
        ("2 H2 + O2 -> 2 H2O -> 2 H2O", "no-equation"),
        ("2 H2 + O2 -> 2 H2O, H2 + O2 -> H2O2", "no-equation"),
        ("2 H2 + O2 + He -> 2 H2O + He", "other-species"),
        ("2 H2 + O2", "no-equation"),
        ("2 D2 + O2 -> 2 D2O", "no-equation"),
        ("(" * 500 + "H" + ")" * 500, "too-long"),
    ],
)
def test_an_equation_must_be_balanced_over_the_same_species(answer: str, why: str):
    """Zero is no coefficient, and a catalyst on both sides is another equation."""
    assert formula(answer, WATER).why.startswith(why)
    assert not formula(answer, WATER).correct


def test_charges_are_balanced_too():
    """Fe^3+ is iron with three charges, in any of the usual spellings."""
    assert formula("MnO4- + 5 Fe^2+ + 8H+ -> Mn^2+ + 5Fe³⁺ + 4H2O", PERMANGANATE).correct
    assert (
        formula("MnO4- + Fe^2+ + 8 H+ -> Mn^2+ + Fe^3+ + 4 H2O", PERMANGANATE).why
        == "unbalanced: charge"
    )


def test_a_formula_is_compared_by_its_groups():
    """CH3COOH has the atoms of C2H4O2, and says more."""
    for said in ("Al2(SO4)3", r"\text{Al}_2(\text{SO}_4)_3", "Al₂(SO₄)₃", r"\ce{Al2(SO4)3}"):
        assert formula(said, "Al2(SO4)3").why == "same-formula"
        assert formula(f"{said} (aluminium sulfate)", "Al2(SO4)3").why == "same-formula"
        for hedge in ("or AlSO4", "not sure", "maybe sulfate or not"):
            assert not formula(f"{said} ({hedge})", "Al2(SO4)3").correct
    for said in ("Al2S3O12", "AlSO4", "Al2(SO4)3 or AlSO4", "(SO4)3Al2", "al2(so4)3", "Al2(SO4)03"):
        assert not formula(said, "Al2(SO4)3").correct
    assert read_formula("Co") != read_formula("CO")


def test_molar_masses_and_coefficients():
    """Copper sulfate with its water, by hand: 63.546 + 32.06 + 4 · 15.999 + 5 · 18.015."""
    assert float(molar_mass("CuSO4·5H2O")) == pytest.approx(249.677)
    assert formula("249.7 g/mol", "249.68 g/mol").correct
    assert balance_reaction(["KMnO4", "HCl"], ["KCl", "MnCl2", "H2O", "Cl2"]) == [2, 16, 2, 2, 8, 5]
    assert balance_reaction(["H2"], ["O2"]) is None
    assert balance_reaction(["C", "O2"], ["CO", "CO2"]) is None  # two reactions at once


GROUPS = st.lists(
    st.tuples(st.sampled_from(["H", "O", "C", "Na", "Cl", "(OH)", "(SO4)"]), st.integers(1, 12)),
    min_size=1,
    max_size=4,
)
ATOMS = {"(OH)": {"O": 1, "H": 1}, "(SO4)": {"S": 1, "O": 4}}


@given(GROUPS)
def test_a_formula_has_the_atoms_of_its_groups(groups):
    """Printed and read back; the mass is the sum of the masses of its atoms, each read alone."""
    text = "".join(group + (str(count) if count > 1 else "") for group, count in groups)
    atoms: Counter = Counter()
    for group, count in groups:
        for element, number in ATOMS.get(group, {group: 1}).items():
            atoms[element] += number * count
    assert dict(read_formula(text).atoms) == atoms
    assert molar_mass(text) == sum(
        number * molar_mass(element) for element, number in atoms.items()
    )


REACTIONS = [
    (["H2", "O2"], ["H2O"]),
    (["CH4", "O2"], ["CO2", "H2O"]),
    (["Al", "Cl2"], ["AlCl3"]),
    (["Fe2O3", "CO"], ["Fe", "CO2"]),
]


@given(st.sampled_from(REACTIONS), st.integers(1, 3), st.data())
def test_a_reaction_in_any_order_is_judged_by_its_coefficients(reaction, factor, data):
    """The smallest whole ones balance every element and are right; multiples, others and the way back are not."""
    left, right = reaction
    numbers = dict(zip([*left, *right], balance_reaction(left, right), strict=True))
    for element in "HOCN":
        count = [
            sum(numbers[s] * dict(read_formula(s).atoms).get(element, 0) for s in side)
            for side in reaction
        ]
        assert count[0] == count[1]
    changed = data.draw(st.sampled_from([None, *numbers]))
    said = {s: factor * n + (s == changed) for s, n in numbers.items()}
    sides = [
        " + ".join(f"{said[s]} {s}" for s in data.draw(st.permutations(side))) for side in reaction
    ]
    reference = " -> ".join(" + ".join(f"{numbers[s]} {s}" for s in side) for side in reaction)
    expected = factor == 1 and changed is None
    assert formula(" -> ".join(sides), reference).correct == expected
    assert not formula(" -> ".join(reversed(sides)), reference).correct


@pytest.mark.parametrize("reference", ["H2 + O2 -> H2O", "H2 -> -> O2", "", None, 5])
def test_a_reference_that_is_not_balanced_is_an_error_of_the_row(reference: object):
    """An unbalanced reference would refuse each right answer."""
    with pytest.raises(rlvr.DataError):
        ChemistryVerifier().read(reference)
