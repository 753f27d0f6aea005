"""`MathVerifier`: extract → limits → normal form → symbolic engine → verdict with its reason."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, TypeAlias

from rlvr.errors import DataError, UsageError
from rlvr.text import prompt_text
from rlvr.types import Outcome, Task, Verdict, plain_reference
from rlvr.verifiers.answers import (
    DEFAULT_MARKERS,
    Extraction,
    bare,
    extract,
    last_expression,
    refusal,
)
from rlvr.verifiers.base import WRAPPINGS, BaseVerifier
from rlvr.verifiers.math import forms, symbolic
from rlvr.verifiers.math.asked import named_units, names_another, not_as_asked
from rlvr.verifiers.math.finished import unfinished
from rlvr.verifiers.math.fold import squeeze, with_commas, with_points
from rlvr.verifiers.math.forms import Family, Flawed, Form, Items, Named, Quantity, Word, form_kind
from rlvr.verifiers.math.given import is_given, is_other_option, options
from rlvr.verifiers.math.latex.tree import Node, TooLarge
from rlvr.verifiers.math.matching import UNDECIDED, Decision, judged
from rlvr.verifiers.math.normal import decide_forms
from rlvr.verifiers.math.policy import COMPETITION, MathPolicy
from rlvr.verifiers.math.prompted import has_other_sides, readings
from rlvr.verifiers.math.quantity import SCALED_NUMBER, built, is_compound
from rlvr.verifiers.math.reading import read
from rlvr.verifiers.math.shapes import as_stated, has_exact_value, letters
from rlvr.verifiers.math.statement import as_tree
from rlvr.verifiers.math.units import measure

__all__ = ["MathVerifier", "Reference", "References", "compare_bare"]

Reference: TypeAlias = str | int | Fraction | float | Decimal
"""One right answer."""

References: TypeAlias = Reference | Sequence[Reference]
"""One right answer, or a list or tuple of them of which each is right alone."""

_BOXES = ("\\boxed", "\\fbox", "\\framebox", "<answer>")
_NOTHING = Decision(False, "unreadable: nothing but punctuation")
_UNBALANCED = Decision(False, "unreadable: braces do not match")
# What a prompt says whose answer may be rounded, or a set of solutions.
_ROUNDS = re.compile(r"(?i)\b(?:round|nearest|approx|estimat|about|decimal|significant)")
_FOR_SETS = re.compile(
    r"(?is)\A(?!.*\b(?:how many|number of)\b).*\b(?:solv|solution|roots?\b|zeros?\b|sets?\b|"
    r"values\b|satisf|(?:find|determine) all\b|for which\b)",
)
_ASKS_POINT = re.compile(
    r"(?i)\b(?:point|coordinates|interval|vertex|midpoint|reflection|ordered pair)\b"
)
_ASKS_ORDER = re.compile(
    r"(?i)\b(?:least to greatest|greatest to least|(?:small|low|short|light)est to|"
    r"(?:larg|high|long|heavi)est to|(?:a|de)scending|(?:in|de)creasing order)\b",
)
_SEVERAL = frozenset(("list", "set", "()"))
_OF_PARTS = re.compile(r"(?s)\(a\).*\(b\)")


_Stated: TypeAlias = tuple[Extraction, str]
"""An answer as it was found, and the prompt's text."""

_Read: TypeAlias = tuple[tuple[str, Form], ...]
"""The text of each right answer as it is compared, and its form."""


