"""The doctor: what works, what is missing, and how to get it."""

import dataclasses
import json

import pytest

from rlvr.cli import doctor
from rlvr.errors import UsageError
from tests.commands import refusal_of


@pytest.fixture
def findings(monkeypatch):
    """The examination of this machine, without the environments that happen to be installed.

    The command that follows shows the same examination: one takes two CPU seconds.
    """
    monkeypatch.setattr(doctor, "environment_ids", list)

    def examine() -> dict[str, doctor.PartStatus]:
        found = list(doctor.examine())
        monkeypatch.setattr(doctor, "examine", lambda full=False: found)
        return {finding.part: finding for finding in found}

    return examine


def test_the_doctor_finds_this_machine_fit(say, findings):
    """The tests run on it. What is optional may be absent; nothing is missing."""
    found = findings()
    assert [what for what, finding in found.items() if finding.ok is False] == []
    assert found["cloudpickle"].found
    assert found["start"].ok
    assert found["a hang is killed"].ok
    assert found["memory is limited"] == doctor.PartStatus(
        "workers", "memory is limited", True, "1 GiB refused under a limit of 512 MiB"
    )
    code, said = say("doctor")
    assert code == 0
    assert "MISSING" not in said
    assert len(said.splitlines()) <= 10


def test_the_doctor_prints_details_and_json_on_request(say, monkeypatch):
    """`-v` has a line for each part; `--json` has the same as data."""
    found = [
        doctor.PartStatus("packages", "numpy", True, "1.0"),
        doctor.PartStatus("workers", "start", False, "[/no] workers\nat all", "mend them"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda full=False: found)
    code, said = say("doctor", "-v")
    assert code == 1
    for words in ("numpy", "workers: start", "[/no] workers", "mend them"):
        assert words in said
    code, said = say("doctor", "--json")
    assert code == 1
    assert json.loads(said) == {
        "healthy": False,
        "findings": [dataclasses.asdict(finding) for finding in found],
    }


def test_the_doctor_fits_a_screen_where_much_is_wrong(say, monkeypatch):
    """Ten lines: a line for each of seven groups, two problems, and how to see the rest."""
    groups = ("system", "packages", "extras", "workers", "sandbox", "languages", "environments")
    found = [
        doctor.PartStatus(group, f"part-{i}", False, "a long error " * 50, "mend it")
        for group in groups
        for i in (1, 2)
    ]
    monkeypatch.setattr(doctor, "examine", lambda full=False: found)
    monkeypatch.setenv("COLUMNS", "80")
    code, said = say("doctor")
    assert code == 1
    assert len(said.splitlines()) == 10
    assert "12 more problems" in said


@pytest.fixture
def _no_sandbox(monkeypatch):
    """For findings about other parts: its attacks take seconds."""
    monkeypatch.setattr(doctor, "_examine_sandbox", lambda full: iter(()))


@pytest.mark.usefixtures("_no_sandbox")
def test_the_doctor_says_how_to_get_what_is_missing(say, findings, monkeypatch):
    """A part of the core is an illness, an extra is not."""
    monkeypatch.setattr(doctor, "_examine_workers", lambda: iter(()))
    monkeypatch.setattr(
        doctor, "_version", lambda name: None if name in ("sympy", "torch") else "1.0"
    )
    found = findings()
    remedy = "pip install -c constraints.txt '.[train]' in a checkout of rlvr, or pip install 'PATH/TO/WHEEL[train]'"
    assert found["sympy"] == doctor.PartStatus(
        "packages", "sympy", False, "missing", "install rlvr again, which brings it"
    )
    assert found["train"].ok is None
    assert found["train"].found.startswith("torch missing, transformers 1.0, ")
    assert found["train"].remedy == remedy
    assert found["numpy"].ok
    assert not {"dev", "ruff"} & set(found)
    code, said = say("doctor")
    assert code == 1
    assert "MISSING" in said
    assert "packages, sympy: missing; install rlvr again" in said
    assert "without train" in said


@pytest.mark.usefixtures("_no_sandbox")
def test_the_doctor_finds_workers_that_do_not_start(findings, monkeypatch):
    """With the error; there is nothing to be tried in them then."""

    def trial():
        raise UsageError("no module named 'rlvr'")

    monkeypatch.setattr(doctor, "_trial", trial)
    found = findings()
    assert found["start"].ok is False
    assert "no module named 'rlvr'" in found["start"].found
    assert "a hang is killed" not in found


@pytest.mark.usefixtures("_no_sandbox")
def test_the_doctor_finds_limits_that_do_not_hold(findings, monkeypatch):
    """Where memory is not limited an item may fill it, and where a worker dies on its own nothing was shown."""

    def trial():
        return lambda what: 0

    monkeypatch.setattr(doctor, "_trial", trial)
    found = findings()
    assert found["a hang is killed"].ok is False
    assert found["memory is limited"].ok is None
    assert "use Linux" in found["memory is limited"].remedy


@pytest.mark.usefixtures("_no_sandbox")
def test_the_doctor_finds_plugins_that_do_not_load(findings, monkeypatch):
    """By name, with what they raise, and goes on."""

    def load(name):
        if name == "broken-v1":
            raise RuntimeError("no such module")

    monkeypatch.setattr(doctor, "environment_ids", lambda: ["broken-v1", "fine-v1"])
    monkeypatch.setattr(doctor, "load", load)
    found = findings()
    assert found["broken-v1"].found == "RuntimeError: no such module"
    assert found["broken-v1"].ok is False
    assert found["fine-v1"].ok


@pytest.mark.usefixtures("_no_sandbox")
def test_a_report_names_no_user_host_or_folder(say, findings, monkeypatch, tmp_path):
    """It is pasted in public.  What an error or a plugin says may hold any name, so it is left out."""
    secrets = ["zaphod", "heartofgold", "magrathea"]
    home = tmp_path / "magrathea"
    home.mkdir()
    monkeypatch.chdir(home)
    for name, value in {"HOME": home, "USER": "zaphod", "LOGNAME": "zaphod", "PWD": home}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr("socket.gethostname", lambda: "heartofgold")
    monkeypatch.setattr("platform.node", lambda: "heartofgold")
    monkeypatch.setattr("platform.release", lambda: "6.1.0-heartofgold")
    error = f"cannot open {home}/x as zaphod on heartofgold"
    findings()
    found = [
        *doctor.examine(),
        doctor.PartStatus("environments", "zaphod-v1", False, error, error),
        doctor.PartStatus("sandbox", "no network", False, error, error),
        doctor.PartStatus("system", "python", True, f"3.11 on Linux 6.1.0-{secrets[1]}"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda full=False: found)
    code, said = say("doctor", "--report")
    assert code == 1  # the two that we planted do not work
    assert [word for word in (*secrets, str(tmp_path)) if word in said] == []
    for part in (
        "python: 3.",
        "cpu: ",
        "memory: ",
        "rlvr: ",
        "extra train: ",
        "limit, open files: ",
    ):
        assert f"\n{part}" in f"\n{said}"
    assert "sandbox, MISSING: no network" in said
    assert "1 do not" in said


def test_a_report_is_a_form_of_its_own(say):
    """Two forms at once are refused before anything is examined."""
    assert "leave out --json" in refusal_of(*say("doctor", "--report", "--json"))
