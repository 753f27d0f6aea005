"""Software tasks without network: bugs and gaps of small projects, judged by
tests that were never shown."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

import rlvr
from rlvr.environment.ready_tools import bash, sandbox
from rlvr.envs.swe_projects import (
    SPLITS,
    Found,
    Variant,
    loader,
    more_cases,
    names_of_projects,
    observe,
    read_table,
    unittest_file,
    variant_of,
)
from rlvr.errors import SandboxFailed, UsageError
from rlvr.sandbox import Box, Limits
from rlvr.validate import require_one_of, require_whole
from rlvr.verifiers.patches import PatchError, apply_patch, patch_between, patch_in

__all__ = ["SweLite"]

_LIMITS: Final = Limits(cpu_s=5.0, memory_mib=256)
_HELP: Final = ("report", "tests", "place")
_KINDS: Final = ("all", "bug", "feature")
_SOURCES: Final = "src"
_TESTS: Final = "tests/test_all.py"
_RUN: Final = "python3 -m unittest discover -s tests"


@rlvr.register("swe-lite-v1")
class SweLite(rlvr.Environment):
    """Mend the bugs of a small Python package, or write the function that it lacks.

    CORRECT needs every hidden test to pass: those that fail before, and those that do not.  They
    run where the policy never was, on a copy of `src`, have inputs of their own, and ask for plain
    values.

    Options:
        kind: "bug", "feature" (a function is missing), or "all".
        bugs: how many a task has, 1 to 3; 0 for any number.  A feature counts as one.
        files: how many files have to be changed, 1 to 3; 0 for any number.
        distance: least number of imports between the module that the report is about and a file to
            be changed.
        help: "report" shows one case that fails; "tests" has all that may be shown among the tests;
            "place" also names the files.
        tools: False for one reply with a patch, without a session.
        sandbox: "namespaces", or "restricted" for a host without them; see
            docs/reference/sandbox.md.
    """

    domain = "code"
    outputs = ("src/**.py",)
    turns: int = 20
    calls: int = 40
    call_seconds: float = 60.0
    kind: str = "all"
    bugs: int = 0
    files: int = 0
    distance: int = 0
    help: str = "report"
    tools: bool = True  # type: ignore[assignment]  # the method `bash` is the tool
    sandbox: str = "namespaces"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("split", self.split, SPLITS)
        require_one_of("kind", self.kind, _KINDS)
        require_one_of("help", self.help, _HELP)
        for name in ("bugs", "files", "distance"):
            require_whole(name, getattr(self, name), 0)
        if not self.tools:
            self.plays = rlvr.Episode  # type: ignore[misc]  # one reply, with a patch

    # ---------------------------------------------------------------------------------------- tasks

    @cached_property
    def _rows(self) -> Sequence[Found]:
        projects = set(names_of_projects(self.split))
        rows = [row for row in read_table() if row.project in projects and self._has(row)]
        if not rows:
            raise UsageError(
                f"{self.id} has no task of split {self.split!r} with kind={self.kind!r}, "
                f"bugs={self.bugs}, "
                f"files={self.files} and distance={self.distance}; give a smaller distance, or 0 "
                f"for any number"
            )
        # One order for each split, whatever the options leave of it.
        rlvr.seeded(self.id, self.split, "order").shuffle(rows)
        return rows

    def _has(self, one: Found) -> bool:
        kind = "bug" if one.feature is None else "feature"
        numbers = ((self.bugs, one.bugs), (self.files, one.files))
        same = all(required in (0, number) for required, number in numbers)
        return same and self.kind in ("all", kind) and one.distance >= self.distance

    @property
    def size(self) -> int:
        """Number of tasks of the split with these options."""
        return len(self._rows)

    def tasks(self) -> Iterator[rlvr.Task]:
        return map(self.task, range(self.size))

    def find(self, task: str | int) -> rlvr.Task:
        index = task.rpartition("/")[2] if isinstance(task, str) else str(task)
        task_found = self.task(int(index)) if index.isdecimal() and int(index) < self.size else None
        # An id of other options, or a number of another split, is not found.
        if task_found is None or task not in (task_found.id, int(index)):
            raise LookupError(f"{self.id}, split {self.split!r}, has no task {task!r}")
        return task_found

    def task(self, index: int) -> rlvr.Task:
        if not 0 <= index < self.size:
            raise IndexError(
                f"{self.id} has {self.size} tasks in split {self.split!r}; there is no task {index}"
            )
        row = self._rows[index]
        variant = variant_of(row.project, row.variant)
        right = loader(variant.name, variant.files)
        broken = _sources(variant, variant.changed(row.edits))
        hidden = dict(enumerate(variant.hidden))
        outcomes = {number: observe(right, case) for number, case in hidden.items()}
        shown_cases = {
            number: case
            for number, case in enumerate(variant.visible)
            # The symptom is in the prompt; among the tests it would show more of what fails.
            if self.help != "report" or number not in row.shown
        }
        observed = {number: observe(right, case) for number, case in shown_cases.items()}
        prompt = self._prompt(row, variant, broken)
        reference = {
            "tests": unittest_file(hidden, outcomes, ""),
            "decides": [f"Tests.test_{number:02}" for number in row.decides],
            "keeps": [f"Tests.test_{n:02}" for n in hidden if n not in row.decides],
            "files": _files_to_change(variant, row),
        }
        # Hidden tests have no path: they are run where the package stands.
        files = {**broken, _TESTS: unittest_file(shown_cases, observed, _SOURCES)}
        meta = {"files": files, "package": variant.name}
        return rlvr.Task(f"{self.id}/{self.split}/{index}", prompt, reference, meta)

    def _prompt(self, row: Found, variant: Variant, broken: Mapping[str, str]) -> str:
        symptom = variant.visible[row.shown[0]]
        right_outcome = observe(loader(variant.name, variant.files), symptom)
        parts = [f"The Python package {variant.name} in the folder src is about {variant.about}."]
        if row.feature is None:
            got = observe(loader(variant.name, variant.changed(row.edits)), symptom)
            bugs = "a bug" if row.bugs == 1 else f"{row.bugs} bugs"
            parts[0] += f" It has {bugs}. A user reports:"
            parts.append(
                f"```python\n{symptom}\n```\nIt {_describe(got)}. Right is that it "
                f"{_describe(right_outcome)}."
            )
        else:
            name, head, docstring = map(variant.compose, row.feature)
            path = variant.compose(row.edits[0][0])
            parts[0] += f" {name} is missing in src/{variant.name}/{path}. Write it:"
            parts.append(f'```python\n{head}:\n    """{docstring}"""\n```')
            parts.append(
                f"With it, this code {_describe(right_outcome)}:\n```python\n{symptom}\n```"
            )
        if self.help == "place":
            places = sorted(
                {f"src/{variant.name}/{variant.compose(edit[0])}" for edit in row.edits}
            )
            parts.append(f"To be changed: {', '.join(places)}.")
        parts.append(
            "All that docstrings say holds. Hidden tests with other inputs decide; they see src "
            "alone, and what is right now has to stay right."
        )
        if self.tools:
            parts.append(
                "You have a bash session in the folder above src. Some tests are in tests: "
                f"{_RUN}. When you are done, say so."
            )
        else:
            parts += [
                f"{path}:\n```python\n{text}```" for path, text in broken.items() if text.strip()
            ]
            parts.append("Answer with one patch, as `diff -u` writes it, in a ```diff block.")
        return "\n\n".join(parts)

    # ------------------------------------------------------------------------------------- episodes

    def setup(self, task: rlvr.Task) -> object:
        session = sandbox(_LIMITS, level=self.sandbox).session("bash", total_cpu_s=120.0)
        for path, text in task.meta["files"].items():
            if not session.write(path, text):
                session.close()
                raise SandboxFailed(f"the file {path} could not be written: {session.over}")
        return session

    @rlvr.tool
    def bash(self, state: Any, command: str) -> str:
        """Run bash commands and see what they print.  Files, variables and the folder are kept
        between calls.

        Args:
            command: the commands.
        """
        reply: str = bash(state).function(command=command)
        return reply

    def grade(self, task: rlvr.Task, box: Box) -> dict[str, str]:
        """The outcomes of the hidden tests on the files of the package; no other file counts."""
        prefix = f"{_SOURCES}/{task.meta['package']}/"
        own_files = {
            path.removeprefix(f"{_SOURCES}/"): data
            for path, data in box.files.items()
            if path.startswith(prefix)
        }
        return box.test(task.reference["tests"], files=own_files)

    def more_tests(self, task: rlvr.Task) -> str:
        """A file of unittest with cases that are neither shown nor decide, for `rlvr strength`.

        Args:
            task: of this environment.
        """
        # The row by its number in the id, as `task` counts.
        row = self._rows[int(task.id.rpartition("/")[2])]
        variant = variant_of(row.project, row.variant)
        right = loader(variant.name, variant.files)
        cases = dict(enumerate(more_cases(row.project, row.variant)))
        return unittest_file(cases, {n: observe(right, case) for n, case in cases.items()}, "")

    def verify(self, task: rlvr.Task, completion: Any) -> rlvr.Verdict:
        if isinstance(completion, str):
            return self._of_patch(task, completion)
        return _verdict(task, completion.final)

    def _of_patch(self, task: rlvr.Task, reply: str) -> rlvr.Verdict:
        patch = patch_in(reply)
        if patch is None:
            return rlvr.Verdict(rlvr.Outcome.UNPARSED, why="no ```diff block in the completion")
        try:
            files = apply_patch(task.meta["files"], patch)
        except PatchError as error:
            return rlvr.Verdict(rlvr.Outcome.WRONG, why=f"patch: {error}", answer=patch)
        patched_files = {path: text.encode("utf-8", "replace") for path, text in files.items()}
        box = Box(sandbox(_LIMITS, level=self.sandbox), patched_files)
        return _verdict(task, self.grade(task, box), patch)

    def example(self, task: rlvr.Task) -> str:
        files = task.meta["files"]
        right = task.reference["files"]
        return f"```diff\n{patch_between(files, right)}\n```"

    def example_episode(self, task: rlvr.Task) -> Sequence[str | rlvr.Ask]:
        return self.turns_of(task, self.example(task))

    def turns_of(self, task: rlvr.Task, reply: str) -> Sequence[str | rlvr.Ask]:
        """The turns of an episode that do what a reply with a patch says.

        Args:
            task: of this environment.
            reply: with the patch; one that cannot be applied changes nothing.
        """
        if not self.tools:
            return [reply]
        before, after = task.meta["files"], {}
        with suppress(PatchError):
            after = apply_patch(before, patch_in(reply) or "")
        lines = [
            f"printf %s {shlex.quote(text)} > {shlex.quote(path)}"
            for path, text in after.items()
            if text != before.get(path)
        ]
        return [rlvr.Ask("bash", {"command": "\n".join(lines)}), "Done."]


def _sources(variant: Variant, files: Mapping[str, str]) -> dict[str, str]:
    return {f"{_SOURCES}/{variant.name}/{path}": text for path, text in files.items()}


def _files_to_change(variant: Variant, row: Found) -> dict[str, str]:
    """The files to be changed, as they should be."""
    paths = {variant.compose(edit[0]) for edit in row.edits}
    return _sources(variant, {path: variant.files[path] for path in sorted(paths)})


def _describe(outcome: Sequence[object]) -> str:
    """What a case comes to, in words."""
    kind, what = outcome
    return f"returns {what!r}" if kind == "returns" else f"raises {what}"


def _verdict(task: rlvr.Task, final: object, answer: str | None = None) -> rlvr.Verdict:
    """CORRECT if all hidden tests pass; what still fails is said before what has ceased to pass."""
    results = final if isinstance(final, Mapping) else {}
    for which, names in (("still-fails", "decides"), ("broken", "keeps")):
        # "pass" alone: an error, a skip and a missing test have failed.
        failed = [name for name in task.reference[names] if results.get(name) != "pass"]
        if failed:
            why = f"{which}: {len(failed)} of {len(task.reference[names])} hidden tests"
            return rlvr.Verdict(rlvr.Outcome.WRONG, why=why, answer=answer)
    return rlvr.Verdict(rlvr.Outcome.CORRECT, why="all hidden tests pass", answer=answer)
