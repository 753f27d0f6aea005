"""Attack family: what namespaces would keep away, at the level that has none."""

import dataclasses
import os
import platform
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.sandbox.sandboxes import SMALL

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="it has the numbers of system calls there"
)

LIBC = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
WALL = dataclasses.replace(SMALL, wall_s=1.0)


def test_a_file_of_the_host_stays_as_it_is(host):
    """Modes, owners, times, sizes and names: much of that can be changed without opening the file."""
    run = host.run(
        LIBC + "path = CANARY['file']\n"
        "before = os.stat(path)\n"
        "for attempt in (lambda: os.chmod(path, 0), lambda: os.chown(path, 1, 1), lambda: os.lchown(path, 1, 1),\n"
        "                lambda: os.utime(path, (1, 1)), lambda: os.truncate(path, 0), lambda: os.unlink(path),\n"
        "                lambda: os.open(path, os.O_TRUNC), lambda: os.open(path, os.O_WRONLY),\n"
        "                lambda: os.open(path, os.O_RDWR), lambda: os.open(path, os.O_RDONLY),\n"
        "                lambda: os.link(path, 'linked'), lambda: os.link(path, path + '2'),\n"
        "                lambda: os.rename(path, 'moved'), lambda: os.rename('main.py', path),\n"
        "                lambda: os.symlink('x', os.path.dirname(path) + '/link'), lambda: "
        "os.setxattr(path, 'user.x', b'1'),\n"
        "                lambda: os.mkfifo(os.path.dirname(path) + '/fifo'), lambda: os.removexattr(path, 'user.x'),\n"
        "                lambda: os.rmdir(os.path.dirname(path)), lambda: os.rename(os.path.dirname(path), '../x')):\n"
        "    try: attempt()\n"
        "    except OSError: pass\n"
        "libc.syscall(452, -100, path.encode(), 0, 0)  # fchmodat2\n"
        "libc.syscall(316, -100, path.encode(), -100, b'main.py', 2)  # renameat2 that exchanges\n"
        "after = os.stat(path)\n"
        "print(before == after, os.path.lexists('linked'), os.path.lexists('moved'))"
    )
    assert run.text == "True False False\n"


def test_a_library_that_may_be_read_stays_as_it_is(host):
    """By a descriptor: the interpreter may belong to the very user who runs the programs."""
    file = Path(os.__file__)
    before = file.stat()
    run = host.run(
        "import fcntl, os\n"
        "fd = os.open(os.__file__, os.O_RDONLY)\n"
        "for attempt in (lambda: os.fchmod(fd, 0), lambda: os.fchown(fd, 1, 1), lambda: os.utime(fd, (1, 1)),\n"
        "                lambda: os.ftruncate(fd, 0), lambda: os.write(fd, b'x'), lambda: "
        "os.setxattr(fd, 'user.x', b''),\n"
        "                lambda: os.open(f'/proc/self/fd/{fd}', os.O_RDWR), lambda: os.open(os.__file__, os.O_TRUNC),\n"
        "                lambda: fcntl.fcntl(fd, fcntl.F_SETLEASE, 0), lambda: os.link(f'/proc/self/fd/{fd}', 'l')):\n"
        "    try: attempt()\n"
        "    except OSError: pass\n"
    )
    assert run.ending == "OK", run
    after = file.stat()
    for name in ("st_mode", "st_uid", "st_mtime_ns", "st_size", "st_nlink"):
        assert getattr(after, name) == getattr(before, name)


def test_a_path_without_access_gives_none(host):
    """O_PATH opens anything; what it gives leads nowhere."""
    run = host.run(
        LIBC + "for path in (CANARY['file'], CANARY['folder'], '/', '/etc', '/proc', '/root'):\n"
        "    fd = os.open(path, os.O_PATH)\n"
        "    for attempt in (lambda: os.open(f'/proc/self/fd/{fd}', os.O_RDONLY), lambda: "
        "os.listdir(f'/proc/self/fd/{fd}'),\n"
        "                    lambda: (os.fchdir(fd), os.listdir('.')), lambda: os.open('secret', 0, dir_fd=fd),\n"
        "                    lambda: os.open('shadow', 0, dir_fd=fd), lambda: os.execv(f'/proc/self/fd/{fd}', ['x']),\n"
        "                    lambda: os.sendfile(1, fd, 0, 99), lambda: os.getxattr(fd, 'user.x')):\n"
        "        try: print(path, attempt())\n"
        "        except OSError: pass\n"
        "    print(libc.syscall(322, fd, b'', None, None, 0x1000))  # execveat\n"
    )
    assert set(run.text.split()) == {"-1"}, run


