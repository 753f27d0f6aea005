"""Work for programs: mutants of the reference solution, and what models wrote.

Programs that read standard input are those of stdio; here are Python's functions.  A witness is an
input of the task's domain on which the work returns another value than the reference solution.
All programs run in the sandbox, a few hundred inputs a request; replies are read in the reader.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias

from rlvr.environment import seeded
from rlvr.sandbox import Limits, Program, ProgramCall, TestSuite
from rlvr.testing.work.domain import Domain, Input, nudged, proposals, smaller
from rlvr.testing.work.maker import Maker, Untested, Witness, Work, serves
from rlvr.testing.work.stdio import CodeWork, FedPrograms, with_cases
from rlvr.text import prompt_text
from rlvr.types import JsonDict, Task
from rlvr.verifiers.answers import Answer
from rlvr.verifiers.code import (
    CallCase,
    CodeVerifier,
    StdioCase,
    find_program,
)
from rlvr.verifiers.code.asserts import name_entry_point, split
from rlvr.verifiers.code.cases import CodeReference
from rlvr.verifiers.code.equality import Equality
from rlvr.verifiers.code.operators import draw_mutants, mutants, reorder_sets, rewrites

__all__ = ["CalledFunctions", "Programs"]

_SLIPS: Final = 1000  # mutants of a program
_SINGLES: Final = 4  # for one of two slips
_INPUTS: Final = 240
_MORE: Final = 600
_AT_CONSTANTS: Final = 120
_DOUBTFUL: Final = 80
_TRIES: Final = 6000  # proposals for these inputs
# Of 240 inputs; the rest is tried only where these agree.
_FIRST: Final = 48  # inputs that are tried first: most work fails on one of them
_CALL_CPU_S: Final = 0.25
_TOTAL_CPU_S: Final = 2.0
_SLOWER: Final = 10  # times the reference's CPU time, beyond which work is set aside
# Floats that differ less are one value to tests that were written by hand.
_TOLERANCE: Final = Equality(iterators=True, rel_tol=1e-6, abs_tol=1e-6, nan=True)
_SHRINKINGS: Final = 8
_SEEDS: Final = (1, 2)
_LONG_CASE: Final = 2000  # characters of a test that is added
_CHUNK: Final = 400  # inputs that are looked at together

# "returns 0", "an empty list", "-> ''": a prompt that names what stands for nothing.
_NAMED: Final = r"(?:returns?|outputs?|gives?|or|be|is|to|[=-]>|==?|➞)\s*"
_NOTHING: Final = {
    "0": _NAMED + r"0\b|\bzero\b",
    "0.0": _NAMED + r"0(?:\.0)?\b|\bzero\b",
    "''": r"empty|" + _NAMED + r"(?:''|\"\")(?![\w'\"])",
    "[]": r"empty|\[\]",
    "()": r"empty|\(\)",
    "{}": r"empty|\{\}",
    "None": r"[Nn]one",
}
"""Values that stand for nothing, and how a prompt names them."""

_AreMeant: TypeAlias = "Callable[[Sequence[Input]], Sequence[bool]]"


@dataclass
class _Subject:
    """What is known of a task.

    Attributes:
        solution: the reference solution.
        like: a case like the task's own: the function's name and how values are compared.
        cases: inputs of the domain with the reference's values; the known ones first.
        doubtful: inputs that may lie outside of it.
        are_meant: which inputs the domain has.
        limits: of a run over all cases.
        constants: of the prompt and the solution.
        own_choice: values that stand for nothing, and that only the reference chose.
        more: inputs for work that agrees on all cases; None until there is such work.
    """

    solution: str
    like: CallCase
    cases: list[CallCase]
    doubtful: list[CallCase]
    are_meant: _AreMeant
    limits: Limits
    constants: Sequence[object]
    own_choice: Collection[str]
    more: list[CallCase] | None = None


@serves(CodeVerifier)
class Programs(Maker):
    """The maker for a task's kind of program: its cases say which it is."""

    def __init__(self, env: Any, workers: int = 1) -> None:
        super().__init__(env, workers)
        self._called, self._fed = CalledFunctions(env, workers), FedPrograms(env, workers)

    def wrong(self, task: Task, rng: Random) -> Iterator[Work]:
        return self._maker(task).wrong(task, rng)

    def right(self, task: Task, rng: Random) -> Iterator[Work]:
        return self._maker(task).right(task, rng)

    def witness(self, task: Task, work: Work) -> Witness | None:
        return self._maker(task).witness(task, work)

    def mend(self, task: Task, witnesses: Sequence[Witness]) -> Task | None:
        return self._maker(task).mend(task, witnesses)

    def dissent(self, task: Task, witness: Witness, works: Sequence[Work]) -> int:
        return self._maker(task).dissent(task, witness, works)

    def _maker(self, task: Task) -> Maker:
        cases = self._called.read(task).cases
        is_fed = not isinstance(cases, TestSuite) and isinstance(cases[0], StdioCase)
        return self._fed if is_fed else self._called


