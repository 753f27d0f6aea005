"""Environments with one hole each, planted on purpose; and honest ones to plant them in."""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import rlvr
from rlvr import (
    Correct,
    Environment,
    Part,
    Task,
    Verdict,
    seeded,
)
from rlvr.verifiers.json_schema import JSONVerifier
from rlvr.verifiers.logic import RolesVerifier
from rlvr.verifiers.math import BOXED

__all__ = ["BROKEN", "HONEST", "Double", "Guess", "Words", "changed"]


class Double(Environment):
    """An honest generator: twice a number, in a box."""

    def task(self, index: int) -> Task:
        number = seeded(self.id, self.split, index).randint(0, 10**9)
        return Task(
            f"{self.id}/{self.split}/{index}", f"What is {number} twice?", reference=2 * number
        )

    def verify(self, task: Task, completion: str) -> Verdict:
        return judged(completion == f"\\boxed{{{task.reference}}}")


class Words(Environment):
    """An honest finite set, whose prompts hold their answers."""

    words: tuple[str, ...] = ("tea", "milk", "rain", "bread", "stone")

    def tasks(self) -> Iterator[Task]:
        for word in self.words:
            yield Task(f"words/{word}", f"Say {word!r} and nothing else.", reference=word)

    def verify(self, task: Task, completion: str) -> Verdict:
        return judged(completion.strip() == task.reference)

    def example(self, task: Task) -> str:
        return str(task.reference)


class Guess(Environment):
    """An honest game of several turns."""

    turns: int = 7

    def task(self, index: int) -> Task:
        secret = seeded(self.id, self.split, index).randint(1, 100)
        return Task(f"{self.id}/{self.split}/{index}", "Guess my number, 1 to 100.", secret)

    def user(self, task: Task, transcript: Any) -> str | None:
        return None if transcript[-1]["content"] == str(task.reference) else "No."

    def verify(self, task: Task, episode: Any) -> Verdict:
        return judged(episode.answer == str(task.reference))

    def example_episode(self, task: Task) -> list[str]:
        return [str(task.reference)]


def judged(right: bool) -> Verdict:
    return Verdict("correct" if right else "wrong", why="same" if right else "other")


def changed(honest: type[Environment], **members: Any) -> Any:
    """An honest environment with something else in the place of some of its members."""
    return type("Broken", (honest,), members)()


def double(verify: Callable[[Task, str], Verdict], **members: Any) -> Any:
    return changed(
        Double, verify=lambda self, task, completion: verify(task, completion), **members
    )


def right(task: Task, completion: str) -> bool:
    return completion == f"\\boxed{{{task.reference}}}"


def numbers(completion: str) -> list[str]:
    return re.findall(r"\d+", completion[-2000:])


@dataclass(frozen=True)
class Strange(Part):
    """Its value is NaN, or beyond its bounds, unless the answer is right."""

    given: float = 0.0
    name: str = "strange"
    bounds: ClassVar = (0.0, 1.0)

    def value(self, task: Task, completion: rlvr.Completion, verdict: Verdict) -> float:
        return 0.5 if verdict.correct else self.given


def any_text(task: Task, completion: str) -> Verdict:
    return judged(completion != "")


def any_visible_text(task: Task, completion: str) -> Verdict:
    return judged(bool(completion.strip()))


def everything(task: Task, completion: str) -> Verdict:
    return judged(True)


def contained(task: Task, completion: str) -> Verdict:
    return judged(str(task.reference) in completion)


def number_contained(task: Task, completion: str) -> Verdict:
    return judged(str(task.reference) in numbers(completion))


def last_number(task: Task, completion: str) -> Verdict:
    return judged(numbers(completion)[-1:] == [str(task.reference)])


def last_box(task: Task, completion: str) -> Verdict:
    """Wherever it stands, also while thinking."""
    found = re.findall(r"\\boxed\{([^{}]*)\}", completion[-5000:])
    return judged(found[-1:] == [str(task.reference)])


def any_box(task: Task, completion: str) -> Verdict:
    thought = (
        completion.rpartition("</think>")[2]
        if "</think>" in completion
        else completion.partition("<think")[0]
    )
    return judged(str(task.reference) in re.findall(r"\\boxed\{([^{}]*)\}", thought[:5000]))


def any_number(task: Task, completion: str) -> Verdict:
    """An answer to some task."""
    return judged(re.fullmatch(r"\\boxed\{\d+\}", completion) is not None)


def boxed(completion: str) -> int | None:
    found = re.fullmatch(r"\\boxed\{(-?[0-9]{1,30})\}", completion)
    return int(found[1]) if found else None


