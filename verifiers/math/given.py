r"""What the prompt gives: its formulas and the quantities of its prose,
none of which answers its question.

    prompt ─ formulas, quantities, ratios, times, number words ─▶ trees ─ spelling ─▶ facts
                                                                                        │
    answer ─ spelling of the whole and of its parts ────────────────────────── one of these? ──┘

"Simplify \sqrt{720}" is not answered by \sqrt{720}, nor "Convert 5 km to meters" by 5 km.  A
candidate that the prompt lists stays right, since the reference is written so.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from rlvr.verifiers.math.canonical import balance, spelling
from rlvr.verifiers.math.finished import is_written_out
from rlvr.verifiers.math.fold import squeeze
from rlvr.verifiers.math.forms import Clock, Flawed, Form, Quantity
from rlvr.verifiers.math.latex.names import FUNCTIONS
from rlvr.verifiers.math.latex.tree import Node, TooLarge, walk
from rlvr.verifiers.math.quantity import quantity
from rlvr.verifiers.math.reading import read
from rlvr.verifiers.math.statement import as_tree, inside_of, leaves, tree_or_none
from rlvr.verifiers.math.units import TEMPERATURES, measure
from rlvr.verifiers.math.words import number, number_words

__all__ = ["asked_for", "facts", "formulas", "is_given", "is_other_option", "options"]

# The end of a long prompt holds its question; what lies before is not read.
_MOST_CHARS = 20_000  # of a prompt
_MOST_FORMULAS = 400
_MOST_READ = 4_000  # characters of formulas
_MOST_QUANTITIES = 200
_FORMULA = re.compile(
    r"(?s)\$\$(.{1,4000}?)\$\$|(?<!\\)\$(.{1,4000}?)(?<!\\)\$"
    r"|\\\((.{1,4000}?)\\\)|\\\[(.{1,4000}?)\\\]"
    r"|\\begin\{(?:align|equation|gather|aligned|split)\*?\}(.{1,4000}?)"
    r"\\end\{(?:align|equation|gather|aligned|split)\*?\}",
)
# Words of two letters and more end a run of plain formula; names of functions do not.
_WORD = re.compile(
    rf"(?<![\\A-Za-z])(?!(?:{'|'.join(FUNCTIONS)}|sqrt|log|pi)(?![A-Za-z]))"
    rf"(?:(?![⁰-₉²³¹])[^\W\d_]){{2,}}"
    r"|[?\n]|[.,:;](?=\s|$)"
)
# Where a formula that was not read as a whole is cut: at commas, signs of relation, words.
_PIECES = re.compile(
    r"\\(?:qquad|quad|text|mbox|textrm|mathrm|hbox)(?:\s?\{[^{}]*\})?|\\\\|&|,|;|:|=|\\equiv|<|>"
    r"|\\(?:le|ge|lt|gt|ne)q?(?![a-zA-Z])"
)
# What asks for the value behind a formula: `= ?`, `= \_\_`, `= \boxed{}`.
_ASKED = re.compile(
    r"(?:=|\\equiv)?\s*(?:\\[,;!]|[?_~\s]|\\underline\{[^{}]*\}|\\boxed\{\s*\}|\\_)*$"
)
# A run without an operation is no formula: 12 or n alone.
_OPERATION = re.compile(r"[-+*/^!=<>(|\\\u2212\u00b7\u00d7\u00f7\u221a\u00b2\u00b3]|\d\.\d")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{(?:align|aligned|equation|gather|gathered|split)\*?\}")
# `a 3x + 2` in a sentence: the article is no factor, nor is an I at its end.
_ARTICLE = re.compile(r"^[aAI]\s+|\s+[aAI]$")
# $5, 1,200 apples, 3:30, 2.5 km/h: a number, and up to four words that may be its unit.
_AMOUNT = re.compile(
    r"[$£€]?\d[\d,]*(?::\d+)*(?:\.\d+)?(?:/\d+)?[ -]?"
    r"(?P<after>%|°\s?[CF]?|(?:[A-Za-z/²³^]+[0-9]? ?){0,4})"
)
# (A), \textbf{(A) }, A. and A) before an option
_OPTION = re.compile(
    r"(?:\\(?:textbf|textrm|text|mathrm|mathbf)\s?\{\s?)?"
    r"(?:\(([A-J])\)|(?<![A-Za-z0-9\\$])([A-J])[.):](?=[\s$]))\s{0,2}\}?"
)
_AROUND_OPTION = re.compile(r"^(?:[\s~,:.$]|\\q?quad|\\[ ,;])+|(?:[\s~,;.?$]|\\q?quad|\\[ ,;])+$")
# "Find $xy$", "what is the value of $f(2)$": what an equation must begin with
_ASKED_FOR = re.compile(
    r"(?i)\b(?:find|compute|evaluate|determine|calculate|report|give|what is|value of|"
    r"elements are in)(?: the)?"
    r"(?: exact| numerical)?(?: value)?(?: of)? (?:\$|\\\()([^$]{1,80}?)(?:\$|\\\))",
)
_DERIVATIVE = re.compile(r"'|\\frac ?\{ ?d")
_RATIO = re.compile(r"\b(\d+) to (\d+)\b")
_ATOMS = frozenset("num sym const numbers term spoken text word choice".split())
_GROUPS = frozenset("list set tuple matrix named bounds family".split())
_WRAPS = frozenset(("set", "matrix"))
# Numbers that say more than their digits: these are facts of the prompt, plain ones are not.
_MARKED = frozenset(("unit", "percent", "ratio", "clock", "spoken"))


def is_given(answer: Node, reference: Node, prompt: str, has_value: Callable[[Node], bool]) -> bool:
    """True if a right answer is a fact of the prompt, or holds one that has its value.

    Args:
        answer, reference: as `statement.as_tree` makes them.
        prompt: the text of the prompt.
        has_value: whether a part of the answer has the reference's value.
    """
    reference_spellings = _spellings(reference)
    if answer.op in _WRAPS and len(answer.args) == 1 and reference.op not in _GROUPS:
        [member] = answer.args  # {6} around a number of the prompt
        return not facts(prompt).isdisjoint((spelling(member), ("text", str(member.value))))
    # Written as the reference is: right, even if the prompt has it among candidates.
    if _is_plain(answer) or _bare(answer) in reference_spellings:
        return False
    mine = [
        leaf
        for leaf in leaves(answer)
        if not _is_plain(leaf) and _bare(leaf) not in reference_spellings
    ]
    # Only plain numbers and letters are left, which may well stand in the prompt.
    if not mine and answer.op in _GROUPS | _ATOMS:
        return False
    prompt_facts = facts(prompt)
    wholes = mine if answer.op in _GROUPS else [answer]
    if all(_is_known(whole_answer, prompt_facts) for whole_answer in wholes):
        return not _is_solved_alike(answer, reference)
    return any(
        spelling(part) in prompt_facts and has_value(part)
        for leaf in map(_result, wholes)
        for part in walk(leaf)
        if part is not leaf and part.op not in _ATOMS | _GROUPS and not is_written_out(part)
    )


def _is_known(tree: Node, known: frozenset[Any]) -> bool:
    return spelling(tree) in known or (tree.op == "rel" and balance(tree) in known)


def is_other_option(answer: Node, prompt: str) -> bool:
    """Whether an option is named with the text that the prompt gives to another.

    Args:
        answer: as `statement.as_tree` makes it.
        prompt: the text of the prompt.
    """
    if answer.op != "choice" or not answer.args:
        return False
    said = {letter: as_tree(form) for letter, form in options(prompt).items()}
    own = said.pop(str(answer.value), None)
    return answer.args[0] in said.values() and answer.args[0] != own


@lru_cache(maxsize=512)
def options(prompt: str) -> dict[str, Form]:
    """The options that a prompt lists, by their lower-case letters; empty where it lists none.

    Args:
        prompt: its text; of a long one the end counts.
    """
    _, *parts = _OPTION.split(prompt[-_MOST_CHARS:])
    listed: dict[str, Form] = {}
    for first, second, text in zip(*(parts[at::3] for at in range(3)), strict=True):
        letter = (first or second).lower()
        if letter != "abcdefghij"[len(listed) : len(listed) + 1]:
            continue
        try:
            listed[letter] = read(_AROUND_OPTION.sub("", text.strip().partition("\n")[0]))
        except TooLarge:
            listed[letter] = Flawed(text, "limit")  # no answer is worth it
    return listed if len(listed) > 1 else {}


def _result(leaf: Node) -> Node:
    """What stands behind the last sign of an equation, whose other side may be what was asked."""
    return leaf.args[-1] if leaf.op == "rel" and set(leaf.value) == {"="} else leaf


def _is_plain(leaf: Node) -> bool:
    """A number that is written out, a letter or a word may well stand in the prompt; a quantity may
    not."""
    if leaf.op in _MARKED:
        return False
    is_opposite = leaf.op == "neg" and _is_plain(leaf.args[0])
    return is_opposite or leaf.op in _ATOMS or is_written_out(leaf)


def _bare(tree: Node) -> Any:
    """Without a unit: 5 km is written as the reference 5 is."""
    return spelling(inside_of(tree, "unit", "percent", "named", "family"))


@lru_cache(maxsize=4096)
def _spellings(reference: Node) -> frozenset[Any]:
    """The reference as a whole and the single things in it, with their units and without."""
    parts = (reference, *leaves(reference))
    return frozenset((*map(_bare, parts), *map(spelling, parts)))


def _is_solved_alike(answer: Node, reference: Node) -> bool:
    """An equation may be solved for the letter that the reference is solved for."""
    letter = _solved_for(reference)
    return bool(letter) and _solved_for(answer) == letter


def _solved_for(tree: Node) -> str:
    if tree.op == "named":
        return str(tree.value)
    if tree.op != "rel" or tree.value != ("=",):
        return ""
    return next((arg.value for arg in tree.args if arg.op == "sym"), "")


# -------------------------------------------------------------------------------------------- facts


@lru_cache(maxsize=512)
def facts(prompt: str) -> frozenset[Any]:
    """The spellings of what a prompt gives: each formula, each expression in one, each quantity of
    its prose.

    Args:
        prompt: its text; of a long one the end counts.
    """
    found: set[Any] = set()
    left = _MOST_READ
    for text in reversed(formulas(prompt)):  # the question stands behind examples
        if (left := left - len(text)) < 0:
            break
        whole, is_read = _of_formula(text)
        found |= whole
        if not is_read:
            for piece in dict.fromkeys(_PIECES.split(text)):
                found |= _of_formula(piece)[0]
    for form in itertools.islice(_quantities(prompt[-_MOST_CHARS:]), _MOST_QUANTITIES):
        found.add(spelling(as_tree(form)))
    return frozenset(found)


@lru_cache(maxsize=4096)
def _of_formula(text: str) -> tuple[frozenset[Any], bool]:
    """The spellings, and whether the formula was read, so that its pieces are among them."""
    try:
        form = read(text)
    except TooLarge:
        return frozenset(), False
    if not form.text:
        return frozenset(), False
    tree = as_tree(form)
    inner = [node for node in walk(tree) if node.op not in _ATOMS | _GROUPS]
    equation = tree_or_none(form) if tree.op == "named" else None
    if equation and equation.op == "rel":
        inner.append(equation)
    relations = (balance(node) for node in inner if node.op == "rel")
    spellings = frozenset((*map(spelling, inner), *relations, ("text", squeeze(form.text))))
    return spellings, tree.op == "rel"


@lru_cache(maxsize=512)
def asked_for(prompt: str) -> tuple[Node, ...]:
    """The formulas whose value a prompt asks for, but for derivatives.

    Args:
        prompt: its text; of a long one the end counts.
    """
    found = _ASKED_FOR.findall(prompt[-_MOST_CHARS:])
    texts = [text for text in found if not _DERIVATIVE.search(text)]
    try:
        return tuple(filter(None, map(tree_or_none, map(read, texts[-1:]))))
    except TooLarge:
        return ()


def formulas(prompt: str) -> list[str]:
    """What stands between dollars and the like, and runs of plain text without words; without `= ?`
    at the end.

    Args:
        prompt: its text; of a long one the end counts.
    """
    found = itertools.islice(_formulas(prompt[-_MOST_CHARS:]), _MOST_FORMULAS)
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
        # "-" at both ends is a dash of the prose.
        if any(map(str.isalnum, run)) and _OPERATION.search(run.strip(" -")):
            yield _ARTICLE.sub("", run.strip())


def _quantities(prompt: str) -> Iterator[Form]:
    """5 km, 72 km/h, 100 degrees Celsius, $2, 37.5%, 12:18, 17:30, 1.2 million, twenty-one."""
    for match in _AMOUNT.finditer(prompt):
        amount = match[0].removesuffix(match["after"]).rstrip(" -")
        words = match["after"].split()
        # With none, one, two … of the words: "5 km per hour" is also 5 and 5 km.
        readings = (_quantity(amount, " ".join(words[:count])) for count in range(len(words) + 1))
        yield from filter(None, readings)
    for ratio in _RATIO.finditer(prompt):
        yield read(f"{ratio[1]}:{ratio[2]}")
    for words in number_words(prompt):
        if (value := number(words)) is not None:
            yield Quantity(words, words, value)


def _quantity(amount: str, words: str) -> Form | None:
    """A number with a unit, a sign or a scale; no plain number is a fact."""
    if words[:1] in ("%", "°"):
        return read(f"{amount}{words}")
    form = quantity(f'{amount} "{words}"') if words else read(amount)
    if not isinstance(form, Quantity | Clock) or as_tree(form).op not in _MARKED:
        return None
    unit = form.unit if isinstance(form, Quantity) else ""
    # A unit that has no measure, `5 apples`, is no fact: the answer may well be 5 apples.
    return form if unit in ("", ":") or unit in TEMPERATURES or measure(unit) else None
