"""A tiny model learns to answer questions of one fact by searching a corpus, and not by guessing.  No GPU, no download.

Example: rlvr train search_qa --steps 60 --seed 0
"""

import sys

import tyro

from rlvr.recipes.search_qa.facts import Ages
from rlvr.recipes.tiny_tools import Settings, train_tools

__all__ = ["DEFAULTS", "main"]

DEFAULTS = Settings()


def main(settings: Settings = DEFAULTS) -> int:
    """Warm start, training and its results; returns the exit code.

    Args:
        settings: of warm start and training.
    """
    return train_tools(
        settings,
        Ages(),
        Ages(split="test"),
        words=(
            '<tool_call>{"name": "search", "arguments": {"query": "',
            '"}}</tool_call>',
            "<answer>",
            "</answer>",
        ),
        guess="<answer>50</answer>",
        max_tokens=32,
    )


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Settings)))
