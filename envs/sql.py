"""SQL queries over small databases, procedural: the query is run on several fillings of the database."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

import rlvr
from rlvr.envs.puzzles import Generator, column
from rlvr.validate import require_whole
from rlvr.verifiers.sql import SQLVerifier, tables_of

__all__ = ["SQL"]

_THEMES: Final = (
    (
        "members",
        "city",
        "loans",
        "title",
        "days",
        ("Oslo", "Lima", "Pune", "Kyiv"),
        ("Atlas", "Emma", "Ulysses", "Dune"),
    ),
    (
        "farms",
        "region",
        "harvests",
        "crop",
        "tons",
        ("north", "south", "east", "west"),
        ("rye", "oats", "corn", "flax"),
    ),
    (
        "teams",
        "league",
        "matches",
        "stadium",
        "goals",
        ("red", "blue", "gold", "grey"),
        ("Arena", "Park", "Dome", "Oval"),
    ),
)
_QUESTIONS: Final = (
    ("the {value} of each row of {many} whose {label} is '{x}', with duplicates",
     "SELECT {value} FROM {many} WHERE {label} = '{x}'"),
    ("the number of rows of {many} with {value} above {n}", "SELECT COUNT(*) FROM {many} WHERE {value} > {n}"),
    ("each different {label} in {many}, once", "SELECT DISTINCT {label} FROM {many}"),
    ("the name of each of the {one} and the sum of its {value} in {many}; leave out those without rows",
     "SELECT o.name, SUM(m.{value}) FROM {one} o JOIN {many} m ON m.owner = o.id GROUP BY o.id"),
    ("the names of the {one} whose {group} is '{g}', in descending order of id",
     "SELECT name FROM {one} WHERE {group} = '{g}' ORDER BY id DESC"),
    ("the names of the {one} that have no row in {many}",
     "SELECT name FROM {one} WHERE id NOT IN (SELECT owner FROM {many})"),
    ("each {group} of the {one} with the number of {one} in it, in alphabetical order",
     "SELECT {group}, COUNT(*) FROM {one} GROUP BY {group} ORDER BY {group}"),
    ("the id of each row of {many} with the greatest {value} of all",
     "SELECT id FROM {many} WHERE {value} = (SELECT MAX({value}) FROM {many})"),
)  # fmt: skip


@rlvr.register("sql-v2")
class SQL(Generator):
    """Write one SQLite query for a question about two tables; it must be right on every filling of them.

    Options:
        fillings: number of fillings, at least 2; the model sees the schema, and none of them.
        data: rows to take instead, a file or a hub id, with the columns `question` (or `sql_prompt`), `schema` (or
            `sql_context`), `query` (or `sql`), and perhaps `fillings`; without them the schema inserts rows.
    """

    domain = "structured answers"
    fillings: int = 3
    data: str = ""
    reward = rlvr.Correct(SQLVerifier())

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("fillings", self.fillings, 2, 10)

    def task_from(self, row: Mapping[str, Any], id: str = "row") -> rlvr.Task:
        schema, query = column(row, "schema", "sql_context"), column(row, "query", "sql")
        reference = {"schema": schema, "query": query}
        if row.get("fillings"):
            reference["fillings"] = row["fillings"]
        asked = column(row, "question", "sql_prompt")
        prompt = f"{tables_of(schema)}\n\n{asked}\n\nWrite one SQLite query that gives this."
        return rlvr.Task(id, prompt, self.reference_of(reference))

    def draw(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded(self.id, self.split, index)
        while True:
            one, group, many, label, value, groups, labels = rng.choice(_THEMES)
            words = {"one": one, "group": group, "many": many, "label": label, "value": value}
            question, query = rng.choice(_QUESTIONS)
            words |= {
                "x": rng.choice(labels),
                "g": rng.choice(groups),
                "n": str(rng.randint(10, 60)),
            }
            if self.in_split(query.format(**words)):
                break
        schema = (
            f"CREATE TABLE {one} (id INTEGER PRIMARY KEY, name TEXT, {group} TEXT);\n"
            f"CREATE TABLE {many} (id INTEGER PRIMARY KEY, owner INTEGER, {label} TEXT, {value} INTEGER);"
        )
        rng = rlvr.seeded(
            self.id, "fillings", query.format(**words)
        )  # one question has one reference
        reference: dict[str, Any] = {"schema": schema, "query": query.format(**words)}
        reference["fillings"] = [
            {one: _owners(rng, groups), many: _rows(rng, labels, 8 + 5 * number)}
            for number in range(self.fillings)
        ]
        prompt = f"{schema}\n\nWrite one SQLite query that gives {question.format(**words)}."
        return rlvr.Task(f"{self.id}/{self.split}/{index}", prompt, reference)

    def example(self, task: rlvr.Task) -> str:
        return SQLVerifier().example(task.reference)


def _owners(rng: Random, groups: tuple[str, ...]) -> list[list[Any]]:
    names = rng.sample(
        "Ada Bo Cleo Dag Eve Finn Gia Hugo Ines Jan Kim Lea".split(), rng.randint(7, 10)
    )
    return [[number, name, rng.choice(groups)] for number, name in enumerate(names, 1)]


def _rows(rng: Random, labels: tuple[str, ...], count: int) -> list[list[Any]]:
    used = rng.sample(
        labels, rng.randint(2, len(labels))
    )  # so that the different labels differ between fillings
    rows = [
        [number, rng.randint(1, 6), rng.choice(used), rng.randint(1, 90)]
        for number in range(1, count)
    ]
    return [*rows, [count, *rows[0][1:]]]  # a duplicate, which DISTINCT would lose
