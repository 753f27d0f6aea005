"""An episode: what a policy does with one task, turn by turn.

    with env.open(task) as episode:
        while (told := episode.reply(policy(episode.prompt, episode.schemas))) is not None: ...
        score = env.score(task, episode.completion())

`Episode` is one of a single reply, and the class tells what is otherwise where episodes are of
another kind.  Those with tools and a simulated user are in `tool_episode`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from rlvr.environment.call_formats import read_arguments, read_turn_of
from rlvr.environment.tools import Tool
from rlvr.episode import Ask, EpisodeRecord, EpisodeTurn, PolicyTurn, ToolCall, read_turn
from rlvr.errors import Unscored, UsageError, brief
from rlvr.types import Completion, JsonDict, Prompt, Task
from rlvr.validate import require_number, require_whole
from rlvr.workers.closing import Closing

if TYPE_CHECKING:
    from rlvr.environment.base import Environment

__all__ = [
    "AWAITED_AT_ONCE",
    "Episode",
    "EpisodeFailed",
    "EpisodeLimits",
    "TurnLike",
    "TurnsEpisode",
    "is_cut",
    "policy_turn",
]

TurnLike: TypeAlias = str | Completion | PolicyTurn | Ask | Mapping[str, Any]
"""A turn of the policy: a text, whose calls are in <tool_call> tags; a completion; a turn as it was
read; one call; or a chat message with OpenAI's `tool_calls`."""

AWAITED_AT_ONCE = 64
"""`Environment.max_concurrent` where neither the environment nor its
episodes say another number."""

_CUT = ("tokens", "turns", "positions")


class EpisodeFailed(Unscored):
    """The environment failed in an episode.  Says nothing about the policy."""

    reason = "environment-error"

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """How far an episode may go.

    Args:
        turns: most turns of the policy; None for those of the run.
        calls: most calls of an episode; further ones are refused with a reply.
        call_seconds: most wall seconds of a call.
        episode_seconds: most wall seconds of all calls of an episode together.
        reply_chars: most characters of a reply; a longer one loses its middle.

    Raises:
        UsageError: a value is out of range.
    """

    turns: int | None = 8
    calls: int = 16
    call_seconds: float = 10.0
    episode_seconds: float = 300.0
    reply_chars: int = 4_000

    def __post_init__(self) -> None:
        if self.turns is not None:
            require_whole("turns", self.turns, 1)
        require_whole("calls", self.calls, 0)
        require_whole("reply_chars", self.reply_chars, 20)
        require_number("call_seconds", self.call_seconds, above=0)
        require_number("episode_seconds", self.episode_seconds, above=0)


_ONE_REPLY = EpisodeLimits(turns=1, calls=0)
_NO_TOOLS: Mapping[str, Tool] = {}


