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
    (drivers / "verl_driver.py").write_text(DRIVER.replace("DECLARED", declared))
    return {one.case: one for one in referee("verl", Path(sys.executable))}


def test_what_departs_is_explained_and_what_is_declared_is_not_held_against_a_trainer(drivers):
    """A trainer whose masked and UNSCORED rows are in the group's mean."""
    answers = judged(drivers, "{}")
    assert answers["plain"].status == "not compared"
    assert "dr_grpo alone" in answers["plain"].why
    [rejected], [unscored] = answers["rejected"].departs, answers["unscored"].departs
    assert rejected.explained == ("rows without a trained token vote in their group's baseline",)
    assert unscored.explained == ("UNSCORED rows count as a score of 0",)
    assert answers["rejected"].trainer == "peer 1"
    assert "a whole trainer" in answers["ranks"].why
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
    if step.case["ranks"] > 1:
        raise RuntimeError("alone")
    lengths = np.diff(step.arrays["offsets"])
    if step.case.get("retokenised"):
        step.arrays["token_ids"] = np.minimum(step.arrays["token_ids"], 38)
    if step.case.get("pad_is_end"):
        ends = step.arrays["offsets"][1:][~step.arrays["truncated"]]
        step.arrays["mask"][ends - 1] = False
    logprobs = np.split(step.arrays["behaviour_logprobs"], np.cumsum(lengths)[:-1])
    step.add_update(list(range(8)), logprobs, [0 * one for one in logprobs])
    exact = np.concatenate(logprobs).astype(np.float64)
    cold = exact.copy()
    cold[5] += step.case.get("temperature", 1.0) - 1.0
    step.arrays |= {"update0.alone": cold, "update0.alone_float32": cold + 1e-7}
    step.arrays["update0.alone_at_one"] = exact
    return "peer <b>2</b>", {}

main(run)
"""


def test_a_whole_trainers_rows_and_log_probabilities_are_the_cases(drivers):
    """Tokens, mask, and log-probabilities of its model on one row at the case's temperature; what is off is named, in
    the report's page too.  Ranks that fail are said, and cost the other cases nothing."""
    (drivers / "trl_driver.py").write_text(WHOLE)
    answers = referee("trl", Path(sys.executable))
    found = {
        one.case: next((q for q in one.quantities if q.status == "departs"), None)
        for one in answers
    }
    off = found.pop("temperature")
    assert (off.quantity, off.row, off.token) == ("update 0: logprobs", 1, 2)
    assert off.recorded - off.recomputed == pytest.approx(0.4)
    assert off.explained == ("log-probabilities are at temperature 1",)
    off = found.pop("retokenised")
    assert (off.quantity, off.row, off.token, off.recorded) == ("token_ids", 0, 0, 38.0)
    off = found.pop("pad is end")
    assert (off.quantity, off.row, off.token) == ("mask", 0, 2)
    assert off.explained == ("the end token of a completion is not trained on",)
    assert set(found.values()) == {None}
    [why] = {one.why for one in answers if one.case.startswith("ranks")}
    assert why.endswith("RuntimeError: alone")
    page = report_page(report("trl", answers)).decode()
    assert "temperature: what departs" in page
    assert "trl #6024" in page
    assert "<b>2</b>" not in page
