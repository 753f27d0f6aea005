"""`python -m recipes.math_prorl` is `rlvr train math_prorl`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "math_prorl", *sys.argv[1:]]))
