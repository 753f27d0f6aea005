"""Slips in programs of the languages that tree-sitter parses: the same operators
as in Python (operators).

The grammars agree on the fields of their nodes (left, operator, right, condition, arguments); where
they do not, the language's own file names its kinds of nodes (`Grammar`).  A slip replaces the text
of one node, so that all else stays as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from rlvr.errors import import_optional
from rlvr.sandbox.languages import LANGUAGES
from rlvr.sandbox.languages.base import Grammar
from rlvr.verifiers.code.operators import Mutant

__all__ = ["tree_mutants", "tree_rewrites"]

_EXTRA: Final = "grammars"
_OPERATORS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "comparison": {
        "<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"),
        "==": ("!=", "<="), "!=": ("==",), "===": ("!==",), "!==": ("===",),
    },
    "arithmetic": {
        "+": ("-",), "-": ("+",), "*": ("+",), "/": ("*",), "%": ("/",), "&": ("|",), "|": ("&",),
        "^": ("|",), "<<": (">>",), ">>": ("<<",), "+=": ("-=",), "-=": ("+=",), "*=": ("+=",),
    },
    "logic": {"&&": ("||",), "||": ("&&",)},
    "bounds": {"..": ("..=",), "..=": ("..",)},
}  # fmt: skip
_COMMUTE: Final = ("+", "*", "==", "!=", "===", "!==", "&&", "||", "&", "|", "^")
_BLOCKS: Final = ("compound_statement", "block", "statement_block", "statement_list")
_ARGUMENTS: Final = ("argument_list", "arguments")
_SYMMETRIC: Final = re.compile(r"\b(?:min|max|gcd|lcm|swap|abs)\b")
_COMMENTS: Final = ("comment", "line_comment", "block_comment")

_Node: TypeAlias = Any
"""tree_sitter.Node: the wheel is an extra."""


class _Slip(NamedTuple):
    """The bytes of a node's place, and what stands there instead."""

    operator: str
    start: int
    end: int
    text: bytes


def tree_mutants(source: str, language: str) -> Iterator[Mutant]:
    """Every program that differs from the source by one slip and can still be parsed, each once, in
    the source's order.

    Args:
        source: a program.
        language: a key of `LANGUAGES`.

    Raises:
        MissingDependency: the grammar's wheel is not installed.
        SyntaxError: the source cannot be parsed, or there is no grammar of its language.
    """
    grammar, tree, data = _parse(source, language)
    sources_seen = {data}
    for node in _walk(tree):
        for slip in _slips(node, grammar, data):
            changed = data[: slip.start] + slip.text + data[slip.end :]
            if changed not in sources_seen and not _root(changed, grammar).has_error:
                sources_seen.add(changed)
                yield Mutant(changed.decode(), slip.operator)


def tree_rewrites(source: str, language: str) -> Iterator[Mutant]:
    """Programs that are equal to the source by construction: without
    comments, with branches turned.

    Args:
        source, language: see `tree_mutants`.

    Raises:
        MissingDependency, SyntaxError: see `tree_mutants`.
    """
    grammar, tree, data = _parse(source, language)
    plain = _replace(
        data, [(n.start_byte, n.end_byte, b" ") for n in _walk(tree) if n.type in _COMMENTS]
    )
    yield Mutant(plain.decode(), "reprinted")
    turned = _replace(plain, _turns(_root(plain, grammar), plain))
    if turned != plain and not _root(turned, grammar).has_error:
        yield Mutant(turned.decode(), "turned")


def _parse(source: str, language: str) -> tuple[Grammar, _Node, bytes]:
    grammar = LANGUAGES[language].grammar
    if grammar is None:
        raise SyntaxError(f"there is no grammar of {language}")
    data = source.encode()
    tree = _root(data, grammar)
    if tree.has_error:
        raise SyntaxError(f"no program in {language}")
    return grammar, tree, data


def _root(data: bytes, grammar: Grammar) -> _Node:
    return _parser(grammar.module, grammar.function).parse(data).root_node


@lru_cache(maxsize=16)
def _parser(module: str, function: str) -> Any:
    tree_sitter = import_optional("tree_sitter", _EXTRA)
    language = getattr(import_optional(module, _EXTRA), function)()
    return tree_sitter.Parser(tree_sitter.Language(language))


