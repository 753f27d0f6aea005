"""Frozen policies beside the trained one: the reference policy, and teachers.

A teacher is another model, or the reference policy whose prompts show the task's reference.
Sampled tokens have its log-probabilities; algorithms that compare whole distributions have a
divergence per token, of which the logits of one block of tokens exist at a time, in the forward
pass and in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlvr.errors import UsageError
from rlvr.samplers.protocol import Tokenized, TokenRow
from rlvr.train.batches import Padded
from rlvr.train.credit import Batch
from rlvr.train.logprobs import LogitsTransform
from rlvr.train.part import LearnerPart
from rlvr.train.policy import Policy
from rlvr.types import Prompt, Rollout

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = ["Reference", "SelfTeacher", "Teacher"]

_BLOCK: Final = 2**22  # logits of a block, of the policy and of the teacher each


class Reference(LearnerPart):
    """The reference policy: the policy as it was given, or at the last reset.

    Attributes:
        policy: a frozen copy, or with LoRA the same weights with the adapter switched off.
    """

    name = "reference"
    wants = "has_reference"

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self.policy = learner.policy.frozen_copy()

    def before(self, batch: Batch) -> Batch:
        algorithm = self.learner.algorithm
        if algorithm.kl is None and "ref_logprobs" not in algorithm.reads:
            return batch
        return replace(batch, ref_logprobs=self.learner.logprobs(batch.rows, self.policy))

    def reset(self) -> None:
        self.policy.load_state_dict(self.learner.policy.state_dict())

    def state(self) -> Any:
        return self.policy.state_dict()

    def load(self, state: Any) -> None:
        self.policy.load_state_dict(state)


class Teacher(LearnerPart):
    """The model of the setting `teacher`, for algorithms that read
    `teacher_logprobs` or a `divergence`.

    Attributes:
        policy: frozen, and in shards where the trained one is.

    Raises:
        UsageError: there is no such model, or its tokens are not those of the policy.
    """

    wants = "needs_teacher"

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        student, name = learner.policy, learner.config.teacher
        assert name is not None  # the settings require it
        if "://" in name:
            raise UsageError(
                f"teacher is {name!r}, and teachers behind servers are not there: their models "
                "compute beside the policy; give a folder, or an id on the hub"
            )
        self.policy = Policy.load(
            name,
            device=student.device,
            in_shares=learner.ranks.world > 1,
            # In the policy's own type, so that differences are the models' and no rounding.
            dtype=next(student.model.parameters()).dtype,
            autocast=student.autocast,
            packing=student.packing,
            max_tokens=student.max_tokens,
        )
        _require_same_tokens(name, self.policy, student)
        self.policy.model.requires_grad_(False).eval()
        self.policy.shard(learner.ranks)

    @property
    def makes_logprobs(self) -> bool:
        return "divergence" in self.learner.algorithm.reads

    def rows(self, batch: Batch) -> Sequence[Tokenized]:
        """The rows as the teacher sees them.

        Args:
            batch: any part of the whole one.
        """
        return batch.rows

    def before(self, batch: Batch) -> Batch:
        rows: object = self.rows(batch)
        return replace(batch, teacher_logprobs=self.learner.logprobs(rows, self.policy))

    def logprobs(self, micro: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Log-probabilities under the policy, and the divergence from the teacher at each token,
        with gradients.

        Args:
            micro: a micro-batch.
        """
        temperature = self.learner.temperature
        sides: list[_Side] = []

        def keep(batch: Padded, states: Tensor, head: Any) -> Tensor:
            # A gathered weight is freed after the forward pass
            # of its module, so it is copied while it is there.
            weight = head.weight.clone() if self.learner.ranks.world > 1 else head.weight
            sides.append(_Side(batch, states, weight, head.bias))
            return states.new_zeros(len(states))

        def compare(batch: Padded, states: Tensor, head: Any) -> Tensor:
            student = _Side(batch, states, head.weight, head.bias)
            transforms = self.learner.policy.root.logits, self.policy.root.logits
            return self._in_blocks(student, sides[0], transforms, temperature)

        with torch.no_grad():
            # Without gradients, and first: `compare` reads what was kept.
            self.policy.compare(self.rows(micro), temperature, keep)
        logprobs, divergence = self.learner.policy.compare(micro.rows, temperature, compare)
        return logprobs, {"divergence": divergence}

    def _in_blocks(
        self,
        student: _Side,
        teacher: _Side,
        transforms: tuple[LogitsTransform, LogitsTransform],
        temperature: float,
    ) -> Tensor:
        algorithm: Any = self.learner.algorithm
        # The teacher's rows may lie otherwise, as its prompts may be longer.
        order = _order(student.batch, teacher.batch)
        # Tokens of a block: 2²² logits over the vocabulary.
        size = max(1, _BLOCK // len(student.weight))

        def of_block(own: Tensor, weight: Tensor, theirs: Tensor) -> Tensor:
            mine = _log_softmax(own, weight, student.bias, transforms[0], temperature)
            with torch.no_grad():
                # Rows of padding in the teacher's head are left out.
                teacher_logprobs = _log_softmax(
                    theirs, teacher.weight, teacher.bias, transforms[1], temperature
                )[:, : mine.shape[1]]
            divergence: Tensor = algorithm.divergence(mine, teacher_logprobs)
            return divergence

        blocks = zip(student.states.split(size), teacher.states[order].split(size), strict=True)
        # Logits of a block are made again in the backward
        # pass, so those of one block exist at a time.
        run = partial(checkpoint, of_block, use_reentrant=False)
        return torch.cat(
            [
                run(student_block, student.weight, teacher_block)
                for student_block, teacher_block in blocks
            ]
        )

    def after(self, batch: Batch) -> dict[str, float]:
        assert batch.teacher_logprobs is not None
        # Tokens are the policy's own: the mean of log π - log π_T is the KL from the teacher.
        gap = (batch.behaviour_logprobs - batch.teacher_logprobs)[batch.completion_mask]
        return {"teacher_kl": float(gap.mean())} if len(gap) else {}


class SelfTeacher(Teacher):
    """The reference policy, whose prompts show the task's reference."""

    wants = "teaches_itself"

    def __init__(self, learner: Learner) -> None:
        LearnerPart.__init__(self, learner)
        self._prompts: Sequence[Sequence[int]] = ()

    @property
    def policy(self) -> Policy:  # type: ignore[override]  # another part has it
        reference = self.learner.part(Reference)
        assert reference is not None
        return reference.policy

    def rows(self, batch: Batch) -> Sequence[Tokenized]:
        assert batch.group is not None
        groups: list[int] = batch.group.tolist()
        return [
            TokenRow(self._prompts[group], row.completion_ids, row.truncated)
            for group, row in zip(groups, batch.rows, strict=True)
        ]

    def before(self, batch: Batch) -> Batch:
        ranks = self.learner.ranks
        # Texts are on the first rank alone; the others get tokens.
        self._prompts = ranks.from_first(self._show_prompts(batch) if ranks.first else None)
        return super().before(batch)

    def _show_prompts(self, batch: Batch) -> list[Sequence[int]]:
        """The teacher's prompt of each group, in tokens."""
        assert batch.group is not None
        rows: dict[int, Rollout] = dict(zip(batch.group.tolist(), batch.rows, strict=True))
        algorithm: Any = self.learner.algorithm
        encode = self.learner.policy.tokenization.encode
        return [encode(_with_reference(rows[i], algorithm.shown)) for i in range(len(rows))]


class _Side(NamedTuple):
    """What a policy's logits are made from: of N tokens, in the order of a micro-batch."""

    batch: Padded
    states: Tensor
    weight: Tensor
    bias: Tensor | None


def _order(student: Padded, teacher: Padded) -> Tensor:
    """For each token of the policy's micro-batch, its place in the teacher's, whose rows may lie
    otherwise."""
    place = torch.zeros(teacher.height, teacher.width, dtype=torch.long, device=teacher.rows.device)
    place[teacher.rows, teacher.columns] = torch.arange(len(teacher.rows), device=place.device)
    return place[student.rows, student.columns]


def _log_softmax(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    transform: LogitsTransform,
    temperature: float,
) -> Tensor:
    z = torch.nn.functional.linear(states, weight.to(states.dtype), bias)
    # In float32 at least, as the policy's own log-probabilities are.
    logits = z.to(torch.promote_types(z.dtype, torch.float32)) * transform.scale
    if transform.softcap is not None:
        logits = transform.softcap * (logits / transform.softcap).tanh()
    return (logits / temperature).log_softmax(dim=-1)


def _with_reference(rollout: Rollout, shown: str) -> Prompt:
    """The prompt of a rollout's task with its reference."""
    task = rollout.task
    if task.reference is None:
        raise UsageError(
            f"task {task.id!r} has no reference, which the teacher would be shown; use another "
            f"algorithm"
        )
    prompt = task.prompt
    if isinstance(prompt, str):
        return _fill_in(shown, prompt, task.reference)
    last = {**prompt[-1], "content": _fill_in(shown, str(prompt[-1]["content"]), task.reference)}
    return [*prompt[:-1], last]


def _fill_in(shown: str, prompt: str, reference: object) -> str:
    """The text with both put in; braces in either stay as they are."""
    # Cut at the prompt's place: a prompt may contain "{reference}" itself.
    before, _, after = shown.partition("{prompt}")
    parts = (before, prompt, after)
    return "".join(
        part if part is prompt else part.replace("{reference}", str(reference)) for part in parts
    )


def _require_same_tokens(name: str, teacher: Policy, student: Policy) -> None:
    """Refuse a teacher that means other texts by the same numbers."""
    first, second = _tokens(teacher), _tokens(student)
    # Every number that either has: one token apart is another vocabulary.
    for number in sorted(first.keys() | second.keys()):
        if first.get(number) != second.get(number):
            raise UsageError(
                f"token {number} is {first.get(number)!r} for the teacher {name} and "
                f"{second.get(number)!r} for the model; a teacher of sampled tokens needs the same "
                "vocabulary, as a larger model of the same family has"
            )
    # Heads may be padded beyond the vocabulary, but not shorter.
    rows = [len(policy.model.get_output_embeddings().weight) for policy in (teacher, student)]
    if rows[0] <= max(second, default=0):
        raise UsageError(
            f"the teacher {name} has {rows[0]} tokens in its head, and the model's vocabulary goes "
            f"up to {max(second)}"
        )


def _tokens(policy: Policy) -> dict[int, str]:
    return {number: token for token, number in policy.tokenizer.get_vocab().items()}
