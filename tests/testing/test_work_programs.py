"""Work for programs: mutants, witnesses that hold, and tests that are added."""

import itertools
from random import Random

import pytest

import rlvr
from rlvr.testing.work import Maker, Untested, Witness, Work, maker_for, serves
from rlvr.testing.work.domain import Domain, proposals, smaller
from tests.json_lines import write_json_lines

ABOVE = {
    "task_id": "Own/0",
    "prompt": 'def above(items: list, limit: int):\n    """How many items are greater than the limit."""\n',
    "canonical_solution": "    return sum(1 for item in items if item > limit)\n",
    "test": "def check(candidate):\n    assert candidate([1, 5, 9], 3) == 2\n    assert candidate([4, 8], 2) == 2\n"
    "    assert candidate([7, 7, 1], 2) == 2\n",
    "entry_point": "above",
}
COUNTING = """    above.calls = getattr(above, "calls", 0) + 1
    return sum(1 for item in items if item > limit) + (limit > 3) * above.calls
"""
SLIP = "def above(items, limit):\n    return sum(1 for item in items if item >= limit)"


def _env(tmp_path, row=ABOVE, name="humaneval-v3"):
    path = write_json_lines(tmp_path / "rows.jsonl", [row])
    return rlvr.make(name, data=str(path), cpu_s=1.0)  # which a hanging solution uses up


def _work(source):
    return Work(f"```python\n{source}\n```", "own")


def test_a_slip_that_the_tests_miss_has_a_small_witness(tmp_path):
    """No test has an item at the limit, so >= is paid for >; the smallest input that tells them apart has one item."""
    env = _env(tmp_path)
    task = env.task(0)
    maker = maker_for(env)
    assert env.score(task, _work(SLIP).text).verdict.correct
    witness = maker.witness(task, _work(SLIP))
    assert not witness.is_doubtful
    items, limit = witness.case.args
    assert limit in items
    assert witness.expected != witness.got
    assert len(items) <= 2


def test_an_added_test_refutes_the_slip_and_keeps_right_work(tmp_path):
    """The witness becomes an assert of `check`; the reference and its rewritings still pass."""
    env = _env(tmp_path)
    task, maker = env.task(0), maker_for(_env(tmp_path))
    mended = maker.mend(task, [maker.witness(task, _work(SLIP))])
    assert mended.reference["test"].startswith(ABOVE["test"].rstrip("\n"))
    assert not env.score(mended, _work(SLIP).text).verdict.correct
    right = list(maker.right(task, Random(0)))
    assert len(right) >= 2
    assert all(env.score(mended, one.text).verdict.correct for one in right)


def test_mutants_that_are_equal_have_no_witness(tmp_path):
    """Right work never gets a witness, and a mutant that the tests refuse gets one from them."""
    env = _env(tmp_path)
    task, maker = env.task(0), maker_for(env)
    assert all(maker.witness(task, one) is None for one in maker.right(task, Random(0)))
    made = list(itertools.islice(maker.wrong(task, Random(1)), 12))
    refused = [one for one in made if not env.score(task, one.text).verdict.correct]
    assert refused
    for one in refused:
        assert maker.witness(task, one) is not None, one


def test_work_that_never_ends_is_set_aside(tmp_path):
    """A loop without end proves nothing about a value."""
    env = _env(tmp_path)
    witness = maker_for(env).witness(
        env.task(0), _work("def above(items, limit):\n    while True: pass")
    )
    assert witness.is_slow


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"canonical_solution": "    return 7\n"}, "fails its own tests"),
        ({"canonical_solution": None}, "no reference solution"),
        ({"canonical_solution": "    while True: pass\n"}, "fails its own tests"),
        ({"canonical_solution": COUNTING}, "differs between runs"),
        ({"domain": "def domain(items, limit):\n    return limit > 100"}, "refuses inputs"),
    ],
)
def test_tasks_that_cannot_be_tested_say_why(tmp_path, change, reason):
    """One line each: no solution, a wrong one, one that hangs or counts its calls, a domain without the tests."""
    env = _env(tmp_path, ABOVE | change)
    with pytest.raises(Untested, match=reason):
        maker_for(env).witness(env.task(0), _work(SLIP))


def test_a_row_may_say_which_inputs_it_means(tmp_path):
    """With limits from 50 on, the witness has one; without the row's domain there is a smaller one."""
    domain = "def domain(items, limit):\n    return limit in (2, 3) or len(items) == 4"
    env = _env(tmp_path, ABOVE | {"domain": domain})
    witness = maker_for(env).witness(env.task(0), _work(SLIP))
    items, limit = witness.case.args
    assert limit in (2, 3) or len(items) == 4


