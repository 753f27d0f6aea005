"""A verdict on files of a session is found in a fresh box, where nothing that the policy did there counts."""

import threading
import time
import types
from dataclasses import replace

import pytest

import rlvr
from rlvr.environment import tool_episode
from rlvr.environment.episode import EpisodeFailed
from rlvr.environment.ready_tools import bash, sandbox
from rlvr.errors import SandboxFailed
from rlvr.sandbox import Box, Limits
from rlvr.scoring.episodes import grade_again, play_again
from tests.rewards.parts import refusal

TESTS = """
import unittest
from shop.stats import mean

class Hidden(unittest.TestCase):
    def test_empty(self):
        self.assertEqual(mean([]), 0)

    def test_two(self):
        self.assertEqual(mean([1, 3]), 2)
"""
ALL = {"Hidden.test_empty": "pass", "Hidden.test_two": "pass"}


class Fix(rlvr.Environment):
    """A bug in a file; hidden tests decide."""

    outputs = ("shop/**.py",)

    def task(self, index):
        return rlvr.Task(f"fix/{index}", "mean([]) in shop/stats.py must give 0.")

    def setup(self, task):
        session = sandbox(Limits(cpu_s=2.0, memory_mib=256)).session("bash")
        session.write("shop/__init__.py", "")
        session.write("shop/stats.py", "def mean(x):\n    return sum(x) / len(x)\n")
        return session

    def tools(self, state):
        return [bash(state)]

    def grade(self, task, box):
        return box.test(TESTS)

    def verify(self, task, record):
        right = record.final == ALL
        return rlvr.Verdict("correct" if right else "wrong", why="tests", answer=str(record.final))


def played(env, command: str):
    task = env.task(0)
    with env.open(task) as episode:
        episode.reply(rlvr.Ask("bash", {"command": command}))
        episode.reply("Done.")
    return episode.record, env.score(task, episode.completion())


def written(text: str) -> str:
    return f"cat > shop/stats.py <<'END'\n{text}\nEND"


def test_honest_work_is_paid_and_its_files_are_in_the_record():
    """The copy that was graded is what a reader of the record sees."""
    text = "def mean(x):\n    return sum(x) / len(x) if x else 0"
    record, score = played(Fix(), written(text))
    assert (score.total, record.final) == (1.0, ALL)
    assert record.outputs == {"shop/__init__.py": "", "shop/stats.py": text + "\n"}
    assert rlvr.EpisodeRecord.from_dict(record.as_dict()) == record


PROGRAMS = {
    "prints and exits": """
import os
print(True, flush=True)
os._exit(0)
""",
    "exits when called": """
import os
def mean(x): os._exit(0)
""",
    "equal to all": """
class A:
    def __eq__(self, other): return True
    def __hash__(self): return 0
def mean(x): return A()
""",
    "an int equal to all": """
class A(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
def mean(x): return A(5)
""",
    "patches unittest": """
import unittest
unittest.TestCase.assertEqual = lambda *a: None
def mean(x): return 1
""",
}
STARTS = "sitecustomize.py shop/sitecustomize.py conftest.py shop/conftest.py usercustomize.py"
SLICED = """
class A:
    __getitem__ = __call__ = __getattr__ = lambda self, *args, **more: self
    def __eq__(self, other): return True
def mean(x): return A()
"""
SHELLS = {
    "nothing": "ls",
    "shadows the interpreter": "echo 'echo True' > python3; chmod +x python3; export PATH=$PWD:$PATH",
    "a function for a command": "python3() { echo True; }",
    "a trap": "trap 'echo True; exit' DEBUG",
    "start-up files": f"for f in {STARTS}; do echo 'import os; os._exit(0)' > $f; done",
    "takes the tests' modules": "for f in unittest json; do echo 'TestCase = object' > shop/$f.py; done",
    "a link": "rm shop/stats.py; ln -s /etc/passwd shop/stats.py",
    "a late process": "(sleep 0.3; echo 'def mean(x): return 2' > shop/stats.py) & disown",
    "a flood": "head -c 50000000 /dev/zero > shop/big.py",
}
CHEATS = SHELLS | {name: written(text) for name, text in PROGRAMS.items()}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_not_paid(name):
    """WRONG, and never UNSCORED: it is the policy's doing."""
    _, score = played(Fix(), CHEATS[name])
    assert (score.verdict.outcome, score.total) == ("wrong", 0.0)


def test_a_program_that_never_ends_is_wrong_however_long_its_tests_take(monkeypatch):
    """The limit of `grade` held for the tests in its box too: an endless loop on a busy machine, or
    in several tests, bought UNSCORED."""

    class Often(Fix):
        def setup(self, task):
            session = super().setup(task)
            session.write("shop/stats.py", "while True: pass")
            return session

        def grade(self, task, box):
            return [box.test(TESTS), box.test(TESTS, files=box.files)]

    env = Often(call_seconds=0.1)
    task = env.task(0)
    with env.open(task) as episode:
        monkeypatch.setattr(tool_episode, "_OWN_S", 1.0)  # not of `setup`, which starts the sandbox
        episode.reply("Done.")
    assert env.score(task, episode.completion()).verdict.outcome is rlvr.Outcome.WRONG


