"""Groups that are under way while the weights change: none is lost, repeated or too old, and a file can hold them."""

import json
import random
import time
from dataclasses import replace

import pytest
import torch

from rlvr.collect import Collector, Sampling
from rlvr.collect.background import BackgroundCalls
from rlvr.collect.scheduler import Scheduler
from rlvr.samplers.protocol import Request
from tests.collect.collecting import Count, OneByOne, collector, counts, guesses, texts


class Slow(OneByOne):
    """Finishes the oldest request, one a poll of a few steps; it is sampled with the weights of that moment."""

    steps = 0

    def poll(self):
        self.steps += 8
        if not self._requests:
            return []
        name, request = next(iter(self._requests.items()))
        del self._requests[name]
        return [(name, self._sample(request))]


def steps(one, versions, ahead: int = 2):
    """Collect as a trainer does whose sampling runs beside its training."""
    for version in versions:
        one.sampler.sync(None, version)
        yield one.collect(2, ahead=ahead, trained_at=version + 1)


def test_groups_under_way_come_in_order_and_none_is_too_old():
    """Eight steps with three batches under way: tasks 0 to 15, at most three versions old, as without any of it."""
    with collector(script=Slow(guesses), max_staleness=3) as one, collector() as plain:
        found = list(steps(one, range(8)))
        expected = texts(plain.collect(16).groups)
    groups = [group for each in found for group in each.groups]
    assert [group.task.id for group in groups] == [f"Trials/train/{i}" for i in range(16)]
    assert texts(groups) == expected
    assert [each.stats["in_flight"] for each in found] == [4.0] * 8
    behind = [each.staleness(version + 1) for version, each in enumerate(found)]
    assert max(behind) <= 3
    assert {each.stats["requeued"] for each in found} == {0.0}


def test_a_group_that_has_become_too_old_is_sampled_anew():
    """New weights jump by five versions: what was begun before is dropped and counted, and its tasks are not lost."""
    with collector(script=guesses, max_staleness=1) as one:
        one.collect(2, ahead=1, trained_at=1)  # all four groups are sampled, and two of them wait
        assert one.collect(2, trained_at=1).stats["requeued"] == 0
        one.collect(2, ahead=1, trained_at=1)
        one.sampler.sync(None, 5)
        found = one.collect(2, trained_at=6)
    assert found.stats["requeued"] == 2
    assert [
        (group.task.id, {r.weights_version for r in group.rollouts}) for group in found.groups
    ] == [
        ("Trials/train/6", {5}),
        ("Trials/train/7", {5}),
    ]


@pytest.mark.parametrize("env", ["single", "turns"])
def test_a_collector_with_groups_under_way_goes_on_from_a_file(env):
    """Stopped after any step, it collects what it would have collected; an episode is played again up to its turn."""

    def made():
        if env == "single":
            return collector(script=Slow(guesses), max_staleness=3)
        return collector(Count(), Slow(counts), max_staleness=3)

    with made() as whole:
        expected, states = [], []
        for found in steps(whole, range(5)):
            expected.append(texts(found.groups))
            states.append(json.loads(json.dumps(whole.state_dict(), allow_nan=False)))
    assert all(state["flight"]["groups"] for state in states)
    if env == "turns":
        plays = [state["flight"]["plays"] for state in states]
        assert any(one["heard"] for kinds in plays for one in kinds["asked"] + kinds["waiting"])
    for done, state in enumerate(states, start=1):
        with made() as again:
            again.load_state_dict(state)
            assert [texts(found.groups) for found in steps(again, range(done, 5))] == expected[
                done:
            ]


