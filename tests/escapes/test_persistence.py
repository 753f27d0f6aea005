"""Attack family: leaving something for the next run of the slot.

Each attack runs on all slots, then a witness looks on all of them.
"""

import os

import pytest

from rlvr.sandbox import Program, ProgramCall, Run, TestSuite

LEFT = {
    "files": "import os\nfor d in ('.', '/tmp', '/dev/shm', '/var/tmp', os.path.expanduser('~'), '/box', '/'):\n"
    "    try: open(d + '/LEFT.py', 'w').write('import os; os.write(1, b\"LEFT\")')\n    except OSError: pass",
    "modules": "import sys, os\n"
    "for d in [*sys.path, '/tmp', os.path.dirname(os.__file__)]:\n"
    "    for n in ('LEFT.pth', 'sitecustomize.py', 'usercustomize.py', 'json.py', 'random.py'):\n"
    "        try: open(os.path.join(d, n), 'w').write('import os; os.write(1, b\"LEFT\")')\n        except "
    "OSError: pass",
    "bytecode": "import glob, os\n"
    "for f in glob.glob(os.path.dirname(os.__file__) + '/__pycache__/*.pyc')[:50]:\n"
    "    try: open(f, 'ab').write(b'LEFT')\n    except OSError: pass",
    "interpreter": "import builtins, sys, json, os\n"
    "builtins.print = builtins.open = builtins.len = lambda *a, **k: os.write(1, b'LEFT')\n"
    "json.dumps = json.loads = lambda *a, **k: 'LEFT'\nsys.modules['math'] = 'LEFT'\nos.listdir = lambda *a: ['LEFT']\n"
    "sys.path.insert(0, '/LEFT')\nos.environ['LEFT'] = 'LEFT'\nsys.setrecursionlimit(50)",
    "memory of the interpreter": "import ctypes, sys\n"
    "ctypes.memset(id(()) + 16, 5, 1)\nctypes.c_int.from_address(id(7) + 24).value = 8",
    "our own modules": "import gc, types\n"
    "for m in gc.get_objects():\n"
    "    if isinstance(m, types.FunctionType) and str(m.__module__).startswith('rlvr'):\n"
    "        m.__code__ = (lambda *a, **k: 'LEFT').__code__",
    "environment": "import ctypes, os\nos.putenv('LEFT', 'LEFT')\nctypes.CDLL(None).setenv(b'PYTHONPATH', b'/LEFT', 1)",
    "limits": "import resource\n"
    "for name in dir(resource):\n"
    "    if name.startswith('RLIMIT'):\n"
    "        try: resource.setrlimit(getattr(resource, name), (0, 0))\n        except (OSError, ValueError): pass",
    "mask and folder": "import os, signal\nos.umask(0o777)\nos.chdir('/usr')\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nfor n in (2, 13, 17): signal.signal(n, signal.SIG_IGN)",
    "abstract socket": "import os, socket, time\n"
    "s = socket.socket(socket.AF_UNIX); s.bind('\\0LEFT'); s.listen()\nif os.fork() == 0: time.sleep(60)",
    "background process": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(60)",
    "shared memory": "from multiprocessing import shared_memory, resource_tracker\n"
    "m = shared_memory.SharedMemory('LEFT', create=True, size=99)\nresource_tracker.unregister(m._name, "
    "'shared_memory')",
    "timers": "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
    "signal.setitimer(signal.ITIMER_REAL, .2, .2)",
    "locks": "import fcntl, os, time\nheld = [open(f) for f in (os.__file__, '/etc/passwd', '/usr/bin/env')]\n"
    "for f in held: fcntl.flock(f, fcntl.LOCK_EX)\nif os.fork() == 0: time.sleep(60)",
    "a ring of sockets": "import fcntl, socket\n"
    "s = socket.socket(socket.AF_UNIX); s.bind('\\0LEFT')\nf = open('/usr/bin/env'); fcntl.flock(f, fcntl.LOCK_EX)\n"
    "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    "for one in (a, b): socket.send_fds(one, [b'x'], [a.fileno(), b.fileno(), s.fileno(), f.fileno()])",
    "priority": "import os\ntry: os.nice(19); os.sched_setaffinity(0, {0})\nexcept OSError: pass",
    "mounts": "import os\nos.system('mount -t tmpfs LEFT /tmp; mount --bind /tmp /usr/bin; ln -s /tmp/LEFT /box/LEFT')",
}

