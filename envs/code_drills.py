"""Code drills: functions of one to five lines, made without end, whose hidden tests tell
them from their neighbours."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

import rlvr
from rlvr.envs.code import CodeEnv
from rlvr.types import JsonDict
from rlvr.validate import require_one_of, require_whole
from rlvr.verifiers.code.operators import mutants

__all__ = ["CodeDrills"]

_SPLITS = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}  # tenths
_POOL: Final = 240
"""Inputs from which the tests of a task are chosen."""
_FEWEST: Final = 8
"""Tests of a task at least, with results that differ where they can: no constant passes."""


@dataclass(frozen=True)
class _Step:
    """One operation: `{x}` is its operand and `{c}` its constant, in the code and in the words.

    Attributes:
        takes, gives: kinds of value: "int", "str" or "list" (of int).
        code, words: of the result.
        constants: what `{c}` may be; empty for none.
    """

    takes: str
    gives: str
    code: str
    words: str
    constants: tuple[object, ...] = ()


_SMALL: Final = tuple(range(1, 10))
_STEPS: Final = (
    _Step("int", "int", "{x} + {c}", "{x} plus {c}", _SMALL),
    _Step("int", "int", "{x} - {c}", "{x} minus {c}", _SMALL),
    _Step("int", "int", "{x} * {c}", "{x} times {c}", _SMALL[1:]),
    _Step("int", "int", "{c} - {x}", "{c} minus {x}", _SMALL),
    _Step("int", "int", "{x} % {c}", "the remainder of {x} divided by {c}", _SMALL[1:]),
    _Step("int", "int", "{x} // {c}", "{x} divided by {c}, rounded down", _SMALL[1:]),
    _Step("int", "int", "abs({x})", "the absolute value of {x}"),
    _Step("int", "int", "{x} ** 2", "the square of {x}"),
    _Step("int", "int", "max({x}, {c})", "the larger of {x} and {c}", _SMALL),
    _Step("int", "int", "min({x}, {c})", "the smaller of {x} and {c}", _SMALL),
    _Step("int", "str", "str({x})", "{x} as a string"),
    _Step(
        "int",
        "list",
        "list(range({x} % 7))",
        "the list of the integers from 0 up to, without, {x} modulo 7",
    ),
    _Step("str", "int", "len({x})", "the length of {x}"),
    _Step("str", "int", "{x}.count({c!r})", "how often {c!r} occurs in {x}", tuple("abe")),
    _Step("str", "str", "{x}.upper()", "{x} in upper case"),
    _Step("str", "str", "{x}[::-1]", "{x} reversed"),
    _Step("str", "str", "{x} + {c!r}", "{x} followed by {c!r}", ("!", "?", "ing", "s")),
    _Step("str", "str", "{x} * {c}", "{x} repeated {c} times", (2, 3)),
    _Step("str", "str", "{x}[:{c}]", "the first {c} characters of {x}", (1, 2, 3)),
    _Step("str", "str", "{x}[{c}:]", "{x} without its first {c} characters", (1, 2, 3)),
    _Step("str", "str", "{x}.replace({c!r}, '')", "{x} without every {c!r}", tuple("abe")),
    _Step("list", "int", "len({x})", "the length of {x}"),
    _Step("list", "int", "sum({x})", "the sum of {x}"),
    _Step(
        "list",
        "int",
        "max({x}, default={c})",
        "the largest item of {x}, or {c} if it is empty",
        (0, 1),
    ),
    _Step("list", "int", "{x}.count({c})", "how often {c} occurs in {x}", _SMALL[:4]),
    _Step("list", "list", "sorted({x})", "{x} in ascending order"),
    _Step("list", "list", "{x}[::-1]", "{x} reversed"),
    _Step("list", "list", "{x} + [{c}]", "{x} with {c} appended", _SMALL),
    _Step(
        "list", "list", "[v + {c} for v in {x}]", "the list of each item of {x} plus {c}", _SMALL
    ),
    _Step(
        "list",
        "list",
        "[v * {c} for v in {x}]",
        "the list of each item of {x} times {c}",
        _SMALL[1:],
    ),
    _Step(
        "list", "list", "[v for v in {x} if v > {c}]", "the items of {x} greater than {c}", _SMALL
    ),
    _Step(
        "list",
        "list",
        "[v for v in {x} if v % {c} == 0]",
        "the items of {x} divisible by {c}",
        (2, 3),
    ),
)

_CONDITIONS: Final = (
    _Step("int", "bool", "{x} > {c}", "{x} is greater than {c}", _SMALL),
    _Step("int", "bool", "{x} < {c}", "{x} is less than {c}", _SMALL),
    _Step("int", "bool", "{x} % {c} == 0", "{x} is divisible by {c}", (2, 3, 5)),
    _Step("str", "bool", "len({x}) > {c}", "{x} has more than {c} characters", (2, 3, 4, 5)),
    _Step("str", "bool", "{c!r} in {x}", "{x} contains {c!r}", tuple("abe")),
    _Step("list", "bool", "len({x}) > {c}", "{x} has more than {c} items", (1, 2, 3)),
    _Step("list", "bool", "{c} in {x}", "{x} contains {c}", _SMALL[:4]),
)
_NEAR: Final = {" > ": (" >= ", " < "), " < ": (" <= ", " > "), " == 0": (" != 0",)}
"""What a condition is changed to for a neighbour."""

_ARGUMENTS: Final = {"int": "n", "str": "text", "list": "items"}


@dataclass(frozen=True)
class _Applied:
    """A step with its constant."""

    step: _Step
    constant: object = None

    def code(self, operand: str) -> str:
        return self.step.code.format(x=operand, c=self.constant)

    def words(self, operand: str) -> str:
        return self.step.words.format(x=operand, c=self.constant)

    def neighbours(self, steps: Sequence[_Step]) -> Iterator[_Applied]:
        """The same with another constant, and other steps between the same kinds of value."""
        for constant in self.step.constants:
            if constant != self.constant:
                yield replace(self, constant=constant)
        for step in steps:
            if (step.takes, step.gives) == (self.step.takes, self.step.gives) and step != self.step:
                near = [c for c in step.constants if c == self.constant] or step.constants[:1]
                yield _Applied(step, near[0] if near else None)


@dataclass(frozen=True)
class _Drill:
    """A function of one argument: steps one after the other; with a condition, other
    steps where it does not hold."""

    kind: str
    steps: tuple[_Applied, ...]
    condition: _Applied | None = None
    otherwise: tuple[_Applied, ...] = ()
    test: str = ""
    """The condition's code, where a neighbour has another than the condition's own."""

    def code(self, name: str = "f") -> str:
        """The function; a line for each step beyond the first."""
        x = _ARGUMENTS[self.kind]
        lines = [f"def {name}({x}):"]
        if self.condition is not None:
            lines += [f"    if {self.test or self.condition.code(x)}:"]
            lines += _body(self.steps, x, 8)
            return "\n".join([*lines, *_body(self.otherwise, x, 4)]) + "\n"
        return "\n".join([*lines, *_body(self.steps, x, 4)]) + "\n"

    def words(self) -> str:
        """What it returns."""
        x = f"`{_ARGUMENTS[self.kind]}`"
        first = _in_words_of(self.steps, x)
        if self.condition is None:
            return first
        return (
            f"{first} if {self.condition.words(x)}, and otherwise {_in_words_of(self.otherwise, x)}"
        )

    def neighbours(self, *, same_steps: bool = False) -> Iterator[_Drill]:
        """Functions that differ in one place: what a slip would write.

        Args:
            same_steps: only those with other constants, or without one of the steps.
        """
        for near in self._near(self.steps, same_steps):
            yield replace(self, steps=near)
        for near in self._near(self.otherwise, same_steps):
            yield replace(self, otherwise=near)
        if self.condition is None:
            return
        # Branches exchanged, the condition always taken, the condition never taken.
        yield replace(self, steps=self.otherwise, otherwise=self.steps)
        yield replace(self, condition=None)
        yield replace(self, steps=self.otherwise, condition=None)
        text = self.condition.code(_ARGUMENTS[self.kind])
        for sign, neighbour_signs in _NEAR.items():
            for neighbour in neighbour_signs if sign in text else ():
                yield replace(self, test=text.replace(sign, neighbour))
        for condition in self.condition.neighbours(() if same_steps else _CONDITIONS):
            yield replace(self, condition=condition)

    def _near(self, steps: tuple[_Applied, ...], same: bool) -> Iterator[tuple[_Applied, ...]]:
        """The steps with one changed, and without one of them."""
        for at, step in enumerate(steps):
            for neighbour in step.neighbours(() if same else _STEPS):
                yield (*steps[:at], neighbour, *steps[at + 1 :])
        for at in range(len(steps) * (len(steps) > 1)):
            shorter = (*steps[:at], *steps[at + 1 :])
            if _fits(self.kind, shorter):
                yield shorter


def _body(steps: Sequence[_Applied], x: str, indent: int) -> list[str]:
    """The lines that compute the steps from the argument and return the last."""
    lines = [" " * indent + f"{x} = {step.code(x)}" for step in steps[:-1]]
    return [*lines, " " * indent + f"return {steps[-1].code(x)}"]


def _in_words_of(steps: Sequence[_Applied], x: str) -> str:
    words = steps[0].words(x)
    for step in steps[1:]:
        words += f"; of that, {step.words('the result')}"
    return words


def _fits(kind: str, steps: Sequence[_Applied]) -> bool:
    """Whether each step takes what the one before it gives."""
    for applied in steps:
        if applied.step.takes != kind:
            return False
        kind = applied.step.gives
    return True


@rlvr.register("code-drills-v1")
class CodeDrills(CodeEnv):
    """Write a function of one to five lines; hidden tests tell it from all its neighbours.

    A neighbour differs in one constant, operation, step, branch or condition.  The tests hold, for
    each neighbour that differs on one of 240 inputs at all, an input on which it does.

    Options:
        level: 1: one operation; 2: two; 3: a condition between two operations; 4: a condition
            between two times two.
        shown: number of asserts in the prompt; they are among the tests, which have others besides.
        instruction: what follows the description in the prompt.
        partial, report, cpu_s, memory_mib, packages, allow_missing, sandbox: see `CodeEnv`.

    `split` is train, validation or test; a hash of its code assigns each function to one of them.
    """

    domain = "programs"
    level: int = 1
    shown: int = 2
    instruction: str = "Answer with the whole function in a ```python block."
    cpu_s: float = 2.0

    def __post_init__(self) -> None:
        require_whole("level", self.level, 1, 4)
        require_whole("shown", self.shown, 0)
        require_one_of("split", self.split, _SPLITS)
        super().__post_init__()

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded(self.id, self.split, self.level, index)
        while True:
            drill = _drill(rng, self.level)
            test_rng = rlvr.seeded(self.id, drill.code())  # the same function has the same tests
            if _tenth(drill) in _SPLITS[self.split] and (tests := _tests(drill, test_rng)):
                break
        name, x = "f", _ARGUMENTS[drill.kind]
        kind = {"int": "an integer", "str": "a string", "list": "a list of integers"}[drill.kind]
        asserts = [f"assert {name}({argument!r}) == {expected!r}" for argument, expected in tests]
        examples = "\n".join(asserts[: self.shown])
        parts = (
            f"Write a Python function `{name}({x})` that takes {kind} and returns {drill.words()}.",
            examples and f"For example:\n\n```python\n{examples}\n```",
            self.instruction,
        )
        reference = {"test": "\n".join(asserts), "style": "asserts", "entry_point": name}
        return rlvr.Task(
            f"{self.id}/{self.split}/{self.level}/{index}",
            "\n\n".join(filter(None, parts)),
            reference,
            {"solution": drill.code(name)},
        )


def _apply_step(rng: Random, step: _Step) -> _Applied:
    return _Applied(step, rng.choice(step.constants) if step.constants else None)


def _drill(rng: Random, level: int) -> _Drill:
    """A function of this level, of any kind of argument."""
    kind = rng.choice(sorted(_ARGUMENTS))
    count = 1 if level in (1, 3) else 2
    steps = _chain(rng, kind, count, gives=None)
    if level <= 2:
        return _Drill(kind, steps)
    condition = _apply_step(
        rng, rng.choice([candidate for candidate in _CONDITIONS if candidate.takes == kind])
    )
    return _Drill(kind, steps, condition, _chain(rng, kind, count, steps[-1].step.gives))


def _chain(rng: Random, kind: str, count: int, gives: str | None) -> tuple[_Applied, ...]:
    """Steps that fit each other, the last of which gives this kind of value; None for any."""
    while True:
        steps, current_kind = [], kind
        for _ in range(count):
            step = rng.choice(
                [candidate for candidate in _STEPS if candidate.takes == current_kind]
            )
            steps.append(_apply_step(rng, step))
            current_kind = step.gives
        if gives in (None, current_kind):
            return tuple(steps)


def _tests(drill: _Drill, rng: Random) -> list[tuple[object, object]]:
    """Inputs with results that tell the drill from its neighbours; [] if it does nothing of
    interest.

    Inputs are taken greedily: each next one refutes the most of the neighbours that are left, or
    has a new result.
    """
    pool = list({repr(argument): argument for argument in _inputs(drill.kind, rng)}.values())
    right = _results(drill, pool)
    texts = list(map(repr, right))
    # A constant, or the identity, could be passed without understanding.
    if len(set(texts)) < 3 or repr(right) == repr(pool):
        return []
    left: list[set[int]] = []
    vague = {neighbour.code() for neighbour in drill.neighbours(same_steps=True)}
    for near in dict.fromkeys(neighbour.code() for neighbour in drill.neighbours()):
        differs = _differing(_results(near, pool), texts)
        if not differs and near not in vague:
            continue  # the same function, written otherwise
        if not differs:
            return []  # a constant or a step that hardly ever matters
        left.append(differs)
    for mutant in mutants(drill.code()):
        if mutant.operator != "arithmetic":  # x ** 7 for x % 7 would be a list without end
            differs = _differing(_results(mutant.source, pool), texts)
            left += [differs] if differs else []  # else the same function, written otherwise
    chosen: list[int] = []
    while left or len(chosen) < _FEWEST:
        chosen_results = {texts[at] for at in chosen}
        refuted = Counter(at for differs in left for at in differs)
        best = max(
            (at for at in range(len(pool)) if at not in chosen),
            key=lambda at: (refuted[at], texts[at] not in chosen_results),
        )
        chosen.append(best)
        left = [differs for differs in left if best not in differs]
    # In any order, or the most telling input would always come first.
    rng.shuffle(chosen)
    return [(pool[at], right[at]) for at in chosen]


def _differing(results: Sequence[object], texts: Sequence[str]) -> set[int]:
    """Where a result is written otherwise than the right one."""
    return {at for at, result in enumerate(results) if repr(result) != texts[at]}


def _results(drill: _Drill | str, pool: Sequence[object]) -> list[object]:
    """What the function gives for each input; its code is ours, made of the tables above."""
    scope: JsonDict = {}
    # no text of others
    exec(drill if isinstance(drill, str) else drill.code(), scope)  # noqa: S102
    function: Callable[[Any], object] = scope["f"]
    return [_result(function, argument) for argument in pool]


def _result(function: Callable[[Any], object], argument: object) -> object:
    """What the function gives; of one that raises, the error's class: only a mutant of it does."""
    try:
        return function(argument)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        NameError,
        TypeError,
        ValueError,
    ) as error:
        return type(error)


def _inputs(kind: str, rng: Random) -> Iterator[object]:
    """Inputs of a kind: what is special about it, then drawn ones."""
    # Words with the letters that steps count and remove.
    words = ("apple", "banana", "sea", "tree", "be", "data", "ocean", "abbey", "level", "cabbage")
    special: dict[str, list[object]] = {
        "int": [0, 1, -1, 2, *range(3, 13)],
        "str": ["", "a", "ab", "abc", *words],
        "list": [[], [1], [2, 2], [3, 1, 2], [9, 8, 7, 6]],
    }
    yield from special[kind]
    for _ in range(_POOL - len(special[kind])):
        if kind == "int":
            yield rng.randrange(-30, 100)
        elif kind == "str":
            yield "".join(rng.choices("abcdeXY ", k=rng.randrange(1, 9)))
        else:
            yield [rng.randrange(-5, 15) for _ in range(rng.randrange(1, 7))]


def _tenth(drill: _Drill) -> int:
    """From 0 to 9, by a hash of the function's code."""
    return int.from_bytes(hashlib.sha256(drill.code().encode()).digest()[:4], "big") % 10
