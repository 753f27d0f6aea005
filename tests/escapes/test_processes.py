"""Attack family: many processes and threads, and processes that mean to stay."""

import dataclasses
import time

import pytest

from rlvr.sandbox import Limits
from tests.sandbox.sandboxes import SMALL

WALL = dataclasses.replace(SMALL, wall_s=0.7)


def test_a_fork_bomb_stays_within_the_number_of_processes(host):
    """`while True: fork()` everywhere: fork fails in it, and CPU time or memory ends it; the host forks as before."""
    run = host.run("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass")
    assert run.ending in ("TLE", "MLE")
    assert run.cpu_s < 2.0


def test_a_fork_bomb_of_sleepers_waits_for_the_wall(host):
    """Processes that use no CPU are ended by the wall clock, all of them."""
    run = host.run(
        "import os, time\nfor _ in range(200):\n    try: os.fork()\n    except OSError: time.sleep(60)",
        limits=WALL,
    )
    assert run.ending == "TLE"
    assert "wall" in run.why


def test_a_shell_fork_bomb_ends(host):
    """`:(){ :|:& };:` in bash, which tries again and again when fork fails."""
    run = host.run(":(){ :|:& };:\nwait", language="bash", limits=WALL)
    assert run.ending in ("TLE", "OK", "RE")


def test_threads_count_as_processes(host):
    """A thread bomb stops at the same limit as a fork bomb."""
    run = host.run(
        "import threading, time\n"
        "made = 0\n"
        "try:\n"
        "    while made < 500:\n"
        "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "        made += 1\n"
        "except RuntimeError: pass\n"
        "print(made, flush=True)",
        limits=WALL,
    )
    assert 4 <= int(run.stdout) <= SMALL.processes + 8


def test_threads_that_never_end_are_ended(host):
    """The main thread is over, and the interpreter would wait for the others for ever."""
    run = host.run(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
        limits=WALL,
    )
    assert run.ending == "TLE"


@pytest.mark.parametrize(
    "signal", ["SIGTERM", "SIGINT", "SIGHUP", "SIGXCPU", "SIGALRM", "every one"]
)
def test_ignoring_signals_does_not_help(host, signal):
    """We end programs with SIGKILL, which no program can ignore."""
    chosen = "range(1, 65)" if signal == "every one" else f"[signal.{signal}]"
    run = host.run(
        "import signal\n"
        f"for number in {chosen}:\n"
        "    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
        "while True: pass"
    )
    assert run.ending == "TLE"


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_daemon_ends_with_its_run(host, times):
    """Forked away, in a session of its own, its parent gone: it is still in the run's pid namespace."""
    started = time.monotonic()
    run = host.run(
        "import os, time\n"
        f"for _ in range({times}):\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.setsid()\n"
        "while True: time.sleep(1)"
    )
    assert run.ending == "OK"
    assert time.monotonic() - started < 20.0


def test_a_daemon_that_ignores_everything_and_respawns_ends(host):
    """Two processes that start each other again whenever one is killed."""
    run = host.run(
        "import os, signal, time\n"
        "if os.fork(): time.sleep(0.1); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "while True:\n"
        "    pid = os.fork()\n"
        "    if pid == 0: os.setsid(); time.sleep(0.01)\n"
        "    else:\n"
        "        try: os.waitpid(pid, 0)\n"
        "        except OSError: pass"
    )
    assert run.ending in ("OK", "RE")


def test_nohup_and_disown_do_not_outlive_a_shell(host):
    """What a shell leaves in the background is killed when the shell ends."""
    run = host.run(
        "nohup sleep 60 >/dev/null 2>&1 &\ndisown\nsetsid sleep 60 &\nexit 0", language="bash"
    )
    assert run.ending == "OK"


def test_zombies_are_bounded_and_go(host):
    """Children that end and are never waited for count as processes."""
    run = host.run(
        "import os, time\n"
        "made = 0\n"
        "try:\n"
        "    while made < 500:\n"
        "        if os.fork() == 0: os._exit(0)\n"
        "        made += 1\n"
        "except OSError: pass\n"
        "print(made)"
    )
    assert 4 <= int(run.stdout) <= SMALL.processes + 8


def test_orphans_are_bounded_in_time(host):
    """A chain of processes, each of which starts the next and ends: no pid lives long enough to be looked at."""
    run = host.run("import os\nwhile True:\n    if os.fork(): os._exit(0)\n", limits=WALL)
    assert run.ending in ("OK", "RE", "TLE")


def test_stopped_processes_do_not_hold_a_run_open(host):
    """Children in SIGSTOP can still be killed."""
    run = host.run(
        "import os, signal\nfor _ in range(5):\n    if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    assert run.ending == "OK"


def test_a_program_that_stops_itself_is_ended_by_the_wall(host):
    """SIGSTOP uses no CPU, and no process sends SIGCONT."""
    run = host.run("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", limits=WALL)
    assert run.ending == "TLE"
    assert "wall" in run.why


def test_the_limit_on_processes_cannot_be_raised(host):
    """setrlimit may lower; what the kernel counts stays below what we set."""
    run = host.run(
        "import os, resource, time\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)\n"
        "for which in (hard + 1, resource.RLIM_INFINITY):\n"
        "    try: resource.setrlimit(resource.RLIMIT_NPROC, (which, which)); print('raised')\n"
        "    except (ValueError, OSError): pass\n"
        "print(soft == hard)"
    )
    assert run.text == "True\n"


def test_a_run_under_attack_does_not_slow_the_next(host):
    """The slot of a fork bomb is as good as new: killed processes are waited for before the verdict."""
    host.run(
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        limits=Limits(cpu_s=0.3, wall_s=1),
    )
    for _ in range(5):
        run = host.run("print(1)", limits=Limits(cpu_s=0.2, wall_s=10, processes=1))
        assert run.text == "1\n", run
