"""Rows of IF-RLVR and Tülu 3 under `ifeval`."""

import json
from pathlib import Path
from typing import Any

import pytest

import rlvr
from rlvr.envs.ifeval import _TULU
from rlvr.verifiers.instructions import InstructionVerifier
from rlvr.verifiers.instructions.registry import compare_count, read_instruction
from tests.json_lines import write_json_lines

SAID = "The harbour is quiet at night, and the gulls sleep on the roofs of the old market hall."
ASK = [{"role": "user", "content": "Describe a harbour at night."}]


def _task(ground_truth: Any, path: Path, **options: Any) -> tuple[Any, rlvr.Task]:
    write_json_lines(path, [{"messages": ASK, "ground_truth": ground_truth}])
    env: Any = rlvr.make("ifeval-v4", data=str(path), split="all", **options)
    return env, env.task(0)


def test_a_row_of_if_rlvr_is_a_task(tmp_path: Path):
    """Its ground truth is a Python literal: a list of one mapping, with None for no arguments."""
    kinds = ["keywords:existence", "punctuation:punctuation_exclamation"]
    truth = repr([{"instruction_id": kinds, "kwargs": [{"keywords": ["gulls"]}, None]}])
    env, task = _task(truth, tmp_path / "rows.jsonl")
    assert [one["kind"] for one in task.reference] == kinds
    assert env.score(task, SAID).verdict.correct
    assert env.score(task, SAID.replace("gulls", "boats")).verdict.reason == "keywords/existence"


def test_a_row_of_tulu_3_is_a_task(tmp_path: Path):
    """A function's name and its arguments, the others null; without a relation the number is exact."""
    truth = {"func_name": "verify_keyword_frequency", "word": "the", "N": 4, "quantifier": None}
    env, task = _task(json.dumps(truth), tmp_path / "rows.jsonl")
    assert task.reference[0]["arguments"]["relation"] == "exactly"
    assert env.score(task, SAID).verdict.correct
    assert not env.score(task, SAID.replace("and the gulls", "and gulls")).verdict.correct


@pytest.mark.parametrize(
    ("relation", "held"),
    [
        ("around", [18, 19, 20, 21, 22]),
        ("at most", [*range(21)]),
        ("less than", [*range(20)]),
        ("at least", [*range(20, 25)]),
        ("exactly", [20]),
    ],
)
def test_relations_count_as_tulu_3_has_them(relation: str, held: list[int]):
    """Around is a tenth to each side, 2 of 20; of sentences one."""
    assert [n for n in range(25) if not compare_count(n, relation, 20, "words")] == held
    if relation == "around":
        assert [n for n in range(25) if not compare_count(n, relation, 20, "sentences")] == [
            19,
            20,
            21,
        ]


@pytest.mark.parametrize(
    "truth", ["__import__('os')", "[" * 500, '{"func_name": "none"}', "[]", "5"]
)
def test_a_ground_truth_that_is_none_is_refused(truth: str, tmp_path: Path):
    """It is read as data, never run."""
    with pytest.raises(rlvr.DataError):
        _task(truth, tmp_path / "rows.jsonl")


def test_all_functions_of_tulu_3_are_known():
    """There are 25, one for each kind of IFEval."""
    assert len(_TULU) == len({kind for kind, _ in _TULU.values()}) == 25


