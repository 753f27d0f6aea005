"""By what a score was decided: what must not be mixed is refused by name, and what is harmless is not."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import rlvr
from rlvr.cli import main
from rlvr.errors import UsageError
from rlvr.scoring.identity import (
    DataDigest,
    Identity,
    IdentityFile,
    identity_of,
    identity_path,
    read_identity,
    require_same,
)
from tests.json_lines import write_json_lines
from tests.scoring.readers import Digits, Worded, until

CLI = "import sys; from rlvr.cli import main; sys.exit(main())"
MINE = """\
import importlib, json, os, pathlib
import helper_of_mine
import rlvr
from rlvr.types import Outcome, Verdict

HERE = pathlib.Path(__file__).parent
AT_IMPORT = (HERE / "at_import.txt").read_text()

class Mine(rlvr.Environment):
    def __post_init__(self):
        self.when_made = (HERE / "when_made.txt").read_text()

    def task(self, i):
        return rlvr.Task(f"Mine/train/{i}", "p", reference="1")

    def verify(self, task, completion):
        least = json.loads((HERE / "cfg.json").read_text())["least"]
        ok = importlib.import_module("plug" + "_in").ok(completion)
        ok = ok and not os.environ.get("STRICT") and len(completion) >= least
        cache = HERE / "cache.txt"
        if not cache.exists():
            cache.write_text("x")
        cache.read_text()
        dict(os.environ).get("PWD"), os.environ.get("HOME")
        return Verdict(Outcome.CORRECT if ok else Outcome.WRONG, why="same" if ok else "other")
