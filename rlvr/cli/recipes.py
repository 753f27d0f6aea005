"""`rlvr recipes`: lists the recipes, and says of each setting of one where it is from."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.table import Column, Table
from tyro.conf import Positional, arg

from rlvr.errors import UsageError
from rlvr.validate import nearest

if TYPE_CHECKING:
    from rlvr.recipes.recipe import Recipe

__all__ = ["RECIPES", "RecipesCommand", "markdown_table", "recipe_named", "recipe_table"]

RECIPES = (
    "arithmetic_cpu",
    "code_grpo",
    "desk",
    "distill",
    "dr_grpo",
    "magistral",
    "math_dapo",
    "math_grpo",
    "math_prorl",
    "python_tool_math",
    "r1_zero",
    "reasoning_sft",
    "search_qa",
    "smol_sums",
    "swe_lite",
    "vineppo",
)
"""Folders of `rlvr.recipes`: their `run` has `RECIPE`; that of `_DEMO` has `DEFAULTS` and `main`,
which takes them."""

_DEMO = "arithmetic_cpu"
_DEMO_SAYS = "A tiny model made on the spot learns to add by DAPO, in two minutes on a CPU."


@dataclass
class RecipesCommand:
    """List the recipes of `rlvr train NAME`, or show where each setting of one is from.

    Example: rlvr recipes math_dapo
    """

    name: Positional[Annotated[str | None, arg(metavar="NAME")]] = None
    """A recipe, or a file of one's own: a .py with RECIPE, or a .toml."""

    def run(self, out: Console, err: Console) -> int:
        if self.name is None:
            out.print(_overview())
            return 0
        recipe = recipe_named(self.name)
        if recipe is None:
            out.print(f"{self.name}: {_DEMO_SAYS}  It repeats no paper; see its --help.")
            return 0
        out.print(f"{recipe.about}\n{recipe.paper}", soft_wrap=True)
        out.print(recipe_table(recipe))
        for note in recipe.notes:
            out.print(f"- {note}", soft_wrap=True)
        for size in sorted(recipe.sizes):
            changes = ", ".join(f"{name}={value}" for name, value in recipe.sizes[size].items())
            out.print(f"--size {size}: {changes}", soft_wrap=True)
        return 0


def recipe_named(name: str) -> Recipe | None:
    """A recipe by its name or file; None for `arithmetic_cpu`, which makes its own model and has
    settings of its own.

    Args:
        name: see `RecipesCommand.name`.

    Raises:
        UsageError: there is none.
    """
    if name.endswith((".py", ".toml")):
        user_recipe: Recipe = import_module("rlvr.recipes.recipe").load_recipe(Path(name))
        return user_recipe
    if name not in RECIPES:
        raise UsageError(
            f"there is no recipe {name!r}{nearest(name, RECIPES)} (there are {', '.join(RECIPES)}; "
            "your own is a file.py or file.toml)"
        )
    if name == _DEMO:
        return None
    bundled_recipe: Recipe = import_module(f"rlvr.recipes.{name}.run").RECIPE
    return bundled_recipe


def recipe_table(recipe: Recipe) -> Table:
    """Its settings: value, what the paper has, where, and why ours differ.

    Args:
        recipe: to show.
    """
    table = Table(Column("setting", no_wrap=True), "here", "paper", "from", "why")
    for name, setting in recipe.settings.items():
        paper_value: object = (
            setting.value if setting.source and setting.theirs is None else setting.theirs
        )
        table.add_row(
            name,
            _text(setting.value),
            "" if paper_value is None else str(paper_value),
            setting.source,
            setting.why,
        )
    return table


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _overview() -> Table:
    """All recipes, with paper, task and sizes."""
    table = Table(Column("recipe", no_wrap=True), "what", "paper", "task", "sizes")
    for name in RECIPES:
        recipe = recipe_named(name)
        if recipe is None:
            table.add_row(name, _DEMO_SAYS, "", "its own", "")
        else:
            sizes = ", ".join(["paper", *recipe.sizes])
            table.add_row(name, recipe.about, recipe.paper, recipe.env, sizes)
    return table


def markdown_table(recipe: Recipe) -> str:
    """The table of `recipe_table` and the notes, in Markdown: a recipe's page holds them.

    Args:
        recipe: to show.
    """
    lines = ["| setting | here | paper | from, or why |", "|---|---|---|---|"]
    for name, setting in recipe.settings.items():
        paper_value = (
            "the same" if setting.source and setting.theirs is None else setting.theirs or "–"
        )
        says = "; ".join(text for text in (setting.source, setting.why) if text)
        lines.append(f"| `{name}` | {_text(setting.value)} | {paper_value} | {says} |")
    return "\n".join([*lines, "", *(f"- {note}" for note in recipe.notes)])
