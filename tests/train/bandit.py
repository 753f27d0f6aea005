"""What the tests of the trainer share: an environment that a tiny policy solves in a few steps, and a short run."""

import random
import time
from pathlib import Path

from rich.console import Console

import rlvr
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny
from tests.json_lines import read_json_lines

CHARSET = "0123456789ab= "


class Bandit(rlvr.Environment):
    """One character decides: a digit below 5 is right.  What stands behind it does not matter."""

    def task(self, index: int) -> rlvr.Task:
        return rlvr.Task(
            f"{self.id}/{self.split}/{index}", f"{index % 40}=", reference="a digit below 5"
        )

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        right = completion[:1] in tuple("01234")
        outcome = rlvr.Outcome.CORRECT if right else rlvr.Outcome.WRONG
        return rlvr.Verdict(outcome, why="by its first character", answer=completion[:1])


class AllRight(Bandit):
    """Whatever is said is right."""

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        return rlvr.Verdict(rlvr.Outcome.CORRECT, why="always")


class Turns(rlvr.Environment):
    """One to three turns, by the first character of each; the environment takes its time, never the same."""

    turns: int = 3

    def task(self, index):
        return rlvr.Task(f"{self.id}/{self.split}/{index}", f"{index % 40}=")

    def user(self, task, transcript):
        time.sleep(random.SystemRandom().uniform(0, 0.003))
        return None if self._right(transcript[-1]["content"]) else "b="

    def verify(self, task, episode):
        right = self._right(episode.answer)
        return rlvr.Verdict("correct" if right else "wrong", why="by its first character")

    @staticmethod
    def _right(said):
        return said[:1] in tuple("01234")


def policy(seed: int = 0, **options) -> Policy:
    return Policy(*tiny(CHARSET, hidden=16, heads=2, layers=1, seed=seed), **options)


def trainer(
    run: Path,
    *,
    env: rlvr.Environment | None = None,
    quietly: bool = True,
    made=None,
    sampler=None,
    second_opinion=None,
    **settings,
) -> Trainer:
    """A run on `Bandit` of a policy that is made anew, scored in this process."""
    env = env or Bandit()
    settings = {
        "env": "bandit", "model": "tiny", "algorithm": "grpo", "steps": 4, "prompts": 4, "group_size": 4,
        "max_tokens": 4, "lr": 1e-2, "workers": 0, "eval_every": None, "rollouts_every": 0, "checkpoint_every": 100,
    } | settings  # fmt: skip
    return Trainer(
        Config(run=run, **settings),
        policy=made or policy(),
        env=env,
        eval_env=type(env)(split="test"),
        sampler=sampler,
        second_opinion=second_opinion,
        console=Console(quiet=quietly, stderr=True),
    )


def run_to_end(run: Path, **settings) -> list[dict]:
    """Train; what the log says of each step."""
    with trainer(run, **settings) as made:
        made.run()
    return read_json_lines(run / "metrics.jsonl")
