r"""Chemical formulas and balanced equations: read as data, and compared by their atoms and charges.

2H2 + O2 -> 2H2O    \ce{2 H2 + O2 -> 2 H2O}  2\mathrm{H}_2 + \mathrm{O}_2 \rightarrow 2\mathrm{H_2O}
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final, TypeAlias

from rlvr.errors import DataError, brief
from rlvr.types import Outcome, Verdict
from rlvr.verifiers.answers import WIDE_DIGITS, Answer, Form, without_commands
from rlvr.verifiers.base import WRAPPINGS, BaseVerifier
from rlvr.verifiers.science import ScienceVerifier, Trusted

__all__ = [
    "ATOMIC_WEIGHTS",
    "ChemistryVerifier",
    "Side",
    "Species",
    "balance_reaction",
    "molar_mass",
    "read_equation",
    "read_formula",
]

# IUPAC Commission on Isotopic Abundances and Atomic Weights, abridged standard atomic weights
# (2021), in g/mol; of elements without a standard weight, the mass number of the longest-lived
# isotope.
ATOMIC_WEIGHTS: Final[Mapping[str, Fraction]] = {
    name: Fraction(weight)
    for name, weight in (
        pair.split(":")
        for pair in """
H:1.008 He:4.0026 Li:6.94 Be:9.0122 B:10.81 C:12.011 N:14.007 O:15.999 F:18.998 Ne:20.180 Na:22.990
Mg:24.305 Al:26.982 Si:28.085 P:30.974 S:32.06 Cl:35.45 Ar:39.95 K:39.098 Ca:40.078 Sc:44.956
Ti:47.867 V:50.942 Cr:51.996 Mn:54.938 Fe:55.845 Co:58.933 Ni:58.693 Cu:63.546 Zn:65.38 Ga:69.723
Ge:72.630 As:74.922 Se:78.971 Br:79.904 Kr:83.798 Rb:85.468 Sr:87.62 Y:88.906 Zr:91.224 Nb:92.906
Mo:95.95 Tc:97 Ru:101.07 Rh:102.91 Pd:106.42 Ag:107.87 Cd:112.41 In:114.82 Sn:118.71 Sb:121.76
Te:127.60 I:126.90 Xe:131.29 Cs:132.91 Ba:137.33 La:138.91 Ce:140.12 Pr:140.91 Nd:144.24 Pm:145
Sm:150.36 Eu:151.96 Gd:157.25 Tb:158.93 Dy:162.50 Ho:164.93 Er:167.26 Tm:168.93 Yb:173.05 Lu:174.97
Hf:178.49 Ta:180.95 W:183.84 Re:186.21 Os:190.23 Ir:192.22 Pt:195.08 Au:196.97 Hg:200.59 Tl:204.38
Pb:207.2 Bi:208.98 Po:209 At:210 Rn:222 Fr:223 Ra:226 Ac:227 Th:232.04 Pa:231.04 U:238.03 Np:237
Pu:244
""".split()
    )
}
"""Standard atomic weights by symbol, in g/mol."""

# a formula or an equation is short; this bounds the patterns that follow
_LONGEST: Final = 600  # characters of an answer
# brackets within brackets multiply: ((C99)99)99 has almost a million atoms
_MOST: Final = 10_000  # a coefficient or a count of atoms
# "==>" before "==", which would leave a sign over
_ARROW: Final = re.compile(
    r"\\(?:[lL]ong)?[rR]ightarrow|\\to(?![a-z])|\\rightleftharpoons|<=>|⇌|-{1,3}>|[→⟶➔➝⇒]|"
    r"\\xrightarrow(?:\[[^\[\]]*\])?\{(?:[^{}]|\{[^{}]*\})*\}|={1,3}>|={1,2}"
)
# "\ce{H2O}", "\mathrm{H_2O}", thin spaces and dollar signs: none of them changes a formula
_MARKUP: Final = re.compile(
    r"\\(?:ce|text|mathrm|mathbf|rm|textrm|left|right|uparrow|downarrow)(?![A-Za-z])|\\[,;:! ]|\$|~"
)
# "(s)", "_{(aq)}": the state is not asked for
_STATE: Final = re.compile(r"_?\s*\{?\((?:s|l|g|aq)\)\}?")
_SIGNS: Final = str.maketrans("₀₁₂₃₄₅₆₇₈₉−•⋅∙", "0123456789-···")
_SUPERSCRIPTS: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
# "²⁻" is a charge; digits below the line are counts
_RAISED: Final = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹]*[⁺⁻]")
# "^{2-}", "(2-)" and "{-}", "^2-" and "^-", "^{-2}" and "^-2"
_CHARGE: Final = re.compile(r"\^?\s*[({]\s*\d?\s*[+-]\s*[)}]|\^\s*\d?[+-](?!\d)|\^\s*\{?[+-]\d\}?")
# Of SO42-, SO4 2- and [SO4]2- the last digit is the charge, of Fe3+ and 5Fe3+ the one behind the
# metal, which is no chain.
_PLAIN_CHARGE: Final = re.compile(
    r"(?:(?<=[A-Za-z)]\d) ?|(?<=\])|(?<![A-Za-z\d)\]])(?P<metal>\d{0,4}"
    r"(?:Li|Be|Na|Mg|Al|Ca|Sc|Ti|V|Cr|Mn|Fe|Co|Ni|Cu|Zn|Sr|Ag|Cd|Sn|Ba|La|Ce|Pt|Au|Pb|Bi|U)))"
    r"(?P<size>\d)(?P<sign>\+(?=\s*(?:\+|$))|-(?!>))"
)
# "OH-" and "Na+": a plus only at the end or before another plus, since it also adds substances;
# no minus of an arrow
_BARE_CHARGE: Final = re.compile(r"(?<=[A-Za-z\d)\]])(?:\+(?=\s*(?:\+|$))|-(?!>))")
# "2 H2O", "(2)H2O" and "2·H2O"
_TERM: Final = re.compile(r"(?:\(?(\d{1,5})\)?[·*]?)?(\D.*)")
_TAGS: Final = re.compile(r"<(/?)su([bp])>")
_LEAD: Final = re.compile(  # "The formula is", "The balanced equation is" and "Nickel(II) sulfate:"
    r"\A(?:(?:the )?(?:(?:balanced|chemical|net|ionic|overall) ){0,3}(?:equation|reaction)"
    r"(?: is)?:? |"
    r"(?:the )?(?:[a-z]{4,10} )?formula (?:(?:of|for) .{1,60}? )?is:? |"
    r"(?:[a-z]{3,20}(?:\([IVX]+\))?[ -])*[a-z]{0,15}"
    r"(?:ide|ate|ite|acid|ane|ene|ol|water|ammonia): )",
    re.IGNORECASE,
)
_BALANCED: Final = re.compile(r"\s*\((?:already )?balanced\)\Z", re.IGNORECASE)
_TOKEN: Final = re.compile(
    r"([A-Z][a-z]?)(\d{0,4})|([(\[])|([)\]])(\d{0,4})|[·.*](\d{0,2})|<(\d)([+-])>$"
)

# "[SO4]<2->" is "SO4<2->"
_ENCLOSED: Final = re.compile(r"\A\[([^\[\]]*)\](<\d[+-]>)\Z")
# The name behind a formula, as in "Al2(SO4)3 (aluminium sulfate)"; "(aq)" and "(or AlSO4)" are
# none.
_NAMED: Final = re.compile(
    r"\s{1,3}\((?:[a-z]{3,20}(?:\([IVX]+\))?[ -])*[a-z]{0,15}"
    r"(?:ide|ate|ite|acid|ane|ene|yne|ol|one|ine|ion|water|ammonia|salt)\)\Z",
    re.IGNORECASE,
)

Side: TypeAlias = "dict[Species, int]"


@dataclass(frozen=True, slots=True)
class Species:
    """One formula.

    Attributes:
        name: the formula in one spelling, such as "Al2(SO4)3" or "SO4<2->".
        atoms: how many of each element, in the order of their names.
        charge: in elementary charges.
    """

    name: str
    atoms: tuple[tuple[str, int], ...]
    charge: int = 0


_ELECTRON: Final = Species("e<1->", (), -1)


@dataclass(frozen=True, slots=True)
class ChemistryVerifier(BaseVerifier[Answer, "_Asked"]):
    """Verifies a balanced equation, a formula or a quantity; the reference says
    which of the three is asked.

        >>> equation = "2 H2 + O2 -> 2 H2O"
        >>> ChemistryVerifier().verify("<answer>O2 + 2 H2 -> 2 H2O</answer>", equation).why
        'balanced'

    An equation must have the species of the reference on the same sides, in any order, be balanced
    in atoms and charge, and have the smallest whole coefficients.  A formula must be written as the
    reference is, in any markup: C2H4O2 is no answer where CH3COOH is asked.  Anything else is a
    quantity, see `ScienceVerifier`.

    The reasons: `balanced`, `same-formula` are CORRECT; `no-answer`, `no-equation` and `no-formula`
    UNPARSED; `hedged`, `too-long`, `other-species`, `unbalanced`, `not-lowest` and `other-formula`
    WRONG.

    Attributes:
        tolerance: of a quantity, see `ScienceVerifier`.
    """

    tolerance: float = 0.005
    version: ClassVar[int] = 4
    form: ClassVar[Form] = Form(longest=_LONGEST)
    reference_form: ClassVar[str] = "a balanced equation, a formula, or a quantity with its unit"
    rewritings: ClassVar[tuple[str, ...]] = (*WRAPPINGS, "full stop", "wide digits")
    reference_example: ClassVar[str] = "2 H2 + O2 -> 2 H2O"

    def read(self, reference: object) -> _Asked:
        """The sides of an equation, a formula, or what `ScienceVerifier` makes of a quantity.

        Args:
            reference: a balanced equation, a formula, or a quantity such as "18.015 g/mol".

        Raises:
            DataError: it is none of the three, or an equation that is not balanced.
        """
        if not isinstance(reference, str) or not reference.strip():
            raise DataError(
                f"the reference is {brief(reference)}; it must be a text such as '2 H2 + O2 -> 2 "
                f"H2O'"
            )
        if not _ARROW.search(reference):
            return read_formula(reference) or ScienceVerifier(self.tolerance).read(reference)
        sides = read_equation(reference)
        if sides is None:
            raise DataError(f"the reference {brief(reference)} cannot be read as an equation")
        if odd := _unequal(*sides):
            raise DataError(f"the reference {brief(reference)} is not balanced: {odd}")
        return sides

    def judge(self, answer: Answer, reference: _Asked) -> Verdict:
        """The verdict on an answer.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        text = without_commands(answer.text.translate(WIDE_DIGITS)).rstrip(". ")
        if isinstance(reference, Species):
            formula = read_formula(_NAMED.sub("", _LEAD.sub("", text, count=1)))
            if formula is None:
                return Verdict(Outcome.UNPARSED, why=f"no-formula: {text[:80]!r}", answer=text)
            if formula != reference:
                return Verdict(Outcome.WRONG, why=f"other-formula: {formula.name}", answer=text)
            return Verdict(Outcome.CORRECT, why="same-formula", answer=text)
        if not isinstance(reference, tuple):
            return ScienceVerifier(self.tolerance).judge(answer, reference)
        sides = read_equation(_BALANCED.sub("", _LEAD.sub("", text, count=1)))
        if sides is None:
            return Verdict(Outcome.UNPARSED, why=f"no-equation: {text[:80]!r}", answer=text)
        why = _why_not(sides, reference)
        outcome = Outcome.WRONG if why else Outcome.CORRECT
        return Verdict(outcome, why=why or "balanced", answer=text)

    def example(self, reference: object) -> str:
        return f"<answer>{reference}</answer>"


