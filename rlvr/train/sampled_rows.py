"""Rollouts that are sampled and scored for each step, and the sampler's weights.

collect_batch ─▶ parts see it, and add to it ─▶ (the next batch is collected ahead) ─▶ sync, canary
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from rlvr.collect import Collector, Sampler, Sampling
from rlvr.environment import Environment
from rlvr.train.canary import Canary
from rlvr.train.config import ResolvedConfig
from rlvr.train.memory import forecast, longest_prompt, require_room
from rlvr.train.rollout_batch import RolloutBatch, collect_batch
from rlvr.train.row_source import RowSource
from rlvr.train.sampling import open_sampler
from rlvr.train.setup import describe_run, environments, stage_env
from rlvr.train.stages import collects_otherwise
from rlvr.train.step_rewards import require_steps
from rlvr.train.validation import validation_split
from rlvr.types import JsonDict, StateDict
from rlvr.workers.threads import Threads

if TYPE_CHECKING:  # it has one
    from rlvr.train.loop import Trainer

__all__ = ["SampledRows"]


class SampledRows(RowSource):
    """Completions of a run's environment.

    Args:
        run: before its model is loaded.
        env, eval_env, sampler: see `Trainer`.

    Attributes:
        collector: samples and scores; on the first rank.
        forecast: the memory that the run will take; on the first rank.
    """

    def __init__(
        self,
        run: Trainer,
        env: Environment | None,
        eval_env: Environment | None,
        sampler: Sampler | None,
    ) -> None:
        super().__init__(run)
        # Kept as they were given: a stage makes its environment from the run's own.
        self._given_env, self._given_sampler = env, sampler
        self._ahead: RolloutBatch | None = None
        if run.ranks.first:
            self.env, self.eval_env = environments(run.settings, env, eval_env)
            require_steps(run.settings, self.env)
            self.env, self.validation_env = validation_split(run.settings, self.env)

    @property
    def description(self) -> JsonDict:
        return describe_run(self.run.settings, self.env, self.eval_env)

    def open(self, opened: ExitStack) -> None:
        run = self.run
        settings, world = run.settings, run.ranks.world
        self.sampler = self._given_sampler or opened.enter_context(
            open_sampler(run.policy, settings, world)
        )
        self._collecting = opened.enter_context(ExitStack())
        self._open_collector()
        if self.eval_env is not None:
            self.scorer("evaluation", opened)
        for stage in run.stages.beyond:
            run.say(f"the stage {stage.text} lies behind the last step, and does not begin")
        prompt_tokens = longest_prompt(self.collector.groups)
        self.forecast = forecast(
            run.policy, run.stages.longest, prompt_tokens=prompt_tokens, world=world
        )
        require_room(self.forecast, settings)
        if settings.algorithm.examples is None:
            run.say(settings.updates_line)
        run.say(str(self.forecast))
        self._thread = Threads(1, "trainer")
        opened.callback(self._thread.close)

    def _open_collector(self) -> None:
        """What is made anew where a stage changes how rollouts are collected."""
        settings, opened = self.run.settings, self._collecting
        assert self.env is not None
        self.collector = opened.enter_context(
            Collector(
                self.env,
                self.sampler,
                group_size=settings.group_size,
                sampling=self._sampling(settings),
                scorer=self.scorer("training", opened),
                seed=settings.seed,
                dynamic=settings.algorithm.dynamic_sampling,
                # The soft punishment is a part of the reward.
                overlong="mask" if "mask" in settings.overlong else "keep",
                max_tries=settings.max_tries if settings.algorithm.refill else 1,
                max_staleness=settings.max_staleness,
                max_turns=settings.max_turns,
                step_s=settings.step_s,
                schedule=settings.turn_schedule,
                activity=self.run.activity,
            )
        )
        if self.validation_env is not None:
            self.scorer("validation", opened)
        self._canary = Canary(self.collector.groups, settings.canary)

    @staticmethod
    def _sampling(settings: ResolvedConfig) -> Sampling:
        return Sampling(
            max_tokens=settings.max_tokens, temperature=settings.temperature, stop=settings.stop
        )

    @contextmanager
    def rows(self, step: int) -> Iterator[tuple[RolloutBatch | None, dict[str, float]]]:
        """The rollouts of a step; while it is trained on, the next batch may be collected.

        Args:
            step: steps done.
        """
        if not self.run.ranks.first:
            yield None, {}
            return
        settings = self.run.settings
        # What was collected during the last step's update, or what a checkpoint has kept.
        sampled, later = self._ahead or self._collect(step), None
        # Of the batch as it was sampled; parts of the learner add to it only after that.
        numbers = {
            name: value for part in self.run.parts for name, value in part.see(sampled).items()
        }
        trained = sampled
        for part in self.run.learner.parts:
            trained = part.extend(trained, step, self.collector.groups)
        # Not beyond a stage's beginning, whose settings are not these.
        if settings.max_staleness and step + 1 < self._last_of_stage(step):
            later = self._thread.submit(self._collect, step + 1)
        if settings.sampler_sleep:
            # Before the update, which needs the memory.
            sampler: Any = self.sampler  # of vLLM, which alone sleeps
            sampler.sleep()
        numbers |= {**trained.stats, **trained.staleness(step), "collect_s": sampled.wall_s}
        try:
            yield trained, numbers
        finally:  # sampling has to end before its weights change
            self._ahead = later.result() if later else None

    def _collect(self, step: int) -> RolloutBatch:
        """Collect the batch that a step trains on; `step` is also the version of the weights that
        it begins with."""
        settings = self.run.settings
        done = self.run.steps_done
        return collect_batch(
            self.collector,
            settings.prompts,
            parts=self.run.learner.parts,
            # Batches under way beyond this one, at most up to the stage's last step.
            ahead=min(max(0, settings.max_staleness - 1), self._last_of_stage(done) - 1 - step),
            trained_at=step,
        )

    def _last_of_stage(self, step: int) -> int:
        """The last step that is known to have the settings of this one: no batch is collected
        beyond it."""
        return self.run.stages.next_step(step) or self.run.settings.steps

    def sync(self, step: int) -> Mapping[str, float]:
        """Give the sampler the new weights, and check that it has them.

        Args:
            step: steps done.
        """
        started, ranks, policy = time.perf_counter(), self.run.ranks, self.run.policy
        # A generator: nothing is gathered before it is walked through.
        weights = policy.weights()
        if not ranks.first:
            deque(weights, maxlen=0)  # its share of what is gathered
            with torch.no_grad():
                policy.logprobs(ranks.from_first(None))  # its share of what the canary computes
            return {}
        # Before the weights go: the engine reads a long prompt,
        # whose keys and values must not survive the sync.
        self._canary.prepare(self.sampler)
        buckets_watched = self._canary.watch(weights, self.sampler)
        self.sampler.sync(buckets_watched, step)
        deque(buckets_watched, maxlen=0)  # what the sampler has left over: others gather it
        observed = self._canary.observe(self.sampler)
        ranks.from_first(observed.rows)
        difference = self._canary.check(policy, observed, step)
        return {"canary": difference, "sync_s": time.perf_counter() - started}

    def begin_at(self, step: int) -> None:
        ranks = self.run.ranks
        # After a resume the sampler has the model's first weights; an engine has none at all.
        if step or ranks.any(ranks.first and hasattr(self.sampler, "probe")):
            self.sync(step)

    def change(self, before: ResolvedConfig, now: ResolvedConfig) -> bool:
        has_other_tasks = (before.env, before.env_options) != (now.env, now.env_options)
        is_warmer = now.temperature != before.temperature
        if not self.run.ranks.first:
            return has_other_tasks
        if collects_otherwise(before, now) or (is_warmer and now.max_staleness):
            # Temperature alone needs no other collector,
            # unless rollouts are under way at the old one.
            self._collect_anew(now)
            if has_other_tasks or is_warmer:
                self._ahead = None
        elif is_warmer:
            self.collector.groups.sample_with(self._sampling(now))
        return has_other_tasks

    def _collect_anew(self, now: ResolvedConfig) -> None:
        """Make the collector of these settings; groups under way are dropped, and their tasks come
        again."""
        place = self.collector.place
        self.take_identities(("training", "validation"))
        # Workers of the old scorer end before those of the new one start.
        self._collecting.close()
        config = self.run.config
        env, _ = environments(now, stage_env(config, now, self._given_env), self.eval_env)
        self.env, self.validation_env = validation_split(now, env)
        self._open_collector()
        self.collector.go_on_from(place)

    def state(self) -> StateDict:
        ahead = self._ahead and self._ahead.state_dict()
        return {"collector": self.collector.state_dict(), "ahead": ahead}

    def load(self, state: StateDict) -> None:
        self.collector.load_state_dict(state["collector"])
        ahead = state["ahead"]
        # Tasks are made again from their indices by the collector, so it is loaded first.
        self._ahead = ahead and RolloutBatch.from_state(ahead, self.collector)
