"""What several commands share: their arguments, the environments these name,
and the files that they write."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args

from rich.console import Console
from tyro.conf import Positional, UseAppendAction, arg

from rlvr.console import label_text
from rlvr.data.files import real_path
from rlvr.data.formats import read_rows
from rlvr.data.rows import require_output
from rlvr.environment import Environment
from rlvr.environment.registry import defaults_of, is_mixture, make, read_option
from rlvr.errors import UsageError
from rlvr.samplers.chat import ChatMode, ChatSettings
from rlvr.scoring.engine import Engine
from rlvr.scoring.watch import watch_of_process
from rlvr.types import JsonDict

__all__ = [
    "Accept",
    "ChatFlag",
    "EngineAddress",
    "EnvironmentArgument",
    "InputFile",
    "MemoryMib",
    "NameValues",
    "Overwrite",
    "PatienceSeconds",
    "RewardText",
    "SandboxLevel",
    "StrictRows",
    "SystemText",
    "TemplateOptions",
    "WallSeconds",
    "Workers",
    "chat_settings_of",
    "engine_at",
    "environment_of",
    "options_of",
    "print_json",
    "require_outputs",
    "rows_with",
    "say_if_unprotected",
    "say_line",
    "template_options_of",
    "with_chat_mode",
    "with_level",
    "with_one_env",
    "with_reward",
]

EnvironmentArgument: TypeAlias = Annotated[
    Positional[str],
    arg(
        metavar="ENV",
        help=(
            "The environment: its id, or path/to/file.py:name of a class or an object; "
            "or a mixture, 'ENV:WEIGHT ENV:WEIGHT …' with options after commas."
        ),
    ),
]
Accept: TypeAlias = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(
        metavar="PART",
        help=(
            "Part of the identity in which a difference is accepted, and noted: "
            "code, inputs (files and variables that judging reads) or data; may be repeated."
        ),
    ),
]
InputFile: TypeAlias = Annotated[Positional[Path], arg(metavar="FILE")]
NameValues: TypeAlias = Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")]
Overwrite: TypeAlias = Annotated[bool, arg(help="Replace output files that exist.")]
Workers: TypeAlias = Annotated[
    int | None,
    arg(help="Number of worker processes; by default one per core.  0 scores in the main process."),
]
WallSeconds: TypeAlias = Annotated[
    float,
    arg(
        help=(
            "Seconds after which the worker of a completion is killed; "
            "the completion is then UNSCORED."
        )
    ),
]
EngineAddress: TypeAlias = Annotated[
    str | None,
    arg(
        metavar="URL",
        help=(
            "Score on other machines: http://HOST:PORT of rlvr serve (several with commas), "
            "ray://auto or ray://HOST:PORT."
        ),
    ),
]
PatienceSeconds: TypeAlias = Annotated[
    float,
    arg(
        help=(
            "With --scorer: seconds for which work is sent again while no machine does it; "
            "they begin anew with each answer."
        ),
    ),
]
RewardText: TypeAlias = Annotated[
    str | None,
    arg(
        metavar="EXPRESSION",
        help=(
            "Another reward than the environment's own, such as "
            '"2*correct - 1 + overlong(4096, 512)"; `rlvr rewards` lists the parts.'
        ),
    ),
]
SandboxLevel: TypeAlias = Annotated[
    str | None,
    arg(
        help=(
            "Level of the sandbox, in environments that run programs: "
            "namespaces (the default) or restricted."
        )
    ),
]
StrictRows: TypeAlias = Annotated[
    bool, arg(help="Stop at the first row that cannot be used, instead of leaving it out.")
]
ChatFlag: TypeAlias = Annotated[
    ChatMode,
    arg(
        help=(
            "How text prompts are sent: on (as a user message of the model's chat template), off "
            "(as they are) or auto (on if the tokenizer has a template; of a model that a run has "
            "saved, as in that run).  --chat alone is on."
        )
    ),
]
SystemText: TypeAlias = Annotated[
    str | None,
    arg(
        metavar="TEXT",
        help=(
            "System message before prompts that have none; "
            "by default what the template does without one."
        ),
    ),
]
TemplateOptions: TypeAlias = Annotated[
    NameValues,
    arg(
        help="Set a variable of the chat template, such as enable_thinking=false; may be repeated.",
    ),
]
MemoryMib: TypeAlias = Annotated[int, arg(help="Memory limit of each worker process, in MiB.")]


def options_of(
    defaults: Mapping[str, object], given: Sequence[str], flag: str = "--option"
) -> dict[str, object]:
    """An environment's options from NAME=VALUE pairs: a value is text where the default is, and
    JSON otherwise.

    Where the default does not tell (None, or there is none) it is JSON if it can be, else text.

    Args:
        defaults: of the environment, see `defaults_of`.
        given: pairs as they were typed, such as "split=test".
        flag: the flag that they were given to; errors name it.

    Raises:
        UsageError: a pair without "=", or a value that is no JSON.
    """
    options: dict[str, object] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"{flag} {pair}: write NAME=VALUE, such as {flag} split=test")
        options[name] = read_option(f"{flag} {pair}", defaults.get(name, ""), value)
    return options


def with_one_env(argv: Sequence[str]) -> list[str]:
    """The arguments of a command, with several `--env ENV:WEIGHT` as the one mixture that they
    name.

    `rlvr eval` takes the environment without a flag, and may have it with one.

    Args:
        argv: without the program's name.

    Raises:
        UsageError: one of several has no weight.
    """
    if argv[:1] not in (["train"], ["eval"]):
        return list(argv)
    envs, arguments, pieces = [], [], iter(argv)
    at = len(argv)
    for piece in pieces:
        flag, equals, value = piece.partition("=")
        if flag != "--env":
            arguments.append(piece)
            continue
        at = min(at, len(arguments))
        envs.append(value if equals else next(pieces, ""))
    if len(envs) > 1:
        bare = next((env for env in envs if not is_mixture(env)), None)
        if bare is not None:
            raise UsageError(
                f"--env {bare} beside others: give each its weight, such as --env gsm8k-v4:0.5"
            )
    if not envs:
        return list(argv)
    joined = " ".join(envs)
    return [
        *arguments[:at],
        *(["--env", joined] if argv[0] == "train" else [joined]),
        *arguments[at:],
    ]


def with_chat_mode(argv: Sequence[str]) -> list[str]:
    """The arguments of a command, with `--chat` alone as `--chat on`, and `--no-chat` as `--chat
    off`.

    Args:
        argv: without the program's name.
    """
    words = list[str]()
    for i, word in enumerate(argv):
        mode = argv[i + 1] if i + 1 < len(argv) else ""
        if word == "--chat" and mode not in get_args(ChatMode):
            words += ["--chat", "on"]
        elif word == "--no-chat":
            words += ["--chat", "off"]
        else:
            words.append(word)
    return words


def template_options_of(pairs: Sequence[str]) -> JsonDict:
    """Variables of a chat template from NAME=VALUE pairs; a value is JSON if it can be, else text.

    Args:
        pairs: as they were typed, such as "enable_thinking=false".

    Raises:
        UsageError: a pair without "=".
    """
    options = dict[str, Any]()
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (equals and name):
            raise UsageError(
                f"--template-option {pair}: write NAME=VALUE, such as enable_thinking=false"
            )
        text = value.lower() if value in ("True", "False") else value
        options[name] = read_option(name, None, text)
    return options


def chat_settings_of(
    chat: ChatMode, system: str | None, template_option: Sequence[str]
) -> ChatSettings:
    """How text prompts are to be sent, from the three flags.

    Args:
        chat, system, template_option: the flags' values.

    Raises:
        UsageError: they contradict each other, or an option is no NAME=VALUE.
    """
    return ChatSettings(chat, system, template_options_of(template_option))


def say_line(console: Console, line: str) -> None:
    """Print a line as it is, which may hold texts of users and models.

    Args:
        console: where to.
        line: what to print.
    """
    console.print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)


def with_level(given: Sequence[str], sandbox: str | None, *envs: str) -> Sequence[str]:
    """The NAME=VALUE pairs, and one for the level of the sandbox if it was asked for.

    Args:
        given: see `options_of`.
        sandbox: the level; None where it was not asked for.
        envs: what `rlvr.make` takes of the environments, one of which has to run programs.

    Raises:
        UsageError: none of them runs programs in the sandbox.
    """
    if sandbox is None:
        return given
    if not any("sandbox" in defaults_of(env) for env in envs):
        raise UsageError(
            f"--sandbox {sandbox}: {', '.join(envs)} runs no programs in the sandbox; leave the "
            f"flag out"
        )
    return [*given, f"sandbox={sandbox}"]


def environment_of(
    env: str,
    given: Sequence[str],
    sandbox: str | None = None,
    *,
    reward: str | None = None,
    strict: bool = False,
) -> Environment:
    """The environment with this id or place, with the options of these NAME=VALUE pairs.

    Args:
        env: what `rlvr.make` takes.
        given: see `options_of`.
        sandbox: see `with_level`.
        reward: see `with_reward`.
        strict: whether a row that cannot be used is an error.

    Raises:
        UsageError: there is no such environment or option.
    """
    options = with_reward(with_level(given, sandbox, env), reward)
    with watch_of_process() as watch:  # what it reads when it is made belongs to its identity
        environment = make(env, **options_of(defaults_of(env), options))
    environment._inputs = watch.take().get("inputs", {})
    if strict:
        environment.stop_at_bad_rows()
    return environment


def with_reward(given: Sequence[str], reward: str | None) -> Sequence[str]:
    """The pairs with the option `reward`, which `rlvr.make` takes for every environment.

    Args:
        given: see `options_of`.
        reward: the expression; None for the environment's own reward.
    """
    return given if reward is None else (*given, f"reward={reward}")


def rows_with(
    verifier: str, given: Sequence[str], *, data: str | None = None
) -> tuple[str, tuple[str, ...]]:
    """The environment `rows-v4` with a verifier, as its id and NAME=VALUE pairs.

    Args:
        verifier: a name of `rlvr verifiers`, or the place of one.
        given: settings of the verifier, and options of `rows-v4` itself: data, prompt, reference.
        data: the rows; None where completions come with theirs.

    Raises:
        UsageError: a pair without "=".
    """
    row_names = {"data", "prompt", "reference"}
    row_options, settings = [], {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--option {pair}: write NAME=VALUE, such as --option credit=f1")
        if name in row_names:
            row_options.append(pair)
        else:
            settings[name] = read_option(f"--option {pair}", None, value)
    rows = [] if data is None else [f"data={data}"]
    options = (*rows, *row_options, f"settings={json.dumps(settings)}", f"verifier={verifier}")
    return "rows-v4", options


def engine_at(address: str | None, patience_s: float) -> Engine | None:
    """The engine of a scorer.

    Args:
        address: see `rlvr.scoring.engines.engine_of`; None for workers on this machine.
        patience_s: see there.

    Raises:
        UsageError: it is malformed.
        MissingDependency: Ray is not installed.
    """
    if address is None:
        return None
    engine: Engine = importlib.import_module(
        "rlvr.scoring.engines"
    ).engine_of(  # it loads an HTTP library
        address, patience_s=patience_s
    )
    return engine


def require_outputs(
    outputs: Sequence[Path | None], inputs: Sequence[Path | None], *, overwrite: bool
) -> None:
    """Refuse outputs that cannot be written, before anything is computed.

    Args:
        outputs: the files to be written; None for one that was not asked for.
        inputs: the files to be read, which no output may replace.
        overwrite: whether outputs may exist.

    Raises:
        UsageError: an output is an input or another output, exists, is a folder, or its folder is
            missing.
    """
    paths = {real_path(path): "an input" for path in inputs if path is not None}
    for path in outputs:
        if path is None:
            continue
        if real_path(path) in paths:
            raise UsageError(
                f"{path} is {paths[real_path(path)]} and would be overwritten; name another output"
            )
        if path.exists() and any(
            path.samefile(path_before) for path_before in paths if path_before.exists()
        ):
            raise UsageError(f"{path} is another name of an input or output; name another output")
        require_output(path, overwrite=overwrite)
        paths[real_path(path)] = "another output"


def say_if_unprotected(file: Path, err: Console) -> None:
    """Say of a file of scores that damage to it cannot be told.

    Args:
        file: the file; one that is missing or holds other rows is passed over.
        err: where to print.
    """
    first = next(iter(read_rows(file)), None) if file.is_file() else None
    if (
        first is not None
        and first.row is not None
        and not first.checked
        and {"outcome", "verifier"} <= set(first.row)
    ):
        err.print(
            label_text(
                "note:",
                f"{file} has no checksums, as an older rlvr or another program wrote it: damage "
                "to it passes unnoticed",
            ),
            soft_wrap=True,
        )


def print_json(out: Console, data: object) -> None:
    """Print JSON, without line breaks at the terminal's width, colours or emoji.

    Args:
        out: where to print.
        data: a value for JSON; other objects are printed as text.
    """
    out.print(
        json.dumps(data, indent=2, default=str),
        soft_wrap=True,
    )
