"""What `check` says of tasks, of reset and step, and of episodes; and how it is asked."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cloudpickle
import numpy as np
import pytest

import rlvr
from rlvr import Correct, Environment, Task, Verdict
from rlvr.testing import CHECKS, HOLES, Finding, Severity, check, check_environment
from rlvr.testing.episodes import JUNK, episode_breaches, gym_breaches
from rlvr.workers import WorkerPool
from tests.processes import in_turn
from tests.testing import broken
from tests.testing.broken import BROKEN, Double, Guess, Words, changed, judged

for module in (broken, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(
        module
    )  # else each worker imports pytest to find these classes


def found(env: Environment, *only: str, **options: Any) -> dict[str, Finding]:
    """The findings of some checks, by hole."""
    return {it.hole: it for it in check(env, tasks=3, only=only, **options).findings}


# ------------------------------------------------------------------------------------------ tasks


class Calls:
    """A number that goes up with every call, from any process."""

    made = 0

    def __call__(self) -> int:
        self.made += 1
        return self.made


def task(id: str = "t", prompt: Any = "p", reference: Any = "r") -> Task:
    return Task(id, prompt, reference)


calls = Calls()

TASKS = {
    "they raise": (
        changed(Words, tasks=lambda self: [1 / 0]),
        "tasks-raise",
        "ZeroDivisionError: division by zero",
    ),
    "there are none": (changed(Words, tasks=lambda self: []), "no-tasks", ""),
    "they are rows": (
        changed(Double, task=lambda self, index: {"prompt": index}),
        "not-a-task",
        "dict {'prompt': 0}",
    ),
    "one is a row": (
        changed(Words, tasks=lambda self: [task(), "p"]),
        "tasks-raise",
        "UsageError: Broken.tasks(), number 1, gave str 'p'",
    ),
    "they come out differently": (
        changed(Words, tasks=lambda self: [task(reference=calls())]),
        "tasks-differ",
        "",
    ),
    "two ways disagree": (
        changed(Double, tasks=lambda self: iter([self.task(1), self.task(0)])),
        "index-disagrees",
        "",
    ),
    "ids repeat in a set": (
        changed(Words, tasks=lambda self: [task(prompt="1"), task(prompt="2")]),
        "tasks-raise",
        "UsageError: Broken: two tasks have the id 't'; ids must be unique",
    ),
    "ids repeat in a generator": (
        changed(
            Double, task=lambda self, index: task(prompt=f"{self.split} {index}", reference=index)
        ),
        "duplicate-ids",
        "",
    ),
    "references are no JSON": (
        changed(Words, tasks=lambda self: [task(reference={1, 2})]),
        "unrecordable",
        "TypeError: Object of type set is not JSON serializable",
    ),
    "references are arrays": (
        changed(Words, tasks=lambda self: [task(reference=np.arange(3))]),
        "unrecordable",
        "TypeError: Object of type ndarray is not JSON serializable",
    ),
    "references are NaN": (
        changed(Words, tasks=lambda self: [task(reference=float("nan"))]),
        "unrecordable",
        "ValueError: Out of range float values are not JSON compliant",
    ),
    "references come back as something else": (
        changed(Words, tasks=lambda self: [task(reference=(1, 2))]),
        "unrecordable",
        "(1, 2) is read back as [1, 2]",
    ),
    "splits overlap": (
        changed(
            Double,
            task=lambda self, index: task(f"{self.split}/{index}", f"Twice {index}?", 2 * index),
        ),
        "split-overlap",
        "'test/0' of 'test' has the same prompt",
    ),
    "the other split cannot be made": (
        changed(Double, __post_init__=lambda self: {"train": 0}[self.split]),
        "split-raises",
        "KeyError: 'test'",
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_breach_of_its_tasks_is_found(name: str, monkeypatch: pytest.MonkeyPatch):
    """Before anything is scored; only what differs elsewhere needs the other process."""
    env, hole, got = TASKS[name]
    if hole != "tasks-differ":
        monkeypatch.setattr("rlvr.testing.checks.check_task_repeats", lambda *_: None)
    findings = found(env, "tasks")
    assert hole in findings, list(map(str, findings.values()))
    assert findings[hole].severity is Severity.HOLE
    assert findings[hole].got.startswith(got)


def test_a_generator_may_have_an_end():
    """IndexError at its end is its size."""

    def ended(self: Double, index: int) -> Task:
        if not 0 <= index < 7:
            raise IndexError(index)
        return Double.task(self, index)

    assert not found(changed(Double, task=ended), "tasks")


def test_a_part_of_a_split_may_share_its_tasks_with_the_whole():
    """train[:3] is held against test, not against train."""
    words = {"words": ("tea", "milk", "rain"), "__annotations__": {"words": tuple[str, ...]}}
    made = changed(
        Words,
        tasks=lambda self: [
            task(self.split[:5] + w, f"{self.split[:5]}: {w}", w) for w in self.words
        ],
        **words,
    )
    assert not found(type(made)(split="train[:3]"), "tasks")


def test_a_detail_that_changes_is_found():
    """`rlvr replay` compares details and parts too."""

    def verify(self: Words, task: Task, text: str) -> Verdict:
        right = text == task.reference
        return Verdict(
            "correct" if right else "wrong", why="said", detail={"at": time.perf_counter()}
        )

    assert "nondeterministic" in found(changed(Words, verify=verify), "references", "repeats")


def test_a_generator_may_refuse_a_split():
    """With a UsageError, as the bundled ones do; then there is nothing to be shared."""

    def refuse(self: Double) -> None:
        if self.split != "train":
            raise rlvr.UsageError(f"split is {self.split!r}; there is only train")

    assert not found(changed(Double, __post_init__=refuse), "tasks")


def test_a_set_that_knows_no_splits_is_a_note():
    """A single file stands for whatever split is asked for; that is worth knowing, and no hole."""
    assert {name: it.severity for name, it in found(Words(), "tasks").items()} == {
        "split-overlap": Severity.NOTE
    }


def test_what_is_alike_and_what_is_one_answer_are_notes():
    """Numbers by hand: of 12 prompts one is another with one word more; 11 of 12 answers are tea."""
    words = "once upon a time there was a small grey mouse that lived under the old wooden floor of number".split()
    prompts = [f"{i} " + " ".join(words[i:] + words[:i]) for i in range(11)]
    made = [Task(f"t{i}", text, "tea") for i, text in enumerate(prompts)]
    made.append(Task("t11", prompts[3] + " twelve", "milk"))
    findings = found(changed(Words, tasks=lambda self: made), "tasks")
    assert findings["near-duplicates"].task == "t11"
    assert findings["near-duplicates"].got == "much like 't3'"
    assert findings["constant-answer"].got == "11 of 12"
    assert {it.severity for it in findings.values()} == {Severity.NOTE}


# ----------------------------------------------------------------------------------------- examples


EXAMPLES = {
    "it is not text": (changed(Words, example=lambda self, task: 5), "TypeError: it gave 5"),
    "it raises": (
        changed(Words, example=lambda self, task: task.missing),
        "AttributeError: 'Task' object has no",
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_a_text_or_none(name: str):
    """What the author's code raises is the finding."""
    env, got = EXAMPLES[name]
    findings = found(env, "references")
    assert findings["example-raises"].got.startswith(got)


