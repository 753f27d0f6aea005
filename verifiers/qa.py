"""Short answers to questions: exact match and F1 over words, the maximum over the references.

The measures are SQuAD's (arXiv:1606.05250, section 6.1): case, punctuation and English articles do not count.  Unlike
there, no normal form is empty: an answer "The" to "The" is compared as it is, and nothing never equals it.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rlvr.errors import DataError, brief
from rlvr.text import ANSWER_TAGS, after_thinking
from rlvr.types import Outcome, Verdict
from rlvr.validate import require_one_of, require_whole

__all__ = ["QAVerifier", "f1", "normal_form"]

_ARTICLES: Final = frozenset(("a", "an", "the"))


@dataclass(frozen=True)
class QAVerifier:
    """Compares a short answer with one or several references.

    The answer stands in <answer> tags, once, or is the whole text after the thinking.  It is CORRECT if its normal form
    is that of a reference.

    Args:
        credit: "em": a WRONG answer has no value; "f1": it has the greatest F1 with a reference, below 1.
        words: greatest number of words of an answer; a longer one is WRONG, since it could list what may be right.

    Raises:
        UsageError: a value is out of range.
    """

    credit: Literal["em", "f1"] = "em"
    words: int = 20
    id: str = "qa-verifier-v1"

    def __post_init__(self) -> None:
        require_one_of("credit", self.credit, ("em", "f1"))
        require_whole("words", self.words, 1)

    def verify(self, completion: str, reference: Any) -> Verdict:
        """The verdict on a completion.

        Args:
            completion: its text.
            reference: a text, or a list of texts of which each is right.

        Raises:
            DataError: there is no reference, or one is empty.
        """
        golds = _golds(reference)
        answer = _answer(completion)
        if isinstance(answer, Verdict):
            return answer
        count = len(answer.split())
        if count > self.words or len(answer) > 60 * self.words:
            return Verdict(
                Outcome.WRONG,
                why=f"too-long: {count} words, of {self.words} allowed",
                answer=answer[:200],
            )
        form = normal_form(answer)
        if form in map(normal_form, golds):
            return Verdict(Outcome.CORRECT, why="same-words", answer=answer)
        value = max(f1(answer, gold) for gold in golds) if self.credit == "f1" else 0.0
        return Verdict(Outcome.WRONG, min(value, 0.99), why="other-words", answer=answer)

    def check(self, reference: Any) -> None:
        """Refuse a reference that cannot be used.

        Args:
            reference: see `verify`.

        Raises:
            DataError: see `verify`; or a reference is longer than an answer may be.
        """
        for gold in _golds(reference):
            if len(gold.split()) > self.words:
                raise DataError(
                    f"the reference {brief(gold)} has more than {self.words} words, as no answer may"
                )


def normal_form(text: str) -> str:
    """The words that count, in lower case, with single spaces; never empty unless the text is blank.

    Args:
        text: an answer or a reference.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    bare = "".join(
        char for char in folded if not unicodedata.category(char).startswith(("P", "S"))
    ).split()
    without = [word for word in bare if word not in _ARTICLES]
    return " ".join(without or bare or folded.split())


def f1(answer: str, gold: str) -> float:
    """The harmonic mean of the shares of words that are in common, in [0, 1].

    Args:
        answer, gold: texts.
    """
    said, asked = Counter(normal_form(answer).split()), Counter(normal_form(gold).split())
    shared = (said & asked).total()
    return 2 * shared / (said.total() + asked.total()) if shared else 0.0


def _golds(reference: Any) -> list[str]:
    golds = [reference] if isinstance(reference, str) else reference
    if (
        not isinstance(golds, Sequence)
        or not golds
        or not all(isinstance(one, str) and one.strip() for one in golds)
    ):
        raise DataError(
            f"the reference is {brief(reference)}; it must be a text, or a list of texts, none empty"
        )
    return list(golds)


def _answer(completion: str) -> str | Verdict:
    begin = after_thinking(completion)
    if begin is None:
        return Verdict(Outcome.UNPARSED, why="unfinished-thinking")
    rest, (opening, closing) = completion[begin:], ANSWER_TAGS
    if opening in rest:
        pieces = [piece.partition(closing) for piece in rest.split(opening)[1:]]
        if any(not found for _, found, _ in pieces):
            return Verdict(Outcome.UNPARSED, why="unfinished-answer")
        answers = {piece.strip() for piece, _, _ in pieces}
        if len(answers) > 1:
            return Verdict(Outcome.WRONG, why=f"several-answers: {len(answers)}")
        [answer] = answers
    else:
        answer = rest.strip()
    return answer or Verdict(Outcome.UNPARSED, why="no-answer")
