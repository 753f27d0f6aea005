"""The judge over the real sandbox: both ways to judge asserts agree, honest programs pass, forged passes do not."""

from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import pytest

from rlvr.errors import SandboxFailed
from rlvr.sandbox import Limits, Program, Sandbox, TestSuite
from rlvr.verifiers.code import CallCase, CodeVerifier, Equality, Floats, StdioCase, judge
from rlvr.verifiers.code.asserts import split
from rlvr.verifiers.code.shared import shared_sandbox
from tests.processes import one_in_six

LIMITS = Limits(cpu_s=2, wall_s=6)


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return shared_sandbox(workers=1)


@pytest.fixture(scope="module")
def with_pytest() -> Sandbox:
    return shared_sandbox(workers=1, packages=("pytest",))


def python(source: str) -> Program:
    return Program("python", source)


# ------------------------------------------------------------------------------- asserts, both ways

ASSERTS = "assert f(3) == [1, 2, 3]\nassert f(0) == []"
LEFT_WHOLE = "\nassert f(0) or True"  # no plain form, and so all of it runs in the tests process

PROGRAMS = {
    "right": ("def f(n): return list(range(1, n + 1))", True),
    "wrong": ("def f(n): return list(range(n))", False),
    "right at first": ("def f(n): return [1, 2, 3]", False),
    "a tuple": ("def f(n): return tuple(range(1, n + 1))", False),
    "a range": ("def f(n): return range(1, n + 1)", False),
    "a generator": ("def f(n):\n    yield from range(1, n + 1)", False),
    "a map": ("def f(n): return map(int, range(1, n + 1))", False),
    "dict keys": ("def f(n): return dict.fromkeys(range(1, n + 1)).keys()", False),
    "a list of its own": ("class L(list): pass\ndef f(n): return L(range(1, n + 1))", True),
    "floats": ("def f(n): return [float(i) for i in range(1, n + 1)]", True),
    "booleans": ("def f(n): return [i == 1 or i for i in range(1, n + 1)]", True),
    "raises": ("def f(n): raise ValueError(n)", False),
    "raises the wrong thing": ("def f(n): raise AssertionError", False),
    "skips": ("import unittest\ndef f(n): raise unittest.SkipTest", False),
    "exits": ("import sys\ndef f(n): sys.exit(0)", False),
    "ends": ("import os\ndef f(n): os._exit(0)", False),
    "ends at once": ("import os\nos._exit(0)", False),
    "exits at once": ("import sys\nsys.exit(0)", False),
    "no such function": ("def g(n): return []", False),
    "no program": ("this is not Python", False),
    "prints": ("def f(n):\n    print(n)\n    return list(range(1, n + 1))", True),
    "remembers": ("s = []\ndef f(n):\n    s.append(n)\n    return list(range(1, n + 1)) if s[0] == 3 else 0", True),
    "a method": ("class Solution:\n    def f(self, n): return list(range(1, n + 1))", True),
    "a class": ("class f(list):\n    def __init__(self, n): super().__init__(range(1, n + 1))", True),
    "a lambda": ("f = lambda n: list(range(1, n + 1))", True),
    "None": ("def f(n): pass", False),
    "equal to all": ("class A:\n    def __eq__(self, o): return True\ndef f(n): return A()", False),
    "a list equal to all": ("class A(list):\n    def __eq__(self, o): return True\ndef f(n): return A()", False),
    "a list of things equal to all": (
        "class A(int):\n    def __eq__(self, o): return True\n    __hash__ = None\ndef f(n): return [A()] * n", False,
    ),
    "a number equal to all": ("class A(int):\n    def __eq__(self, o): return True\ndef f(n): return A()", False),
    "patched": ("import builtins\nbuiltins.list = lambda *a: 1\ndef f(n): return 1", False),
    "json patched": ("import json\njson.dumps = lambda *a, **k: '{}'\ndef f(n): return 1", False),
    "an old value": ("import gc\ndef f(n): return [o for o in gc.get_objects() if o == [1, 2, 3]][:1]", False),
    "in frames": ("import sys\ndef f(n):\n    return sys._getframe(1).f_locals.get('expected', [1, 2, 3])", False),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_asserts_taken_apart_and_asserts_run_whole_agree(sandbox: Sandbox, name: str):
    """As calls compared here, and in the tests process by Python itself."""
    source, right = PROGRAMS[name]
    apart = TestSuite("asserts", ASSERTS, entry_point="f")
    whole = TestSuite("asserts", ASSERTS + LEFT_WHOLE, entry_point="f")
    assert split(apart) is not None
    assert split(whole) is None
    verdicts = [
        judge(python(source), suite, sandbox=sandbox, limits=LIMITS).verdict
        for suite in (apart, whole)
    ]
    assert [verdict == "AC" for verdict in verdicts] == [right, right], verdicts
    assert "IE" not in verdicts


THEN = "assert sorted(f(3)) == [1, 2, 3]\nassert len(set(f(2))) == 2\nassert list(f(0)) == []\nassert sum(f(2)) == 3"


@pytest.mark.parametrize(
    ("source", "right"),
    [
        ("def f(n): return list(range(n, 0, -1))", True),
        ("def f(n):\n    yield from range(1, n + 1)", True),
        ("class A:\n    def __init__(s, n): s.n = n\n    def __iter__(s): return iter(range(1, s.n + 1))\nf = A", True),
        ("def f(n): return dict.fromkeys(range(1, n + 1))", True),
        ("def f(n): return range(n)", False),
        ("def f(n): return n", False),
        ("import builtins\nbuiltins.sorted = lambda x: [1, 2, 3]\nlen = sum = builtins.sorted\nf = str", False),
        ("class A(list):\n    __eq__ = lambda s, o: True\nf = lambda n: A()", False),
    ],
)  # fmt: skip
def test_functions_around_a_call_give_the_same_verdict_both_ways(
    sandbox: Sandbox, source: str, right: bool
):
    """Applied in the program's process, or by the tests."""
    for test in (THEN, THEN + LEFT_WHOLE):
        found = judge(
            python(source),
            TestSuite("asserts", test, entry_point="f"),
            sandbox=sandbox,
            limits=LIMITS,
        )
        assert found.accepted is right, found


TREE = """
class Node:
    def __init__(self, value): self.value, self.left, self.right = value, None, None
def depth(node): return 0 if node is None else 1 + max(depth(node.left), depth(node.right))
"""


@pytest.mark.parametrize("more", ["", "\nassert depth(None) or True"], ids=["apart", "whole"])
def test_objects_of_the_program_s_own_class_are_passed(sandbox: Sandbox, more: str):
    """Made in its process, by its class."""
    setup = "root = Node(1)\nroot.left = Node(2)\nroot.left.right = Node(3)"
    suite = TestSuite("asserts", "assert depth(root) == 3" + more, setup=setup, entry_point="depth")
    assert (split(suite) is None) == bool(more)
    assert judge(python(TREE), suite, sandbox=sandbox, limits=LIMITS).accepted
    for wrong in (TREE.replace("1 + max", "max"), "class Node: pass\ndepth = Node"):
        assert judge(python(wrong), suite, sandbox=sandbox, limits=LIMITS).verdict in ("WA", "RE")


# -------------------------------------------------------------------------------------- every style

CHECK = "def check(candidate):\n    i = 0\n    while i < 5:\n        assert candidate(i) == i * i\n        i += 1\n"
UNITTEST = """
import unittest
from solution import f

class Squares(unittest.TestCase):
    def test_small(self):
        self.assertEqual([f(i) for i in range(5)], [0, 1, 4, 9, 16])
    def test_large(self):
        self.assertEqual(f(1000), 1000000)
"""
PYTEST = """
import pytest
from solution import f

@pytest.mark.parametrize("i", range(5))
def test_square(i):
    assert f(i) == i * i
"""
STYLES = {
    "check": TestSuite("check", CHECK, entry_point="f"),
    "check, plain": TestSuite(
        "check", "def check(c):\n    assert c(3) == 9\n    assert c(4) == 16\n", entry_point="f"
    ),
    "asserts": TestSuite("asserts", "assert all(f(i) == i * i for i in range(5))", entry_point="f"),
    "asserts, loop": TestSuite(
        "asserts", "for i in range(5):\n    assert f(i) == i * i", entry_point="f"
    ),
    "asserts, near": TestSuite(
        "asserts", "assert abs(f(3) - 9) < 1e-6\nassert int(f(4)) == 16", entry_point="f"
    ),
    "asserts, plain": TestSuite("asserts", "assert f(3) == 9\nassert f(4) == 16", entry_point="f"),
    "unittest": TestSuite("unittest", UNITTEST),
    "pytest": TestSuite("pytest", PYTEST),
    "calls": [CallCase("f", (i,), {}, i * i) for i in range(5)],
    "stdio": [StdioCase(f"{i}\n", f"{i * i}\n") for i in range(2, 5)],
}
MAIN = "\nif __name__ == '__main__':\n    print(f(int(input())))\n"

FORGED = {
    "exit code 0": "import os\ndef f(n): os._exit(0)\n",
    "exit 0 at once": "raise SystemExit(0)\n",
    "the word": "print('PASS'); print('OK'); print('AC')\ndef f(n): return 0\n",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef f(n): return 0\n",
    "equal to all": """class A:
    def __eq__(self, o): return True
    def __ne__(self, o): return False
    def __bool__(self): return True
    def __getattr__(self, n): return A()
    def __iter__(self): return iter([A()] * 5)
    def __str__(self): return '9'
def f(n): return A()
""",
    "an int equal to all": """class A(int):
    def __eq__(self, o): return True
    def __ne__(self, o): return False
    __hash__ = int.__hash__
def f(n): return A(-1)
""",
    "every descriptor": """import os
def f(n):
    test = b'{"case": "a", "outcome": "pass", "message": ""}\\n{"done": true, "cases": 1}\\n'
    for line in (b'{"i": 0, "value": 9}\\n', test):
        for fd in range(3, 64):
            try: os.write(fd, line)
            except OSError: pass
    return -1
""",
    "patched unittest": """import unittest, sys
unittest.TestCase.assertEqual = lambda *a, **k: None
unittest.TestResult.wasSuccessful = lambda self: True
def f(n): return -1
""",
    "patched exit": "import sys, os\nsys.exit = os._exit = lambda *a: None\ndef f(n): return -1\n",
    "skips with pytest": "def f(n):\n    import pytest\n    pytest.skip('no')\n",
    "patched pytest": """def f(n):
    import pytest
    pytest.fail = pytest.raises = lambda *a, **k: None
    pytest.exit('done', 0)
""",
    "skips": "import unittest\ndef f(n): raise unittest.SkipTest('no')\n",
    "own poly": "check = lambda c: None\ncandidate = 1\ndef f(n): return -1\n",
    "no asserts": "import builtins\nbuiltins.AssertionError = KeyError\n__debug__ = 0\ndef f(n): return -1\n",
    "looking": """import gc, sys
def f(n):
    for frame in list(sys._current_frames().values()):
        while frame:
            for v in list(frame.f_locals.values()) + list(frame.f_globals.values()):
                if isinstance(v, (list, tuple)) and 16 in v: return v
            frame = frame.f_back
    return -1
""",
    "stops": "import os, signal\ndef f(n): os.kill(os.getpid(), signal.SIGSTOP)\n",
    "closes": "import os\ndef f(n):\n    os.closerange(0, 100)\n    return -1\n",
    "kills all": "import os\ndef f(n):\n    os.kill(-1, 9)\n",
}


@pytest.mark.parametrize("style", STYLES)
def test_an_honest_program_passes_every_style(with_pytest: Sandbox, style: str):
    """One program for all of them."""
    found = judge(
        python("def f(n):\n    return n * n\n" + MAIN),
        STYLES[style],
        sandbox=with_pytest,
        limits=LIMITS,
    )
    assert found.accepted, found.why
    assert found.fraction == 1


@pytest.mark.parametrize(("name", "style"), one_in_six(FORGED, STYLES))
def test_no_forged_pass(with_pytest: Sandbox, style: str, name: str):
    """Whatever it does, it has not squared anything; and none of it is our failure."""
    limits = Limits(cpu_s=1, wall_s=1)
    found = judge(
        python(FORGED[name] + MAIN),
        STYLES[style],
        sandbox=with_pytest,
        limits=limits,
        total_wall_s=1.5,
    )
    assert found.verdict not in ("AC", "IE"), found


def test_pytest_has_to_be_asked_for(sandbox: Sandbox):
    """A sandbox without it cannot run the tests, which says nothing about the program."""
    found = judge(
        python("def f(n):\n    return n * n\n"), STYLES["pytest"], sandbox=sandbox, limits=LIMITS
    )
    assert (found.verdict, found.why) == (
        "IE",
        "the suite: pytest is not installed in the sandbox; let it in with packages=('pytest',)",
    )


def test_a_program_that_ends_early_earns_no_partial_credit(sandbox: Sandbox):
    """It passes the first test of two, and then there is no telling how many there were."""
    source = "import os\ndef f(n):\n    if n > 100: os._exit(0)\n    return n * n\n"
    found = judge(python(source), STYLES["unittest"], sandbox=sandbox, limits=LIMITS, stop=False)
    assert (found.verdict, found.fraction) == ("RE", 0)


def test_partial_credit_counts_cases(sandbox: Sandbox):
    """Right below 3: three of five."""
    program = python("def f(n):\n    return n * n if n < 3 else 0\n" + MAIN)
    assert (
        judge(program, STYLES["calls"], sandbox=sandbox, limits=LIMITS, stop=False).fraction == 0.6
    )
    assert (
        judge(program, STYLES["unittest"], sandbox=sandbox, limits=LIMITS, stop=False).fraction == 0
    )


def test_a_death_in_a_call_costs_that_call(sandbox: Sandbox):
    """The rest is called in a new process."""
    program = python("import os\ndef f(n):\n    if n == 2: os.abort()\n    return n * n\n")
    found = judge(program, STYLES["calls"], sandbox=sandbox, limits=LIMITS, stop=False)
    assert [case.verdict for case in found.cases] == ["AC", "AC", "RE", "AC", "AC"]


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        ("while True: pass", "TLE"),
        ("import time\ntime.sleep(9)", "TLE"),
        ("x = bytearray(10**9)\nprint(len(x))", "MLE"),
        ("while True: print('x' * 10**6)", "OLE"),
        ("1 / 0", "RE"),
        ("import sys\nprint(4)\nsys.exit(1)", "RE"),
        ("print(", "CE"),
        ("print(5)", "WA"),
        ("print(int(input()) ** 2)", "AC"),
    ],
)
def test_every_verdict_comes_from_a_real_program(sandbox: Sandbox, source: str, verdict: str):
    """Standard input, standard output."""
    limits = Limits(cpu_s=1, wall_s=2, memory_mib=128, output_mib=4)
    assert (
        judge(python(source), [StdioCase("2\n", "4\n")], sandbox=sandbox, limits=limits).verdict
        == verdict
    )


