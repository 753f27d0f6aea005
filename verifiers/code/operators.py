"""Slips in Python functions: each source gives programs that differ from it in one place, and
programs that are equal.

A mutant is what a slip would write: another comparison, a bound that is off by one, a statement
left out.  Whether it is wrong has to be found out: some slips change nothing.  Across files it is a
change that was made in some places and not in all.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Final, NamedTuple

__all__ = [
    "Deletion",
    "Mutant",
    "Spread",
    "deletions",
    "draw_mutants",
    "mutants",
    "mutants_across",
    "reorder_sets",
    "rewrites",
]

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq, ast.LtE, ast.GtE),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: Final[dict[type[ast.operator], tuple[type[ast.operator], ...]]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.Div: (ast.FloorDiv, ast.Mult),
    ast.FloorDiv: (ast.Div,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitOr,),
}
_PAIRS: Final = (
    ("min", "max"), ("all", "any"), ("sum", "len"), ("floor", "ceil"), ("upper", "lower"),
    ("startswith", "endswith"), ("find", "rfind"), ("lstrip", "rstrip"), ("append", "extend"),
    ("isalpha", "isalnum"), ("isdigit", "isalnum"), ("islower", "isupper"), ("keys", "values"),
    ("union", "intersection"), ("round", "int"), ("sorted", "list"),
)  # fmt: skip
_OTHER_NAMES: Final = {
    one: other for pair in _PAIRS for one, other in (pair, pair[::-1]) if one != "list"
}
_SYMMETRIC: Final = frozenset(("min", "max", "gcd", "lcm", "abs"))
"""Functions to which the order of two arguments, or the sign of the one, makes no difference."""
_ITERATING: Final = frozenset(
    "list tuple enumerate iter map filter zip sorted min max join Counter extend fromkeys".split()
)
_REORDER: Final = """
def reordered_set(value):
    if type(value) not in (set, frozenset):
        return value
    return sorted(value, key=lambda item: __import__('zlib').crc32(repr((item, {seed})).encode()))

def reordered_pop(value):
    if type(value) is not set:
        return value.pop()
    first = reordered_set(value)[0]
    value.remove(first)
    return first
