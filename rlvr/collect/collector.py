"""Collects groups to train on: sample, score, filter, and sample again until there are enough.

cursor ─▶ Flight: sample, score ─▶ mask unscored rollouts ─▶ drop uniform groups ─▶ enough? ─▶ Collected
                 ▲                                                                     │ no, and rounds are left
                 └─────────────────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rlvr.collect.flight import Flight
from rlvr.collect.groups import STEP_S, Groups
from rlvr.collect.mixing import cursor_of
from rlvr.collect.players import OwnLoopEnv
from rlvr.collect.prefixes import PrefixValues, prefix_values
from rlvr.collect.scheduler import Schedule
from rlvr.collect.serialization import group_as_dict, group_from_dict
from rlvr.collect.stats import (
    Dropped,
    collection_stats,
    dropped_group,
    mixture_stats,
    tool_stats,
    unscored_reasons,
)
from rlvr.display import Activity
from rlvr.environment import Environment, Mixture
from rlvr.errors import UsageError
from rlvr.samplers.protocol import Sampler, Sampling
from rlvr.scoring import Scorer
from rlvr.types import Group, Rollout
from rlvr.validate import require_number, require_one_of, require_whole

__all__ = ["Collected", "Collector"]


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of one `collect`.

    Attributes:
        groups: in the order of their tasks; at most as many as were requested.
        dropped: groups that were sampled and are not trained on.
        stats: metrics, see `rlvr.collect.stats`.
        indices: id of a task → its index, of all groups and of dropped ones that this call sampled.
    """

    groups: Sequence[Group]
    dropped: Sequence[Dropped]
    stats: Mapping[str, float]
    indices: Mapping[str, int] = field(default_factory=dict)

    def staleness(self, version: int) -> int:
        """How many weight versions the oldest rollout is behind; 0 without rollouts.

        Args:
            version: of the weights to compare with.
        """
        return max(
            (version - r.weights_version for group in self.groups for r in group.rollouts),
            default=0,
        )


