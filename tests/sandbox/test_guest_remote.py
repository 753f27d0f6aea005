"""What the tests' process believes of the program's objects, and what the program learns of the tests'."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading

import pytest

from rlvr.sandbox.guest.remote import ProgramDied, Remote
from rlvr.sandbox.guest.suite import Case, SuiteResults, read_suite_cases
from tests.sandbox.guests import Guests, passed


@pytest.fixture(scope="module")
def guests():
    server = Guests()
    yield server
    server.close()


# --------------------------------------------------------------------------------- classes that lie

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


# ----------------------------------------------------------------------- what the program can learn

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
    "divmod(f(), 42); {42: 1}.get(f()); f() ** 42; 42 % f(); near - 42; [f()] == [42]; (42,) == (f(),)".split(
        "; "
    ),
)
def test_a_value_of_the_tests_is_not_sent_to_an_object_it_is_compared_with(guests, use):
    """It may be the expected one."""
    test = f"try:\n    {use}\nexcept TypeError:\n    pass\nassert told() == []"
    assert passed(guests.suite(SPY, "asserts", test)), use


@pytest.mark.parametrize(
    ("style", "test"),
    [
        ("asserts", "assert f(lambda: 1) == 2"),
        ("asserts", "assert f([object()]) == 2"),
        ("asserts", "class Thing: pass\nassert f(Thing()) == 2"),
        ("asserts", "try:\n    f(print)\nexcept BaseException:\n    pass\nassert True"),
        ("check", "def check(c):\n    assert c(iter([1]), key=len) == 1"),
        ("unittest", "import unittest\nclass T(unittest.TestCase):\n def test(self): f(self)"),
        (
            "pytest",
            "import pytest\nfrom solution import f\n@pytest.fixture\ndef g(): return f(len)\ndef test(g): pass",
        ),
        (
            "pytest",
            "from solution import f\ndef test(capsys):\n f(1)\n assert capsys.readouterr().out == ''",
        ),
    ],
)
def test_tests_that_need_one_process_are_refused(guests, style, test):
    """They pass an object of their own, or look at what is printed: no verdict on any program."""
    results = guests.suite(
        "def f(*a, **k): return 2", style, test, entry_point="f" if style == "check" else None
    )
    assert results.ours, results
    assert not passed(results)


@pytest.mark.parametrize(
    "value",
    [
        "object()",
        "iter('ab')",
        "[object()]",
        "(x for x in 'ab')",
        "type('T', (), {})",
        "'x' * (16 << 20)",
    ],
)
def test_no_program_leads_tests_to_be_refused(guests, value):
    """What came from the program is passed back, or the test fails: a policy cannot buy that its text is not judged."""
    results = guests.suite(
        f"def f(x): return {value}\ndef g(x): return 1", "asserts", "x = g(f(1))\nassert x == 2"
    )
    assert results.ours is None
    assert not passed(results)
    assert results.done or results.died


# -------------------------------------------------------------------- a program that talks nonsense


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
        frame([1, "value", 1]),
        frame([0, "value"]),
        frame([0, "value", {"eval": 1}]),
        frame([0, "value", {"object": 0}]),
        frame([0, "value", {"object": ["a", "b"]}]),
        frame([0, "value", {"error": [0, "E", "F"]}]),
        frame([0, "value", {"type": "eval"}]),
        frame([0, "items", 5]),
        frame([0, "error", 5]),
        frame([0, "value", 1, [[0, 5]]]),
        frame([True, "value", 1]),
        frame([False, "value", 1]),
        frame(b"[" * 100_000),
    ],
    ids=range(19),
)
def test_nonsense_is_the_end_of_the_program(answer):
    """One BaseException, then and ever after; no hang and no other error."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(
        target=lambda: (theirs.recv(1 << 16), theirs.sendall(answer), theirs.close())
    )
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
    results = guests.suite(
        "def f(x): return x", style, test, entry_point="f" if style == "check" else None
    )
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
    results = guests.suite(
        "def f(x): return [x]", "asserts", "assert f(1) == [2]\nassert f(1) == [1]\nassert f(1) < 2"
    )
    assert [case.message for case in results.cases[:2]] == ["[1] == [2] is false", ""]
    assert results.cases[2].message.startswith("TypeError: '<' not supported")


def test_stop_ends_a_suite_at_its_first_failure(guests):
    """And it is done."""
    results = guests.suite(
        "def f(x): return x",
        "asserts",
        "assert f(1) == 1\nassert f(1) == 2\nassert f(1)",
        stop=True,
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
        (b"", SuiteResults()),
        (b'["done", 0]\n', SuiteResults(done=True)),
        (b'["done", 1]\n', SuiteResults()),
        (b'["done"]\n', SuiteResults()),
        (b'["died"]\n', SuiteResults(died=True)),
        (b'["ours", "x"]\n', SuiteResults(ours="x")),
        (b'["ours", 5]\n', SuiteResults()),
        (b'["error", "x"]\n', SuiteResults(error="x")),
        (b'["case", "a", "pass", ""]\n', SuiteResults((Case("a", "pass"),))),
        (b'["case", "a", "PASS", ""]\n["done", 0]\n', SuiteResults()),
        (b'["done", 0]', SuiteResults()),
        (b"\xff\n" * 3, SuiteResults()),
        (b'[]\n["done", 0]\n', SuiteResults()),
    ],
    ids=range(13),
)
def test_results_are_read_strictly(data, expected):
    """Up to the first line that is none."""
    assert read_suite_cases(data) == expected


def test_a_machine_without_dev_null_is_no_fault_of_the_program():
    """Else the tests' process would end before it has begun, and each hidden test would count as
    one that the program did not pass."""
    script = (
        "import os, sys\n"
        "os.devnull = '/proc/nowhere/null'\n"
        "from rlvr.sandbox.guest import suite\n"
        "spec = dict(style='asserts', test='assert f(1)', setup='', entry_point=None, "
        "module=['solution'], stop=False)\n"
        "suite.main(spec, int(sys.argv[1]), 1)"
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ended = subprocess.run(
            [sys.executable, "-c", script, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            capture_output=True,
            check=True,
        )
    fault = "/proc/nowhere/null cannot be opened here: No such file or directory"
    assert read_suite_cases(ended.stdout) == SuiteResults(ours=fault)


@pytest.mark.slow
def test_no_descriptor_of_ours_reaches_the_program(guests):
    """Beyond the channel and the standard ones."""
    program = "import os\ndef fds(): return sorted(int(n) for n in os.listdir('/proc/self/fd'))"
    if os.path.isdir("/proc/self/fd"):  # noqa: PTH112
        assert passed(guests.suite(program, "asserts", "assert len(fds()) <= 5"))
