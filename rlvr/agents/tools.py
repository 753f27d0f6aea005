"""The tools of an episode for a program that owns its loop: by call, and as a server of
the Model Context Protocol.

Served are `initialize`, `ping`, `tools/list` and `tools/call` over the protocol's streamable HTTP,
without a session: each POST gets one JSON answer
(https://modelcontextprotocol.io/specification/2025-06-18/basic/transports).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from rlvr.environment import Episode, EpisodeFailed
from rlvr.episode import ToolCall
from rlvr.errors import UsageError, brief
from rlvr.types import JsonDict
from rlvr.validate import is_whole

__all__ = ["EpisodeTools"]

# Of the protocol, the newest first; a client that names none of them is offered the first.
_VERSIONS: Final = ("2025-06-18", "2025-03-26", "2024-11-05")
# Codes of JSON-RPC 2.0, section 5.1.
_BAD_REQUEST, _NO_METHOD, _BAD_PARAMS = -32600, -32601, -32602


class EpisodeTools:
    """What a program may call of an episode, one call after another.

    Args:
        episode: of the environment; it has the limits and keeps the record.

    Attributes:
        failed: why the environment failed; None if it did not.
    """

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        self.failed: EpisodeFailed | None = None
        self._lock = threading.Lock()
        self._closed = False

    def call(self, name: str, arguments: Mapping[str, object]) -> ToolCall:
        """Make a call; it is one turn of the record.

        Args:
            name: of the tool.
            arguments: by name.

        Raises:
            EpisodeFailed: the environment failed; the episode is UNSCORED then.
            UsageError: the episode is over, or has no tools.
        """
        with self._lock:
            if self._closed:
                raise UsageError(f"the episode of task {self.episode.task.id!r} is over")
            try:
                return self.episode.call(name, arguments)
            except EpisodeFailed as error:
                self.failed = error
                raise

    def close(self) -> None:
        """Take no further call; waits for the one that is being made."""
        with self._lock:
            self._closed = True

    def answer(self, message: object) -> JsonDict | None:
        """The answer to a message of the protocol; None to a notification.

        Args:
            message: of JSON-RPC 2.0.
        """
        if not isinstance(message, Mapping) or not isinstance(message.get("method"), str):
            return _error(None, _BAD_REQUEST, f"{brief(message)} is no request of JSON-RPC")
        name, method = message.get("id"), message["method"]
        if name is None:
            return None
        if not isinstance(name, str) and not is_whole(name):
            return _error(None, _BAD_REQUEST, f"the id is {brief(name)}; give a text or a number")
        raw_params = message.get("params")
        params: Mapping[str, object] = raw_params if isinstance(raw_params, Mapping) else {}
        match method:
            case "initialize":
                return _result(name, _hello(params))
            case "ping":
                return _result(name, {})
            case "tools/list":
                return _result(name, {"tools": self._list_tools()})
            case "tools/call":
                return self._call_tool(name, params)
        return _error(name, _NO_METHOD, f"there is no method {brief(method)}; there are tools")

    def _list_tools(self) -> list[JsonDict]:
        return [
            {"name": name, "description": tool.description, "inputSchema": dict(tool.parameters)}
            for name, tool in self.episode.tools.items()
        ]

    def _call_tool(self, id: str | int, params: Mapping[str, object]) -> dict[str, object]:
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, Mapping):
            return _error(id, _BAD_PARAMS, f"{brief(dict(params))} has no name and arguments")
        try:
            call = self.call(name, arguments)
        except UsageError as refused:
            return _error(id, _BAD_REQUEST, str(refused))
        content = [{"type": "text", "text": call.reply}]
        return _result(id, {"content": content, "isError": call.error})


def _hello(params: Mapping[str, object]) -> dict[str, object]:
    version = params.get("protocolVersion")
    return {
        "protocolVersion": version if version in _VERSIONS else _VERSIONS[0],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "rlvr", "version": "1"},
    }


def _result(id: str | int, result: Mapping[str, object]) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, "result": dict(result)}


def _error(id: str | int | None, code: int, message: str) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}
