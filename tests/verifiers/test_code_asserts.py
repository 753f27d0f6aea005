"""Plain asserts become calls; everything else is left to the tests process."""

import time
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.sandbox import TestSuite
from rlvr.sandbox.guest.writing import write
from rlvr.verifiers.code.asserts import name_entry_point, split
from rlvr.verifiers.code.cases import CallCase
from rlvr.verifiers.code.reading import judged_replies


def calls(
    test: str, style: str = "asserts", setup: str = "", entry_point: str | None = None
) -> list | None:
    found = split(name_entry_point(TestSuite(style, test, setup=setup, entry_point=entry_point)))
    return found and [(c.name, c.args, c.kwargs, c.rule, c.expected) for c in found]


@pytest.mark.parametrize(
    ("test", "call"),
    [
        ("assert f(x=1) == None", ("f", (), {"x": 1}, "equal", None)),
        ("assert f(1)", ("f", (1,), {}, "true", None)),
        ("assert not f(1)", ("f", (1,), {}, "false", None)),
        ("assert (f(1)) is True", ("f", (1,), {}, "is", True)),
        ("assert f(1) is None, 'why'", ("f", (1,), {}, "is", None)),
        ("assert f(1) == 2, 'not ' + str(f(1))", ("f", (1,), {}, "equal", 2)),  # made when it has failed
        ("assert f(-1, +2, -0.5) == -3", ("f", (-1, 2, -0.5), {}, "equal", -3)),
        ("assert f(3 * 5, 2 ** 10, 7 // 2, 1 / 4) == 5 % 3", ("f", (15, 1024, 3, 0.25), {}, "equal", 2)),
        ("assert f('a' + 'b', [0] * 3) == 'ab' * 2", ("f", ("ab", [0, 0, 0]), {}, "equal", "abab")),
        ("assert f({1, 2}, {'a': (1,)}, {}) == set()", ("f", ({1, 2}, {"a": (1,)}, {}), {}, "equal", set())),
        ("assert f(set([1]), tuple(), frozenset((1,))) == dict()", ("f", ({1}, (), frozenset({1})), {}, "equal", {})),
        ("assert f(float('inf')) == 1 + 2j", ("f", (float("inf"),), {}, "equal", 1 + 2j)),
        ("assert f(b'a', ..., None, True) == 'é'", ("f", (b"a", ..., None, True), {}, "equal", "é")),
        ("assert f(int, [str]) == float", ("f", (int, [str]), {}, "equal", float)),
        ("assert f(1) in (1, 2)", ("f", (1,), {}, "in", (1, 2))),
        ("x = [i ** 2 for i in range(4) if i % 2]\nassert f(x) == sum(x)", ("f", ([1, 9],), {}, "equal", 10)),
        ("import math\nassert f(math.sqrt(4), 'abc'[1:]) == str(max(1, 2))", ("f", (2.0, "bc"), {}, "equal", "2")),
        ("a, (b, c) = 1, (2, 3)\nassert f(a) == (b + c if a else 0)", ("f", (1,), {}, "equal", 5)),
        ("if 1 in [1] and not 0:\n    assert f(1 if 0 else 2) == 3", ("f", (2,), {}, "equal", 3)),
        ("'docs'\nMETA = {'a': [1]}\nimport math\npass\nassert True, 'a'\nassert f() == 1", ("f", (), {}, "equal", 1)),
    ],
)  # fmt: skip
def test_each_form_of_assert_becomes_the_call_that_says_the_same(test: str, call: tuple):
    """Arguments and expected values are literals, or come down to them."""
    assert calls(test) == [call]


