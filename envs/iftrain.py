"""Instructions to train on: neutral requests with one to five instructions,
procedural and without end."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import rlvr
from rlvr.envs.instruction_tasks import REQUESTS, TOPICS, Draft, compatible, in_words
from rlvr.envs.puzzles import Made, Puzzle
from rlvr.validate import require_whole
from rlvr.verifiers.instructions import InstructionVerifier

__all__ = ["IFTrain"]


@rlvr.register("iftrain-v4")
class IFTrain(Puzzle):
    """Follow 1 to 5 instructions of the kinds of IFEval and IFTrain (arXiv:2507.02833);
    CORRECT if all are followed.

    Every task comes with an answer that follows all of them.  One instruction at least names
    something of its own, such as a word to be used, so that a text about anything is not paid.

    Options:
        instructions: the greatest number for a task, from 1 to 5.
        share: whether a WRONG answer earns the share of the instructions that it follows.
    """

    domain = "instructions"
    instructions: int = 5
    share: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("instructions", self.instructions, 1, 5)
        # shadows the class's
        self.reward = rlvr.Correct(InstructionVerifier(share=self.share))  # type: ignore[misc]

    def make(self, rng: Random, mine: Callable[[object], bool]) -> Made | None:
        topic = rng.choice(TOPICS)
        draft = Draft(rng, topic, rng.choice(REQUESTS).format(topic))
        chosen = compatible(rng, rng.randint(1, self.instructions))
        if not any(ask.anchor for ask in chosen):
            return None
        instructions: list[dict[str, Any]] = [
            {"kind": ask.kind, "arguments": dict(ask.draw(draft))} for ask in chosen
        ]
        # By the request and its instructions, so that splits share no task.
        if not mine((draft.request, instructions)):
            return None
        for ask, instruction in zip(chosen, instructions, strict=True):
            ask.follow(draft, instruction["arguments"])
        sentences = [
            in_words(ask, instruction_asked["arguments"])
            for ask, instruction_asked in zip(chosen, instructions, strict=True)
        ]
        prompt = " ".join([draft.request, *sentences])
        answer = draft.text()
        task = rlvr.Task("draft", prompt)
        # A combination that no answer follows is drawn anew.
        return (
            Made(prompt, instructions, answer)
            if InstructionVerifier().verify(answer, instructions, task).correct
            else None
        )

    def example(self, task: rlvr.Task) -> str | None:
        return task.meta.get("solution")
