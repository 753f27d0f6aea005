"""Evaluations on environments of ours: avg@k, pass@k, maj@k with their intervals, and what is in a report."""

import json
from dataclasses import replace
from statistics import fmean

import pytest

import rlvr
from rlvr.collect import Sampling, ScriptedSampler
from rlvr.collect.evaluation import evaluate
from rlvr.statistics import beta_interval
from tests.collect.collecting import SAMPLING, Backwards, Count, Inline, counts, guesses, number
from tests.environments import Trials, Words
from tests.rewards.parts import refusal


def run(env, script, **settings):
    """Evaluate a script, scoring in this process."""
    sampler = script if isinstance(script, ScriptedSampler) else ScriptedSampler(script)
    scorer = Inline(env)
    return evaluate(env, sampler, **({"sampling": SAMPLING, "scorer": scorer} | settings))


def say(prompt, rollout, seed):
    """Of four rollouts: word 0 right in all; word 1 in two; word 2 in none, and two of them agree."""
    return [prompt[4:-1], [prompt[4:-1], "x"][rollout % 2], ["x", "y", "x", "z"][rollout]][
        number(prompt) % 3
    ]


def test_an_evaluation_by_hand():
    """Three words: 4, 2, 0 of 4 right.  avg 1/2; pass@2 1, 5/6, 0; maj@2 1, (1 + 4/2)/6 = 1/2, 0; maj@4 1, 1/2, 0."""
    report = run(Words(), say, n=4, k=(1, 2, 4))
    values = {name: estimate.value for name, estimate in report.metrics.items()}
    assert values == pytest.approx(
        {
            "avg@4": 1 / 2,
            "reward": 1 / 2,
            "pass@1": 1 / 2,
            "maj@1": 1 / 2,
            "pass@2": 11 / 18,
            "maj@2": 1 / 2,
            "pass@4": 2 / 3,
            "maj@4": 1 / 2,
        }
    )
    assert [sum(task.correct) for task in report.tasks] == [4, 2, 0]
    assert [(task.index, task.task) for task in report.tasks] == [
        (i, f"words/train-{i}") for i in range(3)
    ]
    assert report.tasks[2].answers == ("x", "y", "x", "z")
    assert (report.env, report.n, report.version, report.unscored, report.truncated) == (
        "Words",
        4,
        0,
        0,
        0.0,
    )


def test_every_estimate_lies_in_its_interval():
    """Over three tasks: Clopper and Pearson's, for shares too."""
    report = run(Words(), say, n=4)
    for estimate in report.metrics.values():
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
        assert estimate.tasks == 3
    assert (report.metrics["pass@4"].low, report.metrics["pass@4"].high) == beta_interval([1, 1, 0])
    assert (report.metrics["avg@4"].low, report.metrics["avg@4"].high) == beta_interval(
        [1.0, 0.5, 0.0]
    )
    assert str(report.metrics["pass@4"]) == "0.667 [0.094, 0.992]"


def test_one_completion_each_is_accuracy():
    """avg@1, pass@1 and maj@1 are the same number with the same interval."""
    report = run(Trials(), guesses, n=1, limit=20)
    accuracy = fmean(task.correct[0] for task in report.tasks)
    assert {
        name: report.metrics[name].value for name in ("avg@1", "pass@1", "maj@1")
    } == dict.fromkeys(("avg@1", "pass@1", "maj@1"), accuracy)
    assert report.metrics["avg@1"] == report.metrics["pass@1"]
    assert 0 < accuracy < 1


def test_the_order_does_not_change_a_report():
    """A completion depends on the seed, its task and its number alone."""
    expected = run(Trials(), guesses, n=3, limit=10)
    assert run(Trials(), Backwards(guesses), n=3, limit=10) == expected
    assert run(Trials(), guesses, n=3, limit=10, seed=1).tasks != expected.tasks


def test_the_first_completions_do_not_depend_on_how_many_are_drawn():
    """Drawing more refines an evaluation instead of replacing it."""
    few, many = run(Trials(), guesses, n=2, limit=5), run(Trials(), guesses, n=4, limit=5)
    assert [task.correct for task in few.tasks] == [task.correct[:2] for task in many.tasks]


def test_what_we_could_not_score_is_in_no_metric():
    """Word 0 loses one of two: 1 of 1; word 1 loses both and is in none; pass@2 is left with word 2."""

    class Lossy(Words):
        def verify(self, task, completion):
            if completion == "lost":
                raise RuntimeError("as asked")
            return super().verify(task, completion)

    def script(prompt, rollout, seed):
        return [["lost", prompt[4:-1]], ["lost", "lost"], ["x", "x"]][number(prompt)][rollout]

    report = run(Lossy(), script, n=2)
    assert report.unscored == 3
    assert [task.unscored_whys for task in report.tasks] == [
        (why := report.tasks[0].unscored_whys[0],),
        (why, why),
        (),
    ]
    assert why.startswith("worker-error: RuntimeError: as asked")
    assert [(task.scored, task.unscored, task.reward) for task in report.tasks] == [
        (1, 1, 1.0),
        (0, 2, None),
        (2, 0, 0.0),
    ]
    avg, both = report.metrics["avg@2"], report.metrics["pass@2"]
    assert (avg.value, avg.tasks) == (0.5, 2)
    assert (both.value, both.tasks) == (0.0, 1)


