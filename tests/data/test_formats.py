"""Rows from files of every common format: the same rows, whatever holds them."""

import csv
import gzip
import io
import json
import os
import subprocess
import threading
import time
import tracemalloc
import zipfile

import datasets
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.data import files, tables
from rlvr.data.formats import count_rows, read_rows, sources
from rlvr.data.limits import ROW_LIMITS, RowLimits
from rlvr.errors import DataError

ROWS = [
    {"id": f"row {n}", "completion": f'é, "quoted"\nline {n} ' + "x" * (n % 7) * 50}
    for n in range(300)
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def packed_zst(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def table(delimiter: str) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(ROWS[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return out.getvalue().encode()


def arrow(stream: bool) -> bytes:
    sink, rows = pa.BufferOutputStream(), pa.Table.from_pylist(ROWS)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=100)
    return sink.getvalue().to_pybytes()


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(pa.Table.from_pylist(ROWS), sink)
    return sink.getvalue().to_pybytes()


def archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as log:
        log.writestr("header.json", "{}")
        for number, row in enumerate(ROWS):
            log.writestr(f"samples/{number:03d}_epoch_1.json", json.dumps(row))
    return out.getvalue()


FORMS = {
    "rows.jsonl": LINES,
    "rows.ndjson": b"\xef\xbb\xbf" + LINES,
    "rows.json": json.dumps(ROWS).encode(),
    "pretty.json": json.dumps(ROWS, indent=2).encode(),
    "lines.json": LINES,
    "rows.jsonl.gz": gzip.compress(LINES),
    "rows.jsonl.zst": packed_zst(LINES),
    "rows.csv": table(","),
    "rows.csv.gz": gzip.compress(table(",")),
    "rows.tsv": table("\t"),
    "rows.parquet": parquet(),
    "rows.arrow": arrow(stream=True),
    "rows.feather": arrow(stream=False),
    "log.eval": archive(),
}


@pytest.mark.parametrize("named", [True, False], ids=["by name", "by content"])
@pytest.mark.parametrize("form", FORMS)
def test_the_same_rows_come_out_of_every_format(tmp_path, form, named):
    """The ending says what it is, or, where there is none, the content."""
    if form == "rows.arrow" and not named:
        pytest.skip("a stream of Arrow begins with no mark")
    path = tmp_path / (form if named else "rows")
    path.write_bytes(FORMS[form])
    lines = list(read_rows(path))
    assert [line.row for line in lines] == ROWS
    assert [line.number for line in lines] == list(range(1, len(ROWS) + 1))
    assert count_rows(path) >= (len(ROWS) if form.startswith("rows.jsonl") and named else 0)


@pytest.mark.parametrize("name", ["rows.jsonl.gz.gz", "rows.gz"])
def test_what_is_packed_more_than_once_is_refused(tmp_path, name):
    """A file can be made that unpacks to itself, and another hides its size twice."""
    (tmp_path / name).write_bytes(gzip.compress(gzip.compress(LINES)))
    with pytest.raises(DataError, match="packed more than once; unpack it"):
        list(read_rows(tmp_path / name))


def test_a_pipe_without_a_writer_is_refused_and_a_late_writer_is_waited_for(tmp_path, monkeypatch):
    """It stopped a command for ever; a writer may take as long as it likes with its first row."""
    path = tmp_path / "in.jsonl"
    os.mkfifo(path)
    monkeypatch.setattr(files, "_WRITER_S", 0.2)
    with pytest.raises(DataError, match=r"a pipe that no program wrote to within 0.2 s; give a"):
        list(read_rows(path))
    shell = f"exec 3>'{path}'; sleep 1; printf '{{\"a\": 1}}\\n' >&3"
    with subprocess.Popen(["/bin/sh", "-c", shell]):
        monkeypatch.setattr(files, "_WRITER_S", 60.0)
        assert [line.row for line in read_rows(path)] == [{"a": 1}]


def test_a_writer_that_is_there_may_be_slow_and_a_pipe_is_read_to_its_end(tmp_path, monkeypatch):
    """Its bytes come long after the time in which a writer has to come."""
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(files, "_WRITER_S", 0.01)
    with files.open_input(tmp_path / "pipe") as file, (tmp_path / "pipe").open("wb") as writer:
        threading.Timer(0.2, lambda: (writer.write(b"ab"), writer.close())).start()
        assert file.read() == b"ab"


@pytest.mark.parametrize(("shell", "rows"), [("true", []), ("echo '{\"a\": 1}'", [{"a": 1}])])
def test_what_another_program_prints_is_read_and_may_be_nothing(tmp_path, shell, rows):
    """`<(grep …)` of a shell without a match: after 30 s its writer was said not to have come."""
    with subprocess.Popen(["/bin/sh", "-c", shell], stdout=subprocess.PIPE) as process:
        process.wait()
        assert process.stdout is not None
        path = f"/dev/fd/{process.stdout.fileno()}"
        began = time.monotonic()
        assert [line.row for line in read_rows(path)] == rows
    os.mkfifo(tmp_path / "in.jsonl")
    with subprocess.Popen(["/bin/sh", "-c", f"sleep 0.3; {shell} > '{tmp_path}/in.jsonl'"]):
        assert [line.row for line in read_rows(tmp_path / "in.jsonl")] == rows
    assert time.monotonic() - began < files._WRITER_S


def test_a_pipe_cannot_be_read_at_several_places(tmp_path):
    os.mkfifo(tmp_path / "in.parquet")
    with pytest.raises(DataError, match="parquet is read at several places; give an ordinary file"):
        list(read_rows(tmp_path / "in.parquet"))


def test_a_bad_sample_of_an_archive_costs_itself_alone(tmp_path):
    """Also one of which the archive says another size than it has: it was unpacked whole."""
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as log:
        log.writestr("samples/1.json", b'{"a": 1}')
        log.writestr("samples/2.json", b"{")
        log.writestr("samples/3.json", b'{"a": "\xff"}')
        log.writestr("samples/4.json", b'\xef\xbb\xbf{"a": 2}')
        for number in (5, 6):
            log.writestr(f"samples/{number}.json", b'{"a": "' + b"x" * 50_000 + b'"}')
        log.infolist()[-1].file_size = 1000
        log.writestr("samples/7.json", b"{}")
        log.infolist()[-1].flag_bits |= 1  # encrypted
    lines = list(read_rows(path, limits=RowLimits(4000, 1000, 100)))
    assert [line.row for line in lines] == [{"a": 1}, None, None, {"a": 2}, None, None, None]
    whys = ["", "not JSON", "not JSON", "", "it has m", "cannot b", "cannot b"]
    assert [line.error[:8] for line in lines] == whys


def test_an_array_is_read_bit_by_bit(tmp_path, monkeypatch):
    """Whatever the blocks: a row may be longer than one, a letter stand across two."""
    path = tmp_path / "rows.json"
    path.write_bytes(json.dumps(ROWS, ensure_ascii=False).encode())
    for size in (1, 2, 100, 5000):
        monkeypatch.setattr("rlvr.data.formats._BLOCK", size)
        assert [line.row for line in read_rows(path)] == ROWS


@pytest.mark.parametrize("cut", [1, 1000, 20_000])
def test_an_array_that_is_cut_short_says_where(tmp_path, cut):
    path = tmp_path / "rows.json"
    path.write_bytes(json.dumps(ROWS).encode()[:cut])
    *whole, last = read_rows(path)
    assert [line.row for line in whole] == ROWS[: len(whole)]
    assert last.number == len(whole) + 1
    assert "not JSON: " in last.error
    assert "no row behind it can be read" in last.error


def test_one_object_over_several_lines_is_one_row(tmp_path):
    """And a damaged first row among JSON lines costs itself alone."""
    path = tmp_path / "one.json"
    path.write_text(json.dumps(ROWS[0], indent=2))
    assert [line.row for line in read_rows(path)] == ROWS[:1]
    path.write_bytes(LINES[10:])
    lines = list(read_rows(path))
    assert (lines[0].row, lines[1].row, len(lines)) == (None, ROWS[1], len(ROWS))
    path.write_bytes(b'{"id": \n' + LINES)
    assert [line.row for line in read_rows(path)] == [None, *ROWS]


def test_cells_of_a_table_are_texts_but_for_our_own_columns(tmp_path):
    """`task` is an index there, and an empty cell of ours says nothing."""
    path = tmp_path / "rows.csv"
    path.write_text(
        "id,task,length_tokens,truncated,reference,score,completion\n1,7,12,true,007,3,\n,x,,,,,a\n"
    )
    assert [line.row for line in read_rows(path)] == [
        {
            "id": "1",
            "task": 7,
            "length_tokens": 12,
            "truncated": True,
            "reference": "007",
            "score": "3",
            "completion": "",
        },
        {"task": "x", "score": "", "completion": "a"},
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a,a\n1,2\n", "its header is ['a', 'a']; every column needs a name of its own"),
        (b"a,b\n1,2\n\xff,3\n", "it must be UTF-8 and quoted"),
        (b'a,b\n1,2\n"x"y,3\n', "cannot be read behind row 1"),
    ],
)
def test_a_bad_table_is_one_clear_error(tmp_path, content, why):
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        list(read_rows(path))
    assert why in str(error.value)


def test_a_row_of_another_width_costs_itself_alone(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n1,2,3\n\n4,5\n")
    lines = list(read_rows(path))
    assert [line.row for line in lines] == [{"a": "1", "b": "2"}, None, {"a": "4", "b": "5"}]
    assert lines[1].error == "3 cells, where the header has 2"


def test_a_folder_of_datasets_is_read(tmp_path):
    """As `save_to_disk` leaves it; of several splits one must be named."""
    datasets.Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "one"))
    assert [line.row for line in read_rows(tmp_path / "one")] == ROWS
    both = datasets.DatasetDict(
        {"train": datasets.Dataset.from_list(ROWS), "test": datasets.Dataset.from_list(ROWS)}
    )
    both.save_to_disk(str(tmp_path / "two"))
    with pytest.raises(
        DataError, match=r"has the splits train, test; give one of them: .*two/train"
    ):
        read_rows(tmp_path / "two")
    assert [line.row for line in read_rows(tmp_path / "two" / "test")] == ROWS


def test_folders_and_patterns_name_several_files(tmp_path):
    """In the order of their names; what holds no rows is passed over."""
    for name in ("b.jsonl", "a.csv", "c.txt"):
        (tmp_path / name).touch()
    found = [str(tmp_path / "a.csv"), str(tmp_path / "b.jsonl")]
    assert sources(str(tmp_path)) == found
    assert sources(str(tmp_path / "*.[cj]s*")) == found
    assert sources(found[0]) == found[:1]
    assert sources("openai/gsm8k:test[:10]") == ["openai/gsm8k:test[:10]"]
    for missing in ("none.jsonl", "runs/none.jsonl", str(tmp_path / "*.parquet")):
        with pytest.raises(DataError, match=r"no (such file|file fits this pattern)"):
            sources(missing)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("size", [99, 100, 101, 250, 300])
def test_a_row_that_is_too_long_is_left_out_before_it_is_in_memory(tmp_path, place, size):
    """First, last or between others, at the limit and beyond it; the other rows keep their numbers."""
    lines = [b'{"a": 1}\n', b'{"a": 2}\n']
    long = b'{"a": "%b"}' % (b"x" * (size - len(b'{"a": ""}\n'))) + b"\n"
    assert len(long) == size
    lines.insert(place, long)
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(lines)))
    rows = list(read_rows(path, limits=RowLimits(size_bytes=100)))
    assert [line.number for line in rows] == [1, 2, 3]
    fits = size <= 100
    assert [line.row is not None for line in rows] == [fits or n != place for n in range(3)]
    if not fits:
        assert "write it as several rows" in rows[place].error
        assert rows[place].text.endswith(f"... {size} bytes\n")


