"""The exact comparison: equal, different, or cannot tell.

It compares fractions, brackets and letters, never floats, so that its decisions are final.  Two
expressions are left to a `leaf`, if the caller has one (the symbolic engine does, in its worker);
without one the result is None, as for words and unknown units that differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from rlvr.verifiers.math.fold import squeeze
from rlvr.verifiers.math.forms import (
    Choice,
    Clock,
    Family,
    Flawed,
    Form,
    Items,
    Named,
    Quantity,
    Word,
    form_kind,
)
from rlvr.verifiers.math.matching import (
    UNDECIDED,
    Decision,
    Leaf,
    all_of,
    judged,
    match_counted,
    match_items,
)
from rlvr.verifiers.math.numbers import numbers, quantities
from rlvr.verifiers.math.policy import MathPolicy
from rlvr.verifiers.math.quantity import read_measured, scaled
from rlvr.verifiers.math.residues import remainder, same_classes
from rlvr.verifiers.math.shapes import (
    has_exact_value,
    imaginary_j,
    in_alphabet,
    in_coordinates,
    in_proportion,
    is_region,
    is_relation,
    is_unsolved,
    labels_bind,
    letters,
    may_be_several,
    ranking,
    read_again,
    rename,
    renamed_function,
    renamed_inverse,
    same_region,
    spread,
    stated_value,
    times,
    vector,
    without_indices,
    worked_out,
)
from rlvr.verifiers.math.statement import tree_or_none
from rlvr.verifiers.math.words import elements, formula, plain, unquoted

__all__ = ["decide_forms"]

_UNORDERED = frozenset(("list", "set"))
_SINGLE = frozenset(
    ("list", "either", "set", ":")
)  # what no expression can be, unless it stands for several things
_REGIONS = frozenset(("union", "meet", "minus"))
# Words that would read as symbols of elements: `no` is no nobelium, `he` no helium.
_NO_ELEMENTS = frozenset("am as at be er he ho in la mo no os pa re ti yes".split())
# A sentence with one of these says a condition or a denial, and is no plain predicate.
_SAYS_MORE_THAN_ONE = frozenset(
    "if when or and not no nor never neither than unless only but are whether".split()
)
# What answers them in short: T, Thu.
_SHORT_FOR = {"true": ("t",), "false": ("f",)} | {
    day: (day[:3], day[:4], day[:5])
    for day in (
        "monday tuesday wednesday thursday friday saturday sunday january february march april "
        "june july august september october november december"
    ).split()
}
_SUBJECTS = frozenset("series integral sequence sum limit function it".split())
_VERBS = frozenset("does converges diverges exists is has".split())
# Said behind a property: `prime number` is prime.
_BEARERS = frozenset(
    "number integer function series sequence triangle angle matrix graph event lines".split()
)
_HAPPENED = re.compile(r"(?:born |held |made |\w+ed )?(?:in|on|at) (?:an? )?")
_PAST = re.compile(" (?:was|will be) ")
_NEITHER = re.compile(r"(?:[\w()]+ is )?neither \w+ nor \w+")
_INTERVALS = frozenset(("()", "(]", "[)", "[]"))
_SAME_TEXT = judged(True, "text")
_DIFFERENT_KIND = judged(False, "kind")
_LENGTH = judged(False, "length")
_UNLIKE = Decision(None, "different-kind")  # which only a reader could compare
_HALF_DAY_S = 12 * 3600
_CLOCK_UNITS = {"hour": (3600,), "minute": (60, 3600), "second": (60,)}
"""How long a unit is on a clock read as hours and minutes, and as minutes and seconds."""
_DIGITS = re.compile(r"\d+")
_UNCOUNTED, _COUNTERS = frozenset("RQC"), frozenset("kmn")


def decide_forms(
    answer: Form, reference: Form, policy: MathPolicy, leaf: Leaf | None = None
) -> Decision:
    """Hold one form against another.

    Raises:
        TooLarge: lists of too many items that are written differently.
    """
    return _Comparison(policy, leaf).decide(answer, reference)


@dataclass(slots=True)  # frozen ones take twice as long to make, and each verdict makes one
class _Comparison:
    policy: MathPolicy
    leaf: Leaf | None

    def decide(self, a: Form, b: Form) -> Decision:
        """The answer's form always stands first, so that the engine knows which is which."""
        if (
            isinstance(a, Quantity)
            and isinstance(b, Quantity)
            and a.value is not None
            and b.value is not None
        ):
            return numbers(a, b, self.policy)
        # Before all else that costs: the same letters are the same answer.
        if a.text and squeeze(a.text) == squeeze(b.text):
            return _SAME_TEXT
        # After the same text, so that an answer in the same words meets a flawed reference.
        for form in (a, b):
            if isinstance(form, Flawed):
                return Decision(False, form.reason)
        # n \equiv 1 \pmod 4 and n = 4k + 1.
        if (alike := same_classes(a, b)) is not None:
            return judged(alike, "set")
        # n \equiv 3 \pmod 5 answers a reference of 3.
        if (
            isinstance(b, Quantity)
            and (self.policy.equation_as_value or not is_relation(a))
            and (least := remainder(a))
        ):
            return self.decide(least, b)
        if isinstance(a, Family) or isinstance(b, Family):
            return self._families(a, b)
        if isinstance(a, Named) or isinstance(b, Named):
            return self._decide_named(a, b)
        # Of an equation and a value the equation has to say that value.
        if self.policy.equation_as_value and is_relation(a) != is_relation(b):
            relation, other = (a, b) if is_relation(a) else (b, a)
            said = stated_value(relation, other, trusted=relation is b)
            # 2 + 3 = 5 beside 5: all its sides must agree.
            if said is None and (sides := worked_out(relation, other)) is not None:
                true = all_of([self.decide(side, sides[-1]) for side in sides[:-1]])
                if not true.equal:
                    return self._ask(a, b)
                said = sides[-1]
            if said is not None:
                return self._decide_instead(a, b, relation, said)
        if isinstance(a, Choice) or isinstance(b, Choice):
            return self._choices(a, b)
        if isinstance(a, Items) or isinstance(b, Items):
            return self._sequences(a, b)
        if isinstance(a, Clock) or isinstance(b, Clock):
            return self._clocks(a, b)
        if isinstance(a, Word) or isinstance(b, Word):
            return _words(a, b, self.policy)
        return self._quantities(a, b)

    def _ask(self, a: Form, b: Form) -> Decision:
        if self.leaf is None:
            return UNDECIDED
        equal = self.leaf(a, b)
        return Decision(equal, "symbolic-equal" if equal else "symbolic-different")

    def _decide_instead(self, a: Form, b: Form, old: Form, new: Form) -> Decision:
        """With another reading in the place of one of both."""
        return self.decide(new, b) if old is a else self.decide(a, new)

    # ---------------------------------------------------------------------------- names and choices

    def _families(self, a: Form, b: Form) -> Decision:
        """A declared letter may have another name on the other side, if that is the only letter
        that differs."""
        families = [form for form in (a, b) if isinstance(form, Family)]
        domains = {family.domain for family in families if family.domain}
        if len(domains) > 1 or _are_uncounted(a, b) or _are_uncounted(b, a):
            return judged(False, "domain")
        bodies = [form.body if isinstance(form, Family) else form for form in (a, b)]
        mine, others = map(letters, bodies)
        # One letter on each side, of which one was declared: it may have the other's name.
        if len(mine - others) == len(others - mine) == 1:
            (old,), (new,) = mine - others, others - mine
            if {family.letter for family in families} & {old, new}:
                bodies[0] = rename(bodies[0], {old: new})
        return self.decide(*bodies)

    def _decide_named(self, a: Form, b: Form) -> Decision:
        if isinstance(a, Named) and isinstance(b, Named):
            if squeeze(a.body.text) == b.name and squeeze(b.body.text) == a.name:
                return _SAME_TEXT  # p = q and q = p
            if a.name != b.name and _are_no_names(a, b):
                # xy = 1, yx = 1 and y = 1/x say the same of the same letters
                return self._ask(a, b)
            is_same = a.name == b.name or _are_roots_of(a.name, b.name)
            same_name = b if is_same else renamed_function(b, a)
            kinds = {form_kind(a.body), form_kind(b.body)}
            if same_name and kinds == {"list", "()"} and a.name[:1] != "(":
                return _DIFFERENT_KIND  # m = -2, 6 is no -2 < m < 6
            return self.decide(a.body, same_name.body) if same_name else judged(False, "name")
        if isinstance(a, Named) and is_region(a) and is_unsolved(b):
            return self._ask(a.body, b)  # never the other way: an answer has to be solved
        if is_relation(a) or is_relation(b):
            return self._ask(a, b)
        if isinstance(a, Named) and (inverse := renamed_inverse(a, b)) is not None:
            return self.decide(inverse, b)
        # What has other parts than the other side: a region beside a list of values, values beside
        # a pair.
        if _is_no_interval(a, b) or _is_no_interval(b, a) or _are_values(a, b) or _are_values(b, a):
            return _DIFFERENT_KIND
        for reading in (without_indices, spread):
            for side, opposite in ((a, b), (b, a)):
                if again := reading(side, opposite):
                    return self._decide_instead(a, b, side, again)
        if _is_letter_for_letter(a, b) or _is_letter_for_letter(b, a):
            return _DIFFERENT_KIND
        # The policy wants values and no equations; a region is its own answer.
        if not self.policy.equation_as_value and not (is_region(a) or is_region(b)):
            return _DIFFERENT_KIND
        return self.decide(_body(a), _body(b))

    def _choices(self, a: Form, b: Form) -> Decision:
        if isinstance(a, Choice) and isinstance(b, Choice):
            if a.letter != b.letter:
                return judged(False, "choice")
            # (B) 12 beside (B) 13: the letter is right, and what was said of it is not.
            clash = a.rest and b.rest and self.decide(a.rest, b.rest).equal is False
            return judged(False, "text") if clash else Decision(True, "same-choice")
        choice, opposite = (a, b) if isinstance(a, Choice) else (b, a)
        assert isinstance(choice, Choice)
        if len(opposite.text) == 1 and opposite.text.isalpha():
            # The number i is no option, nor is e where the reference says it; but `e` may answer
            # (E).
            number = opposite.text == "i" or (opposite.text == "e" and opposite is b)
            same = opposite.text.lower() == choice.letter and not number
            return judged(same, "choice")
        # (A), (B) beside (A) names several options.
        if isinstance(opposite, Items) and any(isinstance(item, Choice) for item in opposite.items):
            return judged(False, "choice")
        if choice.rest is None:
            if isinstance(opposite, Word) and choice.letter in _SHORT_FOR.get(opposite.plain, ()):
                return _SAME_TEXT
            return _UNLIKE  # the text of an option, perhaps of the right one
        return self._decide_instead(a, b, choice, choice.rest)

    # ------------------------------------------------------------------------------------ sequences

    def _sequences(self, a: Form, b: Form) -> Decision:
        if isinstance(a, Items) and isinstance(b, Items):
            return self._two_sequences(a, b)
        sequence, opposite = (a, b) if isinstance(a, Items) else (b, a)
        assert isinstance(sequence, Items)
        # ACE beside A, C, E
        options = "".join(squeeze(item.text) for item in sequence.items)
        are_letters = len(options) == len(sequence.items) and options.isalpha()
        if are_letters and options.isupper() and _letters(opposite) == options:
            return Decision(True, "same-choice") if sequence.kind == "list" else _DIFFERENT_KIND
        if isinstance(opposite, Word | Clock):
            return _UNLIKE
        if sequence.kind == "range":
            return _ranges(sequence, opposite)
        if (point := in_coordinates(opposite, sequence)) is not None:
            return self._decide_instead(a, b, opposite, point)
        # B > A > C beside the list B, A, C.
        if sequence.kind == "list" and (names := ranking(opposite)):
            orders = (sequence.items, names)[:: 1 if sequence is a else -1]
            return _of_other_case(*orders) or self._in_order(*orders)
        # A reference of one cell is its cell; an answer of one is written around a number.
        if sequence.kind == "matrix" and len(cells := vector(sequence)) == 1:
            return self.decide(a, cells[0]) if sequence is b else _DIFFERENT_KIND
        if (again := read_again(sequence, opposite)) is not None:
            return self.decide(*again[:: 1 if sequence is a else -1])
        if sequence.kind in _REGIONS and (decision := same_region(a, b)):
            return decision
        several = sequence.kind not in _SINGLE or may_be_several(opposite) or is_relation(opposite)
        # A number is never several things, so the engine is not asked.
        return self._ask(a, b) if several and not has_exact_value(opposite) else _DIFFERENT_KIND

    def _two_sequences(self, a: Items, b: Items) -> Decision:
        kinds = {a.kind, b.kind}
        if kinds == {"set", "()"}:  # the set of one solution
            points = [side.items[0] if len(side.items) == 1 else side for side in (a, b)]
            return self.decide(*points) if points != [a, b] else _DIFFERENT_KIND
        if "range" in kinds:
            # 5–6 may be written [5, 6].
            both = kinds <= {"range", "[]"}
            return self._in_order(a.items, b.items) if both else _DIFFERENT_KIND
        if kinds & _REGIONS:
            return self._regions(*map(_as_union, (a, b)))
        if ":" in kinds:
            # 5:8 is no list of two.
            return _DIFFERENT_KIND if len(kinds) > 1 else in_proportion(a, b)
        if "matrix" in kinds and len(kinds) == 2:
            return self._in_order(vector(a), vector(b)) if kinds & {"()", "[]"} else _DIFFERENT_KIND
        if "either" in kinds:
            return (
                match_items(a.items, b.items, self.decide) if len(kinds) == 1 else _DIFFERENT_KIND
            )
        if kinds <= _UNORDERED:
            named = [any(isinstance(item, Named) for item in side.items) for side in (a, b)]
            is_one_labelled = _are_labelled(a) != _are_labelled(b) and all(named)
            if len(a.items) == len(b.items) and is_one_labelled:
                if sorted(_initials(a)) == sorted(_initials(b)) and _initials(a) != _initials(b):
                    return _DIFFERENT_KIND  # w = 12, l = 5 is no length 12, width 5
                return self._in_order(*(tuple(map(_body, side.items)) for side in (a, b)))
            if named == [True, False]:
                a = without_indices(a, b) or a
            return self._decide_unordered(a, b)
        if kinds == {"row", "[]"}:  # [[1, 2], [3, 4]] against a matrix
            return self._in_order(a.items, b.items)
        bare = bool(kinds & _UNORDERED)
        if kinds == {"list", "()"}:
            a, b = in_alphabet(a), in_alphabet(b)
        if "set" in kinds and kinds & _INTERVALS and (found := same_region(a, b)) is not None:
            return found  # [1, 1] is {1}
        if "set" in kinds or (bare and "()" not in kinds and len(a.items) == 2):
            return _DIFFERENT_KIND  # a list without brackets may be a tuple, but no [1, 2]
        if len(kinds) == 2 and not bare and len(a.items) == 2:
            return judged(False, "ends")  # (1, 2] is not (1, 2)
        if self.policy.order == "any" and kinds == {"()"}:
            return (
                match_counted(a.items, b.items, self.decide)
                if len(a.items) == len(b.items)
                else _LENGTH
            )
        return self._in_order(a.items, b.items)

    def _regions(self, a: Items, b: Items) -> Decision:
        if decision := same_region(a, b):
            return decision
        alike = a.kind == b.kind == "union" and match_items(a.items, b.items, self.decide)
        # Other parts may still make the same whole.
        return alike if alike and alike.equal else self._ask(a, b)

    def _decide_unordered(self, a: Items, b: Items) -> Decision:
        # Labels say which item is which; then the order is theirs.
        if labels_bind(a) != labels_bind(b) or (
            self.policy.ordered_lists and a.kind == b.kind == "list"
        ):
            return self._in_order(a.items, b.items)
        if "set" in (a.kind, b.kind):
            return match_items(a.items, b.items, self._decide_members)
        if len(a.items) != len(b.items):
            return _LENGTH
        return match_counted(a.items, b.items, self.decide)

    def _decide_members(self, a: Form, b: Form) -> Decision:
        """{1, {2}} is not {1, 2}, though {2} alone may answer 2."""
        alike = (form_kind(a) == "set") is (form_kind(b) == "set")
        return self.decide(a, b) if alike else _DIFFERENT_KIND

    def _in_order(self, a: tuple[Form, ...], b: tuple[Form, ...]) -> Decision:
        if len(a) != len(b):
            return _LENGTH
        return all_of(map(self.decide, a, b))

    # -------------------------------------------------------------------------------- single things

    def _quantities(self, a: Form, b: Form) -> Decision:
        assert isinstance(a, Quantity)
        assert isinstance(b, Quantity)
        # A unit on one side alone: the other may name one that was read as letters.
        if bool(a.unit) != bool(b.unit) and (again := read_measured((b if a.unit else a).text)):
            return self._decide_instead(a, b, b if a.unit else a, again)
        if amount := scaled(a, b):
            return self.decide(amount, b)
        if _are_words(a.core) and _are_words(b.core):
            return judged(a.core == b.core, "text")
        if "j" in (a.core or letters(a)) and (imaginary := imaginary_j(a, b)) is not None:
            return self.decide(imaginary, b)  # engineers write 3 + 4j
        decision, size = quantities(a, b, self.policy)
        if decision is not UNDECIDED:
            return decision
        # The same signs, however they were spaced, braced or built.
        is_measured_alike = (a.value, a.unit, a.percent) == (b.value, b.unit, b.percent)
        tree = tree_or_none(a) if is_measured_alike else None
        if tree and tree == tree_or_none(b):
            return _SAME_TEXT
        # Converted first, so that the engine compares plain numbers.
        if self.leaf is None or size in (None, 1):
            return self._ask(a, b)
        return self._ask(times(a, size, b.unit), b)

    def _clocks(self, a: Form, b: Form) -> Decision:
        """3:30 may be 3:30 pm, as a unit may be left out, but it is not 15:30; and 3:30 may be a
        ratio after all."""
        if isinstance(a, Clock) and isinstance(b, Clock):
            same = a.seconds == b.seconds
            if a.half != b.half and self.policy.units == "optional":
                bare = b if a.half else a
                # A bare time up to 12:59 may be of either half of the day; 15:30 has one reading.
                is_short = bare.seconds <= _HALF_DAY_S + 3599
                same = same or (is_short and (a.seconds - b.seconds) % _HALF_DAY_S == 0)
            return _SAME_TEXT if same else judged(False, "time")
        clock, opposite = (a, b) if isinstance(a, Clock) else (b, a)
        if isinstance(a, Clock) and isinstance(b, Quantity) and b.value is not None:
            lengths = _CLOCK_UNITS.get(b.unit, ())
            # 1:30 may be 90 minutes, 90 seconds, or 1.5 hours.
            if not a.half and any(a.seconds == b.value * length for length in lengths):
                return Decision(True, "same-number")
        assert isinstance(clock, Clock)
        if clock.ratio is None or not _is_ratio_of(clock.text, opposite):
            return _UNLIKE  # a time is no number
        return self._decide_instead(a, b, clock, clock.ratio)


