"""`rlvr serve`: scores over HTTP.

Modules that need FastAPI are imported when the command runs: `rlvr --help` loads none of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from rich.console import Console
from rich.markup import escape
from tyro.conf import OmitArgPrefixes, Positional, arg

from rlvr import serve
from rlvr.cli.arguments import MemoryMib, NameValues, WallSeconds, options_of
from rlvr.environment import Environment
from rlvr.environment.registry import defaults_of, make
from rlvr.errors import UsageError
from rlvr.scoring import MEMORY_MIB, WALL_S
from rlvr.serve import ServiceLimits

__all__ = ["ServeCommand", "environments"]


@dataclass
class ServeCommand:
    """Score over HTTP until SIGTERM or Ctrl-C; requests under way are then finished first.

    Example: rlvr serve gsm8k-v2 math-v2 --port 8000

    If the variable RLVR_API_KEY is set, every caller must send that key.  See docs/using/serving.md.
    """

    env: Annotated[Positional[tuple[str, ...]], arg(metavar="ENV", help_behavior_hint="(at least one)")]
    """The environments: their ids, or path/to/file.py:Class."""
    host: str = "127.0.0.1"
    """Address to listen on; an address that other machines can reach requires RLVR_API_KEY."""
    port: int = 8000
    """Port to listen on; 0 takes a free port and prints it."""
    without_key: bool = False
    """Listen without an API key, even on an address that other machines can reach."""
    workers: int | None = None
    """Number of worker processes of each environment; by default one per core."""
    option: NameValues = ()
    """Set an option of each environment that has it; may be repeated."""
    wall_s: WallSeconds = WALL_S
    memory_mib: MemoryMib = MEMORY_MIB
    limits: OmitArgPrefixes[Annotated[ServiceLimits, arg(name="")]] = field(default_factory=ServiceLimits)

    def run(self, out: Console, err: Console) -> int:
        key = os.environ.get("RLVR_API_KEY", "").strip() or None
        service = serve.Service(
            environments(self.env, self.option),
            workers=self.workers,
            wall_s=self.wall_s,
            memory_mib=self.memory_mib,
            limits=self.limits,
            api_key=key,
        )
        with serve.listen(self.host, self.port, beyond_this_machine=bool(key) or self.without_key) as listening:
            host, port = listening.getsockname()[:2]
            where = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            service.warm()
            needs = "its API key" if key else "no API key"
            out.print(
                f"serving {escape(', '.join(service.queues))} on {where}, which wants {needs}; {where}/docs says how",
                soft_wrap=True,
                highlight=False,
            )
            serve.run(service, listening)
        out.print("stopped")
        return 0


def environments(names: Sequence[str], given: Sequence[str]) -> dict[str, Environment]:
    """The environments by name, each with those of the NAME=VALUE pairs that are options of its own.

    Args:
        names: ids or places, as `rlvr.make` takes them.
        given: see `options_of`.

    Raises:
        UsageError: a name twice, or an option that none of them has.
    """
    made: dict[str, Environment] = {}
    used: set[str] = set()
    for name in names:
        if name in made:
            raise UsageError(f"{name} is there twice; name each environment once")
        defaults = defaults_of(name)
        own = [pair for pair in given if pair.partition("=")[0] in defaults or "=" not in pair]
        used.update(own)
        made[name] = make(name, **options_of(defaults, own))
    for pair in given:
        if pair not in used:
            raise UsageError(f"--option {pair}: none of {', '.join(made)} has such an option; `rlvr envs` lists them")
    return made
