"""Monte-Carlo values at step boundaries (VinePPO).

prompt │ step 1 │ step 2 │ … │ step S        boundaries b_0 = 0 < b_1 < … < b_S = T, in tokens
       ▲        ▲        ▲       ▲
      V_0      V_1      V_2     V_S
V_i = mean score of K fresh completions of prompt + first b_i tokens
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace

from rlvr.collect.groups import Groups
from rlvr.collect.scheduler import Play, run
from rlvr.environment import require_one_reply
from rlvr.errors import UsageError, brief
from rlvr.samplers.protocol import (
    Request,
    Sample,
    Sampler,
    Sampling,
    TokenIds,
    beginning_of,
    cut_at_stop,
    rollout_seed,
)
from rlvr.types import Completion, Rollout, Score
from rlvr.validate import require_whole

__all__ = ["PrefixValues", "prefix_values", "prefix_values_and_costs", "step_boundaries"]


@dataclass(frozen=True, slots=True)
class PrefixValues:
    """Values at the boundaries of one rollout with S steps.

    Attributes:
        boundaries: where steps begin and end, in completion tokens: 0, …, T; shape [S + 1].
        values: at each boundary, shape [S + 1]: the mean total of the scored completions from
            there; at the end, the rollout's own total.  None if none was scored, and at the end of
            an unscored rollout.
        scored: number of completions in each mean, shape [S + 1]: K, or fewer if some could not be
            scored; at the end 1, or 0 for an unscored rollout.
    """

    boundaries: tuple[int, ...]
    values: tuple[float | None, ...]
    scored: tuple[int, ...]


def step_boundaries(rollout: Rollout, sampler: Sampler, delimiter: str = "\n") -> tuple[int, ...]:
    """Where the steps of a rollout begin and end, in tokens: 0, after each delimiter, T.

    Consecutive delimiters end one step.  A token in which a step ends belongs to that step as a
    whole.

    Args:
        rollout: of a single turn.
        sampler: decodes its tokens.
        delimiter: text that ends a step.
    """
    T = len(rollout.completion_ids)
    begun = beginning_of(sampler, rollout.prompt_ids)  # of the text, and not among its tokens
    text, places, at = rollout.text.removeprefix(begun), list[int](), 0
    begins, ends = len(text) - len(text.lstrip()), len(text.rstrip())
    while (at := text.find(delimiter, at)) >= 0:
        while text.startswith(delimiter, at):
            at += len(delimiter)
        if begins < at < ends:  # white space at either end is no step
            places.append(at)
    return tuple(sorted({0, *_tokens_until(rollout.completion_ids, places, sampler), T}))


def _tokens_until(ids: Sequence[int], places: Sequence[int], sampler: Sampler) -> list[int]:
    """For each place in the text, in increasing order, the least number of tokens whose text
    reaches it.

    Each is sought near the one before, in a text that begins with the step before it, as some
    tokenizers drop a space where a text begins.  So the time is that of decoding the text a few
    times, however many places there are.
    """
    counts: list[int] = []
    start = last = 0  # of the text that is decoded, and the number of tokens found last
    before = 0  # characters of the whole text that come before that one

    def reaches(count: int, place: int) -> bool:
        return before + len(sampler.decode(ids[start:count])) >= place

    for place in places:
        # Doubling, then halving: as many decodings as the logarithm of a step's length.
        width = 1
        while last + width < len(ids) and not reaches(last + width, place):
            width *= 2
        low, high = last + width // 2, min(last + width, len(ids))
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if reaches(middle, place) else (middle + 1, high)
        if low > last:
            # Texts that are decoded apart may differ in a space, so the difference of two is added.
            before += len(sampler.decode(ids[start:low])) - len(sampler.decode(ids[last:low]))
            start, last = last, low
        counts.append(last)
    return counts


def prefix_values(
    groups: Groups,
    rollouts: Sequence[Rollout],
    *,
    k: int = 9,
    steps: str | Sequence[Sequence[int]] = "\n",
) -> list[PrefixValues]:
    """The value at the beginning of every step, from `k` new completions each (VinePPO,
    arXiv:2410.01679, section 4).

    A completion from a prefix is scored together with the prefix, and prefix and completion
    together have at most `max_tokens`, as the rollout had.  Equal prefixes of the same task are
    sampled once, so the rollouts of a group share the value of their prompt.

    Args:
        groups: sampler, environment and scorer; `Collector.groups`.
        rollouts: whose values are wanted.
        k: completions from each prefix (K); the paper has 9.
        steps: the text that ends a step; or, for each rollout, its boundaries in tokens, with 0 and
            T.

    Raises:
        UsageError: the environment has several turns; the reward compares completions, of which a
            prefix has no group; the boundaries do not increase from 0 to T; `k` is below 1.
    """
    return prefix_values_and_costs(groups, rollouts, k=k, steps=steps)[0]


def prefix_values_and_costs(
    groups: Groups,
    rollouts: Sequence[Rollout],
    *,
    k: int,
    steps: str | Sequence[Sequence[int]] = "\n",
    greedy: bool = False,
) -> tuple[list[PrefixValues], dict[str, float]]:
    """What `prefix_values` returns, and its costs as metrics.

    The metrics are `forks` and `fork_tokens`, the numbers of completions and of their tokens;
    `forks_unscored`, the number of completions that could not be scored; and `generation_s`,
    `scoring_s`, `scoring_wait_s`, see `Timings`.

    Args:
        groups, rollouts, k, steps: as in `prefix_values`.
        greedy: take the most likely tokens instead of sampling.

    Raises:
        UsageError: as in `prefix_values`.
    """
    require_one_reply(groups.env, "whose state cannot be restored from a prefix of tokens")
    if groups.env.reward.group_level:
        raise UsageError(
            f"the reward {groups.env.reward} compares completions of a group, and a prefix has no "
            f"group"
        )
    require_whole("k", k, 1)
    if isinstance(steps, str):
        if not steps:
            raise UsageError(
                "steps is an empty text; give the text that ends a step, such as '\\n'"
            )
        boundaries = [step_boundaries(rollout, groups.sampler, steps) for rollout in rollouts]
    else:
        boundaries = [
            _check_bounds(bounds, rollout) for bounds, rollout in zip(steps, rollouts, strict=True)
        ]
    forks: dict[tuple[str, TokenIds], tuple[Rollout, int]] = {}
    for rollout, bounds in zip(rollouts, boundaries, strict=True):
        # The end has the rollout's own score, and no completions.
        for b in bounds[:-1]:
            # Equal prefixes once, such as the prompt of a group.
            forks.setdefault(_state(rollout, b), (rollout, b))
    groups.background.take_timings()  # time before this call does not count
    # ReMax's baseline is the greedy completion.
    sampling = replace(groups.sampling, temperature=0.0) if greedy else groups.sampling
    scores_of_forks, tokens = _score_forks(groups, list(forks.values()), k, sampling)
    scores = dict(zip(forks, scores_of_forks, strict=True))
    unscored = sum(score.total is None for some in scores_of_forks for score in some)
    costs = {"forks": k * len(forks), "forks_unscored": unscored, "fork_tokens": tokens}
    numbers = {
        name: float(value)
        for name, value in (costs | asdict(groups.background.take_timings())).items()
    }
    return [
        _values(rollout, bounds, scores)
        for rollout, bounds in zip(rollouts, boundaries, strict=True)
    ], numbers


def _state(rollout: Rollout, boundary: int) -> tuple[str, TokenIds]:
    return rollout.task.id, (*rollout.prompt_ids, *rollout.completion_ids[:boundary])


def _check_bounds(bounds: Sequence[int], rollout: Rollout) -> tuple[int, ...]:
    T = len(rollout.completion_ids)
    checked = tuple(int(b) for b in bounds)
    if list(checked) != sorted(set(checked)) or checked[:1] != (0,) or checked[-1:] != (T,):
        raise UsageError(
            f"task {rollout.task.id!r}: steps are {brief(bounds)}; they must increase from 0 to {T}"
        )
    return checked


def _score_forks(
    groups: Groups, forks: Sequence[tuple[Rollout, int]], k: int, sampling: Sampling
) -> tuple[list[list[Score]], int]:
    """Scores of `k` completions from each (rollout, boundary), and the number of their tokens."""
    futures: dict[int, Future[list[Score]]] = {}
    tokens = 0
    try:
        for number, sample in run(
            _plays(groups, forks, k, sampling), groups.sampler, groups.background, groups.schedule
        ):
            futures[number] = _begin(groups, *forks[number // k], sample)
            tokens += len(sample.completion_ids)
        # In the order of forks, whichever ended first.
        with groups.background.waiting():
            return [
                [futures[p * k + j].result()[0] for j in range(k)] for p in range(len(forks))
            ], tokens
    finally:
        for future in futures.values():
            future.cancel()


def _plays(
    groups: Groups, forks: Sequence[tuple[Rollout, int]], k: int, sampling: Sampling
) -> Iterator[Play[Sample]]:
    for p, (rollout, boundary) in enumerate(forks):
        task, context = _state(rollout, boundary)
        # Prefix and completion together have what the rollout had.
        limit = groups.limit_of(rollout.task) - boundary
        for j in range(k):
            # By the prefix itself: equal prefixes get equal completions in any run.
            seed = rollout_seed(*groups.key, "fork", task, _digest(context), j)
            yield _fork(Request((p, j), context, sampling, seed, limit, rollout=j))


def _fork(request: Request) -> Play[Sample]:
    sample: Sample = yield request
    return sample


def _begin(groups: Groups, rollout: Rollout, boundary: int, sample: Sample) -> Future[list[Score]]:
    # Decoded together: decoded apart, the two texts may lose a space between them.
    ids = [*rollout.completion_ids[:boundary], *sample.completion_ids]
    begun = beginning_of(groups.sampler, rollout.prompt_ids)
    text = begun + cut_at_stop(groups.sampler.decode(ids), groups.sampling.stop)
    return groups.score(rollout.task, [Completion(text, len(ids), sample.truncated)])


def _values(
    rollout: Rollout, bounds: tuple[int, ...], scores: dict[tuple[str, TokenIds], list[Score]]
) -> PrefixValues:
    values: list[float | None] = []
    scored: list[int] = []
    for b in bounds[:-1]:
        totals = [score.total for score in scores[_state(rollout, b)] if score.total is not None]
        # `fsum`: the order in which scores came must not show in the last bit.
        values.append(math.fsum(totals) / len(totals) if totals else None)
        scored.append(len(totals))
    final_score = None if rollout.score is None else rollout.score.total
    return PrefixValues(bounds, (*values, final_score), (*scored, int(final_score is not None)))


def _digest(ids: TokenIds) -> str:
    return hashlib.sha256(repr([int(token) for token in ids]).encode()).hexdigest()
