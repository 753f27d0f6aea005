"""The cases that a program is tested with: texts in and out, calls and their
values, or a suite of tests.

In records and data sets the cases are plain JSON:

    {"inputs": ["1 2\\n"], "outputs": ["3\\n"]}
        standard input and output
    {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}
        calls, of a function or of `class Solution`
    {"test": "assert add(1, 2) == 3", "style": "asserts"}
        a suite: also "check", "unittest", "pytest"
    {"inputs": ["37\\n"], "interactor": {"source": "…"}}
        an interactor, which is given the input; "solution": {"source": "…"}, a right program

The first two may also have `cpu_s` and `memory_mib`, limits of one case, and the first a checker
program: `{"checker": {"source": "…", "language": "python", "protocol": "testlib"}}`; see
`rlvr.verifiers.code.checker`. An interactor has these keys and its own `cpu_s` and `memory_mib`;
see `rlvr.verifiers.code.interactive`.

A suite may also have `setup` (trusted code that the tests need) and `entry_point` (the name that is
tested); each of these may have `prompt` (code that a completion may continue).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from rlvr.errors import DataError, brief
from rlvr.sandbox import Program, TestSuite
from rlvr.types import JsonObject
from rlvr.validate import require_number, require_one_of, require_whole
from rlvr.verifiers.code.equality import JSON, STRICT, Equality, show_result

__all__ = [
    "CallCase",
    "Cases",
    "CheckerProgram",
    "CodeReference",
    "Interactor",
    "StdioCase",
    "checked_cases",
    "read_cases",
]

_STYLES: Final = ("check", "asserts", "unittest", "pytest")
# starter code uses `List[int]`, and the contests' judges import it
_TYPING: Final = "from typing import *"
_FORMS = (
    "{'inputs': […], 'outputs': […]}, the same with 'fn_name' or 'interactor', "
    "or {'test': '…', 'style': '…'}"
)


@dataclass(frozen=True, slots=True)
class StdioCase:
    """Standard input, and the standard output that is expected.

    Attributes:
        stdin: text or bytes.
        stdout: text or bytes; None where a checker needs none.
    """

    stdin: str | bytes = ""
    stdout: str | bytes | None = ""


@dataclass(frozen=True, slots=True)
class CallCase:
    """A call, and the value that it should return.

    Attributes:
        name: "f", "Class.method", or the name of a method of `class Solution`.
        args, kwargs: values of Python's plain types, such as numbers, texts, lists and dicts.
        expected: the value that it should return.
        rule: "equal"; or, for an assert without `==`, "is" (the very None, True or False), "true",
            "false", "in" (it equals an item of `expected`), "near" (less than `tolerance` away from
            `expected`) or "near or at".
        equality: the meaning of "equal".
        then: names of Python's functions that are applied to the result, such as ("sorted",).
        tolerance: the greatest difference for "near".
    """

    name: str
    args: Sequence[Any] = ()
    kwargs: JsonObject = field(default_factory=dict)
    expected: Any = None
    rule: Literal["equal", "is", "true", "false", "in", "near", "near or at"] = "equal"
    equality: Equality = STRICT
    then: Sequence[str] = ()
    tolerance: float = 0.0

    def holds(self, value: object, listed: bool = False) -> bool:
        """True if the value is what the call should return.

        Args:
            value: what the call returned.
            listed: the call returned an iterator, and `value` is the list of its items.

        Raises:
            Exception: whatever the values raise when they are compared.
        """
        if self.rule == "is":
            return value is self.expected and not listed
        if self.rule == "equal":
            return (self.equality.iterators or not listed) and self.equality.holds(
                value, self.expected
            )
        if self.rule == "in":
            return not listed and any(self.equality.holds(value, item) for item in self.expected)
        if self.rule.startswith("near"):
            return not listed and self._is_near(value)
        return (listed or bool(value)) == (self.rule == "true")

    def itself(self) -> object:
        """A value that the reference must be able to judge: the expected one, or one of them."""
        return self.expected[0] if self.rule == "in" and self.expected else self.expected

    def wanted(self) -> str:
        """What the call should return, for display."""
        match self.rule:
            case "true" | "false":
                return f"a {self.rule} value"
            case "in":
                return f"one of {show_result(self.expected)}"
            case "near" | "near or at":
                return f"within {self.tolerance:g} of {show_result(self.expected)}"
        return show_result(self.expected)

    def _is_near(self, value: Any) -> bool:
        off = abs(value - self.expected)
        return bool(off < self.tolerance or (self.rule == "near or at" and off == self.tolerance))


Cases: TypeAlias = Sequence[StdioCase] | Sequence[CallCase] | TestSuite


@dataclass(frozen=True, slots=True)
class CheckerProgram:
    """A program that says whether an output is right.

    Attributes:
        program: the checker.
        protocol: "testlib": called with the paths of input, output and answer, it exits with 0 if
            the output is right, with 1, 2, 4 or 8 if it is wrong, and with 7 for points, from 0 to
            1, which its first line has ("points 0.5").  "prints": called with input, answer and
            output, its last line is one number from 0 to 1, as of the checkers of
            open-r1/codeforces.

    Raises:
        UsageError: the protocol is unknown.
    """

    program: Program
    protocol: str = "testlib"

    def __post_init__(self) -> None:
        require_one_of("the checker's protocol", self.protocol, ("testlib", "prints"))


@dataclass(frozen=True, slots=True)
class Interactor:
    """A program that talks with the judged one, reads the test's input, and decides.

    Attributes:
        program: the interactor.
        protocol: "testlib": called with the paths of input, output (which it may write) and answer,
            it exits with 0 if the program is right; the other exit codes are those of a checker.
            "icpc": called with the paths of input, answer and a folder, it exits with 42 or 43
            (ICPC problem package format, legacy version, "Output Validators").
        cpu_s, memory_mib: its limits for one case; None for those of a checker.
        solution: a right program: an interactor that dies with it too is at fault.  None where
            there is none: a death after the first word then counts against the judged program.

    Raises:
        UsageError: the protocol is unknown, or a limit is no number above 0.
    """

    program: Program
    protocol: str = "testlib"
    cpu_s: float | None = None
    memory_mib: int | None = None
    solution: Program | None = None

    def __post_init__(self) -> None:
        require_one_of("the interactor's protocol", self.protocol, ("testlib", "icpc"))
        if self.cpu_s is not None:
            object.__setattr__(
                self, "cpu_s", require_number("the interactor's cpu_s", self.cpu_s, above=0)
            )
        if self.memory_mib is not None:
            require_whole("the interactor's memory_mib", self.memory_mib, 1)


@dataclass(frozen=True, slots=True)
class CodeReference:
    """A reference, read from its JSON form.

    Attributes:
        cases: at least one, or a suite of tests.
        entry_point: the name that the cases call; None if they call none.
        prompt: code that a completion may continue; None if there is none.
        imports: statements put before the program, which may leave them out.
        cpu_s, memory_mib: limits of one case; None where the reference has none.
        checker: a checker program, or an interactor; None to compare outputs.
    """

    cases: Cases
    entry_point: str | None = None
    prompt: str | None = None
    imports: str = ""
    cpu_s: float | None = None
    memory_mib: int | None = None
    checker: CheckerProgram | Interactor | None = None


def checked_cases(cases: object) -> Cases:
    """The cases as they are; every program would pass an empty list of cases.

    Args:
        cases: a list of `StdioCase` or of `CallCase`, or a `TestSuite`.

    Raises:
        DataError: there are no cases, or they are of several kinds.
    """
    if isinstance(cases, TestSuite):
        return cases
    if isinstance(cases, (str, bytes, Mapping)) or not isinstance(cases, Sequence):
        raise DataError(
            f"the cases are {brief(cases)}; they must be a list of StdioCase or CallCase, or a "
            f"TestSuite"
        )
    kinds = {type(case) for case in cases}
    if not kinds:
        raise DataError("there are no cases: every program would pass")
    if kinds != {StdioCase} and kinds != {CallCase}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise DataError(f"the cases are of {names}; they must be all StdioCase or all CallCase")
    return cases


def read_cases(reference: object) -> CodeReference:
    """Read a reference from its JSON form.

    Args:
        reference: a mapping in one of the module's three forms.

    Raises:
        DataError: it has none of these forms.
    """
    if not isinstance(reference, Mapping):
        raise DataError(f"the reference is {brief(reference)}; it must be {_FORMS}")
    prompt, entry_point = _text(reference, "prompt"), _text(reference, "entry_point")
    interactor = _interactor(reference)
    if "test" in reference:
        return CodeReference(_suite(reference, entry_point), entry_point, prompt)
    if interactor and "outputs" not in reference and isinstance(reference.get("inputs"), list):
        reference = {**reference, "outputs": [""] * len(reference["inputs"])}
    if "inputs" not in reference or "outputs" not in reference:
        raise DataError(
            f"the reference has {', '.join(map(repr, reference)) or 'nothing'}; it must be {_FORMS}"
        )
    inputs, outputs = _list(reference, "inputs"), _list(reference, "outputs")
    if len(inputs) != len(outputs):
        raise DataError(
            f"the reference has {len(inputs)} inputs and {len(outputs)} outputs; they must be as "
            f"many"
        )
    name = _text(reference, "fn_name")
    pairs = zip(inputs, outputs, strict=True)
    cases: Cases = _calls(name, inputs, outputs) if name else [_stdio(*pair) for pair in pairs]
    cpu_s, memory_mib = reference.get("cpu_s"), reference.get("memory_mib")
    return CodeReference(
        checked_cases(cases),
        name or entry_point,
        prompt,
        _TYPING if name else "",
        None if cpu_s is None else require_number("the reference's cpu_s", cpu_s, above=0),
        None if memory_mib is None else require_whole("the reference's memory_mib", memory_mib, 1),
        interactor or _checker(reference.get("checker"), name),
    )


def _checker(given: Any, name: str | None) -> CheckerProgram | None:
    if given is None:
        return None
    if name:
        raise DataError(
            "the reference has both 'checker' and 'fn_name'; values of calls are compared, not "
            "checked"
        )
    return CheckerProgram(_helper("checker", given, ()), given.get("protocol", "testlib"))


def _interactor(reference: JsonObject) -> Interactor | None:
    value = reference.get("interactor")
    if value is None:
        return None
    for decider in ("fn_name", "checker", "test"):
        if reference.get(decider) is not None:
            raise DataError(
                f"the reference has both 'interactor' and {decider!r}; an interactor alone decides"
            )
    limits = ("cpu_s", "memory_mib")
    program = _helper("interactor", value, limits)
    solution = reference.get("solution")
    return Interactor(
        program,
        value.get("protocol", "testlib"),
        value.get("cpu_s"),
        value.get("memory_mib"),
        None if solution is None else _helper("solution", solution, ()),
    )


def _helper(what: str, given: object, more: tuple[str, ...]) -> Program:
    """The task's own program."""
    if not isinstance(given, Mapping) or not isinstance(given.get("source"), str):
        raise DataError(
            f"the reference's {what} is {brief(given)}; it must be an object with 'source'"
        )
    if given.keys() - {"source", "language", "protocol", "files", *more}:
        raise DataError(
            f"the reference's {what} has {', '.join(map(repr, given))}, of which one is unknown"
        )
    return Program(given.get("language", "python"), given["source"], given.get("files") or {})


