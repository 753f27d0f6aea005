"""An audit as one HTML page, which needs no other file, no script and no server.

Completions are written by a model, so every text is escaped, and the page's content security policy forbids scripts and
requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from rlvr.testing.audit import Audit, AuditCase, Confusion, Disagreement, inert

__all__ = ["page"]

_SHOWN = 4000  # characters of a completion
_CELL = 1000  # and of a cell

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Audit of {title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; margin: 1rem 0 }}
td, th {{ border: 1px solid #bbb; padding: .3rem .6rem; text-align: left; vertical-align: top }}
td.n {{ text-align: right; font-variant-numeric: tabular-nums }}
td.bad {{ background: #fdd }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; background: #f4f4f4; padding: .6rem; margin: .3rem 0 }}
summary {{ cursor: pointer }}
</style>
</head>
<body>
"""


def page(audit: Audit) -> str:
    """The whole page.  Write it as UTF-8 with `errors="backslashreplace"`: a completion may contain lone surrogates.

    Args:
        audit: the audit to show.
    """
    parts = [_HEAD.format(title=_text(audit.env)), f"<h1>Audit of {_text(audit.env)}</h1>"]
    parts += [_matrix(audit.total, audit.label), _rates(audit.total)]
    for column, values in audit.slices.items():
        parts.append(_slices(column, values))
    for kind, reasons in audit.reasons.items():
        parts.append(f"<h2>{_text(kind)}: why</h2>" + _table(("reason", "count"), reasons.items()))
    parts += _cases(audit.cases)
    if audit.disagreement is not None:
        parts.append(_disagreement(audit.disagreement, audit.env))
    if audit.left_out:
        rows = [(why,) for why in audit.left_out[:100]]
        parts.append(f"<h2>Rows left out: {len(audit.left_out)}</h2>" + _table(("why",), rows))
    return "\n".join([*parts, "</body>", "</html>", ""])


def _text(value: Any) -> str:
    """Escaped, and without control characters, which HTML cannot hold."""
    return escape(inert(value), quote=True)


def _cell(value: Any) -> str:
    numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
    if numeric:
        return f'<td class="n">{_text(value)}</td>'
    text = str(value)  # a reference, an answer or a reason may hold a whole completion
    return f"<td>{_text(text if len(text) <= _CELL else text[:_CELL] + ' …')}</td>"


def _table(head: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    top = "".join(f"<th>{_text(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    return f"<table>\n<tr>{top}</tr>\n{body}</table>"


def _matrix(it: Confusion, label: str) -> str:
    return (
        f"<table>\n<tr><th>column {_text(label)}</th><th>said correct</th><th>said not</th></tr>\n"
        f'<tr><th>labelled right</th><td class="n">{it.true_positive}</td>'
        f'<td class="n bad">{it.false_negative}</td></tr>\n'
        f'<tr><th>labelled wrong</th><td class="n bad">{it.false_positive}</td>'
        f'<td class="n">{it.true_negative}</td></tr>\n</table>\n'
        f"<p>Not scored, by a failure of ours: {it.unscored}</p>"
    )


def _rates(it: Confusion) -> str:
    rows = [(name, str(rate)) for name, rate in it.rates.items()]
    return _table(("rate", "value, 95 % interval (Wilson)"), rows)


def _slices(column: str, values: dict[str, Confusion]) -> str:
    head = (column, "false positives", "false negatives", "unscored")
    rows = [
        (value, str(it.rates["false positives"]), str(it.rates["false negatives"]), it.unscored)
        for value, it in values.items()
    ]
    return f"<h2>By {_text(column)}</h2>" + _table(head, rows)


def _cases(cases: Sequence[AuditCase]) -> list[str]:
    parts = []
    for kind in dict.fromkeys(case.kind for case in cases):
        parts.append(f"<h2>{_text(kind)}: cases</h2>")
        parts += [_case(case) for case in cases if case.kind == kind]
    return parts


def _case(case: AuditCase) -> str:
    cut = case.completion[:_SHOWN]
    more = f"\n… {len(case.completion):,} characters" if len(case.completion) > _SHOWN else ""
    facts = _table(
        ("reference", "answer", "reason", "label"), [(case.reference, case.answer, case.why, case.label)]
    )  # fmt: skip
    return (
        f"<details><summary>{_text(case.id)}, task {_text(case.task)}: {_text(case.why[:200])}</summary>"
        f"{facts}<pre>{_text(cut + more)}</pre></details>"
    )


def _disagreement(it: Disagreement, env: str) -> str:
    rows = [("both", it.both), (env, it.only_first), (it.against, it.only_second), ("neither", it.neither)]
    head = f"<h2>Against {_text(it.against)}: they differ in {_text(it.rate)}</h2>"
    return head + _table(("accepted by", "count"), rows) + "\n".join(_cases(it.cases))
