"""`rlvr init`: makes an installable package with an environment, its tests and its card."""

from __future__ import annotations

import keyword
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from rlvr.environment import environment_ids
from rlvr.errors import UsageError
from rlvr.text import one_line

__all__ = ["InitCommand"]

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")

_PYPROJECT: Final = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "An environment for rlvr"
requires-python = ">=3.11"
dependencies = ["rlvr"]

[project.entry-points."rlvr.envs"]
"{id}" = "{module}:{title}"

[tool.setuptools]
packages = ["{module}"]

[tool.setuptools.package-data]
{module} = ["*.jsonl"]
"""

_TEST: Final = '''\
"""The environment passes its check, and pays what it should."""

import rlvr
from rlvr.testing import check_environment
from {module} import {title}


def test_it_passes_its_check():
    """`rlvr check {id}` says more."""
    check_environment({title}())


def test_a_right_answer_is_paid_and_others_are_not():
    """Add here each answer that a policy was paid for and should not have been."""
    env = rlvr.make("{id}")
    task = env.task(0)
    assert env.score(task, env.example(task)).total == 1
    assert env.score(task, "ok").total == 0
'''

_PLAYED: Final = '''\
"""The environment passes its check, and pays what it should."""

import rlvr
from rlvr.testing import check_environment
from {module} import {title}


def test_it_passes_its_check():
    """`rlvr check {id}` says more."""
    check_environment({title}())


def test_a_right_episode_is_paid_and_others_are_not():
    """Add here the turns of each episode that was paid for and should not have been."""
    env = rlvr.make("{id}")
    task = env.task(0)
    for turns, total in ((env.example_episode(task), 1), (["ok"], 0)):
        with env.open(task) as episode:
            for turn in turns:
                episode.reply(turn)
        assert env.score(task, env.completion_of(episode.record)).total == total
'''

_CARD: Final = """\
# {id}

{about}

| | |
|---|---|
| data | {source} |
| licence of the data | |
| what is checked | {checked} |
| guess rate | what the best constant answer earns: `rlvr check {id}` prints it |
| floor | what an empty completion earns: printed too |
| known holes | |

