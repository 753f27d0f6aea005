"""Function-call mode: each call's reply, and nothing else, comes back."""

from __future__ import annotations

import json

import pytest

from rlvr.sandbox.guest.calls import CallReply, read_replies, requests
from rlvr.sandbox.guest.values import NotAValue, Opaque
from tests.sandbox.guests import Guests


@pytest.fixture(scope="module")
def guests():
    server = Guests()
    yield server
    server.close()


def values(replies):
    return [
        reply.value if reply and not reply.error else reply and reply.error[0] for reply in replies
    ]


def test_functions_and_methods_by_name(guests):
    """A global, a method of a fresh Solution, a method of a fresh instance of a class."""
    program = """
class Solution:
    def __init__(self): self.n = 0
    def bump(self, by):
        self.n += by
        return self.n
class Other:
    def me(self): return type(self).__name__
def double(x): return 2 * x
"""
    calls = [
        ("double", 4),
        ("bump", 2),
        ("bump", 2),
        ("Other.me",),
        ("Solution().bump", 5),
        ("missing",),
        ("Other.no",),
    ]
    assert values(guests.calls(program, *calls)) == [8, 2, 2, "Other", 5, "NameError", "NameError"]


def test_values_arrive_and_return_exactly(guests):
    """Arguments too."""
    sent = [{(1, "a"): [1.5, None]}, {1, 2}, b"\xff", 10**50, "\ud800", (1, [2])]
    assert values(guests.calls("def same(x): return x", *[("same", x) for x in sent])) == sent


def test_iterators_are_listed(guests):
    """Those of the language; an endless one is an error of that call."""
    program = """
import itertools
def gen(n):
    for i in range(n): yield i
def views(d): return d.items()
def mapped(xs): return map(str, xs)
def chained(): return itertools.chain([1], [2])
def endless(): return itertools.count()
def back(xs): return reversed(xs)
"""
    calls = [
        ("gen", 3),
        ("views", {1: 2}),
        ("mapped", [1]),
        ("chained",),
        ("endless",),
        ("back", [1, 2]),
    ]
    assert values(guests.calls(program, *calls)) == [
        [0, 1, 2],
        [(1, 2)],
        ["1"],
        [1, 2],
        "NotAValue",
        [2, 1],
    ]


def test_errors_are_replies(guests):
    """With type and message, SystemExit and hostile exceptions too; the next call goes on."""
    program = """
import sys
class Odd(Exception):
    def __str__(self): raise SystemExit
def fail(): raise ValueError('x' * 9999)
def leave(): sys.exit(0)
def odd(): raise Odd
def cycle():
    x = []
    x.append(x)
    return x
def fine(): return 1
"""
    replies = guests.calls(program, ("fail",), ("leave",), ("odd",), ("cycle",), ("fine",))
    assert values(replies) == ["ValueError", "SystemExit", "Odd", "NotAValue", 1]
    assert replies[0].error[1] == "x" * 500
    assert replies[3].error[1] == "not a value: cycle"


def test_a_program_that_ends_keeps_the_replies_it_gave(guests):
    """They are written one by one, unbuffered."""
    program = "import os\ndef f(x):\n if x == 2: os._exit(0)\n return x"
    assert values(guests.calls(program, ("f", 0), ("f", 1), ("f", 2), ("f", 3))) == [
        0,
        1,
        None,
        None,
    ]


def test_objects_are_opaque(guests):
    """They equal nothing, whatever their __eq__ says."""
    program = "class A:\n __eq__ = lambda s, o: True\ndef f(): return [A()]"
    [reply] = guests.calls(program, ("f",))
    assert isinstance(reply.value[0], Opaque)
    assert reply.value != [1]


def test_requests_must_be_values():
    """A case with an object in it is the caller's mistake."""
    with pytest.raises(NotAValue, match="a function"):
        requests([("f", [lambda: 1], {}, ())])


def line(*reply):
    return json.dumps(reply).encode() + b"\n"


GOOD = line(0, "value", 1)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", [None, None]),
        (GOOD, [CallReply(1), None]),
        (GOOD + line(1, "error", "E", "m"), [CallReply(1), CallReply(error=("E", "m"))]),
        (GOOD + GOOD, [CallReply(1), None]),
        (GOOD + line(1, "value", 2)[:-1], [CallReply(1), None]),
        (GOOD + b"\xff\n" + line(1, "value", 2), [CallReply(1), None]),
        (GOOD + line(1, "value", 2) + b"more\n\n", [CallReply(1), CallReply(2)]),
        (line(1, "value", 1), [None, None]),
        (line(True, "value", 1), [None, None]),
        (line(0, "value", 1, 2), [None, None]),
        (line(0, "value", {"eval": "1"}), [None, None]),
        (line(0, "error", "E"), [None, None]),
        (line(0, "error", "E", 5), [None, None]),
        (line(0, "items", 5), [None, None]),
        (b"[]\nnull\n", [None, None]),
        (b"\n" * 100, [None, None]),
        (b"[" * 100_000 + b"\n", [None, None]),
    ],
    ids=range(17),
)
def test_only_exact_replies_are_read(data, expected):
    """The first line that is none ends the reading; it never raises."""
    assert read_replies(data, 2) == expected
