"""`check` over episodes: planted holes of several turns are found, honest environments are clean."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

import pytest

import rlvr
from rlvr.environment.deprecated import MultiTurnEnv
from rlvr.testing import check
from rlvr.testing.episodes import episode_breaches, greedy_breaches
from rlvr.testing.findings import Severity
from rlvr.testing.tool_episodes import tool_breaches
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
    if not env.scores_itself:
        found = tool_breaches(env, [env.task(index) for index in range(3)])
    else:
        found = [*episode_breaches(env, 0), *greedy_breaches(env, 0)]
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


class Told(Guess):
    """The info of reset tells the secret."""

    def reset(self, *, seed=None, options=None):
        told, _ = super().reset(seed=seed, options=options)
        return told, {"debug": self._secret}


class Listed(Guess):
    """An action may hold many guesses."""

    def step(self, action):
        return super().step(str(self._secret) if str(self._secret) in action.split() else action)


class Endless(Guess):
    """It goes on."""

    turns: int = 10**9


class Twice(Guess):
    """A step with a word earns, each time."""

    def step(self, action):
        told, reward, *rest = super().step(action)
        return told, 0.5 if "look" in action else reward, *rest


class Long(Guess):
    """Says much."""

    def step(self, action):
        told, *rest = super().step(action)
        return told * 100_000, *rest


GAMES = {
    Told: "secret",
    Listed: "hedge",
    Endless: "episode",
    Twice: "collected-twice",
    Long: "long-reply",
}


@pytest.mark.parametrize("cls", GAMES, ids=lambda cls: cls.__name__)
def test_a_planted_hole_of_a_game_is_found(cls):
    """In episodes of Gymnasium's form too."""
    assert GAMES[cls] in breaches(cls())


class Nameless(MultiTurnEnv):
    """Guess a number that stands under a name that says nothing."""

    def reset(self, *, seed=None, options=None):
        self._s, self._t = rlvr.seeded(self.id, seed or 0).randint(1, 100), 0
        return "Guess 1 to 100.", {}

    def step(self, action):
        self._t += 1
        right = action.strip() == str(self._s)
        verdict = rlvr.Verdict("correct" if right else "wrong", why="guessed")
        score = rlvr.Score(verdict.value, {"correct": verdict.value}, verdict)
        return "", verdict.value, right or self._t == 5, False, {"score": score}


class Shows(Nameless):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return f"Guess 1 to 100 (debug {self._s}).", {}


class Unseeded(Nameless):
    """Its replies agree whatever the number is."""

    numbers = itertools.count(1)

    def reset(self, *, seed=None, options=None):
        told = super().reset(seed=seed)
        self._s = next(self.numbers)
        return told


@pytest.mark.parametrize(("cls", "hole"), [(Shows, "secret"), (Unseeded, "nondeterministic")])
def test_what_decides_an_episode_is_found_by_what_it_pays(cls, hole):
    """Whatever its name is: it differs by seed, and is paid as an action."""
    assert breaches(cls()) == {hole}
    assert breaches(Nameless()) == set()
