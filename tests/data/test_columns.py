"""Rows of other tools: small ones of our own, in the shape that each writes."""

import numpy as np
import pytest

from rlvr.data.columns import LAYOUTS, Columns, likely
from rlvr.data.lines import Line
from rlvr.errors import UsageError

BOX = "\\boxed{4}"
CHAT = [{"role": "user", "content": "2 + 2?"}]
SAID = [
    {"role": "assistant", "content": "Hm."},
    {"role": "user", "content": "?"},
    {"role": "assistant", "content": BOX},
]


def read(row, **how) -> list[dict]:
    return [line.row if line.row is not None else line.error for line in Columns(**how).rows([Line(7, row)])]


OTHERS = {
    "verl rollouts": ("verl", {"input": "2 + 2?", "output": BOX, "gts": "4", "score": 1.0, "step": 3}),
    "verl responses": (
        "verl",
        {
            "data_source": "x",
            "prompt": CHAT,
            "reward_model": {"style": "rule", "ground_truth": "4"},
            "responses": [BOX],
        },
    ),
    "trl texts": ("trl", {"step": 1, "prompt": "2 + 2?", "completion": BOX, "answer": "4", "advantage": 0.1}),
    "trl messages": ("trl", {"prompt": CHAT, "completion": SAID, "solution": "4"}),
    "lighteval": (
        "lighteval",
        {
            "doc": {"id": "0", "task_name": "sums", "query": "2 + 2?", "choices": ["4"], "gold_index": 0},
            "model_response": {"text": [BOX], "input_tokens": [1]},
            "metric": {"extractive_match": 1.0},
        },
    ),
    "lighteval before 0.10": ("lighteval", {"full_prompt": "2 + 2?", "predictions": [BOX], "gold": ["4"]}),
    "inspect": (
        "inspect",
        {
            "id": 3,
            "epoch": 2,
            "input": "2 + 2?",
            "target": "4",
            "output": {"choices": [{"message": {"role": "assistant", "content": [{"type": "text", "text": BOX}]}}]},
        },
    ),
    "lm-eval": (
        "lm-eval",
        {
            "doc_id": 0,
            "doc": {"question": "2 + 2?"},
            "target": "4",
            "arguments": {"gen_args_0": {"arg_0": "2 + 2?", "arg_1": {"until": ["\n"]}}},
            "resps": [[BOX]],
            "filtered_resps": ["4"],
            "filter": "strict",
        },
    ),
    "lm-eval before 0.4.3": (
        "lm-eval",
        {"doc_id": 0, "target": "4", "arguments": [["2 + 2?", {"until": []}]], "resps": [[BOX]]},
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_files_of_other_tools_are_read(name):
    like, row = OTHERS[name]
    [found] = read(row, like=like)
    assert found["completion"] == BOX
    assert found["reference"] == "4"
    assert found["prompt"] in ("2 + 2?", CHAT)


@pytest.mark.parametrize("like", LAYOUTS)
def test_a_row_of_another_shape_says_what_it_has(like):
    """Not a KeyError of ours."""
    [error] = read({"text": "x"}, like=like)
    assert "'text'" in error or "no row of the layout" in error


def test_several_completions_answer_one_task():
    """Of a list each becomes a row of its own, with its own length."""
    row = {"id": "a", "reference": "4", "completion": ["x", "y"], "length_tokens": [3, 5], "tags": ["p", "q"]}
    assert read(row) == [
        {"id": "a/0", "task": "a", "reference": "4", "completion": "x", "length_tokens": 3, "tags": ["p", "q"]},
        {"id": "a/1", "task": "a", "reference": "4", "completion": "y", "length_tokens": 5, "tags": ["p", "q"]},
    ]
    chats = {"task": 5, "completion": [SAID, SAID[:1]]}
    assert [found["completion"] for found in read(chats)] == [BOX, "Hm."]
    assert [found["id"] for found in read(chats)] == ["line:7/0", "line:7/1"]
    assert [found["completion"] for found in read({"completion": np.array(["x", "y"])})] == ["x", "y"]
    assert read({"completion": SAID, "id": 1}) == [{"completion": BOX, "id": 1}]


@pytest.mark.parametrize("value", [[], [1], [{"role": "user", "content": "x"}], [["x"], []], {"content": 3}])
def test_what_is_no_completion_is_named(value):
    [error] = read({"completion": value})
    assert "must be a text" in error


def test_a_column_is_found_by_its_path():
    """A column whose own name has dots comes first; the rest is passed on."""
    row = {
        "choices": [{"message": {"content": BOX}}],
        "reward_model": {"ground_truth": "4"},
        "a.b": "x",
        "a": {"b": "y"},
    }
    [found] = read(row, completion="choices.0.message.content", reference="reward_model.ground_truth", prompt="a.b")
    assert (found["completion"], found["reference"], found["prompt"]) == (BOX, "4", "x")
    assert "a.b" not in found
    assert found["reward_model"] == {"ground_truth": "4"}
    [error] = read(row, completion="choices.1.message")
    assert error == "no column 'choices.1.message'; it has 'choices', 'reward_model', 'a.b', 'a'"


def test_a_bare_answer_is_put_into_a_box():
    assert [found["completion"] for found in read({"completion": [" 4 ", BOX]}, bare=True)] == [BOX, BOX]


def test_an_unknown_layout_names_the_others():
    with pytest.raises(UsageError, match=r"no layout 'vrel'; there is inspect, .*verl; did you mean 'verl'"):
        Columns(like="vrel")


def test_the_likely_column_is_named():
    assert likely(["response", "id"], "completion") == "; --completion-column response takes it from there"
    assert likely(["reward_model"], "reference") == "; --reference-column reward_model.ground_truth takes it from there"
    assert likely(["id"], "reference") == ""
