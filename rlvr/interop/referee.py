"""Other trainers on the same tokens: cases as step files in, step files out, and the judge between.

cases ──▶ driver in the trainer's own interpreter ──▶ answers ──▶ verify
  ──▶ equal, declared, departs, not compared
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from rlvr.algo.judge.conventions import CHOICES
from rlvr.algo.judge.vectors import vector_step
from rlvr.algo.judge.verify import QuantityCheck, verify
from rlvr.data.step_files import StepFile, read_step, spans, write_step
from rlvr.errors import DataError, UsageError
from rlvr.types import JsonObject
from rlvr.validate import nearest
from rlvr.workers.program import run_program

__all__ = ["PEERS", "Ruling", "THREADS", "cases", "referee", "referee_report"]

PEERS: Final[Mapping[str, tuple[str, ...]]] = {
    "trl": ("1.5.1", "1.8.0", "1.9.0", "1.16.0"),
    "verl": ("0.9.1",),
    "openrlhf": ("0.11.2",),
    "ms_swift": ("4.6.0",),
    "areal": ("1.0.4",),
    "trinity": ("0.6.0",),
    "rlvr": (),
}
"""Trainers with a driver, which is the file of its name in `rlvr.interop.drivers`, and the releases
in which its conventions were read."""
_WHOLE: Final = ("trl", "rlvr")
"""Those that train from tokens; of the others the functions are called."""
THREADS: Final[Mapping[tuple[str, str], str]] = {
    ("trl", "two updates"): "trl #6024",
    ("trl", "two updates, one micro-batch empty"): "trl #6024, #6369",
    ("trl", "ranks, two updates"): "trl #6024",
    ("trl", "truncated"): "trl #6369",
    ("trl", "gspo with kl"): "trl #6586",
    ("verl", "rejected"): "verl #6452",
    ("verl", "single"): "verl #7793",
    ("openrlhf", "rejected"): "OpenRLHF #1239",
    ("openrlhf", "far, gspo"): "OpenRLHF #1293",
}
"""Where departures of a trainer at a case were reported."""
_DRIVERS = Path(__file__).parent / "drivers"
_VECTORS = ("grpo", "dr_grpo", "rloo", "reinforce_pp", "ppo", "gspo", "cispo", "dapo")
_LENGTHS = (3, 14, 7, 16, 5, 9, 2, 12)
_LONGEST = 16
_LIMIT_S = 600


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a trainer made of a case.

    Attributes:
        case: its name.
        trainer: name and version; empty if it gave no answer.
        quantities: compared by the trainer's declared conventions.
        strict: the same by rlvr's own conventions: what departs here alone is declared.
        why: why there is no answer.
        is_read: whether the conventions were read in this release.
    """

    case: str
    trainer: str = ""
    quantities: Sequence[QuantityCheck] = ()
    strict: Sequence[QuantityCheck] = ()
    why: str = ""
    is_read: bool = True

    @property
    def departs(self) -> list[QuantityCheck]:
        """What is neither equal nor declared."""
        return [quantity for quantity in self.quantities if quantity.status == "departs"]

    @property
    def status(self) -> str:
        """Of the whole case."""
        if self.why or all(quantity.status == "not compared" for quantity in self.quantities):
            return "not compared"
        if self.departs:
            return "departs"
        if all(quantity.status != "departs" for quantity in self.strict):
            return "equal"
        return "declared" if self.is_read else "undeclared"


def referee(
    name: str, python: Path, source: Path | None = None, keep: Path | None = None
) -> list[Ruling]:
    """Run a trainer's driver on all cases, and judge its answers.

    Args:
        name: of `PEERS`.
        python: interpreter of an environment in which the trainer, torch and safetensors are
            installed.
        source: a folder to import the trainer from; None for what is installed.
        keep: a folder for cases and answers; None to remove them.

    Raises:
        UsageError: there is no driver of this name, or the interpreter does not run it.
    """
    if name not in PEERS:
        raise UsageError(
            f"there is no driver of {name!r}{nearest(name, PEERS)}; there are {', '.join(PEERS)}"
        )
    if source is not None and not source.is_dir():
        raise UsageError(f"source is {source}, which is no folder; give one to import {name} from")
    package = "swift" if name == "ms_swift" else name
    if source is not None and not (source / package).is_dir():
        raise UsageError(
            f"source is {source}, which has no folder {package}; give one to import {name} from"
        )
    with tempfile.TemporaryDirectory() as own_folder:
        folder = keep or Path(own_folder)
        cases_folder, answered = folder / "cases", folder / "answers"
        answered.mkdir(parents=True, exist_ok=True)
        for ranks in (1, 2):
            for case, step in cases().items():
                case_written = step.head["case"]
                if case_written["ranks"] == ranks and _is_asked(name, case_written):
                    write_step(cases_folder / str(ranks) / f"{case}.safetensors", step)
        _drive(name, python, source, cases_folder / "1", answered)
        several = ""
        if name in _WHOLE:
            try:
                _drive(name, python, source, cases_folder / "2", answered, ranks=2)
            except UsageError as error:
                several = str(error)
        why = several or "its driver calls functions, and this is of a whole trainer or of others"
        every = cases().items()
        return [_judge_answer(case, step, answered, why, PEERS[name]) for case, step in every]


