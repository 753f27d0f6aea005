"""The commands that need a model: train, eval, plot.

What needs torch is imported when one of them runs: `rlvr --help` loads none of it.
"""

from __future__ import annotations

import difflib
import importlib
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, UseAppendAction, arg

from rlvr.environment import Environment, SingleTurnEnv
from rlvr.environment.registry import load, make
from rlvr.errors import MissingDependency, UsageError
from rlvr.samplers.protocol import Sampling
from rlvr.scoring import Scorer
from rlvr.train.config import Config

__all__ = ["Eval", "Plot", "RECIPES", "Recipe", "Train", "options_of", "recipe"]

RECIPES = ("arithmetic_cpu", "code_grpo", "math_dapo", "math_grpo", "math_prorl")
"""Folders of `rlvr.recipes` whose `run` has `DEFAULTS`, a dataclass of flags, and `main`, which takes them."""


@dataclass
class Train:
    """Train a policy on an environment; the same command goes on with a run that was stopped.

    Example: rlvr train --env gsm8k-v1 --model Qwen/Qwen3-0.6B --run runs/a --algorithm dapo --max-tokens 1024

    `rlvr train NAME …` begins with the settings of a recipe, such as those of a paper: arithmetic_cpu, code_grpo,
    math_dapo, math_grpo, math_prorl; `rlvr train NAME --help` shows them.
    """

    config: OmitArgPrefixes[Annotated[Config, arg(name="")]]
    option: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """An option of the environment, NAME=VALUE; may be repeated."""
    eval_option: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """One that is another in evaluation, such as data=test.jsonl; may be repeated."""

    def run(self, out: Console, err: Console) -> int:
        loop = _trainer("loop")
        env = load(self.config.env)
        options, others = options_of(env, self.option), options_of(env, self.eval_option, flag="--eval-option")
        config = replace(self.config, env_options=options, eval_options=others)
        with loop.Trainer(config, console=err) as trainer:
            trainer.run()
            finished = trainer.step == config.steps
            for step, report in sorted(trainer.reports.items()):
                out.print(f"step {step}: " + ", ".join(f"{name} {it}" for name, it in report.metrics.items()))
        out.print(f"{trainer.step} steps; all of it is in {escape(str(config.run))}", soft_wrap=True)
        return 0 if finished else 130


@dataclass
class Recipe:
    """A recipe and the flags it was given."""

    main: Callable[[Any], int | None]
    flags: Any

    def run(self, out: Console, err: Console) -> int:
        return self.main(self.flags) or 0


def recipe(name: str, argv: Sequence[str]) -> Recipe:
    """The recipe of this name, with its own settings but for these flags.

    Raises:
        UsageError: there is none.
        MissingDependency: what the extra `train` brings is not there.
    """
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"there is no recipe {name!r}{hint} (there are {', '.join(RECIPES)})")
    module = _imported(f"rlvr.recipes.{name}.run")
    flags = tyro.cli(
        type(module.DEFAULTS),
        default=module.DEFAULTS,
        args=argv,
        prog=f"rlvr train {name}",
        description=module.__doc__,
        config=(FlagCreatePairsOff,),
    )
    return Recipe(module.main, flags)


