"""Samples completions from vLLM servers, which get the policy's weights after every step.

    with ServerSampler(
        ["http://127.0.0.1:8000"], policy.tokenization, model_sizes(policy.model.config)
    ) as sampler:
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
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx
import torch
from torch import Tensor

from rlvr.errors import RlvrError, SamplingFailed, ServiceFailed, UsageError, brief
from rlvr.samplers.protocol import Probe, Request, Sample, Tokenized
from rlvr.samplers.tokenization import Tokenization
from rlvr.samplers.vllm_client import VLLMClient
from rlvr.samplers.vllm_http import CONNECT_S, GONE, START, VLLMServer
from rlvr.samplers.vllm_lora import AdapterFiles, AdapterSettings
from rlvr.samplers.vllm_shared import (
    EXTENSION,
    TESTED,
    EngineAnswer,
    differing_sizes,
    is_tested,
    prompt_of,
    sampling_parameters,
    version_of_label,
)
from rlvr.validate import require_number, require_whole
from rlvr.workers.loops import loop_thread, take_ready
from rlvr.workers.program import Lifeline, StartedProgram

__all__ = ["ServerSampler"]

_T = TypeVar("_T")

# As of `endpoint`: for which a look waits for the first result.
_POLL_S: Final = 0.05
_HEALTH_S: Final = 1.0  # between two looks at a server
_HEALTH_TIMEOUT_S: Final = 10.0  # a server that is busy answers late
_MISSED: Final = 3  # looks without an answer after which a server counts as dead
_ATTEMPTS: Final = 3  # of a request whose server says that it failed
_TEXT: Final = "The answer is 12 + 34 = 46, \\boxed{46}.\n"  # by which tokenizers are compared


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
        sizes: Mapping[str, object],
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
        # Without the slash at the end, which would make two names of one server.
        self._servers = [VLLMServer(url.rstrip("/"), key_env, self.timeout_s) for url in urls]
        if not self._servers or len({server.name for server in self._servers}) < len(urls):
            raise UsageError(
                f"the servers are {brief(list(urls))}; give at least one, and each once"
            )
        self.moved, self._sizes = 0, sizes
        self._queue: deque[Request] = deque()
        self._failures: dict[Hashable, int] = {}  # how often a server has failed on each
        self._done: SimpleQueue[tuple[Request, Sample | SamplingFailed]] = SimpleQueue()
        self._taken_back: dict[Hashable, EngineAnswer] = {}  # requests that are taken back just now
        self._fatal: Exception | None = None
        # Since when no server is there: one that restarts is waited for.
        self._none_since: float | None = None
        # One at a time: a welcome that began before a sync
        # would end by giving a server the older weights.
        self._syncing = asyncio.Lock()
        self._loop = loop_thread("servers")
        self._run = self._loop.call
        self._folder = _folder(folder, self._servers)
        self._remover = _Remover(self._folder)
        if self._swaps:
            self._files = AdapterFiles(self._folder, self._swaps)
        self._client: httpx.AsyncClient | None = None
        try:
            self._loop.call(self._open)
        except BaseException:
            self.close()
            raise
        self._about = self._servers[0].about
        self.positions = min(server.about["positions"] for server in self._servers)

    # ----------------------------------------------------------------------------- see `VLLMClient`

    def _send(self, request: Request, parameters: Mapping[str, object]) -> None:
        # A request that is sent anew begins its count anew.
        self._failures.pop(request.id, None)
        self._loop.loop.call_soon_threadsafe(self._enqueue, request)

    def _receive(self) -> list[tuple[Request, Sample | SamplingFailed]]:
        results = take_ready(self._done, _POLL_S)
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

    def _drop(self, ids: Set[Hashable]) -> None:
        self._loop.loop.call_soon_threadsafe(self._cancel, ids)

    def _recall(self, ids: Set[Hashable]) -> Mapping[Hashable, EngineAnswer]:
        return self._loop.call(self._end, ids)

    def _engines(self) -> Sequence[VLLMServer]:
        ready = [server for server in self._servers if server.ready]
        if not ready:
            raise ServiceFailed(f"there is no server: {self._reasons()}")
        return ready

    def _store(self, checkpoints: Iterable[Mapping[str, Tensor]], version: int) -> Path:
        """Write the buckets in the type that the servers compute in."""
        from safetensors.torch import save_file

        kinds = {server.about["dtype"] for server in self._servers}
        # One type for all servers, or that of the trainer where they differ.
        dtype = getattr(torch, kinds.pop()) if len(kinds) == 1 else None
        # A name of its own for each try: a server may still read the files of one that failed.
        folder = self._folder / f"{secrets.token_hex(4)}-v{version}"
        folder.mkdir()
        for number, checkpoint in enumerate(checkpoints):
            # safetensors takes contiguous tensors alone.
            tensors = {name: t.to("cpu", dtype).contiguous() for name, t in checkpoint.items()}
            save_file(tensors, folder / f"{number:05}.safetensors")
        return folder

    def sync(self, weights: Iterable[Mapping[str, Tensor]], version: int) -> None:
        """See `VLLMClient.sync`; the files of the weights before are deleted."""
        before = self._weights
        super().sync(weights, version)
        # Only now: until all servers had answered one might still read them.
        if before is not None and before != self._weights:
            shutil.rmtree(before, ignore_errors=True)

    def close(self) -> None:
        """Drop all requests and connections, and the weights that were written.  Idempotent."""
        self._asked.clear()
        if self._client is not None:
            self._loop.call(self._shut)
            self._client = None
        self._remover.close()

    def _reasons(self) -> str:
        return "; ".join(
            f"{server.name}: {server.why or 'is being given weights'}" for server in self._servers
        )

    # ------------------------------------------------------------------------- in the loop's thread

    async def _open(self) -> None:
        key = self._servers[0].key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # Of httpx it is 100, and further requests would wait for a connection and not in our
        # queue.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        # Variables for proxies are of no use to servers beside us.
        self._client = httpx.AsyncClient(
            headers=headers, limits=limits, timeout=CONNECT_S, trust_env=False
        )
        for server in self._servers:
            server.client = self._client
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
            # Else it was dropped, or asked for again, while it was in the queue.
            if self._asked.get(request.id) is request:
                task = asyncio.get_running_loop().create_task(self._serve(server, request))
                server.running[request.id] = request, task

    def _cancel(self, dropped: Set[Hashable]) -> None:
        self._queue = deque(request for request in self._queue if request.id not in dropped)
        for server in self._servers:
            for name in dropped & server.running.keys():
                # The server aborts a request whose connection is closed.
                server.running.pop(name)[1].cancel()
        self._dispatch()

    async def _end(self, taken: Set[Hashable]) -> dict[Hashable, EngineAnswer]:
        """End these completions; the servers answer with the tokens that they have."""
        # Answers of requests that were never begun are empty.
        self._taken_back = answers = dict.fromkeys(taken, EngineAnswer())
        try:
            while True:
                self._queue = deque(request for request in self._queue if request.id not in taken)
                busy = [server for server in self._servers if taken & server.running.keys()]
                if not busy:
                    return answers
                # Again and again: a request may be on its way to the server while that is told to
                # end all.
                await asyncio.gather(
                    *(server.post("/abort_requests") for server in busy), return_exceptions=True
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
            self._taken_back = {}

    async def _serve(self, server: VLLMServer, request: Request) -> None:
        """Ask a server for a completion.  If it is gone the request waits for another one."""
        parameters = sampling_parameters(request, self.tokenization)
        try:
            answer = await server.answer(prompt_of(request), parameters)
        except GONE as error:
            self._lose(server, f"no answer ({type(error).__name__})")
        except SamplingFailed as error:
            self._finish(server, request, error)
        except ServiceFailed as error:
            server.running.pop(request.id, None)
            self._fail(request, error)
        except UsageError as error:
            # Raised at the next poll: no other server would take the request either.
            self._fatal = error
        else:
            # "abort" is what a server says of a request that was ended from outside.
            if answer.finish != "abort":
                self._finish(server, request, self._sample(request, answer))
                return
            server.running.pop(request.id, None)
            if request.id in self._taken_back:
                self._taken_back[request.id] = answer
            else:  # another program has ended it: it goes on here
                self._queue.append(request)
                self._dispatch()

    def _finish(
        self, server: VLLMServer, request: Request, result: Sample | SamplingFailed
    ) -> None:
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

    def _lose(self, server: VLLMServer, why: str) -> None:
        """A server takes no work any more; its requests go to the front of the queue."""
        server.ready, server.why = False, why
        server.version = -1  # it may come back with weights of its own
        lost, server.running = list(server.running.values()), {}
        current = asyncio.current_task()
        for _, task in lost:
            # The task that found it out ends by itself.
            if task is not current:
                task.cancel()
        # In their old order, before those that wait.
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

    async def _look(self, server: VLLMServer) -> None:
        try:
            answer = await server.client.get(f"{server.name}/health", timeout=_HEALTH_TIMEOUT_S)
            is_well = answer.status_code == 200
        except httpx.TimeoutException:
            server.missed += 1
            # A server that is busy answers late, so one look does not decide.
            is_well = server.missed < _MISSED and server.ready
        except GONE:
            is_well = False
        else:
            server.missed = 0 if is_well else server.missed
        # While weights are given servers stand still, and say nothing of their health.
        if server.ready and not self._syncing.locked():
            is_well = is_well and await self._has_our_weights(server)
            if not is_well and not self._syncing.locked():
                self._lose(server, "does not answer /health, or was started anew")
        elif is_well and self._weights is not None and not self._syncing.locked():
            with suppress(*GONE, RlvrError):
                await self._welcome(server)

    async def _has_our_weights(self, server: VLLMServer) -> bool:
        """False for a server that was started anew since, and so has weights of its own."""
        expected = server.version
        with suppress(*GONE, RlvrError, KeyError):
            # Its label, which a server that was started anew does not have.
            label = await server.label()
            synced_meanwhile = server.version != expected
            return synced_meanwhile or version_of_label(label) == expected
        return True  # the next look at /health says more

    async def _welcome(self, server: VLLMServer) -> None:
        """Use a server again, with the current weights."""
        try:
            await self._meet(server)
            # Not while others are given weights of another version.
            async with self._syncing:
                await server.update(self._weights, self._swapped, self.version)
        except (*GONE, RlvrError) as error:
            server.why = f"answers /health, and cannot be used: {error}"
            raise
        self._note_servers()
        self._dispatch()

    # -------------------------------------------------------------------------------------- weights

    async def _update(self) -> None:
        """Give the current weights to all servers that can be reached."""
        async with self._syncing:
            await self._each(
                self._servers,
                lambda server: server.update(self._weights, self._swapped, self.version),
                f"take the weights of version {self.version}",
            )
        self._note_servers()
        self._dispatch()

    async def _probe_all(self, rows: Sequence[Tokenized], prompt_ids: Sequence[int]) -> list[Probe]:
        return await self._each(
            self._engines(),
            lambda server: self._probe(server, rows, prompt_ids),
            "answer the probe",
            GONE,  # an error is an answer: a check of weights that it cannot make must be seen
        )

    async def _each(
        self,
        servers: Sequence[VLLMServer],
        call: Callable[[VLLMServer], Coroutine[Any, Any, _T]],
        what: str,
        losing: tuple[type[Exception], ...] = (*GONE, ServiceFailed),
    ) -> list[_T]:
        """The results of a call of each server, but of those that are lost by it; at least one."""
        results = await asyncio.gather(*map(call, servers), return_exceptions=True)
        for server, error in zip(servers, results, strict=True):
            if isinstance(error, losing):
                self._lose(server, f"did not {what} ({type(error).__name__}: {error})")
            elif isinstance(error, BaseException):
                raise error
        answers = [result for result in results if not isinstance(result, BaseException)]
        if not answers:
            raise ServiceFailed(f"no server could {what}: {self._reasons()}")
        return answers

    # ------------------------------------------------------------------------------ meeting servers

    async def _meet(self, server: VLLMServer) -> None:
        """Learn what a server runs, and refuse one that cannot be used; the message says what mends
        it.

        Raises:
            UsageError: it is another version, has no extension or token endpoint, or another model
                or tokenizer.
            ServiceFailed: it cannot be reached.
        """
        url = server.name
        try:
            version = (await server.get("/version")).get("version", "of an unknown version")
        except GONE as error:
            raise ServiceFailed(
                f"{url} cannot be reached ({type(error).__name__}): {START}, or mend the address "
                f"in --sampler"
            ) from None
        if not is_tested(str(version)):
            raise UsageError(
                f"{url} is vLLM {version}; weights are sent to {TESTED} alone: install it on that "
                f"machine"
            )
        # A text that nothing else has written there: the
        # server reads the same folder, or it does not.
        nonce = secrets.token_hex(8)
        note = self._folder / f"note-{nonce}"
        note.write_text(nonce, encoding="utf-8")
        try:
            body = {"method": "rlvr_describe", "args": [str(note)]}
            server_info = (await server.post("/collective_rpc", body))["results"][0]
        except (UsageError, ServiceFailed) as error:
            raise UsageError(
                f"{url} has no door for weights ({error}): {START}, or give vLLM "
                f"VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls {EXTENSION}"
            ) from None
        finally:
            note.unlink()
        server.about = server_info
        await self._require_fitting(server, nonce)

    async def _require_fitting(self, server: VLLMServer, nonce: str) -> None:
        url, server_info = server.name, server.about
        if server_info.get("note") != nonce:
            raise UsageError(
                f"{url} does not see {self._folder}: give --sampler-folder a folder that both see"
            )
        # Other log-probabilities are of the model, before temperature and top-p.
        if server_info["logprobs"] != "processed_logprobs":
            raise UsageError(
                f"{url} gives {server_info['logprobs']}: start it with --logprobs-mode "
                f"processed_logprobs"
            )
        if differing := differing_sizes(self._sizes, server_info["sizes"]):
            raise UsageError(
                f"{url} has another model ({differing}): start it with the trainer's --model"
            )
        if self._swaps and (server_info["max_lora_rank"] or 0) < self._swaps.rank:
            raise UsageError(
                f"{url} takes LoRA adapters of rank {server_info['max_lora_rank'] or 0}: start it "
                f"with --lora-rank "
                f"{self._swaps.rank}, or set sampler_lora to merged"
            )
        # One text with digits, signs and a backslash, in which tokenizers differ.
        own_ids = list(self.tokenization.tokenizer(_TEXT, add_special_tokens=False)["input_ids"])
        server_ids = (
            await server.post("/tokenize", {"prompt": _TEXT, "add_special_tokens": False})
        ).get("tokens")
        if server_ids != own_ids:
            raise UsageError(
                f"{url} has another tokenizer: start it with the trainer's --model, which has both"
            )
        parameters = {"max_tokens": 1, "temperature": 0.0, "detokenize": False}
        # A request of one token: the endpoint for tokens may be switched off.
        await server.choice([min(self.tokenization.end_ids, default=0)], parameters)


def _folder(folder: Path | None, servers: Sequence[VLLMServer]) -> Path:
    """A new folder for weights that the servers see.

    Raises:
        UsageError: they are on other machines, and no folder was given; or it cannot be written to.
    """
    if folder is None:
        for server in servers:
            host = urlsplit(server.name).hostname or ""
            if host not in ("localhost", "::1") and not host.startswith("127."):
                raise UsageError(
                    f"{server.name} is on another machine: give --sampler-folder a folder that it "
                    f"and the trainer see"
                )
        # Shared memory: weights go through no disk.
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
    """Deletes a folder when it is closed, and when this process ends in whatever
    way, a SIGKILL included.

    Weights in shared memory take a machine's memory until they are deleted.  A shell reads a pipe
    whose other end this process holds: the read ends when the process does.

    Args:
        folder: is deleted with all that is in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lifeline: Lifeline | None = Lifeline()
        self._shell = StartedProgram(
            ["/bin/sh", "-c", 'read -r _; rm -rf -- "$0"', str(folder)],
            name="remover of weights",
            owner="samplers",
            stdin=self._lifeline.theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            # Ctrl-C is for the trainer, which writes weights until it has ended
            group="session",
            ends_itself=True,
        )
        self._lifeline.give()

    def close(self) -> None:
        """Delete the folder.  Idempotent."""
        if self._lifeline is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            # A line ends the shell's `read`, so that closing waits for nothing.
            self._lifeline.say(b"\n")
            self._lifeline.close()
            self._lifeline = None
            self._shell.wait()
