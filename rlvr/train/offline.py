"""Training on a file of preferences, without sampling: `rlvr train --algorithm dpo --pairs pairs.jsonl`.

read ─▶ tokens ─▶ examples of this step ─▶ update per mini-batch ─▶ evaluate ─▶ log ─▶ save

The step alone fixes which examples it has, so a run that was stopped goes on with the same ones.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from rlvr.collect import Sampling, rollout_seed
from rlvr.collect.evaluation import EvaluationReport, evaluate
from rlvr.console import PlainConsole, Plainly
from rlvr.data.files import whole_folder
from rlvr.display import Activity
from rlvr.environment.registry import make
from rlvr.errors import UsageError
from rlvr.train import checkpoint
from rlvr.train.alarm import Alarms
from rlvr.train.config import Config
from rlvr.train.costs import step_costs
from rlvr.train.metrics import evaluation_metrics, keep_evaluation, open_loggers, read_metrics
from rlvr.train.policy import Policy
from rlvr.train.preferences import Examples, PreferenceLearner, examples_of_file
from rlvr.train.reward_learner import RewardLearner
from rlvr.train.run_dir import claim_run_dir, keep_chat
from rlvr.train.setup import (
    describe_run,
    device_of,
    local_sampler,
    policy_from_config,
    prepare_policy,
    say_prompts,
)

__all__ = ["OfflineTrainer"]


class OfflineTrainer:
    """One run on the examples of `config.pairs`.  Close it, or use it as a context manager.

        with OfflineTrainer(Config(model="Qwen/Qwen3-0.6B", algorithm="dpo",
        pairs=Path("pairs.jsonl"), run=…)) as it:
            it.run()

    Each step trains on `config.prompts` examples, in an order that is drawn anew in each pass over
    the file.

    Args:
        config: settings of the run.  With an environment, the policy is evaluated on it.
        policy: the model to train, in place; None to load `config.model`.
        console: where progress is printed; None for stderr.

    Attributes:
        config: the settings, as they were given.
        step: steps done so far.
        examples: of the file.
        reports: evaluations made by this object, by step.

    Raises:
        UsageError: a setting cannot work, or the folder holds another run.
        DataError: the file has nothing to train on.
    """

    def __init__(
        self, config: Config, *, policy: Policy | None = None, console: Console | None = None
    ) -> None:
        self.config, self._settings = config, config.resolve()
        settings = self._settings
        if settings.pairs is None or settings.algorithm.examples is None:
            raise UsageError(
                "training on a file needs pairs and an algorithm of preferences, such as 'dpo'"
            )
        if (processes := os.environ.get("WORLD_SIZE") or "1") != "1":
            raise UsageError(
                f"WORLD_SIZE is {processes}, and training on a file is one process; start it "
                f"without torchrun"
            )
        self.step = 0
        self.reports: dict[int, EvaluationReport] = {}
        self._console = console or PlainConsole(stderr=True)
        self._rng: dict[str, Any] | None = None
        if policy is None:
            device_of(settings.device)  # fails now, and not after the file was read
        self._eval_env = None
        if settings.env and "head" in settings.algorithm.needs:
            raise UsageError(
                f"env is {settings.env!r}, and a reward model generates nothing to evaluate; leave "
                f"it out"
            )
        if settings.env and settings.eval_every is not None:
            options = {
                **settings.env_options,
                "split": settings.eval_split,
                **settings.eval_options,
            }
            self._eval_env = make(settings.env, **options)
            if settings.strict:
                self._eval_env.stop_at_bad_rows()
        with ExitStack() as self._open:
            file = {"sha256": hashlib.sha256(settings.pairs.read_bytes()).hexdigest()}
            description = {**describe_run(settings, None, self._eval_env), "pairs": file}
            self._open.enter_context(claim_run_dir(settings.run, description, self._say))
            self._activity = Activity(self._console)
            if policy is None:
                with self._activity.working(f"loading {settings.model}"):
                    policy = policy_from_config(settings)
            self.policy = prepare_policy(policy, settings)
            keep_chat(settings.run, self.policy.tokenization.format)
            say_prompts(self.policy, None, self._say)
            self.examples, left_out = examples_of_file(
                settings.pairs,
                settings.algorithm,
                self.policy.tokenization,
                max_tokens=settings.max_tokens,
            )
            if left_out:
                self._say(
                    f"{left_out} rows have a completion of more than {settings.max_tokens} tokens: "
                    f"left out"
                )
            self._say(
                f"{len(self.examples.rows)} examples, "
                f"{sum(one.tokens for one in self.examples.rows)} tokens"
            )
            learner = RewardLearner if "head" in settings.algorithm.needs else PreferenceLearner
            self.learner = learner(self.policy, settings, activity=self._activity)
            self._alarms = Alarms(settings.bad_steps)
            self._load_checkpoint()
            self.learner.begin_at(self.step)
            self._open = self._open.pop_all()

    def run(self) -> None:
        """Train until the last step, or until SIGTERM or SIGINT; then the current step is finished
        and saved.

        Raises:
            Diverged: losses or gradients were not finite in `bad_steps` mini-batches in a row;
                `RUN/steps` holds them.
            AlarmRaised: `on_alarm` is "stop", and a step raised an alarm; it is saved.
        """
        config = self._settings
        loggers = open_loggers(
            config.run,
            config.steps,
            self._console,
            done=self.step,
            track=config.track,
            config=config.recorded,
        )
        with loggers as log, checkpoint.stop_requested(self._say) as stopped:
            self._set_generators()
            if self.step == 0 and self._eval_env is not None:
                log(0, self._evaluate())
            stop = stopped()
            while self.step < config.steps and not stop:  # asked once a step, so that it is saved
                started = time.perf_counter()
                numbers = self._one_step()
                if self._eval_env is not None and self._is_due(config.eval_every or 0):
                    numbers |= self._evaluate()
                step_s = time.perf_counter() - started
                numbers |= step_costs(self.policy.device, numbers["tokens"], step_s)
                for line in self._alarms.check(numbers):
                    self._say(line)
                log(self.step, numbers)
                stop = stopped() or self._must_end
                if self.step % config.checkpoint_every == 0 or self.step == config.steps or stop:
                    self.save()
        if self.step == config.steps:
            with whole_folder(
                config.run / "model"
            ) as folder:  # a run that is killed meanwhile leaves no half model
                self.learner.save(folder)
        if self._must_end:
            self._alarms.end_run(self.step)
        if self.step < config.steps:
            self._say(f"stopped after step {self.step}; the same command continues from there")

    @property
    def _must_end(self) -> bool:
        """Whether an alarm ends the run."""
        return self._settings.on_alarm == "stop" and bool(self._alarms.raised)

    def _one_step(self) -> dict[str, float]:
        started, seed = time.perf_counter(), self._settings.seed
        examples = self._of_step(self.step)
        draw = torch.Generator().manual_seed(rollout_seed("minibatches", seed, self.step))
        numbers = self.learner.learn(examples, draw)
        self.step += 1
        self.learner.end_step(self.step)
        epoch = self.step * self._settings.prompts / len(self.examples.rows)
        tokens = float(sum(one.tokens for one in examples.rows))
        return {
            **numbers,
            "epoch": epoch,
            "tokens": tokens,
            "update_s": time.perf_counter() - started,
        }

    def _of_step(self, step: int) -> Examples:
        n, size = len(self.examples.rows), self._settings.prompts
        places = range(step * size, (step + 1) * size)
        return self.examples.part(
            [_order(n, self._settings.seed, place // n)[place % n] for place in places]
        )

    def _evaluate(self) -> dict[str, float]:
        config, started = self._settings, time.perf_counter()
        assert self._eval_env is not None
        sampling = Sampling(
            max_tokens=config.max_tokens, temperature=config.eval_temperature, stop=config.stop
        )
        report = self.reports[self.step] = evaluate(
            self._eval_env,
            local_sampler(self.policy, config),
            sampling=replace(sampling, top_p=config.eval_top_p),
            n=config.eval_n,
            limit=config.eval_tasks,
            seed=config.seed,
            max_turns=config.max_turns,
            step_s=config.step_s,
            schedule=config.turn_schedule,
            progress=self._activity,
        )
        keep_evaluation(config.run, self.step, report)
        return {**evaluation_metrics(report), "eval_s": time.perf_counter() - started}

    def _is_due(self, every: int) -> bool:
        return self.step == self._settings.steps or bool(every and self.step % every == 0)

    def save(self) -> Path:
        """Write a checkpoint with everything that the next step depends on, and return its path."""
        parts = self.step, self.learner.state_dict(), checkpoint.rng_state(self.policy.device)
        state = dict(zip(_STATE, parts, strict=True))
        return checkpoint.save(
            self._settings.run / "checkpoints", self.step, state, keep=self._settings.keep
        )

    def _load_checkpoint(self) -> None:
        if (found := checkpoint.newest(self._settings.run / "checkpoints", _STATE)) is None:
            return
        path, state = found
        self.step, self._rng = state["step"], state["rng"]
        if self.step > self._settings.steps:
            raise UsageError(
                f"steps is {self._settings.steps}, and the run in {self._settings.run} has done "
                f"{self.step}; give more "
                "steps"
            )
        self.learner.load_state_dict(state["learner"])
        log = self._settings.run / "metrics.jsonl"
        if log.is_file():
            self._alarms.read_again(read_metrics(log), self.step)
        self._say(f"continuing after step {self.step}, from {path}")

    def _set_generators(self) -> None:
        """Set the global random generators: rlvr does not use them, but an environment may."""
        if self._rng is not None:
            checkpoint.restore_rng(self._rng, self.policy.device)
        else:
            torch.manual_seed(self._settings.seed)
            random.seed(self._settings.seed)

    def _say(self, line: str) -> None:
        self._console.print(Plainly(line), soft_wrap=True)

    def close(self) -> None:
        """Free the run's folder."""
        self._open.close()

    def __enter__(self) -> OfflineTrainer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


_STATE = ("step", "learner", "rng")
"""What a checkpoint holds."""


@lru_cache(maxsize=2)
def _order(n: int, seed: int, epoch: int) -> list[int]:
    """The order of the examples in one pass over the file."""
    draw = torch.Generator().manual_seed(rollout_seed("pairs", seed, epoch))
    order: list[int] = torch.randperm(n, generator=draw).tolist()
    return order
