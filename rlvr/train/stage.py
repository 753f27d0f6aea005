"""A stage of a run as a text: when it begins, and what it changes.  Needs no torch.

`at=2000,max_tokens=16384,kl_coefficient=linear(0, 500),reset=all`, or a table of TOML with the same
names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from rlvr.errors import UsageError, brief
from rlvr.train.metrics import read_metrics
from rlvr.train.schedule import NumberSchedule
from rlvr.types import JsonObject
from rlvr.validate import require_number, require_one_of, require_whole

__all__ = [
    "RESETS",
    "Stage",
    "has_open_end",
    "pairs_of",
    "read_stages",
    "require_ahead",
    "stage_of",
]

RESETS: Final = ("reference", "optimizer", "all")
"""What a stage can start afresh; all is both, and whatever else ProRL's reset does."""
_OPEN, _CLOSED = "([{", ")]}"
_NAME: Final = re.compile(r"[A-Za-z_][\w.-]*")
_WAYS: Final = "write NAME=VALUE with commas between, such as at=2000,max_tokens=16384"


@dataclass(frozen=True, slots=True)
class Stage:
    """One change of a run's settings.

    Attributes:
        text: all of it, in the one form that is recorded.
        step: begins after so many steps; None where a condition decides.
        stalled: begins after so many validations in a row without a new best; None for no such
            condition.
        truncated: begins when the mean share of truncated completions over ten steps reaches this;
            None likewise.
        values: what it changes, by name of a setting or of the algorithm's number.
        schedules: what moves from its beginning on, likewise.
        options: of the environment.
        reset: one of `RESETS`; empty for nothing.
    """

    text: str
    step: int | None
    stalled: int | None
    truncated: float | None
    values: JsonObject
    schedules: Mapping[str, NumberSchedule]
    options: JsonObject
    reset: str = ""

    @classmethod
    def of(cls, pairs: JsonObject) -> Stage:
        """A stage from names and values.

        Args:
            pairs: with `at`; as TOML has them, or as texts.

        Raises:
            UsageError: it lacks `at`, changes nothing, or has a value that cannot be.
        """
        # TOML and flags: kl_coefficient and kl-coefficient are one name.
        settings = {name.replace("-", "_"): value for name, value in pairs.items()}
        if "at" not in settings:
            raise UsageError(
                "it has no at; give the step, such as at=2000, or at=stalled:3, at=truncated:0.2"
            )
        at = settings.pop("at")
        reset = settings.pop("reset", "")
        if reset != "":
            require_one_of("reset", reset, RESETS)
        option_values = settings.pop("option", {})
        options = dict(option_values) if isinstance(option_values, Mapping) else {}
        for name in [name for name in settings if name.startswith("option.")]:
            options[name.removeprefix("option.")] = settings.pop(name)
        schedules = {
            name: schedule
            for name, value in settings.items()
            if (schedule := NumberSchedule.read(value))
        }
        values = {name: value for name, value in settings.items() if name not in schedules}
        if not (values or schedules or options or reset):
            raise UsageError("it changes nothing; " + _WAYS)
        fields = {
            "at": at,
            **settings,
            **{f"option.{name}": option for name, option in options.items()},
        }
        # In one form, whatever was written: runs are compared by it.
        text = ",".join(
            f"{name}={_show(schedules.get(name, value))}" for name, value in fields.items()
        ) + (f",reset={reset}" if reset else "")
        return cls(text, *_read_at(at), values, schedules, options, reset)

    @property
    def changes(self) -> frozenset[str]:
        """Names of the settings and numbers that it changes."""
        return frozenset({*self.values, *self.schedules})

    @property
    def is_conditional(self) -> bool:
        """Whether something else than the step decides when it begins."""
        return self.step is None


def _read_at(at: object) -> tuple[int | None, int | None, float | None]:
    """The step, the validations without a new best, or the share of truncated completions."""
    kind, _, bound = str(at).partition(":")
    way_out = "give a step, such as 2000, stalled:3 (validations) or truncated:0.2 (a share)"
    try:
        value: object = json.loads(bound if bound else kind)
    except ValueError:
        raise UsageError(f"at is {brief(at)}; {way_out}") from None
    # `bool` is an int, and at=true no step.
    if not bound and not isinstance(at, bool):
        return int(require_whole("at", value, 0)), None, None
    if kind == "stalled":
        return None, int(require_whole("at=stalled", value, 1)), None
    if kind == "truncated":
        return None, None, float(require_number("at=truncated", value, above=0, most=1))
    raise UsageError(f"at is {brief(at)}; {way_out}")


