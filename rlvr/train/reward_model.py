"""Reward models: a scalar head on a language model; `rlvr.train.reward_losses` trains them.

A completion's reward is read after its last token, a step's after the step.

A reward model guesses; only a verifier's verdict says what is right.  So what it says of
completions is a part of a reward, with bounds, and never a verdict; `rlvr audit --reward-model`
measures it against labels.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor

from rlvr.errors import RewardError, UsageError, describe_error
from rlvr.samplers.protocol import Tokenized, TokenRow
from rlvr.train.critic import ValueModule
from rlvr.train.policy import Policy
from rlvr.train.reward_head import (
    HEAD,
    IMPLICIT,
    Reads,
    implicit_run,
    require_reads,
    version_of,
)
from rlvr.train.trained_rows import step_row
from rlvr.types import Message, Prompt

__all__ = ["ImplicitRewardModel", "RewardModel", "head_scorer", "numbers_of"]

_MOST_LETTERS = 1 << 20  # of a completion: tokenizing more would take longer than the model


def head_scorer(policy: Policy) -> tuple[Policy, ValueModule]:
    """A policy whose `logprobs` are the head's numbers: batching, packing and precision are the
    policy's.

    Args:
        policy: with the model's layers.
    """
    scorer = copy.copy(policy)
    module = ValueModule(policy)
    scorer.root = module
    return scorer, module


def numbers_of(scorer: Policy, rows: Sequence[Tokenized]) -> Float[Tensor, "N T1"]:
    """The numbers before each token, and after the last.

    Args:
        scorer: of `head_scorer`.
        rows: N completions of at most T tokens.
    """
    # One token more, whatever it is, so that the state after the last one is before another.
    return scorer.logprobs([TokenRow(row.prompt_ids, [*row.completion_ids, 0]) for row in rows])


def _clean(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _clean_message(message: Message) -> Message:
    content = message.get("content")
    return {**message, "content": _clean(content)} if isinstance(content, str) else message


class RewardModel:
    """A trained reward model, which scores completions in batches.

    Args:
        policy: with the model's layers.
        head: its weight [1, H] and bias [1]; None for a kind without one.
        version: of the model, see `rlvr.train.learned_reward`.
        reads: what it is to judge.

    Attributes:
        version: as it was given.
        reads: as it was given.
    """

    def __init__(
        self,
        policy: Policy,
        head: Mapping[str, Tensor] | None,
        version: str = "",
        reads: Reads = "completions",
    ) -> None:
        if head is not None:
            self._scorer, module = head_scorer(policy)
            module.head.load_state_dict(dict(head))
        self._tokenization, self.version, self.reads = policy.tokenization, version, reads
        text = policy.model.config.get_text_config()
        self._positions: float = getattr(text, "max_position_embeddings", None) or math.inf

    @classmethod
    def load(
        cls, folder: str | Path, *, reads: Reads = "completions", **options: Any
    ) -> RewardModel:
        """A model that `rlvr train --algorithm reward_model`, or `process_reward_model`, has
        written.

        Args:
            folder: RUN/model; or implicit:RUN, see `ImplicitRewardModel`.
            reads: what it is to judge: completions by `scores`, or steps by `step_scores`.
            options: those of `Policy.load`.

        Raises:
            UsageError: it is no reward model, or one of the other kind.
        """
        version = version_of(folder)
        require_reads(folder, reads)
        if str(folder).startswith(IMPLICIT):
            trained, reference, beta = implicit_run(folder)
            policies = Policy.load(trained, **options), Policy.load(reference, **options)
            return ImplicitRewardModel(*policies, beta, version)
        head = load_file(Path(folder) / HEAD)
        return cls(Policy.load(folder, **options), head, version, reads)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def scores(self, prompts: Sequence[Prompt], completions: Sequence[str]) -> list[float]:
        """σ(r) of each completion, in [0, 1]; above ½ is better than the average of the training
        pairs, if centred.

        A completion that is too long for the model gets 0, the least value: a policy gains nothing
        by it.

        Args:
            prompts: one for each completion.
            completions: their texts; each is read with its end token.

        Raises:
            UsageError: a prompt alone is too long for the model, has no tokens, or is refused by
                the chat template.
            RewardError: the model gave a number that is not finite.
        """
        read = {}
        for place, (prompt, text) in enumerate(zip(prompts, completions, strict=True)):
            if (row := self._row(prompt, [text])) is not None:
                read[place] = row[0]
        of_rows = [0.0] * len(completions)
        if not read:
            # No completion fits, and the model would refuse a batch of no rows.
            return of_rows
        values = self._rewards(list(read.values())).sigmoid().tolist()
        for place, value in zip(read, values, strict=True):
            if not math.isfinite(value):
                raise RewardError(
                    f"the reward model gave {value} for completion {place}; train it with a "
                    f"smaller lr"
                )
            of_rows[place] = value
        return of_rows

    def _rewards(self, rows: Sequence[Tokenized]) -> Float[Tensor, " N"]:
        """The reward of each row, of any size."""
        numbers = numbers_of(self._scorer, rows)
        ends = torch.tensor([len(row.completion_ids) for row in rows], device=numbers.device)
        return numbers.gather(1, ends[:, None]).squeeze(1)

    def _row(self, prompt: Prompt, steps: Sequence[str]) -> tuple[Tokenized, list[int]] | None:
        """A completion in steps in tokens, and where these end; None for one that is too long."""
        # In characters first: tokenizing a huge text would itself take too long.
        if sum(map(len, steps)) > _MOST_LETTERS:
            return None
        # A text of a file may have half a surrogate pair, which no tokenizer takes.
        clean = (
            _clean(prompt)
            if isinstance(prompt, str)
            else [_clean_message(message) for message in prompt]
        )
        try:
            row, ends = step_row(self._tokenization, clean, list(map(_clean, steps)))
        except UsageError:
            raise
        except (
            Exception
        ) as error:  # templates raise what they like, such as for a role that they do not know
            name, reason, _ = describe_error(error)
            raise UsageError(
                f"the tokenizer or its chat template refuses the row: {name}: {reason}"
            ) from error
        # The prompt is the task's and no fault of the completion.
        if len(row.prompt_ids) >= self._positions:
            raise UsageError(
                f"the prompt has {len(row.prompt_ids)} tokens and the reward model "
                f"{self._positions} positions; leave out tasks of such length, or train a model "
                "with more"
            )
        fits = len(row.prompt_ids) + len(row.completion_ids) <= self._positions
        return (row, ends) if fits else None

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step_scores(self, prompt: Prompt, steps: Sequence[str]) -> list[float]:
        """σ(logit) after each step of one completion: the estimated share of right continuations.

        The steps of a completion that is too long for the model get 0.

        Args:
            prompt: of the task.
            steps: the completion in parts, with their delimiters.

        Raises:
            UsageError: as of `scores`.
        """
        row = self._row(prompt, steps)
        return [0.0] * len(steps) if row is None else self._of_steps(*row)

    def _of_steps(self, row: Tokenized, ends: Sequence[int]) -> list[float]:
        numbers = numbers_of(self._scorer, [row])[0]
        # Column e is the number after e tokens.
        rewards: list[float] = numbers[torch.tensor(ends)].sigmoid().tolist()
        return rewards


class ImplicitRewardModel(RewardModel):
    """A policy trained by preferences, as a reward model: r = β Σ log π / π_ref
    (arXiv:2305.18290, eq. 5).

    Args:
        policy: π.
        reference: π_ref, with which its training began; of the same vocabulary.
        beta: β of that training.
        version: see `RewardModel`.
    """

    def __init__(self, policy: Policy, reference: Policy, beta: float, version: str = "") -> None:
        super().__init__(policy, None, version)
        self._policy, self._reference, self._beta = policy, reference, beta

    def _of_tokens(self, rows: Sequence[Tokenized]) -> Float[Tensor, "N T"]:
        # At temperature 1, whatever completions are sampled at.
        return self._beta * (self._policy.logprobs(rows) - self._reference.logprobs(rows))

    def _rewards(self, rows: Sequence[Tokenized]) -> Float[Tensor, " N"]:
        return self._of_tokens(rows).sum(dim=1)  # 0 behind the end of a row

    def _of_steps(self, row: Tokenized, ends: Sequence[int]) -> list[float]:
        """β Σ log π / π_ref over the tokens of each step, without bounds."""
        rewards = self._of_tokens([row])[0].tolist()
        return [sum(rewards[start:stop]) for start, stop in pairwise([0, *ends])]
