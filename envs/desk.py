"""Errands at a desk: a user who has to be asked, rules, and tools over a database,
which is what is graded."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import rlvr
from rlvr.environment.tools import tools_of
from rlvr.envs.desk_worlds import WORLDS, Errand, Tables
from rlvr.validate import require_one_of

__all__ = ["Desk"]

_SPLITS: Final = ("train", "validation", "test")
_FREE: Final = ("subject", "text")  # of mails: in the sender's own words
_DONE: Final = "That is all I know."


@rlvr.register("desk-v2")
class Desk(rlvr.Environment):
    """Do what a user wants of a shop, an office or a folder of files, unless a rule forbids it.

    CORRECT needs the database as it should be at the end, side effects included, and the facts that
    the user has to be told: of all numbers, amounts or codes that are told, the last one
    counts, and others' are not for the user.  About every fourth user wants what is forbidden;
    the refusal names its rule.

    The user is a script: it answers a question, which is a turn with a question mark, with all that
    it was asked for by its words, and leaves after a turn without one.

    Options:
        world: "shop", "office", "files", or "all" in turn.
    """

    domain = "tools"
    turns: int = 16
    calls: int = 32
    world: str = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("split", self.split, _SPLITS)
        require_one_of("world", self.world, ("all", *WORLDS))

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded(self.id, self.split, index)
        name = list(WORLDS)[index % len(WORLDS)] if self.world == "all" else self.world
        world = WORLDS[name]
        db = world.tables(rng)
        errand = world.errand(rng, db)
        rules = "\n".join(f"{code}: {text}" for code, text in world.RULES.items())
        prompt = (
            f"{world.ABOUT} Use the tools. What you write without a call goes to the user: ask "
            "what you need to know, with a question mark; the conversation ends with your first "
            "message without one. Do no more than the user wants. What a rule forbids you do not "
            f"do, but tell the user the rule's code.\n\n{rules}\n\n"
            f"The user writes: {errand.opening}"
        )
        after = copy.deepcopy(db)
        tools = {tool.name: tool for tool in tools_of(world, after)}
        for tool, arguments in errand.actions:
            tools[tool].function(**arguments)
        reference = {
            "changes": _changes(db, after),
            "told": [*errand.told],
            # The codes of all other rules too: a list of them would hold the right one.
            "untold": [fact for fact in (*errand.untold, *world.RULES) if fact not in errand.told],
            "written": [*errand.written],
        }
        meta = {
            "world": name,
            "tables": db,
            "facts": dict(errand.facts),
            "actions": _list_actions(errand),
        }
        return rlvr.Task(f"{self.id}/{self.split}/{self.world}/{index}", prompt, reference, meta)

    def setup(self, task: rlvr.Task) -> dict[str, object]:
        return {"world": task.meta["world"], "db": copy.deepcopy(task.meta["tables"])}

    def tools(self, state: Any) -> Sequence[rlvr.Tool]:
        return tools_of(WORLDS[state["world"]], state["db"]) if state else []

    def user(self, task: rlvr.Task, transcript: Sequence[Mapping[str, object]]) -> str | None:
        question = str(transcript[-1]["content"])
        if "?" not in question:
            return None
        words = set(re.findall(r"[a-z]+", question.lower()))
        facts: Mapping[str, str] = task.meta["facts"]
        answers = [
            fact for keys, fact in facts.items() if any(_asks(key, words) for key in keys.split())
        ]
        return " ".join(answers) or _DONE

    def final(self, task: rlvr.Task, state: Any) -> dict[str, object]:
        before, after = task.meta["tables"], state["db"]
        mails = after.get("mails", {})
        sent = [mail["text"] for key, mail in mails.items() if key not in before["mails"]]
        return {"changes": _changes(before, after), "sent": sent}

    def verify(self, task: rlvr.Task, episode: rlvr.EpisodeRecord) -> rlvr.Verdict:
        expected, end_state = task.reference, episode.final
        if not isinstance(end_state, Mapping) or end_state["changes"] != expected["changes"]:
            return _wrong("other-state: the database is not as it should be")
        # Mails in free words, but with what they have to say.
        if not all(
            _holds(text, word) for text in end_state["sent"] for word in expected["written"]
        ):
            return _wrong("not-written: a mail does not say what it should")
        spoken = "\n".join(turn.text for turn in episode.turns if not turn.calls)
        for fact in expected["told"]:
            # Of all numbers of the fact's form the last one counts: a list of all would hold the
            # right one.
            answers = _of_its_form(spoken, fact)
            if fact not in answers:
                return _wrong(f"not-told: the user does not know {fact}")
            if answers[-1] != fact:
                return _wrong(f"told-otherwise: {fact} is told, and then {answers[-1][:20]}")
        # Mails count too: a secret may not be written to others either.
        heard = "\n".join([spoken, *end_state["sent"]])
        if leaked := [fact for fact in expected["untold"] if _holds(heard, fact)]:
            return _wrong(f"told-too-much: {leaked[0]} is not for the user")
        return rlvr.Verdict(rlvr.Outcome.CORRECT, why="done-as-wanted")

    def example_episode(self, task: rlvr.Task) -> list[str | rlvr.Ask]:
        asks = [rlvr.Ask(tool, arguments) for tool, arguments in task.meta["actions"]]
        return [*asks, " ".join(["Done.", *task.reference["told"]])]


def _wrong(why: str) -> rlvr.Verdict:
    return rlvr.Verdict(rlvr.Outcome.WRONG, why=why)


def _asks(key: str, words: set[str]) -> bool:
    """Whether a question has a word, in the plural too; "mail" is also asked for as an e-mail
    address."""
    return not words.isdisjoint({key, f"{key}s", f"e{key}"})


def _holds(text: str, fact: str) -> bool:
    return re.search(_whole(re.escape(fact)), text) is not None


def _of_its_form(text: str, fact: str) -> list[str]:
    """All that a text has of a fact's form: numbers, amounts, or codes of rules."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)  # of thousands
    # 19.99 asks for all amounts of that form, S2 for all codes.
    return re.findall(_whole(re.sub(r"\d+", r"\\d+", re.escape(fact))), text)


def _whole(pattern: str) -> str:
    return rf"(?<![\w.]){pattern}(?!\w|[.]\d)"


def _list_actions(errand: Errand) -> list[list[Any]]:
    return [[tool, arguments] for tool, arguments in errand.actions]


def _changes(before: Tables, after: Tables) -> dict[str, object]:
    """The rows that are otherwise, by table and id, and the new ones; None for those that are
    gone."""
    changes: dict[str, object] = {}
    for table, rows in after.items():
        old = before[table]
        for key in sorted(old):
            if old[key] != rows.get(key):
                changes[f"{table}/{key}"] = rows.get(key)
        # New rows without their ids, which depend on the order of calls.
        new = [_bound(table, row) for key, row in rows.items() if key not in old]
        if new:
            changes[f"{table}/new"] = sorted(new, key=repr)
    return changes


def _bound(table: str, row: Mapping[str, object]) -> dict[str, object]:
    """A row without what may be said in any words."""
    return {name: field for name, field in row.items() if table != "mails" or name not in _FREE}
