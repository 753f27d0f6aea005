"""The kinds of environments of before load, or say in one line what has another name."""

import pytest

import rlvr
from tests.rewards.parts import refusal


def old(name: str) -> type[rlvr.Environment]:
    with pytest.warns(DeprecationWarning, match=rf"rlvr\.{name} goes in .*rlvr\.Environment"):
        return getattr(rlvr, name)


def test_a_single_turn_is_an_environment():
    """A file of before, unchanged."""

    class Sums(old("SingleTurnEnv")):
        def task(self, index):
            return rlvr.Task(f"sums/{index}", f"{index} + 1", index + 1)

        def verify(self, task, completion):
            return rlvr.Verdict(
                "correct" if completion == str(task.reference) else "wrong", why="-"
            )

    env = Sums()
    with env.open(env.task(3)) as episode:
        assert (episode.prompt, episode.limits.turns) == ("3 + 1", 1)
        assert episode.reply("4") is None
        assert env.score(episode.task, episode.completion()).total == 1.0
    assert env.reset(options={"index": 3})[0] == "3 + 1"
    assert env.step("5")[1:4] == (0.0, True, False)


def test_tools_load_and_a_state_has_another_name():
    """`open` gives the episode now, so a state under that name is refused before it plays."""

    class Counting(old("ToolEnv")):
        def task(self, index):
            return rlvr.Task(f"counting/{index}", "Count.", 1)

        @rlvr.tool
        def add(self, state, x: int) -> int:
            """Add one."""
            return x + 1

    with Counting(turns=3).open(Counting().task(0)) as episode:
        assert episode.reply(rlvr.Ask("add", {"x": 1}))[0]["content"] == "2"
        assert episode.limits.turns == 3

    def stateful():
        class Stateful(old("ToolEnv")):
            def open(self, task):
                return {}

    assert refusal(stateful) == (
        "Stateful.open gives a state; name it setup, since open gives the episode now"
    )


def test_reset_and_step_of_an_author_are_played():
    """On a copy for each episode; its score is the environment's own."""

    class Twice(old("MultiTurnEnv")):
        def reset(self, *, seed=None, options=None):
            self.said = []
            return "Say it twice.", {}

        def step(self, action):
            self.said.append(action)
            return "Again.", 0.5, len(self.said) == 2, False, {}

    env = Twice()
    with env.open(env.task(0)) as episode:
        assert (episode.prompt, episode.reply("a"), episode.reply("b")) == (
            "Say it twice.",
            "Again.",
            None,
        )
    assert (episode.score.total, episode.score.verdict.why) == (1.0, "summed: rewards of the steps")
    assert not hasattr(env, "said")
