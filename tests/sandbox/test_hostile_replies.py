"""Replies and outputs that are cheap to write and dear to read: the reader pays or dies, and the caller does not notice."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.hostile_replies import FAMILIES, OUTPUTS, Cost, replies
from rlvr.errors import SandboxFailed, UsageError
from rlvr.sandbox import Limits, Program, ProgramCall
from rlvr.sandbox import reader as readers
from rlvr.sandbox.guest.calls import read_replies
from rlvr.sandbox.guest.values import BYTES
from rlvr.sandbox.outputs import Lent, Output
from rlvr.sandbox.reader import read_aside, read_each
from rlvr.verifiers.code import CallCase, CodeVerifier, judge
from rlvr.verifiers.code.compare import COMPARATORS
from rlvr.verifiers.code.reading import compare_outputs, judged_replies
from rlvr.verifiers.code.shared import shared_sandbox

LONG_SHAPE = """
import os
def f():
    line = b'[0,"value",{"array":["<i8",[' + b",".join([b"9" * 99] * 16000) + b'],[]]}]\\n'
    while line: line = line[os.write(4, line):]
    os._exit(0)
"""
HASHES = 2**61 - 1  # ints that differ by it have one hash


def many_types(n: int, case: int) -> bytes:
    """A reply whose every item has a class of its own, which takes a tenth of a millisecond to make."""
    items = ",".join(f'{{"named":["P{i}",["a"],0]}}' for i in range(n))
    return b'[%d,"value",[%s]]\n' % (case, items.encode())


def colliding(tag: str, n: int) -> bytes:
    keys = [k * HASHES for k in range(n)]
    trees = [k if k < 1 << 63 else {"int": hex(k)} for k in keys]
    items = trees if tag != "dict" else [x for tree in trees for x in (tree, 0)]
    return f'[0,"value",{{"{tag}":{items}}}]\n'.replace("'", '"').encode()


@pytest.fixture(scope="module")
def warm():
    readers.warm_reader()
    assert judge(Program("python", "def f(): return 5"), [CallCase("f", (), {}, 5)]).accepted


def test_an_array_of_many_dimensions_costs_the_caller_nothing(warm):
    """All partial products of its shape took 5.4 GiB and 27 CPU seconds here."""
    with Cost() as cost:
        found = judge(Program("python", LONG_SHAPE), [CallCase("f", (), {}, 5)])
    assert found.verdict == "RE"
    assert cost.cpu_s < 0.5  # ten times the goal: this machine may be loaded
    assert cost.memory_mib < 32


@pytest.mark.parametrize("text", ["1\n", "\U0001f600\n"])
def test_a_long_expected_output_is_not_copied_in_the_caller(text, warm):
    """The key of the readings that are kept was a copy of it, made twice: 44 MiB."""
    expected = text * ((15 << 20) // len(text.encode()))
    with Cost() as cost:
        verdict = CodeVerifier().verify(
            "```python\nprint(2)\n```", {"inputs": ["1"], "outputs": [expected]}
        )
    assert verdict.outcome == "wrong"
    assert cost.memory_mib < 32


@pytest.mark.parametrize("tag", ["set", "frozenset", "dict"])
def test_keys_whose_hashes_collide_are_a_wrong_answer(tag, warm):
    """They are counted before they are stored; what else collides is stopped by the kernel's clock."""
    reading = read_aside(judged_replies, [CallCase("f")], colliding(tag, 40_000), 0, cpu_s=0.5)
    assert reading.lost == ""
    assert [record[0] for record in reading.records] != ["AC"]
    assert "more than 200 keys of one hash" in str(reading.records)


def test_what_is_beside_a_dear_reply_counts(warm):
    """Each reply is lost by itself, up to three; a program that ends early is another matter."""
    line = b'[%d,"value",%d]\n'
    dear = many_types(40_000, 1)
    cases = [CallCase("f", (), {}, i) for i in range(4)]
    data = line % (0, 0) + dear + line % (2, 2) + line % (3, 7)
    records = read_each(judged_replies, 4, cases, data, cpu_s=0.5).records
    assert [r if isinstance(r, str) else r[0] for r in records] == [
        "AC", "reading it takes too much CPU time", "AC", "WA",
    ]  # fmt: skip


def test_many_dear_replies_take_hardly_longer_than_one(warm):
    """Three times ten CPU seconds made the scorer give up: a completion could choose to be UNSCORED."""
    data = b"".join(many_types(40_000, i) for i in range(5))
    reading = read_each(judged_replies, 5, [CallCase("f")] * 5, data, cpu_s=0.5)
    assert reading.records == ["reading it takes too much CPU time"] * 5
    assert reading.cpu_s <= 0.5 * (1 + 1 / 4 + 1 / 16)


@pytest.mark.parametrize(
    "value",
    ["'x' * (40 << 20)", "[0] * 3_000_000", "[[]] * 10**5", "['1' * 3999] * 1000"],
)
def test_a_reply_that_is_dear_is_a_wrong_answer(value):
    """Never our failure, and the next case counts."""
    program = Program("python", f"def f(): return {value}\ndef g(): return 1")
    cases = [CallCase("f", (), {}, 5), CallCase("g", (), {}, 1)]
    found = judge(
        program, cases, sandbox=shared_sandbox(workers=1), limits=Limits(cpu_s=10), stop=False
    )
    assert [str(case.verdict) for case in found.cases] == ["WA", "AC"]


def bursts(what: str) -> None:
    if what == "memory":
        bytearray(readers.MEMORY_MIB << 20)
    elif what == "crash":
        os.abort()
    elif what == "fault":
        raise KeyError("ours")
    elif what == "usage":
        raise UsageError("yours")
    elif what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    yield what


