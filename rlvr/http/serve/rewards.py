"""Scores of a reward model, asked for over HTTP: one thread computes, a share
of each request in turn.

A request's rows are scored in the same batches whatever else is asked for, so that its scores are
the same to the last bit when it comes again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rlvr.errors import RlvrError, UsageError, describe_error
from rlvr.http.refused import Refused
from rlvr.http.serve.jobs import shown_id
from rlvr.http.serve.limits import ServiceLimits
from rlvr.types import Prompt
from rlvr.workers.threads import Threads

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["RewardLines", "RewardModelQueue", "ServableModel"]

_AT_ONCE = 64  # rows of a request that are scored before the next request has its turn
_MOST_ERROR_LETTERS = 500

_Scores = float | list[float]  # of a completion, or of its steps

_log = logging.getLogger("rlvr.http")


class ServableModel(Protocol):
    """A reward model: `rlvr.train.reward_model.RewardModel` is one."""

    version: str
    """By which callers notice another model: letters and digits."""
    reads: str
    """What rows have: a `completion`, or its `steps`."""

    def scores(self, prompts: Sequence[Prompt], completions: Sequence[str]) -> list[float]:
        """A score in [0, 1] of each completion; called in one thread.

        Args:
            prompts: one for each completion.
            completions: their texts.
        """

    def step_scores(self, prompt: Prompt, steps: Sequence[str]) -> list[float]:
        """A score in [0, 1] of each step of a completion, where it reads "steps"; called in one
        thread.

        Args:
            prompt: of the completion.
            steps: its parts.
        """


class RewardModelQueue:
    """The requests for a reward model.  Used by the event loop alone.

    Args:
        model: the model.
        limits: of the service.
        count: called with the number of rows that were scored, and of those that could not be used.
    """

    def __init__(
        self, model: ServableModel, limits: ServiceLimits, count: Callable[[int, int], None]
    ) -> None:
        self.version, self.reads, self.waiting = model.version, model.reads, 0
        self._model, self._limits, self._count = model, limits, count
        self._thread = Threads(1, "reward model")
        self._awaited: set[asyncio.Future[Any]] = set()

    def close(self) -> None:
        """Let the thread end.  Idempotent."""
        self._thread.close()

    def abort(self, refused: Refused) -> None:
        """Answer all requests with this refusal.

        Args:
            refused: the reason.
        """
        for future in self._awaited:
            if not future.done():
                future.set_exception(refused)

    async def lines(self, rows: Sequence[object]) -> list[bytes]:
        """A line of JSON for each row: its id with its reward, or with the error.

        Args:
            rows: each with `prompt`, `completion` or `steps`, and perhaps `id`.

        Raises:
            Refused: too many rows wait, the model failed, or it took too long.
        """
        limit = self._limits.queue_rows
        if self.waiting + len(rows) > limit:
            message = (
                f"{self.waiting} rows wait for the reward model and the limit is {limit}; "
                "ask again in 1 s"
            )
            raise Refused(429, "queue-full", message, retry_after_s=1)
        # Counted until they are answered, however that ends.
        self.waiting += len(rows)
        try:
            async with asyncio.timeout(self._limits.request_s):
                reply_lines: list[bytes] = []
                for begin in range(0, len(rows), _AT_ONCE):
                    reply_lines += await self._score_rows(
                        range(begin, min(begin + _AT_ONCE, len(rows))), rows
                    )
                return reply_lines
        except TimeoutError:
            message = (
                f"{len(rows)} rows were not scored within {self._limits.request_s:g} s; send fewer"
            )
            raise Refused(504, "too-long", message) from None
        finally:
            self.waiting -= len(rows)

    async def _score_rows(self, places: range, rows: Sequence[object]) -> list[bytes]:
        calling = self._thread.submit(self._score, [rows[place] for place in places], places.start)
        awaited = asyncio.wrap_future(calling)
        self._awaited.add(awaited)
        try:
            lines: list[bytes] = await awaited
        finally:
            self._awaited.discard(awaited)
            # One that has begun goes on; its result is dropped.
            calling.cancel()  # if its turn has not come and the caller has left
        return lines

    def _score(self, rows: Sequence[Any], before: int) -> list[bytes]:
        """Called in the thread."""
        errors = {
            place: error for place, row in enumerate(rows) if (error := _unfit(row, self.reads))
        }
        good = [place for place in range(len(rows)) if place not in errors]
        scores: dict[int, _Scores] = {}
        try:
            scores = dict(zip(good, self._ask([rows[place] for place in good]), strict=True))
        # of one row, such as a chat without a template: the others have their scores
        except UsageError:
            for place in good:
                try:
                    [scores[place]] = self._ask([rows[place]])
                except UsageError as error:
                    errors[place] = str(error)
        self._count(len(scores), len(errors))
        return [
            _line(rows[i], before + i + 1, scores.get(i), errors.get(i, ""))
            for i in range(len(rows))
        ]

    def _ask(self, rows: Sequence[Row]) -> Sequence[_Scores]:
        scores: Sequence[_Scores]
        try:
            if self.reads == "steps":
                scores = [self._model.step_scores(row["prompt"], row["steps"]) for row in rows]
            else:
                scores = self._model.scores(
                    [row["prompt"] for row in rows], [row["completion"] for row in rows]
                )
        except UsageError:
            raise
        # the model's failure is the service's: no caller may take it as a score
        except Exception as error:  # noqa: BLE001
            reason = (
                str(error)
                if isinstance(error, RlvrError)
                else f"{describe_error(error)[0]}; its log has the traceback"
            )
            _log.error("the reward model failed", exc_info=error)
            raise Refused(
                500, "bug", f"the reward model failed: {' '.join(reason.split())[:200]}"
            ) from None
        if len(scores) != len(rows) or not all(map(_fits, rows, scores)):
            raise Refused(
                500,
                "bug",
                f"the reward model gave no number in [0, 1] for each of the {self.reads}",
            )
        return scores


class RewardLines:
    """Lines that are all there, in the form in which a `ScoresResponse` sends those of a job.

    Args:
        lines: one for each row.
    """

    def __init__(self, lines: list[bytes]) -> None:
        self.lines, self.count = lines, len(lines)
        self.finished, self.refused = True, None

    async def read(self) -> AsyncIterator[list[bytes]]:
        """All lines."""
        yield self.lines

    async def ends_within(self, seconds: float) -> bool:
        """True: it has ended.

        Args:
            seconds: how long to wait.
        """
        return True

    async def wait(self) -> None:
        """Wait for the last line."""


def _fits(row: Row, scores: _Scores) -> bool:
    """Whether a row has a number in [0, 1], or as many as it has steps."""
    if isinstance(scores, list):
        return len(scores) == len(row["steps"]) and all(0 <= score <= 1 for score in scores)
    return 0 <= scores <= 1


def _unfit(row: object, reads: str) -> str:
    """Why a row cannot be used; empty if it can."""
    name = "steps" if reads == "steps" else "completion"
    if not isinstance(row, dict):
        return f"the row is a {type(row).__name__}; send a mapping with 'prompt' and {name!r}"
    prompt, value = row.get("prompt"), row.get(name)
    if name == "completion" and not isinstance(value, str):
        return f"'completion' is a {type(value).__name__}; send a text"
    if name == "steps" and not (value and _is_texts(value)):
        return "'steps' is no list of texts; this model judges the steps of a completion"
    if isinstance(prompt, str):
        return ""
    is_chat = (
        isinstance(prompt, list) and prompt and all(_is_message(message) for message in prompt)
    )
    return (
        ""
        if is_chat
        else "'prompt' is neither a text nor a list of messages, each with 'role' and 'content'"
    )


def _is_texts(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(text, str) for text in given)


def _is_message(one: object) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(one.get("role"), str)
        and isinstance(one.get("content"), str)
    )


def _line(row: object, number: int, score: _Scores | None, error: str) -> bytes:
    row_id = row.get("id") if isinstance(row, dict) else None
    fields = (
        {"error": " ".join(error.split())[:_MOST_ERROR_LETTERS]}
        if score is None
        else {"rewards" if isinstance(score, list) else "reward": score}
    )
    return json.dumps({"id": shown_id(row_id, number), **fields}, allow_nan=False).encode()
