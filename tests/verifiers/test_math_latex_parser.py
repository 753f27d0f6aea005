"""What a text means, construct by construct: text → tree, written the way trees are easiest to read."""

from __future__ import annotations

import pytest

from rlvr.verifiers.math.fold import fold
from rlvr.verifiers.math.latex import Node, TooLarge, Unreadable, parse
from rlvr.verifiers.math.latex.roles import settle_roles

READINGS = {
    "side by side": [
        ("2x", "(mul 2 x)"),
        ("2(3)", "(mul 2 3)"),
        ("a(b+c)", "(mul a (add b c))"),
        ("f(x)", "(apply f x)"),
        ("xy^2", "(mul x (pow y 2))"),
        ("2pi", "(mul 2 pi)"),
        (r"3\sqrt2x", "(mul 3 (root 2 2) x)"),
    ],
    "division": [
        ("a/bc", "(div a (mul b c))"),
        ("1/2x", "(mul (div 1 2) x)"),
        ("1/2/3", "(div (div 1 2) 3)"),
        ("a/b+c", "(add (div a b) c)"),
        ("5:8", "(div 5 8)"),
    ],
    "fractions": [
        (r"\frac12", "(div 1 2)"),
        (r"\frac\pi4", "(div pi 4)"),
        (r"\dfrac{x+1}{2}", "(div (add x 1) 2)"),
        (r"2\frac13", "(add:mixed 2 (div 1 3))"),
        (r"2\frac13^2", "(pow (add:mixed 2 (div 1 3)) 2)"),
        (r"2\frac x3", "(mul 2 (div x 3))"),
        (r"2\frac53", "(mul 2 (div 5 3))"),
        ("2 1/3", "(add:mixed 2 (div 1 3))"),
        ("-2 1/3x", "(neg (mul (add:mixed 2 (div 1 3)) x))"),
        (r"\frac{dy}{dx}", "dy/dx"),
    ],
    "signs and powers": [
        ("-2^2", "(neg (pow 2 2))"),
        ("2^{-3}", "(pow 2 (neg 3))"),
        ("2^-3x", "(mul (pow 2 (neg 3)) x)"),
        ("x^10", "(pow x 10)"),
        ("2^3^4", "(pow 2 (pow 3 4))"),
        (r"2\cdot-3", "(mul 2 (neg 3))"),
        ("1-2-3", "(add 1 (neg 2) (neg 3))"),
        (r"1\pm2", "(pm:+ 1 2)"),
        (r"30^\circ", "(deg 30)"),
        ("50\\%", "(div 50 100)"),
        ("n!", "(fact n)"),
        ("n!!", "(fact2 n)"),
    ],
    "groups of digits": [  # a comma separates inside of brackets alone
        ("x+1,234", "(add x 1234)"),
        ("(x)+1,234,567", "(add x 1234567)"),
        ("f(1,234)", "(apply f (tuple:() 1 234))"),
    ],
    "roots": [
        (r"\sqrt2", "(root 2 2)"),
        (r"\sqrt[3]{x}", "(root x 3)"),
        ("sqrt(2)", "(root 2 2)"),
        ("√12", "(root 12 2)"),
        ("√(1+√2)", "(root (add 1 (root 2 2)) 2)"),
        ("sqrt[3]{x}", "(root x 3)"),
        ("∛2", "(root 2 3)"),
    ],
    "functions": [
        (r"\sin x", "(sin x)"),
        (r"\sin 2x y", "(sin (mul 2 x y))"),
        (r"\sin(x)y", "(mul (sin x) y)"),
        (r"\sin x\cos y", "(mul (sin x) (cos y))"),
        (r"\sin^2x", "(pow (sin x) 2)"),
        (r"\sin x^2", "(sin (pow x 2))"),
        (r"\sin^{-1}x", "(arcsin x)"),
        (r"\arctan\frac12", "(arctan (div 1 2))"),
        ("sin(2x)", "(sin (mul 2 x))"),
        ("xsinx", "(mul x (sin x))"),
        (r"\ln x", "(ln x)"),
        (r"\log_2 8", "(log 8 2)"),
        (r"\log_{10}(x+1)", "(log (add x 1) 10)"),
        (r"\log_2^3 x", "(pow (log x 2) 3)"),
        (r"\log x", "(log x)"),
        (r"\lg x", "(log x 10)"),
        (r"\exp(2x)", "(pow e (mul 2 x))"),
        (r"\gcd(12, 18)", "(gcd 12 18)"),
        (r"\max\{1, 2\}", "(max 1 2)"),
        (r"\operatorname{lcm}(4,6)", "(lcm 4 6)"),
        (r"17\bmod5", "(mod 17 5)"),
    ],
    "binomials": [
        (r"\binom{n}{k}", "(binom n k)"),
        (r"\binom52", "(binom 5 2)"),
        (r"{n \choose k}", "(binom n k)"),
        ("C(5,2)", "(binom 5 2)"),
        ("C_5^2", "(binom 5 2)"),
        ("{}_5C_2", "(binom 5 2)"),
        ("C(x)", "(mul C x)"),
    ],
    "names": [
        ("x_1", "x_{1}"),
        ("x_{12}", "x_{12}"),
        ("a_{n+1}^2", "(pow a_{n+1} 2)"),
        ("x'", "x'"),
        (r"\alpha_k", "alpha_{k}"),
        (r"\varepsilon", "epsilon"),
        (r"\mathbf{i}", "i^"),
        (r"\overline{AB}", "bar AB"),
        ("e^{2i}", "(pow e (mul 2 i))"),
    ],
    "numbers": [
        ("0.25", "1/4"),
        ("3.", "3"),
        (r"0.\overline{3}", "1/3"),
        (r".\overline{3}", "1/3"),
        (r"0.1\overline{6}", "1/6"),
        ("10,000x", "(mul 10000 x)"),
        ("1011_2x", "(mul 11 x)"),
    ],
    "sums, integrals, limits, derivatives": [
        (r"\sum_{k=1}^{n} k^2 + 1", "(add (sum:k (pow k 2) 1 n) 1)"),
        (r"\sum_{i=0}^\infty i", "(sum:i i 0 inf)"),
        (r"\prod_{k=1}^n k", "(prod:k k 1 n)"),
        (r"\int_0^1 x^2+1\,dx + 3", "(add (int:x (add (pow x 2) (mul 1 1)) 0 1) 3)"),
        (r"\int\frac{dx}{x}", "(int:x (div 1 x))"),
        (r"\int_0^1\int_0^1xy\,dx\,dy", "(int:y (mul (int:x (mul x y 1) 0 1) 1) 0 1)"),
        (r"\lim_{x\to0^+}\frac1x", "(lim:x+ (div 1 x) 0)"),
        (r"\frac{d}{dx}x^3", "(diff:x1 (pow x 3))"),
        (r"\frac{d^2}{dx^2}\sin x", "(diff:x2 (sin x))"),
    ],
    "brackets": [
        ("|x|", "(abs x)"),
        ("|x-|y||", "(abs (add x (neg (abs y))))"),
        ("|x||y|", "(mul (abs x) (abs y))"),
        (r"\|(3,4)\|", "(abs (tuple:() 3 4))"),
        (r"\lfloor x\rfloor", "(floor x)"),
        (r"\lceil x\rceil", "(ceil x)"),
        ("(1,2]", "(tuple:(] 1 2)"),
        (r"\langle1,2\rangle", "(tuple:() 1 2)"),
        ("[x+1]y", "(mul (add x 1) y)"),
    ],
    "sets and relations": [
        (r"\{1,2\}", "(set 1 2)"),
        (r"\{x\mid x>0\}", "(builder:x (rel:> x 0))"),
        (r"\{x\in\mathbb{R}:x>0\}", "(builder:x (rel:> x 0))"),
        (r"\mathbb{R}\setminus\{0\}", "(minus R (set 0))"),
        (r"(0,1)\cup(2,3)", "(union (tuple:() 0 1) (tuple:() 2 3))"),
        (r"1<x\le3", "(rel:<,le 1 x 3)"),
        ("x != 0", "(rel:ne x 0)"),
        (r"x\equiv3\pmod5", "(congruent (rel:equiv x 3) 5)"),
        (r"x\equiv3\mod5", "(congruent (rel:equiv x 3) 5)"),
        ("x=1, y=2", "(list:and (rel:= x 1) (rel:= y 2))"),
    ],
    "environments": [
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "(matrix:2x2 1 2 3 4)"),
        (r"\begin{array}{cc}1&2\end{array}", "(matrix:1x2 1 2)"),
        (r"\begin{vmatrix}a\end{vmatrix}", "(det (matrix:1x1 a))"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}^T", "(transpose (matrix:2x1 1 2))"),
        (
            r"\begin{cases}x&\text{if }x>0\\-x&\text{otherwise}\end{cases}",
            "(cases x (rel:> x 0) (neg x) (rel:= 0 0))",
        ),
    ],
}


