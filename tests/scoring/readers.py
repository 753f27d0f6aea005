"""What judges by a file or a limit of its process, in a file that workers import in little time."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import rlvr
from rlvr.types import Outcome, Task, Verdict


class Digits(rlvr.Environment):
    """Judges by the limit of digits."""

    def task(self, index):
        return Task(str(index), "p", reference="1")

    def verify(self, task, completion):
        return Verdict(Outcome.CORRECT, why=str(sys.get_int_max_str_digits()))


class Worded(rlvr.Environment):
    """Judges by a file; the completion `write` writes it, and goes on until it may end."""

    path: str

    def task(self, index):
        return Task(str(index), "p")

    def verify(self, task, completion):
        words = Path(self.path)
        if completion == "write":
            words.write_text("2")
            words.with_name("is written").mkdir()
            until(words.with_name("may end").exists)
        return Verdict(Outcome.CORRECT, why=words.read_text())


def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.01)
