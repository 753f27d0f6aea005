"""`rlvr eval --endpoint`: every rollout is kept, what is lost can be asked for again, and the key is shown nowhere."""

import json
import os

import pytest

from rlvr.cli import main
from rlvr.data.formats import read_rows
from tests.commands import refusal_of
from tests.endpoint import endpoint, refused, said

KEY = "sk-a-secret-of-the-test"
ENV = "tests.environments:Words"
WORDS = """
from pathlib import Path

class Mine(tests.environments.Words):
    def verify(self, task, completion):
        (Path(__file__).parent / "list.txt").read_text()
        return super().verify(task, completion)
"""


@pytest.fixture
def evaluated(say, tmp_path, monkeypatch):
    """Evaluate an endpoint in a folder of its own: (code, words)."""
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.chdir(tmp_path)

    def run(served, *flags, env=ENV):
        flags = (
            "--endpoint",
            served.url,
            "--model",
            "maker/toy",
            "--key-env",
            "TEST_KEY",
            "--workers",
            0,
            *flags,
        )
        code, words = say("eval", env, *flags)
        assert KEY not in words
        return code, words

    return run


def right(number, body):
    """The word that was asked for."""
    return said(body["messages"][0]["content"][4:-1])


def rows(path):
    return [line.row for line in read_rows(path)]


def test_every_rollout_is_kept_with_its_tokens(evaluated, say, tmp_path):
    """In a file of its own, which `rlvr replay` can score again; the report counts tokens and dollars."""
    with endpoint(right) as served:
        code, words = evaluated(served, "-n", 2, "--price", 1, 2, "-o", "report.json")
    assert code == 0, words
    assert "avg@2" in words
    assert "6 replies, 18 tokens of prompts and 6 of completions, 0.0000 dollars" in words
    kept = rows(tmp_path / "Words-maker-toy.rollouts.jsonl")
    assert [
        (row["row"]["index"], row["row"]["rollout"])
        for row in sorted(kept, key=lambda row: row["id"])
    ] == [(index, rollout) for index in range(3) for rollout in range(2)]
    assert kept[0]["row"]["replies"] == [
        {"finish": "stop", "prompt_tokens": 3, "completion_tokens": 1, "reasoning": None}
    ]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["usage"]["cost"] == pytest.approx((18 * 1 + 6 * 2) / 1e6)
    assert report["model"] == "maker/toy"
    code, words = say("replay", "Words-maker-toy.rollouts.jsonl", "--workers", 0, "--allow", ENV)
    assert (code, "6 verdicts replayed, 0 differ" in words) == (0, True)
    assert not any(KEY in path.read_text() for path in tmp_path.iterdir())


def test_what_was_lost_is_asked_for_again(evaluated, tmp_path):
    """Of three tasks one fails for a while; the others' rollouts are neither sampled twice nor changed."""

    def handle(number, body):
        broken = "train-1" in body["messages"][0]["content"] and number < 9
        return refused(400, "not now") if broken else right(number, body)

    flags = ("-n", 2, "--rollouts", "kept.jsonl")
    with endpoint(handle) as served:
        code, words = evaluated(served, *flags)
        assert code == 1
        assert "2 completions could not be had; the last: sampling-failed: " in words
        assert "--resume asks for them again" in words
        assert "unscored: " in words
        assert "(and 1 more for this reason)" in words
        before = (tmp_path / "kept.jsonl").read_text()
        assert "not now" not in before  # all rollouts of the task are lost: nothing to keep
        served.bodies += [{}] * 9
        asked = len(served.bodies)
        code, words = evaluated(served, *flags, "--resume")
        assert (code, len(served.bodies) - asked) == (0, 2), words
        after = (tmp_path / "kept.jsonl").read_text()
        assert after.startswith(before)
        assert len(rows(tmp_path / "kept.jsonl")) == 6
        code, words = evaluated(served, *flags, "--resume")  # nothing is left to ask
        assert (code, len(served.bodies) - asked) == (0, 2), words
        assert (tmp_path / "kept.jsonl").read_text() == after


def test_a_run_that_was_killed_goes_on(evaluated, tmp_path):
    """A task of which half was written is sampled again; a record that was torn is no hindrance."""
    with endpoint(right) as served:
        assert evaluated(served, "-n", 2, "--rollouts", "kept.jsonl")[0] == 0
        whole = (tmp_path / "kept.jsonl").read_bytes()
        lines = whole.splitlines(keepends=True)
        (tmp_path / "kept.jsonl").unlink()
        (tmp_path / "kept.jsonl.partial").write_bytes(b"".join(lines[:3]) + lines[3][:40])
        asked = len(served.bodies)
        code, words = evaluated(served, "-n", 2, "--rollouts", "kept.jsonl")
        assert (code, "--resume" in words) == (2, True)
        code, words = evaluated(served, "-n", 3, "--rollouts", "kept.jsonl", "--resume")
        assert (code, "was scored with n 2, this run has 3" in words) == (2, True), words
        code, words = evaluated(served, "-n", 2, "--rollouts", "kept.jsonl", "--resume")
        assert (code, len(served.bodies) - asked) == (0, 4), words
    assert sorted((tmp_path / "kept.jsonl").read_bytes().splitlines(keepends=True)) == sorted(lines)


