"""`ChoiceVerifier` beside MMLU-Pro's own extractor, on raw outputs of three models.

    python -m benchmarks.choice_labels FILE [--show REASON]

FILE is a `.jsonl.gz` with `options`, `answer` (gold letter), `official_pred` and `output`.  The
official letter is a rule's opinion: it takes the first "answer is X", else the last capital letter.
The data are not part of rlvr.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter
from pathlib import Path

from rlvr.errors import DataError
from rlvr.verifiers.choices import LETTERS, ChoiceVerifier


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--show", default="")
    given = parser.parse_args()
    counted: Counter[str] = Counter()
    with gzip.open(given.file, "rt") as lines:
        for row in map(json.loads, lines):
            reference = {
                "options": row["options"],
                "answer": row["options"][LETTERS.index(row["answer"])],
            }
            try:
                verdict = ChoiceVerifier().verify(row["output"], reference)
            except DataError as error:
                counted[f"row refused: {str(error)[:40]}"] += 1
                continue
            official = row["official_pred"] == row["answer"]
            what = (
                "same"
                if verdict.correct == official
                else f"official {official}, ours {verdict.reason}"
            )
            counted[what] += 1
            if given.show and given.show in what:
                print(
                    f"--- {what}: official {row['official_pred']}, gold {row['answer']}, "
                    f"read {verdict.answer!r}"
                )
                print(row["output"][-400:])
    for what, count in counted.most_common():
        print(f"{count:6} {what}")


if __name__ == "__main__":
    main()
