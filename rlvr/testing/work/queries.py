"""Work for tasks that ask for a SQL query: slips in the reference query; a witness is
another filling of the tables."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from rlvr.environment import seeded
from rlvr.errors import DataError
from rlvr.testing.work.maker import Maker, Untested, Witness, Work, serves
from rlvr.types import JsonDict, JsonObject, Task
from rlvr.verifiers.answers import Answer
from rlvr.verifiers.sql import SQLVerifier
from rlvr.verifiers.sql_operators import query_slips

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["Queries"]

_FILLINGS: Final = 40
_ROWS: Final = 12


@serves(SQLVerifier)
class Queries(Maker):
    """One-step slips of the reference query that run on its first filling."""

    verifier: SQLVerifier

    def wrong(self, task: Task, rng: Random) -> Iterator[Work]:
        reference = self._reference(task)
        first = reference["fillings"][0]
        slips = list(query_slips(reference["query"], _columns(reference["schema"])))
        rng.shuffle(slips)
        texts = [text for text, _ in slips]
        rows = self.verifier.rows_on(reference["schema"], first, texts)
        for (text, operator), filling_index in zip(slips, rows, strict=True):
            if filling_index is not None:
                yield Work(f"```sql\n{text}\n```", operator)

    def right(self, task: Task, rng: Random) -> Iterator[Work]:
        query = self._reference(task)["query"]
        yield Work(self.example(task), "example")
        yield Work(f"```sql\n{query.replace(' ', chr(10))}\n```", "reprinted")
        # The order within a subquery is not kept.
        if not re.search(r"\bORDER\b|\bLIMIT\b", query, re.IGNORECASE):
            yield Work(f"```sql\nSELECT * FROM ({query}) AS answer\n```", "nested")
            yield Work(f"```sql\nWITH answer AS ({query}) SELECT * FROM answer\n```", "named")

    def witness(self, task: Task, work: Work) -> Witness | None:
        reference = self._reference(task)
        answer = self.verifier.extract(work.text, task)
        if not isinstance(answer, Answer):
            return Witness("no query", "a query", work.text[:200])
        rng = seeded("fillings", task.id, reference["query"])
        fillings = reference["fillings"]
        keys = _keys(reference["schema"])
        fresh_fillings = [
            _filling(fillings, reference["query"], keys, rng) for _ in range(_FILLINGS)
        ]
        for filling in [*fillings, *fresh_fillings]:
            pair = self._rows(reference, filling, answer.text)
            if pair is not None:
                filling = self._shrunk(reference, filling, answer.text)
                right, wrong = self._rows(reference, filling, answer.text) or pair
                return Witness(str(filling), str(right), str(wrong), case=filling)
        return None

    def mend(self, task: Task, witnesses: Sequence[Witness]) -> Task | None:
        new_fillings = [witness.case for witness in witnesses if isinstance(witness.case, Mapping)]
        fillings = [*self._reference(task)["fillings"], *new_fillings]
        return dataclasses.replace(task, reference={**task.reference, "fillings": fillings})

    def _reference(self, task: Task) -> JsonDict:
        reference = task.reference
        if not reference.get("fillings"):
            raise Untested("its rows stand in the schema; give them as fillings")
        return dict(reference)

    def _rows(
        self, reference: Row, filling: Mapping[str, object], query: str
    ) -> tuple[object, object] | None:
        """The rows of the reference query and of this one, where they differ."""
        try:
            right, wrong = self.verifier.rows_on(
                reference["schema"], filling, [reference["query"], query]
            )
        except DataError:
            return None  # a filling that the schema refuses
        if right is None or (wrong is not None and self.verifier.agree(wrong, right, reference)):
            return None
        return right, "no rows: it fails" if wrong is None else wrong

    def _shrunk(
        self, reference: Mapping[str, object], filling: JsonObject, query: str
    ) -> Mapping[str, object]:
        """The filling without each row that the difference does not need."""
        for table in filling:
            for row in filling[table]:
                less = {
                    **filling,
                    table: [kept_row for kept_row in filling[table] if kept_row is not row],
                }
                if self._rows(reference, less, query) is not None:
                    filling = less
        return filling


def _columns(schema: str) -> list[str]:
    """Names of columns, in the order of the tables."""
    names = [part.split()[0] for _, body in _tables(schema) for part in body if part.split()]
    plain = (name.strip('"`[]') for name in names)
    return list(dict.fromkeys(name for name in plain if re.fullmatch(r"[a-z_]\w*", name)))


def _tables(schema: str) -> Iterator[tuple[str, list[str]]]:
    """The name of each table, and what its columns are said to be."""
    for match in re.finditer(
        r"CREATE\s+TABLE\s+([^\s(]+)\s*\((.*?)\)\s*(?:;|$)", schema, re.IGNORECASE | re.DOTALL
    ):
        yield match[1].strip('"`[]'), match[2].split(",")


def _keys(schema: str) -> dict[str, set[int]]:
    """The places of the columns whose values may not occur twice, by table."""
    # A key that occurred twice would be refused by the schema.
    is_key = re.compile(r"\b(?:PRIMARY\s+KEY|UNIQUE)\b", re.IGNORECASE)
    return {
        name: {at for at, column in enumerate(columns) if is_key.search(column)}
        for name, columns in _tables(schema)
    }


def _filling(
    fillings: Sequence[JsonObject],
    query: str,
    keys: Mapping[str, set[int]],
    rng: Random,
) -> JsonDict:
    """One of the task's fillings with other rows: dropped, shuffled, cells taken from other rows or
    the query.

    Keys stay; texts are those that occur or that the query names.
    """
    numbers = [int(text) + by for text in re.findall(r"\b\d+\b", query) for by in (-1, 0, 1)]
    texts = re.findall(r"'((?:[^']|'')*)'", query)
    tables: dict[str, object] = {}
    for table, rows in copy.deepcopy(dict(rng.choice(fillings))).items():
        if not rows:
            tables[table] = rows
            continue
        chosen_rows = rng.sample(rows, rng.randint(1, min(len(rows), _ROWS)))
        for at in range(len(chosen_rows[0])):
            cells = [
                row[at] for source_filling in fillings for row in source_filling.get(table, ())
            ]
            if at in keys.get(table, ()):
                continue
            extra = (
                numbers if isinstance(cells[0], int) else texts if isinstance(cells[0], str) else []
            )
            for row in chosen_rows:
                if rng.random() < 0.5:
                    # Half of the cells: from other rows, or beside a number of the query.
                    row[at] = rng.choice([rng.choice(cells), rng.choice(extra or cells)])
        tables[table] = chosen_rows
    return tables
