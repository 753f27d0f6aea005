"""`python -m recipes.r1_zero` is `rlvr train r1_zero`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "r1_zero", *sys.argv[1:]]))
