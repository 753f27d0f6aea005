"""What an environment's scores depend on, by module: digests of one's own files, versions of packages."""

import functools
import json
import sys

import pytest

import rlvr
from rlvr.environment.source import changed_source, source_of

HERE = __name__
OWN = {HERE, "pytest"}  # this file, and what it imports


def closed_over(suffix):
    return lambda completion, reference: completion == reference + suffix


class Odd:
    """As options may be."""

    def __getattr__(self, name):
        raise RuntimeError(name)


class Mine(rlvr.SingleTurnEnv):
    option: object = None

    def task(self, index):
        return rlvr.Task(str(index), "?", reference="x")

    def verify(self, task, completion):
        return rlvr.Verdict("wrong", why="same")


def test_what_rlvr_bundles_has_none():
    """Its ids have versions."""
    assert source_of(rlvr.make("arithmetic-v1")) == {}


def test_a_class_of_ones_own_is_named_with_its_file():
    """By its module, not by a path: a record may be read on another machine."""
    found = source_of(Mine())
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
        assert set(source_of(Mine(option=wrap(graders_of_mine.grade)))) == OWN | {"graders_of_mine"}
        before = source_of(Mine(option=closed_over(graders_of_mine.grade)))
        (tmp_path / "graders_of_mine.py").write_text("def grade(a, b):\n    return a != b\n")
        after = source_of(Mine(option=closed_over(graders_of_mine.grade)))
    finally:
        del sys.modules["graders_of_mine"]
    assert changed_source(before, after) == "graders_of_mine was edited"


def test_packages_are_named_with_their_version():
    """Their files are not ours to digest."""
    assert source_of(Mine(option=json.loads)) == source_of(Mine())
    found = source_of(Mine(option=pytest.approx))
    assert found["_pytest"] == pytest.__version__
    newer = found | {"_pytest": "99.0"}
    assert changed_source(found, newer) == f"_pytest {pytest.__version__} is now 99.0"
    assert changed_source(found, {}) == f"_pytest is gone, pytest is gone, {HERE} is gone"
    assert changed_source(None, found) == ""


def test_imports_in_functions_count(tmp_path, monkeypatch):
    """They run when a completion is scored; the module need not be loaded yet."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "late_of_mine.py").write_text("from . import nothing\n")
    (tmp_path / "lazy_of_mine.py").write_text(
        "def grade(a, b):\n    import late_of_mine, no_such_module\n"
    )
    import lazy_of_mine

    try:
        before = source_of(Mine(option=lazy_of_mine.grade))
        assert set(before) == OWN | {"lazy_of_mine", "late_of_mine"}
        (tmp_path / "late_of_mine.py").write_text("x = 1\n")
        assert (
            changed_source(before, source_of(Mine(option=lazy_of_mine.grade)))
            == "late_of_mine was edited"
        )
        assert "late_of_mine" not in sys.modules
    finally:
        del sys.modules["lazy_of_mine"]


def test_an_option_that_cannot_be_looked_at_and_a_million_rows_stop_nothing():
    """Provenance is no reason to fail, nor to wait."""
    assert set(source_of(Mine(option=[Odd()]))) == OWN
    assert set(source_of(Mine(option=[{"question": n} for n in range(1_000_000)]))) == OWN
