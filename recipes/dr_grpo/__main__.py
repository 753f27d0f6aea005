"""`python -m recipes.dr_grpo` is `rlvr train dr_grpo`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "dr_grpo", *sys.argv[1:]]))
