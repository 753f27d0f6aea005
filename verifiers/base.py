"""The one shape of a verifier: read the reference, extract the answer, judge the one by the other.

    @dataclass(frozen=True)
    class Exact(BaseVerifier[Answer, str]):
        version = 1                              # with the class's name: the id "exact-v1"

        def read(self, reference): ...           # the reference as `judge` takes it, or a DataError
        def judge(self, answer, reference): ...  # the verdict on an answer
        def example(self, reference): ...        # optional: a completion that must be CORRECT,
                                                 # for a reference as `read` takes it
`verify` puts them together and is not to be overridden.  `extract` is inherited: it finds the final
answer in its usual wrappings, see `rlvr.verifiers.answers`.

The map of `rlvr.verifiers`:

base, answers, stated          this file; the final answer of a completion, in one linear pass; what
                               the words around it say of it
named                          verifiers by name
math, code, instructions       rooms of their own
qa, short_answers, choices     short answers; what they are; an option by letter or text
science, chemistry             answers with a unit; formulas and balanced equations
json_schema, calls             JSON by its schema; function calls by BFCL's rules
sql, sql_operators             queries on fillings of a database; slips in queries
logic, logic_solvers           puzzles by their own rules; solvers for generators
parts, matching                answers of several parts; what can stand for what
patterns, patches              RE2 in references; `diff -u` in replies
judge                          a model as a judge, behind a rule

Contract: `BaseVerifier`; a new verifier is one file and its line in `named`.
Sees `sandbox`, `workers` and the ground, no environment; `envs`, `testing` and above see it.
Goes wrong: a verifier that raises on a completion lets a policy choose UNSCORED.
"""

from __future__ import annotations

import inspect
import marshal
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, is_dataclass
from functools import wraps
from typing import Any, ClassVar, Final, Generic, TypeVar, final

from rlvr.errors import DataError, OutOfTime, RlvrError, UsageError, brief
from rlvr.types import Outcome, Task, Verdict, is_async
from rlvr.verifiers.answers import Form, find_answer

__all__ = ["BaseVerifier", "WRAPPINGS"]

WRAPPINGS: Final = (
    "box",
    "tag",
    "marker",
    "phrase",
    "bold",
    "dollars",
    "thinking",
    "corrected",
    "spaces",
)
"""What the inherited `extract` takes off, by the names of `rlvr.testing.rewritings`."""

_A = TypeVar("_A")
"""What `extract` finds."""

_R = TypeVar("_R")
"""What `read` makes of a reference."""

# "JSONVerifier" is "json-verifier", "GSM8kRule" is "gsm8k-rule"
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# an id of its own could stay the same when the verdicts change
_OWN: Final = ("id", "verify")
_MOST_READINGS, _MOST_BYTES = 4096, 1 << 26  # what the cache of a process keeps
# characters: a longer reference is read each time
_LONGEST_KEY = 1 << 20
# what reading odd data may raise; anything else, such as MemoryError, is not the data's fault
_ODD: Final = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    OSError,
)


class _Id:
    """The id of a verifier: of the class alone, and read-only."""

    def __get__(self, verifier: object, owner: type[Any]) -> str:
        return f"{_WORDS.sub('-', owner.__name__).lower().lstrip('_')}-v{owner.version}"

    def __set__(self, verifier: object, value: object) -> None:
        raise AttributeError(
            f"the id of {type(verifier).__name__} is made of the class and its version"
        )


