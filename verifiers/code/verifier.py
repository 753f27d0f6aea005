"""`CodeVerifier`: extract → judge in the sandbox → verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from rlvr.errors import DataError, SandboxFailed, UsageError
from rlvr.sandbox import Limits, Program, Sandbox, TestSuite
from rlvr.sandbox.languages import LANGUAGES, require_language
from rlvr.sandbox.levels import LEVELS
from rlvr.sandbox.toolchains import missing
from rlvr.text import after_thinking
from rlvr.types import Outcome, Task, Verdict
from rlvr.validate import require_one_of, require_whole
from rlvr.verifiers.base import BaseVerifier
from rlvr.verifiers.code.cases import (
    CheckerProgram,
    CodeReference,
    Interactor,
    StdioCase,
    read_cases,
)
from rlvr.verifiers.code.checker import Compare, refuse_empty
from rlvr.verifiers.code.compare import comparator
from rlvr.verifiers.code.continuation import precede
from rlvr.verifiers.code.judge import judge as run_cases
from rlvr.verifiers.code.probes import Probes
from rlvr.verifiers.code.program import find_program
from rlvr.verifiers.code.shared import shared_sandbox
from rlvr.verifiers.code.verdicts import CaseVerdict, Judgement

__all__ = ["CodeVerifier"]

_LIMITS: Final = Limits(cpu_s=5.0, wall_s=10.0)
# below the 30 s after which a scorer kills an item: that is UNSCORED
_TOTAL_CPU_S, _TOTAL_WALL_S = 20.0, 24.0


@dataclass(frozen=True, slots=True)
class CodeVerifier(BaseVerifier[str, CodeReference]):
    """Verifies programs: does the completion's program pass the reference's cases?

        >>> cases = {"inputs": ["1"], "outputs": ["2"]}
        >>> CodeVerifier().verify("```python\\nprint(int(input()) + 1)\\n```", cases).why
        'AC'

    The reference is plain JSON: see `rlvr.verifiers.code.cases`.  The reasons: `AC` is CORRECT;
    `no-program` UNPARSED; `WA TLE MLE OLE ILE RE CE` WRONG, with partial credit if `partial` is
    set.

    Attributes:
        language: the language of the programs, or several: the fence then says which one a program
            is in.  Functions are called, and tests run beside a program, in Python alone.
        compare: how standard output is compared: a comparator or its name, or a checker `Program`.
        limits: of one case, and of a suite as a whole.
        partial: True: all cases are judged, and a wrong program's value is the fraction of the
            cases that it passed.
        report: True: all cases are judged, and `detail["tests"]` has an entry for each: its index,
            ending, CPU seconds and peak MiB of its run (None where cases share one), and the
            expected and the given output, shortened. Times differ from run to run, and so do such
            details.
        most_memory_mib: the most that a reference may give a program, an interactor or itself in
            place of `limits`; its seconds are bounded by the totals.
        total_cpu_s, total_wall_s: seconds for all cases of one completion together; beyond them the
            verdict is TLE.
        packages: distributions that programs may import, such as ("numpy",).
        allow_missing: guarantees of the sandbox that may be missing on this host, by name.
        sandbox: the level of its isolation, "namespaces" or "restricted"; see
            `rlvr.sandbox.Sandbox`.  A verdict's `detail` names any other than the first.
        python: path of another interpreter for Python programs, or of a virtual environment; see
            `Sandbox`.
        workers: number of programs that run at once in this process; each worker of a scorer is a
            process of its own.

    Raises:
        UsageError: a setting cannot work.
        MissingDependency: this host has no compiler or interpreter for a language.
    """

    language: str | Sequence[str] = "python"
    compare: Compare = "lines"
    limits: Limits = _LIMITS
    partial: bool = False
    report: bool = False
    most_memory_mib: int = 2048
    total_cpu_s: float = _TOTAL_CPU_S
    total_wall_s: float = _TOTAL_WALL_S
    packages: Sequence[str] = ()
    allow_missing: Sequence[str] | frozenset[str] = ()
    sandbox: str = "namespaces"
    workers: int | str = 1
    python: str | None = None
    version: ClassVar[int] = 3
    reference_form: ClassVar[str] = "cases: inputs and outputs, calls, or a test suite"
    rewritings: ClassVar[tuple[str, ...]] = ()  # programs
    reference_example: ClassVar[object] = {"inputs": ["1"], "outputs": ["2"]}

    def __post_init__(self) -> None:
        for name in self._languages:
            require_language("language", name)
        if not isinstance(self.language, str):
            if not self.language:
                raise UsageError("language is empty; name at least one, such as 'python'")
            object.__setattr__(self, "language", tuple(self.language))
        for (
            name
        ) in self._languages:  # not at the first program: a completion's fence may choose one
            if error := missing(name):
                raise error
        require_one_of("sandbox", self.sandbox, LEVELS)
        require_whole("most_memory_mib", self.most_memory_mib, 1)
        if not isinstance(self.compare, Program | CheckerProgram | Interactor):
            comparator(self.compare)
        for name in ("packages", "allow_missing"):
            names = getattr(self, name)
            if isinstance(names, str):
                raise UsageError(f"{name} is {names!r}; it takes several names: ({names!r},)")
            object.__setattr__(
                self,
                name,
                tuple(sorted(names)) if isinstance(names, frozenset | set) else tuple(names),
            )

    def read(self, reference: object) -> CodeReference:
        """Read a reference.

        Args:
            reference: see `verify`.

        Raises:
            DataError: it cannot be read, needs another language or a compiler that is missing here,
                or a program that does nothing would pass.
        """
        code_reference = read_cases(reference)
        for program in _own_programs(code_reference):
            if error := missing(program.language):
                raise DataError(f"the reference brings a program: {error}")
        interactor = (
            code_reference.checker if isinstance(code_reference.checker, Interactor) else None
        )
        sizes = [code_reference.memory_mib, None if interactor is None else interactor.memory_mib]
        if (peak := max(mib or 0 for mib in sizes)) > self.most_memory_mib:
            raise DataError(
                f"the reference's memory_mib is {peak}; references come from data, so the "
                f"verifier's most_memory_mib, "
                f"{self.most_memory_mib}, is the most that one may ask for"
            )
        fed = (
            []
            if isinstance(code_reference.cases, TestSuite)
            else [c for c in code_reference.cases if isinstance(c, StdioCase)]
        )
        if fed:
            refuse_empty(code_reference.checker or self.compare, fed)
        elif not self._languages_of(code_reference):
            raise DataError(
                "the reference calls functions, which takes Python; "
                f"the language is {', '.join(self._languages)}"
            )
        return code_reference

    @property
    def _languages(self) -> tuple[str, ...]:
        return (self.language,) if isinstance(self.language, str) else tuple(self.language)

    def _languages_of(self, asked: CodeReference) -> tuple[str, ...]:
        """The languages in which a program can be judged on this reference."""
        cases = asked.cases
        if not isinstance(cases, TestSuite) and isinstance(cases[0], StdioCase):
            return self._languages
        return tuple(name for name in self._languages if LANGUAGES[name].calls)

    def extract(self, text: str, task: Task | None) -> str | Verdict:
        """The text after the thinking: which block is the program depends on the names that the
        reference asks for.

        Args:
            text: the completion.
            task: not looked at.
        """
        if after_thinking(text) is None:
            return Verdict(Outcome.UNPARSED, why="no-program")
        return text

    def judge(self, answer: str, reference: CodeReference) -> Verdict:
        """Judge the program in a completion.

        Args:
            answer: from `extract`.
            reference: from `read_cases`.

        Raises:
            IsolationUnavailable, SandboxFailed: we failed.
        """
        program = find_program(
            answer,
            self._languages_of(reference),
            prompt=reference.prompt,
            entry_point=reference.entry_point,
        )
        if program is None:
            return Verdict(Outcome.UNPARSED, why="no-program")
        judgement = self._judge_source(program.text, reference, program.language)
        if judgement.verdict is CaseVerdict.IE:
            raise SandboxFailed(judgement.why)
        return self._verdict(judgement, program.text)

    def judge_program(self, source: str, reference: object) -> Judgement:
        """Judge a program that need not be searched for; the result has more details than a
        verdict.

        Args:
            source: the program.
            reference: see `verify`; or what `read_cases` returned.

        Raises:
            DataError, IsolationUnavailable: see `verify`.
        """
        code_reference = reference if isinstance(reference, CodeReference) else self.read(reference)
        return self._judge_source(source, code_reference, self._languages_of(code_reference)[0])

    def _judge_source(self, source: str, asked: CodeReference, language: str) -> Judgement:
        return run_cases(
            Program(language, precede(asked.imports, source) if asked.imports else source),
            asked.cases,
            asked.checker or self.compare,
            sandbox=self._shared_sandbox(),
            limits=self._limits(asked, language),
            stop=not (self.partial or self.report),
            total_cpu_s=self.total_cpu_s,
            total_wall_s=self.total_wall_s,
        )

    def _shared_sandbox(self) -> Sandbox:
        return shared_sandbox(
            workers=self.workers,
            python=self.python,
            packages=tuple(self.packages),
            allow_missing=frozenset(self.allow_missing),
            level=self.sandbox,
        )

    def faults(self, reference: object) -> Iterator[tuple[str, str]]:
        """What is wrong with the checker or the interactor; see `BaseVerifier.faults`.

        Args:
            reference: see `verify`.

        Raises:
            DataError, IsolationUnavailable: see `verify`.
        """
        code_reference = self.read(reference)
        judge = code_reference.checker or self.compare
        if isinstance(code_reference.cases, TestSuite) or not isinstance(
            code_reference.cases[0], StdioCase
        ):
            return
        cases = [case for case in code_reference.cases if isinstance(case, StdioCase)]
        limits = self._limits(code_reference, self._languages[0])
        probes = Probes(self._shared_sandbox(), limits, self.total_cpu_s, self.total_wall_s)
        if isinstance(judge, Program):
            judge = CheckerProgram(judge)
        if isinstance(judge, CheckerProgram):
            yield from probes.of_checker(judge, cases)
        elif isinstance(judge, Interactor):
            yield from probes.of_interactor(judge, cases)

    def _limits(self, asked: CodeReference, language: str) -> Limits:
        """The limits of one case: the reference's, where it has some, and no less memory than the
        language needs."""
        limits = self.limits
        if asked.cpu_s is not None:
            limits = replace(limits, cpu_s=asked.cpu_s, wall_s=2 * asked.cpu_s + 1)
        if asked.memory_mib is not None:
            limits = replace(limits, memory_mib=asked.memory_mib)
        lowest = LANGUAGES[language].least_memory_mib
        return limits if limits.memory_mib >= lowest else replace(limits, memory_mib=lowest)

    def _verdict(self, judgement: Judgement, code: str) -> Verdict:
        """The verdict, without times unless asked for: they differ from run to run, and records are
        replayed."""
        detail: dict[str, object] = {
            "verdict": judgement.verdict.value,
            "passed": judgement.passed,
            "cases": judgement.total,
        }
        if self.sandbox != "namespaces":
            detail["sandbox"] = self.sandbox
        if self.report:
            detail["tests"] = [
                case.report(number) for number, case in enumerate(judgement.cases, 1)
            ]
        if judgement.accepted:
            return Verdict(Outcome.CORRECT, why="AC", answer=code, detail=detail)
        value = judgement.fraction if self.partial else 0.0
        why = f"{judgement.verdict}: {judgement.why}"
        return Verdict(Outcome.WRONG, value, why, code, detail)


def _own_programs(asked: CodeReference) -> list[Program]:
    """The programs that a reference brings."""
    judge = asked.checker
    solution = judge.solution if isinstance(judge, Interactor) else None
    return [program for program in (judge and judge.program, solution) if program]
