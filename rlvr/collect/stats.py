"""Metrics of one `Collector.collect`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, pstdev

from rlvr.collect.background import Timings
from rlvr.environment import Environment
from rlvr.episode import ToolCall
from rlvr.types import Group, Outcome, Rollout, Score

__all__ = [
    "Dropped",
    "collection_stats",
    "dropped_group",
    "mixture_stats",
    "own_tokens",
    "tool_stats",
    "unscored_reasons",
]

_REASONS = ("all-correct", "all-wrong", "few-scored", "too-long")


@dataclass(frozen=True, slots=True)
class Dropped:
    """A group that is not trained on.

    Attributes:
        task: id of its task.
        why: "all-correct" or "all-wrong" (dynamic sampling), "few-scored" (under 2 scored
            rollouts), or "too-long" (prompt and limit exceed the model's positions, so nothing was
            sampled).
        rollouts: number of its rollouts.
        tokens: number of tokens that the policy generated for it.
        group: the group itself; None if nothing was sampled.
    """

    task: str
    why: str
    rollouts: int
    tokens: int
    group: Group | None = field(default=None, repr=False, compare=False)


def dropped_group(group: Group, why: str) -> Dropped:
    """The record of a dropped group.

    Args:
        group: as it was sampled.
        why: see `Dropped`.
    """
    return Dropped(
        group.task.id, why, len(group.rollouts), sum(map(own_tokens, group.rollouts)), group
    )


def own_tokens(rollout: Rollout) -> int:
    """Number of tokens that the policy generated, masked or not, without an environment's replies.

    Args:
        rollout: of one turn or several, with its branches.
    """
    if rollout.turns:
        return sum(
            turn.stop - turn.start for row in (rollout, *rollout.branches) for turn in row.turns
        )
    return len(rollout.completion_ids)


def unscored_reasons(dropped: Sequence[Dropped]) -> Counter[str]:
    """Why rollouts of dropped groups could not be scored, and how many rollouts for each reason.

    Args:
        dropped: the groups.
    """
    groups = [dropped_group.group for dropped_group in dropped if dropped_group.group is not None]
    verdicts = [
        r.score.verdict
        for group in groups
        for r in group.rollouts
        if r.score and r.score.total is None
    ]
    return Counter(verdict.why for verdict in verdicts)


def collection_stats(
    sampled: Sequence[Group], groups: Sequence[Group], dropped: Sequence[Dropped], timings: Timings
) -> dict[str, float]:
    """Metrics of one `collect`, for the log.  Means over nothing are left out.

    Over all sampled rollouts, those of dropped groups included, so that filters do not distort the
    curves:

        rollouts tokens              numbers of them
        accuracy reward reward/PART  means over scored rollouts: share CORRECT, total, contribution
                                     of each part
        reward_std                   standard deviation of the total (population)
        length length_max            mean and greatest number of the policy's tokens
        truncated                    share of rollouts
        unscored                     number of rollouts
        outcome/NAME                 share of rollouts: correct, wrong, unparsed, unscored

    Over kept groups, and over dropped ones:

        groups                       number of kept groups
        batch/accuracy batch/reward  as above, over kept groups
        masked                       kept rollouts without a trained token: unscored, or overlong
        dropped/WHY                  number of dropped groups, for each reason of `Dropped`
        waste_tokens waste           tokens of dropped groups, and their share of the tokens of all
                                     groups

    And `generation_s`, `scoring_s`, `scoring_wait_s`, see `Timings`.  The collector adds `left`,
    groups left over for the next call; and `missing`, by how many there are fewer groups than
    requested.

    Args:
        sampled: groups sampled in this call.
        groups: groups that it returned.
        dropped: groups that it dropped.
        timings: of this call.
    """
    rollouts = [rollout for group in sampled for rollout in group.rollouts]
    lengths = [own_tokens(rollout) for rollout in rollouts]
    scores = _scores(sampled)
    kept_rollouts = [rollout for group in groups for rollout in group.rollouts]
    wasted, used = (
        sum(dropped_group.tokens for dropped_group in dropped),
        sum(map(own_tokens, kept_rollouts)),
    )
    reasons = Counter(dropped_group.why for dropped_group in dropped)
    numbers = {
        "rollouts": len(rollouts),
        "tokens": sum(lengths),
        **_means("", scores),
        **_part_means(scores),
        **_spread(scores),
        **({"length": fmean(lengths), "length_max": max(lengths)} if lengths else {}),
        **({"truncated": fmean(rollout.truncated for rollout in rollouts)} if rollouts else {}),
        "unscored": len(rollouts) - len(scores),
        **_outcome_shares(rollouts),
        "groups": len(groups),
        **_means("batch/", _scores(groups)),
        "masked": sum(not any(rollout.completion_mask) for rollout in kept_rollouts),
        **{f"dropped/{why}": reasons[why] for why in _REASONS},
        "waste_tokens": wasted,
        # Of the tokens of groups that were kept or dropped; at least 1 against a division by 0.
        "waste": wasted / max(1, wasted + used),
        **asdict(timings),
    }
    return {name: float(value) for name, value in numbers.items()}


def tool_stats(groups: Sequence[Group]) -> dict[str, float]:
    """Metrics of episodes with tools, over all sampled rollouts; none where no rollout has a
    record.

        tools/calls                  mean number of calls of an episode
        tools/used                   share of episodes with a call
        tools/errors                 share of calls whose reply is an error of the policy's
        tools/seconds                mean wall seconds of a call that was made
        tools/turns                  mean number of turns of an episode
        tools/NAME/calls             the same for each tool that was called; names that are no tool
                                     are left out
        tools/NAME/errors tools/NAME/seconds

    Args:
        groups: that were sampled.
    """
    episodes = [
        rollout.episode
        for group in groups
        for rollout in group.rollouts
        if rollout.episode is not None
    ]
    if not episodes:
        return {}
    calls = [call for episode in episodes for call in episode.calls]
    metrics = {
        "tools/calls": len(calls) / len(episodes),
        "tools/used": fmean(bool(episode.calls) for episode in episodes),
        "tools/turns": fmean(len(episode.turns) for episode in episodes),
        **_call_stats("tools", calls),
    }
    for name in sorted(
        {call.name for call in calls if not call.error}
    ):  # the policy may make up others without end
        tool_calls = [call for call in calls if call.name == name]
        metrics |= {
            f"tools/{name}/calls": len(tool_calls) / len(episodes),
            **_call_stats(f"tools/{name}", tool_calls),
        }
    return {name: float(value) for name, value in metrics.items()}


def _call_stats(prefix: str, calls: Sequence[ToolCall]) -> dict[str, float]:
    # A call that was refused before it ran took no time.
    durations = [call.seconds for call in calls if call.seconds > 0]
    errors = {f"{prefix}/errors": fmean(call.error for call in calls)} if calls else {}
    return errors | ({f"{prefix}/seconds": fmean(durations)} if durations else {})


def mixture_stats(
    env: Environment, sampled: Sequence[Group], groups: Sequence[Group]
) -> dict[str, float]:
    """Metrics of each environment of a mixture: `env/NAME/…`; none for another environment.

    Over all sampled rollouts: `rollouts`, `accuracy`, `reward`, `length`, `truncated`, `unscored`,
    and `groups`, the number of kept groups.

    Args:
        env: the environment that was sampled.
        sampled, groups: see `collection_stats`.
    """
    metrics: dict[str, float] = {}
    for name in env.shares:
        member_groups = [group for group in sampled if env.name_of(group.task) == name]
        kept_groups = [group for group in groups if env.name_of(group.task) == name]
        rollouts, scores = (
            [rollout for group in member_groups for rollout in group.rollouts],
            _scores(member_groups),
        )
        numbers = {
            "rollouts": len(rollouts),
            "groups": len(kept_groups),
            "unscored": len(rollouts) - len(scores),
        }
        means = _means("", scores) | _part_means(scores)
        if rollouts:
            means |= {
                "length": fmean(map(own_tokens, rollouts)),
                "truncated": fmean(rollout.truncated for rollout in rollouts),
            }
        metrics |= {
            f"env/{name}/{key}": float(value) for key, value in {**numbers, **means}.items()
        }
    return metrics


def _scores(groups: Sequence[Group]) -> list[Score]:
    """The scores of all scored rollouts."""
    scores = [rollout.score for group in groups for rollout in group.rollouts]
    return [score for score in scores if score is not None and score.total is not None]


def _outcome_shares(rollouts: Sequence[Rollout]) -> dict[str, float]:
    if not rollouts:
        return {}
    # All rollouts, UNSCORED ones too, so that shares sum to 1.
    outcomes = Counter(
        Outcome.UNSCORED if rollout.score is None else rollout.score.verdict.outcome
        for rollout in rollouts
    )
    return {f"outcome/{outcome}": outcomes[outcome] / len(rollouts) for outcome in Outcome}


def _means(prefix: str, scores: Sequence[Score]) -> dict[str, float]:
    if not scores:
        return {}
    totals = [score.total for score in scores if score.total is not None]
    return {
        f"{prefix}accuracy": fmean(score.verdict.correct for score in scores),
        f"{prefix}reward": fmean(totals),
    }


def _spread(scores: Sequence[Score]) -> dict[str, float]:
    totals = [score.total for score in scores if score.total is not None]
    # Population: it describes these rollouts and estimates nothing.
    return {"reward_std": pstdev(totals)} if totals else {}


def _part_means(scores: Sequence[Score]) -> dict[str, float]:
    parts: dict[str, list[float]] = defaultdict(list)
    for score in scores:
        for name, value in score.parts.items():
            parts[name].append(value)
    return {f"reward/{name}": fmean(values) for name, values in parts.items()}
