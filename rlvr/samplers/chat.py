"""How prompts are sent: through the chat template or raw.  What is asked for, what was
used, and where that is kept."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Self, TypeAlias, cast, get_args

from rlvr.data.files import write_whole
from rlvr.errors import DataError, UsageError, brief
from rlvr.types import JsonObject

__all__ = [
    "CHAT_FILE",
    "ChatFormat",
    "ChatMode",
    "ChatSettings",
    "prompts_line",
    "recorded_format",
    "require_chat_mode",
]

ChatMode: TypeAlias = Literal["auto", "on", "off"]
"""Whether text prompts become a user message of the chat template; auto: where there is one."""

CHAT_FILE: Final = "rlvr_chat.json"
"""Name of the file with a `ChatFormat`, in the folder of a run and in that of a saved model."""


def require_chat_mode(name: str, value: object) -> ChatMode:
    """The mode; True and False stand for "on" and "off", as in settings of before "auto".

    Args:
        name: of the setting, for the message.
        value: as it was given.

    Raises:
        UsageError: it is no mode.
    """
    mode = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
    if mode not in get_args(ChatMode):
        raise UsageError(f"{name} is {brief(value)}; it must be 'auto', 'on' or 'off'")
    return cast(ChatMode, mode)


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How the prompts of a policy are sent.  Kept in the folder of a run, and in that of its model.

    Attributes:
        sent: "template": a text prompt is one user message of the chat template; "raw": it is taken
            as it is, with the special tokens that the tokenizer puts around it.
        template: the first 16 digits of the template's SHA-256; "" if it is not known, or raw.
        system: text of the system message that is put before prompts without one; None for none.
        options: variables of the template.
        added_system: the system prompt that the template adds by itself; "" for none.
        beginning: the text with which the template begins every reply; "" for none.
        end_tokens: texts of the tokens that end a completion.
        why: where this was decided, for messages.
    """

    sent: Literal["template", "raw"]
    template: str = ""
    system: str | None = None
    options: JsonObject = field(default_factory=dict)
    added_system: str = ""
    beginning: str = ""
    end_tokens: tuple[str, ...] = ()
    why: str = field(default="", compare=False)

    def sends_as(self, other: ChatFormat) -> bool:
        """Whether both send a prompt in the same way.

        Args:
            other: the format to compare with.
        """
        if self.sent != other.sent or self.sent == "raw":
            return self.sent == other.sent
        # A format of an older run has no digest: it counts as the same.
        same_template = self.template == other.template or not (self.template and other.template)
        return same_template and (self.system, self.options) == (other.system, other.options)

    @property
    def identity(self) -> dict[str, object] | None:
        """What decides how a prompt is sent, as plain JSON; None for raw texts."""
        if self.sent == "raw":
            return None
        return {"template": self.template, "system": self.system, "options": dict(self.options)}

    def __str__(self) -> str:
        if self.sent == "raw":
            return "raw texts"
        parts = [f"the chat template {self.template}".rstrip()]
        if self.system is not None:
            parts.append(f"system prompt {self.system!r}")
        parts += [f"{name}={json.dumps(value)}" for name, value in self.options.items()]
        return ", ".join(parts)

    def save(self, folder: str | Path) -> None:
        """Write the file `rlvr_chat.json`.

        Args:
            folder: where it goes.
        """
        record = {k: v for k, v in dataclasses.asdict(self).items() if k != "why"}
        text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
        write_whole(Path(folder) / CHAT_FILE, text.encode())

    @classmethod
    def load(cls, folder: str | Path) -> Self | None:
        """Read the file that `save` wrote; None where there is none.

        Args:
            folder: where it is.

        Raises:
            DataError: it is damaged.
        """
        path = Path(folder) / CHAT_FILE
        if not path.is_file():
            return None
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            names = {field.name for field in dataclasses.fields(cls)}
            # A file of a later version may have more fields.
            fields = {name: value for name, value in record.items() if name in names}
            if fields["sent"] not in ("template", "raw"):
                raise ValueError(f"sent is {fields['sent']!r}")
            fields["end_tokens"] = tuple(fields.get("end_tokens", ()))
            return cls(**fields, why=f"as recorded in {path}")
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(
                f"{path} cannot be read as a chat format ({error}); delete it, and say --chat on "
                "or off"
            ) from None


