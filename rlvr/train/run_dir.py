"""The folder of a run: one process at a time trains in it, and only with the settings
that the run began with."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rlvr.data.files import lock_file, write_whole
from rlvr.environment import Environment
from rlvr.errors import DataError, UsageError, brief
from rlvr.samplers.chat import CHAT_FILE, ChatFormat, ChatSettings, recorded_format
from rlvr.scoring.identity import Identity, IdentityFile, identity_of, read_identity
from rlvr.train.config import Config
from rlvr.train.config.setting import defaults, may_change
from rlvr.train.metrics import versions
from rlvr.train.stage import has_open_end, require_ahead
from rlvr.types import JsonDict, JsonObject

__all__ = ["chat_of_run", "claim_run_dir", "examine_run_dir", "identity_of_run", "keep_chat"]

_LOCK: Final = ".lock"
_CHAT: Final = ("chat", "system", "template_options")


@contextmanager
def claim_run_dir(
    run: Path,
    description: Mapping[str, object],
    say: Callable[[str], None],
    envs: Sequence[Environment | None] = (),
) -> Iterator[None]:
    """Make the folder, or check that it holds this very run, and lock it against other processes
    meanwhile.

    A run continues with the settings that it began with.  Settings that do not affect learning may
    change; a line is printed for each, and `config.json` gets the new ones.

    Args:
        run: the folder.
        description: everything that determines the run, as plain JSON; written to `config.json`
            with versions.
        say: prints a line.
        envs: whose rows are read now; those that were left out are counted in `config.json`, too.

    Raises:
        UsageError: the folder holds a run with other settings, which are named, or files of
            something else; or another process is training in it.
        DataError: its `config.json` is damaged.
    """
    # Before the folder is made: a run that is refused leaves nothing behind.
    examine_run_dir(run, description)
    path = run / "config.json"
    run.mkdir(parents=True, exist_ok=True)
    # Append: opening must not change what another process has written.
    with (run / _LOCK).open("a") as lock:
        try:
            lock_file(lock)
        except BlockingIOError:
            raise UsageError(
                f"{run} is being trained in by another process; wait for it, or give a new folder"
            ) from None
        # again, now that no other process is in it
        has_begun, changed = examine_run_dir(run, description)
        for name, (before, current) in changed.items():
            say(f"{name} is {brief(current)} from here on, and was {brief(before)}")
        if changed or not has_begun:
            left_out = {
                environment.split: dict(environment.rows_left_out)
                for environment in envs
                if environment is not None and environment.rows_left_out
            }
            record = {**description, "versions": versions(), "rows_left_out": left_out}
            text = json.dumps(record, indent=2, ensure_ascii=False)
            # A name of a folder may hold bytes that are no UTF-8: JSON's own escape of them, then.
            write_whole(path, (text + "\n").encode(errors="backslashreplace"))
        yield


def identity_of_run(
    run: Path, envs: Sequence[Environment | None], accept: Collection[str]
) -> IdentityFile:
    """By what a run's completions are scored, in `RUN/identity.json`; compared with the beginning
    of the run.

    Args:
        run: its folder, which is claimed.
        envs: the environments of training and evaluation, or None.
        accept: parts in which the run may go on with another one.

    Raises:
        UsageError: the run began with another one, or with one that is gone.
    """
    path = run / "identity.json"
    identities = [identity_of(env) for env in envs if env is not None]
    identity = Identity()
    for part in identities:
        identity.add(part.without("settings"), "the evaluation", here="the training")
    # Only of a run that began: a start that failed before
    # its first step may be repeated with other code.
    has_begun, is_there = _has_begun(run), path.is_file()
    stopped = read_identity(path) if is_there and has_begun else None
    # An evaluation alone may have come later.
    is_gone = has_begun and not is_there and envs[0] is not None
    identity_file = IdentityFile(
        path,
        identity,
        accept=accept,
        stopped=stopped,
        unknown="unknown" if is_gone else "",
        where=f"{run}, as it began,",
        way_out="use the same, or give a new folder",
    )
    identity_file.write()
    return identity_file


def examine_run_dir(
    run: Path, description: Mapping[str, object]
) -> tuple[bool, dict[str, tuple[object, object]]]:
    """Whether the folder holds this very run already, and the settings that change if it does, as
    (before, now).

    Args:
        run: the folder.
        description: everything that determines the run, as plain JSON.

    Raises:
        UsageError: the folder holds a run with other settings, which are named, or files of
            something else.
        DataError: its `config.json` is damaged.
    """
    path = run / "config.json"
    has_begun = _has_begun(run)
    if (
        not has_begun
        and run.exists()
        and any(
            # Files that a refused start has left are no run.
            entry.name not in (path.name, _LOCK, CHAT_FILE, "identity.json")
            for entry in run.iterdir()
        )
    ):
        raise UsageError(f"{run} is not empty, and holds no run; give a new folder")
    return has_begun, _find_changes(_read(path), description, run) if has_begun else {}


def _has_begun(run: Path) -> bool:
    # `config.json` alone is a start that did not get to its first step.
    return (run / "config.json").is_file() and any(
        (run / name).exists() for name in ("metrics.jsonl", "checkpoints")
    )


def chat_of_run(run: Path, asked: ChatSettings) -> ChatSettings:
    """How the prompts of a run are to be sent: as those of the run that its folder holds, or as
    asked for.

    Args:
        run: its folder.
        asked: what the settings say.

    Raises:
        UsageError: the run in the folder sends them in another way.
        DataError: its record is damaged.
    """
    saved_format = recorded_format(run) if _has_begun(run) else None
    if saved_format is None:
        return asked
    settings = asked.after(saved_format)
    # of any template
    format_now = ChatFormat(
        "raw" if settings.mode == "off" else "template",
        system=settings.system,
        options=settings.options,
    )
    if not format_now.sends_as(saved_format):
        raise UsageError(
            f"{run} holds a run whose prompts go as {saved_format}, and here they would go as "
            f"{format_now}; give a new folder, or leave chat, system and template options out"
        )
    return settings


def keep_chat(run: Path, used: ChatFormat) -> None:
    """Write into the run's folder how its prompts are sent, or compare with what stands there.

    Args:
        run: its folder, which is claimed.
        used: how.

    Raises:
        UsageError: the run in the folder sends them in another way.
        DataError: its record is damaged.
    """
    saved_format = ChatFormat.load(run) if _has_begun(run) else None
    if saved_format is None:
        used.save(run)
    elif not used.sends_as(saved_format):
        raise UsageError(
            f"{run} holds a run whose prompts go as {saved_format}, and here they would go as "
            f"{used}; give a new folder, or the same tokenizer and settings"
        )


def _read(path: Path) -> JsonDict:
    try:
        settings: JsonDict = json.loads(path.read_text(encoding="utf-8"))
        return dict(settings)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read as the settings of a run ({error}); give a new folder"
        ) from None


def _find_changes(
    recorded: Mapping[str, object], current: JsonObject, run: Path
) -> dict[str, tuple[object, object]]:
    """Settings that differ, as (before, now).

    Raises:
        UsageError: one of them affects learning.
    """
    if isinstance(settings := recorded.get("settings"), Mapping):
        # A record of an older version lacks settings that are new, and did as their defaults say.
        recorded = {**recorded, "settings": {**_by_default(), **settings}}
        if isinstance(algorithm := settings.get("algorithm"), Mapping) and "name" not in algorithm:
            raise UsageError(
                f"{run} holds a run of a version before 0.2, which recorded its algorithm in "
                "another form; finish it with that version, or give a new folder"
            )
    for name in ("env", "eval_env"):  # a run of before identities had a source here
        if isinstance(recorded_part := recorded.get(name), Mapping):
            recorded = {
                **recorded,
                name: {key: value for key, value in recorded_part.items() if key != "source"},
            }
    recorded, current = _without_chat(recorded), _without_chat(current)
    # Only what this version describes: keys of older records that are gone do not count.
    before, after = _flat({name: recorded.get(name) for name in current}), _flat(current)
    differing = {
        name: (before.get(name), after.get(name))
        for name in sorted(before | after)
        if before.get(name) != after.get(name)
        and not _is_same_place(before.get(name), after.get(name))
    }
    if "settings.stage" in differing:
        stages, stages_now = differing["settings.stage"]
        require_ahead(stages or [], stages_now or [], run)
    fixed = [name for name in differing if not _may_change(name, current["settings"])]
    if fixed:
        listed = "; ".join(
            f"{name}: {brief(before.get(name))} there, {brief(after.get(name))} here"
            for name in fixed
        )
        raise UsageError(
            f"{run} holds a run with other settings ({listed}); give a new folder, or the same "
            f"settings"
        )
    return differing


def _by_default() -> JsonDict:
    """The defaults as a record has them: a run that lacks a setting did as by default."""
    plain: dict[str, object] = json.loads(json.dumps(defaults(Config)))
    return plain


def _without_chat(description: Mapping[str, object]) -> JsonObject:
    """A description without the settings of which `keep_chat` compares what became of them."""
    settings = description.get("settings")
    if not isinstance(settings, Mapping):
        return description
    other_settings = {name: value for name, value in settings.items() if name not in _CHAT}
    return {**description, "settings": other_settings}


def _is_same_place(before: object, now: object) -> bool:
    """Whether both name one folder or file, such as a model by a relative and by an absolute
    path."""
    if not (isinstance(before, str) and isinstance(now, str)):
        return False
    with contextlib.suppress(OSError, ValueError):  # neither has to be a path
        return Path(before).samefile(now)
    return False


def _may_change(name: str, settings: JsonObject) -> bool:
    if name == "settings.steps":  # on which schedules without an end of their own depend
        return settings["schedule"] == "constant" and not has_open_end(settings["stage"])
    if name == "settings.stage":  # `require_ahead` has looked at them
        return True
    if name == "settings.validation_tasks" and settings["pairs"]:  # from which none are held out
        return True
    if name in ("settings.eval_n", "settings.eval_temperature", "settings.eval_top_p"):
        return not settings.get("validation_tasks")  # which is sampled with these
    if name.startswith(("settings.eval_", "eval_env")):
        return True
    return may_change(Config, name.removeprefix("settings."))


def _flat(tree: object, name: str = "") -> JsonDict:
    """Every leaf by its path, such as settings.algorithm.clip.low."""
    if not isinstance(tree, Mapping) or not tree:
        return {name: tree}
    return {
        leaf: value
        for key, sub in tree.items()
        for leaf, value in _flat(sub, f"{name}.{key}".strip(".")).items()
    }