"""
_FREE: Final = (ast.Global, ast.Nonlocal, ast.ClassDef, ast.Lambda, ast.AsyncFunctionDef)
_SCOPES: Final = frozenset(("locals", "vars", "globals", "eval", "exec", "dir"))


class Mutant(NamedTuple):
    """A program made from another one.

    Attributes:
        source: the whole program.
        operator: what was changed, such as "comparison".
    """

    source: str
    operator: str


class Spread(NamedTuple):
    """Several files changed together.

    Attributes:
        sources: the changed files, whole, by path.
        operator: what was changed, such as "parameters".
    """

    sources: Mapping[str, str]
    operator: str


class Deletion(NamedTuple):
    """A program without one of its functions.

    Attributes:
        source: the whole program.
        name: of the function; "Class.method" of a method.
        head: its first line, with the arguments.
        docstring: what it is for.
    """

    source: str
    name: str
    head: str
    docstring: str


class _Edit(NamedTuple):
    """One field of a node with another value."""

    operator: str
    node: ast.AST
    field: str
    value: object


def mutants(source: str, *, is_script: bool = False) -> Iterator[Mutant]:
    """Every program that differs from the source by one slip inside of a function, each once, in
    the source's order.

    Args:
        source: Python code.
        is_script: slips outside of functions count too.

    Raises:
        SyntaxError: it is none.
    """
    tree = ast.parse(source)
    texts = {ast.unparse(tree)}
    for edit in list(_edits(tree, is_script)):
        before = getattr(edit.node, edit.field)
        setattr(edit.node, edit.field, edit.value)
        try:
            text = ast.unparse(ast.fix_missing_locations(tree))
            ast.parse(text)
        except (SyntaxError, ValueError, TypeError):
            continue
        finally:
            setattr(edit.node, edit.field, before)
        if text not in texts:
            texts.add(text)
            yield Mutant(text, edit.operator)


def draw_mutants(mutants: Iterable[Mutant], count: int, rng: Random) -> list[Mutant]:
    """Mutants drawn at random, each operator as often as another, as far as it has any.

    Args:
        mutants: of a program.
        count: greatest number of those that are drawn.
        rng: draws them.
    """
    by_operator: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_operator.setdefault(mutant.operator, []).append(mutant)
    for mutants_of_operator in by_operator.values():
        rng.shuffle(mutants_of_operator)
    order = sorted(by_operator)
    rng.shuffle(order)
    longest = max(map(len, by_operator.values()), default=0)
    turns = [by_operator[name][at : at + 1] for at in range(longest) for name in order]
    return [mutant for turn in turns for mutant in turn][:count]


def rewrites(source: str) -> Iterator[Mutant]:
    """Programs that are equal to the source by construction: printed anew, with other names, with
    branches turned.

    Args:
        source: Python code.

    Raises:
        SyntaxError: it is none.
    """
    tree = ast.parse(source)
    yield Mutant(ast.unparse(tree), "reprinted")
    changes: tuple[tuple[str, Callable[[ast.AST], bool]], ...] = (
        ("renamed", _rename),
        ("turned", _turn),
    )
    for operator, change in changes:
        changed = copy.deepcopy(tree)
        done = [change(node) for node in ast.walk(changed)]
        if any(done):
            yield Mutant(ast.unparse(ast.fix_missing_locations(changed)), operator)


def reorder_sets(source: str, seed: int) -> str | None:
    """The program with sets that are gone through in another order, as under another hash seed;
    None if it has none.

    Args:
        source: Python code.
        seed: of the order.

    Raises:
        SyntaxError: it is none.
    """
    tree = ast.parse(source)
    if not any(_makes_set(node) for node in ast.walk(tree)):
        return None
    for node in list(ast.walk(tree)):
        match node:
            case ast.For() | ast.comprehension():
                node.iter = _reorder_set(node.iter)
            case ast.Call(func=ast.Attribute(value=owner, attr="pop"), args=[]):
                node.func, node.args = ast.Name("reordered_pop", ast.Load()), [owner]
            case ast.Call(func=func) if _name_of(func) in _ITERATING:
                node.args = [
                    arg if isinstance(arg, ast.Starred) else _reorder_set(arg) for arg in node.args
                ]
            case ast.Starred():
                node.value = _reorder_set(node.value)
    start = sum(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body
    )
    tree.body[start:start] = ast.parse(_REORDER.format(seed=seed)).body
    return ast.unparse(ast.fix_missing_locations(tree))


def _makes_set(node: ast.AST) -> bool:
    names = ("set", "frozenset")
    return isinstance(node, ast.Set | ast.SetComp) or (
        isinstance(node, ast.Name) and node.id in names
    )


def _reorder_set(value: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("reordered_set", ast.Load()), [value], [])


def deletions(source: str) -> Iterator[Deletion]:
    """The source without one of its functions or methods, for each that has a docstring and no
    leading underscore.

    Args:
        source: Python code.

    Raises:
        SyntaxError: it is none.
    """
    tree = ast.parse(source)
    owners: list[ast.Module | ast.ClassDef] = [tree]
    owners += [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for owner in owners:
        prefix = f"{owner.name}." if isinstance(owner, ast.ClassDef) else ""
        body = list(owner.body)
        for at, node in enumerate(body):
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            docstring = ast.get_docstring(node)
            if docstring and len(body) > 1:
                owner.body = body[:at] + body[at + 1 :]
                head = f"def {node.name}({ast.unparse(node.args)})"
                yield Deletion(ast.unparse(tree), prefix + node.name, head, docstring)
        owner.body = body


def mutants_across(sources: Mapping[str, str]) -> Iterator[Spread]:
    """Changes of two files that leave out a third place: an interface is changed where it stands
    and in one more file.

    Args:
        sources: Python files by path.

    Raises:
        SyntaxError: one is none.
    """
    sources_seen = set()
    for path, source in sources.items():
        for other_path in sources:
            if other_path == path:
                continue
            for function in _functions(ast.parse(source)):
                for change in (_swap_parameters, _shift_result):
                    mutant = change(function, sources, path, other_path)
                    if (
                        mutant is not None
                        and mutant.sources[path] + mutant.sources[other_path] not in sources_seen
                    ):
                        sources_seen.add(mutant.sources[path] + mutant.sources[other_path])
                        yield mutant
            yield from _renamed_texts(sources, path, other_path)


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _calls_of(tree: ast.AST, name: str) -> list[ast.Call]:
    """The calls of a function or method, by its name."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        call
        for call in calls
        if (isinstance(call.func, ast.Name) and call.func.id == name)
        or (isinstance(call.func, ast.Attribute) and call.func.attr == name)
    ]


