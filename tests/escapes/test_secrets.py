"""Attack family: what the host keeps to itself: files, environment, kernel interfaces, other users' data."""

import dataclasses
import os
import re
import sys
from pathlib import Path

import pytest

from rlvr import sandbox
from tests.sandbox.sandboxes import descendants, keeper_of


def test_a_file_of_the_host_is_not_there(host):
    """By its path, through every root and working directory in /proc, through links and .. chains."""
    run = host.run(
        "import os\n"
        "roots = ['', '/old', '/..' * 9, '/proc/1/root', '/proc/1/cwd', '/proc/self/root', '/proc/self/cwd/../../..',\n"
        "         '/proc/%d/root' % CANARY['host_pid'], '/proc/%d/cwd' % CANARY['pid'], '/proc/2/root', "
        "'/box/../old']\n"
        "for root in roots:\n"
        "    for path in (CANARY['file'], CANARY['shm'], '/etc/shadow', '/root/.bashrc', '/proc/1/environ'):\n"
        "        try: print(root + path, open(root + path).read())\n"
        "        except OSError: pass\n"
        "os.symlink(CANARY['file'], 'link')\n"
        "for attempt in (lambda: open('link').read(), lambda: os.link(CANARY['file'], 'hard'),\n"
        "                lambda: os.rename(CANARY['file'], 'mine'), lambda: os.unlink(CANARY['file']),\n"
        "                lambda: os.readlink('/proc/1/exe'), lambda: os.listdir('/proc/1/fd')):\n"
        "    try: print(attempt())\n"
        "    except OSError: pass"
    )
    assert run.text == ""


def test_a_walk_over_everything_finds_no_secret(host):
    """Every file that can be opened, in every folder that can be listed."""
    run = host.run(
        "import os\n"
        "found = []\n"
        "for folder, folders, files in os.walk('/'):\n"
        f"    if folder.startswith(('/usr', '/proc', '/lib', {sys.base_prefix!r}, '/opt')): folders[:] = []; continue\n"
        "    found += [os.path.join(folder, f) for f in files + folders]\n"
        f"print(*sorted(f for f in found if 'canary' in f or f.startswith({str(Path(__file__).parents[2])!r})))\n"
        "print(*sorted(os.listdir('/')))"
    )
    assert run.ending == "OK", run
    secret, top = run.text.split("\n")[:2]
    assert secret == ""
    assert not {"home", "sys", "boot", "srv", "mnt", "media", "run", "old", "work"} & set(
        top.split()
    ), top


def test_other_peoples_packages_are_hidden(host):
    """Site-packages of the host may hold anything, credentials too."""
    run = host.run(
        "import glob, sys\n"
        "for pattern in ('site-packages', 'dist-packages'):\n"
        "    for folder in glob.glob('/usr/lib/python3*/' + pattern) + glob.glob(sys.prefix + "
        "'/lib/python3*/' + pattern):\n"
        "        print(glob.glob(folder + '/*'))"
    )
    assert set(run.text.split()) <= {"[]"}


def test_the_environment_is_ours(host):
    """No variable of the host, in os.environ, in /proc or in the memory behind `environ`."""
    run = host.run(
        "import ctypes, os\n"
        "print(CANARY['variable'] in os.environ, CANARY['variable'].encode() in open('/proc/self/environ', "
        "'rb').read())\n"
        "env = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), 'environ')\n"
        "i = 0\n"
        "while env[i]: print(CANARY['variable'].encode() in env[i]); i += 1"
    )
    assert set(run.text.split()) == {"False"}
    shell = host.run("env", language="bash")
    assert host.canaries.name not in shell.text
    assert not {"HOSTNAME", "USER", "VIRTUAL_ENV", "PYTHONPATH"} & {
        line.partition("=")[0] for line in shell.text.split()
    }


