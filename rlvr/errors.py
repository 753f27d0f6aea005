"""The exceptions that rlvr raises on purpose.

    RlvrError
    ├── UsageError (ValueError)       a mistake of the caller: value, rule and fix in one line
    │   ├── UnknownEnvironment        no such id, with the nearest one that exists
    │   ├── DataError                 a file, row or column that cannot be read; names the line
    │   └── NonConforming             an environment breaks its contract; lists every breach
    ├── RewardError                   a reward gave NaN or a value outside its bounds,
    │                                 or lacks a length
    ├── MissingDependency             an optional part is not installed; says how to get it
    ├── ToolError                     raised by a tool: what the model did wrong in a call,
    │                                 as it is told
    └── Unscored                      scoring failed; says nothing about the completion
        ├── WorkerDied                the worker process ended on its own
        ├── WorkerTimeout             it was killed at its limit
        ├── WorkerError               it raised an exception; the traceback is kept
        ├── IsolationUnavailable      the sandbox cannot give a guarantee here; names it
        │                             and the remedy
        ├── SandboxFailed             a run failed inside the sandbox (IE): no toolchain, no process
        ├── ServiceFailed             the HTTP service cannot be reached or failed
        └── SamplingFailed            a completion could not be had from the model's endpoint

A completion's own fault is none of these: it is a `Verdict` with a reason.
"""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from functools import partial
from types import ModuleType, TracebackType
from typing import Any

__all__ = [
    "DataError",
    "DataWarning",
    "INSTALL_EXTRA",
    "IsolationUnavailable",
    "MissingDependency",
    "NonConforming",
    "OutOfTime",
    "RewardError",
    "RlvrError",
    "SamplingFailed",
    "SandboxFailed",
    "ServiceFailed",
    "ToolError",
    "UnknownEnvironment",
    "Unscored",
    "UntrustedPlace",
    "UsageError",
    "WorkerDied",
    "WorkerError",
    "WorkerTimeout",
    "brief",
    "describe_error",
    "foreign_code",
    "import_optional",
    "text_of_error",
]

INSTALL_EXTRA = (
    "pip install -c constraints.txt '.[{extra}]' in a checkout of rlvr, or pip install "
    "'PATH/TO/WHEEL[{extra}]'"
)
"""How to install an extra; `pip install rlvr` finds nothing before the first release."""


class RlvrError(Exception):
    """The base class: `except RlvrError` catches what rlvr raises on purpose and nothing else."""


class UsageError(RlvrError, ValueError):
    """The caller gave a value that cannot work."""


class UnknownEnvironment(UsageError):
    """No environment has this id."""


class UntrustedPlace(UsageError):
    """A data file names code, such as `path/to/file.py:Class`, that the user has not named."""


class DataError(UsageError):
    """A file, row or column cannot be read."""


class DataWarning(UserWarning):
    """Some rows of a data set cannot be used and were left out."""


class NonConforming(UsageError):
    """An environment breaks its contract (docs/writing/environments.md); the message
    lists every breach found."""


class RewardError(RlvrError):
    """A reward gave NaN or a value outside its bounds, or needs a length that is not recorded."""


class MissingDependency(RlvrError, ImportError):
    """An optional package is not installed.

    Args:
        what: the package, and what it is for.
        extra: the extra of rlvr that brings it; "" where `command` does.
        command: that installs it, where no extra does.
    """

    def __init__(self, what: str, extra: str, command: str = "") -> None:
        super().__init__(
            f"{what} is not installed; get it with: {command or INSTALL_EXTRA.format(extra=extra)}"
        )
        self._made_of = what, extra, command

    def __reduce__(self) -> Any:  # pickle would call the class with the finished message alone
        return type(self), self._made_of