def recorded_format(folder: str | Path) -> ChatFormat | None:
    """How prompts were sent to the model of a run, by the run's folder or one in it; None if
    unknown.

    Runs of before the format was recorded say only whether `chat` was on: they count as raw if not.

    Args:
        folder: of a run, or of a saved model; a name on the hub has none.

    Raises:
        DataError: the record is damaged.
    """
    path = Path(folder)
    if not path.is_dir():
        return None
    if (chat_format := ChatFormat.load(path)) is not None:
        return chat_format
    # An adapter's folder lies in that of a model, which lies in that of a run.
    for run in (path, *list(path.absolute().parents)[:2]):  # RUN, RUN/model, RUN/model/adapter
        settings = _run_settings(run / "config.json")
        if settings is not None:
            sent: Literal["template", "raw"] = "template" if settings.get("chat") else "raw"
            how = "with chat" if settings.get("chat") else "raw"
            why = f"as in {run}, a run of before templates were recorded, which counts as {how}"
            return ChatFormat(sent, why=why)
    return None


def _run_settings(path: Path) -> Mapping[str, object] | None:
    """The settings in the `config.json` of a run without a record; None if it is none."""
    if not path.is_file() or (path.parent / CHAT_FILE).is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    settings = record.get("settings") if isinstance(record, dict) else None
    # Runs whose `chat` is a text have a record of their own.
    is_old = isinstance(settings, dict) and not isinstance(settings.get("chat", False), str)
    return settings if is_old else None


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What is asked for; `Tokenization` makes a `ChatFormat` of it and the tokenizer.

    Attributes:
        mode: "on": text prompts become a user message of the chat template; "off": they go raw;
            "auto": on where the tokenizer has a template.
        system: text of a system message before prompts without one; None for no such message.
        options: variables of the template, such as {"enable_thinking": False}.
        why: where this was decided, for messages.

    Raises:
        UsageError: a value cannot be used.
    """

    mode: ChatMode = "auto"
    system: str | None = None
    options: JsonObject = field(default_factory=dict)
    why: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", require_chat_mode("chat", self.mode))
        if self.mode == "off" and (self.system is not None or self.options):
            what = "system" if self.system is not None else f"template option {min(self.options)}"
            raise UsageError(
                f"{what} is given, and prompts go raw ({self.why or 'chat is off'}): it is a part "
                "of the chat template; leave it out, or say --chat on"
            )

    @classmethod
    def of(cls, given: ChatSettings | ChatMode | bool) -> ChatSettings:
        """The settings that a mode alone, or True and False, stand for.

        Args:
            given: settings, which are returned, or a mode.

        Raises:
            UsageError: it is no mode.
        """
        return given if isinstance(given, ChatSettings) else cls(require_chat_mode("chat", given))

    def after(self, known: ChatFormat | None) -> ChatSettings:
        """These settings, and where they say nothing those that were used before.

        Args:
            known: what was used before; None if that is unknown.

        Raises:
            UsageError: prompts went raw, and a part of the template is asked for.
        """
        if known is None or self.mode == "off":
            return self
        before: ChatMode = "on" if known.sent == "template" else "off"
        mode = before if self.mode == "auto" else self.mode
        system = known.system if self.system is None else self.system
        # Options are merged one by one, and those asked for win.
        return ChatSettings(mode, system, {**known.options, **self.options}, known.why)


def prompts_line(used: ChatFormat, counted: int = 0, as_is: int = 0, *, more: bool = False) -> str:
    """The first line of a run: how its prompts are sent.

    Args:
        used: how.
        counted: number of text prompts that were looked at.
        as_is: how many of them begin with the template's own tokens, and so go as they are.
        more: there are more prompts than were looked at.
    """
    parts = [f"prompts: {used}"]
    if used.sent == "template":
        if used.system is None and used.added_system:
            parts.append(f"the template adds the system prompt {used.added_system!r}")
        if used.beginning:
            parts.append(f"it begins replies with {used.beginning!r}")
        first = "the first " if more else ""
        if counted:
            parts.append(
                f"{as_is} of {first}{counted} begin with the template's own tokens and go as they "
                "are"
            )
    if used.why:
        parts.append(used.why)
    return "; ".join(parts)
