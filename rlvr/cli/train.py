"""`rlvr train`: trains a policy, with settings of its own or of a recipe.

Modules that need torch are imported when the command runs: `rlvr --help` loads none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, arg

from rlvr.cli.arguments import NameValues, SandboxLevel, options_of, with_level
from rlvr.environment.registry import defaults_of
from rlvr.errors import UsageError, import_optional
from rlvr.train.config import Config
from rlvr.validate import nearest

__all__ = ["RECIPES", "RecipeCommand", "TrainCommand", "recipe_command"]

RECIPES = ("arithmetic_cpu", "code_grpo", "math_dapo", "math_grpo", "math_prorl")
"""Folders of `rlvr.recipes` whose `run` has `DEFAULTS`, a dataclass of flags, and `main`, which takes them."""


@dataclass
class TrainCommand:
    """Train a policy on an environment.  The same command continues a run that was stopped.

    Example: rlvr train --env gsm8k-v2 --model Qwen/Qwen3-0.6B --run runs/a --algorithm dapo --max-tokens 1024

    `rlvr train NAME …` starts from the settings of a recipe, such as those of a paper; `rlvr train NAME --help` shows
    them.  The recipes are arithmetic_cpu, code_grpo, math_dapo, math_grpo and math_prorl.
    """

    config: OmitArgPrefixes[Annotated[Config, arg(name="")]]
    option: NameValues = ()
    """Set an option of the environment; may be repeated."""
    sandbox: SandboxLevel = None
    eval_option: NameValues = ()
    """Set an option of the environment for evaluation alone, such as data=test.jsonl; may be repeated."""

    def run(self, out: Console, err: Console) -> int:
        if self.config.run.is_file():
            raise UsageError(f"{self.config.run} is a file; give --run a folder")
        loop = import_optional("rlvr.train.loop", "train")  # what is missing is said before anything else
        defaults = defaults_of(self.config.env) if self.config.env else {}
        options = options_of(defaults, with_level(self.option, self.sandbox, self.config.env))
        others = options_of(defaults, self.eval_option, flag="--eval-option")
        config = replace(self.config, env_options=options, eval_options=others)
        offline = import_optional("rlvr.train.offline", "train")
        kind = loop.Trainer if config.pairs is None else offline.OfflineTrainer
        with kind(config, console=err) as trainer:
            trainer.run()
            finished = trainer.step == config.steps
            for step, report in sorted(trainer.reports.items()):
                out.print(f"step {step}: " + ", ".join(f"{name} {it}" for name, it in report.metrics.items()))
        out.print(f"{trainer.step} steps; all files of the run are in {escape(str(config.run))}", soft_wrap=True)
        return 0 if finished else 130


@dataclass
class RecipeCommand:
    """A recipe with the settings that its flags gave.

    Attributes:
        main: runs the recipe; gives its exit code, None for 0.
        flags: what `main` takes.
    """

    main: Callable[[Any], int | None]
    flags: Any

    def run(self, out: Console, err: Console) -> int:
        return self.main(self.flags) or 0


def recipe_command(name: str, argv: Sequence[str]) -> RecipeCommand:
    """The command for a recipe.

    Args:
        name: one of `RECIPES`.
        argv: flags that change its settings.

    Raises:
        UsageError: there is no such recipe.
        MissingDependency: the extra `train` is not installed.
    """
    if name not in RECIPES:
        raise UsageError(f"there is no recipe {name!r}{nearest(name, RECIPES)} (there are {', '.join(RECIPES)})")
    module = import_optional(f"rlvr.recipes.{name}.run", "train")
    flags = tyro.cli(
        type(module.DEFAULTS),
        default=module.DEFAULTS,
        args=argv,
        prog=f"rlvr train {name}",
        description=module.__doc__,
        config=(FlagCreatePairsOff,),
    )
    return RecipeCommand(module.main, flags)
