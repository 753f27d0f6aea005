"""`InstructionVerifier`: the verdict on a list of instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple

from rlvr.errors import DataError, brief
from rlvr.text import after_thinking, prompt_text
from rlvr.types import Outcome, Task, Verdict
from rlvr.validate import require_one_of
from rlvr.verifiers.base import BaseVerifier
from rlvr.verifiers.instructions.registry import Instruction, read_instruction
from rlvr.verifiers.instructions.sense import least_words, senseless, topic_share
from rlvr.verifiers.instructions.text import different_words, folded_signs, squeezed_spaces

__all__ = ["InstructionVerifier"]

_LONGEST = 1_000_000  # characters of an answer
_MARKUP = re.compile(r"\\[A-Za-z]{1,40}|</?[A-Za-z]{1,40}>")  # such as \boxed and <answer>
_OF_CODE = 4  # different words of a short program
_LISTS = frozenset(("keywords:no_adjacent_consecutive", "count:count_unique"))
# kinds whose answers are no sentences
_NO_PROSE = frozenset(
    (
        "custom:word_reverse",
        "custom:character_reverse",
        "custom:multiples",
        "custom:date_format_list",
        "format:no_whitespace",
    )
)
_SHORTEST_PART = 20  # characters of what an answer repeats
_LONGEST_PROMPT = 20_000  # characters that are searched for in an answer


@dataclass(frozen=True, slots=True)
class InstructionVerifier(BaseVerifier["_Said", "tuple[Instruction, ...]"]):
    """Verifies that every instruction of a list is followed.

    The reference is a list of `{"kind": "punctuation:no_comma", "arguments": {}}`, see `KINDS`.

        >>> asked = [{"kind": "punctuation:no_comma", "arguments": {}}]
        >>> InstructionVerifier("reference").verify("No comma here.", asked).why
        'followed'

    The reasons: `followed` is CORRECT; `unfinished-thinking` and `empty` UNPARSED; `too-long`,
    `too-short`, `repeats-the-prompt` and the kind of the first instruction that is not followed
    WRONG.  `detail` has one entry per instruction: why it is not followed, "" if it is.

    Under `strict` an answer is read as it looks, with look-alike letters folded and zero-width
    signs left out, and must also say something, see `rlvr.verifiers.instructions.sense`: words in
    an order, and no list of keywords, no refusal and not the request again; as many as the request
    asks for, from a name to an essay. That the instructions are followed says nothing of an
    answer's quality.

    Attributes:
        policy: "strict", the mended rules; "reference" decides as the published checkers do, with
            their holes, where these are deterministic: for comparison, not for training.
        loose: whether an answer also counts without its first line, its last line, both, or its
            asterisks: the loose accuracy of IFEval (arXiv:2311.07911, 2.3).  For evaluation; in
            training it hides text from the rules.
        share: whether a WRONG answer earns the share of the instructions that it follows.

    Raises:
        UsageError: there is no such policy.
    """

    policy: Literal["strict", "reference"] = "strict"
    loose: bool = False
    share: bool = False
    version: ClassVar[int] = 4
    reference_form: ClassVar[str] = "a list of mappings of kind and arguments"
    rewritings: ClassVar[tuple[str, ...]] = ()  # the whole text is judged
    reference_example: ClassVar[object] = [{"kind": "punctuation:no_comma", "arguments": {}}]

    def __post_init__(self) -> None:
        require_one_of("policy", self.policy, ("strict", "reference"))

    def read(self, reference: object) -> tuple[Instruction, ...]:
        """The instructions.

        Args:
            reference: a list of mappings with `kind` and `arguments`.

        Raises:
            DataError: it is empty or something else, or an instruction cannot be read.
        """
        if not isinstance(reference, list | tuple) or not reference:
            raise DataError(
                f"the reference is {brief(reference)}; it must be a list of at least one "
                f"instruction"
            )
        instructions = []
        for row in reference:
            if not isinstance(row, Mapping) or "kind" not in row:
                raise DataError(
                    f"an instruction is {brief(row)}; it must be a mapping with 'kind' and "
                    f"'arguments'"
                )
            instructions.append(read_instruction(row["kind"], row.get("arguments")))
        return tuple(instructions)

    def extract(self, text: str, task: Task | None) -> _Said | Verdict:
        """The text after the thinking, which is the answer as a whole.

        Args:
            text: the completion.
            task: what it answers; with it, an answer that repeats the prompt is refused under
                `strict`.
        """
        begin = after_thinking(text)
        if begin is None:
            return Verdict(Outcome.UNPARSED, why="unfinished-thinking")
        answer = text[begin:].strip() if self.policy == "strict" or begin else text
        if not answer.strip():
            return Verdict(Outcome.UNPARSED, why="empty")
        if len(answer) > _LONGEST:
            return Verdict(Outcome.WRONG, why="too-long: more than a million characters")
        looks = folded_signs(answer) if self.policy == "strict" else answer
        return _Said(looks, "" if task is None else prompt_text(task.prompt), answer)

    def judge(self, answer: _Said, reference: tuple[Instruction, ...]) -> Verdict:
        """The verdict on an answer.

        Args:
            answer: from `extract`.
            reference: from `read`.

        Raises:
            MissingDependency: an instruction needs a package that is not installed.
        """
        answer_text, instructions, strict = answer.text, reference, self.policy == "strict"
        if strict and (flaw := _flaw(answer_text, instructions, answer.prompt)):
            return Verdict(Outcome.WRONG, why=flaw, answer=answer_text)
        as_it_looks, as_it_is = (
            list(_loosen(text)) if self.loose else [text] for text in (answer_text, answer.exact)
        )
        reasons = [  # a copy in look-alike letters is none
            _why_not(as_it_is if instruction.kind.whole else as_it_looks, instruction, strict)
            for instruction in instructions
        ]
        detail: dict[str, object] = {"instructions": reasons}
        if strict and answer.prompt:
            detail["topic"] = topic_share(answer_text, answer.prompt)
        failed = [
            (instruction.kind.name, why)
            for instruction, why in zip(instructions, reasons, strict=True)
            if why
        ]
        if not failed:
            return Verdict(Outcome.CORRECT, why="followed", answer=answer_text, detail=detail)
        name, why = failed[0]
        value = 1 - len(failed) / len(instructions) if self.share else 0.0
        return Verdict(
            Outcome.WRONG, value, f"{name.replace(':', '/')}: {why}", answer_text, detail
        )


class _Said(NamedTuple):
    """An answer as it looks, the text of the prompt, and the answer as it is."""

    text: str
    prompt: str
    exact: str


def _why_not(texts: Sequence[str], instruction: Instruction, strict: bool) -> str:
    """Why none of the texts follows it; "" if one does."""
    why = ""
    for text in texts:
        if text.strip() and not (why := instruction.why_not(text, strict=strict)):
            return ""
    return why or "the answer is empty"


def _loosen(answer: str) -> Iterator[str]:
    """The eight variants of IFEval's loose accuracy."""
    lines = answer.split("\n")
    for text in (
        answer,
        *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])),
    ):
        yield text
        yield text.replace("*", "")