_Asked: TypeAlias = "tuple[Side, Side] | Species | Trusted"


def _why_not(sides: tuple[Side, Side], asked: tuple[Side, Side]) -> str:
    """Why an equation is not the asked one, balanced; "" if it is."""
    for answered, expected in zip(sides, asked, strict=True):
        # other substances first: a balanced equation of another reaction is no answer
        if odd := answered.keys() ^ expected.keys():
            return f"other-species: {min(species.name for species in odd)}"
    if odd_one := _unequal(*sides):
        return f"unbalanced: {odd_one}"
    divisor = math.gcd(*(count for side in sides for count in side.values()))
    return f"not-lowest: every coefficient is divisible by {divisor}" if divisor > 1 else ""


def read_formula(text: str) -> Species | None:
    """A formula; None if the text is none.

    Args:
        text: such as "Al2(SO4)3", "CuSO4·5H2O" or "SO4^{2-}", perhaps in LaTeX.
    """
    return _species(_plain(text)) if len(text) <= _LONGEST else None


def read_equation(text: str) -> tuple[Side, Side] | None:
    """The two sides with their coefficients; None if the text is no equation, or names a species
    twice on one side.

    Args:
        text: such as "2 H2 + O2 -> 2 H2O".
    """
    if len(text) > _LONGEST:
        return None
    halves = [_plain(half) for half in _ARROW.split(text)]
    if len(halves) != 2:
        return None
    left, right = map(_side, halves)
    return None if left is None or right is None else (left, right)


