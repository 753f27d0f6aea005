"""Environments by id: what an id looks like, who may have it, and what is said when there is none."""

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest

import rlvr
from rlvr import Environment, Task, UnknownEnvironment, Verdict, make, register
from rlvr.environment import registry
from rlvr.environment.registry import load
from tests.rewards.parts import refusal

PLUGIN = '''
import rlvr

@rlvr.register("{id}")
class Echo(rlvr.Environment):
    """Say it again."""

    words: int = 2

    def tasks(self):
        return [rlvr.Task(f"{{self.id}}/{{i}}", "say", reference=str(i)) for i in range(self.words)]

    def verify(self, task, completion):
        return rlvr.Verdict("correct" if completion == task.reference else "wrong", why="compared")

def helper():
    """No environment."""
'''


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """An empty registry, no entry points but a test's own, and imports that are undone."""
    path = list(sys.path)
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    registry._entry_points.cache_clear()
    yield
    registry._entry_points.cache_clear()
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes a module and names it under our entry-point group, as an installed package would."""

    def install(
        name: str, id: str, source: str = PLUGIN, target: str = "Echo", point: str = ""
    ) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(source.format(id=id))
        points = [
            *registry.entry_points(group="rlvr.envs"),
            EntryPoint(point or id, f"{name}:{target}", "rlvr.envs"),
        ]
        monkeypatch.setattr(
            registry, "entry_points", lambda group: points if group == "rlvr.envs" else []
        )
        monkeypatch.syspath_prepend(tmp_path)
        registry._entry_points.cache_clear()
        return path

    return install


def echo(qualname: str = "Echo", **members: Any) -> type[Environment]:
    """A new class; the same `qualname` stands for the same class statement, run again."""
    return type(
        qualname,
        (Environment,),
        {"__module__": "a_notebook", "__qualname__": qualname, **members},
    )


# ----------------------------------------------------------------------------------------- register


@pytest.mark.parametrize(
    "id", ["x-v1", "gsm8k-v12", "you/echo-v1", "a.b_c-d-v0", "0-v1", "a-v1-v2"]
)
def test_an_id_is_a_name_and_a_version(id: str):
    """In lower case, with an owner or without."""
    cls = register(id)(echo())
    assert (cls.id, make(id).id, rlvr.environment_ids()) == (id, id, [id])


@pytest.mark.parametrize(
    "id",
    [
        "",
        "x",
        "x-v",
        "x-1",
        "-v1",
        "v1",
        "X-v1",
        "x-V1",
        "x-v1 ",
        "x-v1\n",
        "x y-v1",
        "a/b/c-v1",
        "/x-v1",
        "é-v1",
        "x-v١",
    ],
)
def test_a_malformed_id_is_refused(id: str):
    """With the pattern and an example, before the class is looked at."""
    assert refusal(lambda: register(id)) == (
        f"environment id {id!r}: write [owner/]name-vN in lower case, such as 'gsm8k-v4'"
    )


def test_a_forgotten_pair_of_parentheses_is_told():
    """`@rlvr.register` alone gets the class for an id."""
    assert "write its id in parentheses, @rlvr.register('gsm8k-v4')" in refusal(
        lambda: register(echo())
    )


@pytest.mark.parametrize("given", [lambda: None, dict, Environment.tasks, "Echo"])
def test_only_environments_are_registered(given: Any):
    """Not a function that makes one."""
    message = "register('x-v1') is for subclasses of rlvr.Environment, and classes with task and verify, not"
    assert message in refusal(lambda: register("x-v1")(given))
    assert rlvr.environment_ids() == []


def test_a_multi_turn_environment_has_an_id_too():
    """Registered alike."""

    @register("talk-v1")
    class Talk(rlvr.Environment):
        def task(self, index: int) -> Any:
            return rlvr.Task(f"talk/{index}", "Hello.")

        def user(self, task: Any, transcript: Any) -> Any:
            return None

        def verify(self, task: Any, episode: Any) -> Any:
            return rlvr.Verdict("wrong")

    assert make("talk-v1", turns=5).turns == 5


def test_a_taken_id_is_refused():
    """Both classes are named, so that one of them can yield."""
    register("x-v1")(echo("First"))
    assert refusal(lambda: register("x-v1")(echo("Second"))) == (
        "environment id 'x-v1' belongs to a_notebook.First; a_notebook.Second needs another"
    )
    assert make("x-v1").__class__.__qualname__ == "First"


def test_a_cell_may_be_run_again():
    """The same class statement makes a new class; the last one counts."""
    register("x-v1")(echo(size=1))
    register("x-v1")(echo(size=2))
    assert make("x-v1").size == 2


def test_a_class_has_one_id():
    """Its tasks are drawn from it: under the second, the first would no longer make the same ones."""
    cls = register("x-v1")(echo())
    assert register("x-v1")(cls) is cls
    assert refusal(lambda: register("x-v2")(cls)) == (
        "a_notebook.Echo is 'x-v1' already; to have it as 'x-v2' too, register a subclass"
    )
    assert (cls.id, rlvr.environment_ids()) == ("x-v1", ["x-v1"])


def test_a_subclass_is_another_environment():
    """It does not inherit the id, and may have its own."""
    parent = register("x-v1")(echo())
    child = type("Child", (parent,), {})
    assert child.id == "Child"
    assert register("x-v2")(child).id == "x-v2"
    assert (make("x-v1").id, make("x-v2").id) == ("x-v1", "x-v2")


# ------------------------------------------------------------------------------------------ make


def test_make_passes_options():
    """By keyword, as the class takes them."""
    register("x-v1")(echo(__annotations__={"size": int}, size=1))
    env = make("x-v1", size=5, split="test")
    assert (env.size, env.split, env.config) == (5, "test", {"split": "test", "size": 5})


def test_a_wrong_option_gets_the_nearest():
    """And the list of them."""
    register("x-v1")(echo(__annotations__={"difficulty": int}, difficulty=1))
    message = "x-v1 has no option 'dificulty'; its options are split, difficulty; did you mean 'difficulty'?"
    assert refusal(lambda: make("x-v1", dificulty=2)) == message
    assert (
        refusal(lambda: make("x-v1", zz=2))
        == "x-v1 has no option 'zz'; its options are split, difficulty"
    )


def test_an_option_without_default_has_to_be_given():
    """Named, instead of Python's words about an __init__ that the author did not write."""
    register("x-v1")(echo(__annotations__={"data": str}))
    assert refusal(lambda: make("x-v1")) == "x-v1 needs the option data, which has no default"
    assert make("x-v1", data="rows.jsonl").config == {"data": "rows.jsonl"}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("gsm8k-v5", "no environment 'gsm8k-v5'; of this name there is gsm8k-v4"),
        ("gsm8k", "no environment 'gsm8k'; of this name there is gsm8k-v4"),
        ("math-v6", "no environment 'math-v6'; of this name there is math-v4 and math-v5"),
        ("gsmk8-v3", "no environment 'gsmk8-v3'; `rlvr envs` lists all; did you mean 'gsm8k-v4'?"),
        ("GSM8K-V3", "no environment 'GSM8K-V3'; `rlvr envs` lists all; did you mean 'gsm8k-v4'?"),
        ("zzzzzz", "no environment 'zzzzzz'; `rlvr envs` lists all"),
        ("", "no environment ''; `rlvr envs` lists all"),
        (None, "None is no environment id; write one such as 'gsm8k-v4', or call the class itself"),
        (5, "5 is no environment id"),
        (
            Environment,
            "is no environment id; write one such as 'gsm8k-v4', or call the class itself",
        ),
    ],
)
def test_an_unknown_id_gets_the_nearest(asked: Any, message: str):
    """Another version, a letter changed, or the command that lists them."""
    for known in ("gsm8k-v4", "math-v4", "math-v5"):
        register(known)(echo(known))
    assert message in refusal(lambda: make(asked), UnknownEnvironment)


