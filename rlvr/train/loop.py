"""The training loop: a step collects rows, gives credit, updates the policy, syncs the
sampler, evaluates, saves.

rows ─▶ credit and update (`Learner.learn`) ─▶ sync ─▶ evaluate ─▶ log ─▶ save
  ▲                                                                        │
  └────────────────────────────── next step ───────────────────────────────┘

Where rows come from is a `RowSource`; what a run does besides is a `RunPart`, such as evaluations,
resets, stages and alarms.  What an algorithm needs is a `LearnerPart`.
"""

from __future__ import annotations

import gc
import json
import random
import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TypeVar

import torch
from rich.console import Console, RenderableType

from rlvr.collect import Sampler
from rlvr.collect.evaluation import EvaluationReport
from rlvr.console import PlainConsole, Plainly
from rlvr.data.files import whole_folder
from rlvr.display import Activity
from rlvr.environment import Environment
from rlvr.errors import UsageError
from rlvr.scoring import Scorer
from rlvr.train import checkpoint
from rlvr.train.alarm import SecondOpinion
from rlvr.train.config import Config
from rlvr.train.learner import Learner
from rlvr.train.memory import require_offload
from rlvr.train.metrics import Log, open_loggers
from rlvr.train.policy import Policy
from rlvr.train.ranks import Ranks
from rlvr.train.run_dir import claim_run_dir, identity_of_run, keep_chat
from rlvr.train.run_part import RunPart
from rlvr.train.run_parts import run_parts_of
from rlvr.train.setup import device_of, policy_from_config, prepare_policy, say_prompts
from rlvr.train.sources import source_of
from rlvr.train.stages import Stages
from rlvr.workers.closing import Closing

__all__ = ["Trainer"]

_P = TypeVar("_P", bound=RunPart)


