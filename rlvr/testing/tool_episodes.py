"""Checks of an environment with tools: its example, its replies, and what a policy could get out of it.

They run in a worker, which can be killed.  Each tool is probed with values of its schema, with the names of what
the state holds, and with code; the replies must hold no reference, must come in time, and must be of a sound length.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from rlvr.environment import Environment
from rlvr.episode import Ask, EpisodeRecord, PolicyTurn
from rlvr.errors import Unscored
from rlvr.testing.answers import plain_answer
from rlvr.testing.episodes import JUNK, Breach
from rlvr.testing.findings import Severity
from rlvr.types import Outcome, Score, Task

__all__ = ["TOOLS_S", "tool_breaches", "tool_trace"]

TOOLS_S: Final = 120.0  # that the checks of a task may take, in wall seconds

_LONG: Final = 100_000  # characters of a reply
_CALL_S: Final = 10.0
_TURNS: Final = 50
_WORDS: Final = (
    "answer",
    "secret",
    "reference",
    "solution",
    "target",
    "task",
    "help",
    "x",
    "",
    "../x",
    "\x00",
    "x" * 1000,
)
_NUMBERS: Final = (0, 1, -1, 10**9)
_CODE: Final = (
    "__import__('os').getpid()",
    "print({k: v for k, v in globals().items()}, {k: v for k, v in locals().items()})",
    "import os; print(dict(os.environ), [open(os.path.join(d, f)).read() for d, _, fs in os.walk('.') for f in fs])",
    "env; set; find . /tmp -type f -exec cat {} + 2>/dev/null",
)
_Turn: TypeAlias = str | Ask | PolicyTurn


def tool_breaches(env: Environment, tasks: Sequence[Task]) -> list[Breach]:
    """What is wrong with the episodes of some tasks.

    Args:
        env: the environment.
        tasks: of the environment.
    """
    env = env._copy()
    env.reply_chars, env.calls, env.turns = 10**9, 10**6, max(env.turns, _TURNS)
    env.episode_seconds = 1e9
    env.call_seconds = min(env.call_seconds, _CALL_S)
    found: list[Breach] = []
    seen = []
    for task in tasks:
        try:
            found += _example(env, task)
            said, breaches = _probed(env, task)
            found += breaches
            seen.append((task, said))
            found += _junk(env, task)
            found += _many(env, task, tasks)
        except Unscored as error:
            found.append(_hole("crash", "an episode fails", str(error)))
    found += _secrets(seen)
    return list(dict.fromkeys(found))


def tool_trace(env: Environment, tasks: Sequence[Task]) -> list[str]:
    """The episodes of the examples as texts, to be compared with those of another process.

    Args:
        env: the environment.
        tasks: of the environment.
    """
    return [
        json.dumps(_without_times(_played(env, task, _turns_of(env, task))[0])) for task in tasks
    ]


def _played(env: Environment, task: Task, turns: Sequence[_Turn]) -> tuple[EpisodeRecord, Score]:
    with env.open(task) as running:
        for turn in turns:
            if running.reply(PolicyTurn(turn) if isinstance(turn, str) else turn) is None:
                break
        if not running.end:
            running.finish("turns")
    record = running.record
    return record, env.score_group(task, [env.completion_of(record, 1)])[0]


def _turns_of(env: Environment, task: Task) -> Sequence[_Turn]:
    return env.example_episode(task) or ["Done."]


def _without_times(record: EpisodeRecord) -> dict[str, Any]:
    found = record.as_dict()
    for turn in found["turns"]:
        for call in turn["calls"]:
            del call["seconds"]
    return found


# ------------------------------------------------------------------------------------------------------- the example


def _example(env: Environment, task: Task) -> Iterator[Breach]:
    """Played twice: the same replies, the maximum, and a record that is verified again as it was."""
    if env.example_episode(task) is None:
        what = "example_episode gives no turns, so it is not known that the maximum can be earned"
        yield "no-example", Severity.NOTE, what, ""
    turns = _turns_of(env, task)
    record, score = _played(env, task, turns)
    again, _ = _played(env, task, turns)
    if _without_times(record) != _without_times(again):
        yield _hole(
            "nondeterministic",
            "the same task and turns give other replies; the task alone must decide them",
        )
    if score.total is None:
        yield _hole("unscored", "verify returns UNSCORED", score.verdict.why)
        return
    high = env.reward.bounds[1]
    if env.example_episode(task) is not None:
        if score.verdict.outcome is not Outcome.CORRECT:
            yield _hole(
                "reference-rejected", "the example episode is not CORRECT", score.verdict.why
            )
        elif score.total < high - 1e-9 and not env.reward.group_level:
            what = f"the example episode earns {score.total:g}, and the reward's upper bound is {high:g}"
            yield "reference-below-maximum", Severity.WARNING, what, ""
    copied = EpisodeRecord.from_dict(json.loads(json.dumps(record.as_dict())))
    replayed = env.score_group(task, [env.completion_of(copied, 1)])[0]
    if replayed != score:
        what = "the record is verified otherwise the second time: verify must be a pure function of the record"
        yield _hole("nondeterministic", what, f"{score.verdict.why}, then {replayed.verdict.why}")
    yield from _twice(env, task, turns, score, high)


def _twice(
    env: Environment, task: Task, turns: Sequence[_Turn], score: Score, high: float
) -> Iterator[Breach]:
    """Every call of the example three times: no more may be earned by it."""
    calls = [turn for turn in turns if not isinstance(turn, str)]
    if not calls:
        return
    repeated = [turn for turn in turns for _ in range(1 if isinstance(turn, str) else 3)]
    record, more = _played(env, task, repeated)
    if more.total is not None and score.total is not None and more.total > score.total + 1e-9:
        got = f"{more.total:g} in place of {score.total:g}"
        yield _hole("collected-twice", "the calls of the example, each three times, earn more", got)
    rewards = env.turn_rewards(task, record)
    total = sum(one or 0.0 for one in rewards or ())
    if total > max(high, more.total or 0.0) + 1e-9:
        yield _hole(
            "collected-twice",
            "calls that are repeated have rewards of turns above the total",
            f"{total:g}",
        )


# --------------------------------------------------------------------------------------------------------- the replies


def _probed(env: Environment, task: Task) -> tuple[str, list[Breach]]:
    """All that the policy is told before it knows anything, and what is wrong with these replies."""
    found: list[Breach] = []
    prompt = json.dumps(task.prompt, ensure_ascii=False, default=str)
    said: list[str] = []
    first: Any = env.open(task)
    with first:
        keys = _names_in(first._state)
        said.append(json.dumps(first.schemas, ensure_ascii=False))
        tools = dict(first.tools)
    for name, tool in tools.items():
        running: Any = env.open(task)
        try:
            for probe in _probes(tool.parameters, keys):
                try:
                    call = running.call(name, probe)
                except Unscored as error:
                    found.append(
                        _hole(
                            "crash",
                            f"the tool {name!r} raises, so a policy can make its rollout UNSCORED",
                            str(error),
                        )
                    )
                    running.close()
                    running = env.open(task)
                    continue
                code = any(value in _CODE for value in probe.values())
                if call.reply.startswith("error: time limit"):
                    got = json.dumps(probe, default=str)[:100]
                    found.append(
                        _hole("hang", f"a call of the tool {name!r} exceeds {_CALL_S:g} s", got)
                    )
                if len(call.reply) > _LONG and not code:
                    got = f"{len(call.reply)} characters"
                    found.append(
                        (
                            "long-reply",
                            Severity.WARNING,
                            f"the tool {name!r} gives a very long reply",
                            got,
                        )
                    )
                if str(os.getpid()) in call.reply and "getpid" in str(probe):
                    what = f"the tool {name!r} runs the policy's text in the process that holds the references"
                    found.append(_hole("evaluates", what))
                said.append(call.reply[:_LONG])
                if running._over or "session is over" in call.reply:
                    running.close()
                    running = env.open(task)
        finally:
            running.close()
    said += _user_says(env, task)
    return "\n".join([prompt, *said]), found


def _user_says(env: Environment, task: Task) -> list[str]:
    with env.open(task) as running:
        told = running.reply(PolicyTurn("I do not know."))
        return [json.dumps(told)]


def _probes(schema: Mapping[str, Any], keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Arguments to try: every value for each argument in turn, the others at their first."""
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    values = {name: _values(one, keys) for name, one in properties.items()}
    first = {name: given[0] for name, given in values.items()}
    if not values:
        yield {}
    for name, given in values.items():
        for value in given:
            yield {**first, name: value}


