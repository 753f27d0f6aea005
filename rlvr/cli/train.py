"""`rlvr train`: trains a policy, with settings from flags, from a file or of a recipe.

Modules that need torch are imported when the command runs: `rlvr --help` loads none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, get_type_hints

import tyro
from rich.console import Console
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, arg

from rlvr.algo.papers import load_algorithm
from rlvr.cli.arguments import (
    NameValues,
    RewardText,
    SandboxLevel,
    TemplateOptions,
    options_of,
    template_options_of,
    with_level,
    with_reward,
)
from rlvr.cli.recipes import recipe_named
from rlvr.cli.run_settings import RunSettings, Sources, number_flags
from rlvr.cli.train_help import help_page
from rlvr.environment.registry import defaults_of
from rlvr.errors import UsageError
from rlvr.train.config import Config

__all__ = [
    "RecipeCommand",
    "TrainCommand",
    "TrainFlags",
    "recipe_command",
    "train_command",
]

_Numbers = TypeVar("_Numbers")
"""The flags of the chosen algorithm's numbers, see `number_flags`."""


@dataclass
class TrainFlags(Generic[_Numbers]):
    """Train a policy on an environment.  The same command continues a run that was stopped.

    Example: rlvr train --env gsm8k-v4 --model Qwen/Qwen3-0.6B --run runs/a --max-tokens 1024

    Settings may also stand in a file: rlvr train --config run.toml --run runs/b --clip-high 0.3
    --dry-run

    `rlvr train NAME …` starts from the settings of a recipe, such as those of a paper; `rlvr
    recipes` lists them, and a file of your own is one too.  `rlvr train --algorithm NAME --help`
    shows the numbers of an algorithm.
    """

    settings: OmitArgPrefixes[Annotated[RunSettings, arg(name="")]]
    numbers: OmitArgPrefixes[Annotated[_Numbers, arg(name="")]]
    config: Annotated[Path | None, arg(metavar="FILE")] = None
    """Take settings from this file: TOML with the names of the flags (`_` for `-`), or the
    config.json of a run, whose folder is then the run.  Flags win."""
    dry_run: FlagCreatePairsOff[bool] = False
    """Print the settings with where each comes from and the memory forecast,
    sample and score one group, and stop."""
    option: NameValues = ()
    """Set an option of the environment; may be repeated."""
    reward: RewardText = None
    sandbox: SandboxLevel = None
    eval_option: NameValues = ()
    """Set an option of the environment for evaluation alone, such as data=test.jsonl;
    may be repeated."""
    template_option: TemplateOptions = ()

    def _run(self, sources: Sources, out: Console, err: Console) -> int:
        settings = self.settings
        if settings.run.is_file():
            raise UsageError(f"{settings.run} is a file; give --run a folder")
        import_module("rlvr.train.loop")  # what is missing is said before anything else
        defaults = defaults_of(settings.env) if settings.env else {}
        pairs = with_reward(with_level(self.option, self.sandbox, settings.env), self.reward)
        options = options_of(defaults, pairs)
        eval_options = options_of(defaults, self.eval_option, flag="--eval-option")
        variables = template_options_of(self.template_option)
        config = sources.config(
            settings,
            self.numbers,
            env_options={**settings.env_options, **options},
            eval_options={**settings.eval_options, **eval_options},
            template_options={**settings.template_options, **variables},
        )
        if self.dry_run and config.pairs is not None:
            raise UsageError(
                "--dry-run samples a group, and --pairs trains on a file without sampling; leave "
                "one out"
            )
        if self.dry_run:
            import_module("rlvr.train.dry_run").dry_run(config, sources.of(config), out, err)
            return 0
        return _train(config, out, err)


_DEFAULT_NUMBERS: Any = number_flags(type(load_algorithm(str(Config.algorithm))))


@dataclass
class TrainCommand(TrainFlags[_DEFAULT_NUMBERS]):
    # The command with the numbers of the default algorithm, for tab completion and lists of flags.
    __doc__ = TrainFlags.__doc__


