"""The referee: a driver's answers are judged, with what its trainer declares; a driver that fails is named."""

import shutil
import sys
from pathlib import Path

import pytest

from rlvr.algo.judge.verify import verify
from rlvr.errors import UsageError
from rlvr.interop import referee as module
from rlvr.interop.referee import PEERS, cases, referee, report
from rlvr.viewer import report_page

pytest.importorskip("safetensors")

DRIVER = """
from step_io import Step, main, stand_in
stand_in(("no_such_package",))
import numpy as np
from no_such_package.deep import anything

@anything(1)
def decorated():
    return "called"

def run(step):
    assert decorated() == "called"
    if step.numbers["name"] != "dr_grpo":
        raise NotImplementedError("dr_grpo alone")
    score, group = step.arrays["score"], step.arrays["group"]
    mean = np.array([score[group == one].mean() for one in group])
    ends = step.arrays["offsets"]
    step.arrays["advantages"] = np.repeat(score - mean, np.diff(ends)).astype(np.float32)
    return "peer 1", DECLARED

main(run)
"""


@pytest.fixture
def drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(module._DRIVERS / "step_io.py", tmp_path)
    monkeypatch.setattr(module, "_DRIVERS", tmp_path)
    return tmp_path


def judged(drivers: Path, declared: str):
    (drivers / "trl_driver.py").write_text(DRIVER.replace("DECLARED", declared))
    return {one.case: one for one in referee("trl", Path(sys.executable))}


def test_what_departs_is_explained_and_what_is_declared_is_not_held_against_a_trainer(drivers):
    """A trainer whose masked and UNSCORED rows are in the group's mean."""
    answers = judged(drivers, "{}")
    assert answers["plain"].status == "not compared"
    assert "dr_grpo alone" in answers["plain"].why
    [rejected], [unscored] = answers["rejected"].departs, answers["unscored"].departs
    assert rejected.explained == ("rows without a trained token vote in their group's baseline",)
    assert unscored.explained == ("UNSCORED rows count as a score of 0",)
    assert answers["rejected"].trainer == "peer 1"
    answers = judged(drivers, '{"masked_rows": "vote", "unscored": "zero"}')
    assert {answers[name].status for name in ("rejected", "unscored")} == {"declared"}


def test_a_driver_that_does_not_run_is_named(drivers):
    """With its last line; and a name that has none."""
    (drivers / "trl_driver.py").write_text("raise SystemExit('no torch here')")
    with pytest.raises(UsageError, match="no torch here"):
        referee("trl", Path(sys.executable))
    with pytest.raises(UsageError, match="does not run"):
        referee("trl", drivers / "no-python")
    with pytest.raises(UsageError, match="verl"):
        referee("verll", Path(sys.executable))


def test_an_unknown_convention_is_not_compared(drivers):
    """One that a later driver declares."""
    assert "no convention" in judged(drivers, '{"moon": "full"}')["rejected"].why


def test_every_peer_has_a_driver_and_every_case_is_sound():
    """A case without answers has nothing to compare."""
    for name in PEERS:
        assert (module._DRIVERS / f"{name}_driver.py").is_file()
    for step in cases().values():
        assert {one.status for one in verify(step)} == {"not compared"}


WHOLE = """
from step_io import Step, main, stand_in
stand_in(())
import numpy as np

def run(step):
    lengths = np.diff(step.arrays["offsets"])
    logprobs = np.split(step.arrays["behaviour_logprobs"], np.cumsum(lengths)[:-1])
    step.add_update(list(range(8)), logprobs, [0 * one for one in logprobs])
    exact = np.concatenate(logprobs).astype(np.float64)
    exact[5] += step.case.get("temperature", 1.0) - 1.0
    step.arrays |= {"update0.alone": exact, "update0.alone_float32": exact + 1e-7}
    return "peer <b>2</b>", {}

main(run)
"""


def test_log_probabilities_of_a_whole_trainer_are_those_of_its_model_on_one_row(drivers):
    """At the temperature of the case; the one that is off is named, in the report's page too."""
    (drivers / "trl_driver.py").write_text(WHOLE)
    answers = referee("trl", Path(sys.executable))
    found = {one.case: one.quantities[0] for one in answers}
    assert {name for name, one in found.items() if one.status == "departs"} == {"temperature"}
    off = found["temperature"]
    assert (off.quantity, off.row, off.token) == ("update 0: logprobs", 1, 2)
    assert off.recorded - off.recomputed == pytest.approx(0.4)
    page = report_page(report("trl", answers)).decode()
    assert "temperature: what departs" in page
    assert "trl #6024" in page
    assert "<b>2</b>" not in page