def _flaw(answer: str, asked: Sequence[Instruction], prompt: str) -> str:
    """Why an answer says nothing, whatever the instructions; "" if it says something."""
    is_whole = any(instruction.kind.whole for instruction in asked)
    fewest = min(instruction.kind.least(instruction.arguments) for instruction in asked)
    needed = min(fewest, least_words(prompt), _OF_CODE if "```" in answer else _LONGEST)
    argument_texts = " ".join(
        " ".join(_texts(value)) for instruction in asked for value in instruction.arguments.values()
    )
    keywords = different_words(argument_texts, _LONGEST) if argument_texts else set()
    if not is_whole and not any(instruction.kind.name in _NO_PROSE for instruction in asked):
        english = not any(
            instruction.kind.family == "mifeval"
            or (
                instruction.kind.name.startswith("language:")
                and instruction.arguments.get("language") != "en"
            )
            for instruction in asked
        )
        lists = any(instruction.kind.name in _LISTS for instruction in asked)
        if flaw := senseless(answer, keywords, needed=needed, english=english, lists=lists):
            return flaw
    request = "" if is_whole else prompt
    if "<" in answer or "\\" in answer:  # a box around the request is no word of its own
        answer = _MARKUP.sub(" ", answer)
    counted = keywords if needed > 1 else set()
    if len(different_words(answer, needed, counted | _words_of(request))) >= needed:
        return ""  # enough words that are not even in the prompt
    own_text = _without(answer, request) if request else answer
    words = different_words(own_text, needed, counted)
    if len(words) >= needed:
        return ""
    if request and len(own_text) < len(answer):
        return f"repeats-the-prompt: and has {len(words)} words of its own"
    return f"too-short: {len(words)} different words of its own, fewer than {needed}"


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        yield from (item for item in value if isinstance(item, str))


def _without(answer: str, prompt: str) -> str:
    """The answer without repetitions of the prompt or of its lines, and without lines of it that
    are a part of the prompt."""
    own_text = squeezed_spaces(answer)
    for part in _parts(prompt):
        own_text = own_text.replace(part, " ")
    question = squeezed_spaces(prompt[:_LONGEST_PROMPT]).casefold()
    lines = (
        squeezed_spaces(line).strip(" .!*#>-") for line in answer[:_LONGEST_PROMPT].split("\n")
    )
    for line in lines:
        if len(line) > _SHORTEST_PART and line.casefold() in question:
            own_text = own_text.replace(line, " ")
    return own_text


@lru_cache(maxsize=1024)
def _words_of(prompt: str) -> frozenset[str]:
    return frozenset(different_words(prompt[:_LONGEST_PROMPT], _LONGEST))


@lru_cache(maxsize=1024)
def _parts(prompt: str) -> tuple[str, ...]:
    prompt = prompt[:_LONGEST_PROMPT]
    return tuple(
        part
        for part in map(squeezed_spaces, (prompt, *prompt.split("\n")))
        if len(part) > _SHORTEST_PART
    )
