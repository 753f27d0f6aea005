"""What goes wrong silently: alarms with reason and remedy, and the ends of runs that would
learn nothing or the wrong.

`ScoringAlarm` ends a run after `bad_steps` steps in which every rollout was UNSCORED.  `Alarms`
says a line for others, or ends the run after it. `SecondOpinion` has a share of the rollouts
verified once more, and ends a run whose rewards it does not confirm.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.distributed.tensor import DTensor

from rlvr.collect.stats import unscored_reasons
from rlvr.errors import RlvrError, foreign_code
from rlvr.samplers.chat import ChatFormat
from rlvr.samplers.protocol import rollout_seed
from rlvr.train.rollout_batch import RolloutBatch
from rlvr.train.trends import trends
from rlvr.types import (
    Group,
    JsonDict,
    Outcome,
    Rollout,
    Verdict,
    Verifier,
    VerifierFunction,
    as_verifier,
    verified,
)
from rlvr.validate import require_number, require_whole
from rlvr.workers.loops import loop_thread

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = [
    "AlarmRaised",
    "Alarms",
    "NothingScored",
    "OpinionAlarm",
    "RewardsDisputed",
    "ScoringAlarm",
    "SecondOpinion",
    "lr_alarm",
    "never_ends",
]


class AlarmRaised(RlvrError):
    """An alarm has ended the run, as `on_alarm` is stop; its last step is saved."""


class NothingScored(RlvrError):
    """No rollout could be scored in several steps in a row, so the run would learn nothing."""


class ScoringAlarm:
    """Counts consecutive steps in which no rollout was scored.

    Args:
        steps: the number of them that ends the run.
    """

    def __init__(self, steps: int) -> None:
        self.steps, self._without_score = steps, 0

    def check(self, batch: RolloutBatch) -> None:
        """Count a step.

        Args:
            batch: what the step has collected.

        Raises:
            NothingScored: this was one unscored step too many.
        """
        unscored = int(batch.stats["unscored"])
        self._without_score = steps = (
            self._without_score + 1 if unscored == batch.stats["rollouts"] else 0
        )
        if steps >= self.steps:
            # 0 == 0: no rollout was made at all, as no prompt fitted.
            if not unscored:
                raise NothingScored(
                    f"every prompt of the last {steps} steps, with max_tokens behind it, is longer "
                    "than the model's positions; lower max_tokens, or choose a model with more"
                )
            why, count = unscored_reasons(batch.dropped).most_common(1)[0]
            raise NothingScored(
                f"none of the {unscored} rollouts of this step could be scored, nor any of the "
                f"last {steps} steps; {count} of them because of {why[:200]!r}. `rlvr doctor` "
                "looks for what is missing here; the same command continues from the last "
                "checkpoint"
            )


_ENTROPY: Final = 0.01
"""Nats per token below which a policy has hardly a choice left: two completions of it
are nearly always the same."""


_CLIP_STEPS: Final = 20
"""Steps without a clipped token after which a clip is said to do nothing."""


class Alarms:
    """Says a line when steps in a row show that the run learns nothing or breaks down, and
    once more if it comes back.

    Args:
        steps: how many in a row.
        prompts: how prompts are sent; a first step in which no completion ends by itself is said
            with it.
        clips: whether the algorithm has a clip, which should act now and then where a batch makes
            several updates.

    Attributes:
        raised: the last alarm that has begun; empty before the first one.
    """

    def __init__(
        self, steps: int, prompts: ChatFormat | None = None, *, clips: bool = False
    ) -> None:
        self.steps, self._prompts, self._clips = steps, prompts, clips
        self.raised = ""
        self._is_first = True
        self._in_a_row: dict[str, int] = {}
        self._trends = trends()
        # A departure from the recomputed step is never chance: one is enough.
        self._limits = {"clip": _CLIP_STEPS, "departs": 1}
        self._limits |= {trend.name: trend.in_a_row for trend in self._trends if trend.in_a_row}

    def check(self, numbers: Mapping[str, float]) -> list[str]:
        """The alarms that begin with this step, each a line with reason and remedy.

        Args:
            numbers: metrics of the step.
        """
        signs = dict(self._signs(numbers))
        lines = list[str]()
        if self._is_first and self.steps > 1 and "no end" in signs:
            lines.append(f"alarm: {never_ends(self._prompts)}")
        self._is_first = False
        self._in_a_row = {name: self._in_a_row.get(name, 0) + 1 for name in signs}
        # `==`, not `>=`: the line is said once, when the row of steps reaches its limit.
        begun = [
            line
            for name, line in signs.items()
            if self._in_a_row[name] == self._limits.get(name, self.steps)
        ]
        self.raised = begun[-1] if begun else self.raised
        return lines + begun

    def end_run(self, step: int) -> None:
        """End a run whose alarm has been raised.

        Args:
            step: of the run, which is saved.

        Raises:
            AlarmRaised: always; it names the alarm and the way on.
        """
        raise AlarmRaised(
            f"on_alarm is 'stop', and step {step} raised an alarm: "
            f"{self.raised.removeprefix('alarm: ')}. The same command goes on from this step, with "
            "--on-alarm warn without stopping"
        )

    def read_again(self, rows: Iterable[Row], until: int) -> None:
        """Take note of the steps that a resumed run has done, without a line for their alarms.

        Args:
            rows: of its `metrics.jsonl`.
            until: the last of these steps.
        """
        for row in rows:
            # Row 0 is the evaluation before the first step,
            # and what lies after `until` is run again.
            if 1 <= row["step"] <= until:
                # JSON has no NaN: metrics that were NaN are null in the file.
                self.check({name: value for name, value in row.items() if value is not None})
        self.raised = ""

    def _signs(self, numbers: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        """What is wrong with this step, and as of this step: (name, line)."""
        yield from self._signs_of_step(numbers)
        for trend in self._trends:
            if (why := trend.check(numbers)) is not None:
                begin = "alarm: " if trend.in_a_row else f"alarm: in {self.steps} steps in a row "
                yield trend.name, begin + why

    def _signs_of_step(self, numbers: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        begin = f"alarm: in {self.steps} steps in a row "
        # A critic learns from equal rewards too, so its loss counts as learning.
        if numbers.get("updates") == 0 and not numbers.get("value_loss"):
            accuracy = numbers.get("accuracy", float("nan"))
            yield (
                "no update",
                f"{begin}no weight was changed, as no completion had an advantage: within every "
                f"group all rewards were equal (accuracy {accuracy:.2f}). Choose tasks nearer to "
                "what the policy can do (`rlvr filter`), raise group_size or temperature, or give "
                "partial credit",
            )
        elif numbers.get("reward_std") == 0:
            reward = numbers.get("reward", float("nan"))
            yield (
                "no variation",
                f"{begin}every completion had the same reward, {reward:g}: what moves the policy "
                "is noise, or the critic's errors. Choose tasks nearer to what the policy can do "
                "(`rlvr filter`), give partial credit, or look whether the verifier can tell "
                "completions apart (`rlvr check`)",
            )
        departs = [name for name in numbers if name.startswith("departs/")]
        if departs:
            names = ", ".join(name.partition("/")[2] for name in departs)
            yield (
                "departs",
                f"alarm: this step is not what its algorithm says: {names} departs from what is "
                f"recomputed, by {numbers[departs[0]]:.3g} times what rounding allows; `rlvr step "
                "verify` on the step's file in RUN/steps names row and token. It is a fault of "
                "rlvr, of the machine, or of changed code: please report it",
            )
        if numbers.get("truncated") == 1:
            yield (
                "no end",
                f"{begin}every completion ran to its limit: the end token was never sampled. Raise "
                "max_tokens, send prompts through the model's chat template (--chat on), or give a "
                "stop text; check that the tokenizer's end token is the one that the model was "
                "taught",
            )
        # NaN is true: without these metrics there is no alarm.
        clipped = [numbers.get(f"clipped_{side}", float("nan")) for side in ("low", "high", "dual")]
        # A batch that makes one update has ratio 1 everywhere, where no clip can act.
        if self._clips and numbers.get("updates", 0) > 1 and not any(clipped):
            yield (
                "clip",
                f"alarm: in {_CLIP_STEPS} steps in a row no token was clipped, although each batch "
                f"makes {numbers['updates']:.0f} updates: the policy hardly moves within a batch. "
                "Raise lr, or make more updates (--updates)",
            )
        if numbers.get("entropy", 1.0) < _ENTROPY:
            yield (
                "entropy",
                f"{begin}the policy's entropy was below {_ENTROPY} nats per token: it has "
                "collapsed, and its completions differ too little to learn from. Go back to an "
                "earlier checkpoint with a lower lr, a KL penalty, a higher clip_high or an "
                "entropy_target",
            )


def never_ends(prompts: ChatFormat | None) -> str:
    """What to say where no completion ended by itself: how prompts were sent, and what would end
    one.

    Args:
        prompts: how they were sent; None if that is unknown.
    """
    ends = "" if prompts is None else ", ".join(map(repr, prompts.end_tokens))
    sent = "" if prompts is None else f" Prompts go as {prompts}; a completion ends with {ends}."
    return (
        f"no completion ended by itself: all ran to their limit.{sent} Raise max_tokens, or look "
        "whether the model was taught another template or end token"
    )


def lr_alarm(parameters: Sequence[torch.Tensor], lr: float) -> str | None:
    """A line if one step of AdamW moves weights by more than their size; None if not.

    Args:
        parameters: what is trained; of shards those of this rank count.
        lr: the highest learning rate of the run; AdamW's first step moves each weight by about as
            much.
    """
    # A DTensor's `sum` would be a collective; a mean over
    # this rank's shard is near enough for a warning.
    local_weights = [p.detach() for p in parameters]
    local_weights = [p.to_local() if isinstance(p, DTensor) else p for p in local_weights]
    # float64: a sum in bf16 would itself be rounded to three digits.
    total = sum(float(p.abs().sum(dtype=torch.float64)) for p in local_weights)
    mean = total / max(1, sum(p.numel() for p in local_weights))
    # `0 <`: weights that are all 0 have no size to compare lr with.
    if 0 < mean < lr:
        return (
            f"alarm: lr is {lr:g}, and the trained weights are {mean:.2g} on average: AdamW moves "
            "each by about lr in one step, which wipes out what the model knows; 1e-6 is usual, "
            "and 1e-4 with LoRA"
        )
    return None


class RewardsDisputed(RlvrError):
    """A second opinion does not confirm what the rewards pay for;
    `RUN/disagreements.jsonl` has the completions."""


@dataclass(frozen=True)
class SecondOpinion:
    """Another verifier, or a function that asks a model, on a share of the scored rollouts.

    A policy finds what a verifier pays for without a right answer.  A verifier of another make
    rarely has the same hole, so the share of CORRECT rollouts that it calls wrong rises with the
    hack.

    Args:
        verifier: with `verify(completion, reference)`, or a function of these; either may take
            `task`, and be async. It runs in the trainer's process.  What it raises counts as no
            opinion.
        share: of the scored rollouts, in (0, 1].
        limit: the run ends once this share of the last `window` compared rollouts was judged
            otherwise; 1 for never.
        least: compared rollouts before which the run does not end; at most `window`.
        window: compared rollouts that are counted.  A hack that begins late is seen as soon as one
            that begins early.
    """

    verifier: Verifier | VerifierFunction
    share: float = 0.1
    limit: float = 0.2
    least: int = 50
    window: int = 200

    def __post_init__(self) -> None:
        object.__setattr__(self, "verifier", as_verifier(self.verifier))
        require_number("second_opinion.share", self.share, above=0, most=1)
        require_number("second_opinion.limit", self.limit, above=0, most=1)
        require_whole("second_opinion.least", self.least, 1)
        require_whole("second_opinion.window", self.window, self.least, hint="which is least")


class OpinionAlarm:
    """Compares a share of each batch with the second opinion.

    Args:
        opinion: whose verdicts.
        path: file to which disagreements are appended.
        seed: with the step, draws the rollouts.

    Attributes:
        recent: (judged otherwise, and CORRECT before) of the last `opinion.window` compared
            rollouts, oldest first.
    """

    def __init__(self, opinion: SecondOpinion, path: Path, seed: int) -> None:
        self.opinion, self.path, self.seed = opinion, path, seed
        self.recent: deque[tuple[bool, bool]] = deque(maxlen=opinion.window)

    def check(self, groups: Sequence[Group], step: int) -> dict[str, float]:
        """Compare, keep what differs, and return what is logged.

        Args:
            groups: of the batch.
            step: number of the training step.

        Raises:
            RewardsDisputed: the opinions differ too often.
        """
        draw = torch.Generator().manual_seed(rollout_seed("second opinion", self.seed, step))
        rollouts = [
            r
            for group in groups
            for r in group.rollouts
            if r.score is not None and r.score.total is not None
        ]
        # A draw for every rollout, taken or not: which
        # ones are taken depends on seed and step alone.
        chosen = [r for r in rollouts if float(torch.rand((), generator=draw)) < self.opinion.share]
        compared = apart = failed = 0
        rows_kept: list[dict[str, object]] = []
        for rollout in chosen:
            assert rollout.score is not None
            first, second = rollout.score.verdict, self._verdict(rollout)
            # Our fault or the other verifier's: neither agreement nor disagreement.
            if second.outcome == Outcome.UNSCORED:
                failed += 1
                continue
            compared += 1
            differs = first.correct != second.correct
            self.recent.append((differs, differs and first.correct))
            if differs:
                apart += 1
                rows_kept.append(_row(rollout, first, second, step))
        if rows_kept:
            # Before the limit is checked: the rows that end
            # the run must be in the file that its error names.
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows_kept)
        total = len(self.recent)
        differing, paid = (
            (sum(flags) for flags in zip(*self.recent, strict=True)) if total else (0, 0)
        )
        # Of compared rollouts in the window, not of the batch: a batch has too few for a share.
        if total >= self.opinion.least and differing > self.opinion.limit * total:
            raise RewardsDisputed(
                f"the second opinion differs on {differing} of the last {total} rollouts, above "
                f"the limit of {self.opinion.limit:g}; {paid} of them were paid as CORRECT. "
                f"{self.path} has them: read some, mend the verifier that is wrong, or raise the "
                "limit"
            )
        return {"second/compared": compared, "second/disagrees": apart, "second/unscored": failed}

    def state_dict(self) -> list[tuple[bool, bool]]:
        """What the next check depends on."""
        return list(self.recent)

    def load_state_dict(self, state: Sequence[Any]) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: what it returned; the three sums that runs before 0.2 kept say nothing of a
                window, and are left.
        """
        self.recent.extend(
            (bool(item[0]), bool(item[1])) for item in state if not isinstance(item, int)
        )

    def _verdict(self, rollout: Rollout) -> Verdict:
        with foreign_code() as errors:  # the verifier's
            # made one above
            opinion = verified(
                self.opinion.verifier,  # type: ignore[arg-type]
                rollout.text,
                rollout.task,
            )
            return opinion if isinstance(opinion, Verdict) else _await_verdict(opinion)
        name = type(errors[0]).__name__
        return Verdict(Outcome.UNSCORED, why=f"{name}: {errors[0]}")


def _await_verdict(given: Any) -> Verdict:
    async def wait() -> Verdict:
        verdict: Verdict = await given
        return verdict

    return loop_thread("calls").call(wait)


def _row(rollout: Rollout, first: Verdict, second: Verdict, step: int) -> JsonDict:
    return {
        "step": step,
        "task": rollout.task.id,
        "completion": rollout.text,
        "reference": str(rollout.task.reference),
        "first": str(first.outcome),
        "first_why": first.why,
        "second": str(second.outcome),
        "second_why": second.why,
    }
