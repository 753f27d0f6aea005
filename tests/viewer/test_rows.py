"""Scored files in the browser: counts, filters, rows, groups."""

from __future__ import annotations

import errno
import json
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlvr.data.rows import Journal
from rlvr.errors import DataError
from rlvr.viewer import Shown
from tests.json_lines import write_json_lines
from tests.processes import PATIENCE_S
from tests.viewer.made import record


def shown(page: str) -> list[int]:
    """The rows of a list, by the number of their line."""
    return [int(line) for line in re.findall(r'<a class="row" href="/0/row/\d+">(\d+)</a>', page)]


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        ("", list(range(1, 13))),
        ("outcome=wrong", [4, 8, 12]),
        ("reason=different-number", [4, 8, 12]),
        ("reason=-&truncated=1", [5, 10]),
        ("env=odd&outcome=correct", [2, 6, 10]),
        ("part=format&part_max=-0.05", [2, 4, 6, 8, 10, 12]),
        ("length_min=12&length_max=13", [3, 4]),
        ("task=sums/1", [5, 6, 7, 8]),
        ("q=First+7.5", [8]),
        ("q=nowhere", []),
        ("outcome=correct&order=longest&env=even", [11, 9, 7, 5, 3, 1]),
        ("order=worst&length_max=14", [4, 1, 2, 3, 5]),
        ("page=7", []),
    ],
)
def test_rows_are_filtered_and_sorted(query: str, lines: list[int], scored: Path, browse):
    """Every filter is in the address, so that a view can be shared as a link."""
    assert shown(browse(scored).get(f"/0/rows?{query}").text) == lines


def test_reasons_are_counted(scored: Path, browse):
    """Three of twelve are wrong, all for one reason; a click on it filters by it."""
    page = browse(scored).get("/").text
    assert (
        '<a href="?outcome=wrong&amp;reason=different-number">different-number</a></td><td class="n">3 '
        in page
    )
    assert "25.0%" in page
    parts = re.search(r'part=format">format</a>(.*?)</tr>', page)
    assert parts is not None
    assert re.findall(r">([-\d.]+)<", parts[1]) == ["12", "-0.05", "-0.1", "0", "6"]


def test_parquet_is_as_good_as_json_lines(tmp_path: Path, browse):
    """`rlvr score -o x.parquet` packs nested columns as text; both show the same rows."""
    rows = [record(i, completion=f"é\ud800 {i}", answer=None) for i in range(3)]
    for name in ("a.jsonl", "a.parquet"):
        with Journal(tmp_path / name, checksums=True) as journal:
            for row in rows:
                journal.write(row)
            journal.finish()
    pages = [browse(tmp_path / name).get("/0/row/2").text for name in ("a.jsonl", "a.parquet")]
    assert "é\\ud800 2" in pages[0]
    assert pages[0].replace("a.jsonl", "") == pages[1].replace("a.parquet", "")


def test_the_answer_is_marked_where_it_stands(scored: Path, browse):
    """In the last box, not in the first number that has the same digits."""
    page = browse(scored).get("/0/row/3").text
    assert 'First 3.5, then \\boxed{<mark id="answer">3</mark>}. That is all.' in page


def test_a_group_stands_side_by_side(scored: Path, browse):
    """The four completions of a task, with verdict, reason, parts, length and the cut ones named."""
    page = browse(scored).get("/0/group", params={"task": "sums/1", "env": "even"}).text
    assert page.count('<article class="side"') == 2  # the other two are of another environment
    assert "truncated" in page
    assert "format -0.1" not in page
    assert (
        "format -0.1"
        in browse(scored).get("/0/group", params={"task": "sums/1", "env": "odd"}).text
    )


