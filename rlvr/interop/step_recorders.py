"""Step files of other trainers' own runs, for `rlvr step verify` and `rlvr whatif`.

record_trl(trainer, "steps", every=50)     # before trainer.train()
record_verl(batch, "step.safetensors", algorithm="grpo")     # a DataProto with advantages
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlvr.data.step_files import StepFile, write_step
from rlvr.errors import UsageError
from rlvr.interop.drivers.trl_watch import watch_updates
from rlvr.types import JsonDict, JsonObject
from rlvr.validate import require_one_of, require_whole

if TYPE_CHECKING:
    from rlvr.data.step_files import StepArray

__all__ = ["record_trl", "record_verl"]

_TRL_CONVENTIONS: Final[Mapping[str, object]] = {
    "std": "sample",
    "eps": 1e-4,
    "bound": float("inf"),
}
"""As its driver of the referee declares them, with sources."""
_TRL_LOSSES: Final[Mapping[str, tuple[str, str]]] = {
    "grpo": ("grpo", "sequence_mean"),
    "dapo": ("dapo", "token_mean"),
    "bnpo": ("dapo", "token_mean"),
    "dr_grpo": ("grpo", "constant"),
    "cispo": ("cispo", "token_mean"),
    "sapo": ("sapo", "sequence_mean"),
}
_VERL_CONVENTIONS: Final[Mapping[str, object]] = {"std": "sample", "single": "score", "bound": 20.0}
_VERL_NAMES: Final = ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline")
"""Whose advantages are those of scores and groups alone."""


def record_trl(trainer: Any, folder: str | Path, *, every: int = 1) -> None:
    """Write step files while TRL's GRPOTrainer trains, one for each batch of completions, with all
    updates on it.

    Takes no forward pass and changes no number of the training.  Checked with TRL 1.16, on one
    process.

    Args:
        trainer: before `train`.
        folder: where the files go; it is made.
        every: batches after which one is recorded again; the first one is.

    Raises:
        UsageError: the trainer's loss, scale or process count is not one of those that can be
            recorded.
    """
    require_whole("every", every, 1)
    args = trainer.args
    if trainer.accelerator.num_processes > 1:
        raise UsageError(
            f"the trainer has {trainer.accelerator.num_processes} processes, of which each sees "
            "its rows alone; record on one process"
        )
    if getattr(args, "use_liger_kernel", False):
        raise UsageError("use_liger_kernel computes no log-probabilities to record; switch it off")
    require_one_of("loss_type", args.loss_type, tuple(_TRL_LOSSES))
    scale = {True: "group", False: "none"}.get(args.scale_rewards, args.scale_rewards)
    require_one_of("scale_rewards", scale, ("group", "none"))
    if args.gradient_accumulation_steps > args.steps_per_generation:
        raise UsageError(
            f"gradient_accumulation_steps is {args.gradient_accumulation_steps} and "
            f"steps_per_generation "
            f"{args.steps_per_generation}: an update has several batches of completions, and a "
            f"step file has one"
        )
    recording = _TrlBatches(trainer, Path(folder), every)
    watch_updates(trainer, recording.take_update)


class _TrlBatches:
    """The batches of a run.

    Args:
        trainer: whose methods that score are wrapped.
        folder: of the files.
        every: batches after which one is written.
    """

    def __init__(self, trainer: Any, folder: Path, every: int) -> None:
        self._trainer, self._folder, self._every = trainer, folder, every
        self._batch = -1
        self._rows: list[JsonDict] = []
        self._places: dict[object, list[int]] = {}
        self._updates: list[dict[int, JsonDict]] = []
        self._scored: tuple[Any, Any] = (None, None)
        score, generate = trainer._calculate_rewards, trainer._generate_and_score_completions

        def calculate(inputs: object, prompts: object, completions: object, ids: Any) -> object:
            rewards = score(inputs, prompts, completions, ids)
            self._scored = (
                rewards.detach().double().cpu().numpy(),
                [list(row_ids) for row_ids in ids],
            )
            return rewards

        def generate_and_score(inputs: object) -> object:
            output = generate(inputs)
            if trainer.model.training:
                self._begin(output)
            return output

        trainer._calculate_rewards = calculate
        trainer._generate_and_score_completions = generate_and_score

    def _begin(self, output: Mapping[str, object]) -> None:
        """Take the rows of a new batch, in groups as they were generated."""
        self._batch += 1
        self._updates, self._rows, self._places = [], [], {}
        rewards, completions = self._scored
        weights = np.array(self._trainer.reward_weights.tolist(), float)
        for i, ids in enumerate(completions):
            prompt, key = self._prompt_and_key(output, i)
            parts = np.nan_to_num(rewards[i]) * weights
            row = {
                "prompt": prompt,
                "ids": [int(token_id) for token_id in ids],
                "group": i // self._trainer.num_generations,
                "parts": parts,
                "score": float(parts.sum()),
                "scored": not bool(np.isnan(rewards[i]).all()),
            }
            self._rows.append(row)
            self._places.setdefault(key, []).append(i)

    def _prompt_and_key(self, inputs: JsonObject, i: int) -> tuple[list[int], object]:
        """A row's prompt, and what it is known by in any micro-batch: tokens without padding."""
        mask = inputs["prompt_mask"][i].bool()
        prompt = inputs["prompt_ids"][i][mask].tolist()
        ids = inputs["completion_ids"][i].tolist()
        pad = self._trainer.pad_token_id if hasattr(self._trainer, "pad_token_id") else None
        while ids and ids[-1] == pad:
            ids.pop()
        return prompt, (tuple(prompt), tuple(ids))

    def take_update(self, update: Sequence[tuple[Any, Any]]) -> None:
        """See an optimiser step.

        Args:
            update: (inputs, log-probabilities) of each micro-batch.
        """
        if self._batch % self._every or not self._rows:
            return
        free = {key: list(places) for key, places in self._places.items()}
        computed: dict[int, dict[str, object]] = {}
        for micro, (inputs, logprobs) in enumerate(update):
            for i in range(len(logprobs)):
                places = free.get(self._prompt_and_key(inputs, i)[1], [])
                if places:
                    row = places.pop(0)
                    computed[row] = self._row_of(inputs, logprobs, i, len(self._rows[row]["ids"]))
                    computed[row]["micro"] = micro
        self._updates.append(computed)
        args = self._trainer.args
        every = args.steps_per_generation * args.num_iterations
        if len(self._updates) * args.gradient_accumulation_steps >= every:
            self._write()

    @staticmethod
    def _row_of(inputs: JsonObject, logprobs: Any, i: int, n: int) -> dict[str, object]:
        mask = inputs["completion_mask"][i, :n].bool()
        if inputs.get("tool_mask") is not None:
            mask = mask & inputs["tool_mask"][i, :n].bool()
        advantages = inputs["advantages"][i]
        row = {
            "mask": mask.cpu().numpy(),
            "advantages": np.broadcast_to(advantages.detach().float().cpu().numpy(), (n,)),
            "logprobs": _floats(logprobs[i, :n]),
            "weights": _floats(logprobs.grad[i, :n]),
        }
        for name, column in (
            ("old", "old_per_token_logps"),
            ("ref", "ref_per_token_logps"),
            ("behaviour", "sampling_per_token_logps"),
        ):
            if inputs.get(column) is not None:
                row[name] = _floats(inputs[column][i, :n])
        return row

    def _write(self) -> None:
        rows, updates = self._rows, self._updates
        first: dict[int, JsonDict] = {}
        for update in reversed(updates):
            first |= update
        n = len(rows)
        lengths = [len(row["ids"]) for row in rows]
        nothing = [np.zeros(length, np.float32) for length in lengths]

        def column(name: str, other: str = "") -> StepArray:
            columns = [
                first.get(i, {}).get(name, first.get(i, {}).get(other, nothing[i]))
                for i in range(n)
            ]
            return np.concatenate([np.zeros(0, np.float32), *columns]).astype(np.float32)

        arrays: dict[str, StepArray] = {
            "prompt_ids": np.array(
                [token_id for row in rows for token_id in row["prompt"]], np.int32
            ),
            "prompt_offsets": _offsets([len(row["prompt"]) for row in rows]),
            "token_ids": np.array([token_id for row in rows for token_id in row["ids"]], np.int32),
            "offsets": _offsets(lengths),
            "mask": column("mask").astype(bool),
            "group": np.array([row["group"] for row in rows], np.int32),
            "score": np.array([row["score"] for row in rows], np.float64),
            "scored": np.array([row["scored"] for row in rows], bool),
            "score_parts": np.stack([row["parts"] for row in rows]),
            "behaviour_logprobs": column("behaviour", "old" if self._has("old") else "logprobs"),
            "old_logprobs": column("old", "logprobs"),
            "advantages": column("advantages"),
        }
        if self._has("ref"):
            arrays["ref_logprobs"] = column("ref")
        heads = []
        for number, update in enumerate(updates):
            order = list(update)
            prefix = f"update{number}."
            arrays |= {
                prefix + suffix: np.array(order, np.int32) for suffix in ("rows", "computed")
            }
            for name in ("logprobs", "weights"):
                values = [np.zeros(0, np.float32), *(update[row][name] for row in order)]
                arrays[prefix + name] = np.concatenate(values).astype(np.float32)
            heads.append({"micro": [update[row]["micro"] for row in order]})
        path = self._folder / f"step-{self._trainer.state.global_step + 1:08d}.safetensors"
        write_step(path, StepFile({**self._head(), "updates": heads}, arrays))
        self._rows = []

    def _has(self, name: str) -> bool:
        return any(name in row for update in self._updates for row in update.values())

    def _head(self) -> dict[str, object]:
        trainer, args = self._trainer, self._trainer.args
        name, aggregation = _TRL_LOSSES[args.loss_type]
        is_sequence = args.importance_sampling_level == "sequence"
        beta = float(args.beta)
        conventions = dict(_TRL_CONVENTIONS)
        if is_sequence:
            conventions["ratio"] = "sequence"
        if args.loss_type == "bnpo":
            conventions["denominator"] = "micro-batch"
        if beta and getattr(args, "use_bias_correction_kl", False):
            conventions["kl_ratio"] = "token"
        clip = {"low": trainer.epsilon_low, "high": trainer.epsilon_high, "dual": args.delta}
        if name == "cispo":
            clip = {"low": 1.0, "high": trainer.epsilon_high - 1, "dual": None}
        numbers = {
            "name": name,
            "aggregation": aggregation,
            "length_tokens": args.max_completion_length,
            "scale": args.scale_rewards in (True, "group"),
            "masked_vote": True,
            "clip": clip,
            "kl": {"estimator": "k3", "coefficient": beta, "place": "loss"} if beta else None,
            "soft_clip": {
                "positive": getattr(args, "sapo_temperature_pos", 1.0),
                "negative": getattr(args, "sapo_temperature_neg", 1.05),
            },
        }
        return {
            "algorithm": numbers,
            "conventions": conventions,
            "trainer": f"trl {_version('trl')}",
            "step": int(trainer.state.global_step) + 1,
            "ranks": 1,
            "temperature": float(trainer.temperature),
            "parts": list(getattr(trainer, "reward_func_names", ())),
        }


