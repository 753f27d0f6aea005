"""`python -m recipes.python_tool_math` is `rlvr train python_tool_math`."""

import sys

from rlvr.cli import main

sys.exit(main(["train", "python_tool_math", *sys.argv[1:]]))
