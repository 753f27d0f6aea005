"""Work for episodes whose end decides: the example's calls with one of them
changed, left out or made again.

Work is a list of turns, written as JSON: a text, or a call of a tool.  A witness is a row, a file
or a fact that is otherwise at the end than the example leaves it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from rlvr.environment.episode import TurnLike
from rlvr.episode import Ask
from rlvr.testing.plays import play
from rlvr.testing.work.maker import Maker, Untested, Witness, Work, serves
from rlvr.types import JsonDict, JsonObject, Task

__all__ = ["DeskWork", "FilesWork", "writing"]

_FREE: Final = ("subject", "text")  # of mails: in the sender's own words


class _Played(Maker):
    """Turns as JSON."""

    def turns(self, task: Task, work: Work) -> Sequence[TurnLike]:
        try:
            turns = json.loads(work.text)
        except ValueError:
            return [work.text]  # what a model wrote
        return [
            turn if isinstance(turn, str) else Ask(turn["tool"], turn["arguments"])
            for turn in turns
        ]

    def example(self, task: Task) -> str:
        return _write_turns(self.example_turns(task))

    def example_turns(self, task: Task) -> list[Any]:
        """The turns of an episode that is right: calls, and a last text.

        Args:
            task: of the episode.

        Raises:
            Untested: none is known.
        """
        turns = self.env.example_episode(task)
        if turns is None:
            raise Untested("it has no example episode")
        return list(turns)

    def right(self, task: Task, rng: Random) -> Iterator[Work]:
        yield Work(self.example(task), "example")
        turns = self.example_turns(task)
        # The last text is free: its words do not decide.
        yield Work(_write_turns([*turns[:-1], f"So. {turns[-1]}"]), "reworded")


@serves("rlvr.envs.desk.Desk")
class DeskWork(_Played):
    """A call left out, changed or added; a fact untold, exchanged or told too much."""

    def wrong(self, task: Task, rng: Random) -> Iterator[Work]:
        *calls, last = self.example_turns(task)
        facts_told, untold = task.reference["told"], task.reference["untold"]
        slips: list[tuple[str, list[object]]] = []
        for at, call in enumerate(calls):
            before, after = calls[:at], calls[at + 1 :]
            slips.append(("dropped call", [*before, *after, last]))
            for name, value in call.arguments.items():
                for other_value in _other_values(value, task.meta["tables"]):
                    changed = Ask(call.name, {**call.arguments, name: other_value})
                    slips.append(("value", [*before, changed, *after, last]))
                    # The changed call beside the right ones: the right end state, and more than
                    # that.
                    slips.append(("further call", [*calls, changed, last]))
        if facts_told:
            slips.append(("untold", [*calls, "Done."]))
        for fact in untold:
            if facts_told:
                slips.append(("other fact", [*calls, f"Done. {fact}"]))
            slips.append(("told too much", [*calls, f"{last} {fact}"]))
        rng.shuffle(slips)
        for operator, turns in slips:
            yield Work(_write_turns(turns), operator)

    def right(self, task: Task, rng: Random) -> Iterator[Work]:
        yield from super().right(task, rng)
        turns = self.example_turns(task)
        yield Work(_write_turns(["What is it about?", *turns]), "asked first")

    def witness(self, task: Task, work: Work) -> Witness | None:
        played = play(self.env, task, self.turns(task, work))
        right = play(self.env, task, self.example_turns(task))
        before = task.meta["tables"]
        expected, got = (_rows(episode.state["db"], before) for episode in (right, played))
        for place in sorted({*expected, *got}):
            if expected.get(place) != got.get(place):
                return Witness(place, str(expected.get(place)), str(got.get(place)))
        # Turns with calls are not read by the user.
        spoken = "\n".join(turn.text for turn in played.record.turns if not turn.calls)
        for fact in task.reference["told"]:
            if fact not in spoken:
                return Witness("what the user is told", fact, spoken[:200])
        for fact in task.reference["untold"]:
            # A fact of others may be a part of what is told.
            if fact in spoken and not any(
                fact in told_fact for told_fact in task.reference["told"]
            ):
                return Witness("what is not for the user", "nothing of it", fact)
        return None


@serves("rlvr.envs.bash.Bash")
class FilesWork(_Played):
    """A line of a file changed, left out or there twice; a file not written, or one that was to
    stay."""

    def wrong(self, task: Task, rng: Random) -> Iterator[Work]:
        right: Mapping[str, str] = task.reference
        slips: list[tuple[str, dict[str, str]]] = []
        for name, text in right.items():
            # A file that the task leaves as it was need not be written.
            if text != task.meta["files"].get(name):
                remaining_files = {path: right[path] for path in right if path != name}
                slips.append(("dropped file", remaining_files))
            lines = text.splitlines(keepends=True)
            for at, line in enumerate(lines):
                changed = [
                    ("line", [*lines[:at], f"{line.rstrip()}x\n", *lines[at + 1 :]]),
                    ("dropped line", [*lines[:at], *lines[at + 1 :]]),
                    ("doubled line", [*lines[:at], line, *lines[at:]]),
                ]
                slips += [(operator, {**right, name: "".join(new)}) for operator, new in changed]
        rng.shuffle(slips)
        for operator, files in slips:
            yield Work(_write_turns([writing(files), "Done."]), operator)

    def witness(self, task: Task, work: Work) -> Witness | None:
        final = play(self.env, task, self.turns(task, work)).record.final
        for name, text in task.reference.items():
            got = (final or {}).get(name)
            # White space does not count here, so that only what is written otherwise is evidence.
            if got is None or got.split() != text.split():
                return Witness(name, text[:200], str(got)[:200])
        return None


def writing(files: Mapping[str, str]) -> Ask:
    """The command that writes files.

    Args:
        files: texts by path.
    """
    lines = [f"printf %s {shlex.quote(text)} > {shlex.quote(path)}" for path, text in files.items()]
    return Ask("bash", {"command": "\n".join(lines)})


def _write_turns(turns: Sequence[Any]) -> str:
    return json.dumps(
        [
            turn
            if isinstance(turn, str)
            else {"tool": turn.name, "arguments": dict(turn.arguments)}
            for turn in turns
        ]
    )


def _other_values(value: object, tables: Mapping[str, Mapping[str, object]]) -> Iterator[object]:
    """Values of the same kind: other ids of the table, numbers beside it, another text."""
    if isinstance(value, int):
        yield from (value + 1, value - 1)
    elif isinstance(value, list):
        yield value[:-1]
    for rows in tables.values():
        if isinstance(value, str) and value in rows:
            yield from [key for key in rows if key != value][:3]
            return
    if isinstance(value, str):
        yield f"{value} 2"


def _rows(tables: Mapping[str, JsonObject], before: Mapping[str, JsonObject]) -> JsonDict:
    """Rows by table and id; new ones as a list, since their ids are those of the order
    in which they were made."""
    rows: dict[str, object] = {}
    for table, by_id in tables.items():
        for key, row in by_id.items():
            if key in before[table]:
                rows[f"{table}/{key}"] = row
        new = [
            {name: value for name, value in row.items() if table != "mails" or name not in _FREE}
            for key, row in by_id.items()
            if key not in before[table]
        ]
        rows[f"{table}/new"] = sorted(new, key=repr)
    return rows
