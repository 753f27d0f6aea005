"""Verdicts of the math verifier as they were: outcome, answer, why and detail of pairs of our own.

A change to `math.jsonl` is a change of what recorded scores say.  It needs a reason in CHANGELOG, and is made by

    python -m tests.frozen.test_math
"""

import json
from pathlib import Path

from benchmarks.math_generated import generated
from rlvr.verifiers.math import MathVerifier
from tests.json_lines import read_json_lines

FROZEN = Path(__file__).with_name("math.jsonl")
ROWS = 150


def verdict(reference: str, completion: str) -> dict:
    """All that a record keeps of a verdict, as JSON gives it back."""
    found = MathVerifier().verify(completion, reference)
    kept = {
        "outcome": found.outcome,
        "answer": found.answer,
        "why": found.why,
        "detail": found.detail,
    }
    return json.loads(json.dumps(kept))


def test_verdicts_are_as_they_were():
    """Byte by byte: filters and audits compare `why`, and replays compare all of it."""
    rows = read_json_lines(FROZEN)
    assert len(rows) == ROWS
    changed = [
        (row, now)
        for row in rows
        if (now := verdict(row["reference"], row["completion"])) != row["verdict"]
    ]
    assert not changed


def write() -> None:
    """Freeze a sample of the generated pairs, some of each family, with today's verdicts."""
    drawn = generated(cases=1)
    rows = [drawn[i * len(drawn) // ROWS] for i in range(ROWS)]
    with FROZEN.open("w", encoding="utf-8") as file:
        for row in rows:
            pair = {"reference": row["reference"], "completion": row["completion"]}
            file.write(json.dumps(pair | {"verdict": verdict(**pair)}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write()