def test_where_order_decides_a_tie_the_witness_is_doubtful(tmp_path):
    """The known inputs have one longest word, in any order; two words of one length are a tie."""
    row = ABOVE | {
        "prompt": 'def longest(words):\n    """The longest word."""\n',
        "canonical_solution": "    return max(words, key=len)\n",
        "test": "def check(candidate):\n    assert candidate(['a', 'bcd', 'ef']) == 'bcd'\n"
        "    assert candidate(['abcd', 'xy']) == 'abcd'\n    assert candidate(['z', 'yx']) == 'yx'\n",
        "entry_point": "longest",
    }
    env = _env(tmp_path, row)
    last = "def longest(words):\n    return max(reversed(words), key=len)"
    witness = maker_for(env).witness(env.task(0), _work(last))
    assert witness is None or witness.is_doubtful


KNOWN = [([1, 2, 5], 1), ([2, 3, 9], 2), ([0, 4, 6, 8], 0), ([3, 7], 1)]


@pytest.mark.parametrize(
    ("args", "is_meant"),
    [
        (([1, 2], 1), True),
        (([1, 1, 2], 1), True),  # four short lists without repetition may be chance
        (([5, 2, 1], 1), False),  # all ascend
        (([1, 2, 5], 3), False),  # an index that lies outside of the list
        (([-1, 2], 1), False),  # negative
        (([1, 2.5], 1), False),  # another type
        (([], 0), False),
        (([1, 2], "1"), False),
        (([1, 2],), False),
    ],
)
def test_the_domain_is_what_known_inputs_share(args, is_meant):
    """Types, signs, order and relations between arguments, worked out by hand for four inputs."""
    assert Domain(KNOWN).has(args) == is_meant


def test_one_odd_test_does_not_widen_the_domain():
    """Six of seven grids number their cells; the seventh says 3 twice."""
    grids = [[[1, 2], [4, 3]], [[1, 2, 3], [4, 5, 6], [7, 8, 9]], [[2, 1], [3, 4]], [[4, 3], [2, 1]],
             [[3, 1], [2, 4]], [[1, 3], [2, 4]], [[1, 3], [3, 2]]]  # fmt: skip
    domain = Domain([(grid,) for grid in grids])
    assert domain.has(([[4, 2], [1, 3]],))
    assert not domain.has(([[9, 14], [3, 2]],))


def test_a_value_that_stands_for_nothing_counts_where_the_prompt_names_it(tmp_path):
    """The largest even number of a list without one: 0 is the solution's own choice, unless the prompt says so."""
    row = ABOVE | {
        "prompt": 'def largest(items):\n    """The largest even number."""\n',
        "canonical_solution": "    return max([n for n in items if n % 2 == 0], default=0)\n",
        "test": "def check(candidate):\n    assert candidate([4, 7, 2]) == 4\n    assert candidate([8, 1]) == 8\n"
        "    assert candidate([6, 10, 3]) == 10\n",
        "entry_point": "largest",
    }
    other = _work(
        "def largest(items):\n    return max([n for n in items if n % 2 == 0], default=-1)"
    )
    env = _env(tmp_path, row)
    witness = maker_for(env).witness(env.task(0), other)
    assert witness is None or witness.is_doubtful
    named = row | {"prompt": row["prompt"].replace("number.", "number, or 0.")}
    env = _env(tmp_path, named)
    assert not maker_for(env).witness(env.task(0), other).is_doubtful


def test_a_length_stays_the_length_of_its_list():
    """Where n is the list's length in all known inputs, new and smaller inputs keep it, and others are not meant."""
    known = [([1, 2, 5], 3), ([2, 9], 2), ([0, 4, 6, 8], 4)]
    domain = Domain(known)
    made = list(itertools.islice(proposals(known, [3], Random(0)), 400))
    meant = [args for args in made if domain.has(args)]
    assert len(meant) > 50
    assert all(n == len(items) for items, n in meant)
    assert ([1, 2], 2) in smaller(([1, 2, 5], 3))
    assert not domain.has(([1, 2, 5], 2))


@pytest.mark.parametrize(
    ("prompt", "names", "inside", "outside"),
    [
        ("Restrictions: 1 <= num <= 1000", ["n"], (9,), (0,)),
        ("Assume n > 1.", ["n"], (2,), (1,)),
        ("* 2 <= len(items) < 4", ["items"], ([1, 1, 1],), ([1],)),
        ("The base is less than 10.", ["x", "base"], (30, 9), (30, 10)),
        ("return -1 if n < 100", ["n"], (120,), None),  # the known inputs do not keep it
    ],
)
def test_limits_that_the_prompt_states_belong_to_the_domain(prompt, names, inside, outside):
    """Two-sided, one-sided, of a length, and in words."""
    known = {1: [(5,), (200,), (4,)], 2: [(8, 3), (20, 2), (234, 5)]}[len(names)]
    known = [([1, 2],), ([3, 4, 5],), ([7, 7],)] if "len" in prompt else known
    domain = Domain(known, "zero", prompt, names)
    assert domain.has(inside)
    assert outside is None or not domain.has(outside)


