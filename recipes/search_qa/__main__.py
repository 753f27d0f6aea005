"""`python -m recipes.search_qa` is `rlvr train search_qa`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "search_qa", *sys.argv[1:]]))