def _swap_parameters(
    function: ast.FunctionDef, sources: Mapping[str, str], path: str, other: str
) -> Spread | None:
    """The first two parameters change places, and so do arguments in one other file."""
    names = [argument.arg for argument in function.args.args]
    start = int(names[:1] == ["self"])
    if len(names) - len(function.args.defaults) < start + 2:
        return None
    caller = ast.parse(sources[other])
    calls = [call for call in _calls_of(caller, function.name) if len(call.args) > 1]
    if not calls or any(isinstance(arg, ast.Starred) for call in calls for arg in call.args[:2]):
        return None
    for call in calls:
        call.args[0], call.args[1] = call.args[1], call.args[0]
    tree = ast.parse(sources[path])
    for same in _functions(tree):
        if (same.name, same.lineno) == (function.name, function.lineno):
            args = same.args.args
            args[start], args[start + 1] = args[start + 1], args[start]
    return Spread({path: ast.unparse(tree), other: ast.unparse(caller)}, "parameters")


def _shift_result(
    function: ast.FunctionDef, sources: Mapping[str, str], path: str, other: str
) -> Spread | None:
    """The result grows by one, which one other file takes back."""
    caller, tree = ast.parse(sources[other]), ast.parse(sources[path])
    calls = _calls_of(caller, function.name)
    same = next(candidate for candidate in _functions(tree) if candidate.lineno == function.lineno)
    returns = [node for node in ast.walk(same) if isinstance(node, ast.Return) and node.value]
    if not calls or not returns:
        return None
    for node in returns:
        assert node.value is not None
        node.value = ast.BinOp(node.value, ast.Add(), ast.Constant(1))
    shifted = _Shifted(set(map(id, calls))).visit(caller)
    return Spread({path: ast.unparse(tree), other: ast.unparse(shifted)}, "shift")


class _Shifted(ast.NodeTransformer):
    """Takes one from the result of calls.

    Args:
        calls: ids of their nodes.
    """

    def __init__(self, calls: set[int]) -> None:
        self.calls = calls

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return ast.BinOp(node, ast.Sub(), ast.Constant(1)) if id(node) in self.calls else node


def _renamed_texts(sources: Mapping[str, str], path: str, other: str) -> Iterator[Spread]:
    """A text that several files use as a name is another one in one file, and in the first place of
    a second."""
    for text in sorted(set(_names_as_texts(ast.parse(sources[path])))):
        tree, caller = ast.parse(sources[path]), ast.parse(sources[other])
        caller_texts = [node for node in _texts_in(caller) if node.value == text]
        if len(caller_texts) < 2:
            continue
        for node in [*(node for node in _texts_in(tree) if node.value == text), caller_texts[0]]:
            node.value = f"{text}_"
        yield Spread({path: ast.unparse(tree), other: ast.unparse(caller)}, "rename")


def _names_as_texts(tree: ast.AST) -> Iterator[str]:
    for node in _texts_in(tree):
        if isinstance(node.value, str) and node.value.isidentifier() and len(node.value) > 1:
            yield node.value


def _texts_in(tree: ast.AST) -> Iterator[ast.Constant]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Constant))


