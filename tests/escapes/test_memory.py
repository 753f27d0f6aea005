"""Attack family: memory, in every form that a program can hold it in.

As root a cgroup counts all of it.  An ordinary user's runs are watched by pid 1, which has to look for each form.
"""

import dataclasses

import pytest

from tests.sandbox.sandboxes import SMALL

LIMITS = dataclasses.replace(SMALL, cpu_s=3.0, wall_s=6.0)
TOUCH = "\ndef touch(m):\n    for i in range(0, len(m), 4096): m[i] = 1\n"


def over(host, source: str, *endings: str, **options):
    """It ends for its memory, and never used much more than it may; or one of the other endings, each with a reason."""
    run = host.run(source, **{"limits": LIMITS, **options})
    assert run.ending in ("MLE", *endings), run
    return run


def test_one_large_list(host):
    """The plain way: a list that grows until it is killed, or until the interpreter is out of memory."""
    over(host, "a = []\nwhile True: a.append(bytearray(1 << 20))", "RE")


def test_memory_that_is_caught_and_asked_for_again(host):
    """A program that survives MemoryError and asks on."""
    over(
        host,
        "a = []\nwhile True:\n    try: a.append(b'x' * (1 << 22))\n    except MemoryError: pass",
        "TLE",
    )


def test_one_huge_string(host):
    """One allocation far beyond the limit, filled."""
    over(host, "print(len(b'x' * (8 << 30)))", "RE")


def test_many_small_processes(host):
    """Each process is far below the limit, their sum is not."""
    over(
        host,
        TOUCH
        + "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        m = bytearray(30 << 20); touch(m)\n"
        "        time.sleep(60)\ntime.sleep(60)",
    )


def test_memory_before_a_fork_is_counted_once_written(host):
    """Copy on write: children write to what they share, and it becomes theirs."""
    over(
        host,
        TOUCH
        + "import os, time\nm = bytearray(40 << 20); touch(m)\nfor _ in range(6):\n    if os.fork() == 0:\n"
        "        touch(m); time.sleep(60)\ntime.sleep(60)",
    )


@pytest.mark.parametrize("folder", [".", "/tmp", "/dev/shm"])
def test_files_in_scratch_are_memory(host, folder):
    """A tmpfs is RAM.  With a large disk limit, memory is what ends the program."""
    over(
        host,
        f"f = open('{folder}/big', 'wb')\nwhile True: f.write(bytes(1 << 20)); f.flush()",
        limits=dataclasses.replace(LIMITS, disk_mib=1000.0),
    )


def test_output_is_memory(host):
    """Standard output is a memfd: with a large output limit, memory ends the program."""
    over(
        host,
        "import os\nwhile True: os.write(1, bytes(1 << 20))",
        limits=dataclasses.replace(LIMITS, output_mib=1000.0, disk_mib=1000.0),
    )


def test_standard_input_is_no_storage(host):
    """Standard input is a memfd as well, and written to, it is memory like any other."""
    over(
        host,
        "import os\nwhile True: os.write(0, bytes(1 << 20))",
        "RE",
        limits=dataclasses.replace(LIMITS, disk_mib=1000.0),
    )


def test_anonymous_memfds(host):
    """memfd_create: memory of no process and no mount."""
    over(
        host,
        "import os\nfds = []\nwhile True:\n    fds.append(os.memfd_create('m'))\n    os.write(fds[-1], bytes(1 << 20))",
        "RE",
    )


def test_shared_mappings(host):
    """MAP_SHARED without a file."""
    over(host, TOUCH + "import mmap, time\nm = mmap.mmap(-1, 400 << 20)\ntouch(m)\ntime.sleep(60)")


def test_shared_mappings_out_of_sight(host):
    """Pages of a shared mapping that its process gave back stay in the mapping's file, where no process shows them."""
    over(
        host,
        TOUCH + "import mmap, time\nm = []\n"
        "for _ in range(40):\n"
        "    m.append(mmap.mmap(-1, 10 << 20)); touch(m[-1]); m[-1].madvise(mmap.MADV_DONTNEED)\n"
        "time.sleep(60)",
    )


