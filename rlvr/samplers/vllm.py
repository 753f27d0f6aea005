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
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor

from rlvr.errors import MissingDependency, SamplingFailed, UsageError
from rlvr.samplers.protocol import Begun, Probe, Request, Sample, Sampling, Tokenized
from rlvr.samplers.tokenization import Tokenization
from rlvr.samplers.vllm_lora import AdapterFiles, AdapterSettings
from rlvr.samplers.vllm_shared import (
    EXTENSION,
    TESTED,
    VLLMClient,
    begun_with,
    is_tested,
    prompt_of,
    require_head_size,
    sample_of,
    sampling_parameters,
)
from rlvr.validate import require_number, require_whole

__all__ = ["VLLMSampler"]

_STEPS: Final = 16  # most decode steps of one poll
_ENVIRONMENT: Final = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",  # it warns at each sync that layers without weights got none
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # cores are shared with the trainer
    "VLLM_CPU_CI_ENV": "1",  # no warm-up, which takes minutes on a CPU
}
"""Set before vLLM is imported, unless they are set already."""
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
        asleep: True between `sleep` and the next `sync`.

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
        self._asked: dict[
            str, tuple[Request, float]
        ] = {}  # requests by the engine's name for them; when they began
        self._names: dict[Hashable, str] = {}
        self._sofar: dict[str, Any] = {}  # what the engine last said of each
        self._count = itertools.count()
        self._taken: Sequence[str] = ()
        self.asleep = False
        self._lora: Any = None
        self._files: AdapterFiles | None = None
        _require_vllm()
        with _generators_kept():
            self._llm = _engine(
                Path(folder),
                dtype,
                positions,
                max_rows,
                memory,
                sleeps=sleeps,
                load=load,
                adapter=adapter,
                more=options,
            )
        self._engine = self._llm.llm_engine
        self._about: Mapping[str, Any] = self._llm.collective_rpc("rlvr_describe")[0]
        self.positions: int = self._about["positions"]
        if adapter is not None and adapter.swap:
            self._files = AdapterFiles(Path(tempfile.mkdtemp(prefix="rlvr-vllm-")), adapter)

    def _send(self, request: Request, parameters: Mapping[str, Any]) -> None:
        self._add(request, f"rlvr-{next(self._count)}", parameters)

    def _add(self, request: Request, name: str, parameters: Mapping[str, Any]) -> None:
        from vllm import SamplingParams

        prompt = {"type": "token", "prompt_token_ids": prompt_of(request)}
        self._engine.add_request(
            name, prompt, SamplingParams(**parameters), lora_request=self._lora
        )
        self._asked[name] = request, time.monotonic()
        self._names[request.id] = name

    def poll(self) -> list[tuple[Hashable, Sample | SamplingFailed]]:
        """See `Sampler.poll`.  Makes at most 16 steps of the engine."""
        results: list[tuple[Hashable, Sample | SamplingFailed]] = []
        for _ in range(_STEPS):
            if not self._asked or results:
                break
            for output in self._step():
                if output.request_id not in self._asked:
                    continue
                self._sofar[output.request_id] = output.outputs[0]
                if output.finished:
                    request, _ = self._forget(output.request_id)
                    results.append((request.id, self._sample(request, output.outputs[0])))
        return results or self._overdue()

    def _step(self) -> Sequence[Any]:
        with self._without_compilation():
            outputs: Sequence[Any] = self._engine.step()
            return outputs

    def _without_compilation(self) -> AbstractContextManager[Any]:
        """On a CPU, vLLM's small functions are not compiled: that takes ten seconds each, and a C++
        compiler."""
        from vllm.platforms import current_platform

        return (
            torch.compiler.set_stance("force_eager") if current_platform.is_cpu() else nullcontext()
        )

    def _overdue(self) -> list[tuple[Hashable, Sample | SamplingFailed]]:
        """Requests that were not finished in time; they are dropped."""
        late = time.monotonic() - self.timeout_s
        names = [name for name, (_, began) in self._asked.items() if began < late]
        if names:
            self._engine.abort_request(names)
        why = f"vLLM has not finished the completion within {self.timeout_s:g} s"
        return [(self._forget(name)[0].id, SamplingFailed(why)) for name in names]

    def _forget(self, name: str) -> tuple[Request, float]:
        request, began = self._asked.pop(name)
        del self._names[request.id]
        self._sofar.pop(name, None)
        return request, began

    def _sample(self, request: Request, output: Any) -> Sample | SamplingFailed:
        if output.finish_reason not in ("stop", "length"):
            return SamplingFailed(f"vLLM ended the completion with {output.finish_reason!r}")
        logprobs = _logprobs_of(output)
        spans = [(span.version, span.start, span.end) for span in output.weight_versions]
        return sample_of(
            request,
            self.tokenization,
            output.token_ids,
            logprobs,
            finish=output.finish_reason,
            spans=spans,
        )

    def abort(self, ids: Iterable[Hashable]) -> None:
        """See `Sampler.abort`.

        Args:
            ids: of requests.
        """
        names = [self._names[dropped] for dropped in set(ids) if dropped in self._names]
        if names:
            self._engine.abort_request(names)
        for name in names:
            self._forget(name)

    def take_back(self, ids: Iterable[Hashable]) -> dict[Hashable, Begun]:
        """Drop requests and return the tokens that they have, see `Sampler`.

        Args:
            ids: of requests.
        """
        begun_by_id, dropped = {}, set(ids)
        for name, (request, _) in self._asked.items():
            if (
                request.id in dropped
                and (output := self._sofar.get(name)) is not None
                and output.token_ids
            ):
                versions = [self.version] * len(output.token_ids)
                begun_by_id[request.id] = begun_with(
                    request, output.token_ids, _logprobs_of(output), versions
                )
            elif request.id in dropped and request.begun is not None:
                begun_by_id[request.id] = request.begun
        self.abort(dropped)
        return begun_by_id

    def sync(self, weights: Iterable[Mapping[str, Tensor]], version: int) -> None:
        """Use new weights.  Requests that are under way go on with them; their prompts are read
        again.

        Args:
            weights: see `Sampler.sync`; those of an adapter included.
            version: of the new weights.

        Raises:
            UsageError: they are not all of the engine's.
        """
        # In the trainer's process, which is the only one: these are references to its own.
        state = {name: value for bucket in weights for name, value in bucket.items()}
        if self.asleep:
            self._wake(state)
        elif self._files is None or self.version < 0:
            self._load(state)
        if self._files is not None:
            self._swap(self._files, state, version)
        self._reset_cache()
        self._llm.update_weight_version(str(version))
        self.version = version

    def _load(self, weights: Mapping[str, Tensor]) -> None:
        checkpoint = self._checkpoint(weights, self._about)
        with torch.no_grad():
            self._taken = self._llm.collective_rpc("rlvr_load", args=(checkpoint,))[0]

    def _swap(self, files: AdapterFiles, weights: Mapping[str, Tensor], version: int) -> None:
        """Put the adapter's weights under a new name, and drop the old one."""
        from vllm.lora.request import LoRARequest

        before, self._lora = self._lora, None
        name, number, folder = files.write(weights, version)
        request = LoRARequest(name, number, str(folder))
        self._engine.add_lora(request)
        self._lora = request
        if before is not None:
            self._engine.remove_lora(before.lora_int_id)

    def _reset_cache(self) -> None:
        """Drop keys and values of the old weights, those of requests that are under way
        included."""
        if not self._llm.reset_prefix_cache(reset_running_requests=True):
            raise UsageError(
                "vLLM keeps its prefix cache, of the old weights; sync while nothing is being "
                "sampled"
            )

    def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        """The model's own log-probabilities of given completions, one list per row.

        They are computed in one pass over each row, which does not use the cache of earlier
        prompts: see `probe`.

        Args:
            rows: prompts and completions.
        """
        from vllm import SamplingParams

        parameters = SamplingParams(
            max_tokens=1, temperature=1.0, seed=0, prompt_logprobs=0, detokenize=False
        )
        prompts = [
            {"type": "token", "prompt_token_ids": [*row.prompt_ids, *row.completion_ids]}
            for row in rows
        ]
        with self._without_compilation():
            outputs = self._llm.generate(
                prompts, parameters, use_tqdm=False, lora_request=self._lora
            )
        return [
            [
                entry[token].logprob
                for token, entry in zip(row.completion_ids, _last(output, row), strict=True)
            ]
            for row, output in zip(rows, outputs, strict=True)
        ]

    def probe(self, rows: Sequence[Tokenized], prompt_ids: Sequence[int]) -> list[Probe]:
        """See `Sampler`.

        Args:
            rows: prompts and completions, whose log-probabilities are asked for.
            prompt_ids: the long prompt after which a token is sampled.
        """
        logprobs, name = self.logprobs(rows) if rows else [], f"rlvr-{next(self._count)}"
        request = Request(name, tuple(prompt_ids), Sampling(max_tokens=1), seed=0, limit=1)
        self._add(request, name, sampling_parameters(request, self.tokenization))
        sample = None
        while sample is None:
            for output in self._step():
                if output.request_id == name:
                    sample = self._sample(request, output.outputs[0])
        self._forget(name)
        assert isinstance(sample, Sample)
        return [
            self._probe_of(
                "vLLM in this process",
                self._llm.get_weight_version(),
                self._about,
                self._taken,
                logprobs,
                sample,
            )
        ]

    def sleep(self) -> None:
        """Free the GPU's memory until the next `sync`: weights and cache are dropped (vLLM's level
        2).

        On a CPU the calls are made and free nothing.  What is under way ends.
        """
        self._llm.sleep(level=2)
        self.asleep = True

    def _wake(self, weights: Mapping[str, Tensor]) -> None:
        """Take the memory back: first room for the weights, then these, then room for the cache."""
        self._llm.wake_up(tags=["weights"])
        self._load(weights)
        self._llm.wake_up(tags=["kv_cache"])
        self._llm.wake_up()  # and let requests be scheduled
        self.asleep = False

    def close(self) -> None:
        """End the engine and free its memory.  Idempotent."""
        if self._llm is None:
            return
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        self._engine.engine_core.shutdown()
        self._llm = self._engine = None
        if self._files is not None:
            shutil.rmtree(self._files.folder, ignore_errors=True)
        gc.collect()
        cleanup_dist_env_and_memory()


