"""`python -m recipes.distill` is `rlvr train distill`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "distill", *sys.argv[1:]]))
