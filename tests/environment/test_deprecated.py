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


def test_reset_and_step_of_an_author_are_gone():
    """In one line that says what to write now."""

    def played():
        class Twice(old("MultiTurnEnv")):
            def step(self, action):
                return "Again.", 0.5, False, False, {}

    assert refusal(played) == (
        "Twice: rlvr.MultiTurnEnv is gone; derive from rlvr.Environment, make the prompt in task(index), answer a turn "
        "in user(task, transcript), and judge the record in verify(task, episode)"
    )
