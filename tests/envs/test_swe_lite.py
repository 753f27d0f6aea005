"""Software tasks without network: how they are found, what is paid, and what is not."""

from __future__ import annotations

import shlex
import time
from statistics import median

import pytest

import rlvr
from rlvr.envs import swe_finder
from rlvr.envs.swe_lite import SweLite
from rlvr.envs.swe_projects import (
    SPLITS,
    loader,
    names_of_projects,
    observe,
    read_table,
    variant_of,
    variants_of,
)
from rlvr.scoring.episodes import grade_again
from rlvr.verifiers.patches import PatchError, apply_patch, patch_between, patch_in
from tests.rewards.parts import refusal

PROJECTS = [name for split in SPLITS for name in names_of_projects(split)]


def played(env, task, *turns):
    with env.open(task) as episode:
        for turn in turns:
            if episode.reply(turn) is None:
                break
        episode.finish()
    return episode.record, env.score(task, episode.completion())


def test_there_are_enough_tasks_of_each_kind():
    """1,000 tasks of 12 projects and 12 operators, some across files; splits share no project."""
    rows = read_table()
    operators = {name for row in rows for name in row.operators}
    splits = [set(names_of_projects(split)) for split in SPLITS]
    assert len(rows) >= 1000
    assert len(PROJECTS) >= 12 == len(set(PROJECTS)) - 2
    assert sum(map(len, splits)) == len(set.union(*splits))
    assert all(3 <= len(variant_of(name, 0).files) <= 12 for name in PROJECTS)
    assert len(operators - {"deleted"}) >= 12
    assert {"parameters", "rename", "shift"} <= operators
    assert {row.bugs for row in rows} == {1, 2, 3}
    assert max(row.distance for row in rows) >= 2
    for split in SPLITS:
        assert SweLite(split=split, kind="bug").size > SweLite(split=split, kind="feature").size > 9
    same = [(row.project, row.edits) for row in rows]
    assert all(same.index(one) == at for at, one in enumerate(same))


@pytest.mark.parametrize("project", PROJECTS)
def test_variants_of_a_project_do_what_it_does(project):
    """Other names and numbers crash nothing; hidden cases have inputs that visible ones have not."""
    for number in (0, 1, variants_of(project) - 1):
        variant = variant_of(project, number)
        own_import = loader(variant.name, variant.files)
        outcomes = [observe(own_import, case) for case in (*variant.visible, *variant.hidden)]
        raised = {what for kind, what in outcomes if kind == "raises"}
        assert not raised & {"NameError", "AttributeError", "ImportError", "TypeError"}
        assert (len(variant.visible), len(variant.hidden)) == (16, 40)
        assert not set(variant.visible) & set(variant.hidden)
        assert len({str(one) for one in outcomes}) > 20


