"""What the collector leaves out of a batch: uniform groups, overlong rollouts, old groups; each alone."""

import random

import pytest

import rlvr
from rlvr.collect import Sampling, ScriptedSampler
from tests.collect.collecting import (
    Dawdling,
    Inline,
    Stepping,
    by_fours,
    collector,
    guesses,
    texts,
)
from tests.environments import Siblings, Trials
from tests.processes import in_turn


def ids(groups) -> list[int]:
    """The tasks' indices."""
    return [int(group.task.id.rpartition("/")[2]) for group in groups]


# --------------------------------------------------------------------------------- dynamic sampling


def test_uniform_groups_are_dropped_and_others_sampled_in_their_place():
    """Of every four tasks two are mixed: 4 are found in 8, in their order."""
    with collector(script=by_fours, dynamic=True, group_size=2) as one:
        collected = one.collect(4)
        assert one.position == 8
    assert ids(collected.groups) == [2, 3, 6, 7]
    assert [(d.task.rpartition("/")[2], d.why) for d in collected.dropped] == [
        ("0", "all-wrong"),
        ("1", "all-correct"),
        ("4", "all-wrong"),
        ("5", "all-correct"),
    ]
    assert collected.stats["groups"] == 4


def test_without_it_uniform_groups_stay():
    """Plain GRPO trains on what comes."""
    with collector(script=by_fours, group_size=2) as one:
        collected = one.collect(4)
    assert ids(collected.groups) == [0, 1, 2, 3]
    assert not collected.dropped


def test_what_counts_is_the_verdict_and_not_the_shaped_total():
    """All right, with totals from 0.5 to 1.5 for their lengths: nothing to learn about the task."""
    one = collector(Siblings(), ["0", "0 ", "0  ", "0   "], dynamic=True, max_tries=1)
    with one, pytest.warns(RuntimeWarning, match="1 all-correct"):
        collected = one.collect(1)
    assert not collected.groups
    assert (collected.stats["accuracy"], collected.stats["reward"]) == (1.0, 1.0)


def test_partial_credit_is_not_correct():
    """0.9 for every rollout but one without any: all WRONG."""

    class Partial(Trials):
        def verify(self, task, completion):
            return rlvr.Verdict("wrong", 0.9 if completion == "near" else 0.0, why="partial")

    one = collector(Partial(), ["near", "far"], dynamic=True, max_tries=1)
    with one, pytest.warns(RuntimeWarning, match="1 all-wrong"):
        assert not one.collect(1).groups


def test_an_unscored_rollout_is_neither_right_nor_wrong():
    """Three right ones and one that we lost are a uniform group."""
    one = collector(script=["0", "0", "0@raise", "0"], dynamic=True, max_tries=1)
    with one, pytest.warns(RuntimeWarning, match="1 all-correct"):
        collected = one.collect(1)
    assert collected.stats["dropped/all-correct"] == 1


def test_after_so_many_rounds_it_goes_on_with_fewer_and_says_so():
    """Six tasks hold 2 of 3 groups: enough for a step, and the warning says what was in the way."""
    one = collector(script=by_fours, dynamic=True, group_size=2, max_tries=2)
    with one, pytest.warns(RuntimeWarning) as caught:
        collected, after = one.collect(3), one.collect(3)
    assert ids(collected.groups) == [2, 3]
    assert (collected.stats["missing"], after.stats["missing"]) == (1, 3 - len(after.groups))
    assert str(caught[0].message) == (
        "2 of 3 groups after 6 tasks; dropped: 2 all-correct, 2 all-wrong. Going on with fewer: choose tasks nearer "
        "to what the policy can do, or raise max_tries. This warning comes once; see `missing` in the log"
    )
    assert caught[0].filename == __file__  # the line that called collect
    assert len(caught) == 1  # a run of a thousand such steps says it once


def test_a_warning_made_an_error_leaves_the_collector_as_it_was():
    """As anything that is raised."""
    with collector(script=by_fours, dynamic=True, group_size=2, max_tries=1) as one:
        with pytest.raises(RuntimeWarning):
            one.collect(3)
        assert one.position == 0


# -------------------------------------------------------------------------------- overlong rollouts


LONG = Sampling(max_tokens=4)


def overlong(mode: str):
    """Task 0: a right answer of 2 tokens, a wrong one cut at 4, a wrong one of 3."""
    with collector(script=["0", "no way", "no"], group_size=3, sampling=LONG, overlong=mode) as one:
        return one.collect(1)


def test_overlong_filtering_masks_the_loss_and_nothing_else():
    """Nothing to train on in the truncated rollout; its score of 0 stays, and with it the group's mean of 1/3."""
    collected = overlong("mask")
    [group] = collected.groups
    assert [r.completion_mask for r in group.rollouts] == [[True] * 2, [False] * 4, [True] * 3]
    assert group.rollouts[1].behaviour_logprobs == [0.0] * 4
    assert [r.score.total for r in group.rollouts] == [1.0, 0.0, 0.0]
    assert [r.truncated for r in group.rollouts] == [False, True, False]
    stats = collected.stats
    assert (stats["truncated"], stats["masked"], stats["batch/reward"]) == (
        pytest.approx(1 / 3),
        1,
        pytest.approx(1 / 3),
    )
    assert stats["tokens"] == 9