class CalledFunctions(CodeWork[_Subject, CallCase]):
    """Mutants of the reference solution, one and two slips each."""

    def wrong(self, task: Task, rng: Random) -> Iterator[Work]:
        source = self.subject(task).solution
        plain = ast.unparse(ast.parse(source))
        for number, mutant in enumerate(draw_mutants(mutants(source), _SLIPS, rng)):
            yield _work(mutant.source, mutant.operator)
            if number % _SINGLES == _SINGLES - 1:
                for double in draw_mutants(mutants(mutant.source), 2, rng):
                    if double.source != plain:  # the second slip may take back the first
                        yield _work(double.source, "several")
                        break

    def right(self, task: Task, rng: Random) -> Iterator[Work]:
        yield Work(self.example(task), "example")
        for rewritten in rewrites(self.subject(task).solution):
            yield _work(rewritten.source, rewritten.operator)

    def witness(self, task: Task, work: Work) -> Witness | None:
        subject, reference = self.subject(task), self.read(task)
        program = _program(work.text, reference)
        if program is None:
            return Witness("no program", "a program", work.text[:200])
        own_count = len(self._calls(reference))
        doubtful = None
        for cases, is_doubtful in self._stages(task, subject, own_count, work, program.text):
            differing = self._first_difference(program.text, cases, subject.limits)
            # Slow work differs in nothing; a doubtful difference that was found before is kept.
            if isinstance(differing, Witness):
                return doubtful or differing
            if differing is None:
                continue
            # A difference at one of the task's own inputs needs no shrinking: the tests have it.
            if differing[0] in subject.cases[:own_count]:
                return _witness(*differing)
            case, got = self._shrunk(subject, program.text, *differing, is_doubtful)
            witness = _witness(case, got)
            # A difference in rounding alone is doubtful.
            if not is_doubtful and not self._is_rounding(subject, program.text, case):
                return witness
            doubtful = doubtful or dataclasses.replace(witness, is_doubtful=True)
        return doubtful

    def _stages(
        self, task: Task, subject: _Subject, own: int, work: Work, source: str
    ) -> Iterator[tuple[Sequence[CallCase], bool]]:
        """Inputs to try, most work failing on the first few; and whether they may lie outside of
        the domain.

        What a model wrote, if it agrees on all of them, is tried on more, and at its own constants.
        A slip is not: one that agrees so far nearly always changes nothing.
        """
        yield subject.cases[:own], False
        yield subject.cases[own:_FIRST], False
        yield subject.cases[_FIRST:], False
        if work.operator == "model":
            if subject.more is None:
                subject.more = self._more(task, subject, subject.constants, _MORE)
            yield subject.more, False
            # What only the model's program names, such as a special case of its own.
            strange = [value for value in _constants(source, "") if value not in subject.constants]
            if strange:
                yield self._more(task, subject, strange, _AT_CONSTANTS), False
        yield subject.doubtful, True

    def _more(
        self, task: Task, subject: _Subject, constants: Sequence[object], count: int
    ) -> list[CallCase]:
        """More inputs of the domain with the reference's values, made from those that there are."""
        rng = seeded("more inputs", task.id, repr(constants))
        known_args = [tuple(case.args) for case in subject.cases]
        inside, _ = _inputs(known_args, subject.are_meant, constants, rng, count)
        valued, _ = self._value_inputs(subject.solution, subject.like, inside)
        every = [*subject.cases, *valued]
        cases, _ = self._without_ties(
            subject.solution, subject.like, every, known_args, subject.own_choice
        )
        old = set(map(id, subject.cases))
        return [case for case in cases if id(case) not in old]

    def dissent(self, task: Task, witness: Witness, works: Sequence[Work]) -> int:
        subject, reference = self.subject(task), self.read(task)
        if not isinstance(witness.case, CallCase):
            return 0
        votes: Counter[str] = Counter()
        for work in works:
            program = _program(work.text, reference)
            if program is not None:
                [case], _ = self._values(program.text, subject.like, [tuple(witness.case.args)])
                # Among paid works that have another value than the reference: the commonest one.
                if case is not None and not _agree(witness.case, case):
                    votes[repr(case.expected)] += 1
        return max(votes.values(), default=0)

    def _is_rounding(self, subject: _Subject, source: str, case: CallCase) -> bool:
        """Whether a program differs only where floats are rounded: it agrees on all inputs that
        differ by a little."""
        near = nudged(tuple(case.args))
        right, _ = self._values(subject.solution, subject.like, near)
        values, _ = self._values(source, subject.like, near)
        compared = [
            value is not None and _agree(right_value, value)
            for right_value, value in zip(right, values, strict=True)
            if right_value is not None
        ]
        return bool(compared) and all(compared)

    def mend(self, task: Task, witnesses: Sequence[Witness]) -> Task | None:
        reference = dict(task.reference)
        cases = [witness.case for witness in witnesses if isinstance(witness.case, CallCase)]
        if "test" in reference:
            lines = [line for case in cases if (line := _assertion(case, reference)) is not None]
            test = _with_lines(reference, lines) if lines else None
            if test is None:
                return None
            return dataclasses.replace(task, reference=reference | {"test": test})
        cases = [case for case in cases if _is_json(case)]
        if "fn_name" not in reference:
            return None
        return with_cases(task, [(list(case.args), case.expected) for case in cases])

    # ---------------------------------------------------------------------- what is known of a task

    def _calls(self, asked: CodeReference) -> list[CallCase]:
        """The task's own calls; of tests that are more than calls, those whose arguments are
        written out."""
        cases = asked.cases
        if isinstance(cases, TestSuite):
            suite = name_entry_point(cases)
            calls = split(suite)
            found_calls = (
                list(calls) if calls else list(_written_calls(suite.test, suite.entry_point))
            )
        else:
            found_calls = [case for case in cases if isinstance(case, CallCase)]
        # Keywords and objects cannot be written as a case.
        return [case for case in found_calls if not case.kwargs and _is_plain(case.args)]

    def examine(self, task: Task) -> _Subject:
        reference = self.read(task)
        program = _program(self.example(task), reference)
        calls = self._calls(reference)
        if program is None or not calls:
            raise Untested("its tests call no Python function with values that are written out")
        solution = f"{reference.imports}\n{program.text}" if reference.imports else program.text
        try:
            ast.parse(solution)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise Untested(f"its reference solution cannot be read: {error}") from None
        judged = self.verifier.judge_program(solution, reference)
        if not judged.accepted:
            raise Untested(f"its reference solution fails its own tests: {judged.why}")
        like = _like(calls)
        prompt = prompt_text(task.prompt)
        known_args = [tuple(case.args) for case in calls]
        known_args += [
            args for args in _shown_calls(prompt, like.name) if len(args) == len(known_args[0])
        ]
        # Each input once, those of the tests before those of the prompt.
        known_args = list({repr(args): args for args in known_args}.values())
        names = _argument_names(solution, like.name)
        domain = Domain(known_args, f"{prompt}\n{solution}", prompt, names)
        are_meant = self._row_domain(task, known_args) or (
            lambda inputs: list(map(domain.has, inputs))
        )
        rng = seeded("inputs", task.id)
        constants = _constants(solution, prompt)
        inside, outside = _inputs(known_args, are_meant, constants, rng, _INPUTS)
        cases, limits = self._value_inputs(solution, like, [*known_args, *inside], strict=True)
        # Half of the tests' own inputs must have a stable value.
        if sum(case.args in known_args for case in cases) < len(known_args[: len(calls)]) // 2:
            raise Untested("its reference solution hangs or differs between runs")
        own_choice = _own_choice(cases, known_args, prompt)
        cases, ties = self._without_ties(solution, like, cases, known_args, own_choice)
        doubtful, _ = self._value_inputs(solution, like, outside)
        return _Subject(
            solution, like, cases, [*ties, *doubtful], are_meant, limits, constants, own_choice
        )

    def _without_ties(
        self,
        solution: str,
        like: CallCase,
        cases: list[CallCase],
        known: Sequence[Input],
        own_choice: Collection[str],
    ) -> tuple[list[CallCase], list[CallCase]]:
        """Cases, and those where several values may be right.

        Where the order of a list matters for none of the known inputs, it decides a tie where it
        does.  A value that stands for nothing (0, an empty text or list), which no known input has
        and the prompt does not name, is the reference's own choice.
        """
        ties = [case for case in cases if repr(case.expected) in own_choice]
        cases = [case for case in cases if repr(case.expected) not in own_choice]
        for at in range(len(known[0])):
            turned = [_turn_list(tuple(case.args), at) for case in cases]
            if not any(turned):
                continue
            values, _ = self._values(solution, like, [args or () for args in turned])
            same = [
                args is None or (value is not None and _agree(case, value))
                for case, args, value in zip(cases, turned, values, strict=True)
            ]
            of_known = [
                is_same
                for case, args, is_same in zip(cases, turned, same, strict=True)
                if args is not None and case.args in known
            ]
            # In several known inputs the list was turned, and in none of them did it matter.
            if len(of_known) > 1 and all(of_known):
                ties += [case for case, is_same in zip(cases, same, strict=True) if not is_same]
                cases = [case for case, is_same in zip(cases, same, strict=True) if is_same]
        return cases, ties

    def _row_domain(self, task: Task, known: Sequence[Input]) -> _AreMeant | None:
        """The function `domain` of the task's row, asked in the sandbox; None if it has none."""
        source = task.meta.get("domain")
        if not isinstance(source, str) or "def domain" not in source:
            return None

        def are_meant(inputs: Sequence[Input]) -> list[bool]:
            values, _ = self._values(source, CallCase("domain"), inputs)
            return [value is not None and value.expected is True for value in values]

        if not all(are_meant(known)):
            raise Untested("its domain refuses inputs of its own tests")
        return are_meant

    # ---------------------------------------------------------------------------- running programs

    def _value_inputs(
        self, solution: str, like: CallCase, inputs: Sequence[Input], strict: bool = False
    ) -> tuple[list[CallCase], Limits]:
        """Inputs with the reference's values, where it has one and gives it again: asked in the
        other order, and where sets are gone through as under two other hash seeds.  With `strict`
        one without sets that gives another value is `Untested`: others may agree by chance."""
        forth, cpu_s = self._values(solution, like, inputs)
        reordered = [reorder_sets(solution, seed) for seed in _SEEDS]
        variants = [variant for variant in reordered if variant is not None]
        cases = []
        # Asked backwards: what one call leaves behind would show.
        again = [
            self._values(variant, like, inputs[::-1])[0][::-1] for variant in variants or [solution]
        ]
        for case, *values in zip(forth, *again, strict=True):
            if case is not None and all(
                value is not None and _agree(case, value) for value in values
            ):
                cases.append(case)
            elif strict and not variants and case is not None and values[0] is not None:
                # Without sets there is no hash seed that could explain it.
                raise Untested("its reference solution differs between runs")
        memory_mib = self.verifier.limits.memory_mib
        return cases, Limits(cpu_s=max(_CALL_CPU_S, _SLOWER * cpu_s), memory_mib=memory_mib)

    def _values(
        self, source: str, like: CallCase, inputs: Sequence[Input]
    ) -> tuple[list[CallCase | None], float]:
        """The case of each input with what the program returns; None where it raises, hangs or
        returns no value."""
        cases: list[CallCase | None] = []
        cpu_s = 0.0
        # The program may end during an input, and is then started behind it: six times in all.
        for _ in range(6):
            remaining = inputs[len(cases) :]
            if not remaining:
                break
            done = self.sandbox.call(
                Program("python", source),
                [ProgramCall(like.name, args, {}, like.then) for args in remaining],
                limits=Limits(cpu_s=_TOTAL_CPU_S, memory_mib=self.verifier.limits.memory_mib),
                case_cpu_s=_CALL_CPU_S,
            )
            cpu_s += done.run.cpu_s
            for args, reply in zip(remaining, done.replies, strict=True):
                if reply is None:
                    break
                usable = reply.error is None and reply.line is None
                case = dataclasses.replace(like, args=args, expected=reply.built)
                # A case that asks for truth asks for the truth that the reference gives.
                if usable and like.rule in ("true", "false"):
                    case = dataclasses.replace(case, rule="true" if reply.built else "false")
                cases.append(case if usable else None)
            if len(cases) < len(inputs):
                cases.append(None)  # the program ended during this one
        return [*cases, *[None] * (len(inputs) - len(cases))], cpu_s

    def _first_difference(
        self, source: str, cases: Sequence[CallCase], limits: Limits
    ) -> tuple[CallCase, str] | Witness | None:
        total_cpu_s = max(_TOTAL_CPU_S, limits.cpu_s)
        return self.differing(Program("python", source), cases, limits, total_cpu_s=total_cpu_s)

    def _shrunk(
        self, subject: _Subject, source: str, case: CallCase, got: str, is_doubtful: bool
    ) -> tuple[CallCase, str]:
        """A simpler input on which the program still differs."""
        for _ in range(_SHRINKINGS):
            simpler = list(itertools.islice(smaller(tuple(case.args)), 40))
            if not is_doubtful:
                simpler = list(itertools.compress(simpler, subject.are_meant(simpler)))
            cases, _ = self._value_inputs(subject.solution, subject.like, simpler)
            if not is_doubtful:
                cases = [
                    simpler_case
                    for simpler_case in cases
                    if repr(simpler_case.expected) not in subject.own_choice
                ]
            differing = self._first_difference(source, cases, subject.limits)
            if differing is None or isinstance(differing, Witness):
                break
            case, got = differing
        return case, got


