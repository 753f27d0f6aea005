"""`rlvr.sandbox` from outside: what goes in, what comes out, what is promised."""

import asyncio
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

import rlvr
from rlvr.errors import DataError, IsolationUnavailable, MissingDependency, UsageError
from rlvr.sandbox import (
    Ending,
    Guarantee,
    Limits,
    Program,
    ProgramCall,
    Run,
    Sandbox,
    TestSuite,
    compiling,
    languages,
    probe,
    remedies,
    toolchains,
)
from rlvr.sandbox.compiling import Compiler
from rlvr.sandbox.guest.linux import landlock_abi
from rlvr.sandbox.guest.restricted import ABI
from rlvr.sandbox.languages import LANGUAGES, ProgramLanguage
from rlvr.sandbox.levels import LEVELS
from rlvr.sandbox.outputs import Output
from rlvr.sandbox.slots import CannotIsolate, Died, Keeper, RunRequest, Slot
from rlvr.verifiers.code import CodeVerifier
from rlvr.workers import usable_cores
from tests.processes import run_python
from tests.sandbox import container

SMALL = Limits(cpu_s=2.0, memory_mib=256)


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(limits=SMALL, workers=2) as sandbox:
        yield sandbox


def python(source: str, **options: object) -> Program:
    return Program("python", source, **options)


# --------------------------------------------------------------------------------- limits of others

HUNGRY = "x = bytearray(150 << 20)\nprint(len(x))"


def test_a_worker_that_has_less_memory_takes_none_from_a_program():
    """With --memory-mib 120 a right program was WRONG: it had inherited the limit of the worker."""
    verifier = CodeVerifier(limits=SMALL)
    rows = [
        {
            "reference": {"inputs": [""], "outputs": [str(150 << 20)]},
            "completion": f"```python\n{HUNGRY}\n```",
        }
    ]
    env = rlvr.Environment.from_rows([], verifier=verifier)
    [scored] = rlvr.score(env, rows, workers=1, memory_mib=120)
    assert scored.score.verdict.outcome is rlvr.Outcome.CORRECT, scored.score.verdict.why


def test_a_host_that_has_less_than_a_run_may_take_is_not_the_programs_fault(sandbox, monkeypatch):
    """With `ulimit -d` a right program was WRONG."""
    assert sandbox.run(python(HUNGRY)).ending is Ending.OK
    monkeypatch.setattr("resource.getrlimit", lambda _: (100 << 20, 100 << 20))
    with pytest.raises(IsolationUnavailable, match="`ulimit -Hd` stands for 104,857,600 bytes"):
        sandbox.run(python(HUNGRY))


# ----------------------------------------------------------------------------------- several inputs

ODD = """
import os
n = int(input())
open('left', 'x').close()
print(n, os.getpid())
assert n != 3
while n == 5: pass
hoard = bytearray(400 << 20) if n == 7 else b''
if n == 8: print('y' * 1_500_000)
"""


def test_cases_of_one_request_end_as_runs_of_their_own(sandbox):
    """Output, ending and reason of each, whatever the one before did; a request ends where a box cannot go on."""
    limits = Limits(cpu_s=1.0, memory_mib=256)  # in which any machine fills this memory
    wanted = [sandbox.run(python(ODD), str(n), limits=limits) for n in range(10)]
    found: list[Run] = []
    while len(found) < len(wanted):
        stdins = [str(n) for n in range(len(found), 10)]
        found += sandbox.run_cases(python(ODD), stdins, limits=limits, stop=False)
    for one, other in zip(found, wanted, strict=True):
        assert (one.ending, one.stdout, one.stderr, one.exit_code) == (
            other.ending,
            other.stdout,
            other.stderr,
            other.exit_code,
        )


def test_cases_of_one_request_share_totals_and_stop_at_a_failure(sandbox):
    """0.2 CPU s of each, 0.5 for all: the third has what is left; and nothing runs after a case that failed."""
    burn = python("import time\nwhile time.process_time() < 0.2: pass")
    runs = sandbox.run_cases(burn, [""] * 9, total_cpu_s=0.5, stop=False)
    assert [run.ending for run in runs] == [Ending.OK, Ending.OK, Ending.TLE]
    left = 0.5 - runs[0].cpu_s - runs[1].cpu_s
    assert runs[2].why == f"over {left:g} CPU seconds"
    assert len(sandbox.run_cases(python(ODD), ["1", "3", "4"])) == 2
    assert len(sandbox.run_cases(python("print(1)"), ["x" * (3 << 20)] * 3)) == 1
    assert len(sandbox.run_cases(python("print(1)"), [""] * 99)) == 32
    broken = sandbox.run_cases(python("1 +"), ["", ""], stop=False)
    assert [run.ending for run in broken] == [Ending.CE]


# ------------------------------------------------------------------------------------- what goes in


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cpu_s", 0),
        ("cpu_s", float("nan")),
        ("wall_s", -1.0),
        ("memory_mib", 1.5),
        ("processes", True),
        ("files", "9"),
    ],
)
def test_a_limit_that_cannot_work_is_refused_by_name(field, value):
    """A NaN would never be exceeded, a bool is a slip."""
    with pytest.raises(UsageError, match=rf"Limits: {field} is .*{str(value)[:3]}"):
        Limits(**{field: value})