@pytest.mark.parametrize(
    ("test", "case"),
    [
        ("assert sorted(f(1)) == [2]", CallCase("f", (1,), {}, [2], then=("sorted",))),
        ("assert 2 == len(set(f(1)))", CallCase("f", (1,), {}, 2, then=("set", "len"))),
        ("assert not list(f(1))", CallCase("f", (1,), {}, rule="false", then=("list",))),
        ("assert abs(f(1) - 0.5) < 1e-6", CallCase("f", (1,), {}, 0.5, "near", tolerance=1e-6)),
        ("assert abs(2 / 4 - f(1)) <= 1", CallCase("f", (1,), {}, 0.5, "near or at", tolerance=1)),
        (
            "import math\nassert math.fabs(f(1) - 2) < 1",
            CallCase("f", (1,), {}, 2, "near", tolerance=1),
        ),
        (
            "assert abs(round(f(1)) - 2) < 1",
            CallCase("f", (1,), {}, 2, "near", then=("round",), tolerance=1),
        ),
    ],
)
def test_functions_around_a_call_and_tolerances_are_kept(test: str, case: CallCase):
    """The functions are applied where the program runs; what is expected stays here."""
    assert split(name_entry_point(TestSuite("asserts", test))) == (case,)


NUMBERS = (
    st.sampled_from([1.4, 0.5, 1.5, True, Fraction(4, 3), 1 + 0.1j, float("nan")]) | st.floats()
)


@given(NUMBERS, st.sampled_from([0.0, 0.5, 1e-6, 1]))
def test_near_is_what_python_says(value, tolerance):
    """Of abs(value - 1.0) < tolerance, or <=."""
    apart = abs(value - 1.0)
    for rule, holds in (("near", apart < tolerance), ("near or at", apart <= tolerance)):
        case = CallCase("f", (), {}, 1.0, rule, tolerance=tolerance)
        assert case.holds(value) is holds
        assert not case.holds([value], listed=True)


PLAIN = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
)
LITERALS = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(PLAIN, inner, max_size=3)
        | st.sets(PLAIN, min_size=1, max_size=1)
    ),
    max_leaves=6,
)


@given(st.lists(LITERALS, max_size=3), LITERALS, st.booleans())
def test_any_literals_are_the_arguments_and_the_expected_value(args, expected, turned):
    """As `repr` writes them; an infinity, which it writes as a name, is the float of one."""
    scope = "inf = float('inf')\n"
    sides = [f"f({', '.join(map(repr, args))})", repr(expected)]
    [call] = calls(scope + "assert " + " == ".join(sides[::-1] if turned else sides))
    assert repr(call) == repr(("f", tuple(args), {}, "equal", expected))


@pytest.mark.parametrize("value", [10**5000, "1", Decimal(1), [1]], ids=range(4))
def test_a_value_that_cannot_be_near_is_wrong(value):
    """Decimal - float raises; the reader says that it is the value's fault."""
    case = CallCase("f", (), {}, 1.0, "near", tolerance=0.5)
    [(verdict, why, _)] = judged_replies([case], write([0, "value", value]) + b"\n", 0)
    assert verdict == "WA"
    assert "cannot be compared" in why


@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(0, 5))
def test_a_reading_begins_with_the_case_that_it_is_told(values, first):
    """Of a program that was started anew, those before have their verdicts already."""
    replies = b"".join(write([i, "value", value]) + b"\n" for i, value in enumerate(values))
    cases = [CallCase("f", expected=1)] * len(values)
    verdicts = [verdict for verdict, *_ in judged_replies(cases, replies, first)]
    assert verdicts == ["AC" if value == 1 else "WA" for value in values[first:]]


def test_loops_are_worked_out():
    """Each round is a case."""
    test = "for i, word in enumerate(['a', 'b']):\n    for n in range(2):\n        assert f(word, n) == word * (i + n)"
    assert calls(test) == [
        ("f", ("a", 0), {}, "equal", ""),
        ("f", ("a", 1), {}, "equal", "a"),
        ("f", ("b", 0), {}, "equal", "b"),
        ("f", ("b", 1), {}, "equal", "bb"),
    ]


def test_objects_that_the_program_is_given_are_made_there():
    """A tree out of the program's own class, as setup code builds it."""
    setup = "root = Node(1)\nroot.left = Node(2, key='a')\nroot.left.right = Node(3)"
    [case] = (
        split(
            TestSuite("asserts", "assert f(root, [Pair(4, 5)]) == 3", setup=setup, entry_point="f")
        )
        or []
    )
    root, [pair] = case.args
    left = root.attributes["left"]
    assert (root.name, root.args, left.args, left.kwargs, pair.args) == (
        "Node",
        [1],
        [2],
        {"key": "a"},
        [4, 5],
    )
    assert left.attributes["right"].args == [3]


