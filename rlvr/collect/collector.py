"""Collects groups to train on: sample, score and filter, with as many groups open as the
batch is expected to need.

cursor ─▶ Flight: sample, score ─▶ first groups finished? ─▶ drop uniform groups,
   ▲                  │                                      mask unscored rollouts ─▶ Collected
   │                  │ how many of the open groups will be kept?
   └──────────────────┘ fewer than the batch needs: open another

A batch is the first groups that can be trained on, in the order of tasks; how fast anything is
changes nothing in it.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rlvr.collect.flight import Flight, OpenGroup
from rlvr.collect.groups import STEP_S, Groups
from rlvr.collect.mixing import cursor_of
from rlvr.collect.player import Player
from rlvr.collect.prefixes import PrefixValues, prefix_values
from rlvr.collect.scheduler import Schedule
from rlvr.collect.stats import (
    Dropped,
    collection_stats,
    dropped_group,
    mixture_stats,
    tool_stats,
    unscored_reasons,
)
from rlvr.display import Activity
from rlvr.environment import Environment
from rlvr.errors import UsageError
from rlvr.samplers.protocol import Sampler, Sampling
from rlvr.scoring import Scorer
from rlvr.types import Group, Rollout, StateDict
from rlvr.validate import require_one_of, require_whole
from rlvr.workers.closing import Closing

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


class Collector(Closing):
    """Collects groups from an environment.  Close it, or use it as a context manager.

        with Collector(env, sampler, group_size=16, sampling=Sampling(max_tokens=1024),
        dynamic=True) as collector:
            collected = collector.collect(prompts=32)

    A rollout depends only on the seed, its task, its place in the run and its number in the group;
    not on the rest of the batch, and not on how long anything takes.

    A rollout that could not be scored stays in its group, so that all groups have the same size,
    with `completion_mask` all False and `score.total` None; no statistic of the group includes it.
    A group with fewer than 2 scored rollouts (1 if group_size is 1) is dropped.

    Args:
        env: the environment.
        sampler: generates completions.
        group_size: rollouts per task (G).
        sampling: how they are sampled; not at temperature 0, where all rollouts of a group would be
            equal.
        scorer: a scorer of `env`; None for a new one with a worker per core.  None for multi-turn
            environments.
        seed: of the order of tasks and of all rollouts.
        dynamic: dynamic sampling (DAPO, arXiv:2503.14476, section 3.2, eq. 11): drop groups whose
            scored rollouts are all correct or all wrong, and sample other tasks instead.  The
            verdict counts, not the shaped total, since a length penalty makes totals differ in
            every group.
        overlong: "mask" leaves truncated rollouts out of the loss (DAPO, section 3.4, overlong
            filtering: "masks the loss of truncated samples"): their `completion_mask` is all False;
            their score stays in the group's mean and std.  "keep" trains on them; to punish them
            softly, add `Overlong` to the reward.
        max_tries: most tasks that one `collect` with dynamic sampling samples for each group that
            is wanted.  After them it returns fewer groups, perhaps none, warns the first time, and
            counts them as `missing`.  Without dynamic sampling it is 1.  Where no rollout of as
            many tasks as groups are wanted could be scored, it ends there.
        max_staleness: no group is returned that has a token of weights more versions older than
            those it is trained with; one that would be is sampled anew.  At 0, groups beyond the
            batch are dropped, their tokens counted as `discarded_tokens`, and their tasks come
            again; from 1 on they go on in the next `collect`.
        max_turns: most turns of an episode.
        step_s: most wall seconds of an agent's own between two completions (over it, the episode is
            WRONG, why "time limit").
        schedule: when an environment's reply is sampled from: "ready", as soon as it is there, or
            "tokens", after a fixed number of decode steps, so that runs repeat to the last bit.
            None: "tokens" if the sampler counts its steps, as the local one does.
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
        max_tries: int = 10,
        max_staleness: int = 0,
        max_turns: int = 8,
        step_s: float = STEP_S,
        schedule: Schedule | None = None,
        shuffle: bool = True,
        activity: Activity | None = None,
    ) -> None:
        require_whole("seed", seed, 0)
        require_whole("max_tries", max_tries, 1)
        require_whole("max_staleness", max_staleness, 0)
        require_one_of("overlong", overlong, ("mask", "keep"))
        if sampling.temperature == 0:
            raise UsageError(
                "temperature is 0: all rollouts of a group would be the same; train at 1, or near "
                "it"
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
        self.max_tries, self.max_staleness = max_tries, max_staleness
        self._cursor = cursor_of(env, seed=self.seed, shuffle=shuffle)
        # What a checkpoint keeps: tasks that were begun
        # ahead come again, unless they are still under way.
        self._closed = self._cursor.state_dict()  # after the last task of the last batch
        # Without dynamic sampling every group is kept.
        self._share = _Share() if dynamic else _Share(1.0, 1.0)
        self._flight = Flight(self.groups)
        self._activity = activity or Activity()
        self._has_warned = self._has_warned_of_length = False
        self._places: StateDict = {}

    def close(self) -> None:
        """End the threads, and the workers unless a scorer was given."""
        self._flight.close()
        self.groups.close()

    @property
    def position(self) -> int:
        """Number of tasks up to the end of the last batch."""
        position: int = self._closed["position"]
        return position

    @property
    def epoch(self) -> int:
        """Number of completed epochs; always 0 if tasks are generated."""
        return self._cursor.epoch

    def collect(self, prompts: int, *, ahead: int = 0, trained_at: int | None = None) -> Collected:
        """Collect groups.  If this raises or is interrupted, the next call begins where this one
        began.

        What was under way before such a call is sampled anew by the next one.

        Args:
            prompts: number of groups.
            ahead: how many further calls' groups are begun already.  They are under way while the
                weights change: rollouts go on with the new ones if the sampler has `take_back`, see
                `Sampler`, or begin again.
            trained_at: version of the weights that these groups will be trained with; None for the
                sampler's.

        Raises:
            UsageError: `ahead` is not 0, and the environment owns its loop.

        Warns:
            RuntimeWarning: there are fewer groups; only the first time.
        """
        require_whole("prompts", prompts, 1)
        require_whole("ahead", ahead, 0)
        if ahead and not isinstance(self.groups.player, Player):
            raise UsageError(
                f"{self.env.id} owns its loop, which cannot stand still while the weights change: "
                "groups cannot be collected ahead of it; set max_staleness to 1 or 0"
            )
        # A token may be so many versions older than the weights that are trained on it.
        oldest = (self.sampler.version if trained_at is None else trained_at) - self.max_staleness
        before = len(self._flight)
        try:
            return self._collect_groups(int(prompts), oldest, int(ahead))
        # Ctrl-C too.  The tasks that were under way come next again, so that their order stays a
        # function of the batches that were given out.
        except BaseException:
            self._flight.close()
            self._flight = Flight(self.groups)
            self._cursor.load_state_dict(self._closed)
            for _ in range(before):
                self._begin_next()
            raise

    def _collect_groups(self, prompts: int, oldest: int, ahead: int) -> Collected:
        # Without dynamic sampling each task is tried once, whatever comes of it.
        limit = prompts * (self.max_tries if self.dynamic else 1)
        # Before anything is sampled: what is too old by now would be thrown away when it is done.
        requeued = self._flight.begin_again(oldest)
        self.groups.background.take_timings()  # time before this call does not count
        self._open(prompts * (1 + ahead), limit * (1 + ahead))
        with self._activity.task("sampling", self._rollouts_left(prompts)) as advance:
            while (count := self._count_for_batch(prompts, limit)) is None:
                self._flight.work(advance)
                # After each piece of work: finished groups
                # change how many more are expected to be needed.
                self._open(prompts * (1 + ahead), limit * (1 + ahead))
        sampled: list[Group] = []
        groups: list[Group] = []
        dropped: list[Dropped] = []
        indices: dict[str, int] = {}
        closed = self._flight.take(count)
        for open_group in closed:
            if open_group.left_out is not None:
                dropped.append(Dropped(open_group.left_out, "too-long", rollouts=0, tokens=0))
                continue
            group = open_group.group()
            sampled.append(group)
            indices[group.task.id] = open_group.index
            if why := self._why_useless(open_group):
                dropped.append(dropped_group(group, why))
            else:
                groups.append(self._mask_group(group))
        missing = prompts - len(groups)
        if missing and not self._has_warned:
            _warn_of_fewer(len(groups), prompts, count, dropped)
            self._has_warned = True
        discarded = self._close(closed, len(groups))
        numbers = collection_stats(sampled, groups, dropped, self.groups.background.take_timings())
        numbers |= (
            mixture_stats(self.env, sampled, groups) | tool_stats(sampled) | self._cursor.stats()
        )
        # Groups that are finished and wait for the next batch.
        left = sum(in_flight.finished for in_flight in self._flight.open)
        numbers |= {"left": float(left), "in_flight": float(len(self._flight) - left)}
        numbers |= {"missing": float(missing), "requeued": float(requeued)}
        numbers["discarded_tokens"] = float(discarded)
        return Collected(groups, dropped, numbers, indices)

    def _count_for_batch(self, prompts: int, most: int) -> int | None:
        """How many of the first groups make the batch; None as long as that is not known."""
        # Groups in the order of tasks: the first that is not sampled ends what can be known.
        hopeful = kept_count = 0
        for count, group in enumerate(self._flight.open, 1):
            if not group.sampled:
                break
            # A group whose scores are missing may still be kept.
            hopeful += not group.finished or self._is_kept(group)
            if hopeful == prompts or count == most:  # only scores are missing
                self._flight.settle(count)
                break
        is_scored = False
        for count, group in enumerate(self._flight.open, 1):
            if not group.finished:
                return None
            kept_count += self._is_kept(group)
            # As many tasks as prompts and not one score: the scorer is down, and more would not
            # help.
            is_scored = is_scored or any(map(_is_scored, group.rollouts.values()))
            if kept_count == prompts or count == most or (count >= prompts and not is_scored):
                return count
        return None

    def _open(self, wanted: int, most: int) -> None:
        """Begin groups until so many of the open ones are expected to be kept."""
        groups = self._flight.open
        share = self._share.with_finished(
            [not self._why_useless(group) for group in groups if group.size and group.finished]
        )
        expected = sum(self._chance(group, share) for group in groups)
        for _ in range(len(groups), most):
            if expected >= wanted - 1e-9:  # of sums of thirds and the like
                return
            expected += share if self._begin_next() else 0.0

    def _chance(self, one: OpenGroup, share: float) -> float:
        """The chance that a group is kept, from the verdicts of its rollouts so far."""
        if one.finished:
            return float(self._is_kept(one))
        if not self.dynamic:
            return 1.0
        correct = _correct(list(one.rollouts.values()))
        if len(set(correct)) == 2:
            return 1.0
        alike = 0.5 ** len(correct)  # of a group that will be kept, if either verdict is as likely
        return share * alike / (share * alike + 1 - share) if share < 1 else 1.0

    def _rollouts_left(self, prompts: int) -> int:
        return sum(group.size - len(group.rollouts) for group in self._flight.open[:prompts])

    def _close(self, closed: Sequence[OpenGroup], kept: int) -> int:
        """Let the order of tasks go on behind a batch; returns the tokens of open groups that are
        dropped.

        The order is a function of the batches before: a curriculum that has learned may have other
        tasks come next than those that are open, and these are dropped.
        """
        # Nothing is with the sampler while the order is put right.
        self._flight.park()
        self._cursor.load_state_dict(self._closed)
        # From the end of the last batch over the tasks of this
        # one: those that were begun ahead are taken below.
        self._cursor.take(len(closed))
        for group in closed:
            if group.size:
                self._cursor.saw(group.index, group.group())
        if self.dynamic:
            self._share = self._share.after(
                kept, sum(closed_group.size > 0 for closed_group in closed)
            )
        self._closed = self._cursor.state_dict()
        # At staleness 0 nothing may be sampled by older weights, so open groups go.
        still_open = self._flight.open if self.max_staleness else []
        again = self._cursor.take(len(still_open))
        same = [
            open_group.index == index
            for open_group, (_, index) in zip(still_open, again, strict=True)
        ]
        # The first open group whose task is another one now; those before it stay.
        stay = same.index(False) if False in same else len(same)
        if stay < len(still_open) or not still_open:
            self._cursor.load_state_dict(self._closed)
            self._cursor.take(stay)
        return self._flight.drop_from(stay)

    def _begin_next(self) -> bool:
        """Begin the group of the next task; False if its prompt leaves no room for a completion."""
        [(place, index)] = self._cursor.take(1)
        task, excess = None, 0
        # A prompt is tokenised here only where it might not fit.
        if getattr(self.sampler, "positions", None) is not None:
            task = self.groups.task(index)
            excess = self.groups.excess_tokens(task)
        if task is None or not excess:
            self._flight.begin(place, index)
            return True
        self._flight.begin(place, index, left_out=task.id)
        if not self._has_warned_of_length:
            self._has_warned_of_length = True
            warnings.warn(
                f"the prompt of task {task.id!r} may get {self.groups.limit_of(task)} more tokens, "
                f"which is {excess} more than the model has positions: tasks that are too long are "
                "left out. Lower max_tokens, or shorten prompts. This warning comes once; the log "
                "counts them as dropped/too-long",
                RuntimeWarning,
                stacklevel=5,
            )
        return False

    def _is_kept(self, one: OpenGroup) -> bool:
        return one.left_out is None and not self._why_useless(one)

    def _why_useless(self, one: OpenGroup) -> str:
        """Why a finished group cannot be trained on; empty if it can."""
        if one.why is None:  # asked for at every poll
            # Kept: a finished group does not change.
            one.why = self._useless(list(one.rollouts.values()))
        return one.why

    def _useless(self, rollouts: Sequence[Rollout]) -> str:
        correct = _correct(rollouts)
        # With one score the mean is that score, and the advantage 0; a group of one is whole with
        # it.
        if len(correct) < min(2, len(rollouts)):
            return "few-scored"
        if not self.dynamic or len(set(correct)) == 2:
            return ""
        return "all-correct" if correct[0] else "all-wrong"

    def _mask_group(self, group: Group) -> Group:
        return Group(group.task, [self._masked_rollout(rollout) for rollout in group.rollouts])

    def _masked_rollout(self, rollout: Rollout) -> Rollout:
        # Truncated rollouts keep their score in the group's mean; they are only not trained on.
        if _is_scored(rollout) and not (self.overlong == "mask" and rollout.truncated):
            return rollout
        return replace(
            _without_training(rollout), branches=tuple(map(_without_training, rollout.branches))
        )

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

    def state_dict(self) -> StateDict:
        """Everything that the next `collect` depends on, except the sampler's weights, as plain
        JSON."""
        return {
            **self._identity(),
            **self._closed,
            "epoch": self._cursor.epoch,
            "flight": self._flight.state_dict(),
            "share": [self._share.kept, self._share.seen],
            **({"places": self._places} if self._places else {}),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where a collector was when its `state_dict` was called.

        Args:
            state: what `state_dict` returned.

        Raises:
            UsageError: that collector had another environment, seed or group size, or the tasks
                have changed since.
        """
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise UsageError(
                    f"this state is of a collector with {name} {state.get(name)!r}, and here it is "
                    f"{value!r}; resume with the settings that the run began with"
                )
        # Read whole before anything of this collector changes.
        flight = Flight(self.groups)
        flight.load_state_dict(state["flight"])
        self._cursor.load_state_dict(state)
        self._closed, self._flight = self._cursor.state_dict(), flight
        # Past the tasks of groups that are under way.
        self._cursor.take(len(flight))
        self._share = _Share(*state["share"])
        self._places = dict(state.get("places", {}))

    @property
    def place(self) -> StateDict:
        """Where it stands in the tasks of each environment that it or those before it went through,
        as plain JSON."""
        return {**self._places, self._tasks: {"env": self.env.id, "at": self._closed}}

    def go_on_from(self, place: StateDict) -> None:
        """Go through the tasks from where another collector stood.

        An environment that had its turn before goes on where it was, and so does a mixture's with
        other weights.

        Args:
            place: of the other one, whose environment, lengths or group size were others.
        """
        self._places = dict(place)
        last = next(reversed(self._places.values()))
        # Else the last place: the same environment with other lengths
        # or another group size goes on.
        saved = self._places.pop(self._tasks, None) or last
        if saved["env"] == self.env.id:
            self._cursor.adopt(saved["at"])
        self._closed = self._cursor.state_dict()

    @property
    def _tasks(self) -> str:
        """What its tasks are: equal texts are equal tasks."""
        description = {**self._identity(), "config": self.env.config}
        description.pop("group_size")
        return json.dumps(description, sort_keys=True, default=str)

    def _identity(self) -> dict[str, object]:
        """What the order of rollouts depends on."""
        return {
            "env": self.env.id,
            "split": self.env.split,
            "seed": self.seed,
            "group_size": self.groups.group_size,
            **self._cursor.identity,
        }


@dataclass(frozen=True, slots=True)
class _Share:
    """The share of groups that can be trained on, from the batches so far;
    half before the first one.

    Attributes:
        kept, seen: groups, of which a batch counts half as much as the one after it.
    """

    kept: float = 4.0
    seen: float = 8.0

    def with_finished(self, kept: Sequence[bool]) -> float:
        """The share with groups that are finished beyond those batches; at least one in 64."""
        # At least 1 / 64: where no group is kept, thousands would be opened.
        return max((self.kept + sum(kept)) / (self.seen + len(kept)), 1 / 64)

    def after(self, kept: int, seen: int) -> _Share:
        """The share after another batch."""
        # Halved: an older batch counts half as much as the one after it, as the policy changes.
        return _Share(self.kept / 2 + kept, self.seen / 2 + seen)


def _correct(rollouts: Sequence[Rollout]) -> list[bool]:
    """The verdicts of those that are scored."""
    return [r.score.verdict.correct for r in rollouts if r.score is not None and _is_scored(r)]


def _without_training(row: Rollout) -> Rollout:
    T = len(row.completion_ids)
    return replace(row, completion_mask=[False] * T, behaviour_logprobs=[0.0] * T)


def _is_scored(rollout: Rollout) -> bool:
    return rollout.score is not None and rollout.score.total is not None


def _warn_of_fewer(groups: int, prompts: int, tried: int, dropped: Sequence[Dropped]) -> None:
    reasons = Counter(dropped_group.why for dropped_group in dropped)
    counts = ", ".join(f"{reasons[why]} {why}" for why in sorted(reasons))
    advice = []
    if reasons["all-correct"] or reasons["all-wrong"]:
        advice.append("choose tasks nearer to what the policy can do, or raise max_tries")
    if reasons["few-scored"]:
        why, count = unscored_reasons(dropped).most_common(1)[0]
        advice.append(
            f"{count} rollouts were not scored because of {why[:200]!r}: that is a failure of "
            "scoring, not of the policy, and `rlvr doctor` looks for its cause"
        )
    warnings.warn(
        f"{groups} of {prompts} groups after {tried} tasks; dropped: {counts}. "
        f"Going on with fewer{': ' * bool(advice)}{'; '.join(advice)}. "
        "This warning comes once; see `missing` in the log",
        RuntimeWarning,
        stacklevel=4,
    )
