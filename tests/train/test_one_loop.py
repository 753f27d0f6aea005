"""The loop and the learner name no feature: what runs and algorithms have besides is a part."""

import ast
from pathlib import Path

import pytest

from tests.train.bandit import trainer

ROOT = Path(__file__).resolve().parents[2] / "rlvr" / "train"
ASKED = ("config", "settings", "algorithm")


def questions(source: str) -> list[str]:
    """Conditions that read a setting of a run or of an algorithm, or the kind of a part or a batch."""
    tests: list[ast.expr] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            tests.append(node.test)
        elif isinstance(node, ast.comprehension):
            tests += node.ifs
        elif isinstance(node, ast.BoolOp):
            tests += node.values[:-1]
    return sorted({ast.unparse(test) for test in tests if _asks(test)})


def _asks(test: ast.expr) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute | ast.Name):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id
            if owner in ASKED:
                return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            kinds = ast.unparse(node)
            if node.func.id in ("isinstance", "hasattr") and ("Batch" in kinds or "Part" in kinds):
                return True
    return False


def test_a_question_is_found():
    """As there were forty of before."""
    text = "if config.max_staleness and x:\n    y = 1 if self.algorithm.kl is None else 2\n"
    assert questions(text) == [
        "config.max_staleness",
        "config.max_staleness and x",
        "self.algorithm.kl is None",
    ]


# How long the loop goes on, when it saves, and how long the learner goes on.
OWN = {
    "loop.py": ["steps_done < config.steps", "steps_done == config.steps", "checkpoint_every"],
    "learner.py": ["self._bad_in_a_row >= self.config.bad_steps"],
}


@pytest.mark.parametrize("name", OWN)
def test_no_question_is_about_a_feature(name: str):
    """A new one is a part, and needs no line here."""
    found = questions((ROOT / name).read_text(encoding="utf-8"))
    assert [one for one in found if not any(own in one for own in OWN[name])] == []


def test_a_step_is_short():
    """Collect, credit, update, sync, evaluate and save, with the loop around them: under 60 lines."""
    tree = ast.parse((ROOT / "loop.py").read_text(encoding="utf-8"))
    functions = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    lines = sum(
        functions[n].end_lineno - functions[n].lineno + 1 for n in ("run", "step", "_evaluate")
    )
    assert lines < 60


def test_steps_by_hand_are_those_of_a_run(tmp_path):
    """`step()` is public: three of them and a save give the weights and the log of `run()`."""
    with trainer(tmp_path / "whole", steps=3, eval_every=1, eval_tasks=4) as whole:
        whole.run()
    with trainer(tmp_path / "by hand", steps=3, eval_every=1, eval_tasks=4) as made:
        numbers = [made.step() for _ in range(3)]
        made.save()
    assert made.steps_done == 3
    assert numbers[-1]["eval/avg@1"] == whole.reports[3].metrics["avg@1"].value
    mine, theirs = (one.policy.model.state_dict() for one in (made, whole))
    assert all((mine[key] == theirs[key]).all() for key in theirs)