@dataclass(frozen=True, slots=True)
class MathVerifier(BaseVerifier[_Stated, _Read]):
    r"""Verifies mathematics: is the completion's final answer equal to the reference?

        >>> MathVerifier().verify(r"So it is \boxed{\frac{2}{4}}.", "1/2").why
        'same-number'

    The reasons: `same-number same-text same-items same-set same-choice symbolic-equal` are CORRECT;
    `no-answer empty-box unclosed-box unboxed` UNPARSED; anything else WRONG, among it `hedged limit
    too-hard chain tautology undefined unreadable unknown-words unit-omitted unfinished given
    symbolic-different engine-error` and `different-…`.

    Without a task nothing is known of the prompt: then the detail of a CORRECT verdict has
    `"given": "unchecked"`, unless the policy takes any form.

    Attributes:
        policy: what counts as equal.
        markers: texts that the prompt asks the model to write before its answer, such as
            `("####",)`.

    Raises:
        UsageError: a marker is no text, or empty.
    """

    policy: MathPolicy = COMPETITION
    markers: tuple[str, ...] = DEFAULT_MARKERS
    version: ClassVar[int] = 5
    reference_form: ClassVar[str] = (
        "an expression, a number, or a list of them, of which any is right"
    )
    rewritings: ClassVar[tuple[str, ...]] = (*WRAPPINGS, "full stop", "wide digits")
    reference_example: ClassVar[str] = "1/2"

    def __post_init__(self) -> None:
        if isinstance(self.markers, str) or not all(
            isinstance(m, str) and m.strip() for m in self.markers
        ):
            raise UsageError(
                f"markers={self.markers!r}: a tuple of non-empty strings, such as ('####',)"
            )
        object.__setattr__(self, "markers", tuple(self.markers))  # a list would not hash

    def read(self, reference: References) -> _Read:
        """The right answers as they are compared.

        Args:
            reference: the right answer, as a text or a number (scalars of numpy and torch are
                numbers too); or a list of right answers, of which any will do.

        Raises:
            DataError: it is empty, beyond a limit, unbalanced, or has no value, such as 1/0; the
                message names it.
        """
        return tuple(self._trust(answer_text) for answer_text in _each(reference))

    def extract(self, text: str, task: Task | None) -> _Stated | Verdict:
        """The final answer; with a task, one that repeats its prompt is refused, see
        `MathPolicy.form`.

        Args:
            text: the completion.
            task: what it answers.
        """
        extraction = extract(text, markers=self.markers)
        if extraction is None and self.policy.prose == "last-expression":
            extraction = last_expression(text)
        if extraction is None:
            return Verdict(Outcome.UNPARSED, why="no-answer")
        if extraction.flaw and (verdict := refusal(extraction)) is not None:
            return verdict
        # A policy of boxes alone takes no sentence.
        if extraction.method == "phrase" and not self.policy.unboxed:
            return Verdict(
                Outcome.UNPARSED,
                why="unboxed: an answer was stated outside a box",
                answer=extraction.answer,
            )
        return extraction, "" if task is None else prompt_text(task.prompt)

    def judge(self, answer: _Stated, reference: _Read) -> Verdict:
        """The verdict on an answer.

        Args:
            answer: from `extract`.
            reference: from `read`.

        Raises:
            Unscored: no symbolic worker can be started here.
        """
        return _first_right([self._examine(answer, *right) for right in reference])

    def judge_form(self, answer: Form, reference: Form, written: str, prompt: str = "") -> Verdict:
        """The verdict on what was read already, as by a verifier that reads letters as units.

        Args:
            answer, reference: their forms.
            written: the answer as the model wrote it, for the verdict.
            prompt: the prompt's text; "" where it is not known.

        Raises:
            Unscored: see `judge`.
        """
        decision = _decide(answer, reference, self.policy) if answer.text else _NOTHING
        return _first_right([self._conclude(decision, answer, reference, written, prompt)])

    def example(self, reference: References) -> str:
        return f"\\boxed{{{_each(reference)[0]}}}"

    def verify_many(
        self, pairs: Iterable[tuple[str, References] | tuple[str, References, Task | None]]
    ) -> list[Verdict]:
        """The verdicts of many completions, the same as one by one; the worker is called once for
        all of them.

        Args:
            pairs: (completion, reference), or with the task as a third.

        Raises:
            DataError: see `read`.
            Unscored: see `judge`.
        """
        groups = []
        for completion, reference, *task in pairs:
            trusted = self.read(reference)
            answer = self.extract(completion, *(task or [None]))
            groups.append(
                [answer]
                if isinstance(answer, Verdict)
                else [self._examine(answer, *right) for right in trusted]
            )
        verdicts = iter(_resolve_all([item for group in groups for item in group]))
        return [_first_right([next(verdicts) for _ in group]) for group in groups]

    def compare(self, answer: str, reference: References, *, prove: bool = False) -> Verdict:
        r"""Compare an answer alone, such as one of a file of labelled pairs, with the reference.

            >>> MathVerifier().compare("x = 1/2", "0.5").why
            'same-number'

        The answer is not searched for; but if it is in a box, it is taken out of that.

        Args:
            answer: the answer alone.
            reference: see `read`.
            prove: whether SymPy is asked for its opinion, which takes up to some seconds.  `why`
                then ends in `proved` (by exact rules, or by SymPy), `evidence` (SymPy has none) or
                `refuted` (SymPy contradicts the verdict: one of the two is wrong).

        Raises:
            DataError: see `read`.
            Unscored: see `judge`.
        """
        # An answer is taken out of its box, unless references are texts, which may hold one.
        boxed = any(box in answer for box in _BOXES) and self.policy.references == "mathematics"
        stated = self.extract(answer, None) if boxed else None
        if isinstance(stated, Verdict):
            return stated
        verdicts = [
            self._compare_stated(bare(answer), *right, "")
            if stated is None
            else self._examine(stated, *right)
            for right in self.read(reference)
        ]
        return _first_right(list(map(_prove_verdict, verdicts)) if prove else verdicts)

    def doubt(self, reference: References) -> str | None:
        r"""Why a reference can only be compared as text, for a report on a data set; None if it can
        be read.

            >>> MathVerifier().doubt(r"\frac{1}{2}") is None
            True

        Args:
            reference: see `read`.

        Raises:
            DataError: see `read`.
            Unscored: no symbolic worker can be started here.
        """
        trusted_answers = self.read(reference)
        if not self.policy.symbolic or self.policy.references == "text":
            return None
        wrong = (
            symbolic.check_reference(right) for _, right in trusted_answers if _needs_engine(right)
        )
        return next(filter(None, wrong), None)

    def _trust(self, reference: Reference) -> tuple[str, Form]:
        """The reference's text as it is compared, and its form."""
        if self.policy.references == "text":
            text = _plain_text(reference)
            return text, Word(text, text)
        trusted = _reference_text(reference)
        if self.policy.decimal == "comma" and isinstance(reference, str):
            trusted = with_points(trusted)
        return trusted, _reference_form(trusted)

    def _examine(self, answer: _Stated, trusted: str, right: Form) -> Verdict | _Undecided:
        extraction, prompt = answer
        # Boxes of several parts first: together they may be the reference's list.
        if extraction.parts and (joined := _join_boxes(extraction, right)):
            return self._compare_stated(joined, trusted, right, prompt)
        hedged = extraction.flaw == "hedged" and self.policy.several_boxes == "hedge"
        if hedged and not self._all_say_the_same(extraction):
            return Verdict(
                Outcome.WRONG,
                why="hedged: several boxes in one statement differ",
                answer=extraction.answer,
            )
        return self._compare_stated(extraction.answer, trusted, right, prompt)

    def _all_say_the_same(self, found: Extraction) -> bool:
        r"""`\boxed{1\frac12} or \boxed{\frac32}` is one answer in two spellings."""
        return all(compare_bare(text, found.answer, self.policy) for text in found.others)

    def _compare_stated(
        self, answer: str, trusted: str, right: Form, prompt: str
    ) -> Verdict | _Undecided:
        if self.policy.references == "text":
            return _verdict(_as_texts(answer, trusted, self.policy), answer)
        text = with_points(answer) if self.policy.decimal == "comma" else answer
        decision, form = self._decide_form(text, right)
        # The second reading only after the first has failed, and where commas may be decimal.
        has_failed = not decision.equal and decision.reason != "undecided"
        may_be_decimal = self.policy.decimal == "prompt" and "," in answer + trusted
        if has_failed and may_be_decimal and (texts := with_commas(answer, trusted, prompt)):
            text, trusted = texts
            right = _reference_form(trusted)
            decision, form = self._decide_form(text, right)
        if form is None:
            return _verdict(decision, answer)
        others = () if decision.equal else readings(text, form, right, prompt, self.policy)
        for other in others:
            again = _decide(other, right, self.policy)
            if (again.equal or again == UNDECIDED) and not _lacks_unit(other, right):
                decision, form = again, other
                break
        conclusion = self._conclude(decision, form, right, answer, prompt)
        if isinstance(conclusion, _Undecided) and not _has_matching_braces(text):
            return _verdict(_UNBALANCED, answer)
        return conclusion

    def _conclude(
        self, decision: Decision, form: Form, right: Form, written: str, prompt: str
    ) -> Verdict | _Undecided:
        """The verdict; what the normal form cannot decide goes to the engine."""
        if decision.equal is None and decision.reason == "undecided" and self.policy.symbolic:
            return _Undecided(form, right, self.policy, written, prompt)
        if not decision.equal:
            return _verdict(decision, written)
        return _judge_equal(decision, written, form, right, self.policy, prompt)

    def _decide_form(self, answer: str, right: Form) -> tuple[Decision, Form | None]:
        """The decision of the normal form, and what was read if there was anything to read."""
        try:
            form = read(answer)
        except TooLarge as limit:
            return Decision(False, f"limit: {limit}"), None
        return (_decide(form, right, self.policy), form) if form.text else (_NOTHING, None)


