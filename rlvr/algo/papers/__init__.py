"""Published algorithms, one file each: equations, numbers with sources, `advantages` and `loss`.
Needs no torch.

    load_algorithm("dapo")                           at the paper's numbers
    load_algorithm("dapo", clip_high=0.3)            with another one
    load_algorithm("mine.py:Mine")                   anybody's, from a file or a package

`rlvr algorithms` lists them.  A subclass of `PolicyGradient` or `Proximal` (see
`rlvr.algo.papers.base`) is a new one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

from rlvr.algo.papers.base import INPUTS, Algorithm
from rlvr.algo.papers.numbers import changed
from rlvr.errors import UsageError
from rlvr.validate import nearest, require_whole

__all__ = ["NAMES", "algorithm_class", "load_algorithm", "module_at", "papers_table"]

NAMES: Final = (
    "grpo dapo prorl dr_grpo rloo reinforce_pp magistral vineppo gspo cispo sapo ppo ppo_kl trpo "
    "a2c reinforce dpo ipo kto reward_model process_reward_model rft grpo_process "
    "reinforce_pp_baseline ppo_completions slic gmpo opo kl_cov raft_pp maxrl gpg clip_cov pass_k "
    "dro dppo gdpo topr luspo vespo remax distill sft pointwise_reward_model gkd sdft prime rpg"
).split()
"""The published algorithms; each is the file of its name."""


@cache
def algorithm_class(name: str) -> type[Algorithm]:
    """The class of an algorithm.

    Args:
        name: one of `NAMES`; or FILE.py:CLASS, or PACKAGE.MODULE:CLASS.

    Raises:
        UsageError: there is none of this name, or the file or module has no such class.
    """
    if name in NAMES:
        return _class_in(importlib.import_module(f"rlvr.algo.papers.{name}"), name)
    place, colon, attribute = name.rpartition(":")
    if not (place and colon and attribute):
        raise UsageError(
            f"there is no algorithm {name!r}{nearest(name, NAMES)}; `rlvr algorithms` lists them, "
            "and FILE.py:CLASS or PACKAGE.MODULE:CLASS is one of your own"
        )
    module = module_at(place, f"the algorithm {name}")
    candidate = getattr(module, attribute, None)
    if candidate is None:
        classes = [
            attribute_name
            for attribute_name, value in vars(module).items()
            if _is_algorithm(value) and value.__module__ == module.__name__
        ]
        listed = ", ".join(classes) or "no algorithm"
        raise UsageError(
            f"{place} has no {attribute!r}; it has {listed}{nearest(attribute, classes)}"
        )
    if not _is_algorithm(candidate):
        raise UsageError(
            f"{name} is no algorithm; make it a dataclass that is a subclass of "
            "rlvr.algo.papers.base.PolicyGradient, Proximal or OfPairs"
        )
    # A subclass of a published one inherits its name,
    # which is allowed; only a name of its own must be new.
    if candidate.name in NAMES and "name" in vars(candidate):
        raise UsageError(
            f"{name} has the name {candidate.name!r}, which is that of a published algorithm; give "
            f"it another one"
        )
    _require_sound(candidate, name)
    candidate.spec, candidate.digest = name, _digest(module)
    kind: type[Algorithm] = candidate
    return kind


def _require_sound(kind: type[Algorithm], name: str) -> None:
    """Refuse a class of which a part would silently do nothing, or which cannot be made at its
    defaults."""
    annotated = [
        attribute_name
        for attribute_name, hint in vars(kind).get("__annotations__", {}).items()
        if "ClassVar" not in str(hint)
    ]
    # `vars`, not hasattr: a subclass that is no dataclass itself inherits its parent's fields.
    if annotated and "__dataclass_fields__" not in vars(kind):
        raise UsageError(
            f"{name} is no dataclass, so that {', '.join(annotated)} would be no number of it; put "
            "@dataclass(frozen=True, kw_only=True) before the class"
        )
    for field in dataclasses.fields(kind):
        # `algorithm_class(name)()` makes it without arguments.
        if field.default is field.default_factory is dataclasses.MISSING:
            raise UsageError(f"{field.name} of {name} has no default; give it the paper's number")
    for key in sorted(kind.reads):
        if key not in INPUTS:
            raise UsageError(
                f"{name} reads {key!r}, and nothing computes that{nearest(key, list(INPUTS))}; "
                f"inputs that have to be declared are {', '.join(INPUTS)}"
            )
    require_whole(f"updates of {name}", kind.updates, 1)


def load_algorithm(name: str, **numbers: object) -> Algorithm:
    """An algorithm at its published numbers, or with others.

    Args:
        name: see `algorithm_class`.
        numbers: by flat name, such as clip_high; see `rlvr.algo.papers.numbers.changed`.

    Raises:
        UsageError: there is none of this name, or it has no such number.
    """
    algorithm = algorithm_class(name)()
    return changed(algorithm, numbers) if numbers else algorithm


def _class_in(module: ModuleType, name: str) -> type[Algorithm]:
    # Exactly one class of this file has the file's
    # name; bases that it imports are of other modules.
    [kind] = [
        value
        for value in vars(module).values()
        if _is_algorithm(value) and value.__module__ == module.__name__ and value.name == name
    ]
    algorithm: type[Algorithm] = kind
    return algorithm


def _is_algorithm(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Algorithm) and value is not Algorithm


def module_at(place: str, asked: str) -> ModuleType:
    """A module from a file or a package.

    Args:
        place: FILE.py, or the name of a module.
        asked: what names it, such as a flag with its value.

    Raises:
        UsageError: there is none, or importing it raises.
    """
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        path = Path(place).resolve()
        if not path.is_file():
            raise UsageError(f"there is no file {place}, which {asked} names")
        # By the whole path, so that two files of one name do not replace each other in sys.modules.
        module_name = f"rlvr_file_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module  # where a dataclass looks for its annotations
        spec.loader.exec_module(module)
        return module
    # The user's code runs here, so anything may be raised; a message of our own stays as it is.
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{place}, of {asked}, cannot be imported: {type(error).__name__}: {error}"
        ) from error


def _digest(module: ModuleType) -> str:
    """Of the source: a run continues only with the same."""
    assert module.__file__ is not None
    return hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest()


def papers_table() -> str:
    """The published algorithms as a Markdown table, for docs/algorithms.md."""
    lines = ["| algorithm | equations | updates | mean over |"]
    lines.append("|---|---|---|---|")
    for name in NAMES:
        algorithm = load_algorithm(name)
        updates = f"{algorithm.updates}{'°' if algorithm.printed.updates is None else ''}"
        equations = f"{algorithm.paper}, {algorithm.equations}"
        lines.append(
            f"| `{name}`: {algorithm.title} | {equations} | {updates} | {_mean_over(algorithm)} |"
        )
    return "\n".join(lines) + "\n"


def _mean_over(made: Algorithm) -> str:
    if made.examples is not None:
        return made.examples
    if made.aggregation == "constant":
        return "sums" if made.length_tokens == 1 else "a constant length"
    return {"token_mean": "tokens", "sequence_mean": "completions"}[made.aggregation]
