"""avg@k, pass@k, maj@k and their intervals: by hand, against brute force, and on environments of ours."""

import itertools
import json
import math
import random
from collections import Counter
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlvr
from rlvr.collect import Sampling, ScriptedSampler
from rlvr.collect.evaluation import evaluate
from rlvr.statistics import bootstrap, majority_at_k, pass_at_k, wilson
from tests.collect.collecting import SAMPLING, Backwards, Count, Inline, counts, guesses, number
from tests.environments import Trials, Words
from tests.rewards.parts import refusal

COUNTS = st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))
VOTES = st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=8)

# ------------------------------------------------------------------------------------------ pass@k


def test_pass_at_k_by_hand():
    """Of 4 with 1 right, 2 hit it in 3 of 6 pairs; with 2 right all pairs but one hit; none or all right: 0 or 1."""
    assert pass_at_k([4, 4, 4, 4], [1, 2, 0, 4], 2).tolist() == pytest.approx([1 / 2, 5 / 6, 0, 1])


def test_pass_at_k_counts_subsets():
    """1 - C(n-c, k) / C(n, k), for every n up to 12, in whole numbers."""
    for n in range(1, 13):
        for k in range(1, n + 1):
            exact = [1 - math.comb(n - c, k) / math.comb(n, k) for c in range(n + 1)]
            assert pass_at_k(n, range(n + 1), k).tolist() == pytest.approx(exact, abs=1e-12)


def test_pass_at_k_of_many_completions_is_exact_too():
    """C(10000, 5000) is no float any more, the product is: 1 right of 10000 is in half of the subsets of 5000."""
    assert pass_at_k(10_000, 1, 5_000) == pytest.approx(0.5)
    assert pass_at_k(10_000, 10_000, 1) == 1.0


def test_tasks_may_differ_in_their_number_of_completions():
    """Where some could not be scored: 1 of 2 and 1 of 4, looking at 2."""
    assert pass_at_k([2, 4], [1, 1], 2).tolist() == [1.0, 0.5]


@given(COUNTS)
def test_pass_at_k_grows_with_k_and_begins_at_the_mean(counts):
    """One look finds the share c/n; more looks never find less; all looks find any."""
    n, c, k = counts
    assert pass_at_k(n, c, 1) == pytest.approx(c / n)
    assert pass_at_k(n, c, k) >= pass_at_k(n, c, max(1, k - 1)) - 1e-12
    assert pass_at_k(n, c, n) == (c > 0)


def test_pass_at_k_is_unbiased():
    """Its mean over the binomial of n = 7 and p = 0.3 is 1 - 0.7^3; that of the plug-in estimate is not."""
    n, p, k = 7, 0.3, 3
    weights = np.array([math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)])
    assert weights @ pass_at_k(n, range(n + 1), k) == pytest.approx(1 - (1 - p) ** k)
    plug_in = np.array([1 - (1 - c / n) ** k for c in range(n + 1)])
    assert abs(weights @ plug_in - (1 - (1 - p) ** k)) > 0.01


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1)])
def test_numbers_that_cannot_be_are_refused(n, c, k):
    """More looks than completions, more right ones than there are."""
    with pytest.raises(ValueError, match="completions"):
        pass_at_k(n, c, k)


# ------------------------------------------------------------------------------------------ maj@k


def brute_force(answers, correct, k: int) -> float:
    """Every subset, one by one."""
    share = {a: fmean(c for b, c in zip(answers, correct, strict=True) if b == a) for a in answers if a is not None}
    worth = []
    for subset in itertools.combinations(answers, k):
        votes = Counter(answer for answer in subset if answer is not None)
        first = [answer for answer in votes if votes[answer] == max(votes.values())]
        worth.append(fmean(share[answer] for answer in first) if first else 0.0)
    return fmean(worth)


def test_the_majority_of_all():
    """Two of three say 7; of a tie each has its chance; who says nothing has no vote."""
    assert majority_at_k(["7", "8", "7"], [True, False, True], 3) == 1.0
    assert majority_at_k(["7", "8", "8"], [True, False, False], 3) == 0.0
    assert majority_at_k(["7", "8", "8", "7"], [True, False, False, True], 4) == 0.5
    assert majority_at_k(["7", None, None], [True, False, False], 3) == 1.0
    assert majority_at_k([None, None], [False, False], 2) == 0.0


def test_the_majority_of_some_by_hand():
    """7 7 8 9, two of them: 77 is right, 78 and 79 (four pairs) half the time, 89 wrong: (1 + 4/2) / 6."""
    assert majority_at_k(["7", "7", "8", "9"], [True, True, False, False], 2) == pytest.approx(0.5)