def _values(schema: Mapping[str, Any], keys: Sequence[str]) -> list[Any]:
    if "anyOf" in schema:
        return [value for one in schema["anyOf"] for value in _values(one, keys)]
    if "enum" in schema:
        return list(schema["enum"])
    match schema.get("type"):
        case "integer":
            return list(_NUMBERS)
        case "number":
            return [*map(float, _NUMBERS), 0.5]
        case "boolean":
            return [False, True]
        case "array":
            return [[], *([value] for value in _values(schema.get("items", {}), keys))]
        case "object":
            return [{}]
        case "null":
            return [None]
    return [*_WORDS, *(key for key in keys if key not in _WORDS), *_CODE]


def _names_in(state: Any) -> list[str]:
    """Names under which a state holds things."""
    if isinstance(state, Mapping):
        return [key for key in state if isinstance(key, str)][:20]
    return [name for name in getattr(state, "__dict__", {}) if not name.startswith("__")][:20]


def _secrets(seen: Sequence[tuple[Task, str]]) -> Iterator[Breach]:
    """References in what a policy is told without having done anything for it.

    A short reference may stand in a reply by chance; so it has to be that task's own more often than another's.
    """
    own = other = count = 0
    for i, (task, said) in enumerate(seen):
        reference, foreign = _shown(task), _shown(seen[i - 1][0])
        if (
            reference is None
            or foreign is None
            or reference == foreign
            or _holds(_text_of(task), reference)
        ):
            continue
        count += 1
        own += _holds(said, reference)
        other += _holds(said, foreign)
    if count and own > count / 2 and own > other:
        yield _hole(
            "secret",
            "a reply, the prompt or a schema holds the reference",
            f"in {own} of {count} tasks",
        )


