"""Scores a Ray dataset that is too large for one program: its rows are read, scored
and written on the nodes.

    dataset ─▶ rows with their part ─▶ one part on one node: Scorer ─▶ OUT/part-00003-of-00064.jsonl
                                                                       └─▶ its totals ─▶ the driver

A row's part is the hash of its id, or of its task where the reward compares completions, so a part
has whole groups and all rows of one id, whatever the cluster.  Within a
part rows are sorted by such
hashes: the same rows give the same bytes.  A part is there when its file and its totals are, as
with shards; the driver sees totals alone.
"""

from __future__ import annotations

import importlib
import json
import math
import pickle
import re
import socket
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import cloudpickle
import numpy as np

from rlvr.data.lines import Line, Row
from rlvr.data.rows import Journal, rejected_row
from rlvr.environment import Environment
from rlvr.errors import DataError, RlvrError, ServiceFailed, UsageError
from rlvr.scoring.engines.cluster import cause_of, import_ray, ship_env
from rlvr.scoring.engines.fleet import last_line
from rlvr.scoring.engines.patience import PATIENCE_S, Patience, require_patience
from rlvr.scoring.identity import (
    Identity,
    IdentityFile,
    identity_of,
    identity_path,
    require_acceptable,
    shard_path,
)
from rlvr.scoring.items import OF_THE_COMPLETION, hash_id, was_there
from rlvr.scoring.pool import MEMORY_MIB, WALL_S
from rlvr.scoring.records import Recorder, provenance
from rlvr.scoring.scorer import Scorer
from rlvr.scoring.shards import ShardTotals, rejected_path, totals_of
from rlvr.types import JsonObject
from rlvr.validate import require_optional_whole, require_processes

if TYPE_CHECKING:
    import pyarrow as pa
    from ray.data import Dataset

__all__ = ["DatasetTotals", "score_dataset"]

_PART: Final = "part"
_TASK: Final = "task_number"
_ID: Final = "id_number"
_DIGEST: Final = "digest"
_ROW: Final = "row"
_IS_DOUBLE: Final = "is_double"

_PARTS_A_CPU: Final = 16  # so that nodes end together, and a kill costs little
# The names of parts have five digits.
_MOST_PARTS: Final = 99_999
_BATCH_ROWS: Final = 1000  # unpacked together
_FILE: Final = re.compile(r"part-\d{5}-of-(\d{5})\.jsonl")


@dataclass(frozen=True, slots=True)
class DatasetTotals:
    """What `score_dataset` has written.

    Attributes:
        parts: number of files.
        scored: number of records in them.
        left_out: rows that could not be used; they are in the files' `.rejected.jsonl`.
        identity: how completions were scored.
    """

    parts: int
    scored: int
    left_out: int
    identity: Identity