class Trainer(Closing):
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
        settings: those of the next step.
        steps_done: training steps done so far.
        stages: which have begun, and the settings that follow.
        source: where rows come from, with environments and sampler.
        policy, learner, ranks, activity: see their classes.
        parts: what the run does beside learning.
        reports: evaluations made by this object, by step.
        step_began: when the step that is made began, in seconds of `time.perf_counter`.

    Raises:
        UsageError: a setting cannot work, or the folder holds another run.
        DataError: the file that is trained on has nothing to train on.
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
        self.config, self.settings = config, config.resolve()
        self.stages, self.second_opinion = Stages(config), second_opinion
        self.steps_done, self.step_began = 0, 0.0
        self.reports: dict[int, EvaluationReport] = {}
        self._console = console or PlainConsole(stderr=True)
        self._rng: dict[str, object] | None = None
        self._log: Log | None = None
        # Fails now, and not after the data.
        device = policy.device if policy is not None else device_of(config.device)
        with ExitStack() as self._open:
            ranks = Ranks.of_environment(
                device,
                offload=config.offload is not None,
                tensor=config.tensor_parallel,
                context=config.context_parallel,
            )
            # What has to know the ranks comes after them, and is closed before them.
            self.ranks = self._open.enter_context(ranks)
            require_offload(config, device.type, self.ranks.world)
            self._open.callback(self._free_shards)
            if not self.ranks.first:
                self._console = PlainConsole(quiet=True)
            self.activity = Activity(self._console)
            # A stack of its own: loggers close at the end of `run`, the rest at `close`.
            self._logging = self._open.enter_context(ExitStack())
            recorded = json.dumps(self.settings.recorded, sort_keys=True)
            # Before any data is read: ranks with other
            # settings would train shards of different models.
            self.ranks.require_same("settings", recorded)
            self.source = source_of(self, env, eval_env, sampler)
            # Before loading the model: a folder that another run holds is refused at once.
            self._claim()
            self.parts = run_parts_of(self)
            if policy is None:
                with self.activity.working(f"loading {config.model}"):
                    policy = policy_from_config(self.settings, self.ranks.world)
            self.policy = prepare_policy(policy, self.settings)
            # Only ranks compare it, and a checksum of all weights takes time.
            summary = self.policy.summary() if self.ranks.world > 1 else ""
            self.ranks.require_same("weights", summary)
            if self.ranks.first:
                keep_chat(self.settings.run, self.policy.tokenization.format)
                say_prompts(self.policy, self.source.env, self.say)
                for line in self.stages.lines():
                    self.say(line)
                self.source.open(self._open)
            self.learner = Learner(
                self.policy, self.settings, self.ranks, self.activity, say=self.say
            )
            self._load_checkpoint()
            self._open = self._open.pop_all()  # nothing failed: it stays open until `close`

    def _claim(self) -> None:
        """Claim the folder of the run for what it trains on."""
        if not self.ranks.first:
            return
        envs = self.source.env, self.source.eval_env
        claim = claim_run_dir(self.settings.run, self.source.description, self.say, envs)
        self._open.enter_context(claim)
        if any(env is not None for env in envs):
            self._identity = identity_of_run(self.settings.run, envs, self.settings.accept)

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
        # From here on: the first signal ends the loop after its step instead of the process.
        with checkpoint.stop_requested(self.say) as stopped, self._logging:
            self._first_evaluation()
            # `any` over ranks: a signal may reach one process of
            # torchrun alone, and all have to stop after the same step.
            stop = self.ranks.any(stopped())
            # Asked once a step: what a second question finds after the save would end the run
            # without one.
            while self.steps_done < config.steps and not stop:
                self.step()
                stop = self.ranks.any(stopped() or any(part.ends_run for part in self.parts))
                if stop or self.is_due(config.checkpoint_every):
                    self.save()
        if self.steps_done == config.steps:
            with self.folder("model") as folder:
                self.learner.save(folder)
        for part in self.parts:
            part.finish()
        if self.steps_done < config.steps:
            self.say(f"stopped after step {self.steps_done}; the same command continues from there")

    def step(self) -> dict[str, float]:
        """Make one training step, as `run` does; returns what is logged.
        All ranks make this call."""
        log = self._first_evaluation()
        self.step_began = time.perf_counter()
        # Rows of the next batch may be sampled while this
        # one is trained on; the context ends with the step.
        with self.source.rows(self.steps_done) as (rows, numbers):
            numbers |= self.learner.learn(rows, self.steps_done)
        self.steps_done += 1
        # Before the evaluation, which is of the new weights.
        numbers |= self.source.sync(self.steps_done)
        numbers |= self._evaluate(first=False)
        self.learner.end_step(self.steps_done)
        for part in self.parts:
            numbers |= part.end_step(numbers)
        log(self.steps_done, numbers)
        return numbers

    def _first_evaluation(self) -> Log:
        """The function that logs; when it is opened, the policy is evaluated as it is given."""
        if self._log is None:
            log = self._log = self._logging.enter_context(self._loggers())
            self._logging.callback(setattr, self, "_log", None)
            self._set_generators()  # last, so that numbers drawn before do not change the run
            # Not after a resume: it was made and logged before step 1.
            if self.steps_done == 0 and (numbers := self._evaluate(first=True)):
                log(0, numbers)
        return self._log

    def _evaluate(self, *, first: bool) -> dict[str, float]:
        started, numbers = time.perf_counter(), dict[str, float]()
        for part in self.parts:
            numbers |= part.evaluate(first)
        return {**numbers, "eval_s": time.perf_counter() - started} if numbers else {}

    def is_due(self, every: int | None) -> bool:
        """Whether something is due after this step.

        Args:
            every: in steps; 0 for after the last one alone, None for never.
        """
        is_last = self.steps_done == self.settings.steps
        return every is not None and (is_last or bool(every and self.steps_done % every == 0))

    def part(self, kind: type[_P]) -> _P:
        """The part of a kind that every run has.

        Args:
            kind: its class.
        """
        return next(part for part in self.parts if isinstance(part, kind))

    def folder(self, name: str) -> AbstractContextManager[Path]:
        """A folder of the run that the first rank writes: a run that is killed meanwhile leaves no
        half of it.

        Args:
            name: of the folder.
        """
        path = self.settings.run / name
        return whole_folder(path) if self.ranks.first else nullcontext(path)

    def note_scorer(self, scorer: Scorer) -> None:
        """Note by what completions are scored.

        Args:
            scorer: of an environment of this run.
        """
        # Without settings, which are compared with those in the run's folder.
        self._identity.add(scorer.identity().without("settings"))

    def say(self, line: RenderableType) -> None:
        """Print a line, or a table.

        Args:
            line: what is printed.
        """
        is_text = isinstance(line, str)
        self._console.print(Plainly(line) if is_text else line, soft_wrap=is_text)

    def save(self) -> Path:
        """Write a checkpoint with everything that the next step depends on, and return its path.

        It opens on any number of ranks.  All ranks make this call.
        """
        # Outside of the branch: shards are gathered from all ranks.
        state: dict[str, object] = {"learner": self.learner.state_dict()}
        if self.ranks.first:
            # Sources and parts live on the first rank; what they hold is in its file.
            self.source.take_identities()
            parts = {part.name: part.state() for part in self.parts if part.name}
            rng = checkpoint.rng_state(self.policy.device)
            state |= {"step": self.steps_done, "rng": rng}
            state |= {"rows": self.source.state(), "parts": parts}
        folder = self.settings.run / "checkpoints"
        keep, ranks = self.settings.keep, self.ranks
        return checkpoint.save(folder, self.steps_done, state, keep=keep, ranks=ranks)

    def _load_checkpoint(self) -> None:
        """Continue from the newest checkpoint, if the folder has one."""
        folder, steps = self.settings.run / "checkpoints", self.settings.steps
        saved = checkpoint.newest(folder, ("step", "learner", "rng", "parts", "rows"), self.ranks)
        if saved is None:
            self._begin()
            return
        path, state = saved
        self.steps_done = state["step"]
        if self.steps_done > steps:
            raise UsageError(
                f"steps is {steps}, and the run in {self.settings.run} has done "
                f"{self.steps_done}; give more steps"
            )
        # Parts before the learner: a part may change settings,
        # such as a stage's, from which the learner is laid out.
        for part in self.parts:
            part.load(state["parts"].get(part.name))
        self.learner.load_state_dict(state["learner"])
        if self.ranks.first:
            self.source.load(state["rows"])
        # Set later, see `_first_evaluation`: loading data and opening samplers may draw numbers.
        self._rng = state["rng"]
        self._begin()
        self.say(f"continuing after step {self.steps_done}, from {path}")

    def _begin(self) -> None:
        """Let everything know where the run begins, or continues."""
        self.learner.begin_at(self.steps_done)
        for part in self.parts:
            part.begin_at(self.steps_done)
        self.source.begin_at(self.steps_done)

    def _loggers(self) -> AbstractContextManager[Log]:
        settings = self.config.resolve()
        if not self.ranks.first:
            return nullcontext(lambda step, numbers: None)
        return open_loggers(
            settings.run,
            settings.steps,
            self._console,
            done=self.steps_done,
            track=settings.track,
            config=settings.recorded,
        )

    def _set_generators(self) -> None:
        """Set the global random generators: rlvr does not use them, but an environment may."""
        if self._rng is not None:
            checkpoint.restore_rng(self._rng, self.policy.device)
        elif self.steps_done == 0:
            torch.manual_seed(self.settings.seed)
            random.seed(self.settings.seed)

    def close(self) -> None:
        """End threads and workers, and free the run's folder; on several ranks also policy and
        learner."""
        # In reverse order of opening: ranks last.
        self._open.close()

    def _free_shards(self) -> None:
        """What is sharded goes before its process group: if it outlives that, it can abort the
        process."""
        if self.ranks.world > 1:
            for name in ("learner", "policy", "source", "parts"):
                vars(self).pop(name, None)
            gc.collect()