def test_the_program_s_memory_holds_no_secret(host):
    """All that can be read of its own address space: it was forked from us, and we never had the host's memory."""
    run = host.run(
        "import re\n"
        "prefix, name = CANARY['variable'].encode()[:12], CANARY['variable'].encode()\n"
        "hits = 0\n"
        "with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as mem:\n"
        "    for line in maps:\n"
        "        a, b = (int(x, 16) for x in line.split()[0].split('-'))\n"
        "        if 'r' in line.split()[1] and b < 1 << 47 and 'v' not in line.split()[-1][:2]:\n"
        "            try:\n"
        "                mem.seek(a); hits += mem.read(b - a).count(b'RLVR_' + b'CANARY_')\n"
        "            except OSError: pass\n"
        "print(hits)"
    )
    assert run.ending == "OK", run
    assert int(run.stdout) < 60  # the facts it was given, and copies of them


@pytest.mark.parametrize(
    "start", ["import sys; f = sys._getframe()", "import inspect; f = inspect.currentframe()"]
)
def test_frames_and_objects_of_ours_hold_nothing_of_the_host(host, start):
    """Whatever it can reach from its caller's frames and from the garbage collector, no variable or file of ours."""
    run = host.run(
        f"{start}\n"
        "import gc\n"
        "seen, todo = set(), [f, *gc.get_objects()]\n"
        "while todo and len(seen) < 300000:\n"
        "    x = todo.pop()\n"
        "    if id(x) in seen: continue\n"
        "    seen.add(id(x))\n"
        "    if isinstance(x, str):\n"
        "        if x.startswith(('/sys/fs/cgroup/', '/tmp/rlvr')) and x[15:] and x not in CANARY.values(): print(x)\n"
        "    elif not isinstance(x, bytes): todo.extend(gc.get_referents(x))\n",
        limits=dataclasses.replace(host.sandbox.limits, cpu_s=5.0, wall_s=9.0, memory_mib=256),
    )
    assert (run.ending, run.text) == ("OK", "")


def test_proc_shows_the_run_and_no_machine(host):
    """Processes of the run alone; no kernel log, no addresses, no settings, no devices."""
    run = host.run(
        "import os\n"
        "print(*sorted(os.listdir('/proc')))\n"
        "print(*sorted(os.listdir('/dev')))\n"
        "for path in ('/proc/kmsg', '/proc/kcore', '/proc/kallsyms', '/proc/sys/kernel/core_pattern', '/proc/keys',\n"
        "             '/proc/sysrq-trigger', '/proc/cmdline', '/proc/config.gz', '/dev/mem', '/dev/kmsg', '/dev/sda',\n"
        "             '/dev/fuse', '/dev/kvm', '/dev/tty', '/dev/ptmx', '/dev/loop-control', '/sys/kernel', "
        "'/sys/fs/cgroup'):\n"
        "    assert not os.path.exists(path), path"
    )
    assert run.ending == "OK", run
    proc, dev = run.text.splitlines()
    assert proc == "1 2 self thread-self"
    assert dev == "fd full null random shm stderr stdin stdout urandom zero"


def test_pid_1_tells_nothing(host):
    """Its memory, files, environment and addresses are closed to the program, though both have one user."""
    run = host.run(
        "import os\n"
        "for name in ('mem', 'environ', 'maps', 'auxv', 'io', 'stack', 'syscall', 'pagemap', 'smaps'):\n"
        "    try: print(name, open('/proc/1/' + name, 'rb').read(100))\n"
        "    except OSError: pass\n"
        "for name in ('fd', 'fdinfo', 'map_files', 'task/1/fd'):\n"
        "    try: print(name, os.listdir('/proc/1/' + name))\n"
        "    except OSError: pass\n"
        "for name in ('exe', 'root', 'cwd', 'ns/user'):\n"
        "    try: print(name, os.readlink('/proc/1/' + name))\n"
        "    except OSError: pass"
    )
    assert run.text == ""


def test_where_on_the_host_it_runs_is_not_said(host):
    """Cgroup paths and the host's name are replaced; the user and its group are the box's own."""
    run = host.run(
        "import os, socket\n"
        "print(socket.gethostname(), os.uname().nodename, os.getuid(), os.getgid(), set(os.getgroups()) <= "
        "{1000, 65534})\n"
        "print({line.split(':')[2].strip() for line in open('/proc/self/cgroup')})"
    )
    assert run.text == "box box 1000 1000 True\n{'/'}\n"