def score_dataset(
    dataset: Dataset,
    env: Environment,
    output: str | Path,
    *,
    name: str | None = None,
    parts: int | None = None,
    workers: int = 1,
    resume: bool = False,
    accept: Collection[str] = (),
    wall_s: float = WALL_S,
    memory_mib: int | None = MEMORY_MIB,
    patience_s: float = PATIENCE_S,
) -> DatasetTotals:
    """Score the rows of a Ray dataset on the nodes of its cluster; blocks.

        ray.init("auto")
        totals = score_dataset(ray.data.read_parquet("/shared/completions"), env, "/shared/scored")
        scores = ray.data.read_json("/shared/scored/part-*-of-*[0-9].jsonl")

    Records are those of `rlvr score`, in another order.  A row without an id is named by the digest
    of its columns.  Where the reward compares the completions of a task, all rows of one task in
    the dataset are its group, wherever they stand.

    Args:
        dataset: its rows have the columns that `Scorer.stream` reads; they are hashed twice where
            the reward compares completions.
        env: the environment, as its nodes need not have it: it is sent with cloudpickle.
        output: a folder that all nodes see under this path.
        name: of the environment in records, as `rlvr.make` takes it; None for its id.
        parts: number of files; a part must fit into the memory of its node.  None for 16 for each
            CPU that the cluster has now, or for those of the stopped run.
        workers: processes of each actor, which reserves as many CPUs; Ray starts more actors as
            the cluster has room.
        resume: whether parts that a stopped run has finished are kept.
        accept: parts of the identity that may differ between nodes and runs, see `rlvr.Scorer`.
        wall_s, memory_mib: see `rlvr.Scorer`.
        patience_s: seconds for which what dies with a node is done again without a part being
            finished; finished parts stay.

    Raises:
        UsageError: the folder has parts and `resume` is False; parts of another run, other rows or
            another identity; or a number is out of range.
        DataError: no row could be used.
        ServiceFailed: the cluster has lost nodes for longer than `patience_s`.
    """
    ray = import_ray()
    require_processes("workers", workers, 1)
    patience = Patience(require_patience(patience_s), ["the Ray cluster"])
    require_acceptable(accept)
    folder, identity = Path(output).absolute(), identity_of(env)
    count = _count_of_parts(folder, parts, resume=resume)
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if count is None:
        count = min(_PARTS_A_CPU * max(1, cpus), _MOST_PARTS)
    is_small = 0 < cpus <= workers  # what reads needs a CPU beside the one that an actor reserves
    folder.mkdir(parents=True, exist_ok=True)
    job = _Job(
        folder,
        count,
        ship_env(env),
        json.dumps(identity.as_dict()),
        provenance(env, name or env.id, identity),
        tuple(accept),
        workers,
        wall_s,
        memory_mib,
    )
    dealt = _deal(dataset, count, by_group=env.reward.group_level)
    scored_parts = dealt.groupby(_PART, num_partitions=count).map_groups(
        _PartScorer,
        batch_format="pyarrow",
        fn_constructor_args=(job,),
        num_cpus=0 if is_small else workers,
        compute=importlib.import_module("ray.data").ActorPoolStrategy(size=1) if is_small else None,
    )
    identity_file = IdentityFile(identity_path(folder), identity, accept=accept)
    identity_file.write()
    return _follow(ray, scored_parts, job, identity_file, patience)


def _follow(
    ray: Any, scored_parts: Dataset, job: _Job, identity_file: IdentityFile, patience: Patience
) -> DatasetTotals:
    """Add up the parts; what dies with a node is begun anew, without the parts that are there."""
    totals: dict[int, ShardTotals] = {}
    while True:
        try:
            for row in scored_parts.iter_rows():
                # Raised on the node, and sent as data: Ray would wrap it in its own error.
                if row["fault"]:
                    raise pickle.loads(row["fault"])  # noqa: S301  of our own actor
                totals[row[_PART]] = part = ShardTotals(**json.loads(row["totals"]))
                identity_file.add(Identity.from_dict(part.identity))
                part.identity.clear()  # so that the driver stays flat
                patience.succeeded()
            break
        except ray.exceptions.RayTaskError as error:
            raise cause_of(error) from None
        except ray.exceptions.RayError as error:
            patience.failed(0, last_line(error))
            if patience.is_spent:
                raise ServiceFailed(f"{patience}; resume=True goes on") from None
    for number in sorted(set(range(job.count)) - totals.keys()):
        # A file of a part without rows is of another data set.
        if (path := job.path(number)).exists():
            raise UsageError(
                f"{path} has rows that the dataset has not; score it into another folder"
            )
    scored, left_out = (
        sum(getattr(part, name) for part in totals.values()) for name in ("scored", "left_out")
    )
    if not scored:
        raise DataError(f"no row of the dataset could be used; {job.folder} has the reasons")
    return DatasetTotals(len(totals), scored, left_out, identity_file.identity)


def _count_of_parts(folder: Path, wanted: int | None, *, resume: bool) -> int | None:
    """How many parts there are to be; None if it is not known yet."""
    wanted = require_optional_whole("parts", wanted, 1, none="16 for each CPU")
    names = (_FILE.fullmatch(path.name) for path in folder.glob("part-*.jsonl"))
    before = {int(match[1]) for match in names if match}
    if not before:
        return wanted
    if not resume:
        raise UsageError(f"{folder} has parts of another run; pass resume=True, or another folder")
    # Parts of another number would have other rows.
    if len(before) > 1 or wanted not in (None, *before):
        counts = " and ".join(map(str, sorted(before)))
        raise UsageError(f"{folder} has files of {counts} parts, and this run makes {wanted}")
    return before.pop()


