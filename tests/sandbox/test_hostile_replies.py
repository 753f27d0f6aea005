"""Replies that are cheap to write and were dear to read: what the host pays is in proportion to their length."""

from __future__ import annotations

import contextlib
import time
from fractions import Fraction

import pytest

from benchmarks.hostile_replies import FAMILIES, LEAST, cost, replies
from rlvr.sandbox import Limits, Program
from rlvr.sandbox.guest import reading
from rlvr.sandbox.guest.calls import read_replies
from rlvr.sandbox.guest.reading import read
from rlvr.sandbox.guest.values import BYTES, BadValue, NotAValue
from rlvr.sandbox.guest.writing import write
from rlvr.verifiers.code import CallCase, judge
from rlvr.verifiers.code.shared import shared_sandbox

S_PER_MB = (
    2.0  # ten times the goal, which the study of 10,000 replies holds: this machine may be loaded
)


def test_generated_replies_are_read_in_linear_time():
    """Two of each kind and size; whatever is in them, reading raises nothing.

    The least of three counts: at any time Python may look for garbage among all that other tests left behind.
    """
    for name, data in replies(20 * len(FAMILIES), seed=1, most=1 << 19):
        allowed = S_PER_MB * max(LEAST, len(data)) / 1e6
        assert any(cost(data)[0] < allowed for _ in range(3)), (name, data[:100])


@pytest.mark.parametrize("digits", [99, 1999, 3999, 4000, 100_000])
def test_runs_of_digits_in_strings_are_no_numbers(digits):
    """Texts of just under 4,000 digits took quadratic time: seven seconds for a megabyte, with the GIL held."""
    one = b'"' + b"1" * digits + b'"'
    data = b'[0,"value",[' + b",".join([one] * (1_000_000 // digits)) + b"]]\n"
    took, reply = cost(data)
    assert reply is not None
    assert reply.value[0] == "1" * digits
    assert took < 1


def test_numbers_of_many_digits_are_refused():
    """int() of many digits is slow where its limit is switched off; long ints are sent in hex."""
    with pytest.raises(BadValue, match="more than 100 digits"):
        read(b"[" + b"1" * 101 + b"]")
    assert read(b'[{"int":"0x' + b"f" * 100_000 + b'"}]') == [16**100_000 - 1]


@pytest.mark.parametrize("times", [1, 20])
def test_honest_keys_that_are_slow_to_hash_are_read_on_a_slow_machine(times, monkeypatch):
    """A clock that runs fast is a machine that runs slow: it told honest fractions from colliding ones wrongly."""
    monkeypatch.setattr(reading, "thread_time", lambda: times * time.thread_time())
    fractions, ints = {Fraction(1, i) for i in range(1, 3000)}, set(range(0, 300_000, 7))
    for value in (
        fractions,
        {(x, i): i for i, x in enumerate(fractions)},
        ints,
        [{*range(100)} for _ in range(500)],
    ):
        assert read(write(value)) == value


def walk(n: int) -> list[int]:
    """Keys along a hash table's own sequence of places, and then keys that walk along it; all hashes differ."""
    places, at, keys = 1 << (2 * n).bit_length(), 1, []
    for _ in range(n // 2):
        keys.append(at)
        at = (at * 5 + 1) % places
    return keys + [(k << 40) + 1 for k in range(1, n // 2)]


@pytest.mark.parametrize("tag", ["set", "frozenset", "dict"])
def test_keys_that_share_a_way_through_a_table_are_stopped(tag):
    """There is no need for equal hashes to make a hash table slow."""
    keys = walk(200_000)
    items = keys if tag != "dict" else [x for key in keys for x in (key, 0)]
    data = f'{{"{tag}":{items}}}'.encode().replace(b" ", b"")
    began = time.thread_time()
    with (
        pytest.raises(BadValue, match="collide") if tag == "dict" else contextlib.suppress(BadValue)
    ):
        read(data)  # a set goes another way
    assert time.thread_time() - began < S_PER_MB * len(data) / 1e6


@pytest.mark.parametrize("n", [10, 1000, 50_000])
def test_honest_tables_are_not_stopped(n):
    """Texts, numbers in order, numbers far apart and tuples."""
    for keys in (
        [str(k) for k in range(n)],
        list(range(n)),
        [k * 7919 for k in range(n)],
        [k + 0.5 for k in range(n)],
    ):
        assert read(str({"set": keys}).encode().replace(b"'", b'"')) == set(keys)


def test_a_budget_covers_all_replies_of_a_run():
    """What is beyond it is an error of the program, in its place; what came before counts."""
    line = b'[%d,"value","' + b"x" * (BYTES - 100) + b'"]\n'
    found = read_replies(b"".join(line % i for i in range(3)) + b'[3,"value",1]\n', 4)
    assert [reply and reply.error and reply.error[0] for reply in found] == [
        None,
        None,
        "NotAValue",
        None,
    ]
    with pytest.raises(NotAValue, match="too large"):
        read(b" " * (BYTES + 1))


@pytest.mark.parametrize(
    "value",
    [
        "['1' * 3999] * 1000",
        "'x' * (40 << 20)",
        "[0] * 3_000_000",
        "{k << 40 for k in range(50_000)}",
        "[[]] * 10**5",
    ],
)
def test_a_reply_that_is_dear_is_a_wrong_answer(value):
    """Never our failure, and no wait: the old reader took a minute for the first, which was UNSCORED."""
    program = Program("python", f"def f(): return {value}\ndef g(): return 1")
    cases = [CallCase("f", (), {}, 5), CallCase("g", (), {}, 1)]
    began = time.process_time()
    found = judge(
        program, cases, sandbox=shared_sandbox(workers=1), limits=Limits(cpu_s=10), stop=False
    )
    assert [str(case.verdict) for case in found.cases] == ["WA", "AC"]
    assert time.process_time() - began < 20
