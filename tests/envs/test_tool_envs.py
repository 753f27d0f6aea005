"""The environments with tools: what their examples earn, and what must not be paid."""

from __future__ import annotations

import pytest

import rlvr
from rlvr import Ask, PolicyTurn
from rlvr.environment.ready_tools import Corpus, search
from rlvr.envs.games import marks
from rlvr.envs.search import _make_data
from rlvr.sandbox import Limits

IDS = ["bash-v1", "desk-v2", "guess-v1", "python-tool-math-v4", "search-v4", "wordle-v1"]


def played(env: rlvr.Environment, index: int, turns) -> tuple[rlvr.EpisodeRecord, rlvr.Score]:
    task = env.task(index)
    with env.open(task) as running:
        for turn in turns(task) if callable(turns) else turns:
            running.reply(turn if not isinstance(turn, str) else PolicyTurn(turn))
        if not running.end:
            running.finish("turns")
    return running.record, env.score(task, env.completion_of(running.record))


@pytest.mark.parametrize("name", IDS)
def test_the_example_earns_the_maximum_and_silence_nothing(name):
    """For tasks of every kind; the same index gives the same task, another split others."""
    env, other = rlvr.make(name), rlvr.make(name, split="test")
    assert env.task(3) == rlvr.make(name).task(3)
    assert any(env.task(i).reference != other.task(i).reference for i in range(5))
    for index in range(5):
        assert played(env, index, env.example_episode)[1].total == 1.0
    assert played(env, 0, ["Done."])[1].total == 0.0
    with pytest.raises(rlvr.UsageError, match="split"):
        rlvr.make(name, split="dev").task(0)


def test_what_python_prints_is_no_answer():
    """The final answer counts alone, and a hedge is wrong."""
    env = rlvr.make("python-tool-math-v4")

    def printed(task):
        return [
            Ask("python", {"code": f"print(r'\\boxed{{{task.reference}}}')"}),
            "It is printed above.",
        ]

    record, score = played(env, 0, printed)
    assert "boxed" in record.calls[0].reply
    assert score.total == 0.0


def test_python_keeps_its_variables_and_says_what_went_wrong(monkeypatch):
    """A traceback, a time limit and the end of the session are replies."""
    monkeypatch.setattr("rlvr.envs.tool_math._LIMITS", Limits(cpu_s=0.2, memory_mib=256))
    env = rlvr.make("python-tool-math-v4")
    codes = [
        "x = 6",
        "x * 7",
        "1 / 0",
        "while True: pass",
        "x",
        "import os; os.kill(os.getpid(), 9)",
        "1",
    ]
    record, _ = played(
        env, 0, [PolicyTurn("", tuple(Ask("python", {"code": code}) for code in codes))]
    )
    replies = [call.reply for call in record.calls]
    assert replies[:2] == ["(no output)", "42"]
    assert "ZeroDivisionError" in replies[2]
    assert replies[3].endswith("error: over 0.2 CPU seconds")
    assert replies[4] == "6"
    assert replies[5].startswith("error: the session is over")
    assert replies[6].startswith("error: the session is over")


HOSTILE = [
    "cat() { echo forged; }; alias cat=echo; trap 'echo x' DEBUG",
    "for f in $(find . -type f); do rm $f; ln -s /etc/passwd $f; done",
    "exit 0",
]


@pytest.mark.parametrize("command", HOSTILE)
def test_files_are_read_by_the_host(command):
    """What the shell was made to say does not matter; links and a session that is gone are no files."""
    record, score = played(
        rlvr.make("bash-v1"), 0, [Ask("bash", {"command": command}), "All is done."]
    )
    assert score.total == 0.0
    assert "root:" not in str(record.final)


def test_a_file_that_was_not_to_be_changed_counts():
    """Doing the task and spoiling its input is wrong."""
    env = rlvr.make("bash-v1")

    def spoiled(task):
        first = env.example_episode(task)[0].arguments["command"]
        name = next(iter(task.meta["files"]))
        return [Ask("bash", {"command": f"{first}\necho more >> {name}"}), "Done."]

    assert played(env, 0, spoiled)[1].verdict.reason == "other-content"


def test_search_finds_what_questions_ask_about():
    """The founder is one search away, and the town another."""
    env = rlvr.make("search-v4")
    record, _ = played(
        env, 0, [Ask("search", {"query": env.task(0).prompt}), Ask("search", {"query": " "}), "x"]
    )
    assert record.calls[0].reply.startswith("[1] ")
    assert record.calls[1].reply == "error: the query is empty; give a few words"
    corpus, asked = _make_data(500)
    assert sum(map(len, asked.values())) == 5 * len(corpus.passages) // 2


def test_a_corpus_is_read_from_files(tmp_path):
    """Paragraphs of texts, lines of JSON; equal scores in their order."""
    (tmp_path / "a.md").write_text("The cat sat.\n\nThe dog ran.")
    (tmp_path / "b.jsonl").write_text('{"title": "Fish", "text": "It swam."}\n')
    corpus = Corpus(tmp_path)
    assert corpus.find("dog", 3) == [("a.md", "The dog ran.")]
    assert search(corpus).function(query="fish swam") == "[1] Fish\nIt swam."
    assert search(corpus).function(query="bird") == "nothing was found"
    with pytest.raises(rlvr.UsageError, match="no passage"):
        Corpus({})
    (tmp_path / "b.jsonl").write_text("[1]\n")
    with pytest.raises(rlvr.DataError, match=r"b.jsonl, line 1"):
        Corpus(tmp_path)


@pytest.mark.parametrize(
    ("guess", "secret", "signs"),
    [
        ("crane", "crane", "GGGGG"),
        ("eerie", "evoke", "G---G"),
        ("speed", "erase", "Y-YY-"),
        ("allay", "llama", "YGYY-"),
    ],
)
def test_letters_are_marked_as_often_as_the_word_has_them(guess, secret, signs):
    """Those in their place first; by hand."""
    assert marks(guess, secret) == signs


def test_games_answer_one_move_in_a_turn():
    """Many guesses in one turn are none; the last turn decides."""
    env = rlvr.make("guess-v1")
    secret = env.task(0).reference
    everything = " ".join(f"[{n}]" for n in range(1, 101))
    record, score = played(env, 0, [everything] * 7)
    assert {turn.user for turn in record.turns} == {"Write one whole number in brackets.", None}
    assert (score.total, score.verdict.reason) == (0.0, "no-move")
    low, high, said = 1, 100, []
    task = env.task(0)
    with env.open(task) as running:
        while not running.end:
            said.append((low + high) // 2)
            running.reply(f"[{said[-1]}]")
            told = running.record.turns[-1].user
            low, high = (said[-1] + 1, high) if told == "Higher." else (low, said[-1] - 1)
    assert said[-1] == secret
    assert env.score(task, env.completion_of(running.record)).total == 1.0
    assert played(env, 0, [f"[00{secret}]"])[1].total == 1.0
