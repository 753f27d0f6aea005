"""Reading a folded text into a form: lists, brackets, equations, unions, choices; `quantity.py` reads the rest."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from fractions import Fraction

from rlvr.verifiers.math.fold import squeeze
from rlvr.verifiers.math.forms import Choice, Flawed, Form, Named, Quantity, Sequence, Word
from rlvr.verifiers.math.quantity import literal, quantity, word

__all__ = ["as_list", "read"]

_BRACKETS = r"(?P<open>\\begin|\\\{|\\langle|[(\[{])|(?P<close>\\end|\\\}|\\rangle|[)\]}])|\\[a-zA-Z]+"
_COMMAS = re.compile(rf"(?P<cut>[,;])|{_BRACKETS}")
_EQUALS = re.compile(rf"(?P<cut>(?<![<>!:])=(?!=)|\\in(?![a-zA-Z]))|{_BRACKETS}")
_ABOUT = re.compile(rf"(?P<cut>\\approx)|{_BRACKETS}")
_CUPS = re.compile(rf"(?P<cut>\\cup(?![a-zA-Z]))|{_BRACKETS}")
_ROWS = re.compile(rf"(?P<cut>\\\\)|{_BRACKETS}")
_CELLS = re.compile(rf"(?P<cut>&)|{_BRACKETS}")

_ARGUMENTS = r"\( ?[a-zA-Z](?: ?, ?[a-zA-Z])* ?\)"
_NAME = re.compile(
    rf"(?:\"?[A-Za-z]{{1,20}}\"?|\\[a-zA-Z]+) ?(?:_ ?\{{?\w{{1,8}}\}}?)?'? ?(?:{_ARGUMENTS})?|{_ARGUMENTS}"
)
_LABEL = re.compile(r"\"?([A-Za-z][A-Za-z ]{0,30})\"?: (.*)")
_MATRIX = re.compile(r"\\begin ?\{([pb]?matrix)\}(.*)\\end ?\{\1\}", re.DOTALL)
_BUILDER = re.compile(r"[a-z] ?[|:] ?([^|:,;]*(?:[<>]|\\le|\\ge)[^|:,;]*)")
_CHOICE = re.compile(r"\"?\( ?([A-Ja-j]) ?\)\"?|\"([A-Ja-j])[.:)]?\"|([A-J])(?:[.:)]|$)")
_CLOCK = re.compile(r"(\d{1,2}(?::\d\d){1,2})(?: ?\"? ?([ap])\.? ?m\.?\"?)?", re.IGNORECASE)
_RATIO = re.compile(r"(\d+) ?: ?([1-9]\d*)")
_LETTERS = re.compile(r"[^\W\d_]+(?:[ .'\-]+[^\W\d_]+)*")
_SHORT_WORDS = frozenset("yes no odd true even all any max min one two six ten red new old".split())
_MAX_SIGNS = 16  # how many readings a tuple with several ± may stand for


def read(text: str) -> Form:
    """The form of a folded text within the limits."""
    if number := literal(text):
        return number
    parts = _cut(text, _COMMAS)
    return Sequence(text, "list", _flat(parts)) if len(parts) > 1 else _single(parts[0] if parts else text)


def as_list(text: str) -> Sequence:
    """The other reading of `1,234`, which the other side's form may call for."""
    return Sequence(text, "list", _flat(_cut(text, _COMMAS)))


def _cut(text: str, separator: re.Pattern[str]) -> list[str]:
    """The non-empty parts between separators outside all brackets; the whole where brackets do not match."""
    parts, depth, start = [], 0, 0
    for match in separator.finditer(text):
        kind = match.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
            if depth < 0:
                return [text]
        elif kind == "cut" and depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    parts.append(text[start:].strip())
    return [part for part in parts if part] if depth == 0 else [text]


def _flat(parts: list[str]) -> tuple[Form, ...]:
    r"""Read each part; what `\pm` splits in two joins the others."""
    items: list[Form] = []
    for form in map(_single, parts):
        items += form.items if isinstance(form, Sequence) and form.kind == "list" else [form]
    return tuple(items)


def _single(text: str) -> Form:
    """One thing, with no separator outside brackets."""
    if number := literal(text):
        return number
    for reader in (_choice, _labelled, _equation, _bracketed, _union, _two_signs, _wordlike):
        if (form := reader(text)) is not None:
            return form
    return quantity(text)


def _choice(text: str) -> Choice | None:
    match = _CHOICE.match(text)
    if match is None:
        return None
    letter, rest = next(filter(None, match.groups())), text[match.end() :].strip(" :.")
    if rest and letter.islower():
        return None  # (a)(b+1) is a product
    return Choice(text, letter.lower(), read(rest) if rest else None)


def _labelled(text: str) -> Named | None:
    label = _LABEL.fullmatch(text)
    return Named(text, label[1].lower(), read(label[2])) if label else None


