"""The report of `make real`: what failed is said, and other parts still run."""

import pytest

from benchmarks.real import __main__ as real
from benchmarks.real.parts import PARTS, Failed, Place, require


@pytest.mark.parametrize("error", [Failed("0.4 | held\nout"), KeyError("loss")])
def test_a_part_that_fails_is_in_the_report(tmp_path, monkeypatch, error):
    """Whether it found something wrong or broke itself; a text with bars and lines keeps the table whole."""

    def broken(place: Place) -> str:
        """Breaks."""
        raise error

    monkeypatch.setitem(PARTS, "grpo", broken)
    result = real.run_part("grpo", Place(tmp_path))
    assert not result["passed"]
    about = dict.fromkeys(("cpu", "load", "python", "rlvr", *real.PACKAGES), "1")
    page = real.as_markdown({"machine": about, "parts": {"grpo": result}})
    [row] = [line for line in page.splitlines() if line.startswith("| grpo")]
    assert "**no**" in row
    assert row.replace("\\|", "").count("|") == 6


def test_what_was_not_run_is_not_said_to_hold(tmp_path):
    """HumanEval needs a model that the user names."""
    result = real.run_part("humaneval", Place(tmp_path))
    about = dict.fromkeys(("cpu", "load", "python", "rlvr", *real.PACKAGES), "1")
    page = real.as_markdown({"machine": about, "parts": {"humaneval": result}})
    [row] = [line for line in page.splitlines() if line.startswith("| humaneval")]
    assert "| – | not run" in row


def test_a_requirement_that_does_not_hold_ends_the_part():
    """With what was seen."""
    require(True, "fine")
    with pytest.raises(Failed, match="seen 3"):
        require(False, "seen 3")