def _suite(reference: Mapping[str, object], entry_point: str | None) -> TestSuite:
    test, setup, style = (
        _text(reference, "test"),
        _text(reference, "setup"),
        reference.get("style", "asserts"),
    )
    if style not in _STYLES:
        raise DataError(
            f"the reference's style is {brief(style)}; it must be one of {', '.join(_STYLES)}"
        )
    if not test or not test.strip():
        raise DataError("the reference's test is empty: every program would pass")
    if style == "check" and entry_point is None:
        raise DataError(
            "the reference's style is 'check', and so it needs an entry_point: what check() is "
            "called with"
        )
    return TestSuite(style=style, test=test, setup=setup or "", entry_point=entry_point)


def _stdio(given: object, expected: object) -> StdioCase:
    return StdioCase(_join_lines(given, "input"), _join_lines(expected, "output"))


def _join_lines(given: object, what: str) -> str:
    """A text, or the list of its lines, as in some rows of APPS."""
    if isinstance(given, list) and all(isinstance(line, str) for line in given):
        return "\n".join(given)
    if not isinstance(given, str):
        raise DataError(f"an {what} is {brief(given)}; it must be a text, or the list of its lines")
    return given


def _calls(name: str, inputs: list[object], outputs: list[object]) -> list[CallCase]:
    """Cases of calls; arguments are a list, or a text with one JSON value per line and the expected
    value as JSON."""
    calls = []
    for input_value, expected in zip(inputs, outputs, strict=True):
        if isinstance(input_value, str):
            args = [_json(line, name) for line in input_value.splitlines() if line.strip()]
            expected = _json(expected, name) if isinstance(expected, str) else expected
        elif isinstance(input_value, list):
            args = input_value
        else:
            raise DataError(
                f"an input of {name} is {brief(input_value)}; it must be the list of its arguments"
            )
        calls.append((args, expected))
    wrapped = all(isinstance(expected, list) and len(expected) == 1 for _, expected in calls)
    equality = replace(JSON, single=True) if wrapped else JSON
    return [
        CallCase(name, tuple(args), {}, expected, equality=equality) for args, expected in calls
    ]


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"an argument or a value of {name} is no JSON: {brief(text)} ({error})"
        ) from None


def _text(reference: Mapping[str, object], key: str) -> str | None:
    value = reference.get(key)
    if value is not None and not isinstance(value, str):
        raise DataError(f"the reference's {key} is {brief(value)}; it must be a text")
    return value


def _list(reference: Mapping[str, object], key: str) -> list[object]:
    value = reference[key]
    if not isinstance(value, list):
        raise DataError(f"the reference's {key} are {brief(value)}; they must be a list")
    return value
