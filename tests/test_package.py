"""The package as its users meet it: what the wheel holds, how it imports, what it says it exports."""

import ast
import datetime
import functools
import os
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rlvr.cli.commands import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGE_DIR = PROJECT["tool"]["setuptools"]["package-dir"]
MODULES = sorted(
    path
    for folder in ("rlvr", "envs", "verifiers", "sandbox", "recipes")
    for path in (ROOT / folder).rglob("*.py")
    if path.name == "__init__.py" or not path.name.startswith("_")
)

BUILDS = pytest.mark.slow
"""Seconds for sdist, wheel and pip; `make check` builds the wheel and looks at its files too."""


def run(*command: str | Path, cwd: Path, path: str = "") -> str:
    """What a command prints, with this PYTHONPATH; a failure shows all it said."""
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | {"PYTHONPATH": path}, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def python(code: str, cwd: Path, path: str = "") -> str:
    """What a fresh interpreter prints."""
    return run(sys.executable, "-c", code, cwd=cwd, path=path)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist, built from a copy: nothing that lies about in the checkout can help it."""
    folder = tmp_path_factory.mktemp("wheel")
    ours = ["rlvr", "envs", "verifiers", "sandbox", "recipes"]
    for name in [*ours, "pyproject.toml", "README.md", "LICENSE"]:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        elif name not in ours:
            shutil.copy(ROOT / name, folder / name)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", cwd=folder)
    return next(folder.glob("dist/*.whl"))


@pytest.fixture(scope="session")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed, as site-packages would have it."""
    site = tmp_path_factory.mktemp("site")
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        site,
        wheel,
        cwd=site,
    )
    return site


@BUILDS
def test_the_only_top_level_package_is_rlvr(wheel: Path):
    """`envs`, `verifiers` or `sandbox` beside it would overwrite other people's packages."""
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert tops == {"rlvr", f"rlvr-{PROJECT['project']['version']}.dist-info"}


@BUILDS
def test_the_wheel_holds_every_module(wheel: Path):
    """Packages are named one by one in pyproject.toml, so a new folder is easily forgotten."""
    run(sys.executable, ROOT / ".ci/check_wheel.py", wheel, cwd=ROOT)


@BUILDS
def test_the_installed_wheel_imports_from_anywhere(site: Path, tmp_path: Path):
    """Without the checkout on the path, `rlvr.verifiers` has to come out of the wheel."""
    code = "import rlvr.envs.arithmetic as e, rlvr.verifiers.math as v; print(e.__file__, v.__file__, sep='\\n')"
    files = python(code, cwd=tmp_path, path=str(site)).splitlines()
    assert files == [
        str(site / "rlvr/envs/arithmetic.py"),
        str(site / "rlvr/verifiers/math/__init__.py"),
    ]


@pytest.mark.parametrize(
    "name", ["envs", "verifiers"]
)  # the sandbox is one package with names of its own
@pytest.mark.parametrize(
    "installed", [False, pytest.param(True, marks=BUILDS)], ids=["checkout", "wheel"]
)
def test_a_namesake_from_pypi_imports_beside_ours(
    request, tmp_path: Path, name: str, installed: bool
):
    """Even when our folder comes first on the path: without __init__.py it gives way to a real package."""
    ours = request.getfixturevalue("site") if installed else ROOT
    theirs = tmp_path / "site" / name / "__init__.py"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    path = os.pathsep.join([str(ours), str(tmp_path / "site")])
    code = f"import rlvr.verifiers.math, {name}; print({name}.__file__)"
    assert python(code, cwd=tmp_path, path=path) == str(theirs)


@pytest.mark.parametrize("module", ["rlvr", "rlvr.cli", "rlvr.verifiers.math"])
def test_importing_loads_nothing_heavy(module: str):
    """A worker starts once per core, the command on every <tab>: each pays for what the import drags in."""
    heavy = {"torch", "transformers", "datasets", "sympy", "math_verify", "pyarrow", "pandas"}
    loaded = python(f"import sys, {module}; print(*sys.modules)", cwd=ROOT).split()
    assert heavy.isdisjoint(loaded)


@functools.cache
def top_level(path: Path) -> list[ast.stmt]:
    """A module's statements, with those under a top-level `if` or `try`."""
    todo, found = ast.parse(path.read_text(encoding="utf-8")).body, []
    while todo:
        node = todo.pop()
        found.append(node)
        if isinstance(node, ast.If | ast.Try):
            todo += node.body + node.orelse
    return found


def defined(path: Path) -> set[str]:
    """The public names that a module defines itself: functions, classes, values."""
    names = set()
    for node in top_level(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {
                name.id
                for target in targets
                for name in ast.walk(target)
                if isinstance(name, ast.Name)
            }
    return {name for name in names if not name.startswith("_")}


def exported(path: Path) -> list[str] | None:
    """What `__all__` says; None if the module has none."""
    for node in top_level(path):
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
        ):
            return ast.literal_eval(node.value)
    return None


def test_all_is_sorted_and_complete():
    """`__all__` is what we promise: each public name of the module stands in it, in the order of `sorted`."""
    for path in MODULES:
        names, own, place = exported(path), defined(path), path.relative_to(ROOT)
        if names is None:
            assert not own, f"{place} has public names and no __all__"
            continue
        assert names == sorted(set(names)), place
        assert own <= set(names), place
        if path.name != "__init__.py":  # only a package's front door re-exports
            assert set(names) <= own, place


INTERNAL = ("sandbox/", "verifiers/", "recipes/", "envs/")
"""Where names are the module's own, unless the room's `__init__.py` exports them."""