@dataclass(frozen=True, slots=True)
class _Undecided:
    """What the normal form leaves to the symbolic engine."""

    form: Form
    right: Form
    policy: MathPolicy
    written: str
    """The answer as the model wrote it."""
    prompt: str


def compare_bare(answer: str, reference: str, policy: MathPolicy = COMPETITION) -> bool | None:
    r"""Hold one bare answer against one reference; None where the normal form cannot tell, or a
    limit is broken.

    >>> compare(r"\frac{2}{4}", "0.5"), compare("(1, 2]", r"1 < x \le 2"), compare("x + 1", "1 + x")
    (True, True, None)
    """
    try:
        a, b = (read(text) for text in (answer, reference))
        return decide_forms(a, b, policy).equal
    except TooLarge:
        return None


def _decide(form: Form, right: Form, policy: MathPolicy) -> Decision:
    try:
        return decide_forms(form, right, policy)
    except TooLarge as limit:
        return Decision(False, f"limit: {limit}")


def _has_unlike_names(form: Form) -> bool:
    """x = 1, y = 2; not x_1 = 1, x_2 = 2."""
    if not isinstance(form, Items):
        return False
    heads = {item.name.partition("_")[0] for item in form.items if isinstance(item, Named)}
    return len(heads) == len(form.items) > 1


