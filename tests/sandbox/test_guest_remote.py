"""What the tests' process believes of the program's objects, and what the program learns of the tests'."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading

import pytest

from rlvr.sandbox.guest.remote import ProgramDied, Remote
from rlvr.sandbox.guest.suite import Case, Results, read_results
from tests.sandbox.guests import Guests, passed


@pytest.fixture(scope="module")
def guests():
    server = Guests()
    yield server
    server.close()


# ---------------------------------------------------------------------------------- classes that lie

LYING = {
    "an eq that is always true": "def __init__(s, x, y): s.x, s.y = x, y\n def __eq__(s, o): return True",
    "a class that stores nothing": "def __init__(s, *a): pass\n def __eq__(s, o): return True",
    "a class that stores a constant": "def __init__(s, *a): s.k = 0\n def __eq__(s, o): return True",
    "an eq that copies": """def __init__(s, x, y): s.x, s.y = x, y
 def __eq__(s, o):
  s.__dict__ = dict(o.__dict__)
  return True""",
    "slots and no state": "__slots__ = ()\n def __init__(s, *a): pass\n def __eq__(s, o): return True",
}


@pytest.mark.parametrize("name", LYING)
def test_an_object_that_came_of_an_operation_is_judged_by_what_it_is_made_of(guests, name):
    """Its class is not asked: `+` here returns its left side."""
    program = f"class V:\n {LYING[name]}\n def __add__(s, o): return s\n def move(s): pass\ndef make(): return V(9, 9)"
    for test in (
        "assert V(1, 2) + V(3, 4) == V(4, 6)",
        "v = V(1, 2)\nv.move()\nassert v == V(4, 6)",
        "assert [V(1, 2) + V(3, 4)] == [V(4, 6)]",
        "assert V(1, 2) == (1, 2)",
        "assert make() in [V(1, 2), 5]",
    ):
        assert not passed(guests.suite(program, "asserts", test)), test


SWALLOWING = """
class Quiet:
    def __enter__(self): return self
    def __exit__(self, *e): return True
    x = 'text'
    def fail(self): raise ValueError
    __contains__ = __lt__ = lambda self, o: True
"""


@pytest.mark.parametrize(
    "body", ["assert q.x == 5", "q.missing", "q.x + 1", "q.fail()", "int(q.x)", "q < 5", "import solution; solution.no"]
)
def test_a_context_manager_cannot_swallow_what_makes_a_test_fail(guests, body):
    """Only what the tests raise on purpose."""
    assert not passed(guests.suite(SWALLOWING, "asserts", f"with Quiet() as q:\n    {body}\nassert True"))
    assert passed(guests.suite(SWALLOWING, "asserts", "with Quiet() as q:\n    raise ValueError\nassert True"))


# -------------------------------------------------------------------------- what the program can learn

SPY = """
seen = []
class Near:
    def note(self, *a):
        seen.extend(a)
        return 0
    __sub__ = __rsub__ = __add__ = __radd__ = __mul__ = __eq__ = __ne__ = __lt__ = __gt__ = __contains__ = note
    __le__ = __ge__ = __mod__ = __rmod__ = __and__ = __floordiv__ = __rtruediv__ = __pow__ = __divmod__ = note
    __hash__ = None
    __getitem__ = lambda self, i: [][i]
near = Near()
def f(): return near
def told(): return seen
"""


@pytest.mark.parametrize(
    "use",
    "f() == 42; f() != 42; 42 == f(); f() < 42; 42 >= f(); f() - 42; 42 - f(); 42 in f(); f() in [42]; 42 / f(); "
    "divmod(f(), 42); {42: 1}.get(f()); f() ** 42; 42 % f(); near - 42; [f()] == [42]; (42,) == (f(),)".split("; "),
)
def test_a_value_of_the_tests_is_not_sent_to_an_object_it_is_compared_with(guests, use):
    """It may be the expected one."""
    test = f"try:\n    {use}\nexcept TypeError:\n    pass\nassert told() == []"
    assert passed(guests.suite(SPY, "asserts", test)), use


PRYING = """
def pry(thing, *path):
    for name in path: thing = getattr(thing, name)
    return thing
def attempts(thing):
    out = []
    for path in (['__globals__'], ['__class__', '__init__', '__globals__'], ['gi_frame'], ['__self__'], ['__dict__'],
                 ['_secret'], ['__func__'], ['f_back'], ['__closure__'], ['__code__', 'co_consts'],
                 ['method', '__func__']):
        try: got = pry(thing, *path)
        except BaseException: continue
        if 'zugzwang' in repr(got): out.append(path)  # no address of an object spells it
    return out
