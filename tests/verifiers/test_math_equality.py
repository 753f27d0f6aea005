"""Equality of expressions, family by family: what is the same, and what only looks like it."""

from __future__ import annotations

import pytest

from rlvr.verifiers.math.equality import same
from rlvr.verifiers.math.fold import fold
from rlvr.verifiers.math.latex import TooLarge, Unreadable, parse
from rlvr.verifiers.math.latex.values import Undefined

EQUAL = {
    "roots": [
        (r"\sqrt{12}", r"2\sqrt3"),
        (r"\sqrt{3+2\sqrt2}", r"1+\sqrt2"),
        (r"\frac{1}{\sqrt2}", r"\frac{\sqrt2}{2}"),
        (r"\sqrt[3]{-8}", "-2"),
        (r"\sqrt[3]{2}", "2^{1/3}"),
        (r"\sqrt[4]{x^4}", "|x|"),
        (r"\sqrt{x^2}", "|x|"),
        (r"\frac{1}{\sqrt3-1}", r"\frac{\sqrt3+1}{2}"),
        (r"\sqrt{a^2b^2+b^2c^2}", r"\sqrt{b^2(a^2+c^2)}"),
    ],
    "polynomials and fractions": [
        ("x^2+2x+1", "(x+1)^2"),
        (r"\frac{x^2-1}{x-1}", "x+1"),
        (r"\frac{1}{x}+\frac{1}{y}", r"\frac{x+y}{xy}"),
        ("(a+b)(a-b)", "a^2-b^2"),
        (r"\frac12(m+n)", r"\frac{m+n}{2}"),
        ("1/2x+3", r"\frac{x}{2}+3"),
        ("0.25x", r"\frac x4"),
        (r"\frac{1+a+b}c", r"\frac{a+b+1}{c}"),
        (r"-\frac{a-b}{c}", r"\frac{b-a}{c}"),
        ("3*x**2", "3x^2"),
    ],
    "powers and logarithms": [
        (r"\ln 8", r"3\ln 2"),
        (r"\ln(xy)", r"\ln x+\ln y"),
        (r"\log_2 8", "3"),
        (r"\log_4 x", r"\frac{\log_2 x}{2}"),
        (r"\log 100", "2"),
        (r"\log 2", r"\ln 2"),
        (r"\lg 1000", "3"),
        (r"e^{2\ln x}", "x^2"),
        (r"a^{x+y}", "a^xa^y"),
        (r"\exp(x)", "e^x"),
        (r"4^x", "2^{2x}"),
        (r"2^{1000}\sqrt2", r"\sqrt{2^{2001}}"),
        ("8^{n+1}-8^n", r"7\cdot 8^n"),
    ],
    "trigonometry": [
        (r"\sin 2x", r"2\sin x\cos x"),
        (r"\sin^2x+\cos^2x", "1"),
        (r"\tan 15^\circ", r"2-\sqrt3"),
        (r"\sin^{-1}\frac12", r"\frac{\pi}{6}"),
        (r"\arctan 1", r"\pi/4"),
        (r"\arcsin x+\arccos x", r"\frac\pi2"),
        (r"\cos 3\theta", r"4\cos^3\theta-3\cos\theta"),
        (r"\cosh^2 x-\sinh^2 x", "1"),
        (r"\sec^2 x", r"1+\tan^2 x"),
        (r"\cos(n\pi)", "(-1)^n"),
        (r"\sin(x+\frac\pi2)", r"\cos x"),
        (r"\operatorname{arctg} 1", "45^\\circ"),
    ],
    "counting": [
        (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
        ("C(5,2)", "10"),
        ("C_5^2", "10"),
        (r"{}_5C_2", "10"),
        (r"\frac{n!}{(n-2)!}", "n(n-1)"),
        ("5!!", "15"),
        (r"\gcd(12,18)", "6"),
        (r"\operatorname{lcm}(4,6)", "12"),
        (r"\lfloor \pi\rfloor", "3"),
        (r"\lceil 2.1\rceil", "3"),
        (r"17 \bmod 5", "2"),
        (r"x+1 \bmod 7", r"x+8\bmod 7"),
        (r"\max(2,\sqrt5)", r"\sqrt5"),
        (r"0.\overline{3}", r"\frac13"),
        (r"0.1\overline{6}", r"\frac16"),
    ],
    "sums, products, limits, integrals, derivatives": [
        (r"\sum_{k=1}^{n}k", r"\frac{n(n+1)}{2}"),
        (r"\frac{d}{dx}5", "0"),  # of what has no x
        (r"\lim_{e\to2}e", "2"),
        (r"\sum_{i=1}^{10}i^2", "385"),
        (r"\prod_{k=1}^{n}k", "n!"),
        (r"\sum_{k=0}^\infty \frac{1}{2^k}", "2"),
        (r"\sum_{k=0}^n 3^k", r"\frac{3^{n+1}-1}{2}"),
        (r"\sum_{k=1}^\infty\frac1{k^2}", r"\frac{\pi^2}{6}"),
        (r"\sum_{i=1}^{n}a_i", r"\sum_{k=1}^{n}a_k"),
        (
            r"\sum_{n=1}^\infty(-1)^{n-1}\frac{x^n}{n}",
            r"\sum_{k=0}^\infty\frac{(-1)^kx^{k+1}}{k+1}",
        ),
        (r"\sum_{n=0}^\infty(2x)^n", r"\sum_{n=0}^\infty2^nx^n"),
        (r"\int_0^1\sqrt{1+4x^4}dx", r"\int_0^1\sqrt{4t^4+1}dt"),
        (r"2\pi\int_0^1x\sqrt{1+x^4}dx", r"\int_0^{1}2\pi t\sqrt{t^4+1}dt"),
        (r"\sum_{i=1}^3 a_i", "a_1+a_2+a_3"),
        (r"\sum_{i=1}^{2}\sum_{j=1}^{2}a_{ij}", r"\sum_{j=1}^{2}\sum_{i=1}^{2}a_{ij}"),
        (r"\lim_{x\to0}\frac{\sin x}{x}", "1"),
        (r"\lim_{x\to0^+}\frac{|x|}{x}", "1"),
        (r"\lim_{n\to\infty}(1+\frac1n)^n", "e"),
        (r"\int_0^1 x^2\,dx", r"\frac13"),
        (r"\int_0^\infty e^{-x}dx", "1"),
        (r"\int_1^e\frac{dx}{x}", "1"),
        (r"\int_0^1\int_0^1xy\,dx\,dy", r"\frac14"),
        (r"\int_0^a 2x\,dx", "a^2"),
        (r"\frac{d}{dx}x^3", "3x^2"),
        (r"\frac{x^2}{2}+C", r"\frac{x^2+1}{2}+C"),
        (r"\ln|2x|+C", r"\ln|x|+C"),
    ],
    "dots": [
        (r"a_k+a_{k-1}+\ldots+a_0", r"a_0+a_1+\cdots+a_k"),
        (r"1+2+\dots+n", r"\frac{n(n+1)}{2}"),
        (r"\{1,2,\ldots,10\}", r"\{1,2,3,\dots,10\}"),
        (r"\{1,3,\ldots,9\}", r"\{1,3,5,7,9\}"),
        (r"1+3+5+\dots+(2n-1)", "n^2"),
        (r"1\cdot2\cdots n", "n!"),
        (r"2\cdot4\cdot\ldots\cdot2n", "2^nn!"),
        (r"x+x^2+\dots+x^n", r"\frac{x^{n+1}-x}{x-1}"),
        (r"a_1+\dots+a_n", r"\sum_{i=1}^na_i"),
        (
            r"\frac{(v-a_1)(v-a_2)\cdots(v-a_n)}{v^{n-1}}",
            r"v(1-\frac{a_1}{v})(1-\frac{a_2}{v})\cdots(1-\frac{a_n}{v})",
        ),
    ],
    "complex numbers": [
        ("e^{i\\pi}", "-1"),
        ("(9+8i)(7+7i)", "7+119i"),
        (r"\sqrt{-4}", "2i"),
        (r"\frac{1}{1+i}", r"\frac{1-i}{2}"),
        (r"|3+4i|", "5"),
        (r"\overline{2+3i}", "2-3i"),
        (r"e^{ix}", r"\cos x+i\sin x"),
    ],
    "matrices and vectors": [
        (r"\det\begin{pmatrix}a&b\\c&d\end{pmatrix}", "ad-bc"),
        (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", "-2"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^T", r"\begin{bmatrix}1&3\\2&4\end{bmatrix}"),
        (
            r"\begin{pmatrix}1&\pi\\0&1\end{pmatrix}^{-1}",  # fractions beside other numbers
            r"\begin{pmatrix}1&-\pi\\0&1\end{pmatrix}",
        ),
        (
            r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^{-1}",
            r"\begin{pmatrix}-2&1\\\frac32&-\frac12\end{pmatrix}",
        ),
        (r"2\begin{pmatrix}x\\1\end{pmatrix}", r"\begin{pmatrix}2x\\2\end{pmatrix}"),
        (r"\begin{pmatrix}x+x\\1\end{pmatrix}", "(2x,1)"),
        (r"\|(3,4)\|", "5"),
        ("2(1,3)", "(2,6)"),
        (r"\mathbf{i}+2\mathbf{j}", r"2\mathbf{j}+\mathbf{i}"),
    ],
    "cases and absolute values": [
        (r"\begin{cases}x&\text{if }x\ge0\\-x&\text{if }x<0\end{cases}", "|x|"),
        (
            r"\begin{cases}1&x>0\\0&\text{otherwise}\end{cases}",
            r"\begin{cases}0&x\le0\\1&x>0\end{cases}",
        ),
        ("|a-b|", "|b-a|"),
        ("||x||", "|x|"),
    ],
    "equations": [
        ("x+y=3", "2x+2y=6"),
        ("y=2x+3", "2x-y+3=0"),
        (r"\frac{x^2}{4}+\frac{y^2}{9}=1", "9x^2+4y^2=36"),
        ("(x-1)^2+y^2=4", "x^2-2x+y^2=3"),
        (r"\rho\sin\theta=\sqrt3", r"\sqrt3\csc\theta"),
        (r"x\equiv a\pmod 5", r"x\equiv a+0\pmod{5}"),
        (r"C_1\cosh x+C_2\sinh x", "Ce^x+De^{-x}"),
        ("Ce^x+De^{-x}+x", "C_1e^{-x}+C_2e^x+x"),
    ],
    "inequalities": [
        ("-x<2", "2x>-4"),
        ("x+y\\le 3", "3\\ge x+y"),
        ("a<b<c", "c>b>a"),
    ],
    "sets of real numbers": [
        (r"\mathbb{R}\setminus\{0\}", r"(-\infty,0)\cup(0,\infty)"),
        (r"\mathbb{R}\setminus\{0\}", r"x\ne0"),
        (r"(0,2)\cup[1,3]", "(0,3]"),
        (r"(0,1]\cup[1,2)", "(0,2)"),
        (r"(0,1)\cup\{1\}", "(0,1]"),
        (r"[0,2]\cap(1,3)", "(1,2]"),
        (r"\{x\mid 0<x<\sqrt4\}", "(0,2)"),
        (r"\{x\in\mathbb{R}:x>\sqrt2\}", r"(\sqrt2,\infty)"),
        (r"x<1 \text{ or } x>2", r"(-\infty,1)\cup(2,\infty)"),
        (r"a\le-2\text{ or }a=1", r"(-\infty,-2]\cup\{1\}"),
        (r"\{\sqrt4,1\}", r"\{1,2\}"),
        (r"a<x<b", "(a,b)"),
        (r"\emptyset", r"\{\}"),
        (r"A\cap B", r"B\cap A"),
    ],
    "angles up to whole turns": [
        (r"k\pi", r"n\pi"),
        (r"\frac\pi4+k\pi", r"-\frac{3\pi}{4}+k\pi"),
        (r"2k\pi-\frac\pi3", r"\frac{5\pi}{3}+2n\pi"),
        (r"(2k+1)\pi", r"(2k-1)\pi"),
        (r"60^\circ+360^\circ n", r"360^\circ k-300^\circ"),
    ],
}


@pytest.mark.parametrize("family", EQUAL)
def test_what_is_equal(family):
    """Either way round; `test_math_points.py` and `test_math_solving.py` have the cases where that matters."""
    for a, b in EQUAL[family]:
        assert _same(a, b) is True, (a, b)
        assert _same(b, a) is True, (b, a)


DIFFERENT = {
    "letters that are no words": [("a", "1"), ("a", "e^0"), ("-a", "-1")],
    "rounding": [
        (r"\sqrt2", "1.41"),
        (r"\sqrt2", "1." + "41421356237309504880168872420969807856967187537694807317667973799"),
        (r"\pi", r"\frac{22}{7}"),
        (r"\pi", r"\frac{355}{113}"),
        (r"e^{\pi\sqrt{163}}", "640320^3+744"),
        (r"\frac{\pi}{10^{20}}", "0"),
        (r"\sqrt2+e^{-1000}", r"\sqrt2"),
        (r"10^{50}\pi", r"(10^{50}+1)\pi"),
        (r"\cos(10^{-100})", "1"),
        ("x+10^{-70}", "x"),
    ],
    "identities that hold for some numbers only": [
        (r"\sqrt{x^2}", "x"),
        (r"\sqrt{a^2b}", r"a\sqrt b"),
        (r"\arcsin(\sin x)", "x"),
        (r"|x+y|", "|x|+|y|"),
        (r"\sin(n\pi)", "0"),
        (r"\lfloor x\rfloor", "x"),
        (r"(-1)^n", "1"),
        (r"\ln(x+y)", r"\ln x+\ln y"),
        (r"\frac{1}{x+y}", r"\frac1x+\frac1y"),
        ("(x+1)^2", "x^2+1"),
        (r"\sin x^2", r"\sin^2x"),
        (r"\sin^{-1}x", r"\frac{1}{\sin x}"),
    ],
    "a slip": [
        (r"\frac{1+\sqrt{1+8n}}{2}", r"\frac{1+\sqrt{1+5n}}{2}"),
        ("2^k", "2^{k+1}"),
        ("2x", "2y"),
        ("2^k", "2^n"),
        ("n+1", "k+1"),
        (r"\binom n2", r"\binom n3"),
        (r"\sum_{k=1}^nk", r"\sum_{k=1}^{n-1}k"),
        (r"\sum_{i=1}^{n}a_i", "na_1"),
        (r"\int_0^1x^4dx", r"\int_0^1x^4dt"),
        (r"\sum_{i=1}^{n}a_i", r"\sum_{i=1}^{n}b_i"),
        (r"\sum_{i=1}^{n}a_i", r"\sum_{i=1}^{n}a_{i+1}"),
        (r"x_1+x_2", "x_1+x_3"),
        ("2(3)", "2\\frac{1}{3}"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&3\\2&4\end{pmatrix}"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "(1,2,3,4)"),
        (r"\begin{cases}x&x>0\\-x&x\le0\end{cases}", "x"),
        (r"\begin{cases}1&x>2\\0&x\le2\end{cases}", r"\begin{cases}1&x\ge2\\0&x<2\end{cases}"),
        (r"\max(x,-5)", "x"),
        ("3+4i", "3-4i"),
        (r"x+1\bmod 7", "x+1"),
        (r"e^{2x}", "e^{x^2}"),
        ("Ce^x", "2Ce^x+1"),
        (r"x^2+C", "2x^2+C"),
        (r"x^2+C", "x^2"),
    ],
    "dots": [
        (r"a_0+a_1+\dots+a_k", r"a_1+a_2+\dots+a_k"),
        (r"a_0+a_1+\dots+a_k", r"a_0+a_1+\dots+a_{k+1}"),
        (r"1+2+\dots+n", r"1+3+\dots+n"),
        (r"\{1,2,\ldots,10\}", r"\{1,2,\dots,11\}"),
        (r"1+2+\dots+n", r"\frac{n(n-1)}{2}"),
        (r"a_1+a_2+\dots+a_n", r"b_1+b_2+\dots+b_n"),
    ],
    "equations": [
        ("x+y=3", "x+y=4"),
        ("x^2=4", "x=2"),
        ("x=5", "5=5"),
        ("a=a", "b=b"),
        ("x+y=3", r"x+y\le3"),
        ("e^x+1=0", "x^2+1=0"),
        ("Ae^x+Be^{-2x}", "C_1e^x+C_2e^{-x}"),
        ("Ae^x+Be^{-x}+1", "C_1e^x+C_2e^{-x}"),
        ("Ae^x+2Be^x", "C_1e^x+C_2e^{-x}"),
        (r"\rho\sin\theta=\sqrt3", r"\sqrt3\sin\theta"),
        ("2x=4", "2"),
        (r"3\pmod 5", "3"),
    ],
    "inequalities and sets": [
        ("-x<2", "2x<-4"),
        ("a<b<c", "a<c<b"),
        ("(0,1)", "[0,1]"),
        (r"(0,1)\cup(1,2)", "(0,2)"),
        (r"\{1,2\}", "[1,2]"),
        (r"x\ne0", r"\mathbb{R}"),
        (r"x<1\text{ or }x>2", r"(1,2)"),
        (r"(\sqrt2,\infty)", r"(1.414,\infty)"),
        (r"\emptyset", r"\{0\}"),
        ("a<x<b", "[a,b]"),
        ("a<x<b", "(b,a)"),
        (r"\sqrt2", r"\{\sqrt2,\sqrt3\}"),
        (r"\{x\mid x>\sqrt2\}", r"\sqrt2"),
    ],
    "angles up to whole turns": [
        (r"k\pi", r"2n\pi"),
        (r"\frac\pi4+k\pi", r"\frac\pi4+2k\pi"),
        (r"\frac\pi4+k\pi", r"\frac\pi4"),
        (r"k\pi", r"k^2\pi"),
        (r"2\pi n", r"2\pi(n+1)"),
        (r"2\pi r", r"2\pi s"),
        (r"r\pi", r"r^2\pi"),
        (r"\pi x+1", r"\pi y+1"),
    ],
}


@pytest.mark.parametrize("family", DIFFERENT)
def test_what_is_not_equal(family):
    """What a tolerance, a convention or a fall-back would let through."""
    for a, b in DIFFERENT[family]:
        assert _same(a, b) is False, (a, b)
        assert _same(b, a) is False, (b, a)


@pytest.mark.parametrize(
    "text", [r"\frac{1}{0}", r"\ln 0", r"\tan 90^\circ", "0^0", r"\frac{1}{\sin\pi}", "(-1)!"]
)
def test_what_has_no_value_equals_nothing(text):
    """Not even something else that has none."""
    assert _same(text, "1") is None
    assert _same(text, r"\frac{2}{0}") is None


@pytest.mark.parametrize(
    "text",
    [
        "3000!!!",
        "9^{9^{9}}",
        r"\sum_{k=1}^{1000000}k",
        "((9!)!)!",
        r"e^{e^{e^{e^{10}}}}",
        r"\binom{10^9}{10^8}",
        "(10^9)^{10^9}",
    ],
)
def test_what_is_beyond_a_limit_says_so(text):
    """A static limit, so that the same text gets the same verdict on any machine."""
    with pytest.raises(TooLarge):
        same(parse(fold(text)), parse(r"\sqrt{2}"))


def _same(a: str, b: str) -> bool | None:
    try:
        return same(parse(fold(a)), parse(fold(b)))
    except Undefined:
        return None
    except (Unreadable, TooLarge) as error:
        raise AssertionError(f"{a} against {b}: {error!r}") from error
