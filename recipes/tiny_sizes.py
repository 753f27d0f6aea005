"""Size tiny of the recipes: small tasks for a laptop's cores, and the
models that are made for them.

A model is taught its task with mistakes and kept in a folder: it is right now and then, so that
training has something to improve.  Needs no torch until a model is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Final

from rlvr.errors import UsageError

__all__ = [
    "COLD",
    "DRILLS",
    "PRODUCTS",
    "SEARCH",
    "SUMS",
    "TEACHER",
    "make_tiny",
    "require_tiny_task",
]

_SUMS: Final = "runs/tiny-sums/model"
TEACHER: Final = "runs/tiny-sums/teacher"
_UNTAUGHT: Final = "runs/tiny-sums/untaught"
_TEXTS: Final = "runs/tiny-sums/texts.jsonl"
_DRILLS: Final = "runs/tiny-drills/model"
_SEARCH: Final = "runs/tiny-search/model"
_PRODUCTS: Final = "runs/tiny-products/model"

_LAPTOP: Final[Mapping[str, object]] = {
    "updates": None,
    "group_size": 8,
    "lr": 3e-4,
    "warmup_steps": 4,
    "precision": "fp32",
    "gradient_checkpointing": False,
    "eval_n": 1,
    "eval_temperature": 1.0,
    "eval_top_p": 1.0,
    "stage": (),
    "chat": "auto",
    "workers": 1,
}

SUMS: Final[dict[str, object]] = {
    **_LAPTOP,
    "env": "rlvr.recipes.arithmetic_cpu.sums:Sums",
    "model": _SUMS,
    "prompts": 32,
    "max_tokens": 48,
    "steps": 60,
    "eval_every": 20,
    "eval_tasks": 300,
}
"""Sums of two numbers, by a model that gets a quarter of them right."""

COLD: Final[dict[str, object]] = {
    **SUMS,
    "model": _UNTAUGHT,
    "cold_start": Path(_TEXTS),
    "cold_steps": 600,
    "cold_prompts": 64,
    "cold_lr": 2e-3,
}
"""The same by a model that was taught nothing, and texts to teach it."""

DRILLS: Final[dict[str, object]] = {
    **_LAPTOP,
    "env": "code-drills-v1",
    "option": ("shown=0", "instruction="),
    "model": _DRILLS,
    "prompts": 16,
    "max_tokens": 80,
    "steps": 24,
    "eval_every": 12,
    "eval_tasks": 128,
}
"""Functions of one line, by a model that was shown another function half of the time."""

SEARCH: Final[dict[str, object]] = {
    **_LAPTOP,
    "env": "rlvr.recipes.search_qa.facts:Ages",
    "model": _SEARCH,
    "prompts": 16,
    "max_tokens": 32,
    "steps": 30,
    "eval_every": 10,
    "eval_tasks": 64,
}
"""The age of a person, by a model that was shown half of the time how to search for it."""

PRODUCTS: Final[dict[str, object]] = {
    **SEARCH,
    "env": "rlvr.recipes.python_tool_math.products:Products",
    "model": _PRODUCTS,
    "max_tokens": 40,
}
"""Products, by a model that was shown half of the time how to let Python multiply."""

_MAKERS: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    _SUMS: ("sums", {}),
    TEACHER: ("sums", {"noise": 0.0}),
    # One step, since OneCycleLR refuses 0; its 64 answers teach next to nothing.
    _UNTAUGHT: ("sums", {"warm_steps": 1}),
    _DRILLS: ("drills", {}),
    _SEARCH: ("search_model", {}),
    _PRODUCTS: ("products", {}),
}
"""What makes the model of a place: a function of `tiny_models`, and its arguments."""
_TASKS: Final = {size["model"]: size["env"] for size in (SUMS, COLD, DRILLS, SEARCH, PRODUCTS)}


def require_tiny_task(model: str, env: str) -> None:
    """Refuse a made model on another task than its own: it reads no other text.

    Args:
        model: of the run.
        env: of the run.

    Raises:
        UsageError: the model is one that is made here, for another task.
    """
    if env != _TASKS.get(model, env):
        raise UsageError(
            f"the model that --size tiny makes knows {_TASKS[model]} alone, and --env is {env!r}; "
            "give a --model"
        )


def make_tiny(place: str | None, say: Callable[[str], None]) -> None:
    """Make what these sizes have at a place, unless it is there already; other places are left
    alone.

    Args:
        place: of a model, or of a file of texts.
        say: prints that it is made.
    """
    if place not in (*_MAKERS, _TEXTS) or Path(place).exists():
        return
    say(f"making {place}, which is kept")
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    if place == _TEXTS:
        _write_sums(Path(place))
        return
    name, arguments = _MAKERS[place]
    # By name and not at the head of the file: `tiny_models`
    # loads torch, which these sizes do without.
    getattr(import_module("rlvr.recipes.tiny_models"), name)(**arguments).save(Path(place))


def _write_sums(path: Path) -> None:
    """Sums that are worked out with mistakes."""
    from rlvr.recipes.arithmetic_cpu.run import worked
    from rlvr.recipes.arithmetic_cpu.sums import Sums

    rng, env = Random(0), Sums()
    prompts = [str(env.task(index).prompt) for index in range(20_000)]
    # 0.25 is the noise of the demonstration's own warm start.
    rows = [{"prompt": prompt, "completion": worked(prompt, rng, 0.25)} for prompt in prompts]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