def test_without_an_example_the_rest_is_tried():
    """A proof cannot be written down by rule: a note, and the verifier is attacked all the same."""
    env = changed(
        Words, example=lambda self, task: None, verify=lambda self, task, completion: judged(True)
    )
    findings = found(env, "exploits")
    assert findings["no-example"].severity is Severity.NOTE
    assert findings["junk"].severity is Severity.HOLE


def test_an_example_without_the_form_is_a_warning():
    """It is right and earns 1 of 1.2: what Format asks for, the author's own example does not have."""
    env = Double().with_reward(Correct() + 0.2 * rlvr.Format("<answer>...</answer>"))
    it = found(env, "references")["reference-below-maximum"]
    assert (it.severity, it.got, it.wanted) == (Severity.WARNING, "total 1", "1.2")


# ----------------------------------------------------------------------------------- reset and step


def answering(step: Any) -> Environment:
    return changed(Words, step=lambda self, action: step)


GYM = {
    "reset forgets the seed": (
        changed(Words, reset=lambda self, **_: Environment.reset(self, options={"index": calls() % 3})),
        "reset",
        "reset with the same seed gives another task",
    ),
    "reset raises": (changed(Words, reset=lambda self, **_: 1 / 0), "step", "reset or step raises"),
    "reset takes no seed": (changed(Words, reset=lambda self: ("p", {})), "step", "reset or step raises"),
    "step raises": (changed(Words, step=lambda self, action: 1 / 0), "step", "reset or step raises"),
    "step returns four": (answering(("", 0.0, True, {})), "step", "step must return (observation, reward,"),
    "step returns nothing": (answering(None), "step", "step must return (observation,"),
    "its reward is NaN": (answering(("", float("nan"), True, False, {})), "not-finite", "step's reward must be a"),
    "its reward is none": (answering(("", None, True, False, {})), "step", "step's reward must be a finite number"),
    "its flags are numbers": (answering(("", 0.0, 1, 0, {})), "step", "step must return booleans for terminated and"),
    "its info is a list": (answering(("", 0.0, True, False, [])), "step", "step must return booleans for terminated"),
    "step takes no length": (
        changed(Double, step=lambda self, action: Environment.step(self, str(action))).with_reward(
            Correct() + rlvr.Overlong(100, 10)
        ),
        "step",
        "reset or step raises",
    ),
    "it does not end": (answering(("", 0.0, False, False, {})), "step", "an episode goes on after its last turn"),
}  # fmt: skip


