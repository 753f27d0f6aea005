"""One sample of inspect_ai in a process of its own; the order comes by standard input."""

import json
import sys

from rlvr.interop.inspect_ai import run_sample

__all__: list[str] = []

if __name__ == "__main__":
    run_sample(json.load(sys.stdin))