def test_a_check_body_is_read_with_the_name_it_gives_the_function():
    """HumanEval's form; some files call the function by its own name, and `check` at their end."""
    body = "METADATA = {}\n\n\ndef check(candidate):\n    'docs'\n    assert candidate(1) == 2\n    assert f(2) == 3\n"
    wanted = [("f", (1,), {}, "equal", 2), ("f", (2,), {}, "equal", 3)]
    assert calls(body, "check", entry_point="f") == wanted
    assert calls(body + "\ncheck(f)\n", "check", entry_point="f") == wanted


OTHER_FORMS = [
    "",
    "x = 1",
    "assert True",
    "assert False",
    "assert f(1) != 2",
    "assert f(1) < 2",
    "assert f(1) == 2 == 2",
    "assert f(1) == f(1)",
    "assert f(g(1)) == 2",
    "assert f(*[1]) == 2",
    "assert f(**{'a': 1}) == 2",
    "assert f(x) == 2",
    "assert f(1)[0] == 2",
    "assert abs(f(1) - g(2)) < 1e-6",
    "assert abs(f(1) - 'a') < 1e-6",
    "assert sorted(f(1), key=len) == [2]",
    "sorted = print\nassert sorted(f(1)) == [2]",
    "assert map(str, f(1)) == [2]",
    "assert len('ab') == 2",  # Python's, not the program's
    "assert m.f(1) == 2",
    "assert f(1) == [x for x in range(10**9)]",
    "assert f(1) == [x for x in range(300) for y in range(400)]",
    "assert f(1) == sum([[1], [2]], [])",
    "assert f(1) == int('9' * 5000)",
    "assert f(1) == max([1, 2], key=abs)",
    "assert f(1) is 2",
    "assert f(1) is not None",
    "assert f(lambda: 1) == 2",
    "assert f(len) == 2",
    "int = 5\nimport int\nassert f(int) == 2",
    "assert f(x, 1) == Node(1)",
    "assert f(1) == Node(1)",
    "assert f(Decimal('1')) == 2",  # Python's own, if the tests need not import it
    "n = Node(1)\nn.next = n\nassert f(n) == 2",
    "n = Node(1)\nassert f(n) == 2\nassert f(n) == 2",  # the program may have changed it
    "x = [1]\nassert f(x) == 2\nassert f([x]) == 2",
    "x = [1]\ny = (x,)\nassert f(x) == 2\nassert f(1) == y",
    "assert f(f'{1}') == 2",
    "assert f(9 ** 99999999) == 2",
    "assert f('a' * 10**9) == 2",
    "assert f(1 / 0) == 2",
    "assert f({[]: 1}) == 2",
    "assert f('%s' % 1) == '1'",
    "for x in [1]:\n    assert f(x) == 2\nelse:\n    pass",
    "for x in f(1):\n    assert f(x) == 2",
    "for f in [1]:\n    assert f(1) == 2",
    "for x in range(10**6):\n    assert f(x) == 2",
    "if f(1):\n    assert f(1) == 2",
    "while True:\n    assert f(1) == 2",
    "try:\n    assert f(1) == 2\nexcept ValueError:\n    pass",
    "x = f(1)\nassert f(1) == 2",
    "print(f(1))\nassert f(1) == 2",
    "del f\nassert f(1) == 2",
    "from math import *\nassert f(1) == 2",
    "import math as max\nassert f(max(1, 2)) == 2",
    "import numpy\nassert f(1) == 2",  # which may not be there
    "from . import m\nassert f(1) == 2",
    "assert f(1) == 2\nassert g(x) == 2",
    "assert f(1) == 2\nassert g(1) == 2",  # a method of `class Solution` may stand for one function alone
    "assert f(1 == 2",
    "f = 1\nassert f(1) == 2",
    "assert f(1) == 2\nfrom math import f",
    "def f(x): return 2\nassert f(1) == 2",
    "def float(x): return x\nassert f(float('1')) == 2",
    "\ud800",
    "assert f(1) == " + "(" * 5000 + ")" * 5000,
    "assert f(" + "-" * 10**5 + "1) == 1",
]


