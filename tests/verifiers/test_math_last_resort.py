"""math-verify, asked last: when it is asked at all, and how little it may say."""

from __future__ import annotations

import pytest

from rlvr.verifiers.math import COMPETITION, engine, last_resort, symbolic
from rlvr.verifiers.math.latex import Unreadable


@pytest.fixture
def asked(monkeypatch):
    """The pairs that reach it; it says yes to all of them."""
    pairs = []

    def equal(a, b):
        pairs.append((a, b))
        return True

    monkeypatch.setattr(last_resort, "equal", equal)
    return pairs


def test_it_is_asked_only_about_commands_that_we_do_not_know(asked):
    """Neither about what we can read nor about what is malformed: there it would drop what it cannot read."""
    for answer in ("x^2", r"\frac{x}{", "x'", "x )", "2 3x", r"\text{about } x"):
        engine.handle((answer, r"\sqrt{x}", COMPETITION))
    assert asked == []
    assert engine.handle((r"\foo{x}+y", r"\sqrt{x}", COMPETITION)) == (True, "symbolic-equal")
    assert asked == [(r"\foo{x}+y", r"\sqrt{x}")]


def test_what_it_may_accept():
    """Both directions must hold."""
    assert last_resort.equal(r"\frac{1}{2}x", r"\frac{x}{2}") is True
    assert last_resort.equal(r"\sqrt{8}", r"2\sqrt{2}") is True


@pytest.mark.parametrize(
    ("a", "b"), [(r"\sqrt{2}", "1.41421356237"), (r"\frac{\pi}{10^{20}}", "0"), ("x", "y"), ("x^2", "x")]
)
def test_its_tolerance_does_not_count(a, b):
    """Constants must agree to thirty digits."""
    assert last_resort.equal(a, b) is False


@pytest.mark.parametrize(
    "text", ["5'", "x=3", "x<2", "1, 2", "2 3", r"\{1, 2\}", "x_2", r'x "or so"', r"\frac{1}{0}", ""]
)
def test_what_it_would_read_too_generously_is_unreadable(text):
    """Relations, lists, subscripts, marks, prose, and what has no value."""
    assert last_resort.readable(text) is False
    with pytest.raises(Unreadable):
        last_resort.equal(text, "x")


def test_a_worker_loads_it_when_it_is_first_needed():
    """That takes a second, which no answer's limit has room for: the worker spends it between two children."""
    assert symbolic.decide(r"\foo{x}+y", r"\sqrt{x}", COMPETITION).reason.startswith("unreadable")
    assert symbolic.decide(r"x^{1/2}", r"\sqrt{x}", COMPETITION).equal is True
