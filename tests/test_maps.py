"""Each room begins with a map: the docstring of its `__init__.py` names every file of the room, in reading order."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NO_PACKAGE = {
    "verifiers": "base.py",
    "envs": "arithmetic.py",
    "recipes": "recipe.py",
}  # an __init__.py would shadow others
ROOMS = sorted(path.parent for path in ROOT.glob("rlvr/*/__init__.py"))
ROOMS += [ROOT / name for name in ("sandbox", "verifiers", "envs", "recipes")]
ROOMS += [ROOT / "verifiers" / name for name in ("math", "code", "instructions")]
ENTRY = re.compile(r"^(\w+(?:, \w+)*)  +\S")


def map_of(room: Path) -> str:
    """The docstring that is a room's map."""
    file = room / NO_PACKAGE.get(room.name, "__init__.py")
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def named(text: str) -> set[str]:
    """Names at the left of the lines `name, name   what they are`."""
    entries = (ENTRY.match(line) for line in text.splitlines())
    return {name for entry in entries if entry for name in entry[1].split(", ")}


def files(room: Path) -> set[str]:
    """Modules and folders of a room, without those that begin with an underscore."""
    modules = {path.stem for path in room.glob("*.py")}
    folders = {path.parent.name for path in room.glob("*/*") if path.suffix in (".py", ".txt")}
    return {name for name in modules | folders if not name.startswith("_")}


def test_a_map_names_every_file_of_its_room():
    """None is missing, none is invented; `others` stands for files that are alike (a command each)."""
    for room in ROOMS:
        text = map_of(room)
        assert len(text.splitlines()) <= 40, room
        assert all(part in text for part in ("\nContract", "\nSees ", "\nGoes wrong: ")), room
        names = named(text)
        assert names - files(room) - {"others"} == set(), room
        assert "others" in names or files(room) - names == set(), room