WITNESS = """
import ctypes, fcntl, glob, json, math, os, resource, signal, socket, sys, time
def listed(d):
    try: return os.listdir(d)
    except PermissionError: return []  # then nothing can be left there either
folders = ('.', '/tmp', '/dev/shm', '/var/tmp', '..', '../tmp', '/', os.path.dirname(os.__file__))
left = [os.path.join(d, n) for d in folders for n in listed(d) if 'LEFT' in n]
assert not left, left
assert 'LEFT' not in os.environ and 'PYTHONPATH' not in os.environ and '/LEFT' not in sys.path
assert json.loads(json.dumps([1, None])) == [1, None] and math.sqrt(4) == 2 and len([1]) == 1
assert 3 + 4 == 7 and () == tuple([]) and sys.getrecursionlimit() == 1000
assert os.path.basename(os.getcwd()) == 'home' and os.umask(0o22) == 0o22
assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 100 and os.nice(0) == NICENESS
until = time.monotonic() + 2  # runs beside it share these files where there are no namespaces; a leftover stays
for f in map(open, (os.__file__, '/usr/bin/env')):
    while True:
        try: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until: raise
            time.sleep(.01)
        else: break
    f.close()
if os.getpid() == 2:  # in namespaces
    s = socket.socket(socket.AF_UNIX); s.bind('\\0LEFT')
    assert sorted(p for p in os.listdir('/proc') if p.isdigit()) == ['1', '2']
print('clean')
"""


@pytest.mark.parametrize("what", LEFT)
def test_the_next_run_finds_nothing_of(host, what):
    """Scratch, interpreter, limits and kernel objects of a run are all forked, mounted or made anew."""
    for _ in range(2):
        host.run(LEFT[what])
        run = host.run(f"NICENESS = {os.nice(0)}  # as ours\n{WITNESS}")
        assert (run.ending, run.text, run.stderr) == ("OK", "clean\n", b"")


def in_turn(host, program: Program, stdins: list[str]) -> list[Run]:
    """The runs on all inputs, as many as possible in one request."""
    runs: list[Run] = []
    while len(runs) < len(stdins):
        runs += host.sandbox.run_cases(program, stdins[len(runs) :], stop=False)
    return runs


def test_the_next_case_of_a_request_finds_nothing_either(host):
    """A box takes them one after another; between two cases it does all that it does between two runs."""
    for what, leave in LEFT.items():
        source = f"import os, sys\nNICENESS = {os.nice(0)}\nwork = {leave!r}, {WITNESS!r}"
        program = Program("python", f"{source}\nexec(work[os.read(0, 9) == b'look'])")
        looked = in_turn(host, program, ["leave", "look", "leave", "leave", "look"])[1::3]
        assert [(run.ending, run.text) for run in looked] == [("OK", "clean\n")] * 2, what