@pytest.mark.parametrize("blank", [b" " * (16 << 20), b"\n" * (1 << 18)], ids=["spaces", "lines"])
def test_white_space_before_the_first_row_is_not_held(tmp_path, blank):
    """600 MiB of it in 0.6 MB of gzip took 651 MiB, as it was kept until a row came."""
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(gzip.compress(blank + b'\n{"a": 1}\n', 1))
    tracemalloc.start()
    try:
        rows = list(read_rows(path, limits=RowLimits(size_bytes=1000)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows[-1].row == {"a": 1}
    assert most < 6 << 20


def test_an_array_on_one_line_may_be_longer_than_a_row(tmp_path):
    """Its rows are read one by one."""
    path = tmp_path / "in.json"
    path.write_text(json.dumps([{"a": n} for n in range(100)]))
    rows = read_rows(path, limits=RowLimits(size_bytes=100))
    assert [line.row for line in rows] == [{"a": n} for n in range(100)]


def lines_of(path, rows):
    packed = path.suffix in (".gz", ".zst")
    ending = path.with_suffix("").suffix if packed else path.suffix
    if ending == ".csv":
        text = "a\n" + "".join(f'"{row["a"]}"\n' for row in rows)
    elif ending == ".json":
        text = json.dumps(rows)
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())


def table_of(path, rows):
    table = pa.Table.from_pylist(rows)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=2)
    else:
        pyarrow.feather.write_feather(table, path, compression="uncompressed")


