"""A recorded step beside its model: log-probabilities and the gradient, recomputed in
another layout and precision.

A row at a time, unpadded, in float64.  What rounding allows is measured: the same rows in the
precision of the run are off by so much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from rlvr.algo.judge.conventions import CHOICES
from rlvr.algo.judge.distributions import divergence
from rlvr.algo.judge.head import setting_of
from rlvr.algo.judge.verify import QuantityCheck
from rlvr.algo.papers import algorithm_class
from rlvr.data.step_files import StepFile, spans
from rlvr.errors import DataError
from rlvr.samplers.protocol import TokenRow
from rlvr.train.batches import Padded
from rlvr.train.gradient_sketch import DIGEST_KIND, sketch, weights_digest
from rlvr.train.policy import Policy

if TYPE_CHECKING:
    from rlvr.data.step_files import StepArray

__all__ = ["StepModel", "compare_gradients", "gradient_of", "logprobs_of", "verify_with_models"]

_TIMES: Final = 8
"""How many times as far as the measured rounding a number may be off: another
layout sums in another order."""
# Unit roundoff of float32.
_UNIT: Final = 2.0**-24
_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepModel:
    """A model in the precision of a run, and in float64.

    Attributes:
        rough: as the run computes.
        exact: with the same weights.
        digest: of the weights, as step files have it.
    """

    rough: Policy
    exact: Policy
    digest: str

    @classmethod
    def load(cls, folder: str | Path, precision: str = "fp32") -> StepModel:
        """Load a model twice.

        Args:
            folder: or an id on the hub.
            precision: of the run, fp32 or bf16.
        """
        autocast = torch.bfloat16 if precision == "bf16" else None
        # Shared prompts are another layout; here each row is computed by itself.
        rough = Policy.load(folder, autocast=autocast, share_prompts=False)
        return cls.of(rough)

    @classmethod
    def of(cls, rough: Policy) -> StepModel:
        """A policy with a twin in float64.

        Args:
            rough: on one device.
        """
        digest = weights_digest(rough.model)
        exact = rough.copy_all()
        exact.autocast = None
        # The same weights, which float64 holds exactly.
        exact.model.double()
        return cls(rough, exact, digest)


def verify_with_models(
    step: StepFile,
    model: StepModel | None = None,
    reference: StepModel | None = None,
    teacher: StepModel | None = None,
) -> list[QuantityCheck]:
    """Recompute log-probabilities, and the gradient of the first update.

    Args:
        step: with prompts.
        model: the policy before the step.
        reference, teacher: those of the run; None to leave theirs as they are.

    Raises:
        DataError: the model's weights are not those before the step, or the file has no prompts.
    """
    setting_of(step)
    if "prompt_ids" not in step.arrays:
        raise DataError("the file has no prompt_ids, without which no model can compute its rows")
    checks: list[QuantityCheck] = []
    if model is not None:
        # First: with other weights everything below would depart.
        checks.append(_same_weights(step, model))
        if "old_logprobs" in step.arrays:
            checks.append(_logprobs(step, "old_logprobs", model))
        if step.updates and "update0.divergences" in step.arrays:
            checks += _first_divergences(step, model, teacher)
        elif step.updates:
            checks += _first_update(step, model)
    for name, other_model in (("ref_logprobs", reference), ("teacher_logprobs", teacher)):
        if other_model is not None:
            checks.append(
                _logprobs(step, name, other_model)
                if name in step.arrays
                else QuantityCheck(name, "not compared", why="the file has none")
            )
    return checks


def logprobs_of(step: StepFile, policy: Policy, rows: Sequence[int]) -> list[_Array]:
    """Log-probabilities of the tokens of some rows, a row at a time.

    Args:
        step: with prompts.
        policy: the model.
        rows: which.
    """
    temperature = _temperature(step)
    with torch.no_grad():
        return [
            policy.logprobs([row], temperature)[0].double().cpu().numpy()
            for row in _token_rows(step, rows)
        ]


def gradient_of(
    step: StepFile,
    policy: Policy,
    rows: Sequence[int],
    weights: Sequence[StepArray],
    entropy_weights: Sequence[StepArray] | None = None,
) -> None:
    """Leave Σ weights · ∇log π + entropy_weights · ∇H in the model's gradients, a row at a time.

    Args:
        step: with prompts.
        policy: the model.
        rows: which.
        weights, entropy_weights: of the tokens of each row.
    """
    policy.model.zero_grad(set_to_none=True)
    for n, row in enumerate(_token_rows(step, rows)):
        row_weights = _tensor(weights[n], policy)
        if entropy_weights is None:
            loss = (policy.logprobs([row], _temperature(step))[0] * row_weights).sum()
        else:
            outputs = policy.logprobs([row], _temperature(step), with_entropy=True)
            loss = (outputs[0][0] * row_weights).sum()
            loss = loss + (outputs[1][0] * _tensor(entropy_weights[n], policy)).sum()
        loss.backward()


def compare_gradients(
    step: StepFile, model: StepModel, taken: _Array, other: _Array
) -> tuple[float, float | None]:
    """The cosine of the gradients of two sets of weights, and the second's norm over the first's.

    Args:
        step: with prompts.
        model: the policy before the step.
        taken, other: weights of all tokens of the step.

    Raises:
        DataError: the model's weights are not those before the step.
    """
    _same_weights(step, model)
    row_spans = spans(step.arrays["offsets"])
    gradients = []
    for weights in (taken, other):
        # Rows whose weights are all 0 have no gradient.
        rows = [i for i, place in enumerate(row_spans) if weights[place].any()]
        if not rows:
            return 0.0, None
        gradient_of(step, model.exact, rows, [weights[row_spans[i]] for i in rows])
        grads = [p.grad for p in model.exact.model.parameters() if p.grad is not None]
        gradients.append(torch.cat([grad.reshape(-1) for grad in grads]))
    a, b = (float(gradient.norm()) for gradient in gradients)
    return (float(gradients[0] @ gradients[1]) / (a * b) if a and b else 0.0), (
        b / a if a else None
    )


def _tensor(values: StepArray, policy: Policy) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float64)).to(policy.device)


def _temperature(step: StepFile) -> float:
    if setting_of(step).how.temperature == "one":
        return 1.0
    value = step.head.get("temperature", 1.0)
    if not (type(value) in (int, float) and 0 < value < 1e6):
        raise DataError(f"temperature is {value!r:.80}; it must be a number above 0")
    return float(value)


def _token_rows(step: StepFile, rows: Sequence[int]) -> Iterator[TokenRow]:
    arrays = step.arrays
    prompts, completions = spans(arrays["prompt_offsets"]), spans(arrays["offsets"])
    truncated = arrays.get("truncated")
    for row in rows:
        yield TokenRow(
            arrays["prompt_ids"][prompts[row]].tolist(),
            arrays["token_ids"][completions[row]].tolist(),
            truncated is not None and bool(truncated[row]),
        )


# ------------------------------------------------------------------------------ the quantities


def _same_weights(step: StepFile, model: StepModel) -> QuantityCheck:
    recorded = step.head.get("weights_before")
    if not isinstance(recorded, str):
        why = "the file has no digest of the weights, as several ranks recorded it"
        return QuantityCheck("weights", "not compared", why=why)
    if not recorded.startswith(DIGEST_KIND):
        why = "the file has the digest of an earlier release"
        return QuantityCheck("weights", "not compared", why=why)
    if recorded == model.digest:
        return QuantityCheck("weights", "equal")
    if model.digest == step.head.get("weights_after"):
        raise DataError(
            "the model has the weights after this step; give the ones before it, such as those the "
            "run began with for its first step"
        )
    raise DataError(
        f"the model is not the one before this step: its weights have the digest {model.digest}, "
        f"and the file says {recorded}"
    )


def _logprobs(step: StepFile, name: str, model: StepModel) -> QuantityCheck:
    # An empty completion has no token to compare.
    rows = [i for i, span in enumerate(spans(step.arrays["offsets"])) if span.stop > span.start]
    return _compared_logprobs(step, name, step.arrays[name], rows, model)


def _compared_logprobs(
    step: StepFile, name: str, recorded: StepArray, rows: Sequence[int], model: StepModel
) -> QuantityCheck:
    """Trained tokens of some rows, whose numbers follow one another in `recorded`."""
    logprobs = (
        np.concatenate(logprobs_of(step, model_read, rows))
        for model_read in (model.exact, model.rough)
    )
    check = _compared_tokens(step, name, recorded, rows, *logprobs)
    if check.status == "departs" and _temperature(step) != 1:
        # Another trainer may record at temperature 1: if that explains the difference, it is said.
        at_one = StepFile({**step.head, "temperature": 1.0}, step.arrays)
        if _compared_logprobs(at_one, name, recorded, rows, model).status == "equal":
            return replace(check, explained=(CHOICES["temperature"]["one"],))
    return check


def _compared_tokens(
    step: StepFile,
    name: str,
    recorded: StepArray,
    rows: Sequence[int],
    exact: StepArray,
    rough: StepArray,
) -> QuantityCheck:
    """A number of each token of some rows beside the recorded one, at the trained tokens."""
    mask = step.arrays["mask"]
    span = spans(step.arrays["offsets"])
    trained = [np.flatnonzero(mask[span[row]]) for row in rows]
    places = [(row, int(t)) for row, at in zip(rows, trained, strict=True) for t in at]
    if not places:
        return QuantityCheck(name, "not compared", why="no token is trained on")
    starts = np.concatenate([[0], np.cumsum([span[row].stop - span[row].start for row in rows])])
    at = np.concatenate(
        [row_positions + start for row_positions, start in zip(trained, starts[:-1], strict=True)]
    )
    exact, rough = exact[at], rough[at]
    # Measured rounding of this model, and float32's own of a recorded number.
    allowed = _TIMES * np.abs(rough - exact).max() + _TIMES * _UNIT * (1 + np.abs(exact))
    off = np.abs(recorded[at].astype(float) - exact)
    # NaN counts as the greatest distance.
    worst = int(np.argmax(np.where(np.isnan(off), np.inf, off - allowed)))
    if off[worst] <= allowed[worst]:
        return QuantityCheck(name, "equal")
    row, token = places[worst]
    values = float(recorded[at][worst]), float(exact[worst])
    return QuantityCheck(name, "departs", row, token, *values, float(allowed[worst]))


def _first_update(step: StepFile, model: StepModel) -> Iterator[QuantityCheck]:
    arrays, prefix = step.arrays, "update0."
    rows = arrays[prefix + "computed"].tolist()
    if not rows or prefix + "logprobs" not in arrays:
        return
    if step.head["algorithm"].get("trust_region"):
        why = "they are those after TRPO's step"
        yield QuantityCheck("update 0: logprobs", "not compared", why=why)
        return
    recorded = arrays[prefix + "logprobs"]
    yield _compared_logprobs(step, "update 0: logprobs", recorded, rows, model)
    name = "update 0: gradient"
    why = _no_gradient(step)
    if why:
        yield QuantityCheck(name, "not compared", why=why)
        return
    parts = _parts_of(step, rows)
    # Gradients are recorded as they were clipped.
    scale = float(step.updates[0].get("gradient_scale", 1.0))
    sketches = []
    for policy in (model.exact, model.rough):
        gradient_of(step, policy, rows, *parts)
        sketches.append(scale * sketch(policy.model))
        # Freed before the other policy's pass.
        policy.model.zero_grad(set_to_none=True)
    yield _compared_sketches(name, arrays[prefix + "sketch"], *sketches)


def _parts_of(step: StepFile, rows: Sequence[int]) -> tuple[list[Any], list[Any] | None]:
    """Weights and entropy weights of the first update, row by row."""
    arrays, prefix = step.arrays, "update0."
    lengths = np.diff(arrays["offsets"])[list(rows)]
    ends = np.cumsum(lengths)[:-1]
    weights = np.split(arrays[prefix + "weights"], ends)
    entropies = arrays.get(prefix + "entropy_weights")
    return weights, None if entropies is None else np.split(entropies, ends)


def _no_gradient(step: StepFile) -> str:
    """Why the gradient cannot be recomputed from weights per token; empty if it can."""
    critic = step.head["algorithm"].get("critic")
    for name in ("weights", "sketch"):
        if f"update0.{name}" not in step.arrays:
            return f"the file has no {name} of it"
    if isinstance(critic, Mapping) and critic.get("backbone") == "shared":
        return "a critic that shares the policy's layers adds its own"
    return ""


def _first_divergences(
    step: StepFile, model: StepModel, teacher: StepModel | None
) -> Iterator[QuantityCheck]:
    """Of a step of distillation: each token's divergence by the judge's
    formula, and the gradient."""
    arrays, name = step.arrays, "update 0: divergences"
    numbers = step.head["algorithm"]
    if teacher is None or numbers["name"] != "gkd":
        why = "the teacher's model is not given"
        if numbers["name"] != "gkd":
            why = "its teacher saw prompts with references, which the file does not have"
        yield QuantityCheck(name, "not compared", why=why)
        return
    rows = arrays["update0.computed"].tolist()
    ends = np.cumsum(np.diff(arrays["offsets"])[rows])[:-1]
    weights = np.split(arrays["update0.divergence_weights"], ends)
    kind: Any = algorithm_class("gkd")
    algorithm = kind(beta=numbers["beta"], top_k=numbers["top_k"])
    sketches, values = [], []
    for mine, teacher_policy in ((model.exact, teacher.exact), (model.rough, teacher.rough)):
        mine.model.zero_grad(set_to_none=True)
        row_values = []
        for n, row in enumerate(_token_rows(step, rows)):
            policy = _distributions(mine, row, _temperature(step))
            with torch.no_grad():
                # A teacher's head may have more rows, which are padding.
                teacher_logits = _distributions(teacher_policy, row, _temperature(step))[
                    :, : policy.shape[1]
                ]
            pair = policy.detach().double().cpu().numpy(), teacher_logits.double().cpu().numpy()
            row_values.append(divergence(*pair, numbers["beta"], numbers["top_k"]))
            (
                algorithm.divergence(policy, teacher_logits) * _tensor(weights[n], mine)
            ).sum().backward()
        values.append(np.concatenate(row_values))
        scale = float(step.updates[0].get("gradient_scale", 1.0))
        sketches.append(scale * sketch(mine.model))
        mine.model.zero_grad(set_to_none=True)
    yield _compared_tokens(step, name, arrays["update0.divergences"], rows, *values)
    if "update0.sketch" in arrays:
        yield _compared_sketches("update 0: gradient", arrays["update0.sketch"], *sketches)


def _distributions(policy: Policy, row: TokenRow, temperature: float) -> torch.Tensor:
    """Log-probabilities of every word at each token of a row's completion, [T, V]."""
    collected: list[torch.Tensor] = []

    def keep(batch: Padded, states: torch.Tensor, head: Any) -> torch.Tensor:
        raw = torch.nn.functional.linear(states, head.weight, head.bias)
        # `apply_` works in place, and autograd still needs the product.
        logits = policy.root.logits.apply_(raw.clone())
        collected.append((logits / temperature).log_softmax(dim=-1))
        return states.new_zeros(len(states))

    policy.compare([row], temperature, keep)
    return collected[0]


def _compared_sketches(
    name: str, recorded: StepArray, exact: StepArray, rough: StepArray
) -> QuantityCheck:
    norms = [float(np.linalg.norm(values)) for values in (recorded, exact)]
    allowed = _TIMES * float(np.linalg.norm(rough - exact)) + _TIMES * _UNIT * norms[1]
    off = float(np.linalg.norm(recorded - exact))
    if off <= allowed:
        return QuantityCheck(name, "equal")
    cosine = float(recorded @ exact) / (norms[0] * norms[1]) if all(norms) else 0.0
    ratio = norms[0] / norms[1] if norms[1] else float("inf")
    return QuantityCheck(
        name, "departs", None, None, norms[0], norms[1], allowed, ratio=ratio, cosine=cosine
    )