def test_a_case_finds_nothing_of_those_that_wait(host):
    """Neither their inputs nor how the ones before ended is in its memory, nor is a descriptor of theirs open."""
    program = Program("python", SEARCH)
    assert {run.text for run in in_turn(host, program, ["Quetzalcoatl" * 9] * 5)} == {"0\n"}
    search = SEARCH.replace("Quetz[a]lcoatl", '"status": [0-9]|"rss_ki[b]"|"wall_s": 0[.]')
    assert {run.text for run in in_turn(host, Program("python", search), [""] * 5)} == {"0\n"}
    fds = (
        "import os\nopened = []\nfor fd in range(300):\n    try: os.fstat(fd); opened.append(fd)\n"
    )
    fds += "    except OSError: pass\nprint(opened)\n"
    fds += "try: print(os.readlink('/proc/1/fd/3'))\nexcept OSError: print('closed')"
    runs = in_turn(host, Program("python", fds), ["1", "2", "3"])
    assert {run.text for run in runs} == {"[0, 1, 2]\nclosed\n"}


def test_a_compiled_program_is_not_changed_by_its_run(host):
    """The binary is kept for the next case; a run that overwrites its own file changes its own copy."""
    source = (
        "#include <stdio.h>\n#include <unistd.h>\n"
        'int main() {\n  puts("first"); unlink("program");\n'
        '  FILE* f = fopen("program", "w"); fputs("#!/bin/sh", f); fclose(f);\n}'
    )
    assert [host.run(source, language="cpp").text for _ in range(2)] == ["first\n"] * 2


def test_the_compiler_s_cache_cannot_be_written(host):
    """All C++ programs share a precompiled header; a program, or a compilation, cannot put another in its place."""
    run = host.run(
        "{ echo x > /cache/bits/stdc++.h.gch; echo x > /cache/x; mkdir /cache/y; } 2> /dev/null; ls /cache",
        language="bash",
    )
    assert set(run.text.split()) <= {"bits"}


SEARCH = """
import re
word, found = re.compile(b'Quetz[a]lcoatl'), 0  # so that our own text does not hold it
with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as mem:
    for line in maps:
        first, last = (int(x, 16) for x in line.split()[0].split('-'))
        if 'r' in line.split()[1] and last < 1 << 47 and 'v' not in line.split()[-1][:2]:
            try:
                mem.seek(first); found += len(word.findall(mem.read(last - first)))
            except OSError: pass
print(found)
"""


def test_the_reply_of_a_run_is_not_in_the_next_one_s_memory(host):
    """Neither its exit code nor its time and memory: it would tell what ran before."""
    search = SEARCH.replace("Quetz[a]lcoatl", '"status": [0-9]|"rss_ki[b]"|"wall_s": 0[.]')
    for source in ("import sys; sys.exit(77)", "1 +", "print(1)"):
        host.run(source)
        assert host.run(search).text == "0\n"


def test_nothing_that_was_sent_for_a_run_is_in_the_next_one_s_memory(host):
    """Its files, input, arguments, calls and tests: programs are forked from a box that serves one after another."""
    word = "Quetzalcoatl"
    assert host.run(f"x = '{word}'\n{SEARCH}").text != "0\n"
    for _ in range(3):
        files = {"main.py": f"x = '{word}'; y = x * 99; input()", f"{word}.py": f"# {word}"}
        host.sandbox.run(Program("python", files=files, args=(word,)), word * 9)
        host.sandbox.run(Program("python", f"raise ValueError('{word}')"))
        host.sandbox.run(Program("python", f"{word} = = {word}"))
        host.sandbox.run(Program("bash", f"echo {word}", args=(word,)))
        program = Program("python", f"def f(x): return '{word}'")
        host.sandbox.call(program, [ProgramCall("f", (word,))] * 2)
        host.sandbox.test(program, TestSuite("asserts", f"assert f('{word}') == '{word}'"))
        assert {host.run(SEARCH).text for _ in range(4)} == {"0\n"}


def test_process_numbers_begin_anew(host):
    """They would tell a program how much the one before did, and make what it prints depend on it."""
    ids = "import os\nprint(os.getpid(), os.waitpid(os.fork() or os._exit(0), 0)[0])"
    host.run("import os\nfor _ in range(40): os.fork() or os._exit(0); os.wait()")
    assert {host.run(ids).text for _ in range(6)} == {"2 3\n"}
