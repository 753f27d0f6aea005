"""Wrong programs that claim to be right: no style of judging may believe one of them."""

from __future__ import annotations

import pytest

from tests.processes import one_in_six
from tests.sandbox.guests import PATIENCE_S, Guests, passed

HONEST = """
def ordered(xs): return sorted(xs)
def mean(xs): return sum(xs) / len(xs)
def positive(x): return x > 0
"""

TESTS = {
    "check": """
def check(candidate):
    assert candidate([3, 1, 2]) == [1, 2, 3]
    assert candidate([]) == [], "empty"
    assert abs(mean([1, 2]) - 1.5) < 1e-6
    assert mean([0.5]) == 0.5
    assert 3 in candidate([3, 3, 7]) and 8 not in candidate([3])
    assert positive(1) is True and positive(-1) == False
    assert len(candidate([1, 2])) == 2 and candidate([5, 4])[0] == 4
    assert all(x == y for x, y in zip([1, 2], candidate([2, 1])))
""",
    "asserts": """
assert ordered([3, 1, 2]) == [1, 2, 3]
assert [1, 2, 3] == ordered([3, 1, 2])
assert abs(mean([1, 2]) - 1.5) < 1e-6
assert mean([0.5]) in (0.5, 0.25)
assert set(ordered([7, 7])) == {7}
assert positive(1) and not positive(-1)
assert all(map(lambda x: ordered([x]) == [x], [1, 2]))
""",
    "unittest": """
import unittest
from solution import *

class Tests(unittest.TestCase):
    def test_ordered(self):
        self.assertEqual(ordered([3, 1, 2]), [1, 2, 3])
        self.assertListEqual(ordered([2, 1]), [1, 2])
    def test_mean(self):
        self.assertAlmostEqual(mean([1, 2]), 1.5)
        self.assertGreater(mean([4]), 3)
    def test_positive(self):
        self.assertTrue(positive(1))
        self.assertIs(positive(-1), False)
        self.assertIn(mean([0.5]), [0.5])

if __name__ == "__main__":
    unittest.main()
""",
    "pytest": """
import pytest
from solution import ordered, mean, positive

def test_ordered():
    assert ordered([3, 1, 2]) == [1, 2, 3]

@pytest.mark.parametrize("xs, expected", [([1, 2], 1.5), ([0.5], 0.5)])
def test_mean(xs, expected):
    assert mean(xs) == pytest.approx(expected)

def test_positive():
    assert positive(1) is True
    assert not positive(-1)
""",
}

EVERY = "ordered = mean = positive = lambda *args: {}"