MULTILINGUAL: list[tuple[str, dict[str, Any], str, str]] = [
    ("es:keywords:frequency", {"keyword": "mar", "frequency": 1, "relation": "como máximo"}, "El mar.", "Mar y mar."),
    ("es:special_character:tildes", {"num_words": 2, "relation": "al menos"}, "Salí así.", "Salí de casa."),
    ("es:special_character:enie", {"let_frequency": 1}, "El niño come.", "El nino come."),
    ("es:special_character:dieresis", {"let_frequency": 1}, "El pingüino nada.", "El pinguino nada."),
    ("es:punctuation:question_marks", {}, "¿Vamos? Sí.", "Vamos?"),
    ("es:punctuation:exclamation_marks", {}, "¡Vamos!", "Vamos!"),
    ("es:detectable_format:constrained_response", {}, "Sí.", "Sí. No."),
    ("es:detectable_content:number_placeholders", {"num_placeholders": 1, "relation": "al menos"}, "[nombre]", "Va."),
    ("fr:detectable_format:title", {}, "##Le port## Il dort.", "Le port. Il dort."),
    ("fr:detectable_content:informal_address", {}, "Tu viens demain.", "Vous venez demain."),
    ("fr:detectable_content:no_digits", {}, "Deux ans.", "2 ans."),
    ("fr:special_character:accents", {"word_to_accentuate": {"lecon": "leçon"}}, "La leçon.", "La lecon."),
    ("fr:special_character:ethel_or_cedilla", {"forbidden_char": "ç"}, "Le mur.", "La façade."),
    ("fr:special_character:no_accents", {}, "Le mur.", "Le pré."),
    ("fr:detectable_format:constrained_response", {}, "Peut-être.", "Oui. Peut-être."),
    ("ja:detectable_format:constrained_response", {}, "はい、そうです。", "はい、そうです。いいえ、違います。"),
    ("ja:keywords:existence", {"keywords": ["港"]}, "港は静かです。", "海は静かです。"),
    ("ja:keywords:forbidden_words", {"forbidden_words": ["港"]}, "海は静かです。", "港は静かです。"),
    ("ja:keywords:frequency", {"keyword": "港", "frequency": 2, "relation": "以上"}, "港と港です。", "港です。"),
    (
        "ja:length_constraints:number_sentences", {"num_sentences": 2, "relation": "未満"},
        "港です。", "港です。海です。",
    ),
    ("ja:length_constraints:number_letters", {"num_letters": 5, "relation": "未満"}, "港です", "港は静かです"),
    ("ja:detectable_format:number_highlighted_sections", {"num_highlights": 1}, "《港》です。", "港です。"),
    (
        "ja:detectable_format:multiple_sections", {"section_spliter": "章", "num_sections": 2},
        "第1章\n港\n第2章\n海", "第1章\n港",
    ),
    ("ja:detectable_format:number_bullet_lists", {"num_bullets": 2}, "・港\n・海", "・港"),
    ("ja:detectable_format:number_numbered_lists", {"num_items": 2}, "1. 港\n2. 海", "1. 港"),
    ("ja:detectable_format:title", {}, "『港』\n静かです。", "港\n静かです。"),
    ("ja:detectable_format:nominal_ending", {"count": 1}, "静かな港。", "港です。"),
    ("ja:startend:quotation", {}, "「港です。」", "港です。"),
    ("ja:startend:sentence_unified_end", {"ending": "です"}, "港です。海です。", "港です。海だ。"),
    ("ja:punctuation:no_comma", {}, "港です。", "港、海です。"),
    ("ja:punctuation:no_period", {}, "港です", "港です。"),
    ("ja:letters:furigana", {}, "港（みなと）です。", "港です。"),
    ("ja:letters:hiragana_only", {}, "みなとです。", "港です。"),
    ("ja:letters:katakana_only", {}, "ミナト。", "みなと。"),
    ("ja:letters:no_hiragana", {}, "港。", "港です。"),
    ("ja:letters:no_katakana", {}, "港です。", "ミナトです。"),
    ("ja:letters:kanji", {"kanji_limit": 2, "relation": "以上"}, "港と海。", "港です。"),
    ("ja:letters:kansuuji", {}, "二人です。", "2人です。"),
    (
        "ja:length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "首"},
        "港。\n\n首は長い。", "港。\n\n長い首。",
    ),
]  # fmt: skip


@pytest.mark.parametrize("policy", ["reference", "strict"])
def test_kinds_of_m_ifeval_hold_and_their_twins_do_not(policy: Any):
    """One answer that follows and one that does not, for each kind that is not IFEval's under a prefix."""
    for kind, arguments, right, wrong in MULTILINGUAL:
        instruction = read_instruction(kind, arguments)
        held = [not instruction.why_not(text, strict=policy == "strict") for text in (right, wrong)]
        assert held == [True, kind.endswith("constrained_response") and policy == "reference"], kind


def test_kinds_of_ifeval_are_known_under_a_prefix():
    """345 rows of M-IFEval need no more than that; Japanese is counted by its characters."""
    instruction = read_instruction("fr:punctuation:no_comma", {})
    assert instruction.why_not("Oui, oui.", strict=True) == "a comma occurs"
    asked = [{"kind": "ja:letters:no_katakana", "arguments": {}}]
    task = rlvr.Task("t", "港について書いてください。", asked)
    assert (
        InstructionVerifier()
        .verify("夜の海辺には灯りが並び、船の音も聞こえます。", asked, task)
        .correct
    )
