"""Test vectors: steps of every paper that other projects test by."""

from pathlib import Path

import numpy as np
import pytest

from rlvr.algo.judge.head import setting_of
from rlvr.algo.judge.rows import rows_of_update
from rlvr.algo.judge.selection import wrong_selection
from rlvr.algo.judge.vectors import CASES, PAPERS
from rlvr.algo.judge.verify import verify
from rlvr.algo.papers import load_algorithm
from rlvr.cli.entry import main
from rlvr.data.step_files import StepFile, read_step
from rlvr.train.step_own import formulas_of
from tests.processes import run_python

FOLDER = Path(__file__).parents[1] / "vectors"


def test_every_paper_has_every_case():
    """Of two megabytes at most."""
    names = {f"{name}-{case}" for name in PAPERS for case in CASES}
    files = list(FOLDER.glob("*.safetensors"))
    assert {file.stem for file in files} == names
    assert sum(file.stat().st_size for file in files) < 2_000_000


def test_the_judge_says_what_it_said(tmp_path, capsys):
    """To rounding: a formula that changes changes its vectors, in sight of whoever reads the change.  By the command,
    which writes them all."""
    assert main(["step", "vectors", str(tmp_path / "folder")]) == 0
    files = sorted((tmp_path / "folder").iterdir())
    assert [file.name for file in files] == sorted(one.name for one in FOLDER.glob("*.safetensors"))
    assert f"{len(files)} test vectors" in capsys.readouterr().out
    for file in files:
        name, step, kept = file.stem, read_step(file), read_step(FOLDER / file.name)
        assert step.arrays.keys() == kept.arrays.keys(), name
        for key, array in step.arrays.items():
            np.testing.assert_allclose(
                array, kept.arrays[key], rtol=1e-9, atol=1e-12, err_msg=f"{name} {key}"
            )
        for own, update in zip(step.updates, kept.updates, strict=True):
            assert own["loss"] == pytest.approx(update["loss"], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ["grpo-rows", "ppo-plain", "gspo-far", "dro-updates"])
def test_a_vector_verifies(name):
    assert {one.status for one in verify(read_step(FOLDER / f"{name}.safetensors"))} == {"equal"}


@pytest.mark.parametrize("name", ["kl_cov", "clip_cov"])
def test_the_tokens_that_an_update_treats_apart_are_looked_at(name):
    """One more than the paper's share, and one of another covariance."""
    step = read_step(FOLDER / f"{name}-plain.safetensors")
    plain = step.arrays["update0.selected"]
    count, found = int(plain.sum()), set()
    for token in np.flatnonzero(~plain):
        more = plain.copy()
        more[token] = True
        changed = StepFile(step.head, {**step.arrays, "update0.selected": more})
        row, _, *values = wrong_selection(*rows_of_update(changed, 0), setting_of(changed), None)
        place = int(np.searchsorted(step.arrays["offsets"], token, side="right")) - 1
        assert (row, *values) in {(None, count + 1, count), (place, 1, 0)}
        found.add(row)
    assert len(found) > 1
    of_none = StepFile(step.head, {**step.arrays, "update0.selected": plain & False})
    names = [one.quantity for one in verify(of_none) if one.status == "departs"]
    assert names[0] == "update 0: selected"


PAPERS_IN_TORCH = "grpo rloo reinforce_pp ppo gspo cispo gmpo sapo"


@pytest.mark.parametrize(
    ("case", "names"),
    [("rows", PAPERS_IN_TORCH), ("far", PAPERS_IN_TORCH), ("updates", "ppo gspo")],
)
def test_the_trainers_functions_say_what_the_judge_says(case: str, names: str):
    """Advantages, losses and slopes in PyTorch are those that the judge computes row by row without it."""
    for name in names.split():
        own = formulas_of(load_algorithm(name))
        found = verify(read_step(FOLDER / f"{name}-{case}.safetensors"), own=own)
        assert (name, {one.status for one in found}) == (name, {"equal"})


def test_no_number_is_of_one_side_alone():
    """Of each paper some weight is above 0 and some below, and rows that are masked have none."""
    for file in FOLDER.glob("*-rows.safetensors"):
        step = read_step(file)
        weights = step.arrays["update0.weights"]
        assert not weights[~step.arrays["mask"]].any(), file.name
        assert np.isfinite(weights).all(), file.name
    for file in FOLDER.glob("*-plain.safetensors"):
        assert np.abs(read_step(file).arrays["update0.weights"]).max() > 0, file.name


def test_the_lines_of_the_page_run_without_rlvr():
    """With a loss of one's own: REINFORCE sums over a completion, and means over completions."""
    pytest.importorskip("safetensors")
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    loss = (
        "def my_loss(logprobs, old, advantages, offsets):\n"
        "    return -(logprobs * advantages).sum() / (len(offsets) - 1)\n"
    )
    assert len(code.strip().splitlines()) <= 13
    ended = run_python(
        loss + code + "import sys\nassert 'rlvr' not in sys.modules", cwd=FOLDER.parents[1]
    )
    assert ended.returncode == 0, ended.stderr