def _train(config: Config, out: Console, err: Console) -> int:
    """Train, and print the evaluations; returns the exit code.

    Args:
        config: settings of the run.
        out: for the results.
        err: for progress.
    """
    with import_module("rlvr.train.loop").Trainer(config, console=err) as trainer:
        trainer.run()
        finished = trainer.steps_done == config.steps
        for step, report in sorted(trainer.reports.items()):
            out.print(f"step {step}: {report}")
    if trainer.ranks.first:
        out.print(
            f"{trainer.steps_done} steps; all files of the run are in {config.run!s}",
            soft_wrap=True,
        )
    return 0 if finished else 130


@dataclass
class _Parsed:
    """A command whose settings may come from a file."""

    command: TrainFlags[Any]
    sources: Sources

    def run(self, out: Console, err: Console) -> int:
        return self.command._run(self.sources, out, err)


def train_command(argv: Sequence[str]) -> _Parsed:
    """The command for a run, with the settings of its file.

    Args:
        argv: the flags.

    Raises:
        UsageError: the file cannot be read, or has what no run has.
        SystemExit: help was asked for, and is printed.
    """
    shows_all = "--help-all" in argv
    argv = ["--help" if word == "--help-all" else word for word in argv]
    sources = Sources.from_flags(argv)
    if not shows_all and (page := help_page(argv, sources.algorithm)) is not None:
        sys.stdout.write(page)
        raise SystemExit(0)
    if "--help" not in argv:
        _require_extra()
    default: dict[str, Any] = {}
    if sources.path:
        default = {"default": TrainFlags(sources.settings, sources.no_numbers)}
    # made for this call
    kind: Any = TrainFlags[number_flags(type(sources.algorithm))]  # type: ignore[misc]
    command = tyro.cli(kind, args=argv, prog="rlvr train", **default)
    return _Parsed(command, sources)


def _require_extra() -> None:
    """Say that the extra is missing before flags are asked for; where it is there, nothing is
    imported yet.

    Raises:
        MissingDependency: torch is not installed.
    """
    try:
        is_there = find_spec("torch") is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        import_module("rlvr.train.loop")


@dataclass
class RecipeCommand:
    """A recipe with the settings that its flags gave.

    Attributes:
        main: runs the recipe; gives its exit code, None for 0.
        flags: what `main` takes.
        places: where settings come from, if the recipe is only to be shown; None to run it.
        plan: shows a size whose model is not here, from name, settings, places and console.
    """

    main: Callable[[Any], int | None]
    flags: Any
    places: Mapping[str, str] | None = None
    plan: Callable[[Config, Mapping[str, str], Console], None] | None = None

    def run(self, out: Console, err: Console) -> int:
        if self.places is None:
            return self.main(self.flags) or 0
        if self.plan is not None:
            self.plan(self.flags.config, self.places, out)
            return 0
        env, eval_env = self.flags.environments()
        dry_run_module = import_module("rlvr.train.dry_run")
        dry_run_module.dry_run(self.flags.config, self.places, out, err, env=env, eval_env=eval_env)
        return 0


def recipe_command(name: str, argv: Sequence[str]) -> RecipeCommand:
    """The command for a recipe.

    Args:
        name: of a recipe, or its file.
        argv: flags that change its settings.

    Raises:
        UsageError: there is no such recipe, or a setting cannot work.
        MissingDependency: the extra `train` is not installed.
    """
    recipe = recipe_named(name)
    if recipe is None:
        return _demo_command(name, argv)
    size, argv = _without_size(argv)
    default = recipe.flags(size, Path("runs") / Path(name).stem)
    machine = recipe.machines.get(size)
    main = import_module("rlvr.recipes.common").train
    text = (
        f"{recipe.about} ({recipe.paper}).\n\n{_SIZE_HELP}  `rlvr recipes {name}` has all sources."
    )
    sources = Sources.from_flags(argv, default.config, f"recipe {name}")
    kind = _with_run_flags(type(default), number_flags(type(sources.algorithm)))
    recipe_flags = tyro.cli(
        kind,
        default=kind(flags=replace(default, config=sources.settings)),
        args=argv,
        prog=f"rlvr train {name}",
        description=text,
    )
    settings = recipe_flags.flags.config
    variables = template_options_of(recipe_flags.template_option)
    config = sources.config(
        settings,
        recipe_flags.numbers,
        template_options={**settings.template_options, **variables},
    )
    flags = replace(recipe_flags.flags, config=config)
    if not recipe_flags.dry_run and recipe_flags.job is None:
        return RecipeCommand(main, flags)
    plan = None
    if machine is not None and config.model == machine.model and not Path(config.model).is_dir():
        defaults_of(config.env)  # a file or a name that is not there ends here, not on a cluster
        target = (name, size, machine, _given_to_the_run(argv))
        if recipe_flags.job is None:
            plan = partial(import_module("rlvr.recipes.plan").show_plan, *target)
        else:
            show_job = import_module("rlvr.recipes.jobs").show_job
            plan = partial(show_job, recipe_flags.job, *target)
    elif recipe_flags.job is not None:
        raise UsageError(
            f"--job is {recipe_flags.job!r}: it is of a size's own model on devices that are not "
            "here; leave --model out, with --size paper or small"
        )
    return RecipeCommand(main, flags, sources.of(config), plan)