@dataclass(frozen=True, slots=True)
class _Job:
    """What an actor has to know; sent to the nodes."""

    folder: Path
    count: int
    shipped: bytes
    identity: str
    run: JsonObject
    accept: tuple[str, ...]
    workers: int
    wall_s: float
    memory_mib: int | None

    def path(self, part: int) -> Path:
        return self.folder / f"part-{part:05d}-of-{self.count:05d}.jsonl"


# ------------------------------------------------------------------------------------ rows to parts


def _deal(dataset: Dataset, count: int, *, by_group: bool) -> Dataset:
    """The rows with their parts.  Groups are dealt only when all rows of one id were seen side by
    side."""
    named = dataset.map_batches(
        _name_rows, batch_format="pyarrow", fn_kwargs={"count": count, "by_group": by_group}
    )
    if not by_group:
        return named
    return named.groupby(_PART, num_partitions=count).map_groups(
        _deal_by_task, batch_format="pyarrow", fn_kwargs={"count": count}
    )


def _name_rows(table: pa.Table, count: int, by_group: bool) -> dict[str, object]:
    """Pack each row, with the numbers by which it is dealt and sorted."""
    parts, tasks, ids = list[int](), list[int](), list[int]()
    digests, rows = list[str](), list[bytes]()
    for row in table.to_pylist():
        columns = {name: value for name, value in row.items() if value is not None}
        digest, name = _digest_of(columns), _id_of(columns)
        # Zero stands for "no id"; `hash_id` never gives it.
        id_number = 0 if name is None else hash_id(name)
        digests.append(digest)
        ids.append(id_number)
        tasks.append(hash_id(_digest_of(_task_columns(columns))) if by_group else 0)
        parts.append((id_number or hash_id(digest)) % count)
        rows.append(pickle.dumps(columns))
    return {
        _PART: np.array(parts, np.int64),
        _TASK: np.array(tasks, np.uint64),
        _ID: np.array(ids, np.uint64),
        _DIGEST: digests,
        _ROW: rows,
        _IS_DOUBLE: np.zeros(len(rows), np.bool_),
    }


def _deal_by_task(table: pa.Table, count: int) -> dict[str, object]:
    """Mark rows whose id was there, and send each to the part of its task."""
    table = table.sort_by([(_ID, "ascending"), (_DIGEST, "ascending")])
    ids, tasks = table[_ID].to_numpy(), table[_TASK].to_numpy()
    is_double = np.zeros(len(ids), np.bool_)
    # Sorted, so equal ids are neighbours; those without one are never doubles.
    is_double[1:] = (ids[1:] == ids[:-1]) & (ids[1:] != 0)
    return {
        _PART: (tasks % np.uint64(count)).astype(np.int64),
        _TASK: tasks,
        _ID: ids,
        _DIGEST: table[_DIGEST].to_pylist(),
        _ROW: table[_ROW].to_pylist(),
        _IS_DOUBLE: is_double,
    }


def _id_of(columns: Row) -> str | int | None:
    """The id of a row, None if it has none: pandas fills gaps with NaN,
    and makes numbers floats."""
    name = columns.get("id")
    if isinstance(name, float):
        name = None if math.isnan(name) else int(name) if name.is_integer() else name
    return name if name is None or type(name) is int else str(name)


def _task_columns(columns: Row) -> Row:
    """Those that say which task a row answers."""
    if "task" in columns:
        return {name: columns[name] for name in ("task", "prompt") if name in columns}
    others = columns.keys() - OF_THE_COMPLETION - {"id"}
    return {name: columns[name] for name in others}


def _digest_of(columns: Row) -> str:
    # The same bytes on every node: keys sorted.
    text = json.dumps(columns, sort_keys=True, default=_plain_value)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _plain_value(value: object) -> object:
    return value.tolist() if hasattr(value, "tolist") else str(value)


# ------------------------------------------------------------------------------- a part on its node


