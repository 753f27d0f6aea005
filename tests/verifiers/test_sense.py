"""What says nothing is refused, whatever the instructions; the form of an answer is no reason."""

import random
import re
import time

import pytest

import rlvr
from rlvr.types import Task
from rlvr.verifiers.instructions import InstructionVerifier
from rlvr.verifiers.instructions.sense import least_words, senseless, topic_share

FILLER = (
    "The old harbour town wakes slowly while the fishermen mend their nets and the gulls circle above a quiet stone "
    "pier where children once waited for boats. In the evening a lamp burns in the window of the inn, and the "
    "travellers tell each other about the storms of the year."
)


def shuffled(text: str) -> str:
    words = re.findall(r"[A-Za-z]+", text)
    random.Random(3).shuffle(words)
    rest = iter(words)
    return re.sub(r"[A-Za-z]+", lambda _: next(rest), text)


def anagram(text: str) -> str:
    rng = random.Random(3)
    return re.sub(r"[A-Za-z]{3,}", lambda word: "".join(rng.sample(word[0], len(word[0]))), text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (" ".join("abcdefghijklmnopqrstuvwxyz"), "no-language"),
        ("river stone " + " ".join(f"x{i}" for i in range(20)), "no-language"),
        (anagram(FILLER), "no-language"),
        (shuffled(FILLER * 2), "no-order"),
        (
            "red orange yellow green blue indigo violet black white grey brown pink purple",
            "word-list",
        ),
        ("one two three *** " * 5, "repeats-itself"),
        ("I'm sorry, but I cannot help with that.", "refusal"),
        ("Sure! Here is the text you asked for.", "says-nothing"),
        ("ok", "says-nothing"),
    ],
)
def test_what_says_nothing_is_named(text: str, reason: str):
    """281 of 300 anagrams were paid, and 3 in 4 real responses with all words in another order."""
    assert senseless(text).partition(":")[0] == reason


@pytest.mark.parametrize(
    "text",
    [
        FILLER,
        "Paris.",
        '{"nickname": "Staffy"}',
        "- Luna\n- Bella\n- Max",
        "An old silent pond\nA frog jumps into the pond\nSplash! Silence again",
        "| name | age |\n|---|---|\n| Ada | 36 |\n| Bo | 9 |",
        "```python\nfor x in range(10):\n    print(x)\n```",
        "Der alte Hafen erwacht langsam, und die Fischer flicken ihre Netze, während die Möwen kreisen.",
        "La ville se réveille lentement pendant que les pêcheurs réparent leurs filets sur le quai.",
        "東京は日本の首都です。",
        FILLER.upper(),
        "I am sorry to hear about your loss. " + FILLER + " " + FILLER,
    ],
)
def test_no_form_is_refused(text: str):
    """Code, poems, tables, names, JSON, capitals and other languages."""
    assert senseless(text) == ""


def test_the_least_length_follows_from_the_request():
    """A name, a haiku, an essay; "15 different words" refused names for a dog."""
    asked = [{"kind": "punctuation:no_comma", "arguments": {}}]
    for prompt, text, right in (
        ("What is the capital of France?", "Paris.", True),
        ("Give me a nickname for a dog.", "Staffy", True),
        ("Write a haiku.", "An old silent pond / a frog jumps in / splash again", True),
        ("Write an essay on harbours.", "Harbours are nice.", False),
        ("Write an essay on harbours.", FILLER.replace(",", ""), True),
        ("Write an essay on harbours.", "Write an essay on harbours.", False),
    ):
        verdict = InstructionVerifier().verify(text, asked, Task("t", prompt))
        assert verdict.correct is right, (prompt, text, verdict)
    assert [least_words(one) for one in ("Write an essay.", "Write a haiku.", "Who?")] == [20, 5, 1]


def test_examples_of_the_training_tasks_make_sense_and_their_anagrams_do_not():
    """Each task's own answer is paid; with the letters of its words in another order it is not."""
    env = rlvr.make("iftrain-v4")
    tasks = [env.task(index) for index in range(25)]
    assert all(env.score(task, env.example(task)).verdict.correct for task in tasks)


def test_any_text_is_bounded():
    """0.5 CPU seconds for a megabyte, also for what makes the patterns look twice."""
    for unit in (
        "a ",
        "the ",
        "the, ",
        "x1 ",
        "ok ",
        "here is the ",
        "I'm ",
        "\n",
        "`",
        "```\n",
        "é",
    ):
        text = (unit * 500_000)[:1_000_000]
        began = time.process_time()
        senseless(text)
        assert time.process_time() - began < 0.5, unit


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("<<xqzt bvrf>>", False),
        ("* qwrt zxcv bnmp", False),
        ("P.S. qwrt zxcv bnmp", False),
        ("***\nxkcd vbnm fghj\n***", False),
        ("<<The Quiet Harbour>>", True),
        ("1. Yahweh (Hebrew)", True),
        ("* [name], [address]", True),
        ("P.S. Bring a coat.", True),
    ],
)
def test_a_part_of_letters_alone_is_no_part(part: str, says: bool):
    """A title, bullet, postscript or paragraph is read by itself, within an answer that says something."""
    text = f"The harbour wakes slowly while fishermen mend their nets on the pier.\n\n{part}\n\nBoats return."
    assert (senseless(text) == "") is says


def test_the_topic_is_told_and_decides_nothing():
    """3.4 % of honest long answers share no word with their request."""
    asked = [{"kind": "punctuation:no_comma", "arguments": {}}]
    for text, share in (
        ("The harbour wakes while old boats return from the sea.", 0.25),
        ("My grandmother bakes bread in a village on the hill.", 0),
    ):
        task = Task("t", "Describe the harbour; no commas, please.", asked)
        verdict = InstructionVerifier().verify(text, asked, task)
        assert verdict.correct, verdict
        assert verdict.detail["topic"] == share
    assert topic_share("A harbour.", "The harbour of Lisbon?") == 0.5
    assert topic_share("A harbour.", "Why?") is None
