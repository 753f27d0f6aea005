"""`rlvr serve` on other machines as a scorer's engine: completions are looked at there,
scores are combined here."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress

from rlvr.errors import DataError, ServiceFailed, UsageError
from rlvr.scoring.engines.client import RequestTooLarge, ServedIdentity, ServiceConnections
from rlvr.scoring.engines.patience import PATIENCE_S
from rlvr.scoring.identity import Identity, identity_differences, identity_of
from rlvr.scoring.ordering import Seen, UnreadReference
from rlvr.scoring.wire import RemoteEngine, decoded_observation

__all__ = ["Services"]

# without a byte: a service sends some every three seconds, however long its rows take
_TIMEOUT_S = 20.0
_MOST_BYTES = 8 << 20  # of a request's rows; a service takes 32 MiB
_MOST_AT_ONCE = 32  # requests for one service


class Services(RemoteEngine):
    """Services that were started with `rlvr serve`, on any machines.

        machines = Services(["http://10.0.0.7:8000", "http://10.0.0.8:8000"])
        with rlvr.Scorer(env, engine=machines) as scorer: ...

    Each must serve the scorer's environment, with the same options (but for `data` and `split`:
    tasks are sent with their completions), code and inputs: their identities are compared, at the
    start and whenever one sees more. Requests go to the least loaded service; one that fails is
    left out, tried again later, and its requests go to the others.

    Args:
        url: of a service, or of several.
        api_key: see `rlvr.client.Client`.
        patience_s: seconds for which a request is sent again while no service answers it; 0: it is
            sent once.
        timeout_s: seconds without a byte after which a service counts as lost.

    Raises:
        UsageError: a URL is malformed or there twice, no header can carry the key, or a number is
            out of range.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        api_key: str | None = None,
        *,
        patience_s: float = PATIENCE_S,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._connections = ServiceConnections(
            url, api_key, timeout_s=timeout_s, patience_s=patience_s
        )
        count = len(self._connections.addresses)
        # until the number of workers is known
        self.threads, self.chunks_at_once = _MOST_AT_ONCE * count, 4 * count
        self._digests: list[str] = []  # of all services, by which they know their environment
        self._served: ServedIdentity | None = None
        self._lock = threading.Lock()

    def warm(self) -> None:
        with self._lock:
            if self._served is None:
                self._served = self._check_services()

    def identity(self) -> Identity:
        self.warm()
        assert self._served is not None, "warm makes it"
        for place in range(len(self._connections.addresses)):
            with suppress(ServiceFailed):  # one that is gone has said so with its rows
                self._served.ask(place)
        assert self._served.identity is not None, "it is ours"
        return self._served.identity

    def _check_services(self) -> ServedIdentity:
        """By what the services score, which is by what we do.

        Raises:
            UsageError: one has another environment, code or version.
            ServiceFailed: one cannot be reached.
        """
        served = ServedIdentity(self._connections, self.accept, identity_of(self.env))
        counts = [
            self._workers_at(place, served) for place in range(len(self._connections.addresses))
        ]
        self.workers = sum(counts)
        self.chunks_at_once = sum(min(count + 1, _MOST_AT_ONCE) for count in counts)
        return served

    def _workers_at(self, place: int, common: ServedIdentity) -> int:
        """The number of workers that a service has for the environment with this identity."""
        assert common.identity is not None, "it is ours"
        url = self._connections.addresses[place].url
        try:
            served = self._connections.get(place, "envs")
            counts = {name: int(what["workers"]) for name, what in served.items()}
            served_identities = {
                name: Identity.from_dict(what["identity"]) for name, what in served.items()
            }
        except ServiceFailed as error:
            way_out = "start it (rlvr serve … --host 0.0.0.0), mend the address or leave it out"
            raise ServiceFailed(f"{error}; {way_out}") from None
        except UsageError as error:
            raise UsageError(f"{url}: {error}") from None
        except (AttributeError, KeyError, TypeError, ValueError):
            raise UsageError(
                f"{url} does not say what it serves; is it rlvr serve, of the version here?"
            ) from None
        of_id = [
            name for name in served if served_identities[name].settings.get("env") == self.env.id
        ]
        if not of_id:
            names = ", ".join(served) or "nothing"
            raise UsageError(
                f"{url} serves {names} and not {self.env.id}; start it with `rlvr serve "
                f"{self.env.id}`"
            )
        # Of several with one id, that with the same options.
        own_identity = common.identity
        name = min(
            of_id,
            key=lambda name: len(list(identity_differences(own_identity, served_identities[name]))),
        )
        common.names[place] = name
        own_identity.add(served_identities[name], url, self.accept, here="this machine")
        self._digests.append(served_identities[name].digest)
        return counts[name]

    def _ask(self, rows: list[bytes]) -> list[Seen]:
        """What is seen of the rows, in one request, or in halves where a service finds that too
        much."""
        try:
            # Halved here, without a request that would be refused.
            if len(rows) > 1 and sum(map(len, rows)) > _MOST_BYTES:
                raise RequestTooLarge("")
            request = {"identities": sorted({*self._digests}), "request_id": uuid.uuid4().hex}
            head = json.dumps(request)[:-1].encode()
            body = b'%b, "rows": [%b]}' % (head, b", ".join(rows))
            lines = self._connections.lines("observe", body, len(rows), self._served)
            return [*map(_read, lines)]
        except RequestTooLarge as error:
            if len(rows) == 1:
                return [DataError(f"a service refuses it: {error}")]
            half = len(rows) // 2
            return [*self._ask(rows[:half]), *self._ask(rows[half:])]

    def close(self) -> None:
        self._connections.close()


def _read(line: bytes) -> Seen:
    try:
        answer = json.loads(line)
        return (
            UnreadReference(answer["error"])
            # The one error that a row can have here.
            if "error" in answer
            else decoded_observation(answer["seen"])
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ServiceFailed(
            f"the response is not that of rlvr serve: {error!r} in {line[:200]!r}"
        ) from error
