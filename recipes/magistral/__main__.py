"""`python -m recipes.magistral` is `rlvr train magistral`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "magistral", *sys.argv[1:]]))
