"""Records of scores: each holds all that is needed to compute the same score again.

`replay` makes the environment from the record, verifies the recorded completion against the
recorded reference, and reports what differs.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlvr.data.lines import Row
from rlvr.data.rows import dump_row, read_whole
from rlvr.environment import Environment
from rlvr.environment.registry import make, only_places, takes_options
from rlvr.episode import EpisodeRecord
from rlvr.errors import DataError, UntrustedPlace, UsageError, brief
from rlvr.scoring.episodes import grade_again, play_again
from rlvr.scoring.identity import Identity, identity_of, read_identity, require_same
from rlvr.scoring.items import Item
from rlvr.scoring.ordering import Scored
from rlvr.scoring.scorer import Scorer
from rlvr.types import Completion, JsonDict, Outcome, Score, Task, Verdict

__all__ = [
    "Difference",
    "Recorder",
    "input_fields",
    "is_record_of",
    "provenance",
    "record",
    "replay",
    "require_same_run",
    "score_fields",
    "score_from",
]

_COMPARED = ("outcome", "value", "why", "answer", "detail", "total", "parts")
"""The fields that a replay must reproduce exactly."""

# of the rows of a stopped run
_READ = frozenset(("id", "task", "prompt", "outcome", "total", "parts", "why"))

_NO_SCORE = Score(None, {}, Verdict(Outcome.UNSCORED))


def provenance(env: Environment, name: str, identity: Identity | None = None) -> dict[str, object]:
    """The part of a record that all rows of a run have in common: what scored them, and the digest
    of its identity.

    Args:
        env: the environment that scores.
        name: what `rlvr.make` took to make it: its id, or where its class stands.
        identity: of the environment, if it is at hand.

    Raises:
        UsageError: an option's value cannot be written as JSON.
    """
    options = env.config
    if not takes_options(name):  # it is as its file makes it, but for its reward
        options = {option: value for option, value in options.items() if option == "reward"}
    try:
        # as it will be read back: tuples become lists
        config = json.loads(json.dumps(options, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{name}: its options {brief(options)} cannot be recorded as JSON: {error}"
        ) from error
    primary = env.reward.primary
    verifier = primary.verifier.id if primary is not None and primary.verifier is not None else None
    return {
        "env": name,
        "config": config,
        # None: the environment's own verify, whose version is the environment's
        "verifier": verifier,
        "reward": str(env.reward),
        "identity": (identity or identity_of(env)).digest,
    }


def record(scored: Scored, run: Mapping[str, object]) -> JsonDict:
    """A record of one score, which can be written as JSON.

    Args:
        scored: the item and its score.
        run: the `provenance` of the run.
    """
    item = scored.item
    return {
        "id": item.id,
        **score_fields(scored.score),
        **_item_fields(item),
        **run,
        "row": dict(item.row),
    }


def _item_fields(item: Item) -> dict[str, object]:
    task, completion = item.task, item.completion
    return {
        "completion": completion.text,
        "length_tokens": completion.length_tokens,
        "truncated": completion.truncated,
        **({} if completion.episode is None else {"episode": completion.episode.as_dict()}),
        "task": task.id,
        "prompt": task.prompt,
        "reference": task.reference,
        "meta": dict(task.meta),
    }


def score_fields(score: Score) -> dict[str, object]:
    """The fields of a record that hold the score.

    Args:
        score: the score to be recorded.
    """
    verdict = score.verdict
    return {
        "outcome": verdict.outcome.value,
        "total": score.total,
        "parts": dict(score.parts),
        "value": verdict.value,
        "why": verdict.why,
        "answer": verdict.answer,
        "detail": dict(verdict.detail),
    }


def score_from(row: Row) -> Score:
    """The score that `score_fields` wrote, read from a record or from a line of the HTTP service.

    Args:
        row: the record or line.

    Raises:
        KeyError, TypeError, ValueError: it holds no score.
    """
    verdict = Verdict(
        Outcome(row["outcome"]), row["value"], row["why"], row["answer"], row["detail"]
    )
    return Score(row["total"], row["parts"], verdict)


def input_fields(item: Item, run: Mapping[str, object]) -> dict[str, object]:
    """The fields of an item's record that are known before it is scored.

    Args:
        item: the item to be scored.
        run: the `provenance` of the run.
    """
    fields = record(Scored(item, _NO_SCORE), run)
    for name in _COMPARED:
        del fields[name]
    return fields


class Recorder:
    """Writes the records of a run as lines of JSON; what all of them have in common is
    turned into JSON only once.

    Args:
        run: the `provenance` of the run.
    """

    def __init__(self, run: Mapping[str, object]) -> None:
        self._run, self._common = run, _inner(run)

    def inputs(self, item: Item, place: int | None = None) -> tuple[bytes, bytes]:
        """What stands in the item's record before and after its score.

        Args:
            item: the item to be scored.
            place: of its row in the input, for a shard; None where the record has no such field.

        Raises:
            DataError: it holds something that cannot be written as JSON.
        """
        try:
            named = b'"id": %d' % item.id if type(item.id) is int else _inner({"id": item.id})
            row = _inner({"row": dict(item.row)}) if item.row else b'"row": {}'
            texts = named, _inner(_item_fields(item)), self._common, row
        except DataError:
            dump_row(input_fields(item, self._run))  # raises with the row's id
            raise
        begin = b"{" if place is None else b'{"place": %d, ' % place
        return b"%b%b, " % (begin, texts[0]), b", %b, %b, %b}" % texts[1:]

    def line(self, scored: Scored, inputs: tuple[bytes, bytes]) -> bytes:
        """The line that `dump_row` makes of the record.

        Args:
            scored: the item and its score.
            inputs: of the item.
        """
        before, after = inputs
        return b"%b%b%b\n" % (before, _inner(score_fields(scored.score)), after)

    def score_in(self, line: bytes, inputs: tuple[bytes, bytes]) -> Row | None:
        """The fields of the score in a line that was written for this item in such a run; None for
        any other line.

        Args:
            line: without its checksum.
            inputs: of the item.
        """
        before, after = inputs
        if not (line.startswith(before) and line.endswith(after)):
            return None
        fields: Row = json.loads(b"{%b}" % line[len(before) : -len(after)])
        return fields


def _inner(fields: Mapping[str, object]) -> bytes:
    """Fields as JSON, without the braces around them."""
    return dump_row(fields)[1:-2]


def is_record_of(row: Row, item: Item, run: Mapping[str, object]) -> bool:
    """Whether a record is that of an item, in a run with the same provenance; its score may be any.

    Identities are compared as a whole, see `IdentityFile`, and not by the digest in a record.

    Args:
        row: the record.
        item: the item.
        run: the `provenance` of the run.
    """
    return all(
        row.get(name) == value
        for name, value in json.loads(dump_row(input_fields(item, run))).items()
        if name != "identity"
    )


def require_same_run(
    row: Row, run: Mapping[str, object], partial: Path, *, strict: bool = True
) -> None:
    """Refuse to continue a run that was stopped with other settings.

    Args:
        row: a record of that run.
        run: what all records of this run have in common, such as its `provenance`.
        partial: the file that the record is in.
        strict: whether the digest of the identity must be the same; not where identities were
            compared as a whole.

    Raises:
        UsageError: the record is no record, or differs in one of these.
    """
    if missing := _READ.difference(row):
        raise UsageError(
            f"{partial}, row {row.get('id')!r} lacks {', '.join(sorted(missing))}; no run leaves "
            "this behind, so it cannot be resumed: pass --overwrite to begin anew"
        )
    for name, value in run.items():
        if (name != "identity" or strict) and row.get(name) != value:
            raise UsageError(
                f"{partial} was scored with {name} {row.get(name)!r}, this run has {value!r}; "
                "pass --overwrite to begin anew"
            )


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of a record that a replay did not reproduce.

    Attributes:
        id: of the record.
        field: name of the field.
        recorded: its value in the record.
        replayed: its value now.
    """

    id: str
    field: str
    recorded: object
    replayed: object

    def __str__(self) -> str:
        return f"{self.id}: {self.field} was {_cut(self.recorded)}, is now {_cut(self.replayed)}"