def _program(text: str, asked: CodeReference) -> Answer | None:
    return find_program(text, "python", prompt=asked.prompt, entry_point=asked.entry_point)


def _work(source: str, operator: str) -> Work:
    return Work(f"```python\n{source}\n```", operator)


def _witness(case: CallCase, got: str) -> Witness:
    arguments = ", ".join(map(repr, case.args))
    return Witness(f"{case.name}({arguments})", case.wanted(), got, case=case)


def _agree(one: CallCase, other: CallCase) -> bool:
    try:
        return one.rule == other.rule and one.equality.holds(other.expected, one.expected)
    except (ArithmeticError, TypeError, ValueError, RecursionError):
        return False


def _own_choice(cases: Sequence[CallCase], known: Sequence[Input], prompt: str) -> set[str]:
    """Values that stand for nothing, which no known input has and the prompt does not name."""
    # What a known input gives is no free choice.
    outputs = {repr(case.expected) for case in cases if case.args in known}
    return {
        name
        for name, words in _NOTHING.items()
        if name not in outputs and not re.search(words, prompt)
    }


def _turn_list(args: Input, at: int) -> Input | None:
    """The input with one list in the opposite order; None where that changes nothing."""
    value = args[at] if at < len(args) else None
    if not isinstance(value, list | tuple) or value == value[::-1]:
        return None
    return (*args[:at], value[::-1], *args[at + 1 :])


