"""Answers made to hang, crash or take over the grader get a verdict in time, and nothing of them is executed."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.math_hostile import REFERENCE, hostile
from rlvr.types import Outcome, Task, Verdict
from rlvr.verifiers.math import MathVerifier, symbolic
from rlvr.verifiers.math.reading import read

VERIFIER = MathVerifier()
CANARY = (
    Path(tempfile.gettempdir()) / f"rlvr-canary-{os.getpid()}"
)  # made if one of the texts is executed
NEVER_BEGUN = {"tower", "factorial", "long", "boxes", "strange", "program"}
"""Kinds that are decided without the engine, or by its first look."""
ALL = [  # of those that keep the engine busy, one in three is enough for every day
    pytest.param(
        text,
        id=f"{kind}-{number}",
        marks=[pytest.mark.slow] * (kind not in NEVER_BEGUN and number % 3 > 0),
    )
    for number, (kind, text) in enumerate(hostile(str(CANARY)))
]
QUICK = [text for kind, text in hostile(str(CANARY)) if kind in NEVER_BEGUN]
HARD = [  # on which a symbolic engine can be kept busy for as long as one lets it
    r"\int_0^{\infty} \frac{\sin(x^x)}{\ln(x+e^{x})} dx",
    r"(x+y+z+w+u+v)^{40}",
]


@pytest.fixture(autouse=True)
def _nothing_is_executed():
    """Neither here nor in a worker."""
    yield
    executed = CANARY.exists()
    CANARY.unlink(missing_ok=True)
    assert not executed


@pytest.fixture(scope="module", autouse=True)
def _warm():
    symbolic.warm()
    symbolic.check_reference(read(REFERENCE))


def verdict(completion: str) -> Verdict:
    return VERIFIER.verify(completion, REFERENCE)


@pytest.mark.parametrize("completion", ALL)
def test_a_hostile_answer_gets_a_verdict_in_time(completion):
    """A second of CPU at most; the rest of the bound is for a busy machine."""
    start = time.monotonic()
    assert verdict(completion).outcome in (Outcome.WRONG, Outcome.UNPARSED)
    assert time.monotonic() - start < 40.0


def test_what_can_be_seen_from_the_text_costs_nothing():
    """Towers, factorials, megabytes and prose never keep an engine busy; the bound is 150 times what they take."""
    start = time.monotonic()
    found = [verdict(completion) for completion in QUICK]
    assert time.monotonic() - start < 75.0
    assert {v.outcome for v in found} <= {Outcome.WRONG, Outcome.UNPARSED}
    assert not any(v.reason == "too-hard" for v in found), "a clock decided"


def test_the_same_text_gets_the_same_verdict_again():
    """Limits are static, so the second time differs in nothing."""
    assert [verdict(completion) for completion in QUICK] == [
        verdict(completion) for completion in QUICK
    ]


def test_hard_is_wrong_each_time():
    """Whether the engine gave up or was killed: wrong, and the next pair finds a worker."""
    for answer in HARD * 2:
        assert verdict(rf"\boxed{{{answer}}}").outcome is Outcome.WRONG
        assert verdict(r"\boxed{x+\frac{\pi}{7}}").correct


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_stays_below_its_memory_limit():
    """What was allocated at the peak, of every worker that is still alive."""
    verdict(rf"\boxed{{{HARD[1]}}}")
    verdict(r"\boxed{\frac{\pi}{7}+2x}")
    peaks = [_peak_mib(pid) for pid in _descendants(os.getpid())]
    assert max(peaks) > 0
    assert max(peaks) <= symbolic.MEMORY_MIB


def _descendants(pid: int) -> Iterator[int]:
    """A worker has a child of its own, which is the one that may be lost."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from _descendants(child)


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024 if "VmHWM:" in status else 0.0


@pytest.mark.parametrize("marker", ["####", "A:", "Answer:"])
def test_markers_do_not_open_a_side_door(marker):
    """Fifty thousand of them, each followed by something else."""
    completion = "\n".join(f"{marker} {n}" for n in range(50_000))
    start = time.process_time()
    found = MathVerifier(markers=(marker,)).verify(completion, "49999")
    assert found.correct
    assert time.process_time() - start < 5.0


@pytest.mark.parametrize("size", [10**4, 10**5, 10**6])
@pytest.mark.parametrize(
    "part",
    ["\\boxed{", "\\boxed{1}", "<think>", "</think>", "answer is ", "{", "$", "\\frac", " ", "\n"],
)
def test_time_grows_with_the_length_and_not_with_its_square(part, size):
    """A million characters of anything take well under a second."""
    start = time.process_time()
    VERIFIER.verify((part * (size // len(part) + 1))[:size], "5")
    assert time.process_time() - start < 3.0


@pytest.mark.parametrize("answer", ["4 !=2", r"3^8\pmod{4=3}", r"\boxed{x=11} x\ne\pm3"])
def test_what_is_no_relation_of_lists_is_wrong_beside_a_list(answer):
    """Its sign of equality parts nothing."""
    assert not MathVerifier().verify(rf"\boxed{{{answer}}}", r"\{1, 4, 6\}").correct


def test_an_index_of_any_length_is_no_exception():
    """Python refuses to read an integer of 5,000 digits."""
    task = Task("t", f"Find the {'9' * 5000}th term.", reference="5")
    assert MathVerifier().verify(r"\boxed{a_5=5}", "5", task).outcome in (
        Outcome.CORRECT,
        Outcome.WRONG,
    )


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("It is not true.", "no"),
        ("This isn't true", "no"),
        ("It is not false", "yes"),
        ("It is true", "yes"),
    ],
)
def test_a_denied_truth_is_the_other_answer(said, answer):
    """To a question that asks whether."""
    for reference in ("yes", "no"):
        task = Task("t", "Is 221 prime?", reference=reference)
        verdict = MathVerifier().verify(rf"\boxed{{\text{{{said}}}}}", reference, task)
        assert verdict.correct is (reference == answer)
