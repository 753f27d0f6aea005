"""How public data sets of programming problems store a problem: its text, its tests,
its checker and its limits.

Each dialect is a function from a row to a `CodeProblem`, read from the loader or the card that it
names.  A row that no program can be judged on (without tests, interactive without an interactor, or
with files in place of standard input) gives a reason instead.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import rlvr
from rlvr.errors import brief
from rlvr.types import JsonDict

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["CodeProblem", "DIALECTS", "RowNotJudged", "dialect_of"]

# as CodeContests numbers them; 1 is Python 2
_CONTEST_LANGUAGES: Final = {2: "cpp", 3: "python", 4: "java"}
_UNPACKED: Final = 256 << 20  # bytes of one row's compressed tests
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(\w*)")
_UNITS: Final = {
    "": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "millisecond": 1e-3,
    "milliseconds": 1e-3, "mb": 1.0, "mib": 1.0, "megabyte": 1.0, "megabytes": 1.0, "gb": 1024.0,
    "gigabyte": 1024.0, "gigabytes": 1024.0, "kb": 1 / 1024, "kilobytes": 1 / 1024,
}  # fmt: skip


class RowNotJudged(Exception):
    """No program can be judged on this row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeProblem:
    """One problem.

    Attributes:
        question: what the prompt says; None if the row has no text of its own.
        inputs, outputs: of the tests.
        fn_name: the function that the tests call; None for programs that read standard input.
        starter: code to begin with.
        checker: as a reference has it (`rlvr.verifiers.code.cases`); None to compare outputs.
        interactor: as a reference has it; the tests' inputs are its own.
        cpu_s, memory_mib: limits of one test; None where the row has none.
        contest: the limits are a contest's, set for compiled programs.
        solutions: programs that are right, by language.
    """

    question: str | None
    inputs: list[Any]
    outputs: list[Any]
    fn_name: str | None = None
    starter: str | None = None
    checker: Mapping[str, object] | None = None
    interactor: Mapping[str, Any] | None = None
    cpu_s: float | None = None
    memory_mib: float | None = None
    contest: bool = True
    solutions: Mapping[str, list[str]] = field(default_factory=dict)


def dialect_of(row: Mapping[str, object]) -> str:
    """The name of the dialect that a row's columns belong to.

    Args:
        row: the row's columns by name.
    """
    # The most telling columns first: `input_output` stands in rows of two data sets.
    if "official_tests" in row:
        return "codeforces"
    if "private_test_cases" in row or "public_test_cases" in row:
        return "livecodebench"
    if any(name in row for name in _CONTEST_TESTS):
        return "codecontests"
    if "input_output" in row:
        return "taco" if "time_limit" in row or "memory_limit" in row else "apps"
    return "plain"


# ----------------------------------------------------------------------------------------- dialects


def _plain(row: Row) -> CodeProblem:
    """`inputs` and `outputs`, perhaps `fn_name`, `checker`, `interactor`, `cpu_s`, `memory_mib`:
    our own form.

    `solutions` is a list of Python programs, or such lists by language.
    """
    if "inputs" not in row or ("outputs" not in row and not row.get("interactor")):
        raise rlvr.DataError(f"no tests among its columns {', '.join(map(repr, row))}")
    return CodeProblem(
        question=_question(row),
        **_tests(row),
        starter=row.get("starter_code") or None,
        checker=row.get("checker"),
        interactor=_program(row.get("interactor")),
        cpu_s=row.get("cpu_s"),
        memory_mib=row.get("memory_mib"),
        contest=False,
        solutions=_solutions(row.get("solutions")),
    )


def _apps(row: Row) -> CodeProblem:
    """APPS (Hendrycks et al., arXiv:2105.09938; card of `codeparrot/apps`, eval/testing_util.py of
    hendrycks/apps).

    `input_output` is JSON with `inputs`, `outputs` and, for functions, `fn_name`; `solutions` is a
    JSON list.  Inputs of a function are lists of arguments, and expected values are often wrapped
    in a list of one.
    """
    cases = _json(row.get("input_output"), "input_output") or {}
    return CodeProblem(
        question=_question(row),
        **_tests(cases),
        starter=row.get("starter_code") or None,
        solutions=_solutions(row.get("solutions")),
    )