"""


class Shards:
    """Two shards of one input, each scored in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("mine.py", MINE)
        self.write("cfg.json", '{"least": 0}')
        self.write("plug_in.py", "def ok(c): return True\n")
        self.write("helper_of_mine.py", "")
        self.write("at_import.txt", "a")
        self.write("when_made.txt", "a")
        rows = [{"reference": "1", "completion": f"hello {i}"} for i in range(6)]
        source = write_json_lines(folder / "in.jsonl", rows)
        self.argv = ("score", f"{folder / 'mine.py'}:Mine", source, "--workers", 1, "-o")
        self.out, self.partial = folder / "out.jsonl", folder / "out.jsonl.partial"
        self.beside = identity_path(self.out)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def run(self, *argv: object, **variables: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
        argv = (sys.executable, "-c", CLI, *map(str, argv))
        return subprocess.run(argv, capture_output=True, text=True, env=env, check=False)

    def score(self, number: int, *flags: str, **variables: str) -> Path:
        out = self.folder / f"s{number}.jsonl"
        done = self.run(*self.argv, out, "--shard", f"{number}/2", *flags, **variables)
        assert done.returncode == 0, done.stderr
        return out

    def whole(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """All rows into one file."""
        return self.run(*self.argv, self.out, *flags)

    def join(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """In this process: nothing of the user's is imported."""
        files = [self.folder / f"s{number}.jsonl" for number in (1, 2)]
        argv = ["join", *files, "-o", self.folder / "joined.jsonl", "--overwrite", *flags]
        with contextlib.redirect_stderr(io.StringIO()) as said:
            code = main([str(arg) for arg in argv])
        return subprocess.CompletedProcess(argv, code, "", said.getvalue())


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> Shards:
    shards = Shards(tmp_path_factory.mktemp("identity"))
    shards.score(1)
    return shards


@pytest.fixture
def shards(first, tmp_path) -> Shards:
    """In a folder of its own, where the first shard is scored already."""
    folder = tmp_path / "other place"
    folder.mkdir()
    copy = Shards(folder)
    for name in ("s1.jsonl", "s1.jsonl.shard.json"):
        shutil.copy(first.folder / name, folder / name)
    return copy


@pytest.mark.parametrize(
    ("name", "text", "part", "what"),
    [
        ("cfg.json", '{"least": 99}', "inputs", "cfg.json has another content"),
        ("at_import.txt", "b", "inputs", "at_import.txt has another content"),
        ("when_made.txt", "b", "inputs", "when_made.txt has another content"),
        ("plug_in.py", "def ok(c): return False\n", "code", "plug_in has another content"),
        ("helper_of_mine.py", "x = 1\n", "code", "helper_of_mine has another content"),
        ("mine.py", MINE + "\n", "code", "mine has another content"),
        ("$STRICT", "1", "inputs", "$STRICT is unset there and set here"),
    ],
)
def test_what_judging_reads_must_be_the_same(shards, name, text, part, what):
    """A data file, one read while a module is loaded, a module imported by a made-up name, a helper, a variable."""
    variables = {name[1:]: text} if name.startswith("$") else {}
    if not variables:
        shards.write(name, text)
    shards.score(2, **variables)
    refused = shards.join()
    flipped = what.replace("unset there and set", "set there and unset")
    assert refused.returncode == 2
    assert flipped in refused.stderr
    assert f"or pass --accept {part}" in refused.stderr
    assert refused.stderr.count("\n") == 1
    accepted = shards.join("--accept", part)
    assert accepted.returncode == 0, accepted.stderr
    kept = read_identity(shards.folder / "joined.jsonl")
    assert flipped in kept.accepted[0]


def test_columns_must_be_the_same(shards):
    """They say what is judged by which reference: shards of two columns joined silently."""
    shards.score(2, "--bare")
    refused = shards.join()
    assert refused.returncode == 2
    assert 'columns is "bare=True" there and "as they are named" here' in refused.stderr
    assert "or pass --accept data" in refused.stderr
    assert shards.join("--accept", "data").returncode == 0


def test_harmless_changes_are_no_difference(shards):
    """Another folder, home, terminal and number of cores; a file that judging itself writes; other files beside."""
    shards.write("notes.md", "x")
    shards.write("not_used.py", "x = 1\n")
    home = str(shards.folder)
    shards.score(2, HOME=home, TERM="dumb", COLUMNS="40", TMPDIR=home, OMP_NUM_THREADS="3")
    done = shards.join()
    assert done.returncode == 0, done.stderr
    identity = read_identity(shards.folder / "joined.jsonl")
    assert sorted(identity.inputs) == ["$STRICT", "at_import.txt", "cfg.json", "when_made.txt"]
    assert not identity.accepted


def test_a_file_that_changes_while_a_run_goes_on_ends_it(tmp_path, monkeypatch):
    """The rows before and after are of two judges."""
    shards = Shards(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = [{"reference": "1", "completion": "hello"}]
    env = rlvr.make(f"{tmp_path / 'mine.py'}:Mine")
    try:
        with (
            rlvr.Scorer(env, workers=1) as scorer,
            rlvr.Scorer(env, workers=1, accept=["inputs"]) as lenient,
        ):
            assert [one.score.total for one in scorer.stream(rows)] == [1.0]
            assert [one.score.total for one in lenient.stream(rows)] == [1.0]
            shards.write("cfg.json", '{"least": 99}')
            with pytest.raises(UsageError, match=r"in inputs: cfg\.json has another content"):
                list(scorer.stream(rows))
            assert [one.score.total for one in lenient.stream(rows)] == [0.0]
    finally:
        for name in ("mine", "plug_in", "helper_of_mine"):
            sys.modules.pop(name, None)


def test_more_that_was_seen_is_no_difference():
    """Only one name with two values is; settings cannot be accepted, and what is accepted is noted once."""
    one = Identity({"env": "a"}, {"m": "1"}, {"f": "0" * 16})
    more = Identity({"env": "a", "x": 1}, {"m": "1", "n": "2"}, {"g": "1" * 16})
    assert one.add(more, "more")
    assert one.code == {"m": "1", "n": "2"}
    other = Identity({"env": "a"}, {"m": "3"})
    with pytest.raises(
        UsageError,
        match='other differs from one in code: m is "3" there and "1" here; use the same',
    ):
        require_same(one, other, "one", "other")
    for _ in range(2):
        require_same(one, other, "one", "other", ["code"])
    assert one.accepted == ['code of other: m is "3" there and "1" here']
    with pytest.raises(UsageError, match="in settings: env") as error:
        require_same(one, Identity({"env": "b"}), "one", "other", ["code", "inputs", "data"])
    assert "--accept" not in str(error.value)


def test_defaults_count_as_options():
    """An option that is left out and one that is given as it is by default are the same; another one is not."""
    default = identity_of(rlvr.make("arithmetic-v1"))
    assert default.digest == identity_of(rlvr.make("arithmetic-v1", difficulty=2)).digest
    assert default.digest == identity_of(rlvr.make("arithmetic-v1", split="test")).digest
    assert default.digest != identity_of(rlvr.make("arithmetic-v1", difficulty=3)).digest


def test_data_are_digested_in_blocks_while_they_are_read(monkeypatch):
    """A pipe too; a longer input has the same first blocks."""
    monkeypatch.setattr("rlvr.scoring.identity._BLOCK_ROWS", 2)

    def blocks(*lines: bytes) -> dict[str, str]:
        found: dict[str, str] = {}
        assert [*DataDigest(1, found.__setitem__).lines(iter(lines))] == [*lines]
        return found

    short, long = blocks(b"a", b"b", b"c"), blocks(b"a", b"b", b"c", b"d", b"e")
    assert [*short] == ["file 1, rows 1 to 2", "file 1, rows 3 to 3"]
    assert [*long] == ["file 1, rows 1 to 2", "file 1, rows 3 to 4", "file 1, rows 5 to 5"]
    assert short["file 1, rows 1 to 2"] == long["file 1, rows 1 to 2"]
    assert blocks(b"a", b"B", b"c")["file 1, rows 1 to 2"] != short["file 1, rows 1 to 2"]


def test_a_partial_file_without_its_identity_is_judged_by_its_digest(shards):
    """What differs is not known then, so it is said that it does."""
    assert shards.whole().returncode == 0
    whole, known = shards.out.read_bytes(), shards.beside.read_bytes()
    shards.out.rename(shards.partial)
    shards.beside.unlink()
    shards.write("helper_of_mine.py", "y = 1\n")
    refused = shards.whole("--resume")
    assert refused.returncode == 2
    assert "is not known: its identity is gone" in refused.stderr
    shards.write("helper_of_mine.py", "")
    shards.beside.write_bytes(known)
    assert shards.whole("--resume").returncode == 0
    assert shards.out.read_bytes() == whole


@pytest.fixture
def half(shards) -> bytes:
    """What a run leaves that was stopped after three rows."""
    assert shards.whole().returncode == 0
    part = b"".join(shards.out.read_bytes().splitlines(keepends=True)[:3])
    shards.out.unlink()
    shards.partial.write_bytes(part)
    return part


def test_inputs_of_a_stopped_run_that_are_not_known_are_accepted_or_refused(shards, half):
    """The digest is of settings and code: rows of two word lists would stand in one file."""
    of_others = json.loads(shards.beside.read_text()) | {"digest": "0" * 32}
    for left in (None, json.dumps(of_others)):
        shards.beside.unlink() if left is None else shards.beside.write_text(left)
        refused = shards.whole("--resume")
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert "pass --overwrite to begin anew, or pass --accept inputs" in refused.stderr
        assert shards.partial.read_bytes() == half
    assert shards.whole("--resume", "--accept", "inputs").returncode == 0
    known = json.loads(shards.beside.read_text())
    assert known["inputs"]
    what = f"inputs of {shards.partial}: not known, identity {known['digest']} there"
    assert what in known["accepted"][0]


@pytest.mark.usefixtures("half")
def test_what_was_accepted_and_what_was_then_recorded_is_noted(shards):
    """Both digests, of each file and of the whole: records of both stand in the file."""
    before = json.loads(shards.beside.read_text())
    shards.write("helper_of_mine.py", "y = 1\n")
    assert shards.whole("--resume", "--accept", "code").returncode == 0
    after = json.loads(shards.beside.read_text())
    name = "helper_of_mine"
    digests = f"{before['code'][name]} there, {after['code'][name]} recorded"
    assert f"{name} has another content: {digests}" in after["accepted"][0]
    assert f"{before['digest']} there, {after['digest']} recorded" in after["accepted"][1]
    # The first record has the old digest, which the file beside it explains.
    shards.out.rename(shards.partial)
    assert shards.whole("--resume").returncode == 0
    assert json.loads(shards.beside.read_text())["accepted"] == after["accepted"]


def test_an_identity_without_end_is_not_read(tmp_path):
    """A file of a terabyte takes no byte on the disk, and would take all memory."""
    out = tmp_path / "a.jsonl"
    for path in (identity_path(out), tmp_path / "b.json"):
        with path.open("wb") as file:
            file.truncate(1 << 40)
    for what in (out, tmp_path / "b.json"):
        with pytest.raises(UsageError, match="has more than 256 MiB"):
            read_identity(what)


@pytest.mark.parametrize("workers", [0, 1])
def test_workers_read_numbers_as_the_process_that_asks(workers):
    """Python's limit of digits is a process's own, and the identity names the asking one's."""
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(5000)
    try:
        with rlvr.Scorer(Digits(), workers=workers) as scorer:
            assert scorer.score(scorer.env.task(0), "x").verdict.why == "5000"
            assert scorer.identity().code["python"].endswith(" int_max_str_digits=5000")
    finally:
        sys.set_int_max_str_digits(digits)


def test_an_output_beside_a_stopped_run_that_replaces_it_has_no_identity(tmp_path):
    """The identity there is of the new rows, and the old ones would be compared as if they had it."""
    out = tmp_path / "a.jsonl"
    out.write_text("{}\n")
    IdentityFile(identity_path(out), Identity(digest="1")).write()
    assert read_identity(out).digest == "1"
    (tmp_path / "a.jsonl.partial").write_text("{}\n")
    with pytest.raises(UsageError, match=r"is of a\.jsonl\.partial, .* finish it by --resume"):
        read_identity(out)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_was_edited_ends_the_scorer_for_good(tmp_path, monkeypatch, workers):
    """A row that was tried again was judged by the new content, as by a service that is asked again."""
    words = tmp_path / "cache.txt"
    words.write_text("1")
    os.utime(words, (1, 1))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    with rlvr.Scorer(Worded(path=str(tmp_path / "cache.txt")), workers=workers) as scorer:
        task = scorer.env.task(0)
        assert scorer.score(task, "read").verdict.why == "1"
        assert scorer.engine.problem == ""
        words.write_text("other")
        for _ in range(3):
            with pytest.raises(UsageError, match=r"in inputs: .*cache\.txt has another content"):
                scorer.score(task, "read")
        assert "cache.txt has another content" in scorer.engine.problem


def test_a_temporary_file_of_the_run_is_no_input_of_a_worker_that_comes_later(tmp_path):
    """A worker that takes a killed one's place reads what that one has written, and it goes on growing."""
    own, before = tmp_path / "own", tmp_path / "before"
    before.write_text("here when the run began")
    began = time.time() + 0.01
    time.sleep(0.05)
    own.write_text("of the first worker")
    script = (
        "import sys; from rlvr.scoring.watch import watch_of_process; watch = watch_of_process(); "
        "watch.start(float(sys.argv[1])); [open(path).read() for path in sys.argv[2:]]; "
        "print(*watch.take().get('inputs', {}))"
    )
    command = [sys.executable, "-c", script, str(began), str(own), str(before)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.split() == [str(before)]


def test_what_one_worker_writes_is_no_input_of_another(tmp_path, monkeypatch):
    """A cache is read before and while it is written: it was an input at first, and then it is none."""
    (tmp_path / "cache.txt").write_text("1")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))  # so that the cache is in no temporary folder
    with rlvr.Scorer(Worded(path=str(tmp_path / "cache.txt")), workers=2) as scorer:
        task = scorer.env.task(0)
        assert scorer.score(task, "read").verdict.why == "1"
        name = next(one for one in scorer.identity().inputs if one.endswith("cache.txt"))
        writing = threading.Thread(target=scorer.score, args=(task, "write"))
        writing.start()
        until((tmp_path / "is written").exists)
        assert scorer.score(task, "read").verdict.why == "2"
        (tmp_path / "may end").mkdir()
        writing.join()
        identity = scorer.identity()
    assert identity.written == {name}
    assert name not in identity.inputs
    read_by_another_run = Identity(identity.settings, inputs={name: "1" * 16})
    require_same(identity, read_by_another_run, "one", "other")
    assert Identity.from_dict(identity.as_dict()).written == {name}


def test_a_second_run_in_one_process_has_the_inputs_of_the_first_too(tmp_path):
    """The watch is of the process: it kept what it had seen, and a second identity lacked it."""
    path = tmp_path / "key.txt"
    path.write_text("x")
    os.utime(path, (0, 0))
    for _ in range(2):
        with rlvr.Scorer(Worded(path=str(path)), workers=0) as scorer:
            assert scorer.score(scorer.env.task(0), "read").verdict.why == "x"
            assert [one for one in scorer.identity().inputs if one.endswith("key.txt")]
