"""Resuming: a collector made anew and told where another stood goes on as if nothing had happened."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from rlvr.collect import Sampling
from rlvr.collect.serialization import group_as_dict, group_from_dict
from tests.collect.collecting import Stepping, by_fours, collector, guesses, untimed
from tests.environments import Siblings, Trials, Words
from tests.rewards.parts import refusal

SETTINGS = {"dynamic": True, "max_staleness": 9, "overlong": "mask"}


def says(prompt, rollout: int, seed: int) -> str:
    """The word asked for, two times of three."""
    return prompt[4:-1] if seed % 3 else "no"


def carried(state: dict) -> dict:
    """Through a file."""
    return json.loads(json.dumps(state, allow_nan=False))


@pytest.mark.parametrize(
    ("env", "script"),
    [
        (Trials(), guesses),
        (Words(count=5), lambda prompt, g, seed: prompt[4:-1] if seed % 3 else "no"),
        (Siblings(), guesses),
    ],
    ids=["generated", "epochs", "compared"],
)
def test_resumed_after_any_step_it_is_the_uninterrupted_run(env, script):
    """Groups to the last bit, waste and numbers, over six steps of new weights, groups left over and epochs ending."""

    def step(one, version):
        one.sampler.version = version
        collected = one.collect(3)
        return collected.groups, collected.dropped, untimed(collected.stats)

    with collector(env, Stepping(script, logprobs=-0.1), **SETTINGS) as whole:
        expected, states = [], []
        for version in range(6):
            states.append(carried(whole.state_dict()))
            expected.append(step(whole, version))
    assert any(state["flight"]["groups"] for state in states), (
        "nothing was left over: the test shows nothing"
    )
    for begun, state in enumerate(states):
        with collector(env, Stepping(script, logprobs=-0.1), **SETTINGS) as resumed:
            resumed.load_state_dict(state)
            assert (resumed.position, resumed.epoch) == (state["position"], state["epoch"])
            assert [step(resumed, version) for version in range(begun, 6)] == expected[begun:]


def test_a_group_left_over_survives_with_all_it_has():
    """A masked rollout, an unscored one with its traceback, one with partial logprobs: equal after the file."""
    script = ["0", "0@raise", "no", "0 and on and on"]
    with collector(
        script=Stepping(script), max_staleness=9, overlong="mask", sampling=Sampling(max_tokens=12)
    ) as one:
        one.collect(1, ahead=2)
        state = carried(one.state_dict())
        [group] = one.collect(1).groups
    with collector(
        script=Stepping(script), max_staleness=9, overlong="mask", sampling=Sampling(max_tokens=12)
    ) as other:
        other.load_state_dict(state)
        [again] = other.collect(1).groups
    assert again.task == group.task
    for r, s in zip(again.rollouts, group.rollouts, strict=True):
        assert (list(r.completion_ids), list(r.completion_mask)) == (
            list(s.completion_ids),
            list(s.completion_mask),
        )
        assert list(r.behaviour_logprobs) == list(s.behaviour_logprobs)
        assert (r.score, r.truncated, r.text) == (s.score, s.truncated, s.text)
    assert [any(r.completion_mask) for r in again.rollouts] == [True, False, True, False]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            {"env": Words(count=5)},
            "this state is of a collector with env 'Trials', and here it is 'Words'",
        ),
        (
            {"env": Trials(split="test")},
            "this state is of a collector with split 'train', and here it is 'test'",
        ),
        ({"seed": 1}, "this state is of a collector with seed 0, and here it is 1"),
        ({"group_size": 2}, "this state is of a collector with group_size 4, and here it is 2"),
        (
            {"shuffle": False},
            "this state is of a collector with shuffle True, and here it is False",
        ),
    ],
)
def test_a_state_of_another_collector_is_refused(other, said):
    """It would go on with other rollouts, and no error would say so."""
    with collector() as one:
        state = one.state_dict()
    with collector(**other) as resumed:
        assert refusal(lambda: resumed.load_state_dict(state)).startswith(said)


def test_tasks_that_changed_under_a_saved_group_are_found():
    """The group's index leads to another task now."""
    with collector(script=Stepping(by_fours), dynamic=True, max_staleness=9) as one:
        one.collect(1, ahead=1)
        state = carried(one.state_dict())
    state["flight"]["groups"][0]["task"] = "Trials/train/99"
    with collector(script=Stepping(by_fours), dynamic=True, max_staleness=9) as resumed:
        said = refusal(lambda: resumed.load_state_dict(state))
        assert said.startswith(
            "a saved group belongs to task 'Trials/train/99', and its index now gives 'Trials/train/3'"
        )
        assert resumed.position == 0


def test_a_verdict_may_hold_anything():
    """An environment of several turns says its score itself; a checkpoint loads nothing but plain values."""
    with collector() as one:
        [group] = one.collect(1).groups
    verdict = replace(group.rollouts[0].score.verdict, detail={"distance": Fraction(1, 3)})
    rollout = replace(group.rollouts[0], score=replace(group.rollouts[0].score, verdict=verdict))
    again = group_from_dict(carried(group_as_dict(replace(group, rollouts=[rollout]))), group.task)
    assert again.rollouts[0].score.verdict.detail == {"distance": "1/3"}
