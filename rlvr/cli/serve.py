"""The command that answers over HTTP: serve.

What needs FastAPI is imported when it runs: `rlvr --help` loads none of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from rich.console import Console
from rich.markup import escape
from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction, arg

from rlvr import serve
from rlvr.cli.train import options_of
from rlvr.environment import Environment
from rlvr.environment.registry import load, make
from rlvr.errors import UsageError
from rlvr.scoring import MEMORY_MIB, WALL_S
from rlvr.serve import Limits

__all__ = ["Serve", "environments"]


@dataclass
class Serve:
    """Score over HTTP, until SIGTERM or Ctrl-C; then what is under way is finished first.

    Example: rlvr serve gsm8k-v1 math-v1 --port 8000

    With RLVR_API_KEY in its environment it asks every caller for that key.  docs/using/serving.md has the details.
    """

    env: Annotated[Positional[tuple[str, ...]], arg(metavar="ENV")]
    """Ids of environments, or where their classes stand: path/to/file.py:Class."""
    host: str = "127.0.0.1"
    """Address to listen on; one that other machines can reach needs RLVR_API_KEY."""
    port: int = 8000
    """Port to listen on; 0 takes a free one and says which."""
    without_key: bool = False
    """Whoever can reach the address may use it, and there is no key."""
    workers: int | None = None
    """Worker processes of each environment; one per core unless given."""
    option: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """An option, NAME=VALUE, for each of the environments that has it; may be repeated."""
    wall_s: float = WALL_S
    """Wall seconds after which a completion's worker is killed and it counts as UNSCORED."""
    memory_mib: int = MEMORY_MIB
    """Limit on each worker's memory."""
    limits: OmitArgPrefixes[Annotated[Limits, arg(name="")]] = field(default_factory=Limits)

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
                f"serving {escape(', '.join(service.desks))} on {where}, which wants {needs}; {where}/docs says how",
                soft_wrap=True,
                highlight=False,
            )
            serve.run(service, listening)
        out.print("stopped")
        return 0


def environments(names: Sequence[str], given: Sequence[str]) -> dict[str, Environment]:
    """The environments by name, each with those of the NAME=VALUE pairs that are options of its own.

    Raises:
        UsageError: a name twice, or an option that none of them has.
    """
    made: dict[str, Environment] = {}
    used: set[str] = set()
    for name in names:
        if name in made:
            raise UsageError(f"{name} is there twice; name each environment once")
        cls = load(name)
        own = [pair for pair in given if pair.partition("=")[0] in cls.options() or "=" not in pair]
        used.update(own)
        made[name] = make(name, **options_of(cls, own))
    for pair in given:
        if pair not in used:
            raise UsageError(f"--option {pair}: none of {', '.join(made)} has such an option; `rlvr envs` lists them")
    return made