def _is_alternative(form: Form, right: Form, prompt: str) -> bool:
    """2 or 3 beside what holds both: a set, a pair, a mean and a deviation, parts of a question."""
    if " ; " not in form.text or not isinstance(form, Items) or not isinstance(right, Items):
        return False
    holds_both = right.kind in ("set", "()") or _has_names(right) or _OF_PARTS.search(prompt)
    return bool(holds_both) and form.kind not in ("set", "()") and not _has_names(form)


def _has_names(form: Items) -> bool:
    return any(isinstance(item, Named) for item in form.items)


def _lacks_unit(form: Form, right: Form) -> bool:
    """65 students are no 65 %: what was left out was no remark."""
    units = [
        isinstance(side, Quantity) and bool(side.unit or side.percent) for side in (form, right)
    ]
    return units == [False, True]


def _each(reference: References) -> list[Reference]:
    """The references of which any is right.

    Raises:
        DataError: a list without any.
    """
    if not isinstance(reference, list | tuple):
        return [reference]  # type: ignore[list-item]  # a wrong type is named by `_reference_text`
    if not reference:
        raise DataError("the reference is an empty list; it must hold at least one right answer")
    return list(reference)


def _first_right(results: Sequence[Verdict | _Undecided]) -> Verdict:
    """The first verdict that is right, else that on the first reference."""
    if len(results) == 1 and isinstance(results[0], Verdict):
        return results[0]
    verdicts = _resolve_all(results)
    return next((verdict for verdict in verdicts if verdict.correct), verdicts[0])


def _as_texts(answer: str, trusted: str, policy: MathPolicy) -> Decision:
    """A reference that is declared to be a string."""
    a, b = (" ".join(text.split()) for text in (answer, trusted))
    same = a == b if policy.case == "match" else a.casefold() == b.casefold()
    return judged(same, "text")


def _has_matching_braces(text: str) -> bool:
    """Braces that do not match cannot be read, and no engine should try to mend them."""
    # \{ and \} are signs of sets, which need no partner here.
    plain = text.replace(r"\{", "").replace(r"\}", "")
    return plain.count("{") == plain.count("}")


def _resolve_all(results: Sequence[Verdict | _Undecided]) -> list[Verdict]:
    """The engine decides what is undecided, all in one call."""
    questions = [
        (item.form, item.right, item.policy) for item in results if isinstance(item, _Undecided)
    ]
    replies = iter(symbolic.decide_many(questions))
    return [
        item if isinstance(item, Verdict) else _settle_decision(item, next(replies))
        for item in results
    ]


