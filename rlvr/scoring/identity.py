"""How a score was decided: one description, compared by all that joins, resumes, serves,
asks, trains or replays.

    settings   environment, options, reward, verifier, what their objects hold
    code       digests of files, rlvr's and one's own; versions of packages, Python, SQLite,
               toolchains
    inputs     files that judging opened, and variables that it read
    data       digests of blocks of the input's rows

Two identities differ where one name has two values, not where one of them saw more: a machine that
has judged one row may have opened fewer files.  Records carry the digest of settings and code,
which are known before the first row; the whole stands once, beside the file (`OUT.identity.json`),
in Parquet's metadata, in a shard's totals, in a run's folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, TypeVar

from rlvr.data.files import read_bounded, write_whole
from rlvr.data.lines import Line, parquet_note
from rlvr.environment import Environment
from rlvr.errors import UsageError, brief
from rlvr.scoring.code_files import code_of
from rlvr.scoring.held_values import held_values, objects_in, plain_text, qualified_name
from rlvr.scoring.watch import Noticed
from rlvr.types import JsonDict

__all__ = [
    "ACCEPTABLE",
    "DataDigest",
    "IDENTITY_HEADER",
    "Identity",
    "IdentityFile",
    "PARQUET_NOTE",
    "identity_differences",
    "identity_of",
    "identity_path",
    "read_identity",
    "require_acceptable",
    "require_same",
    "shard_path",
]

_T = TypeVar("_T")

ACCEPTABLE: Final = ("code", "inputs", "data")
"""The parts in which a user may accept a difference; other settings are another score."""

IDENTITY_HEADER: Final = b"x-rlvr-identity"
"""The HTTP header in which a service says by what it scores, and a client what it knows of that."""

PARQUET_NOTE: Final = "rlvr.identity"
"""The key of Parquet's metadata."""

_PARTS: Final = ("settings", *ACCEPTABLE)
_TASKS_ALONE: Final = ("data", "split")
"""Options that say which tasks there are; a record holds its task, so they decide no score."""

_DIGEST: Final = re.compile(r"[0-9a-f]{16}")
_SHOWN: Final = 4  # differences that an error names
_LETTERS: Final = 100  # of a value that an error names
# Rows of the input with one digest, whose name says which rows they are.
_BLOCK_ROWS: Final = 1 << 16


@dataclass
class Identity:
    """How scores are decided, as far as it is known; more is added while rows are judged.

    Attributes:
        settings: JSON values by name.
        code, inputs, data: digests or versions by name.
        accepted: the differences that were accepted, one line each.
        written: the inputs that turned out to be written by judging itself, such as a cache: they
            are none.
    """

    settings: JsonDict = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    accepted: list[str] = field(default_factory=list)
    digest: str = ""
    written: set[str] = field(default_factory=set)
    _whole: tuple[int, str] = field(default=(-1, ""), repr=False, compare=False)

    @classmethod
    def from_dict(cls, given: Any) -> Identity:
        """The identity in JSON that `as_dict` made.

        Args:
            given: the JSON.

        Raises:
            UsageError: it is none.
        """
        with suppress(AttributeError, TypeError, ValueError):
            if given.keys() >= {*_PARTS, "accepted", "digest"}:
                settings, code, inputs, data = (dict(given[part]) for part in _PARTS)
                accepted, digest = [*map(str, given["accepted"])], str(given["digest"])
                written = set(given.get("written", ()))
                return cls(settings, code, inputs, data, accepted, digest, written)
        raise UsageError(f"{brief(given)} is no identity; `rlvr identity ENV` shows one")

    def as_dict(self) -> dict[str, object]:
        """The identity as JSON."""
        parts = {part: getattr(self, part) for part in _PARTS}
        written = sorted(self.written)
        return {**parts, "accepted": self.accepted, "digest": self.digest, "written": written}

    @property
    def size(self) -> int:
        """How many names it has or had; it grows with each change."""
        # A name that was taken out counts twice, so that the size still grows.
        parts = self.settings, self.code, self.inputs, self.data, self.written, self.written
        return sum(map(len, parts))

    @property
    def whole(self) -> str:
        """The digest of all that is known, which changes when more is."""
        if self._whole[0] != self.size:
            self._whole = self.size, _digest_of({part: getattr(self, part) for part in _PARTS})
        return self._whole[1]

    def add(
        self,
        other: Identity | Noticed,
        where: str,
        accept: Collection[str] = (),
        *,
        here: str = "this run",
        way_out: str = "use the same",
    ) -> bool:
        """Take over what another one, of the same scores, has seen beyond this one.

        Args:
            other: the other, or parts of it.
            where: what the other is of, for the error.
            accept: parts in which differences are accepted; they are noted.
            here: what this one is of.
            way_out: what can be done about a difference, for the error.

        Returns:
            Whether there was anything new.

        Raises:
            UsageError: it is another one.
        """
        if not isinstance(other, Identity):
            other = Identity(code=other.get("code", {}), inputs=other.get("inputs", {}))
        require_same(self, other, here, where, accept, way_out)
        before = self.size
        for part in _PARTS:
            # Its own values win; where both have a name they are equal, or accepted.
            setattr(self, part, {**getattr(other, part), **getattr(self, part)})
        self.forget_written(other.written)
        self.accepted += [line for line in other.accepted if line not in self.accepted]
        return self.size > before

    def forget_written(self, names: Collection[str]) -> None:
        """Take files out of the inputs, for good: judging wrote them itself.

        Args:
            names: of the files.
        """
        # For good: a worker that read it later would bring it back.
        self.written |= set(names)
        for name in self.written & self.inputs.keys():
            del self.inputs[name]

    def covers(self, digest: str) -> bool:
        """Whether records with a digest may stand beside it: its own, or one that was accepted.

        Args:
            digest: in a record.
        """
        return digest == self.digest or any(digest in line.split() for line in self.accepted)

    def without(self, *parts: str) -> Identity:
        """A copy without these parts.

        Args:
            parts: such as "data".
        """
        return Identity.from_dict({**self.as_dict(), **{part: {} for part in parts}})


