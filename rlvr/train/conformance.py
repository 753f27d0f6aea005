"""Whether an algorithm keeps what the trainer promises: `rlvr algorithms NAME --check`, on
a tiny model in float64."""

from __future__ import annotations

import copy
import gc
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, get_args, get_origin

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from rlvr.algo.papers.base import Absent, Algorithm, Inputs
from rlvr.algo.papers.numbers import Number, as_record, changed, from_record, paper_numbers
from rlvr.collect.prefixes import PrefixValues
from rlvr.errors import RlvrError, UsageError
from rlvr.train.config import Config
from rlvr.train.credit import Batch, GroupInputs, collate, credit
from rlvr.train.learner import Learner
from rlvr.train.policy import Policy
from rlvr.train.ranks import Ranks
from rlvr.train.second_model import SecondModel
from rlvr.train.tiny import tiny
from rlvr.types import Group, JsonDict, Outcome, Rollout, Score, Task, Turn, Verdict
from rlvr.workers.program import StartedProgram

__all__ = ["RuleResult", "conforms", "gradient_apart", "try_as_rank"]

# Of the gradient's norm: rows in other micro-batches or on other ranks are summed in another
# order, while a rule that is broken moves the gradient by far more.
_TOLERANCE: Final = 1e-6
# A model of few parameters, so that each rule is tried quickly.
_CHARSET: Final = "0123456789ab= "
# Six groups of four: several micro-batches, a rank with other groups than its neighbour, and one
# row that is UNSCORED.
_PROMPTS: Final = 6
_GROUP: Final = 4
_RANKS: Final = 2
_RANKS_S: Final = 300  # two processes that import torch, perhaps on a busy machine


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What was found of one rule.

    Attributes:
        rule: that an algorithm keeps.
        fault: what is wrong, with the way out; empty if the rule holds.
    """

    rule: str
    fault: str = ""


def conforms(algorithm: Algorithm, *, on_ranks: bool = False) -> list[RuleResult]:
    """What was found of each rule.

    Args:
        algorithm: one with advantages; such as `load_algorithm("mine.py:Mine")`.
        on_ranks: try it in two processes too, which load it by its name.

    Raises:
        UsageError: it learns from pairs, labels or steps; or a method of it raises, or returns what
            cannot be used.
    """
    if algorithm.examples is not None:
        raise UsageError(
            f"{algorithm.label} learns from {algorithm.examples}; --check tries algorithms with "
            f"advantages"
        )
    if algorithm.group_size == 1:  # those that it is tried on are larger
        algorithm = changed(algorithm, {"group_size": _GROUP})
    try:
        with TemporaryDirectory() as place:
            return _found(_Trial(algorithm, Path(place)), on_ranks)
    except RlvrError:
        raise
    except Exception as error:  # of the algorithm's own code
        raise UsageError(f"{algorithm.label} raises {type(error).__name__}: {error}") from error


def _found(trial: _Trial, on_ranks: bool) -> list[RuleResult]:
    rules: dict[str, Callable[[], str]] = {
        "the gradient is the same in one micro-batch, in many, and packed": trial.splitting,
        (
            "advantages of 0 give no gradient, unless a regulariser is declared"
        ): trial.nothing_to_learn,
        "masked tokens change nothing": trial.masked_tokens,
        "an UNSCORED completion changes no other's advantage": trial.check_unscored,
        "loss and gradient are finite at log ratios of -20 and 20": trial.far_away,
        "every field of its own changes something": trial.fields,
        "a run that is resumed goes on to the last bit": trial.resuming,
    }
    # In a trust region each rank has whole weights, and what is summed is the step's.
    if on_ranks and trial.algorithm.trust_region is None:
        rules["the gradient is the same on two ranks"] = trial.on_ranks
    return [RuleResult(rule, check()) for rule, check in rules.items()]


def gradient_apart(algorithm: Algorithm, device: torch.device) -> float:
    """The norm of the difference between the gradients on a device and on the CPU, over the norm.

    Both in float64, of the batch and the tiny model on which the rules are tried.

    Args:
        algorithm: one with advantages.
        device: another one than the CPU.
    """
    with TemporaryDirectory() as place:
        alone = _Trial(algorithm, Path(place)).gradient()
        return _apart(alone, _Trial(algorithm, Path(place), device=device).gradient())


def try_as_rank() -> None:
    """Try as one of several ranks the algorithm whose record is on stdin; prints how far its
    gradient is off."""
    algorithm = from_record(json.load(sys.stdin))
    # More threads than cores would make both ranks slower.
    torch.set_num_threads(1)
    with TemporaryDirectory() as place:
        alone = _Trial(algorithm, Path(place)).gradient()  # alone it can save a teacher, too
        with Ranks.of_environment(torch.device("cpu")) as ranks:
            together = _Trial(algorithm, Path(place), ranks).gradient()
            gc.collect()  # what is in shards goes before its process group
    sys.stdout.write(f"{_apart(alone, together)}\n")


def _rollouts(draw: random.Random, reads: frozenset[str]) -> list[Group]:
    """Groups with scores that differ, masked tokens in the middle, and one UNSCORED completion."""
    groups = []
    for p in range(_PROMPTS):
        task = Task(f"check/{p}", f"{p}=", reference="1")
        rollouts = []
        for g in range(_GROUP):
            length = draw.randint(3, 8)
            ids = [draw.randrange(4, 4 + len(_CHARSET)) for _ in range(length)]
            # Scores of a group differ (a quarter of p is
            # added), or advantages would be 0 and test nothing.
            total = None if (p, g) == (1, 2) else draw.choice([0.0, 0.25, 1.0, 1.0]) + p / 100
            rollouts.append(_rollout(task, ids, total, reads))
        groups.append(Group(task, rollouts))
    return groups


def _rollout(task: Task, ids: list[int], total: float | None, reads: frozenset[str]) -> Rollout:
    outcome = (
        Outcome.UNSCORED if total is None else Outcome.CORRECT if total > 0.5 else Outcome.WRONG
    )
    parts = {} if total is None else {"first": total - len(ids) / 50, "second": len(ids) / 50}
    middle = len(ids) // 2
    # Two turns, the first with a reward of its own:
    # rewards of steps must differ from those of the end.
    turns = (Turn(0, middle, 0.1 * middle), Turn(middle, len(ids), total or 0.0))
    return Rollout(
        task=task,
        text="",
        prompt_ids=[5, 6],
        completion_ids=ids,
        # A hole in the middle, as a tool's reply leaves it:
        # masks that only cut an end would pass otherwise.
        completion_mask=[t != middle and total is not None for t in range(len(ids))],
        behaviour_logprobs=[0.0] * len(ids),
        weights_version=0,
        score=Score(total, parts, Verdict(outcome, why="made up")),
        turns=turns if "step_rewards" in reads else (),
    )


class _Trial:
    """A learner of the algorithm on a batch that is a few updates old."""

    def __init__(
        self,
        algorithm: Algorithm,
        place: Path,
        ranks: Ranks | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.algorithm, self._place, self._ranks = algorithm, place, ranks or Ranks()
        self._device = device
        groups = _rollouts(random.Random(0), algorithm.reads)
        learner = self._learner(algorithm)
        rows = [rollout for group in groups for rollout in group.rollouts]
        logprobs = learner.logprobs(rows, learner.policy).tolist()
        noise = random.Random(1)
        self.groups = [
            Group(
                group.task,
                [
                    replace(
                        rollout,
                        behaviour_logprobs=[
                            # Of another policy: ratios of 0.5 and 2 are
                            # common, so that clips act on both sides.
                            logprobs[p * _GROUP + g][t] - noise.gauss(0, 0.7)
                            for t in range(len(rollout.completion_ids))
                        ],
                    )
                    for g, rollout in enumerate(group.rollouts)
                ],
            )
            for p, group in enumerate(groups)
        ]
        self.learner, self.batch = learner, self._credit_groups(learner)

    def _learner(self, algorithm: Algorithm, **options: Any) -> Learner:
        model, tokenizer = tiny(
            _CHARSET, hidden=16, heads=2, layers=1, tied=False, dtype=torch.float64
        )
        with torch.no_grad():  # so that some tokens are likely and others not
            model.get_output_embeddings().weight.mul_(40)
        settings: JsonDict = {"max_tokens": 8, "lr": 1e-2, "eval_every": None}
        if algorithm.needs_teacher:
            folder = self._place / "teacher"
            if not folder.exists():
                Policy(*tiny(_CHARSET, hidden=16, heads=2, layers=1, seed=1)).save(folder)
            settings["teacher"] = str(folder)
        run = self._place / "run"
        config = Config(env="check", model="check", run=run, algorithm=algorithm, **settings)
        policy = Policy(model.to(self._device), tokenizer, **options)
        learner = Learner(policy, config, self._ranks)
        _disturb(learner)
        return learner

    def _credit_groups(self, learner: Learner) -> Batch:
        batch = learner.prepared(collate(self.groups))
        estimate = credit(
            self.groups,
            batch,
            learner.algorithm,
            minibatch_of=[0] * len(batch.rows),
            values=self._values(),
        )
        return replace(batch, advantages=estimate.advantages, returns=estimate.returns)

    def _gradient(self, learner: Learner, batch: Batch) -> Tensor:
        """Of all rows: a row of advantages 0 is computed too."""
        learner.optimizer.zero_grad()
        _backward(learner, batch)
        return torch.cat([
            _whole(torch.zeros_like(p) if p.grad is None else p.grad).flatten().clone().cpu()
            for p in learner.parameters
        ])  # fmt: skip

    def gradient(self) -> Tensor:
        """Of the whole batch."""
        return self._gradient(self.learner, self.batch)

    def on_ranks(self) -> str:
        # The kernel's choice of a free port; it is closed again before the ranks listen on it.
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(_RANKS)}
        output = _said_by_ranks(
            [os.environ | place | {"RANK": str(i)} for i in range(_RANKS)], self.algorithm
        )
        try:
            apart = float(output.split()[-1])
        except (IndexError, ValueError):
            last = (output.strip().splitlines() or ["it says nothing"])[-1]
            return f"it cannot be trained there: {last}"
        if apart < _TOLERANCE:
            return ""
        return (
            f"the gradient is off by {apart:.1e} of its norm; "
            "compute nothing from the number of rows in `loss`"
        )

    def splitting(self) -> str:
        in_one = self._gradient(self.learner, self.batch)
        for what, options in (
            # 12 tokens hold one or two rows of at most ten, so that most rows are alone.
            ("many micro-batches", {"max_tokens": 12}),
            ("packed", {"packing": True}),
        ):
            learner = self._learner(self.algorithm, **options)
            in_parts = self._gradient(learner, learner.prepared(self.batch))
            apart = _apart(in_one, in_parts)
            if not apart < _TOLERANCE:
                return (
                    f"{what}: the gradient is off by {apart:.1e} of its norm; a row's loss may "
                    "depend on that row alone: compare rows in `advantages`, and choose tokens in "
                    "`select`"
                )
        return ""

    def nothing_to_learn(self) -> str:
        algorithm = self.algorithm
        in_loss = algorithm.kl is not None and algorithm.kl.place == "loss"
        # Terms that pull without any advantage: a regulariser, a KL penalty, an entropy bonus.
        if algorithm.regularised or in_loss or algorithm.entropy:
            return ""
        batch = replace(self.batch, advantages=torch.zeros_like(self.batch.advantages))
        norm = float(self._gradient(self.learner, batch).norm())
        if not norm:
            return ""
        return (
            f"the gradient's norm is {norm:.1e}; "
            "if that is meant, set `regularised = True` in the class"
        )

    def masked_tokens(self) -> str:
        mask, changed_columns = self.batch.completion_mask, {}
        for name in ("behaviour_logprobs", "advantages", "ref_logprobs"):
            if (values := getattr(self.batch, name)) is not None:
                # Any value that no token has: a loss that reads it through the mask changes.
                changed_columns[name] = torch.where(mask, values, 9.0)
        before = self._of_logprobs(self.batch, -1.0)
        after = self._of_logprobs(replace(self.batch, **changed_columns), -3.0)
        if torch.equal(before, after) and not before[~mask].any():
            return ""
        return "the gradient depends on them; leave out what `inputs.mask` leaves out"

    def _of_logprobs(self, batch: Batch, masked: float) -> Tensor:
        """The gradient of the loss in each token's log-probability, with this one where the mask is
        False."""
        learner = self.learner
        # Cut from the model: what the loss asks of each
        # token is seen before a backward pass mixes tokens.
        logprobs = learner.logprobs(batch.rows, learner.policy).double()
        leaf = torch.where(batch.completion_mask, logprobs, masked).requires_grad_()
        place = {id(row): i for i, row in enumerate(batch.rows)}

        def read_leaf(
            rows: Sequence[Any], temperature: float, *, with_entropy: bool = False
        ) -> Any:
            width = max(len(row.completion_ids) for row in rows)
            picked = leaf[[place[id(row)] for row in rows], :width]
            return (picked, picked * 0) if with_entropy else picked

        # Shadows the method on this instance alone.
        vars(learner.policy)["logprobs"] = read_leaf
        try:
            _backward(learner, batch)
        finally:
            del vars(learner.policy)["logprobs"]
        return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad

    def check_unscored(self) -> str:
        group_inputs = GroupInputs(self.groups, self.batch, self.algorithm, prefixes=self._values())
        scores, scored = group_inputs.scores, group_inputs.scored
        estimates = []
        # What an UNSCORED row's score is must not matter; 9 is outside of every real one.
        for instead in (scores, torch.where(scored, scores, 9.0)):
            estimate = self.algorithm.advantages(
                Inputs(self.algorithm, group_inputs.by_name() | {"scores": instead})
            )
            A = estimate[0] if isinstance(estimate, tuple) else estimate
            # Compared on scored rows only: what an UNSCORED row itself gets is masked later.
            estimates.append(A.reshape(len(self.batch.rows), -1)[scored.flatten()])
        worst = float((estimates[0] - estimates[1]).abs().max())
        if not worst:
            return ""
        return f"they move by up to {worst:.1g}; give every mean and std `groups.scored`"

    def _values(self) -> list[PrefixValues] | None:
        if "prefix_values" not in self.algorithm.reads:
            return None
        return [_values(rollout) for group in self.groups for rollout in group.rollouts]

    def far_away(self) -> str:
        for shift in (-20.0, 20.0):
            moved = self.batch.behaviour_logprobs - shift
            gradient = self._gradient(self.learner, replace(self.batch, behaviour_logprobs=moved))
            if not gradient.isfinite().all():
                return (
                    f"at {shift:g} the gradient is not; "
                    "use `inputs.log_ratio`, which is kept in ± 20"
                )
        return ""

    def fields(self) -> str:
        idle = []
        before = self._outcome(self.algorithm)
        for name, number in paper_numbers(type(self.algorithm)).items():
            if _is_own(self.algorithm, number) and not any(
                _apart(before, self._outcome(changed))
                for changed in _others(self.algorithm, name, number)
            ):
                idle.append(name)
        return f"nothing depends on {', '.join(idle)}; drop what is not read" if idle else ""

    def _outcome(self, algorithm: Algorithm) -> Tensor:
        learner = self._learner(algorithm)
        batch = self._credit_groups(learner)
        return torch.cat([self._gradient(learner, batch), batch.advantages.flatten()])

    def resuming(self) -> str:
        first, second = self._learner(self.algorithm), self._learner(self.algorithm)
        parts = [range(len(self.batch.rows))]
        first.update(first.prepared(self.batch), parts, lambda _: None)
        # A deep copy: `load_state_dict` of torch's
        # optimisers may keep the tensors that it is given.
        second.load_state_dict(copy.deepcopy(first.state_dict()))
        for learner in (first, second):
            learner.update(learner.prepared(self.batch), parts, lambda _: None)
        pairs = zip(first.parameters, second.parameters, strict=True)
        if all(torch.equal(a, b) for a, b in pairs):
            return ""
        return (
            "its weights differ; keep nothing in the class: a state that is not in a field is lost"
        )


def _said_by_ranks(environments: Sequence[dict[str, str]], algorithm: Algorithm) -> str:
    """What the first rank prints, or a rank that fails."""
    call = "from rlvr.train.conformance import try_as_rank; try_as_rank()"
    command = [sys.executable, "-W", "ignore", "-c", call]
    ranks = [
        StartedProgram(
            command,
            name="rank",
            owner="conformance",
            group="caller",
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for env in environments
    ]
    try:
        for rank in ranks:
            assert rank.stdin is not None
            rank.stdin.write(json.dumps(as_record(algorithm)).encode())
            rank.stdin.close()
            # None, or `communicate` would flush a pipe that is closed.
            rank.stdin = None
        outputs = [rank.communicate(timeout=_RANKS_S)[0].decode() for rank in ranks]
    except subprocess.TimeoutExpired:
        return f"two ranks did not end within {_RANKS_S} s"
    finally:
        for rank in ranks:
            rank.end()
    failed = [text for text, rank in zip(outputs, ranks, strict=True) if rank.returncode]
    # One that fails closes its connections, of which the other complains.
    return min(failed or outputs, key=lambda text: "Connection closed" in text)


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()  # type: ignore[untyped-decorator]
def _disturb(learner: Learner) -> None:
    """Let critics and reward models give other numbers than 0, with which they begin."""
    part, generator = learner.part(SecondModel), torch.Generator().manual_seed(2)
    for parameter in [] if part is None else part.parameters:
        noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        noise = noise.to(parameter.device)
        # Noise is drawn whole and then split, so that ranks disturb a shard as one process would.
        parameter.add_(learner.ranks.spread(noise, parameter), alpha=0.1)


def _backward(learner: Learner, batch: Batch) -> None:
    """Add the gradient of all rows as one update: a row of advantages 0 is computed too."""
    for part in learner.parts:
        batch = part.select(batch)
    learner.backward(batch, range(len(batch.rows)))


def _values(rollout: Rollout) -> PrefixValues:
    T = len(rollout.completion_ids)
    final_score = None if rollout.score is None else rollout.score.total
    return PrefixValues(
        (0, T // 2, T), (0.3, 0.6, final_score), (1, 1, int(final_score is not None))
    )


def _apart(one: Tensor, other: Tensor) -> float:
    # A first gradient of 0 makes any difference huge, and none 0.
    return float((one - other).norm() / one.norm().clamp(min=1e-300))


def _is_own(algorithm: Algorithm, number: Number) -> bool:
    """Whether the class itself reads it; the trainer reads the parts that all algorithms share."""
    field = number.part or number.name
    # Fields of every algorithm are the trainer's; these three are read by losses themselves.
    shared = vars(Absent).keys() - {"clip", "aggregation", "length_tokens"}
    return bool(number.name) and field not in shared and getattr(algorithm, field) is not None


def _others(algorithm: Algorithm, name: str, number: Number) -> Iterator[Algorithm]:
    """The algorithm with other values of a number, as far as it takes them."""
    holder = algorithm if number.part is None else getattr(algorithm, number.part)
    for value in _values_beside(getattr(holder, number.name), number.hint):
        try:
            yield changed(algorithm, {name: value})
        except UsageError:
            continue


def _values_beside(value: object, hint: object) -> Sequence[object]:
    if isinstance(value, bool):
        return [not value]
    if get_origin(hint) is Literal:
        return [choice for choice in get_args(hint) if choice != value]
    if value is None:
        # None switches something off, and each of these may be out of its range.
        return [1, 1.5, 3.0]
    if isinstance(value, int):
        return [value + 1, max(1, value - 1)]
    if isinstance(value, str):
        return [f"{value}1"]
    if isinstance(value, float):
        # Small and large factors: a clip that no ratio of the
        # batch reaches changes nothing until it is narrow enough.
        return [value + 0.5, *(value * factor for factor in (0.5, 0.1, 2.0, 100.0, 1000.0))]
    return []
