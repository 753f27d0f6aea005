"""Multiple choice: the final answer must be one letter, or the text of one option and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

from rlvr.errors import DataError, brief
from rlvr.types import Outcome, Verdict
from rlvr.verifiers.math.extract import extract

__all__ = ["ChoiceVerifier", "LETTERS", "check_choices"]

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""The names of the options, in order."""

_LONGEST = 4000  # characters of an answer
_MARKERS = ("Answer:", "ANSWER:", "answer:")
_LETTER = re.compile(r"(?:option |choice )?\(?([A-Za-z])\)?[.):]?", re.IGNORECASE)
_LETTER_AND_TEXT = re.compile(
    r"(?:option |choice )?(?:\(([A-Z])\)|([A-Z])[.):])[:.]?\s+(\S.*)", re.DOTALL
)
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s?\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class ChoiceVerifier:
    r"""Verifies a choice between lettered options.

    The reference is `{"options": ["4", "5"], "answer": "5"}`: the options as the prompt shows them, and the text of the
    right one.  The answer is what stands in the last `\boxed{}` or `<answer>`, after the last "Answer:", or in "the
    answer is …"; a letter anywhere else is none.

        >>> asked = {"options": ["4", "5"], "answer": "5"}
        >>> ChoiceVerifier().verify(r"So \boxed{B}", asked).why, ChoiceVerifier().verify("B", asked).why
        ('same-choice', 'no-answer')

    The reasons: `same-choice` is CORRECT; `no-answer empty-box unclosed-box` UNPARSED; `another-choice`, `hedged` (two
    letters, or two boxes that differ), `no-such-choice` and `limit` WRONG.
    """

    id: ClassVar[str] = "choice-verifier-v1"

    def verify(self, completion: str, reference: Mapping[str, Any]) -> Verdict:
        """The verdict on a completion.

        Args:
            completion: the model's text.
            reference: `options` and `answer`.

        Raises:
            DataError: the reference is no such mapping, or no option, or several, are the answer.
        """
        options, gold = check_choices(reference)
        found = extract(completion, markers=_MARKERS)
        if found is None:
            return Verdict(Outcome.UNPARSED, why="no-answer")
        if found.flaw in ("empty-box", "unclosed-box"):
            return Verdict(Outcome.UNPARSED, why=found.flaw)
        answer = found.answer
        if found.flaw == "hedged":
            return Verdict(
                Outcome.WRONG, why="hedged: several boxes in one statement differ", answer=answer
            )
        if len(answer) > _LONGEST:
            return Verdict(Outcome.WRONG, why="limit: an answer of more than 4,000 characters")
        chosen = _chosen(answer, options)
        if chosen is None:
            several = len(set(re.findall(rf"\b[A-{LETTERS[len(options) - 1]}]\b", answer))) > 1
            why = "hedged: several letters" if several else f"no-such-choice: {answer[:80]!r}"
            return Verdict(Outcome.WRONG, why=why, answer=answer)
        if chosen != gold:
            return Verdict(Outcome.WRONG, why=f"another-choice: {LETTERS[chosen]}", answer=answer)
        return Verdict(Outcome.CORRECT, why="same-choice", answer=answer)


def check_choices(reference: Any) -> tuple[tuple[str, ...], int]:
    """The options of a reference, and the index of the right one.

    Args:
        reference: a mapping of `options` and `answer`.

    Raises:
        DataError: it is none, has fewer than 2 or more than 26 options, or two that are the same; or the answer is none
            of them.
    """
    if not isinstance(reference, Mapping) or not isinstance(reference.get("options"), list | tuple):
        raise DataError(
            f"the reference is {brief(reference)}; it must be {{'options': ['4', '5'], 'answer': '5'}}"
        )
    return _read(tuple(reference["options"]), reference.get("answer"))


@lru_cache(maxsize=512)
def _read(options: tuple[Any, ...], answer: Any) -> tuple[tuple[str, ...], int]:
    if not 2 <= len(options) <= len(LETTERS) or not all(
        isinstance(one, str) and one.strip() for one in options
    ):
        raise DataError(
            f"the options are {brief(list(options))}; give 2 to 26 texts that are not empty"
        )
    folded = [_folded(one) for one in options]
    if len(set(folded)) < len(folded):
        twice = next(one for one in folded if folded.count(one) > 1)
        raise DataError(f"the option {twice!r} occurs twice; only one of the two could be right")
    if not isinstance(answer, str) or _folded(answer) not in folded:
        raise DataError(
            f"the answer {brief(answer)} is none of the options {brief(list(options))}; give its text"
        )
    return options, folded.index(_folded(answer))


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold().rstrip(". ")


def _chosen(answer: str, options: tuple[str, ...]) -> int | None:
    """The index of the option that an answer names; None if it names none, or is more than its name."""
    said = _WRAPPED.sub(r"\1", answer).strip().strip("$*`\"' ").strip()
    folded = [_folded(one) for one in options]
    if letter := _LETTER.fullmatch(said):
        index = LETTERS.index(letter[1].upper())
        named = folded.index(_folded(said)) if _folded(said) in folded else index
        return (
            index if named == index < len(options) else None
        )  # "b" may be the text of another option
    if named_too := _LETTER_AND_TEXT.fullmatch(said):
        index = LETTERS.index(named_too[1] or named_too[2])
        return index if index < len(options) and _folded(named_too[3]) == folded[index] else None
    return folded.index(_folded(said)) if _folded(said) in folded else None
