"""Samples completions from vLLM servers, which get the policy's weights after every step.

    with ServerSampler(["http://127.0.0.1:8000"], policy.tokenization, model_sizes(policy.model.config)) as sampler:
        sampler.sync(policy.weights(), version=0)

A request goes to the server with the fewest.  Where a server dies its requests go to the others,
with their seeds: no rollout is lost, and none is changed.  A server that comes back is given the
current weights before any work.

The servers are started with `python -m rlvr.samplers.vllm_server`, see docs/using/vllm.md.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Coroutine, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import torch
from torch import Tensor

from rlvr.errors import RlvrError, SamplingFailed, ServiceFailed, UsageError, brief
from rlvr.samplers.protocol import Begun, Probe, Request, Sample, Sampling, Tokenized
from rlvr.samplers.tokenization import Tokenization
from rlvr.samplers.vllm_lora import AdapterFiles, AdapterSettings
from rlvr.samplers.vllm_shared import (
    EXTENSION,
    TESTED,
    VLLMClient,
    begun_with,
    differing_sizes,
    is_tested,
    prompt_of,
    require_names,
    sample_of,
    sampling_parameters,
    version_of,
)
from rlvr.validate import require_number, require_whole
from rlvr.workers.loops import loop_thread

__all__ = ["ServerSampler"]

_POLL_S: Final = 0.05
_CONNECT_S: Final = 10.0
_HEALTH_S: Final = 1.0  # between two looks at a server
_HEALTH_TIMEOUT_S: Final = 10.0  # a server that is busy answers late
_MISSED: Final = 3  # looks without an answer after which a server counts as dead
_ATTEMPTS: Final = 3  # of a request whose server says that it failed
_LOAD_S: Final = 600.0  # that loading weights may take
_TEXT: Final = "The answer is 12 + 34 = 46, \\boxed{46}.\n"  # by which tokenizers are compared
_START: Final = "start it by `python -m rlvr.samplers.vllm_server MODEL`"
_GONE: Final = (httpx.TransportError, httpx.RemoteProtocolError, OSError)


@dataclass(eq=False)
class _Server:
    """One server.

    Attributes:
        url: where it is.
        ready: it has the current weights, and takes work.
        why: the last reason for which it was not ready.
        about: what its engine said of itself.
        version: of its weights; -1 for weights of its own.
        taken: names of the weights that it took at the last sync.
        missed: looks in a row without an answer.
        running: its requests, with their tasks.
    """

    url: str
    ready: bool = False
    why: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    version: int = -1
    taken: Sequence[str] = ()
    missed: int = 0
    adapter: str | None = None
    running: dict[Hashable, tuple[Request, asyncio.Task[None]]] = field(default_factory=dict)


class _TakenBackError(Exception):
    """A completion was ended before its time.

    Args:
        begun: its tokens.
    """

    def __init__(self, begun: Begun) -> None:
        super().__init__()
        self.begun = begun


class ServerSampler(VLLMClient):
    """A `Sampler` over vLLM servers.  Close it, or use it as a context manager.

    The servers begin with weights of their own: call `sync` first, as the trainer does.

    Args:
        urls: of the servers, such as "http://127.0.0.1:8000".
        tokenization: prompts to tokens, and the tokens that end a completion.
        sizes: of the policy's model, see `model_sizes`; the servers have to have the same.
        key_env: name of the environment variable with the servers' key; None for servers without
            keys.
        folder: weights are written there, and the servers read them; None for this machine's shared
            memory, for servers on it.
        in_flight: most requests that a server has at a time.
        adapter: of a policy with LoRA; None for one without.
        timeout_s: wall seconds that a completion may take.
        patience_s: wall seconds without any server after which sampling ends with an error.

    Attributes:
        version: of the weights; -1 before the first `sync`.
        positions: most tokens of prompt and completion together.
        moved: requests that were given to another server, as theirs had died.

    Raises:
        UsageError: a server cannot be used; the message says which flag mends it.
        ServiceFailed: a server cannot be reached.
    """

    def __init__(
        self,
        urls: Sequence[str],
        tokenization: Tokenization,
        sizes: Mapping[str, Any],
        *,
        key_env: str | None = None,
        folder: Path | None = None,
        in_flight: int = 256,
        adapter: AdapterSettings | None = None,
        timeout_s: float = 3600.0,
        patience_s: float = 600.0,
    ) -> None:
        super().__init__(tokenization, adapter, timeout_s)
        self.in_flight = require_whole("in_flight", in_flight, 1)
        self.patience_s = require_number("patience_s", patience_s, 0)
        self._servers = [_Server(url.rstrip("/")) for url in urls]
        if not self._servers or len({server.url for server in self._servers}) < len(self._servers):
            raise UsageError(
                f"the servers are {brief(list(urls))}; give at least one, and each once"
            )
        self.moved, self._sizes = 0, sizes
        self._key_env, self._key = key_env, _key(key_env)
        self._queue: deque[Request] = deque()
        self._asked: dict[Hashable, Request] = {}
        self._failures: dict[Hashable, int] = {}  # how often a server has failed on each
        self._done: SimpleQueue[tuple[Request, Sample | SamplingFailed]] = SimpleQueue()
        self._taking: set[Hashable] = set()  # requests that are taken back just now
        self._taken_back: dict[Hashable, Begun] = {}
        self._fatal: Exception | None = None
        self._none_since: float | None = None
        self._weights: Path | None = None  # the current ones
        self._swapped: tuple[str, Path] | None = None  # name and folder of the current adapter
        self._syncing = asyncio.Lock()
        self._loop = loop_thread("servers")
        self._folder = _folder(folder, self._servers)
        self._remover = _Remover(self._folder)
        self._files = (
            AdapterFiles(self._folder, adapter) if adapter is not None and adapter.swap else None
        )
        self._client: httpx.AsyncClient | None = None
        try:
            self._loop.call(self._open)
        except BaseException:
            self.close()
            raise
        self.positions = min(server.about["positions"] for server in self._servers)

    # ------------------------------------------------------------------------------------------ the protocol

    def _send(self, request: Request, parameters: Mapping[str, Any]) -> None:
        self._asked[request.id] = request
        self._failures.pop(request.id, None)
        self._loop.loop.call_soon_threadsafe(self._enqueue, request)

    def poll(self) -> list[tuple[Hashable, Sample | SamplingFailed]]:
        """See `Sampler.poll`.  Waits 50 ms at most.

        Raises:
            ServiceFailed: there has been no server for `patience_s`.
            UsageError: a server refuses the key.
        """
        results: list[tuple[Hashable, Sample | SamplingFailed]] = []
        with suppress(Empty):
            request, sample = self._done.get(timeout=_POLL_S)
            while True:
                if self._asked.get(request.id) is request:  # else it was dropped
                    del self._asked[request.id]
                    results.append((request.id, sample))
                request, sample = self._done.get_nowait()
        if self._fatal is not None:
            raise self._fatal
        since = self._none_since
        if (
            not results
            and self._asked
            and since is not None
            and time.monotonic() - since > self.patience_s
        ):
            raise ServiceFailed(
                f"no server has been there for {self.patience_s:g} s: {self._reasons()}"
            )
        return results

    def abort(self, ids: Iterable[Hashable]) -> None:
        """See `Sampler.abort`.

        Args:
            ids: of requests.
        """
        dropped = {name for name in ids if self._asked.pop(name, None) is not None}
        if dropped:
            self._loop.loop.call_soon_threadsafe(self._drop, dropped)

    def take_back(self, ids: Iterable[Hashable]) -> dict[Hashable, Begun]:
        """Drop requests and return the tokens that they have, see `Sampler`.

        Args:
            ids: of requests.
        """
        own_ids = {name for name in ids if name in self._asked}
        begun_by_id = self._loop.call(self._take_back, own_ids) if own_ids else {}
        for name in own_ids:
            self._asked.pop(name, None)
        return begun_by_id

    def sync(self, weights: Iterable[Mapping[str, Tensor]], version: int) -> None:
        """Give all servers new weights.  What is under way waits meanwhile and goes on with them.

        A server that dies meanwhile is left out, and given them when it comes back.

        Args:
            weights: see `Sampler.sync`; those of an adapter included.
            version: of the new weights.

        Raises:
            UsageError: they are not all of the servers'.
            ServiceFailed: no server took them.
        """
        before, adapter = self._weights, dict[str, Tensor]()
        folder = self._folder / f"{secrets.token_hex(4)}-v{version}"
        names: set[str] = set()
        for number, bucket in enumerate(weights):
            adapter |= {name: value for name, value in bucket.items() if ".lora_" in name}
            if self._files is None or before is None:
                names |= self._write(bucket, folder / f"{number:05}.safetensors")
        if names:
            require_names(names, self._about["names"])
            self._weights = folder
        if self._files is not None:
            name, _, swapped = self._files.write(adapter, version)
            self._swapped = name, swapped
        self.version = version
        self._loop.call(self._update_all)
        if before is not None and before != self._weights:
            shutil.rmtree(before, ignore_errors=True)

    def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        """The model's own log-probabilities of given completions, of one of the servers.

        Args:
            rows: prompts and completions.

        Raises:
            ServiceFailed: there is no server.
        """
        ready = [server for server in self._servers if server.ready]
        if not ready:
            raise ServiceFailed(f"there is no server: {self._reasons()}")
        return self._loop.call(self._logprobs, ready[0], rows)

    def probe(self, rows: Sequence[Tokenized], prompt_ids: Sequence[int]) -> list[Probe]:
        """See `Sampler`: of every server that takes work.

        Args:
            rows: prompts and completions, whose log-probabilities are asked for.
            prompt_ids: the long prompt after which a token is sampled.

        Raises:
            ServiceFailed: there is no server.
        """
        probes = self._loop.call(self._probe_all, rows, prompt_ids)
        if not probes:
            raise ServiceFailed(f"there is no server: {self._reasons()}")
        return probes

    def close(self) -> None:
        """Drop all requests and connections, and the weights that were written.  Idempotent."""
        self._asked.clear()
        if self._client is not None:
            self._loop.call(self._shut)
            self._client = None
        self._remover.close()

    def _write(self, bucket: Mapping[str, Tensor], path: Path) -> set[str]:
        """Write a bucket in the type that the servers compute in; returns the names in it."""
        from safetensors.torch import save_file

        checkpoint = self._checkpoint(bucket, self._about)
        kinds = {server.about["dtype"] for server in self._servers}
        dtype = getattr(torch, kinds.pop()) if len(kinds) == 1 else None
        path.parent.mkdir(exist_ok=True)
        save_file(
            {name: tensor.to("cpu", dtype).contiguous() for name, tensor in checkpoint.items()},
            path,
        )
        return set(checkpoint)

    @property
    def _about(self) -> Mapping[str, Any]:
        return self._servers[0].about

    def _reasons(self) -> str:
        return "; ".join(
            f"{server.url}: {server.why or 'is being given weights'}" for server in self._servers
        )

    # ------------------------------------------------------------------------------------------ in the loop's thread

    async def _open(self) -> None:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        # Variables for proxies are of no use to servers beside us.
        self._client = httpx.AsyncClient(
            headers=headers, limits=limits, timeout=_CONNECT_S, trust_env=False
        )
        await asyncio.gather(*(self._meet(server) for server in self._servers))
        self._watching = asyncio.create_task(self._watch())

    async def _shut(self) -> None:
        tasks: list[asyncio.Task[None]] = [
            task for server in self._servers for _, task in server.running.values()
        ]
        if watching := getattr(self, "_watching", None):
            tasks.append(watching)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert self._client is not None
        await self._client.aclose()

    def _enqueue(self, request: Request) -> None:
        self._queue.append(request)
        self._dispatch()

    def _dispatch(self) -> None:
        """Give requests that wait to the servers with the fewest."""
        while self._queue:
            ready = [
                server
                for server in self._servers
                if server.ready and len(server.running) < self.in_flight
            ]
            if not ready:
                return
            server, request = min(ready, key=lambda one: len(one.running)), self._queue.popleft()
            if self._asked.get(request.id) is request:
                task = asyncio.get_running_loop().create_task(self._serve(server, request))
                server.running[request.id] = request, task

    def _drop(self, dropped: set[Hashable]) -> None:
        self._queue = deque(request for request in self._queue if request.id not in dropped)
        for server in self._servers:
            for name in dropped & server.running.keys():
                server.running.pop(name)[
                    1
                ].cancel()  # the server aborts what nobody waits for any more
        self._dispatch()

    async def _take_back(self, taken: set[Hashable]) -> dict[Hashable, Begun]:
        """End these completions; the servers answer with the tokens that they have."""
        begun_by_id: dict[Hashable, Begun] = {}
        self._taking, self._taken_back = taken, begun_by_id
        try:
            while True:
                for request in [
                    request_waiting
                    for request_waiting in self._queue
                    if request_waiting.id in taken
                ]:
                    self._queue.remove(request)
                    if request.begun is not None:
                        begun_by_id.setdefault(request.id, request.begun)
                busy = [server for server in self._servers if taken & server.running.keys()]
                if not busy:
                    return begun_by_id
                # Again and again: a request may be on its way to the server while that is told to
                # end all.
                await asyncio.gather(
                    *(self._post(server, "/abort_requests") for server in busy),
                    return_exceptions=True,
                )
                tasks = [
                    task
                    for server in busy
                    for name, (_, task) in server.running.items()
                    if name in taken
                ]
                if tasks:
                    await asyncio.wait(tasks, timeout=_POLL_S)
        finally:
            self._taking = set()

    async def _serve(self, server: _Server, request: Request) -> None:
        """Ask a server for a completion.  If it is gone the request waits for another one."""
        try:
            answer = await self._generate(server, request)
        except _GONE as error:
            self._lose(server, f"no answer ({type(error).__name__})")
            return
        except _TakenBackError as error:
            server.running.pop(request.id, None)
            if request.id not in self._taking:  # another program has ended it: it goes on here
                self._queue.append(request)
                self._dispatch()
            elif error.begun.completion_ids:
                self._taken_back[request.id] = error.begun
            return
        except SamplingFailed as error:
            self._finish(server, request, error)
            return
        except ServiceFailed as error:
            server.running.pop(request.id, None)
            self._fail(request, error)
            return
        except UsageError as error:
            self._fatal = error
            return
        self._finish(server, request, answer)

    def _finish(self, server: _Server, request: Request, result: Sample | SamplingFailed) -> None:
        server.running.pop(request.id, None)
        self._done.put((request, result))
        self._dispatch()

    def _fail(self, request: Request, error: ServiceFailed) -> None:
        """A server says that it failed: try again, as the fault may be the server's or the
        request's."""
        failures = self._failures[request.id] = self._failures.get(request.id, 0) + 1
        if failures < _ATTEMPTS:
            self._queue.append(request)
        else:
            self._done.put((request, SamplingFailed(str(error))))
        self._dispatch()

    def _lose(self, server: _Server, why: str) -> None:
        """A server takes no work any more; its requests go to the front of the queue."""
        server.ready, server.why = False, why
        server.version = -1  # it may come back with weights of its own
        lost, server.running = list(server.running.values()), {}
        current = asyncio.current_task()
        for _, task in lost:
            if task is not current:
                task.cancel()
        self._queue.extendleft(request for request, _ in reversed(lost))
        self.moved += len(lost)
        self._note_servers()
        self._dispatch()

    def _note_servers(self) -> None:
        if any(server.ready for server in self._servers):
            self._none_since = None
        elif self._none_since is None:
            self._none_since = time.monotonic()

    async def _watch(self) -> None:
        """Look at every server now and then: those that do not answer are lost, and those that do
        again are used."""
        while True:
            await asyncio.sleep(_HEALTH_S)
            # What is wrong with one server, in whatever way, must not end the watch over the
            # others.
            await asyncio.gather(
                *(self._look(server) for server in self._servers), return_exceptions=True
            )

    async def _look(self, server: _Server) -> None:
        assert self._client is not None
        try:
            answer = await self._client.get(f"{server.url}/health", timeout=_HEALTH_TIMEOUT_S)
            is_well = answer.status_code == 200
        except httpx.TimeoutException:
            server.missed += 1
            is_well = server.missed < _MISSED and server.ready
        except _GONE:
            is_well = False
        else:
            server.missed = 0 if is_well else server.missed
        if is_well and server.ready and not self._syncing.locked():
            is_well = await self._has_our_weights(server)
        if not is_well and server.ready and not self._syncing.locked():
            self._lose(server, "does not answer /health, or was started anew")
        if (
            is_well
            and not server.ready
            and self._weights is not None
            and not self._syncing.locked()
        ):
            with suppress(*_GONE, RlvrError):
                await self._welcome(server)

    async def _has_our_weights(self, server: _Server) -> bool:
        """False for a server that was started anew since, and so has weights of its own."""
        expected = server.version
        with suppress(*_GONE, RlvrError, KeyError):
            label = (await self._get(server, "/weight_info"))["weight_version"]
            return version_of(label) == expected or server.version != expected  # synced meanwhile
        return True  # the next look at /health says more

    async def _welcome(self, server: _Server) -> None:
        """Use a server again, with the current weights."""
        try:
            await self._meet(server)
            async with self._syncing:
                await self._update(server)
        except (*_GONE, RlvrError) as error:
            server.why = f"answers /health, and cannot be used: {error}"
            raise
        self._note_servers()
        self._dispatch()

    # ------------------------------------------------------------------------------------------ weights

    async def _update_all(self) -> None:
        """Give the current weights to all servers that can be reached."""
        async with self._syncing:
            results = await asyncio.gather(
                *(self._update(server) for server in self._servers), return_exceptions=True
            )
        for server, error in zip(self._servers, results, strict=True):
            if isinstance(error, (*_GONE, ServiceFailed)):
                self._lose(server, f"did not take the weights of version {self.version} ({error})")
            elif error is not None:
                raise error
        self._note_servers()
        if not any(server.ready for server in self._servers):
            raise ServiceFailed(
                f"no server took the weights of version {self.version}: {self._reasons()}"
            )
        self._dispatch()

    async def _update(self, server: _Server) -> None:
        """Pause a server, give it the current weights, and let it go on: what it has begun goes on
        with them.

        The keys and values of the old weights are dropped, those of completions that are under way
        included, so that their next tokens are sampled from the new policy alone.
        """
        version, weights, swapped = self.version, self._weights, self._swapped
        assert weights is not None
        await self._post(server, "/pause?mode=keep")
        if swapped is None or server.version < 0:
            body = {"method": "rlvr_load", "args": [str(weights)]}
            server.taken = (await self._post(server, "/collective_rpc", body, timeout_s=_LOAD_S))[
                "results"
            ][0]
        if swapped is not None:
            await self._swap(server, *swapped)
        cleared = await self._post(server, "/reset_prefix_cache?reset_running_requests=true")
        if not cleared.get("success"):
            raise ServiceFailed(f"{server.url} keeps its prefix cache, of the old weights")
        await self._post(server, "/update_weight_version", {"new_version": str(version)})
        await self._post(server, "/resume")
        server.version, server.ready, server.why = version, True, ""

    async def _swap(self, server: _Server, name: str, folder: Path) -> None:
        if server.version < 0:  # it may have kept the adapter, and would refuse its name
            with suppress(RlvrError):
                await self._post(server, "/v1/unload_lora_adapter", {"lora_name": name})
        before, server.adapter = server.adapter, None
        await self._post(
            server, "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)}
        )
        server.adapter = name
        if before is not None and before != name:
            await self._post(server, "/v1/unload_lora_adapter", {"lora_name": before})

    # ------------------------------------------------------------------------------------------ one call each

    async def _generate(self, server: _Server, request: Request) -> Sample:
        parameters = sampling_parameters(request, self.tokenization)
        choice = await self._choice(server, prompt_of(request), parameters)
        is_aborted = choice["finish_reason"] == "abort"
        try:
            ids = choice["token_ids"] or []
            logprobs = [
                token["logprob"] for token in (choice["logprobs"] or {}).get("content") or []
            ]
            spans = [
                (span["version"], span["start"], span["end"])
                for span in choice["weight_versions"] or []
            ]
            if is_aborted:
                versions = [
                    version_of(version) for version, start, end in spans for _ in range(start, end)
                ]
                raise _TakenBackError(begun_with(request, ids, logprobs, versions))
            sample = sample_of(
                request,
                self.tokenization,
                ids,
                logprobs,
                finish=choice["finish_reason"],
                spans=spans,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ServiceFailed(
                f"{server.url}: an answer of another shape: {brief(choice)}"
            ) from error
        if sample.weights_version < 0:
            raise httpx.RemoteProtocolError("the server was started anew, with weights of its own")
        return sample

    async def _choice(
        self, server: _Server, ids: list[int], parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        body = {
            "token_ids": ids,
            "sampling_params": parameters,
            "output_mode": "tokens",
            "model": server.adapter,
        }
        answer = await self._post(server, "/inference/v1/generate", body, timeout_s=self.timeout_s)
        try:
            choice: dict[str, Any] = answer["choices"][0]
            choice["prompt_logprobs"] = answer.get("prompt_logprobs")
        except (KeyError, IndexError, TypeError) as error:
            raise ServiceFailed(
                f"{server.url}: an answer of another shape: {brief(answer)}"
            ) from error
        return choice

    async def _logprobs(self, server: _Server, rows: Sequence[Tokenized]) -> list[list[float]]:
        return list(await asyncio.gather(*(self._logprobs_of(server, row) for row in rows)))

    async def _logprobs_of(self, server: _Server, row: Tokenized) -> list[float]:
        parameters = {
            "n": 1,
            "max_tokens": 1,
            "temperature": 1.0,
            "seed": 0,
            "prompt_logprobs": 0,
            "detokenize": False,
        }
        parameters |= {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
        choice = await self._choice(server, [*row.prompt_ids, *row.completion_ids], parameters)
        entries = choice["prompt_logprobs"][len(row.prompt_ids) :]
        return [
            entry[str(token)]["logprob"]
            for token, entry in zip(row.completion_ids, entries, strict=True)
        ]

    async def _probe_all(self, rows: Sequence[Tokenized], prompt_ids: Sequence[int]) -> list[Probe]:
        servers = [server for server in self._servers if server.ready]
        outcomes = await asyncio.gather(
            *(self._probe(server, rows, prompt_ids) for server in servers), return_exceptions=True
        )
        probes = []
        for server, outcome in zip(servers, outcomes, strict=True):
            if isinstance(outcome, Probe):
                probes.append(outcome)
            elif isinstance(outcome, _GONE):
                self._lose(server, f"no answer ({type(outcome).__name__})")
            else:
                raise outcome
        return probes

    async def _probe(
        self, server: _Server, rows: Sequence[Tokenized], prompt_ids: Sequence[int]
    ) -> Probe:
        logprobs = await self._logprobs(server, rows)
        request = Request("probe", tuple(prompt_ids), Sampling(max_tokens=1), seed=0, limit=1)
        sample = await self._generate(server, request)
        label = (await self._get(server, "/weight_info"))["weight_version"]
        return self._probe_of(server.url, label, server.about, server.taken, logprobs, sample)

    async def _meet(self, server: _Server) -> None:
        """Learn what a server runs, and refuse one that cannot be used; the message says what mends
        it.

        Raises:
            UsageError: it is another version, has no extension or token endpoint, or another model
                or tokenizer.
            ServiceFailed: it cannot be reached.
        """
        url = server.url
        try:
            version = (await self._get(server, "/version")).get("version", "of an unknown version")
        except _GONE as error:
            raise ServiceFailed(
                f"{url} cannot be reached ({type(error).__name__}): {_START}, or mend the address "
                f"in --sampler"
            ) from None
        if not is_tested(str(version)):
            raise UsageError(
                f"{url} is vLLM {version}; weights are sent to {TESTED} alone: install it on that "
                f"machine"
            )
        nonce = secrets.token_hex(8)
        note = self._folder / f"note-{nonce}"
        note.write_text(nonce, encoding="utf-8")
        try:
            body = {"method": "rlvr_describe", "args": [str(note)]}
            server_info = (await self._post(server, "/collective_rpc", body))["results"][0]
        except (UsageError, ServiceFailed) as error:
            raise UsageError(
                f"{url} has no door for weights ({error}): {_START}, or give vLLM "
                f"VLLM_SERVER_DEV_MODE=1 and "
                f"--worker-extension-cls {EXTENSION}"
            ) from None
        finally:
            note.unlink()
        server.about = server_info
        await self._require_fitting(server, nonce)

    async def _require_fitting(self, server: _Server, nonce: str) -> None:
        url, server_info = server.url, server.about
        if server_info.get("note") != nonce:
            raise UsageError(
                f"{url} does not see {self._folder}: give --sampler-folder a folder that both see"
            )
        if server_info["logprobs"] != "processed_logprobs":
            raise UsageError(
                f"{url} gives {server_info['logprobs']}: start it with --logprobs-mode "
                f"processed_logprobs"
            )
        if differing := differing_sizes(self._sizes, server_info["sizes"]):
            raise UsageError(
                f"{url} has another model ({differing}): start it with the trainer's --model"
            )
        if (
            self._adapter is not None
            and self._adapter.swap
            and (server_info["max_lora_rank"] or 0) < self._adapter.rank
        ):
            raise UsageError(
                f"{url} takes LoRA adapters of rank {server_info['max_lora_rank'] or 0}: start it "
                f"with --lora-rank "
                f"{self._adapter.rank}, or set sampler_lora to merged"
            )
        own_ids = list(self.tokenization.tokenizer(_TEXT, add_special_tokens=False)["input_ids"])
        server_ids = (
            await self._post(server, "/tokenize", {"prompt": _TEXT, "add_special_tokens": False})
        ).get("tokens")
        if server_ids != own_ids:
            raise UsageError(
                f"{url} has another tokenizer: start it with the trainer's --model, which has both"
            )
        parameters = {"max_tokens": 1, "temperature": 0.0, "detokenize": False}
        await self._choice(server, [self._end()], parameters)

    def _end(self) -> int:
        return min(self.tokenization.end_ids, default=0)

    async def _get(self, server: _Server, path: str) -> dict[str, Any]:
        assert self._client is not None
        return self._read(server, path, await self._client.get(server.url + path))

    async def _post(
        self, server: _Server, path: str, body: Any = None, *, timeout_s: float = _CONNECT_S * 6
    ) -> dict[str, Any]:
        assert self._client is not None
        timeout = httpx.Timeout(timeout_s, connect=_CONNECT_S)
        sent: Coroutine[Any, Any, httpx.Response] = self._client.post(
            server.url + path, json=body or {}, timeout=timeout
        )
        return self._read(server, path, await sent)

    def _read(self, server: _Server, path: str, answer: httpx.Response) -> dict[str, Any]:
        """The body of an answer.

        Raises:
            UsageError: the server refuses the key, or has no such address.
            ServiceFailed: it failed.
            SamplingFailed: it refuses this request.
        """
        code, where = answer.status_code, f"{server.url}{path.partition('?')[0]}"
        if code == 200:
            try:
                body = answer.json() if answer.content else {}
            except ValueError:
                body = {"text": answer.text}
            return body if isinstance(body, dict) else {"value": body}
        message = " ".join(answer.text.split())[:300]
        message = message.replace(self._key, "[key]") if self._key else message
        if code == 401:
            key_advice = (
                f"that in {self._key_env} is another one"
                if self._key_env
                else "give --sampler-key-env VARIABLE"
            )
            raise UsageError(f"{where} asks for a key: {key_advice}")
        if code == 403:
            raise UsageError(f"{where} is switched off: start the server with --enable-scale-out")
        if code in (404, 405):
            raise UsageError(f"{where} is not there: {_START}")
        if code in (400, 422):
            raise SamplingFailed(f"{where}: status {code}: {message}")
        raise ServiceFailed(f"{where}: status {code}: {message}")


def _folder(folder: Path | None, servers: Sequence[_Server]) -> Path:
    """A new folder for weights that the servers see.

    Raises:
        UsageError: they are on other machines, and no folder was given; or it cannot be written to.
    """
    if folder is None:
        for server in servers:
            host = urlsplit(server.url).hostname or ""
            if host not in ("localhost", "::1") and not host.startswith("127."):
                raise UsageError(
                    f"{server.url} is on another machine: give --sampler-folder a folder that it "
                    f"and the trainer see"
                )
        folder = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        created = Path(
            tempfile.mkdtemp(prefix="rlvr-weights-", dir=folder)
        ).absolute()  # servers run somewhere else
        created.chmod(0o755)  # servers may run as another user
    except OSError as error:
        raise UsageError(
            f"weights cannot be written to {folder}: {error.strerror}; give another folder"
        ) from None
    return created


class _Remover:
    """Deletes a folder when it is closed, and when this process ends in whatever way, a SIGKILL included.

    Weights in shared memory take a machine's memory until they are deleted.  A shell reads a pipe
    whose other end this process holds: the read ends when the process does.

    Args:
        folder: is deleted with all that is in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        reading_end, self._ours = os.pipe()  # no program that we start inherits our end
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; rm -rf -- "$0"', str(folder)],
            stdin=reading_end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the trainer, which writes weights until it has ended
        )
        os.close(reading_end)

    def close(self) -> None:
        """Delete the folder.  Idempotent."""
        if self._ours >= 0:
            shutil.rmtree(self._folder, ignore_errors=True)
            with suppress(OSError):
                os.write(
                    self._ours, b"\n"
                )  # a process that was forked from this one may hold the pipe as well
            os.close(self._ours)
            self._ours = -1
            self._shell.wait()


def _key(variable: str | None) -> str:
    """The key in an environment variable; "" without one."""
    if variable is None:
        return ""
    if not (key := os.environ.get(variable, "").strip()):
        raise UsageError(
            "the environment variable that key_env names is not set or empty; put the servers' key "
            "there"
        )
    return key
