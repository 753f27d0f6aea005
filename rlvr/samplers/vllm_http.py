"""One vLLM server, by its HTTP calls: the transport of `rlvr.samplers.servers`."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import httpx

from rlvr.errors import RlvrError, SamplingFailed, ServiceFailed, UsageError, brief
from rlvr.samplers.protocol import Request, Tokenized
from rlvr.samplers.vllm_client import ONE_TOKEN
from rlvr.samplers.vllm_lora import WrittenAdapter
from rlvr.samplers.vllm_shared import EngineAnswer, token_versions
from rlvr.types import JsonDict, JsonObject
from rlvr.validate import read_key

__all__ = ["CONNECT_S", "GONE", "START", "VLLMServer"]

CONNECT_S: Final = 10.0
"""Wall seconds that connecting may take."""

START: Final = "start it by `python -m rlvr.samplers.vllm_server MODEL`"
"""What mends a server that is not there."""

GONE: Final = (httpx.TransportError, httpx.RemoteProtocolError, OSError)
"""Errors of a server that does not answer."""

_LOAD_S: Final = 600.0  # that loading weights may take


class VLLMServer:
    """One server.

    Args:
        url: where it is.
        key_env: see `ServerSampler`.
        timeout_s: wall seconds that a completion may take.

    Attributes:
        client: sends its requests.
        key: what it asks for; "" for nothing.
        ready: it has the current weights, and takes work.
        why: the last reason for which it was not ready.
        missed: looks in a row without an answer.
        running: its requests, with their tasks.

    Raises:
        UsageError: the variable is not set, or holds what is no key.
    """

    client: httpx.AsyncClient
    about: JsonObject

    def __init__(self, url: str, key_env: str | None, timeout_s: float) -> None:
        self.name, self.version = url, -1
        self.taken: Sequence[str] = ()
        self.ready, self.why, self.missed = False, "", 0
        self.running: dict[Hashable, tuple[Request, asyncio.Task[None]]] = {}
        self._key_env, self._timeout_s = key_env, timeout_s
        self._adapter: str | None = None
        self.key = read_key(key_env)

    async def answer(self, ids: Sequence[int], parameters: Mapping[str, object]) -> EngineAnswer:
        choice = await self.choice(ids, parameters)
        try:
            spans = choice["weight_versions"] or []
            answer = EngineAnswer(
                choice["token_ids"] or [],
                [token["logprob"] for token in (choice["logprobs"] or {}).get("content") or []],
                token_versions((span["version"], span["start"], span["end"]) for span in spans),
                choice["finish_reason"],
            )
            # A version that vLLM labels otherwise would give fewer, and shift the rest.
            lengths = {len(answer.ids), len(answer.logprobs), len(answer.versions)}
            if len(lengths) > 1 or (not answer.ids and answer.finish != "abort"):
                raise ValueError(lengths)
        except (KeyError, TypeError, ValueError) as error:
            raise ServiceFailed(
                f"{self.name}: an answer of another shape: {brief(choice)}"
            ) from error
        # Its own weights have the label "default", which is -1.
        if answer.finish != "abort" and min(answer.versions) < 0:
            raise httpx.RemoteProtocolError("the server was started anew, with weights of its own")
        return answer

    async def choice(self, ids: Sequence[int], parameters: JsonObject) -> JsonDict:
        """What the server answers to some tokens, with `prompt_logprobs`.

        Args:
            ids, parameters: as in `answer`.
        """
        body = {
            "token_ids": list(ids),
            "sampling_params": parameters,
            "output_mode": "tokens",
            "model": self._adapter,
        }
        answer = await self.post("/inference/v1/generate", body, timeout_s=self._timeout_s)
        try:
            choice: dict[str, object] = answer["choices"][0]
            choice["prompt_logprobs"] = answer.get("prompt_logprobs")
        except (KeyError, IndexError, TypeError) as error:
            raise ServiceFailed(
                f"{self.name}: an answer of another shape: {brief(answer)}"
            ) from error
        return choice

    async def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        return list(await asyncio.gather(*map(self._logprobs_of, rows)))

    async def _logprobs_of(self, row: Tokenized) -> list[float]:
        ids = [*row.prompt_ids, *row.completion_ids]
        choice = await self.choice(ids, {**ONE_TOKEN, "prompt_logprobs": 0})
        entries = choice["prompt_logprobs"][len(row.prompt_ids) :]
        return [
            entry[str(token)]["logprob"]
            for token, entry in zip(row.completion_ids, entries, strict=True)
        ]

    async def update(self, weights: object, adapter: WrittenAdapter | None, version: int) -> None:
        # Requests under way are kept, and go on afterwards.
        await self.post("/pause?mode=keep")
        if adapter is None or self.version < 0:
            body = {"method": "rlvr_load", "args": [str(weights)]}
            answer = await self.post("/collective_rpc", body, timeout_s=_LOAD_S)
            self.taken = answer["results"][0]
        if adapter is not None:
            await self._swap(adapter)
        # After the weights, before anything goes on.
        cleared = await self.post("/reset_prefix_cache?reset_running_requests=true")
        if not cleared.get("success"):
            raise ServiceFailed(f"{self.name} keeps its prefix cache, of the old weights")
        await self.post("/update_weight_version", {"new_version": str(version)})
        await self.post("/resume")
        self.version, self.ready, self.why = version, True, ""

    async def _swap(self, adapter: WrittenAdapter) -> None:
        name, unload = adapter.name, "/v1/unload_lora_adapter"
        if self.version < 0:  # it may have kept the adapter, and would refuse its name
            with suppress(RlvrError):
                await self.post(unload, {"lora_name": name})
        before, self._adapter = self._adapter, None
        body = {"lora_name": name, "lora_path": str(adapter.folder)}
        await self.post("/v1/load_lora_adapter", body)
        self._adapter = name
        if before is not None and before != name:
            await self.post(unload, {"lora_name": before})

    async def label(self) -> str:
        return str((await self.get("/weight_info"))["weight_version"])

    async def get(self, path: str) -> JsonDict:
        """The body of an answer; raises as `_read` does.

        Args:
            path: behind the server's address.
        """
        return self._read(path, await self.client.get(self.name + path))

    async def post(
        self, path: str, body: object = None, *, timeout_s: float = CONNECT_S * 6
    ) -> JsonDict:
        """The body of an answer; raises as `_read` does.

        Args:
            path: behind the server's address.
            body: as JSON.
            timeout_s: wall seconds that it may take.
        """
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_S)
        answer = await self.client.post(self.name + path, json=body or {}, timeout=timeout)
        return self._read(path, answer)

    def _read(self, path: str, answer: httpx.Response) -> dict[str, object]:
        """The body of an answer.

        Raises:
            UsageError: the server refuses the key, or has no such address.
            ServiceFailed: it failed.
            SamplingFailed: it refuses this request.
        """
        code, where = answer.status_code, f"{self.name}{path.partition('?')[0]}"
        if code == 200:
            try:
                body = answer.json() if answer.content else {}
            except ValueError:
                body = {"text": answer.text}
            return body if isinstance(body, dict) else {"value": body}
        message = " ".join(answer.text.split())[:300]
        message = message.replace(self.key, "[key]") if self.key else message
        if code == 401:
            raise UsageError(
                f"{where} asks for a key: that in {self._key_env} is another one"
                if self._key_env
                else f"{where} asks for a key: give --sampler-key-env VARIABLE"
            )
        if code == 403:
            raise UsageError(f"{where} is switched off: start the server with --enable-scale-out")
        if code in (404, 405):
            raise UsageError(f"{where} is not there: {START}")
        if code in (400, 422):
            raise SamplingFailed(f"{where}: status {code}: {message}")
        raise ServiceFailed(f"{where}: status {code}: {message}")
