"""Alarms for what would go wrong silently, and the second opinion."""

import pytest
import torch

import rlvr
from rlvr.errors import UsageError
from rlvr.train.alarm import Alarms, OpinionAlarm, RewardsDisputed, SecondOpinion, lr_alarm
from tests.json_lines import read_json_lines
from tests.train.bandit import run_to_end, trainer
from tests.train.test_credit import rollout


def test_an_alarm_is_said_once_and_again_if_it_comes_back():
    """After three steps in a row; a good step begins the count anew."""
    alarms, silent, good = Alarms(3), {"updates": 0.0, "accuracy": 0.0}, {"updates": 1.0}
    said = [alarms.check(numbers) for numbers in [*[silent] * 5, good, *[silent] * 3]]
    assert [len(lines) for lines in said] == [0, 0, 1, 0, 0, 0, 0, 0, 1]
    assert "no weight was changed" in said[2][0]
    assert "rlvr filter" in said[2][0]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"truncated": 1.0, "updates": 1.0}, "the end token was never sampled"),
        ({"entropy": 1e-4, "updates": 1.0}, "it has collapsed"),
        ({"updates": 0.0}, "no completion had an advantage"),
        ({"updates": 0.0, "reward_std": 0.0}, "no completion had an advantage"),
        (
            {"updates": 2.0, "reward_std": 0.0, "reward": 1.0, "value_loss": 0.1},
            "the same reward, 1: what moves",
        ),
    ],
)
def test_each_alarm_has_a_reason_and_a_remedy(numbers, words):
    """One line; healthy numbers, and those of a critic's warm-up, give none."""
    [line] = Alarms(1).check(numbers)
    assert words in line
    assert line.startswith("alarm: in 1 steps in a row")
    assert (
        Alarms(1).check({"updates": 2.0, "truncated": 0.9, "entropy": 0.5, "reward_std": 0.1}) == []
    )
    assert Alarms(1).check({"updates": 0.0, "value_loss": 0.1}) == []


def test_a_learning_rate_that_wipes_out_the_weights_is_said():
    """AdamW moves each weight by about lr in a step."""
    weights = [torch.full((4,), 0.02), torch.full((2,), -0.02)]
    assert "lr is 1e+06, and the trained weights are 0.02 on average" in lr_alarm(weights, 1e6)
    assert lr_alarm(weights, 1e-3) is None


def test_a_run_that_learns_nothing_says_so(tmp_path, capsys):
    """All rewards are equal under dr_grpo: 4 steps, no update, one line."""

    class Hopeless(rlvr.Environment):
        def task(self, index):
            return rlvr.Task(f"{self.split}/{index}", f"{index % 40}=", reference="")

        def verify(self, task, completion):
            return rlvr.Verdict("wrong", why="always")

    run_to_end(tmp_path / "run", env=Hopeless(), algorithm="dr_grpo", quietly=False, lr=1e6)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("no weight was changed") == 1
    assert said.count("lr is 1e+06") == 1


def test_a_second_opinion_ends_a_run_whose_rewards_it_does_not_confirm(tmp_path):
    """A verifier that pays for a digit below 5, and one that wants a 0: what differs is kept, with both reasons."""
    opinion = SecondOpinion(
        lambda completion, reference: completion[:1] == "0", share=1.0, limit=0.2, least=16
    )
    with (
        pytest.raises(
            RewardsDisputed,
            match=r"differs on \d+ of the last \d+ rollouts, above the limit of 0\.2",
        ),
        trainer(tmp_path / "run", second_opinion=opinion, steps=9) as made,
    ):
        made.run()
    rows = read_json_lines(tmp_path / "run" / "disagreements.jsonl")
    assert {(row["first"], row["second"]) for row in rows} == {("correct", "wrong")}


def test_a_second_opinion_that_agrees_or_fails_ends_nothing(tmp_path):
    """Async ones are awaited; what raises, or is unscored, is no opinion.  The same rollouts are asked on a resume."""
    group = [rlvr.Group(rlvr.Task("t", "?"), [rollout(1, 1.0), rollout(1, 0.0), rollout(1, None)])]

    async def agrees(completion, reference):
        return rlvr.Verdict("correct", why="")

    def fails(completion, reference):
        raise RuntimeError("no endpoint")

    path = tmp_path / "disagreements.jsonl"
    one = OpinionAlarm(SecondOpinion(agrees, share=1.0, limit=1.0), path, seed=0)
    assert one.check(group, 1) == {
        "second/compared": 2,
        "second/disagrees": 1,
        "second/unscored": 0,
    }
    assert list(one.recent) == [(False, False), (True, False)]
    two = OpinionAlarm(SecondOpinion(fails, share=1.0), path, seed=0)
    assert two.check(group, 1) == {
        "second/compared": 0,
        "second/disagrees": 0,
        "second/unscored": 2,
    }
    half = [
        OpinionAlarm(SecondOpinion(agrees, share=0.5, limit=1.0), path, seed=0) for _ in range(2)
    ]
    assert half[0].check(group * 20, 7) == half[1].check(group * 20, 7)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"share": 0.0}, "share is 0"), ({"limit": 2}, "limit is 2"), ({"window": 9}, "window is 9")],
)
def test_an_opinion_that_cannot_work_is_refused(wrong, words):
    """Where it is written."""
    with pytest.raises(UsageError, match=words):
        SecondOpinion(lambda completion, reference: True, **wrong)
    with pytest.raises(UsageError, match="is no verifier"):
        SecondOpinion("mine")


@pytest.mark.parametrize("begins", [0, 2000])
def test_a_hack_is_seen_as_soon_late_as_early(tmp_path, begins):
    """Counted over the whole run, 2,000 good steps hid a hack for 498 more (share 0.1 of 128 rollouts)."""
    opinion = SecondOpinion(lambda completion, reference: False, limit=0.2)
    made = OpinionAlarm(opinion, tmp_path / "disagreements.jsonl", seed=0)
    made.recent.extend([(False, False)] * min(begins * 12, opinion.window))
    hacked = [rlvr.Group(rlvr.Task("t", "?"), [rollout(1, 1.0) for _ in range(128)])]

    def check_steps() -> None:
        for step in range(1, 16):
            made.check(hacked, begins + step)

    with pytest.raises(RewardsDisputed):
        check_steps()


def test_an_opinions_window_continues_on_a_resume(tmp_path):
    """What counts is stored; the sums of older checkpoints say nothing of a window."""
    opinion, path = SecondOpinion(lambda completion, reference: True), tmp_path / "d.jsonl"
    first, then = (OpinionAlarm(opinion, path, seed=0) for _ in range(2))
    first.recent.extend([(True, False), (False, False)])
    then.load_state_dict([500, 3, 1])
    assert not then.recent
    then.load_state_dict(first.state_dict())
    assert then.recent == first.recent


def test_a_clip_that_never_acts_is_said_after_20_steps():
    """Only where there is one, and where a batch makes several updates: at ratio 1 it cannot act."""
    idle = {"updates": 2.0, "clipped_low": 0.0, "clipped_high": 0.0, "clipped_dual": 0.0}
    for clips, numbers, count in (
        (True, idle, 1),
        (False, idle, 0),
        (True, idle | {"updates": 1.0}, 0),
        (True, idle | {"clipped_high": 0.01}, 0),
    ):
        alarms = Alarms(3, clips=clips)
        said = [line for _ in range(25) for line in alarms.check(numbers)]
        assert sum("no token was clipped" in line for line in said) == count
