r"""Whether an answer is an expression of the prompt: "Simplify \sqrt{720}" is not answered by \sqrt{720}.

    prompt ─ formulas, runs of plain text ─▶ trees ─ canonical ─▶ every expression in them
                                                                            │
    answer ─ canonical ──────────────────────────────────── one of these? ──┘

An answer in the reference's own form is none of these: a candidate that the prompt lists may be right.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from rlvr.verifiers.math.canonical import canonical, loosened
from rlvr.verifiers.math.fold import fold, squeeze
from rlvr.verifiers.math.form import is_numeral, leaves, tree_of
from rlvr.verifiers.math.forms import Choice, Clock, Family, Form, Items, Named, Quantity, Word
from rlvr.verifiers.math.latex import Node, TooLarge, Unreadable, parse
from rlvr.verifiers.math.latex.names import FUNCTIONS
from rlvr.verifiers.math.latex.tree import walk
from rlvr.verifiers.math.limits import exceeded, too_long
from rlvr.verifiers.math.unfinished import is_written_out, notation

__all__ = ["expressions", "formulas", "restated"]

_MOST_CHARS = 20_000  # of a prompt
_MOST_FORMULAS = 400
_FORMULA = re.compile(
    r"\$\$(.{1,4000}?)\$\$|(?<!\\)\$(.{1,4000}?)(?<!\\)\$|\\\((.{1,4000}?)\\\)|\\\[(.{1,4000}?)\\\]"
    r"|\\begin\{(?:align|equation|gather|aligned|split)\*?\}(.{1,4000}?)\\end\{(?:align|equation|gather|aligned|split)\*?\}",
    re.DOTALL,
)
_WORD = re.compile(
    rf"(?<![\\A-Za-z])(?!(?:{'|'.join(FUNCTIONS)}|sqrt|log|pi)(?![A-Za-z]))(?:(?![⁰-₉²³¹])[^\W\d_]){{2,}}|[?\n]|[.,:;](?=\s|$)"
)
_PIECES = re.compile(
    r"\\(?:qquad|quad|text|mbox|textrm|mathrm|hbox)(?:\s?\{[^{}]*\})?|\\\\|&|,|;|:|=|\\equiv|<|>|\\(?:le|ge|lt|gt|ne)q?(?![a-zA-Z])"
)
_ASKED = re.compile(
    r"(?:=|\\equiv)?\s*(?:\\[,;!]|[?_~\s]|\\underline\{[^{}]*\}|\\boxed\{\s*\}|\\_)*$"
)
_OPERATION = re.compile(r"[-+*/^!=<>(|\\\u2212\u00b7\u00d7\u00f7\u221a\u00b2\u00b3]|\d\.\d")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{(?:align|aligned|equation|gather|gathered|split)\*?\}")
_PLAIN_KINDS = frozenset(("()", "[]", "(]", "[)", "set", "list", "either", "matrix", "row", ":"))
_ARTICLE = re.compile(r"^[aAI]\s+|\s+[aAI]$")
_ATOMS = frozenset(("num", "sym", "const", "numbers", "term"))


def restated(answer: Form, reference: Form, prompt: str) -> bool:
    """True if a right answer is made of expressions of the prompt, and is not written as the reference is.

    A number that is written out may stand in the prompt, unless this says by name that it wants another notation:
    "Express 3/20 as a decimal", "Write 6/8 in lowest terms".

    Args:
        answer, reference: as `reading.read` makes them.
        prompt: the text of the prompt.
    """
    if isinstance(said := _unnamed(answer), Quantity) and is_numeral(said):
        return _is_number_asked_for(said, _unnamed(reference), prompt)
    if _is_plain(answer):
        return False
    own, known = _forms(reference), expressions(prompt)
    mine = [leaf for leaf in leaves(answer) if not _says_nothing(leaf) and not _forms(leaf) & own]
    if _forms(answer, whole=True) & own:
        return False
    if not mine:
        return not _is_plain(answer, own) and bool(_forms(answer, whole=True) & known)
    if (
        all((_forms(leaf) | _loose(leaf)) & known for leaf in mine)
        or _forms(answer, whole=True) & known
    ):
        return True
    is_solved = _solved_for(reference) and _solved_for(answer) == _solved_for(reference)
    return not is_solved and bool(_loose(answer) & known)


@lru_cache(maxsize=128)
def expressions(prompt: str) -> frozenset[Any]:
    """Every expression of a prompt and every one in it, in canonical form; what cannot be read, as squeezed text.

    Args:
        prompt: its text; of a long one the beginning counts.
    """
    found: set[Any] = set()
    for text in formulas(prompt):
        for piece in (text, *_PIECES.split(text)):
            found |= _read(piece)
    return frozenset(found)


def _read(text: str) -> set[Any]:
    folded = "" if not text or too_long(text) else fold(text)
    if not folded or exceeded(folded):
        return set()
    try:
        tree = parse(folded)
    except (Unreadable, TooLarge, RecursionError):
        return {squeeze(folded)}
    inner = list(walk(tree))
    numbers = {("number", *written) for node in inner if (written := notation(node)) is not None}
    known = [node for node in inner if node.op not in _ATOMS]
    return {
        *map(canonical, known),
        *(("loose", loosened(node)) for node in known),
        *numbers,
        squeeze(folded),
    }


def formulas(prompt: str) -> list[str]:
    """What stands between dollars and the like, and runs of plain text without words; without `= ?` at the end.

    Args:
        prompt: its text; of a long one the beginning counts.
    """
    found = itertools.islice(_formulas(prompt[:_MOST_CHARS]), _MOST_FORMULAS)
    stripped = (_ENVIRONMENT.sub(" ", formula).strip() for formula in found)
    return [text for formula in stripped if (text := _ASKED.sub("", formula).strip())]


def _formulas(prompt: str) -> Iterator[str]:
    at = 0
    for match in _FORMULA.finditer(prompt):
        yield from _runs(prompt[at : match.start()])
        yield next(filter(None, match.groups()), "")
        at = match.end()
    yield from _runs(prompt[at:])


def _runs(text: str) -> Iterator[str]:
    for run in _WORD.split(text):
        if any(map(str.isalnum, run)) and _OPERATION.search(run.strip(" -")):
            yield _ARTICLE.sub("", run.strip())


# ---------------------------------------------------------------------------------------------------------- numbers


def _unnamed(form: Form) -> Form:
    while isinstance(form, Named | Family):
        form = form.body
    return form


def _is_number_asked_for(answer: Quantity, reference: Form, prompt: str) -> bool:
    """A number of the prompt, where the prompt asks for the notation of the reference, and the answer has another."""
    if not isinstance(reference, Quantity) or answer.core.isdigit():
        return False
    trees = tree_of(answer), tree_of(reference)
    mine, theirs = (notation(tree) if tree is not None else None for tree in trees)
    if mine is None or theirs is None:
        return False
    unreduced = mine[0] == "fraction" and math.gcd(int(mine[1]), mine[2]) > 1
    asked = _ASKS_FOR[theirs[0]] if mine[0] != theirs[0] else _LOWEST_TERMS if unreduced else None
    return (
        asked is not None
        and asked.search(prompt) is not None
        and ("number", *mine) in expressions(prompt)
    )


_LOWEST_TERMS = re.compile(r"\b(?:lowest|simplest|simplif|reduce)", re.IGNORECASE)
_ASKS_FOR = {
    "whole": re.compile(
        r"\b(?:integer|whole|simplif|reduce|evaluate|compute|calculate)", re.IGNORECASE
    ),
    "decimal": re.compile(r"\bdecimal", re.IGNORECASE),
    "fraction": re.compile(r"\b(?:fraction|lowest|simplest)", re.IGNORECASE),
    "mixed": re.compile(r"\bmixed\b", re.IGNORECASE),
    "scientific": re.compile(r"\bscientific\b", re.IGNORECASE),
}


# ------------------------------------------------------------------------------------------------------------ forms


def _is_plain(form: Form, own: frozenset[Any] = frozenset()) -> bool:
    """True where nothing is written but single things that say nothing, or that the reference has, and their brackets.

    0 < x < 1 is plain, |x| < 1 is not, and no union of two sets.
    """
    if isinstance(form, Family):
        return _is_plain(form.body, own)
    if isinstance(form, Named):
        tree = _whole_tree(form)
        sides = tree.args if tree is not None and tree.op == "rel" else ()
        return _is_plain(form.body, own) and all(
            _is_atom(side) or is_written_out(side) for side in sides[1:-1] or sides
        )
    if isinstance(form, Items):
        return form.kind in _PLAIN_KINDS and all(_is_plain(item, own) for item in form.items)
    return _says_nothing(form) or bool(_forms(form) & own)


def _says_nothing(leaf: Form) -> bool:
    """A number that is written out, a letter or a word may well stand in the prompt."""
    if isinstance(leaf, Word | Clock | Choice):
        return True
    if not isinstance(leaf, Quantity) or is_numeral(leaf):
        return True
    tree = tree_of(leaf)
    return tree is not None and _is_atom(tree)


def _is_atom(tree: Node) -> bool:
    return tree.op in _ATOMS or (tree.op == "neg" and _is_atom(tree.args[0]))


@lru_cache(maxsize=4096)
def _forms(form: Form, *, whole: bool = False) -> frozenset[Any]:
    """Canonical forms of what it says: as a whole, and of the single things in it."""
    found: set[Any] = {squeeze(form.text)}
    for text in {form.text} | (
        set() if whole else {leaf.core for leaf in leaves(form) if isinstance(leaf, Quantity)}
    ):
        try:
            found.add(canonical(parse(text)))
        except (Unreadable, TooLarge, RecursionError):
            found.add(squeeze(text))
    return frozenset(found)


def _whole_tree(form: Form) -> Node | None:
    try:
        return parse(form.text)
    except (Unreadable, TooLarge, RecursionError):
        return None


def _loose(form: Form) -> frozenset[Any]:
    """The looser form of an expression or an equation."""
    tree = tree_of(form) if isinstance(form, Quantity) and not form.unit else _whole_tree(form)
    return frozenset() if tree is None or _is_atom(tree) else frozenset({("loose", loosened(tree))})


def _solved_for(form: Form) -> str:
    """The letter that stands alone on one side of an equation."""
    tree = _whole_tree(form)
    if tree is None or tree.op != "rel" or tree.value != ("=",):
        return ""
    return next((arg.value for arg in tree.args if arg.op == "sym"), "")