def test_the_wall_limit_follows_the_cpu_limit():
    """3 × cpu + 2: room for a loaded machine, and an end for programs that sleep."""
    assert Limits(cpu_s=2.0).wall_s == 8.0
    assert Limits(cpu_s=2.0, wall_s=5.0).wall_s == 5.0


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../x", "a/../b", "", "a//b", "./a", "a\0b", "x" * 256, "x/" * 500 + "x"],
)
def test_a_file_name_that_leaves_the_folder_is_refused(name):
    """The host writes these files, so their names must not lead anywhere else."""
    with pytest.raises(UsageError, match="the file name is"):
        Program("python", "", files={name: ""})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"args": ("a", "\ud800")}, r"args\[1\] is .*lone surrogate.*standard input"),
        ({"args": ("x" * (128 << 10),)}, r"args\[0\] has 131072 bytes; .*128 KiB.*as a file"),
        ({"args": ("é" * (64 << 10),)}, r"args\[0\] has 131072 bytes"),
        ({"args": ("x" * 1000,) * 1100}, r"args has 1101100 bytes; .*at most 1 MiB"),
        ({"files": {"\udfff.py": ""}}, r"the file name is .*lone surrogate.*Rename"),
    ],
)
def test_what_no_run_can_have_is_refused_at_once(settings, said):
    """A run would end IE, as if we had failed."""
    with pytest.raises(UsageError, match=said):
        Program("python", "", **settings)


def test_the_longest_arguments_arrive(sandbox):
    """In a language that is started with exec, where the kernel has the limit."""
    program = Program(
        "bash", "echo $# ${#1} ${#8}", args=("x" * (128 * 1024 - 1),) * 7 + ("é",) * 40_000
    )
    assert sandbox.run(program).text == "40007 131071 1\n"


def test_a_program_is_refused_where_it_says_nothing_or_too_much():
    refusal = "the language is 'cobol'; it must be one of 'python', 'pypy'.*RLVR_LANGUAGES=NAME.py"
    with pytest.raises(UsageError, match=refusal):
        Program("cobol", "")
    with pytest.raises(UsageError, match=r"needs a source, or a file 'main.cpp'"):
        Program("cpp", files={"other.cpp": ""})
    with pytest.raises(UsageError, match=r"the file 'a' would also be a folder, of 'a/b/c'"):
        Program("python", "", files={"a/b/c": "", "a": ""})
    with pytest.raises(UsageError, match=r"both a source and a file 'main.py'"):
        Program("python", "1", files={"main.py": "2"})
    with pytest.raises(UsageError, match="list of strings"):
        Program("python", "", args="-v")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"workers": 0}, "workers is 0; it must be a whole number from 1 to 1024, or 'auto'"),
        ({"workers": "all"}, "workers is 'all'; it must be a whole number"),
        ({"packages": "numpy"}, r"not 'numpy'"),
        ({"allow_missing": {"gravity"}}, "it must be one of 'files', 'writes'"),
        ({"packages": ("no-such-package-anywhere",)}, "no-such-package-anywhere is not installed"),
        ({"python": "/nonexistent/python"}, "python='/nonexistent/python'"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_at_once(settings, said):
    """Not at the first run, hours later in a worker."""
    with pytest.raises(UsageError, match=said):
        Sandbox(**settings)


# ----------------------------------------------------------------------------------- what comes out


@pytest.mark.parametrize(
    ("source", "ending", "why"),
    [
        ("print('x')", Ending.OK, ""),
        ("import sys; sys.exit(3)", Ending.RE, "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", Ending.RE, "ended by signal SIGKILL"),
        ("1/0", Ending.RE, "exit code 1"),
        ("def (:", Ending.CE, "it does not compile"),
        ("while True: pass", Ending.TLE, "over 0.3 CPU seconds"),
        ("import time; time.sleep(9)", Ending.TLE, "over 0.6 wall seconds"),
        ("x = b'x' * (1 << 29)", Ending.MLE, "over 96 MiB"),
        ("while True: print('x' * 4096)", Ending.OLE, "over 0.5 MiB of output"),
    ],
)
def test_how_a_program_stopped(sandbox, source, ending, why):
    wall_s = 0.6 if "sleep" in source else 60.0  # a loaded machine takes its time
    limits = Limits(cpu_s=0.3, wall_s=wall_s, memory_mib=96, output_mib=0.5)
    run = sandbox.run(python(source), limits=limits)
    assert run.ending is ending
    assert run.why.startswith(why)
    assert len(run.stdout) <= 1 << 19


def test_a_run_carries_what_it_used(sandbox):
    """0.2 s of work and 60 MiB, in the units of the fields."""
    run = sandbox.run(
        python(
            "import time\nx = bytearray(b'1' * (60 << 20))\nend = time.process_time() + .2\nwhile time.process_time() < end: pass"
        )
    )
    assert run.ending is Ending.OK
    assert 0.2 <= run.cpu_s < 1
    assert run.wall_s >= 0.2
    assert 60 <= run.memory_mib < 256


def test_a_traceback_shows_the_program_and_none_of_our_frames(sandbox):
    run = sandbox.run(python("def f():\n    raise ValueError('seen')\nf()"))
    assert run.stderr.decode().splitlines() == [
        "Traceback (most recent call last):",
        '  File "/box/home/main.py", line 3, in <module>',
        "    f()",
        '  File "/box/home/main.py", line 2, in f',
        "    raise ValueError('seen')",
        "ValueError: seen",
    ]


def test_files_arguments_and_input_arrive(sandbox):
    program = Program(
        "python",
        "import sys, pkg.helper\nprint(pkg.helper.NAME, sys.argv, sys.stdin.read(), open('data/raw.bin', 'rb').read())",
        files={"pkg/helper.py": "NAME = 'helped'", "data/raw.bin": b"\0\xff"},
        args=("-v", "ö"),
    )
    assert (
        sandbox.run(program, "grüße").text == "helped ['main.py', '-v', 'ö'] grüße b'\\x00\\xff'\n"
    )


def test_runs_of_many_come_in_order_and_as_they_are_taken(sandbox):
    """Jobs may come from a generator without end: only a window of them is taken."""
    taken = []

    def jobs():
        for n in range(10**9):
            taken.append(n)
            yield python(f"print({n})"), ""

    runs = sandbox.run_many(jobs())
    assert [next(runs).text for _ in range(12)] == [f"{n}\n" for n in range(12)]
    runs.close()
    assert len(taken) < 40


def test_asyncio_and_threads_share_a_sandbox(sandbox):
    async def gathered():
        return await asyncio.gather(*(sandbox.arun(python(f"print({n})")) for n in range(20)))

    assert [run.text for run in asyncio.run(gathered())] == [f"{n}\n" for n in range(20)]
    with ThreadPoolExecutor(16) as threads:
        runs = list(threads.map(lambda n: sandbox.run(python("print(input())"), str(n)), range(40)))
    assert [run.text for run in runs] == [f"{n}\n" for n in range(40)]


def test_a_program_that_hangs_keeps_no_other_waiting(sandbox):
    """It has one slot of two until its wall limit; the other slot goes on with the programs of other callers."""
    with ThreadPoolExecutor(2) as threads:
        hung = threads.submit(
            sandbox.run,
            python("import time; time.sleep(99)"),
            limits=Limits(cpu_s=0.3, wall_s=60.0),
        )
        started = time.monotonic()
        texts = {sandbox.run(python("print(1)")).text for _ in range(5)}
        assert time.monotonic() - started < 50.0
        assert texts == {"1\n"}
        assert not hung.done()
        sandbox.close()
        assert hung.result().ending is Ending.IE


@pytest.mark.slow
def test_the_wall_clock_stands_still_while_there_is_no_core(sandbox):
    """Beside three endless processes per core a program gets a quarter; it ends, or the bound of the time is used up."""
    hogs = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
        for _ in range(3 * usable_cores())
    ]
    try:
        limits = Limits(cpu_s=5.0, wall_s=1.0)
        busy = sandbox.run(
            python("import time\nwhile time.process_time() < 0.9: pass\nprint('done')"),
            limits=limits,
        )
        idle = sandbox.run(python("import time; time.sleep(99)"), limits=limits)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    if busy.wall_s - busy.cpu_s < 0.2:
        pytest.skip(
            "the scheduler of this machine gave it a core all the time, in a group of its own"
        )
    assert busy.starved_s > 0.05
    assert busy.text == "done\n" or busy.starved_s == 1.0
    assert (idle.ending, idle.starved_s < 0.8) == (Ending.TLE, True)