def _settle_decision(item: _Undecided, decision: Decision) -> Verdict:
    hard = decision.reason.startswith("too-hard") and item.policy.form != "any"
    if not decision.equal and not hard:
        return _verdict(decision, item.written)
    verdict = _judge_equal(decision, item.written, item.form, item.right, item.policy, item.prompt)
    # What the engine had no time for may still be told by its form, and then the reason is the same
    # on any machine.
    return _verdict(decision, item.written) if hard and verdict.correct else verdict


def _verdict(decision: Decision, answer: str) -> Verdict:
    return Verdict(
        Outcome.CORRECT if decision.equal else Outcome.WRONG, why=decision.reason, answer=answer
    )


def _judge_equal(
    decision: Decision, answer: str, form: Form, right: Form, policy: MathPolicy, prompt: str
) -> Verdict:
    """The verdict on an answer that is equal to the reference: it must be finished, and not given
    by the prompt."""
    known = bool(prompt) and not prompt.isspace()
    detail = {} if known or policy.form == "any" else {"given": "unchecked"}
    is_as_written = policy.form == "any" or form.text == right.text
    if not is_as_written and not _is_plainly_finished(form.text, right.text, known):
        try:
            wrong = _wrong_form(form, right, policy, prompt)
        except RecursionError:
            wrong = "unfinished: nested too deeply to be judged"
        if wrong:
            return Verdict(Outcome.WRONG, why=wrong, answer=answer)
    return Verdict(Outcome.CORRECT, why=decision.reason, answer=answer, detail=detail)


def _is_plainly_finished(answer: str, right: str, known: bool) -> bool:
    """Whether an answer is written as the reference is, or both are digits; a point among them is
    fine unless a known prompt may ask for another form."""
    if squeeze(answer) == squeeze(right):
        return True
    digits = answer if known else answer.replace(".", "", 1)
    return digits.isdigit() and right.strip("-$%").replace(",", "").isdigit()


def _wrong_form(form: Form, right: Form, policy: MathPolicy, prompt: str) -> str:
    """Why a right answer is not paid; "" where it is."""
    stated, reference = as_tree(as_stated(form, right)), as_tree(right)
    if _is_alternative(form, right, prompt):
        return "different-kind"  # 2 or 3 is one of them
    if form_kind(form) == "set" and _has_unlike_names(right):
        return "different-kind"  # {1, 2} says not which is x
    is_measured = isinstance(right, Quantity) and bool(right.unit) and measure(right.unit)
    if r"\approx" in form.text and not (
        is_measured or "." in right.text or r"\approx" in right.text or _ROUNDS.search(prompt)
    ):
        return "unfinished: it is only about the value"
    if stated.op == reference.op == "choice" and stated.args and prompt:
        said = options(prompt).get(str(stated.value))  # 2 + 5, beside C. 7
        if said and (left := unfinished(stated.args[0], as_tree(said), policy)):
            return f"unfinished: {left}"
    if left := unfinished(stated, reference, policy):
        return f"unfinished: {left}"
    if not prompt:
        return ""
    if form_kind(form) == "set" and has_exact_value(right) and not _FOR_SETS.search(prompt):
        return "unfinished: a number is no set"
    if is_compound(form.text) > is_compound(right.text) and any(
        name and measure(name) for name in named_units(prompt)
    ):
        return "unfinished: the prompt asks for one unit"
    # Both as it stands and as what it states: either may stand in the prompt.
    trees = {as_tree(form), stated}

    def is_same(part: Node, other: Form) -> bool:
        decision = decide_forms(built(part), other, policy)
        if decision == UNDECIDED and policy.symbolic:
            decision = symbolic.decide(built(part), other, policy)
        return bool(decision.equal)

    if isinstance(form, Items) and isinstance(right, Items) and form.kind == "list":
        if right.kind == "()" and _ASKS_POINT.search(prompt) and not _has_names(form):
            return "different-kind"  # 0, 2 is no point
        is_due = right.kind == "list" and _ASKS_ORDER.search(prompt)
        # Of lists of other lengths as many as both have.
        if is_due and not all(map(is_same, map(as_tree, form.items), right.items)):
            return "different-items"
    if names_another(form, right, prompt, lambda a, b: is_same(a, built(b))):
        return "different-name"

    if any(is_given(tree, reference, prompt, lambda part: is_same(part, right)) for tree in trees):
        return "given: it stands in the prompt"
    if is_other_option(stated, prompt) or has_other_sides(form.text, right.text, prompt):
        return "different-text"
    if _has_letter_of(form, right, prompt):
        return "different-number"
    due_form = not_as_asked(stated, reference, prompt)
    sides = form.sides if isinstance(form, Quantity) and form.value is not None else ()
    for side in map(as_tree, sides):  # 0.65 = \frac{13}{20}
        if not unfinished(side, reference, policy) and not not_as_asked(side, reference, prompt):
            return ""
    return f"unfinished: the prompt asks for {due_form}" if due_form else ""


