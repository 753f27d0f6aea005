"""The referee: a driver's answers are judged, with what its trainer declares; a driver that fails is named."""

import ast
import dataclasses
import pkgutil
import shutil
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from rlvr.algo.aggregation import denominators
from rlvr.algo.judge.verify import verify
from rlvr.cli.referee import _lines
from rlvr.data.step_files import write_step
from rlvr.errors import UsageError
from rlvr.interop import referee as module
from rlvr.interop.referee import PEERS, cases, referee, referee_report
from rlvr.viewer import report_page
from tests.processes import in_turn

pytest.importorskip("safetensors")

DRIVER = """
from step_io import Step, main, stand_in_for
stand_in_for(("no_such_package",))
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


def judged(drivers: Path, declared: str, trainer: str = "peer 1"):
    driver = DRIVER.replace("DECLARED", declared).replace("peer 1", trainer)
    (drivers / "verl_driver.py").write_text(driver)
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
    declares = '{"masked_rows": "vote", "unscored": "zero"}'
    for trainer, status in (("peer 0.9.1", "declared"), ("peer 1", "undeclared")):  # read in 0.9.1
        answers = judged(drivers, declares, trainer)
        assert {answers[name].status for name in ("rejected", "unscored")} == {status}
    first = _lines("verl", list(answers.values()))[0]
    assert first == "peer 1; undeclared: conventions of verl were read in 0.9.1"


def test_drivers_import_what_their_helpers_have():
    """They run where rlvr is not, so no type checker reads what they import of each other."""
    trees = {path.stem: ast.parse(path.read_text()) for path in module._DRIVERS.glob("*.py")}
    imported = {
        (node.module, alias.name)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in trees
        for alias in node.names
    }
    exported = {
        (name, constant.value)
        for name, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for constant in ast.walk(node.value)
        if isinstance(constant, ast.Constant)
    }
    assert {name for _, name in imported} >= {"Step", "main", "trainer_name"}
    assert imported <= exported


def test_a_driver_that_does_not_run_is_named(drivers):
    """With its last line; and a name that has none."""
    (drivers / "trl_driver.py").write_text("raise SystemExit('no torch here')")
    with pytest.raises(UsageError, match="no torch here"):
        referee("trl", Path(sys.executable))
    with pytest.raises(UsageError, match="does not run"):
        referee("trl", drivers / "no-python")
    with pytest.raises(UsageError, match="verl"):
        referee("verll", Path(sys.executable))
    with pytest.raises(UsageError, match="which is no folder"):
        referee("trl", Path(sys.executable), drivers / "nowhere")
    with pytest.raises(UsageError, match="has no folder swift"):  # not the one that is installed
        referee("ms_swift", Path(sys.executable), drivers)


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
from step_io import Step, main, stand_in_for
stand_in_for(())
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
    page = report_page(referee_report("trl", answers)).decode()
    assert "temperature: what departs" in page
    assert "trl #6024" in page
    assert "<b>2</b>" not in page


@pytest.fixture(scope="module")
def learner():
    """rlvr's own driver, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(module._DRIVERS))
        patch.setattr(sys, "argv", ["driver", "", "", ""])
        patch.setattr(sys, "meta_path", list(sys.meta_path))
        yield import_module("rlvr_driver")


def ruling(learner, case: str, folder: Path):
    """What rlvr's learner makes of a case."""
    asked = cases()[case]
    write_step(folder / "case" / f"{case}.safetensors", asked)
    step = import_module("step_io").Step(folder / "case" / f"{case}.safetensors")
    answer = learner.run(step)
    step.write(folder / f"{case}.safetensors", *answer)
    return module._judge_answer(case, asked, folder, "no answer")


OURS = [
    name
    for name, step in cases().items()
    if step.head["case"]["ranks"] == 1 and module._is_asked("rlvr", step.head["case"])
]


@pytest.mark.parametrize("case", OURS)
def test_rlvr_departs_from_no_case(learner, case, tmp_path):
    """A false alarm would be one here; tests/ranks has the cases of several ranks."""
    found = ruling(learner, case, tmp_path)
    assert (found.status, found.why) == ("equal", "")


def of_its_micro_batch(plain):
    def share(losses, completion_mask, whole, **more):
        own = denominators(completion_mask)
        return plain(losses, completion_mask=completion_mask, whole=own, **more)

    return share


