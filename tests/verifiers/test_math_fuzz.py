"""Random texts and random expressions: nothing crashes, nothing hangs, and an oracle that knows no LaTeX agrees.

The expressions are drawn as trees, and Python's own arithmetic says what they are worth; the verifier sees only text.
"""

from __future__ import annotations

import cmath
import math
import random
from collections.abc import Callable

import pytest

from rlvr.errors import DataError
from rlvr.types import Outcome
from rlvr.verifiers.math import GSM8K, MathPolicy, MathVerifier
from rlvr.verifiers.math.verifier import compare_bare

VERIFIER = MathVerifier(MathPolicy(form="any"))
EXACT = MathPolicy(rounding="exact")  # what is rounded to the reference knows which side that is
FAST = MathVerifier(GSM8K)

# --------------------------------------------------------------------------------------- token soup

TOKENS = [
    *r"\frac \dfrac \sqrt \pi \pm \mp \cdot \times \left( \right) \{ \} { } [ ] ( ) , ; : = < > \le \ge \in".split(),
    *r"\text{ \mathrm{ \boxed{ \vec{ \hat{ \overline{ \begin{pmatrix} \end{pmatrix} & \\ ^ _ ^2 _3 ! | || \|".split(),
    *r"\sum_{k=1}^{3} \int \lim \infty \sin \log \ln \binom \mid \mathbb{R} \setminus \emptyset ^\circ % \%".split(),
    *r"\operatorname{lcm} \mod \pmod \gcd \lfloor \rfloor \approx \equiv \cup \cap \neg \lor \to \ldots \prime".split(),
    *"$ \\$ x y n e i 0 1 2 10 0.5 .5 5. 1,000 1e5 3:30 and or yes A (B) cm m^2 ' ~ # @".split(),
    *"` ½ √ π ∞ ≤ − × ² ₁ ° ∪ ５".split(),
    *[
        " ",
        "\n",
        "\t",
        "\x00",
        "\ud800",
        "\u202e",
        "\u3000",
        "open('x','w')",
        "__import__",
        "lambda:",
    ],
]
PLAIN = (
    r"1 2 2 3 12 0.5 \frac{1}{2} x - + , , ( ) [ ] \{ \} = % \% cm \pi \sqrt{2} \pm x= or".split()
)
"""Of which even short texts often mean something."""


def soup(rng: random.Random, most: int, tokens: list[str]) -> str:
    return rng.choice(["", " "]).join(rng.choices(tokens, k=rng.randint(1, most)))


def soups(name: str, many: int, most: int, tokens: list[str] = TOKENS) -> list[str]:
    rng = random.Random(name)
    return [soup(rng, most, tokens) for _ in range(many)]


def test_no_soup_upsets_the_normal_form():
    """Alone, in a box and as the whole completion: three thousand texts, a verdict for each."""
    for text in soups("completion", 1500, 25):
        for completion in (text, rf"\boxed{{{text}}}"):
            assert FAST.verify(completion, "123456789123456789").outcome in (
                Outcome.WRONG,
                Outcome.UNPARSED,
            )


def test_no_soup_upsets_the_engine(tmp_path, monkeypatch):
    """The same with expressions as references; and no file is written."""
    monkeypatch.chdir(tmp_path)
    for text in soups("engine", 250, 8):
        assert not VERIFIER.verify(rf"\boxed{{{text}}}", r"x^7-\sqrt{1234567}").correct, text
    assert not list(tmp_path.iterdir())


OPERATORS = r"""
    #+# #-# #\cdot # \frac{#}{#} (#)^{#} \sqrt{#} \sqrt[#]{#} \sin(#) \arctan(#) \log_{#}# \max(#,#) |#|
    \lfloor#\rfloor \int_{#}^{#}#d@ \int#d@ \sum_{@=#}^{#}# \prod_{@=1}^{3}# \lim_{@\to#}# \frac{d}{d@}#
    \frac{\partial}{\partial@}(#) (#)! \binom{#}{#} (#,#) [#,#) \{#,#\} #=# #<# \{@\mid#<#\}
    \begin{pmatrix}#&#\\#&#\end{pmatrix} (#)^{-1} (#)^T f(#) \begin{cases}#&#\ge0\\#&#<0\end{cases} #\cup# #\bmod#
    #\% #^\circ #\text{cm} #\pm# #\pmod{#} \gcd(#,#) \overline{#}
""".split()
LEAVES = r"x y n i e a k \theta x_1 \pi \infty 0 1 2 -1 3 0.5 10".split()


