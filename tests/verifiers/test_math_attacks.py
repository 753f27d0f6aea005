"""What a policy could be paid for and must not be, and what models really write: rows by family."""

from __future__ import annotations

import pytest

from rlvr import Task
from rlvr.verifiers.math import MathVerifier

VERIFIER = MathVerifier()

RIGHT = {
    "worked out": [
        ("x^2-3x-10", "(x+2)(x-5)=x^2-3x-10"),
        ("x+1", r"\frac{x^2-1}{x-1}=\frac{(x-1)(x+1)}{x-1}=x+1"),
        ("2i", "(1+i)^2=2i"),
        ("120", "C(10,3)=120"),
        ("1", r"\sin^2x+\cos^2x=1"),
        ("12", "m+n=5+7=12"),
        (r"2\sqrt5", r"AB=\sqrt{4^2+2^2}=\sqrt{20}=2\sqrt{5}"),
        (r"x=2\sqrt5", r"x=\sqrt{20}=2\sqrt{5}"),
    ],
    "about": [
        (r"\frac13", r"\frac13\approx0.333"),
        (r"\sqrt2", r"\sqrt2\approx1.41"),
        (r"\frac23", r"\frac23\approx66.7\%"),
        ("1234", r"1234\approx1200"),
    ],
    "vectors and matrices": [
        (r"(AB)^T", r"B^TA^T"),
        (r"(AB)^{-1}", r"B^{-1}A^{-1}"),
        (r"(X^TX)^{-1}X^Ty", r"(X^{\top}X)^{-1}X^{\top}y"),
        (r"PV^{-1}", r"V^{-1}P"),
        (r"2\vec a\times\vec b", r"2(\vec{a}\times\vec{b})"),
        (r"\frac12\overrightarrow{AB}+\overrightarrow{AC}", r"\vec{AC}+\frac{1}{2}\vec{AB}"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\mathbf{v}=\begin{pmatrix}1\\2\end{pmatrix}"),
    ],
    "arbitrary constants": [
        ("y=Ce^{2x}", "y=Ae^{2x}"),
        ("y=C_1e^x+C_2e^{-x}", "y=Ae^{x}+Be^{-x}"),
        (r"y=C_1\cos x+C_2\sin x", r"y=A\sin x+B\cos x"),
        ("C_1x+C_2", "c_1x+c_2"),
    ],
    "notation": [
        (r"2e^{i\pi/4}", r"2\left(\cos\frac{\pi}{4}+i\sin\frac{\pi}{4}\right)"),
        (r"(-\infty,2)\cup(3,\infty)", r"\{x\mid x<2\text{ or }x>3\}"),
        ("xy=4", r"y=\frac4x"),
        (r"\binom{10}{3}", r"\frac{10!}{3!7!}"),
        (r"\binom{2n}{n}", r"\frac{(2n)!}{n!n!}"),
        ("B", r"\mathbf{(B)}"),
        (r"\text{True}", r"\mathbf{True}"),
        (
            r"\begin{cases}x+1&x\ge 2\\3&x<2\end{cases}",
            r"\begin{cases} 3 & \text{if } x<2\\ x+1 & \text{otherwise} \end{cases}",
        ),
    ],
    "names": [("C_1+C_2", "C=C_1+C_2"), ("5", r"m=5\text{ m}"), ("f(x)", "f=f(x)")],
}

WRONG = {
    "worked out": [
        ("x^2-1", "(x-1)^2=x^2-1"),
        ("x^2-1", "x^2-1=x^2+1"),
        ("2i", "(1-i)^2=2i"),
        ("12", "m+n=5+8=12"),
        (r"2\sqrt5", r"AB=\sqrt{20}=2\sqrt{6}"),
        (r"2\sqrt5", r"AB=2\sqrt5=\sqrt{20}"),
        (r"2\sqrt5", r"AB=\sqrt{21}=2\sqrt5"),
        ("12", "2x=24=12"),
        ("4", "x^2=2+2=4"),
        ("1", r"\sin^2x=1"),
        ("x+1", "x=x+1"),
        ("n^2", "n=n^2"),
    ],
    "about": [("5", r"5\approx6"), ("100", r"100\approx1000"), (r"\frac12", r"\frac12\approx0.7")],
    "vectors and matrices": [
        (r"(AB)^T", r"A^TB^T"),
        (r"A^{-1}B", r"BA^{-1}"),
        (r"P^{-1}DP", "D"),
        ("X^TX", "XX^T"),
        (r"\vec a\times\vec b", r"\vec b\times\vec a"),
        (r"\vec a\cdot\vec b", r"\vec a\times\vec b"),
        (r"\overrightarrow{AB}", r"\overrightarrow{BA}"),
    ],
    "arbitrary constants": [
        ("Ce^{2x}", "e^{2x}"),
        ("Ce^{2x}", "Ae^{3x}"),
        ("Ce^{2x}", "A^2e^{2x}"),
        ("C_1x+C_2", "Ax+A"),
        (r"\frac{C_1C_2}{C_1+C_2}", r"\frac{AB}{A+B}"),
    ],
    "narrow bumps": [
        ("ab", r"ab+\lfloor\frac{1}{1+(a-b-55)^2}\rfloor"),
        ("x+y", r"x+y+\max(0,\frac12-|x+y-413|)"),
        ("n^2", r"n^2+\lfloor\frac{3}{3+(n-444)^2}\rfloor"),
    ],
    "notation": [
        (r"\{1,2\}", r"\{1,\{2\}\}"),
        ("3!4!", "34!"),
        ("xy=4", r"y=\frac{x}{4}"),
        (
            r"\begin{cases}1&x>0\\0&x\le0\end{cases}",
            r"\begin{cases}1&\text{if }x\ge0\\0&\text{if }x<0\end{cases}",
        ),
    ],
}


@pytest.mark.parametrize("family", RIGHT)
def test_what_models_write_is_right(family):
    rejected = [
        (r, a, v.why) for r, a in RIGHT[family] if not (v := VERIFIER.compare(a, r)).correct
    ]
    assert not rejected


@pytest.mark.parametrize("family", WRONG)
def test_what_only_looks_right_is_wrong(family):
    assert not [(r, a) for r, a in WRONG[family] if VERIFIER.compare(a, r).correct]


@pytest.mark.parametrize(
    ("question", "reference", "answer"),
    [
        ("Expand $(x+2)(x-5)$.", "x^2-3x-10", "(x+2)(x-5)=(x-5)(x+2)"),
        ("Expand $(x+2)(x-5)$.", "x^2-3x-10", "x(x-5)+2(x-5)"),
        (r"Simplify $\frac{x^2+x}{x}$.", "x+1", r"\frac{x(x+1)}{x}"),
    ],
)
def test_a_step_on_the_way_is_not_the_answer(question, reference, answer):
    task = Task("algebra/1", question, reference=reference)
    assert not VERIFIER.verify(rf"\boxed{{{answer}}}", reference, task).correct
