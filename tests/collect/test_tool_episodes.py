"""Episodes with tools in a collector: tokens, masks, scores, faults, and the replay of their records."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlvr
from rlvr.collect import Collector, Sampling, ScriptedSampler
from rlvr.collect.evaluation import evaluate
from rlvr.collect.flight import sample_groups
from rlvr.collect.rollout_records import rollout_records
from rlvr.collect.serialization import group_as_dict, group_from_dict
from rlvr.episode import Ask, PolicyTurn
from rlvr.errors import UsageError
from rlvr.scoring.records import provenance
from tests.collect.collecting import Inline, number
from tests.environments import PLACES, Desk, call

SAMPLING = Sampling(max_tokens=400)


def adds(context: str, rollout: int, seed: int) -> str:
    """Calls the tool, then says what it was told; every second rollout says something else."""
    if "\ntool: " not in context:
        return call("add", x=number(context.partition("Add ")[2].split(" ")[0]), y=1)
    return context.rpartition("tool: ")[2].split("\n")[0] if rollout % 2 == 0 else "none"


def collector(env, script=adds, **settings) -> Collector:
    settings = {"group_size": 4, "sampling": SAMPLING, "scorer": Inline(env)} | settings
    return Collector(env, ScriptedSampler(script), **settings)


class Counted(Desk):
    """Counts its open states."""

    def setup(self, task):
        state = _State(self)
        OPEN.add(state)
        return state


OPEN: set = set()


class _State(dict):
    def __init__(self, env):
        super().__init__(n=0)

    def __hash__(self):
        return id(self)

    def close(self):
        OPEN.discard(self)


def test_a_rollout_has_the_policys_tokens_and_the_record():
    """Replies are in the tokens, masked, and nothing else is."""
    with collector(Counted()) as made:
        collected = made.collect(2)
    rollout, other = collected.groups[0].rollouts[:2]
    assert (
        "".join(
            chr(t)
            for t, own in zip(rollout.completion_ids, rollout.completion_mask, strict=True)
            if not own
        )
        == f"\ntool: {rollout.task.reference}\nassistant: "
    )
    assert [turn.stop - turn.start for turn in rollout.turns] == [
        len(rollout.text.split("\n")[0]) + 1,
        2,
    ]
    assert (rollout.score.total, other.score.total) == (1.0, 0.0)
    assert rollout.episode.answer == str(rollout.task.reference) == rollout.completion.text
    assert collected.stats["accuracy"] == 0.5
    told = {name: value for name, value in collected.stats.items() if name.startswith("tools/")}
    assert [told[f"tools/{name}"] for name in ("calls", "used", "turns", "errors")] == [1, 1, 2, 0]
    assert told["tools/add/calls"] == 1
    assert not OPEN


class OwnForm(ScriptedSampler):
    """Writes a call as `add!1!2`, and begins each of its turns with `so: `."""

    def parse(self, completion_ids, tools):
        name, *numbers = self.decode(completion_ids).split("!")
        if not numbers:
            return PolicyTurn(name)
        return PolicyTurn("", (Ask(name, dict(zip("xy", map(int, numbers), strict=True))),))

    def beginning(self, prompt_ids):
        return "so: "


@settings(max_examples=15)
@given(st.integers(0, 99), st.integers(-9, 99))
def test_a_samplers_own_form_of_calls_is_the_one_that_is_read(x, y):
    """Not the common one; what its template begins for it is part of its answer."""
    env, texts = Desk(), (f"add!{x}!{y}", call("add", x=1))
    script = lambda context, *_: texts["\ntool: " in context]  # noqa: E731
    with Collector(
        env, OwnForm(script), group_size=1, sampling=SAMPLING, scorer=Inline(env)
    ) as one:
        [[rollout]] = (group.rollouts for group in one.collect(1).groups)
    [asked_for] = rollout.episode.calls
    assert (asked_for.arguments, asked_for.reply) == ({"x": x, "y": y}, str(x + y))
    assert rollout.episode.answer == f"so: {texts[1]}"


def test_records_replay_without_a_tool():
    """The same verdicts from the records alone, through JSON."""
    env = rlvr.make("tests.environments:Desk")
    with collector(env) as made:
        groups = made.collect(3).groups
    run = provenance(env, "tests.environments:Desk")
    records = [
        record for i, group in enumerate(groups) for record in rollout_records(i, group, run)
    ]
    assert [record["episode"]["turns"][0]["calls"][0]["name"] for record in records] == ["add"] * 12
    Desk.add, kept = None, Desk.add
    try:
        assert list(rlvr.replay(records, workers=0, allow=PLACES)) == [[]] * 12
        records[0]["episode"]["turns"][-1]["text"] = "forged"
        assert {
            one.field for one in next(iter(rlvr.replay(records[:1], workers=0, allow=PLACES)))
        } >= {
            "outcome",
            "total",
        }
    finally:
        Desk.add = kept


def test_groups_survive_a_checkpoint():
    """With their records."""
    with collector(Desk()) as made:
        group = made.collect(1).groups[0]
    again = group_from_dict(group_as_dict(group), group.task)
    assert again.rollouts[0].episode == group.rollouts[0].episode


class Failing(Counted):
    """The environment fails for even tasks."""

    @rlvr.tool
    def add(self, state, x: int, y: int = 0) -> str:
        """Add."""
        if x % 2 == 0:
            raise RuntimeError("broken")
        return str(x + y)


def test_our_fault_is_unscored_and_the_others_go_on():
    """With the traceback; the states are closed."""
    with collector(Failing(), shuffle=False) as made:
        groups = sample_groups(made.groups, [(0, 0), (1, 1)])
        found = dict(groups)
    lost = found[0].rollouts[0].score.verdict
    assert lost.outcome == "unscored"
    assert lost.why == "environment-error: the tool 'add' raised RuntimeError: broken"
    assert "RuntimeError" in lost.detail["traceback"]
    assert found[1].rollouts[0].score.total == 1.0
    assert not OPEN


def test_an_open_that_fails_is_unscored():
    """The group keeps its size."""

    class Closed(Desk):
        def setup(self, task):
            raise OSError("no room")

    with collector(Closed()) as made:
        [(_, group)] = sample_groups(made.groups, [(0, 0)])
    assert [rollout.score.total for rollout in group.rollouts] == [None] * 4


def test_episodes_that_are_dropped_are_closed():
    """A caller that stops early leaves no state open; one that a thread is opening is closed by that thread."""
    with collector(Counted()) as made:
        sampled = sample_groups(made.groups, [(i, i) for i in range(8)])
        next(sampled)
        sampled.close()
    until = time.monotonic() + 30
    while OPEN and time.monotonic() < until:
        time.sleep(0.01)
    assert not OPEN


def test_calls_of_different_episodes_run_side_by_side():
    """Each waits for all others of its group: one after another, none would ever end."""

    class Together(Desk):
        def setup(self, task):
            return None

        @rlvr.tool
        def add(self, state, x: int, y: int = 0) -> str:
            """Add."""
            barrier.wait(20)
            return str(x + y)

    barrier = threading.Barrier(8)
    with collector(Together(call_seconds=30.0), group_size=8) as made:
        assert made.collect(1).stats["accuracy"] == 0.5


def test_the_tokens_of_all_turns_have_one_limit():
    """An episode that uses them up ends as truncated, with what was called until then."""
    with collector(Desk(), lambda *_: call("add", x=1), sampling=Sampling(max_tokens=150)) as made:
        rollout = made.collect(1).groups[0].rollouts[0]
    assert (rollout.truncated, rollout.episode.end) == (True, "tokens")
    assert sum(rollout.completion_mask) == 150
    assert [call.error for call in rollout.episode.calls] == [
        False,
        False,
        True,
    ]  # the last was cut off


def test_no_room_for_a_reply_ends_the_episode():
    """The model's positions hold for prompt, turns and replies together."""

    class Long(Desk):
        @rlvr.tool
        def add(self, state, x: int, y: int = 0) -> str:
            """Add."""
            return "9" * 3000

    sampler = ScriptedSampler(lambda *_: call("add", x=1))
    sampler.positions = 1000
    env = Long()
    with Collector(env, sampler, group_size=2, sampling=SAMPLING, scorer=Inline(env)) as made:
        rollout = made.collect(1).groups[0].rollouts[0]
    assert (rollout.truncated, rollout.episode.end) == (True, "positions")
    assert len(rollout.completion_ids) < 1000


