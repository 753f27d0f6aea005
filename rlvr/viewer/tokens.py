"""Tokens of a rollout, coloured by a number of each: its probability, how a step
changed that, or its advantage."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from rlvr.text import inert

__all__ = ["COLOURS", "Tokens", "colour_tokens"]

_PIECE: Final = 4000  # tokens of a page


class Tokens(NamedTuple):
    """Tokens for a page."""

    html: Markup
    """The text, a piece of it for each token."""
    colour: str
    """What they are coloured by, a key of `COLOURS`."""
    legend: list[tuple[str, str]]
    """(class, meaning) of each colour."""
    start: int
    """Number of the first token."""
    end: int
    """Number after the last one."""
    total: int
    """Tokens of the rollout."""


_Level = tuple[float, str, str]  # from this value on: class, meaning

_PROBABILITY: Final[Sequence[_Level]] = (
    (math.log(0.9), "q0", "probability of at least 0.9"),
    (math.log(0.5), "q1", "0.5 to 0.9"),
    (math.log(0.1), "q2", "0.1 to 0.5"),
    (math.log(0.01), "q3", "0.01 to 0.1"),
    (-math.inf, "q4", "less than 0.01"),
)
_CHANGE: Final[Sequence[_Level]] = (
    (0.5, "d4", "log-probability rose by 0.5 or more"),
    (0.05, "d3", "rose by 0.05 to 0.5"),
    (-0.05, "d2", "changed by less than 0.05"),
    (-0.5, "d1", "fell by 0.05 to 0.5"),
    (-math.inf, "d0", "fell by 0.5 or more"),
)
_ADVANTAGE: Final[Sequence[_Level]] = (
    (1.0, "d4", "advantage of 1 or more"),
    (1e-6, "d3", "0 to 1"),
    (-1e-6, "d2", "0"),
    (-1.0, "d1", "-1 to 0"),
    (-math.inf, "d0", "-1 or less"),
)

_Value = Callable[[Mapping[str, Sequence[float]], int], float | None]


def _of(name: str) -> _Value:
    return lambda columns, i: columns[name][i] if name in columns else None


def _change(columns: Mapping[str, Sequence[float]], i: int) -> float | None:
    if "logprobs" not in columns or "behaviour_logprobs" not in columns:
        return None
    return columns["logprobs"][i] - columns["behaviour_logprobs"][i]


COLOURS: Final[Mapping[str, tuple[str, Sequence[_Level], _Value]]] = {
    "probability": ("probability when it was sampled", _PROBABILITY, _of("behaviour_logprobs")),
    "change": ("from sampling to its last update", _CHANGE, _change),
    "advantage": ("advantage", _ADVANTAGE, _of("advantages")),
}
"""What tokens are coloured by: name → (meaning, levels, number of a token)."""


def colour_tokens(row: Mapping[str, object], colour: str, start: int = 0) -> Tokens | None:
    """The tokens of a rollout; None where they were not recorded.

    Args:
        row: a row of a run's rollouts.
        colour: a key of `COLOURS`; another text is as good as the first.
        start: number of the first token that is shown.
    """
    texts = row.get("tokens")
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        return None
    columns = {
        name: values
        for name in ("behaviour_logprobs", "logprobs", "advantages")
        if isinstance(values := row.get(name), list) and len(values) == len(texts)
    }
    mask = row.get("completion_mask")
    mask = mask if isinstance(mask, list) and len(mask) == len(texts) else [True] * len(texts)
    colour = colour if colour in COLOURS else next(iter(COLOURS))
    _, levels, value_of = COLOURS[colour]
    start = min(max(0, start), len(texts) - 1)
    end = min(len(texts), start + _PIECE)
    parts = []
    for i in range(start, end):
        value = value_of(columns, i) if mask[i] else None
        level = (
            ""
            if value is None
            else next((name for lowest, name, _ in levels if value >= lowest), "")
        )
        span = Markup('<span class="t {}" title="{}">{}</span>')
        parts.append(
            span.format(
                level, _describe_token(columns, i, mask[i]), escape(inert(texts[i])) or Markup("·")
            )
        )
    legend = [(name, meaning) for _, name, meaning in levels]
    return Tokens(Markup("").join(parts), colour, legend, start, end, len(texts))


def _describe_token(columns: Mapping[str, Sequence[float]], i: int, trained: bool) -> str:
    """The numbers of a token in words."""
    if not trained:
        return f"token {i}: not the policy's, or not trained on"
    parts = [f"token {i}"]
    if "behaviour_logprobs" in columns:
        parts.append(f"log-probability {columns['behaviour_logprobs'][i]:.3f}")
    if "logprobs" in columns:
        parts.append(f"in the last update {columns['logprobs'][i]:.3f}")
    if "advantages" in columns:
        parts.append(f"advantage {columns['advantages'][i]:+.3f}")
    return ", ".join(parts)