def referee_report(name: str, rulings: Sequence[Ruling]) -> dict[str, object]:
    """The answers of a trainer as JSON has them, and as `rlvr view` shows them.

    Args:
        name: of `PEERS`.
        rulings: of its cases.
    """
    return {
        "referee": name,
        "trainer": next((ruling.trainer for ruling in rulings if ruling.trainer), ""),
        "rulings": [
            {
                **asdict(ruling),
                "status": ruling.status,
                "thread": THREADS.get((name, ruling.case), ""),
            }
            for ruling in rulings
        ],
    }


def _is_asked(name: str, case: JsonObject) -> bool:
    """Whether a case is one for a trainer's driver."""
    return name in case.get("only", (name,)) and (name in _WHOLE or not case["whole"])


def _drive(
    name: str, python: Path, source: Path | None, asked: Path, answered: Path, ranks: int = 1
) -> None:
    """Answer the cases of a folder; on several ranks a process of each runs the driver."""
    place = "" if source is None else str(source.resolve())
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [str(python), *(launcher if ranks > 1 else ())]
    command += [str(_DRIVERS / f"{name}_driver.py"), str(asked), str(answered), place]
    try:
        done = run_program(
            command,
            name=f"driver of {name}",
            owner="referee",
            limit_s=_LIMIT_S,
            stdout=subprocess.DEVNULL,
        )
    except OSError as error:
        raise UsageError(f"{python} does not run the driver of {name}: {error}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"the driver of {name} did not end in {_LIMIT_S} s") from None
    if done.returncode:
        why = _first_error(done.stderr)
        raise UsageError(f"the driver of {name} ended with {done.returncode} in {python}: {why}")


def _first_error(said: str) -> str:
    """The first error of what a driver printed, before its launcher's and other
    ranks'; or the last line."""
    errors = re.findall(r"^(?:\[rank\d+\]: )?([\w.]+Error: .+)", said, re.MULTILINE)
    return (errors or said.strip().splitlines()[-1:] or ["no output"])[0][:300]


def _judge_answer(
    case: str, asked: StepFile, answered: Path, why: str, releases: Sequence[str] = ()
) -> Ruling:
    path = answered / f"{case}.safetensors"
    note = path.with_suffix(".txt")
    if not path.exists():
        return Ruling(case, why=note.read_text(encoding="utf-8") if note.exists() else why)
    try:
        step = read_step(path)
        plain = StepFile({**step.head, "conventions": {}}, step.arrays)
        before = [*_rows_as_given(asked, step), *_alone(step)]
        trainer = str(step.head["trainer"])
        is_read = trainer.rpartition(" ")[2] in releases
        return Ruling(case, trainer, before + verify(step), before + verify(plain), "", is_read)
    except DataError as error:
        return Ruling(case, why=str(error))


def _rows_as_given(asked: StepFile, step: StepFile) -> Iterator[QuantityCheck]:
    """Tokens and mask as the case has them: a trainer that encodes text again trains on other
    tokens, and one that takes padding from the tokens on others of them."""
    lengths = np.diff(asked.arrays["offsets"])
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    ends = asked.arrays["offsets"][1:][~asked.arrays["truncated"]] - 1
    for name in ("token_ids", "mask"):
        case_values, trainer_values = asked.arrays[name], step.arrays[name]
        if len(case_values) != len(trainer_values):
            raise DataError(
                f"{name} has {len(trainer_values)} tokens, and the case {len(case_values)}"
            )
        off = np.flatnonzero(case_values != trainer_values)
        if not len(off):
            yield QuantityCheck(name, "equal")
            continue
        row, at = int(row_of[off[0]]), int(off[0])
        place = row, at - int(asked.arrays["offsets"][row])
        left_out = name == "mask" and np.array_equal(off, ends)
        explained = (CHOICES["end_token"]["left out"],) if left_out else ()
        values = float(trainer_values[at]), float(case_values[at]), 0.0
        yield QuantityCheck(name, "departs", *place, *values, explained=explained)


def _alone(step: StepFile) -> Iterator[QuantityCheck]:
    """A whole trainer's log-probabilities beside those of its model on one row at a
    time, unpadded, at the case's temperature; float32 alone is off by so much from
    float64 that 8 times it is allowed."""
    for number in range(len(step.updates)):
        arrays, prefix = step.arrays, f"update{number}."
        if prefix + "alone" not in arrays:
            continue
        rows = arrays[prefix + "computed"].tolist()
        span = spans(arrays["offsets"])
        places = [(row, t) for row in rows for t in range(span[row].stop - span[row].start)]
        at = [n for n, (row, t) in enumerate(places) if arrays["mask"][span[row].start + t]]
        exact, rough = arrays[prefix + "alone"][at], arrays[prefix + "alone_float32"][at]
        recorded = arrays[prefix + "logprobs"][at].astype(float)
        allowed = 8 * (np.abs(rough - exact).max(initial=0.0) + 2.0**-24 * (1 + np.abs(exact)))
        off = np.abs(recorded - exact)
        name, worst = f"update {number}: logprobs", int(np.argmax(off - allowed))
        if (off <= allowed).all():
            yield QuantityCheck(name, "equal")
            continue
        values = float(recorded[worst]), float(exact[worst]), float(allowed[worst])
        at_one = np.abs(recorded - arrays[prefix + "alone_at_one"][at])
        explained = (CHOICES["temperature"]["one"],) if (at_one <= allowed).all() else ()
        yield QuantityCheck(name, "departs", *places[at[worst]], *values, explained=explained)


# ------------------------------------------------------------------------------------- the cases


@cache
def cases() -> Mapping[str, StepFile]:
    """Batches of eight completions on which trainers have differed, by name."""
    return dict(_cases())


def _cases() -> Iterator[tuple[str, StepFile]]:
    yield "plain", _case("grpo")
    yield "micro-batches", _case("dapo", micro=2, accumulate=4)
    yield "two updates", _case("dapo", micro=2, accumulate=2)
    yield (
        "two updates, one micro-batch empty",
        _case("dapo", micro=1, accumulate=4, masked=(3,), masks_truncated=True),
    )
    yield "ranks", _case("dapo", micro=2, accumulate=2, ranks=2)
    yield "ranks, two updates", _case("dapo", micro=1, accumulate=2, ranks=2)
    yield "ranks, sequences", _case("grpo", micro=1, accumulate=4, ranks=2)
    yield "truncated", _case("dapo", micro=2, accumulate=4, masked=(3,), masks_truncated=True)
    yield "kl", _case("grpo", kl=0.5)
    yield "gspo", _case("gspo")
    yield "gspo with kl", _case("gspo", kl=0.5)
    yield "rejected", _case("dr_grpo", masked=(0,), given=True, masked_vote=False)
    yield "unscored", _case("dr_grpo", unscored=(0,), given=True)
    yield "single", _case("rloo", sizes=(4, 3, 1), given=True)
    yield "single, std", _case("grpo", sizes=(4, 3, 1), given=True)
    yield "equal scores", _case("grpo", equal=(1,))
    yield "corrections", _case("grpo", given=True, correction=("token", "truncate", 0.0, 2.0))
    yield "corrections, band", _case("grpo", given=True, correction=("sequence", "band", 0.5, 2.0))
    yield "far", _case("grpo", given=True, far=True)
    yield "far, dual clip", _case("grpo", given=True, far=True, dual=3.0)
    yield "tool tokens", _case("dr_grpo", given=True, inner={1: (3, 8), 3: (1, 5)})
    yield "tool tokens, micro-batches", _case("dapo", micro=2, accumulate=4, inner={3: (1, 5)})
    yield "padding", _case("grpo", micro=4, accumulate=2, prompt_lengths=(3, 24))
    yield "pad is end", _case("grpo", pad_is_end=True)
    yield "temperature", _case("grpo", temperature=0.6)
    yield "retokenised", _case("grpo", retokenised=True)
    yield "far, gspo", _case("gspo", given=True, far=True)
    for paper in _VECTORS:
        yield f"vector, {paper}", _vector(paper)


def _vector(paper: str) -> StepFile:
    """The plain test vector of a paper, sampled by the weights before the step and without its
    answers, for functions."""
    step = vector_step(paper, "plain")
    answers = ("advantages", "update")
    arrays = {name: values for name, values in step.arrays.items() if not name.startswith(answers)}
    arrays["new_logprobs"] = step.arrays["update0.logprobs"]
    arrays["behaviour_logprobs"] = step.arrays["old_logprobs"]
    case = {"ranks": 1, "given": True, "whole": False, "only": ["verl"]}
    return StepFile({"case": case, "algorithm": step.head["algorithm"]}, arrays)


def _case(
    name: str,
    *,
    micro: int = 8,
    accumulate: int = 1,
    ranks: int = 1,
    sizes: Sequence[int] = (4, 4),
    masked: Sequence[int] = (),
    unscored: Sequence[int] = (),
    equal: Sequence[int] = (),
    kl: float = 0.0,
    given: bool = False,
    far: bool = False,
    masked_vote: bool = True,
    dual: float | None = None,
    correction: tuple[str, str, float, float] | None = None,
    inner: Mapping[int, tuple[int, int]] | None = None,
    prompt_lengths: Sequence[int] = (3, 4, 5),
    **more: object,
) -> StepFile:
    """A case; with `given` log-probabilities, which no model computes, it is for functions; one of
    batches, ranks, padding, temperature or text is for whole trainers alone."""
    draw = np.random.default_rng(1)
    groups = [group for group, size in enumerate(sizes) for _ in range(size)]
    ids = [draw.integers(2, 40, n) for n in _LENGTHS]
    for row_ids in ids:
        if len(row_ids) < _LONGEST:
            row_ids[-1] = 1
    prompts = [draw.integers(2, 40, prompt_lengths[group]) for group in range(len(sizes))]
    if more.get("retokenised"):  # 39 has the text of 38
        prompts = [np.minimum(prompt, 38) for prompt in prompts]
        for row_ids in ids:
            row_ids[0] = 39
    total, offsets = sum(_LENGTHS), np.concatenate([[0], np.cumsum(_LENGTHS)])
    old = -draw.uniform(0.1, 2.0, total).astype(np.float32)
    new = old + np.float32(0.3) * draw.standard_normal(total).astype(np.float32)
    if far:  # whole rows whose probability has gone, or come
        for row, apart in ((1, 100.0), (5, -100.0)):
            span = slice(offsets[row], offsets[row + 1])
            old[span], new[span] = (-101.0, -1.0) if apart > 0 else (-1.0, -101.0)
    rows = np.repeat(np.arange(8), _LENGTHS)
    mask = ~np.isin(rows, masked)
    for row, (start, stop) in (inner or {}).items():  # a tool's tokens inside of a completion
        mask[offsets[row] + start : offsets[row] + stop] = False
    scores = draw.integers(0, 2, 8) + 0.1 * np.arange(8)
    scores[np.isin(groups, equal)] = 1.0
    arrays: dict[str, Any] = {
        "token_ids": np.concatenate(ids).astype(np.int32),
        "offsets": offsets.astype(np.int64),
        "prompt_ids": np.concatenate([prompts[g] for g in groups]).astype(np.int32),
        "prompt_offsets": np.cumsum([0, *(len(prompts[g]) for g in groups)]).astype(np.int64),
        "mask": mask,
        "group": np.array(groups, np.int32),
        "score": np.where(np.isin(np.arange(8), unscored), 0.0, scores),
        "scored": ~np.isin(np.arange(8), unscored),
        "truncated": np.array([n == _LONGEST for n in _LENGTHS]),
        "behaviour_logprobs": old,
        "new_logprobs": new,
    }
    case = {
        "micro": micro,
        "accumulate": accumulate,
        "ranks": ranks,
        "siblings": sizes[0],
        "longest": _LONGEST,
        "given": given,
        "whole": micro < 8 or bool(more),
        **({"only": ["rlvr", "verl"]} if correction else {}),
        **more,
    }
    numbers = _numbers(name, kl, masked_vote, dual)
    if correction:
        arrays["old_logprobs"] = np.where(mask, old + 0.8 * draw.standard_normal(total), old)
        arrays["old_logprobs"] = arrays["old_logprobs"].astype(np.float32)
        rule = dict(zip(("level", "kind", "low", "high"), correction, strict=True))
        numbers = {**numbers, "correction": [rule]}
    return StepFile({"case": case, "algorithm": numbers}, arrays)


def _numbers(name: str, kl: float, masked_vote: bool, dual: float | None) -> JsonObject:
    """An algorithm without what its paper adds, so that trainers have the same settings."""
    constant = name in ("dr_grpo", "rloo")
    return {
        "name": name,
        "aggregation": "token_mean" if constant or name == "dapo" else "sequence_mean",
        "length_tokens": _LONGEST,
        "scale": True,
        "masked_vote": masked_vote,
        "clip": {"low": 0.2, "high": 0.28, "dual": dual},
        "kl": {"estimator": "k3", "coefficient": kl, "place": "loss"} if kl else None,
    }
