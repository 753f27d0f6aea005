"""Small projects of our own, composed from a seed, and the cases that show what they do.

A project is a text file in `swe/`: its files, names that may be exchanged for others (`word`),
numbers and rules that may be exchanged (`swap`), and a function `cases` that writes pieces of code
which use it.  A variant of a project is a choice of these.  All code that runs here is ours; what a
policy wrote runs in the sandbox.
"""

from __future__ import annotations

import builtins
import json
import random
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from rlvr.environment import seeded
from rlvr.types import JsonDict

__all__ = [
    "Edits",
    "Found",
    "HIDDEN",
    "MORE",
    "SPLITS",
    "TABLE",
    "VISIBLE",
    "Variant",
    "as_code",
    "loader",
    "more_cases",
    "names_of_projects",
    "observe",
    "read_table",
    "unittest_file",
    "variant_of",
    "variants_of",
]

SPLITS: Final = ("train", "validation", "test")

_FOLDER: Final = Path(__file__).parent / "swe"
TABLE: Final = _FOLDER / "tasks.jsonl"
"""The tasks that `swe_finder` found, one a line."""

VISIBLE: Final = 16
"""Cases of a variant that may be shown."""

HIDDEN: Final = 40
"""Cases that decide, with inputs of their own."""

MORE: Final = 60
"""Cases of `more_cases`."""

_PLAIN: Final = (type(None), bool, int, float, str)
_DRAWS: Final = 40  # cases that are drawn for each that is kept
_Files: TypeAlias = "Mapping[str, str]"

Edits: TypeAlias = "Sequence[Sequence[Any]]"
"""(path, first line counted from 0, number of lines, the new lines) of each;
numbers count before any edit."""

_CHECKED: Final = '''
def plain(value):
    """Nothing but plain values, so that no object decides what it is equal to."""
    if type(value) in (list, tuple, set):
        return type(value)(plain(one) for one in value)
    if type(value) is dict:
        return {plain(key): plain(one) for key, one in value.items()}
    if value is not None and type(value) not in (bool, int, float, str):
        raise TypeError("no plain value")
    return value


def outcome(case):
    try:
        return ["returns", plain(case())]
    except Exception as error:
        return ["raises", type(error).__name__]
'''


@dataclass(frozen=True)
class Found:
    """A task of the table.

    Attributes:
        project, variant: what it is about.
        edits: that make the bugs, or leave out the function.
        operators: one for each bug; "deleted" for a function.
        bugs, files: how many; files that are changed.
        distance: imports between the modules that the symptom names and the changed one that is
            furthest away.
        shown, decides: numbers of the visible and of the hidden cases that fail; the first one
            shown is the symptom.
        feature: (name, head, docstring) of the function that is left out; None for bugs.
    """

    project: str
    variant: int
    edits: Edits
    operators: Sequence[str]
    bugs: int
    files: int
    distance: int
    shown: Sequence[int]
    decides: Sequence[int]
    feature: Sequence[str] | None = None

    def as_line(self) -> str:
        """The task as `read_table` reads it."""
        return json.dumps(
            [getattr(self, column.name) for column in fields(self)], separators=(",", ":")
        )


@lru_cache(maxsize=1)
def read_table() -> Sequence[Found]:
    """All tasks of the table."""
    return [Found(*json.loads(line)) for line in TABLE.read_text().splitlines()]


@dataclass(frozen=True)
class _Source:
    """A project as its file has it."""

    about: str
    split: str
    choices: Sequence[tuple[str, Sequence[str]]]
    """(text, what it may be); a word is replaced in each of its forms."""

    words: frozenset[str]
    files: _Files
    cases: str


