"""Holes planted on purpose: each is found by its name, and honest environments have none."""

import re
import sys
from pathlib import Path

import cloudpickle
import pytest

import rlvr
from rlvr.testing import HOLES, Severity, check
from rlvr.testing.findings import _EXPLOITS
from tests.testing import broken
from tests.testing.broken import BROKEN, HONEST, Words, changed, judged

for module in (broken, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)  # else a worker imports it by a name it lacks


FIRST = {hole: name for name, (hole, _) in reversed(BROKEN.items())}
"""Of several environments with the same hole, the others are slow; and so are seven holes of eight."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[pytest.mark.slow] * (name != FIRST[hole] or list(FIRST).index(hole) % 8 > 0),
        )
        for name, (hole, _) in BROKEN.items()
    ],
)
def test_a_planted_hole_is_found_by_its_name(name: str):
    """With the completion that went through it, what that earned and what it should have."""
    hole, env = BROKEN[name]
    wall_s = 1.0 if hole == "hang" else 5.0  # which `eval` of a tower burns whole
    skip = ["episodes"]  # and what finds nothing of this kind: each check starts workers of its own
    skip += ["repeats"] if hole not in ("nondeterministic", "out-of-bounds") else []
    skip += ["tasks"] if hole in _EXPLOITS else []
    listed = check(env, tasks=3, wall_s=wall_s, skip=skip).findings
    found = {it.hole: it for it in reversed(listed)}  # the worst of each is listed first
    assert hole in found, list(map(str, found.values()))
    assert found[hole].severity is not Severity.NOTE
    assert found[hole].what


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (i % 6 > 0)) for i, name in enumerate(HONEST)],
)
def test_an_honest_environment_has_no_hole(name: str):
    """Whatever its kind, its reward and its answers: a false alarm costs an author's trust."""
    report = check(HONEST[name], tasks=4)
    assert report.clean, "\n".join(map(str, report.findings))


def test_every_broken_environment_names_a_known_hole():
    """And every hole that a verifier alone can have is planted somewhere."""
    planted = {hole for hole, _ in BROKEN.values()}
    assert planted <= set(HOLES)
    assert {
        "empty",
        "whitespace",
        "prompt-echo",
        "hedge",
        "candidates",
        "substring",
        "thinking-only",
    } <= planted


def test_two_tasks_with_one_solution_are_no_false_alarm():
    """1/2 and 0.5 are one answer: a verifier that accepts either is right."""
    from rlvr.verifiers.math import MathVerifier

    rows = [
        {"prompt": f"Problem {i}: what is it?", "reference": text}
        for i, text in enumerate(("1/2", "0.5", "50\\%"))
    ]
    report = check(
        rlvr.Environment.from_rows(rows, verifier=MathVerifier()), only=("references", "exploits")
    )
    assert report.clean, "\n".join(map(str, report.findings))


def test_a_reference_that_cannot_be_read_is_found():
    """By its task; the others are checked all the same."""
    from rlvr.verifiers.math import MathVerifier

    class Sums(rlvr.Environment):  # rows that cannot be read would be left out
        reward = rlvr.Correct(MathVerifier())

        def tasks(self):
            for i, text in enumerate(("7", "1/0", "9")):
                yield rlvr.Task(f"t{i}", f"{i}?", text)

    [found] = [
        it for it in check(Sums(), only=("references",)).findings if it.severity is Severity.HOLE
    ]
    assert (found.hole, found.task) == ("reference-unreadable", "t1")
    assert "1/0" in found.got


def test_references_of_another_form_are_found_without_an_error():
    """`example` of a verifier takes what it needs from a reference that it can read."""
    from rlvr.verifiers.sql import SQLVerifier

    class Queries(rlvr.Environment):
        reward = rlvr.Correct(SQLVerifier())

        def tasks(self):
            for i, reference in enumerate((5, ["x"], {"schema": "CREATE TABLE t(a)"})):
                yield rlvr.Task(f"t{i}", f"{i}?", reference)

    findings = check(Queries(), only=("references",)).findings
    assert [it.count for it in findings if it.hole == "reference-unreadable"] == [3]


def test_every_exploit_is_planted_somewhere():
    """A catalogue entry that no broken environment falls for may never have worked."""
    planted = {hole for hole, _ in BROKEN.values()}
    # One takes seconds by its nature, see test_testing; the other is below.
    # Six of what a search finds are in test_searched.
    assert set(_EXPLOITS) - planted == {"searched", "slow", "judge-alone"}


def test_a_judge_without_a_rule_before_it_is_a_hole():
    """Nothing is asked of it: that there is no audit is enough."""
    from rlvr.verifiers.judge import Judge

    class Judged(rlvr.Environment):
        reward = rlvr.Correct(Judge("http://127.0.0.1:9/v1", "m", canaries=0.0, retries=0))

        def task(self, index):
            return rlvr.Task(str(index), "What is 6 times 7?", reference="42")

    others = [hole for hole in _EXPLOITS if hole != "judge-alone"]
    report = check(Judged(), tasks=1, only=("exploits",), skip=others)
    assert "judge-alone" in {found.hole for found in report.findings}, report.findings


def test_the_names_of_the_manual_are_those_of_the_checks():
    """Its table names every exploit, and nothing that is no hole."""
    page = (Path(__file__).parents[2] / "docs" / "writing" / "checking.md").read_text()
    table = page.partition("| name | what is tried, or found |")[2].partition("\n\n")[0]
    named = {
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    }
    assert set(_EXPLOITS) <= named <= set(HOLES)


def test_two_of_a_few_answers_to_other_tasks_are_suspicious():
    """One may be right by chance, every fiftieth hardly, every tenth is a hole."""
    for accepted, severity in ((1, Severity.NOTE), (2, Severity.WARNING), (10, Severity.HOLE)):
        pairs = {(i, (i + 1) % 8) for i in range(accepted)} | {
            (i, (i + 2) % 8) for i in range(max(0, accepted - 8))
        }

        def also(self: object, task: rlvr.Task, text: str, pairs: set = pairs) -> rlvr.Verdict:
            said = text.strip()
            known = (
                said in self.words
                and (self.words.index(task.reference), self.words.index(said)) in pairs
            )
            return judged(said == task.reference or known)

        words = ("tea", "milk", "rain", "bread", "stone", "cloud", "river", "house")
        env = changed(Words, words=words, verify=also, __annotations__={"words": tuple[str, ...]})
        others = [hole for hole in _EXPLOITS if hole != "other-answer"]
        listed = check(env, tasks=None, only=("exploits",), skip=others).findings
        [it] = [it for it in listed if it.hole == "other-answer"]
        assert it.severity is severity


def test_what_cannot_be_tried_without_an_answer_is_said():
    """An answer of several lines is no phrase to hedge with; a clean report must not look like more than it is."""
    made = [rlvr.Task(f"t{i}", f"Draw {i}.", f"#{i}\n.{i}") for i in range(3)]
    verify = {"verify": lambda self, task, text: judged(text == task.reference)}
    env = changed(Words, tasks=lambda self: made, **verify)
    notes = [it for it in check(env, only=("exploits",)).findings if it.hole == "not-checked"]
    assert (
        "hedge, several-boxes, candidates, substring, look-alike, near-miss, restated were not tried"
        in notes[0].what
    )