def _like(calls: Sequence[CallCase]) -> CallCase:
    """A case of the task's function, compared as the task's own cases compare it."""
    first = calls[0]
    steps = first.then if all(case.then == first.then for case in calls) else ()
    # Only truth values: the function may return anything that is as true.
    only_truth = all(case.rule in ("true", "false") for case in calls)
    tolerance = max((case.tolerance for case in calls), default=0.0)
    equality = dataclasses.replace(
        _TOLERANCE,
        abs_tol=max(_TOLERANCE.abs_tol, tolerance),
        sequences=first.equality.sequences,
        keys=first.equality.keys,
    )
    rule = "true" if only_truth else "equal"
    return CallCase(first.name, then=steps, equality=equality, rule=rule)  # type: ignore[arg-type]


def _inputs(
    known: Sequence[Input],
    are_meant: _AreMeant,
    constants: Sequence[object],
    rng: Random,
    count: int,
) -> tuple[list[Input], list[Input]]:
    """New inputs of the domain, and some that may lie outside."""
    inside: list[Input] = []
    outside: list[Input] = []
    known_keys = {repr(args) for args in known}
    proposed = itertools.islice(proposals(known, constants, rng), _TRIES)
    while len(inside) < count and (chunk := list(itertools.islice(proposed, _CHUNK))):
        new = {key: args for args in chunk if (key := repr(args)) not in known_keys}
        known_keys |= new.keys()
        short = [args for key, args in new.items() if len(key) <= _LONG_CASE]
        for args, is_meant in zip(short, are_meant(short), strict=True):
            (inside if is_meant else outside).append(args)
    return inside[:count], outside[:_DOUBTFUL]