@dataclass(frozen=True)
class Variant:
    """A project with its choices made.

    Attributes:
        name: of the package.
        about: what it is for, in some words.
        files: by path within the package.
        visible, hidden: the code of cases; no case of one is among the other.
    """

    name: str
    about: str
    files: _Files
    visible: Sequence[str]
    hidden: Sequence[str]
    replaced: Sequence[tuple[str, str]]

    def compose(self, text: str) -> str:
        """A text of the project's file with the choices made.

        Args:
            text: code, or a path.
        """
        for old, new in self.replaced:
            text = text.replace(old, new)
        return text

    def changed(self, edits: Edits) -> dict[str, str]:
        """The files with lines replaced.

        Args:
            edits: of the project's file, see `Edits`; they are composed too.
        """
        lines = {path: text.split("\n") for path, text in self.files.items()}
        # From the last line up, so that earlier numbers stay right.
        for path, first, count, new in sorted(edits, key=lambda edit: -edit[1]):
            rows = lines[self.compose(path)]
            rows[first : first + count] = [self.compose(row) for row in new]
        return {path: "\n".join(rows) for path, rows in lines.items()}


@lru_cache(maxsize=64)
def _source(project: str) -> _Source:
    head, *parts = re.split(r"^=== (.+)\n", (_FOLDER / f"{project}.txt").read_text(), flags=re.M)
    fields = [line.split(": ", 1) for line in head.splitlines()]
    files = dict(zip(parts[::2], parts[1::2], strict=True))
    choices = [
        (options[0], options)
        for key, value in fields
        if key in ("word", "swap")
        for options in [value.split(" | ")]
    ]
    words = frozenset(value.split(" | ")[0] for key, value in fields if key == "word")
    values = dict(fields)
    return _Source(values["about"], values["split"], choices, words, files, files.pop("cases"))


@lru_cache(maxsize=1)
def _splits() -> Mapping[str, Sequence[str]]:
    names: dict[str, list[str]] = {}
    for path in sorted(_FOLDER.glob("*.txt")):
        names.setdefault(_source(path.stem).split, []).append(path.stem)
    return names


def names_of_projects(split: str) -> Sequence[str]:
    """The projects of a split; no two splits have one in common.

    Args:
        split: "train", "validation" or "test".
    """
    return _splits().get(split, ())


def variants_of(project: str) -> int:
    """Number of variants of a project.

    Args:
        project: its name.
    """
    count = 1
    for _, options in _source(project).choices:
        count *= len(options)
    return count


@lru_cache(maxsize=128)
def variant_of(project: str, number: int) -> Variant:
    """A variant of a project.

    Args:
        project: its name.
        number: from 0; 0 is the project as its file has it.
    """
    source, quotient = _source(project), number
    replaced: list[tuple[str, str]] = []
    for old, options in source.choices:
        quotient, at = divmod(quotient, len(options))
        # A word in its three forms; other texts as they are.
        forms = (str.lower, str.capitalize, str.upper) if old in source.words else (str,)
        replaced += [(form(old), form(options[at])) for form in forms if at]

    bare = Variant("", "", {}, (), (), replaced)
    files = {bare.compose(path): bare.compose(text) for path, text in source.files.items()}
    draw = _cases(project, bare)
    # The visible cases first; the hidden ones are drawn to be others.
    cases_so_far: set[str] = set()
    visible = _draw_cases(draw, seeded("swe", project, number, "visible"), VISIBLE, cases_so_far)
    hidden = _draw_cases(draw, seeded("swe", project, number, "hidden"), HIDDEN, cases_so_far)
    name, description = bare.compose(project), bare.compose(source.about)
    return Variant(name, description, files, visible, hidden, replaced)


def more_cases(project: str, number: int) -> Sequence[str]:
    """Cases of a variant that are neither shown nor decide: evidence for or against a patch.

    Args:
        project, number: see `variant_of`.
    """
    variant = variant_of(project, number)
    known_cases = {*variant.visible, *variant.hidden}
    return _draw_cases(
        _cases(project, variant), seeded("swe", project, number, "more"), MORE, known_cases
    )


def _cases(project: str, variant: Variant) -> Callable[[random.Random], str]:
    """The project's own function that draws a case."""
    space: JsonDict = {}
    code = compile(variant.compose(_source(project).cases), f"{project}/cases", "exec")
    exec(code, space)  # noqa: S102  our own file
    draw: Callable[[random.Random], str] = space["cases"]
    return draw