# --------------------------------------------------------------------------------- calls and suites


def test_calls_come_back_as_values(sandbox):
    program = python(
        "def add(a, b=1): return a + b\nclass Solution:\n    def pair(self, x): return (x, {x})"
    )
    calls = [
        ProgramCall("add", (1, 2)),
        ProgramCall("add", (1,), {"b": 0.5}),
        ProgramCall("pair", ("é",)),
        ProgramCall("add", ("x",)),
        ProgramCall("no"),
    ]
    found = sandbox.call(program, calls)
    assert found.run.ending is Ending.OK
    assert [reply.value for reply in found.replies[:3]] == [3, 1.5, ("é", {"é"})]
    assert found.replies[3].error.startswith("TypeError: ")
    assert found.replies[4].error.startswith("NameError: ")


def test_a_call_that_ends_the_program_leaves_the_others_unanswered(sandbox):
    found = sandbox.call(
        python("import os\ndef f(n):\n    if n == 2: os._exit(0)\n    return n"),
        [ProgramCall("f", (n,)) for n in range(4)],
    )
    assert [reply and reply.value for reply in found.replies] == [0, 1, None, None]


def test_each_call_has_its_own_cpu_limit(sandbox):
    """Four calls of 0.15 s pass a limit of 0.4 s each; one that hangs is killed long before the run's 2 s."""
    busy = "import time\ndef f(s):\n    end = time.process_time() + s\n    while time.process_time() < end: pass\n    return 1"
    good = sandbox.call(python(busy), [ProgramCall("f", (0.15,))] * 4, case_cpu_s=0.4)
    assert [reply.value for reply in good.replies] == [1] * 4
    hung = sandbox.call(
        python(busy), [ProgramCall("f", (0.0,)), ProgramCall("f", (99.0,))], case_cpu_s=0.4
    )
    assert hung.run.ending is Ending.TLE
    assert hung.run.cpu_s < 1
    assert hung.replies[1] is None


def test_only_python_can_be_called(sandbox):
    with pytest.raises(UsageError, match="functions of a bash program cannot be called"):
        sandbox.call(Program("bash", ""), [ProgramCall("f")])


def test_a_suite_sees_values_and_the_program_sees_no_tests(sandbox):
    """The expected value is nowhere in the program's process: not in its memory, files or descriptors."""
    spy = (
        "import gc, os, sys\n"
        "def f(x):\n"
        "    seen = repr([o for o in gc.get_objects() if isinstance(o, (str, list, dict))])\n"
        "    files = ''.join(open(os.path.join(d, n), errors='replace').read() for d, _, ns in os.walk('/box') for n in ns)\n"
        "    return 'needle' + chr(45) + str(4711) in seen + files + str(sys._getframe().f_back.f_locals)\n"
    )
    suite = TestSuite(
        "asserts",
        "expected = 'needle-' + '4711'\nassert f(1) is False\nassert f(2) != expected",
        stop=False,
    )
    found = sandbox.test(python(spy), suite)
    assert [(case.outcome) for case in found.cases] == ["pass", "pass"]
    assert found.done


# ---------------------------------------------------------------------------------------- languages


@pytest.mark.parametrize("program", toolchains.GREETINGS, ids=lambda program: program.language)
def test_every_language_runs(sandbox, program):
    """A machine without Python, C++, node or bash fails here with the doctor's words; others are skipped by name."""
    asked = ("python", "cpp", "javascript", "bash")
    if program.language not in asked and (error := toolchains.missing(program.language)):
        pytest.skip(str(error))
    run = sandbox.run(program, limits=Limits(memory_mib=1024))
    assert run.ending is Ending.OK, run.why
    assert run.text.strip()


