"""`python -m recipes.smol_sums` is `rlvr train smol_sums`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "smol_sums", *sys.argv[1:]]))