def test_shared_mappings_of_zeros_out_of_sight(host):
    """The same by way of /dev/zero, and only one page of each mapping kept."""
    over(
        host,
        "import ctypes, os, time\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "libc.mmap.restype = ctypes.c_void_p\n"
        "zero = os.open('/dev/zero', os.O_RDWR)\n"
        "for _ in range(40):\n"
        "    m = libc.mmap(None, ctypes.c_size_t(10 << 20), 3, 1, zero, ctypes.c_long(0))\n"
        "    ctypes.memset(m, 1, 10 << 20)\n"
        "    libc.munmap(ctypes.c_void_p(m + 4096), ctypes.c_size_t((10 << 20) - 4096))\n"
        "time.sleep(60)",
    )


def test_page_tables(host):
    """Reading one byte of every 2 MiB costs no page of its own, but a page of page table each."""
    over(
        host,
        "import ctypes, mmap, time\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "libc.mmap.restype = ctypes.c_void_p\n"
        "size = 64 << 30\n"
        "for _ in range(8):\n"
        "    m = libc.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, ctypes.c_long(0))\n"
        "    for at in range(0, size, 2 << 20): ctypes.c_char.from_address(m + at).value\n"
        "time.sleep(60)",
        "RE",  # no room for the mapping
    )


def test_buffers_of_sockets(host):
    """What was sent and not received is kernel memory, of no process."""
    over(
        host,
        "import os, socket, time\npairs = []\n"
        "for _ in range(3): os.fork()  # as one process has too few descriptors for it\n"
        "try:\n"
        "    while True:\n"
        "        pairs.append(socket.socketpair())\n"
        "        for one in pairs[-1]:\n"
        "            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)\n"
        "            one.setblocking(False)\n"
        "            try:\n"
        "                while True: one.send(bytes(1 << 16))\n"
        "            except BlockingIOError: pass\n"
        "except OSError: pass\n"
        "time.sleep(60)",
    )


def test_buffers_of_pipes_are_bounded(host):
    """The same with pipes made as large as they can be; the kernel bounds those of one user, so it may just sleep."""
    over(
        host,
        "import fcntl, os, time\npipes = []\n"
        "try:\n"
        "    while True:\n"
        "        r, w = os.pipe(); os.set_blocking(w, False); pipes.append((r, w))\n"
        "        try: fcntl.fcntl(w, 1031, 1 << 20)\n"
        "        except OSError: pass\n"
        "        try:\n"
        "            while True: os.write(w, bytes(1 << 16))\n"
        "        except BlockingIOError: pass\n"
        "except OSError: pass\n"
        "time.sleep(60)",
        "TLE",
        limits=dataclasses.replace(LIMITS, wall_s=1.5),
    )


@pytest.mark.parametrize("forks", [0, 3])
def test_locks_on_parts_of_files(host, forks):
    """The kernel charges them to nobody, so pid 1 of the run counts them; in one file they are slow to make."""
    over(
        host,
        f"import fcntl, os, time\nfor _ in range({forks}): os.fork()\n"
        "for k in range(100):\n"
        "    f = os.open(f'l{os.getpid()}-{k}', os.O_RDWR | os.O_CREAT)\n"
        "    for n in range(300): fcntl.lockf(f, fcntl.LOCK_EX, 1, 2 * n)\n"
        "time.sleep(60)",
        limits=dataclasses.replace(LIMITS, files=1000),
    )


def test_memory_of_a_program_whose_main_thread_has_ended(host):
    """Its entry in /proc is empty then, while the other threads go on."""
    over(
        host,
        "import ctypes, os, platform, threading, time\n"
        + TOUCH
        + "def work():\n    m = bytearray(200 << 20); touch(m); time.sleep(60)\n"
        "threading.Thread(target=work).start()\n"
        "ctypes.CDLL(None).syscall(93 if platform.machine() == 'aarch64' else 60, 0)",
    )


def test_honest_locks_work(host):
    """A few are what databases need; those that belong to an open file are not to be had, as they can be hidden."""
    run = host.run(
        "import fcntl, os, sqlite3, struct\n"
        "base = sqlite3.connect('base.db')\n"
        "base.executescript('create table t (x); begin; insert into t values (42); commit;')\n"
        "print(*base.execute('select x from t').fetchone())\n"
        "f = open('l', 'w')\nfcntl.lockf(f, fcntl.LOCK_EX)\n"
        "if os.fork() == 0:\n"
        "    try: fcntl.lockf(open('l', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "    except OSError: os._exit(7)\n"
        "    os._exit(0)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
        "try: fcntl.fcntl(f, 37, struct.pack('hhqqi4x', 1, 0, 0, 1, 0))\n"
        "except OSError as error: print(error.strerror)"
    )
    assert run.text == "42\n7\nInvalid argument\n"