NO_SUCH_TOOL = "from rlvr.sandbox.languages import ProgramLanguage\nROW = ProgramLanguage('x', '', tool='no-tool', package='p', run=('{tool}',))"


@pytest.fixture
def without(monkeypatch, tmp_path):
    """A language whose tool this host lacks."""
    monkeypatch.setenv("RLVR_LANGUAGES", "")
    file = tmp_path / "lacking.py"
    file.write_text(NO_SUCH_TOOL)
    languages.register("lacking", file)
    yield "lacking"
    del LANGUAGES["lacking"]


def test_a_missing_toolchain_is_ours_to_mend(sandbox, without):
    """IE with the remedy: it says nothing about the program."""
    run = sandbox.run(Program(without, "print"))
    assert run.ending is Ending.IE
    assert "no-tool" in run.why
    assert "apt-get install p" in run.why


def test_a_missing_toolchain_is_one_error_before_any_completion(without):
    """A completion's fence chose the language that is missing, and with it UNSCORED; and each was one error more."""
    for language in (without, ["python", without]):
        with pytest.raises(MissingDependency, match="apt-get install p"):
            CodeVerifier(language=language)
    reference = {"inputs": ["1"], "outputs": ["2"], "checker": {"source": "", "language": without}}
    with pytest.raises(DataError, match="the reference brings a program: no-tool"):
        CodeVerifier().read(reference)


def test_a_tool_that_was_upgraded_says_its_new_version(monkeypatch, tmp_path):
    """Under its old name: what was known of the name would stand in records that it did not judge."""
    tool = tmp_path / "tool"
    monkeypatch.setattr(toolchains, "tool_path", lambda language: str(tool))
    assert toolchains.tool_version("cpp") == "unknown"
    for version in ("tool 1.9", "tool 1.10"):
        new = tmp_path / "new"
        new.write_text(f"#!/bin/sh\necho {version}\n")
        new.chmod(0o755)
        new.rename(tool)
        assert toolchains.tool_version("cpp") == version


def test_a_tool_that_lives_in_usr_shows_no_more_of_it(monkeypatch, tmp_path):
    """Debian's rustc says that its folder is /usr: programs then saw all of it, /usr/local of the host too."""
    monkeypatch.setenv("RLVR_LANGUAGES", "")
    for name, says, parts in (("at_usr", "/usr", ()), ("at_home", tmp_path, ("lib",))):
        file = tmp_path / f"{name}.py"
        row = f"ROW = ProgramLanguage('x', '', tool='sh', run=('{{tool}}',), where=('echo', {str(says)!r}), parts={parts})"
        file.write_text("from rlvr.sandbox.languages import ProgramLanguage\n" + row)
        languages.register(name, file)
    try:
        command = toolchains.tool_path("at_usr")
        assert toolchains._tool_files("at_usr") == [command]
        assert set(toolchains._tool_files("at_home")) == {str(tmp_path / "lib"), command}
    finally:
        del LANGUAGES["at_usr"], LANGUAGES["at_home"]


def test_cpp_is_compiled_once(sandbox):
    """The cases of a problem share one binary."""
    made = []
    compiler = Compiler(
        lambda *args, **options: made.append(1) or sandbox._execute(*args, **options)
    )
    source = "#include <iostream>\nint main() { int a; std::cin >> a; std::cout << 2 * a; }"
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: compiler.compiled(Program("cpp", source)), range(4)))
    assert len(made) == 1
    assert len({files["program"] for _, files, _ in found}) == 1
    assert sandbox.run(Program("cpp", source), "21").text == "42"


def test_what_the_compiler_says_comes_back(sandbox):
    run = sandbox.run(Program("cpp", "int main() { return undeclared; }"))
    assert run.ending is Ending.CE
    assert b"undeclared" in run.stderr
    assert sandbox.compile(Program("cpp", "int main() { return undeclared; }")).ending is Ending.CE
    assert sandbox.compile(Program("bash", "(")).ending is Ending.OK  # there is nothing to compile


def test_a_compiler_that_compiles_nothing_is_our_failure():
    """As where cc1plus is missing: that says nothing about the program.  Nor does a machine that is too busy."""
    source = Program("cpp", "int main() {}")
    broken = Run(
        Ending.RE,
        "exit code 1",
        exit_code=1,
        errors=Output(b"g++: fatal error: cannot execute 'cc1plus'\n"),
    )
    built = Compiler(lambda *args, **options: broken).compiled(source)[2]
    assert built.ending is Ending.IE
    assert "compiles nothing here: g++: fatal error: cannot execute 'cc1plus'" in built.why
    busy = Run(Ending.TLE, "over 20 wall seconds", cpu_s=1.0, wall_s=40.0, starved_s=20.0)
    assert Compiler(lambda *args, **options: busy).compiled(source)[2].ending is Ending.IE


def test_a_compiler_that_was_broken_is_asked_again(monkeypatch):
    """One that is being installed, say: its first failure was believed until the process ended."""
    now = 1000.0
    monkeypatch.setattr(compiling, "monotonic", lambda: now)
    failed = Run(Ending.RE, "exit code 1", exit_code=1)
    works: list[str] = []

    def execute(header, files, *rest, **options):
        [(content, _)] = files.values()
        if not works or content != LANGUAGES["cpp"].least.encode():
            return failed
        os.write(options["fds"]["artifact"], b"a binary")
        return Run(Ending.OK)

    compiler, source = Compiler(execute), Program("cpp", "int main() { return x; }")
    assert compiler.compiled(source)[2].ending is Ending.IE
    works.append("now it does")
    assert compiler.compiled(source)[2].ending is Ending.IE
    now += 31.0
    assert compiler.compiled(source)[2].ending is Ending.CE


