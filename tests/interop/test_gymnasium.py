"""Gymnasium's side of the adapters: its own checker, its vector conventions, and the same scores as everywhere."""

import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import rlvr
from rlvr.interop import to_gymnasium
from rlvr.interop.gymnasium import Texts
from tests.environments import Measured, Siblings, Trials


class Chat(Trials):
    """The same tasks with a prompt in messages."""

    def task(self, index: int) -> rlvr.Task:
        asked = [
            {"role": "system", "content": "Count."},
            {"role": "user", "content": f"Say {index}."},
        ]
        return rlvr.Task(f"chat/{index}", asked, reference=index)


class Countdown(rlvr.Environment):
    """Say the number below the last one, until 0."""

    def task(self, index):
        first = rlvr.seeded(self.id, self.split, index).randint(1, 5)
        return rlvr.Task(f"{self.id}/{self.split}/{index}", f"{first}", first)

    def user(self, task, transcript):
        said = transcript[-1]["content"]
        return said if said in self._right(task, len(transcript)) and said != "0" else None

    def verify(self, task, episode):
        right = [turn.text for turn in episode.turns] == self._right(task, 9)
        return rlvr.Verdict("correct" if right else "wrong", why="counted")

    @staticmethod
    def _right(task, most):
        return [str(n) for n in range(task.reference - 1, -1, -1)][:most]


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Its checker wishes for an environment in Gymnasium's registry, and says so as a warning."""
    monkeypatch.setattr(gymnasium.logger, "min_level", gymnasium.logger.ERROR)


@pytest.mark.parametrize("env", [Trials(), Chat(), Countdown()], ids=["text", "messages", "turns"])
def test_gymnasiums_own_checker_is_content(env):
    """Spaces, seeds, determinism, types, and nothing returned twice."""
    made = to_gymnasium(env)
    check_env(made)
    made.close()
    made.close()


def test_a_seed_gives_the_environments_own_episode():
    """The same seed gives the same episodes through both interfaces."""
    env, made = Trials(), to_gymnasium(Trials())
    for seed in range(3):
        assert made.reset(seed=seed) == env.reset(seed=seed)
    again = [made.reset(seed=1)[0], made.reset()[0], made.reset()[0]]
    assert [made.reset(seed=1)[0], made.reset()[0], made.reset()[0]] == again
    assert len(set(again)) == 3
    assert made.reset(options={"index": 7})[1]["index"] == 7


def test_the_last_steps_info_has_the_score():
    """Reward alone does not say why."""
    with_worker = to_gymnasium(Trials())
    with_worker.reset(options={"index": 7})
    _, reward, terminated, truncated, info = with_worker.step("7")
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["score"] == Trials().score(Trials().task(7), "7")
    assert (info["outcome"], info["parts"]) == ("correct", {"correct": 1.0})
    with pytest.raises(rlvr.UsageError, match="step before reset"):
        with_worker.step("7")
    with_worker.close()


def test_a_vector_scores_its_batch_and_goes_on():
    """One step per episode: the next prompts come with the rewards of the last ones."""
    vector = to_gymnasium(Trials(), num_envs=3, workers=1)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    prompts, info = vector.reset(seed=5)
    assert prompts in vector.observation_space
    assert prompts == tuple(Trials().reset(seed=seed)[0] for seed in (5, 6, 7))
    following, rewards, terminated, truncated, after = vector.step(
        [f"{i}" for i in info["index"][:2]] + ["no"]
    )
    assert rewards.tolist() == [1.0, 1.0, 0.0]
    assert (rewards.dtype, terminated.all(), truncated.any()) == (np.float64, True, False)
    assert following in vector.observation_space
    assert following != prompts
    assert after["final_info"]["task"].tolist() == info["task"].tolist()
    assert after["final_info"]["parts"]["correct"].tolist() == [1.0, 1.0, 0.0]
    for bad in (["0"], ["0"] * 4):
        with pytest.raises(rlvr.UsageError, match="for 3 environments"):
            vector.step(bad)
    with pytest.raises(rlvr.UsageError, match="for 3 environments"):
        vector.reset(seed=[1, 2])
    with pytest.raises(rlvr.UsageError, match="the text '012'"):
        vector.step("012")
    for seeds in ([5, 6, 7], (5, 6, 7), np.array([5, 6, 7]), np.int64(5)):
        assert vector.reset(seed=seeds)[0] == prompts
    vector.close()


