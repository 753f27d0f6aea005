"""`rlvr identity`: shows by what scores were or would be decided, or compares two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from rlvr.cli.arguments import NameValues, SandboxLevel, environment_of
from rlvr.errors import UsageError
from rlvr.scoring.identity import Identity, identity_differences, identity_of, read_identity
from rlvr.text import one_line

__all__ = ["IdentityCommand"]

_HELP = "An environment, or a file with scores that rlvr wrote; two are compared."


@dataclass
class IdentityCommand:
    """Show by what an environment or a file was scored: settings, code, inputs, data;
    or what differs between two.

    Example: rlvr identity scored.jsonl gsm8k-v4

    Exit code 1 if two differ.
    """

    what: Annotated[Positional[tuple[str, ...]], arg(metavar="ENV|OUT", help=_HELP)]
    option: NameValues = ()
    """Set an option of the environment; may be repeated."""
    sandbox: SandboxLevel = None

    def run(self, out: Console, err: Console) -> int:
        if len(self.what) not in (1, 2):
            raise UsageError("name one environment or file, or two to compare")
        identities = [self._identity(what) for what in self.what]
        lines = (
            _lines(identities[0])
            if len(identities) == 1
            else _differences(identities[1], identities[0])
        )
        count = 0
        for line in lines:
            count += 1
            out.print(one_line(line), soft_wrap=True, markup=False, highlight=False)
        if len(identities) == 1:
            return 0
        if not count:
            out.print("nothing that both have differs")
        return int(bool(count))

    def _identity(self, what: str) -> Identity:
        if not Path(what).is_file():
            return identity_of(environment_of(what, self.option, self.sandbox))
        identity = read_identity(Path(what))
        if identity is None:
            raise UsageError(
                f"{what} has no identity; `rlvr score` writes it beside its output: "
                f"{Path(what).name}.identity.json"
            )
        return identity


def _lines(identity: Identity) -> Iterator[str]:
    yield f"digest    {identity.digest}"
    for part in ("settings", "code", "inputs", "data"):
        for name, value in sorted(getattr(identity, part).items()):
            yield f"{part:<9} {name}  {value}"
    for line in identity.accepted:
        yield f"accepted  {line}"


def _differences(here: Identity, there: Identity) -> Iterator[str]:
    for part, text in identity_differences(here, there):
        yield f"{part:<9} {text}"