def test_a_source_that_makes_the_compiler_sleep_does_not_compile(sandbox):
    """cc1plus waited for its own pipe, with no CPU time: taken for a busy machine, it made the completion UNSCORED."""
    sleeper = Program("cpp", '#include "/proc/self/fd/1"\nint main() {}')
    assert sandbox.compile(sleeper, wall_s=1.0).ending is Ending.CE


def test_allowed_packages_are_there_and_others_are_not(tmp_path):
    """hypothesis is installed beside this interpreter, and so is pytest: only the one that was named gets in."""
    with Sandbox(workers=1, packages=("hypothesis",), limits=SMALL) as sandbox:
        run = sandbox.run(python("import hypothesis\nprint(hypothesis.__name__)\nimport pytest"))
    assert run.text == "hypothesis\n"
    assert b"No module named 'pytest'" in run.stderr


@pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(), reason="needs a second interpreter, at /usr/bin/python3"
)
def test_another_interpreter_runs_the_programs():
    version = subprocess.run(
        ["/usr/bin/python3", "-V"], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    with Sandbox(workers=1, python="/usr/bin/python3", limits=SMALL) as sandbox:
        run = sandbox.run(
            python("import platform, sys\nprint(platform.python_version(), sys.executable)")
        )
    assert run.text.split() == [version, os.path.realpath("/usr/bin/python3")]


def test_a_virtual_environment_is_there_and_read_only(tmp_path):
    """All its packages, and nothing of other environments."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    [site] = (tmp_path / "venv").glob("lib/python3*/site-packages")
    site.joinpath("mine.py").write_text("NAME = 'mine'")
    site.joinpath("mine.py").chmod(0o666)
    with Sandbox(workers=1, python=str(tmp_path / "venv"), limits=SMALL) as sandbox:
        run = sandbox.run(
            python(
                "import mine\nprint(mine.NAME)\ntry: open(mine.__file__, 'a')\nexcept OSError as e: print(e.errno)\n"
                "import hypothesis"
            )
        )
        assert sandbox.session().run("import mine; mine.NAME").text == "'mine'\n"
    assert run.text == "mine\n30\n"
    assert b"No module named 'hypothesis'" in run.stderr


def test_what_an_allowed_package_imports_beside_it_is_not_there(tmp_path):
    """hypothesis imports what has an entry point of its name, trio and so pytest: it is imported before they are hidden."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    [site] = (tmp_path / "venv").glob("lib/python3*/site-packages")
    sources = {
        "named/__init__.py": "import other, wave",
        "other/__init__.py": "import other.folder.inner",
        "other/folder/inner.py": "",  # a folder without __init__.py
    }
    for file, source in sources.items():
        site.joinpath(file).parent.mkdir(parents=True, exist_ok=True)
        site.joinpath(file).write_text(source)
    site.joinpath("named-1.dist-info").mkdir()
    site.joinpath("named-1.dist-info", "METADATA").write_text(
        "Metadata-Version: 2.1\nName: named\nVersion: 1\n"
    )
    site.joinpath("named-1.dist-info", "RECORD").write_text("named/__init__.py,,\n")
    with Sandbox(
        workers=1,
        python=str(tmp_path / "venv" / "bin" / "python"),
        packages=("named",),
        limits=SMALL,
    ) as box:
        run = box.run(
            python(
                "import named, sys\nprint(named.wave.__name__, 'other.folder.inner' in sys.modules)\nimport other"
            )
        )
    assert (run.text, run.exit_code) == ("wave False\n", 1)
    assert b"No module named 'other'" in run.stderr


# ----------------------------------------------------------------------------------------- promises


def test_every_guarantee_is_kept_here(sandbox):
    """The doctor's table; where this fails, it says what this machine lacks."""
    assert [
        f"{g.name}: {g.found}. {g.remedy}" for g in sandbox.check() if g.mechanism is None
    ] == []


@pytest.mark.slow
def test_every_attack_that_we_know_fails(sandbox):
    """With a cgroup or without."""
    found = sandbox.check(full=True)
    assert [f"{g.name}: {g.found}" for g in found if g.mechanism is None] == []
    assert {g.name: g.weak for g in found if g.weak} == {}


def test_a_missing_guarantee_stops_everything_unless_it_is_waived(monkeypatch):
    """Fail closed: named, with the remedy; a waiver is recorded in every run."""
    real = probe.probe_guarantees

    def without_memory(*args):
        found = real(*args)
        return [
            Guarantee("memory", g.promise, None, "48 MiB went unseen", "get a cgroup")
            if g.name == "memory"
            else g
            for g in found
        ]

    monkeypatch.setattr(probe, "probe_guarantees", without_memory)
    with pytest.raises(
        IsolationUnavailable,
        match=r"cannot promise 'memory' here: 48 MiB went unseen\. get a cgroup; or waive",
    ) as caught:
        Sandbox(workers=1).warm()
    assert caught.value.guarantee == "memory"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with Sandbox(workers=1, allow_missing={"memory"}) as sandbox:
        run = sandbox.run(python("print(1)"))
    assert run.isolation.waived == {"memory"}
    assert "memory" not in run.isolation.mechanisms


def test_an_attack_that_succeeds_is_found(tmp_path):
    """A canary that could not be caught would prove nothing: here the program is handed what it should not reach."""

    def leaky(header, files, stdin, limits, **options):
        """No sandbox at all: the attacks run beside us, though not on our system folders."""
        facts = json.loads(header["args"][0]) | {
            "system": [str(tmp_path)],
            "scratch": [str(tmp_path)],
        }
        command = [sys.executable, "-c", files["main.py"][0].decode(), json.dumps(facts)]
        done = subprocess.run(command, capture_output=True, timeout=20, cwd=tmp_path)
        ending = Ending.OK if not done.returncode else Ending.RE
        return Run(ending, output=Output(done.stdout), errors=Output(done.stderr))

    with probe._canary() as canary:
        won = probe._try_attacks(leaky, canary)
        assert canary.target.exists()
    assert {
        "files",
        "writes",
        "network",
        "environment",
        "processes-unseen",
        "privileges",
        "system-calls",
        "disk",
    } <= won.keys()


def test_elsewhere_than_on_linux_it_refuses_cleanly(monkeypatch):
    """And does not offer to waive what cannot be done without."""
    monkeypatch.setattr(sys, "platform", "darwin")
    found = probe.probe_guarantees(
        lambda *args: pytest.fail("nothing may run"), LEVELS["namespaces"], ""
    )
    assert {g.mechanism for g in found} == {None}
    assert {g.found for g in found} == {"this is darwin"}
    with pytest.raises(IsolationUnavailable, match="this is darwin") as caught:
        Sandbox(workers=1).warm()
    assert "waive" not in str(caught.value)
    assert "waive" not in str(pickle.loads(pickle.dumps(caught.value)))


@pytest.mark.parametrize("uid", [0, 1000])
def test_a_host_without_namespaces_is_told_its_ways_out(monkeypatch, uid):
    """Allow them or score elsewhere; root is not told to run as root."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(remedies, "_says", lambda path: "")

    def refuse(*args):
        raise CannotIsolate("[Errno 1] Operation not permitted")

    monkeypatch.setattr(Keeper, "start_slot", refuse)
    with pytest.raises(
        IsolationUnavailable, match="cannot promise 'files' here: no namespaces"
    ) as caught:
        Sandbox(workers=1).warm()
    for way in (
        "unprivileged_userns_clone=1",
        "seccomp=unconfined",
        'level="restricted"',
        "rlvr serve",
    ):
        assert way in str(caught.value)
    assert ("run as root" in str(caught.value)) == (uid != 0)


@pytest.mark.parametrize(
    ("uid", "file", "says", "line"),
    [
        (
            1000,
            "apparmor_restrict_unprivileged_userns",
            "1",
            "apparmor_restrict_unprivileged_userns=0",
        ),
        (
            1000,
            "kernel/unprivileged_userns_clone",
            "0",
            "sysctl kernel.unprivileged_userns_clone=1",
        ),
        (0, "max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
        (0, "/proc/self/status", "Name:\tx\nSeccomp:\t2\n", "seccomp=unconfined"),
    ],
)
def test_the_remedy_is_the_line_that_closes_namespaces_here(monkeypatch, uid, file, says, line):
    """Where it can be told, no other is named."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(remedies, "_says", lambda path: says if file in path else "")
    remedy = remedies.of_namespaces()
    assert line in remedy
    assert remedies._UNKNOWN not in remedy


@pytest.mark.skipif(
    not container.available() or landlock_abi() < ABI, reason="root on x86_64 with Landlock"
)
def test_in_a_container_the_level_restricted_works_and_the_other_says_so():
    """Docker's system calls, no namespaces: the error names the level that works, and the line to change."""
    code = (
        "from rlvr.errors import IsolationUnavailable\nfrom rlvr.sandbox import *\n"
        "try: Sandbox(workers=1).warm()\nexcept IsolationUnavailable as error: print(error)\n"
        "with Sandbox(workers=1, level='restricted') as sandbox:\n"
        "    print(sandbox.run(Program('python', 'print(6 * 7)')).text)"
    )
    command = [sys.executable, "-m", "tests.sandbox.container", sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "no namespaces" in run.stdout, run
    for words in ('level="restricted"', "seccomp=unconfined", "\n42\n"):
        assert words in run.stdout, run


def test_a_sandbox_pickles_as_its_settings():
    """A verifier carries one to the workers of a Scorer."""
    one = Sandbox(limits=SMALL, workers=3, packages=("hypothesis",), allow_missing={"cpu"})
    again = pickle.loads(pickle.dumps(one))
    assert (again.limits, again.workers, again.packages, again.allow_missing) == (
        SMALL,
        3,
        ("hypothesis",),
        {"cpu"},
    )


def test_it_starts_afresh_after_close():
    sandbox = Sandbox(workers=1, limits=SMALL)
    assert sandbox.run(python("print(1)")).text == "1\n"
    sandbox.close()
    sandbox.close()
    assert sandbox.run(python("print(2)")).text == "2\n"
    sandbox.close()


def test_the_page_of_languages_is_made_from_the_rows():
    """Each has its names, main file, fences and Debian package there."""
    page = Path(__file__).parents[2].joinpath("docs/reference/sandbox.md").read_text()
    assert languages.table() in page


ADDS_ONE = {
    "python": "print(int(input()) + 1)",
    "pypy": "import sys\nprint(int(input()) + ('PyPy' in sys.version))",
    "c": '#include <stdio.h>\nint main() { int x; scanf("%d", &x); printf("%d\\n", x + 1); }',
    "cpp": "#include <iostream>\nint main() { int x; std::cin >> x; std::cout << x + 1; }",
    "cpp20": "#include <iostream>\n#include <span>\nint main() { int x; std::cin >> x;"
    " std::span<int> s(&x, 1); std::cout << s[0] + 1; }",
    "java": "import java.util.*;\npublic class Adds { static class Node { int v; }\n"
    " public static void main(String[] a) { System.out.println(new Scanner(System.in).nextInt() + 1); } }",
    "rust": "fn main() { let mut s = String::new(); std::io::stdin().read_line(&mut s).unwrap();"
    ' println!("{}", s.trim().parse::<i32>().unwrap() + 1); }',
    "go": 'package main\nimport "fmt"\nfunc main() { var x int; fmt.Scan(&x); fmt.Println(x + 1) }',
    "javascript": "console.log(parseInt(require('fs').readFileSync(0)) + 1)",
    "typescript": "import * as fs from 'fs';\n"
    "const x: number = parseInt(fs.readFileSync(0, 'utf8')); console.log(x + 1);",
    "bash": "read x; echo $((x + 1))",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[pytest.mark.slow] * (name in ("cpp20", "go", "rust", "typescript"))
        )
        for name in ADDS_ONE
    ],
)
def test_every_language_is_judged_from_a_fence(name):
    """C and Java raised KeyError.  A block of another language beside it does not count; bare code does."""
    if error := toolchains.missing(name):
        pytest.skip(str(error))
    verifier = CodeVerifier(language=name, limits=Limits(cpu_s=5, wall_s=60), total_wall_s=200)
    reference = {"inputs": ["41\n"], "outputs": ["42\n"]}
    source = ADDS_ONE[name]
    for text in (f"```{LANGUAGES[name].fences[0]}\n{source}\n```\n```text\n41\n```", source):
        verdict = verifier.verify(text, reference)
        assert verdict.why == "AC", verdict


