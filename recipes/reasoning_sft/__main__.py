"""`python -m recipes.reasoning_sft` is `rlvr train reasoning_sft`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "reasoning_sft", *sys.argv[1:]]))
