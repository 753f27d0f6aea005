"""The level "restricted", from the host's side: what it says of itself, and that nothing of it outlives a kill."""

import dataclasses
import os
import pickle
import signal
import subprocess
import time
from pathlib import Path

import pytest

from rlvr.cli.arguments import environment_of, with_level
from rlvr.errors import IsolationUnavailable, UsageError
from rlvr.sandbox import Ending, Limits, Program, ProgramCall, Sandbox, levels, seccomp
from rlvr.sandbox.guest.linux import landlock_abi
from rlvr.sandbox.guest.restricted import ABI
from rlvr.sandbox.levels import LEVELS
from rlvr.sandbox.probe import PROMISES
from rlvr.sandbox.slots import CannotIsolate, Keeper
from rlvr.verifiers.code import CodeVerifier
from tests.sandbox.sandboxes import descendants, keeper_of

needs_landlock = pytest.mark.skipif(
    landlock_abi() < ABI, reason=f"Landlock has no version {ABI} here (Linux 6.12)"
)
SMALL = Limits(cpu_s=1.0, wall_s=10.0, memory_mib=96, processes=16)
DAEMONS = "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid(); os.fork(); time.sleep(60)\n"


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(SMALL, workers=1, level="restricted") as sandbox:
        yield sandbox


def test_each_promise_of_a_level_rests_on_something_or_is_missing():
    """Never both, and none is forgotten."""
    for level in LEVELS.values():
        assert set(level.rests_on) | set(level.missing) == set(PROMISES)
        assert not set(level.rests_on) & set(level.missing)


@needs_landlock
def test_a_run_carries_its_level_and_what_that_does_not_promise(sandbox):
    """The level was asked for by name, so what it lacks is waived with it."""
    run = sandbox.run(Program("python", "print(int(input()) + 1)"), "41")
    assert (run.ending, run.text) == (Ending.OK, "42\n")
    assert run.isolation.level == "restricted"
    assert run.isolation.waived == set(LEVELS["restricted"].missing)
    assert "Landlock" in run.isolation.mechanisms["files"]
    again = pickle.loads(pickle.dumps(sandbox))
    assert (again.level, again.limits) == ("restricted", SMALL)


@needs_landlock
def test_calls_tests_sessions_and_compiled_programs_work(sandbox):
    """The same code serves all of them at each level."""
    called = sandbox.call(Program("python", "def f(x): return x + 1"), [ProgramCall("f", (1,))])
    assert called.replies[0].value == 2
    shell = sandbox.run(
        Program("bash", "mktemp -u >/dev/null; f=$(mktemp); echo $(cat <(echo 5)); sort <<< 7")
    )
    assert shell.text == "5\n7\n"
    with sandbox.session("python") as session:
        session.run("x = 20")
        assert session.run("x + 1").text == "21\n"
        assert session.run("while True: pass").ending is Ending.TLE
        assert session.run(DAEMONS + "print('here')").text == "here\n"
        assert session.run("x").text == "20\n"


def test_a_level_that_does_not_exist_is_refused():
    with pytest.raises(
        UsageError, match="level is 'jail'; it must be one of 'namespaces', 'restricted'"
    ):
        Sandbox(level="jail")


def test_a_host_without_landlock_is_told_its_ways_out(monkeypatch):
    """It never falls back to less."""

    def refuse(*args):
        raise CannotIsolate("the kernel has none")

    monkeypatch.setattr(Keeper, "__init__", refuse)
    with pytest.raises(IsolationUnavailable, match="no Landlock: the kernel has none") as caught:
        Sandbox(workers=1, level="restricted").warm()
    for way in ("Linux 5.13", "landlock_create_ruleset", "rlvr serve"):
        assert way in str(caught.value)
    assert "waive" not in str(caught.value)


OUTWARD = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
value = ctypes.create_string_buffer(128)
value[:12] = bytes([10, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255])  # SIGUSR1, by SI_QUEUE
attacks = {
    "kill": lambda: os.kill(VICTIM, 10),
    "group": lambda: os.killpg(VICTIM, 10),
    "parent": lambda: os.kill(os.getppid(), 10),
    "pidfd": lambda: signal.pidfd_send_signal(os.pidfd_open(VICTIM), 10),
    "truncate": lambda: os.truncate(FILE, 0),
    "read and truncate": lambda: os.open(FILE, os.O_RDONLY | os.O_TRUNC),
    "neither and truncate": lambda: os.open(FILE, os.O_ACCMODE | os.O_TRUNC),
    "write": lambda: os.open(FILE, os.O_WRONLY),
}
for number, *args in CALLS:
    def call(number=number, args=args):
        if libc.syscall(number, *(value if arg is None else arg for arg in args)) < 0:
            raise OSError(ctypes.get_errno(), "")
    attacks[f"call {number}"] = call
done = []
for name, attack in attacks.items():
    try:
        attack()
    except OSError:
        continue
    done.append(name)
child = os.fork()
if child == 0:
    signal.pause()
