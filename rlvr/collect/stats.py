"""What a collection came to, in numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean

from rlvr.collect.background import Timings
from rlvr.types import Group, Rollout, Score

__all__ = ["Dropped", "dropped_group", "unscored_reasons", "own_tokens", "collection_stats"]

_REASONS = ("all-correct", "all-wrong", "few-scored", "stale", "too-long")


@dataclass(frozen=True, slots=True)
class Dropped:
    """A group that was sampled for nothing.

    Attributes:
        task: its id.
        why: "all-correct" or "all-wrong" (dynamic sampling), "few-scored" (under 2 scored rollouts), "stale", or
            "too-long" (prompt and limit exceed the model's positions: nothing was sampled).
        tokens: that the policy produced for it.
        group: as it was sampled; None where nothing was.
    """

    task: str
    why: str
    rollouts: int
    tokens: int
    group: Group | None = field(default=None, repr=False, compare=False)


def dropped_group(group: Group, why: str) -> Dropped:
    """What the waste log says of a group."""
    return Dropped(group.task.id, why, len(group.rollouts), sum(map(own_tokens, group.rollouts)), group)


def own_tokens(rollout: Rollout) -> int:
    """Tokens that the policy produced, masked or not; an environment's replies are none of them."""
    if rollout.turns:
        return sum(turn.stop - turn.start for turn in rollout.turns)
    return len(rollout.completion_ids)


def unscored_reasons(dropped: Sequence[Dropped]) -> Counter[str]:
    """Why rollouts of dropped groups could not be scored, and how many of them."""
    groups = [one.group for one in dropped if one.group is not None]
    verdicts = [r.score.verdict for group in groups for r in group.rollouts if r.score and r.score.total is None]
    return Counter(verdict.why for verdict in verdicts)


def collection_stats(
    sampled: Sequence[Group], groups: Sequence[Group], dropped: Sequence[Dropped], timings: Timings
) -> dict[str, float]:
    """Numbers about one `collect`, for the log.  A mean over nothing is left out.

    Over all rollouts that were sampled, those of dropped groups too, since filters would bend the curves:

        rollouts tokens              counts
        accuracy reward reward/PART  means over the scored ones: CORRECT or not, the total, what each part added
        length length_max            the policy's tokens
        truncated                    share
        unscored                     count

    Over the groups that were kept, and over those that were dropped:

        groups                       count
        batch/accuracy batch/reward  as above
        masked                       rollouts without a token to train on: unscored, or overlong
        dropped/WHY                  groups, for each reason of `Dropped`
        waste_tokens waste           tokens of dropped groups, and their share in those of kept and dropped ones

    And `generation_s`, `scoring_s`, `scoring_wait_s`, see `Timings`.  The collector adds `rounds`; `left`, groups that
    are left over for the next call; and `missing`, groups that were asked for and not found.
    """
    rollouts = [rollout for group in sampled for rollout in group.rollouts]
    lengths = [own_tokens(rollout) for rollout in rollouts]
    scores = _scores(sampled)
    kept = [rollout for group in groups for rollout in group.rollouts]
    wasted, used = sum(one.tokens for one in dropped), sum(map(own_tokens, kept))
    reasons = Counter(one.why for one in dropped)
    numbers = {
        "rollouts": len(rollouts),
        "tokens": sum(lengths),
        **_means("", scores),
        **_part_means(scores),
        **({"length": fmean(lengths), "length_max": max(lengths)} if lengths else {}),
        **({"truncated": fmean(rollout.truncated for rollout in rollouts)} if rollouts else {}),
        "unscored": len(rollouts) - len(scores),
        "groups": len(groups),
        **_means("batch/", _scores(groups)),
        "masked": sum(not any(rollout.completion_mask) for rollout in kept),
        **{f"dropped/{why}": reasons[why] for why in _REASONS},
        "waste_tokens": wasted,
        "waste": wasted / max(1, wasted + used),
        **asdict(timings),
    }
    return {name: float(value) for name, value in numbers.items()}


def _scores(groups: Sequence[Group]) -> list[Score]:
    """Those that have a total."""
    scores = [rollout.score for group in groups for rollout in group.rollouts]
    return [score for score in scores if score is not None and score.total is not None]


def _means(prefix: str, scores: Sequence[Score]) -> dict[str, float]:
    if not scores:
        return {}
    totals = [score.total for score in scores if score.total is not None]
    return {
        f"{prefix}accuracy": fmean(score.verdict.correct for score in scores),
        f"{prefix}reward": fmean(totals),
    }


def _part_means(scores: Sequence[Score]) -> dict[str, float]:
    parts: dict[str, list[float]] = defaultdict(list)
    for score in scores:
        for name, value in score.parts.items():
            parts[name].append(value)
    return {f"reward/{name}": fmean(values) for name, values in parts.items()}