def grown(rng: random.Random, depth: int) -> str:
    """A text of well-formed LaTeX that need not mean anything: soup seldom gets past the parser."""
    text = rng.choice(OPERATORS if depth else LEAVES)
    filled = "".join(grown(rng, rng.randrange(depth)) if sign == "#" else sign for sign in text)
    return filled.replace("@", " " + rng.choice("xyniaekt"))


def test_the_engine_has_no_faults_of_its_own():
    """One would look like a wrong answer, or make every right answer to a reference wrong."""
    rng, known = random.Random("grown"), 0
    for _ in range(90):
        a, b = grown(rng, 3), grown(rng, 2)
        for answer, reference in ((a, b), (a, f"{a}+0")):
            try:
                found = VERIFIER.compare(answer, reference)
                wrong = VERIFIER.doubt(reference)
            except DataError:
                continue
            known += wrong is None
            assert found.reason != "engine-error", (answer, reference)
            assert wrong is None or "fails" not in wrong, reference
    assert known > 60, "else the texts test nothing"


def test_no_soup_as_a_reference_does_more_than_raise_a_data_error():
    """A reference is trusted, but it need not be mathematics."""
    readable = 0
    for text in soups("reference", 250, 6, PLAIN):
        try:
            VERIFIER.verify(r"\boxed{x^7-\sqrt{1234567}}", text)
            readable += 1
        except DataError:
            pass
    assert readable > 50, "else the soup tests nothing"


def test_the_normal_form_is_symmetric_on_soup():
    """Either may be the reference: the two are equal or they are not."""
    short = soups("pairs", 210, 3, PLAIN)
    rng = random.Random("partners")
    decided = 0
    for a in short:
        for b in rng.sample(short, 20):
            found = compare_bare(a, b, EXACT)
            decided += found is not None
            assert compare_bare(b, a, EXACT) is found, (a, b)
    assert decided > 500


def test_soup_is_equal_to_itself_or_to_nothing():
    """A chain or a tautology is no answer even to itself; everything else is."""
    equal = [compare_bare(text, text, EXACT) for text in soups("self", 400, 5, PLAIN)]
    assert equal.count(True) > 300


# ------------------------------------------------------------------------ expressions and an oracle

Tree = tuple[object, ...]
POINTS = ({"x": 0.73, "y": 1.91}, {"x": 2.37, "y": 0.59}, {"x": 1.13, "y": 3.07})
WORTH: dict[str, Callable[..., complex]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "^": lambda a, b: a**b,
    "sqrt": cmath.sqrt,
    "sin": cmath.sin,
    "ln": cmath.log,
}


def tree(rng: random.Random, depth: int) -> Tree:
    if depth == 0 or rng.random() < 0.2:
        return ("leaf", rng.choice([*"xy", 1, 2, 3, 5, 7, "x"]))
    kind = rng.choice("+-*/+-*/^sf")
    if kind == "^":
        return ("^", tree(rng, depth - 1), ("leaf", rng.randint(2, 3)))
    if kind in "sf":
        return (rng.choice(["sqrt", "sin", "ln"]) if kind == "f" else "sqrt", tree(rng, depth - 1))
    return (kind, tree(rng, depth - 1), tree(rng, depth - 1))


def worth(t: Tree, at: dict[str, float]) -> complex:
    if t[0] == "leaf":
        return complex(at[t[1]] if isinstance(t[1], str) else t[1])
    return WORTH[t[0]](*(worth(part, at) for part in t[1:]))


