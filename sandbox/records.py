"""What goes into a run and what comes out of it: data.  What a program wrote is
read when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from rlvr.errors import UsageError, brief
from rlvr.sandbox import readings
from rlvr.sandbox.guest import suite as guest_suite
from rlvr.sandbox.languages import LANGUAGES, ProgramLanguage, require_language
from rlvr.sandbox.outputs import Output
from rlvr.validate import require_number, require_whole

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import RunLimits

__all__ = [
    "CallRun",
    "Ending",
    "Guarantee",
    "Isolation",
    "Limits",
    "Program",
    "ProgramCall",
    "Reply",
    "Run",
    "TestCase",
    "TestRun",
    "TestSuite",
    "holding",
    "is_file_name",
]

_NOTHING = Output()
# 4,000 bytes at most, where PATH_MAX is 4,096 and the folder comes before it.
_PATH_CHARACTERS = 1000
# NAME_MAX of Linux.
_NAME_BYTES = 255
_ARG_BYTES = 128 << 10  # of one argument with its NUL, by Linux (MAX_ARG_STRLEN)
_ARGS_BYTES = 1 << 20  # of all; with the pointers to them Linux takes 6 MiB


class Ending(StrEnum):
    """How a program stopped.  The program causes all of these but IE."""

    OK = "OK"  # by itself, with exit code 0
    RE = "RE"  # by itself with another exit code, or by a signal
    TLE = "TLE"  # killed at its CPU limit, or at the wall limit behind it
    MLE = "MLE"  # over its memory
    OLE = "OLE"  # over its output
    CE = "CE"  # it never ran: it does not compile
    # we failed: no toolchain, no process, a slot that died.  Never a verdict on the program
    IE = "IE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run may use, all its processes together.

    Attributes:
        cpu_s: CPU seconds, user and system.  This limit decides, as it does not depend on what else
            the machine does.
        wall_s: wall seconds, for programs that sleep; None for 3 × cpu_s + 2.  Seconds in which a
            program waits for a core do not count, up to as many again.
        memory_mib: RAM in MiB, with its files in the scratch folder and its output.
        output_mib: MiB of standard output, and as much of standard error.
        processes: processes and threads alive at once.
        disk_mib: MiB of files in the scratch folder.
        files: files and folders there.
    """

    cpu_s: float = 10.0
    wall_s: float | None = None
    memory_mib: int = 512
    output_mib: float = 16.0
    processes: int = 64
    disk_mib: float = 64.0
    files: int = 4096

    def __post_init__(self) -> None:
        for f in fields(self):
            name, value = f"Limits: {f.name}", getattr(self, f.name)
            if f.name == "wall_s" and value is None:
                # Three times the CPU limit, and 2 s: a program may wait, and a machine be busy.
                value = 3 * self.cpu_s + 2
            value = (
                require_whole(name, value, 1)
                if f.type == "int"
                else require_number(name, value, above=0)
            )
            object.__setattr__(self, f.name, value)

    @property
    def wall(self) -> float:
        """`wall_s`, filled in."""
        assert self.wall_s is not None
        return self.wall_s

    def message(self) -> RunLimits:
        """As a box reads them: bytes for MiB."""
        return {
            "cpu_s": self.cpu_s,
            "wall_s": self.wall,
            "memory": self.memory_mib << 20,
            "output": int(self.output_mib * (1 << 20)),
            "processes": self.processes,
            "disk": int(self.disk_mib * (1 << 20)),
            "files": self.files,
        }

    def within(self, cpu_s: float, wall_s: float) -> Limits:
        """These limits, with at most so many CPU and wall seconds.

        Args:
            cpu_s, wall_s: what is left for several runs.
        """
        # The same object, so that a pool sees that limits are the usual ones.
        if cpu_s >= self.cpu_s and wall_s >= self.wall:
            return self
        return replace(self, cpu_s=min(cpu_s, self.cpu_s), wall_s=min(wall_s, self.wall))


