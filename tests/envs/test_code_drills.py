"""`code-drills-v1`: its tests tell a function from its neighbours."""

import ast

import pytest

import rlvr
from rlvr.envs import code_drills
from rlvr.envs.code_drills import CodeDrills

LEVELS = (1, 2, 3, 4)


def passes(code: str, task: rlvr.Task) -> bool:
    """Whether a function of ours passes a task's asserts."""
    scope: dict = {}
    exec(code, scope)
    try:
        exec(task.reference["test"], scope)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("level", LEVELS)
def test_every_neighbour_that_differs_fails(level, monkeypatch):
    """Also on inputs that the task did not see; and no constant passes, nor what returns the argument."""
    made = []
    drill = code_drills._tests

    def seen(one, rng):
        found = drill(one, rng)
        made.append((one, found))
        return found

    monkeypatch.setattr(code_drills, "_tests", seen)
    env = CodeDrills(level=level)
    for index in range(40 if level < 3 else 20):
        task = env.task(index)
        one, tests = made[-1]
        assert passes(task.meta["solution"], task)
        inputs = [given for given, _ in tests]
        assert len(inputs) >= 8
        every = list(code_drills._inputs(one.kind, rlvr.seeded("others", index)))
        right = [repr(result) for result in code_drills._results(one, every)]
        for near in {neighbour.code() for neighbour in one.neighbours()}:
            found = [repr(result) for result in code_drills._results(near, every)]
            assert found == right or not passes(near, task), near
        x = task.meta["solution"].partition("(")[2].partition(")")[0]
        assert not passes(f"def f({x}):\n    return {x}\n", task)
        for expected in {repr(result) for _, result in tests}:
            assert not passes(f"def f({x}):\n    return {expected}\n", task)


def test_a_hash_keeps_the_splits_apart_and_a_task_comes_again():
    """The same function is never trained on and tested."""
    codes = {}
    for split in ("train", "validation", "test"):
        for level in LEVELS:
            env = CodeDrills(split=split, level=level)
            count = {1: 60, 2: 20}.get(level, 4)  # of few functions, draws would soon meet
            codes.setdefault(split, set()).update(
                env.task(i).meta["solution"] for i in range(count)
            )
            assert env.task(7) == CodeDrills(split=split, level=level).task(7)
    assert not codes["train"] & codes["test"]
    assert not codes["train"] & codes["validation"]


def test_prompts_show_what_is_asked_for():
    """As many asserts as `shown`; the solution has one to five lines."""
    for level in LEVELS:
        task = CodeDrills(level=level, shown=3).task(0)
        assert task.prompt.count("assert f(") == 3
        assert task.prompt.endswith("block.")
        assert len(ast.unparse(ast.parse(task.meta["solution"])).splitlines()) <= 6
    assert "For example" not in CodeDrills(shown=0).task(0).prompt
    with pytest.raises(rlvr.UsageError, match="level is 5"):
        CodeDrills(level=5)
    with pytest.raises(rlvr.UsageError, match="split is 'dev'"):
        CodeDrills(split="dev")
