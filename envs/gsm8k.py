"""GSM8K: grade-school word problems (Cobbe et al., arXiv:2110.14168)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import rlvr
from rlvr.types import plain_reference
from rlvr.verifiers.math import GSM8K as GSM8K_POLICY
from rlvr.verifiers.math import MathVerifier

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["GSM8K"]

# "####" as in the data set, "A:" as in older files.
_MARKERS = ("####", "A:")
# -1,234.50, $5, 3/4, 20 %, 5 dollars: one number with a sign, currency or percent sign.
_NUMBER = re.compile(
    r"""\+?(?P<minus>-?)\s?[$€£]?\s?
        (?P<number>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)? | \.\d+ | \d+\s?/\s?0*[1-9]\d*)
        (?:\s?(?:%|percent|dollars?|cents?))?\.?""",
    re.VERBOSE | re.ASCII,
)


@rlvr.register("gsm8k-v4")
class GSM8K(rlvr.Environment):
    r"""Grade-school word problems; the reference is the number after '####', or
    after 'A:' in older files.

    A completion answers in its last \boxed{}, or else after its last '####' or 'A:'.

    Options:
        data: hub id, or a local .jsonl or .parquet file (or a folder with one per split) with
            columns `question` and `answer` (or `ground_truth`).
        instruction: what follows the question in the prompt.
    """

    domain = "mathematics"
    data: str = "openai/gsm8k"
    instruction: str = "Reason step by step, then put the final number in \\boxed{}."
    reward = rlvr.Correct(MathVerifier(policy=GSM8K_POLICY, markers=_MARKERS))

    def tasks(self) -> Iterator[rlvr.Task]:
        return self.tasks_in(self.data, name="main")

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        question, solution = row.get("question"), row.get("answer", row.get("ground_truth"))
        if question is not None and not isinstance(question, str):
            raise rlvr.DataError(f"{id}: column 'question' is {question!r}; it must be a text")
        if not isinstance(solution, str):
            raise rlvr.DataError(
                f"{id}: no text in column 'answer' (or 'ground_truth'); it has "
                f"{', '.join(map(repr, row))}"
            )
        prompt = "\n\n".join(filter(None, (question, self.instruction)))
        stated = _state_answer(solution)
        number = None if stated is None else _number(stated)
        if number is None:
            raise rlvr.DataError(
                f"{id}: no '####' or 'A:' with a number after it in {solution[-60:]!r}"
            )
        return rlvr.Task(id, prompt, reference=number, meta={"solution": solution})

    def reference_of(self, value: object) -> str | int | float:
        """The reference as a number, or as the text of one.

        Args:
            value: a number, its text, or a whole solution with the number after its last '####' or
                'A:'.

        Raises:
            DataError: it is none of these.
        """
        value = plain_reference(value)
        # True would be read as 1.
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return value
        number = _number(_state_answer(value) or value) if isinstance(value, str) else None
        if number is None:
            raise rlvr.DataError(
                f"the reference is {str(value)[-60:]!r}; it must be one number, or have one after "
                f"'####' or 'A:'"
            )
        return number


def _state_answer(solution: str) -> str | None:
    """The text after the last marker; None if there is none."""
    # The newer marker first, as a solution may hold both.
    for marker in _MARKERS:
        _, marker_text, text = solution.rpartition(marker)
        if marker_text:
            return text
    return None


def _number(text: str) -> str | None:
    """The number that is the whole text, without separators, currency and percent sign; None for
    any other text.

    Other words are refused, since they may be part of the value, as in "5 million" or "3 hours and
    20 minutes".
    """
    match = _NUMBER.fullmatch(text.strip().replace("\N{MINUS SIGN}", "-"))
    return match and match["minus"] + "".join(match["number"].replace(",", "").split())