def killed_once(flag: str):
    path = Path(flag)
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    yield "done"


def test_the_end_of_a_reader_says_whose_fault_it_is(tmp_path, warm):
    """Memory and crashes are the text's; a kill from outside is nobody's, and is tried once more; the rest is ours."""
    assert "memory" in read_aside(bursts, "memory").lost
    assert "crashes" in read_aside(bursts, "crash").lost
    with pytest.raises(SandboxFailed, match="KeyError: 'ours'"):
        read_aside(bursts, "fault")
    with pytest.raises(UsageError, match="yours"):
        read_aside(bursts, "usage")
    with pytest.raises(SandboxFailed, match="lost 2 times: died"):
        read_aside(bursts, "killed")
    assert read_aside(killed_once, str(tmp_path / "flag")).records == ["done"]


# ---------------------------------------------------------------------------------- generated bytes

BYTES_OF_LINES = st.sampled_from(b'[]{},:"\\0123456789eE+-.x\n \xffntf')


@st.composite
def frames(draw) -> bytes:
    """A reply of some family, with some of its bytes changed, removed or doubled."""
    seed = draw(st.integers(0, 10**6))
    [(_, data)] = replies(1, seed=seed, most=1 << 9, first=draw(st.integers(0, len(FAMILIES) - 1)))
    changed = bytearray(data)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(changed) - 1))
        match draw(st.sampled_from(("set", "insert", "cut", "copy"))):
            case "set":
                changed[at] = draw(BYTES_OF_LINES)
            case "insert":
                changed.insert(at, draw(BYTES_OF_LINES))
            case "cut":
                del changed[at : at + draw(st.integers(1, 20))]
            case "copy":
                changed[at:at] = changed[: draw(st.integers(1, 40))]
        if not changed:
            break
    return bytes(changed)


CASES = [
    CallCase("f", (), {}, 2),
    CallCase("f", (), {}, {"1": 2.5}, equality=CodeVerifier().read(
        {"fn_name": "f", "inputs": [[1]], "outputs": [{"1": 2}]}).cases[0].equality),
    CallCase("f", (), {}, [2, 3], "in"),
    CallCase("f", (), {}, 2.0, "near", tolerance=0.5),
    CallCase("f", (), {}, None, "is"),
    CallCase("f", (), {}, None, "false"),
]  # fmt: skip


@given(frames())
def test_no_frame_makes_the_reader_raise(data):
    """Mutated replies found three exceptions in 20 seconds; each is now the case's verdict."""
    for case in CASES:
        for verdict, why, got in judged_replies([case], data, 0):
            assert verdict in ("AC", "WA", "RE")
            assert len(why) <= 202
            assert len(got) <= 1001


@given(
    st.binary(max_size=200) | st.text("0123456789.eE+- \n\t,ninfa", max_size=200).map(str.encode)
)
def test_no_output_makes_a_comparator_raise(data):
    """Whatever the expected output is; and each accepts itself."""
    for name in COMPARATORS:
        for expected in (b"1 2.5\n3", data):
            [(verdict, _, _)] = compare_outputs(name, [(b"", data, expected)], True, 0)
            assert verdict == "AC" if data == expected else verdict in ("AC", "WA")


def test_generated_replies_and_outputs_leave_the_caller_alone(warm):
    """Two of each family and size: the clock and /proc say what they cost here."""
    for name, data in replies(2 * len(FAMILIES), seed=1, most=1 << 19):
        with Cost() as cost:
            read_each(judged_replies, 1, [CallCase("f", (), {}, 2)], Output(data).lent())
        assert cost.cpu_s < 0.5, (name, cost)
    for name, make in OUTPUTS.items():
        output = Output.of_text(make(4 << 20))
        with Cost() as cost:
            for compare in ("lines", "unordered", "floats"):
                read_aside(compare_outputs, compare, [(b"", output.lent(), output.lent())], True, 0)
        assert cost.cpu_s < 0.5, (name, cost)
        assert cost.memory_mib < 32, (name, cost)


# ------------------------------------------------------------------------------------- what is kept


def test_an_output_is_read_when_it_is_asked_for():
    """A small one is kept here, a large one in the kernel; many large ones would use up the descriptors."""
    big = b"x" * (1 << 20)
    outputs = [Output.of_text(big) for _ in range(200)]
    assert len({output.lent().fd for output in outputs if isinstance(output.lent(), Lent)}) == 128
    assert all(output.read() == big and output.tail(2) == b"xx" for output in outputs)
    assert outputs[0].lent().read() == big
    assert isinstance(Output.of_text("small").lent(), bytes)
    fd = outputs[0].lent().fd
    outputs.clear()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_values_of_calls_are_rebuilt_up_to_a_size():
    """More is read only where the caller says so."""
    program = Program("python", "def f(n): return list(range(n))")
    run = shared_sandbox(workers=1).call(
        program, [ProgramCall("f", (3,)), ProgramCall("f", (30_000,)), ProgramCall("f", (2,))]
    )
    small, large, last = run.replies
    assert (small.value, last.value) == ([0, 1, 2], [0, 1])
    with pytest.raises(UsageError, match=r"Reply\.load"):
        large.value
    assert large.load() == list(range(30_000))


def test_a_line_without_an_end_is_no_reply():
    """And what is over the bound is the program's error, in its place."""
    line = b'[%d,"value","' + b"x" * (BYTES - 100) + b'"]\n'
    long = b'[1,"value","' + b"x" * BYTES + b'"]\n'
    found = read_replies(line % 0 + long + b'[2,"value",1]', 3)
    assert [reply and reply.error and reply.error[0] for reply in found] == [
        None,
        "NotAValue",
        None,
    ]
