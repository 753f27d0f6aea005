"""A recipe: a paper's settings for any environment, where each is from, and
where ours differ and why.

The map of `rlvr.recipes`, whose folders are a recipe each:

recipe             `Recipe`, `RecipeSetting`, `load_recipe`; this file
flags              a recipe's settings and environments as flags
common             training by a recipe, and the report at its end
plan, jobs         what a size takes on its devices; files that start it on a cluster
tiny_sizes, tiny_models  size tiny: tasks for a laptop's cores, and models made for them
others             `run.py` has a recipe's `RECIPE`, or a demonstration's `main`; README.md says why

Contract: `RECIPE`, a `Recipe`, in `run.py` of a folder; or a `.toml` or `.py` of your own.
Sees all rooms; `cli` finds recipes by name.
Goes wrong: a number without its source, or one that differs from the paper's without a reason.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tyro import MISSING

from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.numbers import changed as with_numbers
from rlvr.algo.papers.numbers import paper_numbers
from rlvr.environment.registry import object_at
from rlvr.errors import UsageError
from rlvr.recipes.flags import Flags
from rlvr.train.config import Config
from rlvr.validate import nearest, require_one_of

__all__ = [
    "Machine",
    "ON_ONE_DEVICE",
    "Recipe",
    "RecipeSetting",
    "SIZES",
    "changed_setting",
    "load_recipe",
    "ours",
    "published",
]

SIZES = ("paper", "small", "tiny")
"""As published; one GPU of 24 to 80 GB; the cores of a laptop, minutes."""

_WITH_THE_BATCH = ("prompts", "group_size", "updates", "max_tokens")
"""What `warmup_steps`, which counts updates, and the rest of a batch's numbers belong to."""


@dataclass(frozen=True)
class RecipeSetting:
    """One setting of a recipe.

    Attributes:
        value: as it is here.
        source: section, equation or script that has it; "" where the paper says nothing.
        theirs: what is published, where it is not `value`; None otherwise.
        why: why ours differs, or was chosen.
    """

    value: Any
    source: str = ""
    theirs: object = None
    why: str = ""

    def __post_init__(self) -> None:
        if not self.source and not self.why:
            raise UsageError(
                f"the value {self.value!r} has neither source nor reason; give the section that "
                f"has it, or say why"
            )
        if self.theirs is not None and not self.why:
            raise UsageError(
                f"the value is {self.value!r}, and {self.source} has {self.theirs!r}; say why"
            )


def published(value: object, source: str) -> RecipeSetting:
    """A setting as it is published.

    Args:
        value, source: see `RecipeSetting`.
    """
    return RecipeSetting(value, source)


def changed_setting(value: object, theirs: object, source: str, why: str) -> RecipeSetting:
    """A setting that differs from the published one.

    Args:
        value, theirs, source, why: see `RecipeSetting`.
    """
    return RecipeSetting(value, source, theirs, why)


def ours(value: object, why: str) -> RecipeSetting:
    """A setting on which the paper says nothing.

    Args:
        value, why: see `RecipeSetting`.
    """
    return RecipeSetting(value, why=why)


ON_ONE_DEVICE: Final = {
    "precision": ours("bf16", "for one device"),
    "gradient_checkpointing": ours(True, "for one device"),
}
"""Settings with which a larger model fits."""