def test_whatever_is_of_another_form_is_left_to_the_tests_process():
    """One statement is enough: the suite runs whole, or not at all."""
    for test in OTHER_FORMS:
        assert calls(test) is None, test


@pytest.mark.parametrize(
    "test",
    [
        "def check(candidate):\n    assert candidate(1) == 2\n\ndef check(candidate):\n    pass",
        "def check(candidate, more=1):\n    assert candidate(1) == 2",
        "def check(*candidate):\n    assert candidate(1) == 2",
        "def check(candidate):\n    candidate = 3\n    assert candidate(1) == 2",
        "def check(candidate):\n    f = 3\n    assert candidate(1) == 2",
        "@decorated\ndef check(candidate):\n    assert candidate(1) == 2",
        "def check(candidate):\n    assert candidate(1) == 2\nprint(1)",
        "def check(candidate):\n    assert candidate(1) == 2\ncheck(g)",
        "def other(candidate):\n    assert candidate(1) == 2",
        "async def check(candidate):\n    assert candidate(1) == 2",
        "assert f(1) == 2",
    ],
)
def test_a_check_of_another_form_is_left_to_the_tests_process(test: str):
    """What is called, with what, and how often, has to be beyond doubt."""
    assert calls(test, "check", entry_point="f") is None


def test_a_function_that_is_called_check_itself_is_left_to_the_tests_process():
    """The tests' own `check` hides it, whatever that makes of them."""
    test = "def check(candidate):\n    assert check('1') == 'Yes'\ncheck(check)"
    assert calls(test, "check", entry_point="check") is None


def test_trusted_names_come_before_the_programs():
    """A function that the setup defines is not the program's to define: the suite knows how to keep it so."""
    assert calls("assert f(1) == 2", setup="def f(x): return 2") is None
    assert calls("assert f(1) == 2", setup="from math import f") is None
    assert calls("assert f(1) == 2", setup="g(1)") is None
    assert calls("assert f(1) == 2", setup="import math\ndef helper(x): return x") is not None


def test_the_entry_point_may_have_a_builtins_name():
    """MBPP asks for a `sum` of its own."""
    assert calls("assert sum(1, 2) == 3") is None
    assert calls("assert sum(1, 2) == 3", entry_point="sum") == [("sum", (1, 2), {}, "equal", 3)]


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("assert f(g(1)) == 2", "f"),
        ("import g\nx = len(g(1))\nassert sorted(h(x))", "h"),
        ("def g(x): return x\nassert g(f(1)) == 2", "f"),
        ("assert m.f(1) == 2", None),
        ("assert f(", None),
    ],
)
def test_the_entry_point_is_the_first_function_that_nobody_defines(test: str, name: str | None):
    """The outermost one comes first; unless it is given."""
    assert name_entry_point(TestSuite("asserts", test)).entry_point == name
    assert name_entry_point(TestSuite("asserts", test, entry_point="e")).entry_point == "e"
    assert name_entry_point(TestSuite("unittest", test)).entry_point is None


def test_other_styles_are_not_looked_at():
    """A unittest file is a module of its own."""
    assert calls("assert f(1) == 2", "unittest") is None
    assert calls("assert f(1) == 2", "pytest") is None


def test_a_long_test_is_read_once():
    """20 completions of a task hold the same tests."""
    test = "\n".join(f"assert f({i}) == {i}" for i in range(2500))
    calls(test)
    start = time.process_time()
    for _ in range(100):
        assert split(name_entry_point(TestSuite("asserts", test)))
    assert time.process_time() - start < 0.5
    assert (
        split(name_entry_point(TestSuite("asserts", 10 * test + "\n"))) is None
    )  # it would fill the memory of past tests