class BaseVerifier(ABC, Generic[_A, _R]):
    """The base of verifiers; see the module for what a subclass defines.

    A subclass is a frozen dataclass, so that its settings are printed and recorded.

    Attributes:
        version: goes up whenever a verdict changes.
        id: the name of the class and the version, "qa-verifier-v4" of `QAVerifier`; it cannot be
            set.
        form: which wrappings of an answer count beside box, tag, marker and phrase, see `Form`.
        reference_form: the form of a reference in a few words, for `rlvr verifiers`.
        reference_example: a reference, for `rlvr verifiers`.
        rewritings: which rewritings of an answer keep its verdict, by their names in
            `rlvr.testing.rewritings`; `rlvr check` holds the verifier to them.  None of them: the
            answer is the whole text, or a program.
        is_async: whether `judge` is async, so that verdicts have to be awaited.

    Raises:
        UsageError: a subclass defines `verify` or an `id`; while the class is defined.
    """

    __slots__ = ()

    version: ClassVar[int] = 0
    id: ClassVar[Any] = _Id()
    form: ClassVar[Form] = Form()
    reference_form: ClassVar[str] = "any"
    reference_example: ClassVar[object] = None
    rewritings: ClassVar[tuple[str, ...]] = WRAPPINGS
    is_async: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        for name in _OWN:
            if name in cls.__dict__ or name in inspect.get_annotations(cls):
                raise UsageError(
                    f"{cls.__name__} defines {name}, which a verifier inherits: the id is made of "
                    f"the class and its "
                    "`version`, and `verify` of read, extract and judge; or write a class without "
                    "this base"
                )
        # `judge` may be a coroutine function or return one: asked once per class, not once per
        # verdict
        if "judge" in cls.__dict__ and "is_async" not in cls.__dict__:
            cls.is_async = is_async(cls.judge)
        # once: a class that inherits `read` inherits its cache, too
        if "read" in cls.__dict__ and not hasattr(cls.read, "__wrapped__"):
            cls.read = _cache_read(cls.__dict__["read"])  # type: ignore[method-assign]

    @abstractmethod
    def read(self, reference: Any) -> _R:
        """The reference as `judge` takes it.  What it returns is cached and must not be changed.

        It runs before a task is used, so that a row whose reference cannot be read is left out, and
        costs no run.

        Args:
            reference: from a data set, of any type: data sets are made by strangers.

        Raises:
            DataError: it cannot be used; says what a reference must be.  TypeError, ValueError,
                KeyError and their like, which code on unexpected data raises, become a DataError
                here.
        """

    def extract(self, text: str, task: Task | None) -> _A | Verdict:
        """The answer of a completion, with what the prompt decides about it; or the verdict that
        there is none.

        An answer that cannot be read is UNPARSED; two in one statement, and one that is too long,
        are WRONG.

        Args:
            text: the completion.
            task: what it answers; None if unknown.
        """
        return find_answer(text, self.form, task)  # type: ignore[return-value]  # with _A = Answer

    @abstractmethod
    def judge(self, answer: _A, reference: _R) -> Verdict | Awaitable[Verdict]:
        """The verdict on an answer; may be an `async def`.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """

    def example(self, reference: Any) -> str | None:
        """A completion that must be CORRECT; None if none is known.

        Args:
            reference: as `read` takes it.
        """
        return None

    def doubt(self, reference: Any) -> str | None:
        """Why a reference can be used in part alone, for a report on a data set; None if it can be
        used whole.

        Args:
            reference: as `read` takes it.

        Raises:
            DataError: see `read`.
        """
        self.read(reference)
        return None

    def faults(self, reference: Any) -> Iterable[tuple[str, str]]:
        """What is wrong with a program that a reference brings to judge with, found by trying it.

        Args:
            reference: as `read` takes it.

        Returns:
            Names of `rlvr.testing.HOLES` ("checker-accepts", …), each with what was seen.

        Raises:
            DataError: see `read`.
        """
        return ()

    @final
    def knows(self, reference: Any) -> bool:
        """Whether `read` has kept what it makes of a reference, so that it takes no time and raises
        nothing.

        Args:
            reference: as `read` takes it.
        """
        key = _key_of(reference)
        cached = None if key is None else _READINGS.get(self, key)
        return cached is not None and type(cached[1]) is not _Refusal

    @final
    def verify(self, completion: str, reference: Any, task: Task | None = None) -> Verdict:
        """The verdict on a completion; to be awaited if the verifier `is_async`.  Any text gets
        one.

        Args:
            completion: the model's text.
            reference: the trusted answer.
            task: what the completion answers; its prompt may decide, see the verifier.

        Raises:
            DataError: the reference cannot be read.
            UsageError: the completion is no text, or the task is none.
        """
        if not isinstance(completion, str):
            raise UsageError(
                f"the completion is a {type(completion).__name__}; it must be a string"
            )
        if task is not None and not isinstance(task, Task):
            raise UsageError(
                f"the task is a {type(task).__name__}; give rlvr.Task(id, prompt) or nothing"
            )
        if self.is_async:
            return self._await_verdict(completion, reference, task)  # type: ignore[return-value]
        trusted = self.read(reference)
        try:
            answer = self.extract(completion, task)
            if type(answer) is Verdict:
                return answer
            return self.judge(answer, trusted)  # type: ignore[arg-type, return-value]
        except RecursionError:
            # an answer may be nested as deep as its model likes, and must not end the run
            return _too_deep()

    def _await_verdict(
        self, completion: str, reference: Any, task: Task | None
    ) -> Coroutine[Any, Any, Verdict]:
        async def verdict() -> Verdict:
            trusted = self.read(reference)
            answer = self.extract(completion, task)
            if type(answer) is Verdict:
                return answer
            judged: Any = self.judge(answer, trusted)  # type: ignore[arg-type]
            return await judged  # type: ignore[no-any-return]

        return verdict()


