"""Pairs: who may stand in one, which are drawn, what the files look like, and what is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.cli import main
from rlvr.data.pairs import (
    Candidate,
    PairReport,
    PairRules,
    draw,
    preference_rows,
    read_labelled,
    read_pairs,
)
from rlvr.errors import DataError, UsageError
from rlvr.types import Outcome

RIGHT, WRONG = Outcome.CORRECT, Outcome.WRONG


def one(
    text: str, outcome: Outcome, length: int = 10, answer: str | None = None, **known
) -> Candidate:
    return Candidate(text.encode(), outcome, length, answer, **known)


def row(task: str, text: str, outcome: str, **more) -> dict:
    known = {"id": f"{task}/{text}", "task": task, "prompt": f"prompt of {task}", "reference": "1"}
    return {**known, "completion": text, "outcome": outcome, "length_tokens": len(text), **more}


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# ------------------------------------------------------------------------------------------ drawing


def test_a_pair_is_a_right_and_a_wrong_completion():
    """UNSCORED ones, and by default unparsed and truncated ones, are in none and are counted."""
    candidates = [
        one("a", RIGHT),
        one("b", WRONG),
        one("c", Outcome.UNSCORED),
        one("d", Outcome.UNPARSED),
        one("e", WRONG, truncated=True),
        one("f", RIGHT, truncated=True),
    ]
    drawn = draw(candidates, PairRules(per_task=9))
    assert list(drawn.pairs) == [(0, 1)]
    assert drawn.left_out == {"unscored": 1, "unparsed": 1, "truncated": 2}
    everything = draw(candidates, PairRules(per_task=99, unparsed=True, truncated=True))
    assert set(everything.pairs) == {
        (w, v) for w in (0, 5) for v in (1, 3, 4)
    }  # 2 is UNSCORED, and never there


def test_near_ones_come_first():
    """100 goes with 90 (10 %), though 40 is there; the far pair comes only when a second one is asked for."""
    candidates = [one("a", RIGHT, 100), one("b", WRONG, 40), one("c", WRONG, 90)]
    assert list(draw(candidates, PairRules(per_task=1)).pairs) == [(0, 2)]
    assert list(draw(candidates, PairRules(per_task=2)).pairs) == [(0, 2), (0, 1)]
    assert list(draw(candidates, PairRules(per_task=2, near_only=True)).pairs) == [(0, 2)]


def test_the_most_frequent_wrong_answer_comes_first():
    """Its copies are drawn once, and count as votes."""
    candidates = [
        one("a", RIGHT),
        one("b", WRONG, answer="3"),
        one("c", WRONG, answer="7"),
        one("c", WRONG, answer="7"),
    ]
    drawn = draw(candidates, PairRules(per_task=1))
    assert list(drawn.pairs) == [(0, 2)]
    assert drawn.left_out == {"duplicate": 1}


def test_unused_completions_come_before_used_ones():
    """Two of each side and two pairs: each stands in one."""
    candidates = [one("a", RIGHT), one("b", RIGHT), one("c", WRONG), one("d", WRONG)]
    first, second = draw(candidates, PairRules(per_task=2)).pairs
    assert {first[0], second[0]} == {0, 1}
    assert {first[1], second[1]} == {2, 3}


CANDIDATES = st.lists(
    st.builds(
        one,
        st.sampled_from("abcdefgh"),
        st.sampled_from(Outcome),
        st.integers(1, 30),
        st.none() | st.sampled_from("123"),
        truncated=st.booleans(),
    ),
    max_size=10,
)
RULES = st.builds(
    PairRules,
    per_task=st.integers(1, 5),
    unparsed=st.booleans(),
    truncated=st.booleans(),
    near=st.sampled_from([0.0, 0.2, 0.5]),
    near_only=st.booleans(),
    seed=st.integers(0, 3),
)


@given(CANDIDATES, RULES)
def test_pairs_keep_the_rules(candidates, rules):
    """Each is a right text and another, wrong one; no pair twice; as many as there can be, up to the limit."""
    usable = [
        i
        for i, c in enumerate(candidates)
        if c.outcome is not Outcome.UNSCORED
        and (rules.unparsed or c.outcome is not Outcome.UNPARSED)
        and (rules.truncated or not c.truncated)
    ]
    right, wrong = ({}, {})
    for i in usable:
        (right if candidates[i].outcome is RIGHT else wrong).setdefault(candidates[i].text, i)
    both = right.keys() & wrong.keys()
    allowed = {(right[r], wrong[w]) for r in right.keys() - both for w in wrong.keys() - both}
    if rules.near_only:
        lengths = {pair: [candidates[i].length for i in pair] for pair in allowed}
        allowed = {
            pair
            for pair, ends in lengths.items()
            if max(ends) - min(ends) <= rules.near * max(ends)
        }
    drawn = draw(candidates, rules, "t")
    assert len(set(drawn.pairs)) == len(drawn.pairs) <= rules.per_task
    assert set(drawn.pairs) <= allowed
    if not rules.near_only:
        assert len(drawn.pairs) == min(rules.per_task, len(allowed))
    unused = len(candidates) - drawn.right - drawn.wrong
    assert sum(drawn.left_out.values()) == unused


@given(CANDIDATES, RULES, st.randoms(use_true_random=False))
def test_the_draw_is_one_of_texts_not_of_the_order(candidates, rules, rng):
    """The same file in another order gives the same pairs of texts."""
    distinct = list({c.text: c for c in candidates}.values())
    shuffled = rng.sample(distinct, len(distinct))

    def texts(rows):
        return {(rows[w].text, rows[v].text) for w, v in draw(rows, rules, "t").pairs}

    assert texts(distinct) == texts(shuffled)


def test_another_seed_draws_others():
    """Twenty right ones that are all alike: three are drawn."""
    candidates = [one(f"r{i}", RIGHT) for i in range(20)] + [one(f"w{i}", WRONG) for i in range(20)]
    drawn = {
        tuple(draw(candidates, PairRules(per_task=3, seed=seed), "t").pairs) for seed in (0, 1)
    }
    assert len(drawn) == 2


def test_shorter_winners_are_reported():
    """30 pairs in which the chosen one is the shorter: above the limit."""
    report, rules = PairReport(), PairRules()
    for _ in range(30):
        candidates = [one("a", RIGHT, 9), one("b", WRONG, 10)]
        report.add(candidates, draw(candidates, rules), rules)
    assert report.shorter_share == 1.0
    assert report.teaches_brevity
    assert report.metrics()["chosen_length"] == 9.0


# ------------------------------------------------------------------------------------------ files


def scored(tmp_path: Path) -> Path:
    rows = [
        row("a", "right 1", "correct", value=1.0, total=0.5),
        row("a", "right 2", "correct", value=1.0, total=0.9),
        row("a", "wrong 1", "wrong", value=0.25),
        row("a", "broken", "unscored"),
        row("b", "all right", "correct"),
        row("c", "all wrong", "wrong"),
    ]
    return written(tmp_path / "scored.jsonl", rows)


def test_pairs_go_from_scores_to_a_file_and_back(tmp_path: Path, capsys: pytest.CaptureFixture):
    """Two pairs of the one task with both sides, each with half the weight; the unscored text is nowhere."""
    source, output = scored(tmp_path), tmp_path / "pairs.jsonl"
    assert main(["pairs", str(source), "-o", str(output), "--margin-scale", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (
        report["rows"],
        report["tasks"],
        report["tasks_all_right"],
        report["tasks_all_wrong"],
    ) == (2, 3, 1, 1)
    assert "broken" not in output.read_text(encoding="utf-8")
    found = read_pairs(output)
    assert {(pair.prompt, pair.chosen, pair.rejected) for pair in found} == {
        ("prompt of a", "right 1", "wrong 1"),
        ("prompt of a", "right 2", "wrong 1"),
    }
    assert {(pair.weight, pair.margin) for pair in found} == {(0.5, 1.5)}  # 2 · (1 - ¼)


def test_labels_and_completions_use_one_sided_tasks_too(tmp_path: Path):
    """KTO and fine-tuning need no partner; of right ones that with the best score comes first."""
    source = scored(tmp_path)
    rows, _ = preference_rows(source, PairRules(per_task=1), form="labels")
    assert {(one["task"], one["label"]) for one in rows} == {
        ("a", True),
        ("a", False),
        ("b", True),
        ("c", False),
    }
    rows, _ = preference_rows(source, PairRules(per_task=1), form="completions")
    assert [one["completion"] for one in rows] == ["right 2", "all right"]


def test_chats_are_written_and_read_as_trl_has_them(tmp_path: Path):
    """The completion after chat messages is one message of the assistant."""
    chat = [{"role": "user", "content": "?"}]
    source = written(
        tmp_path / "s.jsonl",
        [row("a", "yes", "correct", prompt=chat), row("a", "no", "wrong", prompt=chat)],
    )
    output = tmp_path / "pairs.jsonl"
    assert main(["pairs", str(source), "-o", str(output)]) == 0
    [found] = lines(output)
    assert found["prompt"] == chat
    assert found["chosen"] == [{"role": "assistant", "content": "yes"}]
    [pair] = read_pairs(output)
    assert (pair.prompt, pair.chosen, pair.rejected) == (chat, "yes", "no")
    whole = {
        name: [*chat, *found[name]] for name in ("chosen", "rejected")
    }  # TRL's form without a prompt
    assert read_pairs(written(tmp_path / "implicit.jsonl", [whole])) == [pair]


def test_lengths_are_characters_where_some_tokens_were_not_counted(tmp_path: Path):
    """10 tokens and 300 characters are not near: one unit for all."""
    source = written(
        tmp_path / "s.jsonl",
        [
            row("a", "x" * 300, "correct", length_tokens=10),
            row("a", "y" * 10, "wrong", length_tokens=None),
        ],
    )
    rows, report = preference_rows(source, PairRules())
    assert len(list(rows)) == 1
    assert (report.chosen_length, report.rejected_length, report.near) == (300, 10, 0)


def test_nothing_to_pair_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture):
    """Exit code 1, a reason, and no empty file that a training run would take."""
    source = written(tmp_path / "s.jsonl", [row("a", "x", "correct"), row("b", "y", "wrong")])
    assert main(["pairs", str(source), "-o", str(tmp_path / "p.jsonl")]) == 1
    assert "nothing is written" in capsys.readouterr().err
    assert not (tmp_path / "p.jsonl").exists()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "has no rows"),
        ([{"prompt": "p", "chosen": "a"}], "row 1 has no rejected: a pair needs both sides"),
        ([{"prompt": "p", "rejected": "a"}], "row 1 has no chosen"),
        ([{"prompt": "p", "completion": "a", "label": True}], "--algorithm kto"),
        ([{"prompt": "p", "chosen": "a", "rejected": "a"}], "both sides are the same text"),
        ([{"chosen": "a", "rejected": "b"}], "has no prompt"),
        ([{"prompt": "p", "chosen": ["a"], "rejected": "b"}], "chosen is"),
        ([{"prompt": "p", "chosen": "a", "rejected": "b", "weight": 0}], "weight is 0"),
        ([{"prompt": "p", "chosen": "a", "rejected": "b", "margin": -1}], "margin is -1"),
    ],
)
def test_pairs_that_are_none_are_refused(tmp_path: Path, rows: list[dict], said: str):
    """By file and row, before anything is trained."""
    with pytest.raises(
        DataError if "is " not in said or "chosen" in said else UsageError, match=said
    ):
        read_pairs(written(tmp_path / "p.jsonl", rows))


def test_one_sided_labels_are_refused(tmp_path: Path):
    """Where right ones are to be told from wrong ones; fine-tuning takes them."""
    path = written(
        tmp_path / "l.jsonl", [{"prompt": "p", "completion": c, "label": True} for c in "ab"]
    )
    with pytest.raises(DataError, match=r"all 2 rows of .* have the label True"):
        read_labelled(path, needs_both=True)
    assert [found.completion for found in read_labelled(path, needs_both=False)] == ["a", "b"]


def test_pairs_are_labels_too(tmp_path: Path):
    """A pair is a right and a wrong completion."""
    path = written(tmp_path / "p.jsonl", [{"prompt": "p", "chosen": "a", "rejected": "b"}])
    assert [(found.completion, found.label) for found in read_labelled(path, needs_both=True)] == [
        ("a", True),
        ("b", False),
    ]


@pytest.mark.parametrize("column", ["total", "value", "length_tokens"])
def test_a_number_that_no_float_holds_is_as_if_it_were_missing(tmp_path: Path, column: str):
    """JSON has whole numbers of any length."""
    rows = [row("a", "x", "correct"), row("a", "y", "wrong")]
    path = written(tmp_path / "s.jsonl", [{**one, column: 10**400} for one in rows])
    assert len(list(preference_rows(path, PairRules())[0])) == 1


def test_rows_without_a_prompt_or_an_outcome_are_refused(tmp_path: Path):
    """There would be nothing to train on."""
    with pytest.raises(DataError, match="no column 'outcome'"):
        preference_rows(
            written(tmp_path / "s.jsonl", [{"prompt": "p", "completion": "c"}]), PairRules()
        )
    with pytest.raises(DataError, match="row 1: the prompt is"):
        preference_rows(
            written(tmp_path / "t.jsonl", [row("a", "x", "correct", prompt="")]), PairRules()
        )
