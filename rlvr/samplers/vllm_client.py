"""The client of vLLM: requests, results, log-probabilities and weights, the
same for every transport.

submit, poll, abort, take_back ─▶ VLLMClient ─▶ a queue of requests, which is the transport's
sync, logprobs, probe          ─▶     │      ─▶ VLLMEngine: calls of one engine, here or over HTTP

`rlvr.samplers.vllm` is the transport to an engine in this process, `rlvr.samplers.servers` that to
servers.  Calls of an engine are coroutines; those of one in this process never wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final, Protocol

from torch import Tensor

from rlvr.errors import SamplingFailed, ServiceFailed
from rlvr.samplers.protocol import Begun, Probe, Request, Sample, Tokenized
from rlvr.samplers.tokenization import Tokenization, TokenSampler
from rlvr.samplers.vllm_lora import AdapterFiles, AdapterSettings, WrittenAdapter
from rlvr.samplers.vllm_shared import (
    EngineAnswer,
    begun_with,
    checkpoint_weights,
    require_all_names,
    require_positions,
    sample_of,
    sampling_parameters,
    version_of_label,
)
from rlvr.types import JsonObject
from rlvr.validate import require_number
from rlvr.workers.closing import Closing

__all__ = ["ONE_TOKEN", "VLLMClient", "VLLMEngine"]

ONE_TOKEN: Final = {
    "n": 1,
    "max_tokens": 1,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "seed": 0,
    "logprobs": 0,
    "detokenize": False,
}
"""Parameters by which vLLM samples a token and its log-probability."""


class VLLMEngine(Protocol):
    """One engine of vLLM.

    Attributes:
        name: for messages and probes.
        about: what it said of itself, see `WorkerExtension.rlvr_describe`.
        version: of its weights; -1 for weights of its own.
        taken: names of the weights that it took when they were loaded last.
    """

    name: str
    about: JsonObject
    version: int
    taken: Sequence[str]

    async def answer(self, ids: Sequence[int], parameters: JsonObject) -> EngineAnswer:
        """The completion of some tokens.

        Args:
            ids: of the prompt.
            parameters: fields of vLLM's SamplingParams.
        """
        ...

    async def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        """See `Sampler.logprobs`: computed without the cache of earlier prompts."""
        ...

    async def label(self) -> str:
        """The label that the engine has for its weights."""
        ...

    async def update(self, weights: Any, adapter: WrittenAdapter | None, version: int) -> None:
        """Pause, take new weights, and go on with what was begun.

        Keys and values of the old weights are dropped, those of completions that are under way
        included, so that their next tokens are sampled from the new policy alone.

        Args:
            weights: what the client's `_store` returned.
            adapter: to use with them; the weights are loaded then only if the engine has its own.
            version: of the new weights, the engine's label for them.
        """
        ...


class VLLMClient(TokenSampler, Closing):
    """A `Sampler` over vLLM.  A subclass is its transport: an engine in this process, or servers.

    Args:
        tokenization: prompts to tokens, and the tokens that end a completion.
        adapter: of a policy with LoRA; None for one without.
        timeout_s: wall seconds that a completion may take.

    Attributes:
        version: of the weights; -1 before the first `sync`.
        positions: most tokens of prompt and completion together.
    """

    version = -1
    positions: int
    _about: JsonObject  # what the engines are, which is the same for all
    _run: Callable[..., Any]  # gives the result of a coroutine function that calls engines

    def __init__(
        self, tokenization: Tokenization, adapter: AdapterSettings | None, timeout_s: float
    ) -> None:
        self.timeout_s = require_number("timeout_s", timeout_s, above=0)
        self.tokenization = tokenization
        self._swaps = adapter if adapter is not None and adapter.swap else None
        self._merged_scale = None if adapter is None or adapter.swap else adapter.scale
        self._asked: dict[Hashable, Request] = {}
        self._weights: Any = None  # the current ones, as engines load them
        self._files: AdapterFiles | None = None
        self._swapped: WrittenAdapter | None = None  # the current adapter

    # ------------------------------------------------------------------------- the transport's part

    def _send(self, request: Request, parameters: Mapping[str, object]) -> None:
        """Begin a request as soon as there is room for it."""
        raise NotImplementedError

    def _receive(self) -> Iterable[tuple[Request, Sample | SamplingFailed]]:
        """Work or wait for a moment: results of requests, also of those that were dropped."""
        raise NotImplementedError

    def _drop(self, ids: Set[Hashable]) -> object:
        """Spend no more on these requests."""
        raise NotImplementedError

    def _recall(self, ids: Set[Hashable]) -> Mapping[Hashable, EngineAnswer]:
        """End these requests, and return what the engines have of those that they have begun."""
        raise NotImplementedError

    def _engines(self) -> Sequence[VLLMEngine]:
        """Those that have the current weights, at least one."""
        raise NotImplementedError

    def _store(self, checkpoints: Iterable[Mapping[str, Tensor]], version: int) -> object:
        """Put the buckets of a checkpoint where engines can load them."""
        raise NotImplementedError

    async def _update(self) -> None:
        """Give all engines the current weights."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------- requests

    def submit(self, request: Request) -> None:
        """See `Sampler.submit`.

        Args:
            request: what is asked for.

        Raises:
            UsageError: prompt and limit are longer than `positions`, or vLLM cannot sample in this
                way.
        """
        require_positions(request, self.positions)
        parameters = sampling_parameters(request, self.tokenization)
        self._asked[request.id] = request
        self._send(request, parameters)

    def poll(self) -> list[tuple[Hashable, Sample | SamplingFailed]]:
        """See `Sampler.poll`.  Makes 16 steps of an engine in this process, or waits 50 ms for
        servers, at most.

        Raises:
            ServiceFailed: there has been no server for `patience_s`.
            UsageError: a server refuses the key.
        """
        results: list[tuple[Hashable, Sample | SamplingFailed]] = []
        for request, outcome in self._receive():
            if self._asked.get(request.id) is request:  # else it was dropped
                del self._asked[request.id]
                results.append((request.id, outcome))
        return results

    def abort(self, ids: Iterable[Hashable]) -> None:
        """See `Sampler.abort`.

        Args:
            ids: of requests.
        """
        if dropped := {name for name in ids if self._asked.pop(name, None) is not None}:
            self._drop(dropped)

    def take_back(self, ids: Iterable[Hashable]) -> dict[Hashable, Begun]:
        """Drop requests and return the tokens that they have, see `Sampler`.

        Args:
            ids: of requests.
        """
        requests = {name: self._asked[name] for name in ids if name in self._asked}
        answers = self._recall(requests.keys()) if requests else {}
        begun_by_id = {}
        for name, request in requests.items():
            del self._asked[name]
            # What was begun before counts as well.
            begun = begun_with(request, answers.get(name, EngineAnswer()))
            if begun.completion_ids:
                begun_by_id[name] = begun
        return begun_by_id

    def _sample(self, request: Request, answer: EngineAnswer) -> Sample | SamplingFailed:
        # "abort" and errors: its tokens may be incomplete.
        if answer.finish not in ("stop", "length"):
            return SamplingFailed(f"vLLM ended the completion with {answer.finish!r}")
        return sample_of(request, self.tokenization, answer)

    # -------------------------------------------------------------------------------------- weights

    def sync(self, weights: Iterable[Mapping[str, Tensor]], version: int) -> None:
        """Give all engines new weights.  What is under way waits meanwhile and goes on with them.

        A server that dies meanwhile is left out, and given them when it comes back.

        Args:
            weights: see `Sampler.sync`; those of an adapter included.
            version: of the new weights.

        Raises:
            UsageError: they are not all of the engines'.
            ServiceFailed: no server took them.
        """
        adapter, names = dict[str, Tensor](), set[str]()
        checkpoints = self._checkpoints(weights, adapter, names)
        if self._files is None or self._weights is None:
            stored = self._store(checkpoints, version)
            # Before anything is kept as current: a part of the weights must not count as a version.
            require_all_names(names, self._about["names"])
            self._weights = stored
        else:
            # Read to the end: on several ranks gathering is a collective.
            deque(checkpoints, maxlen=0)
        if self._files:
            self._swapped = self._files.write(adapter, version)
        self.version = version
        self._run(self._update)

    def _checkpoints(
        self, weights: Iterable[Mapping[str, Tensor]], adapter: dict[str, Tensor], names: set[str]
    ) -> Iterator[dict[str, Tensor]]:
        """Weights by the names that engines load, with the adapter merged unless it is swapped; its
        weights, and the names, are noted."""
        for bucket in weights:
            adapter |= {name: value for name, value in bucket.items() if ".lora_" in name}
            checkpoint = checkpoint_weights(
                bucket, tied=self._about["tied"], lora_scale=self._merged_scale
            )
            names.update(checkpoint)
            yield checkpoint

    # ------------------------------------------------------------------------- what engines compute

    def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        """The model's own log-probabilities of given completions, of one of the engines.

        They are computed in one pass over each row, which does not use the cache of earlier
        prompts: see `probe`.

        Args:
            rows: prompts and completions.

        Raises:
            ServiceFailed: there is no server.
        """
        return list(self._run(self._engines()[0].logprobs, rows))

    def probe(self, rows: Sequence[Tokenized], prompt_ids: Sequence[int]) -> list[Probe]:
        """See `Sampler`: of every engine that takes work.

        Args:
            rows: prompts and completions, whose log-probabilities are asked for.
            prompt_ids: the long prompt after which a token is sampled.

        Raises:
            ServiceFailed: there is no server.
        """
        return list(self._run(self._probe_all, rows, prompt_ids))

    async def _probe_all(self, rows: Sequence[Tokenized], prompt_ids: Sequence[int]) -> list[Probe]:
        return [await self._probe(engine, rows, prompt_ids) for engine in self._engines()]

    async def _probe(
        self, engine: VLLMEngine, rows: Sequence[Tokenized], prompt_ids: Sequence[int]
    ) -> Probe:
        # Before a sync only the prompt is read.
        logprobs = await engine.logprobs(rows) if rows else []
        answer = await engine.answer(prompt_ids, ONE_TOKEN)
        if not answer.ids:
            raise ServiceFailed(f"{engine.name}: another program has ended the probe")
        return Probe(
            engine.name,
            # Last: a sync in between would show in the label.
            version_of_label(await engine.label()),
            frozenset(engine.about["names"]),
            frozenset(engine.taken),
            logprobs,
            answer.ids[0],
            answer.logprobs[0],
        )
