"""`InstructionVerifier`: the verdict on a list of instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

from rlvr.errors import DataError, UsageError, brief
from rlvr.text import after_thinking
from rlvr.types import Outcome, Task, Verdict
from rlvr.validate import require_one_of
from rlvr.verifiers.instructions.registry import Instruction, read_instruction
from rlvr.verifiers.instructions.text import different_words, squeezed_spaces

__all__ = ["InstructionVerifier", "read_instructions"]

_LONGEST = 1_000_000  # characters of an answer
_LONGEST_PROMPT = 20_000  # characters that are searched for in an answer


@dataclass(frozen=True, slots=True)
class InstructionVerifier:
    """Verifies that every instruction of a list is followed.

    The reference is a list of `{"kind": "punctuation:no_comma", "arguments": {}}`, see `KINDS`.

        >>> asked = [{"kind": "punctuation:no_comma", "arguments": {}}]
        >>> InstructionVerifier("reference").verify("No comma here.", asked).why
        'followed'

    The reasons: `followed` is CORRECT; `unfinished-thinking` and `empty` UNPARSED; `limit`, `too-short`,
    `repeats-the-prompt` and the kind of the first instruction that is not followed WRONG.  `detail` has one entry per
    instruction: why it is not followed, "" if it is.

    Under `strict` an answer must also say something: at least 15 different words that are neither the prompt's own
    text repeated nor keywords of an instruction, or as many as the instructions allow.

    Attributes:
        policy: "strict", the mended rules; "reference" decides as the published checkers do, with their holes, where
            these are deterministic: for comparison, not for training.
        loose: whether an answer also counts without its first line, its last line, both, or its asterisks: the loose
            accuracy of IFEval (arXiv:2311.07911, 2.3).  For evaluation; in training it hides text from the rules.
        share: whether a WRONG answer earns the share of the instructions that it follows.

    Raises:
        UsageError: there is no such policy.
    """

    policy: Literal["strict", "reference"] = "strict"
    loose: bool = False
    share: bool = False
    id: ClassVar[str] = "instruction-verifier-v1"

    def __post_init__(self) -> None:
        require_one_of("policy", self.policy, ("strict", "reference"))

    def verify(
        self, completion: str, reference: Sequence[Mapping[str, Any]], task: Task | None = None
    ) -> Verdict:
        """The verdict on a completion.

        Args:
            completion: the model's text.
            reference: the instructions.
            task: what the completion answers; with it, an answer that repeats the prompt is refused under `strict`.

        Raises:
            DataError: an instruction cannot be read.
            MissingDependency: an instruction needs a package that is not installed.
        """
        if not isinstance(completion, str):
            raise UsageError(
                f"the completion is a {type(completion).__name__}; it must be a string"
            )
        asked, strict = read_instructions(reference), self.policy == "strict"
        begin = after_thinking(completion)
        if begin is None:
            return Verdict(Outcome.UNPARSED, why="unfinished-thinking")
        answer = completion[begin:].strip() if strict or begin else completion
        if not answer.strip():
            return Verdict(Outcome.UNPARSED, why="empty")
        if len(answer) > _LONGEST:
            return Verdict(Outcome.WRONG, why="limit: an answer of more than a million characters")
        if strict and (flaw := _flaw(answer, asked, task)):
            return Verdict(Outcome.WRONG, why=flaw, answer=answer)
        texts = list(_loosened(answer)) if self.loose else [answer]
        reasons = [_why_not(texts, instruction, strict) for instruction in asked]
        detail = {"instructions": reasons}
        failed = [(one.kind.name, why) for one, why in zip(asked, reasons, strict=True) if why]
        if not failed:
            return Verdict(Outcome.CORRECT, why="followed", answer=answer, detail=detail)
        name, why = failed[0]
        value = 1 - len(failed) / len(asked) if self.share else 0.0
        return Verdict(Outcome.WRONG, value, f"{name.replace(':', '/')}: {why}", answer, detail)


def read_instructions(reference: Any) -> list[Instruction]:
    """The instructions of a reference.

    Args:
        reference: a list of mappings with `kind` and `arguments`.

    Raises:
        DataError: it is empty or something else, or an instruction cannot be read.
    """
    if not isinstance(reference, list | tuple) or not reference:
        raise DataError(
            f"the reference is {brief(reference)}; it must be a list of at least one instruction"
        )
    found = []
    for one in reference:
        if not isinstance(one, Mapping) or "kind" not in one:
            raise DataError(
                f"an instruction is {brief(one)}; it must be a mapping with 'kind' and 'arguments'"
            )
        found.append(read_instruction(one["kind"], one.get("arguments")))
    return found


def _why_not(texts: Sequence[str], instruction: Instruction, strict: bool) -> str:
    """Why none of the texts follows it; "" if one does."""
    why = ""
    for text in texts:
        if text.strip() and not (why := instruction.why_not(text, strict=strict)):
            return ""
    return why or "the answer is empty"


def _loosened(answer: str) -> Iterator[str]:
    """The eight variants of IFEval's loose accuracy."""
    lines = answer.split("\n")
    for text in (
        answer,
        *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])),
    ):
        yield text
        yield text.replace("*", "")


def _flaw(answer: str, asked: Sequence[Instruction], task: Task | None) -> str:
    """Why an answer says nothing, whatever the instructions; "" if it says something."""
    needed = min(one.kind.least(one.arguments) for one in asked)
    prompt = "" if task is None or any(one.kind.whole for one in asked) else _prompt(task)
    given = " ".join(" ".join(_texts(value)) for one in asked for value in one.arguments.values())
    keywords = different_words(given, _LONGEST) if given and needed > 1 else set()
    if len(different_words(answer, needed, keywords | _words_of(prompt))) >= needed:
        return ""  # enough words that are not even in the prompt
    own = _without(answer, prompt) if prompt else answer
    said = different_words(own, needed, keywords)
    if len(said) >= needed:
        return ""
    if prompt and len(own) < len(answer):
        return f"repeats-the-prompt: and has {len(said)} words of its own"
    return f"too-short: {len(said)} different words of its own, fewer than {needed}"


def _prompt(task: Task) -> str:
    if isinstance(task.prompt, str):
        return task.prompt
    return "\n".join(one["content"] for one in task.prompt if isinstance(one.get("content"), str))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        yield from value


def _without(answer: str, prompt: str) -> str:
    """The answer without repetitions of the prompt or of its lines."""
    said = squeezed_spaces(answer)
    for part in _parts(prompt):
        said = said.replace(part, " ")
    return said


@lru_cache(maxsize=256)
def _words_of(prompt: str) -> frozenset[str]:
    return frozenset(different_words(prompt[:_LONGEST_PROMPT], _LONGEST))


@lru_cache(maxsize=256)
def _parts(prompt: str) -> tuple[str, ...]:
    prompt = prompt[:_LONGEST_PROMPT]
    return tuple(
        part for part in map(squeezed_spaces, (prompt, *prompt.split("\n"))) if len(part) > 20
    )
