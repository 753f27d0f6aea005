"""The environment of the recipe: questions of one fact, over a corpus of made-up ones."""

from functools import cache

import rlvr
from rlvr.environment.ready_tools import Corpus, search
from rlvr.verifiers.qa import QAVerifier

__all__ = ["Ages"]

_SPLITS = {"train": range(800), "test": range(800, 900)}


@cache
def _facts() -> list[tuple[str, str]]:
    """A number for each of 900 people, and the age of each."""
    rng = rlvr.seeded("recipes/search_qa")
    # All 900 numbers of three digits, in an order by chance: the splits are places in it.
    return [(str(number), str(rng.randint(10, 99))) for number in rng.sample(range(100, 1000), 900)]


@cache
def _corpus() -> Corpus:
    return Corpus(dict(_facts()))


class Ages(rlvr.Environment):
    """The age of a person: `search-v4` in small.  Who is asked about differs between the splits."""

    domain = "tools"
    reward = rlvr.Correct(QAVerifier())
    turns: int = 3
    calls: int = 2

    def task(self, index: int) -> rlvr.Task:
        places = _SPLITS[self.split]
        person, age = _facts()[places[index % len(places)]]
        return rlvr.Task(f"{self.id}/{self.split}/{index}", person, age)

    def tools(self, state: object) -> list[rlvr.Tool]:
        return [search(_corpus(), most=1)]

    def example_episode(self, task: rlvr.Task) -> list[str | rlvr.Ask]:
        return [
            rlvr.Ask("search", {"query": str(task.prompt)}),
            f"<answer>{task.reference}</answer>",
        ]
