"""Mixtures: every task is one of an environment's own, with that environment's verdict and reward."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlvr
from rlvr.environment.registry import is_mixture
from rlvr.scoring.records import provenance
from tests.environments import Measured, Trials, Words
from tests.rewards.parts import refusal


def rows(
    count: int, name: str = "rows", verifier=lambda completion, reference: completion == reference
):
    """An environment with this many tasks, whose answers are their numbers."""
    tasks = [{"prompt": f"Say {i}.", "reference": str(i)} for i in range(count)]
    return rlvr.Environment.from_rows(tasks, verifier=verifier, id=name)


def test_tasks_go_round_until_an_environment_has_no_more():
    """One of each in turn."""
    env = rlvr.Mixture(envs=[rows(1, "a"), rows(3, "b"), rows(2, "c")])
    assert [task.id for task in env.tasks()][3] == "b:b/train/1"
    with pytest.raises(IndexError, match="has 6 tasks"):
        env.task(6)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.booleans(), st.integers(1, 4))
def test_tasks_are_dealt_out_in_rounds(sizes, endless, limit):
    """`number` is the inverse of `locate`; the first of each come first, so that an evaluation is a range."""
    shares = [rlvr.Share(rows(size), name=f"e{i}") for i, size in enumerate(sizes)]
    if endless:
        shares.append(rlvr.Share(Trials(), name="endless"))
    env = rlvr.Mixture(envs=shares)
    known = {f"e{i}": size for i, size in enumerate(sizes)} | ({"endless": 8} if endless else {})
    order = [(name, turn) for turn in range(8) for name, size in known.items() if turn < size]
    assert [env.locate(i) for i in range(len(order))] == order
    assert [env.number(*place) for place in order] == list(range(len(order)))
    assert env.size == (None if endless else sum(sizes))
    assert env.first(limit) == sum(min(limit, size) for size in known.values())
    assert all(turn < limit for _, turn in order[: env.first(limit)])


def test_each_completion_is_judged_by_its_own_environment():
    """The same text is right for one and wrong for the other, in a worker too; a reward may read the length."""
    env = rlvr.Mixture(envs=[rows(2), Measured()])
    first, second = env.task(0), env.task(1)
    assert env.score(first, rlvr.Completion("0", 9)).total == 1
    assert env.score(second, rlvr.Completion("0", 9)).total == pytest.approx(
        0.2
    )  # 4 of the 5 tokens of the cache
    assert env.reward.needs_length
    assert env.reward.bounds == (-1, 1)
    with rlvr.Scorer(env, workers=1) as scorer:
        assert scorer.score(second, rlvr.Completion("0 ", 1)).parts == {
            "correct": 1.0,
            "overlong": 0.0,
        }
        row = {"task": "rows:rows/train/1", "completion": "1", "length_tokens": 3}
        [scored] = scorer.stream([row])
    assert scored.score.verdict.correct


def test_rewards_that_compare_a_group_stay_with_their_environment():
    """RelativeLength sees the two completions of its own task; the other environment's are scored alone."""
    relative = Trials().with_reward(rlvr.Correct() + rlvr.RelativeLength())
    env = rlvr.Mixture(envs=[rlvr.Share(relative, name="a"), rlvr.Share(Trials(), name="b")])
    pair = [rlvr.Completion("0", 2), rlvr.Completion(" 0", 4)]
    assert [s.total for s in env.score_group(env.task(0), pair)] == [1.5, 0.5]
    assert [s.total for s in env.score_group(env.task(1), pair)] == [1.0, 1.0]


def test_an_async_environment_makes_the_mixture_async():
    """Its verdict is awaited, and that of the other is not."""

    async def judge(completion, reference):
        return completion == reference

    env = rlvr.Mixture(envs=[rows(1, "waits", judge), rows(1)])
    assert env.is_async
    assert [env.score(env.task(i), "0").total for i in (0, 1)] == [1.0, 1.0]


def test_a_record_makes_the_same_mixture_again():
    """Its options as JSON are enough, whatever the form in which they were given."""
    line = "arithmetic-v1:0.5,difficulty=4,group_size=16 arithmetic-v1:2,name=easy,max_tokens=64"
    env = rlvr.make(line, temperature=2.0, curriculum={"delay": 7})
    run = provenance(env, line)
    again = rlvr.make(run["env"], **json.loads(json.dumps(run["config"])))
    assert again.config == env.config
    assert [again.task(i) for i in range(4)] == [env.task(i) for i in range(4)]
    assert rlvr.make("mixture-v1", **run["config"]).shares.keys() == {"arithmetic-v1", "easy"}
    assert (env.shares["arithmetic-v1"].group_size, env.shares["easy"].max_tokens) == (16, 64)
    assert env.weights["easy"] == pytest.approx(2 / 3)  # sqrt(2) / (sqrt(0.5) + sqrt(2))