def test_set_user_id_programs_gain_nothing(host):
    """su, mount, passwd and friends run without their bit."""
    run = host.run(
        "for f in /usr/bin/su /usr/bin/passwd /usr/bin/mount /usr/bin/newgrp /usr/bin/chsh; do\n"
        "  [ -u $f ] && echo 'set-user-id: '$f\n"
        "done\n"
        "cp /usr/bin/id /tmp/id; chmod 4777 /tmp/id; /tmp/id -u\n"
        "grep -E 'Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp:' /proc/self/status",
        language="bash",
    )
    lines = [line for line in run.text.splitlines() if not line.startswith("set-user-id")]
    assert lines[0] == "1000"
    assert {line.split()[1] for line in lines[1:5]} == {"0" * 16}
    assert [line.split()[1] for line in lines[5:]] == ["1", "2"]


def test_the_host_s_files_cannot_be_changed(host):
    """Read-only all over, for writing, removing, renaming, and for links that would stay."""
    run = host.run(
        "import glob, os, sys\n"
        "def mode(folder):\n"
        "    os.chmod(folder, 511)\n"
        "    if os.stat(folder).st_mode & 511 != 511: raise OSError('it only says so')\n"
        "folders = ['/', '/usr/bin', '/usr/lib', '/etc', '/dev', '/bin', '/lib', "
        "os.path.dirname(os.__file__), sys.prefix,\n"
        "           '/cache', '/proc', '/var', '/usr/share/zoneinfo', '/etc/alternatives']\n"
        "for folder in folders:\n"
        "    for attempt in (lambda: open(folder + '/canary', 'w'), lambda: os.mkdir(folder + '/canary'),\n"
        "                    lambda: os.symlink('x', folder + '/canary'), lambda: os.link('main.py', folder + "
        "'/canary'),\n"
        "                    lambda: os.rename(folder, folder + '2'), lambda: os.rmdir(folder), lambda: "
        "mode(folder)):\n"
        "        try: attempt(); print(folder)\n"
        "        except OSError: pass\n"
        "for file in ('/etc/passwd', '/usr/bin/env', os.__file__, sys.executable, '/dev/null/x'):\n"
        "    try: open(file, 'a'); print(file)\n"
        "    except OSError: pass"
    )
    assert run.text == ""
    folders = (Path("/usr/bin"), Path("/usr/lib"), Path("/etc"), Path(os.__file__).parent)
    assert not any((folder / "canary").exists() for folder in folders)


def test_the_table_of_mounts_names_no_folder_of_the_host_that_is_not_there(host):
    """The cache of compiled headers lies in the user's home; its path there is the host's own matter."""
    run = host.run(
        "import os\n"
        "for line in open('/proc/self/mountinfo'):\n"
        "    root, point = line.split()[3:5]\n"
        "    if not os.path.exists(root) and not point.startswith('/dev/'): print(root, point)\n"
        "print('/.cache' in open('/proc/self/mountinfo').read() + open('/proc/self/mounts').read())"
    )
    assert run.text == "False\n"


def test_no_path_of_ours_and_no_process_number_is_told(host):
    """By its command line, by that of pid 1, by the code that it was forked from, or by its mounts and users."""
    run = host.run(
        "import os, sys\n"
        "frame, told = sys._getframe(), [str(sys.orig_argv), str(sys.path)]\n"
        "while frame: told.append(frame.f_code.co_filename); frame = frame.f_back\n"
        "for name in ('1/cmdline', 'self/cmdline', 'self/mountinfo', 'self/uid_map', 'self/cgroup', 'self/environ'):\n"
        "    told.append(open('/proc/' + name).read().replace('\\0', ' '))\n"
        "print('\\n'.join(told))"
    )
    assert str(Path(sandbox.__file__).parent) not in run.text
    numbers = {
        str(os.getpid()),
        str(keeper_of(host.sandbox)),
        *map(str, descendants(keeper_of(host.sandbox))),
    }
    words = set(re.findall("[0-9]+", run.text))
    assert words.isdisjoint(number for number in numbers if int(number) > 1000)
    drawn = [int(word) for word in words if 2_000_000_000 <= int(word) < 2_147_483_648]
    assert not any(str(user - 2_000_000_000) in numbers for user in drawn)
