"""Progress in a log."""

import io

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
        "scoring: 3 of 4,000, 0 per second, 11 h 6 min left",
        "scoring: 6 of 4,000, 0 per second, 11 h 5 min left",
    ]