def test_where_nothing_was_scored_there_is_no_metric():
    """Instead of a NaN."""
    report = run(Trials(), ["0@raise"], n=2, limit=2)
    assert (report.metrics, report.unscored) == ({}, 4)


def test_truncated_completions_are_counted_and_measured():
    """Two of the four words of 7 letters and their end, 8 tokens, do not fit into 7; "x" takes two."""
    report = run(
        Words(count=2),
        lambda prompt, g, seed: [prompt[4:-1], "x"][g],
        n=2,
        sampling=Sampling(max_tokens=7),
    )
    assert (report.truncated, report.length) == (0.5, 4.5)


def test_without_answers_there_is_no_majority():
    """An environment's verify need not say what it took for the answer."""

    class Silent(Words):
        def verify(self, task, completion):
            return rlvr.Verdict("correct")

    assert set(run(Silent(), ["x"], n=2).metrics) == {"avg@2", "reward", "pass@1", "pass@2"}


def test_episodes_are_evaluated_too():
    """Several turns, scored by the environment."""
    report = run(Count(), counts, n=2, limit=6)
    assert report.metrics["avg@2"].value == 1.0


def test_groups_can_be_kept():
    """For reading: each as soon as it is scored."""
    kept = []
    run(Words(), say, n=4, on_group=lambda index, group: kept.append((index, group)))
    assert sorted(index for index, _ in kept) == [0, 1, 2]
    kept = [group for _, group in sorted(kept, key=lambda one: one[0])]
    assert [group.task.id for group in kept] == [f"words/train-{i}" for i in range(3)]
    assert kept[2].rollouts[1].text == "y"


def test_a_report_goes_into_json():
    """With what it takes to repeat it."""
    data = json.loads(json.dumps(run(Words(loud=True), say, n=4, k=4, seed=5).as_dict()))
    assert (data["env"], data["config"], data["seed"], data["sampling"]["max_tokens"]) == (
        "Words",
        {"loud": True},
        5,
        64,
    )
    assert data["metrics"]["pass@4"]["tasks"] == len(data["tasks"]) == 3
    assert (data["unscored"], data["truncated"]) == (0, 0)
    assert data["length"] > 0


def test_the_greedy_completion_is_one():
    """Temperature 0 is for evaluation; but drawing it four times would only look like more evidence."""
    greedy = Sampling(max_tokens=64, temperature=0)
    assert run(Words(), say, n=1, sampling=greedy).metrics["avg@1"].tasks == 3
    assert refusal(lambda: run(Words(), say, n=4, sampling=greedy)).startswith(
        "temperature is 0: all n=4"
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n": 0}, "n is 0; it must be a whole number of at least 1"),
        (
            {"n": 2, "k": 3, "limit": 1},
            "k is 3 and n is 2; sample at least k completions of each task",
        ),
        ({"n": 2, "k": (1, 0), "limit": 1}, "k is 0; it must be a whole number of at least 1"),
        ({"limit": 0}, "limit is 0; it must be a whole number of at least 1"),
        ({}, "Trials generates tasks without end; say how many to evaluate on, such as limit=500"),
    ],
)
def test_an_evaluation_that_cannot_work_is_refused(settings, said):
    """Before anything is sampled."""
    assert refusal(lambda: run(Trials(), guesses, **settings)) == said


def test_a_limit_beyond_the_end_takes_all():
    """Words has three."""
    assert len(run(Words(), say, n=4, limit=99).tasks) == 3


class Short(ScriptedSampler):
    """A model with few positions."""

    positions = 80


def test_a_prompt_that_is_too_long_is_left_out_and_counted():
    """One of a thousand must not end a run at its evaluation; it is in no metric."""

    class Mixed(Words):
        def task(self, index):
            made = super().task(index)
            return made if index else replace(made, prompt=made.prompt * 9)

    with pytest.warns(
        RuntimeWarning,
        match=r"words/train-0' with max_tokens=64 .* longer than the model's positions",
    ):
        report = run(Mixed(), Short(say), n=4, limit=3)
    assert report.too_long == ("words/train-0",)
    assert str(report).endswith(", left out as too long: 1")
    assert str(replace(report, metrics={}, too_long=())) == "no task could be evaluated"
    assert [task.index for task in report.tasks] == [1, 2]
    assert report.metrics["avg@4"].tasks == 2


def test_a_task_that_cannot_be_made_is_named_by_its_index():
    """Of a hundred thousand rows one is damaged: which one?"""

    class Damaged(Words):
        def task(self, index):
            return super().task(index) if index < 2 else {}["question"]

    with pytest.raises(
        rlvr.RlvrError, match=r"Damaged cannot make task 2 of split 'train': KeyError: 'question'"
    ):
        run(Damaged(), say, limit=3)
