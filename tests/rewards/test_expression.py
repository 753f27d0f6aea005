"""Rewards as text: the same as in Python, and nothing else than rewards."""

import json
import random
import re
import sys
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import pytest

import rlvr
from rlvr.environment.registry import object_at
from rlvr.rewards.expression import PARTS, parse_reward

OWN = rlvr.Correct() + 0.5 * rlvr.Format("a...b")
NAMES = {"correct": rlvr.Correct(), "reward": OWN, **PARTS}
ATOMS = (
    "correct",
    "format('<a>...</a>', name='tags')",
    "overlong(20, 4)",
    "repetition(ngram=2)",
    "relative_length()",
    "length(100, correct=(2, 1), wrong=[-10, 0.5], exceeded=-3)",
)


def read(text: str) -> rlvr.Reward:
    return parse_reward(text, own=OWN, load=object_at)


def expression(rng: random.Random, atoms: list[str], depth: int) -> str:
    """A random expression that is a reward, each part at most once: names must differ."""
    kind = rng.randrange(7) if depth and len(atoms) > 1 else 0
    if kind == 0:
        return atoms.pop(rng.randrange(len(atoms)))
    inner = expression(rng, atoms, depth - 1)
    number = rng.choice(("2", "0.25", "-1", "1e-3", "(1 + 2*3)"))
    if kind in (1, 2) and atoms:
        return f"{inner} {'+-'[kind - 1]} ({expression(rng, atoms, depth - 1)})"
    return {
        3: f"{number}*({inner})",
        4: f"({inner}) * {number} - {number}",
        5: f"-({inner}).clip(-0.5, high=0.{depth})",
    }.get(kind, f"({inner}).gate(by=repetition(3, name='r{depth}').clip(0, 1))")


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_an_expression_is_the_reward_that_python_makes_of_it(count):
    """Bounds, parts and what records name it by: random ones beside `eval`, which tests alone may use."""
    rng = random.Random(count)
    for _ in range(count):
        text = expression(rng, list(ATOMS), 4)
        # In Python, the names of parts are calls.
        made, wanted = read(text), eval(text, {"__builtins__": {}}, NAMES)
        assert (str(made), made.bounds, made.names) == (str(wanted), wanted.bounds, wanted.names), (
            text
        )
        values = {leaf.name: rng.uniform(*leaf.bounds) for leaf in made.leaves}
        assert made.evaluate(values) == wanted.evaluate(values), text


@pytest.mark.parametrize(
    ("text", "character", "says"),
    [
        ("corect", 1, "there is no part 'corect'.*did you mean 'correct'"),
        ("correct + __import__('os').system('x')", 11, "there is no part '__import__'"),
        ("correct.__class__.__base__", 1, "none of what an expression may have"),
        ("correct.verify('x')", 1, "a reward has gate and clip, not 'verify'"),
        ("correct ** 2", 1, "none of what an expression may have"),
        ("correct / 2", 1, "none of what an expression may have"),
        ("correct + (lambda: 1)()", 11, "none of what an expression may have"),
        ("[correct for _ in 'ab']", 1, "none of what an expression may have"),
        ("correct if 1 else reward", 1, "none of what an expression may have"),
        ("é + correct", 1, "there is no part 'é'"),
        ("format('é...é') + nothing", 19, "there is no part 'nothing'"),
        ("correct\n  + ", r"\d+", "no expression"),
        ("correct) + (correct", 8, "no expression .*unmatched"),
        ("(correct", 1, "no expression .*never closed"),
        (" ", 1, "it is empty"),
        ("correct\x00", r"\d+", "no expression|cannot be read"),
        ("1 + 2", 1, "int 3 alone is no reward"),
        ("correct + 'a'", 1, "cannot be added to a reward"),
        ("'a' * 99999999", 1, "'a' is neither a number nor a part"),
        ("(1, 2) * 99999999 + correct", 1, "neither a number nor a part"),
        ("True * correct + (True + True)", 19, "neither a number nor a part"),
        ("1e999 * correct", 1, "scaled by a finite number"),
        ("9" * 3000 + " * correct", 1, "scaled by a finite number"),
        ("correct * correct", 1, "to multiply two, use gate"),
        ("correct + correct", 1, "two parts"),
        ("correct(1)", 1, "takes no arguments"),
        ("overlong(5, 9)", 1, "cache=9 is more than max_tokens=5"),
        ("correct + overlong(5)", 11, "missing a required argument: 'cache'; Overlong takes max_tokens"),
        ("correct.clip(1, 0)", 1, "must be finite numbers and in order"),
        ("correct.gate(correct)", 1, "positional argument"),
        ("correct.gate(**{})", 14, "arguments are values, or NAME=VALUE"),
        (r"format('\boxed{...}')", 8, r"\\b is no backslash; double it, or write r"),
        ("-" * 3000 + "correct", 1, "cannot be read|deeper"),
        ("(" * 3000 + "correct", r"\d+", "too many nested parentheses"),
        (" + ".join(["correct"] * 200), 1, "deeper than 100"),
        ("correct + " * 900 + "1", 4001, "at most 4000"),
        ("no/such/file.py:Part() + correct", 1, "no part of a reward|there is no file"),
        ("rlvr.types:Task + correct", 1, "a part is a class on rlvr.Part"),
    ],
)  # fmt: skip
def test_what_is_no_reward_is_refused_at_its_character(text, character, says):
    """A reward comes from a command, a file of settings or a record: it composes, and can do nothing else."""
    with pytest.raises(
        rlvr.UsageError, match=f"(?i)^reward .*, character {character}: .*({says})"
    ) as caught:
        read(text)
    assert "\n" not in str(caught.value)


