"""Samples completions with a vLLM engine in this process.

    sampler = VLLMSampler("models/a", policy.tokenization)
    sampler.sync(policy.weights(), version=0)

vLLM needs an environment of its own: `make .venv-vllm/.rlvr-vllm`, or see docs/using/vllm.md.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import shutil
import tempfile
import time
from collections.abc import (
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor

from rlvr.errors import MissingDependency, SamplingFailed, UsageError
from rlvr.samplers.protocol import Request, Sample, Tokenized
from rlvr.samplers.tokenization import Tokenization
from rlvr.samplers.vllm_client import ONE_TOKEN, VLLMClient
from rlvr.samplers.vllm_lora import AdapterFiles, AdapterSettings, WrittenAdapter
from rlvr.samplers.vllm_shared import (
    EXTENSION,
    TESTED,
    EngineAnswer,
    is_tested,
    prompt_of,
    require_head_size,
    token_versions,
)
from rlvr.types import JsonDict, JsonObject
from rlvr.validate import require_number, require_whole
from rlvr.workers.loops import finish

__all__ = ["VLLMSampler"]

_STEPS: Final = 16  # most decode steps of one poll
_ENVIRONMENT: Final = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",  # it warns at each sync that layers without weights got none
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # cores are shared with the trainer
    "VLLM_CPU_CI_ENV": "1",  # no warm-up, which takes minutes on a CPU
}
"""Set before vLLM is imported, unless they are set already."""
# vLLM's own choice on a CPU is half of the machine's memory, which the trainer needs.
_CPU_CACHE_BYTES: Final = 2**30


class VLLMSampler(VLLMClient):
    """A `Sampler` over vLLM's engine in this process.  Close it, or use it as a context manager.

    The engine begins with weights that mean nothing, unless `load` is True: call `sync` first, as
    the trainer does.

    A rollout depends on its prompt and its seed alone, not on what is sampled beside it, up to the
    last bit of the logits.  There is one engine in a process at a time.

    Args:
        folder: of the model: its config.json and the tokenizer's files are read, and with `load`
            its weights.
        tokenization: prompts to tokens, and the tokens that end a completion.
        dtype: type of the engine's weights: "float32" or "bfloat16".
        positions: most tokens of prompt and completion together; None for those of the model.  The
            engine reserves room for one completion of this length at least.
        max_rows: most rollouts sampled in parallel.
        memory: share of a GPU's memory that the engine takes for weights and cache; on a CPU the
            cache has 1 GiB.
        adapter: of a policy with LoRA; None for one without.
        sleeps: whether `sleep` and `wake` free a GPU's memory.
        timeout_s: wall seconds after which a request is given up: its rollout is UNSCORED.
        load: read the weights in the folder.
        options: further arguments of `vllm.LLM`.

    Attributes:
        version: of the weights; -1 before the first `sync`.
        positions: see above.

    Raises:
        MissingDependency: vLLM is not installed in this environment.
        UsageError: another version of it is, or the model cannot run on it here.
    """

    def __init__(
        self,
        folder: str | Path,
        tokenization: Tokenization,
        *,
        dtype: Literal["float32", "bfloat16"] = "float32",
        positions: int | None = None,
        max_rows: int = 256,
        memory: float = 0.4,
        adapter: AdapterSettings | None = None,
        sleeps: bool = False,
        timeout_s: float = 3600.0,
        load: bool = False,
        **options: Any,
    ) -> None:
        require_whole("max_rows", max_rows, 1)
        require_number("memory", memory, above=0, most=1)
        super().__init__(tokenization, adapter, timeout_s)
        self._running: dict[str, tuple[Request, float]] = {}  # by the engine's names; since when
        self._engine: _EngineHere | None = None
        # vLLM's calls here are plain functions behind coroutines that never wait.
        self._run = lambda function, *args: finish(function(*args))
        _require_vllm()
        lora: JsonDict = {}
        if self._swaps:
            # Two: the new one is loaded before the old one goes.
            lora = {"enable_lora": True, "max_loras": 2, "max_cpu_loras": 2}
            lora["max_lora_rank"] = self._swaps.engine_rank
        with _generators_kept():
            from vllm import LLM

            llm = LLM(
                model=str(folder),
                tokenizer=str(folder),
                dtype=dtype,
                max_model_len=positions,
                max_num_seqs=max_rows,
                generation_config="vllm",  # not the model's: it would change what is left out
                logprobs_mode="processed_logprobs",  # of what tokens are sampled from
                load_format="auto" if load else "dummy",
                worker_extension_cls=EXTENSION,
                enable_prefix_caching=True,
                disable_log_stats=True,
                **{**_device_options(folder, memory, sleeps=sleeps), **lora, **options},
            )
        self._engine = _EngineHere(llm)
        self._about = self._engine.about
        self.positions = self._about["positions"]
        if self._swaps:
            self._files = AdapterFiles(Path(tempfile.mkdtemp(prefix="rlvr-vllm-")), self._swaps)

    # ----------------------------------------------------------------------------- see `VLLMClient`

    def _send(self, request: Request, parameters: Mapping[str, object]) -> None:
        name = self._engines()[0].begin(prompt_of(request), parameters)
        self._running[name] = request, time.monotonic()

    def _receive(self) -> list[tuple[Request, Sample | SamplingFailed]]:
        [engine] = self._engines()
        results: list[tuple[Request, Sample | SamplingFailed]] = []
        for _ in range(_STEPS):
            if not self._running or results:
                break
            engine.step()
            for name in [name for name in self._running if name in engine.finished]:
                request, _ = self._running.pop(name)
                results.append((request, self._sample(request, engine.take(name))))
        return results or self._overdue()

    def _overdue(self) -> list[tuple[Request, Sample | SamplingFailed]]:
        """Requests that were not finished in time; they are dropped."""
        late = time.monotonic() - self.timeout_s
        failed = SamplingFailed(f"vLLM has not finished the completion within {self.timeout_s:g} s")
        # By the clock, as an engine may stand still.
        overdue = [request for request, began in self._running.values() if began < late]
        self._drop({request.id for request in overdue})
        return [(request, failed) for request in overdue]

    def _recall(self, ids: Set[Hashable]) -> dict[Hashable, EngineAnswer]:
        names = [name for name, (request, _) in self._running.items() if request.id in ids]
        return {self._running.pop(name)[0].id: self._engines()[0].abort(name) for name in names}

    _drop = _recall

    def _engines(self) -> Sequence[_EngineHere]:
        assert self._engine is not None
        return (self._engine,)

    def _store(self, checkpoints: Iterable[Mapping[str, Tensor]], version: int) -> Any:
        # In the only process: references to the trainer's own.
        return {name: value for bucket in checkpoints for name, value in bucket.items()}

    async def _update(self) -> None:
        weights, self._weights = self._weights, None
        await self._engines()[0].update(weights, self._swapped, self.version)

    @property
    def asleep(self) -> bool:
        """True between `sleep` and the next `sync`."""
        return self._engines()[0].asleep

    def sleep(self) -> None:
        """Free the GPU's memory until the next `sync`: weights and cache are dropped (vLLM's level
        2).

        On a CPU the calls are made and free nothing.  What is under way ends.
        """
        self._engines()[0].sleep()

    def close(self) -> None:
        """End the engine and free its memory.  Idempotent."""
        if self._engine is None:
            return
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        self._engine.llm.llm_engine.engine_core.shutdown()
        self._engine = None
        if self._files:
            shutil.rmtree(self._files.folder, ignore_errors=True)
        # What the engine held in cycles.
        gc.collect()
        cleanup_dist_env_and_memory()


@dataclass(slots=True)
class _Running:
    """A request under way.

    Attributes:
        output: what the engine last said of it; None before its first token.
        versions: of the weights that sampled each token so far; vLLM labels only the tokens of
            requests that have finished.
    """

    output: Any = None
    versions: list[int] = field(default_factory=list)


class _EngineHere:
    """vLLM's engine in this process.

    Args:
        llm: a `vllm.LLM`.

    Attributes:
        finished: names of requests that have ended, and were not taken yet.
        asleep: whether weights and cache are dropped.
    """

    def __init__(self, llm: Any) -> None:
        self.name, self.version = "vLLM in this process", -1
        self.llm, self._count = llm, itertools.count()
        self.about: JsonObject = llm.collective_rpc("rlvr_describe")[0]
        self.taken: Sequence[str] = ()
        self.finished: set[str] = set()
        self._running: dict[str, _Running] = {}
        self._lora: Any = None
        self.asleep = False

    def begin(self, ids: Sequence[int], parameters: JsonObject) -> str:
        """Begin a request; returns its name."""
        from vllm import SamplingParams

        name, prompt = f"rlvr-{next(self._count)}", {"type": "token", "prompt_token_ids": list(ids)}
        # Each request has the adapter with which it begins.
        self.llm.llm_engine.add_request(
            name, prompt, SamplingParams(**parameters), lora_request=self._lora
        )
        self._running[name] = _Running()
        return name

    def step(self) -> None:
        """Compute a token more of each request."""
        with self._without_compilation():
            outputs = self.llm.llm_engine.step()
        for output in outputs:
            # Others may use the engine as well.
            if output.request_id in self._running:
                running = self._running[output.request_id]
                running.output = output
                new_tokens = len(output.outputs[0].token_ids) - len(running.versions)
                running.versions += [self.version] * new_tokens
                if output.finished:
                    self.finished.add(output.request_id)

    def take(self, name: str) -> EngineAnswer:
        """The answer to a finished request."""
        self.finished.remove(name)
        output = self._running.pop(name).output.outputs[0]
        # Spans of tokens by the label of the weights that sampled them.
        versions = token_versions((s.version, s.start, s.end) for s in output.weight_versions)
        logprobs = _values(output.token_ids, output.logprobs)
        return EngineAnswer(output.token_ids, logprobs, versions, output.finish_reason)

    def abort(self, name: str) -> EngineAnswer:
        """End a request; returns what it has so far."""
        self.llm.llm_engine.abort_request([name])
        self.finished.discard(name)
        running = self._running.pop(name)
        if running.output is None:
            return EngineAnswer()
        output = running.output.outputs[0]
        logprobs = _values(output.token_ids, output.logprobs)
        return EngineAnswer(output.token_ids, logprobs, running.versions)

    def _without_compilation(self) -> AbstractContextManager[Any]:
        """On a CPU, vLLM's small functions are not compiled: that takes ten seconds each, and a C++
        compiler."""
        from vllm.platforms import current_platform

        return (
            torch.compiler.set_stance("force_eager") if current_platform.is_cpu() else nullcontext()
        )

    async def answer(self, ids: Sequence[int], parameters: JsonObject) -> EngineAnswer:
        name = self.begin(ids, parameters)
        while name not in self.finished:
            self.step()
        return self.take(name)

    async def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        # Not by `generate`, which swallows what other requests are given meanwhile.
        parameters = {**ONE_TOKEN, "prompt_logprobs": 0}
        texts = ([*row.prompt_ids, *row.completion_ids] for row in rows)
        names = [self.begin(ids, parameters) for ids in texts]
        while not self.finished.issuperset(names):
            self.step()
        self.finished.difference_update(names)
        outputs = [self._running.pop(name).output for name in names]
        return [
            # vLLM's entries are for all tokens of the text, the prompt's too.
            _values(row.completion_ids, output.prompt_logprobs[len(row.prompt_ids) :])
            for row, output in zip(rows, outputs, strict=True)
        ]

    async def update(self, weights: Any, adapter: WrittenAdapter | None, version: int) -> None:
        # With an adapter the base is loaded once, unless the engine has lost it.
        if adapter is None or self.version < 0:
            if self.asleep:  # first room for the weights, then these, then room for the cache
                self.llm.wake_up(tags=["weights"])
            self._load(weights)
            if self.asleep:
                self.llm.wake_up(tags=["kv_cache"])
                self.llm.wake_up()  # and let requests be scheduled
                self.asleep = False
        if adapter is not None:
            self._swap(adapter)
        # Keys and values of the old weights; running requests are computed anew.
        self._clear_cache()
        self.llm.update_weight_version(str(version))
        self.version = version

    def _load(self, weights: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            self.taken = self.llm.collective_rpc("rlvr_load", args=(weights,))[0]

    def _swap(self, adapter: WrittenAdapter) -> None:
        """Put the adapter's weights under a new name, and drop the old one."""
        from vllm.lora.request import LoRARequest

        before, self._lora = self._lora, None
        request = LoRARequest(adapter.name, adapter.number, str(adapter.folder))
        self.llm.llm_engine.add_lora(request)
        # Only once it is loaded: a failure must not leave
        # requests with an adapter that is not there.
        self._lora = request
        if before is not None:
            self.llm.llm_engine.remove_lora(before.lora_int_id)

    def _clear_cache(self) -> None:
        if not self.llm.reset_prefix_cache(reset_running_requests=True):
            raise UsageError(
                "vLLM keeps its prefix cache, of the old weights; sync while nothing is being "
                "sampled"
            )

    def sleep(self) -> None:
        """Drop weights and cache."""
        self.llm.sleep(level=2)
        self.asleep, self.version = True, -1

    async def label(self) -> str:
        return str(self.llm.get_weight_version())


