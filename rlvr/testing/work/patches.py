"""Work for tasks that ask for a patch: slips in the files as they should be.

A witness is a case of the project that is neither shown nor decides, and that fails on the patched
files; the environment draws such cases (`more_tests`).
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, Protocol

from rlvr.environment.episode import TurnLike
from rlvr.environment.ready_tools import sandbox
from rlvr.sandbox import Box, Limits
from rlvr.testing.work.maker import Maker, Untested, Witness, Work, serves
from rlvr.types import Task
from rlvr.verifiers.code.operators import draw_mutants, mutants, rewrites
from rlvr.verifiers.patches import PatchError, apply_patch, patch_between, patch_in

__all__ = ["PatchWork", "PatchedProject"]

_SLIPS: Final = 60
_LIMITS: Final = Limits(cpu_s=5.0, memory_mib=256)
# One method of a test file, up to the next.
_NAME: Final = re.compile(r"    def (test_\d+)\(self\):\n(.*?)(?=\n    def |\Z)", re.DOTALL)


class PatchedProject(Protocol):
    """What is asked of an environment of patches: `meta["files"]` are the files before,
    `reference["files"]` the changed ones as they should be."""

    sandbox: str

    def turns_of(self, task: Task, reply: str) -> Sequence[TurnLike]:
        """The turns of an episode that do what a reply with a patch says.

        Args:
            task: the task.
            reply: with the patch.
        """

    def more_tests(self, task: Task) -> str:
        """A file of unittest with cases that are neither shown nor decide.

        Args:
            task: the task.
        """


@serves("rlvr.envs.swe_lite.SweLite")
class PatchWork(Maker):
    """Patches that lead to files with a slip, or that leave a file out."""

    def wrong(self, task: Task, rng: Random) -> Iterator[Work]:
        right = _right(task)
        by_file = [
            [(path, mutant) for mutant in draw_mutants(mutants(text), _SLIPS, rng)]
            for path, text in right.items()
        ]
        if len(right) > 1:
            for path in right:
                left_out = {name: text for name, text in right.items() if name != path}
                yield _work(task, left_out, "dropped file")
        # In turn, so that each file's slips come early.
        for turn in itertools.zip_longest(*by_file):
            for path, mutant in filter(None, turn):
                yield _work(task, {**right, path: mutant.source}, mutant.operator)

    def right(self, task: Task, rng: Random) -> Iterator[Work]:
        right = _right(task)
        yield Work(_fence(patch_between(task.meta["files"], right)), "example")
        for path, text in right.items():
            for rewritten in rewrites(text):
                yield _work(task, {**right, path: rewritten.source}, rewritten.operator)

    def turns(self, task: Task, work: Work) -> Sequence[TurnLike]:
        project: Any = self.env
        turns: Sequence[TurnLike] = project.turns_of(task, work.text)
        return turns

    def witness(self, task: Task, work: Work) -> Witness | None:
        files = _apply(task, work)
        if files is None:
            return None  # it is refused, and that proves nothing about the tests
        project: Any = self.env
        tests = project.more_tests(task)
        code = {path.removeprefix("src/"): text.encode() for path, text in files.items()
                if path.startswith("src/")}  # fmt: skip
        outcomes = Box(sandbox(_LIMITS, level=project.sandbox), code).test(tests)
        cases = dict(_NAME.findall(tests))
        failed = [name for name in cases if outcomes.get(f"Tests.{name}") != "pass"]
        if not failed:
            return None
        # The shortest failing case is the easiest to check by hand.
        case, _, expected = min((cases[name] for name in failed), key=len).rpartition("assertEqual")
        code_of_case = "\n".join(line.strip() for line in case.splitlines()[1:-2])
        expected_outcome = expected.strip("()\n ").removeprefix("outcome(case), ").split("\n")[0]
        return Witness(
            code_of_case,
            expected_outcome,
            f"another outcome in {len(failed)} of {len(cases)} cases",
        )


def _right(task: Task) -> dict[str, str]:
    right: Mapping[str, str] = task.reference["files"]
    try:
        for text in right.values():
            ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise Untested(f"its files cannot be read: {error}") from None
    return dict(right)


def _work(task: Task, files: Mapping[str, str], operator: str) -> Work:
    return Work(_fence(patch_between(task.meta["files"], files)), operator)


def _fence(patch: str) -> str:
    return f"```diff\n{patch}\n```"


def _apply(task: Task, work: Work) -> dict[str, str] | None:
    patch = patch_in(work.text)
    try:
        return None if patch is None else apply_patch(task.meta["files"], patch)
    except PatchError:
        return None
