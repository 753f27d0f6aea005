"""A command: `rlvr shout`."""

from dataclasses import dataclass


@dataclass
class ShoutCommand:
    """Say words in capitals.

    Attributes:
        words: what to say.
    """

    words: str

    def run(self, out, err):
        """Print them."""
        out.print(self.words.upper())
        return 0
