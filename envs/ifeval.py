"""IFEval, IFBench and their kin: rows of a prompt and instructions whose
observance can be counted."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import rlvr
from rlvr.types import JsonDict, JsonObject
from rlvr.verifiers.instructions import InstructionVerifier

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["IFBench", "IFEval"]

_LONGEST: Final = 200_000  # characters of a ground truth
# Tülu 3's columns on the left, our arguments on the right.
_TULU: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "verify_keywords": ("keywords:existence", {"keyword_list": "keywords"}),
    "verify_keyword_frequency": ("keywords:frequency", {"word": "keyword", "N": "frequency"}),
    "validate_forbidden_words": (
        "keywords:forbidden_words",
        {"forbidden_words": "forbidden_words"},
    ),
    "verify_letter_frequency": (
        "keywords:letter_frequency",
        {"letter": "letter", "N": "let_frequency"},
    ),
    "validate_response_language": ("language:response_language", {"language": "language"}),
    "verify_paragraph_count": ("length_constraints:number_paragraphs", {"N": "num_paragraphs"}),
    "validate_word_constraint": (
        "length_constraints:number_words",
        {"N": "num_words", "quantifier": "relation"},
    ),
    "verify_sentence_constraint": (
        "length_constraints:number_sentences",
        {"N": "num_sentences", "quantifier": "relation"},
    ),
    "validate_paragraphs": (
        "length_constraints:nth_paragraph_first_word",
        {"N": "num_paragraphs", "i": "nth_paragraph", "first_word": "first_word"},
    ),
    "verify_postscript": (
        "detectable_content:postscript",
        {"postscript_marker": "postscript_marker"},
    ),
    "validate_placeholders": ("detectable_content:number_placeholders", {"N": "num_placeholders"}),
    "verify_bullet_points": ("detectable_format:number_bullet_lists", {"N": "num_bullets"}),
    "validate_title": ("detectable_format:title", {}),
    "validate_choice": ("detectable_format:constrained_response", {}),
    "validate_highlighted_sections": (
        "detectable_format:number_highlighted_sections",
        {"N": "num_highlights"},
    ),
    "validate_sections": (
        "detectable_format:multiple_sections",
        {"N": "num_sections", "section_splitter": "section_spliter"},
    ),
    "validate_json_format": ("detectable_format:json_format", {}),
    "validate_repeat_prompt": (
        "combination:repeat_prompt",
        {"original_prompt": "prompt_to_repeat"},
    ),
    "validate_two_responses": ("combination:two_responses", {}),
    "validate_uppercase": ("change_case:english_capital", {}),
    "validate_lowercase": ("change_case:english_lowercase", {}),
    "validate_frequency_capital_words": (
        "change_case:capital_word_frequency",
        {"N": "capital_frequency", "quantifier": "capital_relation"},
    ),
    "validate_end": ("startend:end_checker", {"end_phrase": "end_phrase"}),
    "validate_quotation": ("startend:quotation", {}),
    "validate_no_commas": ("punctuation:no_comma", {}),
}
"""Tülu 3's functions (arXiv:2411.15124) as our kinds, with the names of their arguments."""

_EXACTLY: Final = {"keywords:frequency": "relation", "keywords:letter_frequency": "let_relation"}
"""Where Tülu 3 asks for a number and names no relation."""


