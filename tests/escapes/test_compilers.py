"""Attack family: what other programs compile or interpret: C++, JavaScript, Bash."""

import dataclasses

import pytest

from tests.sandbox.sandboxes import SMALL

NODE = dataclasses.replace(SMALL, memory_mib=256, cpu_s=15.0, wall_s=30.0, processes=32)
ENDLESS = dataclasses.replace(NODE, cpu_s=0.8, wall_s=2.5)
"""For what ends at these limits; for the others time must not be what ends them, on however slow a machine."""


@pytest.mark.parametrize(
    "source",
    [
        '#include "/dev/zero"',
        '#include "/dev/stdin"',
        '#include "main.cpp"',
        "template <int n> struct A { typedef typename A<n + 1>::t t; };\nA<0>::t x;",
        "template <int n> struct A { A<n + 1> a; };\nA<0> x;",
        'int main() {}\nasm(".rept 1000000000\\n.quad 1\\n.endr");',
        'int main() {}\nasm(".space 100000000000");',
        'int main() {}\nasm(".incbin \\"/dev/zero\\"");',
        "#define A(x) x x x x x x x x x x\n#define B(x) A(A(A(A(A(A(A(A(A(x)))))))))\nint main() { B(;) }",
        "volatile char a[1ul << 33] = {1};\nint main() {}",
        "int main() { return x; }",
        "#error no",
        "int main(",
    ],
)
def test_a_bomb_for_the_compiler_is_ce(host, source):
    """Endless, huge or wrong: the compiler has limits too, and what it says belongs to the program."""
    run = host.run(source, language="cpp")
    assert run.ending == "CE", run
    assert len(run.stderr) <= 8192


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/etc/shadow", "/proc/self/environ", "/proc/1/environ", "secret"]
)
def test_diagnostics_show_no_file_of_the_host(host, path):
    """#include of a file that is no C++ prints its lines."""
    path = str(host.canaries.file) if path == "secret" else path
    run = host.run(f'#include "{path}"\nint main() {{}}', language="cpp")
    assert b"root:" not in run.stderr
    assert host.canaries.name.encode() not in run.stderr
    binary = host.run(
        f'#include <unistd.h>\nasm("x: .incbin \\"{path}\\"\\ny:");\nextern char x[], y[];\n'
        "int main() { write(1, x, y - x); }",
        language="cpp",
    )
    assert b"root:" not in binary.stdout + binary.stderr
    assert host.canaries.name.encode() not in binary.stdout + binary.stderr


@pytest.mark.parametrize(
    ("body", "endings"),
    [
        ("for (;;);", ("TLE",)),
        (
            "for (;;) { volatile char* p = new char[1 << 20]; for (int i = 0; i < 1 << 20; i += 4096) p[i] = 1; }",
            ("MLE",),
        ),
        ("int* p = 0; *p = 1;", ("RE",)),
        ("abort();", ("RE",)),
        ("throw 1;", ("RE",)),
        ("return 3;", ("RE",)),
        ("for (;;) fork();", ("TLE", "MLE")),
        ('for (;;) puts("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");', ("OLE",)),
        ("volatile int x = 0; return 7 / x;", ("RE",)),
        ("kill(-1, 9); kill(1, 9); kill(0, 9);", ("RE",)),
        (
            "struct rlimit r = {1ul << 40, 1ul << 40}; return setrlimit(RLIMIT_CPU, &r) == 0 ? 0 : 7;",
            ("RE",),
        ),
        ("return ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 ? 0 : 7;", ("RE",)),
        ('signal(SIGXFSZ, SIG_IGN); for (;;) write(1, "0123456789", 10);', ("OLE", "TLE")),
    ],
)
def test_compiled_attacks_end_as_others_do(host, body, endings):
    """Native code without an interpreter in between."""
    headers = "cstdio cstdlib csignal unistd.h sys/resource.h sys/ptrace.h sys/wait.h".split()
    source = "".join(f"#include <{name}>\n" for name in headers) + f"int main() {{ {body} }}"
    run = host.run(source, language="cpp")
    assert run.ending in endings, run


def test_a_stack_that_overflows_natively_is_re(host):
    """Recursion without end, each frame in use."""
    run = host.run(
        "int f(volatile int* p) { volatile int a[999]; a[0] = *p; return f(a) + a[0]; }\n"
        "int main() { int x = 1; return f(&x); }",
        language="cpp",
        limits=dataclasses.replace(SMALL, memory_mib=2048, cpu_s=3.0, wall_s=6.0),
    )
    assert run.ending in ("RE", "MLE")


