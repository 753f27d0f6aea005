"""MATH and data sets like it: a problem, and a solution whose last box holds the
answer (arXiv:2103.03874)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import rlvr
from rlvr.types import plain_reference
from rlvr.verifiers.math import BOXED, MathPolicy, MathVerifier, extract

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["MATH"]

_EXACT = MathVerifier(policy=MathPolicy(symbolic=False))  # starts no engine


@rlvr.register("math-v4")
class MATH(rlvr.Environment):
    r"""Competition problems; the reference is the column `answer`, else the
    last \boxed{} of `solution`.

    Options:
        data: hub id, or a local .jsonl or .parquet file (or a folder with one per split) with
            `problem`, or `question`, and `answer`, `final_answer` or `solution`; or a named set:
            aime-2024, aime-2025, amc-2023, math-500, minerva, olympiadbench.  MATH-500's own split
            is "test".
        instruction: what follows the problem in the prompt.
    """

    domain = "mathematics"
    split: str = "test"
    data: str = "HuggingFaceH4/MATH-500"
    instruction: str = "Reason step by step, then put the final answer in \\boxed{}."
    reward = rlvr.Correct(MathVerifier())

    def tasks(self) -> Iterator[rlvr.Task]:
        return self.tasks_in(self.data)

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        problem = row.get("problem", row.get("question"))
        if problem is not None and not isinstance(problem, str):
            raise rlvr.DataError(
                f"{id}: column 'problem' (or 'question') is {problem!r}; it must be a text"
            )
        prompt = "\n\n".join(filter(None, (problem, self.instruction)))
        meta = {k: row[k] for k in ("subject", "level", "unique_id") if k in row}
        return rlvr.Task(id, prompt, reference=self._reference(row, id), meta=meta)

    def reference_of(self, value: object) -> str | int | float:
        """The reference as a number or a text.

        Args:
            value: a number, a text, or a whole solution whose last box holds the answer.

        Raises:
            DataError: it is none of these, or has no value, such as 1/0.
        """
        value = plain_reference(value)
        if isinstance(value, str) and value.strip():
            # A solution with a box is that box; any other text is the answer itself.
            answer = _last_box(value) or value
            _EXACT.read(answer)  # reports 1/0 when the data is read, not at every completion
            return answer
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return value
        raise rlvr.DataError(
            f"the reference is {value!r}; it must be a number, or a text that is not empty"
        )

    def _reference(self, row: Mapping[str, object], id: str) -> str:
        answer, solution = row.get("answer", row.get("final_answer")), row.get("solution")
        if isinstance(answer, list):  # of OlympiadBench
            answer = ", ".join(map(str, answer))
        if answer is not None and str(answer).strip():
            return self._name_answer(answer, id)
        # A solution counts only where there is no answer.
        if isinstance(solution, str) and (box := _last_box(solution)):
            return self._name_answer(box, id)
        raise rlvr.DataError(
            f"{id}: neither a column 'answer' (or 'final_answer') nor a box in 'solution'; "
            f"it has {', '.join(map(repr, row))}"
        )

    def _name_answer(self, answer: object, id: str) -> str:
        try:
            return str(self.reference_of(answer))
        except rlvr.DataError as error:
            raise rlvr.DataError(f"{id}: {error}") from None


def _last_box(text: str) -> str | None:
    answer = extract(text) if BOXED(text) else None
    return answer.answer if answer else None
