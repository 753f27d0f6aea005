"""Texts found by search: six holes that no list of exploits names, and verifiers that have none."""

import json
import re
from random import Random

import pytest

import rlvr
from rlvr.testing import check
from rlvr.testing.code import constants_of
from rlvr.testing.searched import search_texts


def _answer(text):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[-1] if found else None


class Sum(rlvr.Environment):
    """An honest sum; each subclass judges in its own way."""

    def task(self, index):
        rng = rlvr.seeded("sum", self.split, index)
        a, b = rng.randint(1000, 9999), rng.randint(1000, 9999)
        prompt = f"What is {a} + {b}? Answer in <answer> tags."
        return rlvr.Task(f"{self.id}/{index}", prompt, str(a + b))

    def example(self, task):
        return f"<answer>{task.reference}</answer>"

    def verify(self, task, completion):
        answer = _answer(completion)
        is_right = answer is not None and self.agree(answer, task.reference)
        return rlvr.Verdict("correct" if is_right else "wrong", why="sum")

    def agree(self, answer, right):
        return answer.strip() == right


class OwnTolerance(Sum):
    """The answer says how far off it may be."""

    def agree(self, answer, right):
        found = re.fullmatch(r"(-?\d+)(?: ± (\d+))?", answer)
        return found is not None and abs(int(found[1]) - int(right)) <= int(found[2] or 0)


class KeysThatAreThere(Sum):
    """An object without the key has nothing that is wrong."""

    def agree(self, answer, right):
        try:
            read = json.loads(answer)
        except ValueError:
            return False
        return isinstance(read, dict) and all(str(read[k]) == right for k in read if k == "sum")


class Rounded(Sum):
    """A unit divides the answer away."""

    def agree(self, answer, right):
        found = re.fullmatch(r"(\d+) ?(thousand|million)?", answer)
        scale = {"thousand": 10**3, "million": 10**6}
        return found is not None and int(found[1]) == round(int(right) / scale.get(found[2], 1))


class ErrorsAreRight(Sum):
    """A division by zero is taken for a match."""

    def agree(self, answer, right):
        found = re.fullmatch(r"(\d+)(?:/(\d+))?", answer)
        try:
            return found is not None and int(found[1]) / int(found[2] or 1) == int(right)
        except ZeroDivisionError:
            return True


class Comments(Sum):
    """What begins with # is left out, and all of nothing is right."""

    def agree(self, answer, right):
        parts = [part for part in answer.split(";") if not part.strip().startswith("#")]
        return all(part.strip() == right for part in parts)


class Ranges(Sum):
    """A range is right if the answer lies in it."""

    def agree(self, answer, right):
        found = re.fullmatch(r"range\((\d+), (\d+)\)", answer)
        return found is not None and int(found[1]) <= int(right) < int(found[2])


PLANTED = (OwnTolerance, KeysThatAreThere, Rounded, ErrorsAreRight, Comments, Ranges)


def _search(env, seed):
    tasks = [env.task(index) for index in range(3)]

    def are_correct(task, texts):
        return [env.verify(task, text).correct for text in texts]

    return search_texts(
        constants_of(env), tasks, ("<answer>", "</answer>"), are_correct, Random(seed)
    )


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_hole_is_found(planted):
    """Each within 5,000 texts; the text is right at three sums that differ."""
    env = planted()
    text = _search(env, 0)
    assert text is not None
    assert all(env.verify(env.task(index), text).correct for index in range(3))


def test_an_honest_verifier_raises_no_alarm():
    """5,000 texts at each of several seeds are paid nowhere."""
    assert [_search(Sum(), seed) for seed in range(3)] == [None] * 3


@pytest.mark.slow
def test_check_names_the_text():
    """As a hole of its own, with the tasks that accept it."""
    report = check(Comments(), tasks=4, only=("exploits",))
    [finding] = [it for it in report.findings if it.hole == "searched"]
    assert "whose answers differ" in finding.got