@pytest.mark.parametrize("split", SPLITS)
def test_what_is_put_right_is_paid_and_nothing_else(split):
    """By a session and by a patch; a task is the same each time, and made within 20 ms."""
    env, patched = SweLite(split=split), SweLite(split=split, tools=False)
    for index in (0, env.size // 2, env.size - 1):
        task = env.task(index)
        assert task == SweLite(split=split).find(task.id)
        assert played(env, task, *env.example_episode(task))[1].total == 1.0
        _, score = played(env, task, "Done.")
        assert (score.total, score.verdict.why.partition(":")[0]) == (0.0, "still-fails")
        task = patched.task(index)
        assert patched.score(task, patched.example(task)).total == 1.0
        assert patched.score(task, "Done.").verdict.outcome == "unparsed"
    times = []
    for index in range(20):
        began = time.process_time()
        env.task(index)
        times.append(time.process_time() - began)
    assert median(times) < 2 * 0.020  # a CPU second of a core that two threads share is half a one


def test_what_was_right_has_to_stay_right():
    """A change that mends the bug and breaks something else is wrong; so is one that removes a file."""
    env = SweLite(split="test", kind="bug", bugs=1)
    task = env.task(0)
    *_, path = [
        one for one in task.meta["files"] if one.startswith("src/") and "__init__" not in one
    ]
    mend, done = env.example_episode(task)
    broken = rlvr.Ask("bash", {"command": f"{mend.arguments['command']}\necho 'x =' > {path}"})
    gone = rlvr.Ask("bash", {"command": "rm -r src"})
    for ask in (broken, gone):
        assert played(env, task, ask, done)[1].verdict.outcome == "wrong"


def test_options_choose_tasks_and_help():
    """By bugs, files and distance; the prompt names a place only where help says so."""
    for options, holds in (
        ({"bugs": 2}, lambda row: row.bugs == 2),
        ({"files": 2}, lambda row: row.files == 2),
        ({"distance": 2}, lambda row: row.distance >= 2),
        ({"kind": "feature"}, lambda row: row.feature),
    ):
        env = SweLite(**options)
        assert 0 < env.size < SweLite().size
        assert all(map(holds, env._rows))
    tests = {}
    for level in ("report", "tests", "place"):
        task = SweLite(kind="bug", help=level).task(0)
        tests[level] = task.meta["files"]["tests/test_all.py"].count("def test_")
        assert ("To be changed: src/" in task.prompt) == (level == "place")
    assert tests["report"] < tests["tests"] == tests["place"]
    assert "has no task of split 'test' with" in refusal(lambda: SweLite(split="test", bugs=9).size)
    assert "help" in refusal(lambda: SweLite(help="all"))
    assert isinstance(SweLite().size, int)
    with pytest.raises(IndexError, match="there is no task"):
        SweLite().task(10**6)
    with pytest.raises(LookupError):
        SweLite().find("swe-lite-v1/test/0")


def test_the_visible_tests_pass_but_those_that_show_the_bug():
    """In the policy's own session."""
    command = rlvr.Ask("bash", {"command": "python3 -m unittest discover -s tests 2>&1 | tail -1"})
    for level, ends in (("report", "OK"), ("tests", "FAILED")):
        env = SweLite(split="validation", kind="bug", help=level)
        record, _ = played(env, env.task(0), command, "Done.")
        assert record.calls[0].reply.startswith(ends)


def test_a_record_is_graded_again_from_its_files():
    """By its outputs, which hold the package alone."""
    env = SweLite(split="test")
    task = env.task(1)
    record, score = played(env, task, *env.example_episode(task))
    completion = env.completion_of(rlvr.EpisodeRecord.from_dict(record.as_dict()))
    assert grade_again(env, task, completion) == completion
    assert all(path.startswith("src/") for path in record.outputs)
    assert score.total == 1.0


def test_tasks_are_stable_under_hash_seeds():
    """Of every hundredth row, in three interpreters: the cases that fail are those of the table."""
    rows = read_table()[::100]
    jobs = [(row.project, row.variant, edits) for row in rows for edits in ([], row.edits)]
    outcomes = swe_finder._look_everywhere(jobs)
    for row, right, changed in zip(rows, outcomes[::2], outcomes[1::2], strict=True):
        failing = [at for at, one in enumerate(changed) if one != right[at]]
        assert [at for at in failing if at < 16] == sorted(row.shown)
        assert [at - 16 for at in failing if at >= 16] == row.decides


@pytest.mark.slow
def test_the_finder_finds_the_table():
    """What is in the table for a project is what is found again; slow, since it looks at every slip."""
    known = [row.as_line() for row in read_table() if row.project == "larder"]
    again = [row.as_line() for row in swe_finder.find_tasks("larder")]
    assert again == known


def test_slips_that_make_no_task_drop_out():
    """Without effect, with an effect that another has, that only crash, and that end all cases."""
    right = [(str(at), False) for at in range(56)]
    one = swe_finder._Candidate([], ("constant",))

    def changed(*places, crash=False):
        return [("new", crash) if at in places else pair for at, pair in enumerate(right)]

    assert swe_finder._failures(right, right, one) is None
    assert swe_finder._failures(right, changed(3, 20), one) is None  # one hidden case
    assert swe_finder._failures(right, changed(20, 21), one) is None  # none to be shown
    assert swe_finder._failures(right, changed(*range(54)), one) is None
    assert swe_finder._failures(right, changed(3, 20, 21, crash=True), one) is None
    assert swe_finder._failures(right, None, one) is None
    assert swe_finder._failures(right, changed(3, 20, 21), one) == ([3], [4, 5])
    rows = iter([right, changed(3, 20, 21), changed(3, 20, 21), changed(4, 20, 21)])
    kept = swe_finder._distinct("larder", [one, one, one], lambda jobs: [next(rows) for _ in jobs])
    assert len(kept) == 2


FILE = "a\nb\nc\nd\n"
APPLIED = {
    "a line": ("--- a/x\n+++ b/x\n@@ -2,2 +2,2 @@\n b\n-c\n+C\n", "a\nb\nC\nd\n"),
    "wrong numbers": ("--- x\n+++ x\n@@ -90,1 +90,1 @@\n-c\n+C\n", "a\nb\nC\nd\n"),
    "two hunks": (
        "--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n+0\n a\n@@ -4 +5 @@\n-d\n+D\n",
        "0\na\nb\nc\nD\n",
    ),
    "no line end": (
        "--- a/x\n+++ b/x\n@@ -4 +4 @@\n-d\n+D\n\\ No newline at end of file\n",
        "a\nb\nc\nD\n",
    ),
}
REFUSED = {
    "no such line": ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-q\n+r\n", "has lines that are not there"),
    "no such file": ("--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+r\n", "there is no file 'y'"),
    "there already": ("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+r\n", "'x' is there already"),
    "nothing": ("hello", "the patch has no hunk"),
    "not a diff": ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n?b\n", "begins with none of"),
    "no place": ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n+a\n", "has lines that are not there"),
}


@pytest.mark.parametrize("name", APPLIED)
def test_a_patch_applies_by_its_lines(name):
    """Their numbers only choose between places that fit."""
    patch, expected = APPLIED[name]
    assert apply_patch({"x": FILE}, patch) == {"x": expected}


@pytest.mark.parametrize("name", REFUSED)
def test_a_patch_that_does_not_apply_says_why(name):
    """By file and line."""
    patch, why = REFUSED[name]
    with pytest.raises(PatchError, match=why):
        apply_patch({"x": FILE}, patch)


@pytest.mark.parametrize("path", ["x/y", "y//z", "./y", "../y", "y\x01", "\u0661", "y" * 300])
def test_a_name_that_no_box_can_hold_is_the_patchs_fault(path):
    """A box refuses it, which would be our failure: a reply could make itself UNSCORED."""
    with pytest.raises(PatchError, match=r"no file can be called|is a file"):
        apply_patch({"x": FILE}, f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+r\n")


@pytest.mark.parametrize("head", ["@@ -" + "9" * 5000 + " +1 @@", "@@ -1 +1 @@\n a\n" * 2000])
def test_heads_beyond_all_measure_are_the_patchs_fault(head):
    """Python reads no number of 5,000 digits; each hunk is looked for in the whole file."""
    with pytest.raises(PatchError):
        apply_patch({"x": "a\n"}, f"--- a/x\n+++ b/x\n{head}\n a\n")


def test_patches_make_and_remove_files_and_are_read_from_the_last_block():
    """What `patch_between` writes leads back to the files."""
    made = apply_patch({"x": FILE}, "--- /dev/null\n+++ b/y\n@@ -0,0 +1 @@\n+r\n")
    assert made == {"x": FILE, "y": "r\n"}
    other = {"x": FILE.replace("b", "B")}
    assert apply_patch({"x": FILE}, patch_between({"x": FILE}, other)) == other
    assert patch_in("```diff\n1\n```\nor\n```diff\n2\n```") == "2\n"
    assert patch_in("```python\n1\n```\n```Diff x.py\n2\n```\n```\n3\n```") == "2\n"
    assert patch_in("no block") is None
    assert patch_in("<think>\n```diff\n1\n```\n") is None
    assert patch_in("<think>\n```diff\n1\n```\n</think>\n```diff\n2\n```") == "2\n"


def test_a_patch_of_several_files_is_read_as_git_writes_it():
    """Each file has a line of its own before its head, and models leave an empty line there."""
    changes = (
        "\ndiff --git a/{0} b/{0}\nindex 1..2 100644\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-a\n+b"
    )
    patch = changes.format("x") + "\n" + changes.format("y") + "\n"
    assert apply_patch({"x": "a\n", "y": "a\n"}, patch) == {"x": "b\n", "y": "b\n"}
    heads = "--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-a\n+b\n\n"
    patched = apply_patch({"x": "a\n", "y": "a\n"}, heads.format("x") + heads.format("y"))
    assert patched == {"x": "b\n", "y": "b\n"}


def test_fences_without_end_are_passed_over_once():
    """400 kB of them took minutes: from each, the whole text was searched for its end."""
    started = time.process_time()
    assert patch_in("```diff\n" * 50_000) is None
    assert time.process_time() - started < 1


CHEATS = {
    "equal to all, with slices": "class A:\n    __getitem__ = __call__ = __getattr__ = lambda s, *a, **k: s\n"
    "    __eq__ = lambda s, o: True\n    __iter__ = lambda s: iter(())\ndef __getattr__(name): return A()\n",
    "an endless iterator": "def __getattr__(name): return lambda *a, **k: iter(int, 1)\n",
    "an expected value from a frame": "import gc\ndef __getattr__(name):\n    def f(*a, **k):\n"
    "        return next(o[1] for o in gc.get_objects() if isinstance(o, list) and o[:1] == ['returns'])\n"
    "    return f\n",
    "skips": "import unittest\ndef __getattr__(name):\n    def f(*a, **k): raise unittest.SkipTest\n    return f\n",
    "errors of any name": "def __getattr__(name):\n    def f(*a, **k): raise type('ValueError', (Exception,), {})\n"
    "    return f\n",
    "no tests": "import sys, os\nfor at in range(3, 99):\n    try: os.write(at, b'[\"done\",40]\\n')\n"
    "    except OSError: pass\n",
}
NAMES = (
    "d=$(printf 'd%.0s' $(seq 200)); mkdir -p src/$p/$d/$d/$d/$d; echo x > src/$p/$d/$d/$d/$d/x.py; "
    "echo x > $'src/'$p$'/a\\nb.py'; echo x > $'src/'$p$'/\\xff.py'"
)


@pytest.mark.parametrize("name", [*CHEATS, "names that no program has", "tests of its own"])
def test_a_cheat_is_wrong(name):
    """Never paid, and never UNSCORED, which would let a policy throw a bad episode away."""
    env = SweLite(split="test")
    task = env.task(0)
    paths = [path for path in task.meta["files"] if path.startswith("src/")]
    if name in CHEATS:
        command = "\n".join(f"printf %s {shlex.quote(CHEATS[name])} > {path}" for path in paths)
    elif name == "tests of its own":
        command = "for f in unittest sys tests; do echo 'TestCase = object' > src/$f.py; done; rm -r tests"
    else:
        command = f"p={task.meta['package']}; {NAMES}"
    _, score = played(env, task, rlvr.Ask("bash", {"command": command}), "Done.")
    assert (score.total, score.verdict.outcome) == (0.0, "wrong")


def test_the_session_does_not_hold_what_is_right():
    """Neither projects nor table can be read where the policy works."""
    env = SweLite()
    command = "find / \\( -name 'swe*' -o -name tasks.jsonl -o -name 'ledger*' \\) -not -path '/proc/*' 2>/dev/null"
    ask = rlvr.Ask("bash", {"command": f"{command}; python3 -c 'import rlvr' 2>&1 | tail -1"})
    record, _ = played(env, env.task(0), ask, "Done.")
    assert record.calls[0].reply == "ModuleNotFoundError: No module named 'rlvr'"
