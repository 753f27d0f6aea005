"""Short answers to questions: the same answer, or F1 over words, the maximum over the references.

F1 is SQuAD's (arXiv:1606.05250, section 6.1).  What is the same is told by
`rlvr.verifiers.short_answers`: by the value of numbers, quantities, dates and times, and by the
words of anything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from rlvr.errors import DataError, brief
from rlvr.types import Outcome, Verdict
from rlvr.validate import require_one_of, require_whole
from rlvr.verifiers.answers import Answer, Form, find_answer, unwrap
from rlvr.verifiers.base import WRAPPINGS, BaseVerifier
from rlvr.verifiers.short_answers import is_question, normal_form, same_answer

__all__ = ["QAVerifier", "f1"]

_GOLDS = 10_000  # right answers of one task


@dataclass(frozen=True)
class QAVerifier(BaseVerifier[Answer, tuple[str, ...]]):
    """Compares a short answer with one or several references.

    The answer stands in a box, in tags, after "Answer:" or "the answer is", or is the whole text
    after the thinking. It is CORRECT if it says the same as a reference, see
    `rlvr.verifiers.short_answers`.  The reasons: `same-words` is CORRECT; `no-answer` UNPARSED;
    `other-words`, `hedged` and `too-long` WRONG.

    Args:
        credit: "em": a WRONG answer has no value; "f1": it has the greatest F1 with a reference,
            below 1.
        words: greatest number of words of an answer; a longer one is WRONG, since it could list
            what may be right.

    Raises:
        UsageError: a value is out of range.
    """

    credit: Literal["em", "f1"] = "em"
    words: int = 20
    version: ClassVar[int] = 4
    form: ClassVar[Form] = Form(fences=frozenset(("", "text")), bare=True, longest=100_000)
    reference_form: ClassVar[str] = "a text, or a list of texts of which each is right"
    rewritings: ClassVar[tuple[str, ...]] = (*WRAPPINGS, "capitals", "full stop", "wide digits")
    reference_example: ClassVar[object] = ["Paris", "the city of Paris"]

    def __post_init__(self) -> None:
        require_one_of("credit", self.credit, ("em", "f1"))
        require_whole("words", self.words, 1)

    def read(self, reference: object) -> tuple[str, ...]:
        """The right answers.

        Args:
            reference: a text, or a list of texts of which each is right.

        Raises:
            DataError: there is none, or one is empty or longer than an answer may be.
        """
        golds = _golds(reference)
        for gold in golds:
            # characters as well: a text without spaces is one word, however long
            if len(gold.split()) > self.words or len(gold) > 60 * self.words:
                raise DataError(
                    f"the reference {brief(gold)} has more than {self.words} words or "
                    f"{60 * self.words} characters, "
                    "as no answer may"
                )
            if isinstance(find_answer(f"<answer>{gold}</answer>", self.form), Verdict):
                raise DataError(f"the reference {brief(gold)} cannot be read as an answer")
        return tuple(golds)

    def judge(self, answer: Answer, reference: tuple[str, ...]) -> Verdict:
        """The verdict on an answer.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        text, golds = answer.text, reference
        count = len(text.split())
        if count > self.words or len(text) > 60 * self.words:
            return Verdict(
                Outcome.WRONG,
                why=f"too-long: {count} words, of {self.words} allowed",
                answer=text[:200],
            )
        # "Paris?" asks back; with `f1` it would earn as much as "Paris"
        if is_question(text) and not any(map(is_question, golds)):
            why = "hedged: the answer is a question"
            return Verdict(Outcome.WRONG, why=why, answer=text)
        if any(same_answer(text, gold, answer.prompt) for gold in golds):
            return Verdict(Outcome.CORRECT, why="same-words", answer=text)
        value = max(f1(text, gold) for gold in golds) if self.credit == "f1" else 0.0
        return Verdict(Outcome.WRONG, min(value, 0.99), why="other-words", answer=text)

    def example(self, reference: object) -> str:
        return f"<answer>{self.read(reference)[0]}</answer>"


def f1(answer: str, gold: str) -> float:
    """The harmonic mean of the shares of words that are in common, in [0, 1].

    Args:
        answer, gold: texts.
    """
    answer_counts, gold_counts = (
        Counter(normal_form(answer).split()),
        Counter(normal_form(gold).split()),
    )
    shared = (answer_counts & gold_counts).total()
    return 2 * shared / (answer_counts.total() + gold_counts.total()) if shared else 0.0


def _golds(reference: object) -> list[str]:
    golds = [reference] if isinstance(reference, str) else reference
    if isinstance(golds, Sequence) and len(golds) > _GOLDS:
        raise DataError(f"the reference has {len(golds):,} answers; {_GOLDS:,} is the most")
    if (
        not isinstance(golds, Sequence)
        or not golds
        or not all(isinstance(gold, str) and gold.strip() for gold in golds)
    ):
        raise DataError(
            f"the reference is {brief(reference)}; it must be a text, or a list of texts, none "
            f"empty"
        )
    plain = [unwrap(gold) for gold in golds]  # as answers are: "\\boxed{5}" is 5
    if not all(plain):
        raise DataError(f"the reference {brief(reference)} has nothing but marks around an answer")
    return plain
