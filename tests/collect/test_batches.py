"""A batch is a function of tasks, seeds and weights: how fast anything is, and what breaks, changes nothing."""

import itertools
import json
import random
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import rlvr
from rlvr.collect import ScriptedSampler
from rlvr.errors import SamplingFailed
from tests.collect.collecting import Count, collector, counts, texts, untimed
from tests.environments import Trials
from tests.processes import in_turn


class Broken(Exception):
    """What ends a call of `collect`, or the process around it."""


class Erratic(ScriptedSampler):
    """Samples so many rows at a time, each as long as chance has it, and breaks down so many times at any poll.

    A twelfth of the requests, by their seeds, cannot be sampled.
    """

    def __init__(self, script, draw: random.Random, rows: int, breaks: int) -> None:
        super().__init__(script)
        self._draw, self._rows, self._breaks = draw, rows, breaks

    def poll(self):
        if self._breaks and self._draw.random() < 0.05:
            self._breaks -= 1
            raise Broken
        running = list(self._requests)[: self._rows]
        done = [name for name in running if self._draw.random() < 0.3]
        self._draw.shuffle(done)
        return [(name, self._finished(self._requests.pop(name))) for name in done]

    def _finished(self, request):
        failed = request.seed % 12 == 0
        return SamplingFailed("lost") if failed else self._sample(request)


class Resuming(Erratic):
    """Gives its requests back, with no tokens: they are submitted again."""

    def take_back(self, ids):
        self.abort(ids)
        return {}


class Unsteady(Trials):
    """Scoring takes its time; some completions make it fail, which is our fault, so that they are UNSCORED."""

    id = "Trials"

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        time.sleep(random.SystemRandom().uniform(0, 0.001))
        if zlib.crc32(f"{task.id} {completion}".encode()) % 7 == 0:
            raise RuntimeError("no verdict")
        return super().verify(task, completion)


def answers(prompt: str, rollout: int, seed: int) -> str:
    """A third of the tasks is hopeless, a third solved, the others half."""
    task = int("".join(filter(str.isdecimal, prompt)))
    right = (False, True, seed % 2 == 0)[task % 3]
    return f"{task}" if right else f"not {seed % 5}"


ENVS = {"single": (Unsteady, answers), "turns": (Count, counts)}


def batches(kind: str, sampler, staleness: int, *, killed: bool = False) -> list:
    """Four batches of three groups, as a trainer collects them; what breaks is begun again, or resumed from a file."""
    env = ENVS[kind][0]

    def made():
        return collector(
            env(), sampler, max_staleness=staleness, dynamic=kind == "single", schedule="ready"
        )

    one, batch_list = made(), []
    state = json.dumps(one.state_dict())
    for version in range(4):
        sampler.sync(None, version)
        while True:
            try:
                ahead = min(max(0, staleness - 1), 3 - version)
                batch = one.collect(3, ahead=ahead, trained_at=version + bool(staleness))
                break
            except Broken:
                if killed:
                    one.close()
                    one = made()
                    one.load_state_dict(json.loads(state))
        stats = {name: n for name, n in untimed(batch.stats).items() if name != "requeued"}
        dropped = [(group.task, group.why) for group in batch.dropped]
        totals = [[r.score.total for r in group.rollouts] for group in batch.groups]
        batch_list.append((texts(batch.groups), totals, dropped, stats))
        state = json.dumps(one.state_dict())
    one.close()
    return batch_list


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", in_turn(itertools.product(ENVS, [0, 1, 3]), 2))
@pytest.mark.parametrize(
    "killed",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["again", "resumed"],
)
def test_speeds_rows_and_failures_give_one_batch(case, killed):
    """Against a sampler that finishes all at once: texts, scores, dropped groups, and all numbers but the seconds."""
    kind, staleness = case
    script = ENVS[kind][1]

    class AtOnce(Erratic):
        def poll(self):
            names = list(self._requests)
            return [(name, self._finished(self._requests.pop(name))) for name in names]

    expected = batches(kind, AtOnce(script, random.Random(0), 1, 0), staleness)
    assert any(dropped for _, _, dropped, _ in expected) or kind == "turns"
    assert sum(stats["unscored"] for *_, stats in expected) > 0

    @settings(max_examples=3)
    @given(
        seed=some.integers(0, 2**32),
        rows=some.sampled_from([1, 3, 8, 64]),
        breaks=some.integers(0, 6),
        gives_back=some.booleans(),
    )
    def holds(seed, rows, breaks, gives_back):
        sampler = Resuming if gives_back else Erratic
        made = sampler(script, random.Random(seed), rows, breaks)
        assert batches(kind, made, staleness, killed=killed) == expected

    holds()
