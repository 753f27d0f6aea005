"""Knights and knaves: who always tells the truth, and who always lies?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING

import rlvr
from rlvr.envs.claims import drawn_claims, say_claim, solutions
from rlvr.envs.puzzles import Made, Puzzle
from rlvr.validate import require_whole
from rlvr.verifiers.logic import RolesVerifier

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["Knights"]

_NAMES = "Ann Bob Carl Dora Emil Flora Greta Hugo Ida Jonas Karla Ludo Mira Nils Olga Paul".split()
_HOW = (
    "Every person is either a knight, who always tells the truth, or a knave, who always lies. "
    "{said} Who is what? Give every name with its role between <answer> and </answer>, such as "
    "<answer>{names}</answer>."
)


@rlvr.register("kk-v4")
class Knights(Puzzle):
    """Knights and knaves with exactly one solution, found by trying all; the
    whole assignment counts.

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

    def make(self, rng: Random, mine: Callable[[object], bool]) -> Made | None:
        n = self.people
        claims = drawn_claims(rng, n)
        if not mine(claims):
            return None
        assignments = solutions(claims)
        if len(assignments) != 1:
            return None
        names = rng.sample(_NAMES, n)
        sentences = " ".join(
            f'{name} says: "{say_claim(claim, names)}."'
            for name, claim in zip(names, claims, strict=True)
        )
        reference = _roles(names, assignments[0])
        return Made(
            _HOW.format(said=sentences, names=_ask_roles(names)),
            reference,
            _write_solution(reference),
        )

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        quiz, names, solution = row.get("quiz"), row.get("names"), row.get("solution")
        if not isinstance(quiz, str) or not names or not solution or len(names) != len(solution):
            raise rlvr.DataError(
                f"{id}: needs 'quiz', 'names' and a 'solution' for each; it has {', '.join(row)}"
            )
        reference = _roles(names, [bool(is_knight) for is_knight in solution])
        prompt = f"{quiz}\n\nGive every role between <answer> and </answer>: {_ask_roles(names)}"
        return rlvr.Task(id, prompt, reference, {"solution": _write_solution(reference)})


def _roles(names: Iterable[str], solution: Iterable[bool]) -> dict[str, str]:
    return {name: "knight" if role else "knave" for name, role in zip(names, solution, strict=True)}


def _ask_roles(names: Iterable[str]) -> str:
    return ", ".join(f"{name}: ..." for name in names)


def _write_solution(reference: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {role}" for name, role in reference.items())