@dataclass
class Eval:
    """Evaluate a model on an environment: avg@n, pass@k, maj@k with 95 % intervals.

    Example: rlvr eval gsm8k-v1 --model Qwen/Qwen3-0.6B -n 8 -k 1 8 --limit 200 --option split=test
    """

    env: Annotated[Positional[str], arg(metavar="ENV")]
    """Id of the environment, or where its class stands: path/to/file.py:Class."""
    model: str
    """Id on the hub, or a local folder; of a run of ours RUN/model."""
    n: Annotated[int, arg(aliases=["-n"])] = 1
    """Completions of each task."""
    k: Annotated[tuple[int, ...], arg(aliases=["-k"])] = ()
    """For pass@k and maj@k; 1 and n unless given."""
    limit: int | None = None
    """The first tasks alone; needed where they never end."""
    max_tokens: int = 1024
    """Of a completion."""
    temperature: float = 1.0
    """0 takes the most likely token."""
    top_p: float = 1.0
    """Keep the smallest set of tokens whose probabilities reach it."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion."""
    max_turns: int = 8
    """Of an episode with several turns."""
    option: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """An option of the environment, NAME=VALUE; may be repeated."""
    chat: bool = False
    """Text prompts become a user message of the model's chat template."""
    device: str = "auto"
    """A GPU where there is one."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 computes in bfloat16 over float32 weights."""
    max_rows: int = 256
    """Completions that are sampled side by side: as many keys and values are held."""
    workers: int | None = None
    """Processes that score; one per core unless given, 0 for none."""
    seed: int = 0
    """Of the completions."""
    output: Annotated[Path | None, arg(aliases=["-o"], metavar="OUT")] = None
    """Where the whole report goes, as JSON."""

    def run(self, out: Console, err: Console) -> int:
        policies, evaluation = _trainer("setup"), importlib.import_module("rlvr.collect.evaluation")
        if self.output is not None and not self.output.parent.is_dir():
            raise UsageError(f"--output {self.output}: there is no folder {self.output.parent}; make it first")
        env = make(self.env, **options_of(load(self.env), self.option))
        sampling = Sampling(max_tokens=self.max_tokens, temperature=self.temperature, top_p=self.top_p, stop=self.stop)
        policy = policies.load_policy(
            self.model, device=self.device, chat=self.chat, autocast=policies.autocast_dtype(self.precision)
        )
        with ExitStack() as stack:
            scorer = None
            if isinstance(env, SingleTurnEnv):
                scorer = stack.enter_context(Scorer(env, workers=self.workers))
            report = evaluation.evaluate(
                env,
                policy.sampler(max_rows=self.max_rows),
                sampling=sampling,
                n=self.n,
                k=self.k or None,
                limit=self.limit,
                scorer=scorer,
                seed=self.seed,
                max_turns=self.max_turns,
                progress=True,
            )
        table = Table("metric", "value", "95 % interval", "tasks")
        for name, it in report.metrics.items():
            table.add_row(name, f"{it.value:.4f}", f"{it.low:.4f} to {it.high:.4f}", str(it.tasks))
        out.print(table)
        out.print(
            f"mean length {report.length:.1f} tokens, {report.truncated:.1%} truncated, {report.unscored} unscored"
        )
        if self.output is not None:
            self.output.write_text(json.dumps(report.as_dict(), indent=2, default=str) + "\n", encoding="utf-8")
        return int(bool(report.unscored))


@dataclass
class Plot:
    """Draw the curves of a run: reward, accuracy, length, entropy, gradient norm, evaluations.

    Example: rlvr plot runs/a
    """

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder."""
    output: Annotated[Path | None, arg(aliases=["-o"], metavar="OUT")] = None
    """The picture; RUN/curves.png unless given."""

    def run(self, out: Console, err: Console) -> int:
        out.print(escape(str(_trainer("plot").plot(self.folder, self.output))), soft_wrap=True)
        return 0


def options_of(env: type[Environment], given: Sequence[str], flag: str = "--option") -> dict[str, Any]:
    """An environment's options from NAME=VALUE pairs: a value is text where the default is, and JSON otherwise.

    Where the default does not tell (None, or there is none) it is JSON if it can be, else text.  Messages name `flag`.

    Raises:
        UsageError: it is no such pair, or no such value.
    """
    options: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"{flag} {pair}: write NAME=VALUE, such as {flag} split=test")
        default = env.options().get(name, "")
        try:
            options[name] = value if isinstance(default, str) else json.loads(value)
        except ValueError:
            if default is not None and default is not MISSING:
                raise UsageError(f"{flag} {pair}: {value!r} is not a value like {default!r}") from None
            options[name] = value
    return options


def _trainer(module: str) -> ModuleType:
    """A module of `rlvr.train`, which needs torch."""
    return _imported(f"rlvr.train.{module}")


def _imported(module: str) -> ModuleType:
    """One that needs torch.

    Raises:
        MissingDependency: what the extra `train` brings is not there.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "rlvr":
            raise
        raise MissingDependency(error.name or "torch", "train") from None
