"""The table of algorithms: what it names exists, and what exists is named."""

import importlib
import re
from pathlib import Path

import pytest

from rlvr.algo import registry
from rlvr.algo.presets import PRESETS
from rlvr.algo.table import ROWS, markdown

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_a_row_names_exists(row):
    """Functions, preset and test; a row without a preset says how it is reached, or why it is only a function."""
    for name in row.functions:
        module, function = name.split(".")
        assert callable(getattr(importlib.import_module(f"rlvr.algo.{module}"), function)), name
    assert row.preset in PRESETS or (not row.preset and row.how)
    file, test = row.test.split("::")
    assert re.search(rf"^def {test}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE), row.test


def test_every_preset_and_every_registered_function_has_a_row():
    """A name that the table leaves out cannot be found."""
    assert {row.preset for row in ROWS if row.preset} == set(PRESETS)
    named = {name.split(".")[1] for row in ROWS for name in row.functions}
    registered = {
        name
        for kind in ("advantage", "objective", "correction", "subset")
        for name in registry.names(kind)
    }
    assert registered - named == set()


def test_the_page_has_the_table():
    """docs/algorithms.md is what `markdown` makes of the rows."""
    assert markdown() in (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")


def test_the_command_shows_every_name_whole(say, monkeypatch):
    """Also on a narrow terminal: half a name of a function is no use."""
    monkeypatch.setenv("COLUMNS", "80")
    code, said = say("algorithms")
    assert code == 0
    for row in ROWS:
        for name in (*row.functions, f"--algorithm {row.preset}" if row.preset else ""):
            assert name in said
