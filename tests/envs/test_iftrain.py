"""iftrain-v4: every task has an answer that follows it, and nothing said is not paid."""

from collections import Counter
from itertools import islice
from random import Random

import pytest

import rlvr
from rlvr.envs.instruction_tasks import ASKS, REQUESTS, TOPICS, Draft, in_words
from rlvr.verifiers.instructions import KINDS, InstructionVerifier

TASKS = list(islice(rlvr.make("iftrain-v4").tasks(), 120))
LEFT_OUT = {
    "language:response_language",  # its answers would be in other languages
    "detectable_format:constrained_response",  # any of three sentences is right, whatever is asked
    "copy:copy",  # another name of copy:copying_simple
}


def test_every_kind_for_training_is_asked():
    """IFEval's and IFTrain's, beside the three that are left out for a reason."""
    assert {ask.kind for ask in ASKS} == {
        kind.name for kind in KINDS.values() if kind.family in ("ifeval", "iftrain")
    } - LEFT_OUT


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.kind)
def test_each_kind_can_be_followed(ask):
    """An instruction that no answer follows would teach that nothing pays."""
    followed = 0
    for seed in range(10):
        rng = Random(seed)
        topic = rng.choice(TOPICS)
        draft = Draft(rng, topic, rng.choice(REQUESTS).format(topic))
        given = dict(ask.draw(draft))
        ask.follow(draft, given)
        task = rlvr.Task("draft", f"{draft.request} {in_words(ask, given)}")
        asked = [{"kind": ask.kind, "arguments": given}]
        followed += InstructionVerifier().verify(draft.text(), asked, task).correct
    assert followed >= 5


def test_examples_are_right_and_the_prompt_says_what_is_asked():
    """Each argument stands in the prompt."""
    env = rlvr.make("iftrain-v4")
    for task in TASKS:
        assert env.score(task, env.example(task)).total == 1
        assert env.score(task, task.prompt).total == 0
        for one in task.reference:
            for value in one["arguments"].values():
                assert all(
                    str(part) in task.prompt
                    for part in (value if isinstance(value, list) else [value])
                )
    assert {len(task.reference) for task in TASKS} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    "text",
    [
        "ok",
        "x",
        "",
        "My answer is yes.",
        "The quick brown fox jumps over the lazy dog while seven tired sailors watch from a distant wooden pier.",
    ],
)
def test_a_text_about_nothing_is_not_paid(text: str):
    """One instruction at least names something of its own."""
    env = rlvr.make("iftrain-v4")
    assert sum(env.score(task, text).total for task in TASKS) == 0


def test_answers_to_other_tasks_are_hardly_ever_right():
    """A policy with one text for everything earns a few percent at most."""
    env = rlvr.make("iftrain-v4")
    paid = Counter(other.id for other in TASKS[:12] for task in TASKS if task is not other
                   and env.score(task, env.example(other)).verdict.correct)  # fmt: skip
    assert max(paid.values(), default=0) <= 0.08 * len(TASKS)


def test_splits_share_no_task():
    """A hash of what is asked decides."""
    other = {task.prompt for task in islice(rlvr.make("iftrain-v4", split="test").tasks(), 60)}
    assert not other & {task.prompt for task in TASKS}
    with pytest.raises(rlvr.UsageError, match="instructions"):
        rlvr.make("iftrain-v4", instructions=6)