def _edits(tree: ast.Module, is_script: bool) -> Iterator[_Edit]:
    if is_script:
        yield from _of_body(tree, "body", 0)
    for statement in tree.body:
        if not is_script and not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            continue
        nodes = list(ast.walk(statement))
        texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        texts &= {id(node) for node in nodes if isinstance(node, ast.Constant)}  # docstrings
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                yield from _of_body(node, "body", _after_docstring(node))
            elif not isinstance(node, ast.arguments | ast.ClassDef) and id(node) not in texts:
                yield from _of_node(node)
                yield from _of_children(node)


def _after_docstring(node: ast.FunctionDef) -> int:
    return int(ast.get_docstring(node, clean=False) is not None)


def _of_node(node: ast.AST) -> Iterator[_Edit]:
    """Slips inside of one node."""
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                for replacement in _COMPARISONS.get(type(op), ()):
                    yield _Edit("comparison", node, "ops", _with(ops, at, replacement()))
        case ast.BinOp(op=op) | ast.AugAssign(op=op):
            for operator in _ARITHMETIC.get(type(op), ()):
                yield _Edit("arithmetic", node, "op", operator())
        case ast.BoolOp(op=op, values=values):
            turned = ast.And() if isinstance(op, ast.Or) else ast.Or()
            yield _Edit("logic", node, "op", turned)
            for at in range(len(values)):
                yield _Edit("dropped condition", node, "values", values[:at] + values[at + 1 :])
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield _Edit("logic", node, "test", ast.UnaryOp(ast.Not(), test))
            if not isinstance(node, ast.While):
                yield from (
                    _Edit("dropped condition", node, "test", ast.Constant(value))
                    for value in (True, False)
                )
        case ast.comprehension(ifs=ifs):
            for at in range(len(ifs)):
                yield _Edit("dropped condition", node, "ifs", ifs[:at] + ifs[at + 1 :])
        case ast.Constant(value=value):
            for other_value in _other_constants(value):
                yield _Edit("constant", node, "value", other_value)
        case ast.Slice():
            yield from _of_slice(node)
        case ast.Call(func=func, args=args):
            yield from _of_call(node, func, args)
    if isinstance(node, ast.For | ast.comprehension):
        for part in (ast.Slice(lower=ast.Constant(1)), ast.Slice(upper=ast.Constant(-1))):
            of_list = ast.Call(ast.Name("list", ast.Load()), [node.iter], [])
            yield _Edit("bounds", node, "iter", ast.Subscript(of_list, part, ast.Load()))
    for field in ("body", "orelse"):
        statements = getattr(node, field, None)
        if isinstance(statements, list) and statements:
            yield from _of_body(node, field, 0)


def _other_constants(value: object) -> Iterator[object]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    elif isinstance(value, float):
        yield from (value * 2, value + 1)
    elif isinstance(value, str) and len(value) < 40:
        yield from (value[1:], value[:-1]) if value else (" ",)


def _of_slice(node: ast.Slice) -> Iterator[_Edit]:
    for field in ("lower", "upper", "step"):
        bound = getattr(node, field)
        if bound is not None:
            yield _Edit("bounds", node, field, None)
            if field != "step":
                yield from (_Edit("bounds", node, field, _plus(bound, by)) for by in (1, -1))


def _of_call(node: ast.Call, func: ast.expr, args: list[ast.expr]) -> Iterator[_Edit]:
    match func:
        case ast.Name(id="range"):
            for at, bound in enumerate(args[:2]):
                yield from (
                    _Edit("bounds", node, "args", _with(args, at, _plus(bound, by)))
                    for by in (1, -1)
                )
        case ast.Name(id=name) if name in _OTHER_NAMES:
            yield _Edit("function", node, "func", ast.Name(_OTHER_NAMES[name], ast.Load()))
        case ast.Attribute(value=owner, attr=name) if name in _OTHER_NAMES:
            replacement = ast.Attribute(owner, _OTHER_NAMES[name], ast.Load())
            yield _Edit("function", node, "func", replacement)
    if len(args) > 1 and _name_of(func) not in _SYMMETRIC:
        yield _Edit("swapped", node, "args", [args[1], args[0], *args[2:]])
    for at in range(len(node.keywords)):
        kept_keywords = node.keywords[:at] + node.keywords[at + 1 :]
        yield _Edit("dropped call", node, "keywords", kept_keywords)


