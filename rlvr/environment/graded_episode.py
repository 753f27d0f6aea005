"""An episode that is graded apart: files that remain of its session, in a fresh box."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rlvr.environment.tool_episode import ToolEpisode, each_member
from rlvr.episode import EpisodeRecord
from rlvr.errors import ToolError, UsageError, brief
from rlvr.types import Task

if TYPE_CHECKING:
    from rlvr.environment.base import Environment

__all__ = ["GradedEpisode"]


class GradedEpisode(ToolEpisode):
    """An episode of an environment that declares `outputs`, which its `grade` judges."""

    reads_end = "grade"
    # Not typed as `Box`: by that import the sandbox's files would decide all scores.
    _box: object = None

    @classmethod
    def regrade(cls, env: Environment, task: Task, record: EpisodeRecord) -> EpisodeRecord:
        """See `Episode.regrade`."""
        if record.fault:
            return record
        with env.open(task) as episode:
            assert isinstance(episode, GradedEpisode)
            return replace(record, final=episode._grade_again(record.outputs))

    def _read_end(self) -> object:
        return self._as_json("grade", self._grade_outputs, self._testing_s)

    def _lose_end(self, why: str) -> None:
        self._fault = self._fault or f"outputs: {why}"

    def _grade_outputs(self) -> object:
        """What `grade` finds in the outputs, once the session that they are from has ended."""
        try:
            files = self._require_session().outputs(self.env.outputs)
        except ToolError as fault:
            self._fault = f"outputs: {fault}"
            return None
        self._outputs = {path: _as_text(data) for path, data in files.items()}
        return self._grade_in_box(files)

    def _grade_again(self, outputs: Mapping[str, str]) -> Any:
        """What `grade` finds in the outputs of another episode's record; this one is over then."""
        self._require_open()
        self.end = "answer"
        files = {path: _as_bytes(text) for path, text in outputs.items()}
        return self._as_json("grade", lambda: self._grade_in_box(files), self._testing_s)

    def _grade_in_box(self, files: Mapping[str, bytes]) -> object:
        box = self._box = self._require_session().box(files)
        each_member(self._state, "kill")
        return self.env.grade(self.task, box)

    def _testing_s(self) -> float:
        # The box of a user's own session may not count that time.
        return float(getattr(self._box, "testing_s", 0.0))

    def _require_session(self) -> Any:
        session = self._session()
        if session is None:
            raise UsageError(
                f"{self.env.id} declares outputs, and its setup gave {brief(self._state)}: give a "
                f"session"
            )
        return session


_BASE64: Final = "base64:"


def _as_text(data: bytes) -> str:
    """A file as JSON can hold it."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = _BASE64
    return _BASE64 + b64encode(data).decode() if text.startswith(_BASE64) else text


def _as_bytes(text: str) -> bytes:
    """The file that `_as_text` read."""
    return b64decode(text.removeprefix(_BASE64)) if text.startswith(_BASE64) else text.encode()