def test_comparators_reach_the_cases(sandbox: Sandbox):
    """A third to six digits; tuples for lists; a sum in another order."""
    program = python("print('%.7f' % (1 / 3))")
    assert judge(program, [StdioCase("", "0.333333333333")], Floats(), sandbox=sandbox).accepted
    assert not judge(program, [StdioCase("", "0.333333333333")], sandbox=sandbox).accepted
    case = CallCase("f", (), {}, [0.3, [1]], equality=Equality(sequences=True, abs_tol=1e-9))
    assert judge(python("def f(): return 0.1 + 0.2, (1,)"), [case], sandbox=sandbox).accepted


def test_a_checker_program_judges_in_a_box_of_its_own(sandbox: Sandbox):
    """Any divisor will do; what is no number breaks the checker, and is the output's fault."""
    checker = python(
        "import sys\nn, d = int(open(sys.argv[1]).read()), int(open(sys.argv[2]).read())\n"
        "if 1 < d < n and n % d == 0: sys.exit(0)\nprint('no divisor', file=sys.stderr)\nsys.exit(1)"
    )
    cases = [StdioCase("15", "3"), StdioCase("77", "7")]
    assert judge(
        python("n = int(input())\nprint(n // 3 if n == 15 else 11)"),
        cases,
        checker,
        sandbox=sandbox,
    ).accepted
    wrong = judge(python("print(1)"), cases, checker, sandbox=sandbox)
    assert (wrong.verdict, wrong.why) == ("WA", "case 1: no divisor")
    assert judge(python("print('x')"), cases, checker, sandbox=sandbox).verdict == "WA"
    broken = python("import sys\nsys.exit(3)")
    assert judge(python("print(5)"), cases, broken, sandbox=sandbox).verdict == "IE"


