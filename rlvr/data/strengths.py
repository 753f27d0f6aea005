"""How strong each task is, read from a report of `rlvr strength`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlvr.data.files import open_input
from rlvr.data.overlap import digest_of
from rlvr.errors import DataError
from rlvr.types import JsonObject

__all__ = ["Strengths", "TaskStrength", "digest_of_reference", "read_strengths"]


@dataclass(frozen=True, slots=True)
class TaskStrength:
    """What was measured of one task.

    Attributes:
        state: weak, strong or untested.
        value: the share of its wrong work that it refuses; None if it was not tested.
        low, high: Wilson's 95 % interval; 0 and 1 if it was not tested.
        digest: of the task's reference.
    """

    state: str
    value: float | None
    low: float
    high: float
    digest: str


class Strengths:
    """The tasks of a report, by id.

    Args:
        tasks: by id.
        source: the report, for messages.
    """

    def __init__(self, tasks: Mapping[str, TaskStrength], source: str) -> None:
        self.tasks, self.source = tasks, source

    def of(self, task: str, reference: object) -> TaskStrength | None:
        """A task's strength; None if the report does not have it.

        Args:
            task: its id.
            reference: its reference.

        Raises:
            DataError: the report has another reference for it.
        """
        strength = self.tasks.get(task)
        if strength is not None and strength.digest != digest_of_reference(reference):
            raise DataError(
                f"{self.source} is of other data: its task {task!r} has another reference; run "
                "rlvr strength on these data"
            )
        return strength


def digest_of_reference(reference: object) -> str:
    """Tells references apart.

    Args:
        reference: of a task, as it is recorded.
    """
    return digest_of([json.dumps(reference, sort_keys=True, default=str)]).hex()


def read_strengths(path: Path) -> Strengths:
    """The tasks of a report.

    Args:
        path: what `rlvr strength -o` wrote.

    Raises:
        DataError: it cannot be read, or is something else.
    """
    try:
        with open_input(path) as file:
            tree = json.load(file)
        tasks = {record["task"]: _task_strength(record) for record in tree["tasks"]}
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, RecursionError):
        raise DataError(f"{path} is no report of rlvr strength; give what it wrote to -o") from None
    return Strengths(tasks, str(path))


def _task_strength(record: JsonObject) -> TaskStrength:
    low, high = record["interval"] or (0.0, 1.0)
    return TaskStrength(record["state"], record["strength"], low, high, record["reference_digest"])
