"""reasoning-gym: its families of puzzles as environments; its scorers run in a
process that can be killed.

    env = from_reasoning_gym("gcd", max_numbers=4)  # or rlvr.make("reasoning-gym-v4", family="gcd")

Its generators and scorers are used as they are, with four differences.  A task's seed is a hash of
family, split and index: reasoning-gym adds the index to the seed, so that neighbouring seeds share
nearly all tasks.  Its scorers run in a process that can be killed, and an answer at which one
crashes or hangs is WRONG.  Only full marks earn credit, unless `strict=False`.  And families whose
scorers accept wrong answers are refused (`measured_holes`), above all those whose scorers run the
answer as Python, on this machine, outside any sandbox.  Needs the extra `puzzles`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from rlvr.environment import Environment, seeded
from rlvr.environment.registry import register
from rlvr.errors import (
    DataError,
    MissingDependency,
    UsageError,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
    brief,
    foreign_code,
)
from rlvr.rewards import Correct
from rlvr.types import JsonObject, Outcome, Task, Verdict, plain
from rlvr.validate import require_seconds
from rlvr.verifiers.answers import Form, find_answer
from rlvr.verifiers.base import BaseVerifier
from rlvr.workers import WorkerPool, once_per_process

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = [
    "FamilyVerifier",
    "Force",
    "RUNS_ANSWERS",
    "ReasoningGym",
    "from_reasoning_gym",
    "measured_holes",
]

Force: TypeAlias = bool | Literal["run-model-code"]
"""Which families to take in spite of holes: none, all but those whose scorers run the
answer, or those as well."""

RUNS_ANSWERS: Final = "its scorer runs the answer as Python, on this machine, outside any sandbox"
"""The worst hole: training on such a family lets the policy run programs."""

_INSTRUCTION: Final = (
    "Reason step by step, then put the answer, and nothing else, between <answer> and </answer>."
)
_LONGEST: Final = 100_000  # characters of an answer; the longest references have a few thousand
_WHICH: Final = (
    "name the puzzle in column 'task', by its index or id; a reference alone is not enough"
)
# well inside the Scorer's 30 s, whose kill is UNSCORED
_CPU_S, _WALL_S, _MEMORY_MIB = 5.0, 8.0, 2048
_ANSWERS_SHARE = 5 / 8  # of the wall seconds; the rest is for the reference, if the answer was lost
_KEPT = 256  # tasks; a group's completions are scored one after another


def from_reasoning_gym(
    name: str,
    *,
    split: str = "train",
    strict: bool = True,
    force: Force = False,
    **settings: object,
) -> ReasoningGym:
    """A family of reasoning-gym's puzzles as an environment.

    Args:
        name: the family, such as "gcd".
        split: any name; tasks of different splits are drawn from different seeds.
        strict: True: only full marks are CORRECT, and anything less is worth 0.  False keeps
            reasoning-gym's partial credit, which in many families pays for an answer that only
            contains the right one.
        force: True takes a family in spite of its holes, or one that was not measured in the
            installed version.  A family whose scorer runs the answer as Python, on this machine,
            outside any sandbox, needs `force="run-model-code"`; use a machine that may be lost.
        settings: of the family's own configuration, such as `max_numbers=4`; not `seed` and `size`.

    Raises:
        MissingDependency: reasoning-gym is not installed.
        UsageError: there is no such family or setting, or the family has holes or was not measured.
    """
    return ReasoningGym(family=name, split=split, strict=strict, force=force, settings=settings)


@register("reasoning-gym-v4")
class ReasoningGym(Environment):
    """A family of reasoning-gym's puzzles; the answer stands between <answer> tags.

    The reasons: `full-marks` is CORRECT; `no-answer` and `empty-box` UNPARSED; `hedged`,
    `too-long`, `not-full-marks`, `crash` (of the scorer), `limit` and `odd-score` WRONG.  `detail`
    has reasoning-gym's own score.

    Attributes:
        family, settings, strict, force: see `name` and the others of `from_reasoning_gym`.
        instruction: text after each prompt, which says where the answer goes.
        wall_s: wall seconds that scoring an answer may take.  The `wall_s` of a `Scorer` has to be
            clearly longer, since a completion that the `Scorer` kills is UNSCORED.
    """

    domain = "logic"
    family: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = True
    force: Force = False
    instruction: str = _INSTRUCTION
    wall_s: float = _WALL_S

    def __post_init__(self) -> None:
        families = _families()
        if self.family not in families:
            raise UsageError(
                f"reasoning-gym has no family {self.family!r}; it has {', '.join(families)}"
            )
        _require_sound(self.family, self.strict, self.force)
        require_seconds("wall_s", self.wall_s)
        if not isinstance(self.settings, Mapping) or {"seed", "size"} & self.settings.keys():
            raise UsageError(
                f"settings are {self.settings!r}: options of the family by name, without seed and "
                f"size"
            )
        try:
            self._settings = json.dumps(dict(self.settings), sort_keys=True)
            _make_puzzle(self.family, self._settings, 0)
        except Exception as error:  # whatever its configuration raises, assertions included
            raise UsageError(
                f"reasoning-gym's {self.family} refuses {self.settings!r}: {_describe_thing(error)}"
            ) from error

        verifier = FamilyVerifier(self.family, self._settings, self.strict, self.wall_s)
        # An instance may shadow its class's reward.
        self.reward = Correct(verifier)  # type: ignore[misc]

    def __setstate__(self, state: dict[str, object]) -> None:
        """Starts the scoring process of a `Scorer`'s worker: that takes a second, which no
        completion should pay."""
        vars(self).update(state)
        _workers().warm()

    def task(self, index: int) -> Task:
        entry = _make_puzzle(self.family, self._settings, self._seed(index))[1]
        prompt = f"{entry['question']}\n\n{self.instruction}".strip()
        name = f"{self.id}/{self.family}/{self.split}/{index}"
        return Task(name, prompt, entry["answer"], {"seed": self._seed(index)})

    def task_of(self, row: Row) -> Task:
        """By index or id, or from a record: a reference alone does not say which puzzle it
        answers."""
        task = super().task_of(row)
        if not isinstance(task.meta.get("seed"), int):
            raise DataError(_WHICH)
        return task

    def _seed(self, index: int) -> int:
        return seeded(self.id, self.family, self.split, index).getrandbits(32)

    def example(self, task: Task) -> str | None:
        return None if task.reference is None else f"<answer>{task.reference}</answer>"


@dataclass(frozen=True)
class FamilyVerifier(BaseVerifier["_Puzzled", Any]):
    """The scorer of a family of reasoning-gym, see `ReasoningGym`.

    Attributes:
        family: its name.
        settings: of its configuration, as JSON.
        strict, wall_s: see `ReasoningGym`.
    """

    family: str
    settings: str
    strict: bool
    wall_s: float
    version: ClassVar[int] = 1
    form: ClassVar[Form] = Form(lines=True, longest=_LONGEST)
    reference_form: ClassVar[str] = "reasoning-gym's answer to the puzzle of the task's seed"

    def read(self, reference: Any) -> Any:
        """The reference as it is: reasoning-gym's scorer compares it with its own.

        Args:
            reference: of any type.
        """
        return reference

    def extract(self, text: str, task: Task | None) -> _Puzzled | Verdict:
        """The answer, with the puzzle that it answers.

        Args:
            text: the completion.
            task: has the puzzle's seed.

        Raises:
            DataError: there is no task, or it has no seed.
        """
        if task is None or not isinstance(task.meta.get("seed"), int):
            raise DataError(_WHICH)
        answer = find_answer(text, self.form, task)
        return answer if isinstance(answer, Verdict) else _Puzzled(answer.text, task)

    def judge(self, answer: _Puzzled, reference: object) -> Verdict:
        """The verdict on an answer.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        shown_text = answer.text[:200]
        kind, mark = _marks(self.family, self.settings, answer.task, answer.text, self.wall_s)
        if kind != "marks":
            return Verdict(Outcome.WRONG, why=f"{kind}: {mark}", answer=shown_text)
        marks = {"reasoning_gym": mark}
        if mark == 1:
            return Verdict(Outcome.CORRECT, why="full-marks", answer=shown_text, detail=marks)
        value = 0.0 if self.strict else mark
        return Verdict(
            Outcome.WRONG, value=value, why="not-full-marks", answer=shown_text, detail=marks
        )