def identity_of(env: Environment) -> Identity:
    """What is known of how an environment scores before it has scored anything.

    Args:
        env: the environment.
    """
    options = {name: value for name, value in env.options().items() if value is not MISSING}
    options = {**options, **env.config}
    primary = env.reward.primary
    verifier = primary.verifier if primary is not None else None
    options = {name: value for name, value in options.items() if name not in _TASKS_ALONE}
    settings = {
        "env": env.id,
        "reward": str(env.reward),
        "verifier": None if verifier is None else verifier.id,
        **{f"option {name}": value for name, value in options.items()},
    }
    if "rows" in options and "rows" not in env.config:  # a data set in memory, see `RowsEnv.config`
        del settings["option rows"], options["rows"]
    settings |= held_values(objects_in(*options.values(), env.reward))
    plain = {name: _as_json(value) for name, value in sorted(settings.items())}
    identity = Identity(plain, code_of(env), dict(env._inputs))
    identity.digest = _digest_of({"settings": identity.settings, "code": identity.code})
    return identity


def _as_json(value: object) -> object:
    text = plain_text(value)
    return json.loads(text) if text else qualified_name(value)


def _digest_of(parts: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def identity_differences(here: Identity, there: Identity) -> Iterator[tuple[str, str]]:
    """(part, what differs, as a text) of each name that has two values.

    Args:
        here, there: the two.
    """
    for part, name, theirs, ours in _differing(here, there):
        yield part, f"{name} {_change(theirs, ours)}"


def _differing(here: Identity, there: Identity) -> Iterator[tuple[str, str, object, object]]:
    """(part, name, its value there, here) of each name that has two values."""
    for part in _PARTS:
        own_values, other_values = getattr(here, part), getattr(there, part)
        # Only names that both have: one side may have read less.
        for name in sorted(own_values.keys() & other_values.keys() - here.written - there.written):
            if own_values[name] != other_values[name]:
                yield part, name, other_values[name], own_values[name]


def _change(theirs: object, ours: object) -> str:
    # Digests say nothing to a reader.
    if _is_digest(theirs) and _is_digest(ours):
        return "has another content"
    return f"is {_show_value(theirs)} there and {_show_value(ours)} here"


def _show_value(value: object) -> str:
    if value in ("absent", "unset"):
        return str(value)
    text = "set" if _is_digest(value) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]}…"


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def require_same(
    here: Identity,
    there: Identity,
    what_here: str,
    what_there: str,
    accept: Collection[str] = (),
    way_out: str = "use the same",
) -> None:
    """Refuse to put together what was decided in two ways.

    Args:
        here, there: the two.
        what_here, what_there: what they are of, such as the names of files.
        accept: parts in which differences are accepted; what was accepted is noted in `here`.
        way_out: what can be done, for the error.

    Raises:
        UsageError: they differ, in one line.
    """
    all_differences = list(identity_differences(here, there))
    refused = [difference for difference in all_differences if difference[0] not in accept]
    if refused:
        parts = sorted({part for part, _ in refused}, key=_PARTS.index)
        texts = "; ".join(text for _, text in refused[:_SHOWN])
        unshown = f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        flags = " ".join(f"--accept {part}" for part in parts)
        flag = "" if "settings" in parts else f", or pass {flags}"
        raise UsageError(
            f"{what_there} differs from {what_here} in {' and '.join(parts)}: {texts}{unshown}; "
            f"{way_out}{flag}"
        )
    for part, name, theirs, ours in _differing(here, there) if all_differences else ():
        change = _change(theirs, ours)
        digests = f": {theirs} there, {ours} recorded" if _is_digest(ours) else ""
        line = f"{part} of {what_there}: {name} {change}{digests}"
        # Said once, however often it is compared.
        if line not in here.accepted:
            here.accepted.append(line)


