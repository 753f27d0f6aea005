"""Quantities with units, formulas and balanced equations."""

import pytest

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
        ("2000 cc", "2 L"),
        ("3 sqm", "30000 cm^2"),
        ("1500 W s", "1.5 kJ"),
        ("2.5 N m", "2.5 J"),
        (r"50 \Omega", "50 ohm"),
        ("4.2 J/(g K)", "4200 J/(kg K)"),
        ("0.100 M", "0.1 mol/L"),
        ("440 1/s", "440 Hz"),
        (r"5.0 \mu\text{F}", "5e-6 F"),
        ("1.0 atm", "101325 Pa"),
        ("3.00 eV", "4.8065e-19 J"),
        ("5", "5"),
    ],
)
def test_a_quantity_in_any_unit_of_its_dimension_is_right(answer: str, reference: str):
    """Letters behind a number are a unit here, though `5 A` may be a product elsewhere."""
    assert quantity(answer, reference).correct


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
    assert quantity("9.8", units="optional").correct
    assert not quantity("9.8 m", units="optional").correct
    with pytest.raises(rlvr.UsageError, match="tolerance is 2"):
        ScienceVerifier(tolerance=2)


@pytest.mark.parametrize("reference", ["", "five metres", "5 glorps", None, "1/0", "x m"])
def test_a_reference_that_is_no_quantity_is_an_error_of_the_row(reference: object):
    """Not a wrong answer of every completion."""
    with pytest.raises(rlvr.DataError):
        ScienceVerifier().read(reference)


@pytest.mark.parametrize(
    "answer",
    [
        WATER,
        "O2+2H2=2H2O",
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
        ("H2 + O2 -> H2O", "unbalanced: O"),
        ("4 H2 + 2 O2 -> 4 H2O", "not-lowest"),
        ("2 H2O -> 2 H2 + O2", "other-species"),
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


@pytest.mark.parametrize("reference", ["H2 + O2 -> H2O", "H2 -> -> O2", "", None, 5])
def test_a_reference_that_is_not_balanced_is_an_error_of_the_row(reference: object):
    """An unbalanced reference would refuse each right answer."""
    with pytest.raises(rlvr.DataError):
        ChemistryVerifier().read(reference)
