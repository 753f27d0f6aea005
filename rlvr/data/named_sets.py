"""Sets that papers report on, by name: where they are, which revision, what their licence is.

`rlvr.make("math-v4", data="aime-2025")` takes one.  The revision is pinned, so that a name means
the same rows for ever; a file with the same columns works without the hub.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rlvr.errors import UsageError

__all__ = ["NAMED_SETS", "NamedSet", "require_supported"]


@dataclass(frozen=True, slots=True)
class NamedSet:
    """A data set on the hub.

    Attributes:
        env: the environment that reads it, as its `data`.
        hub: its id.
        revision: the commit; "" for the newest, where none is known here.
        split: the one that is meant.
        rows: how many it has.
        columns: that are read.
        licence: as its page says; "not stated", or "not confirmed" where that could not be looked
            up.
        config: its configuration; "" for the default.
    """

    env: str
    hub: str
    revision: str
    split: str
    rows: int
    columns: str
    licence: str
    config: str = ""

    def part(self, split: str) -> str:
        """The split on the hub, with the part of it that is asked for: "test[:10]" is "train[:10]"
        there.

        Args:
            split: of an environment.
        """
        _, bracket, part_text = split.partition("[")
        return self.split + bracket + part_text


_MATH, _MCQ = "math-v4", "mcq-v4"

NAMED_SETS: Final = MappingProxyType(
    {
        "aime-2024": NamedSet(
            _MATH,
            "math-ai/aime24",
            "83a7f387baaa524a8bda0022eac0541582297103",
            "test",
            30,
            "problem, solution",
            "not confirmed",
        ),
        "aime-2025": NamedSet(
            _MATH,
            "math-ai/aime25",
            "563bb8404243c5f09de6ec262f2db674fe5bce9b",
            "test",
            30,
            "problem, answer",
            "Apache-2.0",
        ),
        "amc-2023": NamedSet(
            _MATH,
            "math-ai/amc23",
            "80815d37005feb82cd7f8fbc6901d5d3eff43057",
            "test",
            40,
            "question, answer",
            "not stated",
        ),
        "math-500": NamedSet(
            _MATH,
            "HuggingFaceH4/MATH-500",
            "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
            "test",
            500,
            "problem, answer",
            "not confirmed",
        ),
        "minerva": NamedSet(
            _MATH,
            "math-ai/minervamath",
            "ee46ddc498933b1977577953250ca5c66be64f96",
            "test",
            272,
            "question, answer",
            "not confirmed",
        ),
        "olympiadbench": NamedSet(
            _MATH,
            "Hothan/OlympiadBench",
            "91184b52131e7fc9455fef848035173aea8cc01a",
            "train",
            674,
            "question, final_answer",
            "not confirmed",
            "OE_TO_maths_en_COMP",
        ),
        "gpqa-diamond": NamedSet(
            _MCQ,
            "Idavidrein/gpqa",
            "633f5ee89ab8ad4522a9f850766b73f62147ffdd",
            "train",
            198,
            "Question, Correct Answer, Incorrect Answer 1 to 3",
            "not confirmed; the hub asks for consent",
            "gpqa_diamond",
        ),
        "humaneval": NamedSet(
            "humaneval-v3",
            "openai/openai_humaneval",
            "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
            "test",
            164,
            "prompt, test, entry_point, canonical_solution",
            "MIT",
            "openai_humaneval",
        ),
        "gsm8k": NamedSet(
            "gsm8k-v4",
            "openai/gsm8k",
            "740312add88f781978c0658806c59bc2815b9866",
            "test",
            1319,
            "question, answer",
            "MIT",
            "main",
        ),
    }
)
"""By name."""

_REFUSED: Final = {
    "livecodebench": (
        "its hidden tests are pickles, which run code when they are read; "
        "write them to JSON first, and give that file to code-stdio-v3"
    ),
}


def require_supported(name: str) -> None:
    """Refuse a set that is known, and cannot be read safely.

    Args:
        name: of a set, or anything else.

    Raises:
        UsageError: it is such a set.
    """
    if why := _REFUSED.get(name):
        raise UsageError(f"{name} is not read: {why}")
