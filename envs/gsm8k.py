"""GSM8K: grade-school word problems (Cobbe et al., arXiv:2110.14168)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import rlvr
from rlvr.rows import load_dataset
from rlvr.verifiers.math import GSM8K as GSM8K_POLICY
from rlvr.verifiers.math import MathVerifier

__all__ = ["GSM8K"]

_MARKERS = ("####", "A:")


@rlvr.register("gsm8k-v1")
class GSM8K(rlvr.SingleTurnEnv):
    r"""Grade-school word problems; the reference is the number after '####', or after 'A:' in older files.

    A completion answers in its last \boxed{}, else after its last marker, which are the same two.

    Options:
        data: hub id, or a local .jsonl or .parquet file (or a folder with one per split) with columns `question`
            and `answer` (or `ground_truth`).
        instruction: what follows the question in the prompt.
    """

    data: str = "openai/gsm8k"
    instruction: str = "Reason step by step, then put the final number in \\boxed{}."
    reward = rlvr.Correct(MathVerifier(policy=GSM8K_POLICY, markers=_MARKERS))

    def tasks(self) -> Iterator[rlvr.Task]:
        for index, row in enumerate(load_dataset(self.data, self.split, name="main")):
            yield self.task_from(row, id=f"{self.id}/{self.split}/{index}")

    def task_from(self, row: Mapping[str, Any], id: str = "row") -> rlvr.Task:
        solution = row.get("answer", row.get("ground_truth"))
        if not isinstance(solution, str):
            raise rlvr.DataError(
                f"{id}: no text in column 'answer' (or 'ground_truth'); it has {', '.join(map(repr, row))}"
            )
        prompt = "\n\n".join(filter(None, (row.get("question", ""), self.instruction)))
        return rlvr.Task(id, prompt, reference=_reference(solution, id), meta={"solution": solution})


def _reference(solution: str, id: str) -> str:
    for marker in _MARKERS:
        _, found, number = solution.rpartition(marker)
        if found and number.strip():
            return number.strip().replace(",", "")
    raise rlvr.DataError(f"{id}: no '####' or 'A:' with a number after it in {solution[-60:]!r}")