def _walk(node: _Node) -> Iterator[_Node]:
    """All nodes, in the source's order; without recursion, as programs may nest deeply."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def _replace(data: bytes, places: list[tuple[int, int, bytes]]) -> bytes:
    for start, end, text in sorted(places, reverse=True):
        data = data[:start] + text + data[end:]
    return data


def _text(node: _Node, data: bytes) -> bytes:
    return data[node.start_byte : node.end_byte]


def _slips(node: _Node, grammar: Grammar, data: bytes) -> Iterator[_Slip]:
    def instead(operator: str, text: bytes, at: _Node = node) -> _Slip:
        return _Slip(operator, at.start_byte, at.end_byte, text)

    node_text = _text(node, data)
    if not node.is_named and node.parent is not None and len(node.parent.children) >= 2:
        yield from (instead(*pair) for pair in _other_signs(node, node_text.decode()))
    if node.type == grammar.numbers and (match := re.match(rb"\d+(?![\d.xX])", node_text)):
        suffix, number = node_text[match.end() :], int(match[0])
        yield from (
            instead("constant", b"%d%b" % (n, suffix)) for n in (number + 1, number - 1) if n >= 0
        )
    if (
        narrower := grammar.types.get(node_text.decode(errors="replace"))
    ) is not None and not node.children[1:]:
        yield instead("types", narrower.encode())
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if node.type == "binary_expression" and left is not None and right is not None:
        sign = data[left.end_byte : right.start_byte]
        is_logic = sign.strip() in (b"&&", b"||")
        operator = "dropped condition" if is_logic else "dropped operand"
        yield from (instead(operator, _text(side, data)) for side in (left, right))
        if sign.strip().decode() not in _COMMUTE:
            yield instead("swapped", _text(right, data) + sign + _text(left, data))
    condition = node.child_by_field_name("condition")
    if condition is not None:
        inner = _text(condition, data)
        yield instead("logic", b"(!(%b))" % inner, condition)
    alternative = node.child_by_field_name("alternative")
    if alternative is not None and node.type in ("if_statement", "if_expression"):
        start = node.child_by_field_name("consequence").end_byte
        yield _Slip("dropped condition", start, alternative.end_byte, b"")
    if node.type in _ARGUMENTS:
        yield from _of_arguments(node, data)
    if node.type in grammar.statements and node.parent.type in _BLOCKS:
        yield instead("dropped statement", b"")


def _other_signs(node: _Node, sign: str) -> Iterator[tuple[str, bytes]]:
    """Operators that a slip writes in an operator's place, each with the kind of slip."""
    is_binary = node.parent.child_by_field_name("left") is not None or "range" in node.parent.type
    for operator, by_sign in _OPERATORS.items():
        for other_sign in by_sign.get(sign, ()) if is_binary else ():
            in_loop = node.parent.parent is not None and node.parent.parent.type.startswith("for")
            kind = "bounds" if operator == "comparison" and in_loop else operator
            yield kind, other_sign.encode()


def _of_arguments(node: _Node, data: bytes) -> Iterator[_Slip]:
    """A call's first two arguments the other way; its only argument in the call's place."""
    call, inner = (
        node.parent,
        [child for child in node.named_children if child.type not in _COMMENTS],
    )
    if call is None or not inner:
        return
    called = data[call.start_byte : node.start_byte].decode(errors="replace")
    if len(inner) > 1 and not _SYMMETRIC.search(called):
        first, second = inner[:2]
        between = data[first.end_byte : second.start_byte]
        text = _text(second, data) + between + _text(first, data)
        yield _Slip("swapped", first.start_byte, second.end_byte, text)
    is_value = call.parent is not None and "statement" not in call.parent.type
    if is_value and "new" not in called.split():
        yield _Slip("dropped call", call.start_byte, call.end_byte, _text(inner[0], data))


def _turns(tree: _Node, data: bytes) -> list[tuple[int, int, bytes]]:
    """The branches of each innermost `if` with braces exchanged, its condition negated."""
    places = []
    for node in _walk(tree):
        fields = [node.child_by_field_name(n) for n in ("condition", "consequence", "alternative")]
        if node.type not in ("if_statement", "if_expression") or None in fields:
            continue
        condition, consequence, alternative = fields
        alternative = (
            alternative.named_children[0] if alternative.type == "else_clause" else alternative
        )
        branches = (consequence, alternative)
        if any(branch.type not in _BLOCKS for branch in branches) or b"let " in _text(
            condition, data
        ):
            continue
        if any(child.type.startswith("if_") for branch in branches for child in _walk(branch)):
            continue
        places += [
            (condition.start_byte, condition.end_byte, b"(!(%b))" % _text(condition, data)),
            (consequence.start_byte, consequence.end_byte, _text(alternative, data)),
            (alternative.start_byte, alternative.end_byte, _text(consequence, data)),
        ]
    return places
