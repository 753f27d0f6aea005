"""Labels of steps from completions that continue there: data for process reward models
(arXiv:2312.08935, 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from rlvr.collect.flight import sample_groups
from rlvr.collect.groups import Groups
from rlvr.collect.prefixes import PrefixValues, prefix_values
from rlvr.errors import UsageError
from rlvr.samplers.protocol import beginning_of
from rlvr.types import Group, Rollout

__all__ = ["process_labels"]

_TOGETHER: Final = 64  # groups that are sampled before their steps are continued


def process_labels(
    groups: Groups,
    asked: Sequence[tuple[int, int]],
    *,
    k: int,
    delimiter: str = "\n",
    every: bool = False,
) -> Iterator[dict[str, object]]:
    """A row for each scored rollout, in TRL's columns: prompt, completions (its steps), labels; and
    the counts.

    `scored` of a step are the completions from its end that could be scored, at most `k`, and
    `right` the sum of their credit; of the last step it is the rollout's own score, 1 of 1.  A
    label is true if any continuation is right: with k = 8 that is so in half of the cases where one
    in twelve is, so train on the counts.

    Args:
        groups: sampler, environment and scorer; rewards lie in [0, 1].
        asked: (place in the run, index of the task) of each group.
        k: completions from each step's end.
        delimiter: text that ends a step.
        every: also groups of which all rollouts are right, or all wrong; their steps tell little.

    Raises:
        UsageError: rewards may lie outside [0, 1], or as in `prefix_values`.
    """
    # Sums of credit are counts of right completions only in [0, 1].
    low, high = groups.env.reward.bounds
    if low < 0 or high > 1:
        raise UsageError(
            f"the reward {groups.env.reward} lies in [{low:g}, {high:g}], and counts of right "
            "continuations need one in [0, 1]; use the environment's verdict alone"
        )
    for _, group in _sample_parts(groups, asked):
        rollouts = [
            r
            for r in group.rollouts
            if r.score is not None and r.score.total is not None and r.completion_ids
        ]
        totals = {r.score.total for r in rollouts if r.score is not None}
        if not rollouts or (len(totals) == 1 and not every):
            continue
        for rollout, values in zip(
            rollouts, prefix_values(groups, rollouts, k=k, steps=delimiter), strict=True
        ):
            yield _row(groups, rollout, values)


def _sample_parts(groups: Groups, asked: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Group]]:
    """Groups, of which none is under way in the sampler while one is continued from its steps."""
    for begin in range(0, len(asked), _TOGETHER):
        yield from list(sample_groups(groups, asked[begin : begin + _TOGETHER]))


def _row(groups: Groups, rollout: Rollout, values: PrefixValues) -> dict[str, object]:
    begun = beginning_of(groups.sampler, rollout.prompt_ids)
    ends = [
        begun + groups.sampler.decode(rollout.completion_ids[:end])
        for end in values.boundaries[1:-1]
    ]
    # Texts are cut at the lengths of decoded prefixes, and the last step ends with the text.
    cuts = [0, *map(len, ends), len(rollout.text)]
    steps = [(rollout.text[a:b], i) for i, (a, b) in enumerate(pairwise(cuts), 1) if a < b]
    # Mean times count: the sum of the credit of continuations.
    right = [(values.values[i] or 0.0) * values.scored[i] for _, i in steps]
    prompt = rollout.task.prompt
    return {
        "prompt": prompt if isinstance(prompt, str) else [dict(message) for message in prompt],
        "completions": [text for text, _ in steps],
        "labels": [count > 0 for count in right],
        "right": right,
        "scored": [values.scored[i] for _, i in steps],
        "task": rollout.task.id,
        "outcome": "" if rollout.score is None else rollout.score.verdict.outcome.value,
        "truncated": rollout.truncated,
    }