def _too_deep() -> Verdict:
    return Verdict(Outcome.WRONG, why="limit: nested too deep")


# ------------------------------------------------------------------------ references that were read


class _Readings:
    """What `read` made of references in this process, the oldest dropped first.

    The key is the reference's value: a text, else bytes, which tell 1 from True and from 1.0.
    Neither `id` nor, for most references, `marshal` is asked: a hook of Python hears of both, and
    takes longer than they do.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[int, str | bytes], tuple[object, Any]] = {}
        self._bytes = 0

    def __reduce__(self) -> str:
        # a class of a script is sent to workers by value; the cache there is theirs
        return "_READINGS"

    def get(self, verifier: object, key: str | bytes) -> tuple[object, Any] | None:
        cached = self._known.get((object.__hash__(verifier), key))
        return cached if cached is not None and cached[0] is verifier else None

    def put(self, verifier: object, key: str | bytes, reading: Any) -> None:
        place = object.__hash__(verifier), key
        with self._lock:
            # another thread may have read it at the same time
            if len(key) > _LONGEST_KEY or place in self._known:
                return
            # The verifier is kept with it, so that no other one can get its place.
            self._known[place] = (verifier, reading)
            self._bytes += sys.getsizeof(key)
            while len(self._known) > _MOST_READINGS or self._bytes > _MOST_BYTES:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._bytes -= sys.getsizeof(oldest[1])


_READINGS: Final = _Readings()


def _cache_read(read: Callable[..., object]) -> Callable[..., Any]:
    """`read` of a subclass, once for each reference, with the errors of unexpected data as a
    DataError."""

    @wraps(read)
    def reading(self: object, reference: object) -> object:
        key = _key_of(reference)
        if key is None:
            return _read(read, self, reference)
        cached = _READINGS.get(self, key)
        if cached is None:
            try:
                cached = self, _read(read, self, reference)
            except DataError as error:
                # a refusal is kept as well: reading a bad reference again takes as long
                cached = self, _Refusal(str(error))
            if is_dataclass(self):  # any other object may change
                _READINGS.put(self, key, cached[1])
        if type(cached[1]) is _Refusal:
            raise DataError(cached[1].why)
        return cached[1]

    return reading


def _key_of(reference: Any) -> str | bytes | None:
    """A reference's key among what was read; None where it has none."""
    if type(reference) is str:  # most are
        return reference if len(reference) <= _LONGEST_KEY else None
    if isinstance(reference, (str, list, dict)) and _is_long(reference):
        return None  # a copy of it would be no key that is kept
    try:
        if type(reference) is int:
            return b"%d" % reference
        return marshal.dumps(reference, 2)  # version 2 writes equal values equally
    except ValueError:  # another type, or nested too deep
        return None


def _is_long(reference: object) -> bool:
    """Whether the texts of a reference, or of its lists, are too long for a key."""
    size = 0
    # one level is looked at: a long text further in only costs a copy
    for value in reference.values() if type(reference) is dict else (reference,):
        if type(value) is str:
            size += len(value)
        elif type(value) is list and value and type(value[0]) is str:
            size += sum([len(text) for text in value if type(text) is str])
    return size > _LONGEST_KEY


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A reference that cannot be read."""

    why: str


def _read(read: Callable[..., object], verifier: Any, reference: Any) -> Any:
    try:
        return read(verifier, reference)
    except (OutOfTime, UsageError) as error:  # or a check of a setting that this reference brings
        raise DataError(str(error)) from error
    except RlvrError:
        raise
    except _ODD as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise DataError(
            f"the reference {brief(reference)} cannot be read by {verifier.id}: {why}"
        ) from error