def _as_union(region: Items) -> Items:
    """(-\\infty, 1), (2, \\infty) beside a region."""
    is_union = region.kind == "list" and _INTERVALS.issuperset(map(form_kind, region.items))
    return replace(region, kind="union") if is_union else region


def _are_roots_of(names: str, name: str) -> bool:
    """x_1 = x_2 = 2 is the double root x = 2, and x_{1,2} = \\pm 2 are both."""
    several = names.split("=")
    return names == f"{name}_{{1,2}}" or (
        len(several) > 1 and all(name_of_root.startswith(f"{name}_") for name_of_root in several)
    )


def _is_ratio_of(clock: str, other: Form) -> bool:
    """5:12 beside 10:24, or beside the fraction of its two numbers; 9:45 is not 0.2."""
    if not isinstance(other, Quantity):
        return False
    return other.unit == ":" or _DIGITS.findall(other.core) == _DIGITS.findall(clock)


def _is_letter_for_letter(named: Form, other: Form) -> bool:
    """A = B names two options, of which B is one."""
    letters = named.name + named.body.text if isinstance(named, Named) else ""
    return (
        len(letters) == 2 and letters.isalpha() and letters.isupper() and letters[1] == other.text
    )


def _are_words(core: str) -> bool:
    """ABC and BAC on both sides are names or orders of things, and no products."""
    return len(core) > 1 and core.isalpha() and core.isupper()