def test_an_evaluation_is_gone_on_with_under_one_identity(evaluated, tmp_path, capsys):
    """What differs is named, what is accepted stands in the report, and reports are compared by it."""
    (tmp_path / "words_of_mine.py").write_text("import tests.environments\n" + WORDS)
    words = tmp_path / "list.txt"
    words.write_text("1")
    os.utime(words, (1, 1))  # older than the run: no temporary file of its own
    env, flags = "words_of_mine.py:Mine", ("-n", 1, "--rollouts", "kept.jsonl")
    with endpoint(right) as served:
        assert evaluated(served, *flags, "-o", "a.json", env=env)[0] == 0
        whole = (tmp_path / "kept.jsonl").read_bytes().splitlines(keepends=True)
        (tmp_path / "kept.jsonl.partial").write_bytes(whole[0])
        (tmp_path / "kept.jsonl").unlink()
        words.write_text("2")
        os.utime(words, (2, 2))
        said = refusal_of(*evaluated(served, *flags, "--resume", env=env))
        assert "kept.jsonl.partial differs from this run in inputs: list.txt has another" in said
        assert "or pass --accept inputs" in said
        assert (tmp_path / "kept.jsonl.partial").read_bytes() == whole[0]
        flags += ("--accept", "inputs", "-o", "b.json")
        assert evaluated(served, *flags, "--resume", env=env)[0] == 0
    first, second = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    assert "list.txt" in first["identity"]["inputs"]
    assert "list.txt has another content" in second["identity"]["accepted"][0]
    assert main(["identity", "a.json", "b.json"]) == 1
    assert "list.txt has another content" in capsys.readouterr().out
    assert main(["compare", "a.json", "b.json"]) == 2
    assert "b.json differs from a.json in inputs: list.txt" in capsys.readouterr().err


def test_an_outage_keeps_what_was_had(evaluated, tmp_path):
    """The run ends with one line that says how to go on, and does."""
    up = [True]

    def handle(number, body):
        return right(number, body) if number < 5 or up[0] is None else refused(500, "down")

    flags = (
        "-n",
        1,
        "--rollouts",
        "kept.jsonl",
        "--option",
        "count=40",
        "--retries",
        0,
        "--in-flight",
        1,
    )
    with endpoint(handle) as served:
        code, words = evaluated(served, *flags)
        assert code == 2
        assert "16 requests in a row failed" in words
        assert "5 rollouts are kept: --resume goes on" in words
        assert not (tmp_path / "kept.jsonl").exists()
        up[0] = None
        asked = len(served.bodies)
        code, words = evaluated(served, *flags, "--resume")
        assert (code, len(served.bodies) - asked) == (0, 35), words
    assert len({row["id"] for row in rows(tmp_path / "kept.jsonl")}) == 40


def test_episodes_are_kept_too(evaluated, tmp_path):
    """With the text of each turn."""
    with endpoint(lambda number, body: said(str((len(body["messages"]) + 1) // 2))) as served:
        code, words = evaluated(
            served, "--limit", 6, "--rollouts", "kept.jsonl", env="tests.collect.collecting:Count"
        )
        assert code == 0, words
        asked = len(served.bodies)
        code, words = evaluated(
            served,
            "--limit",
            6,
            "--rollouts",
            "kept.jsonl",
            "--resume",
            env="tests.collect.collecting:Count",
        )
        assert (code, len(served.bodies)) == (0, asked), words
    kept = rows(tmp_path / "kept.jsonl")
    assert {len(row["row"]["replies"]) for row in kept} == {1, 2, 3}
    assert [
        reply["text"]
        for reply in max(kept, key=lambda row: len(row["row"]["replies"]))["row"]["replies"]
    ] == [
        "1",
        "2",
        "3",
    ]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            ["--endpoint", "http://127.0.0.1:1/v1", "--device", "cpu"],
            "--device: these are for a model in this process",
        ),
        (["--key-env", "TEST_KEY"], "--key-env: these are for --endpoint"),
        (["--resume"], "the file of --rollouts"),
        (["--endpoint", "http://127.0.0.1:1/v1", "--body", "top_k"], "write NAME=VALUE"),
        (["--endpoint", "http://127.0.0.1:1/v1", "--price", "-1", "2"], "--price"),
        (["--endpoint", "http://127.0.0.1:1/v1"], "cannot be reached"),
    ],
)
def test_flags_that_cannot_work(say, tmp_path, monkeypatch, flags, says):
    """One line, exit code 2, and no file is left."""
    monkeypatch.chdir(tmp_path)
    code, words = say("eval", ENV, "--model", "toy", "--workers", 0, *flags)
    assert (code, says in words) == (2, True), words
    assert list(tmp_path.iterdir()) == []