def _equation(text: str) -> Form | None:
    if r"\approx" in text and len(about := _cut(text, _ABOUT)) == 2:
        named = _NAME.fullmatch(about[0])  # x ≈ 1.41 states 1.41; √2 ≈ 1.41 states √2
        return Named(text, squeeze(about[0]), read(about[1])) if named else _single(about[0])
    if "=" not in text and r"\in" not in text:
        return None
    parts = _cut(text, _EQUALS)
    if len(parts) < 2:
        return None
    names = list(itertools.takewhile(_NAME.fullmatch, parts[:-1]))
    name = "=".join(map(squeeze, names)) or None  # x = y = z = 1 names three things at once
    if len(names) == len(parts) - 1:
        return _tautology(text, *parts[-2:]) or Named(text, name or "", read(parts[-1]))
    return _chain(text, name, parts[len(names) :])


def _tautology(text: str, left: str, right: str) -> Flawed | None:
    return Flawed(text, "tautology") if squeeze(left) == squeeze(right) else None


def _chain(text: str, name: str | None, sides: list[str]) -> Form:
    """x = 2 + 3 = 5 is 5 because arithmetic says so; a longer chain that it cannot vouch for is flawed."""
    for left, right in itertools.pairwise(sides):
        if flawed := _tautology(text, left, right):
            return flawed
    forms = [quantity(side) for side in sides]
    values = [form.value if isinstance(form, Quantity) else None for form in forms]
    last = forms[-1]
    if isinstance(last, Quantity) and values[0] is not None and values.count(values[0]) == len(values):
        return replace(last, text=text) if name is None else Named(text, name, last)
    if len(sides) == 2 and name is None and None in values:
        return Quantity(text, text)  # an equation such as x + y = 3
    return Flawed(text, "chain")


def _bracketed(text: str) -> Form | None:
    if matrix := _MATRIX.fullmatch(text):
        rows = [_cut(row, _CELLS) for row in _cut(matrix[2].strip(), _ROWS)]
        return Sequence(text, "matrix", tuple(Sequence(" & ".join(r), "row", tuple(map(_single, r))) for r in rows))
    opening, closing = _brackets(text)
    if not opening:
        return None
    inner = text[len(opening) : -len(closing)].strip()
    parts = _cut(inner, _COMMAS)
    if opening == r"\{":
        if builder := _BUILDER.fullmatch(inner):
            return _single(builder[1])  # {x | -2 < x < 3} says no more than -2 < x < 3
        return None if "|" in inner or ":" in inner else Sequence(text, "set", _flat(parts))
    if len(parts) > 1:
        return _signed_tuples(text, "()" if opening == r"\langle" else opening + closing, list(map(_single, parts)))
    return _single(parts[0]) if (opening, closing) == ("(", ")") and parts else None


def _brackets(text: str) -> tuple[str, str]:
    """The pair that encloses the whole text; two empty strings if none does."""
    depth, first = 0, ""
    for match in _COMMAS.finditer(text):
        if match.lastgroup == "open":
            if not first and match.start() > 0:
                return "", ""
            first = first or match[0]
            depth += 1
        elif match.lastgroup == "close":
            depth -= 1
            if depth <= 0:
                whole = depth == 0 and match.end() == len(text) and first not in (r"\begin", "{")
                return (first, match[0]) if whole else ("", "")
    return "", ""


def _signed_tuples(text: str, kind: str, items: list[Form]) -> Sequence:
    r"""(\pm 1, \pm 2) lists four points."""
    choices = [form.items if isinstance(form, Sequence) and form.kind == "list" else (form,) for form in items]
    tuples = list(itertools.islice(itertools.product(*choices), _MAX_SIGNS + 1))
    if len(tuples) == 1 or len(tuples) > _MAX_SIGNS:
        return Sequence(text, kind, tuple(items))
    return Sequence(text, "list", tuple(Sequence(" , ".join(f.text for f in t), kind, t) for t in tuples))


def _union(text: str) -> Sequence | None:
    if r"\cup" not in text:
        return None
    parts = _cut(text, _CUPS)
    return Sequence(text, "union", tuple(map(_single, parts))) if len(parts) > 1 else None


def _two_signs(text: str) -> Sequence | None:
    if text.count(r"\pm") != 1 or r"\mp" in text:
        return None
    before, after = text.split(r"\pm")
    plus = f"{before}+{after}" if before.strip() else after
    return Sequence(text, "list", (_single(plus.strip()), _single(f"{before}-{after}")))


def _wordlike(text: str) -> Form | None:
    if clock := _CLOCK.fullmatch(text):
        return Word(text, f"{clock[1].lstrip('0')} {(clock[2] or '').lower()}")
    if ratio := _RATIO.fullmatch(text):
        return Quantity(text, text, Fraction(int(ratio[1]), int(ratio[2])), ":")
    plain = " ".join(text.replace('"', " ").split())
    if not _LETTERS.fullmatch(plain):
        return None
    certain = '"' in text or " " in plain or len(plain) > 3 or not plain.isascii() or plain.lower() in _SHORT_WORDS
    return word(text) if certain else None
