"""What a run leaves of its rollouts: the file with typed columns, and the table on the terminal."""

import json

import pytest
from rich.console import Console

import rlvr
from rlvr.algo.papers import load_algorithm
from rlvr.data.rows import read_whole
from rlvr.episode import EpisodeRecord, EpisodeTurn, ToolCall
from rlvr.train.rollout_log import Trained, _token_texts, log_rollouts, rollout_table
from tests.train.bandit import Bandit, run_to_end, trainer
from tests.train.test_credit import rollout

PATH = "rollouts/step-00000001.parquet"


def test_rollouts_can_be_read_as_a_table(tmp_path):
    """One row each, with what was asked, said and found."""
    group = rlvr.Group(rlvr.Task("t", "?"), [rollout(2, 1.0), rollout(3, None)])
    log_rollouts(tmp_path / PATH, [group])
    rows = read_whole(tmp_path / PATH)
    assert [
        (row["rollout"], row["score"], row["outcome"], row["length_tokens"]) for row in rows
    ] == [
        (0, 1.0, "correct", 2),
        (1, None, "unscored", 3),
    ]


def test_columns_have_types_and_not_json(tmp_path):
    """Any tool can filter by a part, an advantage or a call; a column without a value still has its type."""
    parquet = pytest.importorskip("pyarrow.parquet")
    calls = (ToolCall("search", {"query": "x"}, "\ud800 found", seconds=0.5),)
    one = rollout(2, 1.0, turns=(rlvr.types.Turn(0, 2, 0.5),))
    object.__setattr__(
        one, "episode", EpisodeRecord((EpisodeTurn("let me see", calls), EpisodeTurn("7")))
    )
    task = rlvr.Task("t", [{"role": "user", "content": "json:?"}], reference={"a": 1})
    trained = {id(one): Trained(0.25, (0.25, 0.25))}
    log_rollouts(
        tmp_path / PATH, [rlvr.Group(task, [one])], env_of=lambda _: "search-v4", trained=trained
    )
    table = parquet.read_table(tmp_path / PATH)
    kinds = {field.name: str(field.type) for field in table.schema}
    assert kinds["parts"].startswith("map<string, double")
    assert kinds["advantage"] == kinds["score"] == "double"
    assert kinds["logprobs"].startswith("list<")
    assert kinds["logprobs"].endswith("float>")
    [row] = table.to_pylist()
    assert (row["env"], row["parts"], row["advantage"]) == ("search-v4", [("correct", 1.0)], 0.25)
    assert (row["prompt"], row["messages"], row["reference"]) == (
        None,
        [{"role": "user", "content": "json:?"}],
        '{"a": 1}',
    )
    assert row["turns"] == [{"start": 0, "stop": 2, "reward": 0.5}]
    [call] = row["episode"][0]["calls"]
    assert (call["name"], json.loads(call["arguments"]), call["reply"]) == (
        "search",
        {"query": "x"},
        "\\ud800 found",
    )
    assert row["tokens"] is None


def test_a_step_with_a_file_has_advantages_and_logprobs_of_tokens(tmp_path):
    """Advantages of GRPO sum to 0 in a group.  In the first update old and new log-probabilities are the same."""
    with trainer(tmp_path / "run", steps=1, rollouts_every=1, step_files=1, lr=1e-12) as made:
        made.run()
        ids = {made.source.sampler.decode([token]) for token in range(20)}
    rows = list(read_whole(tmp_path / "run" / PATH))
    groups = [rows[i : i + 4] for i in range(0, 16, 4)]
    for group in groups:
        assert sum(row["advantage"] for row in group) == pytest.approx(0, abs=1e-5)
    assert any(row["advantage"] for row in rows)
    for row in rows:
        names = ("tokens", "token_ids", "behaviour_logprobs", "advantages")
        assert {len(row[name]) for name in names} == {row["length_tokens"]}
        if row["advantage"]:
            assert row["logprobs"] == pytest.approx(row["behaviour_logprobs"], abs=1e-4)
        assert row["advantages"] == pytest.approx([row["advantage"]] * row["length_tokens"])
        assert "".join(row["tokens"]) == row["completion"]
        assert set(row["tokens"]) <= ids | {""}
        assert row["env"].startswith(Bandit().id)


def test_log_probabilities_in_the_last_update_show_what_those_before_changed(tmp_path):
    """At a great rate they move; a step without a file has none."""
    algorithm = load_algorithm("grpo", epochs=2)
    for name, every in (("with", 1), ("without", 0)):
        run_to_end(
            tmp_path / name,
            steps=1,
            rollouts_every=1,
            algorithm=algorithm,
            step_files=every,
            lr=0.1,
        )
    moved = [
        abs(new - old)
        for row in read_whole(tmp_path / "with" / PATH)
        for old, new in zip(row["behaviour_logprobs"], row["logprobs"] or (), strict=False)
    ]
    assert max(moved) > 0.01
    assert {row["logprobs"] for row in read_whole(tmp_path / "without" / PATH)} == {None}


def test_the_text_of_each_token_is_found_where_tokens_are_parts_of_characters():
    """Bytes of é come one by one; a token that loses its space alone gets it back behind the one before."""
    pieces = [b"a", b"\xc3", b"\xa9", b" b", b""]

    def decode(ids):
        text = b"".join(pieces[one] for one in ids).decode("utf-8", "replace")
        return text.removeprefix(" ")

    assert _token_texts([0, 1, 2, 3, 4], decode) == ["a", "", "é", " b", ""]


def test_a_step_is_shown_as_a_table(capsys, tmp_path):
    """Some completions with outcome, reward, advantage and length; what they say is text to the terminal."""
    hostile = rollout(3, 0.0)
    object.__setattr__(hostile, "text", "\x1b[2J[red]x[/red] \u202e" + "y" * 1_000_000)
    groups = [rlvr.Group(hostile.task, [hostile, *[rollout(1, 1.0) for _ in range(7)]])]
    table = rollout_table(3, groups, [], {id(hostile): Trained(-1.5, ())}, 4)
    Console(width=250).print(table)
    said = capsys.readouterr().out
    assert "step 3: 4 of 8 completions" in said
    assert table.row_count == 4
    assert "-1.500" in said
    assert "\\u001b[2J[red]x[/red] \\u202e" in said
    assert "\x1b" not in said
    assert len(said) < 10_000


def test_a_run_prints_the_table_of_each_step(tmp_path, capsys):
    """--show-rollouts 2."""
    run_to_end(tmp_path / "run", steps=2, show_rollouts=2, quietly=False)
    said = capsys.readouterr().err
    assert "step 1: 2 of 16 completions" in said
    assert "step 2: 2 of 16 completions" in said