@pytest.mark.parametrize(
    ("retired", "successor"),
    [("gsm8k-v1", "gsm8k-v4"), ("math-v1", "math-v4"), ("humaneval-v2", "humaneval-v3")],
)
def test_a_retired_id_names_its_successor(retired: str, successor: str):
    """Its verdicts were others, so a record of it must not be repeated under the same name without a word."""
    register(successor)(echo(successor))
    said = refusal(lambda: make(retired), UnknownEnvironment)
    assert f"{retired!r} is retired" in said
    assert said.endswith(f"its successor is {successor!r}")


def test_every_retired_id_leads_to_one_that_exists():
    """Successors are the bundled ids, and no version between the first and the present one is left out."""
    bundled = {point.name for point in entry_points(group="rlvr.envs")}
    assert set(registry._RETIRED.values()) <= bundled
    for present in bundled - {"mixture-v1"}:
        name, _, version = present.rpartition("-v")
        older = {f"{name}-v{number}": present for number in range(1, int(version))}
        assert older.items() <= registry._RETIRED.items()


def test_without_any_id_the_installation_is_at_fault():
    """A checkout that was never installed has no entry points."""
    assert "that was never installed; pip install -e ." in refusal(
        lambda: make("gsm8k-v4"), UnknownEnvironment
    )