def _argument_names(solution: str, name: str) -> list[str]:
    for node in ast.walk(ast.parse(solution)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return [arg.arg for arg in node.args.args]
    return []


def _constants(solution: str, prompt: str) -> list[object]:
    try:
        nodes = list(ast.walk(ast.parse(solution)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    values = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return [value for value in values if type(value) in (int, str) and value not in (prompt,)]


def _is_plain(value: object) -> bool:
    """Whether a value can be written out."""
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False


def _written_calls(test: str, name: str | None) -> Iterator[CallCase]:
    """Calls in a test whose arguments are literals."""
    try:
        nodes = list(ast.walk(ast.parse(test)))
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id=called), keywords=[]) if called in ("candidate", name):
                args = _literals(node)
                if args is not None and name is not None:
                    yield CallCase(name, args)


def _shown_calls(prompt: str, name: str) -> Iterator[Input]:
    """Calls of a function that a prompt shows."""
    at = prompt.find(f"{name}(")
    while at >= 0:
        ends = [n + 1 for n in range(at, min(at + 400, len(prompt))) if prompt[n] == ")"]
        for end in ends[:8]:
            try:
                node = ast.parse(prompt[at:end], mode="eval").body
            except (SyntaxError, ValueError):
                continue
            args = _literals(node) if isinstance(node, ast.Call) and not node.keywords else None
            if args is not None:
                yield args
            break
        at = prompt.find(f"{name}(", at + 1)


def _literals(node: ast.Call) -> Input | None:
    try:
        return tuple(ast.literal_eval(arg) for arg in node.args)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


# ----------------------------------------------------------------------------- tests that are added


def _assertion(case: CallCase, reference: dict[str, object]) -> str | None:
    """A line of a suite for a case; None where the value cannot be written out exactly."""
    name = "candidate" if reference.get("style") == "check" else case.name
    call = f"{name}({', '.join(map(repr, case.args))})"
    for function in case.then:
        call = f"{function}({call})"
    if case.rule in ("true", "false"):
        return f"assert {call}" if case.rule == "true" else f"assert not {call}"
    if isinstance(case.expected, float):
        # As near as values are compared, relative or absolute.
        close = max(case.equality.abs_tol, case.equality.rel_tol * abs(case.expected))
        return f"assert abs({call} - {case.expected!r}) < {close!r}"
    line = f"assert {call} == {case.expected!r}"
    # A float within a list would be compared exactly by `==`.
    exact = _is_plain(case.expected) and not _has_float(case.expected)
    return line if exact and len(line) <= _LONG_CASE else None


def _has_float(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_float, value.values())) or any(map(_has_float, value))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_float, value))
    return isinstance(value, float) and value != int(value)


def _with_lines(reference: JsonDict, lines: Sequence[str]) -> str | None:
    """The suite with more asserts: at the end, or at the end of `check`."""
    test: str = reference["test"]
    if reference.get("style", "asserts") == "asserts":
        return "\n".join([test.rstrip("\n"), *lines])
    for node in ast.parse(test).body:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and node.end_lineno:
            texts = test.split("\n")
            # In line with the last statement of `check`.
            indent = " " * node.body[-1].col_offset
            return "\n".join(
                [
                    *texts[: node.end_lineno],
                    *(indent + line for line in lines),
                    *texts[node.end_lineno :],
                ]
            )
    return None


def _is_json(case: CallCase) -> bool:
    try:
        return bool(
            json.loads(json.dumps([case.args, case.expected])) == [list(case.args), case.expected]
        )
    except (TypeError, ValueError):
        return False
