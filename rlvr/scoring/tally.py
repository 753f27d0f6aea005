"""Counts of a run's outcomes, reasons and parts, printed as tables."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlvr.data.lines import Row
from rlvr.scoring.ordering import Scored
from rlvr.types import Outcome

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Tally"]

_SHOWN_UNSCORED = 5  # reasons of UNSCORED completions that are shown in full


@dataclass
class Tally:
    """Counts outcomes, reasons and parts of scores.

    Attributes:
        outcomes: number of scores by outcome.
        reasons: number of scores by outcome and reason.
        parts: sum of each part over the scored completions.
        total: sum of the totals over the scored completions.
        unscored_whys: the first few different texts of UNSCORED completions.
    """

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    reasons: Counter[tuple[Outcome, str]] = field(default_factory=Counter)
    parts: dict[str, float] = field(default_factory=dict)
    total: float = 0.0
    unscored_whys: list[str] = field(default_factory=list)

    def add(self, scored: Scored) -> None:
        """Count one score.

        Args:
            scored: the item and its score.
        """
        score = scored.score
        self._add(score.verdict.outcome, score.verdict.why, score.total, score.parts)

    def add_record(self, row: Row) -> None:
        """Count one record, as `rlvr score` writes them.

        Args:
            row: the record.
        """
        self._add(Outcome(row["outcome"]), row["why"], row["total"], row["parts"])

    def _add(
        self, outcome: Outcome, why: str, total: float | None, parts: Mapping[str, float]
    ) -> None:
        self.outcomes[outcome] += 1
        self.reasons[outcome, _reason(why)] += 1
        if (
            outcome is Outcome.UNSCORED
            and len(self.unscored_whys) < _SHOWN_UNSCORED
            and (text := _brief(why, 500)) not in self.unscored_whys
        ):
            self.unscored_whys.append(text)
        # UNSCORED adds nothing to the sum; the mean is over scored ones.
        self.total += total or 0.0
        for name, value in parts.items():
            self.parts[name] = self.parts.get(name, 0.0) + value

    def merge(self, other: Tally) -> None:
        """Count what another one has counted, after what was counted here.

        Args:
            other: the other one.
        """
        self.outcomes.update(other.outcomes)
        self.reasons.update(other.reasons)
        self.total += other.total
        for name, value in other.parts.items():
            self.parts[name] = self.parts.get(name, 0.0) + value
        new = [text for text in other.unscored_whys if text not in self.unscored_whys]
        self.unscored_whys += new[: _SHOWN_UNSCORED - len(self.unscored_whys)]

    def as_row(self) -> dict[str, object]:
        """The counts as JSON."""
        return {
            "reasons": [
                [outcome.value, reason, count] for (outcome, reason), count in self.reasons.items()
            ],
            "parts": self.parts,
            "total": self.total,
            "unscored_whys": self.unscored_whys,
        }

    @classmethod
    def from_row(cls, row: Row) -> Tally:
        """The counts that `as_row` wrote.

        Args:
            row: their JSON.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        tally = cls(
            parts=dict(row["parts"]), total=row["total"], unscored_whys=list(row["unscored_whys"])
        )
        # The counts of outcomes are those of their reasons.
        for outcome, reason, count in row["reasons"]:
            tally.outcomes[Outcome(outcome)] += count
            tally.reasons[Outcome(outcome), reason] += count
        return tally

    @property
    def count(self) -> int:
        """Number of scores."""
        return self.outcomes.total()

    @property
    def unscored(self) -> int:
        """Number of UNSCORED completions."""
        return self.outcomes[Outcome.UNSCORED]

    def show(self, console: Console) -> None:
        """Print outcomes with reasons, texts of UNSCORED completions, and the mean of each part
        over the scored ones.

        Args:
            console: where to print.
        """
        from rich.table import Table

        from rlvr.console import Plainly, label_text

        table = Table("outcome", "reason", caption=f"{self.count} completions")
        table.add_column("count", justify="right")
        table.add_column("share", justify="right")
        for outcome in Outcome:
            if not self.outcomes[outcome]:
                continue
            table.add_section()
            table.add_row(
                str(outcome),
                "",
                str(self.outcomes[outcome]),
                self._share(outcome),
                style="bold",
            )
            for (of, reason), count in self.reasons.most_common():
                if of is outcome:
                    table.add_row("", reason, str(count), "")
        console.print(Plainly(table))
        for why in self.unscored_whys:
            console.print(label_text("unscored:", why), soft_wrap=True)
        scored = self.count - self.unscored
        if scored:
            means = Table("part")
            means.add_column(f"adds, mean of {scored}", justify="right")
            for name, value in self.parts.items():
                means.add_row(name, f"{value / scored:+.4f}")
            means.add_section()
            means.add_row("total", f"{self.total / scored:+.4f}", style="bold")
            console.print(Plainly(means))

    def _share(self, outcome: Outcome) -> str:
        return f"{self.outcomes[outcome] / self.count:.1%}"


@functools.lru_cache(1024)
def _reason(why: str) -> str:
    return _brief(why.partition(":")[0], 80) or "(no reason given)"


def _brief(text: str, most: int) -> str:
    """Cut and without control characters: a verifier may put a model's text where the reason
    belongs."""
    # A control character could rewrite the terminal's lines.
    printable = "".join(char if char.isprintable() else "\ufffd" for char in text[:most])
    return printable if len(text) <= most else f"{printable}…"
