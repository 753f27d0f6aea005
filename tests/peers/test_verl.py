"""verl's reward managers ask `to_verl`; the scores come from services."""

import asyncio

import pytest

pytest.importorskip("verl", reason="verl is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # theirs

import numpy as np  # noqa: E402
import torch  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.experimental.reward_loop.reward_manager.naive import (  # noqa: E402
    NaiveRewardManager as LoopManager,
)
from verl.workers.reward_manager.naive import NaiveRewardManager  # noqa: E402

from rlvr.errors import Unscored  # noqa: E402
from rlvr.interop import to_verl  # noqa: E402
from tests.peers.digits import COUNT, UNSCORED, completion_of  # noqa: E402

STEP = 50


class Texts:
    """A tokenizer with a token for each completion."""

    def decode(self, ids, **_):
        return completion_of(int(ids[-1])) if len(ids) else ""


def batch_of(reward, indices):
    rows = [row for i, row in enumerate(reward.rows()) if i in set(indices)]
    ids = torch.tensor([[i] for i in indices])
    columns = {name: np.array([row[name] for row in rows], dtype=object) for name in (
        "data_source", "reward_model", "extra_info")}  # fmt: skip
    tensors = {"prompts": torch.zeros_like(ids), "responses": ids}
    tensors["attention_mask"] = torch.ones(len(indices), 2, dtype=torch.long)
    return DataProto.from_dict(tensors=tensors, non_tensors=columns)


def test_the_managers_rewards_are_those_of_the_command(service, env, totals):
    """The service is killed midway; what we fail at is an error of the step, and never 0."""
    rewards, indices = {}, [i for i in range(COUNT) if i not in UNSCORED]
    with to_verl(env, scorer=service.url) as reward:
        manager = NaiveRewardManager(Texts(), 0, reward)
        for start in range(0, len(indices), STEP):
            if start == 250:
                service.replace()
            chosen = indices[start : start + STEP]
            found = manager(batch_of(reward, chosen))
            rewards |= dict(zip(chosen, found.sum(-1).tolist(), strict=True))
        with pytest.raises(Unscored, match="the verifier failed"):
            manager(batch_of(reward, [sorted(UNSCORED)[0]]))
    assert service.kills == 1
    assert rewards == {i: total for i, total in totals.items() if i not in UNSCORED}


def test_the_reward_loop_scores_the_same(service, env, totals):
    """The manager of verl's asynchronous loop, which scores one at a time, many at once."""

    async def scored(reward):
        manager = LoopManager(None, Texts(), reward.acompute_score)
        batch = batch_of(reward, range(30))
        found = [manager.run_single(batch[i : i + 1]) for i in range(30)]
        return [one["reward_score"] for one in await asyncio.gather(*found)]

    with to_verl(env, scorer=service.url) as reward:
        assert asyncio.run(scored(reward)) == [totals[i] for i in range(30)]
