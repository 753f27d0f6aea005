"""Attack family: files.  Bytes, inodes, names, depths and holes in the scratch folder."""

import dataclasses

import pytest

from rlvr.sandbox import Program
from tests.sandbox.sandboxes import SMALL

MIB = 1 << 20


def test_a_full_disk_is_the_program_s_own(host):
    """All folders share one limit; beyond it writing fails with ENOSPC in the program."""
    run = host.run(
        "import errno\n"
        "total = 0\n"
        "for folder in ('.', '/tmp', '/dev/shm', '/var/tmp'):\n"
        "    for i in range(3):\n"
        "        try:\n"
        "            with open(f'{folder}/{i}', 'wb', 0) as f:\n"
        "                while True: total += f.write(bytes(1 << 16))\n"
        "        except OSError as e: assert e.errno in (errno.ENOSPC, errno.EFBIG), e\n"
        "print(total)"
    )
    assert run.ending == "OK", run
    assert 7 * MIB < int(run.stdout) <= 8 * MIB


def test_inodes_run_out(host):
    """Empty files, folders, links, pipes and sockets are all counted."""
    run = host.run(
        "import os, socket\n"
        "made = 0\n"
        "makers = [lambda n: open(n, 'x').close(), os.mkdir, lambda n: os.symlink('x', n), os.mkfifo,\n"
        "          lambda n: socket.socket(socket.AF_UNIX).bind(n)]\n"
        "for maker in makers:\n"
        "    try:\n"
        "        for i in range(1000): maker(f'/tmp/{maker}{i}'.replace('<', '')[:90]); made += 1\n"
        "    except OSError: pass\n"
        "print(made)"
    )
    assert 100 < int(run.stdout) <= SMALL.files


def test_hard_links_run_out(host):
    """A tmpfs counts a name for a file that exists as one more."""
    run = host.run(
        "import os\nopen('a', 'w').close()\nmade = 0\n"
        "try:\n    while made < 100000: os.link('a', f'b{made}'); made += 1\nexcept OSError: pass\nprint(made)"
    )
    assert int(run.stdout) <= SMALL.files


def test_sparse_files_take_no_room(host):
    """A hole is not memory, and a huge one is refused by the limit on file sizes."""
    run = host.run(
        "import os\n"
        "try: os.truncate('/tmp/x', 0)\nexcept OSError: open('/tmp/x', 'w').close()\n"
        "for size in (1 << 62, 1 << 40):\n"
        "    try: os.truncate('/tmp/x', size); print('made')\n"
        "    except OSError: print('refused')\n"
        "print(os.stat('/tmp/x').st_blocks)"
    )
    assert run.text == "refused\nrefused\n0\n"


def test_a_deep_tree_of_folders_goes_with_the_run(host):
    """Deeper than any path can say: there is nothing for us to walk, since the whole tmpfs goes."""
    run = host.run(
        "import os\ndepth = 0\n"
        "try:\n    while True: os.mkdir('d' * 200); os.chdir('d' * 200); depth += 1\nexcept OSError: print(depth)"
    )
    assert 100 < int(run.stdout) <= SMALL.files


def test_deleted_files_that_are_open_still_count(host):
    """Without a name, a file has its size."""
    run = host.run(
        "import os\n"
        "held, total = [], 0\n"
        "try:\n"
        "    while True:\n"
        "        held.append(open('gone', 'wb', 0)); os.unlink('gone')\n"
        "        total += held[-1].write(bytes(1 << 20))\n"
        "except OSError: pass\n"
        "print(total)"
    )
    assert int(run.stdout) <= 8 * MIB


def test_many_open_files_are_bounded(host):
    """Descriptors run out in the program, not on the host."""
    run = host.run(
        "import os\nfds = []\n"
        "try:\n    while len(fds) < 1 << 20: fds.append(os.open('/dev/null', 0))\nexcept OSError: pass\nprint(len(fds))"
    )
    assert 200 < int(run.stdout) < 5000


def test_names_that_are_no_text_are_no_trouble(host):
    """Newlines, escape sequences, invalid UTF-8 and 255 bytes in file names."""
    run = host.run(
        r"for n in (b'a\nb', b'\x1b[2J', b'\xff\xfe', b'x' * 255, b'-rf', b' '): open(n, 'w').close()"
    )
    assert run.ending == "OK"


