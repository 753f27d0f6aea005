"""The agent loop that verl calls; see `rlvr.interop.verl_episodes`.

verl's own loop, `tool_agent`, is not used: it opens and releases a tool around every call, drops
calls beyond `max_parallel_calls` without a reply, and tells an exception of a tool to the model.
Written against verl 0.9.1.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from rlvr.environment import make
from rlvr.errors import MissingDependency
from rlvr.interop.verl_episodes import Generated, VerlEpisodes
from rlvr.types import JsonDict, Outcome, Rollout

try:
    from verl.experimental.agent_loop.agent_loop import (
        AgentLoopBase,
        AgentLoopMetrics,
        AgentLoopOutput,
    )
except ImportError as error:
    raise MissingDependency(
        "verl, whose agent loop this is,", "", "pip install verl==0.9.1"
    ) from error

__all__ = ["EpisodeLoop"]

_players: dict[
    object, VerlEpisodes
] = {}  # verl makes a loop for each row; threads and workers are shared


class EpisodeLoop(AgentLoopBase):  # type: ignore[misc]  # verl has no types
    """verl's agent loop over an environment of rlvr.

    Args:
        env: name of the environment, for `rlvr.make`.
        options: its options.
        retries, max_turns, workers: see `VerlEpisodes`.
        end_texts: special tokens that end a turn beside the tokenizer's end token.
        more: what verl gives.
    """

    def __init__(
        self,
        *more: object,
        env: str,
        options: Mapping[str, object] | None = None,
        retries: int = 2,
        max_turns: int = 8,
        workers: int = 1,
        end_texts: tuple[str, ...] = (),
        **named: object,
    ) -> None:
        named.pop("tools", None)  # verl's own, which this loop does not use
        super().__init__(*more, **named)
        key = (
            env,
            repr(options),
            retries,
            max_turns,
            workers,
            tuple(end_texts),
            id(self.tokenizer),
        )
        if key not in _players:
            ends = [
                self.tokenizer.eos_token_id,
                *self.tokenizer.convert_tokens_to_ids(list(end_texts)),
            ]
            _players[key] = VerlEpisodes(
                make(env, **dict(options or {})),
                self.tokenizer,
                ends,
                prompt_length=self.rollout_config.prompt_length,
                response_length=self.rollout_config.response_length,
                retries=retries,
                max_turns=max_turns,
                workers=workers,
            )
        self._player = _players[key]

    async def run(self, sampling_params: JsonDict, **row: Any) -> AgentLoopOutput:
        """Play one episode.

        Args:
            sampling_params: verl's, which its server samples with.
            row: the columns of the row.

        Raises:
            Unscored: see `VerlEpisodes.play`.
        """
        began, spent, heard, name = time.perf_counter(), [0.0], list[dict[str, Any]](), uuid4().hex
        scored = [True]

        async def generate(context: list[int], limit: int) -> Generated:
            asked_at = time.perf_counter()
            generated: Generated = await self.server_manager.generate(
                request_id=name,
                prompt_ids=context,
                sampling_params={**sampling_params, "max_tokens": limit},
            )
            spent[0] += time.perf_counter() - asked_at
            heard.append(getattr(generated, "extra_fields", None) or {})
            scored[0] = scored[0] and bool(generated.log_probs)
            return generated

        rollout = await self._player.play(dict(row.get("extra_info") or {}), generate)
        assert rollout.score is not None
        tools_s = time.perf_counter() - began - spent[0]
        return AgentLoopOutput(
            prompt_ids=list(rollout.prompt_ids),
            response_ids=list(rollout.completion_ids),
            response_mask=[int(is_own) for is_own in rollout.completion_mask],
            response_logprobs=list(rollout.behaviour_logprobs) if scored[0] else None,
            reward_score=rollout.score.total,
            num_turns=2 * max(1, len(rollout.turns)),
            metrics=AgentLoopMetrics(generate_sequences=spent[0], tool_calls=tools_s),
            extra_fields=_extra(rollout, heard),
        )


def _extra(rollout: Rollout, heard: list[JsonDict]) -> dict[str, object]:
    """What verl logs: the server's own fields, and of every episode the same numbers."""
    assert rollout.score is not None
    outcome = rollout.score.verdict.outcome
    steps = [
        step
        for fields in heard
        for step in (fields.get("min_global_steps"), fields.get("max_global_steps"))
        if step is not None
    ]
    calls = () if rollout.episode is None else rollout.episode.calls
    info = {
        "score": rollout.score.total,
        "acc": float(outcome is Outcome.CORRECT),
        "unparsed": float(outcome is Outcome.UNPARSED),
        "truncated": float(rollout.truncated),
        "calls": float(len(calls)),
        "call_errors": float(sum(call.error for call in calls)),
    }
    return {
        **(heard[0] if heard else {}),
        "min_global_steps": min(steps, default=None),
        "max_global_steps": max(steps, default=None),
        "turn_scores": [turn.reward for turn in rollout.turns if turn.reward is not None],
        "tool_rewards": [],
        "reward_extra_info": info,
    }
