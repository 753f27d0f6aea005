"""What the tests of the collector share: scripts whose outcome is known, and samplers and environments that dawdle."""

import random
import time

import rlvr
from rlvr.collect import Collector, Sampling, ScriptedSampler
from tests.environments import Trials

SAMPLING = Sampling(max_tokens=64)


def number(prompt) -> int:
    """Of the task, from its prompt."""
    return int("".join(filter(str.isdecimal, prompt)))


def by_fours(prompt, rollout: int, seed: int) -> str:
    """Tasks 0, 4, 8 …: all wrong; 1, 5, 9 …: all right; of the others, even rollouts are right."""
    kind = number(prompt) % 4
    return str(number(prompt)) if kind == 1 or (kind > 1 and rollout % 2 == 0) else "no"


def guesses(prompt, rollout: int, seed: int) -> str:
    """One of three numbers, drawn by the seed alone; the task's among them."""
    return str(number(prompt) + random.Random(seed).randint(-1, 1))


class Backwards(ScriptedSampler):
    """What was asked for last is finished first."""

    def poll(self):
        return super().poll()[::-1]


class Stepping(ScriptedSampler):
    """Counts its polls as decode steps, so that what is begun when is the same in every run."""

    steps = 0

    def poll(self):
        self.steps += 16
        return super().poll()


class OneByOne(ScriptedSampler):
    """Each poll finishes one request, the oldest."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.finished = []

    def poll(self):
        self.finished += super().poll()
        first, self.finished = self.finished[:1], self.finished[1:]
        return first

    def abort(self, ids):
        ids = set(ids)
        super().abort(ids)
        self.finished = [(name, sample) for name, sample in self.finished if name not in ids]


class Dawdling(Trials):
    """Scoring takes up to 10 ms: who is finished first has nothing to do with who was begun first."""

    id = "Trials"  # the same tasks

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        time.sleep(random.uniform(0, 0.01))
        return super().verify(task, completion)


class Count(rlvr.Environment):
    """Say the numbers from one up to a goal, 1 to 3 in turn.  Each right turn earns 0.25; a wrong one ends it."""

    chat: bool = False

    def task(self, index):
        goal = index % 3 + 1
        told = f"To {goal}."
        prompt = [{"role": "user", "content": told}] if self.chat else told
        return rlvr.Task(f"{self.id}/{self.split}/{index}", prompt, goal)

    def user(self, task, transcript):
        said = [one["content"] for one in transcript if one["role"] == "assistant"]
        return (
            "On!"
            if said == numbers(task.reference)[: len(said)] != numbers(task.reference)
            else None
        )

    def verify(self, task, episode):
        done = [turn.text for turn in episode.turns] == numbers(task.reference)
        return rlvr.Verdict("correct" if done else "wrong", why="counted" if done else "slip")

    def turn_rewards(self, task, episode):
        return [0.25 * (turn.text == str(n)) for n, turn in enumerate(episode.turns, start=1)]


def numbers(goal: int) -> list[str]:
    return [str(n + 1) for n in range(goal)]


def counts(prompt, rollout: int, seed: int) -> str:
    """Right at every turn: one more than it was told to go on."""
    return str((prompt if isinstance(prompt, str) else "").count("On!") + 1)


class Inline(rlvr.Scorer):
    """Scores in this process: what is tested needs no worker."""

    def __init__(self, env: rlvr.Environment) -> None:
        super().__init__(env, workers=0)


def collector(env: rlvr.Environment | None = None, script=guesses, **settings) -> Collector:
    """One over `Trials`, four rollouts a group, scored in this process."""
    env = Trials() if env is None else env
    settings = {"group_size": 4, "sampling": SAMPLING} | settings
    sampler = script if isinstance(script, ScriptedSampler) else ScriptedSampler(script)
    settings = {"scorer": Inline(env)} | settings
    return Collector(env, sampler, **settings)


def untimed(stats) -> dict[str, float]:
    """Without the seconds, and what was done beyond the batch, which are never the same."""
    beyond = ("_s", "discarded_tokens", "left", "in_flight")
    return {name: value for name, value in stats.items() if not name.endswith(beyond)}


def texts(groups) -> list[list[str]]:
    return [[rollout.text for rollout in group.rollouts] for group in groups]
