"""What a completion states, and what it lists, denies, takes back or leaves open."""

import json
from pathlib import Path

from rlvr.verifiers.math import MathVerifier

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "what_was_stated.jsonl").read_text("utf-8").splitlines()
]
PAIRS = (
    ("27", "28"),
    ("-4", "4"),
    (r"\frac{1}{2}", r"\frac{1}{3}"),
    ("x+1", "x-1"),
    (r"\sqrt{2}", r"2\sqrt{2}"),
    ("0.75", "0.25"),
)


def test_only_what_is_stated_is_paid():
    """Each text with a right answer R and a wrong one W in a box, or bare: r and w."""
    verifier, differing = MathVerifier(), []
    for number, row in enumerate(ROWS):
        for right, wrong in {PAIRS[0], PAIRS[number % len(PAIRS)]}:
            text = row["text"]
            for mark, value in (("r", right), ("w", wrong)):
                box = f"\\boxed{{{value}}}"
                text = text.replace(f"‹{mark.upper()}›", box).replace(f"‹{mark}›", value)
            if verifier.verify(text, right).correct != (row["label"] == "right"):
                differing.append((row, right))
    # rows that are known to be paid: the words in them are in no table
    missed = [row for row in ROWS if row.get("missed")]
    assert [row for row, right in differing if right == "27"] == missed
    # "the answer is" names another answer only beside a number
    assert len(differing) < 2 * len(missed) + 15
    assert {row["label"] for row, _ in differing} == {"wrong"}
