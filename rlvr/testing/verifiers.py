"""The properties that a verifier on `BaseVerifier` must have, tried on the
tasks of an environment."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rlvr.environment import Environment
from rlvr.errors import RlvrError, foreign_code
from rlvr.testing.exploits import harmless
from rlvr.testing.findings import Findings, describe_exception
from rlvr.testing.rewritings import REWRITINGS, both_answers
from rlvr.types import Task, Verdict
from rlvr.verifiers.answers import Answer, find_answer
from rlvr.verifiers.base import BaseVerifier

__all__ = ["LONG_TEXTS", "check_verifier", "strange_references"]

_CPU_S: Final = 0.5  # for a verdict on any text up to a megabyte; programs apart
# characters; a text that is slow at one is not tried longer
_SIZES: Final = (1_000, 30_000, 1_000_000)
_AGAIN: Final = 5  # times that a text is tried which took longer
_YARDSTICK, _YARDSTICK_S = "ab " * 200_000, 0.15  # a text, and the CPU time to read it at 3 GHz
_YARDSTICK_WORD: Final = re.compile(r"(\w+) ?")
_OTHERS: Final = 3  # other tasks' answers that are put beside the right one

LONG_TEXTS: Final = (
    "a", "a ", "1", "1 ", "(", "{", "[", "-", "=", "\n", "**", "$", "\\boxed{", "\\boxed{1}",
    "<answer>", "<answer>1</answer>", "```\n", "Answer: ", "the answer is 1. ", "a or ", '{"a":',
    "I", "é", "٣", "x^", "1,", "| a ", "- a\n",
)  # fmt: skip
"""Texts that are repeated up to a megabyte."""

_STRANGE: Final[tuple[object, ...]] = (
    None, True, 5, -1, 10**400, 1.5, float("nan"), float("inf"), "", " ", "\x00", "\ud800", "x",
    "(", "1" * 5000, b"x", [], [[]], [None], ["", ""], ["x", None], {}, {"": None}, {"a": 1},
    {"a": {"b": []}}, [{"kind": 5}],
)  # fmt: skip


class _Known(NamedTuple):
    """A task with an example that was found right, and the bare answer in it."""

    task: Task
    answer: str


def check_verifier(env: Environment, tasks: Sequence[Task], found: Findings) -> None:
    """Try the properties of the environment's verifier, if it stands on `BaseVerifier` and judges
    without waiting.

    Args:
        env: the environment.
        tasks: the sample.
        found: where findings go.
    """
    primary = env.reward.primary
    verifier = None if primary is None else primary.verifier
    if not isinstance(verifier, BaseVerifier):
        return
    for task in tasks[:1]:
        _try_references(verifier, task, found)
    # Programs have limits of their own, and an async verifier waits for others.
    if verifier.is_async or verifier.form.program:
        return
    if tasks:
        _try_long_texts(verifier, tasks[0], found)
    if not verifier.rewritings:
        return
    answered = [
        _Known(task, answer)
        for task in tasks
        if (answer := _answer_of(env, verifier, task)) is not None
    ]
    for number, example in enumerate(answered):
        _try_rewritings(verifier, example, found)
        # The tasks that follow, so that each has other ones beside it.
        other_examples = [*answered[number + 1 :], *answered[:number]]
        _try_both(
            verifier,
            example,
            [other_example.answer for other_example in other_examples[:_OTHERS]],
            found,
        )


def strange_references(reference: object) -> Iterator[object]:
    """References as strangers write them: other types, and this one with any part replaced or left
    out.

    Args:
        reference: one that can be read.
    """
    yield from _STRANGE
    yield from _change_value(reference)


def _change_value(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield {key: item for key, item in value.items() if key != name}
            yield from (
                {**value, name: other_value} for other_value in (*_STRANGE, *_change_value(part))
            )
        yield {**value, "another": 1}
    elif isinstance(value, list | tuple):
        # Three items of a list show what its reader does.
        for at, part in enumerate(value[:3]):
            for replacement in (*_STRANGE, *_change_value(part)):
                yield [*value[:at], replacement, *value[at + 1 :]]
        yield [*value, *value]


def _try_references(verifier: BaseVerifier[Any, Any], task: Task, found: Findings) -> None:
    for reference in strange_references(task.reference):
        found.tried("reference-raises")
        with foreign_code() as errors:
            verifier.read(reference)
        for error in errors:
            if isinstance(error, RlvrError):
                continue
            got_text, rule = describe_exception(error), "read, or refused by DataError"
            case = {"task": task.id, "completion": harmless(repr(reference))}
            found.add("reference-raises", **case, got=got_text, wanted=rule)


def _answer_of(env: Environment, verifier: BaseVerifier[Any, Any], task: Task) -> str | None:
    """The bare answer of a right example; None if there is none, or it cannot be told."""
    try:
        example = env.example(task)
        if example is None or not verifier.verify(example, task.reference, task).correct:
            return None  # which other checks report
    except RlvrError:
        return None
    answer = find_answer(example, verifier.form, task)
    return answer.text if isinstance(answer, Answer) else None


def _try_rewritings(verifier: BaseVerifier[Any, Any], known: _Known, found: Findings) -> None:
    for name in verifier.rewritings:
        text = REWRITINGS[name](known.answer)
        if text is None:
            continue
        found.tried("rewritten")
        verdict = verifier.verify(text, known.task.reference, known.task)
        if not verdict.correct:
            found.add(
                "rewritten",
                task=known.task.id,
                completion=harmless(text),
                got=_describe_verdict(verdict),
                wanted=f"correct: the same answer, rewritten by {name!r}",
            )


def _try_both(
    verifier: BaseVerifier[Any, Any], known: _Known, others: Sequence[str], found: Findings
) -> None:
    reference = known.task.reference
    for other_answer in others:
        # An answer that is right here too would be paid rightly.
        if verifier.verify(f"<answer>{other_answer}</answer>", reference, known.task).correct:
            continue
        for text in both_answers(known.answer, other_answer):
            found.tried("alternatives")
            verdict = verifier.verify(text, reference, known.task)
            if verdict.correct:
                found.add(
                    "alternatives",
                    task=known.task.id,
                    completion=harmless(text),
                    got=_describe_verdict(verdict),
                    wanted="not correct: it leaves the choice to the verifier",
                )


def _try_long_texts(verifier: BaseVerifier[Any, Any], task: Task, found: Findings) -> None:
    for piece in LONG_TEXTS:
        for size in _SIZES:
            text = piece * (size // len(piece))
            found.tried("long-text")
            took_s = _cpu_s(verifier, text, task)
            for _ in range(_AGAIN):  # a busy machine slows any one measurement down
                if took_s > _CPU_S:
                    took_s = min(took_s, _cpu_s(verifier, text, task) / _slowness())
            if took_s > _CPU_S:
                found.add(
                    "long-text",
                    task=task.id,
                    completion=harmless(text),
                    got=f"{took_s:.1f} CPU s for {size:,} characters",
                    wanted=f"at most {_CPU_S:g} CPU s",
                )
                break


def _cpu_s(verifier: BaseVerifier[Any, Any], text: str, task: Task) -> float:
    started = time.thread_time()
    verifier.verify(text, task.reference, task)
    return time.thread_time() - started


def _slowness() -> float:
    """How many times as long as on a CPU of 2024 reading a text takes now: 1 on any faster one.

    It makes as many small objects as a verifier does: a full cache slows those down, not a loop.
    """
    started = time.thread_time()
    [(word.start(), word[1].lower()) for word in _YARDSTICK_WORD.finditer(_YARDSTICK)]
    return max(1.0, (time.thread_time() - started) / _YARDSTICK_S)


def _describe_verdict(verdict: Verdict) -> str:
    return f"{verdict.outcome} ({verdict.why[:200]})"
