"""Rooms of rlvr whose modules need an extra: importing one without it raises `MissingDependency`.

`rlvr/__init__.py` calls `explain_missing()`.  An import hook, and not a `try` in each of the sixty
modules: `from rlvr.train.loop import Trainer` in a plain install then ends with the command that
installs torch, and no new module can forget it.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from rlvr.errors import MissingDependency

__all__ = ["EXTRA_OF", "explain_missing"]

EXTRA_OF = {
    "rlvr.agents": "serve",
    "rlvr.algo": "train",
    "rlvr.collect": "train",
    "rlvr.http": "serve",
    "rlvr.recipes": "train",
    "rlvr.samplers": "train",
    "rlvr.samplers.endpoint": "endpoint",
    "rlvr.samplers.vllm": "vllm",
    "rlvr.samplers.vllm_lora": "vllm",
    "rlvr.train": "train",
    "rlvr.viewer": "view",
}
"""Package or module → the extra with what its modules import; of several
the longest name counts."""


def explain_missing() -> None:
    """Install the hook, once: before Python's own finder, behind those of others such as pytest."""
    if not any(isinstance(finder, _Rooms) for finder in sys.meta_path):
        at = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
        sys.meta_path.insert(at, _Rooms())


def _extra_of(module: str) -> str | None:
    """The extra of the longest name in `EXTRA_OF` that is the module's or a package's around it."""
    while module:
        if module in EXTRA_OF:
            return EXTRA_OF[module]
        module = module.rpartition(".")[0]
    return None


class _Rooms:
    """A finder that finds what Python's does, and explains packages that
    are missing while it loads."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        extra = _extra_of(name) if name.startswith("rlvr.") else None
        if extra is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            try:
                load(module)
            except ModuleNotFoundError as error:
                package = (error.name or "").partition(".")[0]
                if package in ("", "rlvr"):
                    raise
                raise MissingDependency(package, extra) from None

        # On the loader that was found: it may be of another class, such as one that checks types.
        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
