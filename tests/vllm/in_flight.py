"""A run whose completions go on while the weights change, held against the policy of each version."""

import copy

import torch

from rlvr.train.loop import Trainer


def require_versions_reach_the_correction(made: Trainer, most: int = 2) -> None:
    """Train, and compare each token that is trained on with the version of the policy that it says has sampled it.

    Its behaviour log-probability is that of this version, its importance weight goes from there to the version that is
    trained, and no token is more than `most` steps old.

    Args:
        made: a run with a correction.
        most: its max_staleness.
    """
    policies, batches, prepared, learn = [], [], made.learner.prepared, made.learner.learn

    def noted(sampled, step):
        policies.append(copy.deepcopy(made.policy))
        assert len(policies) == step + 1
        return learn(sampled, step)

    def kept(batch):
        batches.append((made.steps_done, prepared(batch)))
        return batches[-1][1]

    made.learner.learn, made.learner.prepared = noted, kept
    made.run()
    ages, several = set(), 0
    for step, batch in batches:
        versions = torch.full(batch.completion_mask.shape, step)
        for line, row in zip(versions, batch.rows, strict=True):
            line[: len(row.completion_ids)] = torch.tensor(
                list(row.token_versions) or [row.weights_version]
            )
            several += bool(row.token_versions)
        expected = torch.zeros_like(batch.behaviour_logprobs)
        for version in versions.unique().tolist():
            theirs = policies[version].logprobs(batch.rows).detach()
            expected = torch.where(versions == version, theirs, expected)
        apart = (expected - batch.behaviour_logprobs)[batch.completion_mask].abs().max()
        assert apart < 1e-4
        weights = (batch.old_logprobs - batch.behaviour_logprobs)[batch.completion_mask].exp()
        now = (versions == step)[batch.completion_mask]
        assert (weights[now] - 1).abs().max() < 1e-4 if now.any() else True
        assert (weights[~now] - 1).abs().max() > 1e-3 if (~now).any() else True
        ages |= set((step - versions[batch.completion_mask]).tolist())
    assert several > 0
    assert max(ages) == most
