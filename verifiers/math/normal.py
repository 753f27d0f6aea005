"""The exact comparison: equal, different, or cannot tell.

Everything here is decided by fractions, brackets and letters, never by a float, so a decision is final.  Where two
expressions would have to be understood, a `leaf` is asked if the caller has one (the symbolic engine does, inside
its worker); without one the answer is None, as it is where words or unknown units differ and nobody can tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from rlvr.verifiers.math.fold import fold, squeeze
from rlvr.verifiers.math.forms import Choice, Flawed, Form, Named, Quantity, Sequence, Word
from rlvr.verifiers.math.limits import exceeded, too_long
from rlvr.verifiers.math.policy import COMPETITION, MathPolicy
from rlvr.verifiers.math.reading import as_list, read
from rlvr.verifiers.math.units import is_known

__all__ = ["Decision", "Leaf", "compare", "decide"]


@dataclass(frozen=True, slots=True)
class Decision:
    """`equal` is None where nobody can tell; `reason` is short and stable."""

    equal: bool | None
    reason: str


Leaf: TypeAlias = Callable[[Form, Form], bool]
"""Understands expressions: (answer's form, reference's form) → equal."""

_UNDECIDED = Decision(None, "undecided")
_RELATIONS = ("=", "<", ">", r"\le", r"\ge", r"\ne")
_FUNCTION = re.compile(r"(.+)\(([a-z])\)")
_LETTER = re.compile(r"\\[a-zA-Z]+|[a-zA-Z]")
_UNORDERED = frozenset(("list", "set", "union"))


def compare(answer: str, reference: str, policy: MathPolicy = COMPETITION) -> bool | None:
    """Hold one bare answer against one reference; None where the normal form cannot tell, or a limit is broken."""
    if too_long(answer) or too_long(reference):
        return None
    texts = fold(answer), fold(reference)
    if any(map(exceeded, texts)):
        return None
    return decide(read(texts[0]), read(texts[1]), policy).equal


def decide(answer: Form, reference: Form, policy: MathPolicy, leaf: Leaf | None = None) -> Decision:
    """Hold one form against another."""
    return _Comparison(policy, leaf).decide(answer, reference)


@dataclass(frozen=True, slots=True)
class _Comparison:
    policy: MathPolicy
    leaf: Leaf | None

    def decide(self, a: Form, b: Form) -> Decision:
        """The answer's form always stands first, so that whoever understands expressions knows which is which."""
        if isinstance(a, Quantity) and isinstance(b, Quantity) and a.value is not None and b.value is not None:
            return self._numbers(a, b)
        if squeeze(a.text) == squeeze(b.text):
            return Decision(True, "same-text")
        for form in (a, b):
            if isinstance(form, Flawed):
                return Decision(False, form.reason)
        if isinstance(a, Named) or isinstance(b, Named):
            return self._named(a, b)
        if isinstance(a, Choice) or isinstance(b, Choice):
            return self._choices(a, b)
        if isinstance(a, Sequence) or isinstance(b, Sequence):
            return self._sequences(a, b)
        if isinstance(a, Word) or isinstance(b, Word):
            return _words(a, b)
        return self._quantities(a, b)

    def _ask(self, a: Form, b: Form) -> Decision:
        if self.leaf is None:
            return _UNDECIDED
        return Decision(True, "symbolic-equal") if self.leaf(a, b) else Decision(False, "symbolic-different")

    # ------------------------------------------------------------------------------------------ names and choices

    def _named(self, a: Form, b: Form) -> Decision:
        if isinstance(a, Named) and isinstance(b, Named):
            same_name = b if a.name == b.name else _renamed(b, a.name)
            return self.decide(a.body, same_name.body) if same_name else Decision(False, "different-name")
        if _is_relation(a) or _is_relation(b):
            return self._ask(a, b)
        if not self.policy.equation_as_value:
            return Decision(False, "different-kind")
        return self.decide(a.body if isinstance(a, Named) else a, b.body if isinstance(b, Named) else b)

    def _choices(self, a: Form, b: Form) -> Decision:
        if isinstance(a, Choice) and isinstance(b, Choice):
            if a.letter != b.letter:
                return Decision(False, "different-choice")
            clash = a.rest is not None and b.rest is not None and self.decide(a.rest, b.rest).equal is False
            return Decision(False, "different-text") if clash else Decision(True, "same-choice")
        choice, other = (a, b) if isinstance(a, Choice) else (b, a)
        assert isinstance(choice, Choice)
        if len(other.text) == 1 and other.text.isalpha():
            same = other.text.lower() == choice.letter
            return Decision(True, "same-choice") if same else Decision(False, "different-choice")
        if isinstance(other, Sequence) and any(isinstance(item, Choice) for item in other.items):
            return Decision(False, "different-choice")
        if choice.rest is None:
            return Decision(None, "different-kind")  # the text of an option, perhaps of the right one
        return self.decide(choice.rest, b) if choice is a else self.decide(a, choice.rest)

    # -------------------------------------------------------------------------------------------------- sequences

    def _sequences(self, a: Form, b: Form) -> Decision:
        if isinstance(a, Sequence) and isinstance(b, Sequence):
            return self._two_sequences(a, b)
        sequence, other = (a, b) if isinstance(a, Sequence) else (b, a)
        assert isinstance(sequence, Sequence)
        if isinstance(other, Word):
            return Decision(None, "different-kind")
        if "," in other.text and sequence.kind in ("list", "set") and _is_number(other):
            listed = as_list(other.text)  # 1,234 was read as a number, and here are two of them
            return self.decide(a, listed) if other is b else self.decide(listed, b)
        if sequence.kind in ("list", "set") and len(sequence.items) == 1:
            return self.decide(sequence.items[0], b) if sequence is a else self.decide(a, sequence.items[0])
        return Decision(False, "different-kind") if _is_number(other) else self._ask(a, b)

    def _two_sequences(self, a: Sequence, b: Sequence) -> Decision:
        kinds = {a.kind, b.kind}
        if "matrix" in kinds and len(kinds) == 2:
            flat = [_vector(s) if s.kind == "matrix" else s.items for s in (a, b)]
            return self._in_order(*flat) if kinds & {"()", "[]"} else Decision(False, "different-kind")
        if kinds <= _UNORDERED:
            return self._unordered(a, b)
        if "union" in kinds:
            return self._ask(a, b)
        bare = bool(kinds & _UNORDERED)
        if "set" in kinds or (bare and "()" not in kinds and len(a.items) == 2):
            return Decision(False, "different-kind")  # a list without brackets may be a tuple, but no [1, 2]
        if len(kinds) == 2 and not bare and len(a.items) == 2:
            return Decision(False, "different-ends")  # (1, 2] is not (1, 2)
        return self._in_order(a.items, b.items)

    def _unordered(self, a: Sequence, b: Sequence) -> Decision:
        if "union" in (a.kind, b.kind):
            found = self._matched(a, b) if a.kind == b.kind else _UNDECIDED
            return found if found.equal else self._ask(a, b)  # (1,2) ∪ (2,3) ∪ {2} may be written in other parts
        one_is_labelled = _labelled(a) != _labelled(b)  # "y=10, x=1" against "1, 10": nobody knows which was meant
        if one_is_labelled or (self.policy.ordered_lists and a.kind == b.kind == "list"):
            return self._in_order(a.items, b.items)
        if "set" not in (a.kind, b.kind) and len(a.items) != len(b.items):
            return Decision(False, "different-length")
        return self._matched(a, b)

    def _in_order(self, a: tuple[Form, ...], b: tuple[Form, ...]) -> Decision:
        if len(a) != len(b):
            return Decision(False, "different-length")
        return _all([self.decide(x, y) for x, y in zip(a, b, strict=True)])

    def _matched(self, a: Sequence, b: Sequence) -> Decision:
        """Every item has its like on the other side.  Equality is transitive, so the first like will do."""
        if not a.items or not b.items:
            return Decision(False, "different-length") if a.items or b.items else Decision(True, "same-items")
        table: list[list[Decision]] = []
        for item in a.items:
            table.append([self.decide(item, other) for other in b.items])
            if _any(table[-1]).equal is False:
                return Decision(False, "different-items")
        found = _all([_any(row) for row in table] + [_any(column) for column in zip(*table, strict=True)])
        if found.equal and a.kind == b.kind == "list" and not _same_counts(table):
            return Decision(False, "different-items")
        return found

    # ------------------------------------------------------------------------------------------------- quantities

    def _quantities(self, a: Form, b: Form) -> Decision:
        assert isinstance(a, Quantity)
        assert isinstance(b, Quantity)
        units = self._units(a, b)
        return self._ask(a, b) if units.equal else units

    def _numbers(self, a: Quantity, b: Quantity) -> Decision:
        if not self._same_number(a, b):
            return Decision(False, "different-number")
        units = self._units(a, b)
        return Decision(True, "same-number") if units.equal else units

    def _same_number(self, a: Quantity, b: Quantity) -> bool:
        assert a.value is not None
        assert b.value is not None
        x, y = a.value, b.value
        if self.policy.percent == "ignore" or a.percent == b.percent:
            return x == y or self._rounds_to(x, a.places, y, b.places)
        shift = Fraction(1, 100)
        if self.policy.percent == "either" and (x == y or self._rounds_to(x, a.places, y, b.places)):
            return True
        return x * (shift if a.percent else 1) == y * (shift if b.percent else 1)

    def _rounds_to(self, x: Fraction | int, given: int | None, y: Fraction | int, places: int | None) -> bool:
        """Half up, to as many places as the reference shows; the answer must not itself be a shorter decimal."""
        if self.policy.rounding == "exact" or places is None or (given is not None and given < places):
            return False
        scaled = abs(x) * 10**places
        rounded = Fraction(int(scaled + Fraction(1, 2)), 10**places)
        return (rounded if x >= 0 else -rounded) == y

    def _units(self, a: Quantity, b: Quantity) -> Decision:
        """A percent sign is no unit, but it keeps company with none: 5% is not 5 cm."""
        if a.unit == b.unit or self.policy.units == "ignore":
            return Decision(True, "same-unit")
        if "base" in (a.unit[:4], b.unit[:4]):
            return Decision(False, "different-base")
        if (a.percent and b.unit) or (b.percent and a.unit):
            return Decision(False, "different-unit")
        if not a.unit or not b.unit:
            return Decision(True, "unit-omitted")
        certain = is_known(a.unit) and is_known(b.unit)
        return Decision(False if certain else None, "different-unit")