signal.signal(10, lambda *_: done.append("a signal to all that came back"))
os.kill(-1, 10)
assert os.waitstatus_to_exitcode(os.wait()[1]) == -10
got = []
signal.signal(12, lambda *_: got.append(1))
os.kill(0, 12), os.kill(os.getpid(), 12), signal.raise_signal(12)
print(done, len(got))
"""


@needs_landlock
@pytest.mark.parametrize(
    "version", [1, *(pytest.param(version, marks=pytest.mark.slow) for version in (2, 3)), 5]
)
def test_older_versions_of_landlock_keep_the_same_promises(monkeypatch, tmp_path, version):
    """Newer rights are left out: what they keep, signals in and files whole, seccomp and the run's parent keep."""
    monkeypatch.setattr(levels, "_NEWEST", version)
    file = tmp_path / "file"
    file.write_text("kept")
    arm = os.uname().machine == "aarch64"
    with (
        subprocess.Popen(["sleep", "60"], start_new_session=True) as victim,
        Sandbox(SMALL, workers=1, level="restricted") as sandbox,
    ):
        pid = victim.pid
        queue, thread_queue, tkill, tgkill = (138, 240, 130, 131) if arm else (129, 297, 200, 234)
        calls = [(tkill, pid, 10), (tgkill, pid, pid, 10), (queue, pid, 10, None)]
        calls.append((thread_queue, pid, pid, 10, None))
        head = f"VICTIM, FILE, CALLS = {pid}, {str(file)!r}, {calls}\n"
        run = sandbox.run(Program("python", head + OUTWARD))
        assert (run.ending, run.text) == ("OK", "[] 3\n"), run.stderr
        missing = {g.name for g in sandbox.check(full=version == 1) if not g.mechanism or g.weak}
        assert missing == set(LEVELS["restricted"].missing)
        assert "asked" in sandbox.isolation().mechanisms["processes-untouched"]
        assert victim.poll() is None
        victim.kill()
    assert file.read_text() == "kept"


@needs_landlock
@pytest.mark.parametrize("version", [1, ABI])
@pytest.mark.parametrize("victim", ["keeper", "zygote", "box"])
def test_nothing_outlives_a_process_of_ours_that_is_killed(monkeypatch, victim, version):
    """Without a pid namespace the kernel ends nothing by itself: each of ours ends what is below it."""
    monkeypatch.setattr(levels, "_NEWEST", version)
    with (
        Sandbox(SMALL, workers=1, level="restricted") as sandbox,
        sandbox.session("python") as session,
    ):
        session.run(DAEMONS)
        keeper = keeper_of(sandbox)
        tree = {pid: list(_children(pid)) for pid in [keeper, *descendants(keeper)]}
        [zygote] = (pid for pid in tree[keeper] if any(tree[box] for box in tree[pid]))
        [box] = (pid for pid in tree[zygote] if tree[pid])
        doomed = list(_below(box, tree))
        assert len(doomed) >= 4
        os.kill({"keeper": keeper, "zygote": zygote, "box": box}[victim], signal.SIGKILL)
        deadline = time.monotonic() + 20.0
        while left := [pid for pid in doomed if _alive(pid)]:
            assert time.monotonic() < deadline, left
            time.sleep(0.02)


def _children(pid):
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def _below(pid, tree):
    for child in tree.get(pid, ()):  # one that was forked while we looked has no entry
        yield child
        yield from _below(child, tree)


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@needs_landlock
def test_a_call_that_fills_the_scratch_at_its_end_ends_the_session():
    """No look falls between the last write and the end of the call, so there is one after it."""
    source = "for name in 'abc':\n    with open(name, 'wb') as file: file.write(bytes(4 << 20))"
    limits = dataclasses.replace(SMALL, disk_mib=8.0)
    with (
        Sandbox(limits, workers=1, level="restricted") as sandbox,
        sandbox.session("python") as session,
    ):
        assert session.run("import os").ending == "OK"
        reply = session.run(source)
        assert (reply.ending, reply.open) == ("MLE", False), reply
        assert reply.why == "its files are larger than the disk limit of 8 MiB"


@needs_landlock
def test_the_scratch_goes_with_the_sandbox():
    """It lies in the host's temp folder."""
    with Sandbox(SMALL, workers=1, level="restricted") as sandbox:
        folder = Path(sandbox.run(Program("python", "import os; print(os.getcwd())")).text.strip())
        base = folder.parents[2]
        assert base.name.startswith("rlvr-")
        assert base.exists()
    assert not base.exists()


def test_the_filter_of_the_level_knows_the_calls_that_it_changes():
    """A name that is not in the list would change nothing."""
    assert set(seccomp.RESTRICTED) <= set(seccomp.NUMBERS)
    assert seccomp.program(restricted=True) != seccomp.program()


@needs_landlock
def test_a_verdict_names_the_level():
    verifier = CodeVerifier(sandbox="restricted", limits=dataclasses.replace(SMALL))
    verdict = verifier.verify(
        "```python\nprint(int(input()) + 1)\n```", {"inputs": ["1\n"], "outputs": ["2\n"]}
    )
    assert (verdict.why, verdict.detail["sandbox"]) == ("AC", "restricted")


def test_the_flag_sets_the_option_of_environments_that_run_programs():
    """And is refused for one that runs none, as the user expects something of it."""
    assert with_level(["a=b"], None) == ["a=b"]
    assert with_level(["a=b"], "restricted", "humaneval-v3") == ["a=b", "sandbox=restricted"]
    with pytest.raises(
        UsageError, match="arithmetic-v1 runs no programs in the sandbox; leave the flag out"
    ):
        environment_of("arithmetic-v1", [], "restricted")
    with pytest.raises(UsageError, match="must be one of 'namespaces', 'restricted'"):
        CodeVerifier(sandbox="jail")
