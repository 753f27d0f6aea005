"""The collector: groups from an environment, the same ones whatever the timing, with our failures masked."""

import random
import threading
import time

import pytest

import rlvr
from rlvr.collect import Collector, Sampling, ScriptedSampler
from rlvr.envs.arithmetic import Arithmetic
from tests.collect.collecting import (
    SAMPLING,
    Backwards,
    Dawdling,
    Inline,
    OneByOne,
    by_fours,
    collector,
    guesses,
    number,
    texts,
    untimed,
)
from tests.environments import Siblings, Trials, Words
from tests.processes import ROOT, run_python
from tests.rewards.parts import refusal


def test_a_collected_rollout_has_all_that_training_needs():
    """Ids, mask, logprobs and version from the sampler, the score from the environment."""
    sampler = ScriptedSampler(["0", "no"], logprobs=-0.5, version=3)
    with collector(script=sampler, group_size=2) as one:
        [group] = one.collect(1).groups
    right, wrong = group.rollouts
    assert group.task.id == "Trials/train/0"
    assert right.prompt_ids == [ord(char) for char in "Say 0."]
    assert (right.text, len(right.completion_ids), right.completion_mask) == ("0", 2, [True, True])
    assert (right.behaviour_logprobs, right.weights_version, right.truncated) == (
        [-0.5, -0.5],
        3,
        False,
    )
    assert (right.score.total, wrong.score.total) == (1.0, 0.0)


def test_arithmetic_is_collected_and_judged_by_its_verifier():
    """The environment of the first recipe, with worker processes: even rollouts know the answer."""
    env = Arithmetic(difficulty=1)
    answers = {env.task(i).prompt: env.task(i).reference for i in range(40)}

    def solve(prompt, rollout, seed):
        return f"So \\boxed{{{answers[prompt] + rollout % 2}}}."

    with Collector(
        env, ScriptedSampler(solve), group_size=4, sampling=SAMPLING, dynamic=True
    ) as one:
        collected = one.collect(6)
    assert [group.task.id for group in collected.groups] == [env.task(i).id for i in range(6)]
    assert [[r.score.verdict.correct for r in group.rollouts] for group in collected.groups] == [
        [True, False] * 2
    ] * 6
    assert collected.stats["accuracy"] == 0.5


# ----------------------------------------------------------------------- the same, whatever happens


def test_neither_the_order_of_samples_nor_the_speed_of_scoring_changes_anything():
    """Samples that come backwards, scores that take from 0 to 10 ms: the same groups, waste and numbers."""
    with collector(dynamic=True) as calm:
        expected = [calm.collect(3) for _ in range(2)]
    env = Dawdling()
    with (
        rlvr.Scorer(env, workers=2) as scorer,
        collector(env, Backwards(guesses), scorer=scorer, dynamic=True) as hasty,
    ):
        got = [hasty.collect(3) for _ in range(2)]
    assert [c.groups for c in got] == [c.groups for c in expected]
    assert [c.dropped for c in got] == [c.dropped for c in expected]
    assert [untimed(c.stats) for c in got] == [untimed(c.stats) for c in expected]


def test_a_rollout_does_not_depend_on_what_is_sampled_beside_it():
    """Six tasks at once, or two, three and one: the same completions."""
    with collector() as one, collector() as other:
        assert texts(one.collect(6).groups) == [
            t for n in (2, 3, 1) for t in texts(other.collect(n).groups)
        ]


def test_every_rollout_has_a_seed_of_its_own():
    """Of 40 tasks with 4 rollouts, and of the same 2 tasks in 20 epochs; another seed shares none of them."""
    seen = []

    def note(prompt, rollout, seed):
        seen.append(seed)
        return "no"

    for env, seed in ((Trials(), 0), (Trials(), 1), (Words(count=2), 0)):
        with collector(env, note, seed=seed) as one:
            one.collect(40)
    assert len(seen) == len(set(seen)) == 3 * 40 * 4


