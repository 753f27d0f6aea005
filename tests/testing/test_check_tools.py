"""`check` over episodes: planted holes of several turns are found, honest environments are clean."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

import pytest

import rlvr
from rlvr.environment.ready_tools import bash, sandbox
from rlvr.sandbox import Limits
from rlvr.testing import check
from rlvr.testing.cheats import PROGRAMS, SCRIPTS, cheat_breaches
from rlvr.testing.episodes import _play_turns as played
from rlvr.testing.episodes import episode_breaches
from rlvr.testing.findings import Severity
from tests.environments import Desk
from tests.testing.broken import Guess, judged


class Quiz(rlvr.Environment):
    """Say the word; a tool gives a hint about another one."""

    reward = rlvr.Correct(lambda answer, reference: answer == reference)

    def task(self, index):
        word = "".join(rlvr.seeded(self.id, self.split, index).choices("bdfglmnrst", k=6))
        return rlvr.Task(
            f"{self.id}/{self.split}/{index}", f"Say word {index} of {self.split}.", word
        )

    @rlvr.tool
    def hint(self, state, name: str) -> str:
        """Give a hint."""
        return f"nothing about {name[:20]}"

    def example_episode(self, task):
        return [rlvr.Ask("hint", {"name": "x"}), task.reference]


class Leaky(Quiz):
    """A tool's reply holds the answer."""

    @rlvr.tool
    def hint(self, state, name: str) -> str:
        """Give a hint."""
        return f"it is not {state}"

    def setup(self, task):
        return task.reference


class Reachable(Quiz):
    """A tool gives any attribute of an object that knows the answer."""

    def setup(self, task):
        return SimpleNamespace(word=task.reference)

    @rlvr.tool
    def hint(self, state, name: str) -> str:
        """Give a hint."""
        return str(getattr(state, name, "nothing"))


class Evaluating(Quiz):
    """A calculator that is `eval`."""

    @rlvr.tool
    def hint(self, state, name: str) -> str:
        """Give a hint."""
        try:
            return str(eval(name))
        except Exception as error:  # noqa: BLE001
            raise rlvr.ToolError(str(error)) from None


class Unseeded(Quiz):
    """The replies differ from episode to episode."""

    def setup(self, task):
        return next(COUNT)

    @rlvr.tool
    def hint(self, state, name: str) -> str:
        """Give a hint."""
        return f"try {state}"


COUNT = itertools.count()


class Hedged(Quiz):
    """Any answer that contains the word."""

    reward = rlvr.Correct(lambda answer, reference: reference in answer)


class Submitted(Quiz):
    """As many submissions as one likes."""

    reward = rlvr.Correct()

    @rlvr.tool
    def submit(self, state, word: str) -> str:
        """Submit a word."""
        return "noted"

    def verify(self, task, episode):
        return judged(any(call.arguments.get("word") == task.reference for call in episode.calls))

    def example_episode(self, task):
        return [rlvr.Ask("submit", {"word": task.reference}), "Done."]


class Collected(Quiz):
    """Each call earns."""

    def turn_rewards(self, task, episode):
        return [0.5 if turn.calls else None for turn in episode.turns]


class Hanging(Quiz):
    """One value hangs."""

    call_seconds: float = 0.2

    @rlvr.tool
    def hint(self, state, name: str) -> str:
        """Give a hint."""
        if name == "help":
            time.sleep(1)
        return "x"


class Raising(Quiz):
    """One value raises."""

    @rlvr.tool
    def hint(self, state, name: str) -> str:
        """Give a hint."""
        return "abc"[int(name == "help") * 9]


class Talkative(Quiz):
    """A megabyte."""

    @rlvr.tool
    def hint(self, state, name: str) -> str:
        """Give a hint."""
        return "a" * 1_000_000


PLANTED = {
    Leaky: "secret",
    Reachable: "secret",
    Evaluating: "evaluates",
    Unseeded: "nondeterministic",
    Hedged: "hedge",
    Submitted: "hedge",
    Collected: "collected-twice",
    Hanging: "hang",
    Raising: "crash",
    Talkative: "long-reply",
}