def test_without_it_truncated_rollouts_are_trained_on():
    """They were the policy's choice too."""
    collected = overlong("keep")
    assert all(all(r.completion_mask) for r in collected.groups[0].rollouts)
    assert collected.stats["masked"] == 0


def test_soft_punishment_is_a_part_of_the_reward():
    """Overlong(max 4, cache 2): 2 tokens free, 3 cost a half, 4 cost 1; the mask leaves it its length."""
    env = Trials().with_reward(rlvr.Correct() + rlvr.Overlong(max_tokens=4, cache=2))
    with collector(env, ["0", "no way", "no"], group_size=3, sampling=LONG, overlong="mask") as one:
        collected = one.collect(1)
    assert [r.score.total for r in collected.groups[0].rollouts] == [1.0, -1.0, -0.5]
    assert collected.stats["reward/overlong"] == -0.5


# --------------------------------------------------------------------------------- groups left over


def test_groups_beyond_the_batch_wait_for_the_next_call():
    """After 0 and 1, 4 of 10 are expected to be kept, so 2, 3 and 4 are begun: two wait, and cost nothing then."""
    with collector(script=Stepping(by_fours), dynamic=True, group_size=2, max_staleness=9) as one:
        first = one.collect(1)
        assert (ids(first.groups), first.stats["left"], one.position) == ([2], 2, 3)
        assert first.stats["discarded_tokens"] == 0
        steps = one.sampler.steps
        assert ids(one.collect(1).groups) == [3]
        assert (one.sampler.steps, one.position) == (steps, 4)


def test_groups_beyond_the_batch_are_dropped_where_no_token_may_be_older():
    """Their tasks come again with the new weights, and their tokens are counted: 2 + 3 of task 3, 3 + 3 of task 4."""
    with collector(script=Stepping(by_fours), dynamic=True, group_size=2) as one:
        first = one.collect(1)
        assert (ids(first.groups), first.stats["left"], one.position) == ([2], 0, 3)
        assert first.stats["discarded_tokens"] == 11
        one.sampler.sync(None, 1)
        second = one.collect(1)
        assert (ids(second.groups), second.staleness(1), one.position) == ([3], 0, 4)


@pytest.mark.parametrize(("version", "again", "behind"), [(1, 0, 1), (5, 0, 5), (6, 2, 0)])
def test_a_group_that_waited_is_sampled_anew_when_it_is_too_old(version, again, behind):
    """At most five versions lie between its tokens, of version 0, and the weights that are trained."""
    with collector(script=Stepping(by_fours), dynamic=True, group_size=2, max_staleness=5) as one:
        one.collect(1)
        one.sampler.sync(None, version)
        found = one.collect(1)
    assert (ids(found.groups), found.stats["requeued"]) == ([3], again)
    assert found.staleness(version) == behind


@pytest.mark.parametrize("staleness", [0, 1, 3])
@pytest.mark.parametrize("seed", in_turn(range(4), 2))
def test_speed_rows_and_failures_change_nothing_in_a_batch(staleness, seed):
    """Samples in any order, a few at a time, scores that dawdle, some that fail: always the same batches."""
    settings = {"dynamic": True, "group_size": 4, "max_staleness": staleness}
    with (
        collector(script=failing, **settings) as calm,
        collector(Dawdling(), Shuffled(failing, draw=random.Random(seed)), **settings) as hasty,
    ):
        for count in (1, 3, 2, 5):
            wanted, found = calm.collect(count), hasty.collect(count)
            assert texts(found.groups) == texts(wanted.groups)
            assert [(d.task, d.why) for d in found.dropped] == [
                (d.task, d.why) for d in wanted.dropped
            ]
            assert hasty.position == calm.position


def failing(prompt, rollout: int, seed: int) -> str:
    """A guess; every fifth cannot be scored."""
    return guesses(prompt, rollout, seed) + "@raise" * (seed % 5 == 0)


class Shuffled(ScriptedSampler):
    """Each poll finishes some requests, no matter which were asked for first."""

    def __init__(self, script, *, draw):
        super().__init__(script)
        self.draw, self.done = draw, []

    def poll(self):
        self.done += super().poll()
        self.draw.shuffle(self.done)
        count = self.draw.randint(0, 6) or 1
        found, self.done = self.done[:count], self.done[count:]
        return found

    def abort(self, ids):
        ids = set(ids)
        super().abort(ids)
        self.done = [(name, sample) for name, sample in self.done if name not in ids]


def test_scorers_for_filters_are_all_the_same():
    """With worker processes as without."""
    env = Trials()
    with rlvr.Scorer(env, workers=1) as there, Inline(env) as here:
        got = []
        for scorer in (there, here):
            with collector(env, by_fours, scorer=scorer, dynamic=True, group_size=2) as one:
                got.append(one.collect(2).groups)
    assert got[0] == got[1]
