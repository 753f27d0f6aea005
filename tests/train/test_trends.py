"""Alarms on what only a row of steps shows."""

import json
import random

import pytest

import rlvr
from rlvr.data.strengths import digest_of_reference
from rlvr.errors import DataError, UsageError
from rlvr.train.alarm import AlarmRaised, Alarms
from rlvr.train.config import Config
from rlvr.train.trends import WeakTasks
from tests.json_lines import read_json_lines
from tests.train.bandit import AllRight, Bandit, run_to_end, trainer

STEPS = 400


def step(number: int, draw: random.Random, **changed: float) -> dict[str, float]:
    """A step of a healthy run, whose numbers scatter: it learns, and its completions become longer with it."""
    rise = number / STEPS
    numbers = {
        "updates": 2.0,
        "grad_norm": draw.lognormvariate(0, 0.5),
        "mismatch": draw.uniform(0.003, 0.006),
        "accuracy": 0.3 + 0.4 * rise + draw.uniform(-0.05, 0.05),
        "reward": 0.3 + 0.4 * rise + draw.uniform(-0.05, 0.05),
        "reward_std": 0.4,
        "length": 100 * (1 + 2 * rise) + draw.uniform(-20, 20),
        "held_mib": 900 + draw.uniform(0, 300),
    }
    if number % 25 == 0:
        score = 0.3 + 0.3 * rise + draw.uniform(-0.05, 0.05)
        numbers |= {"validation/avg@1": score, "validation/avg@1/high": score + 0.09}
    return numbers | changed


def healthy(number, draw):
    return step(number, draw)


def gradient(number, draw):
    return step(number, draw, **({"grad_norm": 40.0} if 200 <= number < 210 else {}))


def one_gradient(number, draw):
    """A spike is no alarm: clipping is there for these."""
    return step(number, draw, **({"grad_norm": 1e4} if number % 50 == 0 else {}))


def apart(number, draw):
    return step(number, draw, mismatch=0.004 * (1 + max(0, number - 200) / 10))


def runaway(number, draw):
    """From step 200 on completions grow, and accuracy stays."""
    over = max(0, number - 200)
    return step(
        number, draw, length=200 + 3 * over, accuracy=0.5 if over else 0.3 + 0.2 * number / 200
    )


def shorter(number, draw):
    return step(number, draw, length=400 - number / 2)


def hack(number, draw):
    """The reward goes on rising, and the tasks that are held out are solved ever less."""
    numbers = step(number, draw)
    if "validation/avg@1" in numbers and number > 200:
        score = 0.45 - 0.4 * (number - 200) / 200
        numbers |= {"validation/avg@1": score, "validation/avg@1/high": score + 0.09}
    return numbers


def collapse(number, draw):
    """Both fall: there are other alarms for that, and no hack."""
    fall = max(0, number - 200) / 400
    return hack(number, draw) | {"reward": 0.5 - fall}


def leak(number, draw):
    return step(number, draw, held_mib=900 + max(0, number - 100) + draw.uniform(0, 300))


def warm_up(number, draw):
    """Caches that fill, and then stay."""
    return step(number, draw, held_mib=900 + min(number, 100) * 3 + draw.uniform(0, 300))


def by_strength(number, draw, weak=0.0):
    """A quarter of 16 tasks a step are weak; rewards of groups scatter by 0.3, and rise alike."""
    rise = 0.4 * min(number, STEPS) / STEPS
    return {
        "reward_at/weak": 0.3 + rise + weak + draw.gauss(0, 0.3 / 4**0.5),
        "reward_at/strong": 0.3 + rise + draw.gauss(0, 0.3 / 12**0.5),
    }


def alike(number, draw):
    return step(number, draw, **by_strength(number, draw))


def weak_first(number, draw):
    """From step 200 on the policy learns what weak tasks pay, in 50 steps."""
    learned = 0.5 * min(max(0, number - 200), 50) / 50
    return step(number, draw, **by_strength(number, draw, learned))


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (healthy, ""),
        (gradient, "alarm: in 3 steps in a row the gradient's norm was more than 10 times"),
        (one_gradient, ""),
        (apart, "alarm: in 3 steps in a row sampler and trainer differed by"),
        (runaway, "they grow without getting better"),
        (shorter, ""),
        (hack, "the reward rose from"),
        (collapse, ""),
        (leak, "alarm: memory between steps grew by"),
        (warm_up, ""),
        (alike, ""),
        (weak_first, "the reward at weak tasks, compared with that at strong ones, rose by"),
    ],
)
def test_each_trend_is_said_once_and_healthy_runs_say_nothing(run, words):
    """In each of five draws of the scatter; each line has a remedy, and is one line."""
    for seed in range(5):
        draw, alarms = random.Random(seed), Alarms(3, clips=False)
        lines = [line for number in range(1, STEPS + 1) for line in alarms.check(run(number, draw))]
        if not words:
            assert lines == []
            continue
        assert len(lines) == 1, lines
        assert words in lines[0]
        assert "\n" not in lines[0]
        assert ". " in lines[0] or ": " in lines[0]


