"""A reward model behind HTTP as a part of a reward: `rlvr serve --reward-model
RUN/model` has it, and torch.

env = env.with_reward(env.reward + 0.2 * ServedReward("http://10.0.0.7:8000"))
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from rlvr.errors import ServiceFailed, UsageError
from rlvr.rewards import Bounds, GroupPart
from rlvr.scoring.engines.client import PatienceSpent, RequestTooLarge, ServiceConnections
from rlvr.scoring.engines.patience import PATIENCE_S, require_patience
from rlvr.types import Completion, Task, Verdict
from rlvr.validate import require_number

__all__ = ["ServedReward", "ServedSteps"]

_MOST_ROWS = 256  # of a request, far below what a service takes
# Of a request's rows; a row that is larger goes alone.
_MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class ServedReward(GroupPart):
    """What a reward model on another machine says of completions, in [0, 1]: a part of a
    reward, never a verdict.

    The completions of a task are sent together, by the process that puts scores together.  This one
    needs no torch. A service that fails, answers for other rows, gives a number outside of [0, 1],
    or has another model by now leaves the group UNSCORED, after `patience_s`.  What fails so long
    is then asked once per group, until it answers again.

    Args:
        url: of `rlvr serve --reward-model`, such as http://10.0.0.7:8000, or of several
            with commas between them.
        name: of the part in `Score.parts`.
        timeout_s: seconds without an answer after which a request is sent again.
        patience_s: seconds for which it is sent again; 0: it is sent once.
        key_env: environment variable that holds the services' key, if they want one.

    Attributes:
        version: of the model, which all services must have; a run notices by it that the model was
            trained again.

    Raises:
        UsageError: an address is malformed or has a key in it, a service has no reward model or
            wants another key, two have different ones, or a number is out of range.
        ServiceFailed: a service cannot be reached.
    """

    url: str
    name: str = "learned"
    timeout_s: float = 120.0
    patience_s: float = PATIENCE_S
    key_env: str = "RLVR_API_KEY"
    version: str = field(init=False)
    bounds: ClassVar[Bounds] = (0.0, 1.0)

    def __post_init__(self) -> None:
        require_number("timeout_s", self.timeout_s, above=0)
        require_patience(self.patience_s)
        if not isinstance(self.url, str) or "@" in self.url:  # the URL is recorded and printed
            raise UsageError(
                f"the url is no text, or has a key in it; set {self.key_env} to the key instead"
            )
        object.__setattr__(self, "version", self._service().version())

    def __str__(self) -> str:
        """The name and the version: the same model at another address scores the same."""
        return f"{self.name}(version={self.version!r})"

    def values(
        self,
        completions: Sequence[Completion],
        verdicts: Sequence[Verdict],
        task: Task | None = None,
    ) -> list[float]:
        assert task is not None
        return self._service().scores(
            task, [completion.text for completion in completions], self.version
        )

    def _service(self) -> _Service:
        key = os.environ.get(self.key_env, "").strip()
        # A lock of ours: `cache` may call twice at once.
        with _OPENING:
            return _service(
                self.url,
                "completions",
                key,
                self.timeout_s,
                self.patience_s,
                # With the process's number: connections do not survive a fork.
                os.getpid(),
            )


class ServedSteps:
    """What a process reward model on another machine says of the steps of
    completions, each in [0, 1].

    Args:
        url: of `rlvr serve --reward-model`, see `ServedReward`; so are the errors.
        timeout_s, patience_s: see `ServedReward`.
        key_env: environment variable that holds the services' key, if they want one.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 120.0,
        patience_s: float = PATIENCE_S,
        key_env: str = "RLVR_API_KEY",
    ) -> None:
        key = os.environ.get(key_env, "").strip()
        self._service = _Service(url, "steps", key, timeout_s, patience_s)
        self._version = self._service.version()

    def __call__(self, task: Task, steps: Sequence[str]) -> list[float]:
        """A number for each step.

        Args:
            task: what the completion answers.
            steps: its parts.

        Raises:
            ServiceFailed: no service answers, or one not as it should.
        """
        row = json.dumps({"id": "0", "prompt": task.prompt, "steps": list(steps)}).encode()
        return self._service.of_rows([row], self._version)[0]


