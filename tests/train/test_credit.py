"""From scores to an advantage for every token, by hand, for every way of giving credit that a preset names."""

import dataclasses
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rlvr
from rlvr.algo.papers import load_algorithm
from rlvr.algo.parts import Kl
from rlvr.collect import PrefixValues
from rlvr.errors import UsageError
from rlvr.train.credit import collate, credit, update_rows
from rlvr.train.update_sizes import updates_of

TASK = rlvr.Task("t", "?")


def rollout(
    length: int, total: float | None, *, mask=None, turns=(), logprobs=None
) -> rlvr.Rollout:
    outcome = "unscored" if total is None else "correct" if total > 0 else "wrong"
    return rlvr.Rollout(
        task=TASK,
        text="",
        prompt_ids=[1, 2],
        completion_ids=list(range(length)),
        completion_mask=[True] * length if mask is None else mask,
        behaviour_logprobs=[-0.5] * length if logprobs is None else logprobs,
        weights_version=0,
        turns=turns,
        score=rlvr.Score(
            total, {} if total is None else {"correct": total}, rlvr.Verdict(outcome, why="given")
        ),
    )


def judged(
    name: str, *groups: list[rlvr.Rollout], ref: float | None = None, changes=None, **more
) -> list[list[float]]:
    """Advantages under a preset; `ref` is what the reference says of every token."""
    made = [rlvr.Group(TASK, group) for group in groups]
    batch = collate(made)
    if ref is not None:
        batch = replace(batch, ref_logprobs=torch.full(batch.completion_mask.shape, ref))
    algorithm = dataclasses.replace(load_algorithm(name), **(changes or {}))
    return [
        [round(x, 5) for x in row]
        for row in credit(made, batch, algorithm, **more).advantages.tolist()
    ]


def test_a_batch_is_rows_side_by_side():
    """Group after group, padded on the right, nothing trained on in the padding."""
    batch = collate([rlvr.Group(TASK, [rollout(1, 1), rollout(3, 0, mask=[True, False, True])])])
    assert batch.completion_mask.tolist() == [[True, False, False], [True, False, True]]
    assert batch.behaviour_logprobs.tolist() == [[-0.5, 0, 0], [-0.5, -0.5, -0.5]]
    part = batch.part([0])
    assert (part.completion_mask.shape, len(part.rows), part.ref_logprobs) == ((1, 1), 1, None)


def test_every_token_has_its_completions_advantage():
    """GRPO: mean 1/2, population std 1/2: +1 and -1; padding has none."""
    assert judged("dapo", [rollout(1, 1), rollout(2, 0)]) == [[1, 0], [-1, -1]]
    assert judged("dr_grpo", [rollout(1, 1), rollout(2, 0)]) == [[0.5, 0], [-0.5, -0.5]]


def test_groups_are_judged_apart():
    """A hard task's only success is not weighed against an easy one's."""
    assert judged("dr_grpo", [rollout(1, 3), rollout(1, 1)], [rollout(1, 9), rollout(1, 9)]) == [
        [1],
        [-1],
        [0],
        [0],
    ]


def test_an_unscored_rollout_is_in_no_mean():
    """1 and 0 are judged as if they were alone; the third, masked by the collector, has no advantage."""
    found = judged("dr_grpo", [rollout(1, 1), rollout(1, 0), rollout(1, None, mask=[False])])
    assert found == [[0.5], [-0.5], [0]]


def test_a_masked_rollout_that_is_scored_is_in_the_mean():
    """Overlong filtering masks the loss alone: the siblings are judged against it."""
    assert judged("dr_grpo", [rollout(1, 1), rollout(1, 0, mask=[False])]) == [[0.5], [0]]


def test_a_penalty_in_the_reward_is_taken_from_the_score_before_it_is_judged():
    """RLOO, k1 by 0.03: row 1 has 2 tokens of -0.5 + 1.5 = 1 each, so 1 - 0.06; row 2 one token, 0 - 0.03.
    Each against the other: ± (0.94 + 0.03) = ± 0.97."""
    assert judged("rloo", [rollout(2, 1), rollout(1, 0)], ref=-1.5) == [[0.97, 0.97], [-0.97, 0]]


