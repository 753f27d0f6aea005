"""What decides a score beside files of Python: variables, libraries, programs, closures, notebooks."""

import ctypes
import fractions
import functools
import locale
import os
import pkgutil
import platform
import re
import subprocess
import sys
import types
from importlib.abc import Loader
from importlib.util import module_from_spec, spec_from_file_location, spec_from_loader
from pathlib import Path

import pytest

import rlvr
from rlvr.sandbox import Program, compiling
from rlvr.scoring.code_files import code_of, module_version
from rlvr.scoring.identity import identity_of
from rlvr.scoring.loaded_code import digest_of_loaded
from rlvr.scoring.watch import watch_of_process


def noticed(act) -> dict[str, dict[str, str]]:
    with watch_of_process() as watch:
        watch.take()
        act()
    return watch.take()


def test_a_variable_is_noticed_as_bytes_too(monkeypatch):
    """`os.environb` had a way of its own, and two shards with two values joined."""
    monkeypatch.setenv("RLVR_TEST_STRICT", "1")
    assert "$RLVR_TEST_STRICT" in noticed(lambda: os.environb.get(b"RLVR_TEST_STRICT"))["inputs"]


def test_a_variable_within_a_text_is_noticed(monkeypatch):
    """`expandvars` asks for it in Python's own file."""
    monkeypatch.setenv("RLVR_TEST_EXPANDED", "1")
    inputs = noticed(lambda: os.path.expandvars("at $RLVR_TEST_EXPANDED"))["inputs"]
    assert inputs.keys() == {"$RLVR_TEST_EXPANDED"}


def test_code_that_is_loaded_from_a_path_is_an_input(tmp_path, monkeypatch):
    """It is kept under no name, by which modules are looked at; its bytecode is read the second
    time."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path.parent / "loaded_by_path.py"
    path.write_text("x = 1\n")
    os.utime(path, (1, 1))

    def load() -> None:
        spec = spec_from_file_location("loaded_by_path", path)
        spec.loader.exec_module(module_from_spec(spec))

    for _ in range(2):
        watch_of_process().forget()
        [name] = noticed(load)["inputs"]
        assert name.endswith("loaded_by_path.py")


def test_data_of_a_package_are_an_input(tmp_path, monkeypatch):
    """`pkgutil.get_data` lets the package's loader open the file, as an import does."""
    (tmp_path / "pack_of_mine").mkdir()
    (tmp_path / "pack_of_mine" / "__init__.py").touch()
    data = tmp_path / "pack_of_mine" / "words.txt"
    data.write_text("yes")
    os.utime(data, (1, 1))
    monkeypatch.syspath_prepend(tmp_path)
    inputs = noticed(lambda: pkgutil.get_data("pack_of_mine", "words.txt"))["inputs"]
    assert inputs.keys() == {"pack_of_mine/words.txt"}


@pytest.mark.parametrize("mode", ["a", "w", "r+"])
def test_a_file_that_is_opened_to_be_written_is_no_input(tmp_path, mode):
    """Nor is it one later, when it is read; both are older than the run."""
    read, written = tmp_path / "read.txt", tmp_path / "written.txt"
    for file in (read, written):
        subprocess.run(["cp", __file__, file], check=True)  # seen by no watch of ours
        os.utime(file, (0, 0))

    def act() -> None:
        written.open(mode).close()
        written.read_text()

    assert noticed(read.read_text)["inputs"]
    assert not noticed(act).get("inputs")


def test_how_python_was_started_is_code(monkeypatch):
    """A whole number of 5,000 digits is an error in one shard and read in the other; a file in
    Latin 1 has other letters."""
    env = rlvr.make("arithmetic-v1")
    usual = code_of(env)["python"]
    monkeypatch.setattr(sys, "get_int_max_str_digits", lambda: 0)
    assert code_of(env)["python"] == f"{usual} int_max_str_digits=0"
    monkeypatch.setattr(locale, "getpreferredencoding", lambda _: "ISO-8859-1")
    assert code_of(env)["python"] == f"{usual} int_max_str_digits=0 iso-8859-1"


@pytest.mark.parametrize(("options", "usual"), [([], True), (["-X", "utf8=0"], False)])
def test_a_locale_counts_where_files_are_read_otherwise(options, usual):
    """With LC_ALL=C, as jobs often have it, Python reads UTF-8; their shards were refused."""
    code = "from rlvr.scoring.code_files import _python; print(_python())"
    argv = [sys.executable, *options, "-c", code]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUTF8"}
    done = subprocess.run(argv, env=variables | {"LC_ALL": "C"}, capture_output=True, text=True)
    assert (done.stdout == f"{platform.python_version()}\n") is usual, done.stdout + done.stderr


def test_a_library_of_ones_own_is_an_input(tmp_path):
    """It is loaded by native code, which Python's `open` does not see."""
    library = tmp_path.parent / "judge.so"
    library.write_bytes(b"no library")
    os.utime(library, (0, 0))

    def load() -> None:
        with pytest.raises(OSError, match="judge"):
            ctypes.CDLL(str(library))

    assert [name for name in noticed(load)["inputs"] if name.endswith("judge.so")]