@pytest.mark.parametrize("run", [gradient, apart, runaway, hack, leak, weak_first])
def test_a_resumed_run_raises_the_alarms_of_one_that_was_not_stopped(run):
    """Wherever it was stopped, from its metrics alone, in which what is not finite is null."""
    draw = random.Random(1)
    rows = [{"step": n, "loss": None, **run(n, draw)} for n in range(1, STEPS + 1)]
    rows = json.loads(json.dumps(rows))

    def lines(alarms, rest):
        return [(row["step"], line) for row in rest for line in alarms.check(row)]

    every = lines(Alarms(3), rows)
    for stopped in random.Random(2).sample(range(STEPS), 12):
        again = Alarms(3)
        again.read_again([{"step": 0, "validation/avg@1": 0.0}, *rows], until=stopped)
        assert again.raised == ""
        assert lines(again, rows[stopped:]) == [one for one in every if one[0] > stopped]


def _first_alarm(run, seed, steps):
    """The step of the first line about weak tasks; None if there is none."""
    draw, trend = random.Random(seed), WeakTasks()
    said = (n for n in range(1, steps + 1) if trend.check(run(n, draw)) is not None)
    return next(said, None)


def test_a_hack_of_weak_tasks_is_seen_in_a_hundred_steps_and_scatter_is_none():
    """It begins at step 200.  In 200 runs of 1,000 steps alike, fewer than one in twenty says a line."""
    assert all(200 < (_first_alarm(weak_first, seed, 400) or 999) <= 300 for seed in range(20))
    false = [seed for seed in range(200) if _first_alarm(by_strength, seed, 1000) is not None]
    assert len(false) < 10


def test_rewards_are_logged_by_strength(tmp_path):
    """A report names the tasks; one of other data is refused before anything is sampled."""
    env = Bandit()
    tasks = [env.task(index) for index in range(64)]
    states = {task.id: ("weak", "strong")[index % 2] for index, task in enumerate(tasks)}

    def report(reference):
        path = tmp_path / "strength.json"
        records = [
            {"task": task.id, "state": states[task.id], "strength": 0.5, "interval": [0.2, 0.8],
             "reference_digest": digest_of_reference(reference(task))}
            for task in tasks
        ]  # fmt: skip
        path.write_text(json.dumps({"report": "strength", "tasks": records}))
        return path

    settings = {"env": env, "steps": 2, "algorithm": "dr_grpo"}
    path = report(lambda task: task.reference)
    run_to_end(tmp_path / "a", strength=path, **settings)
    rows = read_json_lines(tmp_path / "a/metrics.jsonl")
    assert any("reward_at/weak" in row or "reward_at/strong" in row for row in rows)
    hacked = {**settings, "env": AllRight(), "algorithm": "dapo", "steps": 1}
    with trainer(tmp_path / "c", strength=path, **hacked) as made, pytest.warns(RuntimeWarning):
        made.run()  # every group is dropped
    [row] = read_json_lines(tmp_path / "c/metrics.jsonl")
    assert row["groups"] == 0
    assert any(name.startswith("reward_at/") for name in row)
    path = report(lambda task: "another")
    with pytest.raises(DataError, match="has another reference"):
        trainer(tmp_path / "b", strength=path, **settings)
    few = rlvr.Environment.from_rows(
        [{"prompt": "1=", "reference": "1"}], verifier=lambda text, task: 1.0
    )
    with pytest.raises(DataError, match="none of the 1 training tasks"):
        trainer(tmp_path / "d", strength=path, **{**settings, "env": few})


class Hopeless(Bandit):
    def verify(self, task, completion):
        return super().verify(task, "x")


def test_an_alarm_ends_a_run_that_is_to_stop_and_the_step_is_saved(tmp_path):
    """After the second step without an update; with warn the same folder goes on to the end."""
    settings = {"env": Hopeless(), "bad_steps": 2, "steps": 5, "algorithm": "dr_grpo"}
    with (
        pytest.raises(AlarmRaised, match="step 2 raised an alarm: in 2 steps in a row no weight"),
        trainer(tmp_path / "run", on_alarm="stop", **settings) as made,
    ):
        made.run()
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("*.pt")] == [
        "step-00000002.pt"
    ]
    assert not (tmp_path / "run" / "model").exists()
    with trainer(tmp_path / "run", **settings) as made:
        assert made.steps_done == 2
        made.run()
    rows = read_json_lines(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert all(0 < row["held_mib"] <= row["memory_mib"] * 1.01 for row in rows)


def test_a_run_that_is_to_stop_does_not_begin_with_a_rate_that_wipes_out_the_weights(tmp_path):
    with pytest.raises(AlarmRaised, match="lr is"), trainer(tmp_path, on_alarm="stop", lr=1e6):
        pass
    with pytest.raises(UsageError, match="on_alarm is 'ring'"):
        Config(env="a", model="b", run=tmp_path, on_alarm="ring")