@pytest.mark.parametrize(
    ("source", "endings"),
    [
        ("while (true);", ("TLE",)),
        ("const a = []; while (true) a.push(Array(1e5).fill({}));", ("MLE", "RE")),
        ("const a = []; while (true) a.push(Buffer.alloc(1 << 22, 1));", ("MLE", "RE")),
        ("while (true) require('fs').writeSync(1, 'x'.repeat(65536));", ("OLE",)),
        ("setInterval(() => {}, 1000);", ("TLE",)),
        ("process.kill(1, 'SIGKILL'); process.kill(process.pid, 'SIGKILL');", ("RE",)),
        (
            "for (const n of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(n, () => {}); while (true);",
            ("TLE",),
        ),
        (
            "const cp = require('child_process'); while (true) cp.spawn('/bin/sleep', ['60']).on('error', () => {});",
            ("TLE", "MLE", "RE"),
        ),
        ("process.abort();", ("RE",)),
        ("throw 1", ("RE",)),
        ("process.exit(3)", ("RE",)),
        ("(function f() { f() })()", ("RE",)),
        ("/(a+)+$/.test('a'.repeat(60) + 'b')", ("TLE",)),
        ("process.dlopen({}, '/lib/x86_64-linux-gnu/libc.so.6')", ("RE",)),
        ("try { process.setuid(0); } catch { process.exit(7) }", ("RE",)),
        (
            "const {Worker} = require('worker_threads');\n"
            "for (let i = 0; i < 4; i++) new Worker('while (true);', {eval: true});",
            ("TLE", "MLE", "RE"),
        ),
    ],
)
def test_attacks_in_javascript(host, source, endings):
    """Node brings threads, a heap of its own and native modules; the limits are the same."""
    run = host.run(source, language="javascript", limits=ENDLESS if "TLE" in endings else NODE)
    assert run.ending in endings, run


def test_javascript_finds_no_secret(host):
    """Files, environment and the arguments of others."""
    facts = host.canaries.facts
    run = host.run(
        "const fs = require('fs');\n"
        f"for (const f of ['{facts['file']}', '{facts['shm']}', '/etc/shadow', '/proc/1/environ', '/proc/1/maps'])\n"
        "  try { console.log(f, fs.readFileSync(f, 'utf8').length) } catch {}\n"
        f"console.log('{facts['variable']}' in process.env);",
        language="javascript",
        limits=NODE,
    )
    assert run.text == "false\n"


@pytest.mark.parametrize(
    ("source", "endings"),
    [
        ("while :; do :; done", ("TLE",)),
        ("x=x; while :; do x=$x$x; done", ("MLE", "RE", "TLE")),
        ("cat /dev/zero", ("OLE",)),
        ("cat /dev/zero >&2", ("OLE",)),
        ("cat /dev/zero | sort", ("MLE", "RE", "TLE")),
        (
            "head -c 99999999 /dev/zero > big; ls -s big | cut -d' ' -f1 | awk '{exit $1 > 8200}'",
            ("OK",),
        ),
        ("kill -9 $$", ("RE",)),
        ("kill -9 -1; kill -9 1; sleep 60", ("RE", "TLE")),
        ("trap '' TERM INT HUP XCPU ALRM; while :; do :; done", ("TLE",)),
        ("f() { f | f & }; f; wait", ("TLE", "OK", "RE", "MLE")),
        ("exec 1>&- 2>&- 0<&-; sleep 60", ("TLE",)),
        ("ulimit -t 9999; ulimit -u 9999; ulimit -f unlimited; while :; do :; done", ("TLE",)),
        ("ulimit -v 1000; ls", ("RE", "OK")),
        ("rm -rf / --no-preserve-root 2>/dev/null", ("RE", "TLE")),
        ("cd /; mv /box/home /box/other; ln -s /usr /box/home; chmod 0 /box; sleep 60", ("TLE",)),
        ("rm -rf ~ /tmp/* . ..", ("RE", "OK")),
        ("sudo -n id || su -c id || unshare -r id || nsenter -t 1 -a id", ("RE",)),
        ("chmod -R 000 /box /tmp . ; exit 3", ("RE",)),
        ("dd if=/dev/zero of=/dev/shm/x bs=1M", ("RE",)),
        ("seq inf", ("OLE",)),
        ("python3 -c 'while 1: pass'", ("TLE",)),
        ("set -o posix; . /dev/zero", ("MLE", "RE", "TLE")),
    ],
)
def test_attacks_in_bash(host, source, endings):
    """Each tool of the host is at hand, and has the program's limits."""
    run = host.run(source, language="bash", limits=dataclasses.replace(SMALL, wall_s=1.0))
    assert run.ending in endings, run
