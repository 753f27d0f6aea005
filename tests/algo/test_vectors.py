"""Test vectors: steps of every paper that other projects test by."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlvr.algo.judge.vectors import CASES, PAPERS, vectors
from rlvr.algo.judge.verify import verify
from rlvr.algo.papers import load_algorithm
from rlvr.cli.entry import main
from rlvr.data.step_files import read_step
from rlvr.train.step_own import formulas_of

FOLDER = Path(__file__).parents[1] / "vectors"


def test_every_paper_has_every_case():
    """Of two megabytes at most."""
    names = {f"{name}-{case}" for name in PAPERS for case in CASES}
    files = list(FOLDER.glob("*.safetensors"))
    assert {file.stem for file in files} == names
    assert sum(file.stat().st_size for file in files) < 2_000_000


def test_the_judge_says_what_it_said():
    """To rounding: a formula that changes changes its vectors, in sight of whoever reads the change."""
    for name, step in vectors():
        kept = read_step(FOLDER / f"{name}.safetensors")
        assert step.arrays.keys() == kept.arrays.keys(), name
        for key, array in step.arrays.items():
            np.testing.assert_allclose(
                array, kept.arrays[key], rtol=1e-9, atol=1e-12, err_msg=f"{name} {key}"
            )
        assert step.updates[0]["loss"] == pytest.approx(
            kept.updates[0]["loss"], rel=1e-9, abs=1e-12
        )


@pytest.mark.parametrize("name", ["grpo-rows", "ppo-plain", "gspo-far", "dro-rows"])
def test_a_vector_verifies(name):
    assert {one.status for one in verify(read_step(FOLDER / f"{name}.safetensors"))} == {"equal"}


@pytest.mark.parametrize("case", ["rows", "far"])
def test_the_trainers_functions_say_what_the_judge_says(case: str):
    """Advantages, losses and slopes in PyTorch are those that the judge computes row by row without it."""
    for name in ("grpo", "rloo", "reinforce_pp", "ppo", "gspo", "cispo", "gmpo", "sapo"):
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
    ended = subprocess.run(
        [sys.executable, "-c", loss + code + "import sys\nassert 'rlvr' not in sys.modules"],
        cwd=FOLDER.parents[1],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr


def test_the_command_writes_them(tmp_path, capsys):
    assert main(["step", "vectors", str(tmp_path / "folder")]) == 0
    assert f"{len(CASES) * len(PAPERS)} test vectors" in capsys.readouterr().out
    assert len(list((tmp_path / "folder").iterdir())) == len(CASES) * len(PAPERS)
