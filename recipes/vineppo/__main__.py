"""`python -m recipes.vineppo` is `rlvr train vineppo`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "vineppo", *sys.argv[1:]]))
