"""A verifier: the answer is a number close to the reference."""

from dataclasses import dataclass

import rlvr
from rlvr.verifiers.answers import Answer, Form
from rlvr.verifiers.base import BaseVerifier


@dataclass(frozen=True)
class Near(BaseVerifier[Answer, float]):
    """A number that is at most `by` from the reference.

    Attributes:
        by: the greatest difference.
    """

    by: float = 0.5
    version = 1
    form = Form(bare=True)

    def read(self, reference):
        if isinstance(reference, bool) or not isinstance(reference, int | float):
            raise rlvr.DataError(f"the reference is {reference!r}; it must be a number")
        return float(reference)

    def judge(self, answer, reference):
        try:
            value = float(answer.text)
        except ValueError:
            return rlvr.Verdict("unparsed", why="no-number", answer=answer.text)
        near = abs(value - reference) <= self.by
        outcome, why = ("correct", "near") if near else ("wrong", "far")
        return rlvr.Verdict(outcome, why=why, answer=answer.text)

    def example(self, reference):  # as `read` takes it
        return f"<answer>{reference}</answer>"
