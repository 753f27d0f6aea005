"""Attack family: standard output and error, fast, slow, sparse, and through other doors."""

import dataclasses

import pytest

from tests.sandbox.sandboxes import SMALL

FLOODS = {
    "print": "while True: print('x' * 1000)",
    "write": "import os\nwhile True: os.write(1, bytes(1 << 16))",
    "error": "import sys\nwhile True: sys.stderr.write('x' * 1000)",
    "both": "import os\nwhile True: os.write(1, b'x' * 999); os.write(2, b'y' * 999)",
    "reopened": "f = open('/dev/stdout', 'wb', 0)\nwhile True: f.write(bytes(1 << 16))",
    "by the descriptor": "f = open('/proc/self/fd/1', 'ab', 0)\nwhile True: f.write(bytes(1 << 16))",
    "by a child": "import os\nif os.fork(): os.wait()\nelse:\n    while True: os.write(1, bytes(1 << 16))",
    "by many": "import os\nfor _ in range(3): os.fork()\nwhile True: os.write(1, bytes(1 << 12))",
    "ignoring SIGXFSZ": "import os, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    "while True:\n    try: os.write(1, bytes(1 << 16))\n    except OSError: pass",
    "by sendfile": "import os\nz = open('z', 'w+b'); z.write(bytes(1 << 20)); z.flush()\n"
    "while True: os.sendfile(1, z.fileno(), 0, 1 << 20)",
    "by truncate": "import os\nos.ftruncate(1, (1 << 20) + 1)",
    "by a hole": "import os\nos.pwrite(1, b'x', 1 << 20)",
    "by fallocate": "import os\nos.posix_fallocate(1, 0, (1 << 20) + 1)",
    "by mmap": "import mmap, os\nos.ftruncate(1, 1 << 21)\nm = mmap.mmap(1, 1 << 21)\n"
    "for i in range(0, 1 << 21, 4096): m[i] = 1",
}


@pytest.mark.parametrize("door", FLOODS)
def test_a_flood_of_output_is_ole(host, door):
    """By whichever door it comes; what the host is given is never more than the limit."""
    run = host.run(FLOODS[door])
    assert run.ending == "OLE", run.why
    assert len(run.stdout) <= 1 << 20
    assert len(run.stderr) <= 1 << 20


@pytest.mark.parametrize("size", [1 << 40, 1 << 62])
def test_output_cannot_be_made_huge_by_a_hole(host, size):
    """A file size that no kernel limit would allow: the attempt fails, and no memory is allocated."""
    run = host.run(f"import os\ntry: os.ftruncate(1, {size})\nexcept OSError as e: print(e.errno)")
    assert (run.ending, run.text) == ("OK", "27\n")


def test_a_slow_drip_ends_at_the_wall(host):
    """A byte now and then does not make the host wait for the end of a line."""
    run = host.run(
        "import os, time\nwhile True: os.write(1, b'.'); time.sleep(0.01)",
        limits=dataclasses.replace(SMALL, wall_s=0.4),
    )
    assert run.ending == "TLE"
    assert set(run.text.partition("Traceback")[0]) == {"."}


def test_output_of_a_program_that_is_killed_is_kept(host):
    """What it wrote before the end is part of the verdict."""
    run = host.run("import os\nos.write(1, b'before')\nwhile True: pass")
    assert (run.ending, run.text.partition("Traceback")[0]) == ("TLE", "before")


def test_a_shell_s_yes_is_ole(host):
    """`yes` writes as fast as the kernel takes it."""
    assert host.run("yes", language="bash").ending == "OLE"


def test_exactly_the_limit_is_within_it(host):
    """The last byte that may be written is no flood."""
    run = host.run("import os\nwritten = os.write(1, b'x' * (1 << 20))")
    assert (run.ending, len(run.stdout)) == ("OK", 1 << 20)


def test_binary_output_is_bytes(host):
    """NUL, ANSI sequences, lone surrogates and invalid UTF-8 come back as they were written; `text` never raises."""
    run = host.run(r"import sys; sys.stdout.buffer.write(b'\0\x1b[2J\xff\xed\xa0\x80\r\n')")
    assert run.stdout == b"\0\x1b[2J\xff\xed\xa0\x80\r\n"
    assert isinstance(run.text, str)


def test_printing_a_surrogate_is_the_program_s_error(host):
    """UTF-8 has none: the program raises, as it would anywhere."""
    run = host.run(r"print('\ud800')")
    assert (run.ending, run.exit_code) == ("RE", 1)
    assert b"UnicodeEncodeError" in run.stdout + run.stderr


def test_our_own_terminal_is_out_of_reach(host, capfd):
    """Nothing that a program writes appears on the streams of the process that runs it."""
    host.run(
        "import os\n"
        "for fd in range(256):\n"
        "    try: os.write(fd, b'HELLO')\n"
        "    except OSError: pass\n"
        "for name in ('/dev/tty', '/dev/console', '/dev/pts/0', '/dev/tty1', '/dev/kmsg'):\n"
        "    try: open(name, 'w').write('HELLO')\n"
        "    except OSError: pass"
    )
    said = capfd.readouterr()
    assert "HELLO" not in said.out + said.err