def test_records_that_cannot_be_read_are_shown_beside_the_others(tmp_path: Path, browse):
    """A damaged line is counted, opened as text and costs no other row."""
    path = write_json_lines(tmp_path / "a.jsonl", [record(0), record(1)])
    with path.open("ab") as file:
        file.write(b'{"id": 2, "outc\xff\n[1]\n\n' + json.dumps(record(3)).encode() + b"\n")
    client = browse(path)
    assert shown(client.get("/0/rows").text) == [1, 2, 3, 4, 6]
    assert shown(client.get("/0/rows?outcome=broken").text) == [3, 4]
    page = client.get("/0/row/2").text
    assert "not a JSON object" in page
    assert "{&#34;id&#34;: 2, &#34;outc" in page


def test_records_with_odd_values_are_rows_like_others(tmp_path: Path, browse):
    """Another program wrote them: numbers as text, no parts, an infinite reward, a reference too large for a float."""
    odd = [
        {
            "completion": None,
            "outcome": 7,
            "total": "1",
            "parts": [1],
            "length_tokens": 10**30,
            "why": None,
        },
        {
            "completion": ["a"],
            "outcome": None,
            "total": float("nan"),
            "parts": {"a": float("inf"), "b": "x"},
        },
        {
            "completion": "x",
            "outcome": "correct",
            "total": 10**400,
            "prompt": [{"role": "user", "content": "hi"}],
        },
        {
            "completion": "",
            "outcome": "wrong",
            "answer": 3,
            "why": "r" * 10_000,
            "task": {"a": 1},
            "env": "e" * 1000,
        },
    ]
    client = browse(write_json_lines(tmp_path / "a.jsonl", odd))
    assert shown(client.get("/0/rows").text) == [1, 2, 3, 4]
    for n in range(4):
        assert client.get(f"/0/row/{n}").status_code == 200
    assert "[user]\nhi" in client.get("/0/row/2").text
    assert client.get("/0/rows?part=a&part_min=1").status_code == 200


def test_a_file_that_is_being_written_is_followed(tmp_path: Path, browse):
    """Half a line is not read until it is whole; the page counts it then."""
    path = write_json_lines(tmp_path / "a.jsonl.partial", [record(0)])
    line = json.dumps(record(1)).encode()
    with path.open("ab") as file:
        file.write(line[:50])
    client = browse(path)
    assert shown(client.get("/0/").text) == [1]
    with path.open("ab") as file:
        file.write(line[50:])
    assert shown(client.get("/0/").text) == [1, 2]
    with path.open("ab") as file:
        file.write(b"\n" + json.dumps(record(2)).encode() + b"\n")
    assert shown(client.get("/0/").text) == [1, 2, 3]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_partial_file_is_followed_to_its_end(ending: str, tmp_path: Path, browse):
    """Whether it is being written is told by the lock of its writer; once whole, it is read under its other name."""
    with Journal(tmp_path / f"a.{ending}") as journal:
        journal.write(record(0))
        client = browse(journal.partial)
        page = client.get("/0/").text
        assert f"Being written: it is called a.{ending} once it is whole." in page
        assert '<body data-renew="5">' in page
        journal.write(record(1))
        assert shown(client.get("/0/").text) == [1, 2]
        journal.finish()
    page = client.get("/0/").text
    assert f"Ended: it is whole, and called a.{ending} now." in page
    assert "data-renew" not in page
    assert shown(page) == [1, 2]
    assert client.get("/0/row/1").status_code == 200


def test_a_file_whose_writer_was_stopped_is_not_followed(tmp_path: Path, browse):
    """Nothing comes any more unless `rlvr score --resume` goes on."""
    path = write_json_lines(tmp_path / "a.jsonl.partial", [record(0)])
    page = browse(path).get("/0/").text
    assert "Stopped before its end: no process writes it now." in page
    assert "data-renew" not in page


def test_parquet_that_another_tool_is_writing_is_read_once_it_is_whole(
    scored: Path, tmp_path: Path, browse
):
    """Its end is written last: until then nothing is wrong with it."""
    with Journal(tmp_path / "whole.parquet") as journal:
        journal.write(record(0))
        journal.finish()
    whole = (tmp_path / "whole.parquet").read_bytes()
    growing = tmp_path / "growing.parquet"
    growing.write_bytes(whole[:-100])
    client = browse(growing)
    assert "still being written" in client.get("/0/").text
    growing.write_bytes(whole)
    page = client.get("/0/").text
    assert "still being written" not in page
    assert shown(page) == [1]


