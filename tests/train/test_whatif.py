"""Recorded steps with other verdicts or by another algorithm."""

import json
from pathlib import Path

import numpy as np
import pytest

from rlvr.algo.judge.whatif import what_if
from rlvr.algo.papers import load_algorithm
from rlvr.cli.entry import main
from rlvr.data.step_files import StepFile, read_step
from rlvr.errors import DataError
from tests.train.bandit import policy, run_to_end

ENVS = '''
import rlvr


class High(rlvr.Environment):
    """Right are the digits that `Bandit` has wrong."""

    def task(self, index):
        return rlvr.Task(str(index), "")

    def verify(self, task, completion):
        right = completion[:1] not in tuple("01234")
        return rlvr.Verdict("correct" if right else "wrong", why="by its first character")


class Same(High):
    def verify(self, task, completion):
        right = completion[:1] in tuple("01234")
        return rlvr.Verdict("correct" if right else "wrong", why="by its first character")


class Odd(High):
    def verify(self, task, completion):
        right = completion[:1] in tuple("13579")
        return rlvr.Verdict("correct" if right else "wrong", why="by its first character")
'''


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Two steps of GRPO without KL, with sketches of rows; the model that it began with; environments."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "envs.py").write_text(ENVS, encoding="utf-8")
    first = policy()
    first.save(folder / "first")
    algorithm = load_algorithm("grpo", kl="none")
    settings = {"prompts": 16, "group_size": 4, "steps": 2, "step_files": 1}
    run_to_end(folder / "run", made=first, algorithm=algorithm, step_sketches=True, **settings)
    return folder / "run"


@pytest.fixture
def step(run) -> StepFile:
    return read_step(run / "steps" / "step-00000001.safetensors")


def said(capsys, *argv) -> list[dict]:
    assert main(["whatif", *map(str, argv), "--workers", "0", "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_same_verdicts_turn_nothing(run, capsys):
    """What is recomputed is what was recorded: the cosine is 1."""
    for one in said(capsys, run, "--env", f"{run.parent / 'envs.py'}:Same"):
        assert one["flipped"] == one["changed"] == 0
        assert one["cosine"] == pytest.approx(1, abs=1e-6)
        assert one["norm"] == pytest.approx(1, abs=1e-5)


def test_inverted_verdicts_turn_the_step_around(run, capsys):
    """Every advantage is the negative of what it was."""
    for one in said(capsys, run, "--env", f"{run.parent / 'envs.py'}:High"):
        assert one["flipped"] == one["rows"] == 64
        assert one["cosine"] == pytest.approx(-1, abs=1e-5)


def test_sketches_of_rows_estimate_the_cosine_of_gradients(run, step, capsys):
    """To a few hundredths, as 4,096 numbers allow; the model gives it exactly."""
    file = run / "steps" / "step-00000001.safetensors"
    odd = ["--env", f"{run.parent / 'envs.py'}:Odd"]
    [sketched] = said(capsys, file, *odd)
    [exact] = said(capsys, file, *odd, "--model", run.parent / "first")
    assert (sketched["by"], exact["by"]) == ("row sketches", "gradients")
    assert -0.9 < exact["cosine"] < 0.9
    assert sketched["cosine"] == pytest.approx(exact["cosine"], abs=4 / 4096**0.5)
    assert sketched["norm"] == pytest.approx(exact["norm"], rel=0.1)
    assert 0 < sketched["flipped"] < 64
    assert sum(share for _, share in sketched["turning"]) <= 1


def test_another_algorithm_takes_another_step(run, step, capsys):
    """Dr. GRPO's advantages are not divided by the std; ppo needs values, which the file does not have."""
    without = {k: v for k, v in step.arrays.items() if k != "row_sketches"}
    [first, _] = said(capsys, run, "--algorithm", "dr_grpo")
    assert first["flipped"] == 0
    assert 0.5 < first["cosine"] < 1 - 1e-6
    assert main(["whatif", str(run), "--algorithm", "ppo"]) == 2
    assert "no values, from which ppo" in capsys.readouterr().err
    found = what_if(StepFile(step.head, without))
    assert found.by == "token weights"
    assert found.cosine == pytest.approx(1, abs=1e-6)


def test_an_unscored_row_leaves_its_group(step):
    """Its own weight is gone, and its group has another mean; other groups stay."""
    scores = step.arrays["score"].tolist()
    group = next(g for g in range(16) if 0 < sum(scores[4 * g : 4 * g + 4]) < 4)  # not all alike
    scores[4 * group] = None
    found = what_if(step, scores)
    assert found.flipped == 1
    assert {row // 4 for row, _ in found.turning} == {group}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--env", "x", "--verifier", "math"], "--env and --verifier"),
        ([], "--env and --verifier"),
        (["--algorithm", "grpo", "--reward", "correct"], "--reward needs"),
        (["--algorithm", "grpo", "--model", "m"], "there are 2"),
    ],
)
def test_what_does_not_go_together_is_refused(run, capsys, argv, message):
    assert main(["whatif", str(run), *argv]) == 2
    assert message in capsys.readouterr().err


def test_a_run_without_files_or_texts_is_one_line(run, tmp_path, step, capsys):
    assert main(["whatif", str(tmp_path), "--algorithm", "grpo"]) == 2
    assert "--step-files 10" in capsys.readouterr().err
    with pytest.raises(DataError, match="3 scores for 64 rows"):
        what_if(step, [1.0, 0.0, None])


def test_sketches_change_nothing(run, tmp_path):
    """The second step is that of a run without them."""
    settings = {"prompts": 16, "group_size": 4, "steps": 2, "step_files": 1}
    run_to_end(tmp_path, algorithm=load_algorithm("grpo", kl="none"), **settings)
    name = "step-00000002.safetensors"
    ours, plain = (read_step(one / "steps" / name) for one in (run, tmp_path))
    np.testing.assert_array_equal(ours.arrays["update0.weights"], plain.arrays["update0.weights"])
    assert "row_sketches" not in plain.arrays
