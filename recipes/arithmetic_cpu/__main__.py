"""`python -m recipes.arithmetic_cpu` is `rlvr train arithmetic_cpu`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "arithmetic_cpu", *sys.argv[1:]]))