def breaches(env) -> set[str]:
    """Names of the holes and warnings, found in this process."""
    found = episode_breaches(env, [env.task(index) for index in range(3)])
    return {hole for hole, severity, *_ in found if severity != Severity.NOTE}


@pytest.mark.parametrize("cls", PLANTED, ids=lambda cls: cls.__name__)
def test_a_planted_hole_of_a_tool_is_found(cls):
    """Each by its own name."""
    assert PLANTED[cls] in breaches(cls())


@pytest.mark.parametrize("cls", [Quiz, Desk, Guess])
def test_an_honest_environment_has_none(cls):
    """The same environments without the holes."""
    assert not breaches(cls())


def test_an_honest_environment_with_tools_is_clean():
    """In other processes too, and over the tasks that the report says."""
    report = check(Quiz(), tasks=3)
    assert report.clean, "\n".join(map(str, report.findings))
    assert report.tasks == 3


def test_an_environment_with_tools_is_never_clean_over_no_task():
    """Whether there is none, or the check is left out."""

    class Empty(Quiz):
        def tasks(self):
            return []

        task = rlvr.Environment.task

    assert not check(Empty()).clean
    assert not check(Quiz(), skip=("episodes",)).clean


class Stuck(Guess):
    """It does not come back from a long turn."""

    def user(self, task, transcript):
        while len(transcript[-1]["content"]) > 100_000:
            time.sleep(0.01)
        return super().user(task, transcript)


def test_a_user_that_hangs_is_a_hole(monkeypatch):
    """The policy's own turn made it, so its episode is WRONG."""
    monkeypatch.setattr("rlvr.environment.tool_episode._OWN_S", 0.3)
    assert breaches(Stuck(call_seconds=0.1)) == {"hang"}


class Nameless(rlvr.Environment):
    """Guess a number that stands in the state, under a name that says nothing."""

    numbers = itertools.count(1)

    def task(self, index):
        return rlvr.Task(f"{self.id}/{index}", "Guess 1 to 100.", meta={"seed": index})

    def setup(self, task):
        return SimpleNamespace(s=rlvr.seeded(self.id, task.meta["seed"]).randint(1, 100))

    def final(self, task, state):
        return state.s

    def verify(self, task, episode):
        return judged(episode.answer.strip() == str(episode.final))


class Shows(Nameless):
    def user(self, task, transcript):
        return f"No (debug {self.setup(task).s})."


class Chance(Nameless):
    """Its replies agree whatever the number is."""

    def setup(self, task):
        return SimpleNamespace(s=next(self.numbers))


@pytest.mark.parametrize(("cls", "hole"), [(Shows, "secret"), (Chance, "nondeterministic")])
def test_what_decides_an_episode_is_found_by_what_it_pays(cls, hole):
    """Whatever its name is: it differs by task, and is paid as an answer."""
    assert breaches(cls()) == {hole}
    assert breaches(Nameless()) == set()


class Bought(rlvr.Environment):
    """Its verdict is the text of a file of the session, which a script may write."""

    outputs = ("**.txt",)

    def task(self, index):
        return rlvr.Task(f"bought/{index}", "Compute 6 * 7, and write whether you did to done.txt.")

    def setup(self, task):
        return sandbox(Limits(cpu_s=2.0, memory_mib=256)).session("bash")

    def tools(self, state):
        return [bash(state)]

    def grade(self, task, box):
        return {"done.txt": box.text("done.txt")}

    def verify(self, task, episode):
        return judged((episode.final or {}).get("done.txt") == "True\n")


def test_a_verdict_that_scripts_can_buy_is_a_hole():
    """At least thirty are tried, adapted to the files that the prompt names."""
    assert len(SCRIPTS) + len(PROGRAMS) >= 50
    found = cheat_breaches(Bought(), Bought().task(0), played)
    assert [(hole, got.partition(":")[0]) for hole, _, _, got in found] == [
        ("bought", "answers with True")
    ]


@pytest.mark.slow
def test_no_script_is_paid_in_ours():
    """Nor makes an episode UNSCORED."""
    for name in ("bash-v1", "python-tool-math-v4"):
        env = rlvr.make(name)
        assert not list(cheat_breaches(env, env.task(0), played)), name
