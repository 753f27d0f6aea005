"""Patterns in references, matched in time linear in the text by Google's RE2 (extra `patterns`).

A pattern comes from a data set and meets text of a model, so a backtracking engine is no choice:
`^(a+)+$` takes Python four times as long for each two letters more.  RE2 has neither look-around
nor back-references.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

from rlvr.errors import DataError, MissingDependency, brief, import_optional
from rlvr.types import Outcome, Verdict
from rlvr.verifiers.answers import Answer, Form, without_commands
from rlvr.verifiers.base import WRAPPINGS, BaseVerifier

__all__ = ["Pattern", "PatternVerifier", "read_pattern"]

_LONGEST: Final = 2_000  # characters of a pattern, and of an answer
# RE2 unrolls repeats: twenty characters may stand for megabytes
_MEMORY: Final = 1 << 20  # bytes of a compiled pattern
_ANYTHING: Final = ("", "quartz willow", "0", "?!")  # what only a pattern for any text matches


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern.

    Attributes:
        text: the pattern.
        compiled: RE2's object.
    """

    text: str
    compiled: Any

    def search(self, text: str) -> bool:
        """Whether the pattern matches somewhere in a text.

        Args:
            text: any text; lone surrogates, which are no UTF-8, match as "?".
        """
        return self.compiled.search(_utf8(text)) is not None

    def count(self, text: str) -> int:
        """How often the pattern matches in a text.

        Args:
            text: see `search`.
        """
        return sum(1 for _ in self.compiled.finditer(_utf8(text)))

    def matches(self, text: str) -> bool:
        """Whether the pattern matches a whole text.

        Args:
            text: see `search`.
        """
        return self.compiled.fullmatch(_utf8(text)) is not None


def _utf8(text: str) -> str:
    # RE2 works on UTF-8; half of a surrogate pair has none
    return text.encode("utf-8", "replace").decode()


@lru_cache(maxsize=1024)
def read_pattern(pattern: str) -> Pattern:
    """A pattern that is matched in linear time.

    Args:
        pattern: in RE2's syntax: Python's without look-around and back-references.

    Raises:
        DataError: it is none, is too long, needs what RE2 does not have, or RE2 is not installed;
            names the pattern.
    """
    if len(pattern) > _LONGEST:
        raise DataError(f"the pattern {brief(pattern)} has more than {_LONGEST:,} characters")
    try:
        re2 = import_optional("re2", "patterns")
    except MissingDependency as error:
        raise DataError(f"the pattern {brief(pattern)} cannot be matched: {error}") from None
    options = re2.Options()
    options.log_errors, options.max_mem = False, _MEMORY
    try:
        return Pattern(pattern, re2.compile(_utf8(pattern), options=options))
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        why = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise DataError(
            f"the pattern {brief(pattern)} cannot be used: {why}; it is matched in linear time, "
            "without look-around and back-references"
        ) from None


@dataclass(frozen=True)
class PatternVerifier(BaseVerifier[Answer, Pattern]):
    """The whole answer matches a pattern: `[A-Z]{2}-\\d{4}`, a date, one of several spellings.

    The reference is the pattern.  One that any text matches is refused.  The reasons: `matches` is
    CORRECT; `no-match` WRONG.
    """

    version: ClassVar[int] = 3
    form: ClassVar[Form] = Form(fences=frozenset(("", "text")), bare=True, longest=_LONGEST)
    reference_form: ClassVar[str] = "a regular expression in RE2's syntax"
    rewritings: ClassVar[tuple[str, ...]] = WRAPPINGS
    reference_example: ClassVar[object] = r"[A-Z]{2}-\d{4}"

    def read(self, reference: object) -> Pattern:
        """The compiled pattern.

        Args:
            reference: a text.

        Raises:
            DataError: see `read_pattern`; or any text matches it.
        """
        if not isinstance(reference, str) or not reference:
            raise DataError(f"the reference is {brief(reference)}; it must be a pattern")
        pattern = read_pattern(reference)
        if all(map(pattern.matches, _ANYTHING[1:])) or pattern.matches(""):
            raise DataError(f"the pattern {brief(reference)} matches any text, or none at all")
        return pattern

    def judge(self, answer: Answer, reference: Pattern) -> Verdict:
        """The verdict on an answer.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        # "\boxed{\#ff0000}", too
        if reference.matches(answer.text) or (
            answer.method == "box" and reference.matches(without_commands(answer.text))
        ):
            return Verdict(Outcome.CORRECT, why="matches", answer=answer.text)
        return Verdict(Outcome.WRONG, why="no-match", answer=answer.text)
