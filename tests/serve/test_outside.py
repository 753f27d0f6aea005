"""What the service says of its memory, measured from outside: by /proc, in a process of its own."""

import json
import subprocess
import sys

import pytest

from tests.processes import ROOT

SCRIPT = """
import json
from rlvr.http.serve.jobs import LINE_BYTES, _line

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

fields = {"id": "line:1", "outcome": "correct", "total": 1.0, "parts": {"correct": 1.0},
          "value": 1.0, "why": %r, "answer": None, "detail": {}}
lines = [_line(fields) for _ in range(1000)]  # what is made once
before, kept = resident(), [_line(fields) for _ in range(30_000)]
print(json.dumps([resident() - before, sum(map(len, kept)) + LINE_BYTES * len(kept)]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
@pytest.mark.parametrize("why", ["same", "s" * 300, "s" * 3000, "é" * 300])
def test_a_kept_answer_takes_what_is_counted(why):
    """orjson's buffers were kept whole: 4.1 kB for a line of 122 bytes, 607 MiB where 27 were counted."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT % why], cwd=ROOT, capture_output=True, text=True, check=True
    )
    taken, counted = json.loads(done.stdout)
    assert taken <= 1.25 * counted
    assert counted <= 1.5 * taken