def test_a_public_name_has_one_meaning():
    """`Limits` of a program, of a service and of a filter: who reads the name in an error has to know which it is."""
    places: dict[str, set[str]] = {}
    doors = {
        path.parent: set(exported(path) or []) for path in MODULES if path.name == "__init__.py"
    }
    for path in MODULES:
        place = path.relative_to(ROOT).as_posix()
        names = {
            name
            for name in defined(path) & set(exported(path) or [])
            if name[0].isupper() and not name.isupper()
        }
        if place.startswith(INTERNAL):
            names &= set().union(*(doors.get(folder, set()) for folder in path.parents))
        for name in names:
            places.setdefault(name, set()).add(place)
    clashes = [f"{name}: {sorted(found)}" for name, found in places.items() if len(found) > 1]
    assert not clashes, "\n".join(clashes)


def test_the_front_door_opens():
    """Every name that `rlvr` promises is there, however lazily it comes."""
    python("import rlvr; [getattr(rlvr, name) for name in rlvr.__all__]", cwd=ROOT)


WITHOUT_EXTRAS = """if True:
    import sys
    EXTRAS = set(
        "bm25s duckdb emoji gymnasium httptools jaxtyping jinja2 jsonschema markupsafe matplotlib mcp openai "
        "orjson peft prometheus_client py3langid ray reasoning_gym safetensors starlette syllapy tensorboard "
        "tokenizers torch transformers trl uvicorn uvloop vllm".split()
    )
    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name in EXTRAS:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    sys.meta_path.insert(0, Missing())
"""


def test_every_module_without_extras_is_there_or_says_how_to_get_it():
    """A plain install has all modules and few of the packages: `No module named 'torch'` helps nobody."""
    paths = [
        path.relative_to(ROOT).with_suffix("")
        for path in MODULES
        # Programs of other interpreters: in a sandbox, and where a peer is installed.
        if not {"guest", "drivers"} & set(path.parts)
    ]
    parts = [path.parts[: -1 if path.name == "__init__" else None] for path in paths]
    names = [".".join(it if it[0] == "rlvr" else ("rlvr", *it)) for it in parts]
    code = f"""if True:
        import importlib
        from rlvr.errors import MissingDependency
        for name in {names}:
            try:
                importlib.import_module(name)
            except MissingDependency as error:
                assert "is not installed; get it with: pip install" in str(error), (name, error)
                print(name)
    """
    explained = python(WITHOUT_EXTRAS + code, cwd=ROOT).split()
    assert {"rlvr.train.loop", "rlvr.algo.kl", "rlvr.agents", "rlvr.viewer.app"} <= set(explained)
    assert {"rlvr.client", "rlvr.scoring.engines", "rlvr.train.config"}.isdisjoint(explained)


def test_every_command_has_help_without_extras():
    """Its flags may not depend on what a part of it needs."""
    code = """if True:
        from rlvr.cli import main
        from rlvr.cli.commands import COMMANDS
        for name in COMMANDS:
            try:
                main([name, "--help"])
            except SystemExit as stop:
                assert stop.code == 0
                print("helped:", name)
    """
    said = python(WITHOUT_EXTRAS + code, cwd=ROOT)
    assert said.count("Example: rlvr ") >= said.count("helped: ") == len(COMMANDS)


def test_training_names_its_extra_before_its_flags():
    """Without any flag, too: who has no torch needs it first."""
    code = """if True:
        from rlvr.cli import main
        print(main(["train"]))
    """
    assert python(WITHOUT_EXTRAS + code, cwd=ROOT).split() == ["2"]


def entry_points() -> dict[str, str]:
    """Name → `module:object` of every script and entry point that we declare."""
    groups = PROJECT["project"]["entry-points"].values()
    return {
        name: target
        for group in (PROJECT["project"]["scripts"], *groups)
        for name, target in group.items()
    }


@pytest.mark.parametrize("name", entry_points())
def test_an_entry_point_leads_somewhere(name: str):
    """A typo here shows only when a user asks for that environment."""
    module, _, attribute = entry_points()[name].partition(":")
    package, _, stem = module.rpartition(".")
    folder = PACKAGE_DIR.get(package, package.replace(".", "/"))
    path = ROOT / folder / f"{stem}.py"
    if path.is_file():
        assert attribute in defined(path)
    else:  # a room, which says what it exports
        assert attribute in (exported(ROOT / module.replace(".", "/") / "__init__.py") or [])


def test_constraints_pin_every_dependency():
    """What stands in pyproject.toml without a pin is a version that was not tested."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    tested = {canonicalize_name(pin.name): pin.specifier for pin in pins}
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
    wanted += [
        Requirement(line) for extra in ("gym", "language", "serve", "dev") for line in extras[extra]
    ]
    for need in wanted:
        if need.name != "rlvr":
            (pin,) = tested[canonicalize_name(need.name)]
            assert pin.operator == "=="
            assert need.specifier.contains(pin.version), f"{need} and {pin}"


def test_a_release_needs_its_version_and_date_and_all_committed():
    """`make release` names each thing that is missing before it builds anything."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    problems = runpy.run_path(str(ROOT / ".ci/release.py"))["problems"]
    assert (
        problems("0.2.0", f"# C\n\n## 0.2.0, {today}\n\n## 0.1.0, 2026-01-01\n", "v0.1.0\n", "")
        == []
    )
    found = problems("0.2.0", "## 0.2.0, unreleased\n", "v0.1.0\nv0.2.0\n", " M a\n?? b\n")
    assert [line.split()[0] for line in found] == ["CHANGELOG.md", "there", "2"]
