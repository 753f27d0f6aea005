"""The order of a mixture's tasks: exact parts, a curriculum by pass rate, and runs that resume to the last bit."""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlvr
from rlvr.collect import ScriptedSampler
from rlvr.collect.evaluation import evaluate
from rlvr.collect.mixing import MixtureCursor
from rlvr.types import Group, Outcome, Rollout, Score, Verdict
from tests.collect.collecting import (
    SAMPLING,
    Count,
    Stepping,
    collector,
    counts,
    guesses,
    number,
    untimed,
)
from tests.environment.test_mixture import rows
from tests.environments import Trials


def mixture(**options):
    """Twelve tasks and endless ones, 3 to 1."""
    shares = [rlvr.Share(rows(12), 3.0, group_size=2), rlvr.Share(Trials(), 1.0)]
    return rlvr.Mixture(envs=shares, **options)


def group(env, index: int, right: int, wrong: int, unscored: int = 0) -> Group:
    """A group with this many verdicts."""
    task = env.task(index)
    outcomes = [Outcome.CORRECT] * right + [Outcome.WRONG] * wrong + [Outcome.UNSCORED] * unscored
    scores = [
        Score(None, {}, Verdict(o))
        if o is Outcome.UNSCORED
        else Score(
            float(o is Outcome.CORRECT), {"correct": float(o is Outcome.CORRECT)}, Verdict(o)
        )
        for o in outcomes
    ]
    return Group(task, [Rollout(task, "", (1,), (), (), (), 0, score=score) for score in scores])


def names(env, taken):
    return [env.locate(index)[0] for _, index in taken]


@settings(max_examples=30)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(2, 12), st.integers(0, 9))
def test_parts_are_exact_and_epochs_are_permutations(weight, other, size, seed):
    """Of any first n tasks at most one more or less than its part; none is missed for another's weight."""
    env = rlvr.Mixture(envs=[rlvr.Share(rows(size), weight), rlvr.Share(Trials(), other)])
    order = [env.locate(index) for _, index in MixtureCursor(env, seed=seed).take(60)]
    own = [index for name, index in order if name == "rows"]
    for n in range(61):
        count = sum(name == "rows" for name, _ in order[:n])
        assert abs(count * (weight + other) - weight * n) <= weight + other
    for begin in range(0, len(own) - size + 1, size):
        assert sorted(own[begin : begin + size]) == list(range(size))
    others = [index for name, index in order if name == "Trials"]
    assert len(set(others)) == len(others)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.lists(st.integers(0, 4), max_size=4)),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 6),
    st.integers(0, 9),
)
def test_a_cursor_resumed_anywhere_goes_on_as_it_would(steps, begun, seed):
    """Tasks taken and groups seen at random: the state, written as JSON, holds all the order depends on."""
    env = mixture(curriculum=rlvr.Curriculum(delay=2, window=3))
    whole, resumed = MixtureCursor(env, seed=seed), MixtureCursor(env, seed=seed)
    for step, (count, rights) in enumerate(steps):
        if step == begun:
            resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
        active = (whole, resumed) if step >= begun else (whole,)
        taken = [cursor.take(count) for cursor in active]
        assert all(one == taken[0] for one in taken)
        for cursor in active:
            for (_, index), right in zip(taken[0], rights, strict=False):
                cursor.saw(index, group(env, index, right=right, wrong=4 - right))
        assert all(cursor.state_dict() == whole.state_dict() for cursor in active)


def test_solved_tasks_are_dropped_until_all_are_solved():
    """Six tasks of rows are solved in the first epoch; the second has the other six; when all are, it begins anew."""
    env = rlvr.Mixture(envs=[rows(12)], curriculum=rlvr.Curriculum(window=100))
    cursor = MixtureCursor(env, seed=0)
    first = [index for _, index in cursor.take(12)]
    for index in first:
        cursor.saw(
            index, group(env, index, right=4 if index < 6 else 2, wrong=0 if index < 6 else 2)
        )
    second = [index for _, index in cursor.take(6)]
    assert sorted(second) == list(range(6, 12))
    for index in second:
        cursor.saw(index, group(env, index, right=4, wrong=0))
    assert cursor.stats()["env/rows/solved"] == 12
    assert sorted(index for _, index in cursor.take(12)) == list(range(12))


