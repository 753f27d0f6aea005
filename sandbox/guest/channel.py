"""Two processes that send each other questions over one stream socket, and may ask back before they answer.

Each frame (`rlvr.workers.framing`) holds a message (`trees`): a question {"ask": n, …} or its answer {"to": n, …}.
A thread that waits for an answer also answers the questions that it reads meanwhile.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from rlvr.sandbox.guest.values import BYTES, BadValue, NotAValue, dumps, loads
from rlvr.workers.framing import FrameTooLong, framed, read_frame, write_all

__all__ = ["Channel", "Closed"]

globals().update(__builtins__=dict(vars(builtins)))  # our own copy: the program may change `builtins`

_NESTED = 100  # questions within questions
_HEARD = 256 << 20  # bytes that one side may send in all, since the other side may keep what it receives


class Closed(Exception):
    """The other side is gone, or it sent something that is no message."""


class Channel:
    """One end.  Any thread may ask.

    Args:
        fd: the socket, which belongs to the channel from now on.
        serve: called with each question of the other side; returns the answer.  `BadValue`, for a question that makes
            no sense, closes the channel.

    Attributes:
        closed: why the channel is closed; None while it is open.
    """

    def __init__(self, fd: int, serve: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._fd = fd
        self._serve = serve
        self._numbers = itertools.count()
        self._writing = threading.Lock()
        self._changed = threading.Condition(threading.Lock())
        self._reading = False
        self._answers: dict[int, dict[str, Any]] = {}
        self._waiting: set[int] = set()
        self._nested = threading.local()
        self._heard = 0
        self.closed: str | None = None

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a question and wait for the answer.

        Args:
            message: a dict without the keys "ask" and "to".

        Raises:
            Closed: no answer will come.
            NotAValue: the message is too long to be sent.
        """
        number = next(self._numbers)
        with self._changed:
            self._waiting.add(number)
        try:
            self._send({"ask": number, **message})
            return self._wait(number)
        finally:
            with self._changed:
                self._waiting.discard(number)
                self._answers.pop(number, None)

    def run(self) -> None:
        """Answer the other side's questions until it closes the channel."""
        with contextlib.suppress(Closed):
            self._wait(-1)

    def close(self, why: str = "closed") -> None:
        """Close the channel; threads that wait for an answer get `Closed`.

        Args:
            why: the reason, which `Closed` gives.
        """
        with self._changed:
            if self.closed is None:
                self.closed = why
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._fd)) as end:
                    end.shutdown(socket.SHUT_RDWR)  # wakes readers on both sides; the descriptor stays open
            self._changed.notify_all()

    def _wait(self, number: int) -> dict[str, Any]:
        """The answer of this number.  Until it is there, read all messages, unless another thread already does."""
        while True:
            with self._changed:
                while number not in self._answers and self._reading and self.closed is None:
                    self._changed.wait()
                if number in self._answers:
                    return self._answers.pop(number)
                if self.closed is not None:
                    raise Closed(self.closed)
                self._reading = True
            try:
                message = self._receive()
            except (OSError, BadValue) as error:
                self.close(str(error) if isinstance(error, BadValue) else "it ended")
                raise Closed(self.closed) from None
            finally:
                with self._changed:
                    self._reading = False
                    self._changed.notify_all()
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        number = message.get("to")
        if number is None:
            self._answer(message)
            return
        with self._changed:
            if number in self._waiting:
                self._answers[number] = message
                self._changed.notify_all()

    def _answer(self, message: dict[str, Any]) -> None:
        depth = getattr(self._nested, "depth", 0)
        self._nested.depth = depth + 1
        try:
            deep = depth >= _NESTED
            reply = {"failed": f"calls back and forth, {_NESTED} deep"} if deep else self._serve(message)
            try:
                self._send({"to": message["ask"], **reply})
            except NotAValue as error:
                self._send({"to": message["ask"], "failed": str(error)})
        except (BadValue, NotAValue) as error:
            self.close(str(error))
            raise Closed(self.closed) from None
        finally:
            self._nested.depth = depth

    def _receive(self) -> dict[str, Any]:
        try:
            data = read_frame(self._fd, min(BYTES, _HEARD - self._heard))
        except FrameTooLong:
            raise BadValue("too much said") from None
        if data is None:
            raise OSError("end of file")
        self._heard += len(data)
        message = loads(data)
        if type(message) is not dict or len({"ask", "to"} & message.keys()) != 1:
            raise BadValue("malformed: no message")
        if type(message.get("ask", message.get("to"))) is not int:
            raise BadValue("malformed: a message without a number")
        return message

    def _send(self, message: dict[str, Any]) -> None:
        data = dumps(message)
        if len(data) > BYTES:
            raise NotAValue("not a value: too large")
        with self._writing:
            if self.closed is not None:
                raise Closed(self.closed)
            try:
                write_all(self._fd, framed(data))
            except OSError:
                self.close("it ended")
                raise Closed(self.closed) from None
