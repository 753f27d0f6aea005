"""Rollouts of an evaluation on disk: for reading, for `rlvr replay`, and to
continue a run that was stopped."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rlvr.collect.evaluation import TaskResult, result_of_scores
from rlvr.data.lines import Row
from rlvr.data.rows import Journal
from rlvr.errors import SamplingFailed
from rlvr.samplers.protocol import EndpointReply, replies
from rlvr.scoring.identity import Identity, IdentityFile
from rlvr.scoring.items import Item
from rlvr.scoring.ordering import Scored
from rlvr.scoring.records import record, require_same_run, score_from
from rlvr.types import Group, JsonDict, JsonObject, Rollout
from rlvr.workers.closing import Closing

__all__ = ["RolloutFile", "Usage", "find_unfinished", "is_lost", "results_from", "rollout_records"]


def rollout_records(index: int, group: Group, run: Mapping[str, object]) -> list[dict[str, object]]:
    """The records of a group, which can be written as JSON, as `rlvr score` writes them.

    Under "row" stand the task's index, the rollout's number in its group, and what an endpoint said
    of each turn.

    Args:
        index: of the task.
        group: its scored rollouts.
        run: what all records have in common, see `rlvr.scoring.records.provenance`.
    """
    records = []
    for number, rollout in enumerate(group.rollouts):
        assert rollout.score is not None
        fields = {
            "index": index,
            "rollout": number,
            "replies": [_about(rollout, reply) for reply in replies(rollout)],
        }
        item = Item(f"{group.task.id}#{number}", group.task, rollout.completion, fields)
        # A task may hold what JSON does not, and its rollouts are kept all the same.
        text = json.dumps(record(Scored(item, rollout.score), run), default=str, skipkeys=True)
        # JSON has no NaN: null instead.
        records.append(json.loads(text, parse_constant=lambda name: None))
    return records


def _about(rollout: Rollout, reply: EndpointReply) -> JsonDict:
    fields = asdict(reply)
    if not rollout.turns:
        del fields["text"]  # it is the completion
    return fields


def is_lost(row: Row) -> bool:
    """Whether a record is of a rollout that could not be had from the model, and may be asked for
    again.

    Args:
        row: the record.
    """
    return row["outcome"] == "unscored" and str(row["why"]).startswith(SamplingFailed.reason)


def find_unfinished(rows: Iterable[Row], n: int) -> Iterator[bool]:
    """For each record of a stopped run, whether its task has to be sampled again: rollouts are lost
    or missing.

    Args:
        rows: the records, those of a task one after the other.
        n: rollouts per task.
    """
    for _, task_rows in itertools.groupby(rows, key=lambda row: row["row"]["index"]):
        group = list(task_rows)
        # Whole tasks: a group is sampled together or not at all.
        yield from [len(group) != n or any(map(is_lost, group))] * len(group)


def results_from(rows: Iterable[Row]) -> list[TaskResult]:
    """The results of the tasks whose rollouts were recorded.

    Args:
        rows: the records, those of a task one after the other.
    """
    return [
        _result(index, list(group))
        for index, group in itertools.groupby(rows, key=lambda row: int(row["row"]["index"]))
    ]


def _result(index: int, group: Sequence[Row]) -> TaskResult:
    return result_of_scores(
        index,
        group[0]["task"],
        [score_from(row) for row in group],
        [row["truncated"] for row in group],
        [row["length_tokens"] or 0 for row in group],
    )


@dataclass
class Usage:
    """What an endpoint was asked, by its own count.

    Attributes:
        replies: how often it answered.
        prompt_tokens, completion_tokens: tokens of all of them.
        uncounted: replies that came without a count.
        lost: completions that could not be had.
        last_lost: why, of the last one.
    """

    replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    lost: int = 0
    last_lost: str = ""

    def add(self, row: Row) -> None:
        """Count a rollout.

        Args:
            row: its record.
        """
        if is_lost(row):
            self.lost, self.last_lost = self.lost + 1, row["why"]
        for reply in row["row"]["replies"]:
            counts = reply["prompt_tokens"], reply["completion_tokens"]
            self.replies += 1
            self.uncounted += None in counts
            self.prompt_tokens += counts[0] or 0
            self.completion_tokens += counts[1] or 0

    def cost(self, price: tuple[float, float] | None) -> float | None:
        """Dollars; None if the price is not known.

        Args:
            price: dollars for a million tokens of prompts, and of completions.
        """
        return price and (self.prompt_tokens * price[0] + self.completion_tokens * price[1]) / 1e6

    def line(self, price: tuple[float, float] | None) -> str:
        """One line that says all this.

        Args:
            price: see `cost`.
        """
        cost = self.cost(price)
        return (
            f"{self.replies:,} replies, {self.prompt_tokens:,} tokens of prompts and "
            f"{self.completion_tokens:,} of "
            f"completions{'' if cost is None else f', {cost:,.4f} dollars'}"
            f"{f'; {self.uncounted:,} replies came without counts' if self.uncounted else ''}"
        )

    def as_dict(self, price: tuple[float, float] | None) -> JsonDict:
        """The same for JSON.

        Args:
            price: see `cost`.
        """
        return asdict(self) | {"cost": self.cost(price)}


class RolloutFile(Closing):
    """A file with the rollouts of an evaluation.  Close it, or use it as a context manager.

    Args:
        path: the file, .jsonl or .parquet; it is there when `finish` was called.
        run: what all records have in common: provenance, and the settings on which completions
            depend, with "n".
        identity: of the environment, compared with what a stopped run left beside the file.
        resume: continue a run that was stopped; also one that ended, in which completions were
            lost.
        overwrite: replace what is there.
        accept: parts of the identity in which the stopped run may differ.

    Attributes:
        identity_file: of the rollouts.
        results: of the tasks whose rollouts are all there.
        usage: of all rollouts in the file.
        count: number of rollouts.

    Raises:
        UsageError: the file cannot be written, or is of a run with other settings or identity.
    """

    def __init__(
        self,
        path: Path,
        run: JsonObject,
        identity: Identity,
        *,
        resume: bool = False,
        overwrite: bool = False,
        accept: Collection[str] = (),
    ) -> None:
        self._run = json.loads(json.dumps(run))  # as it will be read back
        partial = Path(f"{path}.partial")
        # A finished file is continued as an unfinished one: lost completions are asked for again.
        if resume and path.suffix == ".jsonl" and path.is_file() and not partial.exists():
            path.rename(partial)
        self._journal = Journal(path, resume=resume, overwrite=overwrite, checksums=True)
        try:
            first = next(self._journal.rows(), None)
            recorded = None if first is None else str(first.get("identity"))
            self.identity_file = IdentityFile.beside(path, identity, recorded, accept=accept)
            self._judged_by = self.identity_file.identity
            for row in self._journal.rows():
                require_same_run(row, self._run, partial, strict=False)
            again = list(find_unfinished(self._journal.rows(), run["n"]))
            if any(again):
                self._journal.keep(not is_unfinished for is_unfinished in again)
            self.usage = Usage()
            for row in self._journal.rows():
                self.usage.add(row)
            self.results = results_from(self._journal.rows())
            self.count = self._journal.done
        except BaseException:
            self.close()
            raise

    def judged_by(self, identity: Identity) -> None:
        """Take over by what rollouts are scored.

        Args:
            identity: of their scorer; it grows.
        """
        self._judged_by = identity

    def write(self, index: int, group: Group) -> None:
        """Keep the rollouts of a task, unless all of them are lost.

        Args:
            index: of the task.
            group: its scored rollouts.
        """
        rows = rollout_records(index, group, self._run)
        for row in rows:
            self.usage.add(row)
        # A task of which nothing could be had is left for the next attempt.
        if not all(map(is_lost, rows)):
            self.identity_file.follow(self._judged_by)
            for row in rows:
                self._journal.write(row)
            self.count += len(rows)

    def finish(self) -> None:
        """Give the file its name.

        Raises:
            UsageError: another program changed it.
            DataError: Parquet cannot hold the rows.
        """
        self.identity_file.follow(self._judged_by)
        self._journal.finish(self.identity_file.notes())
        if self._journal.path.suffix == ".parquet":
            self.identity_file.remove()  # it stands in the metadata

    def close(self) -> None:
        """Close the file; what was written stays in `PATH.partial`, unless `finish` was called."""
        self._journal.__exit__()