def _are_no_names(a: Named, b: Named) -> bool:
    """Short products of letters, and on both sides the same letters in all."""
    if not all(form.name.isalpha() and len(form.name) <= 3 for form in (a, b)):
        return False
    mine, reference_names = ({*form.name} | letters(form) for form in (a, b))
    return mine == reference_names and len(mine) > 1


def _is_no_interval(region: Form, other: Form) -> bool:
    """-2 < x < 3 has the two numbers of `x = -2, y = 3` and of a vector, and is neither."""
    # (x, y) = (-2, 3) is a pair, and V = (2, -5) a point
    if not is_region(region) or region.text.startswith("(") or "=" in region.text:
        return False
    if isinstance(other, Items) and other.kind == "()":  # 2 < x < 1 holds nothing, (2, 1) is a pair
        ends = [end.value for end in other.items if isinstance(end, Quantity)]
        low, high = ends if len(ends) == 2 else (None, None)
        return low is not None and high is not None and low >= high
    if not isinstance(other, Items) or other.kind not in ("list", "matrix"):
        return False
    return not any(map(is_region, other.items))


def _are_uncounted(family: Form, other: Form) -> bool:
    """k\\pi for all real k, beside k\\pi, which whole numbers count."""
    return (
        isinstance(family, Family)
        and not isinstance(other, Family)
        and family.domain in _UNCOUNTED
        and family.letter in _COUNTERS
        and letters(family.body) == {family.letter}
    )