@pytest.mark.parametrize("name", GYM)
def test_a_breach_of_reset_and_step_is_found(name: str):
    """Gymnasium's own signatures."""
    env, hole, what = GYM[name]
    breaches = gym_breaches(env, 0)
    assert {it[0] for it in breaches} == {hole}
    assert breaches[0][2].startswith(what)


def test_a_reset_that_hangs_or_breaks_is_found_by_a_check():
    """In a process of its own, which can be killed."""
    hanging = changed(Words, reset=lambda self, **_: [0 for _ in iter(int, 1)])
    for env, hole, what in ((hanging, "hang", "an episode"), GYM["reset raises"]):
        findings = found(env, "episodes", wall_s=1.0 if hole == "hang" else 20.0)
        assert list(findings) == [hole]
        assert findings[hole].what.startswith(what)


# ------------------------------------------------------------------------------------ several turns


class Told(Guess):
    """The prompt holds the number."""

    def task(self, index: int) -> Task:
        made = super().task(index)
        return replace(made, prompt=f"Guess my number, 1 to 100 (debug: {made.reference}).")


def answering(right: Callable[[str, str], bool]) -> Environment:
    """The honest game, with another rule for what is right."""

    def user(self: Guess, task: Task, transcript: Any) -> str | None:
        return None if right(transcript[-1]["content"], str(task.reference)) else "No."

    def verify(self: Guess, task: Task, episode: Any) -> Verdict:
        return judged(right(episode.answer, str(task.reference)))

    return changed(Guess, user=user, verify=verify)


def raises(self: Guess, task: Task, transcript: Any) -> Any:
    return None if int(transcript[-1]["content"]) == task.reference else "No."


