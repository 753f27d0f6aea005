"""Expressions that agree nearly everywhere, and expressions that have no value everywhere."""

from __future__ import annotations

import pytest

from rlvr.verifiers.math.equality import same
from rlvr.verifiers.math.fold import fold
from rlvr.verifiers.math.latex import TooLarge, parse
from rlvr.verifiers.math.latex.values import Undefined
from rlvr.verifiers.math.points import special_points

# Reference, answer.  Each answer agrees with its reference at nearly all numbers of a usual size.
AGREE_NEARLY = {
    "far thresholds": [
        ("300-x", "|x-300|"),
        ("10^{15}-x", r"|10^{15}-x|"),
        ("7000", r"\max(x,7000)"),
        ("x", r"\min(x,10^{1000})"),
        ("x", r"\min(x,2^{300}3^{50})"),
        ("m", r"m\bmod 250"),
        ("x", r"\begin{cases}x&x<10^{40}\\0&\text{otherwise}\end{cases}"),
        ("2^x", r"2^{\max(x,-600)}"),
        (r"\ln(x^2+1)", r"\min(\ln(x^2+1),500)"),
        ("x", r"\sqrt{(x-10^{15})^2}-10^{15}+2x"),
        ("x", r"10^6\arctan(\tan(x/10^6))"),
        ("n!", r"n!+\lfloor n/90\rfloor"),
    ],
    "several variables": [
        ("0", r"\max(\min(x-2000,y-3000),0)"),
        ("x", r"x+\max(0,y-2000)z"),
        ("0", r"\lfloor\frac{1}{1+(x-y)^2}\rfloor"),
        ("0", r"\lfloor\frac{\sin^2(x+y)+1}{2}\rfloor"),
        ("|x|-|y|", r"\left||x|-|y|\right|"),
    ],
    "nested": [("x", r"\left||x-700|-700\right|"), ("0", r"\max(0,\lfloor|x|/500\rfloor)")],
    "jumps": [
        (r"\lfloor x+\frac12\rfloor", r"\lceil x-\frac12\rceil"),
        (r"\lfloor x^2+\frac12\rfloor", r"\lceil x^2-\frac12\rceil"),
        ("-1", r"\lfloor x\rfloor+\lfloor-x\rfloor"),
    ],
    "single points and narrow bumps": [
        ("0", r"\lfloor\sin^2x\rfloor"),
        ("0", r"\lfloor\frac{1}{1+(x-23)^2}\rfloor"),
        ("0", r"\max(0,1-10^{20}|x-60|)"),
        ("0", r"\max(0,1-10^{30}|x^3-2x-9|)"),
        ("0", r"\max(0,\sin x-1+10^{-30})"),
        ("0", r"\lfloor e^{-|x-\pi|}\rfloor"),
    ],
    "zero at all fractions of some denominators": [
        ("x", r"x+\sin(\pi x)\cdot 0+\sin(2\cdot89\cdot97\cdot101\cdot103\cdot401\cdot83\pi x)"),
        ("1", "(-1)^{2n}"),
    ],
    "too near": [
        ("1", r"\tanh(10^9)"),
        ("1", r"\tanh(10^9(x^2+1))"),
        (r"\frac\pi2", r"\arctan(10^{90}(x^2+1))"),
        ("1", r"\cos(10^{-100}x)"),
        (r"\pi x", r"\frac{\lfloor10^{70}\pi\rfloor}{10^{70}}x"),
        (r"\cos x", r"\sum_{k=0}^{300}\frac{(-1)^kx^{2k}}{(2k)!}"),
    ],
    "only the answer has no value": [
        ("|x|", r"e^{\ln x}"),
        ("|x|", r"\sqrt x\sqrt x"),
        (r"\frac{|x|}{x}", r"1+0\ln x"),
        (r"\sqrt{x^2-4}", r"\sqrt{x-2}\sqrt{x+2}"),
        (
            r"\sqrt{ab}",
            r"\sqrt a\sqrt b",
        ),  # -1 and -1: 1 has a root, and the product of the roots is -1
        ("x", r"x+\frac{0}{|x|+x}"),
        ("x", r"\begin{cases}x&x<1000\end{cases}"),
    ],
    "out of sight": [("x", r"\frac{\log_2(4^x)}{2}+\lfloor|x|/10^8\rfloor")],
    "equations": [("y=1000-x", "y=|x-1000|"), ("|x|-y=0", r"\sqrt x\sqrt x-y=0")],
    "constants of integration": [
        ("x^2+C", r"x^2+\max(0,x-10^5)+C"),
        ("|x|+C", r"\sqrt x\sqrt x+C"),
    ],
}


