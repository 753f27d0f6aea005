"""Rollouts of a step for people: the file in RUN/rollouts, and the table on the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from rlvr.collect.groups import Groups
from rlvr.collect.stats import Dropped
from rlvr.data.rollouts import write_rollouts
from rlvr.text import inert
from rlvr.train.credit import Batch
from rlvr.train.part import LearnerPart
from rlvr.train.rollout_batch import RolloutBatch
from rlvr.train.step_recorder import StepRecorder
from rlvr.types import Group, JsonDict, Rollout, Task

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = ["RolloutRecorder", "Trained", "log_rollouts", "rollout_table", "trained_rollouts"]


class RolloutRecorder(LearnerPart):
    """Prints the rollouts of a step as a table, and writes those of every
    `rollouts_every`-th step."""

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self._step = 0
        self._sampled: RolloutBatch | None = None
        self._by: Groups | None = None
        self._trained: dict[int, Trained] = {}
        self._has_tokens = False

    @classmethod
    def is_wanted(cls, learner: Learner) -> bool:
        return bool(learner.config.rollouts_every or learner.config.show_rollouts)

    @property
    def _is_written(self) -> bool:
        every = self.learner.config.rollouts_every
        return bool(every) and self._step % every == 0

    def begin_at(self, step: int) -> None:
        self._step = step

    def extend(self, sampled: RolloutBatch, step: int, by: Groups) -> RolloutBatch:
        self._sampled, self._by, self._trained = sampled, by, {}
        self._has_tokens = False
        return sampled

    def after(self, batch: object) -> dict[str, float]:
        learner, logprobs = self.learner, dict[int, Sequence[float]]()
        if isinstance(batch, Batch):
            recorder = learner.part(StepRecorder)
            if recorder is not None and recorder.is_written and self._is_written:
                self._has_tokens, logprobs = True, recorder.last_logprobs()
            if self._sampled is not None and (self._is_written or learner.config.show_rollouts):
                self._trained = trained_rollouts(batch.rows, batch, logprobs)
        return {}

    def end_step(self, step: int) -> None:
        if self._sampled is not None and self._by is not None:
            self._log(self._sampled, self._by, step)
        self._step, self._sampled = step, None

    def _log(self, sampled: RolloutBatch, by: Groups, step: int) -> None:
        config, groups = self.learner.config, (sampled.groups, sampled.dropped)
        if config.show_rollouts:
            self.learner.say(rollout_table(step, *groups, self._trained, config.show_rollouts))
        if self._is_written:
            log_rollouts(
                config.run / "rollouts" / f"step-{step:08d}.parquet",
                *groups,
                env_of=by.env.name_of,
                trained=self._trained,
                decode=by.sampler.decode if self._has_tokens else None,
            )


@dataclass(frozen=True, slots=True)
class Trained:
    """What a step made of a rollout.  T = number of completion tokens.

    Attributes:
        advantage: the mean over the tokens that were trained on; None if none was.
        advantages: of each token, shape [T]; 0 for tokens that were not trained on.
        logprobs: of each token in the last update of the step, shape [T]; None without a step file,
            or an update of it.
    """

    advantage: float | None
    advantages: Sequence[float]
    logprobs: Sequence[float] | None = None


def trained_rollouts(
    rows: Sequence[Rollout], batch: Batch, logprobs: Mapping[int, Sequence[float]] | None = None
) -> dict[int, Trained]:
    """What a step made of its rollouts, by the `id()` of each.

    Args:
        rows: the rows of the batch, as `rlvr.train.credit.rows_of` gives them.
        batch: with advantages.
        logprobs: of the tokens of rows in their last update, by the row's number.
    """
    by_rollout: dict[int, Trained] = {}
    for i, row in enumerate(rows):
        length = len(row.completion_ids)
        mask, advantages = batch.completion_mask[i, :length], batch.advantages[i, :length]
        mean = float(advantages[mask].mean()) if mask.any() else None
        after = (logprobs or {}).get(i)
        by_rollout.setdefault(id(row), Trained(mean, advantages.tolist(), after))
    return by_rollout


def log_rollouts(
    path: Path,
    groups: Iterable[Group],
    dropped: Iterable[Dropped] = (),
    *,
    env_of: Callable[[Task], str] = lambda task: "",
    trained: Mapping[int, Trained] | None = None,
    decode: Callable[[Sequence[int]], str] | None = None,
) -> None:
    """Write the rollouts of a step to a file, one row each; docs/reference/records.md lists the
    columns.

    Args:
        path: the Parquet file; its folder is made.
        groups: groups that were trained on.
        dropped: groups that were not; the column `dropped` has the reason.
        env_of: the name of a task's environment.
        trained: what the step made of them, see `trained_rollouts`.
        decode: makes a text of tokens; if it is given, the columns of single tokens are written
            too.
    """
    rows = chain(
        _rows(groups, "", env_of, trained or {}, decode),
        *(
            _rows([dropped_group.group], dropped_group.why, env_of, trained or {}, decode)
            for dropped_group in dropped
            if dropped_group.group
        ),
    )
    write_rollouts(path, rows)


def _rows(
    groups: Iterable[Group],
    dropped: str,
    env_of: Callable[[Task], str],
    trained: Mapping[int, Trained],
    decode: Callable[[Sequence[int]], str] | None,
) -> Iterator[JsonDict]:
    for group in groups:
        task = group.task
        shared: dict[str, object] = {
            "task": task.id,
            "env": env_of(task),
            "reference": _text(task.reference),
            "dropped": dropped,
        }
        shared |= (
            {"prompt": task.prompt}
            if isinstance(task.prompt, str)
            else {"messages": _messages(task.prompt)}
        )
        for number, rollout in enumerate(group.rollouts):
            training = trained.get(id(rollout))
            yield {
                **shared,
                "rollout": number,
                "completion": rollout.text,
                "length_tokens": len(rollout.completion_ids),
                "truncated": bool(rollout.truncated),
                **_verdict(rollout),
                "advantage": None if training is None else training.advantage,
                "weights_version": int(rollout.weights_version),
                "turns": [
                    {"start": turn.start, "stop": turn.stop, "reward": turn.reward}
                    for turn in rollout.turns
                ],
                "episode": _episode(rollout),
                **({} if decode is None else _token_columns(rollout, training, decode)),
            }


def _verdict(rollout: Rollout) -> dict[str, object]:
    score = rollout.score
    if score is None:
        return {"outcome": "unscored", "why": "", "detail": "{}"}
    return {
        "outcome": str(score.verdict.outcome),
        "why": score.verdict.why,
        "answer": score.verdict.answer,
        "score": score.total,
        "parts": {name: float(value) for name, value in score.parts.items()},
        # its keys differ from row to row
        "detail": json.dumps(dict(score.verdict.detail), default=str),
    }


def _messages(prompt: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    return [
        {"role": str(message.get("role", "")), "content": _text(message.get("content"))}
        for message in prompt
    ]


def _episode(rollout: Rollout) -> list[dict[str, object]] | None:
    if rollout.episode is None:
        return None
    return [
        {
            "text": turn.text,
            "calls": [
                {
                    "name": call.name,
                    "arguments": _text(dict(call.arguments)),
                    "reply": call.reply,
                    "error": call.error,
                    "seconds": float(call.seconds),
                }
                for call in turn.calls
            ],
            "user": turn.user,
        }
        for turn in rollout.episode.turns
    ]


def _token_columns(
    rollout: Rollout, made: Trained | None, decode: Callable[[Sequence[int]], str]
) -> dict[str, list[Any] | None]:
    return {
        "tokens": _token_texts([int(token) for token in rollout.completion_ids], decode),
        "token_ids": [int(token) for token in rollout.completion_ids],
        "completion_mask": [bool(bit) for bit in rollout.completion_mask],
        "behaviour_logprobs": [float(logprob) for logprob in rollout.behaviour_logprobs],
        "logprobs": None if made is None or made.logprobs is None else list(made.logprobs),
        "advantages": None if made is None else list(made.advantages),
    }


def _token_texts(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[str]:
    """The text that each token adds; "" for special tokens, and for all tokens of a character but
    its last."""
    alone = {token: decode([token]) for token in set(ids)}
    texts = [alone[token] for token in ids]
    # Most tokenizers decode token by token; only others pay for the loop below.
    if "".join(texts) == decode(ids):
        return texts
    # Tokens that are decoded alone lose spaces or are a part of a character, so each is decoded
    # behind those before it.
    texts, begin, done = [], 0, 0
    for i in range(len(ids)):
        # Decoded from the token before, since some tokenizers drop a leading space.
        before, extended = decode(ids[begin:done]), decode(ids[begin : i + 1])
        # U+FFFD: the character is not complete yet.
        if len(extended) > len(before) and not extended.endswith("\ufffd"):
            texts.append(extended[len(before) :])
            begin, done = done, i + 1
        else:
            texts.append("")
    return texts


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


_START = 160  # characters of a completion in the table


def rollout_table(
    step: int,
    groups: Sequence[Group],
    dropped: Sequence[Dropped],
    trained: Mapping[int, Trained],
    most: int,
) -> Table:
    """Some completions of a step as a table for the terminal, taken at even distances from all that
    were sampled.

    Args:
        step: its number.
        groups: groups that were trained on.
        dropped: groups that were not.
        trained: what the step made of the rollouts, see `trained_rollouts`.
        most: number of completions.
    """
    rollouts = [(rollout, "") for group in groups for rollout in group.rollouts]
    rollouts += [
        (rollout, dropped_group.why)
        for dropped_group in dropped
        if dropped_group.group
        for rollout in dropped_group.group.rollouts
    ]
    chosen = (
        # At even distances, so that all groups show.
        [rollouts[i * len(rollouts) // most] for i in range(most)]
        if most < len(rollouts)
        else rollouts
    )
    table = Table(
        title=f"step {step}: {len(chosen)} of {len(rollouts)} completions", title_justify="left"
    )
    for name in ("outcome", "reward", "advantage", "tokens"):
        table.add_column(name, justify="left" if name == "outcome" else "right")
    table.add_column("task, why, completion", ratio=1, overflow="fold")
    for rollout, why in chosen:
        score, training = rollout.score, trained.get(id(rollout))
        reason = score.verdict.why if score else ""
        advantage = (
            "–" if training is None or training.advantage is None else f"{training.advantage:+.3f}"
        )
        texts = (rollout.task.id, reason, " ".join(rollout.text[:1000].split()))
        table.add_row(
            str(score.verdict.outcome) if score else "unscored",
            "–" if score is None or score.total is None else f"{score.total:.3g}",
            f"dropped: {why}" if why else advantage,
            f"{len(rollout.completion_ids)}{'✂' if rollout.truncated else ''}",
            # not read as rich's markup
            Text("\n".join(_cut(inert(text)) for text in texts if text)),
        )
    return table


def _cut(text: str) -> str:
    return text if len(text) <= _START else f"{text[:_START]}…"
