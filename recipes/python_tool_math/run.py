"""A tiny model learns to multiply with a Python session in the sandbox, and not by guessing.  No GPU, no download.

Example: rlvr train python_tool_math --steps 60 --seed 0
"""

import sys

import tyro

from rlvr.recipes.python_tool_math.products import Products
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
        Products(),
        Products(split="test"),
        words=(
            '<tool_call>{"name": "python", "arguments": {"code": "',
            '"}}</tool_call>',
            "\\boxed{",
        ),
        guess="\\boxed{2500}",
        max_tokens=40,
    )


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Settings)))
