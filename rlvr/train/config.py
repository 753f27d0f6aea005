"""Settings of a run: as the user wrote them (`Config`), and with every None replaced by its value (`ResolvedConfig`).

The numbers of an algorithm are in its class (`rlvr.algo.papers`); those of the run and of the
machine are here.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from tyro.conf import Suppress, UseAppendAction, arg

from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.base import Algorithm
from rlvr.algo.papers.numbers import record
from rlvr.algo.parts import Correction, OverlongHandling
from rlvr.collect.groups import STEP_S
from rlvr.collect.scheduler import Schedule
from rlvr.errors import UsageError, brief
from rlvr.samplers.chat import ChatMode, ChatSettings, require_chat_mode
from rlvr.samplers.protocol import MAX_TOKENS_IN_FLIGHT
from rlvr.scoring.identity import require_acceptable
from rlvr.train.evaluations import read_eval_sets
from rlvr.train.setting import Reader, or_none, require_read, rule, setting
from rlvr.train.stage import read_stages
from rlvr.train.update_sizes import LEAST_GROUPS, LEAST_ROWS, updates_of
from rlvr.validate import (
    nearest,
    require_number,
    require_one_of,
    require_optional_whole,
    require_seconds,
    require_whole,
)

__all__ = ["Config", "ResolvedConfig"]

_Schedule = Literal["constant", "linear", "cosine"]
_Precision = Literal["fp32", "bf16"]
_LoraSampling = Literal["merged", "swapped"]
_OnAlarm = Literal["warn", "stop"]


def _default_hint(label: str) -> str:
    """How `--help` shows a default: without the brackets that tyro puts around a name; "none" for
    an empty list."""
    return f"(default: {label.strip(chr(39) + '[]') or 'none'})"


def _require_betas(name: str, value: object) -> tuple[float, ...]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise UsageError(f"{name} is {value!r}; it must be two numbers, such as (0.9, 0.999)")
    return tuple(require_number(f"{name}[{i}]", beta, 0, below=1) for i, beta in enumerate(value))


def _require_sampler_name(name: str, value: object) -> str:
    addresses = value.split(",") if isinstance(value, str) else []
    if value not in ("local", "vllm") and not all(
        re.fullmatch(r"https?://[^\s/?#@]+/?", address) for address in addresses
    ):
        near = nearest(str(value), ["local", "vllm"])
        raise UsageError(
            f"{name} is {brief(value)}{near}; it must be local, vllm, or addresses of vLLM servers "
            f"with commas between "
            "them, such as http://127.0.0.1:8000,http://127.0.0.1:8001"
        )
    assert isinstance(value, str)
    return value


def _require_accepted(name: str, value: object) -> tuple[str, ...]:
    accepted = _require_texts(name, value)
    require_acceptable(accepted)
    return accepted


def _require_texts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, (tuple, list)) or not all(
        isinstance(text, str) and text for text in value
    ):
        raise UsageError(
            f"{name} is {value!r}; it must be a list of texts, such as ('q_proj', 'v_proj')"
        )
    return tuple(value)


def _require_score_bounds(name: str, value: object) -> tuple[float, ...]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise UsageError(f"{name} is {value!r}; it must be two numbers, such as (0, 0.8)")
    low, high = (require_number(f"{name}[{i}]", bound, 0, most=1) for i, bound in enumerate(value))
    if low >= high:
        raise UsageError(
            f"{name} is {value!r}, so every score would be the same; the first must be below the "
            f"second"
        )
    return (low, high)


def _require_delimiter(name: str, value: object) -> object:
    if value == "":
        raise UsageError(f"{name} is an empty text, which ends no step; give one such as '\\n\\n'")
    return value


def _require_range(name: str, value: object) -> tuple[float, ...]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise UsageError(f"{name} is {value!r}; it must be two numbers, such as (-1, 1)")
    low, high = (require_number(f"{name}[{i}]", bound) for i, bound in enumerate(value))
    if low >= high:
        raise UsageError(f"{name} is {value!r}; the first must be below the second")
    return (low, high)


def _require_scorer(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise UsageError(
            f"{name} is {brief(value)}; it must be a text, such as 'http://10.0.0.7:8000'"
        )
    if "@" in value and "://" in value:
        raise UsageError(
            f"the {name} has a key in it, which the run would record; set RLVR_API_KEY instead"
        )
    return value


_ONE: Final = partial(require_whole, least=1)
_ZERO: Final = partial(require_whole, least=0)
_OPTIONAL_ONE: Final = partial(require_optional_whole, least=1)
_OPTIONAL_ZERO: Final = partial(require_optional_whole, least=0)
_POSITIVE: Final = partial(require_number, above=0)


def _evaluates(config: Config, algorithm: Algorithm) -> bool:
    return config.eval_every is not None or bool(config.eval_env)


def _measures(config: Config, algorithm: Algorithm) -> bool:
    return _evaluates(config, algorithm) or config.held_out(algorithm) > 0


def _plays(config: Config, algorithm: Algorithm) -> bool:
    return config.pairs is None or (_evaluates(config, algorithm) and bool(config.env))


def _refills(config: Config, algorithm: Algorithm) -> bool:
    return algorithm.dynamic_sampling and algorithm.refill and config.pairs is None


def _forks(config: Config, algorithm: Algorithm) -> bool:
    values = "prefix_values" in algorithm.reads and algorithm.forks == "steps"
    return values or config.step_reward == "forks"


_SAMPLES: Final = Reader("runs that sample", lambda config, _: config.pairs is None)
_PLAYS: Final = Reader("runs that sample or evaluate", _plays)
_EVALUATES: Final = Reader("evaluations (--eval-every, --eval-env)", _evaluates)
_MEASURES: Final = Reader("evaluations and validations", _measures)
_VALIDATION: Final = Reader(
    "a validation split (--validation-tasks)", lambda config, own: config.held_out(own) > 0
)
_ROLLOUTS: Final = Reader(
    "files of rollouts (--rollouts-every)",
    lambda config, own: config.rollouts_every > 0 and own.examples is None,
)
_FORKS: Final = Reader("algorithms with forks, such as vineppo, and of --step-reward forks", _forks)
_REFILL: Final = Reader(
    "dynamic sampling that samples other groups (--dynamic-sampling true)", _refills
)
_TEACHER: Final = Reader(
    "algorithms of distillation, such as distill", lambda _, own: own.needs_teacher
)
_STEPS: Final = Reader(
    "algorithms with rewards of steps, such as grpo_process and ppo", lambda _, own: own.takes_steps
)
_STEP_REWARD: Final = Reader(
    "rewards of steps (--step-reward)", lambda config, _: config.step_reward is not None
)
_SOFT: Final = Reader(
    "the soft punishment (--overlong soft)",
    lambda config, own: "soft" in (config.overlong or own.overlong),
)
_REWARD_MODEL: Final = Reader(
    "a reward model (--reward-model)", lambda config, _: config.reward_model is not None
)
_LORA: Final = Reader(
    "a LoRA adapter (--lora-rank)", lambda config, _: config.lora_rank is not None
)
_LOCAL: Final = Reader(
    "the local sampler", lambda config, own: config.engine == "local" and _plays(config, own)
)
_VLLM: Final = Reader("--sampler vllm", lambda config, _: config.engine == "vllm")
_SERVERS: Final = Reader(
    "servers (--sampler http://…)", lambda config, _: config.engine == "servers"
)
_STARTED: Final = Reader(
    "servers that are started here (--serve-samplers)",
    lambda config, _: config.serve_samplers is not None,
)
_ENGINES: Final = Reader(
    "--sampler vllm and --serve-samplers",
    lambda config, _: config.engine == "vllm" or config.serve_samplers is not None,
)
_LORA_ENGINE: Final = Reader(
    "a LoRA adapter with vLLM",
    lambda config, _: config.lora_rank is not None and config.engine != "local",
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a run.  The same settings give the same run.

    Attributes:
        env: Id of the environment; `rlvr envs` lists them.  With `pairs` it only evaluates, and may
            be left out.
        model: Model id on the hub, or a local folder.
        run: Folder for all files of the run.  An empty folder starts a run; one that holds a run
            with the same settings continues it.
        env_options: Options of the environment, such as {"difficulty": 3}.
        strict: Stop at the first row of the environment that cannot be used, instead of leaving it
            out.
        eval_options: Options that differ in evaluation, such as {"data": "test.jsonl"}.
        algorithm: Name of a published algorithm, or FILE.py:CLASS or PACKAGE.MODULE:CLASS of your
            own.  In Python also an `Algorithm`, such as `load_algorithm("dapo", clip_high=0.3)`.
        steps: Training steps.  Each one collects a batch of rollouts and trains on it.
        pairs: File of pairs, labels or completions to train on instead of sampling, as `rlvr pairs`
            writes it or TRL takes it; for dpo, ipo, kto, rft, sft and reward models.
        prompts: Prompts per step, each with a group of completions.  With `pairs`: examples of the
            file per step. None: 16, or as many as two updates need where the paper has several: 128
            with groups of one.
        group_size: Completions per prompt (G).  None: the algorithm's number, or 8 if it has none.
        updates: Optimiser steps per batch and epoch, in equal parts of whole groups, each with at
            least 8 groups and 64 completions; a smaller batch makes fewer.  None: the paper's.
        max_tokens: Most tokens of a completion.
        temperature: Sampling temperature.  None: the algorithm's.
        stop: Texts that end a completion.
        overlong: What is done with truncated completions: keep (train on them), mask (leave them
            out of the loss), soft (lower the score of long ones, as DAPO does) or soft+mask (both).
            None: the algorithm's choice.
        overlong_cache: Tokens before `max_tokens` over which the soft punishment rises.  None: a
            fifth of `max_tokens`, as in DAPO.
        max_turns: Most turns of an episode.
        step_s: Most wall seconds of an agent's own work between two completions.
        turn_schedule: When an environment's reply is sampled from: ready (as soon as it is there)
            or tokens (after a fixed number of decode steps, so that runs repeat to the last bit).
            None: tokens with the local sampler.
        max_tries: Most tasks that dynamic sampling tries for each group of a batch.  None: 10.
        workers: Processes that score completions.  None: one per core.  0: score in this process.
        scorer: Score on other machines: http://HOST:PORT of rlvr serve (several with commas), ray://auto or
            ray://HOST:PORT.  None: on this one.
        reward_model: Add what a reward model says of completions to the reward: RUN/model of a run with the algorithm
            reward_model, computed in this process, http://HOST:PORT of rlvr serve --reward-model (several with
            commas), or implicit:RUN of a run of dpo.  Evaluations stay the verifier's.
        reward_model_weight: What the reward model's score, in [0, 1], is multiplied by; above 0.
            None: 0.2.
        reward_model_bounds: The score is limited to these two numbers first: what a guess can be
            worth has a limit. None: 0 and 1.
        teacher: Model that distill and gkd learn from: a local folder, or an id on the hub; with
            the same vocabulary as the model.
        step_reward: What rewards the steps of a completion, for grpo_process, ppo, a2c and reinforce_pp: RUN/model of a
            process reward model, http://HOST:PORT of rlvr serve that has one, implicit:RUN of a run of dpo,
            FILE.py:FUNCTION of a rule (task, steps), which returns a number for each step, or forks (how much likelier
            a right answer is after the step).  None: the environment's turns.
        step_delimiter: Text that ends a step.  None: a line's end.
        reward_range: Map the reward's bounds to these two numbers, such as -1 and 1 as in DAPO.
            None: as it is.
        lora_rank: Rank of a LoRA adapter, which is then trained instead of the weights.  None:
            train all weights.
        lora_alpha: The adapter's products are scaled by this over the rank.  None: twice the rank.
        lora_targets: Endings of the names of the layers that get an adapter, such as q_proj v_proj.
            None given: all linear layers but the head.
        lr: Learning rate of AdamW.
        warmup_steps: Optimiser steps over which the learning rate rises from 0.
        schedule: Learning rate after the warm-up: constant, or falling to 0 at the last step
            (linear, cosine).
        betas: Decay rates of AdamW's running means of the gradient and of its square.
        weight_decay: Weight decay of AdamW.
        grad_clip: Largest norm of a gradient; longer ones are scaled down to it.
        precision: fp32, or bf16: compute in bfloat16 with float32 weights; with LoRA, the frozen
            weights are bfloat16.
        attention: Implementation of attention in transformers, such as sdpa, eager or
            flash_attention_2.  None: the model's default.
        packing: Put the rows of a micro-batch side by side instead of padding them, so that
            lengths that differ cost nothing; not together with prompts read once.
        gradient_checkpointing: Recompute layers in the backward pass: slower, but needs less
            memory.
        micro_tokens: Most tokens of a micro-batch, padding included.  Lower it if memory runs out
            in the update.
        max_rows: Completions sampled in parallel.
        max_tokens_in_flight: Tokens whose keys and values are kept while sampling.  Lower it if
            memory runs out then; long completions are sampled in fewer rows.
        sampler: What samples: local (the trained model itself), vllm (a vLLM engine in this process), or addresses of
            vLLM servers, such as http://a:8000,http://b:8000.
        serve_samplers: Start this many vLLM servers on this machine, which end with the run, and
            sample from them.
        sampler_python: Python of the environment that has vLLM, for the servers that are started
            here.  None: this one.
        sampler_key_env: Environment variable that holds the servers' key.
        sampler_folder: Folder through which servers get the weights; all of them have to see it.
            None: the shared memory of this machine.
        sampler_positions: Most tokens of prompt and completion together in vLLM.  None: those of
            the model.
        sampler_memory: Share of a GPU's memory that a vLLM engine in this process takes.
        sampler_sleep: Free the memory of a vLLM engine in this process while the policy is updated.
        sampler_lora: How vLLM gets a LoRA adapter: merged into the weights, or swapped (the adapter
            alone).
        device: Device of the model, such as cpu or cuda.  auto: a GPU if there is one.
        chat: How text prompts are sent: on (as a user message of the model's chat template), off
            (as they are) or auto (on if the tokenizer has a template; of a model that a run has
            saved, as in that run).  --chat alone is on.
        system: System message before prompts that have none.  None: what the template does without
            one.
        template_options: Variables of the chat template, such as {"enable_thinking": False}.
        max_staleness: Most training steps between the weights that sample a token and the weights
            that are trained on it.  0: sampling and training take turns.  1: the next batch is
            collected while this one is trained on. From 2: further batches are under way too, and
            their completions go on while the weights change.  The algorithm's correction makes up
            for it; if it has none, truncated importance sampling does.  So with vLLM.
        vine_k: Completions per step of a rollout from which VinePPO estimates values (K).  None: 9,
            as in the paper.
        eval_every: Steps between evaluations.  0: only before the first and after the last step.
            None: never.
        eval_split: Split of the evaluation tasks.  They only report: nothing in a run depends on
            them.
        validation_tasks: Training tasks that are held out, by which resets on a stall and RUN/best,
            the best model of the run, are decided; of generated tasks, this many of a split of
            their own.  None: 100, but at most a tenth of the tasks, if the algorithm resets on a
            stall, or else 0.
        validation_every: Steps between validations; others come before the first and after the last
            step. None: 25.
        eval_tasks: Number of evaluation tasks; all tasks of the split if it has fewer.
        eval_n: Completions per evaluation task.
        eval_env: A further evaluation, such as
            math-v4:data=aime2024,n=32,temperature=1,top_p=0.7,rows=all; may be repeated.  The
            environment's options, and n, k, temperature, top_p, max_tokens, rows (a sample, or
            all), every (steps) and name; each is that of the other evaluations where it is left
            out.
        eval_temperature: Sampling temperature of evaluations.  None: that of training.
        eval_top_p: Top-p of evaluations.  1 keeps all tokens.
        checkpoint_every: Steps between checkpoints.  One is always written at the end and on
            SIGTERM or Ctrl-C.
        keep: Newest checkpoints that are kept.
        rollouts_every: Steps after which rollouts are written to RUN/rollouts again.  0: never.
        token_logprobs: Write the tokens of these rollouts too, with advantages and with
            log-probabilities under the policy that sampled them and after the step.  Takes one more
            pass over the batch.
        step_files: Steps after which a training step is written to RUN/steps again, for `rlvr step
            verify`.  0: never. Updates that are not finite are written always.
        step_sketches: Write a sketch of each row's gradient into these files too, for `rlvr
            whatif`: a backward pass for each row of such a step, on one rank alone.
        verify_every: Steps after which a step is judged in float64, and its first update computed
            again in another layout; what departs is an alarm, and the step is written to RUN/steps.
            0: never.
        show_rollouts: Completions of each step that are printed as a table.  0: none.
        track: Package that logs the metrics too: wandb, or one with the same interface.
        bad_steps: How many in a row end the run: mini-batches whose loss or gradient is not finite,
            or steps in which no rollout could be scored.
        on_alarm: What an alarm of a step does: warn (print a line) or stop (end the run, with its
            last step saved).
        strength: Report of `rlvr strength` on the training tasks: the reward at weak, strong and
            untested ones is logged, and an alarm says when it rises faster at weak ones.
        accept: Parts of the identity (`code`, `inputs`) in which the continued run may differ from
            how it began.
        canary: Largest difference allowed between the sampler's and the trainer's log-probabilities
            of a token. None: 0.001, or 0.5 in bf16.  Infinity switches the check off.
        seed: Seed of tasks, rollouts and mini-batches.
        stage: What the run changes on its way, such as at=2000,max_tokens=16384,reset=all; may be
            repeated.  It begins after that many steps, or at=stalled:3 (validations without a new
            best) or at=truncated:0.2 (share of completions).  NAME=linear(TO), cosine(TO, STEPS) or
            towards(METRIC, TARGET) is a schedule.

    Raises:
        UsageError: a setting is out of its range, or settings contradict each other.
    """

    env: str = ""
    model: str
    run: Path
    env_options: Suppress[Mapping[str, Any]] = field(default_factory=dict)
    strict: bool = False
    eval_options: Suppress[Mapping[str, Any]] = field(default_factory=dict)
    algorithm: Annotated[
        str | Algorithm, arg(constructor=str, metavar="NAME", help_behavior_hint=_default_hint)
    ] = "dapo"
    steps: int = setting(100, _ONE)
    pairs: Path | None = setting(None, added=True)
    prompts: int | None = setting(None, _OPTIONAL_ONE)
    group_size: int | None = setting(None, _OPTIONAL_ONE, reader=_SAMPLES)
    updates: int | None = setting(None, _OPTIONAL_ONE)
    max_tokens: int = setting(512, _ONE)
    temperature: float | None = setting(
        None, or_none(partial(require_number, above=0, hint="near 1 to train"))
    )
    stop: Annotated[tuple[str, ...], arg(help_behavior_hint=_default_hint)] = ()
    overlong: OverlongHandling | None = setting(
        None, partial(require_one_of, allowed=get_args(OverlongHandling), or_none=True)
    )
    overlong_cache: int | None = setting(None, _OPTIONAL_ONE, reader=_SOFT)
    max_turns: int = setting(8, _ONE, reader=_PLAYS)
    step_s: float = setting(STEP_S, require_seconds, reader=_PLAYS, added=True)
    turn_schedule: Schedule | None = setting(
        None,
        partial(require_one_of, allowed=get_args(Schedule), or_none=True),
        reader=_PLAYS,
        added=True,
    )
    max_tries: int | None = setting(None, _OPTIONAL_ONE, reader=_REFILL)
    workers: int | None = setting(None, _OPTIONAL_ZERO, reader=_PLAYS, may_change=True)
    scorer: str | None = setting(None, _require_scorer, reader=_PLAYS, may_change=True, added=True)
    reward_model: str | None = setting(None, _require_scorer, may_change=True, added=True)
    reward_model_weight: float | None = setting(
        None,
        or_none(partial(require_number, above=0, hint="or leave reward_model out")),
        reader=_REWARD_MODEL,
        added=True,
    )
    reward_model_bounds: tuple[float, float] | None = setting(
        None, or_none(_require_score_bounds), reader=_REWARD_MODEL, added=True, earlier=(0.0, 1.0)
    )
    teacher: str | None = setting(None, or_none(lambda name, value: str(value)), reader=_TEACHER)
    step_reward: str | None = setting(None, reader=_STEPS)
    step_delimiter: str | None = setting(None, _require_delimiter, reader=_STEP_REWARD)
    reward_range: tuple[float, float] | None = setting(None, or_none(_require_range))
    lora_rank: int | None = setting(None, _OPTIONAL_ONE, added=True)
    lora_alpha: float | None = setting(
        None, or_none(partial(require_number, above=0)), reader=_LORA, added=True
    )
    lora_targets: Annotated[tuple[str, ...], arg(help_behavior_hint=_default_hint)] = setting(
        (), _require_texts, reader=_LORA, added=True
    )
    lr: float = setting(1e-6, _POSITIVE)
    warmup_steps: int = setting(0, _ZERO)
    schedule: _Schedule = setting("constant", partial(require_one_of, allowed=get_args(_Schedule)))
    betas: tuple[float, float] = setting((0.9, 0.999), _require_betas)
    weight_decay: float = setting(0.0, partial(require_number, least=0))
    grad_clip: float = setting(1.0, _POSITIVE)
    precision: _Precision = setting("fp32", partial(require_one_of, allowed=get_args(_Precision)))
    attention: str | None = setting(None, may_change=True, added=True)
    packing: bool = setting(False, may_change=True, added=True)
    gradient_checkpointing: bool = setting(False, may_change=True)
    micro_tokens: int = setting(16384, _ONE, may_change=True)
    max_rows: int = setting(256, _ONE, reader=_PLAYS, may_change=True)
    max_tokens_in_flight: int = setting(
        MAX_TOKENS_IN_FLIGHT, _ONE, reader=_LOCAL, may_change=True, added=True
    )
    sampler: str = setting("local", _require_sampler_name, may_change=True, added=True)
    serve_samplers: int | None = setting(None, _OPTIONAL_ONE, may_change=True, added=True)
    sampler_python: Path | None = setting(None, reader=_STARTED, may_change=True, added=True)
    sampler_key_env: str | None = setting(None, reader=_SERVERS, may_change=True, added=True)
    sampler_folder: Path | None = setting(None, reader=_SERVERS, may_change=True, added=True)
    sampler_positions: int | None = setting(
        None, _OPTIONAL_ONE, reader=_ENGINES, may_change=True, added=True
    )
    sampler_memory: float = setting(
        0.4, partial(require_number, above=0, most=1), reader=_VLLM, may_change=True, added=True
    )
    sampler_sleep: bool = setting(False, reader=_VLLM, may_change=True, added=True)
    sampler_lora: _LoraSampling = setting(
        "merged",
        partial(require_one_of, allowed=get_args(_LoraSampling)),
        reader=_LORA_ENGINE,
        may_change=True,
        added=True,
    )
    device: str = setting("auto", may_change=True)
    chat: ChatMode = setting("auto", require_chat_mode)
    system: str | None = None
    template_options: Suppress[Mapping[str, Any]] = field(default_factory=dict)
    max_staleness: int = setting(0, _ZERO, reader=_SAMPLES)
    vine_k: int | None = setting(None, _OPTIONAL_ONE, reader=_FORKS)
    eval_every: int | None = setting(0, _OPTIONAL_ZERO)
    eval_split: str = setting("test", reader=_EVALUATES)
    validation_tasks: int | None = setting(None, _OPTIONAL_ZERO, reader=_SAMPLES)
    validation_every: int | None = setting(None, _OPTIONAL_ONE, reader=_VALIDATION)
    eval_tasks: int = setting(100, _ONE, reader=_EVALUATES)
    eval_n: int = setting(1, _ONE, reader=_MEASURES)
    eval_env: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(metavar="TEXT", help_behavior_hint="(may be repeated)"),
    ] = setting((), read_eval_sets, added=True)
    eval_temperature: float | None = setting(
        None, or_none(partial(require_number, least=0)), reader=_MEASURES
    )
    eval_top_p: float = setting(1.0, partial(require_number, above=0, most=1), reader=_MEASURES)
    checkpoint_every: int = setting(50, _ONE, may_change=True)
    keep: int = setting(2, _ONE, may_change=True)
    rollouts_every: int = setting(10, _ZERO, reader=_SAMPLES, may_change=True)
    token_logprobs: bool = setting(False, reader=_ROLLOUTS, may_change=True, added=True)
    step_files: int = setting(0, _ZERO, may_change=True, added=True)
    step_sketches: bool = setting(False, may_change=True, added=True)
    verify_every: int = setting(200, _ZERO, may_change=True, added=True)
    show_rollouts: int = setting(0, _ZERO, reader=_SAMPLES, may_change=True, added=True)
    track: str | None = setting(None, may_change=True)
    bad_steps: int = setting(3, _ONE, may_change=True)
    on_alarm: _OnAlarm = setting(
        "warn", partial(require_one_of, allowed=get_args(_OnAlarm)), may_change=True, added=True
    )
    strength: Path | None = setting(None, reader=_SAMPLES, may_change=True, added=True)
    accept: tuple[str, ...] = setting((), _require_accepted, may_change=True)
    canary: float | None = setting(
        None,
        or_none(partial(require_number, least=0, infinite=True)),
        reader=_SAMPLES,
        may_change=True,
    )
    seed: int = setting(0, _ZERO)
    stage: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(metavar="TEXT", help_behavior_hint="(may be repeated)"),
    ] = setting((), read_stages, added=True)

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            if (check := rule(one).check) is not None:  # plain numbers, which can be recorded
                object.__setattr__(self, one.name, check(one.name, getattr(self, one.name)))
        self.resolve()

    @property
    def chat_settings(self) -> ChatSettings:
        """How text prompts are to be sent.

        Raises:
            UsageError: they contradict each other.
        """
        return ChatSettings(self.chat, self.system, self.template_options)

    def resolve(self) -> ResolvedConfig:
        """These settings with the algorithm itself, and with a value for each None that stands for
        a default.

        Raises:
            UsageError: there is no such algorithm, or it cannot be trained with these settings.
        """
        if not isinstance(self.algorithm, str | Algorithm):
            raise UsageError(
                f"algorithm is {brief(self.algorithm)}; it must be the name of an algorithm, or an "
                f"Algorithm"
            )
        algorithm = self.algorithm
        if isinstance(algorithm, str):
            algorithm = load_algorithm(algorithm)
        # Weights of other steps, or an engine whose numbers differ by rounding.
        differ = self.max_staleness or algorithm.replay or self.engine != "local"
        if differ and not algorithm.correction and algorithm.examples is None:
            algorithm = algorithm.copy_with(correction=(Correction(),))
        if self.overlong is not None:
            if "file" in algorithm.needs:
                raise UsageError(
                    f"overlong is {self.overlong!r}, and {algorithm.label} samples no completions; "
                    f"leave it out"
                )
            algorithm = algorithm.copy_with(overlong=self.overlong)
        require_read(self, algorithm)
        self._require_sense(algorithm)
        group_size = self.group_size or algorithm.group_size or 8
        updates = self.updates or algorithm.updates
        prompts = self.prompts or 16
        if self.prompts is None and updates > 1 and self.pairs is None:
            prompts = max(2 * LEAST_GROUPS, math.ceil(2 * LEAST_ROWS / group_size))
        written = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        temperature = algorithm.temperature if self.temperature is None else self.temperature
        chosen = {
            "algorithm": algorithm,
            "prompts": prompts,
            "group_size": group_size,
            "updates": updates,
            "max_tries": self.max_tries or 10,
            "vine_k": self.vine_k or 9,
            "step_delimiter": self.step_delimiter or "\n",
            "validation_tasks": self.held_out(algorithm),
            "validation_every": self.validation_every or 25,
            "reward_model_weight": self.reward_model_weight or 0.2,
            "reward_model_bounds": self.reward_model_bounds or (0.0, 1.0),
            "temperature": temperature,
            "overlong": algorithm.overlong,
            "overlong_cache": self.overlong_cache or max(1, self.max_tokens // 5),
            "eval_temperature": temperature
            if self.eval_temperature is None
            else self.eval_temperature,
            "canary": self.canary
            if self.canary is not None
            else 1e-3
            if self.precision == "fp32"
            else 0.5,
        }
        settings = {
            f.name: written[f.name] for f in dataclasses.fields(Config)
        }  # a subclass may have more
        return ResolvedConfig(**{**settings, **chosen}, written=written)

    def held_out(self, algorithm: Algorithm) -> int:
        """Tasks of the validation split, at most.

        Args:
            algorithm: of the run.
        """
        reset = algorithm.reset
        stalls = reset is not None and reset.stall_validations is not None
        return (100 if stalls else 0) if self.validation_tasks is None else self.validation_tasks

    def _require_sense(self, algorithm: Algorithm) -> None:
        if self.step_sketches and not self.step_files:
            raise UsageError(
                "step_sketches is True, and step_files 0: there are no files that sketches go to; "
                "give --step-files 10"
            )
        if (
            not _SOFT.reads(self, algorithm)
            and algorithm.overlong_share != type(algorithm).overlong_share
        ):
            raise UsageError(
                f"overlong_share is {algorithm.overlong_share}, and overlong "
                f"{self.overlong or algorithm.overlong!r} "
                "punishes nothing; leave it out, or choose overlong 'soft'"
            )

    @property
    def engine(self) -> Literal["local", "vllm", "servers"]:
        """What samples: the trained model itself, a vLLM engine in this process, or vLLM
        servers."""
        if self.serve_samplers is not None:
            return "servers"
        return (
            "local" if self.sampler == "local" else "vllm" if self.sampler == "vllm" else "servers"
        )


@dataclass(frozen=True, kw_only=True)
class ResolvedConfig(Config):
    """The settings that a run uses; made by `Config.resolve`.  No None is left that stands for a default.

    Attributes:
        algorithm: The algorithm itself, with `overlong` and with the correction that
            `max_staleness` and `replay` need.
        prompts, group_size, updates, temperature, overlong, overlong_cache, max_tries, vine_k,
            step_delimiter, validation_tasks, validation_every, reward_model_weight,
            reward_model_bounds, eval_temperature, canary: See `Config`; never None.
        written: The settings as they were written.
    """

    algorithm: Algorithm
    prompts: int
    group_size: int
    updates: int
    max_tries: int
    vine_k: int
    step_delimiter: str
    validation_tasks: int
    validation_every: int
    reward_model_weight: float
    reward_model_bounds: tuple[float, float]
    temperature: float
    overlong: OverlongHandling
    overlong_cache: int
    eval_temperature: float
    canary: float
    written: dataclasses.InitVar[
        Mapping[str, Any]
    ]  # so that `dataclasses.replace` refuses: change the Config instead
    _written: Mapping[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self, written: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_written", written)
        algorithm = self.algorithm
        if self.pairs is not None and algorithm.examples is None:
            raise UsageError(
                f"pairs is {str(self.pairs)!r}, and the algorithm learns from rewards of its own "
                f"completions; choose "
                "one of preferences, such as 'dpo', or leave pairs out"
            )
        if self.pairs is not None and self.eval_env:
            raise UsageError(
                "pairs with eval_env: a run on a file evaluates on env alone; leave one out, or "
                "use rlvr eval"
            )
        if "file" in algorithm.needs and self.pairs is None:
            raise UsageError(
                f"{algorithm.label} is trained on a file; give pairs, such as `rlvr pairs` writes"
            )
        if self.reward_model is not None and algorithm.examples is not None:
            raise UsageError(
                f"reward_model is {self.reward_model!r}, and the algorithm learns from verdicts "
                f"and pairs, not from "
                "rewards; leave it out, or choose an algorithm such as 'grpo'"
            )
        if algorithm.needs_teacher and self.teacher is None:
            raise UsageError(
                f"{algorithm.label} learns from a teacher; give --teacher, a folder or an id on "
                f"the hub of a model "
                "with the same vocabulary"
            )
        if self.reward_range is not None and algorithm.examples is not None:
            raise UsageError(
                f"reward_range is {self.reward_range!r}, and {algorithm.label} learns from "
                f"verdicts and pairs, not "
                "from rewards; leave it out, or choose an algorithm such as 'grpo'"
            )
        if not self.env and self.pairs is None:
            raise UsageError("env is missing; give the id of an environment, such as gsm8k-v4")
        self._require_sampler()
        self.chat_settings  # noqa: B018  raises where system and options are given with chat off
        if (self.attention or "").startswith("flash_attention") and self.precision != "bf16":
            raise UsageError(
                f"attention is {self.attention!r}, which computes in half precision only, and "
                f"precision is "
                f"{self.precision!r}; set precision to 'bf16'"
            )
        if self.group_size == 1 and "siblings" in algorithm.needs:
            raise UsageError(
                f"group_size is 1, and {algorithm.label} compares the completions of a prompt: "
                f"every advantage "
                "would be 0; give at least 2, or choose 'reinforce_pp'"
            )
        if self.group_size == 1 and self.pairs is None and algorithm.examples == "pairs":
            raise UsageError(
                "group_size is 1, and a pair has a right and a wrong completion of one prompt; "
                "give at least 2, or a "
                "file of pairs"
            )
        if "once" in algorithm.needs and self.updates > 1:
            raise UsageError(
                f"updates is {self.updates}, and {algorithm.label} has no ratio to the policy that "
                f"sampled, so only "
                "the first step on a batch is right; leave updates out, or choose one with a "
                "ratio, such as grpo"
            )
        if algorithm.trust_region is not None:
            self._require_second_derivatives()
        if algorithm.mixing is not None and self.pairs is not None:
            raise UsageError(
                "mixing with pairs: training on a file has a fixed reference; leave mixing or "
                "pairs out"
            )
        if algorithm.mixing is not None and self.lora_rank is not None:
            raise UsageError(
                "mixing with lora_rank: a share of an adapter is not that share of the weights it "
                "stands for; train "
                "all weights, or use a reset"
            )
        if algorithm.subset is not None and algorithm.subset.size >= self.group_size:
            raise UsageError(
                f"subset.size is {algorithm.subset.size} of a group_size of {self.group_size}; it "
                f"is less than that"
            )
        stalls = algorithm.reset is not None and algorithm.reset.stall_validations is not None
        if stalls and not self.validation_tasks:
            raise UsageError(
                f"validation_tasks is 0, and {algorithm.label} resets when the score on held-out "
                f"tasks stalls; "
                "leave it out, or have no such reset, by --reset none"
            )

    def _require_second_derivatives(self) -> None:
        """Refuse a trust region where its products would be wrong, or cannot be computed."""
        if self.precision != "fp32":
            raise UsageError(
                f"precision is {self.precision!r}, in which the conjugate gradients of a trust "
                f"region do not converge; "
                "set precision to 'fp32', or choose 'ppo_kl'"
            )
        if self.gradient_checkpointing:
            raise UsageError(
                "gradient_checkpointing with a trust region: layers that are computed again have "
                "no second "
                "derivatives; lower micro_tokens instead"
            )

    def _require_sampler(self) -> None:
        """Refuse settings of samplers that contradict each other."""
        if self.serve_samplers is not None and self.sampler != "local":
            raise UsageError(
                f"sampler is {self.sampler!r} and serve_samplers {self.serve_samplers}: these are "
                f"two ways to say what "
                "samples; leave one out"
            )
        if self.sampler_sleep and self.max_staleness:
            raise UsageError(
                "sampler_sleep frees the engine's memory during the update, and with max_staleness "
                "it samples then; "
                "leave one out"
            )
        if self.engine != "local" and self.pairs is not None:
            raise UsageError(
                "pairs trains on a file without sampling; leave sampler and serve_samplers out"
            )

    def resolve(self) -> ResolvedConfig:
        """Itself."""
        return self

    @property
    def as_written(self) -> Mapping[str, Any]:
        """The settings as they were written, by name."""
        return self._written

    @property
    def validation_by_default(self) -> bool:
        """Whether `validation_tasks` was not given, so that it may be fewer."""
        return self._written["validation_tasks"] is None

    @property
    def updates_per_batch(self) -> int:
        """Optimiser steps of a full batch in each epoch."""
        if self.algorithm.examples is not None:
            return max(1, min(self.updates, self.prompts // LEAST_GROUPS))
        replayed = 0 if self.algorithm.replay is None else self.algorithm.replay.groups
        return updates_of(self.prompts + replayed, self.group_size, self.updates)

    @property
    def total_updates(self) -> int:
        """Optimiser steps of the whole run, if every batch is full."""
        return self.steps * self.algorithm.epochs * self.updates_per_batch

    @property
    def updates_line(self) -> str:
        """What an update of this run is, beside the paper's, for the first line of a run."""
        algorithm, count = self.algorithm, self.updates_per_batch
        printed = algorithm.printed
        groups = f"{self.prompts // count} groups × {self.group_size}"
        line = f"{algorithm.label}: {count} update{'s' * (count > 1)} of {groups}"
        if algorithm.epochs > 1:
            line += f", {algorithm.epochs} times"
        if printed.updates is None:
            return f"{line}; the number is ours, the paper prints none"
        if printed.prompts is None:
            return f"{line}; the paper: {printed.updates}"
        of = f" × {printed.group_size}" if printed.group_size else ""
        return f"{line}; the paper: {printed.updates} of {printed.prompts // printed.updates}{of}"

    @property
    def recorded(self) -> dict[str, Any]:
        """The settings as written, with the algorithm's numbers and without `run`, as plain JSON.

        They are kept in the run's folder, and compared when the run is continued.
        """
        found = {name: value for name, value in self._written.items() if name != "run"}
        found |= {"algorithm": record(self.algorithm)}
        paths = ("pairs", "sampler_python", "sampler_folder", "strength")
        found |= {name: None if found[name] is None else str(found[name]) for name in paths}
        found |= {"env_options": dict(self.env_options), "eval_options": dict(self.eval_options)}
        found |= {"template_options": dict(self.template_options)}
        plain: dict[str, Any] = json.loads(json.dumps(found))  # as it will be when read again
        return plain
