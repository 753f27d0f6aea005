"""The doctor: what works, what is missing, and how to get it."""

import pytest

from rlvr.cli import doctor
from rlvr.errors import UsageError


@pytest.fixture
def findings(monkeypatch):
    """The examination of this machine, without the environments that happen to be installed."""
    monkeypatch.setattr(doctor, "environment_ids", list)

    def examine() -> dict[str, doctor.Finding]:
        return {finding.what: finding for finding in doctor.examine()}

    return examine


def test_the_doctor_finds_this_machine_fit(say, findings):
    """The tests run on it. What is optional may be absent; nothing is missing."""
    found = findings()
    assert [what for what, finding in found.items() if finding.ok is False] == []
    assert found["cloudpickle"].detail
    assert found["workers start"].ok
    assert found["a hang is killed"].ok
    assert found["memory is limited"] == doctor.Finding(
        "memory is limited", True, "1 GiB refused under a limit of 512 MiB"
    )
    code, said = say("doctor")
    assert code == 0
    assert "MISSING" not in said


def test_the_doctor_says_how_to_get_what_is_missing(say, findings, monkeypatch):
    """A part of the core is an illness, an extra is not."""
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("sympy", "torch") else "1.0")
    found = findings()
    assert found["sympy"] == doctor.Finding("sympy", False, "missing", "pip install rlvr")
    assert found["torch (train)"] == doctor.Finding("torch (train)", None, "not installed", "pip install 'rlvr[train]'")
    assert found["numpy"].ok
    code, said = say("doctor")
    assert code == 1
    assert "MISSING" in said
    assert "pip install 'rlvr[train]'" in said


def test_the_doctor_finds_workers_that_do_not_start(findings, monkeypatch):
    """With the error; there is nothing to be tried in them then."""

    def trial():
        raise UsageError("no module named 'rlvr'")

    monkeypatch.setattr(doctor, "_trial", trial)
    found = findings()
    assert found["workers start"].ok is False
    assert "no module named 'rlvr'" in found["workers start"].detail
    assert "a hang is killed" not in found


def test_the_doctor_finds_limits_that_do_not_hold(findings, monkeypatch):
    """Where memory is not limited an item may fill it, and where a worker dies on its own nothing was shown."""

    def trial():
        return lambda what: 0

    monkeypatch.setattr(doctor, "_trial", trial)
    found = findings()
    assert found["a hang is killed"].ok is False
    assert found["memory is limited"].ok is None
    assert "use Linux" in found["memory is limited"].remedy


def test_the_doctor_finds_plugins_that_do_not_load(findings, monkeypatch):
    """By name, with what they raise, and goes on."""

    def load(name):
        if name == "broken-v1":
            raise RuntimeError("no such module")

    monkeypatch.setattr(doctor, "environment_ids", lambda: ["broken-v1", "fine-v1"])
    monkeypatch.setattr(doctor, "load", load)
    found = findings()
    assert found["environment broken-v1"].detail == "RuntimeError: no such module"
    assert found["environment broken-v1"].ok is False
    assert found["environment fine-v1"].ok