def _side(text: str) -> Side | None:
    side: Side = {}
    # a plus in "<2+>" is a charge's
    for term in re.split(r"\+(?!>)", text):
        read = _TERM.fullmatch(term)
        species = _species(read[2]) if read else None
        # a substance twice on one side: 2 H2O + H2O has not been summed up
        if read is None or species is None or species in side:
            return None
        count = int(read[1] or 1)
        if not 0 < count <= _MOST:
            return None
        side[species] = count
    return side


def _plain(text: str) -> str:
    """Without markup; a charge becomes `<2+>`."""
    # "H<sub>2</sub>O" and "Ca<sup>2+</sup>", as web pages write them
    if "<" in text:
        text = _TAGS.sub(lambda tag: ("}" if tag[1] else "^{") if tag[2] == "p" else "", text)
    text = _RAISED.sub(
        lambda raised: f"^{{{raised[0].translate(_SUPERSCRIPTS)}}}", _MARKUP.sub(" ", text)
    )
    text = text.translate(_SIGNS).replace("\\cdot", "·").replace("\\bullet", "·")
    # charges go into "<2+>" before braces and spaces are dropped: "^{2+}" would else be a 2 of the
    # atom before it
    text = _CHARGE.sub(_in_angles, text)
    # arrows beside a substance say that it escapes as a gas or settles
    text = _STATE.sub("", text).strip(" ↓↑")
    text = _PLAIN_CHARGE.sub(r"\g<metal><\g<size>\g<sign>>", text)
    text = _BARE_CHARGE.sub(lambda found: f"<1{found[0]}>", text)
    return re.sub(r"[\s{}_]", "", text)