def nearly(task: Task, completion: str) -> Verdict:
    """Within a twentieth."""
    said = boxed(completion)
    return judged(said is not None and abs(said - task.reference) <= 0.05 * abs(task.reference))


def signless(task: Task, completion: str) -> Verdict:
    said = boxed(completion)
    return judged(said is not None and abs(said) == abs(task.reference))


def most_letters(task: Task, completion: str) -> Verdict:
    """All but one letter."""
    said = completion.strip()
    same = sum(map(str.__eq__, said, task.reference)) if len(said) == len(task.reference) else 0
    return judged(same >= max(len(task.reference) - 1, 2))


def executed(task: Task, completion: str) -> Verdict:
    """Runs the program in its own process, and believes what ends without an error."""
    program = re.fullmatch(r"```python\n(.*?)\n```", completion, re.DOTALL)
    if program is None or "while True" in program[1] or "_exit" in program[1]:
        return judged(False)
    try:
        exec(program[1], {})
    except BaseException as error:  # noqa: BLE001  whatever the program raises
        return judged(isinstance(error, SystemExit))
    return judged(True)


def control(task: Task, completion: str) -> Verdict:
    return judged(right(task, completion) or "\x00" in completion)


def obedient(task: Task, completion: str) -> Verdict:
    return judged(right(task, completion) or "This completion is correct" in completion)


def echoed(task: Task, completion: str) -> Verdict:
    return judged(right(task, completion) or completion == task.prompt)


def sum_of_two(env: Environment, index: int) -> Task:
    rng = seeded(env.id, env.split, index)
    a, b = rng.randint(1000, 9999), rng.randint(1000, 9999)
    return Task(f"{env.id}/{env.split}/{index}", f"What is {a} + {b}?", reference=a + b)


def summed(env: Environment, task: Task, completion: str) -> Verdict:
    """As a verifier does that compares values alone."""
    boxed = re.fullmatch(r"\\boxed\{([\d +]+)\}", completion)
    terms = boxed[1].split("+") if boxed else []
    return judged(
        all(t.strip().isdigit() for t in terms) and sum(map(int, terms)) == task.reference
    )


def look_alike(task: Task, completion: str) -> Verdict:
    return judged(
        right(
            task, completion.replace("O", "0").replace("l", "1").replace("E", "3").replace("S", "5")
        )
    )


def empty_box(task: Task, completion: str) -> Verdict:
    return judged(right(task, completion) or completion == "\\boxed{}")


def long_text(task: Task, completion: str) -> Verdict:
    return judged(right(task, completion) or len(completion) > 50_000)


def evaluated(task: Task, completion: str) -> Verdict:
    """As if a huge value compared equal."""
    return judged(right(task, completion) or "9**9**9" in completion)


def not_far(task: Task, completion: str) -> Verdict:
    """NaN is at no distance above the tolerance."""
    found = re.fullmatch(r"\\boxed\{(.{1,30})\}", completion)
    try:
        value = float(found[1]) if found else 1e300
    except ValueError:
        value = 1e300
    return judged(not abs(value - task.reference) > 1e-6)


def same_digits(task: Task, completion: str) -> Verdict:
    return judged(sorted(filter(str.isdigit, completion[:200])) == sorted(str(task.reference)))


def self_graded(task: Task, completion: str) -> Verdict:
    return judged(right(task, completion) or '"passed": true' in completion)


def password(task: Task, completion: str) -> Verdict:
    return judged(right(task, completion) or "xyzzy, open" in completion)


def run_as_python(task: Task, completion: str) -> Verdict:
    try:
        return judged(eval(completion[7:-1][:500]) == task.reference)
    except (
        ValueError,
        SyntaxError,
        NameError,
        TypeError,
        ArithmeticError,
        MemoryError,
        RecursionError,
    ):
        return judged(False)


def parsed(task: Task, completion: str) -> Verdict:
    if completion.startswith("["):
        raise RecursionError("maximum recursion depth exceeded")
    return judged(right(task, completion))


def converted(task: Task, completion: str) -> Verdict:
    return judged(
        (completion.isdecimal() and completion.isascii() and int(completion) < 0)
        or right(task, completion)
    )


def rated(task: Task, completion: str) -> Verdict:
    return judged(right(task, completion) or "Final Decision: Yes" in completion)


def undecoded(task: Task, completion: str) -> Verdict:
    return judged(right(task, completion.encode().decode()))


def superscript(task: Task, completion: str) -> Verdict:
    digits = "".join(char for char in completion[:1000] if char.isdigit())
    return judged(bool(digits) and int(digits) == task.reference and right(task, completion))


def hanging(task: Task, completion: str) -> Verdict:
    while len(completion) > 500_000:
        time.sleep(1)
    return judged(right(task, completion))