def _taco(row: Mapping[str, object]) -> CodeProblem:
    """TACO (Li et al., arXiv:2312.14852; card of `BAAI/TACO`): as APPS, with limits in words.

    `time_limit` is such as "2.0 seconds" and `memory_limit` such as "256.0 megabytes"; both may be
    missing.
    """
    problem = _apps(row)
    return _with_limits(problem, _amount(row.get("time_limit")), _amount(row.get("memory_limit")))


_CONTEST_TESTS: Final = ("public_tests", "private_tests", "generated_tests")


def _codecontests(row: Row) -> CodeProblem:
    """CodeContests (Li et al., arXiv:2203.07814; card of `deepmind/code_contests`).

    Tests are pairs of lists, `input` and `output`, in three columns.  `time_limit` has `seconds`
    and `nanos`.  A few problems want files in place of standard input, named in `input_file` and
    `output_file`.
    """
    if row.get("input_file") or row.get("output_file"):
        raise RowNotJudged("it reads or writes a file by name")
    some = [row[name] for name in _CONTEST_TESTS if isinstance(row.get(name), Mapping)]
    limit, solutions = row.get("time_limit"), row.get("solutions")
    by_language: dict[str, list[str]] = {}
    if isinstance(solutions, Mapping):
        # The languages that are judged; all others are kept under one name.
        pairs = zip(solutions.get("language") or (), solutions.get("solution") or (), strict=False)
        for number, text in pairs:
            by_language.setdefault(_CONTEST_LANGUAGES.get(number, "other"), []).append(text)
    seconds = None
    if isinstance(limit, Mapping):
        seconds = (limit.get("seconds") or 0) + (limit.get("nanos") or 0) / 1e9
    problem = CodeProblem(
        question=_question(row),
        inputs=[text for tests in some for text in _read_list(tests, "input")],
        outputs=[text for tests in some for text in _read_list(tests, "output")],
        solutions=by_language,
    )
    return _with_limits(problem, seconds, (row.get("memory_limit_bytes") or 0) / (1 << 20))


def _livecodebench(row: Row) -> CodeProblem:
    """LiveCodeBench (Jain et al., arXiv:2403.07974; lcb_runner/benchmarks/code_generation.py).

    Tests are JSON lists of `input`, `output` and `testtype`; private ones may be packed, by base64,
    zlib and a pickle of the JSON text.  `metadata` is JSON and holds `func_name` for functions,
    whose inputs have one argument per line.
    """
    metadata = _json(row.get("metadata"), "metadata") or {}
    tests = [
        *(_json(row.get("public_test_cases"), "public_test_cases") or []),
        *_private(row.get("private_test_cases")),
    ]
    if not all(isinstance(test, Mapping) and {"input", "output"} <= test.keys() for test in tests):
        raise rlvr.DataError("a test is no object with 'input' and 'output'")
    functional = {test.get("testtype") == "functional" for test in tests}
    name = metadata.get("func_name")
    # A function's name without functional tests, or the other way round, is a damaged row.
    if len(functional) > 1 or (functional == {True}) != bool(name and tests):
        raise rlvr.DataError(
            f"its tests are of several kinds, or do not fit the function's name {brief(name)}"
        )
    return CodeProblem(
        question=row.get("question_content") if "question_content" in row else _question(row),
        inputs=[test["input"] for test in tests],
        outputs=[test["output"] for test in tests],
        fn_name=name or None,
        starter=row.get("starter_code") or None,
    )


def _codeforces(row: Row) -> CodeProblem:
    """Codeforces (card of `open-r1/codeforces`, utils/competitive_programming/cf_scoring.py of
    huggingface/open-r1).

    `official_tests` is a list of `input` and `output`; limits are seconds and megabytes.
    `generated_checker` is a Python program that is called with the paths of input, right output and
    given output, and prints 1 or 0. Interactive problems have an `interaction_format`, and no
    interactor; one may be added in a column `interactor`.
    """
    interactor = _program(row.get("interactor"))
    if row.get("interaction_format") and not interactor:
        raise RowNotJudged("it is interactive, and has no interactor")
    if row.get("input_mode") not in (None, "stdio"):
        raise RowNotJudged("it reads or writes a file by name")
    tests = row.get("official_tests") or []
    parts = [row.get("title"), row.get("description")]
    for name in ("input_format", "output_format", "interaction_format", "note"):
        heading = name.removesuffix("_format").capitalize()
        parts += [f"{heading}\n\n{row[name]}"] if row.get(name) else []
    for example in row.get("examples") or ():
        parts.append(
            f"Example\n\n```\n{example['input']}\n```\n\ngives\n\n```\n{example['output']}\n```"
        )
    source = row.get("generated_checker")
    problem = CodeProblem(
        question="\n\n".join(part for part in parts if part) or None,
        inputs=[test["input"] for test in tests],
        outputs=[test["output"] for test in tests],
        # An interactor judges the run itself; a checker would have no output to read.
        checker={"source": source, "protocol": "prints"} if source and not interactor else None,
        interactor=interactor,
        solutions=_solutions(row.get("solutions")),
    )
    return _with_limits(problem, row.get("time_limit"), row.get("memory_limit"))