def import_optional(module: str, extra: str) -> ModuleType:
    """A module of a package that an extra brings; rlvr's own modules explain themselves, see
    `rlvr.extras`.

    Args:
        module: its full name, such as "tokenizers".
        extra: the extra that brings it.

    Raises:
        MissingDependency: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingDependency(error.name or f"the extra {extra!r}", extra) from None


class ToolError(RlvrError):
    """What the model did wrong in a call.  Raise it in a tool: the model is told
    "error: " and this message."""


class Unscored(RlvrError):
    """Scoring failed.  Scorers turn it into `Outcome.UNSCORED`, never into a reward.

    Attributes:
        reason: short and stable; the verdict's `why` begins with it.
    """

    reason = "unscored"


class WorkerDied(Unscored):
    """The worker process ended on its own: killed from outside, out of memory,
    or a crash in native code."""

    reason = "worker-died"


class WorkerTimeout(Unscored):
    """The worker was killed at its limit."""

    reason = "worker-timeout"


class OutOfTime(BaseException):
    """Code took more CPU time than it may.  No `Exception`, so that the code which
    it ends does not catch it."""


class WorkerError(Unscored):
    """The worker raised an exception.

    Args:
        kind: name of the exception's class.
        message: of the exception.
        traceback: as text, from the worker; empty if there is none.
    """

    reason = "worker-error"

    def __init__(self, kind: str, message: str, traceback: str = "") -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind = kind
        self.traceback = traceback
        self._message = message

    def __reduce__(self) -> Any:  # see MissingDependency
        return type(self), (self.kind, self._message, self.traceback)


class IsolationUnavailable(Unscored):
    """The sandbox cannot give a guarantee on this host.

    Args:
        guarantee: its name, as `allow_missing` takes it.
        found: what was seen.
        remedy: what the host needs.
        waivable: whether runs are possible without it; without namespaces they are not.
    """

    reason = "isolation-unavailable"

    def __init__(self, guarantee: str, found: str, remedy: str, *, waivable: bool = True) -> None:
        waiver = (
            f"; or waive it by name: Sandbox(allow_missing={{{guarantee!r}}})" if waivable else ""
        )
        super().__init__(
            f"the sandbox cannot promise {guarantee!r} here: {found}. {remedy}{waiver}"
        )
        self.guarantee, self.found, self.remedy, self.waivable = guarantee, found, remedy, waivable

    def __reduce__(self) -> Any:  # see MissingDependency
        return partial(type(self), waivable=self.waivable), (
            self.guarantee,
            self.found,
            self.remedy,
        )


class SandboxFailed(Unscored):
    """A run failed inside the sandbox (IE).  Says nothing about the program."""

    reason = "sandbox-failed"


class ServiceFailed(Unscored):
    """The HTTP service cannot be reached or failed.  Says nothing about the completions."""

    reason = "service-failed"


class SamplingFailed(Unscored):
    """A completion could not be had from the model's endpoint.  Says nothing about the model."""

    reason = "sampling-failed"


def describe_error(error: BaseException) -> tuple[str, str, str]:
    """What an exception says, at most: the name of its class, its message, its traceback.

    Args:
        error: the exception; its message may quote a whole completion, or raise when it is asked
            for.
    """
    import traceback  # here, so that `import rlvr` stays light

    return (
        type(error).__name__,
        _cut(text_of_error(error), 500),
        _cut("".join(traceback.format_exception(error)), 20_000),
    )


def text_of_error(error: BaseException) -> str:
    """What `str` gives of an exception, whose class may define a `__str__` that raises.

    Args:
        error: the exception.
    """
    with foreign_code():
        return str(error)
    return "(its text cannot be had)"


class _ForeignCode(AbstractContextManager[list[BaseException]]):
    """Of `foreign_code`.  No generator, which would take three times as long for each row."""

    __slots__ = ("_errors", "_kind")

    def __init__(self, kind: type[BaseException]) -> None:
        self._kind = kind

    def __enter__(self) -> list[BaseException]:
        self._errors: list[BaseException] = []
        return self._errors

    def __exit__(self, _: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        # as `except` does, which asks no `__class__`
        if error is None or not issubclass(type(error), self._kind):
            return False
        if trace is not None and trace.tb_next is not None:
            # Without the frame of this `with`, which has the list as a local: it would be a cycle
            # that holds what the code was given until the garbage collector comes.
            error.__traceback__ = trace.tb_next
        self._errors.append(error)
        return True


def foreign_code(
    kind: type[BaseException] = Exception,
) -> AbstractContextManager[list[BaseException]]:
    """Run code of others, which may raise anything: an environment's author's, a plugin's, a
    library's.  docs/reference/borders.md lists where.

    Args:
        kind: BaseException where even SystemExit must not end the thread or process.

    Returns:
        A context with a list that has the exception afterwards, if there was one.
    """
    return _ForeignCode(kind)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def brief(value: object) -> str:
    """A value for an error message: its type and the first 60 characters of its repr.

    Args:
        value: any value.
    """
    try:
        text = repr(value)
    # an int of more than 4300 digits; a list in a list, 1000 deep
    except (ValueError, RecursionError):
        return f"{type(value).__name__} too long to be shown"
    return f"{type(value).__name__} {text[:60]}{'…' if len(text) > 60 else ''}"
