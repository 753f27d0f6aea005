"""Work for programs that read standard input, in any language: mutants of a reference
solution, and what models wrote.

A witness is an input of the known ones' layout and domain on which the work prints something else
than the reference solution, by the task's own comparison.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Generic, TypeVar

from rlvr.environment import seeded
from rlvr.errors import DataError, MissingDependency
from rlvr.sandbox import Ending, Limits, Program, Sandbox, TestSuite
from rlvr.sandbox.languages import LANGUAGES
from rlvr.testing.work.domain import Domain, proposals, smaller
from rlvr.testing.work.layouts import Layout, layout_of
from rlvr.testing.work.maker import Maker, Untested, Witness, Work
from rlvr.text import prompt_text
from rlvr.types import Task
from rlvr.verifiers.code import CallCase, CaseVerdict, StdioCase, find_program, judge
from rlvr.verifiers.code.cases import CodeReference, Interactor
from rlvr.verifiers.code.checker import Compare
from rlvr.verifiers.code.operators import (
    Mutant,
    draw_mutants,
    mutants,
    reorder_sets,
    rewrites,
)
from rlvr.verifiers.code.shared import shared_sandbox
from rlvr.verifiers.code.tree_operators import tree_mutants, tree_rewrites

__all__ = ["CodeWork", "FedPrograms", "with_cases"]

_INPUTS: Final = 60
_FIRST: Final = 8  # inputs that are tried first
_TRIES: Final = 3000
_SLIPS: Final = 200
_TOTAL_S: Final = 3.0  # of the reference on new inputs, which decide how many there are
_SLOWER: Final = 10  # times the reference's CPU time, beyond which work is set aside
_LEAST_S: Final = 0.1
_QUICK_S: Final = 0.03  # a reference that takes longer is not asked for smaller inputs
_SHRINKINGS: Final = 6
_SIMPLER: Final = 16
_OUTPUT: Final = 1 << 16  # bytes of an output; a longer one makes no case
_PYTHON: Final = ("python", "pypy")
_KEPT: Final = 64  # tasks

_Subject = TypeVar("_Subject")
_Case = TypeVar("_Case", CallCase, StdioCase)


@dataclass
class _FedSubject:
    """What is known of a task: its reference solution, its own cases, new ones, and what makes
    inputs."""

    language: str
    source: str
    own: list[StdioCase]
    new: list[StdioCase]
    layout: Layout | None
    domain: Domain | None
    limits: Limits
    is_quick: bool


class CodeWork(Maker, Generic[_Subject, _Case]):
    """Work that runs as the verifier of programs runs it; what is known of a task is kept."""

    def __init__(self, env: Any, workers: int = 1) -> None:
        super().__init__(env, workers)
        self._subjects: OrderedDict[str, _Subject | Untested] = OrderedDict()
        self._lock = threading.Lock()

    @abstractmethod
    def examine(self, task: Task) -> _Subject:
        """What is known of a task.

        Args:
            task: the task.

        Raises:
            Untested: no work can be made for it.
        """

    def subject(self, task: Task) -> _Subject:
        """What is known of a task, examined once.

        Args:
            task: the task.

        Raises:
            Untested: see `examine`.
        """
        with self._lock:
            subject = self._subjects.get(task.id)
        if subject is None:
            try:
                subject = self.examine(task)
            except Untested as error:
                subject = error
            with self._lock:
                self._subjects[task.id] = subject
                while len(self._subjects) > _KEPT:
                    self._subjects.popitem(last=False)
        if isinstance(subject, Untested):
            raise subject
        return subject

    def differing(
        self, program: Program, cases: Sequence[_Case], limits: Limits, **options: Any
    ) -> tuple[_Case, str] | Witness | None:
        """The first case on which a program differs, with what it gives; or that it is slow.

        Args:
            program, cases, limits, options: as `judge` takes them.

        Raises:
            Untested: the judge failed.
        """
        if not cases:
            return None
        judged = judge(program, cases, sandbox=self.sandbox, limits=limits, **options)
        if judged.accepted:
            return None
        if judged.verdict is CaseVerdict.TLE:
            return Witness("slow", is_slow=True)
        # Our own fault says nothing of the work.
        if judged.verdict is CaseVerdict.IE:
            raise Untested(judged.why)
        at = next(n for n, case in enumerate(judged.cases) if case.verdict is not CaseVerdict.AC)
        failure = judged.first_failure
        if failure is None or not failure.got:
            return cases[at], judged.cases[at].why
        return cases[at], repr(failure.got) if isinstance(cases[at], StdioCase) else failure.got

    def read(self, task: Task) -> CodeReference:
        """The task's reference.

        Args:
            task: the task.

        Raises:
            Untested: it cannot be read.
        """
        try:
            reference: CodeReference = self.verifier.read(task.reference)
        except DataError as error:
            raise Untested(f"its reference cannot be read: {error}") from None
        return reference

    @property
    def sandbox(self) -> Sandbox:
        """The one that the verifier's programs run in."""
        verifier = self.verifier
        return shared_sandbox(
            workers=self.workers,
            python=verifier.python,
            packages=tuple(verifier.packages),
            allow_missing=frozenset(verifier.allow_missing),
            level=verifier.sandbox,
        )