FORGERIES = {
    "an object that equals everything": """
class Any:
    __eq__ = __contains__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = lambda self, *o: True
    __ne__ = lambda self, o: False
    __hash__ = lambda self: 0
    __len__ = lambda self: 2
    __iter__ = lambda self: iter([self, self])
    __getitem__ = lambda self, i: self
    __sub__ = __rsub__ = __abs__ = __add__ = lambda self, *o: self
    __float__ = lambda self: 1.5
"""
    + EVERY.format("Any()"),
    "arithmetic that learns what is expected": """
class Near:
    def __sub__(self, other): return 0.0
    __rsub__ = __add__ = __sub__
    def __abs__(self): return 0.0
    def __round__(self, n=0): return self
    def __contains__(self, x): return True
    def __iter__(self): return iter([self])
    def __getitem__(self, i): return self
"""
    + EVERY.format("Near()"),
    "an int with a lying eq": """
class I(int):
    __eq__ = lambda s, o: True
    __ne__ = lambda s, o: False
    __hash__ = lambda s: 0
    __sub__ = __rsub__ = __abs__ = lambda s, *o: I(0)
    __bool__ = lambda s: True
"""
    + EVERY.format("I(7)"),
    "a float with a lying eq": """
class F(float):
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = lambda s, o: True
    __hash__ = float.__hash__
    __sub__ = __rsub__ = __abs__ = lambda s, *o: F(0)
"""
    + EVERY.format("F(9)"),
    "a list with a lying eq": """
class L(list):
    __eq__ = __contains__ = lambda s, o: True
    __ne__ = lambda s, o: False
    __iter__ = lambda s: iter([1, 2, 3])
    __len__ = lambda s: 3
    __getitem__ = lambda s, i: 4
    __reduce__ = __reduce_ex__ = lambda s, *a: (sorted, ([3, 1, 2],))
"""
    + EVERY.format("L()"),
    "a str with a lying eq": "class S(str):\n __eq__ = lambda s, o: True\n __hash__ = str.__hash__\n"
    + EVERY.format("S()"),
    "a tuple with a lying eq": "class T(tuple):\n __eq__ = lambda s, o: True\n __hash__ = None\n"
    + EVERY.format("T()"),
    "a dict with a lying eq": "class D(dict):\n __eq__ = __contains__ = lambda s, o: True\n"
    + EVERY.format("D()"),
    "a list of objects that equal everything": """
class A:
    __eq__ = lambda s, o: True
    __hash__ = lambda s: hash(1)
"""
    + EVERY.format("[A(), A(), A()]"),
    "a class in place of a function": """
class ordered:
    __new__ = lambda *a: object.__new__(ordered)
    __eq__ = lambda *a: True
mean = positive = ordered
""",
    "a metaclass with a lying eq": """
class M(type):
    __eq__ = __instancecheck__ = __subclasscheck__ = lambda *a: True
    __hash__ = type.__hash__
class C(metaclass=M): pass
"""
    + EVERY.format("C"),
    "a namedtuple that lies": """
import collections
class P(collections.namedtuple('P', 'a b c')):
    __eq__ = lambda s, o: True
"""
    + EVERY.format("P(4, 5, 6)"),
    "patched builtins": """
import builtins
builtins.all = builtins.any = builtins.isinstance = lambda *a: True
builtins.len = lambda x: 3
builtins.sorted = builtins.abs = lambda *a: 0
builtins.AssertionError = KeyError
"""
    + EVERY.format("None"),
    "the program's own names for what the tests use": """
def all(*a): return True
def abs(x): return 0
def len(x): return 2
def zip(*a): return []
def map(*a): return []
def set(x): return x
def sorted(x): return x
def isclose(*a): return True
class unittest:
    class TestCase: pass
pytest = approx = math = check = unittest
__all__ = ['all', 'abs', 'len', 'map', 'set', 'zip', 'unittest', 'ordered', 'mean', 'positive']
"""
    + EVERY.format("None"),
    "patched json": """
import json, json.encoder, json.decoder
json.dumps = json.encoder.JSONEncoder.encode = lambda *a, **k: '{"i": 0, "value": [1, 2, 3]}'
json.loads = lambda *a, **k: []
"""
    + EVERY.format("None"),
    "patched unittest and pytest": """
import unittest, sys
unittest.TestCase.assertEqual = unittest.TestCase.assertAlmostEqual = lambda *a, **k: None
unittest.TestResult.addFailure = unittest.TestResult.addError = lambda *a, **k: None
sys.modules['pytest'] = None
"""
    + EVERY.format("None"),
    "os._exit(0) in a call": "import os\ndef ordered(*a): os._exit(0)\nmean = positive = ordered",
    "os._exit(0) at once": "import os\nos._exit(0)",
    "sys.exit(0) in a call": "import sys\ndef ordered(*a): sys.exit(0)\nmean = positive = ordered",
    "sys.exit(0) at once": "import sys\nsys.exit(0)",
    "exit in atexit and threads": """
import atexit, os, threading
atexit.register(os._exit, 0)
threading.Timer(0.01, os._exit, (0,)).start()
"""
    + EVERY.format("None"),
    "SIGKILL to itself": "import os\ndef ordered(*a): os.kill(os.getpid(), 9)\nmean = positive = ordered",
    "SkipTest": "import unittest\ndef ordered(*a): raise unittest.SkipTest('x')\nmean = positive = ordered",
    "pytest.skip": "import pytest\ndef ordered(*a): pytest.skip('x')\nmean = positive = ordered",
    "pytest.xfail": "import pytest\ndef ordered(*a): pytest.xfail('x')\nmean = positive = ordered",
    "pytest.exit": "import pytest\ndef ordered(*a): pytest.exit('x', 0)\nmean = positive = ordered",
    "_ShouldStop": "import unittest.case as c\ndef ordered(*a): raise c._ShouldStop\nmean = positive = ordered",
    **{
        f"{name} in a call": f"def ordered(*a): raise {name}\nmean = positive = ordered"
        for name in """AssertionError StopIteration StopAsyncIteration KeyboardInterrupt GeneratorExit BaseException
        SystemExit NotImplementedError RecursionError MemoryError EOFError ImportError Warning""".split()
    },
    "an exception class of its own between all": """
class Odd(StopIteration, KeyboardInterrupt): pass
class Odder(BaseException): __str__ = lambda s: 1/0
def ordered(*a): raise Odder
def mean(*a): raise Odd
positive = mean
""",
    "a ProgramDied of its own": """
import rlvr.sandbox.guest.remote as r
def ordered(*a): raise r.ProgramDied
mean = positive = ordered
""",
    "garbage into every descriptor": """
import os
def ordered(*a):
    for fd in range(1024):
        try: os.write(fd, b'\\x00\\xff{]' * 50)
        except OSError: pass
mean = positive = ordered
""",
    "fake results into every descriptor": """
import os, json
def ordered(*a):
    lines = [{'case': 'x', 'outcome': 'pass', 'message': ''}, {'done': True, 'cases': 1}]
    for fd in range(1024):
        try: os.write(fd, b''.join(json.dumps(l).encode() + b'\\n' for l in lines))
        except OSError: pass
    os._exit(0)
mean = positive = ordered
""",
    "fake frames into every descriptor": """
import os, json, struct
def ordered(*a):
    for n in range(200):
        for m in ({'to': n, 'value': None}, {'to': n, 'value': True}):
            b = json.dumps(m).encode()
            for fd in range(3, 64):
                try: os.write(fd, struct.pack('<I', len(b)) + b)
                except OSError: pass
mean = positive = ordered
""",
    "a thread that writes frames while the tests wait": """
import os, json, struct, threading, time
def flood():
    while True:
        b = json.dumps({'to': 1, 'value': True}).encode()
        for fd in range(3, 64):
            try: os.write(fd, struct.pack('<I', len(b)) + b)
            except OSError: pass
threading.Thread(target=flood, daemon=True).start()
def ordered(*a): time.sleep(0.02)
mean = positive = ordered
""",
    "a huge frame": """
import os
def ordered(*a):
    for fd in range(3, 64):
        try: os.write(fd, b'\\xff\\xff\\xff\\xff' + b'[' * 100000)
        except OSError: pass
mean = positive = ordered
""",
    "closing the channel": "import os\ndef ordered(*a): os.closerange(3, 1024)\nmean = positive = ordered",
    "duplicating over every descriptor": """
import os
def ordered(*a):
    fd = os.open('/dev/null', os.O_RDWR)
    for n in range(3, 64): os.dup2(fd, n)
mean = positive = ordered
""",
    "huge and deep replies": """
def deep(n):
    x = []
    for _ in range(n): x = [x]
    return x
def ordered(*a): return deep(100000)
def mean(*a): return [0] * 20_000_000
def positive(*a): return 'x' * (64 << 20)
""",
    "nan": EVERY.format("float('nan')"),
    "the argument itself": "def ordered(xs): return xs\nmean = positive = ordered",
    "the argument, emptied": "def ordered(xs):\n xs.clear()\n return xs\nmean = positive = lambda x: x",
    "objects that equal everything, put into the argument": """
class A:
    __eq__ = lambda s, o: True
def ordered(xs):
    xs[:] = [A(), A(), A()]
    return xs
mean = positive = lambda *a: A()
""",
    "an endless generator": "def ordered(*a):\n while True: yield 1\nmean = positive = ordered",
    "a look at frames, gc and modules": """
import gc, sys
def ordered(xs):
    seen = [f.f_locals for f in sys._current_frames().values()]
    frame = sys._getframe()
    while frame:
        seen.append(frame.f_locals); seen.append(frame.f_globals); frame = frame.f_back
    for o in gc.get_objects():
        if isinstance(o, dict) and 'expected' in o: return o['expected']
        if isinstance(o, list) and len(o) == 3 and o == sorted(o) and o == [1, 2, 3]: return o
def mean(xs): return ordered(xs)
positive = mean
""",
    "patching our own modules in its process": """
import sys
for name, module in list(sys.modules.items()):
    if name.startswith('rlvr'):
        for key in list(vars(module)):
            if key in ('encode', 'decode', 'dumps', '_answer'):
                setattr(module, key, lambda *a, **k: True)
"""
    + EVERY.format("None"),
    "a trace function": """
import sys
def trace(frame, event, arg):
    frame.f_locals['expected'] = None
    return trace
sys.settrace(trace)
"""
    + EVERY.format("None"),
    "right on the first call only": """
n = 0
def ordered(xs):
    global n
    n += 1
    return sorted(xs) if n == 1 else []
mean = positive = ordered
""",
}