# ------------------------------------------------------------------------------------- entry points


def test_a_plugin_is_listed_but_not_imported(plugin: Callable[..., Path]):
    """A hundred installed packages must not slow down those who ask for one."""
    plugin("a_plugin", "you/echo-v1")
    register("x-v1")(echo())
    assert rlvr.environment_ids() == ["x-v1", "you/echo-v1"]
    assert "a_plugin" not in sys.modules
    assert make("you/echo-v1", words=5).size == 5
    assert "a_plugin" in sys.modules
    assert make("you/echo-v1") is not make("you/echo-v1")


def test_a_plugin_must_register_what_it_names(plugin: Callable[..., Path]):
    """Else records would carry an id that leads elsewhere."""
    plugin("a_plugin", "echo-v1", point="echo-v2")
    assert refusal(lambda: make("echo-v2")) == (
        "entry point 'echo-v2' leads to a_plugin:Echo; put @rlvr.register('echo-v2') on that class"
    )
    plugin("b_plugin", "beep-v1", target="helper", point="beep-v2")
    assert "entry point 'beep-v2' leads to b_plugin:helper" in refusal(lambda: make("beep-v2"))


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("import no_such_module", "Echo", "No module named 'no_such_module'"),
        (PLUGIN, "Gone", "has no attribute 'Gone'"),
    ],
)
def test_a_broken_plugin_is_named(
    plugin: Callable[..., Path], source: str, target: str, message: str
):
    """The others are not harmed; the cause is kept."""
    plugin("a_plugin", "echo-v1", source=source, target=target)
    plugin("b_plugin", "fine-v1")
    said = refusal(lambda: make("echo-v1"))
    assert said.startswith("entry point 'echo-v1' cannot be loaded: ")
    assert message in said
    assert said.endswith("; fix or uninstall its package")
    assert make("fine-v1").size == 2


def test_a_plugin_may_ask_for_what_it_needs(plugin: Callable[..., Path]):
    """Its own error says how to get it, and passes as it is."""
    plugin(
        "a_plugin",
        "echo-v1",
        source="import rlvr; raise rlvr.MissingDependency('chess', 'puzzles')",
    )
    message = str(rlvr.MissingDependency("chess", "puzzles"))
    assert refusal(lambda: make("echo-v1"), rlvr.MissingDependency) == message
    assert refusal(lambda: make("a_plugin:Echo"), rlvr.MissingDependency) == message


# ---------------------------------------------------------------------- module:Class, file.py:Class