def forge(mock):
    for name in ('assert_called_once_with', 'called', 'reset_mock', 'configure_mock', 'assert_called'):
        for act in (lambda: setattr(mock, name, lambda *a, **k: None), lambda: getattr(mock, name)()):
            try: act()
            except BaseException: pass
def replace(thing):
    try: thing.method = lambda: 42
    except AttributeError: pass
"""


def test_the_program_cannot_walk_from_an_argument_to_what_the_tests_know(guests):
    """Functions, generators, instances, bound methods, classes, exceptions."""
    test = """
expected = 'zugzwang'
class Thing:
    def __init__(self): self._secret = expected
    def method(self, x=expected): return expected
def gen():
    hidden = expected
    yield 1
things = [lambda: expected, gen(), Thing(), Thing().method, Thing, ValueError('x'), iter([1]), Thing.method]
assert [attempts(thing) for thing in things] == [[]] * len(things)
"""
    results = guests.suite(PRYING, "asserts", test)
    assert passed(results), results


def test_the_program_cannot_change_the_assertions_of_a_mock(guests):
    """Nor a method of an object of the tests."""
    test = """
import unittest
from unittest.mock import Mock
class Thing:
    def method(self): return 1
class T(unittest.TestCase):
    def test(self):
        mock, thing = Mock(), Thing()
        forge(mock)
        with self.assertRaises(AssertionError): mock.assert_called_once_with(1)
        self.assertFalse(mock.called)
        replace(thing)
        self.assertEqual(thing.method(), 1)
"""
    results = guests.suite(PRYING, "unittest", test)
    assert passed(results), results


def test_a_test_that_ends_in_a_callback_has_ended(guests):
    """The program cannot swallow pytest.fail, nor keep a skip for later."""
    program = """
kept = []
def call(f):
    try: f()
    except BaseException as e: kept.append(e)
def again():
    if kept: raise kept[0]
"""
    test = """
import pytest
def test_fail(): call(lambda: pytest.fail('here'))
def test_skip(): call(lambda: pytest.skip('here'))
def test_again(): again()
"""
    outcomes = [case.outcome for case in guests.suite(program, "pytest", test).cases]
    assert outcomes == ["fail", "skip", "error"]


# ----------------------------------------------------------------------------- a program that talks nonsense


def frame(message):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack("<I", len(data)) + data


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00",
        b"\xff\xff\xff\xff",
        frame(b"{"),
        frame([]),
        frame({"to": "x"}),
        frame({"to": 0}),
        frame({"to": 0, "value": {"eval": 1}}),
        frame({"to": 0, "value": {"ref": [0]}}),
        frame({"to": 0, "value": {"ref": ["a", "b"]}}),
        frame({"to": 0, "value": {"yours": 7}}),
        frame({"to": 0, "value": {"builtin": "eval"}}),
        frame({"to": 0, "value": {"exception": [{"builtin": "int"}, [], "", {"dict": []}, 0]}}),
        frame({"to": 0, "error": 5}),
        frame({"to": 0, "error": {"builtin": "ValueError"}}),
        frame({"to": 0, "value": 1, "changed": [[0, 5]]}),
        frame({"ask": 0, "do": "call", "on": 0, "op": "__call__", "args": [], "kwargs": {}}),
        frame({"ask": 0, "do": "getattr", "on": -1, "name": "x"}),
        frame({"ask": 0, "do": "nothing"}),
        frame({"to": 0, "value": 1, "ask": 2}),
        frame(b"[" * 100_000),
    ],
    ids=range(21),
)
def test_nonsense_is_the_end_of_the_program(answer):
    """One BaseException, then and ever after; no hang and no other error."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=lambda: (theirs.recv(1 << 16), theirs.sendall(answer), theirs.close()))
    thread.start()
    remote = Remote(ours.fileno())
    try:
        for _ in range(2):
            with pytest.raises(ProgramDied):
                remote.name("f")
        assert remote.died
    finally:
        thread.join()
        ours.close()


def test_endless_bases_of_bases_are_refused():
    """The program may not make the tests recurse without bound."""
    ours, theirs = socket.socketpair()

    def program():
        reply = {"value": {"class": 0}}
        for n in range(500):
            if not theirs.recv(1 << 16):
                break
            theirs.sendall(frame({"to": n, **reply}))
            told = {"name": "C", "module": "m", "bases": [{"class": n + 1}], "operations": [], "value": None}
            told.update(equality=False, hashable=True, plain=False, constants=False)
            reply = {"value": None, "class": told}
        theirs.close()

    thread = threading.Thread(target=program)
    thread.start()
    remote = Remote(ours.fileno())
    with pytest.raises(ProgramDied, match="too many classes"):
        remote.name("f")
    thread.join()
    ours.close()


