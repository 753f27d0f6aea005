"""Tools that run code in a session of the sandbox."""

from __future__ import annotations

from typing import Any

from rlvr.environment.tools import Tool, schema_of
from rlvr.errors import SandboxFailed, ToolError
from rlvr.sandbox import Ending, Limits, Sandbox
from rlvr.sandbox.sessions import Session, SessionReply
from rlvr.workers.per_process import once_per_process

__all__ = ["bash", "python", "sandbox"]


def python(session: Session, *, name: str = "python") -> Tool:
    """A tool that runs Python in a session: `python(code)`.

    Args:
        session: of `Sandbox.session("python")`.
        name: that the policy calls it by.
    """

    def run(code: str) -> str:
        """Run Python code and see what it prints and the value of its last line.  Variables are
        kept between calls.

        Args:
            code: the code.
        """
        return _describe_reply(session.run(code), session)

    return schema_of(run, name=name)


def bash(session: Session, *, name: str = "bash") -> Tool:
    """A tool that runs commands in a session: `bash(command)`.

    Args:
        session: of `Sandbox.session("bash")`.
        name: that the policy calls it by.
    """

    def run(command: str) -> str:
        """Run bash commands and see what they print.  Files, variables and the folder are kept
        between calls.

        Args:
            command: the commands.
        """
        return _describe_reply(session.run(command), session)

    return schema_of(run, name=name)


@once_per_process
def sandbox(limits: Limits | None = None, **settings: Any) -> Sandbox:
    """This process's sandbox with these settings, for the sessions of many episodes; made at the
    first call.

    Args:
        limits: of each call, and of a session; None for the sandbox's own.
        settings: further arguments of `Sandbox`.
    """
    return Sandbox(limits=limits, **settings) if limits else Sandbox(**settings)


def _describe_reply(reply: SessionReply, session: Session) -> str:
    """What a call printed, and how it ended if that cannot be seen from it.

    Raises:
        ToolError: it ended the session.
        SandboxFailed: we did.
    """
    text = reply.text.rstrip("\n")
    if reply.ending is Ending.IE and session.over != "the session was killed here":
        raise SandboxFailed(reply.why)
    if not reply.open:
        raise ToolError(f"{text}\nthe session is over: {reply.why}".strip())
    if reply.ending is Ending.OK or (reply.ending is Ending.RE and text):
        return text or "(no output)"
    return f"{text}\nerror: {reply.why or reply.ending.value}".strip()
