"""Questions with short answers: over rows of any data set, or procedural
questions about a short text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import rlvr
from rlvr.envs.puzzles import Generator
from rlvr.validate import require_whole
from rlvr.verifiers.qa import QAVerifier

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["QA"]

_NAMES: Final = "Ada Bruno Chen Dalia Emeka Farid Greta Hiro Ivana Jonas Kofi Lena".split()
_FACTS: Final = {
    "lives in {}": (
        "Where does {} live?",
        "Lagos Turin Quito Hanoi Basel Perth Izmir Cusco".split(),
    ),
    "works as a {}": (
        "What is the work of {}?",
        "baker nurse pilot potter tailor judge farmer diver".split(),
    ),
    "plays the {}": ("What does {} play?", "flute cello harp drum piano viola organ banjo".split()),
}
_FORM: Final = "\n\nPut the answer, a few words, in <answer> tags."


@rlvr.register("qa-v4")
class QA(Generator):
    """Answer a question by a few words.

    Options:
        data: rows with the columns `question` and `answer`, a text or a list of texts: a file or a
            hub id.  Without it, questions about a made-up text of some people.
        people: number of people in such a text.
        credit: "em" for exact match alone, "f1" for partial credit.
    """

    domain = "questions"
    data: str = ""
    people: int = 4
    credit: Literal["em", "f1"] = "em"

    def __post_init__(self) -> None:
        # an instance may shadow its class's
        self.reward = rlvr.Correct(QAVerifier(self.credit))  # type: ignore[misc]
        super().__post_init__()
        require_whole("people", self.people, 1, len(_NAMES))

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        question = row.get("question")
        if not isinstance(question, str) or "answer" not in row:
            raise rlvr.DataError(f"no 'question' or no 'answer' in the row; it has {list(row)}")
        return rlvr.Task(id, question + _FORM, self.reference_of(row["answer"]))

    def draw(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded(self.id, self.split, index)
        people = rng.sample(_NAMES, self.people)
        # Each value may occur twice, so that a question cannot be answered by who is left.
        columns = [rng.sample(values * 2, self.people) for _, values in _FACTS.values()]
        facts = [f"{name} {fact.format(column[i])}." for i, name in enumerate(people)
                for fact, column in zip(_FACTS, columns, strict=True)]  # fmt: skip
        kind, who = rng.randrange(len(_FACTS)), rng.randrange(self.people)
        question = list(_FACTS.values())[kind][0].format(people[who])
        prompt = " ".join(rng.sample(facts, len(facts))) + f"\n\n{question}{_FORM}"
        return rlvr.Task(
            f"{self.id}/{self.split}/{self.people}/{index}", prompt, [columns[kind][who]]
        )

    def example(self, task: rlvr.Task) -> str:
        gold = task.reference if isinstance(task.reference, str) else task.reference[0]
        return f"<answer>{gold}</answer>"
