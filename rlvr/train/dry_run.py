"""What a run would be, without beginning it: its settings and where they come from, its
memory, its speed, one group.

It has to answer soon on any machine: the group is cut at a time, and what was cut says so.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Final

from rich.console import Console
from rich.table import Table

from rlvr.algo.papers.base import Algorithm
from rlvr.algo.papers.numbers import Number, paper_numbers
from rlvr.collect import Groups, Sampling
from rlvr.collect.cursor import Cursor
from rlvr.collect.flight import sample_groups
from rlvr.console import Plainly
from rlvr.display import Activity, span
from rlvr.environment import Environment
from rlvr.scoring import Scorer
from rlvr.scoring.engines import engine_of
from rlvr.train.config import Config, ResolvedConfig
from rlvr.train.evaluations import eval_sets
from rlvr.train.memory import forecast, longest_prompt, require_offload, require_room
from rlvr.train.run_dir import examine_run_dir
from rlvr.train.sampling import open_sampler
from rlvr.train.setup import (
    describe_run,
    device_of,
    environments,
    policy_from_config,
    prepare_policy,
    say_prompts,
)
from rlvr.train.speed import CutSampler, Speed, measure_speed
from rlvr.train.stages import Stages
from rlvr.train.validation import validation_split
from rlvr.types import Group

__all__ = ["dry_run", "settings_table", "speed_lines"]

_SHOWN: Final = 400  # characters of a text
_SAMPLING_S: Final = 6.0  # that the first group may take


def dry_run(
    config: Config,
    places: Mapping[str, str],
    out: Console,
    err: Console,
    *,
    env: Environment | None = None,
    eval_env: Environment | None = None,
) -> None:
    """Print the settings, the memory forecast, the first group of a run and its speed; nothing is
    written.

    The group is cut after some seconds, see `CutSampler`.

    Args:
        config: settings of the run.
        places: where settings come from, by name; see `settings_table`.
        out: where to print.
        err: for progress.
        env, eval_env: as for `Trainer`.

    Raises:
        UsageError: the run would be refused.
    """
    settings = config.resolve()
    out.print(settings_table(settings, places))
    if settings.algorithm.sources:
        _line(out, f"{settings.algorithm.paper}: {settings.algorithm.sources}")
    # Before data and model are loaded: what the device cannot do is said first.
    require_offload(config, device_of(config.device).type, world=1)
    env, eval_env = environments(config, env, eval_env)
    env, _ = validation_split(settings, env)
    for line in Stages(config).lines():
        _line(out, line)
    for eval_set in eval_sets(settings, env):
        _line(out, eval_set.line)
    _, changes = examine_run_dir(config.run, describe_run(config, env, eval_env))
    for name, (before, later) in changes.items():
        _line(out, f"{name} would be {later!r} from here on, and was {before!r}")
    activity = Activity(err)
    with activity.working(f"loading {config.model}"):
        policy = prepare_policy(policy_from_config(config), config)
    say_prompts(policy, env, lambda line: _line(out, line))
    sampling = Sampling(
        max_tokens=settings.max_tokens, temperature=settings.temperature, stop=settings.stop
    )
    scoring = None if settings.scorer is None else engine_of(settings.scorer)
    scorer = Scorer(env, workers=settings.workers, engine=scoring)
    opened = ExitStack()
    sampler = opened.enter_context(open_sampler(policy, settings))
    # An engine begins without weights; the local sampler has those of the policy.
    if settings.engine != "local":
        sampler.sync(policy.weights(), 0)
    cut = CutSampler(sampler, _SAMPLING_S)
    groups = Groups(
        env,
        cut,
        group_size=settings.group_size,
        sampling=sampling,
        scorer=scorer,
        max_turns=settings.max_turns,
        step_s=settings.step_s,
        schedule=settings.turn_schedule,
        key=("collect", settings.seed),
    )
    try:
        with activity.working("measuring the memory that tokens take"):
            # Processes that compute a row together: each holds a share of what a row takes.
            together = max(config.tensor_parallel, config.context_parallel)
            longest = longest_prompt(groups)
            memory = forecast(policy, config, prompt_tokens=longest, world=together)
        _line(out, f"of each of {together} processes: {memory}" if together > 1 else str(memory))
        require_room(memory, config)
        before = cut.tokens
        with activity.task("sampling the first group", settings.group_size) as advance:
            first = Cursor(env, seed=settings.seed).take(1)
            [(_, group)] = sample_groups(groups, first, advance)
        _show(group, out)
        spent_s = max(cut.spent_s, 1e-6)
        sampled = cut.tokens - before or sum(len(r.completion_ids) for r in group.rollouts)
        _line(out, _sampled_line(len(group.rollouts), sampled, spent_s, cut.cut))
        if sampled:
            with activity.working("measuring the speed of sampling and of the update"):
                speed = measure_speed(policy, sampler, group, sampled / spent_s, settings)
            for line in speed_lines(speed, settings):
                _line(out, line)
    finally:
        groups.close()
        opened.close()
        if scorer is not None:
            scorer.close()
    _line(out, f"a dry run: nothing was trained, and nothing was written to {config.run}")


def _sampled_line(rollouts: int, tokens: int, spent_s: float, cut: int) -> str:
    line = (
        f"sampled {rollouts} completions side by side in {spent_s:.1f} s: {tokens} tokens, "
        f"{tokens / spent_s:.1f} per second"
    )
    if cut:
        line += f"; {cut} were cut here after {_SAMPLING_S:g} s, so that the answer comes soon"
    return line


def speed_lines(speed: Speed, settings: ResolvedConfig) -> list[str]:
    """What was measured, and the forecast of a step and of the run, as lines of text.

    Args:
        speed: what was measured.
        settings: of the run.
    """
    rollouts = settings.prompts * settings.group_size
    length = "the limit" if speed.sampled_is_limit else "the mean of those above"
    mean = speed.sampled_tokens / rollouts
    parts = [f"sampling {span(speed.sampling_s)}", f"update {span(speed.update_s)}"]
    return [
        f"speed, measured on a few tokens: sampling {speed.rows} completions side by side "
        f"{speed.row_tokens_per_s:.1f} tokens per second; passes through the model "
        f"{speed.forward_tokens_per_s:.0f}, with gradients {speed.update_tokens_per_s:.0f}",
        f"forecast: {span(speed.step_s)} per step ({', '.join(parts)}) of {rollouts} completions "
        f"of {mean:.0f} tokens, {length}; {settings.steps} steps take "
        f"{span(settings.steps * speed.step_s)}",
        "not in the forecast: loading, scoring, evaluations, checkpoints, further rounds of "
        "sampling, a critic, and other work on this machine",
    ]


def settings_table(settings: ResolvedConfig, places: Mapping[str, str]) -> Table:
    """Every setting of a run with its value and where that comes from.

    Args:
        settings: of the run.
        places: by name; what is missing is an algorithm's, and "default" is said more exactly where
            the value follows from other settings.
    """
    table = Table("setting", "value", "from", title="settings")
    for name, value, place in _rows(settings, places):
        table.add_row(name, value, place)
    return table


def _rows(settings: ResolvedConfig, places: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    algorithm = settings.algorithm
    paper = algorithm.label
    follows = {
        "group_size": paper if algorithm.group_size else "default",
        "prompts": "two updates" if settings.updates > 1 else "default",
        "updates": paper,
        "temperature": paper,
        "overlong": paper,
        "overlong_cache": "a fifth of max_tokens",
        "eval_temperature": "temperature",
        "canary": "precision",
    }
    written = settings.recorded
    for field in dataclasses.fields(Config):
        name, place = field.name, places.get(field.name, "default")
        if name == "algorithm":
            yield name, paper, place
            continue
        is_open = name in follows and written.get(name) is None
        yield (
            name,
            _show_value(getattr(settings, name)),
            follows[name] if is_open and place == "default" else place,
        )
    for name, number in paper_numbers(type(algorithm)).items():
        holder: object = algorithm if number.part is None else getattr(algorithm, number.part)
        if number.name and holder is not None:
            follows_from = _origin(settings, number, getattr(holder, number.name))
            yield name, _show_value(getattr(holder, number.name)), places.get(name, follows_from)


def _origin(settings: ResolvedConfig, number: Number, value: object) -> str:
    """Where a number of the algorithm comes from that neither flag nor file gives."""
    algorithm = settings.algorithm
    published: object = type(algorithm)()
    holder = published if number.part is None else getattr(published, number.part, None)
    if holder is not None and getattr(holder, number.name) == value:
        return algorithm.label
    if number.name == "correction" and settings.max_staleness:
        return "max_staleness"
    return "replay" if number.name == "correction" and algorithm.replay else "default"


def _show_value(value: object) -> str:
    if isinstance(value, Algorithm):
        return value.label
    if isinstance(value, tuple | list):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, Mapping):
        return json.dumps(dict(value), default=str) if value else "none"
    return "none" if value is None else str(value)


def _show(group: Group, out: Console) -> None:
    _line(out, f"the first group, of task {group.task.id}:")
    _line(out, f"prompt: {_cut(str(group.task.prompt))}")
    for g, rollout in enumerate(group.rollouts):
        score, ending = rollout.score, "truncated" if rollout.truncated else "ended"
        total = "no score" if score is None or score.total is None else f"score {score.total:g}"
        verdict = "" if score is None else f", {score.verdict.outcome.value}: {score.verdict.why}"
        _line(out, f"{g}: {total}{verdict} ({len(rollout.completion_ids)} tokens, {ending})")
        _line(out, f"   {_cut(rollout.text)!r}")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def _line(console: Console, text: str) -> None:
    console.print(Plainly(text), soft_wrap=True)