def _words(a: Form, b: Form) -> Decision:
    if isinstance(a, Word) and isinstance(b, Word):
        return Decision(True, "same-text") if a.plain == b.plain else Decision(None, "different-text")
    word, other = (a, b) if isinstance(a, Word) else (b, a)
    assert isinstance(word, Word)
    if squeeze(other.text).casefold() == squeeze(word.plain):
        return Decision(True, "same-text")
    return Decision(None, "different-kind")  # "three" against 3, "no solution" against an empty set


def _is_number(form: Form) -> bool:
    return isinstance(form, Quantity) and form.value is not None


def _is_relation(form: Form) -> bool:
    return isinstance(form, Quantity) and form.value is None and any(sign in form.core for sign in _RELATIONS)


def _labelled(sequence: Sequence) -> bool:
    return any(isinstance(item, Named) for item in sequence.items)


def _vector(matrix: Sequence) -> tuple[Form, ...]:
    """The cells of a single row or column; of a larger matrix the rows, which equal no tuple of numbers."""
    rows = [row.items for row in matrix.items if isinstance(row, Sequence)]
    if len(rows) == 1:
        return rows[0]
    return tuple(row[0] for row in rows) if all(len(row) == 1 for row in rows) else matrix.items


def _any(found: Iterable[Decision]) -> Decision:
    decisions = list(found)
    for verdict in (True, None):
        for decision in decisions:
            if decision.equal is verdict and (verdict or decision.reason == "undecided"):
                return decision
    return Decision(None if any(d.equal is None for d in decisions) else False, "different-items")