def test_socket_files_of_the_host_are_not_reached(host):
    """Docker's, an agent's, the system bus: whoever can connect to one is that user.  Landlock would let it through."""
    run = host.run(
        "import array, os, socket\n"
        "def stream(): socket.socket(socket.AF_UNIX).connect(CANARY['socket'])\n"
        "def datagram():\n"
        "    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "    one.sendto(b'x', CANARY['socket'])\n"
        "def raw(): socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)[0].sendto(b'x', CANARY['socket'])\n"
        "def pair(kind):\n"
        "    one, other = socket.socketpair(socket.AF_UNIX, kind)\n"
        "    for attempt in (lambda: one.connect(CANARY['socket']), lambda: one.sendto(b'x', CANARY['socket']),\n"
        "                    lambda: one.bind('../tmp/mine'), lambda: one.listen(),\n"
        "                    lambda: one.sendmsg([b'x'], [], 0, CANARY['socket'])):\n"
        "        try: attempt(); print(kind, other.recv(9, socket.MSG_DONTWAIT))\n"
        "        except OSError: pass\n"
        "for attempt in (stream, datagram, raw):\n"
        "    try: attempt(); print(attempt.__name__)\n"
        "    except OSError: pass\n"
        "pair(socket.SOCK_STREAM); pair(socket.SOCK_SEQPACKET)"
    )
    assert run.text in ("", "5 b'x'\n"), (
        run
    )  # the other end of the pair gets it, whatever address was given


@pytest.mark.parametrize(
    "target", ["os.getppid()", "CANARY['host_pid']", "CANARY['pid']", "-1", "-CANARY['host_pid']"]
)
def test_no_way_to_signal_leaves_the_run(host, target):
    """kill, tkill, tgkill, queued signals and pidfds: the user of other processes is the program's own."""
    run = host.run(
        LIBC + "import signal\n"
        f"target = {target}\n"
        "info = (ctypes.c_int * 32)(9, 0, -1)\n"
        "for number in (0, 9, 15, 19, 10):\n"
        "    if target == -1: print(libc.kill(-1, number) if os.fork() == 0 else 0)  # EPERM from all but its own\n"
        "    elif number: print(libc.kill(target, number))\n"
        "    for call, *args in ((200, target, number), (234, target, target, number), (129, target, number, info),\n"
        "                        (297, target, target, number, info)):\n"
        "        if target > 0: print(libc.syscall(call, *args))\n"
        "    if target > 0:\n"
        "        fd = libc.syscall(434, target, 0)\n"
        "        print(libc.syscall(424, fd, number, None, 0))\n"
        "import fcntl\n"
        "try: fcntl.fcntl(0, fcntl.F_SETOWN, abs(target)); print('owner')\n"
        "except OSError: pass"
    )
    assert target == "-1" or set(run.text.split()) == {"-1"}, run