@settings(deadline=None)
@given(VOTES, st.sets(st.sampled_from("abcd")), st.data())
def test_the_majority_of_some_is_the_mean_over_all_subsets(answers, right, data):
    """With ties, silence, several right answers, and any k."""
    k = data.draw(st.integers(1, len(answers)))
    correct = [answer in right for answer in answers]
    assert majority_at_k(answers, correct, k) == pytest.approx(brute_force(answers, correct, k), abs=1e-12)


def test_one_answer_that_is_judged_both_ways_is_worth_its_share():
    """A reward may look at more than the answer: 7 is right in two of three."""
    answers, correct = ["7", "7", "7", "8"], [True, True, False, False]
    assert majority_at_k(answers, correct, 4) == pytest.approx(2 / 3)
    assert majority_at_k(answers, correct, 2) == pytest.approx(brute_force(answers, correct, 2))


@given(VOTES, st.sets(st.sampled_from("abcd")))
def test_a_majority_of_one_is_the_mean(answers, right):
    """maj@1 is accuracy."""
    correct = [answer in right for answer in answers]
    assert majority_at_k(answers, correct, 1) == pytest.approx(fmean(correct))


def test_answers_are_the_same_but_for_spaces_and_case():
    """Or as the key says."""
    assert majority_at_k(["x = 1", "X=1", "2", "2 ", "1"], [True, True, False, False, False], 5) == 0.5
    assert majority_at_k(["1.0", "1", "2"], [True, True, False], 3, key=float) == 1.0


def test_many_completions_are_no_problem():
    """500 of 1000 make 3e299 subsets, which a float still holds; 10 b among 990 a never win."""
    answers = ["a"] * 990 + ["b"] * 10
    assert majority_at_k(answers, [a == "a" for a in answers], 500) == pytest.approx(1.0, abs=1e-9)
    assert majority_at_k(answers[::-1], [a == "b" for a in answers[::-1]], 500) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("n", "k"), [(3, 4), (3, 0), (1001, 5)])
def test_a_majority_that_cannot_be_is_refused(n, k):
    """Of more than there are, of none, of more than a float can count subsets of."""
    with pytest.raises(ValueError, match=f"maj@{k} of {n} completions"):
        majority_at_k(["a"] * n, [True] * n, k)


# ------------------------------------------------------------------------------------------ intervals


def test_wilson_by_hand():
    """5 of 10 with z = 1.96: 1/2 ± 1.96 √(0.025 + 0.0096) / 1.384 = 1/2 ± 0.2634."""
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_wilson_solves_its_equation():
    """Its ends are the shares that lie just z standard errors from what was seen: |p - q| = z √(q(1-q)/N)."""
    for successes, trials in ((1, 10), (7, 9), (250, 1319)):
        for q in wilson(successes, trials, level=0.9):
            assert abs(successes / trials - q) == pytest.approx(1.6448536 * math.sqrt(q * (1 - q) / trials))


def test_wilson_at_the_ends_has_a_width():
    """Ten of ten do not prove that all are right: z²/(N + z²) is left, and the end is exact."""
    assert wilson(0, 10) == (0.0, pytest.approx(0.2775, abs=1e-4))
    assert wilson(10, 10) == (pytest.approx(0.7225, abs=1e-4), 1.0)


def test_the_bootstrap_covers_like_the_normal_interval_of_a_large_sample():
    """Mean ± 1.96 s/√P of 2000 numbers, within a tenth of its width."""
    x = np.random.default_rng(7).normal(size=2000)
    low, high = bootstrap(x)
    half = 1.96 * x.std() / math.sqrt(2000)
    assert low == pytest.approx(x.mean() - half, abs=half / 10)
    assert high == pytest.approx(x.mean() + half, abs=half / 10)


def test_the_bootstrap_of_three_values_by_hand():
    """0, 0, 3: the mean of three draws is 0 with chance 8/27 and 3 with 1/27, both above a tail of 2.5 %."""
    assert bootstrap([0.0, 0.0, 3.0]) == (0.0, 3.0)
    assert bootstrap([0.5, 0.5]) == (0.5, 0.5)


def test_the_bootstrap_repeats():
    """The same seed gives the same interval, however many are drawn at once; another seed another one."""
    rng = random.Random(0)
    x = [rng.random() for _ in range(50)]
    assert bootstrap(x) == bootstrap(x)
    assert bootstrap(x) != bootstrap(x, seed=1)
    low, high = bootstrap(x, level=0.5)
    assert bootstrap(x)[0] < low < high < bootstrap(x)[1]


