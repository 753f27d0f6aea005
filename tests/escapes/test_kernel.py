"""Attack family: system calls that change the machine, gain privileges, or reach rarely used parts of the kernel."""

import platform

import pytest

CALLS = {  # name: (x86_64, aarch64, arguments).  None would do harm where it worked.
    "mount": (165, 40, "b'none', b'/tmp', b'tmpfs', 0, None"),
    "umount2": (166, 39, "b'/proc', 2"),
    "pivot_root": (155, 41, "b'/tmp', b'/tmp'"),
    "chroot": (161, 51, "b'/tmp'"),
    "unshare": (272, 97, "0x10000000"),
    "setns": (308, 268, "0, 0"),
    "fsopen": (430, 430, "b'tmpfs', 0"),
    "open_tree": (428, 428, "-100, b'/', 1"),
    "move_mount": (429, 429, "-1, b'', -1, b'', 0"),
    "mount_setattr": (442, 442, "-100, b'/', 0, None, 0"),
    "ptrace": (101, 117, "0, 0, 0, 0"),
    "keyctl": (250, 219, "0, -3, 1"),
    "add_key": (248, 217, "b'user', b'x', b'y', 1, -3"),
    "request_key": (249, 218, "b'user', b'x', None, 0"),
    "bpf": (321, 280, "0, None, 0"),
    "perf_event_open": (298, 241, "None, 0, -1, -1, 0"),
    "userfaultfd": (323, 282, "1"),
    "io_uring_setup": (425, 425, "1, None"),
    "io_setup": (206, 0, "1, None"),
    "inotify_init1": (294, 26, "0"),
    "fanotify_init": (300, 262, "0, 0"),
    "syslog": (103, 116, "3, None, 0"),
    "reboot": (169, 142, "0, 0, 0, None"),
    "kexec_load": (246, 104, "0, 0, None, 0"),
    "init_module": (175, 105, "None, 0, b''"),
    "finit_module": (313, 273, "0, b'', 0"),
    "swapon": (167, 224, "b'/tmp/x', 0"),
    "acct": (163, 89, "None"),
    "sethostname": (170, 161, "b'pwned', 5"),
    "setdomainname": (171, 162, "b'pwned', 5"),
    "settimeofday": (164, 170, "None, None"),
    "clock_settime": (227, 112, "0, None"),
    "adjtimex": (159, 171, "None"),
    "shmget": (29, 194, "1234, 4096, 0o1666"),
    "semget": (64, 190, "1234, 1, 0o1666"),
    "msgget": (68, 186, "1234, 0o1666"),
    "mq_open": (240, 180, "b'x', 0o101, 0o666, None"),
    "seccomp": (317, 277, "1, 0, None"),
    "landlock_create_ruleset": (444, 444, "None, 0, 1"),
    "name_to_handle_at": (303, 264, "-100, b'/', None, None, 0"),
    "open_by_handle_at": (304, 265, "-1, None, 0"),
    "process_vm_readv": (310, 270, "1, None, 0, None, 0, 0"),
    "pidfd_getfd": (438, 438, "0, 0, 0"),
    "kcmp": (312, 272, "1, 2, 0, 0, 0"),
    "process_madvise": (440, 440, "0, None, 0, 0, 0"),
    "memfd_secret": (447, 447, "0"),
    "memfd_create": (319, 279, "b'x', 0"),
    "mbind": (237, 235, "None, 0, 0, None, 0, 0"),
    "move_pages": (279, 239, "0, 0, None, None, None, 0"),
    "migrate_pages": (256, 238, "0, 0, None, None"),
    "quotactl": (179, 60, "0, None, 0, None"),
    "lookup_dcookie": (212, 18, "0, None, 0"),
    "vhangup": (153, 58, ""),
    "iopl": (172, 0, "3"),
    "ioperm": (173, 0, "0, 8, 1"),
    "modify_ldt": (154, 0, "0, None, 0"),
    "setuid": (105, 146, "0"),
    "setgroups": (116, 159, "0, None"),
    "capset": (126, 91, "None, None"),
    "vmsplice": (278, 75, "1, None, 0, 0"),
    "splice": (275, 76, "0, None, 1, None, 0, 0"),
    "clone3": (435, 435, "None, 0"),
    "an unknown one": (9999, 9999, ""),
    "x32": (0x40000000 | 39, 9999, ""),
}