def test_what_a_process_has_in_proc_is_its_own(host):
    """Command lines and environments of others, the machine's settings, and the table of all processes."""
    run = host.run(
        "import os\n"
        "for pid in (1, os.getppid(), CANARY['host_pid'], CANARY['pid']):\n"
        "    for name in os.listdir('/proc/self') if False else ('cmdline', 'environ', 'maps', "
        "'mem', 'fd', 'status', 'stat',\n"
        "        'root/etc/passwd', 'cwd/secret', 'mountinfo', 'net/unix', 'task', 'exe', 'limits', "
        "'cgroup', 'oom_score_adj'):\n"
        "        for attempt in (lambda p: open(p, 'rb').read(9), os.listdir, lambda p: os.readlink(p)):\n"
        "            try: print(pid, name, attempt(f'/proc/{pid}/{name}'))\n"
        "            except OSError: pass\n"
        "for path in ('/proc', '/proc/net/tcp', '/proc/self/net/unix', '/proc/self/mountinfo', "
        "'/proc/kallsyms', '/proc/cmdline',\n"
        "             '/proc/sys/kernel/core_pattern', '/proc/self/oom_score_adj', "
        "'/proc/sysrq-trigger', '/sys', '/etc', '/home',\n"
        "             '/proc/self/cgroup', '/proc/self/mem', '/proc/self/root/etc/passwd', '/dev', "
        "'/dev/tty', '/dev/ptmx', '/dev/shm'):\n"
        "    for attempt in (lambda p: open(p, 'rb').read(9), lambda p: open(p, 'wb'), os.listdir):\n"
        "        try: print(path, attempt(path))\n"
        "        except OSError: pass\n"
        "print(open('/proc/self/status').read().count('Pid:'))"
    )
    assert run.text == "3\n", run


def test_files_of_other_packages_cannot_be_read(host):
    """Their names can: the folder they are in is one of the interpreter's."""
    folder = sysconfig.get_paths()["purelib"], str(Path(os.__file__).with_name("site-packages"))
    run = host.run(
        "import os\n"
        f"for top in {folder!r}:\n"
        "    for place, _, names in os.walk(top):\n"
        "        for name in names[:20]:\n"
        "            try: open(os.path.join(place, name)).close(); print(place, name)\n"
        "            except OSError: pass",
        limits=dataclasses.replace(SMALL, cpu_s=9.0, wall_s=30.0),
    )
    assert (run.ending, run.text) == ("OK", ""), run


def test_a_run_does_not_reach_the_scratch_of_another(host):
    """Both are folders in the host's temp folder, of one user; their paths are easy to guess."""
    source = (
        "import os, time\n"
        "open('mine', 'w').write('Quetzalcoatl')\n"
        "box = os.path.dirname(os.getcwd()); slot = os.path.dirname(box); base = os.path.dirname(slot)\n"
        "time.sleep(0.2)\n"
        "for path in (base, slot):\n"
        "    try: print(os.listdir(path))\n"
        "    except OSError: pass\n"
        "own = int(os.path.basename(slot))\n"
        "for pid in range(own - 300, own + 300):\n"
        "    for serial in range(1, 40):\n"
        "        for attempt in (lambda p: open(p).read(), lambda p: open(p, 'a'), os.unlink, lambda "
        "p: os.link(p, 'x')):\n"
        "            path = f'{base}/{pid}/{serial}/home/mine'\n"
        "            if path != os.path.abspath('mine'):\n"
        "                try: print(path, attempt(path))\n"
        "                except OSError: pass\n"
        "print(open('mine').read())"
    )
    limits = dataclasses.replace(SMALL, cpu_s=3.0, wall_s=10.0)
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda _: host.run(source, limits=limits), range(2)))
    assert [run.text for run in runs] == ["Quetzalcoatl\n"] * 2, runs


@pytest.mark.parametrize(
    "write",
    [
        "held = []\nwhile True:\n    held.append(open('gone', 'wb', 0)); os.unlink('gone'); "
        "held[-1].write(bytes(1 << 20))",
        "while True:\n    f = open('gone', 'w+b'); f.truncate(1 << 20); held.append(mmap.mmap(f.fileno(), 1 << 20))\n"
        "    os.unlink('gone'); held[-1].write(bytes(1 << 20))",
        "os.mkdir('d', 0o300); os.chdir('d')\nfor n in range(999): open(str(n), 'wb').write(bytes(1 "
        "<< 16)); time.sleep(.01)",
        "while True:\n    os.mkdir('d' * 200); os.chdir('d' * 200); open('f', 'wb').write(bytes(1 << "
        "16)); time.sleep(.001)",
        "n = 0\nwhile True: os.posix_fallocate(os.open(f'{n}', os.O_CREAT | os.O_WRONLY), 0, 1 << 20); n += 1",
        "n = 0\nwhile True: os.close(os.open(f'../tmp/{n}', os.O_CREAT)); n += 1",
        "n = 0\nwhile True: os.mkdir(f'{n}', 0); n += 1",
        "n = 0\nopen('a', 'w')\nwhile True: os.link('a', f'{n}'); n += 1",
        "n = 0\nwhile True: os.mkfifo(f'{n}'); n += 1",
        "open('big', 'wb').write(bytes(7 << 20)); open('../tmp/big', 'wb').write(bytes(7 << 20))",
    ],
)
def test_too_much_in_the_scratch_ends_the_run(host, write):
    """Named or not, mapped, out of sight, too deep to be walked, or just before the end."""
    run = host.run(
        f"import mmap, os, time\nheld = []\n{write}",
        limits=dataclasses.replace(SMALL, cpu_s=5.0, wall_s=10.0),
    )
    assert run.ending == "MLE", run