def test_hopeless_tasks_come_again_later_and_ever_later():
    """Delay 3, then 6: the task comes as number 1 + 3 + 1, and again six tasks after that."""
    env = rlvr.Mixture(
        envs=[Trials()], curriculum=rlvr.Curriculum(delay=3, longest_delay=6, window=100)
    )
    cursor, seen = MixtureCursor(env, seed=0), []
    for _ in range(24):
        [(_, index)] = cursor.take(1)
        seen.append(index)
        cursor.saw(index, group(env, index, right=2 * bool(index), wrong=2))
    assert [place for place, index in enumerate(seen) if index == 0] == [0, 4, 11, 18]
    assert sorted(set(seen)) == list(range(21))


def test_a_task_that_is_all_that_is_left_comes_without_delay():
    """Two tasks, one solved and one hopeless: sampling goes on with the hopeless one."""
    env = rlvr.Mixture(envs=[rows(2)], curriculum=rlvr.Curriculum(window=100))
    cursor = MixtureCursor(env, seed=0)
    for _, index in cursor.take(2):
        cursor.saw(index, group(env, index, right=2 * (index == 1), wrong=2 * (index == 0)))
    assert [index for _, index in cursor.take(3)] == [0, 0, 0]


def test_an_environment_that_teaches_nothing_keeps_a_part_of_its_weight():
    """The last four groups all solved: 1 of 11 tasks at a rest of 0.1, until one of its groups is mixed."""
    plan = rlvr.Curriculum(window=4, rest=0.1)
    env = rlvr.Mixture(
        envs=[rlvr.Share(Trials(), name="easy"), rlvr.Share(Trials(), name="hard")], curriculum=plan
    )
    cursor = MixtureCursor(env, seed=0)
    for index in range(0, 8, 2):
        cursor.saw(index, group(env, index, right=4, wrong=0))
    assert Counter(names(env, cursor.take(110))) == {"hard": 100, "easy": 10}
    cursor.saw(0, group(env, 0, right=2, wrong=2))
    assert Counter(names(env, cursor.take(100)))["easy"] in (49, 50, 51)


def test_unscored_rollouts_say_nothing_of_a_task():
    """A group without a score is neither solved nor hopeless."""
    env = rlvr.Mixture(envs=[rows(2)], curriculum=rlvr.Curriculum())
    cursor = MixtureCursor(env, seed=0)
    cursor.saw(0, group(env, 0, right=0, wrong=0, unscored=4))
    cursor.saw(1, group(env, 1, right=1, wrong=0, unscored=3))
    assert (cursor.stats()["env/rows/solved"], cursor.stats()["env/rows/delayed"]) == (1, 0)


def script(prompt, rollout: int, seed: int) -> str:
    """Task 0 never, tasks 1, 4, 7 always, the others at times."""
    kind = number(prompt) % 3
    return (
        "no"
        if number(prompt) == 0
        else str(number(prompt))
        if kind == 1
        else guesses(prompt, rollout, seed)
    )


@pytest.mark.parametrize(
    "curriculum", [None, rlvr.Curriculum(delay=2, window=3)], ids=["weights", "curriculum"]
)
def test_resumed_after_any_step_it_is_the_uninterrupted_run(curriculum):
    """Groups, numbers and the curriculum's state, over steps with groups left over and tasks that come again."""

    def step(one, version):
        one.sampler.version = version
        collected = one.collect(3)
        return collected.groups, collected.dropped, untimed(collected.stats)

    settings = {"dynamic": True, "max_staleness": 9}
    env = mixture(curriculum=curriculum)
    with collector(env, Stepping(script, logprobs=-0.1), **settings) as whole:
        expected, states = [], []
        for version in range(6):
            states.append(json.loads(json.dumps(whole.state_dict())))
            expected.append(step(whole, version))
    if curriculum:
        assert states[-1]["members"]["rows"]["delayed"]
        assert states[-1]["members"]["rows"]["solved"]
    for begun in (0, 1, 3, 5):
        with collector(
            mixture(curriculum=curriculum), Stepping(script, logprobs=-0.1), **settings
        ) as resumed:
            resumed.load_state_dict(states[begun])
            assert [step(resumed, version) for version in range(begun, 6)] == expected[begun:]


