"""`rlvr serve`: scores over HTTP.

Modules that need uvicorn are imported when the command runs: `rlvr --help` loads none of them.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional, arg

from rlvr.cli.arguments import MemoryMib, NameValues, WallSeconds, options_of
from rlvr.environment import Environment
from rlvr.environment.registry import defaults_of, make
from rlvr.errors import UsageError
from rlvr.http import serve
from rlvr.http.serve import ServiceLimits
from rlvr.scoring import MEMORY_MIB, WALL_S
from rlvr.validate import require_processes
from rlvr.workers import usable_cores

if TYPE_CHECKING:
    from rlvr.http.serve.rewards import ServableModel

__all__ = ["ServeCommand", "served_environments"]


@dataclass
class ServeCommand:
    """Score over HTTP until SIGTERM, SIGHUP or Ctrl-C; requests under way are then finished first.

    Example: rlvr serve gsm8k-v4 math-v4 --port 8000

    If the variable RLVR_API_KEY is set, or --keys names a file, every caller must send a key.  See
    docs/using/serving.md.
    """

    env: Annotated[
        Positional[tuple[str, ...]],
        arg(metavar="ENV", help_behavior_hint="(at least one, or a reward model)"),
    ] = ()
    """The environments: their ids, or path/to/file.py:Class."""
    reward_model: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Serve this reward model too, or alone: RUN/model of `rlvr train --algorithm reward_model`, or
    of `process_reward_model` for `--step-reward http://…`.  It is computed in the service's own
    process."""
    device: str = "auto"
    """Device of the reward model, such as cpu or cuda.  auto: a GPU if there is one."""
    host: str = "127.0.0.1"
    """Address to listen on; an address that other machines can reach requires RLVR_API_KEY."""
    port: int = 8000
    """Port to listen on; 0 takes a free port and prints it."""
    without_key: bool = False
    """Listen without an API key, even on an address that other machines can reach."""
    keys: str | None = None
    """File with a name and a key in each line; read again when it changes,
    so that keys can be revoked."""
    audit_log: Annotated[Path | None, arg(metavar="FILE")] = None
    """Add a line of JSON for each request to this file: caller, path, rows, outcomes, status, ms,
    identity; no key and no text.  At 64 MiB it becomes FILE.1."""
    processes: int = 1
    """Number of processes that share the port; each has its own workers,
    limits and answers for repeated requests."""
    workers: int | None = None
    """Number of worker processes of each environment in each process; by default one per core and
    one more, since no request ever occupies the last one."""
    option: NameValues = ()
    """Set an option of each environment that has it; may be repeated."""
    wall_s: WallSeconds = WALL_S
    memory_mib: MemoryMib = MEMORY_MIB
    limits: OmitArgPrefixes[Annotated[ServiceLimits, arg(name="")]] = field(
        default_factory=ServiceLimits
    )

    def run(self, out: Console, err: Console) -> int:
        require_processes("processes", self.processes, 1)
        key = _taken_from_environment("RLVR_API_KEY")
        has_key = key is not None or self.keys is not None
        envs = served_environments(self.env, self.option)
        workers = (
            self.workers
            if self.workers is not None
            else max(1, usable_cores() // self.processes) + 1
        )

        def make() -> serve.Service:
            return serve.Service(
                envs,
                workers=workers,
                wall_s=self.wall_s,
                memory_mib=self.memory_mib,
                limits=self.limits,
                api_key=key,
                keys_file=None if self.keys is None else Path(self.keys),
                audit_log=self.audit_log,
                reward_model=None
                if self.reward_model is None
                else _reward_model(self.reward_model, self.device),
            )

        if self.reward_model is not None:
            # refuses another folder
            import_module("rlvr.train.reward_model").version_of(self.reward_model)
        if self.processes == 1:
            service = make()  # its errors come before those of the address
        with serve.listen(
            self.host, self.port, beyond_this_machine=has_key or self.without_key
        ) as listening:
            host, port = listening.getsockname()[:2]
            where = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            needs = "its API key" if has_key else "no API key"

            def say_ready() -> None:
                served = [
                    *envs,
                    *(
                        []
                        if self.reward_model is None
                        else [f"the reward model {self.reward_model}"]
                    ),
                ]
                names = ", ".join(served)
                line = f"serving {names} on {where}, which wants {needs}; {where}/docs says how"
                out.print(line, soft_wrap=True)

            if self.processes == 1:
                serve.run(service, listening, on_ready=say_ready)
            else:
                serve.serve_in_processes(make, listening, self.processes, on_ready=say_ready)
        out.print("stopped")
        return 0


def _reward_model(folder: Path, device: str) -> ServableModel:
    """The model, loaded.

    Raises:
        UsageError: it is no reward model, or there is no such device.
        MissingDependency: the extra `train` is not installed.
    """
    reads = import_module("rlvr.train.reward_head").reads_of(folder) or "completions"
    model: ServableModel = import_module("rlvr.train.reward_model").RewardModel.load(
        folder, reads=reads, device=import_module("rlvr.train.setup").device_of(device)
    )
    return model


def _taken_from_environment(name: str) -> str | None:
    """The value of a variable, which no process that is started later will find: workers run code
    of others.

    Nor does it stay in /proc/PID/environ, which is the memory that the process was started with.

    Raises:
        UsageError: it is blank.
    """
    value = os.environ.get(name)
    if value is None:
        return None
    if not value.strip():
        raise UsageError(f"{name} is blank; set it to a key, or unset it to serve without one")
    _overwrite(name)
    del os.environ[name]
    return value.strip()


def _overwrite(name: str) -> None:
    """Blank out a variable where it stands in memory, where the platform lets us find it."""
    with suppress(AttributeError, OSError, ValueError):
        pointers = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
        start = f"{name}=".encode()
        for place in itertools.takewhile(bool, (pointers[i] for i in itertools.count())):
            text = ctypes.string_at(place)
            if text.startswith(start):
                ctypes.memset(place + len(start), ord("*"), len(text) - len(start))


def served_environments(names: Sequence[str], given: Sequence[str]) -> dict[str, Environment]:
    """The environments by name, each with those of the NAME=VALUE pairs that are options of its
    own.

    Args:
        names: ids or places, as `rlvr.make` takes them.
        given: see `options_of`.

    Raises:
        UsageError: a name twice, or an option that none of them has.
    """
    by_name: dict[str, Environment] = {}
    used: set[str] = set()
    for name in names:
        if name in by_name:
            raise UsageError(f"{name} is there twice; name each environment once")
        defaults = defaults_of(name)
        own_pairs = [
            pair for pair in given if pair.partition("=")[0] in defaults or "=" not in pair
        ]
        used.update(own_pairs)
        by_name[name] = make(name, **options_of(defaults, own_pairs))
    for pair in given:
        if pair not in used:
            raise UsageError(
                f"--option {pair}: none of {', '.join(by_name)} has such an option; `rlvr envs` "
                f"lists them"
            )
    return by_name
