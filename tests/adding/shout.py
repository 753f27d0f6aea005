"""A command: `rlvr shout`."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

import rlvr


@dataclass
class ShoutCommand:
    """Say words in capitals.

    Example: rlvr shout hello -n 2

    Attributes:
        words: What to say.
        times: How often.
    """

    words: Positional[str]
    times: Annotated[int, arg(aliases=["-n"])] = 1

    def run(self, out, err):
        """Print them; `out` and `err` are consoles of rich, which take a text for a text."""
        if self.times < 1:
            raise rlvr.UsageError(f"--times is {self.times}; it must be at least 1")  # exit code 2
        for _ in range(self.times):
            out.print(self.words.upper(), soft_wrap=True)  # a line stays a line
        return 0
