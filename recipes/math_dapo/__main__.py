"""`python -m recipes.math_dapo` is `rlvr train math_dapo`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "math_dapo", *sys.argv[1:]]))