def _draw_cases(
    cases: Callable[[random.Random], str], rng: random.Random, count: int, seen: set[str]
) -> list[str]:
    """Cases that were not drawn before."""
    new_cases: list[str] = []
    # After so many draws there are hardly any new ones.
    for _ in range(_DRAWS * count):
        case = cases(rng)
        if case not in seen:
            seen.add(case)
            new_cases.append(case)
            if len(new_cases) == count:
                break
    return new_cases


# ----------------------------------------------------------------------------- running our own code


@lru_cache(maxsize=2048)
def _compile(path: str, text: str) -> types.CodeType:
    return compile(text, path, "exec")


def loader(package: str, files: _Files) -> Callable[..., object]:
    """An `__import__` that finds the modules of a package among files, and all others where they
    are.

    Args:
        package: its name.
        files: of ours, by path within the package.
    """
    modules: dict[str, types.ModuleType] = {}
    space = {**vars(builtins)}

    def load(name: str) -> types.ModuleType:
        if name in modules:
            return modules[name]
        inner = name.removeprefix(package).lstrip(".").replace(".", "/")
        path = f"{inner}.py" if inner else "__init__.py"
        if path not in files:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        module = modules[name] = types.ModuleType(name)
        vars(module).update(
            __builtins__=space, __package__=package, __file__=f"src/{package}/{path}"
        )
        try:
            exec(_compile(f"{package}/{path}", files[path]), vars(module))  # noqa: S102  our own
        except BaseException:
            del modules[name]
            raise
        if inner:
            vars(load(package))[inner] = module
        return module

    def own_import(
        name: str, globals: Any = None, locals: Any = None, names: Any = (), level: int = 0
    ) -> object:
        dotted = f"{package}.{name}".rstrip(".") if level else name
        if dotted.partition(".")[0] != package:
            # Modules of others are Python's own.
            return builtins.__import__(name, globals, locals, names, level)
        load(package)
        module = load(dotted)
        # `from package import module`
        for name_imported in names or ():
            if (
                name_imported not in vars(module)
                and f"{name_imported}.py" in files
                and dotted == package
            ):
                load(f"{package}.{name_imported}")
        return module if names else modules[package]

    space["__import__"] = own_import
    return own_import


def as_code(case: str, name: str = "case") -> str:
    """A case as a function without arguments.

    Args:
        case: its lines.
        name: of the function.
    """
    return f"def {name}():\n" + "".join(f"    {line}\n" for line in case.split("\n"))


def observe(own_import: Callable[..., object], case: str) -> list[Any]:
    """What a case of ours comes to: ["returns", value] or ["raises", name of the error].

    Args:
        own_import: see `loader`.
        case: its code.
    """
    space: JsonDict = {"__builtins__": {**vars(builtins), "__import__": own_import}}
    exec(_compile("checked", _CHECKED), space)  # noqa: S102  our own
    exec(_compile("cases", as_code(case)), space)  # noqa: S102  our own
    outcome: list[object] = space["outcome"](space["case"])
    return outcome


def unittest_file(cases: Mapping[int, str], outcomes: Mapping[int, object], path: str = "") -> str:
    """A file of unittest.

    Args:
        cases: the code of cases, by number.
        outcomes: what each has to come to.
        path: folder of the package, put in front of where modules are found; "" for none.
    """
    return "".join(_test_lines(cases, outcomes, path))


def _test_lines(
    cases: Mapping[int, str], outcomes: Mapping[int, object], path: str
) -> Iterator[str]:
    # The folder is put in front of the path, so that src is found from the tests.
    yield "import sys\nimport unittest\n" if path else "import unittest\n"
    yield f"\nsys.path.insert(0, {path!r})\n" if path else ""
    yield f"\n{_CHECKED}\n\nclass Tests(unittest.TestCase):\n"
    for number, case in cases.items():
        # The case as a function within the method.
        body = as_code(case).replace("\n", "\n        ").rstrip()
        yield f"    def test_{number:02}(self):\n        {body}\n\n"
        yield f"        self.assertEqual(outcome(case), {outcomes[number]!r})\n\n"
