r"""Generated pairs, drawn from families with a seed: equal ones by exact rewriting,
different ones by a change.

Each family yields (reference, equal spellings, different answers); no grader was used to make the
labels.  A label says whether the values are equal, not whether the answer is worked out, so rlvr
takes any form here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction

from benchmarks.math_cases import Row, boxed, row

__all__ = ["FAMILIES", "generated"]

Case = tuple[str, list[str], list[str]]


def generated(*, cases: int = 12, seed: str = "2026") -> list[Row]:
    """`cases` draws of every family, a row for each answer."""
    rows = []
    for family in FAMILIES:
        rng = random.Random(f"{seed}/{family.__name__}")
        drawn = [case for _ in range(cases) for case in family(rng)]
        for i, (reference, equal, different) in enumerate(drawn):
            for right, answers in ((True, equal), (False, different)):
                for k, answer in enumerate(answers):
                    number = f"{family.__name__}/{i}{'=' if right else '≠'}{k}"
                    rows.append(
                        row(number, family.__name__, reference, boxed(answer), right, any_form=True)
                    )
    return rows


def tex(value: Fraction) -> str:
    """LaTeX of a fraction, with the sign before it."""
    if value.denominator == 1:
        return str(value.numerator)
    return rf"{'-' if value < 0 else ''}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def signed(n: int) -> str:
    return f"+{n}" if n >= 0 else str(n)


def times(n: int) -> str:
    """A coefficient: 1 and -1 are not written."""
    return {1: "", -1: "-"}.get(n, str(n))


def nonzero(rng: random.Random, most: int) -> int:
    return rng.choice([-1, 1]) * rng.randint(2, most)


# ------------------------------------------------------------------------------------------ numbers


def integers(rng: random.Random) -> Iterator[Case]:
    n = rng.randint(1001, 999_999)
    yield (
        str(n),
        [f"{n:,}", f"{n:,}".replace(",", "{,}"), f"{n}.0", f"${n}$", rf"\frac{{{2 * n}}}{{2}}"],
        [
            str(n + 1),
            f"-{n}",
            f"{n}0",
            f"{n}.001",
            f"{n}, {n + 1}",
            rf"\pm {n}",
            rf"{n} \text{{ or }} {n + 1}",
        ],
    )
    yield f"-{n}", [f"−{n}", f"-{n:,}", f"- {n}"], [str(n), f"-{n - 1}", f"|-{n}|"]


def fractions(rng: random.Random) -> Iterator[Case]:
    q = rng.choice([3, 7, 8, 11, 16, 25])
    p = q * rng.randint(1, 3) + rng.randint(1, q - 1)
    while math.gcd(p, q) > 1:
        p += 1
    whole, part = divmod(p, q)
    equal = [
        rf"\dfrac{{{p}}}{{{q}}}",
        f"{p}/{q}",
        rf"\frac{{{3 * p}}}{{{3 * q}}}",
        rf"{whole}\frac{{{part}}}{{{q}}}",
    ]
    if 10**6 % q == 0:
        equal.append(f"{p / q:.6f}".rstrip("0"))
    different = [
        f"{q}/{p}",
        f"{p + 1}/{q}",
        f"-{p}/{q}",
        f"{p / q:.2f}1",
        rf"{whole}\cdot\frac{{{part}}}{{{q}}}",
    ]
    yield rf"\frac{{{p}}}{{{q}}}", equal, different


def powers(rng: random.Random) -> Iterator[Case]:
    b, e = rng.randint(2, 7), rng.randint(20, 60)
    yield (
        f"{b}^{{{e}}}",
        [str(b**e), rf"{b} \cdot {b}^{{{e - 1}}}"],
        [str(b**e + 1), f"{b}^{{{e + 1}}}", f"{e}^{{{b}}}"],
    )
    n, k = rng.randint(8, 20), rng.randint(2, 6)
    yield (
        rf"\binom{{{n}}}{{{k}}}",
        [str(math.comb(n, k)), rf"\binom{{{n}}}{{{n - k}}}"],
        [str(math.comb(n, k) + 1)],
    )
    yield (
        f"{n}!",
        [str(math.factorial(n)), rf"{n} \cdot {n - 1}!"],
        [str(math.factorial(n) - 1), f"{n - 1}!"],
    )


def scientific(rng: random.Random) -> Iterator[Case]:
    m, e = rng.randint(11, 99), rng.randint(4, 20)
    written = rf"{m / 10} \times 10^{{{e}}}"
    plain = m * 10 ** (e - 1)
    yield (
        written,
        [f"{m / 10}e{e}", str(plain), rf"{m / 10}\cdot 10^{{{e}}}", f"{m / 10}×10^{e}"],
        [
            rf"{m / 10} \times 10^{{{e + 1}}}",
            str(plain + 1),
            rf"{m / 10} \times 10^{{-{e}}}",
            f"{m / 10}",
        ],
    )


# -------------------------------------------------------------------------------------- expressions


def polynomials(rng: random.Random) -> Iterator[Case]:
    a, b, c = nonzero(rng, 9), nonzero(rng, 9), rng.randint(2, 5)
    if a == -b:
        b += 1
    expanded = f"x^2{signed(a + b)}x{signed(a * b)}".replace("+1x", "+x").replace("-1x", "-x")
    yield (
        expanded,
        [
            f"(x{signed(a)})(x{signed(b)})",
            f"(x{signed(b)})(x{signed(a)})",
            f"{signed(a * b)}+x^2{signed(a + b)}x",
        ],
        [
            f"(x{signed(-a)})(x{signed(b)})",
            f"x^2{signed(a + b)}x{signed(a * b + 1)}",
            f"x^2{signed(a * b)}",
            f"{expanded}=0",
        ],
    )
    yield (
        rf"\frac{{x{signed(a)}}}{{{c}}}",
        [
            rf"\frac{{1}}{{{c}}}x+\frac{{{a}}}{{{c}}}",
            rf"\frac{{1}}{{{c}}}(x{signed(a)})",
        ],
        [
            rf"\frac{{x}}{{{c}}}{signed(a)}",
            rf"\frac{{x{signed(a)}}}{{{c + 1}}}",
            rf"\frac{{y{signed(a)}}}{{{c}}}",
        ],
    )


def rationals(rng: random.Random) -> Iterator[Case]:
    a = rng.randint(2, 12)
    yield rf"\frac{{{2 * a}}}{{x^2-{a * a}}}", [
        rf"\frac{{1}}{{x-{a}}}-\frac{{1}}{{x+{a}}}", rf"\frac{{{2 * a}}}{{(x-{a})(x+{a})}}",
        rf"-\frac{{{2 * a}}}{{{a * a}-x^2}}",
    ], [
        rf"\frac{{1}}{{x-{a}}}+\frac{{1}}{{x+{a}}}", rf"\frac{{{2 * a}}}{{x^2+{a * a}}}",
        rf"\frac{{{a}}}{{x^2-{a * a}}}",
    ]  # fmt: skip


def roots(rng: random.Random) -> Iterator[Case]:
    a, b = rng.randint(2, 9), rng.choice([2, 3, 5, 6, 7, 10, 11, 13])
    yield (
        rf"{a}\sqrt{{{b}}}",
        [
            rf"\sqrt{{{a * a * b}}}",
            f"{a}√{b}",
            rf"\frac{{{a * b}}}{{\sqrt{{{b}}}}}",
            rf"\sqrt{{{b}}}\cdot {a}",
        ],
        [
            rf"{a}\sqrt{{{b + 1}}}",
            rf"\sqrt{{{a * b}}}",
            f"{a * math.sqrt(b):.4f}",
            rf"-{a}\sqrt{{{b}}}",
            rf"{a}+\sqrt{{{b}}}",
        ],
    )
    yield (
        rf"\frac{{{a}+\sqrt{{{b}}}}}{{2}}",
        [
            rf"\frac{{\sqrt{{{b}}}+{a}}}{{2}}",
            rf"\frac{{{a}}}{{2}}+\frac{{\sqrt{{{b}}}}}{{2}}",
        ],
        [
            rf"\frac{{{a}-\sqrt{{{b}}}}}{{2}}",
            rf"\frac{{{a}\pm\sqrt{{{b}}}}}{{2}}",
            rf"{a}+\frac{{\sqrt{{{b}}}}}{{2}}",
        ],
    )
    yield (
        rf"\sqrt[3]{{{b}}}",
        [f"{b}^{{1/3}}", rf"{b}^{{\frac{{1}}{{3}}}}"],
        [rf"\sqrt{{{b}}}", rf"3\sqrt{{{b}}}", f"{b}^3"],
    )


def functions(rng: random.Random) -> Iterator[Case]:
    a, b, k = rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 6)
    yield (
        rf"\ln {a * b}",
        [rf"\ln {a}+\ln {b}", rf"\ln({b})+\ln({a})"],
        [rf"\ln {a + b}", rf"\ln {a} \cdot \ln {b}"],
    )
    yield (
        rf"\sin({2 * k}x)",
        [rf"2\sin({k}x)\cos({k}x)"],
        [rf"2\sin({k}x)", rf"\cos({2 * k}x)", rf"{2 * k}\sin x"],
    )
    yield (
        r"\cos^2 x",
        [r"1-\sin^2 x", r"\frac{1+\cos 2x}{2}"],
        [r"1+\sin^2 x", r"\cos x^2", r"\cos x"],
    )
    yield (
        f"e^{{{a}x+{b}}}",
        [f"e^{{{a}x}}e^{{{b}}}", rf"e^{{{b}}} \cdot e^{{{a}x}}"],
        [f"e^{{{a}x}}+e^{{{b}}}", f"e^{{{a}x-{b}}}"],
    )
    yield (
        rf"\log_{{{b}}} {b**k}",
        [str(k), rf"{k}\log_{{{b}}} {b}"],
        [str(k + 1), rf"\log_{{{b}}} {b**k + 1}"],
    )


def calculus(rng: random.Random) -> Iterator[Case]:
    n, a = rng.randint(5, 40), rng.randint(2, 9)
    yield (
        str(n * (n + 1) // 2),
        [rf"\sum_{{k=1}}^{{{n}}} k", rf"\frac{{{n}({n}+1)}}{{2}}"],
        [rf"\sum_{{k=1}}^{{{n + 1}}} k"],
    )
    yield (
        rf"\frac{{{a**3}}}{{3}}",
        [rf"\int_0^{{{a}}} x^2 \, dx"],
        [rf"\int_0^{{{a}}} x \, dx", rf"\int_0^{{{a + 1}}} x^2 \, dx"],
    )
    yield (
        str(a),
        [rf"\lim_{{x \to 0}} \frac{{\sin({a}x)}}{{x}}"],
        [rf"\lim_{{x \to 0}} \frac{{\sin({a + 1}x)}}{{x}}"],
    )
    yield str(math.gcd(12 * a, 18)), [rf"\gcd({12 * a}, 18)"], [rf"\text{{lcm}}({12 * a}, 18)"]


def complexes(rng: random.Random) -> Iterator[Case]:
    a, b, c, d = (rng.randint(2, 9) for _ in range(4))
    re_, im = a * c - b * d, a * d + b * c
    yield (
        f"{re_}+{im}i",
        [f"{im}i{signed(re_)}", f"({a}+{b}i)({c}+{d}i)"],
        [f"{re_}-{im}i", f"{im}+{re_}i", str(re_), f"{re_}+{im}"],
    )


# --------------------------------------------------------------------------- several things at once


def intervals(rng: random.Random) -> Iterator[Case]:
    a = rng.randint(-9, 5)
    b = a + rng.randint(2, 9)
    yield (
        f"({a}, {b}]",
        [f"{a} < x \\le {b}", f"x \\in ({a}, {b}]", rf"\left({a}, {b}\right]", f"{b} ≥ x > {a}"],
        [
            f"({a}, {b})",
            f"[{a}, {b}]",
            f"({a}, {b + 1}]",
            f"{a} \\le x < {b}",
            rf"\{{{a}, {b}\}}",
            f"x > {a}",
        ],
    )
    yield (
        rf"(-\infty, {a})",
        [f"x < {a}", f"{a} > x", f"(−∞, {a})"],
        [f"x \\le {a}", f"x > {a}", f"({a}, \\infty)"],
    )
    yield (
        rf"(-\infty, {a}) \cup ({b}, \infty)",
        [
            rf"({b}, \infty) \cup (-\infty, {a})",
            rf"x < {a} \text{{ or }} x > {b}",
        ],
        [
            f"({a}, {b})",
            rf"(-\infty, {a}] \cup [{b}, \infty)",
            rf"(-\infty, {a})",
            rf"(-\infty, {a}) \cap ({b}, \infty)",
        ],
    )


def collections(rng: random.Random) -> Iterator[Case]:
    a, b, c = rng.sample(range(-20, 21), 3)
    yield (
        rf"\{{{a}, {b}, {c}\}}",
        [rf"\{{{c}, {a}, {b}\}}", f"{c}, {b}, {a}", rf"\left\{{{a},{b},{c}\right\}}"],
        [
            rf"\{{{a}, {b}\}}",
            rf"\{{{a}, {b}, {c + 100}\}}",
            f"{a}",
            rf"\{{{a}, {b}, {c}, {c + 50}\}}",
        ],
    )
    yield f"({a}, {b}, {c})", [rf"\left({a}, {b}, {c}\right)", f"({a}.0,{b},{c})"], [
        f"({a}, {c}, {b})", f"({a}, {b})", rf"\{{{a}, {b}, {c}\}}", f"({a}, {b}, {c}, 0)",
    ]  # fmt: skip
    yield (
        f"{abs(a) + 1}, {-abs(a) - 1}",
        [rf"\pm {abs(a) + 1}", f"{-abs(a) - 1} and {abs(a) + 1}"],
        [
            f"{abs(a) + 1}",
            f"{abs(a) + 1}, {abs(a) + 1}",
            rf"\pm {abs(a) + 2}",
        ],
    )
    yield (
        f"({a},{b}), ({b},{c})",
        [f"({b}, {c}), ({a}, {b})"],
        [f"({b}, {a}), ({b}, {c})", f"({a}, {b})", f"({a},{c}),({b},{b})"],
    )


def matrices(rng: random.Random) -> Iterator[Case]:
    a, b, c, d = (rng.randint(1, 9) for _ in range(4))
    pm = r"\begin{{pmatrix}} {} & {} \\ {} & {} \end{{pmatrix}}"
    yield (
        pm.format(a, b, c, d),
        [
            pm.replace("pmatrix", "bmatrix").format(a, b, c, d),
            pm.format(a, f"{b}.0", rf"\frac{{{2 * c}}}{{2}}", d),
        ],
        [
            pm.format(a, c + 10, b, d),
            pm.format(a, b, c, d + 1),
            pm.format(a, b, c, -d),
            str(a * d - b * c),
        ],
    )


def equations(rng: random.Random) -> Iterator[Case]:
    a, b, c = rng.randint(2, 9), nonzero(rng, 9), nonzero(rng, 9)
    yield (
        f"y={a}x{signed(b)}",
        [f"y = {b}+{a}x", f"{a}x-y{signed(b)}=0", f"2y={2 * a}x{signed(2 * b)}"],
        [
            f"y={a}x{signed(-b)}",
            f"x={a}y{signed(b)}",
            f"y={a}x",
            "y=y",
            f"y={a + 1}x{signed(b)}",
        ],
    )
    yield (
        f"x={c}",
        [str(c), f"x = {c}.0", f"{c} = x"],
        [f"x={c + 1}", f"y={c}", f"x>{c}", "x=x", f"x=2=3={c}"],
    )


# ----------------------------------------------------------------------------- quantities and words


def percents(rng: random.Random) -> Iterator[Case]:
    p = rng.randint(11, 99)
    yield (
        rf"{p}\%",
        [f"{p}%", rf"{p} \%", rf"{p}\text{{ percent}}", f"{p}.0\\%"],
        [rf"{p + 1}\%", rf"0.{p}\%", rf"{p}00\%"],
    )


def money(rng: random.Random) -> Iterator[Case]:
    n, cents = rng.randint(1001, 9999), rng.randint(11, 98)
    yield (
        rf"\${n:,}.{cents}",
        [f"{n}.{cents}", rf"\${n}.{cents}", rf"{n}.{cents} \text{{ dollars}}"],
        [
            rf"\${n:,}.{cents + 1}",
            rf"{n}.{cents} \text{{ cents}}",
            rf"\${n}",
            f"€{n}.{cents}",
            rf"{n},{cents}",
        ],
    )


def units(rng: random.Random) -> Iterator[Case]:
    n = rng.randint(3, 90)
    yield rf"{n}\text{{ cm}}", [rf"{n} \mathrm{{cm}}", f"{n} cm", rf"{n} \text{{ centimeters}}"], [
        rf"{n} \text{{ m}}", rf"{n + 1} \text{{ cm}}", rf"{n} \text{{ cm}}^2", rf"{n} \text{{ kg}}",
        rf"{n} \text{{ degrees}}",
    ]  # fmt: skip
    yield (
        rf"{n}^\circ",
        [f"{n}°", rf"{n}^{{\circ}}", rf"{n} \text{{ degrees}}", rf"\frac{{{n}\pi}}{{180}}"],
        [
            rf"{n + 1}^\circ",
            rf"\frac{{{n}\pi}}{{90}}",
            rf"{n} \text{{ radians}}",
            rf"{n}\pi",
        ],
    )
    first, last = rng.randint(1, 6), rng.randint(0, 6)
    yield (
        f"{first}{last}_8",
        [f"{first}{last}_{{8}}"],
        [f"{first}{last}", f"{first}{last + 1}_8", f"{first}{last}_9"],
    )


def words(rng: random.Random) -> Iterator[Case]:
    a, b = rng.sample(
        ["even", "odd", "Monday", "Friday", "parabola", "ellipse", "east", "seat", "increasing"], 2
    )
    yield (
        rf"\text{{{a}}}",
        [a, rf"\text{{{a.capitalize()}}}", rf"\mathrm{{{a}}}", rf"\textbf{{{a}}}"],
        [
            b,
            rf"\text{{not {a}}}",
            rf"\text{{{a} or {b}}}",
            a[::-1],
            a[:-1],
        ],
    )
    x, y = rng.sample("ABCDE", 2)
    yield (
        rf"\text{{({x})}}",
        [x, f"({x})", rf"\textbf{{({x})}}", rf"\text{{{x}}}"],
        [y, f"({y})", f"({x}) or ({y})", f"{x}{y}"],
    )


FAMILIES: tuple[Callable[[random.Random], Iterator[Case]], ...] = (
    integers,
    fractions,
    powers,
    scientific,
    polynomials,
    rationals,
    roots,
    functions,
    calculus,
    complexes,
    intervals,
    collections,
    matrices,
    equations,
    percents,
    money,
    units,
    words,
)
