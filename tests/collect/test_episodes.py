"""Episodes of several turns: one token sequence, a mask on the policy's own turns, rewards turn by turn."""

import random
import time

import pytest

import rlvr
from rlvr.collect import END, Sampling, ScriptedSampler
from rlvr.episode import EpisodeRecord, EpisodeTurn
from rlvr.types import Turn
from tests.collect.collecting import Backwards, Count, collector, counts, texts, untimed


def goal(group) -> int:
    return int(group.task.prompt[-2])


def of_goal(wanted: int, script=counts, env=None, **settings):
    """The first group whose goal is this one, with the numbers of its collection."""
    with collector(env or Count(), script, **({"group_size": 2} | settings)) as one:
        while goal((collected := one.collect(1)).groups[0]) != wanted:
            pass
    return collected


# ------------------------------------------------------------------------------- the token sequence


def test_turns_and_replies_stand_in_one_sequence_with_the_mask_on_turns():
    """ "To 2." → "1" END, a message of the user, "2" END: its tokens are not the policy's."""
    collected = of_goal(2, ScriptedSampler(counts, logprobs=-0.5))
    rollout = collected.groups[0].rollouts[0]
    told = "\nuser: On!\nassistant: "
    assert rollout.prompt_ids == [ord(c) for c in "To 2."]
    assert list(rollout.completion_ids) == [ord("1"), END, *map(ord, told), ord("2"), END]
    assert list(rollout.completion_mask) == [True, True, *[False] * len(told), True, True]
    assert list(rollout.behaviour_logprobs) == [-0.5, -0.5, *[0] * len(told), -0.5, -0.5]
    assert rollout.turns == (Turn(0, 2, 0.25), Turn(2 + len(told), 4 + len(told), 0.25))
    assert (rollout.text, rollout.truncated) == ("1\nuser: On!\n2", False)
    assert rollout.completion.length_tokens == 4
    assert (collected.stats["length"], collected.stats["tokens"]) == (4, 8)


def test_the_record_is_judged():
    """And not the sum of what the turns earned."""
    rollout = of_goal(2).groups[0].rollouts[0]
    assert (rollout.score.total, rollout.score.verdict.why) == (1.0, "counted")
    assert sum(turn.reward for turn in rollout.turns) == 0.5


def test_messages_are_encoded_after_what_stands_there():
    """A chat's reply closes the turn and opens the next one: the scripted sampler's "\\nuser: On!\\nassistant: "."""
    with collector(Count(chat=True), counts, group_size=1) as one:
        rollouts = [r for group in one.collect(6).groups for r in group.rollouts]
    [rollout] = [r for r in rollouts if "To 2." in r.task.prompt[0]["content"]][:1]
    sampler = ScriptedSampler(["x"])
    assert sampler.decode(rollout.prompt_ids) == "user: To 2.\nassistant: "
    assert sampler.decode(rollout.completion_ids) == "1\nuser: On!\nassistant: 2"
    assert rollout.text == "1\nuser: On!\n2"
    assert rollout.score.total == 1.0


def test_the_next_turn_goes_on_from_the_very_tokens():
    """Nothing is tokenised twice: what the sampler continues are prompt, turn and reply as they stand."""
    contexts = []

    class Noting(ScriptedSampler):
        def submit(self, request):
            contexts.append(request.context)
            super().submit(request)

    rollout = of_goal(2, Noting(counts), group_size=1).groups[0].rollouts[0]
    assert contexts[-1] == (*rollout.prompt_ids, *rollout.completion_ids[:-2])


def test_every_turn_has_a_seed_of_its_own():
    """And every rollout."""
    seeds = []

    def script(prompt, rollout, seed):
        seeds.append(seed)
        return counts(prompt, rollout, seed)

    with collector(Count(), script, group_size=3) as one:
        one.collect(8)
    assert len(set(seeds)) == len(seeds) > 24


# ------------------------------------------------------------------------------- where episodes end


def test_a_group_begins_alike_and_goes_its_own_ways():
    """Rollout 1 slips at its second turn; its sibling's environment does not notice."""

    def script(prompt, rollout, seed):
        return counts(prompt, rollout, seed) if "On!" not in prompt or seed % 2 else "?"

    with collector(Count(), script, group_size=8) as one:
        groups = [group for group in one.collect(8).groups if goal(group) > 1]
    for group in groups:
        for rollout in group.rollouts:
            assert rollout.score.verdict.correct == ("?" not in rollout.text)
    assert {r.score.verdict.correct for group in groups for r in group.rollouts} == {True, False}


class Endless(rlvr.Episode):
    """An episode of an author's own, whose turns are those of the run."""

    limits = rlvr.EpisodeLimits(turns=None, calls=0)

    said = ()

    def reply(self, turn, *, last=""):
        self.said = (*self.said, EpisodeTurn(turn.text))
        self.end = last
        return None if last else "Again."

    @property
    def record(self):
        return EpisodeRecord(self.said, self.end or "turns")


class Own(Count):
    def open(self, task):
        return Endless(self, task)


