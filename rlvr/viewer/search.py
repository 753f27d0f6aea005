"""Where a text stands in a large file of JSON lines, at the speed at which bytes are compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["hits_in_lines", "needles_of"]

_CHUNK: Final = 8 << 20  # bytes


def needles_of(text: str) -> list[bytes]:
    """The bytes that a text may be in JSON: with other letters as they are, and escaped.

    Args:
        text: what is looked for.
    """
    written = {json.dumps(text, ensure_ascii=escaped)[1:-1] for escaped in (True, False)}
    return sorted(needle.encode("utf-8", "surrogatepass") for needle in written)


def hits_in_lines(
    path: Path, needles: Sequence[bytes], start: int, end: int, most: int
) -> list[int]:
    """A byte offset in each line that contains one of the needles, in order.

    Args:
        path: the file.
        needles: what is looked for; none holds a newline.
        start, end: bytes of the file that are looked at; both are ends of lines.
        most: stop after this many lines.
    """
    hits: list[int] = []
    longest = max(map(len, needles))
    with path.open("rb") as file:
        file.seek(start)
        # the end of the chunk before; whether its last line has been found already
        tail, skips = b"", False
        while start + len(tail) < end and len(hits) < most:
            raw = file.read(min(_CHUNK, end - start - len(tail)))
            if not raw:
                break
            chunk = tail + raw
            at = 0
            if skips and (at := chunk.find(b"\n") + 1):
                skips = False
            while not skips and len(hits) < most:
                places = [place for needle in needles if (place := chunk.find(needle, at)) >= 0]
                if not places:
                    break
                hits.append(start + min(places))
                at = chunk.find(b"\n", min(places)) + 1
                skips = not at
            tail = b"" if skips else chunk[max(at, len(chunk) - longest + 1) :]
            start += len(chunk) - len(tail)
    return hits
