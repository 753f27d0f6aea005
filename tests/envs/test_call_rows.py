"""Rows of BFCL and xLAM under `function-call`."""

import json

import rlvr

BFCL = {
    "id": "simple_1",
    "question": [[{"role": "user", "content": "5 factorial?"}]],
    "function": [
        {
            "name": "math.factorial",
            "parameters": {
                "type": "dict",
                "properties": {"number": {"type": "integer"}},
                "required": ["number"],
            },
        }
    ],
    "ground_truth": [{"math.factorial": {"number": [5]}}],
}
XLAM = {
    "id": 7,
    "query": "Weather in Lagos?",
    "tools": json.dumps([{"name": "weather", "parameters": {"city": {"type": "str, optional"}}}]),
    "answers": json.dumps([{"name": "weather", "arguments": {"city": "Lagos"}}]),
}


def test_rows_of_both_data_sets_are_tasks(tmp_path):
    """`function-call` took no data, not even BFCL's."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(BFCL) + "\n" + json.dumps(XLAM) + "\n")
    env = rlvr.make("function-call-v4", data=str(path), split="all")
    assert env.size == 2
    for task, right, wrong in (
        (env.task(0), "[math.factorial(number=5)]", "[math.factorial(number=6)]"),
        (env.task(1), '[weather(city="Lagos")]', '[weather(town="Lagos")]'),
    ):
        assert env.score(task, env.example(task)).verdict.correct
        assert env.score(task, right).verdict.correct
        assert not env.score(task, wrong).verdict.correct
