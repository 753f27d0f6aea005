"""Verifying steps: what departs is named with its place, and with the convention that explains it."""

import contextlib
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from rlvr.algo.judge.advantages import advantages
from rlvr.algo.judge.conventions import CHOICES, Conventions, conventions_of, markdown
from rlvr.algo.judge.losses import UpdateLoss
from rlvr.algo.judge.rows import Setting, advantage_rows, update_rows
from rlvr.algo.judge.verify import verify
from rlvr.algo.papers import load_algorithm
from rlvr.data.step_files import StepFile
from rlvr.errors import DataError

LENGTHS = [3, 5, 2, 4, 6, 1, 4]
GROUP = [0, 0, 0, 1, 1, 1, 2]
SCORE = [1.0, 0.0, 0.5, 0.25, 0.0, 0.0, 1.0]


def step(**numbers) -> StepFile:
    """One update of GRPO that rlvr would record: row 2 is masked as truncated, row 5 UNSCORED, row 6 alone."""
    draw = np.random.default_rng(5)
    total = sum(LENGTHS)
    mask = np.ones(total, bool)
    mask[8:10] = False
    old = -draw.uniform(0.1, 2.0, total)
    algorithm = load_algorithm("grpo", **numbers)
    head = {
        "algorithm": asdict(algorithm)
        | {"name": "grpo", "aggregation": algorithm.aggregation, "length_tokens": 8},
        "updates": [{"micro": [0, 0, 0, 0, 0, 1, 1]}],
    }
    arrays = {
        "token_ids": np.arange(total, dtype=np.int32),
        "offsets": np.concatenate([[0], np.cumsum(LENGTHS)]),
        "mask": mask,
        "group": np.array(GROUP, np.int32),
        "score": np.array(SCORE),
        "scored": np.array([i != 5 for i in range(7)]),
        "behaviour_logprobs": old.astype(np.float32),
        "ref_logprobs": (old + 0.2 * draw.standard_normal(total)).astype(np.float32),
        "old_logprobs": (old + 0.1 * draw.standard_normal(total)).astype(np.float32),
        "advantages": np.zeros(total, np.float32),
        "update0.rows": np.arange(7, dtype=np.int32),
        "update0.computed": np.arange(7, dtype=np.int32),
        "update0.logprobs": (old + 0.3 * draw.standard_normal(total)).astype(np.float32),
        "update0.weights": np.zeros(total, np.float32),
    }
    return recorded(StepFile(head, arrays), Conventions())


def recorded(file: StepFile, how: Conventions) -> StepFile:
    """What a trainer with these conventions would have recorded."""
    arrays, starts = dict(file.arrays), file.arrays["offsets"]
    setting = Setting("grpo", file.head["algorithm"], how)
    rows = advantage_rows(file)
    arrays["advantages"] = np.zeros_like(arrays["advantages"])
    for row, own in zip(rows, advantages(rows, setting), strict=True):
        arrays["advantages"][starts[row.index] + row.at] = own
    rows, computed = update_rows(StepFile(file.head, arrays), 0)
    made = UpdateLoss(rows, computed, setting, rows, file.updates[0]["micro"])
    arrays["update0.weights"] = np.zeros_like(arrays["update0.weights"])
    for row, own in zip(computed, made.weights, strict=True):
        arrays["update0.weights"][starts[row.index] + row.at] = own
    update = {**file.updates[0], "loss": made.loss, "terms": made.terms}
    update |= {"tokens": made.tokens, "sequences": made.sequences}
    return StepFile({**file.head, "updates": [update]}, arrays)


def test_a_step_in_float32_is_equal():
    """Rounding of recorded numbers is no departure."""
    assert {finding.status for finding in verify(step())} == {"equal"}


def _changes():
    for name, choices in CHOICES.items():
        for choice in choices:
            if choice != getattr(Conventions(), name):
                yield name, choice