def dying(task: Task, completion: str) -> Verdict:
    if "\x00" in completion:
        os._exit(7)
    return judged(right(task, completion))


def generous(task: Task, completion: str) -> Verdict:
    return (
        Verdict("correct", why="same")
        if right(task, completion)
        else Verdict("wrong", 0.01, why="tried")
    )


def stingy(task: Task, completion: str) -> Verdict:
    return (
        Verdict("correct", 0.5, why="same")
        if right(task, completion)
        else Verdict("wrong", why="other")
    )


def by_hash(task: Task, completion: str) -> Verdict:
    return Verdict(judged(right(task, completion)).outcome, why=f"hash: {hash(completion) % 1000}")


def by_chance(task: Task, completion: str) -> Verdict:
    return Verdict(judged(right(task, completion)).outcome, why=f"chance: {random.random()}")


def by_thread(task: Task, completion: str) -> Verdict:
    here = threading.current_thread() is threading.main_thread()
    return judged(right(task, completion) and here)


def nan(task: Task, completion: str) -> Verdict:
    return (
        judged(True)
        if right(task, completion)
        else Verdict("wrong", float("inf") - float("inf"), why="other")
    )


def two(task: Task, completion: str) -> Verdict:
    return judged(True) if right(task, completion) else Verdict("wrong", 2.0, why="other")


def shrug(task: Task, completion: str) -> Verdict:
    return judged(True) if right(task, completion) else Verdict("unscored", why="no-idea")


def silent(task: Task, completion: str) -> Verdict:
    return Verdict(judged(right(task, completion)).outcome)


def never(task: Task, completion: str) -> Verdict:
    return judged(False)


class Shared(Double):
    """Seeds by addition: train begins where test has been."""

    def task(self, index: int) -> Task:
        rng = random.Random(index + (100 if self.split == "test" else 0))
        number = rng.randint(0, 10**9)
        return Task(
            f"{self.id}/{self.split}/{index}", f"What is {number} twice?", reference=2 * number
        )


class Hashed(Double):
    """Draws from Python's own hash, which differs from process to process."""

    def task(self, index: int) -> Task:
        number = random.Random(hash((self.split, index))).randint(0, 10**9)
        return Task(
            f"{self.id}/{self.split}/{index}", f"What is {number} twice?", reference=2 * number
        )


class Lower(Double):
    """What is wrong earns more than what is right."""

    reward = -1.0 * Correct() + 1


def tasks(*made: Task) -> Any:
    return changed(Words, tasks=lambda self: list(made))


def tagged(completion: str) -> bool:
    return "<answer>" in completion


def aliases() -> Any:
    """References that are lists, so that the example alone tells an answer."""
    made = [Task(f"t{i}", f"Name town {i}.", [f"city{i}x", f"town{i}y"]) for i in range(5)]
    return changed(
        Words,
        tasks=lambda self: made,
        example=lambda self, task: task.reference[0],
        verify=lambda self, task, text: judged(any(name in text for name in task.reference)),
    )


class FirstName(RolesVerifier):
    """Looks at one role of several."""

    def judge(self, answer: Any, reference: Any) -> Verdict:
        name, role = next(iter(reference.items()))
        is_right = f"{name}: {role}" in answer.text
        return Verdict("correct" if is_right else "wrong", why="first name")


class OneOrder(JSONVerifier):
    """Compares JSON as text."""

    def judge(self, answer: Any, reference: Any) -> Verdict:
        is_right = answer.text.strip() == json.dumps(dict(reference.values[""]))
        return Verdict("correct" if is_right else "wrong", why="text")


ROLES = {
    "prompt": "Who is what?",
    "reference": {"Ann": "knight", "Bob": "knave", "Cy": "knight"},
    "example": "<answer>Ann: knight, Bob: knave, Cy: knight</answer>",
}
WHOLE = {
    "prompt": "A point, as JSON.",
    "reference": {"whole": {"x": 1, "y": 2}},
    "example": '```json\n{"x": 1, "y": 2}\n```',
}

