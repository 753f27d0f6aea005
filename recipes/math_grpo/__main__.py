"""`python -m recipes.math_grpo` is `rlvr train math_grpo`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "math_grpo", *sys.argv[1:]]))