def _in_angles(charge: re.Match[str]) -> str:
    size = next(filter(str.isdigit, charge[0]), "1")
    return f"<{size}{'+' if '+' in charge[0] else '-'}>"


@lru_cache(maxsize=4096)
def _species(text: str) -> Species | None:
    """One formula without markup."""
    if text == _ELECTRON.name:
        return _ELECTRON
    text = _ENCLOSED.sub(r"\1\2", text)
    stack: list[Counter[str]] = [Counter()]
    parts: list[Counter[str]] = []
    factors: list[int] = []
    factor, at, charge, name = 1, 0, 0, ""
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None or at == len(text):
            return None
        at = token.end()
        element, count, opening, closing, times, hydrate, size, sign = token.groups()
        if element:
            if element not in ATOMIC_WEIGHTS or count.startswith("0"):
                return None
            stack[-1][element] += int(count or 1)
            name += element + (count if count != "1" else "")
        elif opening:
            stack.append(Counter())
            name += "("
        elif closing:
            if len(stack) == 1 or not stack[-1] or times.startswith("0"):
                return None
            inner = stack.pop()
            for species, many in inner.items():
                stack[-1][species] += many * int(times or 1)
            name += ")" + (times if times != "1" else "")
        elif size:
            charge = int(size) if sign == "+" else -int(size)
            name += f"<{size}{sign}>"
        else:
            # a dot within brackets, or in front of everything, joins no two parts
            if len(stack) > 1 or not stack[0]:
                return None
            parts, factors, stack, factor = (
                [*parts, stack[0]],
                [*factors, factor],
                [Counter()],
                # "CuSO4·5H2O": the 5 is of all that follows the dot
                int(hydrate or 1),
            )
            name += f"·{hydrate if hydrate != '1' else ''}"
    if len(stack) > 1 or not stack[0]:
        return None
    atoms: Counter[str] = Counter()
    for part, many in zip([*parts, stack[0]], [*factors, factor], strict=True):
        for species, count_of in part.items():
            atoms[species] += many * count_of
    return (
        Species(name, tuple(sorted(atoms.items())), charge)
        if max(atoms.values()) <= _MOST
        else None
    )


