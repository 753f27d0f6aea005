"""Questions over a corpus that the policy searches: one or two facts, of
which no prompt has any."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import rlvr
from rlvr.environment.ready_tools import Corpus, search
from rlvr.validate import require_one_of, require_whole
from rlvr.verifiers.qa import QAVerifier

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["Search"]

# tenths of all questions
_SPLITS: Final = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}
_FORM: Final = "\n\nSearch for it. Put the answer, a few words, in <answer> tags."
_ONSETS: Final = "b br d dr f g gl h k kr l m n p pr r s st t tr v z".split()
_VOWELS: Final = "a e i o u ai ea".split()
_ENDS: Final = "n r l s th nd m x".split()
_TRADES: Final = (
    "baker weaver surgeon pilot printer gardener painter sailor miller clerk tailor joiner".split()
)
_GOODS: Final = (
    "clocks lamps boats ropes pianos kites bells carpets engines lenses saddles glass".split()
)


def _name(*key: str | int) -> str:
    rng = rlvr.seeded("search-v4", *key)
    return "".join(
        rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(2)
    ).title() + rng.choice(_ENDS)


def _world(size: int) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The passages of a made-up world, and the questions with their answers."""
    rng = rlvr.seeded("search-v4", "world", size)
    towns = list(dict.fromkeys(_name("town", i) for i in range(max(8, size // 4))))
    people = [
        f"{first} {last}"
        for first, last in dict.fromkeys(
            # 97 first names, shared by all.
            (_name("first", i % 97), _name("last", i))
            for i in range(size)
        )
    ]
    firms = [
        f"{_name('firm', i)} {rng.choice(('Works', 'Brothers', 'Company'))}" for i in range(size)
    ]
    passages: dict[str, str] = {}
    questions: list[tuple[str, str]] = []
    for person, firm in dict(zip(people, firms, strict=False)).items():
        # Two firms of one name would have two founders.
        if firm in passages:
            continue
        town, seat, trade, goods = (
            rng.choice(towns),
            rng.choice(towns),
            rng.choice(_TRADES),
            rng.choice(_GOODS),
        )
        year = rng.randint(1801, 1949)
        passages[person] = f"{person} was born in {town} and learned the trade of a {trade}."
        passages[firm] = (
            f"{firm} makes {goods}. It was founded in {year} by {person} and has its seat in "
            f"{seat}."
        )
        questions += [
            # One fact, or two by way of the founder: the second search needs the result of the
            # first.
            (f"Where was {person} born?", town),
            (f"In which year was {firm} founded?", str(year)),
            (f"Where was the founder of {firm} born?", town),
            (f"Which trade did the founder of {firm} learn?", trade),
            (f"Where does the firm that {person} founded have its seat?", seat),
        ]
    return passages, questions


@lru_cache(maxsize=4)
def _make_data(size: int) -> tuple[Corpus, dict[str, list[tuple[str, str]]]]:
    passages, questions = _world(size)
    by_split: dict[str, list[tuple[str, str]]] = {split: [] for split in _SPLITS}
    for question, answer in questions:
        # By the question, so that no two splits share one.
        tenth = hashlib.sha256(question.encode()).digest()[0] * 10 // 256
        by_split[next(split for split, tenths in _SPLITS.items() if tenth in tenths)].append(
            (question, answer)
        )
    return Corpus(passages), by_split


@lru_cache(maxsize=4)
def _read(corpus: str) -> Corpus:
    return Corpus(Path(corpus))


@rlvr.register("search-v4")
class Search(rlvr.Environment):
    """Answer a question with what `search(query)` finds; the answer goes in <answer> tags.

    Options:
        data: rows with the columns `question` and `answer`, a text or a list of texts; with
            `corpus`.
        corpus: the file or folder that is searched, see `rlvr.environment.ready_tools.Corpus`.
            Without both, a made-up world.
        people: number of people of that world, each with a firm.
        passages: that a search gives.
        credit: "em" for exact match alone, "f1" for partial credit.
    """

    domain = "tools"
    turns: int = 6
    calls: int = 8
    data: str = ""
    corpus: str = ""
    people: int = 500
    passages: int = 3
    credit: str = "em"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("credit", self.credit, ("em", "f1"))
        require_whole("passages", self.passages, 1)
        require_whole("people", self.people, 10, 5000)
        # the instance's own
        self.reward = rlvr.Correct(QAVerifier(self.credit))  # type: ignore[misc, arg-type]
        if bool(self.data) != bool(self.corpus):
            raise rlvr.UsageError(
                "search-v4 needs both data and corpus, or neither: questions are about a corpus"
            )
        if not self.data:
            require_one_of("split", self.split, _SPLITS)

    def tasks(self) -> Iterator[rlvr.Task]:
        questions = _make_data(self.people)[1][self.split] if not self.data else ()
        rows = [{"question": question, "answer": answer} for question, answer in questions]
        return self.tasks_in(self.data or rows, make=_row_task)

    def tools(self, state: object) -> list[rlvr.Tool]:
        return [
            search(
                _read(self.corpus) if self.corpus else _make_data(self.people)[0],
                most=self.passages,
            )
        ]

    def example_episode(self, task: rlvr.Task) -> list[str | rlvr.Ask]:
        gold = task.reference if isinstance(task.reference, str) else task.reference[0]
        return [
            # The question itself, without its mark, is a search.
            rlvr.Ask("search", {"query": str(task.prompt).partition("?")[0]}),
            f"<answer>{gold}</answer>",
        ]


def _row_task(row: Row, id: str) -> rlvr.Task:
    if not isinstance(row.get("question"), str) or "answer" not in row:
        raise rlvr.DataError(f"no 'question' or no 'answer' in the row; it has {list(row)}")
    return rlvr.Task(id, row["question"] + _FORM, row["answer"])
