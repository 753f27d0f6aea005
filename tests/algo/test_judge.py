"""Verifying steps: what departs is named with its place, and with the convention that explains it."""

from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from rlvr.algo.judge.advantages import ADVANTAGES, advantages
from rlvr.algo.judge.conventions import CHOICES, Conventions, conventions_of, conventions_table
from rlvr.algo.judge.head import needs, setting_of, what_advantages_lack, what_the_loss_lacks
from rlvr.algo.judge.losses import LOSSES, UpdateLoss
from rlvr.algo.judge.rows import Setting, advantage_rows, rows_of_update
from rlvr.algo.judge.verify import verify
from rlvr.algo.judge.whatif import what_if
from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.numbers import algorithm_numbers
from rlvr.cli.entry import main
from rlvr.data.step_files import StepFile, write_step
from rlvr.errors import DataError
from tests.processes import run_python

LENGTHS = [3, 5, 2, 4, 6, 1, 4]
GROUP = [0, 0, 0, 1, 1, 1, 2]
SCORE = [1.0, 0.0, 0.5, 0.25, 0.0, 0.0, 1.0]


@cache
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
        "updates": [{"micro": [0, 0, 0, 0, 0, 1, 1], "rank": [0, 0, 0, 1, 0, 1, 0]}],
    }
    arrays = {
        "token_ids": np.arange(total, dtype=np.int32),
        "offsets": np.concatenate([[0], np.cumsum(LENGTHS)]),
        "mask": mask,
        "group": np.array(GROUP, np.int32),
        "score": np.array(SCORE),
        "scored": np.array([i != 5 for i in range(7)]),
        "truncated": np.array([i == 2 for i in range(7)]),
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
    rows, computed = rows_of_update(StepFile(file.head, arrays), 0)
    made = UpdateLoss(rows, computed, setting, rows, file.updates[0])
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
            if choice != getattr(Conventions(), name) and (name, choice) not in NO_EFFECT:
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
    ("kl_place", "loss"),
    ("temperature", "one"),  # of models: tests/train/test_step_model.py
    ("denominator", "batch"),
    ("denominator", "share"),
}


OTHERS = list(_changes())
FIRST = dict(reversed(OTHERS))
"""Further choices of the same convention are slow, and two of three conventions: each tries all as explanations."""


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        pytest.param(
            name,
            choice,
            marks=[pytest.mark.slow] * (choice != FIRST[name] or list(FIRST).index(name) % 3 > 0),
        )
        for name, choice in OTHERS
    ],
)
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


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("score", "score of row 3"),
        ("old_logprobs", "old_logprobs of row 1, token 0"),
        ("update0.logprobs", "weight of row 1, token 0"),
    ],
)
def test_a_what_if_of_nan_or_of_a_missing_array_is_one_line(name, place):
    """With its place, and never a cosine of what is left."""
    file = step()
    values = file.arrays[name].copy()
    values[3] = np.nan
    with pytest.raises(DataError, match=f"{place} is nan"):
        what_if(StepFile(file.head, {**file.arrays, name: values}))
    if name.startswith("update"):
        with pytest.raises(DataError, match="the file has no logprobs"):
            what_if(without(file, "logprobs"))


def test_a_step_without_a_gradient_has_no_cosine(tmp_path, capsys):
    """All rewards alike: 0 would read as a step at a right angle."""
    file = step()
    nothing = np.zeros_like(file.arrays["update0.weights"])
    write_step(tmp_path / "step", StepFile(file.head, {**file.arrays, "update0.weights": nothing}))
    assert main(["whatif", str(tmp_path / "step"), "--algorithm", "dr_grpo"]) == 0
    assert "the step took no gradient" in capsys.readouterr().out


@pytest.mark.parametrize(
    "changed", [{"algorithm": None}, {"algorithm": "grpo"}, {"updates": [{"loss": "big"}]}]
)
def test_a_hostile_head_is_shown(changed, tmp_path, capsys):
    """`rlvr step show` prints what is there."""
    file = step()
    write_step(tmp_path / "step", StepFile({**file.head, **changed}, file.arrays))
    assert main(["step", "show", str(tmp_path / "step")]) == 0
    assert "7 rows in 3 groups" in capsys.readouterr().out


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
    assert conventions_table() in page.read_text(encoding="utf-8")


WRONG_HEADS = {
    "conventions are": {"conventions": ["std"]},
    "std is": {"conventions": {"std": ["sample"]}},
    "share is": {"algorithm": {"name": "kl_cov", "share": 5}},
    "eps is": {"conventions": {"eps": float("nan")}},
    "bound is": {"conventions": {"bound": 10**400}},
    "algorithm.kl is 'k3'": {"algorithm": {"name": "grpo", "kl": "k3"}},
    "algorithm.kl has no place": {
        "algorithm": {"name": "grpo", "kl": {"estimator": "k3", "coefficient": 1}}
    },
    "algorithm.gamma is 1e": {"algorithm": {"name": "ppo", "gamma": 1e300}},
    "algorithm.n_steps is True": {"algorithm": {"name": "a2c", "n_steps": True}},
    r"correction\[1\].kind is 'cut'": {
        "algorithm": {
            "name": "grpo",
            "correction": [
                {"level": "token", "kind": kind, "low": 0, "high": 2} for kind in ("mask", "cut")
            ],
        }
    },
    "update 0: numbers are 5": {"updates": [{"numbers": 5}]},
    "update 0, numbers.clip.low is 'x'": {"updates": [{"numbers": {"clip": {"low": "x"}}}]},
    "update 0: loss is 'much'": {"updates": [{"loss": "much"}]},
    "update 0: terms.kl_ref is": {"updates": [{"terms": {"kl_ref": []}}]},
    "update 0: tokens is -1": {"updates": [{"tokens": -1}]},
    "update 0: micro has 1 numbers for 7": {"updates": [{"micro": [0]}]},
    "update 0: rank is 'all'": {"updates": [{"rank": "all"}]},
    "no algorithm": {"algorithm": {"name": ["grpo"]}},
}


