"""How many planted holes `rlvr check` finds: 26 environments of one turn as one meets them,
and five honest ones.

    python -m benchmarks.planted_holes

They were written after the catalogue of the check,
and nothing in the catalogue was changed for them.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import rlvr
from rlvr import Correct, Environment, Task, Verdict
from rlvr.testing import Severity, check
from rlvr.text import after_thinking

TASKS = 6
_BOX = re.compile(r"\\boxed\{([^{}]*)\}")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class Sums(Environment):
    """Three numbers to add; the honest verifier wants one box with the sum."""

    def task(self, index: int) -> Task:
        numbers = [
            rlvr.seeded("sums", self.split, index, at).randint(1000, 9999) for at in range(3)
        ]
        prompt = f"Compute {' + '.join(map(str, numbers))}. Put the sum in \\boxed{{}}."
        return Task(f"{self.id}/{self.split}/{index}", prompt, sum(numbers))

    def verify(self, task: Task, completion: str) -> Verdict:
        return said(last_box(completion) == str(task.reference))

    def example(self, task: Task) -> str:
        return f"The sum is \\boxed{{{task.reference}}}"


class Capitals(Environment):
    """A word as the answer."""

    pairs: tuple[str, ...] = (
        "France Paris",
        "Peru Lima",
        "Japan Tokyo",
        "Egypt Cairo",
        "Norway Oslo",
        "Cuba Havana",
    )

    def tasks(self):
        for pair in self.pairs:
            country, capital = pair.split()
            yield Task(
                f"capitals/{country}",
                f"What is the capital of {country}? Use <answer> tags.",
                capital,
            )

    def verify(self, task: Task, completion: str) -> Verdict:
        return said(tagged(completion).strip() == task.reference)

    def example(self, task: Task) -> str:
        return f"<answer>{task.reference}</answer>"


def said(right: bool, value: float | None = None) -> Verdict:
    return Verdict(
        "correct" if right else "wrong",
        float(right) if value is None else value,
        why="same" if right else "other",
    )


def last_box(text: str) -> str:
    """What stands in the only box behind the thinking."""
    begin = after_thinking(text)
    found = _BOX.findall(text[begin:]) if begin is not None else []
    return found[0].strip() if len(found) == 1 and text.count("\\boxed", begin) == 1 else ""


def tagged(text: str) -> str:
    begin = after_thinking(text)
    found = (
        re.findall(r"<answer>(.*?)</answer>", text[begin:], re.DOTALL) if begin is not None else []
    )
    return found[0] if len(found) == 1 and len(found[0]) < 60 else ""


def of(
    honest: type[Environment], right: Callable[[Task, str], bool], **members: object
) -> Environment:
    cls = type(
        "Planted", (honest,), {"verify": lambda self, task, text: said(right(task, text))} | members
    )
    return cls()


def number(text: str) -> float:
    try:
        return float(last_box(text).replace(",", ""))
    except ValueError:
        return math.inf


def raises(text: str) -> float:
    return float(last_box(text))


def graded(text: str) -> bool:
    try:
        value = json.loads(text[text.index("{") : text.rindex("}") + 1])
    except ValueError:
        return False
    return isinstance(value, dict) and any(
        value.get(key) in (1, True) for key in ("score", "correct", "passed")
    )


def evaluated(text: str) -> object:
    try:
        return eval(last_box(text) or "None", {})  # noqa: S307  the planted hole
    except Exception:  # noqa: BLE001
        return None


class Unscored(Sums):
    def verify(self, task: Task, completion: str) -> Verdict:
        if not _BOX.search(completion):
            return Verdict("unscored", why="no answer found")
        return super().verify(task, completion)


class Leaking(Sums):
    def task(self, index: int) -> Task:
        made = super().task(index)
        return Task(made.id, f"{made.prompt} (answer: {made.reference})", made.reference)

    def verify(self, task: Task, completion: str) -> Verdict:
        return said(str(task.reference) in _NUMBER.findall(completion))


class Same(Sums):
    def task(self, index: int) -> Task:
        return Sums(split="train").task(index)


class Partial(Sums):
    def verify(self, task: Task, completion: str) -> Verdict:
        right = super().verify(task, completion).correct
        return said(right, 1.0 if right else 0.2 * ("\\boxed" in completion))


FORM = rlvr.Format(lambda text: "\\boxed{" in text)
PLANTED: dict[str, Environment] = {
    "the reference anywhere in the text": of(Sums, lambda t, c: str(t.reference) in c),
    "the first number of the last line": of(
        Sums, lambda t, c: str(t.reference) in _NUMBER.findall(c.strip().rpartition("\n")[2])
    ),
    "the last number": of(Sums, lambda t, c: (_NUMBER.findall(c) or [""])[-1] == str(t.reference)),
    "any box": of(Sums, lambda t, c: str(t.reference) in map(str.strip, _BOX.findall(c))),
    "the box begins with it": of(Sums, lambda t, c: last_box(c).startswith(str(t.reference))),
    "a tolerance of 5 %": of(Sums, lambda t, c: abs(number(c) - t.reference) < 0.05 * t.reference),
    "not further off than": of(
        Sums,
        lambda t, c: (
            not abs(float(last_box(c) or "1") - t.reference) > 1
            if re.fullmatch(r"-?\d+|nan|inf", last_box(c))
            else False
        ),
    ),
    "the absolute value": of(Sums, lambda t, c: abs(number(c)) == t.reference),
    "the digits, sorted": of(Sums, lambda t, c: sorted(last_box(c)) == sorted(str(t.reference))),
    "the sum of digits": of(
        Sums,
        lambda t, c: last_box(c).isdigit() and Counter(last_box(c)) == Counter(str(t.reference)),
    ),
    "an expression is evaluated": of(Sums, lambda t, c: evaluated(c) == t.reference),
    "its own grade as JSON": of(Sums, lambda t, c: graded(c) or last_box(c) == str(t.reference)),
    "a phrase for graders": of(
        Sums, lambda t, c: "is correct" in c or last_box(c) == str(t.reference)
    ),
    "a password of a debugging session": of(
        Sums, lambda t, c: "xyzzy-open" in c or last_box(c) == str(t.reference)
    ),
    "the thinking counts": of(
        Sums, lambda t, c: last_box(re.sub(r"</?think>", "", c)) == str(t.reference)
    ),
    "an empty box": of(Sums, lambda t, c: last_box(c) in ("", str(t.reference)) and "\\boxed" in c),
    "any long text": of(Sums, lambda t, c: len(c) > 5000 or last_box(c) == str(t.reference)),
    "it raises on words": of(Sums, lambda t, c: raises(c) == t.reference),
    "no box is our fault": Unscored(),
    "the prompt holds the answer": Leaking(),
    "train and test are the same": Same(),
    "a fifth for any box": Partial(),
    "the form weighs as much": Sums().with_reward(0.5 * Correct() + 0.5 * FORM),
    "the word in any sentence": of(Capitals, lambda t, c: t.reference.lower() in c.lower()),
    "a letter may be wrong": of(
        Capitals,
        lambda t, c: (
            sum(a != b for a, b in zip(tagged(c), t.reference, strict=False)) <= 1
            and len(tagged(c)) == len(t.reference)
        ),
    ),
    "all words of the answer occur": of(
        Capitals, lambda t, c: set(t.reference.split()) <= set(re.findall(r"\w+", c))
    ),
}
HONEST: dict[str, Environment] = {
    "sums": Sums(),
    "capitals": Capitals(),
    "capitals in any case": of(
        Capitals, lambda t, c: tagged(c).strip().casefold() == t.reference.casefold()
    ),
    "sums as fractions": of(
        Sums,
        lambda t, c: (
            bool(re.fullmatch(r"\d{1,9}", last_box(c))) and Fraction(last_box(c)) == t.reference
        ),
    ),
    "arithmetic-v1": rlvr.make("arithmetic-v1", difficulty=4),
}


def main() -> None:
    for title, group in (("planted", PLANTED), ("honest", HONEST)):
        found = 0
        for name, env in group.items():
            report = check(env, tasks=TASKS, skip=("repeats", "episodes"))
            worst = {
                it.hole: it.severity for it in report.findings if it.severity is not Severity.NOTE
            }
            found += bool(worst)
            named = ", ".join(f"{hole} ({severity})" for hole, severity in worst.items())
            print(f"{name:40} {named or 'nothing'}")
        print(f"{title}: {found} of {len(group)} with a hole or a warning\n")


if __name__ == "__main__":
    main()