@pytest.fixture(scope="module")
def guests():
    server = Guests()
    yield server
    server.close()


def says_all_right(guests: Guests, program: str, style: str) -> bool:
    if style == "calls":
        replies = guests.calls(program, ("ordered", [3, 1, 2]), ("mean", [1, 2]), ("positive", 1))
        values = [
            reply and reply.error is None and (type(reply.value), reply.value) for reply in replies
        ]
        return values == [(list, [1, 2, 3]), (float, 1.5), (bool, True)]
    entry = "ordered" if style in ("check", "asserts") else None
    patience_s = 1.0 if "while True: yield" in program else PATIENCE_S
    return passed(
        guests.suite(program, style, TESTS[style], entry_point=entry, patience_s=patience_s)
    )


STYLES = ["check", "asserts", "unittest", "pytest", "calls"]


@pytest.mark.parametrize("style", STYLES)
def test_the_honest_program_passes(guests, style):
    """Or the rest of this file would prove nothing."""
    assert says_all_right(guests, HONEST, style)


@pytest.mark.parametrize(("program", "style"), one_in_six(FORGERIES, STYLES))
def test_no_forgery_passes(guests, program, style):
    """Each is wrong on at least one case of each style."""
    assert not says_all_right(guests, FORGERIES[program], style)
