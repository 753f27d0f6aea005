"""Texts found by search: made of what the verifier's own code names, and paid at
tasks with different answers.

A text that three tasks accept, whose answers differ, is wrong at two of them at least, whatever it
says.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

from rlvr.text import prompt_text
from rlvr.types import Task

__all__ = ["TEXTS", "search_texts"]

TEXTS: Final = 5000
"""Texts that are tried at most."""
_AT_ONCE: Final = 250
_MOST_WORDS: Final = 200
_MOST_PATTERNS: Final = 10
_FROM_PATTERN: Final = 20  # texts of each pattern
# A text with one of these may be a pattern.
_GROUPS: Final = re.compile(r"[([\\]")
# Numbers at which a check for digits, a range or a length may let a text pass.
_NUMBERS: Final = ("0", "1", "9", "99999999")
_ALWAYS: Final = (*_NUMBERS, " ", "-", "/")
_FORMS: Final = (("<answer>", "</answer>"), ("\\boxed{", "}"), ("", ""))

_AreCorrect = Callable[[Task, Sequence[str]], Sequence[bool]]


def search_texts(
    constants: Sequence[str],
    tasks: Sequence[Task],
    form: tuple[str, str] | None,
    are_correct: _AreCorrect,
    rng: Random,
) -> str | None:
    """A text that all tasks accept; None if there is none among `TEXTS`.

    Args:
        constants: of the verifier's own code, see `constants_of`; without any, nothing is tried.
        tasks: three tasks whose answers differ.
        form: what stands before and behind the answer in the first task's example; None if it
            cannot be told.
        are_correct: which texts a task accepts.
        rng: draws texts.
    """
    first, *further_tasks = tasks
    if not constants:
        return None
    texts = _texts(constants, first, form, rng)
    for _ in range(TEXTS // _AT_ONCE):
        # The first task sees each batch; only what it pays is tried at the others.
        batch = [next(texts) for _ in range(_AT_ONCE)]
        paid = [
            text
            for text, is_right in zip(batch, are_correct(first, batch), strict=True)
            if is_right
        ]
        for task in further_tasks:
            answers = are_correct(task, paid)
            paid = [text for text, is_right in zip(paid, answers, strict=True) if is_right]
        if paid:
            # The shortest, which says best what is paid.
            return min(paid, key=lambda text: (len(text), text))
    return None


def _texts(
    constants: Sequence[str], task: Task, form: tuple[str, str] | None, rng: Random
) -> Iterator[str]:
    """Texts without end: some tokens side by side, or what a pattern matches, in a form that
    prompts ask for."""
    tokens = _tokens(constants, prompt_text(task.prompt))
    matches = list(_from_patterns(constants, rng))
    forms = [form or _FORMS[0], *_FORMS]
    numbers = [*_NUMBERS, *re.findall(r"\d+", prompt_text(task.prompt))[:3]]
    while True:
        # Three of ten are made from a pattern, with numbers of the task in the place of its own.
        if matches and rng.random() < 0.3:
            plain = " ".join(rng.choice(matches).split())
            inside = re.sub(r"\d+", lambda _: rng.choice(numbers), plain)
        else:
            count = rng.choice((1, 2, 3, 4, 5, 6))
            inside = rng.choice(("", "", " ")).join(rng.choice(tokens) for _ in range(count))
        before, after = rng.choice(forms)
        yield before + inside + after


def _tokens(constants: Sequence[str], prompt: str) -> list[str]:
    """Words, keys and signs of the constants, as JSON has them too, and numbers of the prompt."""
    parts = re.findall(r"[A-Za-z_]+|[^\sA-Za-z0-9_]", " ".join(constants))
    words = list(dict.fromkeys(part for part in parts if len(part) < 30))[:_MOST_WORDS]
    short_constants = [text for text in constants if 0 < len(text) < 20]
    # `{"word": `: the beginning of a JSON object with a key that the verifier's code names.
    keys = [f'{{"{word}": ' for word in words if word.isidentifier()][:20]
    numbers = re.findall(r"\d+", prompt)[:3]
    return [*words, *short_constants, *keys, *("}", "{}", "[]") * bool(keys), *_ALWAYS, *numbers]


def _from_patterns(constants: Sequence[str], rng: Random) -> Iterator[str]:
    """Texts that match regular expressions among the constants, by hypothesis where it is
    installed."""
    try:
        from hypothesis import HealthCheck, Phase, given, seed, settings
        from hypothesis.errors import HypothesisException
        from hypothesis.strategies import from_regex
    except ImportError:
        return
    patterns = [text for text in constants if _GROUPS.search(text) and len(text) < 500]
    quick = settings(
        # No database and no shrinking: the same texts in each run, and none is to be explained.
        max_examples=_FROM_PATTERN, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    for pattern in patterns[:_MOST_PATTERNS]:
        matches: list[str] = []
        try:
            strategy = from_regex(re.compile(pattern, re.ASCII), fullmatch=True)
            run = seed(rng.randrange(1 << 30))(quick(given(strategy)(_keeper(matches))))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run()
        except (re.error, HypothesisException, RecursionError, ValueError):
            continue
        yield from matches


def _keeper(matches: list[str]) -> Callable[[str], None]:
    """A function with one argument, as hypothesis wants it."""

    def keep(text: str) -> None:
        matches.append(text)

    return keep