def test_an_error_of_ours_does_not_lose_the_batch():
    """The same episodes go on: the caller may answer them again."""
    vector = to_gymnasium(Trials(), num_envs=2, workers=0)
    index = vector.reset(seed=5)[1]["index"]
    with pytest.raises(rlvr.Unscored):
        vector.step([f"{index[0]}", "@raise"])
    assert vector.step([f"{i}" for i in index])[1].tolist() == [1.0, 1.0]
    vector.close()


def number(shown):
    return int(shown if isinstance(shown, str) else shown[-1]["content"])


def test_a_vector_of_episodes_is_gymnasiums_own():
    """Several turns go side by side, each with a state of its own."""
    vector = to_gymnasium(Countdown(), num_envs=4)
    seen, _ = vector.reset(seed=0)
    for _ in range(12):
        seen, rewards, ended, _, info = vector.step([f"{number(shown) - 1}" for shown in seen])
        assert rewards.tolist() == ended.tolist()
        if ended.any():
            assert info["final_info"]["score"][ended.argmax()].verdict.correct
    vector.close()


def test_our_failure_raises_unless_told_otherwise():
    """Gymnasium has no reward that means "none"."""
    for unscored, given in ((None, None), (-1, -1.0)):
        made = to_gymnasium(Trials(), unscored=unscored)
        made.reset(seed=0)
        if given is None:
            with pytest.raises(rlvr.Unscored, match="worker-died"):
                made.step("@kill")
        else:
            _, reward, *_, info = made.step("@raise")
            assert (reward, info["outcome"]) == (given, "unscored")
        made.close()


def test_what_gymnasium_cannot_have_is_refused():
    """A step shows one completion, as text."""
    with pytest.raises(rlvr.UsageError, match="one completion at a time"):
        to_gymnasium(Siblings())
    made = to_gymnasium(Measured())
    made.reset(seed=0)
    with pytest.raises(rlvr.UsageError, match="count_tokens"):
        made.step("?")
    for env, number in ((Trials(), 0), (Countdown(), 0), (Countdown(), "3"), (Trials(), True)):
        with pytest.raises(rlvr.UsageError, match="num_envs is"):
            to_gymnasium(env, num_envs=number)
    for option in ({"unscored": 0.0}, {"workers": 2}, {"wall_s": 1.0}, {"count_tokens": len}):
        with pytest.raises(rlvr.UsageError, match="several turns"):
            to_gymnasium(Countdown(), **option)
    with pytest.raises(rlvr.UsageError, match="not an environment"):
        to_gymnasium("gsm8k-v4")


def test_every_text_is_in_the_space():
    """Gymnasium's own space of texts is over an alphabet; a model's is not."""
    texts, chats = Texts(seed=1), Texts(chat=True, seed=1)
    for text in ("", "所以 \\boxed{½}\x00", "\ud800", "a" * 1_000_000):
        assert text in texts
        assert text in chats
    assert [{"role": "user", "content": "?"}] in chats
    for other in ([], [{"role": "user"}], ["?"], 7, None, b"?"):
        assert other not in chats
    assert [{"role": "user", "content": "?"}] not in texts
    assert texts.sample() == Texts(seed=1).sample()
    assert texts == Texts()
    assert texts != chats
    assert pickle.loads(pickle.dumps(chats)) == chats
    assert texts.from_jsonable(texts.to_jsonable(["a"])) == ["a"]
