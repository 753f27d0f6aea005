"""`rlvr whatif`: recorded training steps with other verdicts, or by another algorithm,
without training again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from rich.console import Console
from tyro.conf import Positional, arg

from rlvr.algo.judge.head import setting_of
from rlvr.algo.judge.whatif import Turned, other_weights, recorded_weights, what_if
from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.numbers import algorithm_numbers
from rlvr.cli.arguments import (
    NameValues,
    RewardText,
    SandboxLevel,
    Workers,
    environment_of,
    rows_with,
)
from rlvr.data.step_files import StepFile, read_step
from rlvr.errors import DataError, UsageError
from rlvr.scoring import Scorer
from rlvr.text import one_line
from rlvr.types import JsonObject

__all__ = ["WhatifCommand"]


class _Scores(NamedTuple):
    """Of each row of a step.

    Attributes:
        totals: None for UNSCORED.
        parts: of each total.
    """

    totals: Sequence[float | None]
    parts: Sequence[Mapping[str, float]]


@dataclass
class WhatifCommand:
    """Say how other verdicts, another reward or another algorithm would have turned the steps of a
    run.

    Example: rlvr whatif runs/math --verifier math
    Example: rlvr whatif runs/math --algorithm dr_grpo

    Reads the step files of `rlvr train --step-files N`.  Completions are scored again, and
    advantages and the weight of each token are recomputed; the cosine is that of the gradient that
    was taken with the other: 1 is the same direction, 0 none in common, below 0 the opposite.  With
    the model before a step (--model) it is that of the gradients themselves.
    """

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of a run, or one step file."""
    env: str | None = None
    """Score with this environment: its id, or path/to/file.py:name."""
    verifier: str | None = None
    """Score with this verifier: a name of `rlvr verifiers`, or path/to/file.py:name."""
    option: NameValues = ()
    """Set an option of the environment, or a setting of the verifier; may be repeated."""
    reward: RewardText = None
    algorithm: str | None = None
    """Take the step of this algorithm, at its own numbers: a name of `rlvr algorithms`."""
    model: Annotated[str | None, arg(metavar="FOLDER")] = None
    """The model before the step, for one step file: compares gradients (needs torch)."""
    workers: Workers = None
    sandbox: SandboxLevel = None
    json: bool = False
    """Print a JSON line for each step."""

    def run(self, out: Console, err: Console) -> int:
        files = self._files()
        named = [self.env, self.verifier, self.algorithm]
        if (self.env and self.verifier) or not any(named):
            raise UsageError("give one of --env and --verifier, or --algorithm, or both kinds")
        if self.reward and not (self.env or self.verifier):
            raise UsageError("--reward needs --env or --verifier, which score the completions")
        if self.model is not None and len(files) > 1:
            raise UsageError(
                f"--model is the model before one step, and there are {len(files)}; give one step "
                f"file"
            )
        turned: list[Turned] = []
        for file, step, scores in self._score_files(files):
            algorithm = None
            if self.algorithm is not None:
                algorithm = _numbers(self.algorithm, step)
            try:
                totals, parts = (None, None) if scores is None else scores
                difference = what_if(step, totals, parts, algorithm)
                if self.model is not None:
                    difference = _by_gradients(
                        step, difference, self.model, totals, parts, algorithm
                    )
            except DataError as error:
                raise DataError(f"{file}: {error}") from None
            turned.append(difference)
            if self.json:
                out.print(
                    json.dumps({"file": str(file), **asdict(difference)}),
                    markup=False,
                    soft_wrap=True,
                )
            else:
                for line in _lines(step, difference, totals):
                    out.print(line, markup=False, highlight=False, soft_wrap=True)
        if len(turned) > 1 and not self.json:
            out.print(_summary(turned), markup=False, highlight=False, soft_wrap=True)
        return 0

    def _files(self) -> list[Path]:
        if self.run_folder.is_file():
            return [self.run_folder]
        every = sorted((self.run_folder / "steps").glob("step-*.safetensors"))
        files = [file for file in every if "-bad-" not in file.name]
        if not files:
            raise UsageError(
                f"{self.run_folder} has no step files; `rlvr train --step-files 10` writes every "
                f"tenth step"
            )
        return files

    def _score_files(
        self, files: Sequence[Path]
    ) -> Iterator[tuple[Path, StepFile, _Scores | None]]:
        """Each file with its new scores; one scorer for all."""
        if self.env is None and self.verifier is None:
            for file in files:
                yield file, read_step(file), None
            return
        name, options = self.env or "", self.option
        if self.verifier is not None:
            name, options = rows_with(self.verifier, self.option)
        env = environment_of(name, options, self.sandbox, reward=self.reward)
        with Scorer(env, workers=self.workers) as scorer:
            for file in files:
                step = read_step(file)
                rows = list(_rows(file, step))
                by_row = {result.item.id: result.score for result in scorer.stream(rows)}
                owner = step.arrays.get("owner", np.arange(len(step.arrays["group"]))).tolist()
                scores = [by_row[row] for row in owner]
                yield (
                    file,
                    step,
                    _Scores([score.total for score in scores], [score.parts for score in scores]),
                )


