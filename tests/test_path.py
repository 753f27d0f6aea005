"""docs/path.md holds: each file and function exists, and each step uses the steps that the page says, and no others."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "path.md"
FOLDERS = ("envs", "verifiers", "sandbox", "recipes")  # at the top, imported as rlvr.envs and so on


class Step(NamedTuple):
    """A row of the page."""

    file: Path
    names: tuple[str, ...]
    uses: frozenset[int]


def steps() -> dict[int, Step]:
    """Rows `| 1 | [file](../file) | functions | what happens | numbers of steps |`, by number."""
    row = r"^\| (\d+) \| \[`?(\S+?)`?\]\(\.\./(\S+)\) \| (.+?) \| .+ \| ([\d, –]+) \|$"
    found = {}
    for number, shown, target, names, uses in re.findall(
        row, PAGE.read_text(encoding="utf-8"), re.MULTILINE
    ):
        assert shown == target, "the text of a link is its target"
        used = frozenset(map(int, re.findall(r"\d+", uses)))
        found[int(number)] = Step(ROOT / target, tuple(re.findall(r"`([^`]+)`", names)), used)
    return found


STEPS = steps()


CALLED = {
    "algorithm.advantages": ROOT / "rlvr" / "algo" / "papers" / "grpo.py",
    "self._maker.make_batch": ROOT / "rlvr" / "train" / "advantage_batches.py",
    "self.source.rows": ROOT / "rlvr" / "train" / "sampled_rows.py",
}
"""By these a paper, a part or a source of rows is used: which one it is, the settings say."""


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def file_of(module: str) -> Path | None:
    """The file of one of our modules; None for other packages."""
    first, *rest = module.split(".")
    if first != "rlvr":
        return None
    base = ROOT.joinpath(*rest) if rest and rest[0] in FOLDERS else ROOT.joinpath("rlvr", *rest)
    return next(
        (file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()), None
    )


def origin(module: str, name: str) -> Path | None:
    """The file that a name comes from: through `__init__.py` files that re-export it, or the module of that name."""
    file = file_of(module)
    if file is None or file.name != "__init__.py":
        return file
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return origin(node.module, alias.name)
    return file_of(f"{module}.{name}") or file


def imported(file: Path) -> set[Path]:
    """Our files that this one takes something from, wherever in it the import stands."""
    found = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {origin(node.module, alias.name) for alias in node.names}
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "rlvr"
        ):
            found.add(origin("rlvr", node.attr))  # `import rlvr`, as environments do
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in CALLED:
            found.add(CALLED[ast.unparse(node)])
    return {path for path in found if path is not None}


def defined(file: Path) -> set[str]:
    """Functions, classes and names of a module, and `Class.method`."""
    found = set()
    for node in tree(file).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef)
            }
    return found


def mentioned(file: Path) -> set[str]:
    """Every name and attribute that a file uses, and texts."""
    nodes = list(ast.walk(tree(file)))
    named = {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return (
        named
        | {node.id for node in nodes if isinstance(node, ast.Name)}
        | {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    )


BESIDE = re.findall(
    r"^\| [^|]+ \| \[(\S+?)\]\(\.\./(\S+)\) \| ([^|]+) \|$",
    PAGE.read_text(encoding="utf-8"),
    re.MULTILINE,
)


def test_the_page_has_the_steps_from_a_task_to_the_loop():
    """Numbered without gaps; the first makes tasks, the last trains."""
    assert list(STEPS) == list(range(1, len(STEPS) + 1))
    assert BESIDE
    assert STEPS[1].file.parent.name == "envs"
    assert STEPS[len(STEPS)].file.name == "loop.py"


def test_each_step_is_where_the_page_says():
    """The file exists, and the functions to read are defined in it."""
    for number, step in STEPS.items():
        assert step.file.is_file(), number
        assert step.names, number
        assert set(step.names) <= defined(step.file), number


def test_each_step_uses_what_the_page_says():
    """Imports between the files of the page are those in its last column: none is missing, none is invented."""
    on_page = {step.file: number for number, step in STEPS.items()}
    for number, step in STEPS.items():
        uses = {on_page[file] for file in imported(step.file) if file in on_page} - {number}
        assert uses == step.uses, number


def test_each_step_is_used_by_another_under_a_name_of_the_page():
    """A function that no other step uses would not be on the path; the loop is where it ends."""
    for number, step in [*STEPS.items()][1:-1]:
        users = [other for other in STEPS.values() if number in other.uses]
        names = {part for name in step.names for part in name.split(".")}
        assert any(names & mentioned(user.file) for user in users), number


def test_what_is_beside_the_path_is_there():
    """Files and functions of the second list; nothing is said of their imports."""
    for shown, target, names in BESIDE:
        assert shown == target
        assert set(re.findall(r"`([^`]+)`", names)) <= defined(ROOT / target), target
