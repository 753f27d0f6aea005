"""Attack family: descriptors: inherited ones, games with 0, 1 and 2, and descriptors sent away."""

import ast
import dataclasses

import pytest

LISTED = (
    "import os\n"
    "found = {}\n"
    "for fd in range(1 << 12):\n"
    "    try: found[fd] = os.readlink(f'/proc/self/fd/{fd}')\n"
    "    except OSError: pass\n"
    "print(found)"
)


def test_a_program_has_three_descriptors(host):
    """Standard input, output and error; nothing of the slot's, the zygote's, the keeper's or the host's."""
    run = host.run(LISTED)
    names = ast.literal_eval(run.text)
    assert set(names) <= {0, 1, 2}
    assert all(name.startswith("/memfd:rlvr") for name in names.values()), names


@pytest.mark.parametrize(
    ("language", "source"), [("bash", "ls /proc/self/fd"), ("javascript", None)]
)
def test_programs_of_other_languages_too(host, language, source):
    """What ls and node have open beyond 2, they opened themselves."""
    source = source or (
        "const fs = require('fs');\n"
        "for (const fd of fs.readdirSync('/proc/self/fd')) { let to = ''; try { to = "
        "fs.readlinkSync('/proc/self/fd/' + fd) }"
        " catch {}\n if (fd > 2 && !/anon_inode|pipe|\\/dev\\/null|^$|\\/proc\\//.test(to)) console.log(fd, to) }"
    )
    limits = dataclasses.replace(
        host.sandbox.limits, memory_mib=256, cpu_s=3.0, wall_s=6.0, processes=32
    )
    run = host.run(source, language=language, limits=limits)
    assert run.text in ("0\n1\n2\n3\n", ""), run


@pytest.mark.parametrize(
    "game",
    [
        "os.closerange(0, 65536)",
        "os.dup2(1, 0); os.dup2(2, 1); os.dup2(0, 2)",
        "os.close(1); os.open('/dev/null', os.O_WRONLY)",
        "os.lseek(0, 0, 2); os.lseek(1, 10 ** 6, 0); os.lseek(2, 1000, 0)",
        "os.ftruncate(0, 0); os.ftruncate(1, 0)",
        "os.set_blocking(0, False); os.set_blocking(1, False)",
        "import fcntl; fcntl.fcntl(1, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK | os.O_ASYNC)",
        "import fcntl; fcntl.flock(1, fcntl.LOCK_EX); fcntl.lockf(1, fcntl.LOCK_EX)",
        "os.fchmod(0, 0); os.fchmod(1, 0); os.fchmod(2, 0)",
        "os.fchown(1, 1000, 1000)",
        "os.write(0, b'x' * 1000)",
        "sys.stdout = sys.stderr = sys.stdin = None",
        "sys.stdin, sys.stdout = sys.stdout, sys.stdin",
        "sys.__stdout__ = sys.__stderr__ = 5",
        "del sys.stdout, sys.stderr, sys.__stdout__, sys.modules['__main__']",
    ],
)
def test_games_with_standard_streams_are_the_program_s_own(host, game):
    """Whatever it does to its streams, it ends as a program, and the next run has good ones."""
    run = host.run(
        f"import os, sys\nos.write(2, b'here')\ntry:\n    {game}\nexcept OSError: pass", "input"
    )
    assert run.ending in ("OK", "RE")


@pytest.mark.parametrize("seal", [0x0001, 0x0002, 0x0004, 0x0008, 0x0010])
def test_the_memfds_of_a_run_cannot_be_sealed(host, seal):
    """A seal on standard output would keep us from emptying it."""
    run = host.run(
        f"import fcntl\nfor fd in (0, 1, 2):\n    try: fcntl.fcntl(fd, 1033, {seal}); print('sealed')\n    "
        f"except OSError: pass"
    )
    assert run.text == ""


def test_descriptors_in_flight_go_with_the_run(host):
    """Sockets that hold each other, sent and never received: only the kernel's collector finds them."""
    run = host.run(
        "import array, socket\n"
        "for _ in range(40):\n"
        "    a, b = socket.socketpair()\n"
        "    a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [a.fileno(), "
        "b.fileno(), 1]))])\n"
        "    b.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [a.fileno(), "
        "b.fileno(), 0]))])\n"
        "print('sent')"
    )
    assert run.text == "sent\n"


def test_writing_after_the_end_is_impossible(host):
    """A process that the program leaves behind writes nothing into a result that we have read."""
    run = host.run(
        "import os, time\n"
        "os.write(1, b'first')\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); time.sleep(0.05)\n"
        "    while True: os.write(1, b'late')"
    )
    assert (run.ending, run.text) == ("OK", "first")


def test_a_socket_gives_no_handle_of_the_process_that_made_it(host):
    """SO_PEERPIDFD of a pair that the host made would be a pidfd of the host's process."""
    run = host.run(
        "import socket\n"
        "for one in socket.socketpair():\n"
        "    for name in (77, 31, 59):\n"
        "        try: print(one.getsockopt(socket.SOL_SOCKET, name, 64))\n"
        "        except OSError as error: print(error.errno)"
    )
    assert set(run.text.split()) == {"92"}