class _Service:
    """Connections to the services of one address; safe from any thread."""

    def __init__(self, url: str, reads: str, key: str, timeout_s: float, patience_s: float) -> None:
        self._reads = reads
        addresses = [part.strip() for part in url.split(",") if part.strip()]
        self._patience_s = patience_s
        self._connections = ServiceConnections(
            addresses, key, timeout_s=timeout_s, patience_s=patience_s
        )

    def version(self) -> str:
        """The version of the model that all services have."""
        versions = {
            address.url: self._version_at(place)
            for place, address in enumerate(self._connections.addresses)
        }
        if len(set(versions.values())) > 1:
            versions_text = ", ".join(f"{url} has {version}" for url, version in versions.items())
            raise UsageError(
                f"the services have different reward models: {versions_text}; start all with the "
                f"same one"
            )
        return next(iter(versions.values()))

    def _version_at(self, place: int) -> str:
        url = self._connections.addresses[place].url
        try:
            model_info = self._connections.get(place, "reward-model")
            version, reads = model_info["version"], model_info.get("reads", "completions")
        except ServiceFailed as error:
            raise ServiceFailed(
                f"{error}; start it with `rlvr serve --reward-model RUN/model`, or mend the address"
            ) from None
        except UsageError as error:
            raise UsageError(f"{url}: {error}") from None
        except (KeyError, TypeError, AttributeError):
            version, reads = None, ""
        # It stands in records and error messages, so it must be short and plain.
        if not isinstance(version, str) or not 0 < len(version) <= 64 or not version.isalnum():
            raise UsageError(
                f"{url} does not say which reward model it has; is it `rlvr serve --reward-model`?"
            )
        if reads != self._reads:
            raise UsageError(
                f"the reward model at {url} judges {str(reads)[:60]}, and {self._reads} are to be "
                "judged; serve one that was trained for these"
            )
        return version

    def scores(self, task: Task, texts: Sequence[str], version: str) -> list[float]:
        """What the model says of the completions of a task.

        Args:
            task: what they answer.
            texts: of the completions.
            version: of the model.
        """
        rows = [
            json.dumps({"id": str(place), "prompt": task.prompt, "completion": text}).encode()
            for place, text in enumerate(texts)
        ]
        return [score for [score] in self.of_rows(rows, version)]

    def of_rows(self, rows: Sequence[bytes], version: str) -> list[list[float]]:
        """The numbers of each row: one of a completion, or one of each step.

        Args:
            rows: as the service takes them; their ids are their places.
            version: of the model.
        """
        numbers: list[list[float]] = []
        while len(numbers) < len(rows):
            self._ask(rows, len(numbers), version, numbers)
        return numbers

    def _ask(
        self,
        rows: Sequence[bytes],
        begin: int,
        version: str,
        found: list[list[float]],
        most: int = _MOST_ROWS,
    ) -> None:
        """Ask for the scores of the next rows."""
        batch, size = list[bytes](), 0
        for row in rows[begin : begin + most]:
            size += len(row)
            if batch and size > _MOST_BYTES:
                break
            batch.append(row)
        body = b'{"version": %b, "rows": [%b]}' % (json.dumps(version).encode(), b", ".join(batch))
        try:
            lines = list(self._connections.lines("rewards", body, len(batch)))
        except RequestTooLarge:
            if len(batch) == 1:
                raise
            self._ask(rows, begin, version, found, most=len(batch) // 2)
            return
        except PatienceSpent:
            # A service that is gone has cost its patience once; others fail at once until it is
            # back.
            self._connections.patience_s = 0.0  # the next group does not wait as long
            raise
        self._connections.patience_s = self._patience_s
        name = "rewards" if self._reads == "steps" else "reward"
        found += [_read(line, str(begin + place), name) for place, line in enumerate(lines)]


_OPENING = threading.Lock()


@cache
def _service(
    url: str, reads: str, key: str, timeout_s: float, patience_s: float, process: int
) -> _Service:
    """One for all copies of a part in a process."""
    return _Service(url, reads, key, timeout_s, patience_s)


def _read(line: bytes, due: str, name: str) -> list[float]:
    """The score in a line, or those of steps, if it is that of the row that is due.

    Raises:
        ServiceFailed: it is not, or no number in [0, 1].
    """
    try:
        row: Any = json.loads(line)
        if row["id"] != due:
            raise ServiceFailed(
                f"the response has the row {str(row['id'])[:60]!r} where {due!r} was due"
            )
        if "error" in row:
            raise ServiceFailed(f"the reward model cannot read the row: {str(row['error'])[:200]}")
        values = [row[name]] if name == "reward" else list(row[name])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ServiceFailed(
            f"the response is not that of rlvr serve: {error!r} in {line[:200]!r}"
        ) from error
    for value in values:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= 1:  # NaN fails it too
            raise ServiceFailed(
                f"the reward model gave {str(value)[:60]!r}, not a number in [0, 1]"
            )
    return list(map(float, values))