def test_a_file_that_is_replaced_is_read_anew(scored: Path, browse):
    """An overwritten output is another file: no row of the first is left."""
    client = browse(scored)
    assert len(shown(client.get("/0/").text)) == 12
    other = write_json_lines(
        scored.with_name("other"),
        [record(i, outcome="unparsed", why="no-answer") for i in range(40)],
    )
    other.replace(scored)
    page = client.get("/0/").text
    assert len(shown(page)) == 40
    assert "different-number" not in page


def test_a_file_that_is_cut_and_written_anew_is_read_anew(tmp_path: Path, browse):
    """`rlvr score --overwrite` keeps the inode of the partial file, which may be larger by the next look at it."""
    path = write_json_lines(tmp_path / "a.jsonl.partial", [record(i) for i in range(3)])
    client = browse(path)
    assert shown(client.get("/0/rows?q=different-number").text) == []
    with Journal(tmp_path / "a.jsonl", overwrite=True) as journal:
        for i in range(10):
            journal.write(record(i, outcome="wrong", why="different-number: by the new run"))
        assert shown(client.get("/0/rows?outcome=wrong").text) == list(range(1, 11))
        assert len(shown(client.get("/0/rows?q=different-number").text)) == 10


def test_a_last_line_that_is_written_anew_is_read_anew(tmp_path: Path, browse):
    """`rlvr score --resume` cuts a line that has no end, also where its JSON is whole; the head of the file stays."""
    rows = [record(i, completion="x" * 500) for i in range(20)]
    path = write_json_lines(tmp_path / "a.jsonl", rows)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(json.dumps(record(20)).encode())
    client = browse(path)
    assert shown(client.get("/0/rows?outcome=unparsed").text) == []
    with path.open("r+b") as file:
        file.truncate(size)
        file.seek(size)
        file.writelines(
            json.dumps(record(i, outcome="unparsed")).encode() + b"\n" for i in (21, 22)
        )
    assert shown(client.get("/0/rows?outcome=unparsed").text) == [21, 22]
    assert "22 rows" in client.get("/0/rows").text
    assert shown(client.get("/0/rows?outcome=broken").text) == []


@pytest.mark.parametrize("depth", [985, 1015])
def test_a_row_that_cannot_be_taken_costs_only_itself(depth: int, tmp_path: Path, browse):
    """Brackets that JSON can follow, and Python cannot make a text of."""
    path = write_json_lines(tmp_path / "a.jsonl", [record(i) for i in range(4)])
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = b'{"id": %b, "completion": "x", "outcome": "wrong"}\n' % (
        b"[" * depth + b"]" * depth
    )
    path.write_bytes(b"".join(lines))
    client = browse(path)
    assert shown(client.get("/0/rows").text) == [1, 2, 3, 4]
    assert client.get("/0/row/1").status_code == 200


def test_a_search_that_failed_is_not_remembered(scored: Path, monkeypatch):
    """The file could not be opened for a moment: the next search looks again."""
    from rlvr.viewer import index

    def fail(*_: object) -> list[int]:
        raise OSError(24, "Too many open files")

    with Shown([scored]) as sources:
        rows = sources.all[0].index
        assert rows.update(wait_s=PATIENCE_S)
        with monkeypatch.context() as patched:
            patched.setattr(index, "hits_in_lines", fail)
            assert rows.search("First 7.5", 10) == []
        assert rows.search("First 7.5", 10) == [7]


class _SlowInThread(threading.Condition):
    """Whose thread rests after it has let go, so that another may come between two locks."""

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.02)


