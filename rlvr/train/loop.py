"""The training loop: collect rollouts, compute advantages, update the policy, sync the sampler, log, save.

collect_batch ─▶ collate ─▶ credit ─▶ update per mini-batch ─▶ sync, canary ─▶ evaluate ─▶ reset ─▶ log ─▶ save
     ▲                                                                                                       │
     └────────────────────────────────────────────── next step ──────────────────────────────────────────────┘
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from rlvr.collect import Collector, Sampler, Sampling, rollout_seed
from rlvr.collect.evaluation import EvaluationReport, evaluate
from rlvr.console import PlainConsole, Plainly
from rlvr.data.files import whole_folder
from rlvr.display import Activity
from rlvr.environment import Environment
from rlvr.errors import UsageError
from rlvr.samplers.protocol import TokenRow
from rlvr.scoring import Scorer
from rlvr.scoring.engines import engine_of
from rlvr.train import checkpoint
from rlvr.train.alarm import (
    AlarmRaised,
    Alarms,
    OpinionAlarm,
    ScoringAlarm,
    SecondOpinion,
    lr_alarm,
)
from rlvr.train.canary import Canary
from rlvr.train.config import Config, ResolvedConfig
from rlvr.train.costs import step_costs
from rlvr.train.credit import Batch, collate, credit, rows_of, update_rows
from rlvr.train.evaluations import Evaluated, eval_sets
from rlvr.train.learner import Learner
from rlvr.train.memory import forecast, longest_prompt, require_room
from rlvr.train.metrics import (
    Log,
    evaluation_metrics,
    keep_evaluation,
    open_loggers,
    read_metrics,
)
from rlvr.train.parts import MovingBaseline
from rlvr.train.policy import Policy
from rlvr.train.preferences import PreferenceLearner, examples_of_groups
from rlvr.train.ranks import Ranks
from rlvr.train.rollout_batch import RolloutBatch, collect_batch
from rlvr.train.rollout_log import Trained, log_rollouts, rollout_table, trained_rollouts
from rlvr.train.run_dir import claim_run_dir, identity_of_run, keep_chat
from rlvr.train.sampling import open_sampler
from rlvr.train.setup import (
    describe_run,
    device_of,
    environments,
    policy_from_config,
    prepare_policy,
    say_prompts,
    stage_env,
)
from rlvr.train.stages import Stages, collects_otherwise
from rlvr.train.task_strength import TaskStrengths
from rlvr.train.validation import Standing, validation_split
from rlvr.types import Task
from rlvr.workers.threads import Threads

__all__ = ["Trainer"]


class Trainer:
    """One training run.  Close it, or use it as a context manager.

        with Trainer(Config(env="arithmetic-v1", model="Qwen/Qwen3-0.6B", run=Path("runs/a"))) as
        trainer:
            trainer.run()

    Args:
        config: settings of the run.
        policy: the model to train, in place; None to load `config.model`.  If it is given, the
            settings `model`, `chat`, `device`, `precision`, `attention`, `packing`,
            `gradient_checkpointing` and `micro_tokens` change nothing in it; those of LoRA give it
            an adapter.
        env: the training environment, for one that has no id; None to make it from `config.env`.
        eval_env: the evaluation environment; needed with `env`, unless `config.eval_every` is None.
        sampler: samples completions, such as an engine's; it is given the weights after every step.
            None for the local one, in this process.
        console: where progress is printed; None for stderr.
        second_opinion: another verifier on a share of the rollouts, against hacked rewards; None
            for none.

    Attributes:
        config: the settings, as they were given.
        step: training steps done so far.
        stages: which have begun, and the settings that follow.
        reports: evaluations made by this object, by step.
        forecast: the memory that the run will take.

    Raises:
        UsageError: a setting cannot work, or the folder holds another run.
    """

    def __init__(
        self,
        config: Config,
        *,
        policy: Policy | None = None,
        env: Environment | None = None,
        eval_env: Environment | None = None,
        sampler: Sampler | None = None,
        console: Console | None = None,
        second_opinion: SecondOpinion | None = None,
    ) -> None:
        self.config, self._settings = config, config.resolve()
        self.stages, self._given_env = Stages(config), env
        config = self._settings
        self.step = 0
        self.reports: dict[int, EvaluationReport] = {}
        self._standing = Standing()
        self.validation_env: Environment | None = None
        self._ahead: RolloutBatch | None = None
        self._trained: dict[
            int, Trained
        ] = {}  # of this step's rollouts, where they are shown or kept
        self._alarm = ScoringAlarm(config.bad_steps)
        self._opinion: OpinionAlarm | None = None
        if second_opinion is not None:
            self._opinion = OpinionAlarm(
                second_opinion, config.run / "disagreements.jsonl", config.seed
            )
        self._strengths = None if config.strength is None else TaskStrengths(config.strength)
        self._console = console or PlainConsole(stderr=True)
        self._scorers: list[Scorer] = []
        device = (
            device_of(config.device) if policy is None else policy.device
        )  # fails now, not after the data
        with ExitStack() as self._open:
            self.ranks = self._open.enter_context(Ranks.of_environment(device))
            self._open.callback(self._free_shards)
            if not self.ranks.first:
                self._console = PlainConsole(quiet=True)
            self._activity = Activity(self._console)
            self.ranks.require_same("settings", json.dumps(config.recorded, sort_keys=True))
            if self.ranks.first:
                self.env, self.eval_env = environments(config, env, eval_env)
                self.env, self.validation_env = validation_split(config, self.env)
                description = describe_run(config, self.env, self.eval_env)
                envs = (self.env, self.eval_env)
                self._open.enter_context(claim_run_dir(config.run, description, self._say, envs))
                self._identity = identity_of_run(config.run, envs, config.accept)
            if policy is None:
                with self._activity.working(f"loading {config.model}"):
                    policy = policy_from_config(config, self.ranks.world)
            self.policy = prepare_policy(policy, config)
            self._alarms = Alarms(
                config.bad_steps,
                self.policy.tokenization.format,
                clips=config.algorithm.clip is not None,
            )
            if self.ranks.first:
                keep_chat(config.run, self.policy.tokenization.format)
                say_prompts(self.policy, self.env, self._say)
            self.ranks.require_same(
                "weights", self.policy.summary() if self.ranks.world > 1 else ""
            )
            if self.ranks.first:
                self._open_sampling(sampler)
            learns_examples = config.algorithm.examples is not None
            kind = PreferenceLearner if learns_examples else Learner
            self.learner = kind(self.policy, config, self.ranks, self._activity)
            if (line := lr_alarm(self.learner.parameters, config.lr)) is not None:
                self._say(line)
                if config.on_alarm == "stop":
                    raise AlarmRaised("on_alarm is 'stop', and lr is too high; see the line above")
            self._take_settings()
            self._load_checkpoint()
            self._open = (
                self._open.pop_all()
            )  # nothing failed: what was opened stays open until `close`

    def _open_sampling(self, sampler: Sampler | None) -> None:
        """What the rank that collects has, and the others do without."""
        config = self._settings
        self.sampler = sampler or self._open.enter_context(
            open_sampler(self.policy, config, self.ranks.world)
        )
        self._collecting = self._open.enter_context(ExitStack())
        self._open_collector()
        self._eval_scorer = self._scorer(self.eval_env, self._open)
        self._eval_sets = eval_sets(config, self.env)
        for one in self._eval_sets:
            self._say(one.line)
        for stage in self.stages.beyond:
            self._say(f"the stage {stage.text} lies behind the last step, and does not begin")
        prompt_tokens = longest_prompt(self.collector.groups)
        self.forecast = forecast(
            self.policy, self.stages.longest, prompt_tokens=prompt_tokens, world=self.ranks.world
        )
        require_room(self.forecast, config)
        if config.algorithm.examples is None:
            self._say(config.updates_line)
        self._say(str(self.forecast))
        self._thread = Threads(1, "trainer")
        self._open.callback(self._thread.close)

    def _open_collector(self) -> None:
        """What is made anew where a stage changes how rollouts are collected."""
        config = self._settings
        self.collector = self._collecting.enter_context(
            Collector(
                self.env,
                self.sampler,
                group_size=config.group_size,
                sampling=self._sampling(config.temperature),
                scorer=self._scorer(self.env, self._collecting),
                seed=config.seed,
                dynamic=config.algorithm.dynamic_sampling,
                overlong="mask"
                if "mask" in config.overlong
                else "keep",  # soft is a part of the reward
                max_tries=config.max_tries if config.algorithm.refill else 1,
                max_staleness=config.max_staleness,
                max_turns=config.max_turns,
                step_s=config.step_s,
                schedule=config.turn_schedule,
                activity=self._activity,
            )
        )
        self._validation_scorer = self._scorer(self.validation_env, self._collecting)
        self._canary = Canary(self.collector.groups, config.canary)

    def run(self) -> None:
        """Train until the last step, or until SIGTERM or SIGINT; then the current step is finished
        and saved.

        Raises:
            RewardsDisputed: the second opinion does not confirm the rewards.
            Diverged: losses or gradients were not finite in `bad_steps` mini-batches in a row;
                `RUN/steps` holds them.
            CanaryFailed: the sampler does not have the trainer's weights.
            NothingScored: every rollout was UNSCORED in `bad_steps` steps in a row.
            AlarmRaised: `on_alarm` is "stop", and a step raised an alarm; it is saved.
        """
        config = self.config.resolve()
        ranks = self.ranks
        with self._loggers() as log, checkpoint.stop_requested(self._say) as stopped:
            self._set_generators()  # last, so that numbers drawn during the set-up do not change the run
            if self.step == 0:
                numbers = self._looks(True)
                if numbers and ranks.first:
                    log(0, numbers)
            stop = ranks.any(stopped())
            # Asked once a step: what a second question finds after the save would end the run
            # without one.
            while self.step < config.steps and not stop:
                started = time.perf_counter()
                numbers = self._one_step() if ranks.first else self._one_step_of_others()
                numbers |= self._looks(False)
                self.learner.end_step(self.step)
                stalled = self._standing.stalled
                if ranks.from_first(self._wants_reset(numbers) if ranks.first else None):
                    self.learner.reset()
                    self._standing.reset()
                    numbers["reset"] = 1.0
                numbers |= self._begin_stages(numbers, stalled)
                if ranks.first:
                    numbers |= self._costs(numbers, time.perf_counter() - started)
                    for line in self._alarms.check(numbers):
                        self._say(line)
                    log(self.step, numbers)
                stop = ranks.any(stopped() or self._must_end)
                if self.step % config.checkpoint_every == 0 or self.step == config.steps or stop:
                    self.save()
        if self.step == config.steps:
            with self._folder("model") as folder:
                self.policy.save(folder)
        if self._must_end:
            self._alarms.end_run(self.step)
        if self.step < config.steps:
            self._say(f"stopped after step {self.step}; the same command continues from there")

    @property
    def _must_end(self) -> bool:
        """Whether an alarm ends the run; only the first rank knows."""
        return self._settings.on_alarm == "stop" and bool(self._alarms.raised)

    def _folder(self, name: str) -> AbstractContextManager[Path]:
        """A folder of the run that the first rank writes: a run that is killed meanwhile leaves no
        half of it."""
        path = self._settings.run / name
        return whole_folder(path) if self.ranks.first else nullcontext(path)

    def _one_step(self) -> dict[str, float]:
        """Collect a batch, unless it was collected ahead; train on it; give the sampler the new
        weights."""
        sampled, later = self._ahead or self._collect(self.step), None
        self._alarm.check(sampled)
        opinion = (
            {} if self._opinion is None else self._opinion.check(sampled.groups, self.step + 1)
        )
        trained = sampled
        for part in self.learner.parts:
            trained = part.extend(trained, self.step, self.collector.groups)
        if self._settings.max_staleness and self.step + 1 < self._last_of_stage:
            later = self._thread.submit(self._collect, self.step + 1)
        numbers = {
            **trained.stats,
            **opinion,
            **({} if self._strengths is None else self._strengths.metrics(sampled.groups)),
            **trained.staleness(self.step),
            "collect_s": sampled.wall_s,
        }
        if self._settings.sampler_sleep:
            sampler: Any = self.sampler  # of vLLM, which alone sleeps
            sampler.sleep()
        try:
            numbers |= self._learn(trained)
        finally:
            self._ahead = (
                later.result() if later else None
            )  # sampling has to end before its weights change
        self._log_rollouts(sampled)
        self.step += 1
        return numbers | self._sync()

    def _one_step_of_others(self) -> dict[str, float]:
        """The same on a rank that does not collect."""
        self._learn(None)
        self.step += 1
        self._sync()
        return {}

    def _collect(self, step: int) -> RolloutBatch:
        """Collect the batch that a step trains on; `step` is also the version of the weights that
        it begins with."""
        config = self._settings
        return collect_batch(
            self.collector,
            config.prompts,
            parts=self.learner.parts,
            ahead=min(max(0, config.max_staleness - 1), self._last_of_stage - 1 - step),
            trained_at=step,
        )

    @property
    def _last_of_stage(self) -> int:
        """The last step that is known to have the settings of this one: no batch is collected
        beyond it."""
        return self.stages.next_step(self.step) or self._settings.steps

    def _begin_stages(self, numbers: Mapping[str, float], stalled: int) -> dict[str, float]:
        """Let stages begin and schedules move, behind a step; returns what is logged of them.

        Args:
            numbers: what the step logs.
            stalled: validations in a row without a new best, before a reset of this step.
        """
        if not self.stages:
            return {}
        if self.ranks.first:
            self.stages.end_step(self.step, numbers, stalled)
        self.stages.load_state_dict(self.ranks.from_first(self.stages.state_dict()))
        self._take_settings()
        begun = self.stages.begun_at(self.step)
        for stage in begun:
            self.learner.begin_stage(stage.changes, stage.reset, self._settings.steps - self.step)
            self._standing.reset()
            self._say(f"step {self.step}: a stage begins, {stage.text}")
        logged = {f"stage/{name}": value for name, value in self.stages.moving.items()}
        if begun:
            logged["stage"] = float(1 + max(map(self.stages.stages.index, begun)))
        return logged

    def _take_settings(self) -> None:
        """Go on with the settings of the next step."""
        before, now = self._settings, self.stages.settings
        if now == before:
            return
        self._settings = now
        self.learner.change(now)
        if not self.ranks.first:
            return
        is_warmer = now.temperature != before.temperature
        if collects_otherwise(before, now) or (is_warmer and now.max_staleness):
            self._collect_anew(before)
        elif is_warmer:
            self.collector.groups.sample_with(self._sampling(now.temperature))

    def _collect_anew(self, before: ResolvedConfig) -> None:
        """Make the collector of these settings; groups under way are dropped, and their tasks come
        again."""
        now, place = self._settings, self.collector.place
        for scorer in self._scorers[:]:
            if scorer is not self._eval_scorer:
                self._identity.add(scorer.identity().without("settings"))
                self._scorers.remove(scorer)
        self._collecting.close()
        env, _ = environments(now, stage_env(self.config, now, self._given_env), self.eval_env)
        self.env, self.validation_env = validation_split(now, env)
        self._open_collector()
        self.collector.go_on_from(place)
        has_other_tasks = (before.env, before.env_options) != (now.env, now.env_options)
        if has_other_tasks:
            self._standing = Standing()  # the best on other tasks is no best on these
        if has_other_tasks or before.temperature != now.temperature:
            self._ahead = None

    def _learn(self, sampled: RolloutBatch | None) -> dict[str, float]:
        """Compute advantages and update the policy.

        Args:
            sampled: on the rank that has collected; the others get the batch from it.
        """
        started, ranks = time.perf_counter(), self.ranks
        self._trained = {}
        collated = collate(sampled.groups) if sampled is not None and sampled.groups else None
        shared: Batch | None = ranks.from_first(
            collated if collated is None or ranks.world == 1 else _thin(collated)
        )
        if shared is None:
            self._say(f"step {self.step + 1} is skipped: no group is left to train on")
            return {"skipped": 1.0, "updates": 0.0, "lr": self.learner.lr}
        draw = torch.Generator().manual_seed(
            rollout_seed("minibatches", self._settings.seed, self.step)
        )
        if isinstance(self.learner, PreferenceLearner):
            assert sampled is not None  # there is one rank
            return self._learn_preferences(self.learner, sampled, draw)
        batch = self.learner.prepared(
            collated or shared
        )  # the first rank's rows have tasks and turns
        algorithm = self.learner.algorithm
        assert batch.group is not None
        epochs = [
            update_rows(batch.group.tolist(), self._settings.updates, draw)
            for _ in range(algorithm.epochs)
        ]
        if (
            "minibatch" in algorithm.reads
        ):  # advantages are of an update, so all epochs have the same
            epochs = epochs[:1] * algorithm.epochs
        first = {row: number for number, rows in enumerate(epochs[0]) for row in rows}
        if sampled is not None:
            average = self.learner.part(MovingBaseline)
            credited = credit(
                sampled.groups,
                batch,
                algorithm,
                minibatch_of=[first[row] for row in range(len(batch.rows))],
                values=sampled.values,
                average=None if average is None else average.average,
            )
            self.learner.observe(sampled.groups)
            batch = replace(batch, advantages=credited.advantages, returns=credited.returns)
            for part in self.learner.parts:
                batch = part.choose(sampled.groups, batch, draw)
        batch = replace(batch, **ranks.from_first(_credit_fields(batch)))
        prepared_s = time.perf_counter() - started
        numbers = self.learner.update(batch, [rows for epoch in epochs for rows in epoch])
        update_s = time.perf_counter() - started - prepared_s
        keeps, after = self._keeps_rollouts, None
        if (
            keeps and self._settings.token_logprobs
        ):  # on every rank, as each has a share of the weights
            after = self.learner.logprobs(batch.rows, self.policy)
        if sampled is not None and (keeps or self._settings.show_rollouts):
            self._trained = trained_rollouts(rows_of(sampled.groups), batch, after)
        return {
            **numbers,
            "entropy": _entropy(batch),
            "prepare_s": prepared_s,
            "update_s": update_s,
        }

    @property
    def _keeps_rollouts(self) -> bool:
        """Whether the rollouts of this step are written."""
        return (
            bool(self._settings.rollouts_every) and self.step % self._settings.rollouts_every == 0
        )

    def _log_rollouts(self, sampled: RolloutBatch) -> None:
        """Print and write the rollouts of a step, as the settings say."""
        settings = self._settings
        if settings.show_rollouts:
            self._console.print(
                rollout_table(
                    self.step + 1,
                    sampled.groups,
                    sampled.dropped,
                    self._trained,
                    settings.show_rollouts,
                )
            )
        if self._keeps_rollouts:
            log_rollouts(
                settings.run / "rollouts" / f"step-{self.step + 1:08d}.parquet",
                sampled.groups,
                sampled.dropped,
                env_of=self._env_of,
                trained=self._trained,
                decode=self.sampler.decode if settings.token_logprobs else None,
            )

    def _env_of(self, task: Task) -> str:
        """The name of a task's environment."""
        return self.env.name_of(task)

    def _learn_preferences(
        self, learner: PreferenceLearner, sampled: RolloutBatch, draw: torch.Generator
    ) -> dict[str, float]:
        """Draw examples from the groups and update the policy."""
        started, config = time.perf_counter(), self._settings
        examples, report = examples_of_groups(
            sampled.groups, config.algorithm, config.seed, self.step
        )
        if not examples.rows:
            self._say(
                f"step {self.step + 1} is skipped: no group has completions that could be preferred"
            )
            return {**report.metrics(), "skipped": 1.0, "updates": 0.0, "lr": learner.lr}
        numbers = learner.learn(examples, draw)
        return {**numbers, **report.metrics(), "update_s": time.perf_counter() - started}

    def _sync(self) -> dict[str, float]:
        """Give the sampler the new weights, and check that it has them."""
        started, weights = time.perf_counter(), self.policy.weights()
        if not self.ranks.first:
            deque(weights, maxlen=0)  # its share of what is gathered
            with torch.no_grad():
                self.policy.logprobs(
                    self.ranks.from_first(None)
                )  # its share of what the canary computes
            return {}
        self._canary.prepare(self.sampler)
        buckets_watched = self._canary.watched(weights, self.sampler)
        self.sampler.sync(buckets_watched, self.step)
        deque(
            buckets_watched, maxlen=0
        )  # what the sampler has left over: the other ranks gather it
        observed = self._canary.observe(self.sampler)
        self.ranks.from_first(observed.rows)
        difference = self._canary.check(self.policy, observed, self.step)
        return {"canary": difference, "sync_s": time.perf_counter() - started}

    def _is_due(self, every: int | None) -> bool:
        return every is not None and (
            self.step == self._settings.steps or bool(every and self.step % every == 0)
        )

    def _looks(self, before: bool) -> dict[str, float]:
        """The evaluation and the validation that are due; the best policy on the latter is kept in
        RUN/best.

        Args:
            before: whether this is before the first step.
        """
        config, started = self._settings, time.perf_counter()
        numbers: dict[str, float] = {}
        evaluates = config.eval_every is not None if before else self._is_due(config.eval_every)
        if evaluates and self.ranks.first:
            report = self.reports[self.step] = self._report(
                self.eval_env, self._eval_scorer, config.eval_tasks
            )
            keep_evaluation(config.run, self.step, report)
            numbers = evaluation_metrics(report)
        if self.ranks.first:
            for one in self._eval_sets:
                if before or self._is_due(one.every):
                    numbers |= self._evaluate_on(one)
        if config.validation_tasks and (before or self._is_due(config.validation_every)):
            is_best = False
            if self.ranks.first:
                report = self._report(
                    self.validation_env, self._validation_scorer, config.validation_tasks
                )
                numbers |= evaluation_metrics(report, "validation")
                is_best = self._standing.take(report) and not before
            if self.ranks.from_first(is_best if self.ranks.first else None):
                self._keep_best()
        if numbers:
            numbers["eval_s"] = time.perf_counter() - started
        return numbers

    def _evaluate_on(self, one: Evaluated) -> dict[str, float]:
        """A further evaluation; its tasks' results are kept in a folder of its own."""
        config = self._settings
        with ExitStack() as opened:
            scorer = self._scorer(one.env, opened)
            report = evaluate(
                one.env,
                self.sampler,
                sampling=Sampling(
                    max_tokens=one.max_tokens or config.max_tokens,
                    temperature=one.temperature,
                    top_p=one.top_p,
                    stop=config.stop,
                ),
                n=one.n,
                k=one.ks,
                rows=one.rows,
                scorer=scorer,
                seed=config.seed,
                max_turns=config.max_turns,
                step_s=config.step_s,
                schedule=config.turn_schedule,
                progress=self._activity,
            )
            assert scorer is not None
            self._identity.add(scorer.identity().without("settings"))
            self._scorers.remove(scorer)
        keep_evaluation(config.run, self.step, report, one.name)
        shown = ", ".join(f"{name} {it}" for name, it in report.metrics.items())
        self._say(f"step {self.step}, {one.name}: {shown}")
        return evaluation_metrics(report, f"eval/{one.name}")

    def _report(
        self, env: Environment | None, scorer: Scorer | None, tasks: int
    ) -> EvaluationReport:
        config = self._settings
        assert env is not None
        return evaluate(
            env,
            self.sampler,
            sampling=replace(self._sampling(config.eval_temperature), top_p=config.eval_top_p),
            n=config.eval_n,
            limit=tasks,
            scorer=scorer,
            seed=config.seed,
            max_turns=config.max_turns,
            step_s=config.step_s,
            schedule=config.turn_schedule,
            progress=self._activity,
        )

    def _keep_best(self) -> None:
        """Write the policy to RUN/best, with the step and the score that it has there."""
        with self._folder("best") as folder:
            self.policy.save(folder)
            if self.ranks.first:
                record = {"step": self.step, f"avg@{self._settings.eval_n}": self._standing.top}
                (folder / "validation.json").write_text(json.dumps(record), encoding="utf-8")
        self._say(f"step {self.step}: the best on the validation split so far, kept in RUN/best")

    def _wants_reset(self, numbers: Mapping[str, float]) -> bool:
        reset = self._settings.algorithm.reset
        if reset is None:
            return False
        patience = reset.stall_validations
        stalled = patience is not None and self._standing.stalled >= patience
        held = reset.kl_share is not None and numbers.get("kl_share", 0.0) > reset.kl_share
        return (
            stalled
            or held
            or (reset.every_steps is not None and self.step % reset.every_steps == 0)
        )

    def _costs(self, numbers: Mapping[str, float], step_s: float) -> dict[str, float]:
        tokens = numbers["tokens"] + numbers.get("fork_tokens", 0.0)
        return step_costs(self.policy.device, tokens, step_s)

    def save(self) -> Path:
        """Write a checkpoint with everything that the next step depends on, and return its path.

        It opens on any number of ranks.  All ranks make this call.
        """
        learned = self.learner.state_dict()
        write = partial(
            checkpoint.save,
            self._settings.run / "checkpoints",
            self.step,
            keep=self._settings.keep,
            ranks=self.ranks,
        )
        if not self.ranks.first:
            return write({"learner": learned})
        for scorer in self._scorers:
            self._identity.add(scorer.identity().without("settings"))
        parts = (
            self.step,
            learned,
            self.collector.state_dict(),
            self._ahead and self._ahead.state_dict(),
            [self._standing.state_dict(), self._opinion and self._opinion.state_dict()],
            checkpoint.rng_state(self.policy.device),
        )
        state = dict(zip(_STATE, parts, strict=True))
        if self.stages:
            state["stages"] = self.stages.state_dict()
        return write(state)

    def _load_checkpoint(self) -> None:
        """Continue from the newest checkpoint, if the folder has one."""
        self._rng: dict[str, Any] | None = None
        found = checkpoint.newest(self._settings.run / "checkpoints", _STATE, self.ranks)
        if found is None:
            if self.ranks.any(self.ranks.first and hasattr(self.sampler, "probe")):
                self._sync()  # an engine begins with weights that mean nothing, or with others
            return
        path, state = found
        self.step = state["step"]
        if self.step > self._settings.steps:
            raise UsageError(
                f"steps is {self._settings.steps}, and the run in {self._settings.run} has done "
                f"{self.step}; give more "
                "steps"
            )
        self.stages.continue_from(state.get("stages"), self.step)
        self._take_settings()
        self.learner.load_state_dict(state["learner"])
        self.learner.begin_at(self.step)
        if self.ranks.first:
            self.collector.load_state_dict(state["collector"])
            self._ahead = state["ahead"] and RolloutBatch.from_state(state["ahead"], self.collector)
        standing, opinion = state["validation"]
        self._standing.load_state_dict(standing)
        if self._opinion is not None and opinion:
            self._opinion.load_state_dict(opinion)
        self._rng = state["rng"]
        log = self._settings.run / "metrics.jsonl"
        if self.ranks.first and log.is_file():
            self._alarms.read_again(read_metrics(log), self.step)
        self._sync()
        self._say(f"continuing after step {self.step}, from {path}")

    def _loggers(self) -> AbstractContextManager[Log]:
        config = self._settings
        if not self.ranks.first:
            return nullcontext(lambda step, numbers: None)
        return open_loggers(
            config.run,
            config.steps,
            self._console,
            done=self.step,
            track=config.track,
            config=self.config.resolve().recorded,
        )

    def _set_generators(self) -> None:
        """Set the global random generators: rlvr does not use them, but an environment may."""
        if self._rng is not None:
            checkpoint.restore_rng(self._rng, self.policy.device)
        elif self.step == 0:
            torch.manual_seed(self._settings.seed)
            random.seed(self._settings.seed)

    def _sampling(self, temperature: float) -> Sampling:
        return Sampling(
            max_tokens=self._settings.max_tokens, temperature=temperature, stop=self._settings.stop
        )

    def _scorer(self, env: Environment | None, opened: ExitStack) -> Scorer | None:
        if env is None:
            return None
        settings = self._settings
        engine = None if settings.scorer is None else engine_of(settings.scorer)
        scorer = Scorer(env, workers=settings.workers, engine=engine, accept=settings.accept)
        self._scorers.append(opened.enter_context(scorer))
        return scorer

    def _say(self, line: str) -> None:
        self._console.print(Plainly(line), soft_wrap=True)

    def close(self) -> None:
        """End threads and workers, and free the run's folder; on several ranks also policy and
        learner."""
        self._open.close()

    def _free_shards(self) -> None:
        """What is sharded goes before its process group: if it outlives that, it can abort the
        process."""
        if self.ranks.world > 1:
            for name in ("learner", "policy", "sampler", "collector"):
                vars(self).pop(name, None)
            gc.collect()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _thin(batch: Batch) -> Batch:
    """The batch with what an update needs of its rows, for the other ranks."""
    rows: Any = [TokenRow(row.prompt_ids, row.completion_ids, row.truncated) for row in batch.rows]
    return replace(batch, rows=rows)


def _credit_fields(batch: Batch) -> dict[str, Any]:
    """What credit has changed in a batch."""
    names = "advantages", "returns", "completion_mask"
    return {name: getattr(batch, name) for name in names}


_STATE = ("step", "learner", "collector", "ahead", "validation", "rng")
"""What a checkpoint holds."""


def _entropy(batch: Batch) -> float:
    """Estimated entropy of the policy that sampled, in nats per token: the mean of -logprob of its
    own tokens."""
    return float(-batch.behaviour_logprobs[batch.completion_mask].mean())
