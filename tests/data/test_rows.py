"""Rows on disk: what cannot be read is named and harms no other row, and nothing is ever half-written."""

import fcntl
import gzip
import io
import json
import subprocess
import sys
from itertools import zip_longest

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.data.formats import count_rows, read_rows
from rlvr.data.lines import json_lines
from rlvr.data.rows import Journal, dump_row, load_dataset
from rlvr.errors import DataError, UsageError

HARD_TEXTS = [
    "",
    "\x00",
    "\ud800",
    "\udfff\x00\ud800 mixed",
    "a\r\nb\u2028c",
    "\ufeff",
    "json:{}",
    "😀",
    "é" * 500_000,
]


def lines(path) -> list[tuple]:
    return [(line.number, line.row) for line in read_rows(path)]


def write(path, *rows: dict):
    path.write_bytes(b"".join(map(dump_row, rows)))
    return path


# ------------------------------------------------------------------------------------------ JSONL


def test_a_line_is_a_row(tmp_path):
    """Blank lines count as lines, CRLF is an end of line, and the last one may lack its end."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\r\n\n \t\r\n{"a": "x\\r\\n"}\n{"a": null}')
    assert lines(path) == [(1, {"a": 1}), (4, {"a": "x\r\n"}), (5, {"a": None})]


@pytest.mark.parametrize("ending", ["jsonl", "json", "ndjson"])
def test_an_empty_file_has_no_rows(tmp_path, ending):
    """By whatever name JSON lines go."""
    path = tmp_path / f"rows.{ending}"
    path.touch()
    assert lines(path) == []
    assert count_rows(path) == 0


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path):
    """Windows programs write one."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n')
    assert lines(path) == [(1, {"a": 1}), (2, {"a": 2})]


BAD_LINES = {
    "bad JSON": (b'{"a": }', "not a JSON object: Expecting value"),
    "half a line": (b'{"a": "x"', "not a JSON object: Expecting ',' delimiter"),
    "two rows": (b'{"a": 1} {"a": 2}', "not a JSON object: Extra data"),
    "bad UTF-8": (b'{"a": "\xff"}', "not a JSON object: .*can't decode byte 0xff"),
    "a list": (b"[1, 2]", "not a JSON object: a list, not an object"),
    "a text": (b'"text"', "not a JSON object: a str, not an object"),
    "null": (b"null", "not a JSON object: a NoneType, not an object"),
    "a raw NUL": (b'{"a": "\x00"}', "not a JSON object"),
    "deep brackets": (
        b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}",
        "lists and objects 200 deep",
    ),
    "a long number": (b'{"a": ' + b"9" * 10_000 + b"}", "not a JSON object: Exceeds the limit"),
    "binary": (bytes(range(128, 255)).replace(b"\n", b""), "not a JSON object"),
}


