"""Slips in SQL queries: queries that differ from one in one place.

Whether a slip is wrong has to be found out on fillings of the database: some change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["query_slips"]

_TOKEN: Final = re.compile(
    r"(?P<quoted>'(?:[^']|'')*+')|(?P<number>\b\d+\b)|(?P<word>[A-Za-z_][\w.]*+)"
    r"|(?P<sign>[<>]=|<>|!=|[<>=*])",
    re.ASCII,
)
_SIGNS: Final = {
    ">": (">=", "<"), ">=": (">", "<="), "<": ("<=", ">"), "<=": ("<", ">="),
    "=": ("<>", ">="), "<>": ("=",), "!=": ("=",),
}  # fmt: skip
_WORDS: Final = {
    "AND": ("OR",), "OR": ("AND",), "NOT": ("",), "DISTINCT": ("",), "DESC": ("", "ASC"),
    "ASC": ("DESC",), "LEFT": ("",), "IN": ("NOT IN",), "UNION": ("UNION ALL",),
}  # fmt: skip
_AGGREGATES: Final = ("SUM", "AVG", "MIN", "MAX", "COUNT", "TOTAL")
_CLAUSES: Final = ("WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT")
_NEXT: Final = r"(?=\s+(?:WHERE|GROUP\s+BY|HAVING|ORDER\s+BY|LIMIT|UNION)\b|\)|$)"


def query_slips(query: str, columns: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Every query that differs by one slip, each once, with the operator that made it.

    Args:
        query: one SELECT.
        columns: names of columns, which may be taken for each other.
    """
    queries = {query}
    for operator, text in _slips(query, columns):
        short = " ".join(text.split())
        if short not in queries:
            queries.add(short)
            yield short, operator


def _slips(query: str, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    for token in _TOKEN.finditer(query):
        for operator, new in _in_place_of(token, query, columns):
            yield operator, query[: token.start()] + new + query[token.end() :]
    for clause in _CLAUSES:
        pattern = clause.replace(" ", r"\s+")
        for match in re.finditer(rf"\s+{pattern}\b.*?{_NEXT}", query, re.IGNORECASE | re.DOTALL):
            yield "dropped clause", query[: match.start()] + query[match.end() :]
    # one row or three: right on small fillings, wrong on others
    if not re.search(r"\bLIMIT\b", query, re.IGNORECASE):
        yield from (("limit", f"{query} LIMIT {count}") for count in (1, 3))


def _in_place_of(
    token: re.Match[str], query: str, columns: Sequence[str]
) -> Iterator[tuple[str, str]]:
    text, before = token[0], query[: token.start()].rstrip().upper()
    match token.lastgroup:
        case "number":
            # no negative numbers: "LIMIT -1" means no limit
            yield from (("constant", str(int(text) + by)) for by in (1, -1) if int(text) + by >= 0)
        case "sign":
            yield from (("comparison", replacement) for replacement in _SIGNS.get(text, ()))
        case "quoted":
            yield "constant", "''"
        case "word":
            upper = text.upper()
            yield from (("word", replacement) for replacement in _WORDS.get(upper, ()))
            if upper in _AGGREGATES:
                yield from (
                    ("aggregate", replacement)
                    for replacement in _AGGREGATES
                    if replacement != upper
                )
            elif upper == "SELECT" and not query[token.end() :].upper().startswith(" DISTINCT"):
                yield "distinct", f"{text} DISTINCT"
            elif upper == "JOIN" and not before.endswith("LEFT"):
                yield "join", "LEFT JOIN"
            elif upper == "BY" and before.endswith("GROUP"):
                yield from (("group", f"{text} {name},") for name in columns)
            yield from _other_columns(text, columns, is_last=token.end() == len(query))


def _other_columns(
    text: str, columns: Sequence[str], *, is_last: bool
) -> Iterator[tuple[str, str]]:
    table, dot, name = text.rpartition(".")
    if name in columns:
        yield from (("column", table + dot + column) for column in columns if column != name)
        if is_last:
            yield "order", f"{text} DESC"