EPISODES = {
    "the number is told": (Told(), "secret", "the prompt holds the reference"),
    "many guesses in one turn": (answering(lambda said, n: n in said.split()), "hedge", "many answers in one turn"),
    "silence wins": (answering(lambda said, n: said in ("", n)), "empty", "an episode of nothing else is correct"),
    "the user raises on junk": (changed(Guess, user=raises), "step", "reset or step raises"),
    "verify raises on junk": (
        changed(Guess, verify=lambda self, task, one: judged(int(one.answer) == task.reference)),
        "step",
        "reset or step raises",
    ),
    "the user depends on chance": (
        changed(Guess, user=lambda self, task, said: str(calls()), example_episode=lambda self, task: ["x", "y"]),
        "nondeterministic",
        "the same task and turns give other replies",
    ),
    "the user depends on hashes": (
        changed(Guess, user=lambda self, task, said: str(hash("tea")), example_episode=lambda self, task: None),
        "nondeterministic",
        "the same turns give other replies in another process",
    ),
    "its number is drawn anew": (
        changed(Guess, task=lambda self, index: Task(f"guess/{index}", "Guess.", calls())),
        "tasks-differ",
        "tasks come out differently the second time",
    ),
    "each turn earns": (
        changed(Guess, turn_rewards=lambda self, task, one: [1.0 for _ in one.turns]),
        "collected-twice",
        "the same turn again and again has rewards above the total",
    ),
    "reset returns the observation alone": (
        changed(Guess, reset=lambda self, **_: Guess.reset(self, **_)[0]),
        "reset",
        "reset must return (observation, info)",
    ),
    "step returns four": (
        changed(Guess, step=lambda self, action: ("", 0.0, True, {})),
        "step",
        "step must return (observation",
    ),
    "it goes on after its last turn": (
        changed(Guess, step=lambda self, action: ("", 0.0, False, False, {})),
        "step",
        "an episode goes on after its last turn",
    ),
}  # fmt: skip


ELSEWHERE = ("the user depends on hashes", "its number is drawn anew", "the number is told")
"""What another process shows, and one that any shows."""


@pytest.mark.parametrize("name", [name for name in EPISODES if name not in ELSEWHERE[:2]])
def test_a_breach_of_an_episode_is_found(name: str):
    """By what comes back, never by an error out of the check itself."""
    env, hole, what = EPISODES[name]
    breaches = gym_breaches(env, 0) or episode_breaches(env, [env.task(at) for at in range(3)])
    assert any(it[0] == hole and it[2].startswith(what) for it in breaches), breaches


@pytest.mark.parametrize("name", in_turn(ELSEWHERE, 2))
def test_a_check_finds_a_breach_of_an_episode_in_other_processes(name: str):
    """With all that is tried elsewhere."""
    env, hole, what = EPISODES[name]
    findings = {it.hole: it for it in check(env, tasks=3).findings if it.severity != "note"}
    assert hole in findings, findings
    assert findings[hole].what.startswith(what)


def test_the_junk_of_episodes_is_named_by_holes():
    """And none is another's twin."""
    assert set(JUNK) <= set(HOLES)
    assert len(set(JUNK.values())) == len(JUNK)


# ------------------------------------------------------------------------------------------ asking


def test_check_environment_lists_every_finding():
    """One run, one list, the worst first; the error is ours."""
    env = changed(Words, id="words-v9", verify=lambda self, task, completion: Verdict("correct"))
    with pytest.raises(rlvr.NonConforming) as caught:
        check_environment(env, tasks=2, skip=("repeats",))
    lines = str(caught.value).splitlines()
    assert lines[0] == "words-v9 does not pass its check:"
    assert lines[1].startswith(
        "  - hole empty (2 of 2): no text at all, task 'words/tea', “”: correct (), total 1"
    )
    assert lines[1].endswith("; wanted: not correct")
    assert any(line.startswith("  - warning no-reason") for line in lines)
    assert isinstance(caught.value, rlvr.UsageError)


def test_a_hole_or_a_check_can_be_skipped():
    """A duplicate that is meant should not hide what is not."""
    made = [Task("a", "Say tea.", "tea"), Task("b", "Say tea.", "tea")]
    env = changed(Words, tasks=lambda self: made)
    assert not check(env, only=("tasks",)).clean
    assert check(env, only=("tasks",), skip=("duplicate-tasks",)).clean
    assert check(env, skip=(*CHECKS[1:], "duplicate-tasks")).clean
    never = changed(Words, verify=lambda self, task, text: judged(False))
    assert check(never, tasks=1, skip=("references", "repeats", "episodes")).clean


@pytest.mark.parametrize(("name", "count"), [("arithmetic-v1", 1), ("guess-v1", 2)])
def test_few_workers_serve_all_checks(name: str, count: int, monkeypatch: pytest.MonkeyPatch):
    """A start takes longer than what is asked.  Of episodes two are compared, under two hashes."""
    pools = []

    class Counted(WorkerPool):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            pools.append(self)

    monkeypatch.setattr("rlvr.testing.repeats.WorkerPool", Counted)
    assert check(rlvr.make(name), tasks=1, skip=("exploits", "verifier")).clean
    assert [pool.started for pool in pools] == [1] * count