def test_a_class_is_found_where_it_stands(
    plugin: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In a module, or in a file, absolute or relative; the id is the one that the class registers."""
    path = plugin("a_plugin", "echo-v1")
    assert make("a_plugin:Echo", words=1).size == 1
    assert make(f"{path}:Echo", words=1).id == "echo-v1"
    monkeypatch.chdir(tmp_path)
    assert (
        load("a_plugin.py:Echo")
        is load("./a_plugin.py:Echo")
        is load(f"../{tmp_path.name}/a_plugin.py:Echo")
    )


def test_an_unregistered_class_in_a_file_will_do(tmp_path: Path):
    """For a first try; its id is then its name."""
    (tmp_path / "first_try.py").write_text(
        "import rlvr\nclass Try(rlvr.Environment):\n    size = 3\n"
    )
    env = make(f"{tmp_path / 'first_try.py'}:Try")
    assert (env.id, env.size) == ("Try", 3)
    assert rlvr.environment_ids() == []


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere.py:Echo", "there is no file"),
        ("no_such_module:Echo", "No module named 'no_such_module'"),
        (":Echo", "that is no module"),
        (".relative:Echo", "that is no module"),
        ("json:Echo", "module 'json' has no attribute 'Echo'"),
        ("json:", "module 'json' has no attribute ''"),
    ],
)
def test_a_place_without_a_class_is_unknown(place: str, message: str):
    """What was looked for, what was wrong with it, how it is written."""
    said = refusal(lambda: make(place), UnknownEnvironment)
    assert said.startswith(f"no environment at {place!r}: ")
    assert message in said
    assert said.endswith("; write module:name or path/to/file.py:name")


def test_what_stands_there_has_to_be_an_environment():
    """json.dumps is a function."""
    assert "'json:dumps' is function <function dumps" in refusal(
        lambda: make("json:dumps"), UnknownEnvironment
    )


def test_a_file_under_a_taken_name_is_not_mistaken(tmp_path: Path):
    """`json.py` beside one's tasks: Python's own would be imported instead."""
    (tmp_path / "json.py").write_text("class Echo: pass")
    said = refusal(lambda: make(f"{tmp_path / 'json.py'}:Echo"), UnknownEnvironment)
    assert "the name 'json' is taken by" in said
    assert "rename the file" in said


def test_a_file_with_a_dot_in_its_name_is_told(tmp_path: Path):
    """It would be looked for as a module in a package."""
    (tmp_path / "my.env.py").write_text("class Echo: pass")
    said = refusal(lambda: make(f"{tmp_path / 'my.env.py'}:Echo"), UnknownEnvironment)
    assert "no file with a dot in its name, 'my.env'; rename it" in said


def test_a_slip_in_the_file_is_shown_as_it_is(tmp_path: Path):
    """Not as a missing environment."""
    (tmp_path / "slip.py").write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        make(f"{tmp_path / 'slip.py'}:Echo")


def test_a_file_that_is_a_program_does_not_end_the_caller(tmp_path: Path):
    """A script with `sys.exit(main())` at its end: the command would have ended with its code, 0."""
    (tmp_path / "script.py").write_text("raise SystemExit(0)")
    said = refusal(lambda: make(f"{tmp_path / 'script.py'}:Echo"), UnknownEnvironment)
    assert "importing" in said
    assert "ended in SystemExit: 0; put what runs as a program under if __name__" in said


def test_an_environment_from_a_file_scores(plugin: Callable[..., Path]):
    """From an id to a verdict."""
    env = make(f"{plugin('a_plugin', 'echo-v1')}:Echo")
    assert env.task(1) == Task("echo-v1/1", "say", reference="1")
    assert env.score(env.task(1), "1").verdict == Verdict("correct", why="compared")


def test_neighbours_of_the_file_break_no_worker(plugin: Callable[..., Path]):
    """Workers find their own modules first: here `json` is imported already, there it is not."""
    file = plugin("a_plugin", "echo-v1")
    for name in ("json", "types", "random", "rlvr", "queue"):
        file.with_name(f"{name}.py").write_text("1 / 0")
    with rlvr.Scorer(make(f"{file}:Echo"), workers=1) as scorer:
        assert scorer.score(scorer.env.task(1), "1").total == 1