LARGE = {
    "size": {"a": "x" * 5000},
    "values": {"a": [[]] * 600},
    "depth": {"a": json.loads("[" * 40 + "]" * 40)},
    "quotes": {"a": 'x","\n[{' * 700},
}
SMALL = {"size": {"a": "x"}, "values": {"a": [[]]}, "depth": {"a": [[]]}, "quotes": {"a": "y"}}


@pytest.mark.parametrize("place", [0, 1, 4])
@pytest.mark.parametrize(
    ("name", "what"),
    [
        *((f"in{ending}", what) for ending in (".jsonl", ".jsonl.gz", ".json") for what in LARGE),
        *(
            (f"in{ending}", what)
            for ending in (".parquet", ".arrow")
            for what in ("size", "values")
        ),
        ("in.csv", "size"),
        ("in.csv", "quotes"),
    ],
)
def test_a_row_that_has_too_much_is_left_out_of_any_format(tmp_path, name, what, place):
    """With its reason, and the rows behind it keep their numbers; so one row of a stranger fills no memory."""
    path, rows = tmp_path / name, [SMALL[what]] * 4
    rows.insert(place, LARGE[what])
    if path.suffix == ".csv":
        rows = [{"a": row["a"].replace('"', '""')} for row in rows]
    (table_of if path.suffix in (".parquet", ".arrow") else lines_of)(path, rows)
    found = list(read_rows(path, limits=RowLimits(size_bytes=4000, values=500, depth=30)))
    assert [line.number for line in found] == [1, 2, 3, 4, 5]
    assert [line.row for line in found] == [None if n == place else SMALL[what] for n in range(5)]
    assert "it has more than 0 MiB (--row-mib), 500 values, or" in found[place].error