class _Puzzled(NamedTuple):
    """An answer, and the task with the puzzle's seed."""

    text: str
    task: Task


@lru_cache(maxsize=1)
def measured_holes() -> JsonObject:
    """What was measured of reasoning-gym's families, as `reasoning_gym_holes.json` holds it.  Not
    to be changed.

    Returns:
        `reasoning_gym`, the version that was measured; `command`, which measures it; `tasks`, the
        number of puzzles of each family; and `families`, by name with `holes`, which a policy would
        find although full marks are needed, and `partial_holes`, for which partial credit pays
        besides, as a share of full marks.
    """
    holes: Mapping[str, object] = json.loads(
        Path(__file__).with_name("reasoning_gym_holes.json").read_text("utf-8")
    )
    return holes


def _require_sound(family: str, strict: bool, force: Force) -> None:
    """Refuse a family with holes that a policy would find, unless `force` takes it."""
    measured = measured_holes()
    record = measured["families"].get(family, {"holes": [], "partial_holes": []})
    holes = record["holes"] + ([] if strict else record["partial_holes"])
    if RUNS_ANSWERS in holes and force != "run-model-code":
        raise UsageError(
            f"reasoning-gym's family {family!r} is refused: {'; '.join(holes)}.  "
            f"force='run-model-code' accepts it; "
            "use a machine that may be lost"
        )
    if force:
        return
    if holes:
        raise UsageError(
            f"reasoning-gym's family {family!r} is refused: {'; '.join(holes)}.  A policy would "
            "find that; force=True accepts it"
        )
    installed = version("reasoning-gym")
    if family not in measured["families"] or installed != measured["reasoning_gym"]:
        raise UsageError(
            f"reasoning-gym's family {family!r} is refused: its holes were not measured in version "
            f"{installed}, only those of {len(measured['families'])} families in "
            f"{measured['reasoning_gym']}.  Install that version; or force=True accepts it, better "
            "after benchmarks/reasoning_gym_families.py"
        )