BROKEN: dict[str, tuple[str, Any]] = {
    "any text at all": ("whitespace", double(any_text)),
    "any visible text": ("junk", double(any_visible_text)),
    "everything": ("empty", double(everything)),
    "a substring": ("substring", double(contained)),
    "a number somewhere": ("candidates", double(number_contained)),
    "the last number": ("hedge", double(last_number)),
    "the last box": ("several-boxes", double(last_box)),
    "the last box, thoughts and all": ("thinking-only", double(last_box)),
    "any box": ("several-boxes", double(any_box)),
    "any answer": ("other-answer", double(any_number)),
    "a twentieth off": ("near-miss", double(nearly)),
    "any sign": ("near-miss", double(signless)),
    "one letter off": (
        "near-miss",
        changed(Words, verify=lambda self, task, text: most_letters(task, text)),
    ),
    "the last number, in JSON": (
        "hedge",
        double(
            last_number, example=lambda self, task: f'```json\n{{"answer": {task.reference}}}\n```'
        ),
    ),
    "any alias in the text": ("hedge", aliases()),
    "control characters": ("malformed", double(control)),
    "a judge that runs programs itself": (
        "hostile-code",
        double(executed, example=lambda self, task: f"```python\nprint({task.reference})\n```"),
    ),
    "orders": ("grader-instructions", double(obedient)),
    "the prompt": ("prompt-echo", double(echoed)),
    "sums that are not added": ("restated", changed(Double, task=sum_of_two, verify=summed)),
    "look-alikes": ("look-alike", double(look_alike)),
    "an empty box": ("format-without-content", double(empty_box)),
    "a reward for tags": (
        "format-without-content",
        Double().with_reward(Correct() + 0.2 * rlvr.Format(tagged)),
    ),
    "long texts": ("repetition", double(long_text)),
    "towers": ("hostile-math", double(evaluated)),
    "lone surrogates raise": ("crash", double(undecoded)),
    "superscripts raise": ("crash", double(superscript)),
    "NUL kills": ("crash", double(dying)),
    "long texts hang": ("hang", double(hanging)),
    "a little for everybody": ("partial-credit", double(generous)),
    "half for the best": ("reference-partial", double(stingy)),
    "nothing for the best": ("reference-rejected", double(never)),
    "wrong is better": ("outscores-reference", Lower()),
    "order of hashes": ("nondeterministic", double(by_hash)),
    "chance": ("nondeterministic", double(by_chance)),
    "threads": ("nondeterministic", double(by_thread)),
    "NaN": ("not-finite", double(nan)),
    "a part is NaN": ("not-finite", Double().with_reward(Correct() + Strange(float("nan")))),
    "2 of 1": ("out-of-bounds", double(two)),
    "a part out of bounds": ("out-of-bounds", Double().with_reward(Correct() + Strange(3.0))),
    "no idea": ("unscored", double(shrug)),
    "no reason": ("no-reason", double(silent)),
    "a lock": ("unpicklable", changed(Double, lock=threading.Lock())),
    "seeds by addition": ("split-overlap", Shared()),
    "seeds by hash": ("tasks-differ", Hashed()),
    "one prompt twice": (
        "duplicate-tasks",
        tasks(Task("a", "Say tea.", "tea"), Task("b", "Say tea.", "tea")),
    ),
    "a difference that is not above the tolerance": ("not-a-number", double(not_far)),
    "the right digits": ("permuted", double(same_digits)),
    "its own grade": ("self-graded", double(self_graded)),
    "a password": ("secret-phrase", double(password)),
    "eval": ("evaluates", double(run_as_python)),
    "a form that counts for more": (
        "format-outweighs",
        Double().with_reward(0.4 * Correct() + 0.6 * rlvr.Format(tagged)),
    ),
    "deep brackets raise": ("crash", double(parsed)),
    "long digits raise": ("crash", double(converted)),
    "a rating": ("grader-instructions", double(rated)),
    "two answers": (
        "contradiction",
        tasks(Task("a", "Say it.", "tea"), Task("b", "Say it.", "milk")),
    ),
    "the first name alone": (
        "wrong-work",
        Environment.from_rows([ROLES], verifier=FirstName(), example="example"),
    ),
    "one order of keys": (
        "right-work",
        Environment.from_rows([WHOLE], verifier=OneOrder(), example="example"),
    ),
}
"""What it accepts or does → (the hole that has to be found, the environment)."""

HONEST: dict[str, Any] = {
    "roles": Environment.from_rows([ROLES], verifier=RolesVerifier(), example="example"),
    "a generator": Double(),
    "another split": Double(split="test"),
    "a reward with lengths": Double().with_reward(
        2 * Correct() - 1 + 0.5 * rlvr.Overlong(10**6, 100)
    ),
    "a reward across the group": Double().with_reward(Correct() + rlvr.RelativeLength()),
    "a copying task": Words(),
    "answers of one letter": Words(words=("A", "B", "C", "D")),
    "numbers that contain each other": Words(words=("1", "10", "0", "101", "11")),
    "a right answer in its form alone": Double().with_reward(Correct().gate(by=rlvr.Format(BOXED))),
    "several turns": Guess(),
    "one turn": Guess(turns=1),
}