@pytest.mark.parametrize(
    ("source", "main", "entry"),
    [
        ("class Main { public static void main(String[] a) {} }", "Main.java", "Main"),
        ("public class A { } class B { static void main(String[] a) {} }", "A.java", "B"),
        (
            "class A { class Main { void f() {} } } class B { static void main(String[] a) {} }",
            "B.java",
            "B",
        ),
        ('class A { String s = "} class X {"; static void main(String[] a) {} }', "A.java", "A"),
        (
            "/* public class Not { */ // class Not2 {\npublic final class C { void main() {} }",
            "C.java",
            "C",
        ),
        ("package a.b;\npublic class D { static void main(String[] a) {} }", "D.java", "a.b.D"),
        ("public record E(int x) { public static void main(String[] a) {} }", "E.java", "E"),
        ("int x;", "Main.java", "Main"),
        (f"public class {'A' * 300} {{ }}", "Main.java", "A" * 300),  # no file can have the name
        (f"public class {'é' * 150} {{ }}", "Main.java", "é" * 150),
    ],
)
def test_the_class_that_java_runs_is_read_from_the_source(source, main, entry):
    """Any main class but Main failed."""
    program = Program("java", source)
    assert (program.main, program.entry) == (main, entry)


@pytest.mark.parametrize(
    ("owner", "window", "victim"),
    [
        (Keeper, "start_slot", "keeper"),
        (Slot, "send", "keeper"),
        (Slot, "send", "zygote"),
        (Slot, "replies", "keeper"),
        (Slot, "replies", "zygote"),
    ],
)
def test_kills_from_outside_cost_only_time(monkeypatch, owner, window: str, victim: str):
    """A run is tried again while its wall budget lasts, however often, and wherever it was when the kill came.

    Five kills are more than the three failures after which anything else is given up.
    """
    left, whole = iter(range(5)), getattr(owner, window)
    with Sandbox(workers=1, limits=Limits(cpu_s=5, wall_s=60, memory_mib=64)) as sandbox:

        def killed_before(one: Keeper | Slot, *args: object) -> object:
            if next(left, None) is not None:
                keeper = sandbox._pool._keeper._process
                os.kill(keeper.pid if victim == "keeper" else one.pid, signal.SIGKILL)
                if victim == "keeper":
                    keeper.wait()
            return whole(one, *args)

        monkeypatch.setattr(owner, window, killed_before)
        run = sandbox.run(python("import time\ntime.sleep(0.3)\nprint(5)"))
    assert (run.ending, run.text) == (Ending.OK, "5\n"), run