NEEDS = {
    "corrections": {"correction": "token:truncate:1.05,sequence:truncate:1.1"},
    "denominator": {},
}
NO_EFFECT = {
    ("masked_rows", "vote"),
    ("kl_estimator", "k3"),
    ("bound", float("inf")),
    ("cap", 10.0),
    ("denominator", "batch"),
    ("denominator", "share"),
}


@pytest.mark.parametrize(("name", "choice"), [one for one in _changes() if one not in NO_EFFECT])
def test_a_trainer_with_another_convention_departs_and_is_explained(name, choice):
    """By the very convention; and where a file declares it, nothing departs."""
    ours = step(**NEEDS.get(name, {}))
    theirs = recorded(ours, replace(Conventions(), **{name: choice}))
    departs = [finding for finding in verify(theirs) if finding.status == "departs"]
    assert departs
    assert CHOICES[name][choice] in departs[0].explained
    declared = StepFile({**theirs.head, "conventions": {name: choice}}, theirs.arrays)
    assert {finding.status for finding in verify(declared)} == {"equal"}


def test_a_departure_is_named_with_row_token_and_values():
    """Token 3 of row 4, whose weight is a thousandth too large."""
    file = step()
    weights = file.arrays["update0.weights"].copy()
    at = sum(LENGTHS[:4]) + 3
    weights[at] *= 1.001
    [finding] = [
        one
        for one in verify(StepFile(file.head, {**file.arrays, "update0.weights": weights}))
        if one.status == "departs"
    ]
    assert (finding.quantity, finding.row, finding.token) == ("update 0: weights", 4, 3)
    assert finding.recorded == pytest.approx(1.001 * finding.recomputed, rel=1e-6)
    assert finding.tolerance < 1e-5 * abs(finding.recomputed)
    assert finding.explained == ()


@pytest.mark.parametrize("name", ["behaviour_logprobs", "ref_logprobs", "old_logprobs"])
def test_nan_is_named_with_its_place(name):
    """Nothing that follows can be compared."""
    file = step()
    values = file.arrays[name].copy()
    values[sum(LENGTHS[:3]) + 1] = np.nan
    [finding] = verify(StepFile(file.head, {**file.arrays, name: values}))
    assert (finding.quantity, finding.row, finding.token, finding.status) == (name, 3, 1, "departs")


def test_what_the_judge_does_not_know_is_not_compared():
    """A user's algorithm; whoever reads the findings sees why."""
    file = step()
    head = {**file.head, "algorithm": {**file.head["algorithm"], "name": "mine.py:Mine"}}
    findings = verify(StepFile(head, file.arrays))
    assert {finding.status for finding in findings} == {"not compared"}
    with pytest.raises(DataError, match="no algorithm"):
        verify(StepFile({}, file.arrays))


def test_an_unknown_convention_is_refused():
    """With the nearest name."""
    with pytest.raises(DataError, match="std"):
        conventions_of({"stdd": "sample"})
    with pytest.raises(DataError, match="population, sample"):
        conventions_of({"std": "half"})


def test_the_page_has_the_table():
    """What a convention says is written once."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "step_files.md"
    assert markdown() in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "head",
    [
        {"conventions": ["std"]},
        {"conventions": {"eps": "small"}},
        {"algorithm": {"name": "grpo", "kl": "k3", "aggregation": "token_mean"}},
        {"updates": [{"numbers": 5}]},
        {"updates": [{"numbers": {"clip": {"low": "x", "high": None}}}]},
        {"updates": [{"loss": "much", "terms": []}]},
    ],
)
def test_a_hostile_head_is_one_line(head):
    """Whatever JSON it is: an error of ours, or quantities that are not compared."""
    file = step()
    with contextlib.suppress(DataError):
        findings = verify(StepFile({**file.head, **head}, file.arrays))
        assert any(one.status != "equal" for one in findings)


def test_the_command_needs_no_torch():
    """Whoever verifies a step needs numpy alone."""
    code = "import sys, rlvr.cli.step, rlvr.cli.referee; print('torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"