def require_acceptable(accept: Collection[str]) -> None:
    """Refuse a part that cannot be accepted.

    Args:
        accept: what was given for `--accept`.

    Raises:
        UsageError: one is none.
    """
    for part in accept:
        if part not in ACCEPTABLE:
            raise UsageError(f"--accept {part}: write one of {', '.join(ACCEPTABLE)}")


def identity_path(output: Path) -> Path:
    """The file beside an output that its identity stands in.

    Args:
        output: the file with the scores.
    """
    return Path(f"{output}.identity.json")


def read_identity(output: Path) -> Identity | None:
    """The identity of the scores in a file; None if it says nothing.

    Args:
        output: the file with the scores, a report, or a file with an identity alone.

    Raises:
        UsageError: what stands there is none.
    """
    beside, partial = identity_path(output), Path(f"{output}.partial")
    if beside.is_file() and output.is_file() and partial.is_file():
        raise UsageError(
            f"{beside} is of {partial.name}, a run that replaces {output}; "
            "finish it by --resume --overwrite"
        )
    for path in (beside, shard_path(output)):
        if path.is_file():
            return _read(path)
    if output.name.endswith(".json") and output.is_file():
        return _read(output)
    note = parquet_note(output, PARQUET_NOTE) if output.suffix == ".parquet" else None
    return None if note is None else _parse(note, output)


def shard_path(output: Path) -> Path:
    """The file that the totals of a shard stand in.

    Args:
        output: the shard's records.
    """
    return Path(f"{output}.shard.json")


def _read(path: Path) -> Identity:
    return _parse(read_bounded(path), path)


def _parse(text: bytes | str, where: Path) -> Identity:
    try:
        tree = json.loads(text)
        if not isinstance(tree, dict):
            raise ValueError(f"{brief(tree)} is no JSON object")
        # The totals of a shard and a report hold it beside other things.
        return Identity.from_dict(tree.get("identity", tree))
    except (ValueError, AttributeError, RecursionError) as error:
        raise UsageError(f"{where} holds no identity: {error}") from None