def _all(found: list[Decision]) -> Decision:
    """`undecided` only where the symbolic engine could help; not where, say, two words differ."""
    if any(decision.equal is False for decision in found):
        return Decision(False, "different-items")
    unsure = [decision for decision in found if decision.equal is None]
    if not unsure:
        return Decision(True, "same-items")
    hopeless = any(decision.reason != "undecided" for decision in unsure)
    return Decision(None, "different-items") if hopeless else _UNDECIDED


def _same_counts(table: list[list[Decision]]) -> bool:
    """1, 1, 2 is not 1, 2, 2: as lists, each item must occur equally often.  Nothing is undecided here."""
    rows = [[bool(decision.equal) for decision in row] for row in table]
    columns = list(zip(*rows, strict=True))
    return all(sum(row) == sum(columns[j]) for row in rows for j, same in enumerate(row) if same)


def _renamed(form: Named, name: str) -> Named | None:
    """`f(m) = 2m` as `f(n) = 2n`; None if the names differ in more than the bound variable, or n is taken."""
    mine, other = _FUNCTION.fullmatch(form.name), _FUNCTION.fullmatch(name)
    if not mine or not other or mine[1] != other[1] or other[2] in _LETTER.sub(_only_letter, form.body.text).split():
        return None
    text = _LETTER.sub(lambda m: other[2] if m[0] == mine[2] else m[0], form.body.text)
    return Named(form.text, name, read(text))


def _only_letter(match: re.Match[str]) -> str:
    return f" {match[0]} "
