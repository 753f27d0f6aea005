"""A policy as small as they come, and what holds a sampler's word against the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # a folder's tests without a policy do not wait for torch
    import torch

    from rlvr.train.policy import Policy

CHARSET = "0123456789+-= abcxy"


def _make(options, **size) -> Policy:
    from rlvr.train.policy import Policy
    from rlvr.train.tiny import tiny

    return Policy(*tiny(CHARSET, hidden=32, heads=4, kv_heads=2, **size), **options)


@pytest.fixture(scope="session")
def policy():
    """Two layers in float64, where a batch and a row alone agree to 1e-12.  Not to be changed."""
    import torch

    return _make({}, dtype=torch.float64)


@pytest.fixture
def fresh():
    """Makes a policy in float32 that a test may change."""

    def make(seed: int = 0, layers: int = 2, **options) -> Policy:
        return _make(options, layers=layers, seed=seed)

    return make


@pytest.fixture
def full_logprobs():
    """Each row alone through the whole model, softmax over all of the logits: what everything is held against."""
    import torch

    def of(model, rows, temperature: float = 1.0) -> list[torch.Tensor]:
        found = []
        for row in rows:
            ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
            logits = model(input_ids=ids, use_cache=False).logits[0]
            logits = logits if logits.dtype == torch.float64 else logits.float()
            start = len(row.prompt_ids)
            all_logprobs = (logits[start - 1 : -1] / temperature).log_softmax(-1)
            found.append(all_logprobs.gather(1, ids[0, start:, None]).squeeze(1))
        return found

    return of