def _shown(task: Task) -> str | None:
    """A reference as it could stand in a reply; None if it is no short text."""
    reference = task.reference
    if isinstance(reference, (list, tuple)) and reference:
        reference = reference[0]
    return plain_answer(reference)


def _text_of(task: Task) -> str:
    return json.dumps(task.prompt, ensure_ascii=False, default=str)


def _holds(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None


# --------------------------------------------------------------------------------------------------------- the answer


def _junk(env: Environment, task: Task) -> Iterator[Breach]:
    """Answers that deserve nothing, at once and again and again."""
    for hole, text in JUNK.items():
        _, score = _played(env, task, [PolicyTurn(text)] * 3)
        if score.verdict.outcome is Outcome.CORRECT:
            yield _hole(
                hole,
                "an episode of nothing else is correct",
                f"{score.verdict.why}, total {score.total}",
            )


def _many(env: Environment, task: Task, tasks: Sequence[Task]) -> Iterator[Breach]:
    """The answers of all tasks in one turn, the right one among them; and as calls of one turn."""
    turns = list(_turns_of(env, task))
    others = [list(_turns_of(env, one)) for one in tasks if _shown(one) != _shown(task)]
    if not others:
        return
    if isinstance(turns[-1], str):
        finals = [
            other[-1] for other in others if isinstance(other[-1], str) and other[-1] != turns[-1]
        ]
        if finals:
            several = "\n".join([*finals, turns[-1], *finals])
            _, score = _played(env, task, [*turns[:-1], several])
            if score.verdict.outcome is Outcome.CORRECT:
                yield _hole(
                    "hedge",
                    "many answers in one turn, one of them right, are correct",
                    score.verdict.why,
                )
    reference = _shown(task)
    answering = [
        turn
        for turn in turns
        if isinstance(turn, Ask) and reference in map(plain_answer, turn.arguments.values())
    ]
    wrong = [
        turn
        for one, other in zip(tasks, (list(_turns_of(env, one)) for one in tasks), strict=True)
        for turn in other
        if isinstance(turn, Ask)
        and _shown(one) != reference
        and _shown(one) in map(plain_answer, turn.arguments.values())
    ]
    if answering and wrong:
        _, alone = _played(env, task, [*answering, "Done."])
        _, score = _played(env, task, [PolicyTurn("", (*wrong, *answering, *wrong)), "Done."])
        if alone.verdict.outcome is Outcome.CORRECT and score.verdict.outcome is Outcome.CORRECT:
            yield _hole(
                "hedge",
                "many answers as calls of one turn, one of them right, are correct",
                score.verdict.why,
            )


def _hole(hole: str, what: str, got: str = "") -> Breach:
    return hole, Severity.HOLE, what, got[:500]
