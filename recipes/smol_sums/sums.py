"""The environment of the recipe: two numbers of one digit.  The scoring workers
load this, and no torch."""

from collections.abc import Iterator
from itertools import product

import rlvr
from rlvr.types import Message
from rlvr.validate import require_one_of

__all__ = ["OneDigitSums"]

_SPLITS = {"train": range(2), "test": range(2, 3)}  # thirds of the pairs
_SHOWN = ((4, 3), (8, 6), (0, 2), (9, 5), (2, 2), (7, 8))


class OneDigitSums(rlvr.Environment):
    """Add two numbers of one digit; the answer is the number alone.

    Each prompt shows six worked sums as earlier turns of the chat, which are in no split.  A pair
    is in one split together with its reverse: 2 + 3 is not trained on where 3 + 2 is evaluated.
    `split` is train or test.
    """

    domain = "mathematics"
    reward = rlvr.Correct()

    def __post_init__(self) -> None:
        require_one_of("split", self.split, _SPLITS)

    def tasks(self) -> Iterator[rlvr.Task]:
        example_pairs = {tuple(sorted(pair)) for pair in _SHOWN}
        turns = [turn for a, b in _SHOWN for turn in (_question(a, b), _answer(a, b))]
        for a, b in product(range(10), repeat=2):
            if tuple(sorted((a, b))) not in example_pairs and _third(a, b) in _SPLITS[self.split]:
                prompt = [*turns, _question(a, b)]
                yield rlvr.Task(f"smol-sums/{a}+{b}", prompt, reference=a + b)

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        answer = completion.strip()
        # `isdigit` alone takes digits of other scripts and superscripts.
        if not (answer.isascii() and answer.isdigit()):
            return rlvr.Verdict(rlvr.Outcome.UNPARSED, why="not a number alone")
        if answer != str(task.reference):
            return rlvr.Verdict(rlvr.Outcome.WRONG, why=f"not {task.reference}", answer=answer[:20])
        return rlvr.Verdict(rlvr.Outcome.CORRECT, why="same number", answer=answer)


def _question(a: int, b: int) -> Message:
    return {"role": "user", "content": f"What is {a} + {b}?"}


def _answer(a: int, b: int) -> Message:
    return {"role": "assistant", "content": str(a + b)}


def _third(a: int, b: int) -> int:
    # In order, so that a pair and its reverse are in one split.
    return rlvr.seeded("recipes/smol_sums", min(a, b), max(a, b)).randrange(3)