def record_verl(
    batch: Any, path: str | Path, *, algorithm: str = "grpo", step: int | None = None
) -> None:
    """Write the rows of verl's batch, after `compute_advantage`, to a step file: `rlvr step verify`
    judges advantages.

    verl's updates run in its workers, so the file has none.

    Args:
        batch: a `DataProto`.
        path: of the file; its folder is made.
        algorithm: by which advantages were computed: grpo, dr_grpo
            (`norm_adv_by_std_in_grpo=False`), rloo, or reinforce_pp_baseline.
        step: its number.

    Raises:
        UsageError: the batch lacks advantages, rewards or groups, or there is no such algorithm.
    """
    require_one_of("algorithm", algorithm, _VERL_NAMES)
    tensors, other_columns = batch.batch, batch.non_tensor_batch
    for name in ("prompts", "responses", "attention_mask", "advantages", "token_level_rewards"):
        if name not in tensors.keys():  # noqa: SIM118  a TensorDict
            raise UsageError(f"the batch has no {name}; record it after compute_advantage")
    if "uid" not in other_columns:
        raise UsageError("the batch has no uid, by which completions of one prompt are a group")
    width = tensors["responses"].shape[1]
    present = tensors["attention_mask"].bool().cpu().numpy()
    lengths = present[:, -width:].sum(axis=1).tolist()
    prompts = [
        ids[mask].tolist()
        for ids, mask in zip(tensors["prompts"].cpu().numpy(), present[:, :-width], strict=True)
    ]

    def flat(name: str) -> StepArray:
        values = tensors[name].cpu()
        table = (
            values.numpy() if values.dtype.is_floating_point is False else values.float().numpy()
        )
        return np.concatenate([row[:n] for row, n in zip(table, lengths, strict=True)])

    trained = "response_mask" if "response_mask" in tensors.keys() else None  # noqa: SIM118
    groups = {
        uid: number for number, uid in enumerate(dict.fromkeys(other_columns["uid"].tolist()))
    }
    scores = (tensors["token_level_rewards"].double() * 1.0).sum(dim=1).cpu().numpy()
    count = len(lengths)
    arrays: dict[str, StepArray] = {
        "prompt_ids": np.array([token_id for ids in prompts for token_id in ids], np.int32),
        "prompt_offsets": _offsets([len(ids) for ids in prompts]),
        "token_ids": flat("responses").astype(np.int32),
        "offsets": _offsets(lengths),
        "mask": flat(trained).astype(bool) if trained else np.ones(sum(lengths), bool),
        "group": np.array([groups[uid] for uid in other_columns["uid"].tolist()], np.int32),
        "score": scores,
        "scored": np.ones(count, bool),
        "advantages": flat("advantages"),
        "behaviour_logprobs": np.zeros(sum(lengths), np.float32),
    }
    for name, column in (
        ("behaviour_logprobs", "rollout_log_probs"),
        ("old_logprobs", "old_log_probs"),
        ("ref_logprobs", "ref_log_prob"),
    ):
        if column in tensors.keys():  # noqa: SIM118
            arrays[name] = flat(column)
    if "rollout_log_probs" not in tensors.keys() and "old_logprobs" in arrays:  # noqa: SIM118
        arrays["behaviour_logprobs"] = arrays["old_logprobs"]
    head = {
        "algorithm": {"name": algorithm, "scale": algorithm == "grpo", "masked_vote": True},
        "conventions": {**_VERL_CONVENTIONS},
        "trainer": f"verl {_version('verl')}",
        "step": step,
    }
    write_step(Path(path), StepFile(head, arrays))


def _floats(values: Any) -> NDArray[np.float32]:
    floats: NDArray[np.float32] = values.detach().float().cpu().numpy().copy()
    return floats


def _offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    return np.array([0, *accumulate(lengths)], np.int64)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of a folder"
