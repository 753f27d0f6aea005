"""`rlvr step`: recomputes recorded training steps, compares two, and shows one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from rich.console import Console
from tyro.conf import Positional, arg

from rlvr.algo.judge.vectors import vectors
from rlvr.algo.judge.verify import QuantityCheck, verify
from rlvr.data.step_files import StepFile, read_step, write_step
from rlvr.errors import UsageError
from rlvr.text import one_line

__all__ = ["StepCommand"]


@dataclass
class StepCommand:
    """Recompute a recorded training step in float64 (verify), compare two (diff), show one,
    or write test vectors.

    Example: rlvr step verify RUN/steps/step-00000010.safetensors

    `verify` needs neither torch nor the model: groups, advantages, loss and the weight of each
    token in the gradient are recomputed from what is recorded before them.  With --model
    log-probabilities and gradient are, too.  Exit code 1 if a number departs by more than rounding
    allows.
    """

    action: Positional[Literal["verify", "diff", "show", "vectors"]]
    """What to do."""
    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """File that `rlvr train --step-files N` or another trainer's recorder wrote;
    for vectors the folder to write to."""
    other: Positional[Annotated[Path | None, arg(metavar="[FILE]")]] = None
    """The second file of `diff`."""
    model: Annotated[str | None, arg(metavar="FOLDER")] = None
    """The model before the step:
    `verify` then recomputes log-probabilities and the gradient, too (needs torch)."""
    reference: Annotated[str | None, arg(metavar="FOLDER")] = None
    """The reference policy, whose log-probabilities are recomputed."""
    teacher: Annotated[str | None, arg(metavar="FOLDER")] = None
    """The teacher, whose log-probabilities are recomputed."""
    algorithm: Annotated[str | None, arg(metavar="FILE.py:CLASS")] = None
    """Your own algorithm of the recorded run,
    by whose functions `verify` then judges it (needs torch)."""
    json: bool = False
    """Print the findings of `verify` as JSON."""

    def run(self, out: Console, err: Console) -> int:
        if (self.action == "diff") != (self.other is not None):
            raise UsageError("diff takes two files, the others take one")
        models = self.model, self.reference, self.teacher
        if self.action != "verify" and any((*models, self.algorithm)):
            raise UsageError("--model, --reference, --teacher and --algorithm are of verify")
        if self.action == "vectors":
            return _write_vectors(self.file, out)
        step = read_step(self.file)
        if self.action == "show":
            for line in _describe_step(step):
                out.print(line, markup=False, soft_wrap=True)
            return 0
        if self.other is not None:
            lines = _differences(step, read_step(self.other))
            for line in lines or ["equal"]:
                out.print(line, markup=False, soft_wrap=True)
            return int(bool(lines))
        formulas = None
        if self.algorithm is not None:
            formulas = import_module("rlvr.train.step_own").own_formulas(step, self.algorithm)
        findings = verify(step, own=formulas)
        if any(models):
            findings += _with_models(step, *models)
        if self.json:
            fields = [{k: getattr(check, k) for k in check.__slots__} for check in findings]
            out.print(json.dumps(fields), markup=False, soft_wrap=True)
        else:
            for finding in findings:
                out.print(str(finding), markup=False, highlight=False, soft_wrap=True)
        return int(any(check.status == "departs" for check in findings))


def _write_vectors(folder: Path, out: Console) -> int:
    """Steps of every paper with what the judge makes of them, for other projects' tests."""
    count = 0
    for name, step in vectors():
        write_step(folder / f"{name}.safetensors", step)
        count += 1
    out.print(f"{count} test vectors written to {one_line(folder)}", markup=False, soft_wrap=True)
    return 0


def _with_models(step: StepFile, *folders: str | None) -> list[QuantityCheck]:
    module = import_module("rlvr.train.step_model")  # it needs torch
    precision = str(step.head.get("precision"))
    load = module.StepModel.load
    loaded = [None if folder is None else load(folder, precision) for folder in folders]
    findings: list[QuantityCheck] = module.verify_with_models(step, *loaded)
    return findings


def _describe_step(step: StepFile) -> list[str]:
    head, offsets = step.head, step.arrays["offsets"]
    algorithm = head.get("algorithm")
    name = algorithm.get("name") if isinstance(algorithm, dict) else None
    lines = [
        f"step {head.get('step')} of {one_line(str(head.get('trainer')))}, "
        f"algorithm {one_line(str(name))}, {head.get('ranks')} ranks, "
        f"{head.get('precision')}",
        f"{len(offsets) - 1} rows in {len(np.unique(step.arrays['group']))} groups, "
        f"{int(offsets[-1])} tokens, "
        f"{int(step.arrays['mask'].sum())} of them trained on; "
        f"{int((~step.arrays['scored']).sum())} rows UNSCORED",
    ]
    for number, update in enumerate(step.updates):
        terms = update.get("terms", {})
        numbers = {"loss": update.get("loss"), **(terms if isinstance(terms, dict) else {})}
        terms_text = ", ".join(
            f"{name} {value:.6g}" if isinstance(value, int | float) else f"{name} {value!r:.80}"
            for name, value in numbers.items()
            if value is not None
        )
        lines.append(f"update {number}: {update.get('tokens')} tokens; {one_line(terms_text)}")
    for name, array in step.arrays.items():
        lines.append(f"  {one_line(name)} {array.dtype} {list(array.shape)}")
    return lines


def _differences(step: StepFile, other: StepFile) -> list[str]:
    lines = []
    for name in sorted(step.arrays.keys() | other.arrays.keys()):
        a, b = step.arrays.get(name), other.arrays.get(name)
        if a is None or b is None:
            lines.append(f"{one_line(name)}: only in the {'second' if a is None else 'first'}")
        elif a.shape != b.shape:
            lines.append(f"{one_line(name)}: shape {list(a.shape)} and {list(b.shape)}")
        elif not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            lines.append(f"{one_line(name)}: {_difference(a, b)}")
    for name in sorted(step.head.keys() | other.head.keys()):
        if step.head.get(name) != other.head.get(name):
            pair = (step.head.get(name), other.head.get(name))
            lines.append(f"head, {one_line(name)}: " + _of_heads(name, *pair))
    return lines


def _of_heads(name: str, a: object, b: object) -> str:
    if isinstance(a, dict) and isinstance(b, dict):
        changed = [key for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)]
        return ", ".join(f"{key} {a.get(key)!r} and {b.get(key)!r}" for key in changed)[:500]
    return one_line(f"{a!r} and {b!r}")[:500]


def _difference(a: Any, b: Any) -> str:
    places = np.argwhere(a != b)
    at = tuple(int(i) for i in places[0])
    line = f"{len(places)} of {a.size} differ, first at {list(at)}: {a[at]} and {b[at]}"
    if a.dtype.kind == "f":
        norm = float(np.linalg.norm(a.astype(float)))
        apart = float(np.linalg.norm(a.astype(float) - b.astype(float)))
        line += f"; relative difference {apart / norm if norm else np.inf:.3g}"
    return line