class FedPrograms(CodeWork[_FedSubject, StdioCase]):
    """Mutants of the reference solution, one slip each, that still compile."""

    def wrong(self, task: Task, rng: Random) -> Iterator[Work]:
        subject = self.subject(task)
        source, language = subject.source, subject.language
        every = (
            mutants(source, is_script=True)
            if language in _PYTHON
            else tree_mutants(source, language)
        )
        for mutant in draw_mutants(_readable(every), _SLIPS, rng):
            # A mutant that does not compile is no work: it proves nothing about the tests.
            built = self.sandbox.compile(Program(language, mutant.source))
            if built.ending is Ending.OK:
                yield _work(language, mutant)

    def right(self, task: Task, rng: Random) -> Iterator[Work]:
        yield Work(self.example(task), "example")
        subject = self.subject(task)
        is_python = subject.language in _PYTHON
        every = (
            rewrites(subject.source)
            if is_python
            else tree_rewrites(subject.source, subject.language)
        )
        for rewritten in _readable(every):
            yield _work(subject.language, rewritten)

    def witness(self, task: Task, work: Work) -> Witness | None:
        subject, reference = self.subject(task), self._reference(task)
        candidate = find_program(work.text, self._languages)
        if candidate is None:
            return Witness("no program", "a program", work.text[:200])
        program = Program(candidate.language or subject.language, candidate.text)
        if self.sandbox.compile(program).ending is not Ending.OK:
            return None  # it is refused, and that proves nothing about the tests
        compare = reference.checker or self.verifier.compare
        for cases in (subject.own, subject.new[:_FIRST], subject.new[_FIRST:]):
            differing = self.differing(program, cases, subject.limits, compare=compare)
            if isinstance(differing, Witness):
                return differing
            if differing is not None:
                case, got = self._shrink(program, *differing, subject, compare)
                expected = str(case.stdout)
                return Witness(repr(case.stdin), repr(expected), got, case=case)
        return None

    def mend(self, task: Task, witnesses: Sequence[Witness]) -> Task | None:
        cases = [witness.case for witness in witnesses if isinstance(witness.case, StdioCase)]
        return with_cases(task, [(case.stdin, case.stdout) for case in cases])

    # ---------------------------------------------------------------------- what is known of a task

    @property
    def _languages(self) -> tuple[str, ...]:
        language = self.verifier.language
        return (language,) if isinstance(language, str) else tuple(language)

    def _reference(self, task: Task) -> CodeReference:
        reference = self.read(task)
        if isinstance(reference.checker, Interactor):
            raise Untested("it is interactive: an input alone is no evidence")
        return reference

    def examine(self, task: Task) -> _FedSubject:
        reference = self._reference(task)
        solution = find_program(self.example(task), self._languages)
        if solution is None:
            raise Untested(f"its reference solution is no program in {', '.join(self._languages)}")
        language = solution.language or self._languages[0]
        judged = self.verifier.judge_program(solution.text, reference)
        if not judged.accepted:
            raise Untested(f"its reference solution fails its own tests: {judged.why}")
        cases = () if isinstance(reference.cases, TestSuite) else reference.cases
        stdio_cases = [case for case in cases if isinstance(case, StdioCase)]
        texts = [case.stdin for case in stdio_cases if isinstance(case.stdin, str)]
        layout = layout_of(texts)
        inputs = [args for text in texts if layout and (args := layout.parse(text)) is not None]
        prompt = prompt_text(task.prompt)
        domain = Domain(inputs, f"{prompt}\n{solution.text}", prompt) if inputs else None
        longest = max(case.cpu_s for case in judged.cases)
        least_mib = LANGUAGES[language].least_memory_mib
        limits = Limits(
            cpu_s=_SLOWER * max(_LEAST_S, longest),
            memory_mib=max(self.verifier.limits.memory_mib, least_mib),
        )
        subject = _FedSubject(
            language, solution.text, stdio_cases, [], layout, domain, limits, longest < _QUICK_S
        )
        if layout is not None and domain is not None and inputs[0]:
            rng = seeded("inputs", task.id)
            every = proposals(inputs, _numbers(solution.text), rng)
            # As many as the reference runs in three seconds.
            count = max(_FIRST, min(_INPUTS, int(_TOTAL_S / longest)))
            texts = _texts(layout, domain, itertools.islice(every, _TRIES), set(texts))[:count]
            subject.new = self._values(subject, sorted(texts, key=lambda one: (len(one), one)))
        return subject

    def _values(self, subject: _FedSubject, texts: Sequence[str]) -> list[StdioCase]:
        """Inputs with what the reference prints, where it prints the same three times: Python with
        sets gone through as under other hash seeds."""
        sources = [subject.source] * 3
        if subject.language in _PYTHON:
            reordered = [reorder_sets(subject.source, seed) for seed in (1, 2)]
            sources = [subject.source, *(variant for variant in reordered if variant is not None)]
        printed = [
            self._outputs(Program(subject.language, source), texts, subject.limits)
            for source in sources
        ]
        return [
            StdioCase(text, output)
            for text, output, *reprinted in zip(texts, *printed, strict=True)
            if output is not None and all(repeat == output for repeat in reprinted)
        ]

    def _outputs(self, program: Program, texts: Sequence[str], limits: Limits) -> list[str | None]:
        """What the reference prints; None where it fails, is slow or prints too much."""
        outputs: list[str | None] = []
        while len(outputs) < len(texts):
            # Behind the one at which the program ended.
            remaining = texts[len(outputs) :]
            for run in self.sandbox.run_cases(program, remaining, limits=limits, stop=False):
                is_short = run.ending is Ending.OK and run.output.size <= _OUTPUT
                text = run.output.read().decode(errors="replace") if is_short else None
                outputs.append(text)
        return outputs

    def _shrink(
        self, program: Program, case: StdioCase, got: str, subject: _FedSubject, compare: Compare
    ) -> tuple[StdioCase, str]:
        """A simpler input on which the program still differs; one of the task's own stays."""
        layout, domain = subject.layout, subject.domain
        # One of the task's own inputs stays, as its tests have it; a slow reference is not asked.
        if layout is None or domain is None or case in subject.own or not subject.is_quick:
            return case, got
        for _ in range(_SHRINKINGS):
            args = layout.parse(str(case.stdin))
            if args is None:
                break
            texts = _texts(layout, domain, smaller(args), {str(case.stdin)})[:_SIMPLER]
            cases = self._values(subject, texts)
            differing = self.differing(program, cases, subject.limits, compare=compare)
            if differing is None or isinstance(differing, Witness):
                break
            case, got = differing
        return case, got


