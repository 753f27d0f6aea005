"""Attack family: other processes: signals, tracing, memory, priorities."""

import signal

import pytest


@pytest.mark.parametrize(
    "target", ["1", "0", "-1", "-2", "CANARY['pid']", "CANARY['host_pid']", "-CANARY['host_pid']"]
)
def test_signals_reach_nobody_else(host, target):
    """Pid 1 of the run, its group, everybody, and processes of the host by their numbers."""
    run = host.run(
        "import os, signal\n"
        "for number in range(64, 0, -1):\n"
        f"    if number in (18, 20, 21, 22, 19) and {target} < 1: continue\n"
        f"    try: os.kill({target}, number)\n"
        "    except OSError: pass\n"
        "print('alive')"
    )
    assert (run.ending, run.text) == ("OK", "alive\n") or run.signal is not None, run


def test_killing_everybody_kills_the_program_s_own(host):
    """kill(-1, SIGKILL) spares the caller and pid 1; its children are gone."""
    run = host.run(
        "import os, signal, time\n"
        "if os.fork() == 0: time.sleep(60)\n"
        "os.kill(-1, signal.SIGKILL)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))"
    )
    assert (run.ending, run.text) == ("OK", f"{-signal.SIGKILL}\n")


def test_killing_its_own_group_is_its_own_end(host):
    """kill(0, SIGKILL): the program ends by that signal, and no process of ours is in the group."""
    run = host.run("import os\nos.kill(0, 9)")
    assert (run.ending, run.signal) == ("RE", 9)


def test_every_number_is_tried(host):
    """Signals to all pids there could be: none but pid 1 of the run and itself exists."""
    run = host.run(
        "import os\nfound = []\n"
        "for pid in range(1, 70000):\n"
        "    try: os.kill(pid, 0); found.append(pid)\n"
        "    except ProcessLookupError: pass\n"
        "    except PermissionError: found.append(pid)\n"
        "print(found)"
    )
    assert run.text == "[1, 2]\n"


def test_other_processes_memory_is_closed(host):
    """ptrace, process_vm_readv, /proc/PID/mem, pidfd_getfd, on pid 1 and on pids of the host."""
    run = host.run(
        "import ctypes, platform\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "arm = platform.machine() == 'aarch64'\n"
        "buffer = ctypes.create_string_buffer(64)\n"
        "iov = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 64)\n"
        "for pid in (1, CANARY['pid'], CANARY['host_pid']):\n"
        "    for request in (16, 0x4206): print(libc.syscall(117 if arm else 101, request, pid, 0, 0))\n"
        "    print(libc.syscall(270 if arm else 310, pid, iov, 1, iov, 1, 0))\n"
        "    print(libc.syscall(271 if arm else 311, pid, iov, 1, iov, 1, 0))\n"
        "    fd = libc.syscall(434, pid, 0)\n"
        "    print(libc.syscall(438, fd, 0, 0))\n"
        "    try: print(open(f'/proc/{pid}/mem', 'rb'))\n"
        "    except OSError: pass"
    )
    assert set(run.text.split()) == {"-1"}


def test_limits_and_priorities_of_pid_1_cannot_be_changed(host):
    """Pid 1 has the program's user, so prlimit and setpriority would work on it: the filter refuses."""
    run = host.run(
        "import os, resource\n"
        "for attempt in (lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0)),\n"
        "                lambda: resource.prlimit(1, resource.RLIMIT_CPU, (1, 1)),\n"
        "                lambda: os.setpriority(os.PRIO_PROCESS, 1, 19), lambda: os.setpriority(os.PRIO_USER, 0, 19),\n"
        "                lambda: os.setpriority(os.PRIO_PGRP, 1, 19), lambda: os.sched_setaffinity(1, {0}),\n"
        "                lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))):\n"
        "    try: attempt(); print('done')\n"
        "    except OSError: pass"
    )
    assert run.text == ""


def test_real_time_priority_is_refused(host):
    """It would starve the host."""
    run = host.run(
        "import os\n"
        "for policy in (os.SCHED_FIFO, os.SCHED_RR):\n"
        "    try: os.sched_setscheduler(0, policy, os.sched_param(1)); print('real time')\n"
        "    except OSError: pass\n"
        "try: os.nice(-5); print('nice')\n"
        "except OSError: pass"
    )
    assert run.text == ""


def test_sessions_and_groups_of_others_cannot_be_joined(host):
    """setpgid and setsid move the program among its own."""
    run = host.run(
        "import os\n"
        "for attempt in (lambda: os.setpgid(1, 0), lambda: os.setpgid(0, 1), lambda: os.setpgid(CANARY['pid'], 0)):\n"
        "    try: attempt(); print('moved')\n"
        "    except OSError: pass"
    )
    assert run.text == ""


def test_two_runs_at_once_do_not_see_each_other(host):
    """Neither processes nor files nor abstract sockets of a run that goes on beside it."""
    from concurrent.futures import ThreadPoolExecutor

    source = (
        "import os, socket, time\n"
        "open('/tmp/here', 'x').close(); open('/dev/shm/here', 'x').close()\n"
        "s = socket.socket(socket.AF_UNIX); s.bind('\\0here'); s.listen()\n"
        "time.sleep(0.3)\n"
        "print(sorted(p for p in os.listdir('/proc') if p.isdigit()), os.listdir('/tmp'))"
    )
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda _: host.run(source), range(2)))
    assert [run.text for run in runs] == ["['1', '2'] ['here']\n"] * 2