def test_a_checker_in_cpp_is_compiled_once(sandbox: Sandbox):
    """What it reads lies beside its source, and is no reason to compile it again for each output."""
    made = []
    compile_ = sandbox._compiler._compile
    sandbox._compiler._compile = lambda name, argv, files, *more: (
        made.append(set(files)) or compile_(name, argv, files, *more)
    )
    try:
        checker = Program(
            "cpp",
            "#include <fstream>\nint main(int n, char **args) { int x, y; std::ifstream(args[2]) >> x;"
            " std::ifstream(args[3]) >> y; return x != y; }",
        )
        cases = [StdioCase(str(i), str(i + 1)) for i in range(3)]
        assert judge(python("print(int(input()) + 1)"), cases, checker, sandbox=sandbox).accepted
    finally:
        sandbox._compiler._compile = compile_
    assert made == [{"main.cpp"}]


def test_the_verifier_says_what_the_judge_found():
    """The same at each time, for records are replayed; nothing in it is a time."""
    verifier = CodeVerifier()
    reference = {"inputs": ["1\n", "5\n"], "outputs": ["2\n", "6\n"]}
    right = verifier.verify("```python\nprint(int(input()) + 1)\n```", reference)
    assert (right.outcome, right.value, right.why) == ("correct", 1.0, "AC")
    assert right.detail == {"verdict": "AC", "passed": 2, "cases": 2}
    wrong = verifier.verify("```python\nprint(2)\n```", reference)
    assert (wrong.outcome, wrong.value, wrong.why) == (
        "wrong",
        0.0,
        "WA: case 2: line 1: '2', not '6'",
    )
    assert wrong.reason == "WA"
    assert CodeVerifier(partial=True).verify("```python\nprint(2)\n```", reference).value == 0.5
    nothing = verifier.verify("I do not know.", reference)
    assert (nothing.outcome, nothing.why) == ("unparsed", "no-program")


def test_a_verifier_works_from_threads_and_travels():
    """Thirty-two at once in one process; a scorer ships it to workers, where a sandbox is made when it is needed."""
    verifier = cloudpickle.loads(cloudpickle.dumps(CodeVerifier(workers=2)))
    reference = {"inputs": ["1\n"], "outputs": ["2\n"]}

    def why(i: int) -> str:
        return verifier.verify(f"```python\nprint(int(input()) + {i % 2})\n```", reference).reason

    with ThreadPoolExecutor(32) as threads:
        assert list(threads.map(why, range(64))) == ["WA", "AC"] * 32


def test_a_process_has_one_sandbox_for_each_way_to_set_it_up():
    """Else each verifier would keep processes of its own in readiness."""
    assert shared_sandbox(workers=1) is shared_sandbox(workers=1)
    assert shared_sandbox(workers=1) is not shared_sandbox(workers=2)


def test_a_suite_that_is_broken_is_our_failure():
    """IE is no verdict: the verifier raises what becomes UNSCORED."""
    with pytest.raises(SandboxFailed, match="the tests"):
        CodeVerifier().verify(
            "```python\ndef f(): pass\n```", {"test": "import no_such_module\nassert f() == 1"}
        )
