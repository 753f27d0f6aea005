"""The checks of instructions against the verdicts that the authors of IFEval,
M-IFEval and IFBench published.

    python -m benchmarks.instruction_labels FOLDER [--loose] [--show KIND] [--policy strict]

FOLDER holds `ifeval_en_prompts.jsonl.gz` (key, prompt, instruction_id_list, kwargs),
`ifeval_en_labels_*.jsonl.gz` (key, model, response, strict and loose verdicts per instruction) and
`ifbench_labels_*.jsonl.gz` (all in one row).  Prints, for each kind, how many verdicts differ, and
the CPU time of a row.  The data are not part of rlvr.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlvr.errors import RlvrError
from rlvr.verifiers.instructions import KINDS, InstructionVerifier

NOISE = {1122: "the reference draws a random letter", 1129: "the reference draws a random letter"}
"""Keys of IFEval whose published verdicts are noise, with the reason."""


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        for line in lines:
            yield json.loads(line)


def labelled(
    folder: Path, name: str
) -> Iterator[tuple[Any, list[str], list[dict[str, Any]], str, list[bool]]]:
    prompts = folder / "ifeval_en_prompts.jsonl.gz"
    known = {row["key"]: row for row in rows(prompts)} if prompts.exists() else {}
    for path in sorted(folder.glob("ifeval_en_labels_*.jsonl.gz")):
        for row in rows(path):
            if row["response"] is not None:
                task = known[row["key"]]
                yield (
                    row["key"],
                    task["instruction_id_list"],
                    task["kwargs"],
                    row["response"],
                    row[name],
                )
    for path in sorted(folder.glob("ifbench_labels_*.jsonl.gz")):
        for row in rows(path):
            if row["response"] is not None:
                yield (
                    row["key"],
                    row["instruction_id_list"],
                    row["kwargs"],
                    row["response"],
                    row[name],
                )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--loose", action="store_true")
    parser.add_argument("--policy", default="reference")
    parser.add_argument("--show", default="")
    given = parser.parse_args()
    verifier = InstructionVerifier(given.policy, loose=given.loose)
    all_of, differ, noise, failed = Counter(), Counter(), Counter(), Counter()
    spent: dict[str, float] = Counter()
    for key, kinds, arguments, response, labels in labelled(
        given.folder, "loose" if given.loose else "strict"
    ):
        for kind, asked, label in zip(kinds, arguments, labels, strict=True):
            reference = [{"kind": kind, "arguments": asked}]
            began = time.process_time()
            try:
                held = verifier.verify(response, reference).correct
            except RlvrError as error:
                failed[f"{kind}: {error}"] += 1
                continue
            spent[kind] += time.process_time() - began
            all_of[kind] += 1
            if held != label:
                if key in NOISE and kind == "keywords:letter_frequency":
                    noise[kind] += 1
                    continue
                differ[kind] += 1
                if kind == given.show:
                    print(f"--- {key} {asked} published {label}\n{response[:1500]}\n")
    for family in ("ifeval", "iftrain", "ifbench", "mifeval"):
        for kind in sorted(name for name in all_of if KINDS[name].family == family):
            print(
                f"{kind:45} {all_of[kind]:6} verdicts {differ[kind]:4} differ"
                f"{f', {noise[kind]} of noise' if noise[kind] else ''}, "
                f"{1e6 * spent[kind] / all_of[kind]:8.1f} µs"
            )
    print(
        f"{sum(all_of.values())} verdicts, {sum(differ.values())} differ, "
        f"{sum(noise.values())} of noise"
    )
    for what, count in failed.items():
        print(f"not checked: {count} × {what}")


if __name__ == "__main__":
    main()