def _rows(file: Path, step: StepFile) -> Iterator[dict[str, object]]:
    """What is scored, one row for each rollout."""
    texts, groups = step.head.get("texts"), step.head.get("groups")
    count = len(step.arrays["group"])
    if not (isinstance(texts, list) and len(texts) == count and isinstance(groups, Mapping)):
        raise DataError(
            f"{file} has no texts to score; this rlvr's `rlvr train --step-files` writes them"
        )
    lengths = np.diff(step.arrays["offsets"]).tolist()
    truncated = step.arrays.get("truncated", np.zeros(count, bool)).tolist()
    owner = step.arrays.get("owner", np.arange(count)).tolist()
    for row, number in enumerate(step.arrays["group"].tolist()):
        if owner[row] != row:
            continue
        task = groups.get(str(number))
        if not isinstance(texts[row], str) or not isinstance(task, Mapping):
            raise DataError(
                f"{file}: row {row} is an episode, or has no text; episodes are graded again by "
                f"`rlvr replay`"
            )
        columns = {name: task[name] for name in ("task", "prompt", "reference") if name in task}
        yield {
            "id": row,
            **columns,
            "completion": texts[row],
            "truncated": truncated[row],
            "length_tokens": lengths[row],
        }


def _numbers(name: str, step: StepFile) -> JsonObject:
    numbers = setting_of(step).numbers
    length = numbers.get("length_tokens") or int(np.diff(step.arrays["offsets"]).max(initial=1))
    return algorithm_numbers(load_algorithm(name), int(length)) | {"average": None}


def _by_gradients(step: StepFile, found: Turned, folder: str, *changed: Any) -> Turned:
    """The cosine of the first update's gradients, by the model before it."""
    module = import_module("rlvr.train.step_model")  # it needs torch
    if len(step.updates) != 1:
        raise DataError(
            f"it has {len(step.updates)} updates; --model compares the gradients of one"
        )
    model = module.StepModel.load(folder, str(step.head.get("precision")))
    weights, other_weights_taken = recorded_weights(step), other_weights(step, *changed)
    cosine, norm = module.compare_gradients(step, model, weights, other_weights_taken)
    return replace(found, cosine=cosine, norm=norm, by="gradients")


def _lines(step: StepFile, found: Turned, totals: Sequence[float | None] | None) -> Iterator[str]:
    turn = "the step took no gradient"
    if found.norm is not None:
        turn = f"cosine {found.cosine:.3f}, {found.norm:.3g} times as long (by {found.by})"
    yield (
        f"step {found.step}: {found.flipped} of {found.rows} rows scored otherwise, "
        f"{found.changed} pushed another way; {turn}"
    )
    tasks = step.head.get("tasks", [])
    for row, share in found.turning[:3]:
        task = one_line(str(tasks[row])) if row < len(tasks) else ""
        before = step.arrays["score"][row] if step.arrays["scored"][row] else None
        after = before if totals is None else totals[row]
        score_change = " to ".join(
            "UNSCORED" if score is None else f"{score:g}" for score in (before, after)
        )
        yield f"    row {row}, {task}: score {score_change}, {share:.0%} of the difference"


def _summary(turned: Sequence[Turned]) -> str:
    rows = sum(step.rows for step in turned)
    flipped = sum(step.flipped for step in turned)
    cosines = [step.cosine for step in turned if step.norm is not None]
    turn = "none took a gradient"
    if cosines:
        turn = f"cosine {np.mean(cosines):.3f} on average, {min(cosines):.3f} at least"
    return f"{len(turned)} steps: {flipped} of {rows} rows scored otherwise, {turn}"