def test_an_episode_without_end_is_cut_after_so_many_turns():
    """Truncated and WRONG; with overlong="mask" there is nothing to train on."""
    for mode, trained in (("keep", True), ("mask", False)):
        rollout = of_goal(3, env=Own(), max_turns=2, overlong=mode).groups[0].rollouts[0]
        assert (rollout.truncated, len(rollout.turns)) == (True, 2)
        assert (rollout.episode.end, rollout.score.total) == ("turns", 0.0)
        assert any(rollout.completion_mask) == trained


def test_the_token_limit_is_one_for_all_turns_together():
    """Each turn takes 2 tokens.  With 3 the second gets 1: "2" without its end, which the environment still sees."""
    rollout = of_goal(2, sampling=Sampling(max_tokens=3)).groups[0].rollouts[0]
    assert rollout.completion.length_tokens == 3
    assert (rollout.truncated, rollout.score.total) == (True, 1.0)
    rollout = of_goal(3, sampling=Sampling(max_tokens=4)).groups[0].rollouts[0]
    assert (len(rollout.turns), rollout.truncated, rollout.score.verdict.outcome) == (
        2,
        True,
        "wrong",
    )


def test_a_rollout_is_as_old_as_its_oldest_turn():
    """New weights arrive after the first turn: staleness counts from before."""

    first = {}

    class Learning(ScriptedSampler):
        def poll(self):
            finished = super().poll()
            for (p, g, _), sample in finished:
                first.setdefault((p, g), sample.weights_version)
            self.version += 1
            return finished

    with collector(Count(), Learning(counts, version=5), group_size=1) as one:
        rollouts = [group.rollouts[0] for group in one.collect(12).groups]
    assert {len(rollout.turns) for rollout in rollouts} == {1, 2, 3}
    assert [rollout.weights_version for rollout in rollouts] == [first[p, 0] for p in range(12)]


# ------------------------------------------------------------------------------------- our failures


class Broken(Count):
    """Its user fails when told so."""

    def user(self, task, transcript):
        if transcript[-1]["content"] == "raise":
            raise RuntimeError("as asked")
        return 7 if transcript[-1]["content"] == "odd" else super().user(task, transcript)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("raise", "environment-error: user of Broken raised RuntimeError: as asked"),
        ("odd", "environment-error: user gave int 7; it must give a text, or None to end"),
    ],
)
def test_a_user_that_fails_costs_its_rollout_alone(said, why):
    """UNSCORED, whatever the environment raised or gave against its contract: masked and counted."""
    collected = of_goal(1, ["1", said, "1"], env=Broken(), group_size=3)
    totals = [r.score.total for r in collected.groups[0].rollouts]
    lost = collected.groups[0].rollouts[1]
    assert totals == [1.0, None, 1.0]
    assert lost.score.verdict.why.startswith(why)
    assert said != "raise" or "in user" in lost.score.verdict.detail["traceback"]
    assert not any(lost.completion_mask)
    assert collected.stats["unscored"] == 1


# ----------------------------------------------------------------------- the same, whatever happens


class Slow(Count):
    """Its user takes up to 10 ms."""

    id = "Count"

    def user(self, task, transcript):
        time.sleep(random.uniform(0, 0.01))
        return super().user(task, transcript)


def sometimes(prompt, rollout, seed):
    """Right two times of three."""
    return counts(prompt, rollout, seed) if seed % 3 else "?"


def test_neither_order_nor_speed_changes_an_episode():
    """Samples that come backwards and users of any speed: the same groups."""
    with (
        collector(Count(), sometimes, dynamic=True) as calm,
        collector(Slow(), Backwards(sometimes), dynamic=True) as hasty,
    ):
        for _ in range(2):
            expected, got = calm.collect(3), hasty.collect(3)
            assert got.groups == expected.groups
            assert untimed(got.stats) == untimed(expected.stats)


def test_episodes_resume_where_they_stood():
    """The place in the run is their seed; groups left over bring their turns along."""
    settings = {"dynamic": True, "max_staleness": 9}
    with collector(Count(), sometimes, **settings) as whole:
        whole.collect(1, ahead=1)
        state = whole.state_dict()
        assert state["flight"]["groups"]
        expected = [whole.collect(2).groups for _ in range(3)]
    with collector(Count(), sometimes, **settings) as resumed:
        resumed.load_state_dict(state)
        assert [resumed.collect(2).groups for _ in range(3)] == expected


def test_a_finite_environment_of_several_turns_has_epochs():
    """All tasks once, then all again."""

    class Finite(Count):
        size = 3

        def task(self, index):
            return rlvr.Task(f"goal-{index + 1}", f"To {index + 1}.", index + 1)

    with collector(Finite(), counts) as one:
        groups = one.collect(6).groups
    assert sorted(group.task.id for group in groups[:3]) == ["goal-1", "goal-2", "goal-3"]
    assert sorted(group.task.id for group in groups[3:]) == ["goal-1", "goal-2", "goal-3"]
    assert len(texts(groups)) == 6
