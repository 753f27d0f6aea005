"""Is the wheel whole, and does it hold nothing but rlvr?

    python .ci/check_wheel.py dist/rlvr-0.2.0-py3-none-any.whl [UNPACK_TO]

With UNPACK_TO it also unpacks the wheel there, laid out for mypy and import-linter.
"""

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Our folders and where the wheel has them (CONTRIBUTING.md).  One that is not there yet holds
# nothing.
FOLDERS = {
    "rlvr": "rlvr",
    "envs": "rlvr/envs",
    "verifiers": "rlvr/verifiers",
    "sandbox": "rlvr/sandbox",
    "recipes": "rlvr/recipes",
}

SUFFIXES = (".py", ".json", ".jsonl", ".html", ".css", ".js")


def expected() -> set[str]:
    """The modules and data files that the wheel should hold, as paths inside it."""
    return {
        f"{inside}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, inside in FOLDERS.items()
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in SUFFIXES
    }


def problems(names: set[str]) -> list[str]:
    """What is wrong with a wheel that holds these files, one line each."""
    modules, wanted = {name for name in names if name.endswith(SUFFIXES)}, expected()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    found = [f"{top}: the only top-level package may be rlvr" for top in sorted(tops - {"rlvr"})]
    found += [
        f"{name}: missing; is its package in [tool.setuptools]?"
        for name in sorted(wanted - modules)
    ]
    found += [f"{name}: in the wheel but not in the sources" for name in sorted(modules - wanted)]
    if "rlvr/py.typed" not in names:
        found.append("rlvr/py.typed: missing, so that type checkers ignore our types")
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        found.append("LICENSE: missing")
    return found


def main(wheel: str, unpack_to: str | None = None) -> int:
    """Print what is wrong; 0 if nothing is."""
    with zipfile.ZipFile(wheel) as archive:
        found = problems(set(archive.namelist()))
        if unpack_to is not None:
            archive.extractall(unpack_to)
    if unpack_to is not None:
        # The graph behind import-linter stops at a folder without __init__.py inside a package that
        # has one, and would call every contract about envs and verifiers kept without having read a
        # line of them.
        for folder in FOLDERS.values():
            if (Path(unpack_to) / folder).is_dir():
                (Path(unpack_to) / folder / "__init__.py").touch()
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