def test_an_update_at_the_end_of_another_is_not_lost(scored: Path, monkeypatch):
    """What says that all has been read must have looked at the file after it was asked."""
    with Shown([scored]) as sources:
        rows = sources.all[0].index
        monkeypatch.setattr(rows, "_wanted", _SlowInThread())
        for i in range(12, 22):
            rows.update(wait_s=0)
            time.sleep(0.01 * (i - 11))
            with scored.open("a") as file:
                file.write(json.dumps(record(i)) + "\n")
            assert rows.update(wait_s=PATIENCE_S)
            assert rows.query("SELECT count(*) FROM rows") == [(i + 1,)]


def test_files_that_cannot_be_listed_are_named(scored: Path, monkeypatch):
    """The thread that reads goes on, and the next look may succeed."""

    def fail() -> list[object]:
        raise PermissionError(13, "Permission denied", "rollouts")

    with Shown([scored]) as sources:
        rows = sources.all[0].index
        with monkeypatch.context() as patched:
            patched.setattr(rows, "_files", fail)
            assert rows.update(wait_s=PATIENCE_S)
            assert "Permission denied" in rows.errors[0]
        assert rows.update(wait_s=PATIENCE_S)
        assert rows.errors == []
        assert rows.query("SELECT count(*) FROM rows") == [(12,)]


def test_a_partial_file_is_followed_where_there_are_no_locks(tmp_path: Path, monkeypatch, browse):
    """Some file systems have none: then it is told by the time of its last change."""
    path = write_json_lines(tmp_path / "a.jsonl.partial", [record(0)])
    client = browse(path)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("rlvr.viewer.sources.fcntl.flock", refuse)
    assert "Changed less than 30 s ago" in client.get("/0/").text
    os.utime(path, (1, 1))
    assert "no process writes it" not in client.get("/0/").text


def test_a_partial_file_that_was_removed_is_not_the_output_of_an_earlier_run(
    tmp_path: Path, browse
):
    """The older output beside it has other rows."""
    older = write_json_lines(tmp_path / "a.jsonl", [record(i) for i in range(3)])
    os.utime(older, (1, 1))
    path = write_json_lines(tmp_path / "a.jsonl.partial", [record(7)])
    client = browse(path)
    assert shown(client.get("/0/").text) == [1]
    path.unlink()
    for _ in range(2):
        page = client.get("/0/").text
        assert "Removed before its end: there is no such file now." in page
        assert "No such file" in page
        assert shown(page) == []


def test_an_empty_file_has_no_rows_yet(tmp_path: Path, browse):
    """A run that has only begun."""
    assert "no rows yet" in browse(write_json_lines(tmp_path / "a.jsonl", [])).get("/0/").text


def test_parquet_of_another_tool_is_named_in_one_line(tmp_path: Path, scored: Path, browse):
    """The line says which columns are missing and which are there; the other file is shown."""
    pq.write_table(pa.table({"text": ["a"], "when": [1]}), tmp_path / "other.parquet")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and then nothing")
    client = browse(tmp_path / "other.parquet", tmp_path / "cut.parquet", scored)
    page = client.get("/0/").text
    assert (
        "holds no scored completions: its rows lack completion and outcome, and have text, when"
        in page
    )
    assert "cut.parquet: is cut short, or still being written" in client.get("/1/").text
    assert len(re.findall(r'<a class="row"', client.get("/2/").text)) == 12


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x1f\x8b123", "is packed"),
        (b"[1, 2]", "neither JSON lines nor Parquet"),
        (b"\0\1", "neither JSON lines"),
    ],
)
def test_files_that_hold_no_rows_are_refused(content: bytes, says: str, tmp_path: Path):
    """One line names the file, the rule and the way out."""
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        Shown([tmp_path / "x"])
    assert "\n" not in str(caught.value)


def test_a_path_that_is_not_there_does_not_hide_the_others(scored: Path, tmp_path: Path, browse):
    """The first page names it; a file that is still being written is named by its partial one."""
    write_json_lines(tmp_path / "b.jsonl.partial", [record(0)])
    (tmp_path / "folder").mkdir()
    page = browse(scored, tmp_path / "b.jsonl", tmp_path / "folder").get("/").text
    assert "scored.jsonl" in page
    assert "still being written: give" in page
    assert "no run" in page


