"""Work for tasks with instructions: texts that say nothing, and answers in which
one instruction is broken.

A witness is the broken instruction, looked for by a line of its own, or words that are none.  Right
words in any order are doubtful: instructions are about forms, and how much sense a text must make
beside them is the verifier's to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final, NamedTuple

from rlvr.testing.work.maker import Maker, Witness, Work, serves
from rlvr.types import Task
from rlvr.verifiers.instructions import InstructionVerifier

__all__ = ["InstructionsWork"]

# Of fewer words any order may make a sentence.
_FEWEST: Final = 12  # words of an example whose order says something
_NO_WORDS: Final = "no words"
_NO_ORDER: Final = "no order"


class _Breach(NamedTuple):
    """How one kind of instruction is broken, and how that is seen."""

    apply: Callable[[str, Mapping[str, Any]], str]
    is_seen: Callable[[str, Mapping[str, Any]], bool]


def _without(text: str, word: str) -> str:
    return re.sub(rf"\b{re.escape(word)}\b", "matter", text, flags=re.IGNORECASE)


def _has(text: str, word: str) -> bool:
    return word.casefold() in text.casefold()


_BREACHES: Final[Mapping[str, _Breach]] = {
    # A comma where there is none; the others likewise undo what is asked for.
    "punctuation:no_comma": _Breach(
        lambda text, _: text.replace(" ", ", ", 1), lambda text, _: "," in text
    ),
    "keywords:existence": _Breach(
        lambda text, asked: _without(text, asked["keywords"][0]),
        lambda text, asked: any(not _has(text, word) for word in asked["keywords"]),
    ),
    "keywords:forbidden_words": _Breach(
        lambda text, asked: f"{text} This is about the {asked['forbidden_words'][0]} too.",
        lambda text, asked: any(_has(text, f" {word} ") for word in asked["forbidden_words"]),
    ),
    "detectable_format:title": _Breach(
        lambda text, _: text.replace("<<", "").replace(">>", ""), lambda text, _: "<<" not in text
    ),
    "change_case:english_lowercase": _Breach(
        lambda text, _: text.upper(), lambda text, _: text != text.lower()
    ),
    "change_case:english_capital": _Breach(
        lambda text, _: text.lower(), lambda text, _: text != text.upper()
    ),
    "startend:end_checker": _Breach(
        lambda text, _: f"{text}\nThis line comes last.",
        lambda text, asked: (
            not text.casefold().rstrip().endswith(str(asked["end_phrase"]).casefold())
        ),
    ),
    "startend:quotation": _Breach(
        lambda text, _: text.strip().strip('"'), lambda text, _: not text.strip().startswith('"')
    ),
    "detectable_content:postscript": _Breach(
        lambda text, asked: text.replace(asked["postscript_marker"], "Also:"),
        lambda text, asked: not _has(text, asked["postscript_marker"]),
    ),
}


@serves(InstructionVerifier)
class InstructionsWork(Maker):
    """The example with its words in any order, repeated, or left out; and
    with one instruction broken."""

    def wrong(self, task: Task, rng: Random) -> Iterator[Work]:
        text = self.example(task)
        for kind, arguments in self._breakable(task):
            broken = _BREACHES[kind].apply(text, arguments)
            if broken != text:
                yield Work(broken, "broken instruction")
        words = text.split()
        if len(words) >= _FEWEST:
            # Words that are none, by their letters; then one word again and again.
            yield Work(" ".join(_mix_case(word, rng) for word in words), _NO_WORDS)
            yield Work(" ".join([rng.choice(words)] * len(words)), _NO_WORDS)
            yield Work(" ".join(rng.sample(words, len(words))), _NO_ORDER)
            yield Work(" ".join(sorted(set(words))), _NO_ORDER)

    def witness(self, task: Task, work: Work) -> Witness | None:
        for kind, arguments in self._breakable(task):
            if _BREACHES[kind].is_seen(work.text, arguments):
                return Witness(kind, str(dict(arguments)), work.text[:200])
        if work.operator not in (_NO_WORDS, _NO_ORDER):
            return None
        # Right words in any order may be meant: see above.
        is_doubtful = work.operator == _NO_ORDER
        return Witness(work.operator, "sentences", work.text[:200], is_doubtful=is_doubtful)

    def _breakable(self, task: Task) -> Iterator[tuple[str, Mapping[str, object]]]:
        for instruction in task.reference:
            if instruction["kind"] in _BREACHES:
                yield instruction["kind"], instruction.get("arguments") or {}


def _mix_case(word: str, rng: Random) -> str:
    """The word with its letters in another order; signs stay in their places."""
    letters = [char for char in word if char.isalnum()]
    rng.shuffle(letters)
    return "".join(letters.pop() if char.isalnum() else char for char in word)
