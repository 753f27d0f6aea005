"""The tools of a server that speaks the Model Context Protocol, over its official SDK.

def setup(self, task):
    return ready_tools.mcp(["python", "server.py"])

def tools(self, state):
    return state.tools
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from functools import partial
from typing import Any, Final

from rlvr.environment.tools import Tool
from rlvr.errors import MissingDependency, ServiceFailed, ToolError, UsageError, brief, foreign_code
from rlvr.types import JsonDict
from rlvr.workers.closing import Closing
from rlvr.workers.thread import DaemonThread

__all__ = ["Server", "mcp"]

# An `npx` or `uvx` command downloads its server at the first start.
_START_S: Final = 30.0
_CALL_S: Final = 300.0  # a last resort: an environment's `call_seconds` comes first
# For its process to end by itself; the thread is a daemon's, so that a longer one is left behind.
_END_S: Final = 5.0
_PAGES: Final = 100  # of a server's list of tools


def mcp(where: str | Sequence[str], *, env: Mapping[str, str] | None = None) -> Server:
    """Connect to an MCP server, for one episode.  Close it, or use it as a context manager.

    Args:
        where: a command and its arguments, started here and spoken to over stdio; or the URL of a
            server.
        env: variables of the command; None for a few such as PATH.  It gets no others of this
            process.

    Raises:
        MissingDependency: the SDK is not installed.
        UsageError: `where` is neither.
        ServiceFailed: the server does not start or answer.
    """
    return Server(where, env=env)


class Server(Closing):
    """A connection to an MCP server; see `mcp`.

    Attributes:
        tools: of the server.
    """

    def __init__(self, where: str | Sequence[str], *, env: Mapping[str, str] | None = None) -> None:
        self._sdk = _library()
        self._target = self._read(where, env)
        self._name = where if isinstance(where, str) else " ".join(where)
        self._loop = asyncio.new_event_loop()
        self._ready: Future[list[Tool]] = Future()
        self._end = asyncio.Event()
        self._client: Any = None
        self._thread = DaemonThread(self._serve, name="mcp", owner="tools", kind="loop")
        try:
            self.tools = self._ready.result(timeout=_START_S)
        except FutureTimeout:
            self.close()
            raise ServiceFailed(
                f"the MCP server {self._name} did not answer within {_START_S:g} s"
            ) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection, and the process of a command.  Idempotent."""
        self.kill()
        self._thread.join(_END_S)

    def kill(self) -> None:
        """The same without waiting; a call that is under way fails."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end.set)

    def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Call a tool of the server; gives the text of its reply.

        Args:
            name: of the tool.
            arguments: by name.

        Raises:
            ToolError: the server says that the call was wrong.
            ServiceFailed: the server has died, or answers something else.
        """
        if not self._thread.is_alive():
            raise ServiceFailed(f"the MCP server {self._name} has died or was closed")
        future = asyncio.run_coroutine_threadsafe(
            self._call_tool(name, dict(arguments)), self._loop
        )
        try:
            return future.result(timeout=_CALL_S)
        except FutureTimeout:
            future.cancel()
            raise ServiceFailed(
                f"the MCP server {self._name} did not answer within {_CALL_S:g} s"
            ) from None

    async def _call_tool(self, name: str, arguments: JsonDict) -> str:
        """Make a call, and give up where the connection ends meanwhile."""
        call = asyncio.ensure_future(self._client.call_tool(name, arguments))
        end = asyncio.ensure_future(self._end.wait())
        try:
            await asyncio.wait((call, end), return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise ServiceFailed(f"the MCP server {self._name} has died or was closed")
            try:
                result = call.result()
            except Exception as error:  # noqa: BLE001  of the SDK, or of the connection
                kind = getattr(getattr(error, "error", None), "code", None)
                # invalid params, no such method: JSON-RPC 2.0, section 5.1
                if kind in (-32602, -32601):
                    raise ToolError(str(error)) from None
                raise ServiceFailed(
                    f"the MCP server {self._name}: {type(error).__name__}: {error}"
                ) from None
        finally:
            call.cancel()
            end.cancel()
        text = "\n".join(_text(part) for part in result.content)
        if getattr(result, "is_error", getattr(result, "isError", False)):
            raise ToolError(text or "the tool failed")
        return text

    def _serve(self) -> None:
        """Keep the connection in one task of an event loop of its own, as the SDK wants it."""
        asyncio.set_event_loop(self._loop)
        with foreign_code(BaseException) as errors:  # the SDK's own, in groups of exceptions
            self._loop.run_until_complete(self._connect())
        if errors and not self._ready.done():
            self._ready.set_exception(
                ServiceFailed(f"the MCP server {self._name} cannot be used: {_first(errors[0])}")
            )
        with suppress(Exception):
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _connect(self) -> None:
        async with self._sdk.Client(self._target) as client:
            self._client = client
            tools: list[Tool] = []
            for listed_tool in await _list_tools(client):
                schema = (
                    getattr(listed_tool, "input_schema", None)
                    or getattr(listed_tool, "inputSchema", None)
                    or {"type": "object"}
                )
                function = partial(_by_name, self, listed_tool.name)
                tools.append(
                    Tool(
                        listed_tool.name,
                        listed_tool.description or "",
                        dict(schema),
                        function,
                        checked=False,
                    )
                )
            self._ready.set_result(tools)
            await self._end.wait()

    def _read(self, where: str | Sequence[str], env: Mapping[str, str] | None) -> Any:
        if isinstance(where, str):
            if not where.startswith(("http://", "https://")):
                raise UsageError(
                    f"mcp: {brief(where)} is no URL; a command is a list, such as ['python', "
                    f"'server.py']"
                )
            return where
        if not where or not all(isinstance(word, str) for word in where):
            raise UsageError(
                f"mcp: the command is {brief(where)}; give a list of texts, such as ['python', "
                f"'server.py']"
            )
        variables = None if env is None else {"PATH": os.environ.get("PATH", ""), **env}
        return self._sdk.StdioServerParameters(
            command=where[0], args=list(where[1:]), env=variables
        )


async def _list_tools(client: Any) -> list[Any]:
    """All tools of a server, page after page."""
    tools: list[object] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await (client.list_tools() if cursor is None else client.list_tools(cursor=cursor))
        tools += page.tools
        cursor = getattr(page, "next_cursor", None) or getattr(page, "nextCursor", None)
        if not cursor:
            return tools
    raise ServiceFailed(f"its list of tools does not end after {_PAGES} pages, {len(tools)} tools")


def _by_name(server: Server, name: str, /, **arguments: object) -> str:
    return server.call(name, arguments)


def _text(part: object) -> str:
    text = getattr(part, "text", None)
    return (
        text if isinstance(text, str) else f"({getattr(part, 'type', 'content')} that is no text)"
    )


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _library() -> Any:
    try:
        return importlib.import_module("mcp")
    except ModuleNotFoundError:
        raise MissingDependency("mcp, the SDK of the Model Context Protocol,", "mcp") from None