@rlvr.register("ifeval-v4")
class IFEval(rlvr.Environment):
    """Prompts with 1 to 3 instructions each (arXiv:2311.07911); CORRECT if all are followed.

    Options:
        data: hub id, or a local file or folder with the columns `prompt`, `instruction_id_list` and
            `kwargs`, perhaps `key`, and `example` with an answer that follows all (IFEval,
            M-IFEval, IFBench); or with `messages` and `ground_truth` (IF-RLVR's
            allenai/IF_multi_constraints_upto5, Tülu 3's allenai/RLVR-IFeval).
        policy, loose, share: see `InstructionVerifier`.  "reference" gives the published figures,
            "strict" pays for no empty answers.
    """

    domain = "instructions"
    _data: ClassVar[str] = "google/IFEval"
    data: str = ""
    policy: Literal["strict", "reference"] = "strict"
    loose: bool = False
    share: bool = False

    def __post_init__(self) -> None:
        verifier = InstructionVerifier(self.policy, self.loose, self.share)
        # an instance may shadow its class's reward
        self.reward = rlvr.Correct(verifier)  # type: ignore[misc]

    def tasks(self) -> Iterator[rlvr.Task]:
        return self.tasks_in(self.data or self._data, key="key")

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        if "ground_truth" in row:
            row = _of_ground_truth(row, id)
        kinds, arguments = row.get("instruction_id_list"), row.get("kwargs")
        if not isinstance(row.get("prompt"), str | list) or not isinstance(kinds, list):
            raise rlvr.DataError(
                f"{id}: needs 'prompt' and 'instruction_id_list'; it has "
                f"{', '.join(map(repr, row))}"
            )
        if not isinstance(arguments, list) or len(arguments) != len(kinds):
            raise rlvr.DataError(
                f"{id}: 'kwargs' must be a list with one mapping for each of {len(kinds)} "
                f"instructions"
            )
        instructions = [
            {"kind": kind, "arguments": values or {}}
            for kind, values in zip(kinds, arguments, strict=True)
        ]
        try:
            reference = self.reference_of(instructions)
        except rlvr.DataError as error:
            raise rlvr.DataError(f"{id}: {error}") from None
        meta = {"example": row["example"]} if row.get("example") else {}
        return rlvr.Task(id, row["prompt"], reference, meta)

    def reference_of(self, value: Any) -> list[dict[str, object]]:
        """The instructions, with arguments that are None left out.

        Args:
            value: a list of mappings with `kind` and `arguments`.

        Raises:
            DataError: an instruction cannot be read.
        """
        read = InstructionVerifier().read(value)
        return [
            {"kind": instruction.kind.name, "arguments": _plain(instruction.arguments)}
            for instruction in read
        ]

    def example(self, task: rlvr.Task) -> str | None:
        return task.meta.get("example")


def _of_ground_truth(row: Mapping[str, object], id: str) -> JsonDict:
    """A row of IF-RLVR or Tülu 3 with IFEval's columns."""
    text, messages = row["ground_truth"], row.get("messages")
    if not isinstance(text, str) or len(text) > _LONGEST or not isinstance(messages, list):
        raise rlvr.DataError(f"{id}: needs a list 'messages' and a text 'ground_truth'")
    try:
        instructions = json.loads(text)
    except ValueError:
        try:
            instructions = ast.literal_eval(text)  # IF-RLVR's are Python's literals
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise rlvr.DataError(f"{id}: 'ground_truth' is neither JSON nor a literal") from None
    instructions = instructions[0] if isinstance(instructions, list) else instructions
    instructions = json.loads(instructions) if isinstance(instructions, str) else instructions
    # Answers that follow in the messages are no part of the prompt.
    while messages and messages[-1]["role"] == "assistant":
        messages = messages[:-1]
    if "func_name" in instructions:
        kind, arguments = _of_tulu(instructions, id)
        kinds, values = [kind], [arguments]
    else:
        kinds, values = instructions["instruction_id"], instructions["kwargs"]
    return {"prompt": messages, "instruction_id_list": kinds, "kwargs": values}


def _of_tulu(asked: JsonObject, id: str) -> tuple[str, dict[str, object]]:
    if asked["func_name"] not in _TULU:
        raise rlvr.DataError(f"{id}: there is no function {asked['func_name']!r} of Tülu 3")
    kind, names = _TULU[asked["func_name"]]
    if kind == "detectable_format:constrained_response" and "My answer is" not in str(
        asked.get("options")
    ):
        raise rlvr.DataError(f"{id}: other options than IFEval's three sentences")
    arguments = {argument: asked.get(column) for column, argument in names.items()}
    return kind, arguments | ({_EXACTLY[kind]: "exactly"} if kind in _EXACTLY else {})


def _plain(arguments: Mapping[str, object]) -> dict[str, object]:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in arguments.items()
    }


@rlvr.register("ifbench-v4")
class IFBench(IFEval):
    """IFBench's prompts (arXiv:2507.02833), for evaluation: its 58 kinds are
    meant not to be trained on.

    Options:
        data, policy, loose, share: see `IFEval`; by default the hub's `allenai/IFBench_test`.
    """

    _data: ClassVar[str] = "allenai/IFBench_test"
