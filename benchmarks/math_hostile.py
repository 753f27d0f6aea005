"""Answers made to hang, crash or take over a grader; none of them is right."""

from __future__ import annotations

__all__ = ["REFERENCE", "hostile"]

REFERENCE = r"\frac{\pi}{7}+x"


def boxed(answer: str) -> str:
    return f"\\boxed{{{answer}}}"


def hostile(canary: str) -> list[tuple[str, str]]:
    """(kind, completion) of answers to `REFERENCE`.

    Args:
        canary: path of a file that an answer creates if a grader executes it.
    """
    return _large() + _deep_and_long() + _strange() + _programs(canary)


def _large() -> list[tuple[str, str]]:
    texts = {
        "tower": (
            r"9^{9^{9^{9}}}",
            r"2^{2^{2^{2^{2^{2}}}}}",
            r"x^{9^{9^{9}}}",
            "9**9**9**9",
            r"(9^9)^{9^9}!",
        ),
        "exponent": (
            r"1.0000001^{999999999}",
            r"(x+1)^{99999}",
            r"(1+\sqrt{2})^{9999}",
            "1e999999999",
            "1E-99999999",
        ),
        "factorial": (
            "((((9!)!)!)!)!",
            "99999999!",
            "3" + "!" * 40,
            r"\binom{99999999}{49999999}",
            "170!!!!",
        ),
        "sum": (
            r"\sum_{k=1}^{1000000000} \frac{1}{k^2}",
            r"\sum_{k=1}^{10^9} k!",
            r"\prod_{k=1}^{10^8} (1+\frac{1}{k})",
            r"\sum_{i=1}^{9999}\sum_{j=1}^{9999}\sum_{k=1}^{9999} \sin(ijk)",
            r"\prod_{p=1}^{\infty} \cos(p x)",
        ),
        "calculus": (
            r"\int_0^{\infty} \frac{\sin(x^x)}{\ln(x+e^{x})} dx",
            r"\int \int \int e^{x^2 y^2 z^2} dx dy dz",
            r"\lim_{n \to \infty} \sum_{k=1}^{n} \frac{\sin(k^k)}{k!}",
            r"\frac{d^{99}}{dx^{99}} e^{\sin(\tan x)}",
        ),
        "expansion": (
            r"(x+y+z+w+u+v)^{40}",
            r"(a+b)^{200}(a-b)^{200}-(a^2-b^2)^{200}",
            "*".join(f"(x+{i})" for i in range(120)),
            r"\sqrt{1+" * 25 + "x" + "}" * 25,
            r"\frac{1}{1+" * 35 + "x" + "}" * 35,
            r"\sin(" * 39 + "x" + ")" * 39,
            r"\sin^{50}(x)\cos^{50}(x)\tan^{50}(x)+\frac{\pi}{7}+x",
            r"\ln(\ln(\ln(\ln(\ln(x^{x^{x^{x}}})))))",
        ),
        "matrix": (
            rf"\det\begin{{pmatrix}}{_cells(9)}\end{{pmatrix}}",
            rf"\begin{{pmatrix}}{_cells(31)}\end{{pmatrix}}",
            rf"\begin{{pmatrix}}{_cells(80)}\end{{pmatrix}}",
            rf"\begin{{pmatrix}}{_cells(6)}\end{{pmatrix}}^{{-1}}",
            r"\begin{pmatrix}1&1\\1&0\end{pmatrix}^{99999999}",
        ),
        "equation": (
            r"x^{99}+x^{98}-3x+1=0",
            r"\sin(x^x)=\ln(x)+e^{x}",
            r"\gcd(10^{9999}+1, 10^{9998}+7)",
        ),
    }
    return [(kind, boxed(text)) for kind, some in texts.items() for text in some]


def _cells(n: int) -> str:
    return r" \\ ".join(" & ".join(f"x_{{{i}{j}}}" for j in range(n)) for i in range(n))


def _deep_and_long() -> list[tuple[str, str]]:
    bare = {
        "brackets": (
            "(" * 5000 + "1" + ")" * 5000,
            "{" * 5000 + "}" * 5000,
            "[" * 50_000,
            "((1,2)," * 39,
            "|" * 2001,
        ),
        "long": (
            "7" * 100_000,
            "1+" * 50_000 + "1",
            r"\frac{1}{2}" * 9_000,
            "x" * 100_000,
            r"\sqrt" * 20_000,
            "-" * 3999,
        ),
        "list": (
            ",".join(map(str, range(900))),
            ",".join(f"x_{i}+{i}" for i in range(300)),
            "," * 4000,
            "=" * 4000,
        ),
    }
    texts = [(kind, boxed(text)) for kind, some in bare.items() for text in some]
    boxes = (
        "\\boxed{" * 20_000,
        "\\boxed{1} or " * 5_000,
        "<think>" * 20_000,
        "the answer is " * 10_000 + "5",
        "$" * 99_999,
    )
    return texts + [("boxes", text) for text in boxes]


def _strange() -> list[tuple[str, str]]:
    texts = (
        "\x00",
        "\x00\x01\x02" * 300,
        "\ud800",
        "\ud800\udc00\udfff1",
        "\u202e5\u202c",
        "\ufdfa" * 200,
        "e\u0301" * 900,
        "٣" * 1500,
        "⁹" * 900,
        "½" * 900,
        "\\" * 3999,
        "\\\\" * 999,
        r"\text{" * 900,
        r"\frac" * 700,
        r"\binom" * 600,
        "%" * 3000,
        "^" * 3999,
        r"\begin{matrix}" * 200,
        r"\left(" * 300,
        "_" * 3999,
        "&" * 3999,
        '"' * 3999,
        "𝟗^𝟗^𝟗^𝟗",
    )
    return [("strange", boxed(text)) for text in texts]


def _programs(canary: str) -> list[tuple[str, str]]:
    texts = (
        f"__import__('pathlib').Path('{canary}').touch()",
        f"open('{canary}','w').write('1')",
        f'__import__("os").system("touch {canary}")',
        rf"\write18{{touch {canary}}}",
        rf"\input{{|touch {canary}}}",
        f"exec(\"open('{canary}','w')\")",
        f"(lambda: open('{canary}','w'))()",
        f"`touch {canary}`",
        f"$(touch {canary})",
        f"[open('{canary}','w') for x in (1,)]",
        rf"\text{{open('{canary}','w')}}+x",
        "sympy.Symbol('x').__class__.mro()",
    )
    return [("program", boxed(text)) for text in texts]