def _are_labelled(sequence: Items) -> bool:
    """Center: (2, -3), Radius: 5."""
    return all(
        isinstance(x, Named) and len(x.name) > 2 and x.name.replace("-", "").isalpha()
        for x in sequence.items
    )


def _initials(sequence: Items) -> list[str]:
    return [item.name[:1] for item in sequence.items if isinstance(item, Named)]


def _body(item: Form) -> Form:
    return item.body if isinstance(item, Named) else item


def _are_values(named: Form, other: Form) -> bool:
    """`x = 2, x = 3` lists the values of one letter, and is no pair."""
    if not isinstance(named, Named) or len(named.name) != 1:
        return False
    return form_kind(named.body) == "list" and form_kind(other) == "()"


def _of_other_case(a: tuple[Form, ...], b: tuple[Form, ...]) -> Decision | None:
    """Different, if `a` is ranked where `A` is: letters beside each other keep their case."""
    letters = ((x.text, y.text) for x, y in zip(a, b, strict=False))
    is_other = any(x != y and len(x) == 1 and x.swapcase() == y for x, y in letters)
    return judged(False, "items") if is_other else None


def _ranges(dashed: Items, other: Form) -> Decision:
    """5–6 beside `5-6` or `5 "to" 6`, which without the dash are a difference and a ratio."""
    low, high = (squeeze(item.text) for item in dashed.items)
    plain = squeeze(other.text).replace('"', "").replace("--", "-")
    same = plain in (f"{low}-{high}", f"{low}to{high}", f"{low} to {high}")
    return _SAME_TEXT if same else _DIFFERENT_KIND