@pytest.mark.parametrize(
    "bomb",
    [
        "while True:\n    try: os.fork()\n    except OSError: pass",
        "try:\n    while True:\n        if os.fork() == 0: time.sleep(60)\nexcept OSError: pass",
        "try:\n    while True:\n        if os.fork() == 0:\n            os.setsid()\n            if "
        "os.fork(): os._exit(0)\n"
        "            time.sleep(60)\nexcept OSError: pass",
        "def bomb():\n    while True:\n        try: threading.Thread(target=bomb, daemon=True).start()\n"
        "        except RuntimeError: pass\nbomb()",
    ],
)
def test_a_bomb_of_processes_is_kept_small(host, bomb):
    """Each new one is asked for, so the run's parent counts before there are thousands and it gets no core itself."""
    head = "import os, threading, time\nnumbers = os.open('n', os.O_CREAT | os.O_WRONLY | os.O_APPEND)\n"
    source = bomb.replace("time.sleep(60)", "(os.write(numbers, b'x'), time.sleep(60))")
    tail = "\nprint(os.stat('n').st_size)\ntime.sleep(60)"
    run = host.run(head + source + tail, limits=dataclasses.replace(SMALL, cpu_s=2.0, wall_s=2.0))
    assert run.ending in ("TLE", "RE", "MLE"), run
    assert not run.stdout.strip().isdigit() or int(run.stdout) <= 2 * SMALL.processes + 8


def test_a_chain_of_processes_does_not_outrun_the_end(host):
    """Each starts the next and ends, in sessions of their own, while others hold signals back."""
    run = host.run(
        "import os, signal, time\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        while True:\n"
        "            os.setsid() if os.getpid() != os.getsid(0) else None\n"
        "            if os.fork(): os._exit(0)\n"
        "time.sleep(0.1)",
        limits=WALL,
    )
    assert run.ending in ("OK", "TLE", "RE", "MLE"), run


def test_a_process_that_hides_ends_the_run(host):
    """Executing a file that it may not read would close its memory, descriptors and mappings to the looks at it."""
    run = host.run(
        "import os, shutil\n"
        "fd = os.open('own', os.O_CREAT | os.O_WRONLY, 0o111)\n"
        "os.write(fd, open('/usr/bin/sleep', 'rb').read()); os.close(fd)\n"
        "os.execv('./own', ['sleep', '60'])",
        limits=dataclasses.replace(SMALL, wall_s=5.0),
    )
    assert run.ending == "RE", run


def test_what_lies_in_memory_and_has_a_name_cannot_be_left(host):
    """Shared memory, semaphores, queues, keys: of the user, and so of other processes."""
    run = host.run(
        LIBC + "from multiprocessing import shared_memory\n"
        "for attempt in (lambda: shared_memory.SharedMemory('LEFT', create=True, size=9), lambda: "
        "open('/dev/shm/LEFT', 'w'),\n"
        "                lambda: open('/tmp/LEFT', 'w'), lambda: open('/var/tmp/LEFT', 'w')):\n"
        "    try: attempt(); print('made')\n"
        "    except OSError: pass\n"
        "for call, *args in ((29, 7, 9, 0o1666), (64, 7, 1, 0o1666), (68, 7, 0o1666), (240, b'x', "
        "0o102, 0o666, None),\n"
        "                    (248, b'user', b'x', b'y', 1, -4), (319, b'x', 0)):\n"
        "    print(libc.syscall(call, *args))"
    )
    assert set(run.text.split()) == {"-1"}, run