@pytest.mark.parametrize("family", READINGS)
def test_every_construct_has_one_reading(family):
    """The choices where mathematics leaves one are in the docstrings of `parser.py` and `roles.py`."""
    for text, tree in READINGS[family]:
        read = parse(fold(text))
        assert _shown(settle_roles(read, read)[0]) == tree, text


UNREADABLE = [
    "1 2",
    "1 5/4",
    "1/2 3/4",
    "x2",
    r"\sqrt23",
    r"\frac{11}{2} 1",
    "x+",
    "(x",
    "x)",
    "(1,2",
    "[1,2}",
    "5'",
    "5_3",
    r"27\overline{1}",
    r".\dots",
    r".\overline",
    "x ) + 1",
    r"\frac{1}",
    r"\sum k",
    r"\int x",
    r"\lim x",
    r"\log",
    r"\unknown{x}",
    r"\begin{pmatrix}1&2\\3\end{pmatrix}",
    r"\begin{foo}1\end{foo}",
    r"x \text{ or so}",
    "x & y",
    "x @ y",
    "",
    "_",
    "^",
    "||",
    r"\\",
]


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_has_no_reading_is_refused_whole(text):
    """Nothing is dropped to make the rest readable."""
    with pytest.raises(Unreadable):
        parse(fold(text))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 500 + "x" + ")" * 500,
        "/".join("1" * 900),
        "^".join("x" * 500),
        "-" * 1500 + "x",
        r"\sin" * 500 + "x",
        r"\sqrt" * 500 + "{2}",
        "|" * 500,
        "+".join("x" * 3000),
        "C(" * 500 + "1,2" + ")" * 500,
        "{" * 500 + "1" + "}" * 500,
        r"\frac" * 500,
        "x_" * 800 + "1",
        r"\begin{pmatrix}" + "&".join("1" * 500) + r"\end{pmatrix}",
    ],
    ids=lambda text: text[:12],
)
def test_depth_and_length_are_limits_of_the_text(text):
    """No text reaches Python's own recursion limit, whose error would depend on who calls."""
    with pytest.raises((TooLarge, Unreadable)):
        parse(text)


def _shown(node: Node) -> str:
    if node.op in ("num", "sym", "const", "numbers"):
        return str(node.value)
    if node.op == "call":
        return f"({node.value} {' '.join(map(_shown, node.args))})"
    value = "" if node.value is None else ":" + _value(node)
    return f"({node.op}{value} {' '.join(map(_shown, node.args))})"


def _value(node: Node) -> str:
    if not isinstance(node.value, tuple):
        return str(node.value)
    return {"matrix": "x", "rel": ","}.get(node.op, "").join(map(str, node.value))