def programs(path) -> dict[str, object]:
    return {
        "itself": lambda: subprocess.run([path], check=True),
        "by an interpreter": lambda: subprocess.run(["sh", path], check=True),
        "by a shell": lambda: subprocess.run(f"{path} x", shell=True, check=True),
        "by the system": lambda: os.system(str(path)),
    }


@pytest.mark.parametrize("way", [*programs("")])
def test_a_program_of_ones_own_is_an_input(way, tmp_path):
    """A judge that is a script beside the environment was another one in the second shard."""
    script = tmp_path / "judge.sh"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    os.utime(script, (0, 0))
    assert [n for n in noticed(programs(script)[way])["inputs"] if n.endswith("judge.sh")]


def test_programs_of_the_system_are_no_inputs():
    """They differ between machines and are named by what they do; so are its libraries."""
    assert not noticed(lambda: (ctypes.CDLL(None), ctypes.CDLL("libc.so.6")))
    assert not noticed(lambda: subprocess.run(["true"], check=True))


def test_tools_of_programs_are_code(monkeypatch):
    """Programs in JavaScript were judged by two versions of node, unnoticed."""
    monkeypatch.setattr(compiling, "tool_path", lambda language: f"/usr/bin/{language}")
    monkeypatch.setattr(compiling, "tool_version", lambda language: f"{language} 7")
    compiler = compiling.Compiler(lambda *_: None, versions={"python of programs": "3.99"})

    def judge() -> None:
        compiler.compiled(Program("python", "print(1)"))
        compiler.compiled(Program("javascript", "console.log(1)"))

    assert noticed(judge)["code"] == {
        "python of programs": "3.99",
        "toolchain javascript": "javascript 7",
    }


