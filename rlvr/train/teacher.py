"""A teacher: another frozen policy, which says how likely the rollouts' tokens are under it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rlvr.errors import UsageError
from rlvr.train.credit import Batch
from rlvr.train.part import LearnerPart
from rlvr.train.policy import Policy

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = ["Teacher"]


class Teacher(LearnerPart):
    """The model of the setting `teacher`, for algorithms that read `teacher_logprobs`.

    Attributes:
        policy: frozen, and in shards where the trained one is.

    Raises:
        UsageError: there is no such model, or its tokens are not those of the policy.
    """

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        student, name = learner.policy, learner.config.teacher
        assert name is not None  # the settings require it
        self.policy = Policy.load(
            name,
            device=student.device,
            dtype=next(student.model.parameters()).dtype,
            autocast=student.autocast,
            packing=student.packing,
            max_tokens=student.max_tokens,
        )
        _require_same_tokens(name, self.policy, student)
        self.policy.model.requires_grad_(False).eval()
        self.policy.shard(learner.ranks)

    @classmethod
    def of(cls, learner: Learner) -> Teacher | None:
        return cls(learner) if "teacher_logprobs" in learner.algorithm.reads else None

    def before(self, batch: Batch) -> Batch:
        return replace(batch, teacher_logprobs=self.learner.logprobs(batch.rows, self.policy))

    def after(self, batch: Batch) -> dict[str, float]:
        assert batch.teacher_logprobs is not None
        gap = (batch.behaviour_logprobs - batch.teacher_logprobs)[batch.completion_mask]
        return {"teacher_kl": float(gap.mean())} if len(gap) else {}


def _require_same_tokens(name: str, teacher: Policy, student: Policy) -> None:
    """Refuse a teacher that means other texts by the same numbers."""
    theirs, ours = _tokens(teacher), _tokens(student)
    for number in sorted(theirs.keys() | ours.keys()):
        if theirs.get(number) != ours.get(number):
            raise UsageError(
                f"token {number} is {theirs.get(number)!r} for the teacher {name} and {ours.get(number)!r} for the "
                "model; a teacher of sampled tokens needs the same vocabulary, as a larger model of the same family has"
            )
    rows = [len(one.model.get_output_embeddings().weight) for one in (teacher, student)]
    if rows[0] <= max(ours, default=0):
        raise UsageError(
            f"the teacher {name} has {rows[0]} tokens in its head, and the model's vocabulary goes up to {max(ours)}"
        )


def _tokens(policy: Policy) -> dict[int, str]:
    return {number: token for token, number in policy.tokenizer.get_vocab().items()}
