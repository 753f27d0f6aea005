"""Episodes as trajectories of ATIF, the format that harbor, NeMo Gym and OpenEnv read.

    Path("trajectory.json").write_text(json.dumps(to_atif(record)))

Written against ATIF v1.7 (harbor 0.25.0 reads it and v1.8).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from rlvr.episode import EpisodeRecord, EpisodeTurn
from rlvr.errors import DataError, brief
from rlvr.types import JsonDict, Rollout

__all__ = ["to_atif"]

_VERSION: Final = "ATIF-v1.7"
_SOURCES: Final = {"system": "system", "user": "user", "assistant": "agent"}


def to_atif(
    source: Rollout | Mapping[str, object],
    *,
    model: str | None = None,
    tools: Sequence[Mapping[str, object]] = (),
) -> dict[str, object]:
    """A trajectory of one episode, of one reply or of many.

    The reward stands under `extra`, with outcome and reason; UNSCORED has the reward None.

    Args:
        source: a rollout, whose tokens and log-probabilities are then those of its turns; or a
            record as `rlvr eval` and `rlvr score` write it.
        model: name of the policy.
        tools: the schemas of the tools, as `Episode.schemas` gives them.

    Raises:
        DataError: `source` is neither.
    """
    name, prompt, episode, score = _parts(source)
    steps = [*_prompt_steps(prompt), *_turn_steps(episode, source)]
    agent: dict[str, object] = {"name": "rlvr", "version": version("rlvr")}
    agent |= {"model_name": model} if model else {}
    agent |= {"tool_definitions": [dict(tool) for tool in tools]} if tools else {}
    return {
        "schema_version": _VERSION,
        "session_id": name,
        "agent": agent,
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {"total_steps": len(steps)},
        "extra": {"end": episode.end, "final": episode.final, **score},
    }


def _parts(source: Any) -> tuple[str, object, EpisodeRecord, JsonDict]:
    """Name, prompt, episode and score."""
    if isinstance(source, Rollout):
        verdict = source.score and source.score.verdict
        score = {
            "reward": source.score and source.score.total,
            "outcome": verdict and verdict.outcome.value,
            "why": verdict and verdict.why,
        }
        end = "tokens" if source.truncated else "answer"
        record = source.episode or EpisodeRecord((EpisodeTurn(source.text),), end)
        return source.task.id, source.task.prompt, record, score
    try:
        if source.get("episode") is not None:
            record = EpisodeRecord.from_dict(source["episode"])
        else:
            end = "tokens" if source.get("truncated") else "answer"
            record = EpisodeRecord((EpisodeTurn(str(source["completion"])),), end)
        score = {"reward": source.get("total"), "outcome": source.get("outcome")}
        return str(source["task"]), source["prompt"], record, {**score, "why": source.get("why")}
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(
            f"{brief(source)} is neither a rollout nor a record of a score "
            f"({type(error).__name__}: {error})"
        ) from None


def _prompt_steps(prompt: Any) -> Iterator[dict[str, object]]:
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    for message in messages:
        yield {"source": _SOURCES.get(message["role"], "user"), "message": str(message["content"])}


def _turn_steps(episode: EpisodeRecord, source: object) -> Iterator[dict[str, object]]:
    turns = source.turns if isinstance(source, Rollout) else ()
    for number, turn in enumerate(episode.turns):
        step: dict[str, object] = {"source": "agent", "message": turn.text, "llm_call_count": 1}
        if turn.calls:
            step["tool_calls"] = [
                {"tool_call_id": c.id, "function_name": c.name, "arguments": dict(c.arguments)}
                for c in turn.calls
            ]
            step["observation"] = {
                "results": [{"source_call_id": c.id, "content": c.reply} for c in turn.calls]
            }
        if metrics := _metrics(source, turns, number):
            step["metrics"] = metrics
        yield step
        if turn.user is not None:
            yield {"source": "user", "message": turn.user}


def _metrics(source: object, turns: Sequence[Any], number: int) -> dict[str, object]:
    """The tokens of a policy's turn, where they are known."""
    if not isinstance(source, Rollout):
        return {}
    if turns:
        if number >= len(turns):
            return {}
        begin, end = turns[number].start, turns[number].stop
    else:
        begin, end = 0, len(source.completion_ids)
    ids = [int(token_id) for token_id in source.completion_ids[begin:end]]
    logprobs = [float(logprob) for logprob in source.behaviour_logprobs[begin:end]]
    return {"completion_tokens": len(ids), "completion_token_ids": ids, "logprobs": logprobs}
