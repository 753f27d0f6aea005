"""Formulas, balanced equations and molar masses, procedural or from rows."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Literal

import rlvr
from rlvr.envs.puzzles import Made, Puzzle
from rlvr.envs.reactions import named_salt, reaction_sides, write_equation
from rlvr.verifiers.chemistry import ChemistryVerifier, balance_reaction, molar_mass

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["Chemistry"]


@rlvr.register("chem-v4")
class Chemistry(Puzzle):
    """Balance an equation, write the formula of a salt, or compute a molar mass.

    Options:
        ask: which of the three; by default any.
        data: rows with `question` and `answer`: a balanced equation, a formula, or a quantity such
            as "18.015 g/mol".
    """

    domain = "science"
    ask: Literal["any", "equation", "formula", "mass"] = "any"
    data: str = ""
    reward = rlvr.Correct(ChemistryVerifier())

    def make(self, rng: Random, mine: Callable[[object], bool]) -> Made | None:
        ask = (
            # Equations as often as the two others together.
            rng.choice(("equation", "equation", "formula", "mass"))
            if self.ask == "any"
            else self.ask
        )
        if ask == "equation":
            left, right = reaction_sides(rng)
            counts = balance_reaction(left, right)
            # A reaction whose coefficients are all 1 is balanced as it stands.
            if not mine((sorted(left), sorted(right))) or counts is None or max(counts) == 1:
                return None
            answer = write_equation(left, right, counts)
            how = "Balance this equation with the smallest whole coefficients"
            return Made(f"{how}: {write_equation(left, right, [])}\n{_WHERE}", answer, answer)
        name, formula = named_salt(rng)
        if not mine(name):
            return None
        if ask == "formula":
            return Made(f"What is the formula of {name}? {_WHERE}", formula, formula)
        answer = f"{float(molar_mass(formula)):.5g} g/mol"
        return Made(f"What is the molar mass of {name}, with its unit? {_WHERE}", answer, answer)

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        if not isinstance(row.get("question"), str) or "answer" not in row:
            raise rlvr.DataError(
                f"{id}: needs 'question' and 'answer'; it has {', '.join(map(repr, row))}"
            )
        try:
            reference = self.reference_of(row["answer"])
        except rlvr.DataError as error:
            raise rlvr.DataError(f"{id}: {error}") from None
        return rlvr.Task(id, f"{row['question']}\n{_WHERE}", reference, {"solution": reference})


_WHERE = "Give the answer between <answer> and </answer>."
