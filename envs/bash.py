"""Files that are put right by bash commands, and read by the host when the episode is over."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import rlvr
from rlvr.environment.ready_tools import bash, sandbox
from rlvr.errors import SandboxFailed
from rlvr.sandbox import Limits
from rlvr.validate import require_one_of

__all__ = ["Bash"]

_LIMITS: Final = Limits(cpu_s=2.0, memory_mib=256)
_SPLITS: Final = ("train", "validation", "test")
_NAMES: Final = (
    "ada bruno chen dalia emeka farid greta hiro ivana jonas kofi lena mira nils olga paul".split()
)
_WORDS: Final = "tea rope lamp boat kite bell drum sand wool salt corn glass nail brick".split()

_Made = tuple[str, dict[str, str], dict[str, str]]
"""What to do; the files at the beginning; the files that must be there at the
end, with their contents."""


def _draw_sorting(rng: Random) -> _Made:
    names = [rng.choice(_NAMES) for _ in range(rng.randint(12, 30))]
    request = (
        "Write each name of names.txt once, in alphabetical order and one per line, to sorted.txt."
    )
    before = {"names.txt": "".join(f"{name}\n" for name in names)}
    return (
        request,
        before,
        {**before, "sorted.txt": "".join(f"{name}\n" for name in sorted(set(names)))},
    )


def _draw_summing(rng: Random) -> _Made:
    rows = [(rng.choice(_WORDS), rng.randint(1, 500)) for _ in range(rng.randint(15, 40))]
    # A word that occurs, or the sum would be 0.
    word = rng.choice(rows)[0]
    request = (
        f"stock.csv has the columns item and count. Write the sum of the counts of {word!r}, a "
        "number alone, to total.txt."
    )
    before = {"stock.csv": "item,count\n" + "".join(f"{item},{count}\n" for item, count in rows)}
    return (
        request,
        before,
        {**before, "total.txt": f"{sum(count for item, count in rows if item == word)}\n"},
    )


def _draw_replacing(rng: Random) -> _Made:
    old, new = rng.sample(_WORDS, 2)
    before = {
        f"notes/{i}.txt": "".join(
            " ".join(rng.choices([*_WORDS, old], k=6)) + "\n" for _ in range(5)
        )
        for i in range(rng.randint(3, 6))
    }
    after = {
        name: "".join(
            " ".join(new if word == old else word for word in line.split()) + "\n"
            for line in text.splitlines()
        )
        for name, text in before.items()
    }
    return f"Replace the word {old!r} by {new!r} in every file of the folder notes.", before, after


def _draw_log_task(rng: Random) -> _Made:
    levels = ("INFO", "WARNING", "ERROR")
    before = {
        f"logs/{name}.log": "".join(
            f"{rng.choice(levels)} {rng.choice(_WORDS)}\n" for _ in range(rng.randint(20, 40))
        )
        for name in rng.sample(_NAMES, 4)
    }
    counts = {
        name: sum(line.startswith("ERROR") for line in text.splitlines())
        for name, text in before.items()
    }
    highest = max(counts.values())
    # Several files may have the most; the request says which one counts.
    worst = [name.removeprefix("logs/") for name, count in counts.items() if count == highest]
    request = (
        "Find the file in the folder logs with the most lines that begin with ERROR (of several, "
        "the alphabetically first), and write its name, without the folder, to worst.txt."
    )
    return request, before, {**before, "worst.txt": f"{min(worst)}\n"}


_KINDS: Final[tuple[Callable[[Random], _Made], ...]] = (
    _draw_sorting,
    _draw_summing,
    _draw_replacing,
    _draw_log_task,
)


@rlvr.register("bash-v1")
class Bash(rlvr.Environment):
    """Put files right in a bash session.  The host reads them at the end; what the
    model says does not count.

    White space at the end of a file and of its lines does not matter; all else has to be as asked,
    and files that were not to be changed as they were.

    Options:
        sandbox: "namespaces", or "restricted" for a host without them; see
            docs/reference/sandbox.md.
    """

    domain = "tools"
    turns: int = 8
    calls: int = 12
    call_seconds: float = 30.0
    sandbox: str = "namespaces"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("split", self.split, _SPLITS)

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded(self.id, self.split, index)
        request, before, after = rng.choice(_KINDS)(rng)
        prompt = (
            f"{request}\n\nYou have a bash session in the folder with these files. "
            "When you are done, say so."
        )
        return rlvr.Task(f"{self.id}/{self.split}/{index}", prompt, after, {"files": before})

    def setup(self, task: rlvr.Task) -> object:
        # More than a command may take, for all commands of the session together.
        session = sandbox(_LIMITS, level=self.sandbox).session("bash", total_cpu_s=20.0)
        for name, text in task.meta["files"].items():
            if not session.write(name, text):
                session.close()
                raise SandboxFailed(f"the file {name} could not be written: {session.over}")
        return session

    def tools(self, state: Any) -> list[rlvr.Tool]:
        return [bash(state)]

    def final(self, task: rlvr.Task, state: Any) -> dict[str, str | None]:
        """The files of the reference, read by the sandbox and not by the policy's shell."""
        contents = {name: state.read(name) for name in task.reference}
        return {
            # Cut, as a policy may leave a file of any size.
            name: None if data is None else data[:100_000].decode("utf-8", "replace")
            for name, data in contents.items()
        }

    def verify(self, task: rlvr.Task, episode: rlvr.EpisodeRecord) -> rlvr.Verdict:
        final = episode.final if isinstance(episode.final, Mapping) else {}
        for name, expected in task.reference.items():
            content = final.get(name)
            if content is None:
                return rlvr.Verdict(rlvr.Outcome.WRONG, why=f"missing: there is no file {name}")
            # White space at the ends of lines does not count, as echo and printf differ in it.
            if _lines(content) != _lines(expected):
                return rlvr.Verdict(
                    rlvr.Outcome.WRONG, why=f"other-content: {name} is not as asked"
                )
        return rlvr.Verdict(rlvr.Outcome.CORRECT, why="files-as-asked")

    def example_episode(self, task: rlvr.Task) -> list[str | rlvr.Ask]:
        lines = [
            f"printf %s {shlex.quote(text)} > {shlex.quote(name)}"
            for name, text in task.reference.items()
        ]
        return [rlvr.Ask("bash", {"command": "\n".join(lines)}), "Done."]


def _lines(text: str) -> list[str]:
    # `rstrip` before `splitlines`: empty lines at the end do not count either.
    return [line.rstrip() for line in text.rstrip().splitlines()]