@pytest.mark.parametrize(
    "query", ["step=x", "length_min=-1", "part_min=a", "truncated=yes", "order=id", "page=1e3"]
)
def test_a_filter_that_cannot_be_is_named(query: str, scored: Path, browse):
    """An address that was typed by hand."""
    answer = browse(scored).get(f"/0/rows?{query}")
    assert answer.status_code == 400
    assert f"{query.partition('=')[0]} is " in answer.text


def test_values_of_filters_are_not_sql(scored: Path, browse):
    """Reasons come from verdicts and tasks from files: both may hold quotes."""
    client = browse(scored)
    for name in ("reason", "env", "task", "part", "q", "dropped", "outcome"):
        answer = client.get("/0/rows", params={name: "x' OR 1=1; DROP TABLE rows; --"})
        assert answer.status_code == 200
        assert shown(answer.text) == []
    assert len(shown(client.get("/0/").text)) == 12


def test_reasons_are_counted_by_slice(scored: Path, browse):
    """All three wrong rows are of the environment odd; a length class is twice as wide as the one before."""
    page = browse(scored).get("/0/rows?by=env").text
    table = page[page.index("Reasons by environment") :]
    cells = [re.sub("<[^>]+>", " ", row).split() for row in re.findall("<tr>(.*?)</tr>", table)]
    assert cells[1] == ["rows", "6", "6"]
    assert ["wrong", "different-number", "0", "0.0%", "3", "50.0%"] in [
        sorted_pair(row) for row in cells
    ]
    assert "8 or longer" in browse(scored).get("/0/rows?by=length").text
    assert browse(scored).get("/0/rows?by=task").status_code == 400


def sorted_pair(row: list[str]) -> list[str]:
    """A line of two slices with the smaller count first: slices of the same size come in any order."""
    return row if row[2:] == [] or row[2:4] == ["0", "0.0%"] else [*row[:2], *row[4:], *row[2:4]]


def test_two_scored_files_show_where_they_disagree(tmp_path: Path, browse):
    """Joined by id, in whatever order; a click on a cell lists its rows, each with both texts."""
    first = write_json_lines(tmp_path / "a.jsonl", [record(i) for i in range(12)])
    changed = [
        record(i, **({"outcome": "wrong", "why": "strict"} if i == 4 else {})) for i in range(13)
    ]
    second = write_json_lines(tmp_path / "b.jsonl", changed[::-1])
    client = browse(first, second)
    assert "/compare" in client.get("/").text
    page = client.get("/compare?a=0&b=1").text
    assert "12 rows are in both, by their id; 0 only in the first and 1 only in the second" in page
    assert "On 1 they have another outcome" in page
    assert 'href="?a=0&amp;b=1&amp;first=correct&amp;second=wrong"' in page
    listed = client.get("/compare?a=0&b=1&first=correct&second=wrong").text
    assert re.findall(r'href="(/[01]/row/\d+)"', listed) == ["/0/row/4", "/1/row/8"]
    assert "strict" in listed


def test_a_text_is_found_across_pieces_and_only_once_per_line(tmp_path: Path, monkeypatch):
    """Chunks of 7 bytes: words that lie on an edge, lines longer than a chunk, several hits in a line."""
    from rlvr.viewer import search

    monkeypatch.setattr(search, "_CHUNK", 7)
    path = tmp_path / "x"
    raw = b"aaaaneedleneedle needle\nnothing\n\nneedle\nneedl\ne needle"
    path.write_bytes(raw)
    found = search.hits_in_lines(path, [b"needle"], 0, len(raw), 99)
    assert found == [4, 33, 48]
    assert search.hits_in_lines(path, [b"needle", b"noth"], 0, len(raw), 2) == [4, 24]
    assert search.hits_in_lines(path, [b"needle"], 24, 40, 99) == [33]
    assert search.needles_of("é") == [b"\\u00e9", "é".encode()]