def latex(t: Tree, rng: random.Random) -> str:
    """One of many spellings; brackets go around everything that is not a single sign."""
    if t[0] == "leaf":
        return str(t[1])
    a, b = (group(part, rng) for part in (t[1], t[-1]))
    bare = latex(t[1], rng), latex(t[-1], rng)
    spellings = {
        "+": [f"{a}+{b}", f"{a} + {b}", f"{b}+{a}"],
        "-": [f"{a}-{b}", f"{a} − {b}", f"-{b}+{a}"],
        "*": [
            rf"{a} \cdot {b}",
            rf"{b} \times {a}",
            rf"\left({bare[0]}\right)\left({bare[1]}\right)",
        ],
        "/": [
            rf"\frac{{{bare[0]}}}{{{bare[1]}}}",
            rf"\dfrac{{{bare[0]}}}{{{bare[1]}}}",
            f"({bare[0]})/({bare[1]})",
        ],
        "^": [f"({bare[0]})^{b}", f"({bare[0]})^{{{b}}}"],
        "sqrt": [rf"\sqrt{{{bare[0]}}}", rf"\sqrt{{ {bare[0]} }}"],
        "sin": [rf"\sin({bare[0]})", rf"\sin\left({bare[0]}\right)"],
        "ln": [rf"\ln({bare[0]})", rf"\ln\left({bare[0]}\right)"],
    }
    return rng.choice(spellings[str(t[0])])


def group(t: object, rng: random.Random) -> str:
    assert isinstance(t, tuple)
    text = latex(t, rng)
    return text if t[0] == "leaf" else f"({text})"


def changed(t: Tree, rng: random.Random) -> Tree:
    """The same with one leaf or one sign changed."""
    if t[0] == "leaf":
        return ("leaf", {"x": "y", "y": "x"}.get(t[1], t[1]) if isinstance(t[1], str) else t[1] + 1)
    if t[0] in "+-" and rng.random() < 0.4:
        return ("-" if t[0] == "+" else "+", *t[1:])
    at = rng.randrange(1, len(t))
    return tuple(changed(part, rng) if i == at else part for i, part in enumerate(t))


def values(t: Tree) -> list[complex] | None:
    """None where it has no finite real value at one of the points: then its value does not matter."""
    try:
        found = [worth(t, at) for at in POINTS]
    except (ArithmeticError, ValueError):
        return None
    return found if all(abs(v.imag) < 1e-12 and abs(v) < 1e6 for v in found) else None


def same(a: list[complex], b: list[complex]) -> bool:
    return all(
        math.isclose(u.real, v.real, rel_tol=1e-9, abs_tol=1e-9) for u, v in zip(a, b, strict=True)
    )


def drawn(seed: int, depth: int = 3) -> tuple[Tree, random.Random]:
    """A tree that has a value at every point."""
    rng = random.Random(f"tree {seed}")
    while True:
        t = tree(rng, depth)
        if t[0] != "leaf" and values(t) is not None:
            return t, rng


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_another_spelling_of_an_expression_is_accepted(first):
    """Spelling alone changes: nothing that needs a theorem, so nothing may be missed."""
    missed = []
    for seed in range(first, first + 20):
        t, rng = drawn(seed)
        reference, answer = latex(t, rng), latex(t, rng)
        if not VERIFIER.verify(rf"\boxed{{{answer}}}", reference).correct:
            missed.append((reference, answer))
    assert not missed


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_an_expression_worth_something_else_is_rejected(first):
    """One leaf or sign was changed, and Python says that the value did."""
    fooled, asked = [], 0
    for seed in range(first, first + 20):
        t, rng = drawn(seed)
        other = changed(t, rng)
        mine, its = values(t), values(other)
        if mine is None or its is None or same(mine, its):
            continue
        asked += 1
        reference, answer = latex(t, rng), latex(other, rng)
        if VERIFIER.verify(rf"\boxed{{{answer}}}", reference).correct:
            fooled.append((reference, answer))
    assert asked > 8
    assert not fooled


def test_equality_of_expressions_is_symmetric():
    """The engine compiles one side once and the other each time; which is which must not matter."""
    for seed in range(40):
        t, rng = drawn(seed, depth=2)
        a, b = latex(t, rng), latex(changed(t, rng) if seed % 2 else t, rng)
        there, back = (VERIFIER.verify(rf"\boxed{{{p}}}", q).correct for p, q in ((a, b), (b, a)))
        assert there == back, (a, b)
