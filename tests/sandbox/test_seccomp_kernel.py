"""The system call filter under Linux itself: honest programs notice nothing, attacks get an errno."""

import errno
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from rlvr.sandbox import seccomp
from tests.sandbox.test_seccomp import ARCHES, DENIED, FORBIDDEN, HIGH

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ARCHES,
    reason="the filter is Linux's, on two machines",
)

# What the guest does, in small: load the filter, then become the program.
LAUNCH = """
import ctypes, os, sys
code = bytes.fromhex(sys.argv[1])
class Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
if libc.prctl(22, 2, ctypes.byref(Program(len(code) // 8, code)), 0, 0):
    os._exit(ctypes.get_errno())
os.execv(sys.argv[2], sys.argv[2:])
"""


def plainly(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def launched(
    *command: str, cwd: Path | None = None, code: bytes | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command under the filter, or under another one."""
    code = seccomp.program() if code is None else code
    return plainly(sys.executable, "-I", "-S", "-c", LAUNCH, code.hex(), *command, cwd=cwd)


def tool(name: str) -> str:
    """Where a program lies; a machine that promises to have all of them says so with CI=1."""
    path = shutil.which(name)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{name} is not installed")
    return path


@pytest.mark.parametrize("machine", ARCHES)
def test_the_kernel_takes_the_program(machine):
    """Its checker reads both; under the other machine's, the first call kills."""
    done = launched(sys.executable, "-I", "-S", "-c", "print(7)", code=seccomp.program(machine))
    if machine == platform.machine():
        assert (done.returncode, done.stdout) == (0, "7\n")
    else:
        assert done.returncode == -signal.SIGSYS


# Python programs that do much of what the library can do with the kernel.
PROGRAMS = {
    "files": """
        import os, shutil, tempfile
        with tempfile.TemporaryDirectory() as d:
            a = os.path.join(d, "a")
            with open(a, "w") as f:
                f.write("x" * 9); f.flush(); os.fsync(f.fileno()); os.posix_fadvise(f.fileno(), 0, 0, 1)
            b = shutil.copy2(a, a + "b"); shutil.copytree(d, d + "2"); shutil.rmtree(d + "2")
            os.link(a, a + "l"); os.symlink(a, a + "s"); os.mkfifo(a + "p"); os.chmod(a, 0o600); os.utime(a, (1, 1))
            os.rename(b, b + "r"); os.truncate(a, 3); os.posix_fallocate(os.open(a, os.O_RDWR), 0, 99)
            print(sorted(os.listdir(d)), os.stat(a).st_size, len(os.listxattr(a)), os.statvfs(d).f_bsize > 0)
    """,
    "processes": """
        import os, resource, signal, subprocess, sys
        import multiprocessing as mp
        print(subprocess.run(["sh", "-c", "echo $((6*7))"], capture_output=True, text=True).stdout.strip())
        print(subprocess.run([sys.executable, "-c", "pass"], start_new_session=True, preexec_fn=lambda: os.nice(1)))
        child = os.fork()
        if not child: os._exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.nice(0))
        soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 25, hard)); resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
        signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()
        signal.pidfd_send_signal(os.pidfd_open(os.getpid()), 0)
        def square(n): return n * n
        with mp.get_context("fork").Pool(2) as pool: print(pool.map(square, range(4)))
        q = mp.Queue(); q.put(5); print(q.get(), len(os.sched_getaffinity(0)) > 0)
    """,
    "threads": """
        import asyncio, concurrent.futures, select, socket, uuid
        with concurrent.futures.ThreadPoolExecutor(4) as pool: print(sum(pool.map(lambda n: n * n, range(9))))
        async def main():
            p = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
            print((await p.communicate())[0], await asyncio.to_thread(lambda: 8))
            await asyncio.sleep(0.001)
        asyncio.run(main())
        a, b = socket.socketpair(); a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 9999); a.sendall(b"x")
        print(b.recv(1), select.select([], [b], [], 0)[1] == [b], socket.AF_UNIX in {a.family})
        epoll = select.epoll(); epoll.register(b); print(len(epoll.poll(0)), len(str(uuid.uuid4())))
    """,
    "memory": """
        import ctypes, mmap, os, sqlite3, time
        from multiprocessing import shared_memory
        m = mmap.mmap(-1, 1 << 20); m[5] = 7; m.madvise(mmap.MADV_DONTNEED); m.flush(); m.resize(1 << 21); print(len(m))
        s = shared_memory.SharedMemory(create=True, size=100); s.buf[3] = 1; s.close(); s.unlink()
        f = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n + 1); print(f(2))
        db = sqlite3.connect("db"); db.execute("create table t (a)"); db.execute("insert into t values (4)")
        db.commit(); print(db.execute("select * from t").fetchone(), len(os.urandom(9)), time.time() > 1)
    """,
    "numpy": """
        import numpy as np
        print(int((np.ones((300, 300)) @ np.ones((300, 300))).sum()), np.linalg.det(np.eye(3)))
    """,
    "spawn": """
        import multiprocessing as mp
        if __name__ == "__main__":
            with mp.get_context("spawn").Pool(1) as pool: print(pool.map(abs, [-3]))
    """,
}

CPP = """
    #include <cstdio>
    #include <stdexcept>
    #include <thread>
    int main() {
        int n = 0;
        std::thread t([&] { n = 4; });
        t.join();
        try { throw std::runtime_error("x"); } catch (...) { n++; }
        printf("%d\\n", n);
    }
"""

NODE = """
    const fs = require('fs'), cp = require('child_process'), { Worker } = require('worker_threads');
    let s = 0; for (let i = 0; i < 2e6; i++) s = (s + i * i) % 1000003;
    fs.writeFileSync('a', 'x'); fs.copyFileSync('a', 'b'); console.log(s, fs.readFileSync('b') + '');
    console.log(cp.execSync('echo child') + '', crypto.randomUUID().length, require('os').totalmem() > 0);
    new Worker("require('worker_threads').parentPort.postMessage(6)", { eval: true })
        .on('message', m => setTimeout(() => fs.readFile('a', (e, d) => console.log(m, d + '')), 1));
"""

SHELL = r"""
    set -e -o pipefail
    seq 20 > a; cat <(sort -n -r a) | head -n 3 | awk '{ print $1 * 2 }' | tr '\n' ' '
    cp -a a b; cp -p a c; ln -s a d; mv c e; mkdir -p q/w; touch q/w/f; find . -type f | sort | xargs wc -l
    sleep 0.01 & wait $!; (trap 'echo caught' USR1; kill -USR1 $BASHPID); timeout 5 true; nice -n 2 true
    mkfifo p; (echo through > p &); cat p; sed -i s/1/x/ b; grep -c x b; dd if=a of=z bs=1 count=4 2>/dev/null; sync
    ulimit -S -n 64; mktemp -u > /dev/null; sort --parallel=2 -S 1M a | md5sum | cut -c 1-4; rm -r q
"""


def goes_on_as_before(*command: str, at: Path) -> str:
    """The same output with and without the filter, each in a folder of its own, and no complaint."""
    said = []
    for run in (plainly, launched):
        folder = at / run.__name__
        folder.mkdir()
        done = run(*command, cwd=folder)
        assert (done.returncode, done.stderr) == (0, ""), done
        said.append(done.stdout)
    assert said[0] == said[1] != ""
    return said[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_honest_python_program_notices_nothing(name, tmp_path):
    """Processes of every kind, threads, asyncio, shared memory, sockets, copies with attributes, numpy's threads."""
    main = tmp_path / "main.py"
    main.write_text(dedent(PROGRAMS[name]), encoding="utf-8")
    goes_on_as_before(sys.executable, str(main), at=tmp_path)


def test_a_compiler_and_what_it_makes_work(tmp_path):
    """g++ runs cc1plus, as, collect2 and ld; threads fall back from clone3 to clone."""
    (tmp_path / "a.cpp").write_text(CPP, encoding="utf-8")
    done = launched(tool("g++"), "-O1", "-pthread", "a.cpp", "-o", "a", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert goes_on_as_before(str(tmp_path / "a"), at=tmp_path) == "5\n"


def test_node_works(tmp_path):
    """A JIT, worker threads, timers, files and children."""
    (tmp_path / "main.js").write_text(NODE, encoding="utf-8")
    assert "child\n 36 true\n6 x" in goes_on_as_before(
        tool("node"), str(tmp_path / "main.js"), at=tmp_path
    )


def test_a_shell_and_its_tools_work(tmp_path):
    """Pipes, process substitution, background jobs, signals, copies with attributes."""
    assert "caught\nthrough\n" in goes_on_as_before(tool("bash"), "-c", SHELL, at=tmp_path)


# Each as (number, arguments); says how each went: 0 for success, else the errno.
CALLS = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
said = []
for nr, *args in json.loads(sys.argv[1]):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(nr), *(ctypes.c_ulong(a) for a in args))
    said.append(ctypes.get_errno() if result == -1 else 0)
print(json.dumps(said))
"""


def called(calls: list[list[int]]) -> list[int]:
    done = launched(sys.executable, "-I", "-S", "-c", CALLS, json.dumps(calls))
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def here(name: str) -> int:
    number = seccomp.NUMBERS[name][ARCHES.index(platform.machine())]
    assert number is not None
    return number


def test_the_kernel_refuses_what_the_list_refuses():
    """The very calls, made by number; their arguments would do nothing if they were let through."""
    column = 1 + ARCHES.index(platform.machine())
    rows = [row for row in DENIED if row[column] != "-"]
    got = called([[int(row[column]), *[(1 << 64) - 1] * 6] for row in rows])
    assert got == [errno.EPERM if row[0] in FORBIDDEN else errno.ENOSYS for row in rows]


def test_the_kernel_refuses_arguments():
    """Also behind a high word that it ignores itself.  Descriptor 999 is not open: the kernel would say EBADF."""
    cases = [
        (("clone", 0x1000_0000 | signal.SIGCHLD), errno.EPERM),
        (("clone", HIGH | 0x2000_0000 | signal.SIGCHLD), errno.EPERM),
        (("socket", 2, 1, 0), errno.EAFNOSUPPORT),
        (("socket", HIGH | 2, 1, 0), errno.EAFNOSUPPORT),
        (("socket", 1 << 32 | 1, 1, 0), 0),  # the kernel too reads AF_UNIX here
        (("socketpair", 2, 1, 0, 0), errno.EAFNOSUPPORT),
        (("ioctl", 999, 0x5412, 0), errno.ENOTTY),
        (("ioctl", 999, HIGH | 0x5412, 0), errno.ENOTTY),
        (("fcntl", 999, 1024, 0), errno.EINVAL),
        (("prctl", 22, 1, 0, 0, 0), errno.EINVAL),
        (("prctl", 4, 1, 0, 0, 0), errno.EINVAL),
        (("personality", 0x0004_0000), errno.EPERM),
        (("personality", 0xFFFF_FFFF), 0),
        (("prlimit64", os.getpid(), 7, 0, 0), errno.EPERM),
        (("setpriority", 0, os.getpid(), 0), errno.EPERM),
        (("setpriority", 0, 0, 0), 0),
        (("mknodat", 0, 0, 0o020666, 0x103), errno.EPERM),
        (("fsync", 999), 0),  # it was not looked at
    ]
    assert called([[here(name), *args] for (name, *args), _ in cases]) == [
        expected for _, expected in cases
    ]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the old entries are x86_64's")
def test_the_kernel_knows_no_x32_and_no_32_bit_calls():
    """`int 0x80` reaches the 32-bit table from a 64-bit program; where a kernel has none it is a segmentation fault."""
    assert called([[0x4000_0000 | 39], [0x4000_0000 | 520, 0, 0, 0]]) == [
        errno.ENOSYS,
        errno.ENOSYS,
    ]
    code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"  # mov eax, 20 (getpid); int 0x80; ret
    script = (
        "import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\n"
        f"m.write({code!r})\nctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()\nprint(1)"
    )
    done = launched(sys.executable, "-I", "-S", "-c", script)
    assert (done.returncode in (-signal.SIGSYS, -signal.SIGSEGV), done.stdout) == (True, "")
