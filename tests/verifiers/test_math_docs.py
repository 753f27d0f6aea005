"""docs/reference/math.md names the settings, presets and limits that there are; `tests/test_docs.py` runs its code."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from rlvr.verifiers import math
from rlvr.verifiers.math import MathPolicy, symbolic
from rlvr.verifiers.math.limits import LIMITS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "math.md").read_text()


EQUAL = PAGE[PAGE.index("| the same | not the same |") : PAGE.index("A chain of equal sides")]


def groups(column: int) -> list[list[str]]:
    """The examples of one column of the table of what is equal; a semicolon begins other ones."""
    cells = [line.replace(r"\|", "∣").split("|")[column] for line in EQUAL.splitlines()[2:] if line]
    texts = (
        re.findall(r"`([^`]+)`", group)
        for cell in cells
        for group in re.split("(?<=`); (?=`)", cell)
    )
    return [[text.replace("∣", "|") for text in group] for group in texts if group]


@pytest.mark.parametrize("group", groups(1), ids=lambda group: group[0])
def test_what_the_page_calls_the_same_is_the_same(group):
    """The first example of a group is the reference, which the others answer."""
    assert len(group) > 1
    verifier = math.MathVerifier(MathPolicy(form="any"))
    for other in group[1:]:
        assert verifier.compare(other, group[0]).correct, other


@pytest.mark.parametrize("group", groups(2), ids=lambda group: group[0])
def test_what_the_page_tells_apart_is_told_apart(group):
    """The first example of a group answers none of the others, nor they it."""
    verifier = math.MathVerifier(MathPolicy(form="any"))
    for other in group[1:]:
        assert not verifier.compare(other, group[0]).correct, other
        assert not verifier.compare(group[0], other).correct, other


@pytest.mark.parametrize("setting", fields(MathPolicy), ids=lambda setting: setting.name)
def test_every_setting_stands_in_the_table_with_its_default(setting):
    """A reader decides by this table what a score means."""
    [default] = re.findall(rf"^\| `{setting.name}` \| `([^`]+)`", PAGE, re.MULTILINE)
    assert default.strip('"') == str(setting.default)


def test_every_preset_is_named():
    """And none that does not exist."""
    presets = {name for name in math.__all__ if isinstance(getattr(math, name), MathPolicy)}
    assert set(re.findall(r"^\| `([A-Z0-9_]+)` \|", PAGE, re.MULTILINE)) == presets


def test_the_limits_are_the_limits():
    """They decide verdicts, so they are part of the contract."""
    for number in (
        LIMITS.chars,
        LIMITS.depth,
        LIMITS.digits,
        LIMITS.cells,
        LIMITS.terms,
    ):
        assert re.search(rf"(?<![\d,]){number:,}(?![\d,])", PAGE), number
    assert f"{symbolic.CPU_S} s of CPU and {symbolic.MEMORY_MIB} MiB" in PAGE


def test_every_reason_of_the_code_is_explained():
    """A user who counts reasons looks them up there; `same-unit` is a step on the way and never the last word."""
    table = PAGE[PAGE.index("## How to read a reason") : PAGE.index("## Limits")]
    explained = set(re.findall(r"`([a-z-]+)`", table))
    explained |= {"different-" + word for word in explained}
    sources = [p.read_text() for p in Path(math.__file__).parent.glob("*.py")]
    given = {
        reason
        for text in sources
        for reason in re.findall(r'Decision\((?:True|False), f?"([a-z-]+)', text)
    }
    for text in sources:
        for equal, what in re.findall(r'judged\((.+?), "([a-z]+)"\)', text):
            given |= {f"same-{what}"} if equal != "False" else set()
            given |= {f"different-{what}"} if equal != "True" else set()
    assert len(given) > 20
    assert given - {"same-unit"} <= explained