HOSTILE = (
    "os", "__builtins__", "eval", "open('/etc/passwd').read()", "__import__('os').system('id')",
    "correct.__class__", "correct.__class__.__mro__[1].__subclasses__()", "correct.verify('x')",
    "().__class__.__base__", "(lambda: 1)()", "[correct for _ in 'ab']", "{correct: 1}", "{1, 2}",
    "f'{correct}'", "b'x'", "1j", "...", "correct[0]", "correct and reward", "not correct",
    "correct == 1", "correct if 1 else reward", "~correct", "correct @ correct", "9 ** 9 ** 9",
    "correct // 2", "correct % 2", "1 << 99999", "'a' * 999999999", "exec('x=1')", "globals()",
    "print(correct)", "format.__init__.__globals__", "overlong.mro()", "(x := correct)",
    "lambda: correct", "*correct", "type(correct)", "getattr(correct, 'name')", "breakpoint()",
)  # fmt: skip
AROUND = (
    "{}",
    "correct + {}",
    "2*({})",
    "overlong({}, 4)",
    "correct.clip(0, {})",
    "correct.gate(by={})",
)


def test_a_hostile_text_is_refused_in_one_line_where_it_stands(acted):
    """240 of them: nothing runs, opens a file or imports; the character is that of the text that is no reward."""
    for hostile, around in product(HOSTILE, AROUND):
        text = around.format(hostile)
        with pytest.raises(rlvr.UsageError) as caught:
            read(text)
        error = str(caught.value)
        at = re.search(r", character (\d+): ", error)
        assert at is not None, text
        assert "\n" not in error, text
        # Where Python's own parser refuses, the place is its; else it is in the hostile part, or the
        # call or operation that this part made impossible.
        assert 1 <= int(at[1]) <= len(text) + 1, (text, error)
        assert not acted, (text, acted)
    for depth in (400, 5000, 100_000):
        for text in (
            "(" * depth + "correct" + ")" * depth,
            "-" * depth + "correct",
            "1" * depth + "*correct",
        ):
            with pytest.raises(rlvr.UsageError, match=r", character \d+: [^\n]*$"):
                read(text)


@pytest.fixture
def acted():
    """What Python's audit hook saw of commands, files, imports and code, while the test ran."""
    seen: list[str] = []
    watching = [True]
    events = {
        "exec",
        "open",
        "import",
        "os.system",
        "os.exec",
        "subprocess.Popen",
        "socket.connect",
    }

    def hook(event, args):
        if watching and event in events:
            seen.append(event)

    with pytest.raises(rlvr.UsageError):
        read("warm + up")  # what is imported late
    sys.addaudithook(hook)  # for ever: there is no way to take one away
    yield seen
    watching.clear()


@dataclass(frozen=True)
class Brief(rlvr.Part):
    """1 for no text, down to 0 at `limit` characters."""

    limit: int = 10
    name: str = "brief"
    bounds: ClassVar = (0.0, 1.0)

    def value(self, task, completion, verdict):
        return max(0.0, 1 - len(completion.text) / self.limit)


def test_a_part_of_ones_own_stands_at_its_place_in_a_file(tmp_path):
    """With arguments and without; a colon in a text is none."""
    place = f"{__name__}:Brief"
    assert str(read(f"correct - {place}(limit=3) + format(':a:B...')")) == str(
        rlvr.Correct() - Brief(3) + rlvr.Format(":a:B...")
    )
    assert read(place).names == ("brief",)
    (tmp_path / "half_parts.py").write_text("import rlvr\nhalf = 0.5 * rlvr.Correct()\n")
    assert read(f"{tmp_path}/half_parts.py:half + 1").bounds == (1.0, 1.5)


def test_an_environment_takes_it_as_an_option_and_keeps_it(tmp_path):
    """So that records, replay, settings of a run and mixtures have it without more."""
    text = "reward - 1 + 0.1*format('a...')"
    for name in ("arithmetic-v1", "arithmetic-v1:0.5 kk-v4:0.5"):
        env = rlvr.make(name, reward=text)
        assert env.config["reward"] == text
        again = rlvr.make(env.id, **json.loads(json.dumps(env.config)))
        assert str(again.reward) == str(env.reward)
        assert "format" in str(env.reward)
    changed = rlvr.make("arithmetic-v1", reward=text).with_reward(rlvr.Correct())
    assert "reward" not in changed.config
    guess = rlvr.make("guess-v1", reward="2*correct - 1")  # of several turns
    task = guess.task(0)
    episode = guess.open(task)
    episode.reply(f"[{task.reference}]")
    with episode:
        assert guess.score(task, episode.completion()).total == 1


def test_a_record_names_no_code_by_its_reward(tmp_path):
    """A part in a file is code: replay asks for it to be allowed, as for an environment."""
    (tmp_path / "mine.py").write_text("raise SystemExit('run')\n")
    from rlvr.environment.registry import only_places

    with only_places([]), pytest.raises(rlvr.UsageError, match="is code that a record names"):
        rlvr.make("arithmetic-v1", reward=f"{tmp_path}/mine.py:part")
    with pytest.raises(rlvr.UsageError, match="it is empty"):
        rlvr.make("arithmetic-v1", reward="")  # not the environment's own