def test_an_epoch_gives_every_task_once_and_in_an_order_of_its_own():
    """Ten words, 30 groups: three permutations, not three times the same; without shuffling, by index."""
    ids = [f"words/train-{i}" for i in range(10)]
    with collector(Words(count=10)) as one:
        got = [[group.task.id for group in one.collect(10).groups] for _ in range(3)]
        assert (one.position, one.epoch) == (30, 3)
    assert [sorted(epoch) for epoch in got] == [ids] * 3
    assert len({tuple(epoch) for epoch in got} | {tuple(ids)}) == 4
    with collector(Words(count=10), shuffle=False) as one:
        assert [group.task.id for group in one.collect(12).groups] == [*ids, *ids[:2]]


def test_another_seed_is_another_order():
    """And the same seed the same one."""
    orders = []
    for seed in (0, 0, 1):
        with collector(Words(count=10), seed=seed) as one:
            orders.append([group.task.id for group in one.collect(10).groups])
    assert orders[0] == orders[1] != orders[2]


def test_generated_tasks_come_by_index_and_never_end():
    """There is nothing to shuffle, and no epoch."""
    with collector() as one:
        assert [group.task.id for group in one.collect(3).groups] == [
            f"Trials/train/{i}" for i in range(3)
        ]
        assert (one.position, one.epoch) == (3, 0)


# -------------------------------------------------------------------------------- scoring meanwhile


class Watched(Trials):
    """Tells the test when something is scored."""

    def verify(self, task, completion):
        Watched.scored.set()
        return super().verify(task, completion)


def test_scoring_begins_while_the_sampler_is_still_busy():
    """The sampler waits, with its second rollout, for the first one to be scored: otherwise it would wait for ever."""
    Watched.scored, polls = threading.Event(), []

    class Waiting(OneByOne):
        def poll(self):
            polls.append(1)
            assert len(polls) == 1 or Watched.scored.wait(30), "nothing was scored"
            return super().poll()

    with collector(Watched(), Waiting(["0"])) as one:
        stats = one.collect(1).stats
    assert stats["accuracy"] == 1.0


def test_the_time_spent_is_told_by_who_spent_it():
    """A score that takes 50 ms, and a sampler that waits for it: 50 ms on both accounts."""
    done = threading.Event()

    class Slow(Trials):
        def verify(self, task, completion):
            time.sleep(0.05)
            done.set()
            return super().verify(task, completion)

    polls = []

    class Patient(OneByOne):
        def poll(self):
            polls.append(1)
            assert len(polls) == 1 or done.wait(30)
            return super().poll()

    with collector(Slow(), Patient(["0"]), group_size=2) as one:
        stats = one.collect(1).stats
    assert stats["generation_s"] >= 0.04  # its clock may begin a little after the sleep
    assert stats["scoring_s"] >= 0.05
    assert stats["scoring_wait_s"] >= 0


def test_a_reward_that_compares_sees_the_whole_group():
    """RelativeLength: of right answers of 2 to 5 tokens the shortest gets 1.5, the longest 0.5, in their places."""
    script = ["0   ", "0", "0  ", "0 "]
    with collector(Siblings(), Backwards(script)) as one:
        [group] = one.collect(1).groups
    assert [len(r.completion_ids) for r in group.rollouts] == [5, 2, 4, 3]
    assert [r.score.total for r in group.rollouts] == pytest.approx(
        [0.5, 1.5, 0.5 + 1 / 3, 0.5 + 2 / 3]
    )


# ------------------------------------------------------------------------------------- our failures


def test_a_killed_worker_costs_its_rollout_alone():
    """UNSCORED: no total, nothing to train on, logprobs 0, counted; its siblings keep theirs."""
    env = Trials()
    with (
        rlvr.Scorer(env, workers=2) as scorer,
        collector(env, ["0", "0@kill", "no", "0"], scorer=scorer) as one,
    ):
        collected = one.collect(1)
    [group] = collected.groups
    assert [r.score.total for r in group.rollouts] == [1.0, None, 0.0, 1.0]
    lost = group.rollouts[1]
    assert lost.score.verdict.why.startswith("worker-died")
    assert (lost.completion_mask, lost.behaviour_logprobs) == ([False] * 7, [0.0] * 7)
    assert all(all(r.completion_mask) for r in group.rollouts if r is not lost)
    stats = collected.stats
    assert (stats["unscored"], stats["masked"], stats["rollouts"]) == (1, 1, 4)
    assert stats["accuracy"] == pytest.approx(2 / 3)
    assert stats["length_max"] == 7