def test_calls_that_no_honest_program_makes_are_refused(host):
    """Each one fails with ENOSYS or EPERM before the kernel looks at its arguments."""
    arm = platform.machine() == "aarch64"
    attempts = [(name, numbers[arm], numbers[2]) for name, numbers in CALLS.items() if numbers[arm]]
    lines = "".join(f"attempt({name!r}, {number}, {args})\n" for name, number, args in attempts)
    run = host.run(
        "import ctypes, errno\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "libc.syscall.restype = ctypes.c_long\n"
        "def attempt(name, number, *args):\n"
        "    ctypes.set_errno(0)\n"
        "    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for "
        "a in args])\n"
        "    if result >= 0 or ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):\n"
        "        print(name, result, ctypes.get_errno())\n" + lines
    )
    assert (run.ending, run.text) == ("OK", "")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only this machine has an older door")
def test_the_32_bit_door_is_shut(host):
    """int 0x80 has other numbers, which no list for 64 bits knows: a program that uses it is killed."""
    run = host.run(
        "import ctypes, mmap\n"
        "m = mmap.mmap(-1, 4096, prot=7)\n"
        "m.write(bytes.fromhex('b814000000cd80c3'))  # getpid\n"
        "print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))())"
    )
    assert run.ending == "RE"
    assert run.text == ""


def test_new_namespaces_cannot_be_made_by_clone(host):
    """A user namespace of its own would give it every capability in there, and with it half of the kernel."""
    run = host.run(
        "import ctypes, os, platform\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "number = 220 if platform.machine() == 'aarch64' else 56\n"
        "for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x8000):\n"
        "    pid = libc.syscall(number, ctypes.c_ulong(flag | 17), 0, 0, 0, 0)\n"
        "    if pid == 0: os._exit(0)\n"
        "    print(pid)"
    )
    assert set(run.text.split()) == {"-1"}


def test_a_terminal_cannot_be_typed_into(host):
    """TIOCSTI puts characters into a terminal as if they were typed; TIOCLINUX pastes; TIOCSCTTY takes one over."""
    run = host.run(
        "import fcntl\n"
        "for fd in (0, 1, 2):\n"
        "    for request in (0x5412, 0x541C, 0x540E, 0x5423):\n"
        "        try: fcntl.ioctl(fd, request, b'x'); print('done')\n"
        "        except OSError: pass"
    )
    assert run.text == ""


def test_the_filter_cannot_be_taken_off(host):
    """Neither a second filter that allows all, nor strict mode, nor a fresh exec changes it."""
    run = host.run(
        "import ctypes, os, subprocess, sys\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.prctl(22, 2, None, 0, 0), libc.prctl(22, 0, 0, 0, 0), libc.prctl(38, 0, 0, 0, 0))\n"
        "print(subprocess.run(['/bin/grep', '-c', '-E', 'Seccomp:.2|NoNewPrivs:.1', '/proc/self/status'],\n"
        "      capture_output=True, text=True).stdout.strip())"
    )
    assert run.text == "-1 -1 -1\n2\n"


def test_core_dumps_reach_nobody(host):
    """A crash leaves no file and wakes no crash handler of the host, also where the program asks for one."""
    run = host.run(
        "import os, resource, signal\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE)[1])\n"
        "os.kill(os.getpid(), signal.SIGSEGV)"
    )
    assert run.signal == 11
    assert int(run.stdout or 1) <= 1


def test_devices_cannot_be_made(host):
    """mknod of a disk, of memory, of a terminal."""
    run = host.run(
        "import os, stat\n"
        "for kind in (stat.S_IFCHR, stat.S_IFBLK):\n"
        "    for major, minor in ((1, 1), (1, 3), (8, 0), (5, 0), (10, 229)):\n"
        "        try: os.mknod('/tmp/dev', kind | 0o666, os.makedev(major, minor)); print('made')\n"
        "        except OSError: pass"
    )
    assert run.text == ""


def test_sync_does_not_reach_the_host_s_disks(host):
    """A loop of sync() would slow down everybody: it does nothing, and says it worked."""
    run = host.run("import os\nfor _ in range(2000): os.sync()\nprint('done')")
    assert run.text == "done\n"
