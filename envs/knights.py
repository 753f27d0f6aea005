"""Knights and knaves: who always tells the truth, and who always lies?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from random import Random
from typing import Any, TypeAlias

import rlvr
from rlvr.envs.puzzles import Made, Puzzle
from rlvr.validate import require_whole
from rlvr.verifiers.logic import RolesVerifier

__all__ = ["Knights"]

_NAMES = "Ann Bob Carl Dora Emil Flora Greta Hugo Ida Jonas Karla Ludo Mira Nils Olga Paul".split()
_HOW = (
    "Every person is either a knight, who always tells the truth, or a knave, who always lies. {said} Who is what? "
    "Give every name with its role between <answer> and </answer>, such as <answer>{names}</answer>."
)

_Claim: TypeAlias = tuple[str, int, int]
"""What is claimed (see `_CLAIMS`) of which two persons."""

_CLAIMS: dict[str, tuple[str, Callable[[bool, bool], bool]]] = {
    "knight": ("{a} is a knight", lambda a, b: a),
    "knave": ("{a} is a knave", lambda a, b: not a),
    "same": ("{a} and {b} are of the same kind", lambda a, b: a == b),
    "other": ("{a} and {b} are of different kinds", lambda a, b: a != b),
    "or": ("{a} is a knight or {b} is a knave", lambda a, b: a or not b),
    "and": ("{a} is a knave and {b} is a knight", lambda a, b: not a and b),
    "if": ("if {a} is a knight, then {b} is a knave", lambda a, b: not (a and b)),
}


@rlvr.register("kk-v1")
class Knights(Puzzle):
    """Knights and knaves with exactly one solution, found by trying all; the whole assignment counts.

    A guess is right once in 2^people.

    Options:
        people: from 2 to 8.
        data: rows with `quiz`, `names` and `solution` (K-and-K/knights-and-knaves) to take instead.
    """

    people: int = 4
    data: str = ""
    reward = rlvr.Correct(RolesVerifier())

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("people", self.people, 2, 8)

    def make(self, rng: Random, mine: Callable[[Any], bool]) -> Made | None:
        n = self.people
        claims = [_drawn(rng, me, n) for me in range(n)]
        if not mine(claims):
            return None
        solutions = [roles for roles in product((True, False), repeat=n) if _fits(claims, roles)]
        if len(solutions) != 1:
            return None
        names = rng.sample(_NAMES, n)
        said = " ".join(
            f'{names[me]} says: "{_CLAIMS[kind][0].format(a=names[a], b=names[b])}."'
            for me, (kind, a, b) in enumerate(claims)
        )
        reference = _roles(names, solutions[0])
        asked = ", ".join(f"{name}: ..." for name in names)
        solution = ", ".join(f"{name}: {role}" for name, role in reference.items())
        return Made(_HOW.format(said=said, names=asked), reference, solution)

    def task_from(self, row: Mapping[str, Any], id: str = "row") -> rlvr.Task:
        quiz, names, solution = row.get("quiz"), row.get("names"), row.get("solution")
        if not isinstance(quiz, str) or not names or not solution or len(names) != len(solution):
            raise rlvr.DataError(f"{id}: needs 'quiz', 'names' and a 'solution' for each; it has {', '.join(row)}")
        reference = _roles(names, [bool(one) for one in solution])
        asked = ", ".join(f"{name}: ..." for name in names)
        solved = ", ".join(f"{name}: {role}" for name, role in reference.items())
        return rlvr.Task(
            id, f"{quiz}\n\nGive every role between <answer> and </answer>: {asked}", reference, {"solution": solved}
        )


def _drawn(rng: Random, me: int, people: int) -> _Claim:
    """A claim of one person: about another alone, or about any two."""
    kind, (a, b) = rng.choice(list(_CLAIMS)), rng.sample(range(people), 2)
    return (kind, b, a) if a == me and kind in ("knight", "knave") else (kind, a, b)


def _fits(claims: Iterable[_Claim], roles: Any) -> bool:
    return all(_CLAIMS[kind][1](roles[a], roles[b]) == roles[me] for me, (kind, a, b) in enumerate(claims))


def _roles(names: Iterable[str], solution: Iterable[bool]) -> dict[str, str]:
    return {name: "knight" if role else "knave" for name, role in zip(names, solution, strict=True)}