Install with `pip install -e .`, test with `pytest`, look for holes with `rlvr check {id}`.
"""

_PROCEDURAL: Final = '''\
"""{id}: tasks without end, made from a seed."""

import rlvr
from rlvr.verifiers.math import MathVerifier


@rlvr.register("{id}")
class {title}(rlvr.Environment):
    """Add some numbers; the answer goes in the last \\\\boxed{{}}."""

    terms: int = 3
    reward = rlvr.Correct(MathVerifier())

    def task(self, index):
        rng = rlvr.seeded(self.id, self.split, self.terms, index)  # another split has other tasks
        numbers = [rng.randint(100, 99_999) for _ in range(self.terms)]
        prompt = f"Add {{', '.join(map(str, numbers))}}. Put the sum in \\\\boxed{{{{}}}}."
        name = f"{{self.id}}/{{self.split}}/{{self.terms}}/{{index}}"
        return rlvr.Task(name, prompt, reference=sum(numbers))
'''

_DATA: Final = '''\
"""{id}: tasks from rows of a file."""

from pathlib import Path

import rlvr
from rlvr.data.rows import load_dataset
from rlvr.verifiers.qa import QAVerifier

_ROWS = Path(__file__).parent / "rows.jsonl"


@rlvr.register("{id}")
class {title}(rlvr.Environment):
    """Answer a question; the answer goes in <answer> tags."""

    data: str = str(_ROWS)
    reward = rlvr.Correct(QAVerifier())

    def tasks(self):
        for number, row in enumerate(load_dataset(self.data, self.split)):
            yield self.task_from({{**row, "id": str(row.get("id", number))}})

    def task_from(self, row):
        # A row may have criteria of its own.
        meta = {{"rubric": row["rubric"]}} if "rubric" in row else {{}}
        prompt = row["question"] + "\\n\\nPut the answer in <answer> tags."
        name = f"{{self.id}}/{{self.split}}/{{row.get('id', 'row')}}"
        return rlvr.Task(name, prompt, row["answer"], meta)

    def example(self, task):
        return f"<answer>{{task.reference}}</answer>"
'''

_ROWS: Final = """\
{"question": "What is the capital of Peru?", "answer": "Lima"}
{"question": "What is the capital of Kenya?", "answer": "Nairobi"}
{"question": "What is the capital of Norway?", "answer": "Oslo"}
{"question": "What is the capital of Turkey?", "answer": "Ankara"}
{"question": "What is the capital of Ghana?", "answer": "Accra"}
"""

_CODE: Final = '''\
"""{id}: programs that are run in the sandbox, on inputs that the model does not see."""

import rlvr
from rlvr.verifiers.code import CodeVerifier


@rlvr.register("{id}")
class {title}(rlvr.Environment):
    """Write a Python program that reads numbers and prints how many are above a limit."""

    sandbox: str = "namespaces"

    def __post_init__(self):
        self.reward = rlvr.Correct(CodeVerifier(sandbox=self.sandbox))

    def task(self, index):
        rng = rlvr.seeded(self.id, self.split, index)
        limit = rng.randint(10, 9_999)
        rows = [[rng.randint(0, 10_000) for _ in range(size)] for size in (1, 5, 20, 50)]
        reference = {{
            "inputs": [" ".join(map(str, row)) for row in rows],
            "outputs": [str(sum(x > limit for x in row)) for row in rows],
        }}
        prompt = (
            "Write a Python program that reads integers from a line "
            f"and prints how many are above {{limit}}."
        )
        name = f"{{self.id}}/{{self.split}}/{{index}}"
        return rlvr.Task(name, prompt, reference, {{"limit": limit}})

    def example(self, task):
        program = f"print(sum(int(x) > {{task.meta['limit']}} for x in input().split()))"
        return f"```python\\n{{program}}\\n```"
'''

_TOOLS: Final = '''\
"""{id}: a program that a policy mends with bash; a hidden test decides, in a fresh box."""

import rlvr
from rlvr.environment import ready_tools

_WRONG = "def total(items):\\n    return sum(count + price for count, price in items)\\n"
_HIDDEN = "import unittest\\nfrom shop import total\\n\\nclass Hidden(unittest.TestCase):\\n"
_HIDDEN += "    def test_total(self):\\n"
_HIDDEN += "        self.assertEqual(total([({{0}}, {{1}}), (1, 1)]), {{0}} * {{1}} + 1)"


@rlvr.register("{id}")
class {title}(rlvr.Environment):
    """Mend shop.py with bash."""

    outputs = ("shop.py",)  # what remains for `grade`

    def task(self, index):
        rng = rlvr.seeded(self.id, self.split, index)
        count, price = rng.randint(3, 999), rng.randint(3, 999)
        prompt = f"shop.py: total([({{count}}, {{price}})]) must be {{count * price}}. Mend it."
        return rlvr.Task(f"{{self.id}}/{{self.split}}/{{index}}", prompt, [count, price])

    def setup(self, task):
        session = ready_tools.sandbox().session("bash")
        session.write("shop.py", _WRONG)
        return session

    def tools(self, state):
        return [*super().tools(state), ready_tools.bash(state)]

    def grade(self, task, box):
        return box.test(_HIDDEN.format(*task.reference))

    def verify(self, task, episode):
        mended = episode.final == {{"Hidden.test_total": "pass"}}
        return rlvr.Verdict("correct" if mended else "wrong", why="mended" if mended else "broken")

    def example_episode(self, task):
        return [rlvr.Ask("bash", {{"command": "sed -i s/+/*/ shop.py"}}), "Done."]
'''

_STYLES: Final = {
    "procedural": (
        _PROCEDURAL,
        "none: tasks are made from a seed",
        "the sum, as a number in the last box",
    ),
    "data": (_DATA, "rows.jsonl", "the answer in <answer> tags, by its normal form"),
    "code": (
        _CODE,
        "none: inputs are made from a seed",
        "the output of the program on hidden inputs, in the sandbox",
    ),
    "tools": (
        _TOOLS,
        "none: numbers are drawn from a seed",
        "a hidden test of the file that the episode leaves, in a fresh box",
    ),
}


@dataclass
class InitCommand:
    """Make an installable package with an environment of your own.

    Example: rlvr init my-env --style procedural

    It has a pyproject.toml with the entry point, the environment, its tests and its card, and
    passes `rlvr check` as it is.
    """

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """Name of the package, such as my-env; the environment's id is my-env-v1."""
    style: Literal["procedural", "data", "code", "tools"] = "procedural"
    """What it begins as: tasks from a seed, from rows of a file, programs run in the sandbox, or
    episodes with a tool and a hidden test."""
    folder: Annotated[Path | None, arg(help_behavior_hint="(default: the name)")] = None
    """Folder to make."""

    def run(self, out: Console, err: Console) -> int:
        module = self.name.replace("-", "_")
        if not _NAME.fullmatch(self.name) or keyword.iskeyword(module):
            raise UsageError(
                f"the name is {self.name!r}; write small letters, digits and hyphens, such as "
                f"my-env"
            )
        env_id, folder = f"{self.name}-v1", self.folder or Path(self.name)
        if env_id in environment_ids():
            raise UsageError(f"an environment {env_id} is installed already; choose another name")
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} is there already and not empty; name another with --folder")
        text, source, checked = _STYLES[self.style]
        test = _PLAYED if self.style == "tools" else _TEST
        names = {"name": self.name, "id": env_id, "module": module}
        names["title"] = "".join(part.capitalize() for part in self.name.split("-"))
        files = {
            "pyproject.toml": _PYPROJECT.format(**names),
            f"{module}/__init__.py": text.format(**names),
            f"tests/test_{module}.py": test.format(**names),
            "README.md": _CARD.format(
                **names, about="Say what a policy learns here.", source=source, checked=checked
            ),
        }
        if self.style == "data":
            files[f"{module}/rows.jsonl"] = _ROWS
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content, encoding="utf-8")
        folder_text = one_line(shlex.quote(str(folder)))
        out.print(
            f"made {one_line(folder)}: cd {folder_text} && pip install -e . && pytest && "
            f"rlvr check {env_id}",
            soft_wrap=True,
        )
        return 0