def _values(ids: Sequence[int], entries: Sequence[Mapping[int, Any]]) -> list[float]:
    """The log-probabilities of tokens, of vLLM's entry for each."""
    return [entry[token].logprob for token, entry in zip(ids, entries, strict=True)]


def _require_vllm() -> None:
    """Prepare the environment and import vLLM.

    Raises:
        MissingDependency: it is not installed.
        UsageError: it is another version.
    """
    # In this process, whatever was set: the sync passes tensors by reference.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        with _generators_kept():
            import vllm
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "vllm":
            raise
        raise MissingDependency("vllm", "vllm") from None
    if not is_tested(vllm.__version__):
        raise UsageError(
            f"vLLM {vllm.__version__} is installed, and weights are sent to {TESTED} alone, which "
            "was tested; install it by constraints-vllm.txt (see docs/using/vllm.md)"
        )


def _device_options(folder: str | Path, memory: float, *, sleeps: bool) -> dict[str, object]:
    """Arguments of vLLM for this device."""
    from transformers import AutoConfig
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return {"gpu_memory_utilization": memory, "enable_sleep_mode": sleeps}
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    require_head_size(
        AutoConfig.from_pretrained(folder), CPUAttentionBackend.get_supported_head_sizes()
    )
    # Blocks of 32 tokens, not 128: shorter prompts are read once for their group.  And prompts in
    # one piece: behind each other piece vLLM turns the request's generator back, which those of a
    # CPU refuse, and the engine ends.
    return {
        "kv_cache_memory_bytes": _CPU_CACHE_BYTES,
        "block_size": 32,
        "enforce_eager": True,
        "enable_chunked_prefill": False,
    }


@contextmanager
def _generators_kept() -> Iterator[None]:
    """Leave the global random generators and settings of torch as they were; vLLM sets them for the
    whole process."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  vLLM sets this one
    threads, set_threads, default = (
        torch.get_num_threads(),
        torch.set_num_threads,
        torch.get_default_dtype(),
    )
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.set_num_threads = set_threads  # on a CPU it puts a function there that does nothing
        torch.set_num_threads(threads)
        torch.set_default_dtype(default)