def test_a_collect_that_fails_leaves_the_order_as_it_was():
    """The next call begins where the failed one began, with what the curriculum knew."""
    env, calls = mixture(curriculum=rlvr.Curriculum()), []

    def breaks(prompt, rollout, seed):
        calls.append(prompt)
        return script(prompt, rollout, seed) if len(calls) < 12 else 1 / 0

    with collector(env, ScriptedSampler(breaks, logprobs=-0.1)) as one:
        one.collect(2)
        before = one.state_dict()
        with pytest.raises(ZeroDivisionError):
            one.collect(4)
        assert one.state_dict() == before


def test_group_sizes_limits_and_metrics_are_those_of_each_environment():
    """Two rollouts for rows and four for the others; tokens are cut at the environment's own limit."""
    shares = [rlvr.Share(rows(12), 1.0, group_size=2), rlvr.Share(Trials(), 1.0, max_tokens=1)]
    env = rlvr.Mixture(envs=shares)
    with collector(env, ScriptedSampler(lambda prompt, g, seed: "11", logprobs=-0.1)) as one:
        collected = one.collect(6)
    sizes = {env.share_of(g.task).name: len(g.rollouts) for g in collected.groups}
    assert sizes == {"rows": 2, "Trials": 4}
    assert collected.stats["env/rows/rollouts"] == 6
    assert collected.stats["env/rows/truncated"] == 0
    assert collected.stats["env/Trials/truncated"] == 1
    assert collected.stats["env/Trials/length"] == 1
    assert {"env/rows/accuracy", "env/rows/reward", "env/Trials/reward/correct"} <= set(
        collected.stats
    )


def test_evaluation_is_per_environment_and_overall():
    """Three tasks of rows, all right, and four of the other, all wrong: 3/7 overall."""

    def right_for_rows(prompt, rollout, seed):
        return str(number(prompt)) if number(prompt) < 3 else "no"

    env = rlvr.Mixture(envs=[rows(3), rlvr.Share(rows(9), name="more")])
    sampler = ScriptedSampler(right_for_rows)
    report = evaluate(env, sampler, sampling=SAMPLING, limit=5)
    assert len(report.tasks) == 8
    assert report.metrics["rows/avg@1"].value == 1
    assert report.metrics["more/avg@1"].value == 0.6
    assert report.metrics["avg@1"].value == 0.75


# --------------------------------------------------------------------------- of any number of turns


class Ask(rlvr.Environment):
    """The answer is right once the tool was asked."""

    turns: int = 3

    def task(self, index):
        return rlvr.Task(f"ask/{index}", f"Look {index} up.", str(index))

    @rlvr.tool
    def look(self, state) -> str:
        """See it."""
        return "seen"

    def verify(self, task, record):
        right = record.answer == task.reference and [call.reply for call in record.calls] == [
            "seen"
        ]
        return rlvr.Verdict("correct" if right else "wrong", why="looked")


def look_or_count(prompt, rollout, seed):
    if "Look" not in prompt:
        return counts(prompt, rollout, seed)
    call = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    return prompt.partition("Look ")[2].split()[0] if "seen" in prompt else call


def test_a_mixture_holds_environments_of_any_number_of_turns():
    """One with tools, one with a simulated user, one of one reply; each with its own group size."""
    env = rlvr.Mixture(
        envs=[
            rlvr.Share(Ask(), name="ask", group_size=2),
            rlvr.Share(Count(), name="count", group_size=3),
            rlvr.Share(Trials(), name="trials"),
        ]
    )
    with collector(env, look_or_count) as one:
        groups = {group.task.id.partition(":")[0]: group for group in one.collect(3).groups}
    assert {name: len(group.rollouts) for name, group in groups.items()} == {
        "ask": 2,
        "count": 3,
        "trials": 4,
    }
    for name in ("ask", "count"):
        assert [rollout.score.total for rollout in groups[name].rollouts] == [1.0] * len(
            groups[name].rollouts
        ), name
    assert {len(rollout.turns) for rollout in groups["ask"].rollouts} == {2}
    assert groups["trials"].rollouts[0].turns == ()