def test_a_verifier_that_raises_costs_its_rollout_alone():
    """Also where nothing is contained, in this process."""
    with collector(script=["0", "0@raise", "no"], group_size=3) as one:
        [group] = one.collect(1).groups
    assert [r.score.total for r in group.rollouts] == [1.0, None, 0.0]


def test_a_group_with_fewer_than_two_scores_is_dropped():
    """Task 0 keeps one score of three, which can be compared with nothing; one round is all there is."""

    def lost(prompt, rollout, seed):
        return "0@raise" if number(prompt) == 0 and rollout else "1"

    with (
        collector(script=lost, group_size=3) as one,
        pytest.warns(RuntimeWarning, match="1 of 2 groups after 2 tasks"),
    ):
        collected = one.collect(2)
    assert [group.task.id for group in collected.groups] == ["Trials/train/1"]
    [dropped] = collected.dropped
    assert (dropped.task, dropped.why, dropped.rollouts, dropped.tokens) == (
        "Trials/train/0",
        "few-scored",
        3,
        18,
    )
    assert (collected.stats["dropped/few-scored"], collected.stats["unscored"]) == (1, 2)


def test_a_group_of_one_needs_one_score():
    """REINFORCE compares with a baseline, not with siblings."""
    with (
        collector(
            script=lambda prompt, rollout, seed: "0@raise" if number(prompt) == 0 else "1",
            group_size=1,
        ) as one,
        pytest.warns(RuntimeWarning, match="`rlvr doctor`"),
    ):
        collected = one.collect(2)
    assert [group.task.id for group in collected.groups] == ["Trials/train/1"]
    assert [d.why for d in collected.dropped] == ["few-scored"]


def test_a_scorer_that_is_dead_costs_one_round():
    """Dynamic sampling would draw nine more; the warning says whose failure it is, and what it was."""
    with (
        collector(script=["0@raise"], dynamic=True) as one,
        pytest.warns(
            RuntimeWarning,
            match=r"0 of 2 groups after 2 tasks; dropped: 2 few-scored.*8 rollouts.*doctor",
        ) as caught,
    ):
        found = one.collect(2)
    assert (len(found.dropped), found.stats["missing"]) == (2, 2)
    assert "nearer to what the policy can do" not in str(caught[0].message)


def test_an_interrupted_collect_has_not_happened():
    """The next one begins where it had begun: a signal that saves and resumes loses no task."""

    class Interrupted(OneByOne):
        broken = False

        def poll(self):
            if self.broken and len(self.finished) == 3:
                raise KeyboardInterrupt
            return super().poll()

    sampler = Interrupted(guesses)
    with collector() as whole, collector(script=sampler) as one:
        expected = [texts(whole.collect(2).groups) for _ in range(2)]
        first = texts(one.collect(2).groups)
        sampler.broken = True
        with pytest.raises(KeyboardInterrupt):
            one.collect(2)
        sampler.broken = False
        assert not sampler.finished, "what was asked for is asked for no more"
        assert [first, texts(one.collect(2).groups)] == expected


# ------------------------------------------------------------------------------------------ numbers


def test_the_numbers_of_a_collection_by_hand():
    """Of `by_fours`: nothing, all, and half of two rollouts are right; only the last group is kept."""
    with collector(script=by_fours, group_size=2, dynamic=True) as one:
        stats = one.collect(1).stats
    # Task 0 all wrong; task 1 all right; task 2 mixed.  "no" has 3 tokens, "1" has 2.
    assert untimed(stats) == {
        "rollouts": 6,
        "tokens": 3 + 3 + 2 + 2 + 2 + 3,
        "accuracy": 0.5,
        "reward": 0.5,
        "reward_std": 0.5,  # three of 0 and three of 1
        "reward/correct": 0.5,
        "length": 2.5,
        "length_max": 3,
        "truncated": 0,
        "unscored": 0,
        "outcome/correct": 0.5,
        "outcome/wrong": 0.5,
        "outcome/unparsed": 0,
        "outcome/unscored": 0,
        "groups": 1,
        "batch/accuracy": 0.5,
        "batch/reward": 0.5,
        "masked": 0,
        "dropped/all-correct": 1,
        "dropped/all-wrong": 1,
        "dropped/few-scored": 0,
        "dropped/too-long": 0,
        "waste_tokens": 10,
        "waste": 10 / 15,
        "missing": 0,
        "requeued": 0,
    }


