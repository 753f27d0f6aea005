"""Patches in the form of `diff -u`: read from a reply, and applied to files by their lines
and not by their numbers."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from rlvr.text import after_thinking

__all__ = ["PatchError", "apply_patch", "patch_between", "patch_in"]

# a fence at the beginning of a line: a "```" within a changed line begins with its sign
_FENCE: Final = re.compile(r"^```(?:(?P<opens>diff|patch)\b[^\n`]*|[ \t]*)$", re.M | re.I)
# "@@ -12,7 +12,9 @@"; counts are passed over: the lines themselves tell
_HUNK: Final = re.compile(r"@@ -(\d{1,9})(?:,\d+)? \+\d+(?:,\d+)? @@")
# empty lines between the hunks of one file and the head of the next
_BEFORE_HEAD: Final = re.compile(r"(?<!\n)\n+(?=\n(?:diff --git |--- [^\n]*\n\+\+\+ ))")
_PATH_LETTERS: Final = 200
_HUNKS_MOST: Final = 1_000  # each is looked for in its whole file
_NONE: Final = "/dev/null"


class PatchError(ValueError):
    """A patch that cannot be read or does not apply; says why."""


@dataclass
class _Hunk:
    """Lines to be found and lines to take their place; `line` is where the first
    should be, counted from 1."""

    line: int
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


def patch_in(reply: str) -> str | None:
    """The last block after the model's thinking that is fenced as a diff; None if there is none.

    Args:
        reply: the whole text.
    """
    begin = after_thinking(reply)
    if begin is None:
        return None
    patch, start = None, 0
    for fence in _FENCE.finditer(reply, begin):
        if not start:
            start = fence.end() + 1 if fence["opens"] else 0
        elif not fence["opens"]:
            patch, start = reply[start : fence.start()], 0
    return patch


def apply_patch(files: Mapping[str, str], patch: str) -> dict[str, str]:
    """Files with a patch applied.

    Each hunk's lines must stand in its file; of several places the one nearest to its number
    counts.

    Args:
        files: by path.
        patch: in the form of `diff -u`; `a/` and `b/` before paths do not count.

    Raises:
        PatchError: it is none, or it does not apply.
    """
    patched, count = dict(files), 0
    for old, new, hunks in _sections(patch):
        count += len(hunks)
        if count > _HUNKS_MOST:
            raise PatchError(f"the patch has more than {_HUNKS_MOST:,} hunks")
        # a patch of a file that is not there would make one out of its context alone
        if old != _NONE and old not in patched:
            raise PatchError(f"there is no file {old!r}")
        if old == _NONE and new in patched:
            raise PatchError(f"the file {new!r} is there already")
        lines = [] if old == _NONE else patched[old].split("\n")
        shift = 0
        for hunk in hunks:
            at = 0 if old == _NONE else _place(lines, hunk, shift, old)
            lines[at : at + len(hunk.old)] = hunk.new
            # what was added or removed moves all later hunks by as much
            shift = at - (hunk.line - 1) + len(hunk.new) - len(hunk.old)
        if old not in (_NONE, new):
            del patched[old]
        if new != _NONE:
            patched[new] = "\n".join([*lines, ""] if old == _NONE else lines)
    # a path that is both a file and a folder could be written in no order
    folders = {str(folder) for path in patched for folder in PurePosixPath(path).parents}
    for path in patched:
        # files of the task keep their names, whatever they are; only new ones must be plain
        if path not in files and (not _is_plain(path) or path in folders):
            raise PatchError(f"no file can be called {path[:60]!r} here")
        if path in folders:
            raise PatchError(f"{path!r} is a file, and a new one is below it")
    return patched


def _is_plain(path: str) -> bool:
    parts = path.split("/")
    return (
        path.isascii()
        and path.isprintable()
        and len(path) <= _PATH_LETTERS
        # no "../" out of the folder, and no empty part, which begins an absolute path
        and all(part not in ("", ".", "..") for part in parts)
    )


def _place(lines: Sequence[str], hunk: _Hunk, shift: int, path: str) -> int:
    count = len(hunk.old)
    places = [at for at in range(len(lines) - count + 1) if lines[at : at + count] == hunk.old]
    # lines without context could go anywhere
    if not hunk.old or not places:
        raise PatchError(f"the hunk at line {hunk.line} of {path!r} has lines that are not there")
    return min(places, key=lambda at: abs(at - (hunk.line - 1 + shift)))


def _sections(patch: str) -> Iterator[tuple[str, str, list[_Hunk]]]:
    """(old path, new path, hunks) of each file."""
    old, new, hunks = "", "", list[_Hunk]()
    lines = _BEFORE_HEAD.sub("", patch.rstrip("\n")).split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        # a removed line may begin with "-- ", and then looks like a head: the next line tells
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            if hunks:
                yield old, new, hunks
            old, new, hunks = _path(line), _path(lines[at + 1]), []
            at += 2
            continue
        head = _HUNK.match(line)
        if head is not None and new:
            hunks.append(_Hunk(int(head[1])))
        elif hunks and line[:1] in (" ", "-", "+", ""):
            # editors strip the space of an empty context line
            if line[:1] != "+":
                hunks[-1].old.append(line[1:])
            if line[:1] != "-":
                hunks[-1].new.append(line[1:])
        elif hunks and line.startswith("diff --git "):  # the next file's
            yield old, new, hunks
            old, new, hunks = "", "", []
        elif hunks and not line.startswith("\\"):  # "\ No newline at end of file"
            raise PatchError(f"the line {line[:60]!r} begins with none of ' ', '-' and '+'")
        at += 1
    if not hunks:
        raise PatchError("the patch has no hunk")
    yield old, new, hunks


def _path(line: str) -> str:
    path = line[4:].split("\t")[0].strip()
    return path if path == _NONE else re.sub(r"^[ab]/", "", path)


def patch_between(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """The patch that leads from files to others of the same names.

    Args:
        old, new: by path.
    """
    parts: list[str] = []
    for path in sorted(new):
        before, after = old[path].split("\n"), new[path].split("\n")
        parts += difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="")
    return "\n".join(parts)