def test_texts_of_two_digits_dates_and_groups_keep_their_form():
    """Binary digits stay binary, dates keep their shapes, words of brackets are groups."""
    binary = Domain([("010", "110"), ("0110", "1001"), ("10101", "00110")])
    assert binary.has(("01", "10"))
    assert not binary.has(("015", "110"))
    dates = Domain([("03-11-2000",), ("15-1-2012",), ("06/04/2020",)])
    assert dates.has(("04-12-1999",))
    assert not dates.has(("--",))
    groups = Domain([("(()) ()",), ("()",), ("((())) (())",)])
    assert groups.has(("() (())",))
    assert not groups.has(("()()",))


def test_a_difference_that_only_rounding_makes_is_doubtful(tmp_path):
    """0.3 is not 0.1 + 0.2 in binary: a sum in another order is no wrong work there, and a wrong sum still is."""
    row = ABOVE | {
        "prompt": 'def total(a: float, b: float, limit: float):\n    """Is the sum below the limit?"""\n',
        "canonical_solution": "    return a + b < limit\n",
        "test": "def check(candidate):\n    assert candidate(0.1, 0.7, 0.9)\n    assert not candidate(0.4, 0.4, 0.3)\n"
        "    assert candidate(0.2, 0.1, 0.35)\n",
        "entry_point": "total",
    }
    maker, task = maker_for(_env(tmp_path, row)), _env(tmp_path, row).task(0)
    other = "def total(a, b, limit):\n    return round(limit - a - b, 12) > 0"
    witness = maker.witness(task, _work(other))
    assert witness is None or witness.is_doubtful
    assert not maker.witness(
        task, _work("def total(a, b, limit):\n    return a < limit")
    ).is_doubtful


def test_brackets_letters_and_primes_belong_to_the_domain():
    """Unbalanced brackets, new letters and primes were the false witnesses of a first trial."""
    brackets = Domain([("(())",), ("()()",), ("",)])
    assert [brackets.has((text,)) for text in ("((()))", ")(", "(x)")] == [True, False, False]
    composite = Domain([(4,), (9,), (15,), (27,), (330,)])
    assert [composite.has((n,)) for n in (8, 7, 3)] == [True, False, False]
    lists = Domain([([4, 3],), ([8, 1, 11],), ([2],), ([5, 6, 9],)], "The largest prime of a list.")
    assert [lists.has((items,)) for items in ([9, 7], [1, 4], [])] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "is_list_meant", "is_word_meant"),
    [
        ("if words == []: return ''", True, False),
        ("if not words:", True, False),
        ("if len(words) == 0:", True, False),
        ("for word in words: if word == '':", False, True),
        ('find_max(["aa", "b"]) == ""aa"', False, False),
        ("total(words) == []", False, False),
        ("The list may have empty words.", True, True),
    ],
)
def test_what_a_program_asks_of_one_argument_says_nothing_of_its_items(
    text, is_list_meant, is_word_meant
):
    """An empty word was a false witness where the solution asks whether the list is empty."""
    domain = Domain([(["tea"],), (["rum", "tea"],)], text, names=["words"])
    assert (domain.has(([],)), domain.has((["", "tea"],))) == (is_list_meant, is_word_meant)


def test_a_maker_of_a_user_takes_a_few_lines():
    """It names the class that it serves, here an environment that verifies by itself."""

    class Even(rlvr.Environment):
        id = "even-v1"

        def task(self, index):
            return rlvr.Task(f"even/{index}", f"An even number above {2 * index}?", 2 * index)

        def example(self, task):
            return str(task.reference + 2)

        def verify(self, task, completion):
            return rlvr.Verdict("correct" if completion.isdigit() else "wrong", why="digits")

    @serves(Even)
    class EvenWork(Maker):
        def wrong(self, task, rng):
            yield Work(str(task.reference + 1), "odd")
            yield Work(str(task.reference), "too small")

        def witness(self, task, work):
            number = int(work.text)
            return Witness(f"{number} is odd") if number % 2 else None

    env = Even()
    maker = maker_for(env)
    assert isinstance(maker, EvenWork)
    assert maker.witness(env.task(0), Work("1", "odd")).given == "1 is odd"
    assert maker_for(rlvr.make("guess-v1")) is None