def test_a_zygote_killed_as_it_starts_is_a_kill_from_outside():
    """The keeper finds the pipe to it broken, which counted as a failure of ours: three, and the run was given up."""
    keeper, theirs = object.__new__(Keeper), None
    keeper._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    keeper._errors = os.memfd_create("keeper")
    theirs.send(b'{"failed": "[Errno 32] Broken pipe"}')
    with theirs, pytest.raises(Died, match="Broken pipe"):
        keeper._answer()


def test_closing_ends_the_wait_for_another_attempt(monkeypatch):
    """A pause by time.sleep went round without end once a test had exchanged time.sleep."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    attempts = []

    def fail():
        attempts.append(None)
        threading.Timer(0.05, sandbox.close).start()
        raise Died("killed from outside")

    sandbox = Sandbox(workers=1)
    with pytest.raises(Died):
        sandbox._pool._repeat_killed(fail, 3600.0)
    assert len(attempts) < 10


def test_a_slot_that_is_closed_wakes_the_thread_that_waits_for_it():
    """The other end may stay open in a child, and the descriptor's number be another file's at once."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.send(b'{"ready": true}')
    slot = Slot(SimpleNamespace(kill=lambda pid: None, said=str), ours, 0, None)
    slot.send([RunRequest({"id": 1}, {})])
    threading.Timer(0.1, slot.close).start()
    began = time.monotonic()
    with theirs, pytest.raises(Died):
        slot.replies(60.0)
    assert time.monotonic() - began < 30


def test_waiting_for_a_worker_takes_none_of_the_patience(monkeypatch):
    """A run that was killed once after a long wait for its turn was given up: its time had begun with the wait."""
    with Sandbox(workers=1, limits=Limits(cpu_s=5, wall_s=60, memory_mib=64)) as sandbox:
        pool, turns = sandbox._pool, []
        tried = pool._repeat_killed

        def noted(attempt, wall_s):
            turns.append(pool._free.acquire(blocking=False))  # False: it has its turn already
            return tried(attempt, wall_s)

        monkeypatch.setattr(pool, "_repeat_killed", noted)
        assert sandbox.run(python("print(5)")).text == "5\n"
    assert turns == [False]


def java() -> None:
    if error := toolchains.missing("java"):
        pytest.skip(str(error))


