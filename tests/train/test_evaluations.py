"""Further evaluations of a run: each with its own environment, numbers and rows."""

import json

import pytest

import rlvr
from rlvr.errors import UsageError
from rlvr.scoring.compare.results import read_results
from rlvr.train.config import Config
from rlvr.train.evaluations import EvalSet, eval_sets, read_eval_sets
from tests.train.bandit import run_to_end
from tests.train.test_resume import logged

ROWS = "rows-v4:verifier=math,data={data},prompt=q,reference=a,split=test"


def config(*sets, **settings) -> Config:
    return Config(env="arithmetic-v1", model="m", run="runs/x", eval_env=sets, **settings)


@pytest.mark.parametrize(
    ("text", "env", "options", "numbers", "name"),
    [
        ("math-v4", "math-v4", {}, {}, "math-v4"),
        ("math-v4:data=aime2024,n=32,rows=all", "math-v4", {"data": "aime2024"},
         {"n": 32, "rows": "all"}, "aime2024"),
        ("mine.py:Change:highest=9,option.n=2,n=4", "mine.py:Change", {"highest": 9, "n": 2},
         {"n": 4}, "mine.py-Change"),
        ("math-v4:data=a/b.jsonl,name=held", "math-v4", {"data": "a/b.jsonl"}, {"name": "held"},
         "held"),
    ],
)  # fmt: skip
def test_a_text_names_environment_options_and_numbers(text, env, options, numbers, name):
    """An option that is called as a number is written with `option.`."""
    made = EvalSet.read(text)
    assert (made.env, made.options, made.numbers, made.name) == (env, options, numbers, name)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([""], "give ID:NAME=VALUE"),
        (["arithmetic-v1:n=0"], "n is 0"),
        (["arithmetic-v1:n=2,n=3"], "n is given twice"),
        (["arithmetic-v1:rows=some"], "rows is 'some'"),
        (["arithmetic-v1:top_p=2"], "top_p is 2"),
        (["arithmetic-v1:name=a/b"], "name is str 'a/b'"),
        (["arithmetic-v1", "arithmetic-v1:n=2"], "two evaluations are called 'arithmetic-v1'"),
        (["arithmetic-v1:temperature=0,n=2"], "temperature is 0, where all n=2"),
        (["arithmetic-v1:k=4,n=2"], "k is 4 and n is 2"),
        (["arithmetic-v1:rows=all"], "give rows a number"),
        (["arithmetic-v1:split=train"], "100 of its 100 prompts are trained on; give another"),
        (["arithmetic-v1:dificulty=2"], "has no option 'dificulty'"),
        (["arithmetik-v1"], "arithmetic-v1"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(sets, message):
    """Before a model is loaded."""
    with pytest.raises(rlvr.RlvrError, match=message):
        eval_sets(config(*sets).resolve(), rlvr.make("arithmetic-v1"))


def test_rows_are_a_sample_by_the_seed_and_overlap_is_counted(tmp_path):
    """The first rows of a file are often its easiest."""
    data = tmp_path / "test.jsonl"
    lines = [json.dumps({"q": f"{i} + 1", "a": str(i + 1)}) for i in range(200)]
    data.write_text("\n".join(lines) + "\n")
    text = ROWS.format(data=data)
    env = rlvr.make("arithmetic-v1")
    [all_of_it] = eval_sets(config(f"{text},rows=all,name=a").resolve(), env)
    [some] = eval_sets(config(f"{text},rows=50,name=a").resolve(), env)
    [other] = eval_sets(config(f"{text},rows=50,name=a", seed=1).resolve(), env)
    assert all_of_it.rows == tuple(range(200))
    assert len(some.rows) == len(set(some.rows)) == 50
    assert some.rows != tuple(range(50))
    assert some.rows != other.rows
    train = tmp_path / "train.jsonl"
    for shared, refused in ((2, False), (3, True)):
        train.write_text("\n".join([*lines[:shared], '{"q": "x", "a": "1"}']) + "\n")
        own = rlvr.make("rows-v4", verifier="math", data=str(train), prompt="q", reference="a")
        made = config(f"{text},rows=all,name=a").resolve()
        if refused:
            with pytest.raises(UsageError, match="3 of its 200 prompts are trained on"):
                eval_sets(made, own)
        else:
            assert "2 of its prompts are trained on" in eval_sets(made, own)[0].line


def test_a_run_logs_each_and_keeps_what_compare_reads(tmp_path):
    """With intervals, at its own steps, and in a folder of its own."""
    sets = (
        "tests/train/bandit.py:Bandit:n=4,k=2,rows=6,every=1,max_tokens=2,name=often",
        "tests/train/bandit.py:Bandit:temperature=0,rows=3,name=ends",
    )
    run_to_end(tmp_path / "run", steps=3, eval_env=sets, eval_every=2, eval_tasks=4)
    rows = logged(tmp_path / "run")
    assert [row["step"] for row in rows if "eval/often/avg@4" in row] == [0, 1, 2, 3]
    assert [row["step"] for row in rows if "eval/ends/avg@1" in row] == [0, 2, 3]
    names = {name.removeprefix("eval/often/") for name in rows[0] if "often/" in name}
    assert {"pass@1", "pass@2", "pass@4", "maj@4", "avg@4/low", "avg@4/high"} <= names
    assert rows[0]["eval/often/length"] <= 2
    results = read_results(tmp_path / "run/evaluations/often")
    assert (len(results.tasks), results.completions) == (6, 24)
    assert read_eval_sets("eval_env", list(sets)) == sets
