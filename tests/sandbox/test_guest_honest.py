"""Right programs, each with tests as people write them: none may be failed for being two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.guests import Guests, passed

CASES: dict[str, dict[str, Any]] = {}
for _text in (
    Path(__file__).with_name("guest_honest.txt").read_text(encoding="utf-8").split("\n=== ")[2:]
):
    _head, _, _text = _text.partition("\n")
    _name, _style, *_entry = _head.split(" | ")
    _program, *_setup, _test = _text.split("\n--- ")
    CASES[_name] = {
        "program": _program,
        "style": _style,
        "test": _test.removeprefix("tests\n"),
        "setup": "".join(_setup).removeprefix("setup\n"),
        "entry_point": _entry[0] if _entry else None,
    }


@pytest.fixture(scope="module")
def guests():
    server = Guests()
    yield server
    server.close()


REFUSED = (
    "higher-order functions",
    "decorators of the program on functions of the tests",
    "recursion through a callback",
    "a generator given to the program",
    "printing",
    "output in step with callbacks",
    "exceptions of the tests through the program",
    "mocks",
    "objects that the tests define",
    "deep recursion, threads and processes of its own",
)
"""Their tests pass objects of their own, or read what is printed, which takes one process."""


@pytest.mark.parametrize("name", CASES)
def test_right_programs_pass(guests, name):
    """What the tests see must be what they would see in one process; else there is no verdict on the program."""
    results = guests.suite(**CASES[name])
    if name in REFUSED:
        assert results.ours, results
    else:
        assert passed(results), results