def with_empty_rows(plain):
    return lambda mask, group: plain(mask | ~mask.any(dim=1, keepdim=True), group)


def with_all_rows(plain):
    return lambda groups: (plain(groups)[0], torch.ones_like(plain(groups)[1]))


def with_masked_votes(plain):
    def init(self, groups, batch, algorithm, *more):
        plain(self, groups, batch, dataclasses.replace(algorithm, masked_vote=True), *more)

    return init


def with_a_mask_of_all_tokens(plain):
    def collate(groups):
        batch = plain(groups)
        lengths = torch.tensor([[len(row.completion_ids)] for row in batch.rows])
        mask = torch.arange(batch.completion_mask.shape[1]) < lengths
        return dataclasses.replace(batch, completion_mask=mask)

    return collate


def with_single_scores(plain):
    def advantages(scores, scored=None, **more):
        alone = scored.sum(dim=1, keepdim=True) == 1
        return torch.where(alone, scores, plain(scores, scored, **more))

    return advantages


def by_the_sample(plain):
    return lambda scores, *args, **more: plain(scores, *args, **more) * (3 / 4) ** 0.5


FAULTS = {
    "divides by its micro-batch": (
        *("micro-batches", "rlvr.train.learner.aggregate", of_its_micro_batch),
        *("update 0: weights", ""),
    ),
    "counts masked rows": (
        *("truncated", "rlvr.train.learner.denominators", with_empty_rows),
        *("update 0: weights", "rows without a trained token are in the denominators"),
    ),
    "masked rows vote": (
        *("rejected", "rlvr.train.credit.GroupInputs.__init__", with_masked_votes),
        *("advantages", "rows without a trained token vote"),
    ),
    "UNSCORED is 0": (
        *("unscored", "rlvr.train.credit.totals", with_all_rows),
        *("advantages", "UNSCORED rows count as a score of 0"),
    ),
    "trains on a tool's tokens": (
        *("tool tokens", "rlvr.train.advantage_batches.collate", with_a_mask_of_all_tokens),
        *("used", ""),
    ),
    "a group of one has its score": (
        *("single, std", "rlvr.algo.advantages.group_advantages", with_single_scores),
        *("advantages", "a group of one has its score"),
    ),
    "the sample's std": (
        *("plain", "rlvr.algo.advantages.group_advantages", by_the_sample),
        *("advantages", "std divides by one less"),
    ),
    "another estimator": (
        *("kl", "rlvr.train.parts.kl_loss", lambda plain: partial_of(plain, estimator="k2")),
        *("update 0: weights", "the KL is estimated by k2"),
    ),
    "has no dual clip": (
        "far, dual clip",
        "rlvr.algo.objectives.clipped",
        lambda plain: partial_of(plain, dual=None),
        *("update 0: loss", ""),
    ),
    "corrects nothing": (
        *("corrections", "rlvr.train.parts.Corrections.weigh", lambda plain: lambda s, x, m: x),
        *("update 0: weights", "corrections have no effect"),
    ),
    "divides no logits": (
        "temperature",
        "rlvr.train.policy.Policy.logprobs",
        lambda plain: lambda s, rows, heat=1.0, **more: plain(s, rows, **more),
        *("update 0: logprobs", "log-probabilities are at temperature 1"),
    ),
}
"""Faults that other trainers had (ms-swift #10117, trl #6369, NeMo-RL #4160, verl #7793 and others), put into ours:
case, function, how it is changed, quantity that departs first, and what explains it."""


def partial_of(plain, **fixed):
    return lambda *args, **more: plain(*args, **more | fixed)


@pytest.mark.parametrize("fault", in_turn(FAULTS, 3))
def test_a_fault_that_trainers_had_is_named_in_ours(learner, fault, tmp_path, monkeypatch):
    """With the convention that would explain it, where there is one."""
    case, place, change, quantity, says = FAULTS[fault]
    monkeypatch.setattr(place, change(pkgutil.resolve_name(place)))
    found = ruling(learner, case, tmp_path)
    assert found.departs, found.why
    assert found.departs[0].quantity == quantity
    assert [one for one in found.departs[0].explained if says in one] or not says