def replay(
    records: Iterable[Row] | str | Path,
    *,
    workers: int | None = None,
    allow: Collection[str] = (),
    accept: Collection[str] = (),
    identity: Identity | None = None,
    rerun: bool = False,
) -> Iterator[list[Difference]]:
    """Score every record again; one list per record, in order, empty where nothing differs.

    Episodes are graded again from the outputs in their records.  UNSCORED records are passed over:
    they hold a failure of rlvr, no verdict.

    Args:
        records: mappings, or the file that `rlvr score` wrote.
        workers: number of worker processes; None for one per core, 0 to score in this process.
        allow: places of code that the records may name as environment or in an option, such as
            `"path/to/file.py:Class"`; a file of records runs no other code.
        accept: parts of the identity in which a difference is expected, such as "code"; others are
            warned of.
        identity: that of the records; None for that of the file, if it has one.
        rerun: whether the calls of episodes are made again, in this process, and their replies
            compared.

    Warns:
        RuntimeWarning: the scores were decided by another identity, such as before an edit.

    Raises:
        DataError: a record lacks a field that is needed to score it again.
        UnknownEnvironment: its environment is not installed.
        UntrustedPlace: it names code that `allow` does not.
    """
    if isinstance(records, (str, Path)):
        identity = identity or read_identity(Path(records))
        records = read_whole(records)
    for run, batch in _by_run(row for row in records if row.get("outcome") != Outcome.UNSCORED):
        with only_places(allow):
            env = make(run["env"], **run["config"])
        _require_isolation(run["config"], allow)
        with Scorer(env, workers=workers) as scorer:
            run_now = provenance(env, run["env"], scorer.identity())
            items = [_grade_again(env, _item(row, number)) for number, row in enumerate(batch)]
            for row, item, scored in zip(batch, items, scorer.stream(items), strict=True):
                again, named = record(scored, run_now), str(row["id"])
                compared = ("reward", "verifier", *_COMPARED)
                differ = [name for name in compared if row[name] != again[name]]
                field_differences = [
                    Difference(named, name, row.get(name), again[name]) for name in differ
                ]
                episode = item.completion.episode
                if rerun and episode is not None:
                    replies = play_again(env, item.task, episode)
                    field_differences += [Difference(named, *difference) for difference in replies]
                yield field_differences
            digests = dict.fromkeys(_digest_of(row) for row in batch)  # of two runs in one file
            for digest in digests:
                if problem := _another(digest, identity, scorer.identity(), accept):
                    warnings.warn(problem, RuntimeWarning, stacklevel=2)