class _PartScorer:
    """Scores parts on a node, one after the other; an actor of Ray Data.

    Args:
        job: what is to be done.
    """

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._scorer: Scorer | None = None

    def __call__(self, table: pa.Table) -> dict[str, list[object]]:
        part = table[_PART][0].as_py()
        totals, fault = "", b""
        try:
            totals = json.dumps(asdict(self._score(part, table)))
        except RlvrError as error:
            fault = pickle.dumps(error)
        return {_PART: [part], "totals": [totals], "fault": [fault]}

    def _score(self, part: int, table: pa.Table) -> ShardTotals:
        job, path = self._job, self._job.path(part)
        # Sorted by numbers that depend on the rows alone.
        table = table.sort_by([(name, "ascending") for name in (_TASK, _ID, _DIGEST)])
        digest = blake2b("".join(table[_DIGEST].to_pylist()).encode(), digest_size=8).hexdigest()
        identity = Identity.from_dict(json.loads(job.identity))
        identity.add(Identity(data={f"part {part}": digest}), "its rows")
        # Both files are there only when the part is whole.
        if path.is_file() and shard_path(path).is_file():
            done = totals_of(path)
            identity.add(Identity.from_dict(done.identity), str(path), job.accept)
            return done
        if self._scorer is None:
            self._scorer = Scorer(
                cloudpickle.loads(job.shipped),
                workers=job.workers,
                wall_s=job.wall_s,
                memory_mib=job.memory_mib,
                accept=job.accept,
            )
        node = f"the node {socket.gethostname()}"
        # Compared before and after: what judging reads is known only then.
        identity.add(self._scorer.identity(), node, job.accept, here="the driver")
        scored, left_out = self._write(path, table)
        identity.add(self._scorer.identity(), node, job.accept, here="the driver")
        totals = ShardTotals(part + 1, job.count, len(table), scored, left_out, identity.as_dict())
        totals.write(path)
        return totals

    def _write(self, path: Path, table: pa.Table) -> tuple[int, int]:
        """Write the records of a part and the rows that were left out; how many there are."""
        assert self._scorer is not None, "_score makes it"
        recorder, scored = Recorder(self._job.run), 0
        # Left by an attempt that died.
        rejected_path(path).unlink(missing_ok=True)
        with ExitStack() as stack:
            journal = stack.enter_context(Journal(path, overwrite=True, checksums=True, flush_s=1))
            rows = _PartRows(table, rejected_path(path))
            stack.callback(rows.close)
            for one in self._scorer.stream(rows, on_error=rows.reject):
                row = rows.next()
                try:
                    inputs = recorder.inputs(one.item)
                except DataError as error:
                    rows.write(row, error)
                    continue
                journal.write(recorder.line(one, inputs))
                scored += 1
            journal.finish()
        return scored, rows.left_out


class _PartRows:
    """The rows of a part, and those that could not be used.

    Args:
        table: of the part, sorted.
        path: of the file for the latter.
    """

    def __init__(self, table: pa.Table, path: Path) -> None:
        self._table, self._path = table, path
        self._file: IO[bytes] | None = None
        self._under_way: dict[int, Row] = {}  # by number
        self.left_out = 0

    def __iter__(self) -> Iterator[Row]:
        copies = Counter[str]()
        number = 0
        for batch in self._table.to_batches(_BATCH_ROWS):
            for packed in batch.to_pylist():
                # by _name_rows
                row, digest = pickle.loads(packed[_ROW]), packed[_DIGEST]  # noqa: S301
                if packed[_IS_DOUBLE]:
                    self.write(row, was_there(row["id"]))
                    continue
                if not packed[_ID]:
                    copies[digest] += 1
                    # Equal rows without ids get numbers, in an order that is the same each time.
                    row["id"] = f"row:{digest}" + f"-{copies[digest]}" * (copies[digest] > 1)
                number += 1
                self._under_way[number] = row
                yield row

    def next(self) -> Row:
        """The oldest row that is under way: scores come in order."""
        return self._under_way.pop(next(iter(self._under_way)))

    def reject(self, number: int, error: DataError) -> None:
        """Leave out a row that the scorer refused."""
        self.write(self._under_way.pop(number), error)

    def write(self, row: Row, error: DataError) -> None:
        """Write a row that could not be used."""
        if self._file is None:
            self._file = self._path.open("wb")
        self._file.write(rejected_row(Line(self.left_out + 1, row), str(error)))
        self.left_out += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