@dataclass(frozen=True, slots=True)
class Program:
    """An untrusted program.

        Program("python", "print(int(input()) + 1)")
        Program("python", files={"main.py": "import helper", "helper.py": "…"}, args=("-v",))

    Attributes:
        language: a key of `rlvr.sandbox.languages.LANGUAGES`, such as "python", "cpp20" or "java".
        source: the text of its main file, such as main.py (in Java that of its public class); None
            if that is among `files`.
        files: more files: relative path → text, bytes, or the output of another run (`Run.output`).
        args: the command line after the program's name; each less than 128 KiB.
        main: the name of the main file.
        entry: what the language's row found in it, such as the class that Java runs.

    Raises:
        UsageError: a name, a file or an argument is none that a run can have.
    """

    language: str
    source: str | bytes | Output | None = None
    files: Mapping[str, str | bytes | Output] = field(default_factory=dict)
    args: Sequence[str] = ()
    main: str = field(init=False, repr=False, compare=False)
    entry: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_language("the language", self.language)
        files = dict(self.files)
        main, entry = _main(LANGUAGES[self.language], self.source, files)
        object.__setattr__(self, "main", main)
        object.__setattr__(self, "entry", entry)
        if self.source is not None:
            if main in files:
                raise UsageError(
                    f"a {self.language} program has both a source and a file {main!r}; give one of "
                    f"them"
                )
            files = {main: self.source, **files}
        if main not in files:
            raise UsageError(
                f"a {self.language} program needs a source, or a file {main!r} among its files"
            )
        for name in files:
            _check_name(name)
        folders = {str(folder): name for name in files for folder in PurePosixPath(name).parents}
        for name, text in files.items():
            if name in folders:
                raise UsageError(
                    f"the file {name!r} would also be a folder, of {folders[name]!r}; rename one "
                    f"of them"
                )
            if not isinstance(text, (str, bytes, Output)):
                raise UsageError(f"the file {name!r} is {brief(text)}; it must be text or bytes")
        object.__setattr__(self, "files", files)
        object.__setattr__(self, "args", _checked_args(self.args))

    def beside(self, files: Mapping[str, str | bytes | Output], args: Sequence[str]) -> Program:
        """The same program with more files and another command line.

        Args:
            files, args: see above.
        """
        # The main file is given again, under the name that its language finds.
        own_files = {name: text for name, text in self.files.items() if name != self.main}
        main = self.files[self.main]
        return Program(self.language, main, {**own_files, **files}, args)

    def contents(self) -> dict[str, bytes | Output]:
        """Every file as bytes.  Lone surrogates, which UTF-8 cannot say, are kept as their three
        bytes."""
        return {
            name: text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
            for name, text in self.files.items()
        }


def _main(
    row: ProgramLanguage,
    source: str | bytes | Output | None,
    files: Mapping[str, str | bytes | Output],
) -> tuple[str, str]:
    """The name of the main file, and what the row finds in it."""
    if row.entry is None:
        return row.main, ""
    text = files.get(row.main) if source is None else source
    if isinstance(text, Output) or text is None:
        # Bytes that a program wrote are not read here, not even for a class's name.
        return row.main, row.entry("")[1]
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    main, entry = row.entry(text)
    # A name that no file can have, such as one of 300 letters, is the program's fault, which its
    # compiler then says.
    has_own_path = source is not None and _is_path(main)
    return (main if has_own_path else row.main), entry


def _checked_args(args: Any) -> tuple[str, ...]:
    if isinstance(args, str) or not all(isinstance(arg, str) and "\0" not in arg for arg in args):
        raise UsageError(f"args is {brief(args)}; it must be a list of strings without NUL")
    checked: tuple[str, ...] = tuple(args)
    sizes = []
    # Each as the kernel counts it: with its final zero byte.
    for i, arg in enumerate(checked):
        try:
            sizes.append(len(arg.encode()) + 1)
        except UnicodeEncodeError:
            raise UsageError(
                f"args[{i}] is {brief(arg)}, with a lone surrogate; an argument must be text that "
                f"UTF-8 can say. "
                "Give other bytes as a file or as standard input"
            ) from None
        if sizes[-1] > _ARG_BYTES:
            raise UsageError(
                f"args[{i}] has {sizes[-1] - 1} bytes; the kernel takes less than "
                f"{_ARG_BYTES >> 10} KiB for one. "
                "Give it as a file or as standard input"
            )
    if sum(sizes) > _ARGS_BYTES:
        raise UsageError(
            f"args has {sum(sizes)} bytes; together they must have at most {_ARGS_BYTES >> 20} "
            f"MiB. "
            "Give them as a file or as standard input"
        )
    return checked


