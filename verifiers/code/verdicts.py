"""The judge's results: of each case, and of the program as a whole."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "CaseResult",
    "CaseVerdict",
    "Failure",
    "Judgement",
    "reason_line",
    "shorten",
    "valid_text",
]

_LINE, _TEXT = 200, 1000
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")


class CaseVerdict(StrEnum):
    """The verdicts of contest judges.  All but IE are caused by the program."""

    AC = "AC"  # accepted
    WA = "WA"  # wrong answer
    TLE = "TLE"  # over its time
    MLE = "MLE"  # over its memory
    OLE = "OLE"  # over its output
    ILE = "ILE"  # idle: it and the interactor waited for each other
    RE = "RE"  # it crashed, raised, or ended before it answered
    CE = "CE"  # it does not compile
    IE = "IE"  # we failed: says nothing about the program


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one case.

    Attributes:
        name: "case 3", counted from 1; in a suite, the test's name.
        verdict: see `CaseVerdict`.
        why: the reason in one line; "" if it was accepted.
        cpu_s, memory_mib: used by its run; 0 for calls and suites, whose cases share a run.
        interactor_cpu_s: used by the interactor.
        points: from 0 to 1, what a checker or interactor gave it; None for 1 if it was accepted and
            else 0.
        expected, got: output, value or error, cut to 200 characters; "" where they are not known.
    """

    name: str
    verdict: CaseVerdict
    why: str = ""
    cpu_s: float = 0.0
    memory_mib: float = 0.0
    expected: str = ""
    got: str = ""
    interactor_cpu_s: float = 0.0
    points: float | None = None

    @property
    def value(self) -> float:
        """What it is worth, from 0 to 1."""
        return float(self.verdict is CaseVerdict.AC) if self.points is None else self.points

    def report(self, index: int) -> dict[str, object]:
        """The result for a verdict's detail, as plain JSON.

        Args:
            index: of the case, counted from 1.
        """
        extra = (
            {"interactor_cpu_s": round(self.interactor_cpu_s, 3)} if self.interactor_cpu_s else {}
        )
        if self.points is not None:
            extra["points"] = self.points
        return {
            "index": index,
            "name": self.name,
            "ending": self.verdict.value,
            "why": self.why,
            "cpu_s": round(self.cpu_s, 3) if self.cpu_s else None,
            "memory_mib": round(self.memory_mib, 1) if self.memory_mib else None,
            **extra,
            "expected": self.expected,
            "got": self.got,
        }


@dataclass(frozen=True, slots=True)
class Failure:
    """The first case that failed, for display; each text is cut to a thousand characters.

    Attributes:
        case: its name.
        input: standard input, or the call.
        expected: output or value.
        got: output, value or error.
        stderr: the end of the program's standard error.
    """

    case: str
    input: str
    expected: str
    got: str
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of judging a program.

    Attributes:
        verdict: AC, or that of the first case that failed; IE if we failed at a case that counts.
        why: which case failed and how, in one line; "" for AC.
        cases: the judged cases, in order; the judge may have stopped at the first failure.
        total: number of cases; in a suite, of those that have a result.
        complete: False if the number of cases is unknown, because the program ended the suite
            early.
        first_failure: the first case that failed; None for AC.
        cpu_s, wall_s: used by all runs together.
    """

    verdict: CaseVerdict
    why: str
    cases: tuple[CaseResult, ...]
    total: int
    complete: bool = True
    first_failure: Failure | None = None
    cpu_s: float = 0.0
    wall_s: float = 0.0

    @property
    def passed(self) -> int:
        """Number of accepted cases."""
        return sum(case.verdict is CaseVerdict.AC for case in self.cases)

    @property
    def fraction(self) -> float:
        """Share of accepted cases among all cases, from 0 to 1, or of their points; one that was
        not judged has none.

        0 if the number of cases is unknown: otherwise a program could gain by ending the suite
        after its easy cases.
        """
        if not self.complete or not self.total:
            return 0.0
        return math.fsum(case.value for case in self.cases) / self.total

    @property
    def accepted(self) -> bool:
        """True for AC alone."""
        return self.verdict is CaseVerdict.AC


def shorten(text: str | bytes, most: int = _TEXT) -> str:
    """The beginning of a text; bytes that are not UTF-8 become U+FFFD.

    Args:
        text: text or bytes.
        most: greatest number of characters.
    """
    if isinstance(text, bytes):
        text = text[: 4 * most].decode("utf-8", "replace")
    return text if len(text) <= most else f"{text[:most]}…"


def valid_text(text: str) -> str:
    """The text without lone surrogates, which JSON files cannot hold.

    Args:
        text: any text.
    """
    return text.encode("utf-8", "replace").decode()


def reason_line(text: str) -> str:
    """A reason for the record: in one line, cut, and without memory addresses, which differ from
    run to run.

    Args:
        text: any text.
    """
    text = " ".join(text[: 10 * _LINE].split())
    return shorten(_ADDRESS.sub("0x…", valid_text(text)), _LINE)
