"""Groups worth training on: sample, score, filter, refill.

cursor ─▶ Groups.sample ─▶ unscored masked ─▶ uniform groups dropped ─▶ enough? ─▶ Collected
                 ▲                                                        │ no, and rounds are left
                 └────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rlvr.collect.cursor import Cursor
from rlvr.collect.groups import Groups
from rlvr.collect.prefixes import PrefixValues, prefix_values
from rlvr.collect.serialization import group_as_dict, group_from_dict
from rlvr.collect.stats import Dropped, collection_stats, dropped_group, unscored_reasons
from rlvr.environment import Environment
from rlvr.errors import UsageError
from rlvr.samplers.protocol import Sampler, Sampling
from rlvr.scoring import Scorer
from rlvr.types import Group, Rollout
from rlvr.validate import require_number, require_whole

__all__ = ["Collected", "Collector"]


@dataclass(frozen=True, slots=True)
class Collected:
    """What one `collect` came to.

    Attributes:
        groups: in the order in which their tasks were drawn; at most as many as were asked for.
        dropped: the waste log.
        stats: see `rlvr.collect.stats`.
    """

    groups: Sequence[Group]
    dropped: Sequence[Dropped]
    stats: Mapping[str, float]

    def staleness(self, version: int) -> int:
        """How many versions the oldest rollout lies behind these weights; 0 where there is none."""
        return max((version - r.weights_version for group in self.groups for r in group.rollouts), default=0)


class Collector:
    """Collects groups from an environment.  Close it, or use it as a context manager.

        with Collector(env, sampler, group_size=16, sampling=Sampling(max_tokens=1024), dynamic=True) as collector:
            collected = collector.collect(prompts=32)

    A rollout depends on the seed, its task, its place in the run and its number in the group alone; on neither what
    is sampled beside it nor how long anything takes.

    A rollout that could not be scored keeps its place in the group, so that groups stay rectangular, with
    `completion_mask` all False and `score.total` None: it belongs in no statistic of the group.  A group with
    fewer than 2 scored rollouts (1 if group_size is 1) is dropped.

    Args:
        group_size: G, rollouts per task.
        sampling: how they are drawn; not at temperature 0, where all of a group would be the same.
        scorer: of this very environment; None for one of its own, with a worker per core.  Multi-turn environments
            take none.
        seed: of the order of tasks and of all rollouts.
        dynamic: dynamic sampling (DAPO, arXiv:2503.14476, section 3.2, eq. 11): drop groups whose scored rollouts
            are all correct or all not, and sample further tasks in their place.  What counts is the verdict, not
            the shaped total: a length penalty gives every group some spread, and still nothing to learn.
        overlong: "mask" takes truncated rollouts out of the loss (DAPO, section 3.4, overlong filtering: "masks the
            loss of truncated samples"): their `completion_mask` is all False, their score stays in the group's
            mean and std, since only the loss is masked there.  "keep" trains on them; to punish them softly, add
            `Overlong` to the reward.
        max_rounds: how often dynamic sampling samples tasks for one `collect`; then it goes on with fewer groups,
            perhaps with none, warns the first time, and counts them as `missing`.  Without dynamic sampling there is
            one round, and none follows while nothing at all could be scored: further tasks would fare no better.
        oversample: how many tasks a round samples for each group that is missing.  Above 1 there are fewer
            rounds and some groups left over, which wait for the next `collect`.
        max_staleness: a group left over is dropped when one of its rollouts lies more versions behind the sampler.
        max_turns: of a multi-turn episode.
        shuffle: give each epoch an order of its own; else tasks come by index.

    Attributes:
        groups: what samples and scores, without filters; `prefix_values` takes it too.

    Raises:
        UsageError: a setting that cannot work, or parts that do not fit each other.
    """

    def __init__(
        self,
        env: Environment,
        sampler: Sampler,
        *,
        group_size: int,
        sampling: Sampling,
        scorer: Scorer | None = None,
        seed: int = 0,
        dynamic: bool = False,
        overlong: Literal["mask", "keep"] = "keep",
        max_rounds: int = 10,
        oversample: float = 1.0,
        max_staleness: int = 0,
        max_turns: int = 8,
        shuffle: bool = True,
    ) -> None:
        require_whole("seed", seed, 0)
        require_whole("max_rounds", max_rounds, 1)
        require_whole("max_staleness", max_staleness, 0)
        require_number("oversample", oversample, 1)
        if overlong not in ("mask", "keep"):
            raise UsageError(f"overlong is {overlong!r}; it must be 'mask' or 'keep'")
        if sampling.temperature == 0:
            raise UsageError("temperature is 0: all rollouts of a group would be the same; train at 1, or near it")
        if dynamic and group_size == 1:
            raise UsageError("dynamic sampling with group_size=1: one rollout is always uniform; give at least 2")
        self.groups = Groups(
            env,
            sampler,
            group_size=group_size,
            sampling=sampling,
            scorer=scorer,
            max_turns=max_turns,
            key=("collect", seed),
        )
        self.env, self.sampler, self.seed = env, sampler, int(seed)
        self.dynamic, self.overlong = dynamic, overlong
        self.max_rounds, self.oversample, self.max_staleness = max_rounds, oversample, max_staleness
        self._cursor = Cursor(env, seed=self.seed, shuffle=shuffle)
        self._left: list[tuple[int, Group]] = []  # with the index of its task
        self._has_warned = self._has_warned_of_length = False

    def close(self) -> None:
        """End the threads, and the workers if they are its own."""
        self.groups.close()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def position(self) -> int:
        """How many tasks have been sampled."""
        return self._cursor.position

    @property
    def epoch(self) -> int:
        """How many times every task has been sampled; 0 for ever where tasks are generated."""
        return self._cursor.epoch

    def collect(self, prompts: int) -> Collected:
        """Groups of `prompts` tasks.  What raises or is interrupted has not happened: the next call begins as it did.

        Warns:
            RuntimeWarning: there are fewer; the first time.
        """
        require_whole("prompts", prompts, 1)
        before = self._cursor.position, self._left
        try:
            return self._collected(int(prompts))
        except BaseException:
            self._cursor.position, self._left = before
            raise

    def _collected(self, prompts: int) -> Collected:
        kept, dropped = self._still_fresh()
        sampled: list[Group] = []
        rounds = 0
        self.groups.background.take_timings()  # whatever went by before is nobody's
        while len(kept) < prompts and rounds < (self.max_rounds if self.dynamic else 1):
            if sampled and not any(map(_is_scored, _rollouts(sampled))):
                break
            rounds += 1
            asked = self._cursor.take(math.ceil((prompts - len(kept)) * self.oversample))
            asked = self._fitting(asked, dropped)
            for (_, index), group in zip(asked, self.groups.sample(asked), strict=True):
                sampled.append(group)
                why = self._useless(group)
                if why:
                    dropped.append(dropped_group(group, why))
                else:
                    kept.append((index, self._masked(group)))
        groups, self._left = [group for _, group in kept[:prompts]], kept[prompts:]
        missing = prompts - len(groups)
        if missing and not self._has_warned:
            _warn_of_fewer(len(groups), prompts, rounds, dropped)
            self._has_warned = True
        numbers = collection_stats(sampled, groups, dropped, self.groups.background.take_timings())
        numbers |= {"rounds": float(rounds), "left": float(len(self._left)), "missing": float(missing)}
        return Collected(groups, dropped, numbers)

    def _fitting(self, asked: Sequence[tuple[int, int]], dropped: list[Dropped]) -> list[tuple[int, int]]:
        """Tasks whose prompts leave room for a completion; the others are dropped."""
        positions: int | None = getattr(self.sampler, "positions", None)
        if positions is None:
            return list(asked)
        fitting, most = [], self.groups.sampling.max_tokens
        for place, index in asked:
            task = self.groups.task(index)
            length = len(self.sampler.encode(task.prompt))
            if length + most <= positions:
                fitting.append((place, index))
                continue
            dropped.append(Dropped(task.id, "too-long", rollouts=0, tokens=0))
            if not self._has_warned_of_length:
                self._has_warned_of_length = True
                warnings.warn(
                    f"the prompt of task {task.id!r} has {length} tokens and may get {most} more, and the model has "
                    f"{positions} positions: left out, as will be all that are too long. Lower max_tokens, or shorten "
                    "prompts. Said once; the log counts them as dropped/too-long",
                    RuntimeWarning,
                    stacklevel=4,
                )
        return fitting

    def _still_fresh(self) -> tuple[list[tuple[int, Group]], list[Dropped]]:
        """What an earlier call left over, and what of it has become too old."""
        oldest = self.sampler.version - self.max_staleness
        fresh = [all(r.weights_version >= oldest for r in group.rollouts) for _, group in self._left]
        kept = [left for left, is_fresh in zip(self._left, fresh, strict=True) if is_fresh]
        stale = [group for (_, group), is_fresh in zip(self._left, fresh, strict=True) if not is_fresh]
        return kept, [dropped_group(group, "stale") for group in stale]

    def _useless(self, group: Group) -> str:
        """Why nothing can be learned from a group; empty if something can."""
        correct = [r.score.verdict.correct for r in group.rollouts if r.score is not None and _is_scored(r)]
        if len(correct) < min(2, len(group.rollouts)):
            return "few-scored"
        if not self.dynamic or len(set(correct)) == 2:
            return ""
        return "all-correct" if correct[0] else "all-wrong"

    def _masked(self, group: Group) -> Group:
        return Group(group.task, [self._masked_rollout(rollout) for rollout in group.rollouts])

    def _masked_rollout(self, rollout: Rollout) -> Rollout:
        if _is_scored(rollout) and not (self.overlong == "mask" and rollout.truncated):
            return rollout
        T = len(rollout.completion_ids)
        return replace(rollout, completion_mask=[False] * T, behaviour_logprobs=[0.0] * T)

    def prefix_values(
        self, rollouts: Sequence[Rollout], *, k: int = 9, steps: str | Sequence[Sequence[int]] = "\n"
    ) -> list[PrefixValues]:
        """Monte-Carlo values of the rollouts' steps, see `rlvr.collect.prefix_values`."""
        return prefix_values(self.groups, rollouts, k=k, steps=steps)

    def state_dict(self) -> dict[str, Any]:
        """All that the next `collect` depends on but the sampler's weights; plain JSON."""
        left = [{"index": index, "group": group_as_dict(group)} for index, group in self._left]
        return {**self._identity(), "position": self._cursor.position, "epoch": self._cursor.epoch, "left": left}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a collector stood when `state_dict` was called.

        Raises:
            UsageError: it was one of another environment, seed, or group size, or the tasks have changed since.
        """
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise UsageError(
                    f"this state is of a collector with {name} {state.get(name)!r}, and here it is {value!r}; resume "
                    "with the settings the run began with"
                )
        left = [
            (entry["index"], group_from_dict(entry["group"], self.groups.task(entry["index"])))
            for entry in state["left"]
        ]
        self._cursor.position, self._left = int(state["position"]), left

    def _identity(self) -> dict[str, Any]:
        """What decides which rollout stands where."""
        return {
            "env": self.env.id,
            "split": self.env.split,
            "size": self._cursor.size,
            "seed": self.seed,
            "shuffle": self._cursor.shuffle,
            "group_size": self.groups.group_size,
        }


def _rollouts(groups: Sequence[Group]) -> list[Rollout]:
    return [rollout for group in groups for rollout in group.rollouts]


def _is_scored(rollout: Rollout) -> bool:
    return rollout.score is not None and rollout.score.total is not None


def _warn_of_fewer(groups: int, prompts: int, rounds: int, dropped: Sequence[Dropped]) -> None:
    reasons = Counter(one.why for one in dropped)
    counts = ", ".join(f"{reasons[why]} {why}" for why in sorted(reasons))
    advice = []
    if reasons["all-correct"] or reasons["all-wrong"]:
        advice.append("choose tasks nearer to what the policy can do, or raise max_rounds")
    if reasons["few-scored"]:
        why, count = unscored_reasons(dropped).most_common(1)[0]
        advice.append(
            f"{count} rollouts were not scored because of {why[:200]!r}: that is the scorer's failure, not the "
            "policy's, and `rlvr doctor` looks for it"
        )
    warnings.warn(
        f"{groups} of {prompts} groups after {rounds} rounds; dropped: {counts}. "
        f"Going on with fewer{': ' * bool(advice)}{'; '.join(advice)}. Said once; the log counts them as missing",
        RuntimeWarning,
        stacklevel=4,
    )
