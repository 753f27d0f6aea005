"""A program and an interactor that talk to each other, as seen from the host.

program in its slot ◀── pipes ──▶ interactor in its slot,
                                  whose box carries what is said (guest/exchange.py)
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from rlvr.sandbox.guest.exchange import BOARD, FLOOD, OUTCOME, OUTCOME_AT, STOP, STUCK, STUCK_HERE
from rlvr.sandbox.outputs import Output, memfd
from rlvr.sandbox.records import Ending, Limits, Run
from rlvr.sandbox.slots import RunRequest

__all__ = ["Interaction", "Talk"]

_STUCK: Final = {STUCK: "program", STUCK_HERE: "interactor"}
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Interaction:
    """How a program and an interactor have talked.

    Attributes:
        program: how the program ended.  What it said is in `transcript`, not in its `stdout`.
        interactor: how the interactor ended.
        stopped: the program was stopped, as the interactor had ended otherwise than with `accepts`,
            or both were stuck.
        stuck: "program" if each of them waited for the other; "interactor" if that waited for
            something else, which no program could bring; "" if neither.
        asked: the interactor has waited for a word of the program.
        ended_early: the interactor waited for more when the program had ended, or had closed its
            output.
        said, heard: bytes that the program has written and read.
        unread: words of the program were left that the interactor had not read.
        since_s: CPU seconds of the interactor after the last word of the program that it got.
        transcript: the beginning of what both said; "> " before the program's words, "< " before
            the interactor's.
    """

    program: Run
    interactor: Run
    stopped: bool = False
    stuck: str = ""
    asked: bool = False
    ended_early: bool = False
    said: int = 0
    heard: int = 0
    unread: bool = False
    since_s: float = 0.0
    transcript: str = ""


class Talk:
    """The descriptors and the board of one interaction.

    Args:
        program, interactor: the message to each box.
    """

    def __init__(self, program: dict[str, object], interactor: dict[str, object]) -> None:
        self._messages = program, interactor
        self._board = memfd(bytes(BOARD))
        self._pipes: list[int] = []

    def prepare(self, limits: Limits, own: Limits, accepts: int) -> None:
        """Give the boxes what they need to know of each other.

        Args:
            limits, own: of the program and of the interactor.
            accepts: see `Sandbox.interact`.
        """
        interactor = self._messages[1]
        interactor |= {"words": int(limits.output_mib * _MIB), "accepts": accepts}
        # where the kernel does not show whether it waits for the program
        interactor["blind_s"] = 2 * limits.wall
        # the one's clock, then the other's, each without a core
        self.patience_s = 3 * (own.wall + 2 * limits.wall)

    def requests(
        self, program: Mapping[str, int], interactor: Mapping[str, int]
    ) -> list[RunRequest]:
        """The requests to the two boxes, joined by new pipes.

        Args:
            program, interactor: descriptors of the run.
        """
        # A second attempt gets new pipes and a clean board.
        self.sent()
        os.pwrite(self._board, bytes(BOARD), 0)
        stdin, to_program = os.pipe()
        self._pipes += stdin, to_program
        from_program, stdout = os.pipe()
        self._pipes += from_program, stdout
        first = {**program, "stdin": stdin, "stdout": stdout, "board": self._board}
        second = {
            **interactor,
            "from_program": from_program,
            "to_program": to_program,
            "board": self._board,
        }
        return [RunRequest(self._messages[0], first), RunRequest(self._messages[1], second)]

    def sent(self) -> None:
        """Close the pipes here: only then does the end of one side reach the other."""
        while self._pipes:
            os.close(self._pipes.pop())

    def outcome(self, program: Run, interactor: Run, limits: Limits) -> Interaction:
        """The interaction that two runs were.

        Args:
            program, interactor: the runs.
            limits: of the program.
        """
        order, has_asked, early, idle, unread, words, heard, since_s = OUTCOME.unpack(
            os.pread(self._board, OUTCOME.size, OUTCOME_AT)
        )
        stuck = _STUCK.get(order, "")
        # No CPU was used up: the wall clock ended it.
        if idle and program.ending is Ending.TLE and program.cpu_s <= limits.cpu_s and not stuck:
            stuck = "program"  # both had timers, so only the wall clock could tell
        why = {
            STOP: "it was stopped, as the interactor had ended",
            FLOOD: f"over {limits.output_mib:g} MiB of output",
            STUCK: "it was stopped, as each waited for the other",
            STUCK_HERE: "it was stopped, as the interactor waited for what no program can bring",
        }.get(order)
        # The kill that we ordered must be what ended it; else its own end counts.
        stopped = (
            order != FLOOD
            and why is not None
            and program.signal == 9
            and program.ending is Ending.RE
        )
        if order == FLOOD:
            program = dataclasses.replace(program, ending=Ending.OLE, why=str(why))
        elif stopped:
            program = dataclasses.replace(program, why=str(why))
        # The interactor's output went to the program; its file holds the transcript.
        return Interaction(
            program,
            dataclasses.replace(interactor, output=Output()),
            stopped,
            stuck,
            bool(has_asked),
            bool(early),
            words,
            heard,
            bool(unread),
            since_s,
            interactor.stdout.decode("utf-8", "replace"),
        )

    def __enter__(self) -> Talk:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.sent()
        os.close(self._board)