def test_a_penalty_per_token_is_summed_from_there_to_the_end():
    """REINFORCE++ without whitening, k1 by 0.01, d = 1: returns 1 - 0.02, 1 - 0.01; 0 - 0.01."""
    found = judged(
        "reinforce_pp", [rollout(2, 1)], [rollout(1, 0)], ref=-1.5, changes={"whiten": False}
    )
    assert found == [[0.98, 0.99], [-0.01, 0]]


def test_whitened_returns_have_mean_0_and_std_1_over_tokens():
    """1, 1 and 0 on three tokens: mean 2/3, std sqrt(2)/3: 1/sqrt(2) twice, -sqrt(2)."""
    found = judged("reinforce_pp", [rollout(2, 1)], [rollout(1, 0)], changes={"kl": None})
    assert found == [[round(1 / math.sqrt(2), 5)] * 2, [round(-math.sqrt(2), 5), 0]]


def test_magistral_normalises_each_mini_batch():
    """Centred 1, -1 and 2, -2.  Mini-batches {1, -1} and {2, -2} have std 1 and 2; together sqrt(2.5)."""
    groups = [rollout(1, 2), rollout(1, 0)], [rollout(1, 4), rollout(1, 0)]
    assert judged("magistral", *groups, minibatch_of=[0, 0, 1, 1]) == [[1], [-1], [1], [-1]]
    both = [[round(x / math.sqrt(2.5), 5)] for x in (1, -1, 2, -2)]
    assert judged("magistral", *groups, minibatch_of=[0, 0, 0, 0]) == both


def test_global_advantages_count_a_completion_once_per_token():
    """Scores 1 (2 tokens) and 0 (1 token), centred ½ and -½: mean 1/6, std sqrt(2)/3, so 1/sqrt(2) and -sqrt(2)."""
    found = judged("reinforce_pp_baseline", [rollout(2, 1), rollout(1, 0)], changes={"kl": None})
    assert found == [[round(1 / math.sqrt(2), 5)] * 2, [round(-math.sqrt(2), 5), 0]]


def test_the_batch_mean_is_a_baseline():
    """1, 0, 0, 0: mean 1/4."""
    changes = {"baseline": "batch_mean"}
    found = judged(
        "reinforce", [rollout(1, 1), rollout(1, 0)], [rollout(1, 0), rollout(1, 0)], changes=changes
    )
    assert found == [[0.75], [-0.25], [-0.25], [-0.25]]


def test_a_step_is_worth_what_it_adds_to_the_value():
    """VinePPO: values 0.25, 0.75 and the score 1 at tokens 0, 2, 3: the steps gain 0.5 and 0.25."""
    values = [
        PrefixValues((0, 2, 3), (0.25, 0.75, 1.0), (4, 4, 1)),
        PrefixValues((0, 1), (0.25, 0.0), (4, 1)),
    ]
    found = judged(
        "vineppo", [rollout(3, 1), rollout(1, 0)], values=values, changes={"whiten": False}
    )
    assert found == [[0.5, 0.5, 0.25], [-0.25, 0, 0]]


def test_what_steps_are_worth_is_whitened_over_the_tokens_that_anything_is_known_of():
    """VinePPO: 1 on two tokens, 0 on two: mean and std 1/2.  The last row has no value at its end, and keeps 0."""
    values = [
        PrefixValues((0, 2), (0.0, 1.0), (4, 1)),
        PrefixValues((0, 2), (0.0, 0.0), (4, 1)),
        PrefixValues((0, 2), (0.5, None), (4, 0)),
    ]
    found = judged("vineppo", [rollout(2, 1), rollout(2, 0), rollout(2, None)], values=values)
    assert found == [[1, 1], [-1, -1], [0, 0]]