def test_without_assertions_python_is_another_judge():
    """A verifier may assert; `python -O` leaves that out."""
    argv = [sys.executable, "-O", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{ASK}"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    assert said == code_of(rlvr.make("arithmetic-v1"))["python"] + " -O"


ASK = """\
import rlvr
from rlvr.scoring.code_files import code_of, module_version
print(code_of(rlvr.make("arithmetic-v1"))["python"])
"""


class Shorter:
    """Right if the completion is shorter."""

    id = "shorter-v1"

    def __init__(self, limit: int, table: str = "") -> None:
        self.limit, self.table = limit, table
        self.cache = {"so far": id(self)}

    def verify(self, completion, reference):
        return rlvr.Verdict("correct" if len(completion) < self.limit else "wrong", why="length")


class Judged(rlvr.Environment):
    """By a verifier that no option names."""

    def task(self, index):
        return rlvr.Task(str(index), "?", reference="x")


def settings_with(verifier) -> dict[str, object]:
    env = Judged()
    env.reward = rlvr.Correct(verifier)
    return identity_of(env).settings


def shorter_than(limit: int):
    def verify(completion, reference):
        return len(completion) < limit

    return verify


def any_shorter(completion, reference, limit):
    return len(completion) < limit


def test_what_a_verifier_was_made_with_counts():
    """A limit from a command line differed in two services behind one scorer."""
    assert settings_with(Shorter(3)) != settings_with(Shorter(4))
    assert settings_with(shorter_than(3)) != settings_with(shorter_than(4))
    limits = [functools.partial(any_shorter, limit=limit) for limit in (3, 4)]
    assert settings_with(limits[0]) != settings_with(limits[1])


class Hidden(Shorter):
    """It keeps its limit under a name of its own, and raises when it is looked at."""

    def __init__(self, limit) -> None:
        self._most, self.is_async = limit, False

    def __getattr__(self, name):
        raise ZeroDivisionError(name)


class Slotted:
    __slots__ = ("limit",)

    def __init__(self, limit) -> None:
        self.limit = limit


class Raising(dict):
    """A table that cannot be walked through, as one of a closed file."""

    def __iter__(self):
        raise ZeroDivisionError

    items = keys = values = __iter__


class Table(dict):
    def __init__(self, limit) -> None:
        self.limit = limit


class SlottedToo(Slotted):
    __slots__ = ()


HOLDERS = {
    "raising": lambda n: Hidden(n),
    "of a parent": lambda n: Shorter(SlottedToo(n)),
    "a raising table": lambda n: Shorter(Raising(most=n)),
    "beside a raising table": lambda n: functools.partial(any_shorter, a=Raising(), limit=n),
    "a table with attributes": lambda n: Shorter(Table(n)),
    "of a method": lambda n: Shorter(n).verify,
    "a default": lambda n: lambda completion, reference, most=n: len(completion) < most,
    "any names": lambda n: types.SimpleNamespace(most=n),
    "a pattern": lambda n: Shorter(re.compile("a" * n)),
    "a fraction": lambda n: Shorter(fractions.Fraction(n)),
    "bytes": lambda n: Shorter(b"a" * n),
    "keys that are no texts": lambda n: Shorter({(n, 1): "a"}),
    "beside an object": lambda n: Shorter([object(), n]),
}


@pytest.mark.parametrize("way", HOLDERS)
def test_no_value_of_a_judge_hides(way):
    """Each joined two shards with two limits; an option's object too."""

    def settings(limit):
        return identity_of(Holding(judge=HOLDERS[way](limit))).settings

    assert settings(3) == settings(3) != settings(4)


class Holding(Judged):
    """By an option that is any object."""

    judge: object = None


def test_objects_of_a_notebook_count(monkeypatch):
    """A cell made the judge that another cell's function asks."""
    module = types.ModuleType("cells_of_a_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    vars(module)["Shorter"] = Shorter
    exec("def verify(completion):\n    return judge.verify(completion, '')", vars(module))
    digests = set()
    for limit in (3, 4, 3):
        vars(module)["judge"] = Shorter(limit)
        digests.add(digest_of_loaded(module.__name__))
    assert len(digests) == 2


def test_what_a_verifier_keeps_and_where_files_lie_count_not():
    """A cache is filled while rows are judged; a home may be another."""
    assert settings_with(Shorter(3, "/home/a/t")) == settings_with(Shorter(3, "/home/b/t"))
    assert "Shorter.cache" not in settings_with(Shorter(3))


CELL = """\
MOST = 3

class Mine:
    def verify(self, completion):
        return len(completion) < MOST and completion[0] in {"a", "b"}

    @classmethod
    def read(cls, reference):
        return reference * 7
"""


def test_code_of_a_notebook_counts(monkeypatch):
    """It stands in no file; a cell that is run again, on other lines, is the same."""

    def digest(text: str) -> str | None:
        module = types.ModuleType("cells_of_a_test")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(text, vars(module))
        return digest_of_loaded(module.__name__)

    first = digest(CELL)
    assert first == digest("\n\nunrelated = 1\n" + CELL)
    assert first != digest(CELL.replace("MOST = 3", "MOST = 4"))
    assert first != digest(CELL.replace('"b"', '"c"'))
    assert first != digest(CELL.replace("<", "<="))
    assert first != digest(CELL.replace("7", "8"))
    assert digest("x = 1") is None
    monkeypatch.setitem(sys.modules, "cells_of_a_test", None)
    assert digest_of_loaded("cells_of_a_test") is None


class Made(Loader):
    """Makes a module without a file; one way has functions that name no module, one has its code."""

    def __init__(self, text: str, way: str) -> None:
        self.text, self.way = text, way
        if way == "its code":
            self.get_code = lambda name: compile(text, "nowhere", "exec")

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        space = vars(module) if self.way != "a nameless function" else {}
        exec(self.text, space)
        vars(module).update({name: space[name] for name in ("MOST", "right") if name in space})


@pytest.mark.parametrize("way", ["its code", "a nameless function", "functions", "constants"])
def test_a_module_that_a_loader_makes_counts(monkeypatch, way):
    """A hook of sitecustomize served a judge that stood in no file, and two of them joined."""
    text = "MOST = 3\n" + "def right(a):\n    return a < 3\n" * (way != "constants")

    def digest(text: str) -> str | None:
        spec = spec_from_loader("made_by_a_test", Made(text, way))
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module_version(spec.name)

    assert digest(text) == digest(text) != digest(text.replace("3", "4"))


MADE_OF = {
    "a list": "MOST = [3]",
    "a dict": "MOST = {'a': [3]}",
    "a lambda": "right = lambda: 3",
    "a closure": "right = (lambda most: lambda: most)(3)",
    "a partial": "from functools import partial as p\nright = p(int, '3')",
    "a namespace": "from types import SimpleNamespace as n\nMOST = n(a=3)",
    "an instance": "class Most:\n    def __init__(self, a): self.a = a\nMOST = Most(3)\ndel Most",
    "asked for": "__getattr__ = lambda name: 3",
}


@pytest.mark.parametrize("text", MADE_OF.values(), ids=MADE_OF)
def test_a_module_without_a_source_stands_in_the_identity_as_such(monkeypatch, text):
    """Whatever its loader puts into it; its functions name the loader's module as theirs."""

    def version(text: str) -> tuple[str, str]:
        module = module_from_spec(spec_from_loader("made_by_a_test", Made("", "")))
        monkeypatch.setitem(sys.modules, "made_by_a_test", module)
        space = {"__name__": "of_the_loader"}
        exec(text, space)
        vars(module).update({name: space[name] for name in space if name != "__builtins__"})
        return module_version("made_by_a_test")

    name, digest = version(text)
    assert (name, digest[:11]) == ("made_by_a_test", "no source, ")
    assert version(text) == (name, digest)
    assert version(text.replace("3", "4")) != (name, digest)


def test_what_python_runs_first_counts(monkeypatch, tmp_path):
    """It may change how modules are found; where there is none, that counts too."""
    before = code_of(Judged())["sitecustomize"]
    first = types.ModuleType("sitecustomize")
    first.__file__ = str(tmp_path.parent / "sitecustomize.py")
    Path(first.__file__).write_text("import sys\n")
    monkeypatch.setitem(sys.modules, first.__name__, first)
    assert code_of(Judged())["sitecustomize"] != before == "absent"
