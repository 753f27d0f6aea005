"""Multiple choice from any rows: GPQA, MMLU-Pro, SciQ, ARC and others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import rlvr
from rlvr.types import JsonDict
from rlvr.verifiers.choices import LETTERS, ChoiceVerifier

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["MultipleChoice"]

_RIGHT = ("Correct Answer", "correct_answer")
# GPQA numbers its wrong answers, SciQ its distractors.
_WRONG = re.compile(r"Incorrect Answer \d+|distractor\d+|incorrect_answer_?\d+")
# "All of the above", "both A and B": they mean the letters as they stand.
_POINTS_AT_OTHERS = re.compile(
    r"(?i)\b(?:all|none|both|neither|any|either) of (?:the |these|them)|\b[A-J] (?:and|or) [A-J]\b"
)


@rlvr.register("mcq-v4")
class MultipleChoice(rlvr.Environment):
    r"""Questions with lettered options; a completion answers with one letter in \boxed{}.

    A guess is right once in k times, with k options: `meta["guess_rate"]`.

    Options:
        data: hub id, or a local file or folder, with `question`, and `options` (or `choices`) and
            `answer`: a letter, an index counted from 0, or the text; or with the columns of GPQA or
            SciQ; or "gpqa-diamond".
        shuffle: whether each question has an order of its own, drawn from its text.  Options that
            point at others, such as "all of the above", keep theirs.
        instruction: what follows the options.
    """

    domain = "choices"
    split: str = "test"
    data: str = "TIGER-Lab/MMLU-Pro"
    shuffle: bool = True
    instruction: str = (
        "Reason step by step, then put the letter of the one right option in \\boxed{}."
    )
    reward = rlvr.Correct(ChoiceVerifier())

    def tasks(self) -> Iterator[rlvr.Task]:
        return self.tasks_in(self.data)

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        question = row.get("question", row.get("Question"))
        if not isinstance(question, str) or not question.strip():
            raise rlvr.DataError(
                f"{id}: no text in column 'question'; it has {', '.join(map(repr, row))}"
            )
        try:
            reference = _reference(row)
            self.reference_of(reference)
        except rlvr.DataError as error:
            raise rlvr.DataError(f"{id}: {error}") from None
        options = reference["options"]
        if self.shuffle and not any(map(_POINTS_AT_OTHERS.search, options)):
            # From the question, so that the same row has the same order in every data set.
            rlvr.seeded(self.id, question, *options).shuffle(options)
        listed = "\n".join(
            f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)
        )
        meta = {"guess_rate": 1 / len(options)}
        return rlvr.Task(id, f"{question}\n\n{listed}\n\n{self.instruction}", reference, meta)

    def example(self, task: rlvr.Task) -> str:
        return ChoiceVerifier().example(task.reference)


def _reference(row: Mapping[str, object]) -> JsonDict:
    right = next((row[name] for name in _RIGHT if name in row), None)
    if right is not None:
        return {
            # The right one first; shuffling follows.
            "options": [str(right), *(str(row[name]) for name in row if _WRONG.fullmatch(name))],
            "answer": right,
        }
    options, answer = (
        row.get("options", row.get("choices")),
        row.get("answer", row.get("answerKey")),
    )
    labels = list(LETTERS)
    if isinstance(options, Mapping):  # as ARC has them
        labels, options = options.get("label", labels), options.get("text")
    if not isinstance(options, list | tuple):
        raise rlvr.DataError(
            f"no list in column 'options' or 'choices'; it has {', '.join(map(repr, row))}"
        )
    options = [str(option) for option in options]
    # A letter that is no option's text is a label.
    if isinstance(answer, str) and answer not in options and answer in labels[: len(options)]:
        answer = labels.index(answer)
    # True is no index.
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(options):
        answer = options[answer]
    return {"options": options, "answer": answer}