@pytest.mark.parametrize("mode", [0o000, 0o4777, 0o1777])
def test_strange_modes_of_its_own_files_change_nothing(host, mode):
    """Everything unreadable, or set-user-id: the next run still finds an empty folder."""
    run = host.run(
        "import os\nopen('x', 'w').close()\n"
        f"for name in ('x', 'main.py', '.', '/tmp', '/dev/shm', '/box'):\n"
        f"    try: os.chmod(name, {mode})\n    except OSError: pass"
    )
    assert run.ending == "OK"


def test_a_working_directory_that_is_gone(host):
    """The program removes all it stands on."""
    run = host.run(
        "import os, shutil\nshutil.rmtree('.', ignore_errors=True)\nos.chdir('/tmp')\nprint('still here')"
    )
    assert run.text == "still here\n"


def test_files_that_do_not_fit_end_the_program_before_it_starts(host):
    """A binary of a size that its scratch cannot hold is over its limits, and no failure of ours."""
    run = host.run(
        "volatile char a[40 << 20] = {1};\nint main() { return a[5]; }",
        language="cpp",
        limits=dataclasses.replace(SMALL, memory_mib=256),
    )
    assert run.ending == "MLE"


def test_attributes_locks_and_leases_of_what_others_read(host):
    """Read-only files of the host that all runs share: no lease, no lock that others wait for, no attribute."""
    run = host.run(
        "import fcntl, os\n"
        "f = open(os.__file__)\n"
        "before = os.stat(f.fileno())\n"
        "def changed(how):\n"
        "    how()\n"
        "    if os.stat(f.fileno()) == before: raise OSError('it only says so')\n"
        "for attempt in (lambda: fcntl.fcntl(f, fcntl.F_SETLEASE, 0), lambda: os.setxattr(os.__file__, "
        "'user.x', b'1'),\n"
        "                lambda: changed(lambda: os.utime(os.__file__)),\n"
        "                lambda: changed(lambda: os.chmod(os.__file__, 0o777))):\n"
        "    try: attempt(); print('done')\n"
        "    except OSError: pass"
    )
    assert run.text == ""


@pytest.mark.parametrize("disk_mib", [1e-9, 0.001])
def test_a_disk_of_next_to_nothing_is_not_one_without_limit(host, disk_mib):
    """A tmpfs takes a size of 0 for no limit."""
    run = host.run(
        "open('x', 'wb').write(bytes(1 << 16))",
        limits=dataclasses.replace(SMALL, disk_mib=disk_mib),
    )
    assert run.ending in ("MLE", "RE"), run


def test_files_are_counted_without_our_own_folders(host):
    """Three, of which the program itself is one."""
    source = "for n in range(9):\n    open(f'/tmp/{n}', 'w')\n    print(n)"
    run = host.run(source, limits=dataclasses.replace(SMALL, files=3))
    assert (run.ending, run.text) == ("RE", "0\n1\n")


def test_a_module_named_by_a_source_s_encoding_does_not_run_before_it(host):
    """While it is compiled, what is said of it is still our own."""
    files = {
        "main.py": "# coding: bz2\nprint(1)",
        "bz2.py": "import os\nfor fd in range(3, 9):\n"
        "    try: os.write(fd, b'setup: forged')\n    except OSError: pass\nos._exit(0)",
    }
    run = host.sandbox.run(Program("python", files=files))
    assert run.ending in ("CE", "RE"), run


def test_files_of_the_program_that_do_not_fit_are_called_by_their_limit(host):
    """Not by the memory limit, which they may be far below."""
    program = Program("python", "print(1)", files={"big": bytes(3 << 20)})
    run = host.sandbox.run(program, limits=dataclasses.replace(SMALL, disk_mib=2.0))
    assert (run.ending, run.why) == ("MLE", "its files are larger than the disk limit of 2 MiB")


def test_a_tool_that_writes_too_large_a_file_is_told_so(host):
    """It ends by a signal that says little by its name."""
    limits = dataclasses.replace(SMALL, disk_mib=2.0, output_mib=1.0)
    run = host.run("head -c 5000000 /dev/zero > big; kill -XFSZ $$", language="bash", limits=limits)
    assert (run.ending, run.why) == ("RE", "a file over the disk limit of 2 MiB (SIGXFSZ)")
