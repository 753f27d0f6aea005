"""References that are not solved, and what else is read in more than one way."""

from __future__ import annotations

import pytest

from rlvr.verifiers.math import MathPolicy, MathVerifier

VERIFIER = MathVerifier(MathPolicy(form="any"))

RIGHT = {
    "conditions that the answer solves": [
        ("x^2<9", "(-3,3)"),
        (r"x^2\le5", r"[-\sqrt5,\sqrt5]"),
        ("t^2-7t+10=0", "t=2,5"),
        ("t^2-7t+10=0", r"\{5,2\}"),
        ("t^2-7t+10=0", "2,5"),
        ("|x-2|<5", "(-3,7)"),
        (r"|x-2|\ge5", r"(-\infty,-3]\cup[7,\infty)"),
        (r"\frac{x-3}{x+1}\ge0", r"(-\infty,-1)\cup[3,\infty)"),
        (r"\frac1x>0", "x>0"),
        ("1<x^2<9", r"(-3,-1)\cup(1,3)"),
        (r"x^2\ge0", r"\mathbb{R}"),
        ("x^2<-1", r"\emptyset"),
        ("(x-4)^2=0", "x=4"),
        ("3x>6", r"(2,\infty)"),
        (r"\{x\mid x^2<16\}", "(-4,4)"),
        ("2x^2-4x<30", r"x\in(-3,5)"),
        (r"-t^2+4t\ge-12", r"t\ge-2\text{ and }t\le6"),
        ("(2x-1)(x+4)>0", r"x<-4\text{ or }x>\frac12"),
        (r"(x-3)^2\le0", r"x\ge3\text{ and }x\le3"),
    ],
    "equations with a denominator": [
        ("xy=3", r"y=\frac3x"),
        (r"b=\frac{6}{a^2}", "a^2b=6"),
        ("a=3b", r"b=\frac a3"),
    ],
    "sets": [
        (r"\mathbb{R}\setminus\{2\}", r"\mathbb{R}-\{2\}"),
        (r"\{2\}", r"(1,2]\cap[2,3)"),
        ("[0.5,1]", r"[0,1]\cap[\frac12,2]"),
    ],
    "vectors and matrices": [
        ("(2,5)", r"2\mathbf{i}+5\mathbf{j}"),
        ("(2,0,-1)", r"2\hat{i}-\hat{k}"),
        (r"\begin{pmatrix}2\\5\end{pmatrix}", "2i+5j"),
        (r"\begin{pmatrix}5&6\\7&8\end{pmatrix}", "[[5,6],[7,8]]"),
    ],
    "products": [
        ("1440", "2^5 3^2 5"),
        (r"2^{400}\cdot3^{50}x", "2^{400}3^{50}x"),
        (r"\frac{a}{b}x", "(a)/(b) x"),
        (r"\frac{a}{bc}", "(a)/(b)(c)"),
        (r"\frac{2}{15}", "(2)/(3)(5)"),
        (r"\frac{49}{9}", r"2\frac13^2"),
        ("(5,525+1)^2", "30536676"),
        (r"2024^{4046}", r"2024^{2\cdot2023}"),
    ],
    "angles": [(r"\arcsin\frac12", r"30^\circ"), (r"60^\circ", r"\cos^{-1}\frac12")],
    "constants of integration": [("x^3+C", "x^3+K"), ("x^3+C", "x^3+2+c")],
    "bases": [("1101_2", "(1101)_2")],
}


@pytest.mark.parametrize("family", RIGHT)
def test_what_is_right(family):
    """The reference stands first."""
    for reference, answer in RIGHT[family]:
        assert VERIFIER.compare(answer, reference).correct, (answer, reference)


WRONG = [
    ("x=2,5", "x^2-7x+10=0", "the same"),
    ("(2,\\infty)", "3x>6", "the same"),
    ("x^2<9", "[-3,3]", "an end too many"),
    ("x^2<2", r"(-1.414,\sqrt2)", "rounded"),
    (r"2x^2-4x\le30", r"x\in[-3,5)", "an end is missing"),
    (r"(x-6)(x+1)>0", r"x\in[-\infty,-1)\cup(6,\infty)", "infinity belongs to no interval"),
    (
        r"x^2>5",
        r"[-\infty,-\sqrt5)\cup(\sqrt5,\infty)",
        "the same beside ends that are no fractions",
    ),
    ("t^2-7t+10=0", "t=2", "one of two"),
    (r"\frac{x-3}{x+1}\ge0", r"(-\infty,-1]\cup[3,\infty)", "a pole"),
    (r"\frac{x}{x}=1", r"\mathbb{R}", "a hole"),
    ("x(y-1)=0", "y=1", "a factor that may vanish"),
    ("PV=T", r"V=\frac TP", "the same"),
    ("(2,5)", "2+5i", "a number"),
    (r"\begin{pmatrix}5&6\\7&8\end{pmatrix}", "[[5,7],[6,8]]", "transposed"),
    ("6", "2 3", "two numbers"),
    (r"\frac{10}{3}", "(2)/(3)(5)", "two brackets below, with numbers as with letters"),
    ("x=5", "y=5", "names"),
    (r"\arcsin\frac12", "30", "30 radians"),
    ("x^3+A", "x^3+K", "no constants of integration"),
]


@pytest.mark.parametrize(("reference", "answer", "why"), WRONG)
def test_what_is_wrong(reference, answer, why):
    """The reason stands beside each."""
    assert not VERIFIER.compare(answer, reference).correct, why