def is_file_name(name: str) -> bool:
    """Whether a program can have a file of this name.

    Args:
        name: a relative path.
    """
    return _is_path(name) and not _has_surrogate(name)


# ASCII first: most names are, and the look at each letter is then saved.
def _check_name(name: object) -> None:
    if isinstance(name, str) and not name.isascii() and _has_surrogate(name):
        raise UsageError(
            f"the file name is {brief(name)}, with a lone surrogate; UTF-8 must be able to say it. "
            f"Rename the file"
        )
    if not isinstance(name, str) or not _is_path(name):
        raise UsageError(
            f"the file name is {brief(name)}; it must be a relative path such as 'pkg/helper.py'"
        )


def _is_path(name: str) -> bool:
    """Whether a file below a folder can have this path."""
    path = PurePosixPath(name)
    outside = path.is_absolute() or ".." in path.parts or not path.parts
    # PurePosixPath drops "./" and "//": such a name would not be found again.
    if outside or "\0" in name or str(path) != name or len(name) > _PATH_CHARACTERS:
        return False
    return all(len(part.encode(errors="replace")) <= _NAME_BYTES for part in path.parts)


def _has_surrogate(text: str) -> bool:
    # U+D800 to U+DFFF: halves of UTF-16, which no UTF-8 can say.
    return any("\ud800" <= character <= "\udfff" for character in text)


def holding(killed: str, limits: Limits) -> tuple[Ending, str] | None:
    """The ending of a run, or of a session, that held too much at once; None if that is not why it
    was killed.

    Args:
        killed: why the box killed it.
        limits: of the run.
    """
    match killed:
        case "memory":
            return Ending.MLE, f"over {limits.memory_mib} MiB"
        case "disk":
            return (
                Ending.MLE,
                f"its files are larger than the disk limit of {limits.disk_mib:g} MiB",
            )
        case "files":
            return Ending.MLE, f"over {limits.files} files and folders, or too deep to be counted"
        case "processes":
            return Ending.RE, f"over {limits.processes} processes and threads"
        case "hidden":
            return (
                Ending.RE,
                "it executed a file that it may not read, which hides the process from us",
            )
    return None


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One promise of the sandbox, and what keeps it on this host.

    Attributes:
        name: short and stable, as `allow_missing` takes it.
        promise: a sentence that says what it means.
        mechanism: what keeps it, such as "cgroup v1"; None if the promise cannot be kept here.
        found: what the attack on it found.
        remedy: what the host needs where the promise cannot be kept; else empty.
        weak: the attacks of `Sandbox.check(full=True)` that got past the mechanism; empty where
            none did.
    """

    name: str
    promise: str
    mechanism: str | None
    found: str = ""
    remedy: str = ""
    weak: str = ""


@dataclass(frozen=True, slots=True)
class Isolation:
    """What every run of a sandbox was isolated by.

    Attributes:
        mechanisms: guarantee → mechanism.
        waived: guarantees that are missing and were waived, by name or with the level.
        level: "namespaces" or "restricted".
    """

    mechanisms: Mapping[str, str]
    waived: frozenset[str] = frozenset()
    level: str = "namespaces"


@dataclass(frozen=True, slots=True)
class Run:
    """How a program ran.

    Attributes:
        ending: how it stopped.
        why: more about that in words: for TLE which clock, for RE the exit code or signal, for IE
            what failed.
        exit_code: None if a signal ended it.
        signal: the signal that ended it, None if none did.
        cpu_s: CPU seconds of all its processes.
        wall_s: wall seconds from its first instruction to its end.
        starved_s: how many of them it could have run and had no core; they do not count towards the
            wall limit.
        memory_mib: peak MiB of the whole run where a cgroup counts it for this run alone, else of
            its largest process; the interpreter is included.
        output, errors: what it wrote to standard output and standard error, cut at the limit.  For
            CE, `errors` is the compiler's message.
        isolation: what the run was isolated by.
    """

    ending: Ending
    why: str = ""
    exit_code: int | None = None
    signal: int | None = None
    cpu_s: float = 0.0
    wall_s: float = 0.0
    starved_s: float = 0.0
    memory_mib: float = 0.0
    output: Output = _NOTHING
    errors: Output = _NOTHING
    isolation: Isolation | None = None

    @property
    def stdout(self) -> bytes:
        """Standard output, read now."""
        return self.output.read()

    @property
    def stderr(self) -> bytes:
        """Standard error, read now."""
        return self.errors.read()

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stdout.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """One call of a function that a program defines.

    Attributes:
        name: a global function, else a method of the program's class `Solution`; or "Class.method".
        args, kwargs: plain values (docs/reference/code.md lists the types that travel).
        then: names of Python's functions that are applied to the result before it is sent, such as
            ("sorted",).
    """

    name: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    then: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a call.

    Attributes:
        built: what it returned, rebuilt from plain data; None where `error` is set, or where it is
            too large for that.
        error: "ValueError: message" if it raised, "NotAValue: …" if its return value is no plain
            value.
        listed: True if it returned an iterator or a view of a dict; the value is then the list of
            its items.
        line: what the program wrote, where that is too large to be rebuilt unasked.
    """

    built: object = None
    error: str | None = None
    listed: bool = False
    line: Output | None = None

    @property
    def value(self) -> Any:
        """What the call returned.

        Raises:
            UsageError: it is larger than 1 MiB or 20,000 values, together with those before it, or
                slow to build.
        """
        if self.line is not None:
            raise UsageError(
                f"the value has {self.line.size} bytes, which are not read here unasked; call "
                f"Reply.load()"
            )
        return self.built

    def load(self) -> Any:
        """The value, however large: this process pays for it, in memory and time that the program
        chose.

        Raises:
            ValueError: it is no value, or too large even so.
        """
        return self.built if self.line is None else readings.load_value(self.line)