DIALECTS: Final[dict[str, Callable[[Row], CodeProblem]]] = {
    "plain": _plain,
    "apps": _apps,
    "taco": _taco,
    "codecontests": _codecontests,
    "livecodebench": _livecodebench,
    "codeforces": _codeforces,
}
"""The dialects by name."""


# ------------------------------------------------------------------------------------ parts of rows


def _with_limits(
    problem: CodeProblem, cpu_s: float | None, memory_mib: float | None
) -> CodeProblem:
    """The problem with these limits; 0, as data sets write it, is none."""
    return replace(problem, cpu_s=cpu_s or None, memory_mib=memory_mib or None)


def _amount(value: object) -> float | None:
    """Seconds or MiB from a number or from words; None where there is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = _AMOUNT.match(value) if isinstance(value, str) else None
    unit = _UNITS.get(match[2].lower()) if match else None
    return float(match[1]) * unit if match and unit else None


def _program(value: object) -> Any:
    """An interactor as a reference has it, from its source or an object; None where there is
    none."""
    return {"source": value} if isinstance(value, str) and value.strip() else value or None


def _question(row: Mapping[str, object]) -> Any:
    names = ("question", "problem", "prompt", "description")
    return next((row[name] for name in names if row.get(name) is not None), None)


def _json(value: object, column: str) -> Any:
    """A column that holds JSON, as text or read already; None if it is empty."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except (ValueError, RecursionError) as error:
        raise rlvr.DataError(f"column {column!r} is no JSON: {error}") from None


def _tests(given: object) -> JsonDict:
    if not isinstance(given, Mapping):
        raise rlvr.DataError(
            f"its tests are {brief(given)}; they must be an object with 'inputs' and 'outputs'"
        )
    return {
        "inputs": _read_list(given, "inputs"),
        "outputs": _read_list(given, "outputs"),
        "fn_name": given.get("fn_name") or None,
    }


def _read_list(tests: Mapping[str, object], name: str) -> list[Any]:
    """The list in this column; a text is refused, as it would be read as a list of characters."""
    value = tests.get(name)
    if value is not None and (
        isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable)
    ):
        raise rlvr.DataError(
            f"{name!r} is {brief(value)}; it must be a list, with an item for each case"
        )
    return [] if value is None else list(value)


def _solutions(given: object) -> dict[str, list[str]]:
    """Solutions by language; a list is in Python."""
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else []
        except (ValueError, RecursionError):
            return {}
    by_language = given if isinstance(given, Mapping) else {"python": given or ()}
    return {
        language: [text for text in texts if isinstance(text, str)]
        for language, texts in by_language.items()
        if isinstance(texts, list | tuple)
    }


class _Text(pickle.Unpickler):
    """Reads a pickle of a text.  Pickles of anything that would have to be called are refused."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _private(value: object) -> list[Any]:
    """The private tests of LiveCodeBench: JSON, or packed."""
    if not isinstance(value, str) or not value.strip() or value.lstrip().startswith("["):
        return _json(value, "private_test_cases") or []
    try:
        reader = zlib.decompressobj()
        # Bounded while it is unpacked: zlib makes 1,000 bytes of one.
        data = reader.decompress(base64.b64decode(value, validate=True), _UNPACKED)
        if reader.unconsumed_tail:
            raise ValueError(f"more than {_UNPACKED >> 20} MiB")
        tests = json.loads(_Text(io.BytesIO(data)).load())
    except Exception as error:  # noqa: BLE001  base64, zlib, pickle and json have no common one
        raise rlvr.DataError(f"column 'private_test_cases' cannot be unpacked: {error}") from None
    if not isinstance(tests, list):
        raise rlvr.DataError(f"column 'private_test_cases' holds {brief(tests)}; it must be a list")
    return tests
