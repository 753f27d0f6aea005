"""The loop: collect, give credit, update, sync, and write down what happened.

gather ─▶ prepared ─▶ credit ─▶ mini-batches × epochs ─▶ update ─▶ sync, canary ─▶ evaluate ─▶ reset ─▶ log ─▶ save
   ▲                                                                    │
   └────────────────────────────── next step ───────────────────────────┘
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from rlvr.collect import Collector, Sampling, rollout_seed
from rlvr.collect.evaluation import Report, evaluate
from rlvr.environment import Environment, SingleTurnEnv
from rlvr.errors import UsageError
from rlvr.scoring import Scorer
from rlvr.train import checkpoint
from rlvr.train.alarm import ScoringAlarm
from rlvr.train.canary import Canary
from rlvr.train.config import Config
from rlvr.train.credit import Batch, credit, laid_out, minibatches, save_batch
from rlvr.train.gather import Gathered, gather
from rlvr.train.learner import Learner
from rlvr.train.metrics import Log, evaluation_numbers, log_rollouts, logging_to
from rlvr.train.policy import Policy
from rlvr.train.run_dir import claimed
from rlvr.train.setup import about, configured_policy, environments
from rlvr.workers.threads import Threads

__all__ = ["Trainer"]


class Trainer:
    """One run.  Close it, or use it as a context manager.

        with Trainer(Config(env="arithmetic-v1", model="Qwen/Qwen3-0.6B", run=Path("runs/a"))) as trainer:
            trainer.run()

    Args:
        config: of the run.
        policy: already loaded; it is trained in place, and `model`, `chat`, `device`, `precision` and `micro_tokens`
            are then what it was made with.
        env: already made, for one that has no id.
        eval_env: to go with it.
        console: where progress is printed; by default stderr.

    Attributes:
        step: how many are done.
        reports: of all evaluations since this object was made, by step.

    Raises:
        UsageError: a setting that cannot work, or the folder holds another run.
    """

    def __init__(
        self,
        config: Config,
        *,
        policy: Policy | None = None,
        env: Environment | None = None,
        eval_env: Environment | None = None,
        console: Console | None = None,
    ) -> None:
        self.config, self.step = config, 0
        self.reports: dict[int, Report] = {}
        self._best, self._stalled = float("-inf"), 0  # of validation, for the reset
        self._ahead: Gathered | None = None
        self._alarm = ScoringAlarm(config.bad_steps)
        self._console = console or Console(stderr=True)
        self.env, self.eval_env = environments(config, env, eval_env)
        with ExitStack() as self._open:
            self._open.enter_context(claimed(config.run, about(config, self.env, self.eval_env), self._say))
            self.policy = policy or configured_policy(config)
            self.learner = Learner(self.policy, config)
            weights = next(self.policy.model.parameters()).dtype
            own = weights if config.one_step_off else None  # weights that it keeps while the policy's change
            self.sampler = self.policy.sampler(dtype=own, max_rows=config.max_rows)
            self.collector = self._open.enter_context(
                Collector(
                    self.env,
                    self.sampler,
                    group_size=config.group_size_,
                    sampling=self._sampling(config.temperature_),
                    scorer=self._scorer(self.env),
                    seed=config.seed,
                    dynamic=config.algorithm_.dynamic_sampling,
                    overlong="mask" if config.algorithm_.overlong == "mask" else "keep",
                    max_rounds=config.max_rounds,
                    max_turns=config.max_turns,
                )
            )
            self._eval_scorer = self._scorer(self.eval_env)
            self._canary = Canary(self.collector.groups, config.canary_)
            self._thread = Threads(1)
            self._open.callback(self._thread.close)
            self._begin()
            self._open = self._open.pop_all()  # all is well: it stays open until `close`

    def run(self) -> None:
        """Train until the last step, or until SIGTERM or SIGINT: then the step is finished and saved.

        Raises:
            Diverged: losses or gradients were not finite too often; `RUN/bad` holds the batches.
            CanaryFailed: the sampler does not have the trainer's weights.
            NothingScored: no rollout could be scored, `bad_steps` times in a row.
        """
        config = self.config
        with self._loggers() as log, checkpoint.stop_requested(self._say) as stopped:
            self._set_generators()  # last: whoever drew from them while all was set up has not been in the run
            if self.step == 0 and config.eval_every is not None:
                log(0, self._evaluated())
            while self.step < config.steps and not stopped():
                started = time.perf_counter()
                numbers = self._one_step()
                if self._is_due(config.eval_every):
                    numbers |= self._evaluated()
                if self._wants_reset():
                    self.learner.reset()
                    self._best, self._stalled, numbers["reset"] = float("-inf"), 0, 1.0
                log(self.step, numbers | self._costs(numbers, time.perf_counter() - started))
                if self.step % config.checkpoint_every == 0 or self.step == config.steps or stopped():
                    self.save()
        if self.step == config.steps:
            self.policy.save(config.run / "model")
        else:
            self._say(f"stopped after step {self.step}; the same command goes on from there")

    def _one_step(self) -> dict[str, float]:
        """Collect, unless it was done ahead; train; give the sampler the new weights."""
        gathered, later = self._ahead or self._gather(), None
        self._alarm.heard(gathered)
        if self.config.one_step_off and self.step + 1 < self.config.steps:
            later = self._thread.submit(self._gather)
        numbers = {**gathered.stats, "staleness": float(gathered.staleness(self.step)), "collect_s": gathered.wall_s}
        try:
            numbers |= self._learn(gathered)
        finally:
            self._ahead = later.result() if later else None  # it has to end before its weights change
        if self.config.rollouts_every and self.step % self.config.rollouts_every == 0:
            path = self.config.run / "rollouts" / f"step-{self.step + 1:08d}.parquet"
            log_rollouts(path, gathered.groups, gathered.dropped)
        self.step += 1
        return numbers | self._sync()

    def _gather(self) -> Gathered:
        wanted = "prefix_values" in self.config.algorithm_.needs
        return gather(self.collector, self.config.prompts, vine_k=self.config.vine_k if wanted else None)

    def _learn(self, gathered: Gathered) -> dict[str, float]:
        """A batch of groups into the weights."""
        started = time.perf_counter()
        if not gathered.groups:
            self._say(f"step {self.step + 1} is skipped: no group has anything to teach")
            return {"skipped": 1.0, "updates": 0.0, "lr": self.learner.lr}
        batch = self.learner.prepared(laid_out(gathered.groups))
        draw = torch.Generator().manual_seed(rollout_seed("minibatches", self.config.seed, self.step))
        algorithm = self.config.algorithm_
        epochs = [minibatches(len(batch.rows), self.config.minibatch, draw) for _ in range(algorithm.epochs)]
        if algorithm.advantage == "magistral_advantages":
            epochs = epochs[:1] * algorithm.epochs  # normalised per mini-batch, of which there is then but one set
        first = {row: number for number, rows in enumerate(epochs[0]) for row in rows}
        judged = credit(
            gathered.groups,
            batch,
            algorithm,
            minibatch_of=[first[row] for row in range(len(batch.rows))],
            values=gathered.values,
        )
        batch = replace(batch, advantages=judged)
        prepared_s = time.perf_counter() - started
        numbers = self.learner.update(batch, [part for epoch in epochs for part in epoch], self._keep_bad)
        update_s = time.perf_counter() - started - prepared_s
        return {**numbers, "entropy": _entropy(batch), "prepare_s": prepared_s, "update_s": update_s}

    def _sync(self) -> dict[str, float]:
        """The sampler gets the weights, and proves it."""
        started = time.perf_counter()
        self.sampler.sync(self.policy.model.state_dict() if self.config.one_step_off else None, self.step)
        difference = self._canary.check(self.policy, self.sampler, self.step)
        return {"canary": difference, "sync_s": time.perf_counter() - started}

    def _is_due(self, every: int | None) -> bool:
        return every is not None and (self.step == self.config.steps or bool(every and self.step % every == 0))

    def _evaluated(self) -> dict[str, float]:
        """How good the policy is, and since when it has not got better."""
        config, started = self.config, time.perf_counter()
        assert self.eval_env is not None
        temperature = config.temperature_ if config.eval_temperature is None else config.eval_temperature
        report = self.reports[self.step] = evaluate(
            self.eval_env,
            self.sampler,
            sampling=replace(self._sampling(temperature), top_p=config.eval_top_p),
            n=config.eval_n,
            limit=config.eval_tasks,
            scorer=self._eval_scorer,
            seed=config.seed,
            max_turns=config.max_turns,
        )
        if f"avg@{config.eval_n}" in report.metrics:  # it is not where no completion could be scored
            value = report.metrics[f"avg@{config.eval_n}"].value
            self._best, self._stalled = (value, 0) if value > self._best else (self._best, self._stalled + 1)
        return {**evaluation_numbers(report), "eval_s": time.perf_counter() - started}

    def _wants_reset(self) -> bool:
        reset = self.config.algorithm_.reset
        if reset is None:
            return False
        stalled = reset.stall_validations is not None and self._stalled >= reset.stall_validations
        return stalled or (reset.every_steps is not None and self.step % reset.every_steps == 0)

    def _costs(self, numbers: Mapping[str, float], step_s: float) -> dict[str, float]:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if self.policy.device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self.policy.device) / 2**20
        tokens = numbers["tokens"] + numbers.get("fork_tokens", 0.0)
        return {"step_s": step_s, "tokens_per_s": tokens / step_s, "memory_mib": peak}

    def save(self) -> Path:
        """All that the next step depends on, into the run's folder."""
        state = {
            "step": self.step,
            "learner": self.learner.state_dict(),
            "collector": self.collector.state_dict(),
            "ahead": self._ahead and self._ahead.state_dict(self.collector),
            "validation": [self._best, self._stalled],
            "rng": checkpoint.rng_state(self.policy.device),
        }
        return checkpoint.save(self.config.run / "checkpoints", self.step, state, keep=self.config.keep)

    def _begin(self) -> None:
        """Where the run stood, or at its beginning."""
        self._rng: dict[str, Any] | None = None
        if (found := checkpoint.newest(self.config.run / "checkpoints")) is None:
            return
        path, state = found
        self.step = state["step"]
        if self.step > self.config.steps:
            raise UsageError(f"steps is {self.config.steps}, and the run in {self.config.run} has done {self.step}")
        self.learner.load_state_dict(state["learner"])
        self.collector.load_state_dict(state["collector"])
        self._ahead = state["ahead"] and Gathered.from_state(state["ahead"], self.collector)
        self._best, self._stalled = state["validation"]
        self._rng = state["rng"]
        self._sync()
        self._say(f"going on after step {self.step}, from {path}")

    def _loggers(self) -> AbstractContextManager[Log]:
        config = self.config
        return logging_to(
            config.run, config.steps, self._console, done=self.step, track=config.track, config=config.resolved()
        )

    def _set_generators(self) -> None:
        """Nothing of ours draws from the global ones; an environment may."""
        if self._rng is not None:
            checkpoint.restore_rng(self._rng, self.policy.device)
        elif self.step == 0:
            torch.manual_seed(self.config.seed)
            random.seed(self.config.seed)

    def _sampling(self, temperature: float) -> Sampling:
        return Sampling(max_tokens=self.config.max_tokens, temperature=temperature, stop=self.config.stop)

    def _scorer(self, env: Environment | None) -> Scorer | None:
        """None where an environment says its scores itself."""
        if not isinstance(env, SingleTurnEnv):
            return None
        return self._open.enter_context(Scorer(env, workers=self.config.workers))

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _keep_bad(self, mini: Batch) -> None:
        save_batch(self.config.run / "bad" / f"step-{self.step + 1:08d}-{self.learner.bad}.pt", mini)

    def close(self) -> None:
        """End threads and workers."""
        self._open.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _entropy(batch: Batch) -> float:
    """Of the policy that sampled, per token in nats: what its own tokens surprised it by, on average."""
    return float(-batch.behaviour_logprobs[batch.completion_mask].mean())