@pytest.mark.parametrize("family", AGREE_NEARLY)
def test_what_agrees_nearly_everywhere_is_different(family):
    """Each of these could be written by a policy for the sake of a check at a few points."""
    for reference, answer in AGREE_NEARLY[family]:
        assert _right(answer, reference) is not True, (answer, reference)


RIGHT = {
    "holes": [("x+1", r"\frac{x^2-1}{x-1}"), ("x", r"\frac{x^2}{x}"), ("1", "x^0")],
    "branches": [
        (r"\ln(xy)", r"\ln x+\ln y"),
        (r"\ln(x^2)", r"2\ln x"),
        (r"\ln(xy)=2", r"\ln x+\ln y=2"),
        ("x^2", r"e^{2\ln x}"),
        (r"\frac12\ln\frac{x-3}{x+3}", r"\frac{\ln(x-3)-\ln(x+3)}{2}"),
        (r"\sqrt{\frac ab}", r"\frac{\sqrt a}{\sqrt b}"),
        (r"\frac\pi2", r"\arcsin x+\arccos x"),
    ],
    "notation for whole numbers": [
        (r"\cos(n\pi)", "(-1)^n"),
        (r"\lfloor\frac n2\rfloor", r"\frac{2n-1+(-1)^n}{4}"),
        ("n(n-1)", r"\frac{n!}{(n-2)!}"),
        (r"\frac{n(n+1)}{2}", r"\sum_{k=1}^nk"),
        ("(2n)!!", "2^nn!"),
        ("(ab)^n", "a^nb^n"),
        ("2^n", r"\sum_{k=0}^n\binom nk"),
        (r"m\bmod 2", r"\frac{1-(-1)^m}{2}"),
    ],
    "steps": [
        ("|x-1000|", "|1000-x|"),
        (r"\min(x,y)", r"\frac{x+y-|x-y|}{2}"),
        (r"\lfloor x+4\rfloor", r"\lfloor x\rfloor+4"),
        (r"\lfloor x\rfloor", r"-\lceil-x\rceil"),
        (r"|\sin x|", r"\sqrt{1-\cos^2x}"),
        ("|e^x-1|", r"\sqrt{(1-e^x)^2}"),
        ("2^{|x|}", r"\max(2^x,2^{-x})"),
        (r"\lfloor\log_{10}n\rfloor+1", r"1+\lfloor\frac{\ln n}{\ln10}\rfloor"),
        (r"\left|\frac xy\right|", r"\frac{|x|}{|y|}"),
    ],
    "very large and very small values": [
        ("x", r"\ln e^x"),
        ("(a^b)^c", "a^{bc}"),
        (r"\binom{2n}{n}", r"\frac{(2n)!}{n!^2}"),
    ],
    "square roots": [
        ("x^{3/2}", r"x\sqrt x"),
        (r"\frac{1}{\sqrt{x+1}+\sqrt x}", r"\sqrt{x+1}-\sqrt x"),
    ],
}


@pytest.mark.parametrize("family", RIGHT)
def test_a_right_answer_may_have_fewer_values(family):
    """Holes, branches of logarithms and what is only meant for whole numbers are no differences."""
    for reference, answer in RIGHT[family]:
        assert _right(answer, reference) is True, (answer, reference)


def test_a_hole_is_filled_only_on_one_side():
    """The reference may be the one that has no value: then nothing is known there."""
    assert _right("|x|", r"e^{\ln x}") is True


def test_special_points_repeat():
    """The same text gets the same verdict on any machine."""
    tree = parse(fold(r"\max(|x^2-3|,y)"))
    first, again = (list(special_points(["x", "y"], tree)) for _ in range(2))
    assert repr(first) == repr(again)  # no ball equals itself


def test_there_are_not_too_many():
    """They are what a pair with steps costs."""
    tree = parse(fold(r"\max(|x-1|,|y-2|,|z-3|,\lfloor w\rfloor)"))
    assert len(list(special_points(["w", "x", "y", "z"], tree))) < 700


def _right(answer: str, reference: str) -> bool | None:
    try:
        return same(parse(fold(answer)), parse(fold(reference)))
    except (Undefined, TooLarge):
        return None


def test_a_very_small_number_does_not_make_others_equal():
    """Small numbers ask for more digits, and never for a wider tolerance."""
    assert _right(r"\frac{1}{2}" * 150, r"\frac\pi7+x") is False
    assert _right(r"10^{-200}x", r"\frac\pi7+x") is False