@pytest.mark.parametrize(("bad", "why"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_line_that_cannot_be_read_is_named_and_kept(tmp_path, bad, why):
    """Its number and the reason; and what stood there, so that it can be mended."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n' + bad + b'\n{"a": 3}\n')
    first, second, third = read_rows(path)
    assert (first.row, third.row, third.number) == ({"a": 1}, {"a": 3}, 3)
    assert (second.number, second.row) == (2, None)
    kept = bad.decode("utf-8", "replace")
    assert second.text in (kept + "\n", f"{kept[:200]} ... {len(bad) + 1} bytes\n")
    with pytest.raises(DataError, match=why):
        raise DataError(second.error)


@pytest.mark.parametrize("text", HARD_TEXTS, ids=lambda text: ascii(text[:9]))
def test_a_text_survives_jsonl(tmp_path, text):
    """Lone surrogates, NUL, line separators, a megabyte: what a model may say."""
    path = write(
        tmp_path / "rows.jsonl", {"id": text, "completion": text, "nested": [{text: text}]}
    )
    assert lines(path) == [(1, {"id": text, "completion": text, "nested": [{text: text}]})]


ANY_TEXT = st.text(st.characters(), max_size=8)
JSON_ROWS = st.lists(
    st.dictionaries(
        ANY_TEXT,
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
            max_leaves=5,
        ),
        max_size=3,
    ),
    max_size=4,
)  # fmt: skip


@settings(max_examples=25)
@given(JSON_ROWS, st.sampled_from([b"", b"\n", b"\r\n \t\n"]))
def test_rows_are_read_as_they_were_written(rows, blank):
    """Any JSON, with any signs; each row in a line, which other readers of JSON read too."""
    content = blank.join(map(dump_row, rows))
    assert [line.row for line in json_lines(io.BytesIO(content), "rows")] == rows
    assert [json.loads(line) for line in content.split(b"\n") if line.strip()] == rows


def test_readable_text_is_written_readably():
    """People look into these files; escapes only where there is no other way."""
    assert dump_row({"a": "größer 😀"}) == '{"a": "größer 😀"}\n'.encode()
    assert dump_row({"a": "ö\ud800"}) == b'{"a": "\\u00f6\\ud800"}\n'


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {1, 2}, b"x", object()], ids=lambda v: type(v).__name__
)
def test_what_is_no_json_is_not_written(value):
    """NaN would make a file that other readers refuse."""
    with pytest.raises(DataError, match="row 'x' cannot be written as JSON: "):
        dump_row({"id": "x", "a": value})


def test_a_value_too_deep_to_write_is_an_error_of_its_row():
    """No RecursionError from the depths of the library."""
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(DataError, match=r"row 'x' cannot be written as JSON: .*recursion"):
        dump_row({"id": "x", "a": deep})


def test_a_file_is_counted_without_being_parsed(tmp_path):
    """For the length of a progress bar."""
    assert count_rows(write(tmp_path / "rows.jsonl", {}, {}, {})) == 3
    assert count_rows(tmp_path / "none.jsonl") == count_rows(tmp_path / "none.parquet") == 0


def test_a_gzipped_file_is_read_as_it_is(tmp_path):
    """As HumanEval is handed out; also as a data set, and counted."""
    plain = write(tmp_path / "test.jsonl", {"a": 1}, {"a": 2})
    packed = tmp_path / "packed" / "test.jsonl.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert [line.row for line in read_rows(packed)] == [{"a": 1}, {"a": 2}]
    assert count_rows(packed) == 2
    assert (
        load_dataset(str(packed), "any")
        == load_dataset(str(packed.parent), "test")
        == [{"a": 1}, {"a": 2}]
    )


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: b"x" + data, lambda data: data[:12] + b"xyz"]
)
def test_a_damaged_gzip_is_one_clear_error(tmp_path, damage):
    """Cut short, or something else under that name."""
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(damage(gzip.compress(b'{"a": 1}\n')))
    assert count_rows(packed) in (0, 1)
    with pytest.raises(DataError, match=r"rows\.jsonl\.gz: cannot be read as gzip"):
        list(read_rows(packed))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none.jsonl", "none.jsonl: no such file"),
        ("folder.jsonl", "folder.jsonl is a folder; give a .jsonl or .parquet file"),
        (
            "rows.pdf",
            "neither its name nor its content says what it is; rows are read from files that end in .jsonl",
        ),
        ("rows", "neither its name nor its content says what it is"),
    ],
)
def test_a_file_that_cannot_hold_rows_is_refused_at_once(tmp_path, name, why):
    """Before anything else is done, and by its name."""
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "rows.pdf").write_bytes(b"%PDF-1.7\n\0")
    (tmp_path / "rows").write_text("One line.\n")
    with pytest.raises(DataError, match=why):
        read_rows(tmp_path / name)


# ------------------------------------------------------------------------------------------ Parquet

MIXED = [1, 1.5, "1", None, True, [1, [2]], {"a": {"b": 1}}, "\ud800", "json:1"]


def journal(path, rows, **how) -> None:
    with Journal(path, **how) as out:
        for row in rows:
            out.write(row)
        out.finish()


def test_parquet_gives_back_what_was_written(tmp_path):
    """Texts of all kinds, references of all types in one column, nested columns whose keys differ by row."""
    rows = [
        {
            "id": str(i),
            "completion": text,
            "reference": reference,
            "parts": {f"part-{i}": 0.5},
            "total": None or i / 2,
        }
        for i, (text, reference) in enumerate(zip_longest(HARD_TEXTS, MIXED, fillvalue="x"))
    ]
    journal(tmp_path / "out.parquet", rows)
    assert [row for _, row in lines(tmp_path / "out.parquet")] == rows
    assert count_rows(tmp_path / "out.parquet") == len(rows)
    assert [type(row["reference"]) for _, row in lines(tmp_path / "out.parquet")][:5] == [
        int,
        float,
        str,
        type(None),
        bool,
    ]


def test_others_can_read_our_parquet(tmp_path):
    """Plain texts are plain texts and numbers are numbers."""
    rows = [
        {"id": "a", "total": 1.5, "prompt": "text"},
        {"id": "b", "total": None, "prompt": "json:"},
    ]
    journal(tmp_path / "out.parquet", rows)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["id"].to_pylist() == ["a", "b"]
    assert table["total"].to_pylist() == [1.5, None]
    assert table["prompt"].to_pylist() == ["text", 'json:"json:"']


def test_parquet_of_others_is_read_as_it_is(tmp_path):
    """`json:` in a file without our mark is the user's text; nested columns come as lists and dicts."""
    rows = [
        {"completion": "json:{}", "prompt": [{"role": "user", "content": "?"}], "n": 1},
        {"completion": "x"},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    assert lines(tmp_path / "in.parquet") == [
        (1, rows[0]),
        (2, {"completion": "x", "prompt": None, "n": None}),
    ]


def test_an_empty_run_writes_an_empty_parquet(tmp_path):
    """Which can be read again."""
    journal(tmp_path / "out.parquet", [])
    assert lines(tmp_path / "out.parquet") == []


@pytest.mark.parametrize(
    "damage", [b"", b"PAR1 is not enough", None], ids=["empty", "not Parquet", "cut short"]
)
def test_a_damaged_parquet_is_one_clear_error(tmp_path, damage):
    """pyarrow's own say nothing of the file."""
    path = tmp_path / "rows.parquet"
    if damage is None:
        pq.write_table(pa.table({"a": list(range(1000))}), path)
        damage = path.read_bytes()[:-100]
    path.write_bytes(damage)
    with pytest.raises(DataError, match=r"rows\.parquet: cannot be read as Parquet after row 0"):
        list(read_rows(path))
    assert count_rows(path) == 0


def test_a_parquet_damaged_inside_says_where(tmp_path):
    """The footer is fine, a page is not: rows of the first group are read, then there is an error."""
    path = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table({"a": [f"{i}" * 50 for i in range(3000)]}),
        path,
        row_group_size=1500,
        compression="none",
    )
    whole = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    whole[start : start + 60] = b"\xff" * 60
    path.write_bytes(whole)
    got = read_rows(path)
    assert [next(got).number for _ in range(1024)] == list(range(1, 1025))
    with pytest.raises(DataError, match=r"cannot be read as Parquet after row \d+"):
        list(got)


def test_a_parquet_with_texts_that_are_no_utf8_is_one_clear_error(tmp_path):
    """Other writers do not check."""
    path = tmp_path / "rows.parquet"
    bad = pa.array([b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"completion": bad}), path)
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        list(read_rows(path))


@pytest.mark.parametrize("values", [(1, "x"), (1, 2**63), (2**53 + 1, 0.5)])
def test_rows_that_parquet_cannot_hold_are_not_lost(tmp_path, values):
    """Numbers and texts, more than 64 bits, a whole number that no float holds beside a fraction: the
    rows stand in JSONL, nothing else lies about."""
    path = tmp_path / "out.parquet"
    with pytest.raises(
        DataError, match=r"Parquet cannot hold these rows .* they stand in .*out\.parquet\.partial"
    ):
        journal(path, [{"id": "a", "n": values[0]}, {"id": "b", "n": values[1]}])
    assert [p.name for p in tmp_path.iterdir()] == ["out.parquet.partial"]
    assert len((tmp_path / "out.parquet.partial").read_bytes().splitlines()) == 2


# ------------------------------------------------------------------------------------------ journal


def test_output_appears_only_when_it_is_whole(tmp_path):
    """Until then the rows stand beside it, each of them safe as soon as it is written."""
    path = tmp_path / "out.jsonl"
    with Journal(path) as out:
        out.write({"id": "a"})
        assert not path.exists()
        assert out.partial.read_bytes() == b'{"id": "a"}\n'
        out.finish()
    assert path.read_bytes() == b'{"id": "a"}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_stopped_run_leaves_its_rows_and_the_old_output(tmp_path):
    """An exception in the middle of an overwriting run: the old output is still there, whole."""
    path = write(tmp_path / "out.jsonl", {"id": "old"})

    def run() -> None:
        with Journal(path, overwrite=True) as out:
            out.write({"id": "a"})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert path.read_bytes() == b'{"id": "old"}\n'
    assert (tmp_path / "out.jsonl.partial").read_bytes() == b'{"id": "a"}\n'


def test_a_run_that_failed_before_its_first_row_leaves_nothing(tmp_path):
    """There is nothing to resume."""
    with pytest.raises(KeyboardInterrupt), Journal(tmp_path / "out.jsonl"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("torn", [b"", b"{", b'{"id": "b"}', b'{"id": "' + b"x" * 200_000], ids=len)
def test_a_torn_last_line_is_dropped(tmp_path, torn):
    """A killed run may have written half of it, or all but its end."""
    partial = tmp_path / "out.jsonl.partial"
    partial.write_bytes(b'{"id": "a"}\n' + torn)
    with Journal(tmp_path / "out.jsonl", resume=True) as out:
        assert (out.done, list(out.rows())) == (1, [{"id": "a"}])
        out.write({"id": "c"})
        out.finish()
    assert out.path.read_bytes() == b'{"id": "a"}\n{"id": "c"}\n'


@pytest.mark.parametrize("torn", [b"", b"half", b"x" * 200_000], ids=len)
def test_a_run_killed_in_its_first_row_is_resumed_from_the_start(tmp_path, torn):
    """What is torn is all there is."""
    (tmp_path / "out.jsonl.partial").write_bytes(torn)
    with Journal(tmp_path / "out.jsonl", resume=True) as out:
        assert (out.done, list(out.rows())) == (0, [])
        out.finish()
    assert out.path.read_bytes() == b""


def test_resuming_what_was_never_begun_begins_it(tmp_path):
    """So that a script may always say --resume."""
    journal(tmp_path / "out.jsonl", [{"id": "a"}], resume=True)
    assert lines(tmp_path / "out.jsonl") == [(1, {"id": "a"})]


def test_a_look_at_the_lock_does_not_keep_a_run_from_going_on(tmp_path, monkeypatch):
    """`rlvr view` takes it for an instant, to say whether the file is being written."""
    with (tmp_path / "out.jsonl.partial").open("wb+") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr(
            "rlvr.data.files.time.sleep", lambda seconds: fcntl.flock(looking, fcntl.LOCK_UN)
        )
        journal(tmp_path / "out.jsonl", [{"id": "a"}], resume=True)
    assert lines(tmp_path / "out.jsonl") == [(1, {"id": "a"})]


def test_a_run_that_is_still_going_on_is_not_joined(tmp_path):
    """Neither by resuming it nor by overwriting it: the rows of both would stand in one file, in any order."""
    with Journal(tmp_path / "out.jsonl") as out:
        out.write({"id": "a"})
        for how in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(
                UsageError, match=r"out\.jsonl\.partial is being written by another run"
            ):
                Journal(tmp_path / "out.jsonl", **how)
        out.write({"id": "b"})
        out.finish()
    assert [row["id"] for _, row in lines(out.path)] == ["a", "b"]


def test_a_damaged_line_in_the_middle_is_not_built_upon(tmp_path):
    """No kill leaves that behind, a full disk or an editor may; silently it would end in the output."""
    (tmp_path / "out.jsonl.partial").write_bytes(b'{"id": "a"}\n\x00\x00\n{"id": "c"}\n')
    with (
        Journal(tmp_path / "out.jsonl", resume=True) as journal,
        pytest.raises(
            UsageError, match=r"out\.jsonl\.partial, line 2: not a JSON object.*pass --overwrite"
        ),
    ):
        list(journal.rows())


@pytest.mark.parametrize(
    ("present", "name", "why"),
    [
        ("out.jsonl", "out.jsonl", "exists; name another output, or pass --overwrite"),
        (
            "out.jsonl.partial",
            "out.jsonl",
            "is from a run that was stopped; pass --resume to go on, or --overwrite",
        ),
        ("x", "out.csv", r"the output must end in \.jsonl or \.parquet"),
        ("x", "out", r"the output must end in \.jsonl or \.parquet"),
        ("x", "none/out.jsonl", "there is no folder .*none"),
        ("x", "x/out.jsonl", "there is no folder .*x"),
    ],
)
def test_nothing_is_overwritten_unasked(tmp_path, present, name, why):
    """Each refusal says what may be done about it."""
    (tmp_path / present).write_bytes(b"kept")
    with pytest.raises(UsageError, match=why):
        Journal(tmp_path / name)
    assert (tmp_path / present).read_bytes() == b"kept"
    assert len(list(tmp_path.iterdir())) == 1


def test_overwriting_begins_anew(tmp_path):
    """Both the output and the rest of a stopped run."""
    write(tmp_path / "out.jsonl", {"id": "old"})
    write(tmp_path / "out.jsonl.partial", {"id": "stopped"})
    journal(tmp_path / "out.jsonl", [{"id": "new"}], overwrite=True)
    assert lines(tmp_path / "out.jsonl") == [(1, {"id": "new"})]


def test_a_row_that_cannot_be_written_leaves_the_file_whole(tmp_path):
    """The error comes before the first byte."""
    with Journal(tmp_path / "out.jsonl") as out:
        out.write({"id": "a"})
        with pytest.raises(DataError):
            out.write({"id": "b", "x": float("nan")})
        out.write({"id": "c"})
        out.finish()
    assert [row["id"] for _, row in lines(out.path)] == ["a", "c"]


# ---------------------------------------------------------------------------------------- data sets


def test_a_data_set_is_a_file_or_a_folder_of_splits(tmp_path):
    """A single file serves for whatever split is asked for."""
    write(tmp_path / "test.jsonl", {"a": 1})
    pq.write_table(pa.Table.from_pylist([{"a": 2}]), tmp_path / "train.parquet")
    assert load_dataset(str(tmp_path), "test") == [{"a": 1}]
    assert load_dataset(str(tmp_path), "train") == [{"a": 2}]
    assert load_dataset(str(tmp_path / "test.jsonl"), "any") == [{"a": 1}]
    with pytest.raises(DataError, match=r"validation\.jsonl: no such file"):
        load_dataset(str(tmp_path), "validation")


@pytest.mark.parametrize(("count", "kept_apart"), [(20, 2), (11, 2), (3, 1), (1, 1)])
def test_a_part_of_a_split_and_the_rest_of_it_are_the_whole(tmp_path, count, kept_apart):
    """As `datasets` writes it; percents round up, so that there is something to evaluate on."""
    write(tmp_path / "train.jsonl", *({"a": i} for i in range(count)))
    whole = load_dataset(str(tmp_path), "train")
    first, rest = (
        load_dataset(str(tmp_path), "train[:10%]"),
        load_dataset(str(tmp_path), "train[10%:]"),
    )
    assert (len(first), [*first, *rest]) == (kept_apart, whole)
    assert load_dataset(str(tmp_path / "train.jsonl"), "any[1:3]") == whole[1:3]


@pytest.mark.parametrize("split", ["train[10%]", "train[:10%", "train[-1:]", "[:3]", "train[a:b]"])
def test_a_part_that_cannot_be_read_is_named(tmp_path, split):
    """And not taken for the name of a file."""
    write(tmp_path / "train.jsonl", {"a": 1})
    with pytest.raises(DataError, match="write a name, or a part of it as in"):
        load_dataset(str(tmp_path), split)


def test_a_data_set_with_a_hole_is_refused(tmp_path):
    """With a row missing, every later index would be another task."""
    (tmp_path / "test.jsonl").write_bytes(b'{"a": 1}\n{"a": \n')
    with pytest.raises(DataError, match=r"test\.jsonl, line 2: not a JSON object"):
        load_dataset(str(tmp_path), "test")


def test_a_data_set_may_hold_what_a_record_may_not(tmp_path):
    """NaN in some column of a benchmark's file does not hinder its use."""
    (tmp_path / "test.jsonl").write_bytes(b'{"a": NaN, "q": "?"}\n')
    assert json.dumps(load_dataset(str(tmp_path), "test")) == '[{"a": NaN, "q": "?"}]'


def test_a_data_set_that_cannot_be_had_says_what_works_too(monkeypatch):
    """Without the network: the hub's own error, and the way around it."""
    import datasets

    def offline(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(
        DataError, match=r"data set 'some/set', split 'test': ConnectionError: no network; a local"
    ):
        load_dataset("some/set", "test")


def test_parquet_is_written_a_group_at_a_time(tmp_path, monkeypatch):
    """Columns that come later, whole numbers before fractions and nothing before texts are those of one group."""
    rows = [{"id": f"{n}", "score": n if n < 4 else n + 0.5, "why": None} for n in range(9)]
    rows += [{"id": "9", "score": None, "why": "late", "more": [1, {"a": 2}]}]
    journal(tmp_path / "one.parquet", rows)
    monkeypatch.setattr("rlvr.data.rows._GROUP_ROWS", 3)
    journal(tmp_path / "many.parquet", rows)
    assert pq.read_metadata(tmp_path / "many.parquet").num_row_groups == 4
    assert lines(tmp_path / "many.parquet") == lines(tmp_path / "one.parquet")
    assert [row for _, row in lines(tmp_path / "many.parquet")] == [
        {"more": None, **row} for row in rows
    ]
    monkeypatch.setattr("rlvr.data.rows._GROUP_LETTERS", 3)
    journal(tmp_path / "letters.parquet", rows)
    assert pq.read_metadata(tmp_path / "letters.parquet").num_row_groups == 4


def test_parquet_is_made_in_one_reading_where_the_first_rows_have_all_types(tmp_path, monkeypatch):
    """Twice through a million rows took minutes after their scores; a null and a whole number among
    fractions fit, another column or type does not, and checksums hold either way."""
    from rlvr.data import rows as module

    monkeypatch.setattr(module, "_GROUP_ROWS", 2)
    groups, read = module._groups, []

    def counted(source):
        for rows in groups(source):
            read.append(len(rows))
            yield rows

    monkeypatch.setattr(module, "_groups", counted)
    first = [{"id": "0", "a": 0.5}, {"id": "1", "a": 1.5}, {"id": "2", "a": 2}]
    for name, last, count in (
        ("fits", {"id": "3", "a": None}, 2 + 4),
        ("column", {"id": "3", "b": "x"}, 2 + 4 + 4 + 4),
        ("type", {"id": "3", "a": None, "b": True}, 2 + 4 + 4 + 4),
    ):
        read.clear()
        journal(tmp_path / f"{name}.parquet", [*first, last], checksums=True)
        assert sum(read) == count, name
        written = [line.row for line in read_rows(tmp_path / f"{name}.parquet")]
        assert [row["a"] for row in written] == [0.5, 1.5, 2.0, last.get("a")]
        assert written[-1].get("b") == last.get("b")


WRITES = """\
import sys
from pathlib import Path
from rlvr.data.rows import Journal
cells = {"a": "é", "b": True, "c": -0.0, "d": 7, "e": None, "f": [1]}
with Journal(Path(sys.argv[1]), checksums=True) as journal:
    for row in (cells, dict.fromkeys(cells)):
        journal.write({"id": "x", **row})
    journal.finish()
sys.exit("pandas" in sys.modules)
"""


def test_parquet_is_written_without_pandas(tmp_path):
    """It took 60 MiB of the 173 at which a million rows peaked."""
    path = tmp_path / "out.parquet"
    assert subprocess.run([sys.executable, "-c", WRITES, path], check=False).returncode == 0
    table = pq.read_table(path)
    table.validate(full=True)
    first, second = (row.row for row in read_rows(path))
    assert first == {"id": "x", "a": "é", "b": True, "c": 0.0, "d": 7, "e": None, "f": [1]}
    assert str(first["c"]) == "-0.0"
    assert set(second.values()) == {"x", None}