class Episode(Closing):
    """An episode of one reply; others derive from it.  Close it, or use it as a context manager.

    For one caller at a time, in any thread.

    Args:
        env: the environment.
        task: of the episode.

    Attributes:
        end: how it ended, see `EpisodeRecord`; "" while it goes on.
        limits: of the episode.
        tools: that the policy may call, by name.
    """

    reads_end: ClassVar[str] = ""
    """The environment's method that reads what is left at the end, "final"
    or "grade"; "" for none."""

    limits: EpisodeLimits = _ONE_REPLY
    tools: Mapping[str, Tool] = _NO_TOOLS

    # -------------------------------------------- what environments with such episodes do otherwise

    @classmethod
    def add_options(cls, kind: type[Environment]) -> None:
        """Give a class of environments the options of its episodes.

        Args:
            kind: a class that is being defined.
        """

    @classmethod
    def limits_of(cls, env: Environment) -> EpisodeLimits:
        """How far an episode may go.

        Args:
            env: the environment.
        """
        return cls.limits

    @classmethod
    def most_at_once(cls, env: Environment) -> int | None:
        """How many may be under way at a time; None for any number.

        Args:
            env: the environment.
        """
        return None

    @classmethod
    def judged(cls, env: Environment, completion: Completion) -> str | EpisodeRecord:
        """What `verify` reads of a completion.

        Args:
            env: the environment.
            completion: to be judged.

        Raises:
            UsageError: it has no record, and `verify` reads one.
        """
        return completion.text

    @classmethod
    def example(cls, env: Environment, task: Task) -> Sequence[str | Ask | PolicyTurn] | None:
        """The default of `Environment.example_episode`.

        Args:
            env: the environment.
            task: of the episode.
        """
        reply = env.example(task)
        return None if reply is None else [reply]

    @classmethod
    def regrade(cls, env: Environment, task: Task, record: EpisodeRecord) -> EpisodeRecord:
        """A record with what `grade` finds now in its outputs; as it is where nothing is graded.

        Args:
            env: the environment.
            task: of the episode.
            record: of the episode.

        Raises:
            EpisodeFailed: `grade` failed.
        """
        return record

    # ------------------------------------------------------------------------------- one episode

    def __init__(self, env: Environment, task: Task) -> None:
        self.env, self.task, self.end = env, task, ""
        self._completion: Completion | None = None

    @property
    def prompt(self) -> Prompt:
        """What the policy is told first."""
        return self.task.prompt

    @property
    def schemas(self) -> list[dict[str, object]]:
        """The schemas of the tools, as chat templates take them."""
        return [tool.schema for tool in self.tools.values()]

    @property
    def record(self) -> EpisodeRecord:
        """What has happened so far."""
        turns = () if self._completion is None else (EpisodeTurn(self._completion.text),)
        return EpisodeRecord(turns, self.end or "turns")

    def reply(self, turn: TurnLike, *, last: str = "") -> Prompt | None:
        """Take a turn of the policy.

        Args:
            turn: of the policy.
            last: why this turn is the last, "tokens" or "positions"; "" if it need not be.

        Returns:
            What the policy is told, messages or a text; None if the episode is over.

        Raises:
            EpisodeFailed: the environment failed.
            UsageError: the episode is over, or the turn is none.
        """
        self._require_open()
        if isinstance(turn, str):
            turn = Completion(turn)
        elif not isinstance(turn, Completion):
            turn = Completion(policy_turn(turn).text)
        self._completion = turn
        self.end = last or "answer"
        return None

    def call(self, name: str, arguments: Mapping[str, object], *, id: str = "") -> ToolCall:
        """Make one call outside of a turn's text, see `ToolEpisode.call`.

        Raises:
            UsageError: the episode has no tools.
        """
        raise UsageError(f"the episode of task {self.task.id!r} has no tool {brief(name)}")

    def files(self) -> dict[str, bytes]:
        """The regular files of its session, by path; none where there is no session."""
        return {}

    def finish(self, end: str = "answer") -> None:
        """End the episode.  Idempotent.

        Args:
            end: how it ended, see `EpisodeRecord`.
        """
        self.end = self.end or end

    def completion(self, length_tokens: int | None = None) -> Completion:
        """The episode as scores read it.

        Args:
            length_tokens: of the policy; None if unknown.
        """
        return self._completion or Completion("", length_tokens)

    def close(self) -> None:
        """Let go of what the episode holds.  Idempotent."""

    def _require_open(self) -> None:
        if self.end:
            raise UsageError(f"the episode of task {self.task.id!r} is over; open another one")


class TurnsEpisode(Episode):
    """Base of episodes of several turns, whose record is what counts."""

    reads_end = "final"

    @classmethod
    def limits_of(cls, env: Environment) -> EpisodeLimits:
        """See `Episode.limits_of`; from the environment's options."""
        limits = {limit.name: limit.default for limit in fields(EpisodeLimits)}
        options: JsonDict = {name: getattr(env, name, limits[name]) for name in limits}
        return EpisodeLimits(**options)

    @classmethod
    def most_at_once(cls, env: Environment) -> int | None:
        """See `Episode.most_at_once`."""
        return env.max_concurrent

    @classmethod
    def judged(cls, env: Environment, completion: Completion) -> str | EpisodeRecord:
        """See `Episode.judged`; the record."""
        if completion.episode is None:
            raise UsageError(
                f"{env.id} verifies episodes, and this completion has none; rlvr eval and rlvr "
                "train record them, and env.completion_of(episode.record) makes a completion of "
                "one that env.open(task) began"
            )
        return completion.episode

    @classmethod
    def example(cls, env: Environment, task: Task) -> Sequence[str | Ask | PolicyTurn] | None:
        """See `Episode.example`; a reply alone is none."""
        return None


def policy_turn(turn: TurnLike) -> PolicyTurn:
    """A turn of the policy, read.

    Args:
        turn: in any form.

    Raises:
        UsageError: it has none of these forms.
    """
    if isinstance(turn, PolicyTurn):
        return turn
    if isinstance(turn, Ask):
        return PolicyTurn("", (turn,))
    if isinstance(turn, Completion):
        turn = turn.text
    if isinstance(turn, str):
        return read_turn_of("hermes", turn)
    if isinstance(turn, Mapping):
        return read_turn(turn, read_arguments)
    raise UsageError(
        f"a turn of the policy is {brief(turn)}; give its text, a chat message or a PolicyTurn"
    )


def is_cut(end: str) -> bool:
    """Whether an episode ended by a limit.

    Args:
        end: how it ended, see `EpisodeRecord`.
    """
    return end in _CUT