@dataclass(frozen=True)
class CallRun:
    """How a program ran whose functions were called.

    Attributes:
        run: the run as a whole.
        results: what it wrote, as `guest.calls` says.
        count: how many calls there were.
    """

    run: Run
    results: Output
    count: int

    @cached_property
    def replies(self) -> tuple[Reply | None, ...]:
        """One for each call, in order; None for calls before whose reply the program ended or was
        killed.

        Raises:
            SandboxFailed: the reader failed.
        """
        return tuple(
            reply and Reply(*reply) for reply in readings.call_replies(self.results, self.count)
        )


@dataclass(frozen=True, slots=True)
class TestSuite:
    """Tests of a program's functions.  They run in a process of their own, beside the program's.

    Attributes:
        style: "check" (HumanEval's `check(candidate)`), "asserts", "unittest" or "pytest".
        test: the tests' code.  Trusted; the program never sees it.
        setup: trusted code that runs before `test`; its names win over the program's.
        entry_point: name of the function under test, which `check` is called with; None where tests
            name it.
        modules: the names under which tests import the program.
        stop: end at the first case that fails.
    """

    __test__ = False  # it is not for pytest to collect

    style: str
    test: str
    setup: str = ""
    entry_point: str | None = None
    modules: tuple[str, ...] = ("solution",)
    stop: bool = True


@dataclass(frozen=True, slots=True)
class TestCase:
    """One test and its outcome.

    Attributes:
        name: as the tests call it, or "assert 3".
        outcome: "pass", "fail", "error" or "skip".
        message: why it failed or was skipped.
    """

    __test__ = False

    name: str
    outcome: str
    message: str = ""


@dataclass(frozen=True)
class TestRun:
    """How a test suite ran.

    Attributes:
        run: the program's run.
        tests: the run of the tests' process.
        results: what that wrote, as `guest.suite` says.
    """

    __test__ = False

    run: Run
    tests: Run
    results: Output

    @cached_property
    def _found(self) -> guest_suite.SuiteResults:
        return readings.read_suite(self.results)

    @property
    def cases(self) -> tuple[TestCase, ...]:
        """Those that were finished, in order.

        Raises:
            SandboxFailed: the reader failed; also of the properties below.
        """
        return tuple(TestCase(*case) for case in self._found.cases)

    @property
    def done(self) -> bool:
        """The suite came to its end."""
        return self._found.done

    @property
    def died(self) -> bool:
        """The program ended, or was killed, before the suite did."""
        return self._found.died

    @property
    def fault(self) -> str | None:
        """What is wrong with the suite itself; None if nothing is.  Says nothing about the
        program."""
        return self._found.ours

    @property
    def missing(self) -> str | None:
        """What the suite needs and is not installed here; None if nothing is."""
        return self._found.error