class IdentityFile:
    """The identity of a run while it is under way, in a file beside what the run writes.

    Args:
        path: the file; None for none, as beside stdout.
        identity: of this run.
        accept: parts in which differences are accepted.
        stopped: the identity that a stopped run left; None where there is none to go on with.
        unknown: the digest in the records of a stopped run whose identity is gone, or another text
            if it has no records.
        where: what the stopped run left, for errors.
        way_out: what can be done about a difference, for errors.

    Raises:
        UsageError: the stopped run was decided in another way, or no such part can be accepted.
    """

    def __init__(
        self,
        path: Path | None,
        identity: Identity,
        *,
        accept: Collection[str] = (),
        stopped: Identity | None = None,
        unknown: str = "",
        where: str = "",
        way_out: str = "use the same, or pass --overwrite to begin anew",
    ) -> None:
        require_acceptable(accept)
        self.identity, self.accept = identity, accept
        self._path, self._where, self._way_out = path, where, way_out
        self._followed, self._is_written = -1, False
        self._unknown, self._stopped = unknown, stopped
        if unknown:
            if unknown != identity.digest:
                self._accept_unknown("code")
            self._add(Identity())
        if stopped is not None:
            self._compare_with_stopped(identity)
            if stopped.digest != identity.digest:
                digests = f"{stopped.digest} there, {identity.digest} recorded now"
                identity.accepted.append(f"identity of {where}: {digests}")
            identity.add(stopped, where)

    @classmethod
    def beside(
        cls,
        output: Path,
        identity: Identity,
        recorded: str | None = None,
        *,
        accept: Collection[str] = (),
    ) -> IdentityFile:
        """That of the scores in a file, compared with what a stopped run left.

        Args:
            output: the file with the scores.
            identity: of this run.
            recorded: the digest in a record of the stopped run; None if there is no such run.
            accept: parts in which differences are accepted.

        Raises:
            UsageError: see the class; or what the stopped run was scored by is not known.
        """
        path, partial = identity_path(output), f"{output}.partial"
        stopped = _read(path) if recorded is not None and path.is_file() else None
        # Also where the file is of another run, of whose identity no record is.
        if recorded is not None and not (stopped is not None and stopped.covers(recorded)):
            return cls(path, identity, accept=accept, where=partial, unknown=recorded[:60])
        return cls(path, identity, accept=accept, stopped=stopped, where=partial)

    def add(self, noticed: Identity | Noticed) -> None:
        """Take over what was seen meanwhile, and write it before the rows that depend on it.

        Args:
            noticed: what was seen.

        Raises:
            UsageError: it is another one than before.
        """
        # Before the rows that depend on it: a kill in between must not hide it.
        if self._add(noticed) and self._is_written:
            self.write()

    def follow(self, seen: Identity) -> None:
        """`add` and `write`, where there is something new: before the first record, and seldom
        later.

        Args:
            seen: what the engine has seen; it grows.
        """
        # A number is compared, as this is asked before every record.
        if seen.size != self._followed:
            self._add(seen)
            self.write()
            self._followed = seen.size

    def note_data(self, name: str, digest: str) -> None:
        """Take over the digest of a block of the input.

        Args:
            name, digest: of the block.
        """
        self._add(Identity(data={name: digest}))
        if self._is_written:
            self.write()

    def _add(self, noticed: Identity | Noticed) -> bool:
        if not isinstance(noticed, Identity):
            parts = noticed.get("code", {}), noticed.get("inputs", {})
            noticed = Identity({}, *parts, written=set(self.identity.written))
        accepted = self._compare_with_stopped(noticed)
        where = "what was read later"
        has_more = self.identity.add(noticed, where, self.accept, way_out=self._way_out) or accepted
        # Where judging reads nothing, there is nothing that could have been another.
        if self._unknown and self.identity.inputs:
            self._accept_unknown("inputs")
        return has_more

    def _compare_with_stopped(self, noticed: Identity) -> bool:
        """Whether a difference from the stopped run was accepted: from then on the new value is
        recorded."""
        stopped, identity = self._stopped, self.identity
        if stopped is None:
            return False
        count = len(noticed.accepted)
        require_same(noticed, stopped, "this run", self._where, self.accept, self._way_out)
        for part in _PARTS:
            old_values = getattr(stopped, part)
            for name in old_values.keys() & getattr(noticed, part).keys():
                # Compared for good: what comes later is compared with what this run has read.
                del old_values[name]
                if noticed is not identity:
                    getattr(identity, part).pop(name, None)
        return len(noticed.accepted) > count

    def _accept_unknown(self, part: str) -> None:
        """Note that this part of a stopped run is not known, or refuse to go on with it."""
        digests = f"identity {self._unknown} there and {self.identity.digest or 'known'} here"
        if part not in self.accept:
            raise UsageError(
                f"by what {self._where} was scored is not known: its identity is gone or of other "
                f"scores ({digests}); {self._way_out}, or pass --accept {part}"
            )
        line = f"{part} of {self._where}: not known, {digests}"
        if line not in self.identity.accepted:
            self.identity.accepted.append(line)

    def write(self) -> None:
        """Write it beside the output."""
        if self._path is None:
            return
        self._is_written = True
        text = json.dumps(self.identity.as_dict(), indent=1, sort_keys=True)
        write_whole(self._path, text.encode() + b"\n")

    def notes(self) -> dict[str, str]:
        """The identity as a note for Parquet's metadata."""
        return {PARQUET_NOTE: json.dumps(self.identity.as_dict(), sort_keys=True)}

    def remove(self) -> None:
        """Remove the file: the identity stands elsewhere."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


class DataDigest:
    """Digests of blocks of a file's rows, taken while these are read.

    A block's name says the place of its file and of its rows, so that an input under another path
    is the same.

    Args:
        file: its place among those of the run, from 1.
        note: called with the name and the digest of each block.
    """

    def __init__(self, file: int, note: Callable[[str, str], None]) -> None:
        self._file, self._note = file, note
        self._has_lines = False

    def lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """The same lines of JSON; the rows are then not looked at.

        Args:
            lines: of the file.
        """
        self._has_lines = True
        return self._through(lines, bytes)

    def rows(self, rows: Iterable[Line]) -> Iterator[Line]:
        """The same rows, looked at if the file has no lines of JSON.

        Args:
            rows: as they were read.
        """
        rows = iter(rows)
        first = list(islice(rows, 1))  # whether there are lines is known with the first row
        all_rows = chain(first, rows)
        return all_rows if self._has_lines else self._through(all_rows, _bytes_of)

    def _through(self, things: Iterable[_T], read: Callable[[_T], bytes]) -> Iterator[_T]:
        things, first = iter(things), 1
        while True:
            hasher, number = hashlib.blake2b(digest_size=8), first - 1
            for thing in islice(things, _BLOCK_ROWS):
                hasher.update(read(thing))
                number += 1
                yield thing
            # No rows since the last block: the input has ended.
            if number < first:
                return
            self._note(f"file {self._file}, rows {first} to {number}", hasher.hexdigest())
            first = number + 1


def _bytes_of(line: Line) -> bytes:
    if line.row is None:
        return line.text.encode("utf-8", "surrogatepass")
    return json.dumps(line.row, default=str).encode()