def test_a_program_cannot_leave_the_line_of_those_to_be_killed(host):
    """Where the kernel must choose, it chooses the program: it cannot take back its oom_score_adj, nor can children."""
    run = host.run(
        "import os\n"
        "print(open('/proc/self/oom_score_adj').read().strip())\n"
        "for score in ('-1000', '-1', '0', '999'):\n"
        "    try:\n"
        "        with open('/proc/self/oom_score_adj', 'w') as f: f.write(score)\n"
        "    except OSError: pass\n"
        "print(os.popen('cat /proc/self/oom_score_adj').read().strip())"
    )
    assert run.text == "1000\n1000\n"


def test_memory_held_by_nobody_ends_the_run_and_not_the_slot(host):
    """Scratch filled to the limit by a process that ended, while tiny ones come and go: we are not the ones killed."""
    over(
        host,
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    f = open('/tmp/big', 'wb')\n"
        "    while True: f.write(bytes(1 << 18)); f.flush()\n"
        "while True:\n"
        "    if os.fork() == 0: time.sleep(0.05); os._exit(0)\n"
        "    time.sleep(0.002)",
        "RE",  # its fork failed first
        "TLE",
        limits=dataclasses.replace(LIMITS, disk_mib=2000.0, memory_mib=64, wall_s=2.0),
    )


def test_address_space_alone_is_free(host):
    """Only what is written counts: reserving a lot is what honest runtimes do, and it does no harm."""
    run = host.run(
        "import mmap\nm = mmap.mmap(-1, 1 << 30, flags=0x22 | 0x4000)\nm[5] = 1\nprint(m[5])"
    )
    assert (run.ending, run.text) == ("OK", "1\n")


def test_locked_memory_is_refused(host):
    """mlock would take RAM from the host for good."""
    run = host.run(
        "import ctypes\nlibc = ctypes.CDLL(None)\nm = ctypes.create_string_buffer(1 << 16)\n"
        "print(libc.mlock(m, 1 << 16), libc.mlockall(3))"
    )
    assert run.text == "-1 -1\n"


def test_a_memory_limit_of_one_run_is_not_another_s(host):
    """After an attack on memory, a program that needs most of its limit has all of it."""
    over(host, "a = []\nwhile True: a.append(bytearray(1 << 20))", "RE")
    run = host.run(TOUCH + "m = bytearray(60 << 20); touch(m); print(len(m))")
    assert run.ending == "OK", run


def test_output_that_the_host_still_reads_is_not_charged_to_the_next(host):
    """The slot goes on to the next run while the output of the last is still in RAM."""
    from concurrent.futures import ThreadPoolExecutor

    limits = dataclasses.replace(LIMITS, output_mib=40.0)
    flood = "import os\nfor _ in range(38): os.write(1, bytes(1 << 20))"
    near = TOUCH + "m = bytearray(68 << 20); touch(m)"
    with ThreadPoolExecutor(6) as pool:
        runs = list(pool.map(lambda source: host.run(source, limits=limits), [flood, near] * 8))
    assert {run.ending for run in runs} == {"OK"}


def test_what_a_run_left_in_its_scratch_is_no_room_for_the_next(host):
    """It is memory until it is thrown away, which happens before anybody hears that the run is over."""
    limits = dataclasses.replace(SMALL, memory_mib=96, disk_mib=80.0)
    for _ in range(4):
        filled = host.run(
            "with open('/tmp/x', 'wb') as f:\n    for _ in range(60): f.write(bytes(1 << 20))",
            limits=limits,
        )
        assert filled.ending == "OK", filled
        run = host.run(
            TOUCH + "m = bytearray(110 << 20); touch(m)\nwhile True: pass", limits=limits
        )
        assert run.ending == "MLE", run


def test_mappings_without_pages(host):
    """Tens of thousands of them per process: kernel memory that no status of the process shows."""
    over(
        host,
        "import ctypes, os, time\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "libc.mmap.restype = ctypes.c_void_p\n"
        "for _ in range(3): os.fork()\n"
        "m = libc.mmap(None, ctypes.c_size_t(1 << 30), 1, 0x4022, -1, ctypes.c_long(0))\n"
        "for n in range(32000):\n"
        "    libc.mprotect(ctypes.c_void_p(m + 8192 * n), ctypes.c_size_t(4096), 3)\n"
        "time.sleep(60)",
        limits=dataclasses.replace(LIMITS, cpu_s=20.0, wall_s=40.0, memory_mib=64),
    )