def with_cases(task: Task, cases: Sequence[tuple[Any, object]]) -> Task | None:
    """The task with more inputs and outputs; None where there are none, or its reference has no
    such lists.

    Args:
        task: the task.
        cases: an input and an output each.
    """
    reference = task.reference
    if not cases or not {"inputs", "outputs"} <= set(reference):
        return None
    inputs, outputs = zip(*cases, strict=True)
    changed = {
        "inputs": [*reference["inputs"], *inputs],
        "outputs": [*reference["outputs"], *outputs],
    }
    return dataclasses.replace(task, reference={**reference, **changed})


def _work(language: str, mutant: Mutant) -> Work:
    return Work(f"```{LANGUAGES[language].fences[0]}\n{mutant.source}\n```", mutant.operator)


def _texts(layout: Layout, domain: Domain, every: Any, seen: set[str]) -> list[str]:
    """Inputs of the domain as texts, each once."""
    texts: dict[str, None] = {}
    for args in every:
        text = layout.write(args) if domain.has(args) else None
        # Only what reads back as these values is in the layout.
        if text is not None and text not in seen and layout.parse(text) == args:
            texts[text] = None
        if len(texts) >= _INPUTS:
            break
    return list(texts)


def _numbers(source: str) -> list[int]:
    """Whole numbers that a program names."""
    return [int(text) for text in re.findall(r"\b\d{1,6}\b", source)]


def _readable(every: Iterator[Mutant]) -> Iterator[Mutant]:
    """Programs made of a solution.

    Raises:
        Untested: it cannot be parsed, or there is no grammar for that here.
    """
    try:
        yield from every
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Untested(f"its reference solution cannot be read: {error}") from None
    except MissingDependency as error:
        raise Untested(f"no slips can be made in its solution: {error}") from None