def _logprobs_of(output: Any) -> list[float]:
    """The log-probabilities of a completion's tokens."""
    return [
        entry[token].logprob for token, entry in zip(output.token_ids, output.logprobs, strict=True)
    ]


def _last(output: Any, row: Tokenized) -> Sequence[Mapping[int, Any]]:
    """The entries of a prompt's log-probabilities that are of the row's completion."""
    entries: Sequence[Mapping[int, Any]] = output.prompt_logprobs[len(row.prompt_ids) :]
    return entries


def _require_vllm() -> None:
    """Prepare the environment and import vLLM.

    Raises:
        MissingDependency: it is not installed.
        UsageError: it is another version.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = (
        "0"  # the engine in this process: tensors pass by reference
    )
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
            f"was tested; install "
            "it by constraints-vllm.txt (see docs/using/vllm.md)"
        )


def _engine(
    folder: Path,
    dtype: str,
    positions: int | None,
    max_rows: int,
    memory: float,
    *,
    sleeps: bool,
    load: bool,
    adapter: AdapterSettings | None,
    more: Mapping[str, Any],
) -> Any:
    from transformers import AutoConfig
    from vllm import LLM
    from vllm.platforms import current_platform

    options: dict[str, Any] = {"gpu_memory_utilization": memory, "enable_sleep_mode": sleeps}
    if current_platform.is_cpu():
        from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

        require_head_size(
            AutoConfig.from_pretrained(folder), CPUAttentionBackend.get_supported_head_sizes()
        )
        # Blocks of 32 tokens, not 128: shorter prompts are read once for their group.  And prompts
        # in one piece: behind each other piece vLLM turns the request's generator back, which those
        # of a CPU refuse, and the engine ends.
        options = {
            "kv_cache_memory_bytes": _CPU_CACHE_BYTES,
            "block_size": 32,
            "enforce_eager": True,
        }
        options |= {"enable_chunked_prefill": False}
    if adapter is not None and adapter.swap:
        options |= {
            "enable_lora": True,
            "max_loras": 2,
            "max_cpu_loras": 2,
            "max_lora_rank": adapter.engine_rank,
        }
    return LLM(
        model=str(folder),
        tokenizer=str(folder),
        dtype=dtype,
        max_model_len=positions,
        max_num_seqs=max_rows,
        generation_config="vllm",  # not the model's: it would change what a request leaves out
        logprobs_mode="processed_logprobs",  # of the distribution that tokens are sampled from
        load_format="auto" if load else "dummy",
        worker_extension_cls=EXTENSION,
        enable_prefix_caching=True,
        disable_log_stats=True,
        **{**options, **more},
    )


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
