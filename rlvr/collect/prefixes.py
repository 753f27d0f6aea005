"""How good is it to stand here?  Monte-Carlo values of the prefixes of a completion, for VinePPO.

prompt │ step 1 │ step 2 │ … │ step S        boundaries b_0 = 0 < b_1 < … < b_S = T, in tokens
       ▲        ▲        ▲       ▲
      V_0      V_1      V_2     V_S          V_i = mean score of K fresh completions of prompt + first b_i tokens
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass

from rlvr.collect.groups import Groups
from rlvr.environment import MultiTurnEnv
from rlvr.errors import UsageError, brief
from rlvr.samplers.protocol import Sample, Sampler, TokenIds, cut_at_stop, generate_checked, rollout_seed
from rlvr.types import Completion, Rollout, Score
from rlvr.validate import require_whole

__all__ = ["PrefixValues", "prefix_values_and_costs", "prefix_values", "step_boundaries"]


@dataclass(frozen=True, slots=True)
class PrefixValues:
    """Values along one rollout of S steps.

    Attributes:
        boundaries: where steps begin and end, in completion tokens: 0, …, T; shape [S + 1].
        values: at each boundary, shape [S + 1]: the mean total of its scored forks; at the end, where there is nothing
            to sample, the rollout's own total.  None where none was scored, and at the end of an unscored rollout.
        scored: forks behind each mean, shape [S + 1]; fewer than K where some could not be scored, 1 at the end.
    """

    boundaries: tuple[int, ...]
    values: tuple[float | None, ...]
    scored: tuple[int, ...]


def step_boundaries(rollout: Rollout, sampler: Sampler, delimiter: str = "\n") -> tuple[int, ...]:
    """Where the steps of a rollout begin and end, in tokens: 0, after each delimiter, T.

    A run of delimiters ends one step.  A token in which a step ends belongs to that step as a whole.
    """
    T = len(rollout.completion_ids)
    text, found, at = rollout.text, [0], 0
    while (at := text.find(delimiter, at)) >= 0:
        while text.startswith(delimiter, at):
            at += len(delimiter)
        if not text[:at].strip() or not text[at:].strip():
            continue  # white space at either end is no step
        found.append(_first_token(rollout, sampler, at, found[-1], T))
    return tuple(sorted({*found, T}))


def _first_token(rollout: Rollout, sampler: Sampler, chars: int, low: int, high: int) -> int:
    """The least number of tokens whose text has so many characters; by bisection, for decoding is what costs."""
    while low < high:
        middle = (low + high) // 2
        if len(sampler.decode(rollout.completion_ids[:middle])) >= chars:
            high = middle
        else:
            low = middle + 1
    return low


def prefix_values(
    groups: Groups,
    rollouts: Sequence[Rollout],
    *,
    k: int = 9,
    steps: str | Sequence[Sequence[int]] = "\n",
) -> list[PrefixValues]:
    """Values of every step's beginning, from `k` fresh completions each (VinePPO, arXiv:2410.01679, section 4).

    The paper takes K = 9.  A fork is sampled and scored like any rollout, prefix and all, and it may use as many tokens
    as the prefix leaves of `max_tokens`, so that its value is that of going on under the rollout's own limit.  The same
    prefix of the same task is sampled once: rollouts of a group share the value of their prompt.

    Args:
        groups: the sampler, the environment and its scorer; of a `Collector`, its `groups`.
        steps: a text that ends a step; or for each rollout its boundaries in tokens, 0 and T among them.

    Raises:
        UsageError: several turns; a reward that compares completions, for a fork has no siblings; boundaries that are
            not increasing from 0 to T; k below 1.
    """
    return prefix_values_and_costs(groups, rollouts, k=k, steps=steps)[0]


def prefix_values_and_costs(
    groups: Groups, rollouts: Sequence[Rollout], *, k: int, steps: str | Sequence[Sequence[int]] = "\n"
) -> tuple[list[PrefixValues], dict[str, float]]:
    """What `prefix_values` gives, and what it took, for the log.

    That is `forks` and `fork_tokens`, completions and tokens that were sampled; `forks_unscored`, how many of them we
    failed to score; and `generation_s`, `scoring_s`, `scoring_wait_s`, see `Timings`.
    """
    if isinstance(groups.env, MultiTurnEnv):
        raise UsageError(f"{groups.env.id} has several turns; a prefix of tokens does not bring back its state")
    if groups.env.reward.group_level:
        raise UsageError(f"the reward {groups.env.reward} compares completions of one task; a fork has no siblings")
    require_whole("k", k, 1)
    if isinstance(steps, str):
        if not steps:
            raise UsageError("steps is an empty text; name what ends a step, such as '\\n'")
        boundaries = [step_boundaries(rollout, groups.sampler, steps) for rollout in rollouts]
    else:
        boundaries = [_checked(given, rollout) for given, rollout in zip(steps, rollouts, strict=True)]
    forks: dict[tuple[str, TokenIds], tuple[Rollout, int]] = {}
    for rollout, bounds in zip(rollouts, boundaries, strict=True):
        for b in bounds[:-1]:
            forks.setdefault(_state(rollout, b), (rollout, b))
    groups.background.take_timings()  # whatever went by before is nobody's
    each, tokens = _scored(groups, list(forks.values()), k)
    scores = dict(zip(forks, each, strict=True))
    unscored = sum(score.total is None for some in each for score in some)
    costs = {"forks": k * len(forks), "forks_unscored": unscored, "fork_tokens": tokens}
    numbers = {name: float(value) for name, value in (costs | asdict(groups.background.take_timings())).items()}
    return [_values(rollout, bounds, scores) for rollout, bounds in zip(rollouts, boundaries, strict=True)], numbers


def _state(rollout: Rollout, boundary: int) -> tuple[str, TokenIds]:
    return rollout.task.id, (*rollout.prompt_ids, *rollout.completion_ids[:boundary])


def _checked(bounds: Sequence[int], rollout: Rollout) -> tuple[int, ...]:
    T = len(rollout.completion_ids)
    given = tuple(int(b) for b in bounds)
    if list(given) != sorted(set(given)) or given[:1] != (0,) or given[-1:] != (T,):
        raise UsageError(f"task {rollout.task.id!r}: steps are {brief(bounds)}; they must increase from 0 to {T}")
    return given


def _scored(groups: Groups, forks: Sequence[tuple[Rollout, int]], k: int) -> tuple[list[list[Score]], int]:
    """Scores of `k` continuations of each (rollout, boundary), scored while others are sampled; and their tokens."""
    contexts = [_state(rollout, b)[1] for rollout, b in forks]
    limits = [groups.sampling.max_tokens - b for _, b in forks]
    seeds = [
        [rollout_seed(*groups.key, "fork", rollout.task.id, _digest(context), j) for j in range(k)]
        for (rollout, _), context in zip(forks, contexts, strict=True)
    ]
    futures: list[dict[int, Future[list[Score]]]] = [{} for _ in forks]
    tokens = 0
    try:
        with groups.background.generating():
            for p, j, sample in generate_checked(groups.sampler, contexts, k, groups.sampling, seeds, limits):
                futures[p][j] = _begin(groups, *forks[p], sample)
                tokens += len(sample.completion_ids)
        with groups.background.waiting():
            return [[one[j].result()[0] for j in range(k)] for one in futures], tokens
    finally:
        for one in futures:
            for future in one.values():
                future.cancel()


def _begin(groups: Groups, rollout: Rollout, boundary: int, sample: Sample) -> Future[list[Score]]:
    ids = [*rollout.completion_ids[:boundary], *sample.completion_ids]  # in one go: two texts may lose a space between
    text = cut_at_stop(groups.sampler.decode(ids), groups.sampling.stop)
    return groups.score(rollout.task, [Completion(text, len(ids), sample.truncated)])


def _values(rollout: Rollout, bounds: tuple[int, ...], scores: dict[tuple[str, TokenIds], list[Score]]) -> PrefixValues:
    values: list[float | None] = []
    scored: list[int] = []
    for b in bounds[:-1]:
        totals = [score.total for score in scores[_state(rollout, b)] if score.total is not None]
        values.append(math.fsum(totals) / len(totals) if totals else None)
        scored.append(len(totals))
    own = None if rollout.score is None else rollout.score.total
    return PrefixValues(bounds, (*values, own), (*scored, int(own is not None)))


def _digest(ids: TokenIds) -> str:
    return hashlib.sha256(repr([int(token) for token in ids]).encode()).hexdigest()
