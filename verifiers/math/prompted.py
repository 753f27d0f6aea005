r"""Other readings of an answer that only its prompt shows to be meant.

median, beside B. median         the letter of the option
101101, asked for base 2         101101_2; and the other way round
2.5 eV, asked for eV             2.5
(s, 1+2s), where the prompt      the line (t, 1+2t)
speaks neither of s nor of t
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from rlvr.verifiers.math.arithmetic import NotArithmetic, UndefinedNumber, value_of
from rlvr.verifiers.math.asked import named_units
from rlvr.verifiers.math.fold import fold_unicode, squeeze
from rlvr.verifiers.math.forms import Choice, Form, Named, Quantity, Word
from rlvr.verifiers.math.given import formulas, options
from rlvr.verifiers.math.latex.tree import Node, TooLarge, free_symbols, num, replace_part, sym
from rlvr.verifiers.math.normal import decide_forms
from rlvr.verifiers.math.policy import MathPolicy
from rlvr.verifiers.math.quantity import built, quantity, read_based, read_measured
from rlvr.verifiers.math.reading import read_without_remark
from rlvr.verifiers.math.shapes import are_parallel, letters, rename
from rlvr.verifiers.math.statement import as_tree, inside_of, name_tree
from rlvr.verifiers.math.words import number as number_word
from rlvr.verifiers.math.words import plain

__all__ = ["has_other_sides", "readings"]

_IN_BASE = re.compile(r"(?i)\bbase\b|\bbinary|\boctal|\bhexadecimal|\bdigits\b|_\{?\d{1,2}\b")
_ASKED_BASE = re.compile(
    r"(?i)\b(?:in|to|into|as|using)\s+(?:a\s+|an\s+)?"
    r"(?:base[-\s]*[\\${(]*(?P<base>\d{1,2}\b|[a-z]+)|(?P<name>binary|octal|hexadecimal)\b)",
)
_NAMED_BASES = {"binary": 2, "octal": 8, "hexadecimal": 16}
_DIGITS = re.compile(r"[0-9A-Fa-f]{1,40}")
# Quadrant III, the third quadrant, Q3
_QUADRANT = re.compile(
    r"(?:it (?:is|lies) )?(?:in )?(?:the )?(?:quadrant |q)?"
    r"(?P<number>i{1,3}|iv|[1-4]|first|second|third|fourth|1st|2nd|3rd|4th)(?: quadrant)?"
)
_ROMAN = ("i", "ii", "iii", "iv")
# 2 "cm" by 3 "cm", 2 \times 3
_BY = re.compile(r' ?(?:\\times|\\cdot|[ "]by[ "]|,|(?<=[\d" ])x(?= ?\d)) ?')
_SIDE = re.compile(
    r'([\d.]{1,12}|(?:\d{1,3} ?)?\\frac ?\{\d{1,6}\} ?\{\d{1,6}\})(?: ?"?([a-z]{1,12})"?)?'
)
_OF_VECTOR = re.compile(r"(?i)\b(?:magnitude|norm|modulus)\b")
_ORDER = re.compile(
    r"\b[Ww]hich\b[^.?]{0,40}\b(?:(?P<more>larger|greater|bigger)|smaller|less|fewer)\b"
)
# One of these may have another name, if neither name is the prompt's: letters that run through
# numbers or along a line; and constants, or a sequence, beside letters that the prompt has.
_RUNNING = frozenset("k l m n s t u x lambda mu alpha beta tau".split())
_OWN = _RUNNING | frozenset("a b c p q y z A B C K".split())
_GREEK = r"\\?(?:lambda|mu|alpha|beta|tau)\b"
_LETTER = re.compile(rf"{_GREEK}|(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])")
_LETTER_IN_FORMULA = re.compile(rf"{_GREEK}|\\[A-Za-z]+|[A-Za-z]")
# No letter: "a" and a word, but for words that follow a name.
_ARTICLE = re.compile(r"\b[aA] (?!(?:and|as|be|for|in|is|or|to|when|where|with)\b)(?=[a-z]{2})")
_AT = (0, 1, 1_000_003)


def readings(text: str, form: Form, right: Form, prompt: str, policy: MathPolicy) -> Iterator[Form]:
    """The other readings of an answer that differs from its reference, likeliest first.

    Args:
        text: the answer.
        form: as it was read.
        right: the reference.
        prompt: the prompt's text, "" where it is not known.
        policy: what counts as equal.
    """
    is_number = isinstance(form, Quantity) and form.value is not None and not form.unit
    if not is_number and (shorter := read_without_remark(text, prompt)):
        yield shorter
    if not prompt:
        return
    if "quadrant" in prompt and (which := _quadrant(right)) and _quadrant(form) == which:
        yield right
    if isinstance(form, Word) and isinstance(right, Word) and right.plain.startswith("date "):
        _, year, day = right.plain.split(" ", 2)
        if form.plain == f"date 0 {day}" and year in prompt:
            yield right
    if "dimensions" in prompt and _have_same_sides(form.text, right.text):
        yield right
    if isinstance(form, Choice) != isinstance(right, Choice):
        yield from _by_option(form, right, prompt, policy)
    if isinstance(right, Quantity) and right.unit.startswith("base "):
        base = right.unit.removeprefix("base ")
        digits = squeeze(form.text)
        if _IN_BASE.search(prompt) and _DIGITS.fullmatch(digits):
            yield from filter(None, [read_based(f"{digits.upper()}_{base}")])
    elif isinstance(form, Quantity) and form.unit.startswith("base "):
        base = form.unit.removeprefix("base ")
        based = read_based(f"{squeeze(right.text)}_{base}")
        if based and based.value == form.value and int(base) in _asked_bases(prompt):
            yield right
    elif isinstance(right, Quantity) and right.value is not None and not right.unit:
        amount = form.body if isinstance(form, Named) else form  # T = 298 K
        measured = None if is_number else read_measured(amount.text)
        if measured is not None and measured.unit in named_units(prompt):
            yield measured
    sides = form.sides if isinstance(form, Quantity) else ()
    asked = squeeze(sides[0].text) if len(sides) == 2 else ""
    is_size = asked[-1:] == "|" and _OF_VECTOR.search(prompt)
    if is_size or (len(asked) > 1 and asked in map(squeeze, formulas(prompt))):
        yield sides[1]  # |z| = 5, where |z| is asked for
    if is_number:
        return
    if order := _ORDER.search(prompt):
        tree = as_tree(form)
        if tree.op == "rel" and tree.value in (("<",), (">",)):  # 5/8 > 3/5
            yield built(tree.args[(tree.value == (">",)) is not (order["more"] is not None)])
    yield from _with_letters_of(form, right, prompt)


def has_other_sides(answer: str, reference: str, prompt: str) -> bool:
    """Whether a prompt asks for dimensions, 2 by 2 by 4, and an answer names others: 16.

    Args:
        answer, reference: as their forms have them.
        prompt: its text.
    """
    is_due = "dimensions" in prompt and bool(_sides(reference)[1:])
    return is_due and not _have_same_sides(answer, reference)


def _have_same_sides(answer: str, reference: str) -> bool:
    mine, others = _sides(answer), _sides(reference)
    if len(mine) < 2 or [value for value, _ in mine] != [value for value, _ in others]:
        return False
    units, due = ({unit for _, unit in sides} for sides in (mine, others))
    return units <= due or (due == {""} and len(units - due) == 1) or units == {""}


def _sides(text: str) -> list[tuple[Fraction, str]]:
    """The amounts in `2 cm by 3 cm`, the least first; none of anything else."""
    parts = list(map(_SIDE.fullmatch, _BY.split(text)))
    if not 2 <= len(parts) <= 3:
        return []
    texts = [f'{part[1]} "{part[2]}"' if part[2] else part[1] for part in parts if part]
    forms = [form for form in map(quantity, texts) if isinstance(form, Quantity) and form.value]
    sides = sorted((Fraction(form.value or 0), form.unit) for form in forms)
    return sides if len(sides) == len(parts) else []


def _quadrant(form: Form) -> str:
    named = _QUADRANT.fullmatch(plain(form.text))
    if named is None:
        return ""
    which = named["number"]
    number = number_word(which) or (which[0] if which[0].isdigit() else None)
    return _ROMAN[int(number) - 1] if number else which


def _asked_bases(prompt: str) -> Iterator[int]:
    for match in _ASKED_BASE.finditer(prompt):
        if match["name"]:
            yield _NAMED_BASES[match["name"].lower()]
        elif match["base"].isdecimal():
            yield int(match["base"])
        elif (number := number_word(match["base"].lower())) is not None:
            yield int(number)


def _by_option(form: Form, right: Form, prompt: str, policy: MathPolicy) -> Iterator[Form]:
    """The letter of the one option that was written out, or the text of an option that was named by
    its letter."""
    listed = options(prompt)
    if not isinstance(form, Choice):
        same = [letter for letter, said in listed.items() if _is_same(form, said, policy)]
        if len(same) == 1:
            yield Choice(form.text, same[0], form)
    elif form.rest is None and form.letter in listed:
        yield listed[form.letter]


def _is_same(form: Form, other: Form, policy: MathPolicy) -> bool:
    try:
        return bool(decide_forms(form, other, policy).equal)
    except TooLarge:
        return False


def _with_letters_of(form: Form, right: Form, prompt: str) -> Iterator[Form]:
    """With the reference's letter for the one that is the answer's own; the reference for the same
    line."""
    if as_tree(form).op == "sym":
        return  # a letter alone is no parameter
    mine, others = _names(form), _names(right)
    old, new, shared, given = mine - others, others - mine, mine & others, _given(prompt)
    # F = mk is no F = ma, where the prompt has none of these.
    may_differ = (
        old | new <= _RUNNING or shared & given or (old <= _heads(form) and new <= _heads(right))
    )
    is_one = len(old) == len(new) == 1 and shared <= given | _RUNNING
    if is_one and may_differ and old | new <= _OWN - given:
        yield rename(form, dict(zip(old, new, strict=True)))
    if mine and others and not (mine | others) & given and _is_same_line(form, right):
        yield right


def _names(form: Form) -> frozenset[str]:
    """The letters of a form, and that of a sequence which it names."""
    return frozenset(letters(form) | _heads(form) | free_symbols(as_tree(form)) & _OWN)


def _heads(form: Form) -> set[str]:
    """a of a_n = 2^n."""
    named = free_symbols(name_tree(form)) if isinstance(form, Named) else ()
    return {name.partition("_")[0] for name in named if "_" in name}


@lru_cache(maxsize=512)
def _given(prompt: str) -> frozenset[str]:
    """The letters that a prompt speaks of; an article is none."""
    prompt = fold_unicode(prompt)
    found = _LETTER.findall(_ARTICLE.sub("", prompt))
    found += (name for text in formulas(prompt) for name in _LETTER_IN_FORMULA.findall(text))
    return frozenset(name.lstrip("\\") for name in found)


def _is_same_line(form: Form, right: Form) -> bool:
    try:
        (start, step), (other_start, other_step) = map(_line, (form, right))
        gap = [x - y for x, y in zip(start, other_start, strict=True)]
    except (NotArithmetic, UndefinedNumber, ValueError):
        return False
    return any(step) and are_parallel(step, other_step) and are_parallel(gap, other_step)


def _line(form: Form) -> tuple[list[Fraction], list[Fraction]]:
    """A point of it and its direction, if one letter runs along it.

    Raises:
        ValueError, NotArithmetic, UndefinedNumber: it is no such line.
    """
    tree = inside_of(as_tree(form), "named", "family")
    [letter] = free_symbols(tree)
    start, second, third = (_point(replace_part(tree, sym(letter), num(n))) for n in _AT)
    step = [y - x for x, y in zip(start, second, strict=True)]
    if [x + _AT[2] * d for x, d in zip(start, step, strict=True)] != third:
        raise ValueError("it is curved")
    return start, step


def _point(tree: Node) -> list[Fraction]:
    """The coordinates of a tuple, a column, `x = 1, y = 2`, or a sum of such."""
    if tree.op in ("tuple", "matrix") or (tree.op == "list" and _names_axes(tree)):
        return [value_of(arg.args[0] if arg.op == "named" else arg) for arg in tree.args]
    if tree.op == "add":
        return [sum(column, Fraction(0)) for column in zip(*map(_point, tree.args), strict=True)]
    if tree.op == "neg":
        return [-x for x in _point(tree.args[0])]
    if tree.op == "mul":
        *factors, vector = tree.args
        size = value_of(Node("mul", tuple(factors)) if factors[1:] else factors[0])
        return [size * x for x in _point(vector)]
    raise ValueError("no vector")


def _names_axes(tree: Node) -> bool:
    names = [arg.value if arg.op == "named" else "" for arg in tree.args]
    return 2 <= len(names) <= 3 and names == list("xyz"[: len(names)])
