"""The environment that peers are tested with: `rlvr serve tests/peers/digits.py:Digits`."""

import rlvr

COUNT = 500
UNSCORED = {101, 250, 449}
"""Tasks at whose completion the verifier fails, which is our fault."""


class Digits(rlvr.Environment):
    """Say a number again."""

    reward = rlvr.Correct() + 0.25 * rlvr.Format(str.isdecimal)

    def tasks(self):
        return (rlvr.Task(f"{i}", f"Say {7 * i}.", 7 * i) for i in range(COUNT))

    def verify(self, task, completion):
        if completion == "@raise":
            raise RuntimeError("the verifier failed")
        if not completion.isdecimal():
            return rlvr.Verdict("unparsed")
        return rlvr.Verdict("correct" if int(completion) == task.reference else "wrong")


def completion_of(index: int) -> str:
    """Right, wrong, without an answer, and what the verifier fails at."""
    if index in UNSCORED:
        return "@raise"
    return (str(7 * index), str(7 * index + 1), "none")[index % 3]