def test_rewards_are_composed_as_for_completions():
    """Parts, bounds, comparisons within a group, and rewards of turns."""

    class Shaped(Desk):
        reward = rlvr.Correct() + 0.1 * rlvr.RelativeLength()

        def turn_rewards(self, task, episode):
            return [0.25 if turn.calls else None for turn in episode.turns]

    with collector(Shaped()) as made:
        rollouts = made.collect(1).groups[0].rollouts
    assert set(rollouts[0].score.parts) == {"correct", "relative_length"}
    assert [turn.reward for turn in rollouts[0].turns] == [0.25, None]


def test_tools_that_differ_within_a_group_are_refused():
    """A group compares the same prompt."""

    class Random(Desk):
        def tools(self, state):
            NAMES.append(f"t{len(NAMES)}")
            first = super().tools(state)[0]
            return [rlvr.Tool(NAMES[-1], "", first.parameters, first.function)]

    NAMES: list = []
    with collector(Random()) as made, pytest.raises(UsageError, match="different tools"):
        made.collect(1)


def test_an_evaluation_takes_environments_with_tools():
    """avg@n and reward with their bounds."""
    env = Desk()
    report = evaluate(
        env, ScriptedSampler(adds), sampling=SAMPLING, n=2, limit=3, scorer=Inline(env)
    )
    assert report.metrics["avg@2"].value == 0.5
