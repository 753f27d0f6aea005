"""Settings of a run.  What belongs to an algorithm is in its preset; what belongs to the machine and the run, here."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from tyro.conf import Suppress, arg

from rlvr.algo.presets import Algorithm, Correction, Overlong, preset
from rlvr.errors import UsageError, brief

__all__ = ["Config"]

_OBJECTIVES = ("clipped", "gspo", "cispo", "reinforce")
_SIBLINGS = ("group_advantages", "rloo_advantages", "magistral_advantages", "process_advantages")
_Schedule = Literal["constant", "linear", "cosine"]
_Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a run; the same ones give the same run.

    Attributes:
        env: id of the environment, see `rlvr envs`.
        model: id on the hub, or a local folder.
        run: folder for all that the run leaves; it must be empty, or a run with the same settings, which goes on.
        env_options: the environment's, such as {"difficulty": 3}.
        eval_options: those that are others in evaluation, such as {"data": "test.jsonl"}.
        algorithm: a preset's name, or an `Algorithm` of your own (`dataclasses.replace(preset("dapo"), …)`).
        steps: how many batches are collected and trained on.
        prompts: groups per step.
        group_size: G, rollouts per group; None for the algorithm's, 8 where it has none.
        minibatch: rollouts per optimiser step; None for one step on the whole batch.
        max_tokens: of a completion.
        temperature: at which completions are sampled; None for the algorithm's.
        stop: texts that end a completion.
        overlong: what becomes of truncated completions; None for what the algorithm does.
        overlong_cache: tokens before `max_tokens` over which soft overlong rises; None for a fifth, as in DAPO.
        max_turns: of an episode with several turns.
        max_rounds: how often dynamic sampling refills a batch.
        workers: processes that score; None for one per core, 0 for this one.
        lr: AdamW's.
        warmup_steps: optimiser steps over which it rises from 0.
        schedule: what follows: "constant", or "linear" or "cosine" down to 0 at the end.
        betas, weight_decay: AdamW's.
        grad_clip: the gradient's norm is cut to it.
        precision: "fp32"; "bf16" computes in bfloat16 over float32 weights.
        gradient_checkpointing: recompute layers in backward.
        micro_tokens: of a micro-batch, padding included: what fits into memory.
        max_rows: completions that are sampled side by side: as many keys and values are held.
        device: "auto" is a GPU where there is one.
        chat: text prompts become a user message of the model's chat template.
        one_step_off: collect the next batch while training on this one, with weights one step older; the algorithm's
            correction, or truncated importance sampling, makes up for it.
        vine_k: forks per step, for algorithms that need prefix values.
        eval_every: steps between evaluations; 0 for one at the start and one at the end, None for none at all.
        eval_split, eval_tasks, eval_n: which tasks, how many of them, completions of each.  Where an algorithm resets
            when they stall, a validation split.
        eval_temperature, eval_top_p: None for the temperature of training; 1 cuts nothing off.
        checkpoint_every: steps between checkpoints; there is always one at the end and on SIGTERM.
        keep: how many checkpoints stay.
        rollouts_every: steps between those whose rollouts are kept; 0 for none.
        track: "wandb" or another package with its interface, to log there too.
        bad_steps: steps in a row without a finite loss and gradient, or without a single score, that end the run.
        canary: how far the sampler's logprobs may lie from the trainer's; None for 1e-3, in bf16 0.5.
        seed: of tasks, rollouts, and mini-batches.

    Raises:
        UsageError: a setting that cannot work.
    """

    env: str
    model: str
    run: Path
    env_options: Suppress[Mapping[str, Any]] = field(default_factory=dict)
    eval_options: Suppress[Mapping[str, Any]] = field(default_factory=dict)
    algorithm: Annotated[str | Algorithm, arg(constructor=str, metavar="NAME")] = "dapo"
    steps: int = 100
    prompts: int = 16
    group_size: int | None = None
    minibatch: int | None = None
    max_tokens: int = 512
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    overlong: Overlong | None = None
    overlong_cache: int | None = None
    max_turns: int = 8
    max_rounds: int = 10
    workers: int | None = None
    lr: float = 1e-6
    warmup_steps: int = 0
    schedule: _Schedule = "constant"
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    precision: _Precision = "fp32"
    gradient_checkpointing: bool = False
    micro_tokens: int = 16384
    max_rows: int = 256
    device: str = "auto"
    chat: bool = False
    one_step_off: bool = False
    vine_k: int = 9
    eval_every: int | None = 0
    eval_split: str = "test"
    eval_tasks: int = 100
    eval_n: int = 1
    eval_temperature: float | None = None
    eval_top_p: float = 1.0
    checkpoint_every: int = 50
    keep: int = 2
    rollouts_every: int = 10
    track: str | None = None
    bad_steps: int = 3
    canary: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps prompts max_tokens max_turns max_rounds micro_tokens max_rows eval_tasks eval_n keep "
                     "checkpoint_every bad_steps vine_k").split():  # fmt: skip
            self._require(name, 1)
        for name in ("warmup_steps", "rollouts_every", "seed"):
            self._require(name, 0)
        for name, low in {"group_size": 1, "minibatch": 1, "overlong_cache": 1, "eval_every": 0, "workers": 0}.items():
            if getattr(self, name) is not None:
                self._require(name, low)
        for name in ("lr", "grad_clip"):
            if not 0 < self._number(name) < float("inf"):
                raise UsageError(f"{name} is {brief(getattr(self, name))}; it must be a number above 0")
        if not 0 <= self._number("weight_decay") < float("inf"):
            raise UsageError(f"weight_decay is {brief(self.weight_decay)}; it must be a number, 0 or above")
        if len(self.betas) != 2 or not all(isinstance(b, (int, float)) and 0 <= b < 1 for b in self.betas):
            raise UsageError(f"betas are {brief(self.betas)}; AdamW's are two numbers, 0 or above and below 1")
        if self.canary is not None and not self._number("canary") >= 0:
            raise UsageError(f"canary is {brief(self.canary)}; it must be a number, 0 or above, or None")
        if not 0 < self._number("eval_top_p") <= 1:
            raise UsageError(f"eval_top_p is {brief(self.eval_top_p)}; it must be a number above 0, and 1 at most")
        if self.eval_temperature is not None and not 0 <= self._number("eval_temperature") < float("inf"):
            raise UsageError(f"eval_temperature is {brief(self.eval_temperature)}; it must be a number, 0 or above")
        if not 0 < self.temperature_ < float("inf"):
            raise UsageError(f"temperature is {brief(self.temperature)}; to train, it must be a number above 0, near 1")
        for name, allowed in {"schedule": _Schedule, "precision": _Precision, "overlong": Overlong}.items():
            if getattr(self, name) not in (*get_args(allowed), *([None] if name == "overlong" else [])):
                names = ", ".join(map(repr, get_args(allowed)))
                raise UsageError(f"{name} is {brief(getattr(self, name))}; it must be one of {names}")
        self._require_trainable(self.algorithm_)

    def _require(self, name: str, low: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise UsageError(f"{name} is {brief(value)}; it must be a whole number of at least {low}")

    def _number(self, name: str) -> float:
        value = getattr(self, name)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise UsageError(f"{name} is {brief(value)}; it must be a number")
        return value

    def _require_trainable(self, algorithm: Algorithm) -> None:
        if "values" in algorithm.needs:
            raise UsageError(
                "this algorithm learns a value function, which the trainer does not have yet: choose one that judges "
                "completions by their siblings, such as 'dapo' or 'rloo'"
            )
        if algorithm.objective not in _OBJECTIVES:
            raise UsageError(
                f"the trainer has no objective {algorithm.objective!r} yet; it has {', '.join(_OBJECTIVES)}"
            )
        in_reward = algorithm.kl is not None and algorithm.kl.place == "reward"
        if in_reward and algorithm.advantage in ("monte_carlo_advantages", "process_advantages"):
            raise UsageError(f"{algorithm.advantage} has no place for a KL penalty in the reward; put it in the loss")
        if self.group_size_ == 1 and algorithm.advantage in _SIBLINGS:
            raise UsageError(
                f"group_size is 1, and {algorithm.advantage} judges a completion by its siblings: it would learn "
                "nothing; give at least 2, or choose 'reinforce_pp'"
            )
        if algorithm.reset is not None and algorithm.reset.every_steps is None and not self.eval_every:
            raise UsageError(
                f"this algorithm resets when validation stalls, and eval_every is {self.eval_every}; say how many "
                "steps lie between evaluations, such as 50, and on which split: eval_split='validation'"
            )

    @property
    def algorithm_(self) -> Algorithm:
        """The algorithm itself, with the correction that one-step-off cannot do without."""
        chosen = preset(self.algorithm) if isinstance(self.algorithm, str) else self.algorithm
        if self.one_step_off and chosen.correction is None:
            chosen = dataclasses.replace(chosen, correction=Correction())
        return chosen if self.overlong is None else dataclasses.replace(chosen, overlong=self.overlong)

    @property
    def group_size_(self) -> int:
        """Rollouts per group."""
        return self.group_size or self.algorithm_.group_size or 8

    @property
    def temperature_(self) -> float:
        """That completions are sampled, and logprobs computed, at."""
        return self.algorithm_.temperature if self.temperature is None else self.temperature

    @property
    def canary_(self) -> float:
        """How far apart logprobs may lie: the cache computes in another order than a whole forward."""
        return self.canary if self.canary is not None else 1e-3 if self.precision == "fp32" else 0.5

    @property
    def updates(self) -> int:
        """Optimiser steps of the whole run, if every batch is full."""
        rollouts = self.prompts * self.group_size_
        return self.steps * self.algorithm_.epochs * math.ceil(rollouts / (self.minibatch or rollouts))

    def resolved(self) -> dict[str, Any]:
        """Every setting as plain JSON, the algorithm's among them; where the run stands left out."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "run"}
        found |= {"algorithm": dataclasses.asdict(self.algorithm_)}
        found |= {"env_options": dict(self.env_options), "eval_options": dict(self.eval_options)}
        plain: dict[str, Any] = json.loads(json.dumps(found))  # tuples become lists, as they will be when read again
        return plain