def _families() -> list[str]:
    try:
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise MissingDependency("reasoning-gym, whose puzzles these are,", "puzzles") from error
    return sorted(DATASETS)


@lru_cache(maxsize=_KEPT)
def _make_puzzle(family: str, settings: str, seed: int) -> tuple[Any, Mapping[str, object]]:
    """The data set of one puzzle, which also scores it; and the puzzle.  Not to be changed."""
    from reasoning_gym.factory import create_dataset

    dataset = create_dataset(family, seed=seed, size=1, **json.loads(settings))
    return dataset, dataset[0]


# ----------------------------------------------------- its scorers, in a process that can be killed


def _marks(family: str, settings: str, task: Task, answer: str, wall_s: float) -> tuple[str, Any]:
    """("marks", the score); or the answer's fault ("crash", "odd-score" or "limit") and its
    description.

    Raises:
        Unscored: the scorer fails at the reference too, so that the answer is not at fault.
    """
    request = family, settings, task.meta["seed"], task.reference
    kind, result = _ask_worker((*request, answer), _ANSWERS_SHARE * wall_s)
    if kind == "lost":
        rest_s = (1 - _ANSWERS_SHARE) * wall_s
        if (
            task.reference is not None
            and _ask_worker((*request, task.reference), rest_s)[0] == "lost"
        ):
            raise WorkerDied(
                f"reasoning-gym's scorer of {family} was lost at its own reference: {result}"
            )
        return "limit", result
    return kind, result


def _ask_worker(request: tuple[str, str, int, Any, str], wall_s: float) -> tuple[str, Any]:
    try:
        kind, result = _workers().call(request, wall_s=wall_s, cpu_s=_CPU_S)
    except (WorkerTimeout, WorkerDied) as error:
        return "lost", str(error)
    except WorkerError as error:
        if error.kind == "MemoryError":
            return "lost", f"more than {_MEMORY_MIB} MiB"
        raise
    return kind, result


def _scoring() -> Callable[[tuple[str, str, int, Any, str]], tuple[str, object]]:
    """Set-up of the worker.  If the generator raises, we failed; if the scorer raises, the answer
    is at fault."""
    _families()  # imports reasoning-gym now, before the first answer's time begins

    def handle(request: tuple[str, str, int, Any, str]) -> tuple[str, object]:
        family, settings, seed, reference, answer = request
        dataset, entry = _make_puzzle(family, settings, seed)
        if entry["answer"] != reference:
            raise WorkerError(
                "Mismatch", f"reasoning-gym now has another answer to this puzzle of {family}"
            )
        marks = None
        with foreign_code(BaseException) as errors:
            marks = plain(dataset.score_answer(answer, deepcopy(entry)))
        for error in errors:
            if isinstance(error, MemoryError) or not isinstance(error, Exception | SystemExit):
                raise error
            return "crash", _describe_thing(error)
        if not isinstance(marks, (int, float)) or not 0 <= marks <= 1:  # false for NaN
            return "odd-score", _describe_thing(marks)
        return "marks", float(marks)

    return handle


@once_per_process
def _workers() -> WorkerPool:
    return WorkerPool(_scoring, workers=1, spares=0, memory_mib=_MEMORY_MIB, quiet=True)


def _describe_thing(thing: object) -> str:
    return brief(thing)[:200]