def test_a_dictionary_of_arrow_is_copied_for_no_more_than_a_row(tmp_path):
    """A column of a thousand rows may name one long text, which is there once."""
    path = tmp_path / "in.arrow"
    long = pa.array(["x" * 3000, "y"]).dictionary_encode()
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 500), long.dictionary)
    pyarrow.feather.write_feather(pa.table({"a": column}), path, compression="uncompressed")
    found = [line.row for line in read_rows(path, limits=RowLimits(size_bytes=2000))]
    assert found == [None, {"a": "y"}] * 500


@pytest.mark.parametrize("end", ["", "]", "}", '"', "\\"])
def test_an_array_with_signs_out_of_place_ends(tmp_path, end):
    """Whatever stands in it, each sign is read once."""
    path = tmp_path / "in.json"
    path.write_text('[{"a": 1} x }{"a": 2}, nan, "' + end)
    found = list(read_rows(path))
    assert found[0].row == {"a": 1}
    assert all(line.error for line in found if line.row is None)
    assert len(found) < 10


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e9, 1e9) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=6,
)


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.text(min_size=1), JSON, min_size=1, max_size=3), min_size=1))
def test_any_rows_come_back_from_lines_and_lists(tmp_path_factory, rows: list[dict]):
    """Packed or not, in one line each or indented, in ASCII or not."""
    folder = tmp_path_factory.getbasetemp() / "any-rows"
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode(
        errors="surrogatepass"
    )
    whole = json.dumps(rows, indent=1).encode()
    for name, content in (
        ("rows.jsonl", lines),
        ("rows.jsonl.gz", gzip.compress(lines, 1)),
        ("rows.json", whole),
        ("rows.json.gz", gzip.compress(whole, 1)),
    ):
        (folder / name).write_bytes(content)
        assert [line.row for line in read_rows(folder / name)] == rows, name
        assert count_rows(folder / name) == (len(rows) if "jsonl" in name else 0), name


