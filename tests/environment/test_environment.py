"""The contract of environments: tasks by index, verdicts, scores, reset and step."""

import itertools
import pickle
import random
from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
import pytest

import rlvr
from rlvr import (
    Completion,
    Correct,
    Environment,
    Format,
    Overlong,
    RelativeLength,
    Task,
    Verdict,
)
from tests.environments import Sums, Words
from tests.rewards.parts import refusal

# ------------------------------------------------------------------------------------------ tasks


def test_a_finite_set_is_addressed_by_index():
    """tasks() is all of them, task(i) the same one, size how many."""
    env = Words()
    assert list(env.tasks()) == [env.task(i) for i in range(3)]
    assert env.size == 3


@pytest.mark.parametrize("index", [3, -1, 10**30])
def test_an_index_beyond_the_last_is_an_index_error(index: int):
    """With the number there are, and of what."""
    assert refusal(lambda: Words().task(index), IndexError) == (
        f"Words has 3 tasks in split 'train'; there is no task {index}"
    )


def test_a_generator_never_ends():
    """Its size is None, and tasks() goes on."""
    env = Sums()
    assert env.size is None
    assert [task.id for task in itertools.islice(env.tasks(), 3)] == [
        "Sums/train/0",
        "Sums/train/1",
        "Sums/train/2",
    ]
    assert env.task(10**12) == Sums().task(10**12)
    assert env.task(np.int64(3)) == env.task(3)
    assert env.task(0) != Sums(split="test").task(0)


def test_tasks_are_found_by_id_or_index():
    """As rows of completions name them; a generator's ids end in the index."""
    assert (
        Words().find("words/train-2")
        == Words().find(2)
        == Words().find(np.int64(2))
        == Words().task(2)
    )
    assert Sums().find("Sums/train/7") == Sums().find(7) == Sums().task(7)


@pytest.mark.parametrize("env", [Words(), Sums()], ids=["finite", "generator"])
@pytest.mark.parametrize(
    "task",
    [
        "words/train-3", "", "2", "Sums/test/7", "Sums/train/07", "Sums/train/٧", "Sums/train/-1",
        "Sums/train/" + "9" * 5000, None, 1.0, -1, True, [1],
    ],
)  # fmt: skip
def test_a_task_that_is_not_there_is_a_lookup_error(env: Environment, task: Any):
    """An error of that row alone: other rows of the file may be fine."""
    with pytest.raises(LookupError, match="has no task"):
        env.find(task)


def test_ids_are_unique():
    """A record is found by them."""

    class Twice(Words):
        def tasks(self) -> Iterable[Task]:
            return [Task("same", "1"), Task("same", "2")]

    assert (
        refusal(lambda: Twice().task(0))
        == "Twice: two tasks have the id 'same'; ids must be unique"
    )


def test_tasks_are_tasks():
    """Not the rows they were made from."""

    class Rows(Words):
        def tasks(self) -> Iterable[Any]:
            return [Task("t", "1"), {"prompt": "2"}]

    assert refusal(lambda: Rows().size) == (
        "Rows.tasks(), number 1, gave dict {'prompt': '2'}; it must give Task(id, prompt, …)"
    )


def test_a_forgotten_return_is_told():
    """A task by index, which rows of completions name, and the set of them; in a mixture too."""

    class Forgetful(Sums):
        def task(self, index: int) -> Task:
            return None  # type: ignore[return-value]

    class Lost(Words):
        def tasks(self) -> Iterable[Task]:
            return None  # type: ignore[return-value]

    for task in (0, "Forgetful/train/0"):
        assert refusal(lambda task=task: Forgetful().find(task)) == (
            "Forgetful.task(0) gave NoneType None; it must give Task(id, prompt, …)"
        )
    assert refusal(lambda: Lost().size) == (
        "Lost.tasks() gave NoneType None; it must give Task(id, prompt, …)"
    )
    assert "Forgetful.task(0) gave NoneType None" in refusal(
        lambda: rlvr.Mixture(envs=[Forgetful(), Words()]).find(0)
    )


@pytest.mark.parametrize("name", ["task", "tasks", "verify", "score"])
def test_a_value_in_the_place_of_a_method_is_refused(name: str):
    """Where the class is made: later it would be a TypeError of ours."""
    assert refusal(lambda: type("Values", (Words,), {name: [1]})) == (
        f"Values.{name} is list [1]; it must be a method: def {name}(self, …)"
    )


def test_an_environment_without_tasks_says_what_to_define():
    """Neither tasks nor task."""

    class Empty(Environment):
        pass

    message = "Empty has no tasks: define tasks(self), or task(self, index) for a generator"
    assert refusal(lambda: Empty().tasks()) == message
    assert refusal(lambda: Empty().task(0)) == message


