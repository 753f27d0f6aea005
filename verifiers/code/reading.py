"""What the judge has done in the reader (`rlvr.sandbox.reader`): outputs compared, replies and
results of tests judged.

One boundary: what is raised while a program's bytes are read or compared is that case's verdict.
Where the reference alone raises it too, the reference is at fault, and the verdict is IE.  All else
ends the work with its traceback.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from rlvr.errors import UsageError, brief, foreign_code, text_of_error
from rlvr.sandbox.guest import calls
from rlvr.sandbox.outputs import Readable
from rlvr.sandbox.readings import bytes_of
from rlvr.verifiers.code.cases import CallCase
from rlvr.verifiers.code.compare import COMPARATORS, Comparator
from rlvr.verifiers.code.equality import show_result
from rlvr.verifiers.code.verdicts import CaseVerdict, reason_line, shorten

__all__ = ["OutputOfCase", "Shipped", "compare_outputs", "describe_outputs", "judged_replies"]

Shipped: TypeAlias = "str | bytes"
"""A comparator's name, or a pickle of it."""

OutputOfCase: TypeAlias = "tuple[Readable, Readable, Readable | None]"
"""The case's input (b"" for our own comparators, which do not look at it); what the program wrote;
what it should have written, None where only the comparator knows."""

_AC, _WA, _RE, _IE = CaseVerdict.AC, CaseVerdict.WA, CaseVerdict.RE, CaseVerdict.IE
_SAID: Final = 1 << 16  # bytes of stderr that are searched for a message
_TAIL: Final = 1000
_ERROR = re.compile(
    rb"(?:\A|\n)([\w./-]++:\d+:\d+: (?:fatal )?error: [^\n]+)|\n"
    rb"((?:Uncaught )?\w*Error: [^\n]+)\n    at "
)


# ------------------------------------------------------------------------------------------ outputs


def compare_outputs(
    compare: Shipped, outputs: Sequence[OutputOfCase], stop: bool, first: int
) -> Iterator[tuple[str, str, str]]:
    """For each output the verdict, why, and its beginning.

    Args:
        compare: the comparator.
        outputs: of the cases.
        stop: end with the first that is not accepted.
        first: the case to begin with.

    Raises:
        UsageError: the comparator returned neither a bool nor a text.
    """
    compares = _comparator(compare)
    for output in outputs[first:]:
        record = _compare_outputs(compares, *output)
        yield record
        if stop and record[0] != _AC:
            return


def _compare_outputs(
    compares: Comparator, stdin: Readable, stdout: Readable, expected: Readable | None
) -> tuple[str, str, str]:
    input_text, expected_text = _text(bytes_of(stdin)), _text(bytes_of(expected or b""))
    data = bytes_of(stdout)
    got = shorten(data)
    why = None
    with foreign_code() as errors:  # a comparator, over the text of a program
        why = _difference(compares, input_text, _text(data), expected_text)
    for error in errors:
        if isinstance(error, UsageError | MemoryError):
            raise error
        # Whose fault it is: what the comparator cannot do with the expected output either is not
        # the program's doing.
        described = _describe_error(error)
        with foreign_code() as own_errors:  # over the reference
            _difference(compares, input_text, expected_text, expected_text)
        if own_errors and expected is not None:
            return _IE, f"the comparator raised {described}, and on the expected output too", got
        return _WA, f"the comparator cannot read it: {described}", got
    return (_AC, "", got) if why is None else (_WA, reason_line(why), got)


@lru_cache(maxsize=16)
def _comparator(compare: Shipped) -> Comparator:
    if isinstance(compare, str):
        return COMPARATORS[compare]
    loaded: Comparator = pickle.loads(compare)  # noqa: S301  from our own process
    return loaded


def _difference(compare: Comparator, given: str, output: str, expected: str) -> str | None:
    result = compare(given, output, expected)
    if result is True:
        return None
    if result is not False and not isinstance(result, str):
        raise UsageError(
            f"the comparator returned {brief(result)}; it must be True, False, or a text: why not"
        )
    return result or "the output is not the expected one"


def _text(data: bytes) -> str:
    """Bytes that are not UTF-8 become lone surrogates, so that different bytes stay different."""
    return data.decode("utf-8", "surrogateescape")


# -------------------------------------------------------------------------------------------- calls


def judged_replies(
    cases: Sequence[CallCase], results: Readable, first: int
) -> Iterator[tuple[str, str, str]]:
    """For each reply the verdict on its case, why, and the value or error.

    Args:
        cases: what was called.
        results: what the program wrote.
        first: the case to begin with.
    """
    for i, line in enumerate(calls.reply_lines(bytes_of(results), len(cases))):
        if i < first:
            continue
        reply = calls.read_reply(line, i)
        if reply is None:
            return
        yield _judge_reply(cases[i], reply)


def _judge_reply(case: CallCase, reply: calls.CallReply) -> tuple[str, str, str]:
    if reply.error is not None:
        error = ": ".join(filter(None, reply.error))
        # It answered, with something that is no value; any other error is an exception of the
        # program.
        foreign = error.startswith("NotAValue: ")
        return (
            _WA if foreign else _RE,
            reason_line(error.removeprefix("NotAValue: ")),
            shorten(error),
        )
    # Never through its own `repr`, which may say anything or nothing for a long time.
    got = "an iterator" if reply.listed else show_result(reply.value)
    right = False
    with foreign_code() as errors:  # values of a program
        right = case.holds(reply.value, reply.listed)
    for raised in errors:
        if isinstance(raised, MemoryError):
            raise raised
        described = _describe_error(raised)
        with foreign_code() as own_errors:  # over the reference
            case.holds(case.itself())
        if own_errors:
            return _IE, f"the expected value cannot be compared: {described}", got
        return _WA, reason_line(f"{got}, which cannot be compared: {described}"), got
    return (_AC, "", got) if right else (_WA, reason_line(f"{got}, not {case.wanted()}"), got)


def _describe_error(error: BaseException) -> str:
    """An exception in a few words.  Its text may be a large value's, which raises too."""
    return reason_line(f"{type(error).__name__}: {text_of_error(error)}")


# ---------------------------------------------------------------------------------- how a run ended


def describe_outputs(stdout: Readable, stderr: Readable) -> Iterator[tuple[str, str, str]]:
    """One record: the beginning of an output, the line of stderr that says most, and the end of
    stderr.

    That line is the first error of a compiler or of node, else the last one.

    Args:
        stdout, stderr: what a program wrote.
    """
    errors = bytes_of(stderr)
    tail = errors[-_TAIL:].decode("utf-8", "replace")
    error = _ERROR.search(errors[:_SAID])
    line = (
        (error[1] or error[2]).decode("utf-8", "replace")
        if error
        else tail.strip().rpartition("\n")[2]
    )
    yield shorten(bytes_of(stdout)[: 4 * _TAIL]), reason_line(line), tail