def _has_letter_of(form: Form, right: Form, prompt: str) -> bool:
    """Whether 5k was taken for 5000 where the prompt has a letter k."""
    scales = {part.text[-1] for part in forms.parts(form) if SCALED_NUMBER.fullmatch(part.text)}
    if not scales or letters(right):
        return False
    return any(re.search(rf"(?<![\w\\]){letter}(?!\w)", prompt) for letter in scales)


def _prove_verdict(found: Verdict | _Undecided) -> Verdict:
    if isinstance(found, _Undecided):
        return _settle_decision(found, symbolic.prove(found.form, found.right, found.policy))
    return found if ":" in (found.why or "") else replace(found, why=f"{found.why}: proved")


def _join_boxes(found: Extraction, right: Form) -> str | None:
    r"""`x=\boxed{3}, y=\boxed{4}` as one answer, if the reference has as many parts; else several
    boxes are a hedge."""
    # The reference's values stand behind its `x =`, or before its "for all k".
    while isinstance(right, Named | Family):
        right = right.body
    if not isinstance(right, Items) or right.kind not in _SEVERAL:
        return None
    # Same parts in several boxes are one answer said again, unless names tell them apart.
    distinct = found.flaw == "hedged" or all(" = " in part for part in found.parts)
    return ", ".join(found.parts) if distinct and len(right.items) == len(found.parts) else None


def _plain_text(reference: Reference) -> str:
    """A reference that is declared to be a string.

    Raises:
        DataError: it is no text, or empty.
    """
    reference = plain_reference(reference)
    if not isinstance(reference, str) or not reference.strip():
        raise DataError(
            f"the reference is {reference!r}; where references are texts it must be a text that is "
            f"not empty"
        )
    return reference


def _reference_text(reference: Reference) -> str:
    """The reference as text.

    Raises:
        DataError: not a text or number, or one that has no value.
    """
    reference = plain_reference(reference)
    if isinstance(reference, bool) or not isinstance(reference, str | int | float):
        raise DataError(f"the reference is {reference!r}; it must be a text or a number")
    if isinstance(reference, str):
        # A reference may come in the box that its solution had.
        boxed = extract(reference) if "\\boxed" in reference or "\\fbox" in reference else None
        text = boxed.answer if boxed else reference
        text = text.rstrip(
            " ^"
        )  # `90^` has lost its degree sign; an exponent that is missing says nothing
        if not text.strip():
            raise DataError(f"the reference {reference!r} is empty")
        return text
    if isinstance(reference, float) and not math.isfinite(reference):
        raise DataError(f"the reference is {reference!r}; it must be finite")
    return _number_text(reference)


def _number_text(reference: int | float) -> str:
    try:
        return repr(reference) if isinstance(reference, float) else str(reference)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        raise DataError("the reference is an integer of more than 4,300 digits") from None


# Fewer digits than any limit, so that none is looked at.
_FEW_DIGITS = 16


@lru_cache(maxsize=4096)
def _reference_form(reference: str) -> Form:
    if len(reference) < _FEW_DIGITS and reference.isascii() and reference.isdecimal():
        return read(reference)  # what most references are, and nothing below can object to
    try:
        form = read(reference)
    except TooLarge as limit:
        raise DataError(f"the reference {reference[:80]!r} is beyond a limit: {limit}") from None
    if not _has_matching_braces(reference):
        raise DataError(
            f"the reference {reference[:200]!r} cannot be read: its braces do not match"
        )
    for part in forms.parts(form):
        if isinstance(part, Flawed):
            raise DataError(f"the reference {reference[:200]!r} has no value: {part.reason}")
    return form


def _needs_engine(form: Form) -> bool:
    return any(
        isinstance(part, Quantity) and part.value is None and part.pis is None
        for part in forms.parts(form)
    )