def test_the_split_is_that_of_every_environment():
    """Evaluation tasks of a mixture are those of its environments."""
    env = rlvr.make("arithmetic-v1:1 arithmetic-v1:1,name=more,difficulty=3", split="test")
    assert {env.env_of(name).split for name in env.shares} == {"test"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("arithmetic-v1:-1", "the weight of arithmetic-v1 is -1.0; it must be a number above 0"),
        (
            "arithmetic-v1:0 gsm8k-v4:1",
            "the weight of arithmetic-v1 is 0.0; it must be a number above 0",
        ),
        ("arithmetic-v1:1 arithmetik-v1:1", "no environment 'arithmetik-v1'"),
        ("arithmetic-v1:1 gsm8k-v4", "'gsm8k-v4' in a mixture: write ENV:WEIGHT"),
        (
            "arithmetic-v1:1,level=3",
            "'arithmetic-v1:1,level=3' in a mixture: an option of arithmetic-v1 is 'level'",
        ),
        (
            "arithmetic-v1:1,difficulty",
            "'arithmetic-v1:1,difficulty' in a mixture: 'difficulty' is no NAME=VALUE",
        ),
        ("arithmetic-v1:1,group_size=0", "group_size of arithmetic-v1 is 0"),
        (
            "arithmetic-v1:1 arithmetic-v1:2",
            "two environments of the mixture are named 'arithmetic-v1'",
        ),
        ("mixture-v1:1", "a mixture needs environments"),
    ],
)
def test_one_clear_error(line, said):
    """It names the environment and the rule."""
    assert is_mixture(line)
    assert refusal(lambda: rlvr.make(line)).startswith(said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"envs": ()}, "a mixture needs environments"),
        ({"envs": [3]}, "a mixture holds int 3"),
        (
            {"envs": [{"weight": 1}]},
            "envs holds dict {'weight': 1}, which names no environment in 'env'",
        ),
        ({"envs": [{"env": "arithmetic-v1", "wait": 1}]}, "envs has no field 'wait'"),
        (
            {"envs": ["arithmetic-v1"], "temperature": 0},
            "temperature is 0; it must be a number above 0",
        ),
        (
            {"envs": ["arithmetic-v1"], "curriculum": {"solved": 0.2, "hopeless": 0.3}},
            "solved is 0.2 and hopeless",
        ),
        ({"envs": ["arithmetic-v1"], "curriculum": {"rest": 0}}, "rest is 0"),
        ({"envs": ["arithmetic-v1"], "curriculum": 3}, "curriculum is int 3"),
    ],
)
def test_bad_options_are_refused(options, said):
    """In Python too."""
    assert refusal(lambda: rlvr.Mixture(**options)).startswith(said)


def test_a_mixture_of_a_mixture_is_refused():
    """Its weights would be two numbers for one share."""
    assert "is a mixture itself" in refusal(
        lambda: rlvr.Mixture(envs=[rlvr.Mixture(envs=[Words()])])
    )


def test_a_reward_is_changed_by_environment():
    """A mixture has no reward of its own to add to."""
    env = rlvr.Mixture(envs=[rows(1), Trials()])
    assert refusal(lambda: env.with_reward(rlvr.Correct())).startswith(
        "a mixture has the rewards of its environments"
    )
    half = env.each(lambda share, own: own.with_reward(0.5 * own.reward))
    assert half.score(half.task(0), "0").total == 0.5
    assert env.score(env.task(0), "0").total == 1.0


def test_a_path_with_spaces_and_a_place_are_no_mixtures():
    """Only a piece that ends in a weight makes one."""
    assert not any(map(is_mixture, ["my envs/sums.py:Sums", "gsm8k-v4", "module:Class", "a b"]))


def test_reset_and_step_play_a_task_of_the_mixture():
    """Its name is the mixture's, and its score that of its own environment."""
    env = rlvr.make("arithmetic-v1:0.5 kk-v4:0.5")
    for seed in range(4):
        _, info = env.reset(seed=seed)
        task = env.find(info["task"])
        _, reward, ended, _, after = env.step(env.example(task))
        assert (reward, ended, after["task"]) == (1.0, True, task.id)