def _show(value: object) -> str:
    """A value as the text of a stage has it."""
    if isinstance(value, NumberSchedule):
        return str(value)
    if isinstance(value, str) and _plain(value):
        return value
    # Sorted keys: equal options are equal texts.
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _plain(text: str) -> bool:
    """Whether a text is read as itself without quotes."""
    if text != text.strip() or not text or any(sign in text for sign in ',"()[]{}'):
        return False
    try:
        json.loads(text)
    except ValueError:
        return True
    return False


def _split(text: str) -> Iterable[str]:
    """The pairs of a stage's text: at commas that are in no brackets and no quotes."""
    depth, quoted, escaped, begun = 0, False, False, 0
    for at, sign in enumerate(text):
        if quoted:
            # A quote behind a backslash does not end the
            # text; a backslash behind one is itself escaped.
            quoted, escaped = sign != '"' or escaped, sign == "\\" and not escaped
        elif sign == '"':
            quoted = True
        elif sign in _OPEN:
            depth += 1
        elif sign in _CLOSED:
            depth -= 1
        elif sign == "," and depth == 0:
            yield text[begun:at]
            begun = at + 1
    if quoted or depth:
        raise UsageError("a bracket or quote is not closed")
    yield text[begun:]


def pairs_of(text: str) -> dict[str, object]:
    """The NAME=VALUE pairs of a text; values are JSON where they can be, or else texts.

    Args:
        text: with commas between pairs; those in brackets and quotes are of values.

    Raises:
        UsageError: one is no pair, or is there twice.
    """
    pairs: dict[str, object] = {}
    for word in _split(text):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not value or not _NAME.fullmatch(name):
            raise UsageError(f"{word.strip()!r} is no setting; {_WAYS}")
        if name in pairs:
            raise UsageError(f"{name} is given twice; give it once")
        try:
            # Python's True and False, too.
            pairs[name] = json.loads(value.lower() if value in ("True", "False") else value)
        except (ValueError, RecursionError):
            pairs[name] = value
    return pairs


def read_stages(name: str, value: object) -> tuple[str, ...]:
    """The stages of a run in the form that is recorded.

    Args:
        name: of the setting.
        value: texts, or tables of TOML.

    Raises:
        UsageError: one cannot be read, two begin at one step, or they are not in order.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UsageError(f"{name} is {brief(value)}; give a list of stages: {_WAYS}")
    stages: list[Stage] = []
    for stage_text in value:
        try:
            stages.append(stage_of(stage_text))
        except UsageError as error:
            raise UsageError(f"{name} {brief(stage_text)}: {error}") from None
    steps = [stage.step for stage in stages if stage.step is not None]
    for earlier, later in pairwise(steps):
        if earlier == later:
            raise UsageError(f"two stages begin at step {later}; make one of them")
        if later < earlier:
            raise UsageError(
                f"the stage at step {later} stands behind the one at {earlier}; give them in order"
            )
    return tuple(stage.text for stage in stages)


def stage_of(one: object) -> Stage:
    """One stage.

    Args:
        one: its text, or a table of TOML.

    Raises:
        UsageError: it is none.
    """
    if isinstance(one, str):
        return Stage.of(pairs_of(one))
    if isinstance(one, Mapping):
        return Stage.of(one)
    raise UsageError(f"it is a {type(one).__name__}; {_WAYS}")


def require_ahead(before: Sequence[str], now: Sequence[str], run: Path) -> None:
    """Refuse other stages for a run that goes on, unless they lie ahead.

    Args:
        before, now: stages as they are recorded.
        run: its folder, with the steps that it has logged.

    Raises:
        UsageError: one that has begun differs, or a new one lies in the past.
    """
    log = run / "metrics.jsonl"
    names = [path.stem for path in (run / "checkpoints").glob("step-*.pt")]
    # From the names of checkpoints: steps that are only logged are run again.
    done = max((int(name.removeprefix("step-")) for name in names), default=0)
    rows = read_metrics(log) if log.is_file() else []
    begun = {int(row["stage"]) for row in rows if row["step"] <= done and row.get("stage")}
    for number in sorted(begun):
        if list(before[:number]) != list(now[:number]):
            raise UsageError(
                f"stage {number} of the run in {run} has begun as {before[number - 1]!r}; it and "
                "those before it have to stay, and only stages that lie ahead may change"
            )
    for text in now:
        step = stage_of(text).step
        if step is not None and step <= done and text not in before:
            raise UsageError(
                f"the stage {text!r} lies in the past: the run in {run} has done {done} steps; "
                f"give a later one"
            )


def has_open_end(stages: Sequence[str]) -> bool:
    """Whether a schedule of these lasts until the run's last step, which then cannot change.

    Args:
        stages: as they are recorded.
    """
    every = [schedule for text in stages for schedule in stage_of(text).schedules.values()]
    return any(schedule.shape != "towards" and schedule.steps is None for schedule in every)
