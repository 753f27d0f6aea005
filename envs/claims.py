"""What knights and knaves say of each other, in words and as a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from random import Random
from typing import TypeAlias

__all__ = ["Claim", "drawn_claims", "say_claim", "solutions"]

Claim: TypeAlias = tuple[str, int, int]
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


def drawn_claims(rng: Random, people: int) -> list[Claim]:
    """One claim of each person: about another alone, or about any two.

    Args:
        rng: draws them.
        people: how many there are.
    """
    return [_draw_claim(rng, me, people) for me in range(people)]


def solutions(claims: Sequence[Claim]) -> list[tuple[bool, ...]]:
    """Every assignment, True for a knight, under which knights tell the truth and knaves lie.

    Args:
        claims: of each person.
    """
    return [roles for roles in product((True, False), repeat=len(claims)) if _fits(claims, roles)]


def say_claim(claim: Claim, names: Sequence[str]) -> str:
    """A claim in words.

    Args:
        claim: the claim.
        names: of the people.
    """
    kind, a, b = claim
    return _CLAIMS[kind][0].format(a=names[a], b=names[b])


def _draw_claim(rng: Random, me: int, people: int) -> Claim:
    kind, (a, b) = rng.choice(list(_CLAIMS)), rng.sample(range(people), 2)
    # A claim about oneself tells nothing: knights and knaves both call themselves knights.
    return (kind, b, a) if a == me and kind in ("knight", "knave") else (kind, a, b)


def _fits(claims: Iterable[Claim], roles: Sequence[bool]) -> bool:
    return all(
        # What a knight says is true, what a knave says is not.
        _CLAIMS[kind][1](roles[a], roles[b]) == roles[me]
        for me, (kind, a, b) in enumerate(claims)
    )
