"""Progress in a log."""

import io
import time

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rlvr import display


def test_progress_in_a_log_is_a_line_now_and_then(monkeypatch):
    """With the rate and the time that is left; a short run says nothing."""
    out = io.StringIO()
    clock = iter([0.0, *(10.0 * n for n in range(1, 9))])
    monkeypatch.setattr(display.time, "monotonic", lambda: next(clock))
    with display.progress_bar("scoring", 4000, Console(file=out)) as tick:
        for _ in range(8):
            tick()
    assert out.getvalue().splitlines() == [
        "scoring: 3 of 4,000, 0.1 per second, 11 h 6 min left",
        "scoring: 6 of 4,000, 0.1 per second, 11 h 5 min left",
    ]


def test_tokens_and_a_task_without_steps_are_lines_in_a_log(monkeypatch):
    """Loading is said when it takes long; what is sampled comes with its rate."""
    out = io.StringIO()
    clock = iter([0.0, 31.0])
    monkeypatch.setattr(display.time, "monotonic", lambda: next(clock))
    activity = display.Activity(Console(file=out, width=20))
    with activity.working("loading a short one"):
        pass  # ends before the line is due
    monkeypatch.setattr(display, "_LOGGED_S", 0.0)
    with activity.working("loading [red]a/long/name:fire:"):
        while not out.getvalue().endswith("\n"):
            time.sleep(0.001)
    with activity.task("sampling", 64) as advance:
        advance(2, tokens=310)
    assert out.getvalue().splitlines() == [
        "loading [red]a/long/name:fire:",
        "sampling: 2 of 64, 310 tokens, 10 per second, 16 min 1 s left",
    ]


def test_bars_of_a_terminal_are_gone_at_the_end(monkeypatch):
    """Two tasks may be shown at a time, as a batch is collected while another one is trained on."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, no_color=True, width=100)
    activity = display.Activity(console)
    monkeypatch.setattr(display, "_HIDDEN_S", 0.0)
    with activity.task("sampling", 4) as first, activity.task("updating, rows", 2) as second:
        first(1, tokens=7)
        second()
        activity._bars.refresh()
        console.print("step 1", highlight=False)
    shown = out.getvalue()
    assert "1 of 4, 7 tokens" in shown
    assert "1 of 2" in shown
    assert "step 1" in shown
    assert "\x1b[2K" in shown.rpartition("left")[2], "the last bar is cleared"
    assert activity._bars is None


def test_a_short_task_does_not_flicker():
    """Nothing is written in the first half second, so small runs print what they printed before."""
    out = io.StringIO()
    activity = display.Activity(Console(file=out, force_terminal=True))
    with activity.task("updating, rows", 8) as advance:
        advance(8)
    assert out.getvalue() == ""
    for silent in (display.Activity(), display.Activity(Console(file=out, quiet=True))):
        with silent.working("loading"), silent.task("sampling", None) as advance:
            advance(1, tokens=3)
    assert out.getvalue() == ""


@given(st.floats(allow_nan=False) | st.integers(-(10**6), 10**6))
def test_a_shown_number_is_that_number(value: float):
    """In six digits if these are exact."""
    text = display.show_number(value)
    assert float(text) == value
    assert len(text) <= max(len(f"{value:g}"), len(repr(value)))


@given(st.integers(0, 10**6))
def test_a_shown_time_is_that_time(seconds: int):
    """To the second below an hour, to the minute above."""
    words = display.span(seconds).split()
    units = {"h": 3600, "min": 60, "s": 1}
    shown = sum(int(n) * units[unit] for n, unit in zip(words[::2], words[1::2], strict=True))
    assert shown == (seconds if seconds < 3600 else seconds // 60 * 60)