def test_a_boundary_that_nobody_could_score_is_stepped_over():
    """Its two steps become one; without a value at an end, nothing can be said of the row at all."""
    values = [
        PrefixValues((0, 2, 3), (0.25, None, 1.0), (4, 0, 1)),
        PrefixValues((0, 1), (None, 1.0), (0, 1)),
    ]
    found = judged(
        "vineppo", [rollout(3, 1), rollout(1, 1)], values=values, changes={"whiten": False}
    )
    assert found == [[0.75, 0.75, 0.75], [0, 0, 0]]


def test_turns_with_rewards_of_their_own_are_judged_each():
    """Process supervision: rewards 1, 0 | 0, 1 have mean and std 1/2; a token has the sum of what follows it."""
    turns = (
        [rlvr.Turn(0, 1, 1.0), rlvr.Turn(2, 3, 0.0)],
        [rlvr.Turn(0, 1, 0.0), rlvr.Turn(2, 3, 1.0)],
    )
    rows = [rollout(3, 1, mask=[True, False, True], turns=of) for of in turns]
    found = judged("grpo_process", rows)
    assert found == [[0, 0, -1], [0, 0, 1]]


def test_steps_without_rewards_cannot_be_judged():
    """Said by name, and not as a batch of zeros that never learns."""
    with pytest.raises(UsageError, match="no rollout has a turn with a reward"):
        judged("grpo_process", [rollout(1, 1)])


def test_a_penalty_in_the_loss_leaves_the_scores_alone():
    """It is the update's business."""
    changes = {"kl": Kl("k3", 0.5, "loss")}
    assert judged("dr_grpo", [rollout(1, 1), rollout(1, 0)], ref=-9.0, changes=changes) == [
        [0.5],
        [-0.5],
    ]


def test_updates_are_equal_parts_of_whole_groups_in_a_seeded_order():
    """Every row once; one update has all rows in their order."""
    group = [p for p in range(20) for _ in range(8)]
    parts = update_rows(group, 16, torch.Generator().manual_seed(1))
    assert [len(part) for part in parts] == [80, 80]
    order = [row for part in parts for row in part]
    assert sorted(order) == list(range(160)) != order
    groups = [{group[row] for row in part} for part in parts]
    assert groups[0].isdisjoint(groups[1])
    assert parts == update_rows(group, 16, torch.Generator().manual_seed(1))
    assert update_rows(group, 1, torch.Generator()) == [list(range(160))]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 20))
def test_an_update_has_at_least_8_groups_and_64_rows(prompts, size, wanted):
    """A smaller batch makes fewer updates, as `updates_of` says before there is a batch."""
    group = [p for p in range(prompts) for _ in range(size)]
    parts = update_rows(group, wanted, torch.Generator().manual_seed(0))
    assert len(parts) == updates_of(prompts, size, wanted) <= wanted
    if len(parts) > 1:
        assert min(len({group[row] for row in part}) for part in parts) >= 8
        assert min(map(len, parts)) >= 64


def test_groups_of_different_sizes_are_judged_as_they_are():
    """Groups of 2 and 4: each row has the advantage that it has in a batch of its own group."""
    two = [rollout(2, 1.0), rollout(1, 0.0)]
    four = [rollout(1, 1.0), rollout(3, 0.0), rollout(1, 0.0), rollout(1, None)]
    for name in ("grpo", "dr_grpo", "rloo"):
        together = judged(name, two, four, ref=-0.5)
        apart = [*judged(name, two, ref=-0.5), *judged(name, four, ref=-0.5)]
        assert [row[: len(want)] for row, want in zip(together, apart, strict=True)] == apart


def test_absent_rollouts_are_in_no_mean_of_the_batch():
    """REINFORCE with the batch's mean, 3 of 5 right: 0.4 for a right one, -0.6 for a wrong one."""
    both = judged("reinforce_pp", [rollout(1, 1.0)], [rollout(1, 1.0), rollout(1, 0.0)], ref=0.0)
    wide = judged("reinforce_pp", [rollout(1, 1.0), rollout(1, 1.0), rollout(1, 0.0)], ref=0.0)
    assert both == wide