def _name_of(func: ast.expr) -> str:
    match func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _of_children(node: ast.AST) -> Iterator[_Edit]:
    """Slips that put another expression in a child's place: what a call was applied to, operands
    the other way."""
    is_size = isinstance(node, ast.Call) and _name_of(node.func) == "abs"
    for field, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        for at, child in enumerate(children):
            for operator, replacement in _in_place_of(child):
                if operator == "swapped" and is_size:
                    continue
                changed = _with(value, at, replacement) if isinstance(value, list) else replacement
                yield _Edit(operator, node, field, changed)


def _in_place_of(child: object) -> Iterator[tuple[str, ast.expr]]:
    match child:
        case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name not in ("range", "print"):
            yield "dropped call", inner
        case ast.Call(func=ast.Attribute(value=owner)):
            yield "dropped call", owner
        case ast.UnaryOp(operand=operand) if not isinstance(operand, ast.Constant):
            yield "logic", operand
        case ast.BinOp(op=op, left=left, right=right):
            if not isinstance(op, ast.Add | ast.Mult):
                yield "swapped", ast.BinOp(right, op, left)
            yield from (("dropped operand", left), ("dropped operand", right))
        case ast.IfExp(body=body, orelse=other):
            yield from (("dropped condition", body), ("dropped condition", other))


def _of_body(node: ast.AST, field: str, start: int) -> Iterator[_Edit]:
    """A statement left out; a branch taken always; an early return of a loop's first turn."""
    statements: list[ast.stmt] = getattr(node, field)
    for at in range(start, len(statements)):
        statement = statements[at]
        if isinstance(statement, ast.FunctionDef | ast.Import | ast.ImportFrom | ast.Pass):
            continue
        others_of_body = statements[:at] + statements[at + 1 :]
        yield _Edit("dropped statement", node, field, others_of_body or [ast.Pass()])
        if isinstance(statement, ast.For | ast.While):
            again = copy.copy(statement)
            again.body = [*statement.body, ast.Break()]
            yield _Edit("bounds", node, field, _with(statements, at, again))


def _with(items: list[object] | object, at: int, new: object) -> list[object]:
    assert isinstance(items, list)
    return [*items[:at], new, *items[at + 1 :]]


def _plus(bound: ast.expr, by: int) -> ast.expr:
    if isinstance(bound, ast.Constant) and isinstance(bound.value, int):
        return ast.Constant(bound.value + by)
    return ast.BinOp(bound, ast.Add() if by > 0 else ast.Sub(), ast.Constant(1))


def _turn(node: ast.AST) -> bool:
    """Exchange the branches of a condition."""
    if not isinstance(node, ast.If | ast.IfExp) or not node.orelse:
        return False
    node.test = ast.UnaryOp(ast.Not(), node.test)
    node.body, node.orelse = node.orelse, node.body
    return True


def _rename(node: ast.AST) -> bool:
    """Give a function's variables other names; not its arguments, which callers may name."""
    if not isinstance(node, ast.FunctionDef):
        return False
    inside = [part for part in ast.walk(node) if part is not node]
    names = [part for part in inside if isinstance(part, ast.Name)]
    if any(
        isinstance(part, (*_FREE, ast.FunctionDef, ast.Import, ast.ImportFrom)) for part in inside
    ):
        return False  # a scope of its own, where a name may mean something else
    if any(name.id in _SCOPES for name in names):
        return False
    bound_outside = {part.arg for part in inside if isinstance(part, ast.arg)}
    bound_outside |= {
        part.name for part in inside if isinstance(part, ast.ExceptHandler) and part.name
    }
    bound = {name.id for name in names if isinstance(name.ctx, ast.Store)} - bound_outside
    tail = "_" + max((name.id for name in names), key=len, default="")  # of no name that is there
    new = {name: name + tail for name in bound}
    for name in names:
        name.id = new.get(name.id, name.id)
    return bool(new)