def _words(a: Form, b: Form, policy: MathPolicy) -> Decision:
    if isinstance(a, Word) and isinstance(b, Word):
        same = (
            _predicate(b, a.plain) == a.plain
            or (a.plain != b.plain and _says(a.plain, b.plain))
            or _says(_predicate(a, b.plain, words=1), b.plain)
            or (a.plain == b.plain and _same_case(_letters(a), _letters(b), policy))
        )
        return _SAME_TEXT if same else Decision(None, "different-text")
    word, opposite = (a, b) if isinstance(a, Word) else (b, a)
    assert isinstance(word, Word)
    mine, other_letters = _letters(word), _letters(opposite)
    said = other_letters.casefold()
    is_short = word is b and said in _SHORT_FOR.get(word.plain, ())
    is_same = (formula(opposite.text) or said) == squeeze(word.plain)
    same = is_short or (is_same and _same_case(mine, other_letters, policy))
    return _SAME_TEXT if same else _UNLIKE


def _says(answer: str, reference: str) -> bool:
    """Whether an answer says the reference in other words: `on Thursday`, `Thu`, `prime number`,
    `neither even nor odd`, `it does not exist`."""
    if answer == reference or answer in _SHORT_FOR.get(reference, ()):
        return True
    if reference == "neither":
        return _NEITHER.fullmatch(answer) is not None
    if not answer.isascii():  # 该函数为偶函数
        return bool(re.fullmatch(rf"[^不没非或\s]{{1,20}}[是为]{re.escape(reference)}", answer))
    if answer.endswith(reference) and _HAPPENED.fullmatch(answer.removesuffix(reference)):
        return True
    head, _, last = answer.rpartition(" ")
    is_placed = answer in (f"{word} {reference}" for word in ("on", "in", "at", "month of"))
    if is_placed or (head == reference and last in _BEARERS):
        return True
    subject = answer.removesuffix(reference)
    is_verb = reference.partition(" ")[0] in _VERBS
    return is_verb and subject != answer and subject.strip() in _SUBJECTS


