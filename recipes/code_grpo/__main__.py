"""`python -m recipes.code_grpo` is `rlvr train code_grpo`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "code_grpo", *sys.argv[1:]]))
