"""Settings of the sampler: the trained model itself, vLLM here, or servers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from rlvr.errors import UsageError, brief
from rlvr.samplers.protocol import MAX_TOKENS_IN_FLIGHT
from rlvr.train.config.readers import PLAYS, SAMPLES, given, plays
from rlvr.train.config.setting import (
    ONE,
    OPTIONAL_ONE,
    Reader,
    Settings,
    one_of,
    or_none,
    setting,
)
from rlvr.validate import nearest, require_number

if TYPE_CHECKING:  # it has these settings
    from rlvr.train.config.run import ResolvedConfig

__all__ = ["EngineSettings"]

_LoraSampling = Literal["merged", "swapped"]


def _require_sampler_name(name: str, value: object) -> object:
    addresses = value.split(",") if isinstance(value, str) else []
    if value not in ("local", "vllm") and not all(
        re.fullmatch(r"https?://[^\s/?#@]+/?", address) for address in addresses
    ):
        near = nearest(str(value), ["local", "vllm"])
        raise UsageError(
            f"{name} is {brief(value)}{near}; it must be local, vllm, or addresses of vLLM servers "
            "with commas between them, such as http://127.0.0.1:8000,http://127.0.0.1:8001"
        )
    return value


_LOCAL: Final = Reader(
    "the local sampler", lambda config, own: config.engine == "local" and plays(config, own)
)
_VLLM: Final = Reader("--sampler vllm", lambda config, _: config.engine == "vllm")
_SERVERS: Final = Reader(
    "servers (--sampler http://…)", lambda config, _: config.engine == "servers"
)
_STARTED: Final = given("serve_samplers", "servers that are started here (--serve-samplers)")
_ENGINES: Final = Reader(
    "--sampler vllm and --serve-samplers",
    lambda config, _: config.engine == "vllm" or config.serve_samplers is not None,
)
_LORA_ENGINE: Final = Reader(
    "a LoRA adapter with vLLM",
    lambda config, _: config.lora_rank is not None and config.engine != "local",
)


@dataclass(frozen=True, kw_only=True)
class EngineSettings(Settings):
    """What samples completions, and its memory.

    Attributes:
        max_rows: Completions sampled in parallel.
        max_tokens_in_flight: Tokens whose keys and values are kept while sampling.  Lower it if
            memory runs out then; long completions are sampled in fewer rows.
        sampler: What samples: local (the trained model itself), vllm (a vLLM engine in this
            process), or addresses of vLLM servers, such as http://a:8000,http://b:8000.
        serve_samplers: Start this many vLLM servers on this machine, which end with the run, and
            sample from them.
        sampler_python: Python of the environment that has vLLM, for the servers that are started
            here.  None: this one.
        sampler_key_env: Environment variable that holds the servers' key.
        sampler_folder: Folder through which servers get the weights; all of them have to see it.
            None: the shared memory of this machine.
        sampler_positions: Most tokens of prompt and completion together in vLLM.  None: those of
            the model.
        sampler_memory: Share of a GPU's memory that a vLLM engine in this process takes.
        sampler_sleep: Free the memory of a vLLM engine in this process while the policy is updated.
        sampler_lora: How vLLM gets a LoRA adapter: merged into the weights, or swapped (the adapter
            alone).
        canary: Largest difference allowed between the sampler's and the trainer's log-probabilities
            of a token. None: 0.001, or 0.5 in bf16.  Infinity switches the check off.
    """

    about = "what samples: this process or vLLM"

    max_rows: int = setting(256, ONE, reader=PLAYS, may_change=True)
    max_tokens_in_flight: int = setting(MAX_TOKENS_IN_FLIGHT, ONE, reader=_LOCAL, may_change=True)
    sampler: str = setting(
        "local", _require_sampler_name, reader=SAMPLES, may_change=True, usual=True
    )
    serve_samplers: int | None = setting(None, OPTIONAL_ONE, reader=SAMPLES, may_change=True)
    sampler_python: Path | None = setting(None, reader=_STARTED, may_change=True)
    sampler_key_env: str | None = setting(None, reader=_SERVERS, may_change=True)
    sampler_folder: Path | None = setting(None, reader=_SERVERS, may_change=True)
    sampler_positions: int | None = setting(None, OPTIONAL_ONE, reader=_ENGINES, may_change=True)
    sampler_memory: float = setting(
        0.4, partial(require_number, above=0, most=1), reader=_VLLM, may_change=True
    )
    sampler_sleep: bool = setting(False, reader=_VLLM, may_change=True)
    sampler_lora: _LoraSampling = setting(
        "merged", one_of(_LoraSampling), reader=_LORA_ENGINE, may_change=True
    )
    canary: float | None = setting(
        None,
        or_none(partial(require_number, least=0, infinite=True)),
        reader=SAMPLES,
        may_change=True,
    )

    @property
    def engine(self) -> Literal["local", "vllm", "servers"]:
        """What samples: the trained model itself, a vLLM engine in this process, or vLLM
        servers."""
        if self.serve_samplers is not None or self.sampler not in ("local", "vllm"):
            return "servers"
        return "local" if self.sampler == "local" else "vllm"

    @staticmethod
    def require(config: ResolvedConfig) -> None:
        """Refuse two samplers, and one that sleeps while it has to sample.

        Args:
            config: all settings of the run.

        Raises:
            UsageError: two contradict each other.
        """
        if config.serve_samplers is not None and config.sampler != "local":
            raise UsageError(
                f"sampler is {config.sampler!r} and serve_samplers {config.serve_samplers}: these "
                "are two ways to say what samples; leave one out"
            )
        if config.sampler_sleep and config.max_staleness:
            raise UsageError(
                "sampler_sleep frees the engine's memory during the update, and with max_staleness "
                "it samples then; leave one out"
            )
