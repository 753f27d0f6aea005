"""Attack family: programs that crash, and mean to take us with them."""

import signal

import pytest

from tests.processes import children
from tests.sandbox.sandboxes import keeper_of


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("import ctypes; ctypes.string_at(0)", signal.SIGSEGV),
        ("import os; os.abort()", signal.SIGABRT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", signal.SIGKILL),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", signal.SIGTERM),
        ("import os, signal; os.kill(os.getpid(), signal.SIGBUS)", signal.SIGBUS),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSYS)", signal.SIGSYS),
        ("import signal; signal.raise_signal(signal.SIGILL)", signal.SIGILL),
        (
            "import mmap, os\nopen('f', 'w').close()\nf = os.open('f', os.O_RDWR); os.ftruncate(f, 4096)\n"
            "m = mmap.mmap(f, 4096); os.ftruncate(f, 0); m[0]",
            signal.SIGBUS,
        ),
        ("import faulthandler; faulthandler.enable(); faulthandler._sigsegv()", signal.SIGSEGV),
        ("import ctypes; ctypes.CFUNCTYPE(None)(0x10)()", signal.SIGSEGV),
        (
            "import sys, types\nc = compile('1', '', 'eval').replace(co_code=bytes([255, 0] * 50), "
            "co_stacksize=0)\nexec(c)",
            None,
        ),
    ],
)
def test_a_crash_is_re_with_its_signal(host, source, number):
    """A native crash ends the program's process; the ending tells by which signal."""
    run = host.run(source)
    assert run.ending == "RE"
    assert run.signal == number or number is None


def test_a_stack_that_overflows_in_python(host):
    """Endless recursion raises in Python."""
    run = host.run("def f(): return f()\nf()")
    assert (run.ending, run.exit_code) == ("RE", 1)
    assert b"RecursionError" in run.stdout + run.stderr


def test_a_stack_that_overflows_in_c(host):
    """With no limit on recursion the C stack is what ends, or memory before it."""
    run = host.run(
        "import sys\nsys.setrecursionlimit(2 ** 31 - 1)\n"
        "class A:\n    def __getattr__(self, name): return getattr(self, name)\nA().x"
    )
    assert run.ending in ("RE", "MLE", "TLE")


@pytest.mark.parametrize(
    "code", [0, 1, 3, 42, 255, 256, -1, "1.5", "'text'", "None", "2 ** 70", "object()"]
)
def test_exit_codes_of_every_kind(host, code):
    """Nothing that a program hands to sys.exit is beyond us."""
    run = host.run(f"import sys; sys.exit({code})")
    assert run.ending == ("OK" if code in (0, 256, "None") else "RE")


@pytest.mark.parametrize(
    "source",
    [
        "raise SystemExit(3)",
        "class E(BaseException):\n    def __str__(self): raise E\nraise E",
        "class E(Exception):\n    def __repr__(self): import os; os._exit(0) if 0 else 1 / 0\nraise E",
        "class M(type):\n    def __getattribute__(self, n): raise KeyboardInterrupt\nclass E(Exception, "
        "metaclass=M): pass\nraise E",
        "import sys\nsys.excepthook = None\n1 / 0",
        "import sys\ndef h(*a): raise SystemExit(0)\nsys.excepthook = h\nraise ValueError",
        "import sys\nsys.stderr = None\n1 / 0",
        "import builtins\nbuiltins.__import__ = None\n1 / 0",
        "import builtins\nbuiltins.BaseException = builtins.SystemExit = int\n1 / 0",
        "import threading\nthreading._shutdown = 5\n1 / 0",
        "import sys\nsys.modules.clear()\n1 / 0",
        "import os\nos._exit = lambda code: None\n1 / 0",
        "import gc, sys\ngc.set_threshold(1)\nsys.settrace(lambda *a: 1 / 0)\nprint()",
        "import sys\ndef f(*a): raise KeyboardInterrupt\nsys.setprofile(f)\nlen([])",
        "import signal\ndef f(*a): raise KeyError\nsignal.signal(14, f); signal.setitimer(0, 1e-6, "
        "1e-6)\nwhile 1: pass",
        "raise BaseExceptionGroup('x', [KeyboardInterrupt()])",
        "raise KeyboardInterrupt",
        "raise MemoryError",
        "raise GeneratorExit",
    ],
)
def test_an_end_by_exception_is_not_ok(host, source):
    """However it is raised, printed, or hooked: the exit code is not 0, and nothing else than the program breaks."""
    run = host.run(source)
    assert run.ending == "RE" or ("setitimer" in source and run.ending == "TLE"), (
        run
    )  # it raises for ever


def test_os_exit_zero_is_ok(host):
    """A program may end at once: what it wrote is judged, and its buffers are lost as anywhere."""
    run = host.run("import os\nprint('lost')\nos.write(1, b'kept')\nos._exit(0)")
    assert (run.ending, run.text) == ("OK", "kept")


def test_replacing_the_process_is_its_own_affair(host):
    """exec of another program: the limits and the streams stay."""
    run = host.run("import os\nos.execv('/bin/echo', ['echo', 'hi'])")
    assert (run.ending, run.text) == ("OK", "hi\n")


def test_executing_a_broken_binary_fails_in_the_program(host):
    """An ELF header that lies, a script without an interpreter, an interpreter that is the script."""
    run = host.run(
        "import os\n"
        "for text in (b'\\x7fELF' + b'\\xff' * 200, b'#!/nowhere\\n', b'#!x\\n', b'', b'#!' + b'a' * 300):\n"
        "    open('x', 'wb').write(text); os.chmod('x', 0o755)\n"
        "    try: os.execv('./x', ['./x'])\n"
        "    except OSError as e: print(e.errno > 0)"
    )
    assert run.ending in ("OK", "RE")
    assert "False" not in run.text


def test_the_zygote_survives_every_crash(host):
    """The same slots serve on: crashing costs the next run no new start."""
    slots = children(keeper_of(host.sandbox))
    for _ in range(3):
        host.run("import ctypes; ctypes.string_at(0)")
        assert host.run("print(1)").ending == "OK"
    assert slots <= children(keeper_of(host.sandbox))