@pytest.mark.parametrize("values", [[], [float("nan")], [[1.0]]])
def test_a_bootstrap_of_nothing_is_refused(values):
    """There is no mean to resample."""
    with pytest.raises(ValueError, match="bootstrap of an array"):
        bootstrap(values)


def test_a_level_is_a_share():
    """95 instead of 0.95 is easily written."""
    with pytest.raises(ValueError, match="level is 95"):
        wilson(1, 2, level=95)
    with pytest.raises(ValueError, match="level is 95"):
        bootstrap([1.0], level=95)


# ------------------------------------------------------------------------------------------ on an environment


def run(env, script, **settings):
    """Evaluate a script, scoring in this process."""
    sampler = script if isinstance(script, ScriptedSampler) else ScriptedSampler(script)
    scorer = Inline(env) if isinstance(env, rlvr.SingleTurnEnv) else None
    return evaluate(env, sampler, **({"sampling": SAMPLING, "scorer": scorer} | settings))


def say(prompt, rollout, seed):
    """Of four rollouts: word 0 right in all; word 1 in two; word 2 in none, and two of them agree."""
    return [prompt[4:-1], [prompt[4:-1], "x"][rollout % 2], ["x", "y", "x", "z"][rollout]][number(prompt) % 3]


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
    assert [(task.index, task.task) for task in report.tasks] == [(i, f"words/train-{i}") for i in range(3)]
    assert report.tasks[2].answers == ("x", "y", "x", "z")
    assert (report.env, report.n, report.version, report.unscored, report.truncated) == ("Words", 4, 0, 0, 0.0)


def test_every_estimate_lies_in_its_interval():
    """Wilson's where all tasks are 0 or 1, the bootstrap's else; both over three tasks."""
    report = run(Words(), say, n=4)
    for estimate in report.metrics.values():
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
        assert estimate.tasks == 3
    assert (report.metrics["pass@4"].low, report.metrics["pass@4"].high) == wilson(2, 3)
    assert (report.metrics["avg@4"].low, report.metrics["avg@4"].high) == bootstrap([1.0, 0.5, 0.0])
    assert str(report.metrics["avg@4"]) == "0.500 [0.000, 1.000]"


def test_one_completion_each_is_accuracy():
    """avg@1, pass@1 and maj@1 are the same number with the same interval."""
    report = run(Trials(), guesses, n=1, limit=20)
    accuracy = fmean(task.correct[0] for task in report.tasks)
    assert {name: report.metrics[name].value for name in ("avg@1", "pass@1", "maj@1")} == dict.fromkeys(
        ("avg@1", "pass@1", "maj@1"), accuracy
    )
    assert report.metrics["avg@1"] == report.metrics["pass@1"]
    assert 0 < accuracy < 1


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_neither_batches_nor_order_change_a_report(at_once):
    """A completion depends on the seed, its task and its number alone."""
    expected = run(Trials(), guesses, n=3, limit=10)
    assert run(Trials(), Backwards(guesses), n=3, limit=10, prompts_at_once=at_once) == expected
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
    report = run(Words(count=2), lambda prompt, g, seed: [prompt[4:-1], "x"][g], n=2, sampling=Sampling(max_tokens=7))
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
    """For reading: each as soon as its batch is through, in order."""
    kept = []
    run(Words(), say, n=4, prompts_at_once=2, on_group=kept.append)
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


def test_the_greedy_completion_is_one():
    """Temperature 0 is for evaluation; but drawing it four times would only look like more evidence."""
    greedy = Sampling(max_tokens=64, temperature=0)
    assert run(Words(), say, n=1, sampling=greedy).metrics["avg@1"].tasks == 3
    assert refusal(lambda: run(Words(), say, n=4, sampling=greedy)).startswith("temperature is 0: all n=4")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n": 0}, "n is 0; it must be a whole number of at least 1"),
        ({"n": 2, "k": 3, "limit": 1}, "k is 3 and n is 2; sample at least k completions of each task"),
        ({"n": 2, "k": (1, 0), "limit": 1}, "k is 0; it must be a whole number of at least 1"),
        ({"limit": 0}, "limit is 0; it must be a whole number of at least 1"),
        ({}, "Trials generates tasks without end; say how many to evaluate on, such as limit=500"),
        ({"limit": 1, "prompts_at_once": 0}, "prompts_at_once is 0; it must be a whole number of at least 1"),
    ],
)
def test_an_evaluation_that_cannot_work_is_refused(settings, said):
    """Before anything is sampled."""
    assert refusal(lambda: run(Trials(), guesses, **settings)) == said


def test_a_limit_beyond_the_end_takes_all():
    """Words has three."""
    assert len(run(Words(), say, n=4, limit=99).tasks) == 3
