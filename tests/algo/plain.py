"""Modules of rlvr.algo as users have them, for errors that the shape checks of our tests would see first."""

import importlib.util
import sys
from types import ModuleType

__all__ = ["unchecked"]


def unchecked(module: ModuleType) -> ModuleType:
    """A second copy of a module, loaded past the import hook of `--jaxtyping-packages`."""
    name = f"unchecked_{module.__name__.replace('.', '_')}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, module.__file__)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