def _digest_of(row: Row) -> str | None:
    """The digest in a record; of a stranger's, whatever stands there as a text."""
    recorded = row.get("identity")
    return recorded if recorded is None or isinstance(recorded, str) else brief(recorded)


def _another(
    recorded: str | None, known: Identity | None, now: Identity, accept: Collection[str]
) -> str:
    """In what the identity of records differs from that of their replay; "" if it does not.

    Args:
        recorded: the digest in a record; None for one of before there were identities.
        known: the whole of an identity that stands beside the records; None if none does.
        now: that of the replay.
        accept: parts in which they may differ.
    """
    # Also where the file beside them is of other records, as of two runs in one file.
    if known is None or (known.digest and recorded not in (known.digest, None)):
        if recorded in (now.digest, None) or "code" in accept:
            return ""
        return (
            f"the records have the identity {recorded}, and here it is {now.digest}; what differs "
            "is not known, as no file beside them says it"
        )
    try:
        require_same(now, known.without("data"), "this replay", "what is replayed", accept)
    except UsageError as error:
        return str(error)
    return ""


def _require_isolation(config: Mapping[str, object], allow: Collection[str]) -> None:
    """Refuse a record that gives up guarantees of the sandbox for the programs that it holds.

    Raises:
        UntrustedPlace: it does, and "allow_missing" is not allowed.
    """
    settings = config.get("settings")
    mappings = [config, settings] if isinstance(settings, Mapping) else [config]
    missing = [mapping["allow_missing"] for mapping in mappings if mapping.get("allow_missing")]
    if missing and "allow_missing" not in allow:
        raise UntrustedPlace(
            f"the records run programs without {missing[0]!r} of the sandbox; if you know where "
            "they are from, pass --allow allow_missing"
        )


def _cut(value: object) -> str:
    text = repr(value)  # a detail may hold a traceback
    return text if len(text) <= 500 else f"{text[:500]}…"


def _by_run(records: Iterable[Row]) -> Iterator[tuple[JsonDict, list[Row]]]:
    """Batches of consecutive records with the same environment and configuration; nearly always
    one, the whole file."""
    key, run = "", dict[str, Any]()
    batch: list[Row] = []
    for row in records:
        missing = {
            "id",
            "env",
            "config",
            "completion",
            "task",
            "reference",
            "reward",
            "verifier",
            *_COMPARED,
        } - set(row)
        if missing:
            raise DataError(
                f"record {row.get('id')!r} is not one that `rlvr score` wrote: it lacks "
                f"{', '.join(sorted(missing))}"
            )
        if not (isinstance(row["env"], str) and isinstance(row["config"], dict)):
            raise DataError(
                f"record {row['id']!r}: env {row['env']!r} or config {row['config']!r} is not what "
                f"`rlvr score` wrote"
            )
        this = json.dumps([row["env"], row["config"]], sort_keys=True)
        if batch and this != key:
            yield run, batch
            batch = []
        key, run = this, {"env": row["env"], "config": row["config"]}
        batch.append(row)
    if batch:
        yield run, batch


def _grade_again(env: Environment, item: Item) -> Item:
    """An item whose episode is graded anew."""
    completion = grade_again(env, item.task, item.completion)
    return item if completion is item.completion else replace(item, completion=completion)


def _item(row: Row, number: int) -> Item:
    """The item of a record, with a number as its id: records of two runs in one file may have the
    same ids."""
    try:
        task = Task(row["task"], row.get("prompt") or "", row["reference"], row.get("meta") or {})
        episode = None if row.get("episode") is None else EpisodeRecord.from_dict(row["episode"])
        completion = Completion(
            row["completion"], row.get("length_tokens"), row.get("truncated") or False, episode
        )
        return Item(str(number), task, completion)
    except (TypeError, ValueError) as error:
        raise DataError(f"record {row['id']!r}: {error}") from error
