"""`python -m recipes.desk` is `rlvr train desk`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "desk", *sys.argv[1:]]))