class Collector:
    """Collects groups from an environment.  Close it, or use it as a context manager.

        with Collector(env, sampler, group_size=16, sampling=Sampling(max_tokens=1024), dynamic=True) as collector:
            collected = collector.collect(prompts=32)

    A rollout depends only on the seed, its task, its place in the run and its number in the group; not on the rest of
    the batch, and not on how long anything takes.

    A rollout that could not be scored stays in its group, so that all groups have the same size, with
    `completion_mask` all False and `score.total` None; no statistic of the group includes it.  A group with fewer than
    2 scored rollouts (1 if group_size is 1) is dropped.

    Args:
        env: the environment.
        sampler: generates completions.
        group_size: rollouts per task (G).
        sampling: how they are sampled; not at temperature 0, where all rollouts of a group would be equal.
        scorer: a scorer of `env`; None for a new one with a worker per core.  None for multi-turn environments.
        seed: of the order of tasks and of all rollouts.
        dynamic: dynamic sampling (DAPO, arXiv:2503.14476, section 3.2, eq. 11): drop groups whose scored rollouts
            are all correct or all wrong, and sample other tasks instead.  The verdict counts, not the shaped total,
            since a length penalty makes totals differ in every group.
        overlong: "mask" leaves truncated rollouts out of the loss (DAPO, section 3.4, overlong filtering: "masks the
            loss of truncated samples"): their `completion_mask` is all False; their score stays in the group's mean
            and std.  "keep" trains on them; to punish them softly, add `Overlong` to the reward.
        max_rounds: most rounds of sampling in one `collect` with dynamic sampling.  After them it returns fewer
            groups, perhaps none, warns the first time, and counts them as `missing`.  Without dynamic sampling there
            is one round.  After rounds in which no rollout could be scored there is no further one.
        oversample: tasks that a round samples for each missing group, at least 1.  Above 1 there are fewer rounds, and
            some groups are left over for the next `collect`.
        max_staleness: no group is returned that has a token of weights more versions older than those it is trained
            with.  A group left over is dropped then, and one that is under way is sampled anew.
        max_turns: most turns of an episode.
        step_s: most wall seconds of an environment's `reset` (over it, the rollout is UNSCORED) and of each `step`
            (over it, the episode is WRONG, why "time limit").
        schedule: when an environment's reply is sampled from: "ready", as soon as it is there, or "tokens", after a
            fixed number of decode steps, so that runs repeat to the last bit.  None: "tokens" if the sampler counts
            its steps, as the local one does.
        shuffle: give each epoch a random order; False for the order of the indices.
        activity: shows how far `collect` is; None for nothing.

    Attributes:
        groups: samples and scores without filters; `prefix_values` needs it.

    Raises:
        UsageError: a setting cannot work, or these do not fit each other.
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
        step_s: float = STEP_S,
        schedule: Schedule | None = None,
        shuffle: bool = True,
        activity: Activity | None = None,
    ) -> None:
        require_whole("seed", seed, 0)
        require_whole("max_rounds", max_rounds, 1)
        require_whole("max_staleness", max_staleness, 0)
        require_number("oversample", oversample, 1)
        require_one_of("overlong", overlong, ("mask", "keep"))
        if sampling.temperature == 0:
            raise UsageError(
                "temperature is 0: all rollouts of a group would be the same; train at 1, or near it"
            )
        if dynamic and group_size == 1:
            raise UsageError(
                "dynamic sampling with group_size=1: one rollout is always uniform; give at least 2"
            )
        self.groups = Groups(
            env,
            sampler,
            group_size=group_size,
            sampling=sampling,
            scorer=scorer,
            max_turns=max_turns,
            step_s=step_s,
            schedule=schedule,
            key=("collect", seed),
            own_sizes=True,
        )
        self.env, self.sampler, self.seed = env, sampler, int(seed)
        self.dynamic, self.overlong = dynamic, overlong
        self.max_rounds, self.oversample, self.max_staleness = max_rounds, oversample, max_staleness
        self._cursor = cursor_of(env, seed=self.seed, shuffle=shuffle)
        self._left: list[tuple[int, Group]] = []  # with the index of its task
        self._flight = Flight(self.groups)
        self._activity = activity or Activity()
        self._has_warned = self._has_warned_of_length = False

    def close(self) -> None:
        """End the threads, and the workers unless a scorer was given."""
        self._flight.close()
        self.groups.close()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def position(self) -> int:
        """Number of tasks sampled so far."""
        return self._cursor.position

    @property
    def epoch(self) -> int:
        """Number of completed epochs; always 0 if tasks are generated."""
        return self._cursor.epoch

    def collect(self, prompts: int, *, ahead: int = 0, trained_at: int | None = None) -> Collected:
        """Collect groups.  If this raises or is interrupted, the next call begins where this one began.

        What was under way before such a call is sampled anew by the next one.

        Args:
            prompts: number of groups.
            ahead: how many further calls' groups are begun already.  They are under way while the weights change:
                rollouts go on with the new ones if the sampler has `take_back`, see `Sampler`, or begin again.
            trained_at: version of the weights that these groups will be trained with; None for the sampler's.

        Raises:
            UsageError: `ahead` is not 0, and the environment owns its loop.

        Warns:
            RuntimeWarning: there are fewer groups; only the first time.
        """
        require_whole("prompts", prompts, 1)
        require_whole("ahead", ahead, 0)
        if ahead and isinstance(self.env, OwnLoopEnv):
            raise UsageError(
                f"{self.env.id} owns its loop, which cannot stand still while the weights change: groups cannot be "
                "collected ahead of it; set max_staleness to 1 or 0"
            )
        before = self._cursor.state_dict(), self._left, self._flight.asked
        oldest = (self.sampler.version if trained_at is None else trained_at) - self.max_staleness
        try:
            return self._collected(int(prompts), oldest, int(ahead))
        except BaseException:
            self._cursor.load_state_dict(before[0])
            self._left = before[1]
            self._flight.close()
            self._flight = Flight(self.groups)
            self._flight.begin(before[2])
            raise

    def _collected(self, prompts: int, oldest: int, ahead: int) -> Collected:
        kept, dropped = self._still_fresh(oldest)
        sampled: list[Group] = []
        indices: dict[str, int] = {}
        rounds = requeued = 0
        self.groups.background.take_timings()  # time before this call does not count
        while len(kept) < prompts and rounds < (self.max_rounds if self.dynamic else 1):
            if sampled and not any(map(_is_scored, _rollouts(sampled))):
                break
            rounds += 1
            wanted = math.ceil((prompts - len(kept)) * self.oversample)
            requeued += self._flight.begin_again(oldest, wanted)
            asked = self._cursor.take(max(0, wanted + ahead * prompts - len(self._flight)))
            self._flight.begin(self._fitting(asked, dropped))
            left = self._flight.rollouts_left(wanted)
            with self._activity.task("sampling", left) as advance:
                finished = self._flight.finish(wanted, advance)
            for index, group in finished:
                sampled.append(group)
                indices[group.task.id] = index
                self._cursor.saw(index, group)
                why = self._useless(group)
                if why:
                    dropped.append(dropped_group(group, why))
                else:
                    kept.append((index, self._masked(group)))
        groups, self._left = [group for _, group in kept[:prompts]], kept[prompts:]
        indices |= {group.task.id: index for index, group in kept}
        missing = prompts - len(groups)
        if missing and not self._has_warned:
            _warn_of_fewer(len(groups), prompts, rounds, dropped)
            self._has_warned = True
        numbers = collection_stats(sampled, groups, dropped, self.groups.background.take_timings())
        numbers |= (
            mixture_stats(self.env, sampled, groups) | tool_stats(sampled) | self._cursor.stats()
        )
        numbers |= {
            "rounds": float(rounds),
            "left": float(len(self._left)),
            "missing": float(missing),
        }
        numbers |= {"in_flight": float(len(self._flight)), "requeued": float(requeued)}
        return Collected(groups, dropped, numbers, indices)

    def _fitting(
        self, asked: Sequence[tuple[int, int]], dropped: list[Dropped]
    ) -> list[tuple[int, int]]:
        """The tasks whose prompts leave room for a completion; the others are added to `dropped`."""
        if getattr(self.sampler, "positions", None) is None:
            return list(asked)
        fitting: list[tuple[int, int]] = []
        tasks = self.groups.tasks([index for _, index in asked])
        for (place, index), task in zip(asked, tasks, strict=True):
            excess = self.groups.excess_tokens(task)
            if task is None or not excess:
                fitting.append((place, index))
                continue
            dropped.append(Dropped(task.id, "too-long", rollouts=0, tokens=0))
            if not self._has_warned_of_length:
                self._has_warned_of_length = True
                warnings.warn(
                    f"the prompt of task {task.id!r} may get {self.groups.limit_of(task)} more tokens, which is "
                    f"{excess} more than the model has positions: tasks that are too long are left out. Lower "
                    "max_tokens, or shorten prompts. This warning comes once; the log counts them as dropped/too-long",
                    RuntimeWarning,
                    stacklevel=4,
                )
        return fitting

    def _still_fresh(self, oldest: int) -> tuple[list[tuple[int, Group]], list[Dropped]]:
        """Groups that an earlier call left over, and those of them that are dropped as too old."""
        fresh = [
            all(r.weights_version >= oldest for r in group.rollouts) for _, group in self._left
        ]
        kept = [left for left, is_fresh in zip(self._left, fresh, strict=True) if is_fresh]
        stale = [
            group for (_, group), is_fresh in zip(self._left, fresh, strict=True) if not is_fresh
        ]
        return kept, [dropped_group(group, "stale") for group in stale]

    def _useless(self, group: Group) -> str:
        """Why a group cannot be trained on; empty if it can."""
        correct = [
            r.score.verdict.correct for r in group.rollouts if r.score is not None and _is_scored(r)
        ]
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
        return replace(_untrained(rollout), branches=tuple(map(_untrained, rollout.branches)))

    def prefix_values(
        self,
        rollouts: Sequence[Rollout],
        *,
        k: int = 9,
        steps: str | Sequence[Sequence[int]] = "\n",
    ) -> list[PrefixValues]:
        """Monte-Carlo values at the rollouts' step boundaries.

        Args:
            rollouts, k, steps: as in `rlvr.collect.prefix_values`.
        """
        return prefix_values(self.groups, rollouts, k=k, steps=steps)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next `collect` depends on, except the sampler's weights, as plain JSON."""
        left = [{"index": index, "group": group_as_dict(group)} for index, group in self._left]
        under_way = {"left": left, "flight": self._flight.state_dict()}
        return {
            **self._identity(),
            **self._cursor.state_dict(),
            "epoch": self._cursor.epoch,
            **under_way,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a collector was when its `state_dict` was called.

        Args:
            state: what `state_dict` returned.

        Raises:
            UsageError: that collector had another environment, seed or group size, or the tasks have changed since.
        """
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise UsageError(
                    f"this state is of a collector with {name} {state.get(name)!r}, and here it is {value!r}; resume "
                    "with the settings that the run began with"
                )
        left = [
            (entry["index"], group_from_dict(entry["group"], self.groups.task(entry["index"])))
            for entry in state["left"]
        ]
        flight = Flight(self.groups)
        flight.load_state_dict(state["flight"])
        self._cursor.load_state_dict(state)
        self._left, self._flight = left, flight

    def _identity(self) -> dict[str, Any]:
        """What the order of rollouts depends on."""
        return {
            "env": self.env.id,
            "split": self.env.split,
            "size": self._cursor.size,
            "seed": self.seed,
            "shuffle": self._cursor.shuffle,
            "group_size": self.groups.group_size,
            **({"envs": self.env.config["envs"]} if isinstance(self.env, Mixture) else {}),
        }


def _untrained(row: Rollout) -> Rollout:
    T = len(row.completion_ids)
    return replace(row, completion_mask=[False] * T, behaviour_logprobs=[0.0] * T)


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
            f"{count} rollouts were not scored because of {why[:200]!r}: that is a failure of scoring, not of the "
            "policy, and `rlvr doctor` looks for its cause"
        )
    warnings.warn(
        f"{groups} of {prompts} groups after {rounds} rounds; dropped: {counts}. "
        f"Going on with fewer{': ' * bool(advice)}{'; '.join(advice)}. "
        "This warning comes once; see `missing` in the log",
        RuntimeWarning,
        stacklevel=4,
    )
