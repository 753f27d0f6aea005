r"""Tree → LaTeX, with brackets around every part, so that reading it gives the tree again."""

from __future__ import annotations

from fractions import Fraction

from rlvr.verifiers.math.latex.tree import Node, Unreadable

__all__ = ["written"]

_JOINED = {"add": "+", "mul": r"\cdot ", "list": ",", "union": r"\cup ", "intersection": r"\cap "}
_RELATIONS = {"=": "=", "<": "<", ">": ">"}
_CONSTANTS = {"pi": r"\pi", "inf": r"\infty", "e": "e", "i": "i"}
_AROUND = {
    "neg": r"-{{{0}}}",
    "div": r"\frac{{{0}}}{{{1}}}",
    "pow": r"{{{0}}}^{{{1}}}",
    "root": r"\sqrt[{1}]{{{0}}}",
    "log": r"\log_{{{1}}}{{{0}}}",
    "fact": "{0}!",
    "fact2": "{0}!!",
    "deg": r"{0}^\circ",
    "mod": r"{0}\bmod {1}",
    "set": r"\{{{0}\}}",
    "minus": r"{0}\setminus {1}",
    "conj": r"\overline{{{0}}}",
    "apply": "{0}{1}",
}


def written(node: Node) -> str:
    """The expression as LaTeX.

    Args:
        node: the tree of an expression.

    Raises:
        Unreadable: a part of it has no plain notation, such as a matrix or an integral.
    """
    match node.op:
        case "num":
            value = Fraction(node.value)
            is_integer = value.denominator == 1
            return (
                str(value) if is_integer else rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
            )
        case "sym":
            return str(node.value)
        case "const":
            return _CONSTANTS[node.value]
        case "call":
            name = "binom" if node.value == "binom" else f"operatorname{{{node.value}}}"
            if name == "binom":
                return rf"\binom{{{written(node.args[0])}}}{{{written(node.args[1])}}}"
            return rf"\{name}({','.join(map(written, node.args))})"
        case "rel" if set(node.value) <= _RELATIONS.keys():
            sides = [*map(written, node.args)]
            return sides[0] + "".join(
                sign + side for sign, side in zip(node.value, sides[1:], strict=True)
            )
        case "add" if node.value == "mixed":
            return "".join(map(written, node.args))
        case "tuple":
            return f"{node.value[0]}{','.join(map(written, node.args))}{node.value[1]}"
    args = [_bracket_node(arg) for arg in node.args]
    if node.op in _JOINED:
        return _JOINED[node.op].join(args)
    if node.op not in _AROUND:
        raise Unreadable(f"a {node.op} has no plain notation")
    return _AROUND[node.op].format(*args)


def _bracket_node(node: Node) -> str:
    text = written(node)
    return text if node.op in ("num", "sym", "const", "tuple", "call") else f"({text})"
