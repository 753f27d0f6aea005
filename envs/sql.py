"""SQL queries over small databases, procedural: the query is run on several
fillings of the database."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import rlvr
from rlvr.envs.puzzles import Generator, column
from rlvr.types import JsonDict
from rlvr.validate import require_whole
from rlvr.verifiers.sql import SQLVerifier, tables_of
from rlvr.verifiers.sql_operators import query_slips

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["SQL"]

_Theme: TypeAlias = tuple[str, str, str, str, str, tuple[str, ...], tuple[str, ...]]

_THEMES: Final[tuple[_Theme, ...]] = (
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
_POOL: Final = 32
"""Fillings from which those of a task are chosen."""
_QUESTIONS: Final = (
    (
        "the {value} of each row of {many} whose {label} is '{x}', with duplicates",
        "SELECT {value} FROM {many} WHERE {label} = '{x}'",
    ),
    (
        "the number of rows of {many} with {value} above {n}",
        "SELECT COUNT(*) FROM {many} WHERE {value} > {n}",
    ),
    ("each different {label} in {many}, once", "SELECT DISTINCT {label} FROM {many}"),
    (
        (
            "the name of each of the {one} and the sum of its {value} in {many}; "
            "leave out those without rows"
        ),
        "SELECT o.name, SUM(m.{value}) FROM {one} o JOIN {many} m ON m.owner = o.id GROUP BY o.id",
    ),
    (
        "the names of the {one} whose {group} is '{g}', in descending order of id",
        "SELECT name FROM {one} WHERE {group} = '{g}' ORDER BY id DESC",
    ),
    (
        "the names of the {one} that have no row in {many}",
        "SELECT name FROM {one} WHERE id NOT IN (SELECT owner FROM {many})",
    ),
    (
        "each {group} of the {one} with the number of {one} in it, in alphabetical order",
        "SELECT {group}, COUNT(*) FROM {one} GROUP BY {group} ORDER BY {group}",
    ),
    (
        "the id of each row of {many} with the greatest {value} of all",
        "SELECT id FROM {many} WHERE {value} = (SELECT MAX({value}) FROM {many})",
    ),
)


@rlvr.register("sql-v4")
class SQL(Generator):
    """Write one SQLite query for a question about two tables; it must be right
    on every filling of them.

    Options:
        fillings: number of fillings, at least 2; the model sees the schema, and none of them.
        data: rows to take instead, a file or a hub id, with the columns `question` (or
            `sql_prompt`), `schema` (or `sql_context`), `query` (or `sql`), and perhaps `fillings`;
            without them the schema inserts rows.
    """

    domain = "structured answers"
    fillings: int = 3
    data: str = ""
    reward = rlvr.Correct(SQLVerifier())

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("fillings", self.fillings, 2, 10)

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        schema, query = column(row, "schema", "sql_context"), column(row, "query", "sql")
        reference = {"schema": schema, "query": query}
        if row.get("fillings"):
            reference["fillings"] = row["fillings"]
        question = column(row, "question", "sql_prompt")
        prompt = f"{tables_of(schema)}\n\n{question}\n\nWrite one SQLite query that gives this."
        return rlvr.Task(id, prompt, self.reference_of(reference))

    def draw(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded(self.id, self.split, index)
        while True:
            theme = rng.choice(_THEMES)
            entity, group, many, label, value, groups, labels = theme
            words = {"one": entity, "group": group, "many": many, "label": label, "value": value}
            question, query = rng.choice(_QUESTIONS)
            words |= {
                "x": rng.choice(labels),
                "g": rng.choice(groups),
                "n": str(rng.randint(10, 60)),
            }
            # By the query with its words: the same query is in one split.
            if self.in_split(query.format(**words)):
                break
        schema = (
            f"CREATE TABLE {entity} (id INTEGER PRIMARY KEY, name TEXT, {group} TEXT);\n"
            f"CREATE TABLE {many} (id INTEGER PRIMARY KEY, owner INTEGER, {label} TEXT, {value} "
            f"INTEGER);"
        )
        query = query.format(**words)
        # The number of the question, near which rows are drawn; None where the query has none.
        near = int(words["n"]) if words["n"] in query else None
        fillings = deepcopy(_fillings(self.id, schema, query, theme, near, self.fillings))
        reference: dict[str, object] = {"schema": schema, "query": query, "fillings": fillings}
        prompt = f"{schema}\n\nWrite one SQLite query that gives {question.format(**words)}."
        return rlvr.Task(f"{self.id}/{self.split}/{index}", prompt, reference)

    def example(self, task: rlvr.Task) -> str:
        return SQLVerifier().example(task.reference)


@lru_cache(maxsize=1024)  # a thousand draws ask about a hundred queries, 50 CPU ms each
def _fillings(
    id: str, schema: str, query: str, theme: _Theme, near: int | None, count: int
) -> list[dict[str, object]]:
    """So many fillings for a query, the same each time: one question has one reference."""
    _, group, _, label, value, _, _ = theme
    rng = rlvr.seeded(id, "fillings", query)
    pool = [_filling(rng, theme, near) for _ in range(_POOL)]
    return _telling(schema, query, ("id", "owner", "name", group, label, value), pool, count)


def _filling(rng: Random, theme: _Theme, near: int | None) -> dict[str, list[list[Any]]]:
    """Rows of both tables, with what tells queries apart: names twice, ties, owners without rows,
    rows without owner, and the numbers of the question and those beside them."""
    owner_table, _, many, _, _, groups, labels = theme
    names = rng.sample(
        "Ada Bo Cleo Dag Eve Finn Gia Hugo Ines Jan Kim Lea".split(), rng.randint(3, 8)
    )
    names += rng.choices(names, k=2)
    rng.shuffle(names)
    owners = [[number, name, rng.choice(groups)] for number, name in enumerate(names, 1)]
    edges = [] if near is None else [near + by for by in (-1, 0, 1)]
    # Few different values give ties, many give none.
    high = rng.choice((2, 9, 90))
    used = rng.sample(labels, rng.randint(1, len(labels)))
    rows: list[list[Any]] = []
    for number in range(1, rng.randint(6, 20)):
        value = rng.choice(edges) if edges and rng.random() < 0.4 else rng.randint(1, high)
        # Two owners more than there are: rows without an owner.
        rows.append([number, rng.randint(1, len(names) + 2), rng.choice(used), value])
    rows.append([len(rows) + 1, *rows[0][1:]])  # a duplicate, which DISTINCT would lose
    rng.shuffle(rows)  # so that the order of ids is not the order of the rows
    return {owner_table: owners, many: rows}


def _telling(
    schema: str, query: str, columns: Sequence[str], pool: Sequence[JsonDict], count: int
) -> list[dict[str, object]]:
    """So many fillings, taken greedily: each next one tells the query from the most slips that are
    left."""
    verifier, slips = SQLVerifier(), [slip for slip, _ in query_slips(query, columns)]
    # All slips on a filling at once.
    results = [verifier.rows_on(schema, filling, [query, *slips]) for filling in pool]

    def differ(rows: Any, others: Any) -> bool:
        return rows is not None and not verifier.agree(rows, others, {"query": query})

    refuted = [
        {slip for slip, rows in zip(slips, slip_rows, strict=True) if differ(rows, right)}
        for right, *slip_rows in results
    ]
    chosen = [max(range(len(pool)), key=lambda at: len(refuted[at]))]
    for at in range(len(pool)):  # a query that gives the first's rows always is a slip too
        if differ(results[at][0], results[chosen[0]][0]):
            refuted[at].add("constant")
    left = {"constant", *slips} - refuted[chosen[0]]
    while len(chosen) < count:
        unused = [at for at in range(len(pool)) if at not in chosen]
        # Of equal ones the filling that refutes most in all.
        best = max(unused, key=lambda at: (len(refuted[at] & left), len(refuted[at])))
        chosen.append(best)
        left -= refuted[best]
    return [pool[at] for at in chosen]
