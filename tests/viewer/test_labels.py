"""Verdicts that a person calls right or wrong: the order they come in, the file they go to, and who may mark."""

import json
import re
from pathlib import Path

import pytest

from rlvr.cli import main
from rlvr.data.formats import read_rows
from rlvr.errors import DataError, UsageError
from rlvr.statistics import wilson
from rlvr.viewer.labels import Labels
from tests.json_lines import write_json_lines
from tests.viewer.made import record


@pytest.fixture
def labels(tmp_path: Path):
    made = Labels(tmp_path / "labels.jsonl")
    yield made
    made.close()


def kept(labels: Labels) -> list[dict]:
    return [dict(line.row or {}) for line in read_rows(labels.path)]


def shown(client, address: str) -> tuple[int, str]:
    """The row that an address leads to, and the token of its page."""
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    found = re.search(r"/row/(\d+)", str(answer.url))
    token = re.search(r'data-token="(\w+)"', answer.text)
    assert found is not None, answer.text
    assert token is not None, answer.text
    return int(found[1]), token[1]


def mark(client, n: int, token: str, right: bool | None, order: str = "random") -> dict:
    answer = client.post(
        f"/0/row/{n}/mark?order={order}", json={"token": token, "verdict_is_right": right}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_every_verdict_comes_up_once_and_the_rate_has_its_interval(scored: Path, labels, browse):
    """At random; what was judged or passed over does not come again."""
    client, seen = browse(scored, labels=labels), []
    passed = ""
    for place in range(12):
        n, token = shown(client, f"/0/judge?order=random{passed}")
        seen.append(n)
        passed = f"&skip={n}" if place == 4 else ""
        if place != 4:
            told = mark(client, n, token, place != 2)
    assert sorted(seen) == list(range(12))
    assert seen != sorted(seen)
    assert "Every verdict" in client.get("/0/judge?order=random").text
    assert (told["count"], told["wrong"], told["drawn"], told["drawn_wrong"]) == (11, 1, 11, 1)
    assert (told["low"], told["high"]) == pytest.approx(wilson(1, 11))


def test_rare_reasons_come_first(tmp_path: Path, labels, browse):
    rows = [record(i, outcome="wrong", why="common: x") for i in range(9)]
    rows[5] |= {"why": "rare: x"}
    client = browse(write_json_lines(tmp_path / "a.jsonl", rows), labels=labels)
    assert shown(client, "/0/judge?order=reason")[0] == 5


def test_disagreements_of_two_files_come_up(tmp_path: Path, labels, browse):
    rows = [record(i) for i in range(8)]
    others = [dict(row) for row in rows]
    others[6] |= {"outcome": "wrong", "why": "stricter: 6"}
    client = browse(
        write_json_lines(tmp_path / "a.jsonl", rows),
        write_json_lines(tmp_path / "b.jsonl", others),
        labels=labels,
    )
    n, token = shown(client, "/0/judge?order=disagreement&other=1")
    assert n == 6
    mark(client, n, token, False, "disagreement&other=1")
    assert "Every verdict" in client.get("/0/judge?order=disagreement&other=1").text
    assert kept(labels)[0]["drawn"] == "disagreement"
    assert client.get("/0/judge?order=disagreement").status_code == 400
    assert client.get("/0/judge?order=best").status_code == 400


def test_marks_last_change_and_go_away(scored: Path, labels, browse):
    """One line a row whatever was said before; a new viewer goes on with the file."""
    client = browse(scored, labels=labels)
    token = shown(client, "/0/row/3")[1]
    for right in (True, False):
        mark(client, 3, token, right)
    mark(client, 0, token, True)
    mark(client, 7, token, True)
    mark(client, 7, token, None)
    rows = kept(labels)
    assert [(row["id"], row["label"], row["verdict_is_right"]) for row in rows] == [
        (3, True, False),  # the verdict was wrong
        (0, True, True),
    ]
    labels.close()
    again = Labels(labels.path)
    assert again.of(record(3)) is False
    assert again.of(record(0)) is True
    assert again.of(record(7)) is None
    assert again.summary()["count"] == 2
    again.close()


def test_audit_takes_the_file(tmp_path: Path, labels, browse, capsys):
    """The verdict that was called wrong is a false positive of the audit."""
    scored, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_json_lines(
        scored,
        [
            {"prompt": "1+1?", "reference": "2", "completion": "\\boxed{2}"},
            {"prompt": "1+2?", "reference": "3", "completion": "\\boxed{3}"},
            {"prompt": "1+3?", "reference": "4", "completion": "\\boxed{5}"},
        ],
    )
    assert main(["score", "--verifier", "math", str(scored), "-o", str(out)]) == 0
    client = browse(out, labels=labels)
    for n in range(3):
        mark(client, n, shown(client, f"/0/row/{n}")[1], n != 1)
    capsys.readouterr()
    command = ["audit", "rows-v4", str(labels.path), "--json", "--workers", "1"]
    assert main(command) == 0
    total = json.loads(capsys.readouterr().out)["total"]
    counted = {name: total[name] for name in ("true_positive", "false_positive", "true_negative")}
    assert counted == {"true_positive": 1, "false_positive": 1, "true_negative": 1}


def test_nothing_is_written_without_a_file_or_by_others(scored: Path, labels, browse):
    """No mark without the page's token; no page to mark on without --labels; no row that has no verdict."""
    client = browse(scored)
    assert "data-token" not in client.get("/0/row/0").text
    assert client.get("/0/judge?order=random").status_code == 403
    body = {"token": "0" * 32, "verdict_is_right": True}
    assert client.post("/0/row/0/mark", json=body).status_code == 403
    client = browse(scored, labels=labels)
    for wrong in (
        body,
        {"verdict_is_right": True},
        {**body, "token": 3},
        {**body, "token": "é\ud800"},
        {},
    ):
        answer = client.post(
            "/0/row/0/mark",
            content=json.dumps(wrong),
            headers={"Content-Type": "application/json"},
        )
        assert answer.status_code in (403, 422)
    token = shown(client, "/0/row/0")[1]
    sent = {"token": token, "verdict_is_right": "perhaps"}
    assert client.post("/0/row/0/mark", json=sent).status_code == 422
    sent["verdict_is_right"] = True
    assert client.post("/0/row/99/mark", json=sent).status_code == 400
    assert client.post("/7/row/0/mark", json=sent).status_code == 404
    assert client.get("/0/row/0/mark").status_code in (404, 405)
    assert not labels.path.exists()


def test_unscored_rows_have_no_verdict(tmp_path: Path, labels, browse):
    rows = [record(0, outcome="unscored", total=None), record(1)]
    client = browse(write_json_lines(tmp_path / "a.jsonl", rows), labels=labels)
    assert "data-token" not in client.get("/0/row/0").text
    token = shown(client, "/0/row/1")[1]
    sent = {"token": token, "verdict_is_right": True}
    assert client.post("/0/row/0/mark", json=sent).status_code == 400


def test_files_that_are_no_labels_are_refused(tmp_path: Path, scored: Path):
    with pytest.raises(DataError, match="line 1: no mark of a verdict"):
        Labels(scored)
    with pytest.raises(UsageError, match=r"a \.jsonl file"):
        Labels(tmp_path / "labels.csv")
    assert main(["view", str(scored), "--labels", str(scored), "--port", "0"]) == 2


def test_two_viewers_do_not_write_one_file(scored: Path, tmp_path: Path, labels):
    labels.mark(record(0), True, "random")
    with pytest.raises(UsageError, match="another rlvr view"):
        Labels(labels.path)