# ------------------------------------------------------------------------------------------- suites


@pytest.mark.parametrize(
    ("style", "test", "expected"),
    [
        ("check", "def check(", "SyntaxError"),
        ("check", "import no_such_module\ndef check(c): pass", "ModuleNotFoundError"),
        ("check", "x = 1", "no check()"),
        ("asserts", "1 / 0\nassert f(1)", "ZeroDivisionError"),
        ("asserts", "x = 1", "no tests"),
        ("unittest", "import unittest", "no tests"),
        ("pytest", "def helper(): pass", "no tests"),
        ("pytest", "import no_such_module", "ModuleNotFoundError"),
    ],
)
def test_broken_tests_are_not_the_programs_fault(guests, style, test, expected):
    """As long as the program had no part in it."""
    results = guests.suite("def f(x): return x", style, test, entry_point="f" if style == "check" else None)
    assert expected in results.ours


@pytest.mark.parametrize(
    ("style", "test"),
    [
        ("unittest", "import unittest, solution\n@unittest.skipIf(not hasattr(solution, 'f'), '')\n"
                     "class T(unittest.TestCase):\n def test(self): self.fail()"),
        ("pytest", "import pytest, solution\n@pytest.mark.skipif(not hasattr(solution, 'f'), reason='')\n"
                   "def test(): assert False"),
        ("pytest", "import pytest\nf = pytest.importorskip('solution').nothing\ndef test(): pass"),
        ("unittest", "from solution import f"),
        ("asserts", "g = f\nassert True"),
    ],
)  # fmt: skip
def test_a_program_that_leads_to_no_tests_has_failed(guests, style, test):
    """Every test skipped is no pass."""
    results = guests.suite("", style, test)
    assert results.ours is None
    assert not passed(results)
    assert results.done


def test_a_failure_says_what_it_compared(guests):
    """In one line each."""
    results = guests.suite("def f(x): return [x]", "asserts", "assert f(1) == [2]\nassert f(1) == [1]\nassert f(1) < 2")
    assert [case.message for case in results.cases[:2]] == ["[1] == [2] is false", ""]
    assert results.cases[2].message.startswith("TypeError: '<' not supported")


def test_stop_ends_a_suite_at_its_first_failure(guests):
    """And it is done."""
    results = guests.suite(
        "def f(x): return x", "asserts", "assert f(1) == 1\nassert f(1) == 2\nassert f(1)", stop=True
    )
    assert [case.outcome for case in results.cases] == ["pass", "fail"]
    assert results.done


def test_a_test_that_swallows_everything_does_not_pass_without_a_program(guests):
    """A bare `except:` catches even ProgramDied."""
    test = "def check(c):\n    try:\n        c(1)\n    except:\n        pass\n"
    results = guests.suite("import os\ndef f(x): os._exit(0)", "check", test, entry_point="f")
    assert (results.cases, results.died, results.done) == ((), True, False)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", Results()),
        (b'{"done": true, "cases": 0}\n', Results(done=True)),
        (b'{"done": true, "cases": 1}\n', Results()),
        (b'{"done": 1, "cases": 0}\n', Results()),
        (b'{"died": true}\n', Results(died=True)),
        (b'{"ours": "x"}\n', Results(ours="x")),
        (b'{"ours": 5}\n', Results()),
        (b'{"error": "x"}\n', Results(error="x")),
        (b'{"case": "a", "outcome": "pass", "message": ""}\n', Results((Case("a", "pass"),))),
        (b'{"case": "a", "outcome": "PASS", "message": ""}\n{"done": true, "cases": 0}\n', Results()),
        (b'{"done": true, "cases": 0}', Results()),
        (b"\xff\n" * 3, Results()),
        (b'[]\n{"done": true, "cases": 0}\n', Results()),
    ],
    ids=range(13),
)
def test_results_are_read_strictly(data, expected):
    """Up to the first line that is none."""
    assert read_results(data) == expected


@pytest.mark.slow
def test_no_descriptor_of_ours_reaches_the_program(guests):
    """Beyond the channel and the standard ones."""
    program = "import os\ndef fds(): return sorted(int(n) for n in os.listdir('/proc/self/fd'))"
    if os.path.isdir("/proc/self/fd"):  # noqa: PTH112
        assert passed(guests.suite(program, "asserts", "assert len(fds()) <= 5"))
