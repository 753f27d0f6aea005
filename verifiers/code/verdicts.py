"""What a judge says: of each case, and of the whole."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["CaseResult", "CaseVerdict", "Failure", "Judgement", "cut", "one_line"]

_LINE, _TEXT = 200, 1000
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")


class CaseVerdict(StrEnum):
    """The judges' abbreviations.  All but IE are the program's own doing."""

    AC = "AC"  # accepted
    WA = "WA"  # wrong answer
    TLE = "TLE"  # over its time
    MLE = "MLE"  # over its memory
    OLE = "OLE"  # over its output
    RE = "RE"  # it crashed, raised, or ended before it answered
    CE = "CE"  # it does not compile
    IE = "IE"  # we failed: says nothing about the program


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How one case went.

    Attributes:
        name: "case 3", counted from 1; of a suite, the test's own name.
        verdict: see `CaseVerdict`.
        why: one line for people, "" where it was accepted.
        cpu_s, memory_mib: of its run; of calls and suites, which share a run, 0.
    """

    name: str
    verdict: CaseVerdict
    why: str = ""
    cpu_s: float = 0.0
    memory_mib: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """The first case that failed, for people: each text is cut to a thousand characters."""

    case: str
    input: str
    expected: str
    got: str
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of a program.

    Attributes:
        verdict: AC, or that of the first case that failed; IE if we failed at anything that counts.
        why: "", or which case failed and how, in one line.
        cases: those that were judged, in order; not all of them where the judge stopped at the first failure.
        total: how many there are; of a suite, how many came to a verdict.
        complete: False where nobody knows how many more there were: a suite that the program brought to an end.
        first_failure: None if there is none.
        cpu_s, wall_s: of all runs together.
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
        """How many cases were accepted."""
        return sum(case.verdict is CaseVerdict.AC for case in self.cases)

    @property
    def fraction(self) -> float:
        """Of all cases; one that was not judged did not pass.

        0 where it is not known how many there are: else a program would do well to end after the easy ones.
        """
        return self.passed / self.total if self.complete and self.total else 0.0

    @property
    def accepted(self) -> bool:
        """True for AC alone."""
        return self.verdict is CaseVerdict.AC


def cut(text: str | bytes, most: int = _TEXT) -> str:
    """How it begins; bytes that are no UTF-8 become U+FFFD."""
    if isinstance(text, bytes):
        text = text[: 4 * most].decode("utf-8", "replace")
    return text if len(text) <= most else f"{text[:most]}…"


def one_line(text: str) -> str:
    """A reason as it can be recorded: in one line, cut, and without addresses, which differ from run to run."""
    text = " ".join(text[: 10 * _LINE].split())
    text = text.encode("utf-8", "replace").decode()  # lone surrogates
    return cut(_ADDRESS.sub("0x…", text), _LINE)