@dataclass(frozen=True)
class Machine:
    """What a size is meant for.

    Attributes:
        model: its id on the hub, the policy where no `--model` is given.
        trainers: devices that train, 8 a node.
        samplers: devices with a vLLM server each; 0 where the trainer samples by itself.
        device_gib: memory of a device.
    """

    model: str
    trainers: int = 1
    samplers: int = 0
    device_gib: float = 80.0


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A paper's run: settings for any environment, and the task on which it runs by itself.

    Attributes:
        about: what it trains, in a line.
        paper: where it is from.
        env: the default task, an environment's id.
        data: that task's own data; None where it makes its tasks.  Another environment keeps its
            own.
        settings: by name of the run's settings or of the algorithm's numbers.
        reward: an expression over the environment's reward, as of `--reward`; None leaves it.
        sizes: what "small" and "tiny" change: settings, "env", "reward", "option".
        machines: by size, the model and the devices that "paper" and "small" are meant for.
        notes: deviations that are no setting, a line each.

    Raises:
        UsageError: a name is no setting, or a size changes the batch without what belongs to it.
    """

    about: str
    paper: str
    env: str
    settings: Mapping[str, RecipeSetting]
    data: str | None = None
    reward: str | None = None
    sizes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    machines: Mapping[str, Machine] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "algorithm" not in self.settings:
            raise UsageError("the recipe has no setting 'algorithm'; name the one of its paper")
        names = {*_FIELDS, *paper_numbers(type(load_algorithm(self.settings["algorithm"].value)))}
        for size in self.machines:
            require_one_of("size", size, SIZES)
        for size, changes in self.sizes.items():
            require_one_of("size", size, SIZES)
            # With another number of updates in a step, a warm-up that
            # counts updates would take another share of the run.
            if set(_WITH_THE_BATCH) & set(changes) and not self._has_warmup(changes):
                raise UsageError(
                    f"size {size!r} changes the batch and not warmup_steps, which counts updates"
                )
        for name in {*self.settings, *(name for size in self.sizes.values() for name in size)}:
            if name not in {*names, *_OF_FLAGS}:
                raise UsageError(f"a recipe has no setting {name!r}{nearest(name, sorted(names))}")

    def _has_warmup(self, changes: Mapping[str, object]) -> bool:
        return "warmup_steps" not in self.settings or "warmup_steps" in changes

    def flags(self, size: str = "paper", run: Path | None = None) -> Flags:
        """The recipe's settings at a size, which flags then change.

        Args:
            size: one of `SIZES`.
            run: folder of the run; None for `runs/` and the algorithm's name.

        Raises:
            UsageError: the recipe has no such size.
        """
        require_one_of("--size", size, ["paper", *self.sizes])
        values = {name: setting.value for name, setting in self.settings.items()}
        values |= self.sizes.get(size, {})
        # A size may have a reward of its own, which stands.
        values.setdefault("reward", self.reward)
        of_flags = {name: values.pop(name) for name in _OF_FLAGS if name in values}
        option = of_flags.pop("option", ())
        algorithm = load_algorithm(values.pop("algorithm"))
        numbers_of_algorithm = {
            name: values.pop(name) for name in list(values) if name not in _FIELDS
        }
        values.setdefault("run", run or Path("runs") / algorithm.name)
        machine = self.machines.get(size)
        # tyro asks for a flag whose default is MISSING.
        model = MISSING if machine is None else machine.model
        values = {"env": self.env, "model": model} | values
        config = Config(
            **values,
            algorithm=with_numbers(algorithm, numbers_of_algorithm)
            if numbers_of_algorithm
            else algorithm.name,
        )
        return Flags(
            own_task=(self.env, self.data),
            own_option=(config.env, tuple(option)),
            config=config,
            **of_flags,
        )


_FIELDS = frozenset(one.name for one in dataclasses.fields(Config))
_OF_FLAGS = ("reward", "option", "cold_start", "cold_steps", "cold_prompts", "cold_lr")
"""Settings of a recipe beside those of the run, see `Flags`."""


def load_recipe(path: Path) -> Recipe:
    """A recipe of a user: a Python file with `RECIPE`, or TOML.

    TOML has `about`, `paper`, `env`, optional `data` and `reward`, a table `settings` with `name =
    {value = …, source = "…"}` (or `why`, `theirs`), and tables `sizes.small` and `sizes.tiny`.

    Args:
        path: of the file.

    Raises:
        UsageError: there is no such file, or it holds no recipe.
    """
    if not path.is_file():
        raise UsageError(
            f"there is no file {str(path)!r}; a recipe is a .py with RECIPE, or a .toml"
        )
    if path.suffix == ".py":
        recipe = object_at(f"{path}:RECIPE", what="recipe")
        if not isinstance(recipe, Recipe):
            raise UsageError(f"{path} has no RECIPE; it must be an rlvr.recipes.recipe.Recipe")
        return recipe
    try:
        table = tomllib.loads(path.read_text("utf-8"))
        settings = {
            name: RecipeSetting(**setting) for name, setting in table.pop("settings", {}).items()
        }
        return Recipe(**table, settings=settings)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError) as error:
        raise UsageError(f"{path} is no recipe: {error}") from None
