"""The code on which an environment's scores depend, by module: digests of files, versions of packages."""

import functools
import json
import sys

import pytest

import rlvr
from rlvr.scoring.code_files import code_of

HERE = __name__
OWN = {HERE, "pytest"}  # this file, and what it imports


def closed_over(suffix):
    return lambda completion, reference: completion == reference + suffix


class Odd:
    """As options may be."""

    def __getattr__(self, name):
        raise RuntimeError(name)


class Mine(rlvr.Environment):
    option: object = None

    def task(self, index):
        return rlvr.Task(str(index), "?", reference="x")

    def verify(self, task, completion):
        return rlvr.Verdict("wrong", why="same")


def own(env):
    """Without rlvr's own, and what these use."""
    ours = code_of(rlvr.make("arithmetic-v1"))
    return {
        name.removeprefix("package "): value
        for name, value in code_of(env).items()
        if name not in ours and not name.startswith("rlvr.")
    }


def test_what_rlvr_bundles_is_looked_at_too():
    """Two copies of one version may differ, also in what a function imports; what shows and carries is left out."""
    found = code_of(rlvr.make("arithmetic-v1"))
    assert {
        "python",
        "package sympy",
        "rlvr.envs.arithmetic",
        "rlvr.verifiers.math.realsets",
    } <= set(found)
    assert not [
        name
        for name in found
        if name.startswith(("rlvr.viewer", "rlvr.cli", "rlvr.workers", "rlvr.http"))
    ]
    assert "sqlite" not in found
    assert "sqlite" in code_of(rlvr.make("sql-v4"))


def test_a_class_of_ones_own_is_named_with_its_file():
    """By its module, not by a path: a record may be read on another machine."""
    found = own(Mine())
    assert set(found) == OWN
    assert found["pytest"] == pytest.__version__
    assert len(found[HERE]) == 16


@pytest.mark.parametrize(
    "wrap", [lambda f: f, functools.partial, lambda f: [f], lambda f: {"a": (f,)}]
)
def test_functions_in_options_count(wrap, tmp_path, monkeypatch):
    """Also behind a partial, in a list, and in a closure."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "graders_of_mine.py").write_text("def grade(a, b):\n    return a == b\n")
    import graders_of_mine

    try:
        assert set(own(Mine(option=wrap(graders_of_mine.grade)))) == OWN | {"graders_of_mine"}
        before = own(Mine(option=closed_over(graders_of_mine.grade)))
        (tmp_path / "graders_of_mine.py").write_text("def grade(a, b):\n    return a != b\n")
        after = own(Mine(option=closed_over(graders_of_mine.grade)))
    finally:
        del sys.modules["graders_of_mine"]
    assert before["graders_of_mine"] != after["graders_of_mine"]


def test_packages_are_named_with_their_version():
    """Their files are not ours to digest."""
    assert own(Mine(option=json.loads)) == own(Mine())
    assert own(Mine(option=pytest.approx))["_pytest"] == pytest.__version__


def test_imports_in_functions_count(tmp_path, monkeypatch):
    """They run when a completion is scored; the module need not be loaded yet."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "late_of_mine.py").write_text("from . import nothing\n")
    (tmp_path / "lazy_of_mine.py").write_text(
        "def grade(a, b):\n    import late_of_mine, no_such_module\n"
    )
    import lazy_of_mine

    try:
        before = own(Mine(option=lazy_of_mine.grade))
        assert set(before) == OWN | {"lazy_of_mine", "late_of_mine"}
        (tmp_path / "late_of_mine.py").write_text("x = 1\n")
        assert before["late_of_mine"] != own(Mine(option=lazy_of_mine.grade))["late_of_mine"]
        assert "late_of_mine" not in sys.modules
    finally:
        del sys.modules["lazy_of_mine"]


def test_an_option_that_cannot_be_looked_at_and_a_million_rows_stop_nothing():
    """Provenance is no reason to fail, nor to wait."""
    assert set(own(Mine(option=[Odd()]))) == OWN
    assert set(own(Mine(option=[{"question": n} for n in range(1_000_000)]))) == OWN