def test_an_episode_that_does_not_repeat_itself_begins_anew():
    """Its tokens would be answers to other replies.  No task is lost, and the run can go on."""

    class Fickle(Count):
        ends = False

        turns: int = 5

        def user(self, task, transcript):
            return None if Fickle.ends else "On!"

    with collector(Fickle(), Slow(counts), max_staleness=3) as one:
        list(steps(one, range(3)))
        state = one.state_dict()
    assert any(play["heard"] for play in state["flight"]["plays"]["asked"])
    Fickle.ends = True
    under_way = [one["index"] for one in state["flight"]["groups"]]
    with collector(Fickle(), Slow(counts), max_staleness=3) as again:
        with pytest.warns(
            RuntimeWarning, match="do not repeat themselves, and their groups begin anew"
        ):
            again.load_state_dict(state)
        groups = [group for found in steps(again, range(3, 6)) for group in found.groups]
    assert [group.task.id for group in groups[: len(under_way)]] == [
        f"Fickle/train/{index}" for index in under_way
    ]
    assert all(
        len(rollout.turns) == 1 for group in groups for rollout in group.rollouts
    )  # as it is now


def test_a_call_that_fails_begins_again_with_the_same_tasks():
    """What was under way is sampled anew; no task is lost."""
    broken = []

    class Breaks(Slow):
        def poll(self):
            if broken:
                raise broken.pop()
            return super().poll()

    with collector(script=Breaks(guesses), max_staleness=9) as one, collector() as plain:
        found = one.collect(2, ahead=2).groups
        broken.append(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            one.collect(2, ahead=2)
        found = [*found, *one.collect(2, ahead=2).groups, *one.collect(2).groups]
        assert texts(found) == texts(plain.collect(6).groups)


def test_tokens_of_several_versions_say_so(policy):
    """Taken back after some steps, a completion goes on with the next weights, and keeps what it has."""
    sampler = policy.sampler()
    request = Request("a", (1, 5, 6), Sampling(max_tokens=60), seed=48, limit=60)  # 55 tokens
    sampler.submit(request)
    assert sampler.poll() == []
    begun = sampler.take_back(["a"])["a"]
    assert (len(begun.completion_ids), set(begun.versions)) == (16, {0})
    assert sampler.poll() == []
    for synced_while_running in (False, True):
        sampler.sync(policy.weights(), 0)
        if synced_while_running:
            sampler.submit(request)
            sampler.poll()
            sampler.sync(policy.weights(), 1)
        else:
            sampler.sync(policy.weights(), 1)
            sampler.submit(replace(request, begun=begun))
        done = []
        while not done:
            done = sampler.poll()
        [(_, sample)] = done
        T = len(sample.completion_ids)
        assert list(sample.completion_ids[:16]) == list(begun.completion_ids)
        assert (sample.weights_version, list(sample.token_versions)) == (
            0,
            [0] * 16 + [1] * (T - 16),
        )
        found = sampler.logprobs([sample])[0]
        torch.testing.assert_close(
            torch.tensor(found), torch.tensor(sample.model_logprobs), rtol=1e-4, atol=1e-5
        )


def test_parked_plays_do_not_count_the_steps_of_others(policy):
    """An evaluation between two steps does not move what was due when."""
    sampler = policy.sampler()
    scheduler = Scheduler(sampler, BackgroundCalls(1), "tokens")
    scheduler.park()
    sampler.steps += 100
    scheduler.advance()
    assert scheduler._waiting.now == 0


@pytest.mark.parametrize("steps_take", [0.0, 0.01])
def test_episodes_of_a_model_repeat_to_the_last_bit(policy, steps_take):
    """The local sampler, few rows, an environment that takes its time or not: every number is the same."""

    def groups(wait):
        class Timed(Count):
            id = "Count"

            def user(self, task, transcript):
                time.sleep(random.uniform(0, wait))
                said = transcript[-1]["content"]
                return "1" * (len(said) % 3) if len(said) % 5 else None

        with Collector(
            Timed(), policy.sampler(max_rows=5), group_size=4, sampling=Sampling(max_tokens=60)
        ) as one:
            assert one.groups.schedule == "tokens"
            return one.collect(2).groups

    first, again = groups(0.0), groups(steps_take)
    assert [g.rollouts for g in first] == [g.rollouts for g in again]
    assert max(len(r.turns) for g in first for r in g.rollouts) > 2
