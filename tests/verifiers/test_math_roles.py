"""A letter before brackets is a function or a factor, and one of the two on both sides."""

from __future__ import annotations

import pytest

from rlvr.verifiers.math import MathPolicy, MathVerifier

VERIFIER = MathVerifier(MathPolicy(form="any"))

SAME = {
    "factors": [
        ("m(m+2)", "m^2+2m"),
        (r"\frac{n(n+3)}{2}", r"\frac{n^2+3n}{2}"),
        ("c(a-b)", "ca-cb"),
        ("k(x+3)^2", "k(x^2+6x+9)"),
        ("a(x-2)(x+2)", "a(x^2-4)"),
        ("n(n-1)!", "n!"),
        ("q(-r)", "-qr"),
        ("e^t(t+2)", "te^t+2e^t"),
        (r"\sum_{k=1}^nk(k-1)", r"\frac{(n-1)n(n+1)}{3}"),
        (r"\theta(x+y)", r"\theta x+\theta y"),
    ],
    "factors that have the name of a function": [
        ("P(1+r)^2", "P+2Pr+Pr^2"),
        (r"\frac{h(p+q)}{2}", r"\frac12(p+q)h"),
        (r"\sqrt{2g(a-b)}", r"\sqrt{2ga-2gb}"),
    ],
    "functions": [
        ("f(x+x)", "f(2x)"),
        (r"f(\sqrt{12})", r"f(2\sqrt3)"),
        ("3f(x)-f(x)", "2f(x)"),
        ("(f+g)(t)", "f(t)+g(t)"),
        (r"(g\circ f)(t)", "g(f(t))"),
        ("E[X]+1", "1+E(X)"),
        (r"P(A\cap B)/2", r"\frac12P(B\cap A)"),
        ("T(n)=2T(n/2)+n", r"T(n)=n+2T(\frac n2)"),
    ],
    "the gamma function": [
        (r"\Gamma(6)", "120"),
        (r"\Gamma(\frac12)", r"\sqrt\pi"),
        (r"\Gamma(n+2)", "(n+1)!"),
    ],
    "a value": [("f(4)=7", "7"), ("g(-1)=2", "2")],
}


@pytest.mark.parametrize("family", SAME)
def test_what_is_the_same(family):
    """Either way round."""
    for a, b in SAME[family]:
        assert VERIFIER.compare(a, b).correct, (a, b)
        assert VERIFIER.compare(b, a).correct, (b, a)


DIFFERENT = [
    ("f(s+t)", "f(s)+f(t)"),
    ("f(g(t))", "g(f(t))"),
    ("E(Y^2)", "E(Y)^2"),
    ("E[XY]", "E[X]E[Y]"),
    (r"\Phi(-t)", r"-\Phi(t)"),
    ("f(t)=f(-t)", "f(t)=-f(t)"),
    ("f(1)=3", "f=3"),
    ("f(2)=6", "f(1)=3"),
    ("f(2)=6", "2"),
    ("P(B)", "BP"),
    ("f^{-1}(t)", "t/f"),
    ("f^{-1}(t)", r"\frac{1}{f(t)}"),
    ("f'(t)", "f(t)"),
    (r"\Gamma(5)", r"5\Gamma"),
    (r"\Gamma(5)", "120"),
    ("f(0)", "0"),
    (r"\mu(7)", r"7\mu"),
    ("h(3)", "3h"),
    ("f(t)", "tf"),
    ("Var(3X)", "3Var(X)"),
    ("f(s,t)", "f(t,s)"),
    (r"f\circ g", r"g\circ f"),
    ("u(t+1)", "u(t)+u(1)"),  # no customary name, but no factor has brackets around one letter
    ("w(2t)", "2w(t)"),
]


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_what_is_different(a, b):
    """As factors most of these would be equal."""
    assert not VERIFIER.compare(a, b).correct
    assert not VERIFIER.compare(b, a).correct


def test_an_exponent_or_a_base_has_no_arguments():
    """In e^x(x+1) the x is neither a function nor what the brackets are multiplied with alone."""
    assert VERIFIER.compare(r"2^m(m+1)", r"(m+1)\cdot 2^m").correct
    assert VERIFIER.compare(r"\log_a(b)", r"\frac{\ln b}{\ln a}").correct