def test_the_data_is_read_once():
    """And stays at home when the environment is shipped."""
    reads = []

    class Counted(Words):
        def tasks(self) -> Iterable[Task]:
            reads.append(1)
            return super().tasks()

    env = Counted()
    env.task(0), env.task(1), env.size, env.find("words/train-1")
    assert len(reads) == 1
    assert len(pickle.dumps(Words(count=1000).without_tasks())) < 500
    assert env.task(2).reference == "train-2"


# ----------------------------------------------------------------------------- verdicts and rewards


def test_the_reward_of_a_subclass_replaces_its_parents():
    """And the parent keeps its own."""

    class Formatted(Words):
        reward = Correct() + 0.5 * Format(str.islower)

    assert Formatted().score(Words().task(0), "train-0").parts == {"correct": 1.0, "format": 0.5}
    assert Words().score(Words().task(0), "train-0").parts == {"correct": 1.0}


def test_with_reward_leaves_the_original_alone():
    """Also its episode: the copy begins one of its own."""
    env = Words()
    first = env.reset(seed=1)
    other = env.with_reward(2 * env.reward)
    assert (str(env.reward), str(other.reward), str(Words.reward)) == (
        "correct",
        "2 * correct",
        "correct",
    )
    assert "step before reset" in refusal(lambda: other.step("x"))
    assert other.reset(seed=1) == first
    other.reset(), other.reset()
    fresh = Words()
    fresh.reset(seed=1)
    assert [env.reset() for _ in range(5)] == [fresh.reset() for _ in range(5)]
    assert other.task(0) == env.task(0)
    assert str(other.with_reward(Correct()).reward) == "correct"


@pytest.mark.parametrize("reward", [0.5, None, Correct, str.isascii])
def test_a_reward_is_made_of_parts(reward: Any):
    """Said when the class is written."""
    message = "make it of parts such as Correct() and Format(…)"
    assert message in refusal(lambda: Words().with_reward(reward))
    assert message in refusal(lambda: type("Odd", (Words,), {"reward": reward}))


def test_there_is_one_source_of_the_verdict():
    """A verifier beside verify would never be asked."""
    assert (
        "Words defines verify, and its reward correct(str.__eq__) names a verifier too"
        in refusal(lambda: Words().with_reward(Correct(str.__eq__)))
    )


def test_without_verify_or_verifier_nothing_can_be_told():
    """Both ways out are in the message."""

    class Mute(Words):
        verify = Environment.verify

    assert (
        "Mute cannot tell right from wrong: define verify(self, task, completion), or name a verifier"
        in refusal(lambda: Mute().score(Mute().task(0), "x"))
    )


@pytest.mark.parametrize("said", [True, None, "correct", 1.0])
def test_verify_returns_a_verdict(said: Any):
    """A function may say yes or no, an environment gives its reason."""
    odd = type("Odd", (Words,), {"verify": lambda self, task, completion: said})()
    assert f"Odd.verify returned {type(said).__name__} {said!r}; it must be a Verdict" in refusal(
        lambda: odd.score(odd.task(0), "x")
    )


def test_a_failure_of_ours_has_no_total():
    """UNSCORED from verify passes through every part."""
    lost = Verdict("unscored", why="judge-down: no route")
    env = type("Lost", (Words,), {"verify": lambda self, task, completion: lost})()
    score = env.with_reward(Correct() + Overlong(10, 5)).score(env.task(0), "x")
    assert (score.total, score.parts, score.verdict) == (None, {}, lost)
    env.reset(seed=0)
    assert (
        "verify returned UNSCORED (judge-down: no route); here it has to raise instead"
        in refusal(lambda: env.step("x"))
    )


def test_what_the_environment_raises_comes_through():
    """Here and now; it is the Scorer that turns it into UNSCORED."""

    class Broken(Words):
        def verify(self, task: Task, completion: str) -> Verdict:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        Broken().score(Broken().task(0), "x")


@pytest.mark.parametrize("completion", [None, 5, b"train-0", ["train-0"]])
def test_a_completion_is_text(completion: Any):
    """Or a Completion."""
    with pytest.raises(TypeError, match=r"the completion is .*; it must be a string"):
        Words().score(Words().task(0), completion)


def test_lengths_come_with_the_completion():
    """0.5 * Overlong(10, 5) at 8 tokens: 0.5 * (5 - 8) / 5."""
    env = Words().with_reward(Correct() + 0.5 * Overlong(10, 5))
    score = env.score(env.task(0), Completion("train-0", length_tokens=8))
    assert score.parts == pytest.approx({"correct": 1.0, "overlong": -0.3})
    with pytest.raises(rlvr.RewardError, match="reads length_tokens"):
        env.score(env.task(0), "train-0")