def test_each_part_of_the_reward_has_its_mean():
    """Siblings: correct is 1 for both, relative_length 0.5 and -0.5; the total is their sum."""
    with collector(Siblings(), ["0", "0 "], group_size=2) as one:
        stats = one.collect(1).stats
    assert (stats["reward/correct"], stats["reward/relative_length"], stats["reward"]) == (
        1.0,
        0.0,
        1.0,
    )


def test_a_mean_over_nothing_is_left_out():
    """Where nothing could be scored there is no accuracy; 0 would be a lie and NaN no JSON."""
    with (
        collector(script=["0@raise"], max_tries=1) as one,
        pytest.warns(RuntimeWarning, match="1 few-scored"),
    ):
        stats = one.collect(1).stats
    assert not {"accuracy", "reward", "batch/accuracy"} & set(stats)
    assert (stats["unscored"], stats["groups"]) == (4, 0)


# ------------------------------------------------------------------------------------ at the border


def test_importing_it_loads_nothing_heavy():
    """A worker process and the command pay for what the import drags in; numpy comes with evaluation alone."""
    code = "import sys, rlvr.collect; print(*sys.modules)"
    loaded = set(run_python(code, cwd=ROOT).stdout.split())
    assert "rlvr.collect" in loaded
    assert loaded.isdisjoint({"torch", "transformers", "datasets", "sympy", "numpy"})


class Nothing(rlvr.Environment):
    """A split without a task."""

    def tasks(self):
        return []

    def verify(self, task, completion):
        return rlvr.Verdict("wrong")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"group_size": 0}, "group_size is 0; it must be a whole number of at least 1"),
        ({"seed": -1}, "seed is -1; it must be a whole number of at least 0"),
        ({"max_tries": 0}, "max_tries is 0; it must be a whole number of at least 1"),
        ({"overlong": True}, "overlong is True; it must be one of 'mask', 'keep'"),
        ({"max_turns": 0}, "max_turns is 0; it must be a whole number of at least 1"),
        ({"group_size": 1, "dynamic": True}, "dynamic sampling with group_size=1"),
        (
            {"sampling": Sampling(max_tokens=8, temperature=0)},
            "temperature is 0: all rollouts of a group",
        ),
        ({"env": Nothing()}, "Nothing has no tasks in split 'train'"),
        ({"scorer": Inline(Trials())}, "the scorer is one of "),
        ({"env": "gsm8k-v4", "scorer": None}, "'gsm8k-v4' is not an environment; rlvr.make"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(settings, said):
    """Before anything is sampled."""
    assert refusal(lambda: collector(**settings)).startswith(said)


def test_no_group_at_all_cannot_be_asked_for():
    """It would be an empty batch."""
    with collector() as one:
        assert (
            refusal(lambda: one.collect(0))
            == "prompts is 0; it must be a whole number of at least 1"
        )


def test_a_collector_closes_the_scorer_it_opened_and_no_other():
    """The other run may go on with its own."""
    env = Trials()
    scorer = Inline(env)
    with collector(env, scorer=scorer):
        pass
    assert scorer.score(env.task(3), "3").total == 1.0
    with Collector(env, ScriptedSampler(["0"]), group_size=2, sampling=SAMPLING) as own:
        own.collect(1)
    assert "closed" in refusal(lambda: own.groups.scorer.score(env.task(3), "3"))


def test_staleness_is_the_distance_to_the_oldest_rollout():
    """Rollouts of version 3 are two behind version 5."""
    with collector(script=ScriptedSampler(["0"], version=3)) as one:
        collected = one.collect(2)
    assert (collected.staleness(3), collected.staleness(5)) == (0, 2)


def test_random_groups_stay_the_same_for_ever():
    """The order of tasks and the seeds are a promise: a resumed run relies on them."""
    with collector(
        Words(count=7), lambda prompt, rollout, seed: str(random.Random(seed).randint(0, 99))
    ) as one:
        groups = one.collect(2).groups
    assert [group.task.id for group in groups] == ["words/train-1", "words/train-2"]
    assert texts(groups) == [["5", "16", "54", "38"], ["96", "94", "94", "62"]]