@pytest.mark.slow
def test_java_has_classes_input_exit_codes_and_limits(sandbox):
    """As any other language: files beside the main one, RE, CE, MLE, TLE."""
    java()
    roomy = Limits(cpu_s=3.0, wall_s=60.0, memory_mib=256)
    files = {
        "Main.java": "import java.util.*; public class Main { public static void main(String[] a) {"
        " System.out.println(Other.twice(new Scanner(System.in).nextInt()) + a[0]); } }",
        "Other.java": "class Other { static int twice(int n) { return 2 * n; } }",
    }
    assert (
        sandbox.run(Program("java", files=files, args=("x",)), "21", limits=roomy).text == "42x\n"
    )

    def ending(body: str) -> Run:
        source = (
            "import java.util.*; class Main { public static void main(String[] a) { "
            + body
            + " } }"
        )
        return sandbox.run(Program("java", source), limits=roomy)

    assert (ending("System.exit(3);").exit_code, ending("int x = ;").ending) == (3, Ending.CE)
    assert ending("while (true) ;").ending is Ending.TLE
    assert ending(
        "List<byte[]> l = new ArrayList<>(); while (true) l.add(new byte[1 << 20]);"
    ).ending in ("MLE", "RE")


def test_c_is_compiled_and_linked_with_the_mathematics(sandbox):
    if error := toolchains.missing("c"):
        pytest.skip(str(error))
    source = '#include <math.h>\n#include <stdio.h>\nint main(void) { double x; scanf("%lf", &x); printf("%.3f", sqrt(x)); }'
    assert sandbox.run(Program("c", source), "2").text == "1.414"
    assert sandbox.run(Program("c", "int main(void) { return undeclared; }")).ending is Ending.CE


PERL = """
import re
from rlvr.sandbox.languages import ProgramLanguage

ROW = ProgramLanguage(
    "main.pl", "print $^V", tool="perl", package="perl", run=("{tool}", "{main}"), fences=("perl", "pl"),
    opens=re.compile(r"use strict"), dies=(255,),
)
"""


def test_a_language_is_a_file(tmp_path, monkeypatch):
    """Run, found in a fence and judged, also in processes that are started from then on."""
    path = tmp_path / "perl.py"
    path.write_text(PERL)
    monkeypatch.setenv("RLVR_LANGUAGES", "")
    monkeypatch.setattr(languages, "LANGUAGES", LANGUAGES)
    try:
        languages.register("perl", path)
        verdict = CodeVerifier(language=["bash", "perl"]).verify(
            "```pl\nprint <STDIN> + 1;\n```", {"inputs": ["41"], "outputs": ["42"]}
        )
        assert verdict.why == "AC"
        command = [
            sys.executable,
            "-c",
            "from rlvr.sandbox import Program; print(Program('perl', '1').main)",
        ]
        assert (
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
            == "main.pl\n"
        )
    finally:
        LANGUAGES.pop("perl", None)
    with pytest.raises(UsageError, match="no file"):
        languages.register("perl", tmp_path / "none.py")
    path.write_text("ROW = 1")
    with pytest.raises(UsageError, match="sets no ROW"):
        languages.register("perl", path)


def test_a_row_that_could_run_no_program_is_refused(tmp_path, monkeypatch):
    """Each completion was WRONG by it; and a file python.py replaced Python itself, without a word."""
    monkeypatch.setenv("RLVR_LANGUAGES", "")
    row = 'from rlvr.sandbox.languages import ProgramLanguage\nROW = ProgramLanguage("a", "1", '
    slips = {
        'tool="sh", run=("{tool}", "{mains}"))': "run has {mains}; the places are {tool}",
        'tool="sh", run=("{tool}", "--file={main}"))': "must be words of their own",
        'tool="sh", run="{tool} {main}")': "it must be a tuple of words",
        'tool="sh", run=())': "run is empty",
        'run=("{main}",))': "tool is ''",
        "of=1)": "cannot be run: TypeError: .*'of'",
    }
    for slip, says in slips.items():
        (tmp_path / "slip.py").write_text(row + slip)
        with pytest.raises(UsageError, match=f"the language 'slip': .*{says}"):
            languages.register("slip", tmp_path / "slip.py")
    (tmp_path / "cpp20.py").write_text(row + 'tool="sh", run=("{tool}",))')
    before = LANGUAGES["cpp20"]
    with pytest.raises(UsageError, match="'cpp20' is a language of rlvr's own; name the file"):
        languages.register("cpp20", tmp_path / "cpp20.py")
    assert LANGUAGES["cpp20"] is before
    assert not os.environ["RLVR_LANGUAGES"]


def test_a_process_in_another_folder_gets_the_language(tmp_path):
    """The variable named a file of the folder in which the first process began."""
    (tmp_path / "perl.py").write_text(PERL)
    show = "from rlvr.sandbox.languages import LANGUAGES; print('perl' in LANGUAGES)"
    code = (
        f"{show}\nimport subprocess, sys; subprocess.run([sys.executable, '-c', {show!r}], cwd='/')"
    )
    shown = run_python(
        code.replace("\n", "; "),
        cwd=tmp_path,
        env=os.environ | {"RLVR_LANGUAGES": "perl.py"},
        check=True,
    )
    assert shown.stdout.split() == ["True", "True"]


def test_a_language_is_one_more_row(sandbox, monkeypatch):
    """As docs/reference/sandbox.md shows for Rust; here with a shell that is there anyway."""
    row = ProgramLanguage(
        "main.dash", "echo 1", tool="sh", package="dash", run=("{tool}", "{main}")
    )
    monkeypatch.setitem(LANGUAGES, "dash", row)
    toolchains.tool_path.cache_clear()
    assert sandbox.run(Program("dash", "echo $((6 * 7))")).text == "42\n"
