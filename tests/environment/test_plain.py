"""A class without a base of ours is an environment, if it makes tasks and verifies completions."""

import rlvr
from rlvr.environment.plain import environment_class
from rlvr.testing import check_environment
from tests.rewards.parts import refusal

SUMS = """
from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar
from rlvr import Outcome, Task, Verdict, seeded

@dataclass(frozen=True, slots=True)
class Sums:
    \"\"\"Add a few integers.\"\"\"

    split: str = "train"
    terms: int = 3
    id: ClassVar[str] = "arith/sum-v1"

    def task(self, index: int) -> Task:
        rng = seeded(self.id, self.split, index)
        xs = [rng.randint(1, 99) for _ in range(self.terms)]
        return Task(f"{self.id}/{self.split}/{index}", " + ".join(map(str, xs)), reference=sum(xs))

    def verify(self, task: Task, completion: str) -> Verdict:
        if completion.strip() != str(task.reference):
            return Verdict(Outcome.WRONG, why="other")
        return Verdict(Outcome.CORRECT, why="same integer")

    def example(self, task: Task) -> str:
        return str(task.reference)
"""


def test_a_file_without_a_base_class_is_made_checked_and_scored(tmp_path):
    """Its fields are options, checked for their types; workers get it too."""
    place = tmp_path / "plain_sums.py"
    place.write_text(SUMS)
    env = rlvr.make(f"{place}:Sums", terms=2)
    assert (env.id, env.config, env.single_turn) == ("arith/sum-v1", {"terms": 2}, True)
    task = env.task(0)
    assert task.prompt.count("+") == 1
    with rlvr.Scorer(env, workers=1) as scorer:
        assert scorer.score(task, str(task.reference)).total == 1.0
    check_environment(rlvr.make(f"{place}:Sums"))
    assert "terms" in refusal(lambda: rlvr.make(f"{place}:Sums", terms="many"))


def test_one_with_a_user_has_several_turns():
    """The hooks are those of `Environment`."""

    class Echo:
        def task(self, index):
            return rlvr.Task(f"echo/{index}", "Say it twice.", "tea")

        def user(self, task, transcript):
            return None if len(transcript) > 1 else "Again."

        def verify(self, task, record):
            return rlvr.Verdict("correct" if record.answer == "tea" else "wrong", why="said")

    env = environment_class(Echo)()
    with env.open(env.task(0)) as episode:
        assert episode.reply("tea") == [{"role": "user", "content": "Again."}]
        assert episode.reply("tea") is None
        assert env.score(episode.task, episode.completion()).total == 1.0
