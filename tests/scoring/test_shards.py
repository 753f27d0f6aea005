"""Shards of an input, scored apart: joined they are the file of one run, or it is said what is missing."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.errors import UsageError
from rlvr.scoring.identity import Identity, read_identity
from rlvr.scoring.shards import Shard, read_totals, totals_of
from rlvr.types import Task
from tests.commands import refusal_of
from tests.environments import right

SIBLINGS = "tests.environments:Siblings"


def lines_of(rows: list[dict]) -> list[str]:
    return [json.dumps(row) + "\n" for row in rows]


@pytest.fixture
def source(tmp_path):
    """Sixty rows, of which one is torn, one has no completion, and two have the ids of rows in other shards."""
    rows = [row | {"mine": i} for i, row in enumerate(right(*range(60)))]
    rows[3]["id"] = rows[17]["id"] = rows[20]["id"] = "same"
    lines = lines_of(rows)
    lines[30], lines[44] = "{torn\n", '{"task": 1}\n'
    path = tmp_path / "in.jsonl"
    path.write_text("".join(lines))
    return path


@pytest.fixture
def sharded(say, tmp_path):
    """Score some shards of an input; gives their files."""

    def run(
        source, count: int, *numbers: int, env: str = "tests.environments:Trials", flags: tuple = ()
    ) -> list:
        files = [tmp_path / f"s-{number}.jsonl" for number in numbers or range(1, count + 1)]
        for file, number in zip(files, numbers or range(1, count + 1), strict=True):
            code, said = say(
                "score",
                env,
                source,
                "-o",
                file,
                "--workers",
                0,
                "--shard",
                f"{number}/{count}",
                *flags,
            )
            assert code in (0, 1), said
        return files

    return run


def test_a_shard_may_be_empty(say, score, sharded, tmp_path):
    """An array of three jobs over two rows."""
    score(right(1, 2))
    assert say("join", *sharded(tmp_path / "in.jsonl", 3), "-o", tmp_path / "joined.jsonl")[0] == 0
    assert (tmp_path / "joined.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()


@pytest.mark.parametrize("count", [1, 4])
def test_joined_shards_are_the_file_of_one_run(say, score, sharded, source, tmp_path, count):
    """Byte for byte, with rows that cannot be used and ids that occur in two shards."""
    assert score(source)[0] == 1
    files = sharded(source, count)
    code, said = say("join", *files, "-o", tmp_path / "joined.jsonl")
    assert code == 1  # rows were left out, as in one run
    assert "56 completions" in said
    assert "4 rows left out" in said
    assert (tmp_path / "joined.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()


@pytest.mark.parametrize("count", [2, 3])
def test_groups_stay_whole_and_apart(say, score, sharded, tmp_path, count):
    """Tasks come back later in the input; a shard that has two groups of one task keeps another between them."""
    order = [0, 0, 1, 1, 0, 0, 1, 2, 0, 0, 0, 1, 0, 2, 0, 0, 1, 1]
    rows = [
        {"task": t, "completion": f"{t}", "length_tokens": 7 * i % 11 + 1}
        for i, t in enumerate(order)
    ]
    rows[8]["id"] = rows[13]["id"] = "same"
    (tmp_path / "in.jsonl").write_text("".join([*lines_of(rows[:5]), "[]\n", *lines_of(rows[5:])]))
    score(tmp_path / "in.jsonl", env=SIBLINGS)
    files = sharded(tmp_path / "in.jsonl", count, env=SIBLINGS)
    assert say("join", *files, "-o", tmp_path / "joined.jsonl")[0] == 1
    assert (tmp_path / "joined.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()


@given(st.lists(st.sampled_from("abc"), max_size=20), st.integers(2, 4))
def test_a_group_always_finds_a_shard(names, count):
    """Each group has one owner and stays whole; no shard has two groups of one task in a row."""
    shards = [Shard(number, count, by_group=True) for number in range(1, count + 1)]
    owners = [[shard.has_task(Task(name, "p")) for shard in shards] for name in names]
    assert all(sum(each) == 1 for each in owners)
    groups = [list(group) for _, group in itertools.groupby(range(len(names)), names.__getitem__)]
    assert all(owners[i] == owners[group[0]] for group in groups for i in group)
    for number in range(count):
        mine = [names[group[0]] for group in groups if owners[group[0]][number]]
        assert all(a != b for a, b in itertools.pairwise(mine))


def test_a_stopped_shard_is_resumed_alone(say, score, sharded, source, tmp_path):
    """Its partial file is of this shard only; another shard's is refused."""
    score(source)
    files = sharded(source, 3)
    whole = files[1].read_bytes()
    files[1].with_name(files[1].name + ".partial").write_bytes(
        b"".join(whole.splitlines(True)[:7]) + b'{"pla'
    )
    files[1].unlink()
    said = refusal_of(*say("join", *files, "-o", tmp_path / "joined.jsonl"))
    assert "its run was stopped" in said
    assert "--resume" in said
    argv = [
        "score",
        "tests.environments:Trials",
        source,
        "-o",
        files[1],
        "--workers",
        0,
        "--resume",
        "--shard",
    ]
    assert "this is shard 3/3" in refusal_of(*say(*argv, "3/3"))
    say(*argv, "2/3")
    assert files[1].read_bytes() == whole
    say("join", *files, "-o", tmp_path / "joined.jsonl")
    assert (tmp_path / "joined.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()


def test_what_is_missing_double_or_of_another_run_is_named(say, sharded, source, tmp_path):
    """Nothing is written then."""
    a, b, c = sharded(source, 3)
    joined = tmp_path / "joined.jsonl"

    def refused(*files, says: str) -> None:
        said = refusal_of(*say("join", *files, "-o", joined))
        assert says in " ".join(said.split())
        assert not joined.exists()

    refused(a, c, says="of 3 shards 1 are missing: 2; run `rlvr score … --shard 2/3`")
    refused(a, b, b, c, says="are both shard 2 of 3")
    refused(a, b, source, says="in.jsonl is no shard: there is no in.jsonl.shard.json beside it")
    kept = b.read_bytes()
    b.write_bytes(b"".join(kept.splitlines(True)[:-1]))
    refused(a, b, c, says="has 19 records, and its run wrote 20")
    b.write_bytes(kept.replace(b'"place": 5', b'"place": 6', 1))
    refused(a, b, c, says="damaged or edited")
    b.write_bytes(a.read_bytes())
    refused(a, b, c, says="is there twice")
    b.write_bytes(kept)
    totals = b.with_name(b.name + ".shard.json")
    text = totals.read_text()
    totals.write_text(text.replace('"rows": 60', '"rows": 61'))
    refused(a, b, c, says="is of an input of 61 rows")
    totals.write_text(text.replace('"verifier": null', '"verifier": "math-v4"'))
    refused(a, b, c, says='in settings: verifier is "math-v4" there and null here; use the same')
    totals.write_text(text)
    (tmp_path / "s-1.jsonl.rejected.jsonl").unlink()
    refused(a, b, c, says="left 1 rows out")


def test_shards_of_two_inputs_of_one_size_are_told_apart(say, sharded, source, tmp_path):
    """Such as one with an answer that was put right while half of the array had already run."""
    first = sharded(source, 2, 1)
    text = source.read_text()
    source.write_text(text.replace("1", "2", 1))
    assert len(source.read_text()) == len(text)
    second = sharded(source, 2, 2)
    said = refusal_of(*say("join", *first, *second, "-o", tmp_path / "joined.jsonl"))
    assert "in data: file 1, rows 1 to 60 has another content" in " ".join(said.split())


def test_a_pattern_may_name_the_left_out_rows_too(say, sharded, source, tmp_path):
    """`s-*.jsonl` finds `s-1.jsonl.rejected.jsonl`; it is no shard."""
    sharded(source, 2)
    files = sorted(tmp_path.glob("s-*.jsonl"))
    assert len(files) > 2
    assert say("join", *files, "-o", tmp_path / "joined.parquet")[0] == 1


@pytest.mark.parametrize("text", ["0/4", "5/4", "4", "1/0", "-1/4", "a/b"])
def test_a_shard_is_i_of_n(text):
    """From 1 to n; an array that counts from 0 is told so."""
    with pytest.raises(UsageError, match="from 0" if text == "0/4" else "shard"):
        Shard.read(text, by_group=False)


def test_a_shard_is_a_file_of_json_lines(say, source, tmp_path):
    """The join writes Parquet; a pipe could not keep the totals."""
    for output in (tmp_path / "s.parquet", "-"):
        assert "a shard goes to a .jsonl file" in refusal_of(
            *say("score", "tests.environments:Trials", source, "-o", output, "--shard", "1/2")
        )


TOTALS = {"shard": 1, "of": 2, "rows": 4, "scored": 2, "left_out": 0, "identity": {}}


@pytest.mark.parametrize(
    "text",
    [
        *("[" * 100_000, "5", "{"),
        *(json.dumps({**TOTALS, name: "2"}) for name in ("shard", "of", "rows")),
        json.dumps({**TOTALS, "shard": 3}),
    ],
)
def test_totals_that_say_nonsense_are_one_error(tmp_path, text):
    """A shard comes from another machine; brackets without end were a traceback."""
    (tmp_path / "s.jsonl").write_text("")
    (tmp_path / "s.jsonl.shard.json").write_text(text)
    with pytest.raises(UsageError, match=r"is not what `rlvr score --shard` writes"):
        read_totals([tmp_path / "s.jsonl"])


def test_an_output_that_is_not_there_is_named(tmp_path):
    """With what to do: another name, or the end of a run that was stopped."""
    file = tmp_path / "0.jsonl"
    with pytest.raises(UsageError, match="no such file; name the outputs of rlvr score --shard"):
        totals_of(file)
    file.with_name("0.jsonl.partial").touch()
    with pytest.raises(UsageError, match=r"its run was stopped, .*: run it again with --resume"):
        totals_of(file)


def test_missing_shards_are_counted_and_not_listed(tmp_path):
    """Of a hundred million a list of all was made, in gigabytes."""
    (tmp_path / "s.jsonl").write_text("")
    totals = {**TOTALS, "of": 10**15, "identity": Identity().as_dict()}
    (tmp_path / "s.jsonl.shard.json").write_text(json.dumps(totals))
    with pytest.raises(UsageError, match=r"999999999999999 are missing: 2, 3, .* 21 …; run"):
        read_totals([tmp_path / "s.jsonl"])


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[]", "5", ""])
def test_an_identity_that_is_none_is_one_error(tmp_path, text):
    """It stands beside a file that may come from anywhere."""
    (tmp_path / "s.jsonl.identity.json").write_text(text)
    with pytest.raises(UsageError, match="holds no identity"):
        read_identity(tmp_path / "s.jsonl")