def test_tests_side_by_side_count_once_and_until_the_last_ends():
    """Of two, the shorter ended the count of the longer, which then used up the limit of `grade`."""
    ends, both = {"long": threading.Event(), "short": threading.Event()}, threading.Barrier(3)

    def run(_, suite):
        both.wait()
        ends[suite.test].wait()
        raise SandboxFailed("ended")

    def test(name):
        with pytest.raises(SandboxFailed):
            box.test(name)

    box = Box(types.SimpleNamespace(test=run), {})
    threads = {name: threading.Thread(target=test, args=(name,)) for name in ends}
    for thread in threads.values():
        thread.start()
    both.wait()
    ends["short"].set()
    threads["short"].join()
    before_s = box.testing_s
    time.sleep(0.02)
    during_s = box.testing_s
    ends["long"].set()
    threads["long"].join()
    after_s = box.testing_s
    time.sleep(0.02)
    assert before_s + 0.02 <= during_s <= after_s == box.testing_s


def test_the_tests_of_some_files_are_of_the_box(monkeypatch):
    """A box of its own within `grade`, as `swe-lite-v1` made, counted for the limit of `grade`."""
    suites = []
    env = rlvr.make("swe-lite-v1")
    monkeypatch.setattr(Box, "test", lambda box, test, **options: suites.append((box, options)))
    task, box = env.task(0), Box(None, {"src/other/a.py": b"", "main.py": b""})
    env.grade(task, box)
    assert suites == [(box, {"files": {}})]


def test_a_grade_of_ones_own_that_hangs_is_ours(monkeypatch):
    """Only the tests of the box have a limit of their own."""
    env = Fix(call_seconds=0.1)
    env.grade = lambda task, box: time.sleep(3)
    with env.open(env.task(0)) as episode:
        monkeypatch.setattr(tool_episode, "_OWN_S", 0.5)
        with pytest.raises(EpisodeFailed, match=r"more than 0\.5 s"):
            episode.reply("Done.")


def test_an_object_in_place_of_a_value_is_wrong():
    """Also where tests do with it what works with a value alone; a policy could choose UNSCORED by it."""

    class Sliced(Fix):
        def grade(self, task, box):
            return box.test(TESTS.replace("mean([1, 3])", "mean([1, 3])[1:].index([].append)"))

    record, score = played(Sliced(), written(SLICED))
    assert score.verdict.outcome == "wrong"
    assert any(name.startswith("with an object that the program gave") for name in record.final)


def test_names_that_no_program_can_have_are_left_out():
    """They take nothing else with them."""
    d = "d" * 200
    deep = f"mkdir -p shop/{d}/{d}/{d}/{d} && echo x > shop/{d}/{d}/{d}/{d}/x.py"
    text = "def mean(x):\n    return sum(x) / len(x) if x else 0"
    assert played(Fix(), f"{written(text)}\n{deep}")[1].total == 1.0


def test_outputs_that_are_lost_are_wrong():
    """A session that the policy ends gives none."""
    record, score = played(Fix(), "kill -9 $$")
    assert record.fault.startswith("outputs: the session is over")
    assert (score.verdict.outcome, score.verdict.why) == ("wrong", record.fault)


def test_a_final_that_runs_code_in_the_session_is_refused():
    """It could be bought there; the error names what to define."""

    class Bought(Fix):
        outputs = ()
        grade = rlvr.Environment.grade

        def final(self, task, state):
            return state.run("python3 -c 'import shop'").text

    assert "define grade(task, box)" in refusal(lambda: played(Bought(), "ls"))


def test_outputs_and_grade_belong_together():
    """One without the other decides nothing."""

    def half():
        class Half(rlvr.Environment):
            outputs = ("*.py",)

    assert refusal(half).startswith("Half: outputs and grade belong together")


def test_a_record_is_graded_again_from_its_outputs():
    """By the tests as they are now, without the policy's session."""
    record, score = played(Fix(), written("def mean(x):\n    return sum(x) / len(x) if x else 0"))
    task, completion = Fix().task(0), Fix().completion_of(record)
    assert grade_again(Fix(), task, completion) == completion
    lost = replace(completion, episode=replace(record, final=None))
    assert grade_again(Fix(), task, lost) == completion

    class Stricter(Fix):
        def grade(self, task, box):
            return box.test(TESTS.replace("2)", "3)"))

    again = grade_again(Stricter(), task, completion)
    assert again.episode.final == ALL | {"Hidden.test_two": "fail"}
    assert (score.total, Stricter().score(task, again).total) == (1.0, 0.0)


def test_the_calls_of_a_record_are_made_again():
    """What is replied otherwise is named by its turn; files that are no UTF-8 come back as they were."""
    command = "printf '\\377' > shop/x.py; cat shop/stats.py | wc -l"
    record, _ = played(Fix(), command)
    assert record.outputs["shop/x.py"] == "base64:/w=="
    assert list(play_again(Fix(), Fix().task(0), record)) == []

    class Longer(Fix):
        def setup(self, task):
            session = super().setup(task)
            session.write("shop/stats.py", "x = 1\ny = 2\nz = 3\n")
            return session

    fields = {name: (old, new) for name, old, new in play_again(Longer(), Fix().task(0), record)}
    assert fields["turn 0, bash"] == ("2", "3")
    assert set(fields) == {"turn 0, bash", "final", "outputs"}
