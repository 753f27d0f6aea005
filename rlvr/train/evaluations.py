"""Further evaluations of a run, each with its own environment, numbers and
sampling, as papers report them.

One is a text, `math-v4:data=aime2024,n=32,temperature=1,top_p=0.7,rows=all`: an environment's id,
and with commas between them its options and the numbers of the evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rlvr.environment import Environment, seeded
from rlvr.environment.registry import defaults_of, make, read_option
from rlvr.errors import UsageError, brief
from rlvr.train.stage import pairs_of
from rlvr.types import JsonDict, JsonObject
from rlvr.validate import require_number, require_one_of, require_whole

if TYPE_CHECKING:  # which has their texts
    from rlvr.train.config import ResolvedConfig

__all__ = ["EvalSet", "Evaluated", "eval_sets", "read_eval_sets"]

_TEXT: Final = re.compile(r"(.*?)(?::([A-Za-z_][\w.-]*\s*=.*))?", re.DOTALL)
# Names that are the evaluation's own, and not options of its environment.
_NUMBERS: Final = ("name", "n", "k", "temperature", "top_p", "max_tokens", "rows", "every")
_MOST_GENERATED: Final = 1000
"""Tasks of a generator that are compared with those of an evaluation."""
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class EvalSet:
    """One further evaluation, as it was written.

    Attributes:
        text: all of it.
        env: id of the environment.
        options: of the environment; texts are read by their options' types.
        numbers: those of the evaluation that are given: see `Evaluated`, and `rows`, a number or
            "all".
    """

    text: str
    env: str
    options: JsonObject
    numbers: JsonObject

    @classmethod
    def read(cls, text: Any) -> EvalSet:
        """The evaluation that a text says.

        Args:
            text: see the module.

        Raises:
            UsageError: it says none.
        """
        match = _TEXT.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None or not match[1]:
            raise UsageError(
                "give ID:NAME=VALUE,…, such as math-v4:data=aime2024,n=32,temperature=1,rows=all"
            )
        pairs = pairs_of(match[2]) if match[2] else {}
        numbers: JsonDict = {name: pairs.pop(name) for name in _NUMBERS if name in pairs}
        # An option of the same name as a number can still be given, as option.NAME.
        options = {name.removeprefix("option."): value for name, value in pairs.items()}
        _require_numbers(numbers)
        return cls(text.strip(), match[1], options, numbers)

    @property
    def name(self) -> str:
        """What its metrics are called: its name, or its data's, or the environment's."""
        written = self.numbers.get("name") or self.options.get("data") or self.env
        words = re.findall(r"[\w.-]+", str(written).rsplit("/", 1)[-1])
        return "-".join(words)


def _require_numbers(numbers: Mapping[str, object]) -> None:
    for name in ("n", "k", "max_tokens"):
        if name in numbers:
            require_whole(name, numbers[name], 1)
    if "every" in numbers:
        require_whole("every", numbers["every"], 0)
    if "temperature" in numbers:
        require_number("temperature", numbers["temperature"], 0)
    if "top_p" in numbers:
        require_number("top_p", numbers["top_p"], above=0, most=1)
    if isinstance(numbers.get("rows"), str):
        require_one_of("rows", numbers["rows"], ("all",))
    elif "rows" in numbers:
        require_whole("rows", numbers["rows"], 1)
    if "name" in numbers and not _NAME.fullmatch(str(numbers["name"])):
        raise UsageError(
            f"name is {brief(numbers['name'])}; letters, digits, '.', '_' and '-' only"
        )


def read_eval_sets(name: str, value: object) -> tuple[str, ...]:
    """The further evaluations of a run as texts.

    Args:
        name: of the setting.
        value: texts.

    Raises:
        UsageError: one cannot be read, or two have one name.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UsageError(f"{name} is {brief(value)}; give a list of texts")
    sets: list[EvalSet] = []
    for entry in value:
        try:
            sets.append(EvalSet.read(entry))
        except UsageError as error:
            raise UsageError(f"{name} {brief(entry)}: {error}") from None
    names = [eval_set.name for eval_set in sets]
    for entry in sets:
        # Metrics are called by the name, so two would overwrite each other.
        if names.count(entry.name) > 1:
            raise UsageError(
                f"{name}: two evaluations are called {entry.name!r}; give one of them another "
                f"name, name=…"
            )
    return tuple(eval_set.text for eval_set in sets)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One further evaluation of a run, with everything that it needs.

    Attributes:
        name: before its metrics.
        env: its environment.
        rows: indices of the tasks, ascending: all, or a sample by the run's seed.
        n: completions per task.
        ks: of pass@k and maj@k.
        temperature: of its sampling; at 0 the most likely tokens.
        top_p: likewise.
        max_tokens: most tokens of a completion; None for those of training.
        every: steps between two; 0 before the first and after the last alone.
        shared: how many of its prompts are trained on.
    """

    name: str
    env: Environment
    rows: tuple[int, ...]
    n: int
    ks: tuple[int, ...]
    temperature: float
    top_p: float
    max_tokens: int | None
    every: int
    shared: int

    @property
    def line(self) -> str:
        """What it is, for the first lines of a run."""
        limit = "" if self.max_tokens is None else f", at most {self.max_tokens} tokens"
        shared = f"; {self.shared} of its prompts are trained on" if self.shared else ""
        return (
            f"evaluates {self.name}: {len(self.rows)} tasks × {self.n}, temperature "
            f"{self.temperature:g}, top-p {self.top_p:g}{limit}{shared}"
        )


def eval_sets(config: ResolvedConfig, env: Environment) -> list[Evaluated]:
    """The further evaluations of a run.

    Args:
        config: settings of the run.
        env: the training environment.

    Raises:
        UsageError: an environment cannot be made, has no rows, or more than one in a hundred of its
            prompts is trained on; of a generator with few prompts, only in the training split.
    """
    sets = [EvalSet.read(text) for text in config.eval_env]
    trained = _prompts(env, config.prompts * config.steps) if sets else frozenset()
    splits = {(member.id, member.split) for member in env.members.values() if member.size is None}
    evaluations = []
    for eval_set in sets:
        try:
            evaluations.append(_open_eval_set(eval_set, config, trained, splits))
        except UsageError as error:
            raise UsageError(f"eval_env {eval_set.text!r}: {error}") from None
    return evaluations


def _open_eval_set(
    one: EvalSet, config: ResolvedConfig, trained: frozenset[str], splits: Set[tuple[str, str]]
) -> Evaluated:
    defaults = defaults_of(one.env)
    split = {"split": config.eval_split} if "split" in defaults else {}
    options = {
        name: read_option(name, defaults.get(name), value) if isinstance(value, str) else value
        for name, value in one.options.items()
    }
    env = make(one.env, **{**split, **options})
    n = one.numbers.get("n", config.eval_n)
    k = one.numbers.get("k")
    temperature = float(one.numbers.get("temperature", config.eval_temperature))
    if temperature == 0 and n > 1:
        raise UsageError(
            f"temperature is 0, where all n={n} completions would be the same; give n=1"
        )
    if k is not None and k > n:
        raise UsageError(f"k is {k} and n is {n}; sample at least k completions of each task")
    rows = _rows(env, one.numbers.get("rows", config.eval_tasks), config.seed)
    # Compared as texts of prompts: the same task has another id in another data set.
    shared = sum(str(env.task(index).prompt) in trained for index in rows)
    # A generator with few prompts repeats itself in any split, which is chance and no leak.
    by_chance = env.size is None and (env.id, env.split) not in splits
    if 100 * shared > len(rows) and not by_chance:
        raise UsageError(
            f"{shared} of its {len(rows)} prompts are trained on; give another split, leave them "
            "out of the training data, or leave this evaluation out"
        )
    return Evaluated(
        one.name,
        env,
        rows,
        n,
        # pass@1 always, and pass@n, whatever k is asked for.
        tuple(sorted({1, n} if k is None else {1, k, n})),
        temperature,
        float(one.numbers.get("top_p", config.eval_top_p)),
        one.numbers.get("max_tokens"),
        one.numbers.get("every", config.eval_every or 0),
        shared,
    )


def _rows(env: Environment, wanted: int | str, seed: int) -> tuple[int, ...]:
    """Indices of the tasks: all, the first of generated ones, or a sample."""
    if env.size == 0:
        raise UsageError(f"{env.id} has no tasks in split {env.split!r}")
    if wanted != "all":
        return tuple(
            env.evaluation_tasks(int(wanted), seeded("evaluation", env.id, env.split, seed))
        )
    if env.size is None:
        raise UsageError(f"{env.id} makes its tasks without end; give rows a number")
    return tuple(range(env.size))


def _prompts(env: Environment, taken: int) -> frozenset[str]:
    """The prompts that are trained on: all that are listed, and of generated ones the first.

    Args:
        env: the training environment.
        taken: tasks that the run takes.
    """
    first = min(taken, _MOST_GENERATED)
    return frozenset(
        str(member.task(index).prompt)
        for member in env.members.values()
        for index in range(first if member.size is None else member.size)
    )