@pytest.mark.parametrize("message", WRONG_HEADS)
def test_a_hostile_head_is_one_line_with_its_place(message):
    """It is checked before anything is computed."""
    file = step()
    head = {**file.head, **WRONG_HEADS[message]}
    with pytest.raises(DataError, match=message) as caught:
        verify(StepFile(head, file.arrays))
    assert len(str(caught.value)) < 300


def test_a_fault_of_ours_is_no_fault_of_the_file(monkeypatch):
    """A formula that raises is seen as what it is."""

    def broken(*args):
        raise TypeError("ours")

    monkeypatch.setitem(ADVANTAGES, "grpo", broken)
    with pytest.raises(TypeError, match="ours"):
        verify(step())


ARRAYS = {
    "values": np.float32,
    "teacher_logprobs": np.float32,
    "implicit_rewards": np.float32,
}


def full_step(name: str) -> StepFile:
    """A file with everything that any algorithm reads."""
    file, draw = step(), np.random.default_rng(7)
    algorithm = load_algorithm(name)
    rows = np.arange(7, dtype=np.int32)
    more = {key: draw.standard_normal(sum(LENGTHS)).astype(kind) for key, kind in ARRAYS.items()}
    more |= {
        "score_parts": draw.uniform(size=(7, 2)),
        "turns": np.stack([rows, 0 * rows, np.array(LENGTHS, np.int32)], axis=1),
        "turn_rewards": draw.uniform(size=7),
        "prefixes": np.array(
            [[row, end] for row in rows for end in (0, LENGTHS[row])], dtype=np.int32
        ),
        "prefix_values": draw.uniform(size=14),
        "update0.selected": draw.uniform(size=sum(LENGTHS)) < 0.2,
        "update0.divergences": draw.uniform(size=sum(LENGTHS)),
    }
    return StepFile(
        {**file.head, "algorithm": algorithm_numbers(algorithm, 8)}, {**file.arrays, **more}
    )


@pytest.mark.parametrize("name", sorted(LOSSES.keys() | ADVANTAGES.keys()))
def test_what_a_file_lacks_is_said(name):
    """Formulas read what is declared and no more: with nothing else they compute; without one of it, it is named."""
    file = full_step(name)
    setting = setting_of(file)
    advantage_needs, loss_needs = needs(name, setting)
    kept = {"clip", "name", "kl", "masked_vote", *advantage_needs, *loss_needs}
    bare = {key: value for key, value in setting.numbers.items() if key in kept}
    extra = {"values", "prefixes", "prefix_values", "turns", "turn_rewards", "score_parts"}
    extra |= {"ref_logprobs", "update0.selected", "update0.divergences", *ARRAYS}
    used = set(advantage_needs) | set(loss_needs)
    used |= {"prefix_values"} & {f"{one[:-2]}_values" for one in used}
    used |= {"turn_rewards"} if "turns" in used else set()
    arrays = {
        key: array
        for key, array in file.arrays.items()
        if key not in extra or key.removeprefix("update0.") in used
    }
    least = StepFile({**file.head, "algorithm": bare}, arrays)
    setting = setting_of(least)
    assert not what_advantages_lack(least, setting)
    assert not what_the_loss_lacks(least, 0, setting)
    if name in ADVANTAGES:
        advantages(advantage_rows(least), setting)
    if name in LOSSES:
        UpdateLoss(*rows_of_update(least, 0), setting)
    for missing in advantage_needs:
        assert what_advantages_lack(without(least, missing), setting_of(without(least, missing)))
    for missing in loss_needs:
        file = without(least, missing)
        assert what_the_loss_lacks(file, 0, setting_of(file)) == missing


def without(file: StepFile, name: str) -> StepFile:
    """The file without an array or number."""
    numbers = {key: value for key, value in file.head["algorithm"].items() if key != name}
    arrays = {k: v for k, v in file.arrays.items() if k not in (name, f"update0.{name}")}
    return StepFile({**file.head, "algorithm": numbers}, arrays)


def test_a_file_that_lacks_the_reference_is_compared_in_the_rest():
    """The advantages; of the update, the reason is said."""
    findings = verify(without(step(), "ref_logprobs"))
    assert [(one.quantity, one.status) for one in findings] == [
        ("advantages", "equal"),
        ("update 0", "not compared"),
    ]
    assert "no ref_logprobs" in findings[1].why


def test_the_command_needs_no_torch():
    """Whoever verifies a step needs numpy alone."""
    code = "import sys, rlvr.cli.step, rlvr.cli.referee; print('torch' in sys.modules)"
    ended = run_python(code, check=True)
    assert ended.stdout.strip() == "False"
