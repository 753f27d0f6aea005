"""Answers that a group has several times are worth less: `--novelty`."""

from types import SimpleNamespace

import pytest

from rlvr.algo.papers import load_algorithm
from rlvr.errors import UsageError
from rlvr.train.novelty import AnswerNovelty
from rlvr.train.rollout_batch import RolloutBatch
from rlvr.types import Group, Outcome, Rollout, Score, Task, Verdict

TASK = Task("t", "2 + 2 = ", reference="4")


def rollout(answer: str | None, total: float | None) -> Rollout:
    if total is None:
        score = Score(None, {}, Verdict(Outcome.UNSCORED, why="ours"))
    else:
        outcome = Outcome.CORRECT if total else Outcome.WRONG
        score = Score(total, {"correct": total}, Verdict(outcome, why="", answer=answer))
    return Rollout(TASK, "", (1,), (2,), (True,), (-1.0,), 0, score=score)


def test_each_repeated_answer_costs_a_share():
    """c = 0.8, G = 5: "4" three times, so each of these loses 0.8 / 5 for each of two others."""
    said = [("4", 1.0), ("4", 1.0), ("5", 0.0), ("4", 1.0), (None, 0.0)]
    group = Group(TASK, [*(rollout(*one) for one in said)])
    part = AnswerNovelty(SimpleNamespace(algorithm=load_algorithm("grpo", novelty=0.8)))
    [found] = part.extend(RolloutBatch([group], None, {}, {}, 0.0), 0, None).groups
    totals = [one.score.total for one in found.rollouts]
    assert totals == pytest.approx([0.68, 0.68, 0.0, 0.68, 0.0])
    assert found.rollouts[0].score.parts == pytest.approx({"correct": 1.0, "novelty": -0.32})


def test_what_was_not_scored_stays_so():
    """Our fault is no answer, and counts among nobody's."""
    group = Group(TASK, [rollout(None, None), rollout("4", 1.0)])
    part = AnswerNovelty(SimpleNamespace(algorithm=load_algorithm("grpo", novelty=1.0)))
    [found] = part.extend(RolloutBatch([group], None, {}, {}, 0.0), 0, None).groups
    assert [one.score.total for one in found.rollouts] == [None, 1.0]


@pytest.mark.parametrize(
    ("name", "numbers", "says"),
    [
        ("grpo", {"novelty": -1.0}, "novelty is -1.0"),
        ("grpo", {"likelihood": -1.0}, "likelihood is -1.0"),
        ("ppo", {"group_weight": 0.5}, "group_weight is 0.5, and a group of one"),
        ("dapo", {"aggregation": "constant"}, "aggregation is str 'constant'"),
    ],
)
def test_numbers_that_cannot_work_are_refused(name, numbers, says):
    """By value, rule and way out."""
    with pytest.raises(UsageError, match=says):
        load_algorithm(name, **numbers)
