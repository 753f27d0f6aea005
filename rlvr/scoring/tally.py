"""What a run of scores came to, as a table for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlvr.data.rows import Row
from rlvr.scoring.scorer import Scored
from rlvr.types import Outcome

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Tally"]

_LOST = 5  # how many reasons of ours are shown in full


@dataclass
class Tally:
    """Counts outcomes, reasons and parts as scores go by."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    reasons: Counter[tuple[Outcome, str]] = field(default_factory=Counter)
    parts: dict[str, float] = field(default_factory=dict)  # sums over scored completions
    total: float = 0.0
    lost: list[str] = field(default_factory=list)  # the first few texts of what we failed at

    def add(self, scored: Scored) -> None:
        """Count one score."""
        score = scored.score
        self._add(score.verdict.outcome, score.verdict.why, score.total, score.parts)

    def add_record(self, row: Row) -> None:
        """Count one record, as `rlvr score` writes them."""
        self._add(Outcome(row["outcome"]), row["why"], row["total"], row["parts"])

    def _add(self, outcome: Outcome, why: str, total: float | None, parts: Mapping[str, float]) -> None:
        self.outcomes[outcome] += 1
        self.reasons[outcome, _brief(why.partition(":")[0], 80) or "(no reason given)"] += 1
        if outcome is Outcome.UNSCORED and len(self.lost) < _LOST and (text := _brief(why, 500)) not in self.lost:
            self.lost.append(text)
        self.total += total or 0.0
        for name, value in parts.items():
            self.parts[name] = self.parts.get(name, 0.0) + value

    @property
    def count(self) -> int:
        return self.outcomes.total()

    @property
    def unscored(self) -> int:
        return self.outcomes[Outcome.UNSCORED]

    def show(self, console: Console) -> None:
        """Print outcomes with their reasons, what we failed at, then the mean of each part over what was scored."""
        from rich.markup import escape
        from rich.table import Table

        table = Table("outcome", "reason", caption=f"{self.count} completions")
        table.add_column("count", justify="right")
        table.add_column("share", justify="right")
        for outcome in Outcome:
            if not self.outcomes[outcome]:
                continue
            table.add_section()
            table.add_row(f"[bold]{outcome}", "", f"[bold]{self.outcomes[outcome]}", f"[bold]{self._share(outcome)}")
            for (of, reason), count in self.reasons.most_common():
                if of is outcome:
                    table.add_row("", escape(reason), str(count), "")
        console.print(table)
        for why in self.lost:
            console.print(f"[yellow]unscored:[/] {escape(why)}", soft_wrap=True, highlight=False)
        scored = self.count - self.unscored
        if scored:
            means = Table("part")
            means.add_column(f"adds, mean of {scored}", justify="right")
            for name, value in self.parts.items():
                means.add_row(escape(name), f"{value / scored:+.4f}")
            means.add_section()
            means.add_row("[bold]total", f"[bold]{self.total / scored:+.4f}")
            console.print(means)

    def _share(self, outcome: Outcome) -> str:
        return f"{self.outcomes[outcome] / self.count:.1%}"


def _brief(text: str, most: int) -> str:
    """A verifier may put a model's text where the reason belongs: long, or with what a terminal obeys."""
    shown = "".join(char if char.isprintable() else "\ufffd" for char in text[:most])
    return shown if len(text) <= most else f"{shown}…"
