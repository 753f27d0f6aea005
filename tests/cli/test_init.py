"""`rlvr init`: what it makes is a package whose environment works as it is."""

import sys
import tomllib

import pytest

import rlvr
from rlvr.cli import main
from rlvr.environment.registry import object_at


@pytest.mark.parametrize("style", ["procedural", "data", "code", "tools"])
def test_a_new_package_has_an_environment_that_works(style, tmp_path, monkeypatch, capsys):
    """Its entry point leads to a registered class; the example is right and "ok" is not."""
    name = f"own-{style}"
    assert main(["init", name, "--style", style, "--folder", str(tmp_path / "made")]) == 0
    assert f"rlvr check {name}-v1" in capsys.readouterr().out
    made = tmp_path / "made"
    project = tomllib.loads((made / "pyproject.toml").read_text())["project"]
    [(name_of_env, place)] = project["entry-points"]["rlvr.envs"].items()
    monkeypatch.syspath_prepend(str(made))
    cls = object_at(place)
    assert (cls.id, name_of_env) == (f"{name}-v1",) * 2
    env = cls()
    assert [env.task(i).id for i in range(3)] == [env.find(env.task(i).id).id for i in range(3)]
    task = env.task(0)
    if style == "tools":
        for turns, total in ((env.example_episode(task), 1), (["ok"], 0)):
            with env.open(task) as episode:
                for turn in turns:
                    episode.reply(turn)
            assert env.score(task, env.completion_of(episode.record)).total == total
    elif style != "code":  # the sandbox is tested elsewhere, and by the package's own tests
        assert env.score(task, env.example(task)).total == 1
        assert env.score(task, "ok").total == 0
    compile((made / f"tests/test_own_{style}.py").read_text(), "test", "exec")
    assert "| known holes |" in (made / "README.md").read_text()
    lines = (made / f"own_{style}" / "__init__.py").read_text().splitlines()
    assert len(lines) <= 40
    sys.modules.pop(f"own_{style}", None)
    rlvr.environment.registry._registered.pop(name_of_env, None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("My Env", "the name is 'My Env'"),
        ("class", "the name is 'class'"),
        ("-x", "the name is '-x'"),
        ("arithmetic", "an environment arithmetic-v1 is installed already"),
        ("full", "is there already and not empty"),
    ],
)
def test_one_clear_error(name, said, tmp_path, monkeypatch, capsys):
    """Nothing is written over, and nothing is made that cannot be imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    assert main(["init", "--", name] if name.startswith("-") else ["init", name]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]
