"""Which rows a page shows: the filters of its address, as a condition in SQL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final
from urllib.parse import urlencode

from rlvr.errors import UsageError, brief
from rlvr.viewer.index import Index

__all__ = ["BROKEN", "Filters", "NOT_CORRECT", "OUTCOMES", "SLICES"]

OUTCOMES: Final = ("correct", "wrong", "unparsed", "unscored")
BROKEN: Final = "broken"
"""Stands for the outcome of a row that cannot be read."""

NOT_CORRECT: Final = "not correct"
"""Stands for every outcome but correct."""

SLICES: Final = {
    "env": "env",
    "truncated": "CASE WHEN truncated THEN 'truncated' ELSE 'whole' END",
    "length": "CAST(power(2, floor(log2(greatest(length, 1)))) AS BIGINT)::VARCHAR || ' or longer'",
    "step": "step::VARCHAR",
}
"""By what reasons can be counted, as SQL; lengths in classes that double."""

_MOST_FOUND = 10_000  # rows that a search keeps
_ORDERS: Final = {
    "": "n",
    "longest": "length DESC NULLS LAST, n",
    "shortest": "length NULLS LAST, n",
    "advantage": "advantage DESC NULLS LAST, n",
    "best": "total DESC NULLS LAST, n",
    "worst": "total NULLS LAST, n",
}


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a page, each empty where it filters nothing.

    Attributes:
        outcome, reason, env, task, dropped: the row's value.
        step: of a run.
        truncated: "1" or "0".
        part: name of a part of the reward; with `part_min` or `part_max`, its value must be in
            between.
        advantage_min, advantage_max: of rollouts; those without an advantage do not pass.
        length_min, length_max: in tokens, or in characters where tokens are not recorded.
        q: a text that the row contains.
        order: how rows are sorted; by default as in the file.
        by: the slices by which reasons are counted: env, truncated, length or step.
        page: counted from 0.
    """

    outcome: str = ""
    reason: str = ""
    env: str = ""
    task: str = ""
    dropped: str = ""
    step: str = ""
    truncated: str = ""
    part: str = ""
    part_min: str = ""
    part_max: str = ""
    advantage_min: str = ""
    advantage_max: str = ""
    length_min: str = ""
    length_max: str = ""
    q: str = ""
    order: str = ""
    by: str = ""
    page: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        """The filters in the query of an address; what is no filter is passed over.

        Args:
            query: values by name.

        Raises:
            UsageError: a value cannot be a filter's.
        """
        filters = cls(
            **{
                field.name: query[field.name].strip()[:1000]
                for field in fields(cls)
                if field.name in query
            }
        )
        for name in ("step", "page", "length_min", "length_max"):
            text = getattr(filters, name)
            if text and not (text.isascii() and text.isdigit() and len(text) < 10):
                raise UsageError(
                    f"{name} is {brief(text)}; it must be a whole number, 0 to 999999999"
                )
        for name in ("part_min", "part_max", "advantage_min", "advantage_max"):
            filters._number(name)
        if filters.truncated not in ("", "0", "1"):
            raise UsageError(f"truncated is {brief(filters.truncated)}; it must be 0 or 1")
        if filters.order not in _ORDERS:
            raise UsageError(
                f"order is {brief(filters.order)}; it must be one of "
                f"{', '.join(filter(None, _ORDERS))}"
            )
        if filters.by not in ("", *SLICES):
            raise UsageError(f"by is {brief(filters.by)}; it must be one of {', '.join(SLICES)}")
        return filters

    def link(self, **changes: object) -> str:
        """The query of the address with some filters changed; back on the first page.

        Args:
            changes: new values by name; None takes a filter away.
        """
        values = (
            {field.name: getattr(self, field.name) for field in fields(self)}
            | {"page": ""}
            | changes
        )
        return "?" + urlencode(
            {name: value for name, value in values.items() if value not in ("", None)}
        )

    @property
    def given(self) -> dict[str, str]:
        """The filters that are set, by name."""
        names = (field.name for field in fields(self) if field.name not in ("page", "order", "by"))
        return {name: value for name in names if (value := getattr(self, name))}

    @property
    def is_more(self) -> bool:
        """Whether a filter is set that the page keeps folded."""
        return bool(self.given.keys() - {"outcome", "reason", "q", "step"} or self.by)

    @property
    def sort(self) -> str:
        """As SQL."""
        return _ORDERS[self.order]

    def where(self, index: Index) -> tuple[str, list[Any], bool]:
        """The condition in SQL, its values, and whether the search stopped because it had found too
        many.

        Args:
            index: whose rows are searched.
        """
        tests, values, stopped = ["TRUE"], list[Any](), False

        def add(test: str, *its: object) -> None:
            tests.append(test)
            values.extend(its)

        if self.outcome == BROKEN:
            add("error IS NOT NULL")
        elif self.outcome == NOT_CORRECT:
            add("outcome <> 'correct'")
        elif self.outcome:
            add("outcome = ?", self.outcome)
        for name in ("reason", "env", "task", "dropped"):
            if value := getattr(self, name):
                add(f"{name} = ?", "" if value == "-" else value)
        if self.step:
            add("step = ?", int(self.step))
        if self.truncated:
            add("truncated = ?", self.truncated == "1")
        if self.part:
            low, high = self._number("part_min"), self._number("part_max")
            low, high = -math.inf if low is None else low, math.inf if high is None else high
            add(
                "n IN (SELECT n FROM parts WHERE name = ? AND value >= ? AND value <= ?)",
                self.part,
                low,
                high,
            )
        for name, sign in (("advantage_min", ">="), ("advantage_max", "<=")):
            if (bound := self._number(name)) is not None:
                add(f"advantage {sign} ?", bound)
        if self.length_min:
            add("length >= ?", int(self.length_min))
        if self.length_max:
            add("length <= ?", int(self.length_max))
        if self.q:
            rows = index.search(self.q, _MOST_FOUND)
            stopped = len(rows) >= _MOST_FOUND
            add("n IN (SELECT unnest(?::BIGINT[]))", rows)
        return " AND ".join(tests), values, stopped

    def _number(self, name: str) -> float | None:
        text: str = getattr(self, name)
        if not text:
            return None
        try:
            return float(text)
        except ValueError:
            raise UsageError(f"{name} is {brief(text)}; it must be a number") from None