def _unequal(left: Side, right: Side) -> str:
    """What there is more of on one side; "" if the sides are balanced."""
    total: Counter[str] = Counter()
    for sign, side in ((1, left), (-1, right)):
        for species, count in side.items():
            for element, atoms in species.atoms:
                total[element] += sign * count * atoms
            total["charge"] += sign * count * species.charge
    odd = sorted(name for name, sum_of in total.items() if sum_of)
    return ", ".join(odd)


def balance_reaction(left: list[str], right: list[str]) -> list[int] | None:
    """The smallest whole coefficients, left ones first; None unless exactly one choice of them
    balances.

    Args:
        left, right: formulas.
    """
    formulas = [formula for formula in map(read_formula, (*left, *right)) if formula is not None]
    if len(formulas) < len(left) + len(right):
        return None
    elements = sorted({element for formula in formulas for element, _ in formula.atoms})
    signs = [1] * len(left) + [-1] * len(right)
    rows = [
        [
            Fraction(sign * dict(formula.atoms).get(element, 0))
            for sign, formula in zip(signs, formulas, strict=True)
        ]
        for element in elements
    ]
    rows.append(
        [Fraction(sign * formula.charge) for sign, formula in zip(signs, formulas, strict=True)]
    )
    return _null_vector(rows, len(formulas))


def _null_vector(rows: list[list[Fraction]], width: int) -> list[int] | None:
    """The one vector of positive whole numbers that all rows map to 0; None if there is none, or
    several."""
    pivots: list[int] = []
    for column in range(width):
        # Gauss's elimination with fractions: floats would not give whole numbers back
        row = next((row for row in rows[len(pivots) :] if row[column]), None)
        if row is None:
            continue
        rows.remove(row)
        row = [value / row[column] for value in row]
        rows = [
            [a - other_row[column] * b for a, b in zip(other_row, row, strict=True)]
            for other_row in rows
        ]
        rows.insert(len(pivots), row)
        pivots.append(column)
    # one unknown must be free: with two the reaction has several independent balances, with none it
    # has only zeros
    if len(pivots) != width - 1:
        return None
    [free] = set(range(width)) - set(pivots)
    solution = [Fraction(1)] * width
    for row, column in zip(rows, pivots, strict=False):
        solution[column] = -row[free]
    # a coefficient of zero or below puts the substance on the other side, or nowhere
    if min(solution) <= 0:
        return None
    scale = math.lcm(*(value.denominator for value in solution))
    integers = [int(value * scale) for value in solution]
    return [value // math.gcd(*integers) for value in integers]


def molar_mass(formula: str) -> Fraction:
    """The molar mass in g/mol.

    Args:
        formula: such as "H2O".

    Raises:
        DataError: it is no formula.
    """
    species = read_formula(formula)
    if species is None:
        raise DataError(f"{formula!r} is no formula")
    return sum((ATOMIC_WEIGHTS[element] * count for element, count in species.atoms), Fraction(0))
