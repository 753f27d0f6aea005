"""`python -m recipes.swe_lite` is `rlvr train swe_lite`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "swe_lite", *sys.argv[1:]]))
