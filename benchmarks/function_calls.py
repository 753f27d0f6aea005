"""Checks `CallsVerifier` on rows of BFCL: the asked calls in every form are right,
and each kind of change is wrong.

Usage: python -m benchmarks.function_calls FOLDER
(with bfcl_dev.jsonl.gz: functions and ground truth of BFCL v4)

BFCL's files have no answers of models with verdicts, so each row's own accepted values are changed
in known ways.  A change that is still right by BFCL's rules (it is printed) is one that the rules
name.
"""

import gzip
import json
import sys
from collections import Counter
from pathlib import Path

from rlvr.verifiers.calls import CallsVerifier


def _first(accepted):
    """The first accepted value; None where the argument may only be left out.
    A mapping has such lists inside."""
    value = next((one for one in accepted if one != ""), None)
    if isinstance(value, dict):
        return {key: _first(many) for key, many in value.items() if _first(many) is not None}
    if isinstance(value, list):
        return [
            {k: _first(v) for k, v in one.items() if _first(v) is not None}
            if isinstance(one, dict)
            else one
            for one in value
        ]
    return value


def _changed(calls, schemas):
    """(kind of change, calls) of one row."""
    yield "order reversed", calls[::-1]
    yield "a call twice", [*calls, calls[0]]
    yield "a call less", calls[1:]
    name, arguments = calls[0]
    yield "other function", [(f"{name}_", arguments), *calls[1:]]
    yield "extra argument", [(name, {**arguments, "no_such": 1}), *calls[1:]]
    for key, value in arguments.items():
        kind = schemas[name]["properties"][key]["type"]
        if key in schemas[name].get("required", ()):
            yield (
                "required argument left out",
                [
                    (name, {k: v for k, v in arguments.items() if k != key}),
                    *calls[1:],
                ],
            )
        if isinstance(value, bool):
            yield "boolean as text", [(name, {**arguments, key: str(value)}), *calls[1:]]
        elif isinstance(value, (int, float)):
            yield "number as text", [(name, {**arguments, key: str(value)}), *calls[1:]]
            yield "other number", [(name, {**arguments, key: value + 1}), *calls[1:]]
            if kind == "integer":
                yield "integer as float", [(name, {**arguments, key: float(value)}), *calls[1:]]
        elif isinstance(value, str):
            yield (
                "text in capitals with dots",
                [(name, {**arguments, key: value.upper() + "."}), *calls[1:]],
            )
            yield "other text", [(name, {**arguments, key: value + " x"}), *calls[1:]]


_RIGHT = {"order reversed", "text in capitals with dots"}  # by BFCL's rules


def main(folder: str) -> None:
    """Print how many of each kind are CORRECT, and every row that is not as the rules say."""
    verifier, counts, wrong = CallsVerifier(), Counter(), Counter()
    with gzip.open(Path(folder) / "bfcl_dev.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    for row in rows:
        reference = {"functions": row["function"], "calls": row["ground_truth"]}
        schemas = {one["name"]: one["parameters"] for one in row["function"]}
        named = [next(iter(call.items())) for call in row["ground_truth"]]
        calls = [
            (name, {k: _first(v) for k, v in given.items() if _first(v) is not None})
            for name, given in named
        ]
        for kind, made in [("as asked", calls), *_changed(calls, schemas)]:
            listed = json.dumps([{"name": name, "arguments": given} for name, given in made])
            python = (
                "["
                + ", ".join(
                    f"{n}({', '.join(f'{k}={v!r}' for k, v in g.items())})" for n, g in made
                )
                + "]"
            )
            for form, text in (("json", listed), ("python", python)):
                verdict = verifier.verify(text, reference)
                counts[kind, form] += 1
                if verdict.correct is not (kind == "as asked" or kind in _RIGHT):
                    wrong[kind, form] += 1
                    print(f"{row['id']}, {kind}, {form}: {verdict.outcome} {verdict.why}")
    for kind, form in counts:
        print(
            f"{kind:28} {form:7} {counts[kind, form]:5} tried, "
            f"{wrong[kind, form]:3} not as the rules say"
        )


if __name__ == "__main__":
    main(sys.argv[1])