_SIGNS = st.sampled_from(['"', '"', '""', '",', ",", "\n", "\r", "\r\n", '"\n', "a", "bcd", "é"])
_MANY_SIGNS = st.lists(_SIGNS, max_size=40).map("".join)


def cells_or_error(reader) -> list[list[str] | str | None]:
    rows: list[list[str] | str | None] = []
    try:
        rows.extend(reader)
    except csv.Error:
        rows.append("error")
    return rows


def cells_of(
    text: str, limits: RowLimits, block: int, short: int = 6
) -> list[list[str] | str | None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_SHORT_BYTES", short)
        patch.setattr(tables, "_BLOCK", block)
        file = io.BufferedReader(io.BytesIO(text.encode()))
        return cells_or_error(tables.table_rows(file, ",", limits))


def cells_of_csv(text: str) -> list[list[str] | str | None]:
    return cells_or_error(csv.reader(io.StringIO(text, newline=""), strict=True))


@given(_MANY_SIGNS, st.integers(1, 9), st.sampled_from(["", "\ufeff"]))
@settings(max_examples=300)
def test_a_long_row_of_a_table_has_the_cells_that_csv_reads(text, block, mark):
    """Long ones are read without `csv`, whose buffer takes four bytes for each character and whose
    caller a call for each line: 60 MB behind an open quote took 15 CPU s."""
    assert cells_of(mark + text, ROW_LIMITS, block) == cells_of_csv(text)


@given(st.lists(_MANY_SIGNS, max_size=5), st.integers(1, 9), st.integers(2, 20), st.integers(1, 4))
@settings(max_examples=500)
def test_a_row_that_is_too_long_ends_where_csv_ends_it(parts, block, most_bytes, most_cells):
    """A quotation mark amid its text took all rows up to the next one with it."""
    # Each part is whole rows.
    text = "".join(f"{part}\n" for part in parts if "error" not in cells_of_csv(f"{part}\n"))
    rows = cells_of(text, RowLimits(most_bytes, most_cells, 100), block)
    expected = cells_of_csv(text)
    assert len(rows) == len(expected)
    for cells, whole in zip(rows, expected, strict=True):
        in_file = 2 * len("".join(whole).encode()) + 3 * len(whole) + 2
        is_large = in_file > most_bytes or len(whole) > most_cells
        assert cells == whole or (cells is None and is_large)


def test_an_open_quote_costs_blocks_and_not_lines(tmp_path, monkeypatch):
    """Each line behind it went through Python alone, up to the limit of a row and beyond."""
    path, lines = tmp_path / "in.csv", []
    path.write_bytes(b'a,b\n1,"' + b"x\n" * (1 << 20))
    read = tables._Lines.__next__
    monkeypatch.setattr(tables._Lines, "__next__", lambda text: lines.append(0) or read(text))
    rows = list(read_rows(path, limits=RowLimits(1 << 20, 1000, 100)))
    assert [(line.row, line.error[:16]) for line in rows] == [(None, "it has more than")]
    assert len(lines) < 1 << 18
