"""Right programs, each with tests as people write them: none may be failed for being two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.guests import Guests, passed

CASES: dict[str, dict[str, Any]] = {}
for _text in Path(__file__).with_name("guest_honest.txt").read_text(encoding="utf-8").split("\n=== ")[2:]:
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


@pytest.mark.parametrize("name", CASES)
def test_right_programs_pass(guests, name):
    """What the tests see must be what they would see in one process."""
    results = guests.suite(**CASES[name])
    assert passed(results), results