def _demo_command(name: str, argv: Sequence[str]) -> RecipeCommand:
    """The command for a recipe that has settings of its own, and is no run of a paper."""
    module = import_module(f"rlvr.recipes.{name}.run")
    settings = tyro.cli(
        type(module.DEFAULTS),
        default=module.DEFAULTS,
        args=argv,
        config=(FlagCreatePairsOff,),
        prog=f"rlvr train {name}",
        description=module.__doc__,
    )
    return RecipeCommand(module.main, settings)


def _given_to_the_run(argv: Sequence[str]) -> list[str]:
    """What of a dry run's flags its command needs too; the model stands there already."""
    words, words_kept = iter(argv), list[str]()
    for word in words:
        name = word.partition("=")[0]
        if name in ("--job", "--model") and "=" not in word:
            next(words)
        elif name not in ("--dry-run", "--job", "--model"):
            words_kept.append(word)
    return words_kept


_Launcher = Literal["slurm", "kubernetes", "skypilot"]
_JOB_HELP = (
    "Print the file that starts the plan's commands on a cluster, and stop.  Not tried on clusters."
)
_SIZE_HELP = (
    "--size paper (default), small (one GPU, not tried) or tiny (a laptop's cores) "
    "chooses the sizes."
)


def _without_size(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """What `--size` says, and the other flags: it chooses the defaults that these change."""
    sizes, words_left, words = [], [], iter(argv)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag != "--size":
            words_left.append(word)
            continue
        size = value if equals else next(words, "")
        if not size:
            raise UsageError("--size needs a value: paper, small or tiny")
        sizes.append(size)
    if len(sizes) > 1:
        raise UsageError(f"--size is given as {' and as '.join(sizes)}; give it once")
    return (sizes or ["paper"])[0], words_left


def _with_run_flags(kind: type, numbers: type[object]) -> Any:
    """The class of a recipe's flags, and beside them those that every run has."""
    hints = get_type_hints(TrainFlags, include_extras=True)
    texts = {
        "config": (
            "Take settings from this file: "
            "TOML with the names of the flags, or the config.json of a run."
        ),
        "dry_run": (
            "Print the settings with where each comes from and the memory forecast, "
            "sample one group, and stop."
        ),
    }
    shared = [
        (
            flag,
            Annotated[hints[flag], arg(help=texts[flag])],
            field(default=getattr(TrainFlags, flag)),
        )
        for flag in texts
    ]
    omit: Any = OmitArgPrefixes
    flags, numbers_kind = (
        omit[Annotated[part_kind, arg(name="")]] for part_kind in (kind, numbers)
    )
    fields: list[Any] = [
        ("flags", flags),
        ("numbers", numbers_kind, field(default_factory=numbers)),
        ("template_option", hints["template_option"], field(default=())),
        ("job", Annotated[_Launcher | None, arg(help=_JOB_HELP)], field(default=None)),
        *shared,
    ]
    return make_dataclass(f"{kind.__name__}OfRun", fields)