def test_the_same_seed_draws_the_same_sample():
    """Another one may look elsewhere; the report says which it was."""
    one, two, other = (
        check(Double(), tasks=2, seed=seed, only=("references",)) for seed in (1, 1, 2)
    )
    assert (one.findings, one.completions, one.seed) == (two.findings, two.completions, 1)
    assert other.seed == 2


def test_all_tasks_of_a_finite_set_can_be_checked():
    """Five words; of a generator there is no all."""
    assert check(Words(), tasks=None, only=("references",)).tasks == 5
    with pytest.raises(rlvr.DataError, match="Double generates tasks without end; say how many"):
        check(Double(), tasks=None)


def test_what_the_time_did_not_suffice_for_is_said():
    """A report of less than half must not look clean, nor one of nothing."""
    for findings in (
        check(Double(), tasks=3, budget_s=1e-9, only=("references", "exploits")).findings,
        check(BROKEN["a lock"][1], skip=("unpicklable",)).findings,
    ):
        [what] = [
            it.what
            for it in findings
            if (it.hole, it.severity) == ("not-checked", Severity.WARNING)
        ]
        assert what == "nothing was scored"
    slow = changed(
        Words, verify=lambda self, task, text: time.sleep(0.1) or judged(text == task.reference)
    )
    [late] = [
        it
        for it in check(slow, tasks=3, budget_s=3.0, only=("exploits",)).findings
        if (it.hole, it.severity) == ("not-checked", Severity.WARNING)
    ]
    assert late.what.partition(":")[0] == "the time was up"


def test_what_is_found_does_not_depend_on_the_number_of_workers(tmp_path):
    """One that takes the last number, and ends its process at one text of the catalogue."""

    def verify(self, task, text):
        with (tmp_path / f"{os.getpid()}").open("a"):
            pass
        if "quartz" in text:
            os._exit(1)
        return judged(text.rstrip("}").endswith(str(task.reference)))

    reports, processes = [], []
    for workers in (1, 2):
        reports.append(
            check(changed(Double, verify=verify), tasks=1, only=("exploits",), workers=workers)
        )
        processes.append(len(list(tmp_path.iterdir())) - sum(processes))
    assert reports[0].findings == reports[1].findings
    assert reports[0].completions == reports[1].completions > 50
    assert processes[1] >= 2
    with pytest.raises(rlvr.UsageError, match="workers"):
        check(Double(), workers=0)


def test_a_report_is_json():
    """With all that the table has, and whether it passes."""
    report = check(
        changed(Words, verify=lambda self, task, completion: judged(True)),
        tasks=2,
        only=("exploits",),
    )
    read = json.loads(json.dumps(report.as_dict()))
    assert read["clean"] is False
    assert {it["hole"] for it in read["findings"]} == {it.hole for it in report.findings}
    assert set(read["findings"][0]) == set(Finding.__slots__)
    assert report.holes[:2] == ("empty", "whitespace")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": 2.5}, "tasks is 2.5; it must be a whole number of at least 1"),
        ({"tasks": 0}, "tasks is 0; it must be a whole number of at least 1"),
        ({"budget_s": float("nan")}, "budget_s is nan; it must be a number of seconds above 0"),
        ({"wall_s": -1.0}, "wall_s is -1.0"),
        (
            {"only": ("exploit",)},
            "there is no check 'exploit'; the checks are tasks, references, exploits",
        ),
        ({"skip": ("hedges",)}, "'hedges' cannot be skipped"),
    ],
)
def test_a_bad_argument_is_one_clear_error(options: dict, message: str):
    """Value, rule and fix."""
    with pytest.raises(rlvr.UsageError, match=message):
        check(Words(), **options)


def test_only_an_environment_is_checked():
    """The checks of anything else would say nothing."""
    with pytest.raises(rlvr.UsageError, match="is not an environment"):
        check(object())
