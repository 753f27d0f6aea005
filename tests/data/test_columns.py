"""Rows of other tools: small ones of our own, in the shape that each writes."""

import numpy as np
import pytest

from rlvr.data.columns import LAYOUTS, Columns, likely, missing_hint
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
    return [
        line.row if line.row is not None else line.error
        for line in Columns(**how).rows([Line(7, row)])
    ]


OTHERS = {
    "verl rollouts": (
        "verl",
        {"input": "2 + 2?", "output": BOX, "gts": "4", "score": 1.0, "step": 3},
    ),
    "verl responses": (
        "verl",
        {
            "data_source": "x",
            "prompt": CHAT,
            "reward_model": {"style": "rule", "ground_truth": "4"},
            "responses": [BOX],
        },
    ),
    "trl texts": (
        "trl",
        {"step": 1, "prompt": "2 + 2?", "completion": BOX, "answer": "4", "advantage": 0.1},
    ),
    "trl messages": ("trl", {"prompt": CHAT, "completion": SAID, "solution": "4"}),
    "lighteval": (
        "lighteval",
        {
            "doc": {
                "id": "0",
                "task_name": "sums",
                "query": "2 + 2?",
                "choices": ["4"],
                "gold_index": 0,
            },
            "model_response": {"text": [BOX], "input_tokens": [1]},
            "metric": {"extractive_match": 1.0},
        },
    ),
    "lighteval before 0.10": (
        "lighteval",
        {"full_prompt": "2 + 2?", "predictions": [BOX], "gold": ["4"]},
    ),
    "inspect": (
        "inspect",
        {
            "id": 3,
            "epoch": 2,
            "input": "2 + 2?",
            "target": "4",
            "output": {
                "choices": [
                    {"message": {"role": "assistant", "content": [{"type": "text", "text": BOX}]}}
                ]
            },
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


BY_OPTIONS = {
    # OpenRLHF, openrlhf/cli/batch_inference.py with the data set's label_key kept beside it
    "OpenRLHF": (
        {"input": "2 + 2?", "output": BOX, "label": "4"},
        {"prompt": "input", "completion": "output", "reference": "label"},
    ),
    # NeMo-Skills, its pages on the generation and evaluation pipelines: output.jsonl
    "NeMo-Skills": (
        {"problem": "2 + 2?", "expected_answer": "4", "generation": BOX, "num_generated_tokens": 3},
        {"prompt": "problem", "completion": "generation", "reference": "expected_answer"},
    ),
    # LLaMA-Factory, save_predictions of its SFT trainer: generated_predictions.jsonl
    "LLaMA-Factory": (
        {"prompt": "2 + 2?", "predict": BOX, "label": "4"},
        {"completion": "predict", "reference": "label"},
    ),
    # ms-swift, its page on inference: the file of --result_path
    "ms-swift": (
        {"response": BOX, "labels": "4", "logprobs": None, "messages": CHAT},
        {"prompt": "messages", "completion": "response", "reference": "labels"},
    ),
    # verifiers, its page on evaluation: results.jsonl of saved results
    "verifiers": (
        {"example_id": 0, "prompt": CHAT, "completion": SAID, "answer": "4", "reward": 1.0},
        {"reference": "answer", "id": "example_id"},
    ),
    # OpenAI, its guide to the Batch API: the output file, with the reference kept in a column of one's own
    "OpenAI batch": (
        {
            "custom_id": "q1",
            "response": {
                "status_code": 200,
                "body": {"choices": [{"message": {"role": "assistant", "content": BOX}}]},
            },
            "gold": "4",
            "prompt": "2 + 2?",
        },
        {
            "completion": "response.body.choices.0.message.content",
            "reference": "gold",
            "id": "custom_id",
        },
    ),
    # Open-R1, the card of its data set OpenR1-Math: several generations of one problem
    "Open-R1": (
        {"problem": "2 + 2?", "answer": "4", "generations": [BOX], "uuid": "a"},
        {"prompt": "problem", "completion": "generations", "reference": "answer", "id": "uuid"},
    ),
    # OpenCompass, its prediction files, once their dict of rows is written as a list
    "OpenCompass": (
        {"origin_prompt": "2 + 2?", "prediction": BOX, "gold": "4"},
        {"prompt": "origin_prompt", "completion": "prediction", "reference": "gold"},
    ),
    # promptfoo, its page on output files: one of results.results
    "promptfoo": (
        {"vars": {"question": "2 + 2?", "expected": "4"}, "response": {"output": BOX}},
        {"prompt": "vars.question", "completion": "response.output", "reference": "vars.expected"},
    ),
    # distilabel, its page on TextGeneration: columns instruction and generation
    "distilabel": (
        {"instruction": "2 + 2?", "generation": BOX, "model_name": "toy", "answer": "4"},
        {"prompt": "instruction", "completion": "generation", "reference": "answer"},
    ),
    # vLLM, its page on run_batch: the same as OpenAI's, with an id of the request
    "vLLM run_batch": (
        {
            "id": "vllm-1",
            "custom_id": "q1",
            "response": {"body": {"choices": [{"message": {"content": BOX}}]}},
            "error": None,
            "prompt": "2 + 2?",
            "reference": "4",
        },
        {"completion": "response.body.choices.0.message.content"},
    ),
}


@pytest.mark.parametrize("name", BY_OPTIONS)
def test_files_of_more_tools_are_read_by_options(name):
    """No layout of their own: their columns are named."""
    row, options = BY_OPTIONS[name]
    [found] = read(row, **options)
    assert (found["completion"], found["reference"]) == (BOX, "4")
    assert found["prompt"] in ("2 + 2?", CHAT)


@pytest.mark.parametrize("name", BY_OPTIONS)
def test_without_options_the_error_names_one(name):
    """Which then reads the row, up to the next column; a chat under `completion` needs none."""
    row, options = BY_OPTIONS[name]
    for what in ("completion", "reference"):
        if what in options and (hint := likely(row, what)):
            assert hint.startswith(options[what].partition(".")[0]), hint
        elif what in options:
            assert name in ("promptfoo",), (name, what)  # under a name of the user's own


@pytest.mark.parametrize("like", LAYOUTS)
def test_a_row_of_another_shape_says_what_it_has(like):
    """Not a KeyError of ours."""
    [error] = read({"text": "x"}, like=like)
    assert "'text'" in error or "no row of the layout" in error


def test_several_completions_answer_one_task():
    """Of a list each becomes a row of its own, with its own length."""
    row = {
        "id": "a",
        "reference": "4",
        "completion": ["x", "y"],
        "length_tokens": [3, 5],
        "tags": ["p", "q"],
    }
    assert read(row) == [
        {
            "id": "a/0",
            "task": "a",
            "reference": "4",
            "completion": "x",
            "length_tokens": 3,
            "tags": ["p", "q"],
        },
        {
            "id": "a/1",
            "task": "a",
            "reference": "4",
            "completion": "y",
            "length_tokens": 5,
            "tags": ["p", "q"],
        },
    ]
    chats = {"task": 5, "completion": [SAID, SAID[:1]]}
    assert [found["completion"] for found in read(chats)] == [BOX, "Hm."]
    assert [found["id"] for found in read(chats)] == ["line:7/0", "line:7/1"]
    assert [found["completion"] for found in read({"completion": np.array(["x", "y"])})] == [
        "x",
        "y",
    ]
    assert read({"completion": SAID, "id": 1}) == [{"completion": BOX, "id": 1}]


@pytest.mark.parametrize(
    "value", [[], [1], [{"role": "user", "content": "x"}], [["x"], []], {"content": 3}]
)
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
    [found] = read(
        row,
        completion="choices.0.message.content",
        reference="reward_model.ground_truth",
        prompt="a.b",
    )
    assert (found["completion"], found["reference"], found["prompt"]) == (BOX, "4", "x")
    assert "a.b" not in found
    assert found["reward_model"] == {"ground_truth": "4"}
    [error] = read(row, completion="choices.1.message")
    assert error == "no column 'choices.1.message'; it has 'choices', 'reward_model', 'a.b', 'a'"


def test_a_bare_answer_is_put_into_a_box():
    assert [found["completion"] for found in read({"completion": [" 4 ", BOX]}, bare=True)] == [
        BOX,
        BOX,
    ]


def test_an_unknown_layout_names_the_others():
    with pytest.raises(
        UsageError, match=r"no layout 'vrel'; there is inspect, .*verl; did you mean 'verl'"
    ):
        Columns(like="vrel")


def test_the_likely_column_is_named():
    assert likely(["response", "id"], "completion") == "response"
    assert likely(["reward_model"], "reference") == "reward_model.ground_truth"
    assert likely(["id"], "reference") == ""
    assert missing_hint(["gold"], "reference") == "; 'gold' may be the reference"
    assert missing_hint(["id"], "reference") == "; call the reference's column 'reference'"