def test_a_reward_that_compares_needs_the_group():
    """One alone cannot be scored, three together can."""
    env = Words().with_reward(Correct() + RelativeLength())
    assert "compares completions of one task: use score_group" in refusal(
        lambda: env.score(env.task(0), "x")
    )
    group = [Completion("train-0", 10), Completion("train-0", 20), Completion("other", 30)]
    assert [score.total for score in env.score_group(env.task(0), group)] == [1.5, 1.0, -0.5]


@pytest.mark.parametrize("completions", ["train-0", Completion("train-0")])
def test_a_group_is_a_list(completions: Any):
    """A text would be scored letter by letter."""
    assert "give it a list of completions" in refusal(
        lambda: Words().score_group(Words().task(0), completions)
    )
    assert Words().score_group(Words().task(0), []) == []


def test_environments_travel():
    """With their options, their reward and their tasks."""
    env = Words(count=2).with_reward(0.5 * Correct())
    env.task(1), env.reset(seed=4)
    again = pickle.loads(pickle.dumps(env))
    assert (again.config, again.reward, again.task(1)) == (env.config, env.reward, env.task(1))
    assert again.step("x")[4]["task"] == env.step("x")[4]["task"]


# ----------------------------------------------------------------------------------- reset and step


@pytest.mark.parametrize("env", [Words(), Sums()], ids=["finite", "generator"])
def test_a_seed_repeats_the_episodes_that_follow(env: Environment):
    """As Gymnasium's: reset(seed) begins the sequence, reset() goes on."""

    def episodes(seed: int | None) -> list[Any]:
        return [env.reset(seed=seed), *(env.reset() for _ in range(9))]

    first = episodes(5)
    assert episodes(5) == first
    assert episodes(6) != first
    assert len({info["task"] for _, info in first}) > 1
    assert episodes(None) != episodes(None)


def test_an_episode_is_one_prompt_and_one_step():
    """(observation, reward, terminated, truncated, info), and info holds the whole score."""
    env = Words()
    observation, info = env.reset(options={"index": 1})
    assert (observation, info) == (
        "Say train-1.",
        {"task": "words/train-1", "index": 1, "tools": []},
    )
    observation, reward, terminated, truncated, info = env.step("train-1")
    assert (observation, reward, terminated, truncated, info["task"]) == (
        "",
        1.0,
        True,
        False,
        "words/train-1",
    )
    assert info["score"].verdict.why == "same"


def test_a_step_takes_a_length_along():
    """Where the reward reads it: 0.5 * (5 - 8) / 5."""
    env = Words().with_reward(Correct() + 0.5 * Overlong(10, 5))
    env.reset(options={"index": 0})
    assert env.step(Completion("train-0", length_tokens=8))[1] == pytest.approx(0.7)
    env.reset(options={"index": 0})
    with pytest.raises(rlvr.RewardError, match="reads length_tokens"):
        env.step("train-0")


def test_a_step_needs_a_reset():
    """Before the first episode, and after each."""
    env = Words()
    message = "Words: step before reset; no episode is under way, call reset() for the next"
    assert refusal(lambda: env.step("x")) == message
    env.reset(), env.step("x")
    assert refusal(lambda: env.step("x")) == message


def test_reset_takes_an_index():
    """That there is no such task is said as always, also of an empty set."""
    assert refusal(lambda: Words().reset(options={"index": 3}), IndexError).endswith(
        "there is no task 3"
    )
    assert "Words has 0 tasks" in refusal(lambda: Words(count=0).reset(), IndexError)
    assert Words().reset(seed=2, options={}) == Words().reset(seed=2)


def test_gymnasium_plays_it():
    """Behind its own wrapper, which checks the order of calls and counts steps."""

    class Played(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Text(100)

        def __init__(self) -> None:
            self.inner = Words()

        def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
            super().reset(seed=seed)
            return self.inner.reset(seed=seed, options=options)

        def step(self, action: str) -> Any:
            return self.inner.step(action)

    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.wrappers.OrderEnforcing(Played()))
    env.reset(seed=3, options={"index": 2})
    *_, info = env.step("train-2")
    assert (info["episode"]["r"], info["episode"]["l"]) == (1.0, 1)


def test_the_global_generator_is_left_alone():
    """Neither read nor moved."""
    random.seed(0)
    before = random.getstate()
    Sums().task(5), Words().reset(seed=3), Words().reset()
    assert random.getstate() == before