def _predicate(sentence: Word, other: str, words: int = 2) -> str:
    """`odd` of "The function is odd", if it says one thing and no more of a subject of so many
    words.

    `other` is what it is compared with, whose own words are no doubt.
    """
    said = sentence.plain.replace("it's ", "it is ")
    subject, verb, predicate = _PAST.sub(" is ", said).partition(" is ")
    if subject in _SUBJECTS:
        subject = f"the {subject}"
    noun, _, does = sentence.plain.partition(" ")
    if noun in _SUBJECTS and does in ("converges", "diverges"):
        return does
    hedging = _SAYS_MORE_THAN_ONE.intersection(sentence.plain.split()) - {*other.split()}
    # A noun of mathematics alone needs no article; up to three words may be its property.
    says_one = verb and len(predicate.split()) < 4 and not hedging
    return plain(predicate) if says_one and len(subject.split()) >= words else ""


def _letters(form: Form) -> str:
    return unquoted(form.text).replace(" ", "")


def _same_case(a: str, b: str, policy: MathPolicy) -> bool:
    """Co is not CO: letters that name other chemical elements in another case are other words."""
    if a == b or policy.case == "match":
        return a == b
    mine, reference_elements = elements(a), elements(b)
    if mine == reference_elements or a.casefold() in _NO_ELEMENTS:
        return True
    # Paris is PARIS, but Co is not co
    return None in (mine, reference_elements) and len(a) > 2
