"""The ready-made parts, by hand: each number here can be worked out from the docstring and its paper."""

import functools
import math
import pickle
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlvr
from rlvr import (
    Completion,
    Correct,
    Format,
    Language,
    Length,
    Majority,
    Outcome,
    Overlong,
    Part,
    RelativeLength,
    Repetition,
    UsageError,
    Verdict,
)
from tests.rewards.parts import OURS, RIGHT, TASK, WRONG, bounded, value

# ----------------------------------------------------------------------------------------- Overlong


@pytest.mark.parametrize(
    ("max_tokens", "cache", "length", "punishment"),
    [
        (20480, 4096, 0, 0),
        (20480, 4096, 16383, 0),
        (20480, 4096, 16384, 0),  # L_max - L_cache: still free
        (20480, 4096, 16385, -1 / 4096),  # the first token beyond
        (20480, 4096, 18432, -0.5),  # the middle of the cache
        (20480, 4096, 20479, -4095 / 4096),
        (20480, 4096, 20480, -1),  # L_max: the line ends here
        (20480, 4096, 20481, -1),  # and stays
        (20480, 4096, 10**12, -1),
        (100, 20, 80, 0),
        (100, 20, 85, -0.25),
        (100, 1, 99, 0),  # a cache of one token: from nothing to everything
        (100, 1, 100, -1),
        (100, 100, 0, 0),  # all of it cache
        (100, 100, 1, -0.01),
        (1, 1, 0, 0),
        (1, 1, 1, -1),
    ],
)
def test_overlong_is_equation_13_of_dapo(
    max_tokens: int, cache: int, length: int, punishment: float
):
    """arXiv:2503.14476: 0 up to L_max - L_cache, ((L_max - L_cache) - L) / L_cache up to L_max, then -1."""
    assert value(Overlong(max_tokens, cache), tokens=length) == punishment


@given(st.integers(1, 30_000), st.data())
def test_overlong_is_a_line_between_its_ends(max_tokens: int, data: st.DataObject):
    """By exact fractions; never better for being longer."""
    cache, length = data.draw(st.integers(1, max_tokens)), data.draw(st.integers(0, 40_000))
    line = Fraction(max_tokens - cache - length, cache)
    part = Overlong(max_tokens, cache)
    assert value(part, tokens=length) == float(max(min(line, 0), -1))
    assert value(part, tokens=length + 1) <= value(part, tokens=length)
    assert part.bounds == (-1, 0)


@pytest.mark.parametrize(
    ("max_tokens", "cache", "message"),
    [
        (0, 1, "Overlong: max_tokens is 0; it must be a whole number of at least 1"),
        (-5, 1, "max_tokens is -5"),
        (100.0, 20, r"max_tokens is 100\.0"),
        (math.nan, 20, "max_tokens is nan"),
        (True, 1, "max_tokens is True"),
        ("100", 20, "max_tokens is '100'"),
        (None, 20, "max_tokens is None"),
        (100, 0, "Overlong: cache is 0; it must be a whole number of at least 1"),
        (100, -1, "cache is -1"),
        (100, 0.2, r"cache is 0\.2"),
        (100, 101, "cache=101 is more than max_tokens=100; it is a part of it"),
    ],
)
def test_overlong_refuses_settings_that_mean_nothing(max_tokens: Any, cache: Any, message: str):
    """A cache of 0 would divide by it; a share instead of a number of tokens is the likely slip."""
    with pytest.raises(UsageError, match=message):
        Overlong(max_tokens, cache)


def test_settings_may_be_numpys():
    """As they come out of a config read with numpy."""
    assert value(Overlong(np.int64(100), np.int64(20)), tokens=90) == -0.5


@pytest.mark.parametrize("part", [Overlong(100, 20), Length(100)], ids=lambda part: part.name)
def test_lengths_are_never_guessed(part: Part):
    """Neither from characters nor by tokenising again."""
    assert part.needs_length
    with pytest.raises(
        rlvr.RewardError, match=f"part '{part.name}' of task 'task-7' reads length_tokens"
    ):
        value(part, "some text")


# ------------------------------------------------------------------------------------------ Length


@pytest.mark.parametrize(
    ("length", "verdict", "reward"),
    [
        (0, RIGHT, 1.0),
        (250, RIGHT, 0.5 + 0.5 * (1 + math.sqrt(0.5)) / 2),  # cos(pi / 4)
        (500, RIGHT, 0.75),
        (1000, RIGHT, -1.0),  # as long as may be is too long, right or not
        (1001, RIGHT, -1.0),
        (0, WRONG, -1.0),
        (500, WRONG, -0.75),
        (1000, WRONG, -1.0),
        (10**9, WRONG, -1.0),
        (500, Verdict("unparsed"), -0.75),  # no answer is no right answer
        (500, Verdict("wrong", 0.9), -0.75),  # nor is a part of one
    ],
)
def test_length_runs_along_half_a_cosine(length: int, verdict: Verdict, reward: float):
    """Right: from 1 to 0.5, short is better.  Wrong: from -1 to -0.5, long is better."""
    assert value(Length(1000), tokens=length, verdict=verdict) == pytest.approx(reward)


@given(st.integers(1, 5000), st.integers(0, 6000), st.booleans())
def test_the_right_one_is_better_at_any_length(most: int, length: int, is_right: bool):
    """Short is better if right, long is better if wrong; at the limit both have the least."""
    part = Length(most)
    now, later = (
        value(part, tokens=tokens, verdict=RIGHT if is_right else WRONG)
        for tokens in (length, min(length + 1, max(most - 1, length)))
    )
    if length >= most:
        assert now == -1
        return
    assert later <= now + 1e-12 if is_right else later >= now - 1e-12
    assert 0.5 <= now <= 1 if is_right else -1 <= now <= -0.5


ENDS = st.tuples(st.integers(-10, 10), st.integers(-10, 10))


@given(ENDS, ENDS, st.integers(1, 200), st.integers(0, 250), st.booleans())
def test_length_with_values_of_ones_own(
    correct: tuple, wrong: tuple, most: int, length: int, is_right: bool
):
    """arXiv:2502.03373, appendix, has r_c = 2 to 1 and r_w = -10 to 0: here any, by another cosine."""
    part = Length(most, correct=correct, wrong=wrong, exceeded=-10)
    first, last = correct if is_right else wrong
    curve = last + (first - last) * (1 + mpmath.cos(mpmath.pi * length / most)) / 2
    reward = value(part, tokens=length, verdict=RIGHT if is_right else WRONG)
    assert reward == pytest.approx(float(curve) if length < most else -10, abs=1e-9)
    assert part.bounds == (-10, max(*correct, *wrong))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_tokens": 0}, "Length: max_tokens is 0"),
        (
            {"correct": 1.0},
            r"Length: correct is 1\.0; it must be two numbers, at no length and at max_tokens",
        ),
        ({"correct": (1.0,)}, r"correct is \(1\.0,\)"),
        ({"wrong": (0.0, 1.0, 2.0)}, "wrong is"),
        ({"wrong": ("0", "1")}, "wrong is"),
        ({"wrong": "01"}, "wrong is '01'"),
        ({"correct": (math.nan, 1.0)}, r"correct is \(nan, 1\.0\)"),
        ({"exceeded": -math.inf}, "Length: exceeded is -inf; it must be a finite number"),
        ({"exceeded": None}, "exceeded is None"),
    ],
)
def test_length_refuses_what_is_no_curve(settings: dict, message: str):
    """When it is written, not when the first completion is scored."""
    with pytest.raises(UsageError, match=message):
        Length(**({"max_tokens": 100} | settings))


# --------------------------------------------------------------------------------------- Repetition


@pytest.mark.parametrize(
    ("ngram", "text", "share"),
    [
        (1, "Yes yes, YES", Fraction(1, 3)),  # case does not count, a comma does
        (1, "straße STRASSE", Fraction(1, 2)),
        (1, "哈哈哈哈", Fraction(3, 4)),  # no spaces: each sign is a word
        (2, "哈哈哈哈", Fraction(2, 3)),
        (1, "ok好ok好", Fraction(1, 2)),
        (1, "", 0),
        (1, " \n\t ", 0),
        (1, "\x00 \x00", Fraction(1, 2)),
        (1, "\ud800 \ud800", Fraction(1, 2)),
    ],
)
def test_repetition_counts_ngrams_that_were_there_before(ngram: int, text: str, share: Fraction):
    """-(1 - distinct / all), arXiv:2502.03373."""
    assert value(Repetition(ngram), text) == pytest.approx(-float(share))


@given(st.integers(1, 5), st.lists(st.sampled_from(["a", "b", "lot"]), max_size=12))
def test_repetition_is_the_share_of_ngrams_seen_before(ngram: int, words: list[str]):
    """Counted one by one, each held against all that came before it."""
    grams = [words[i : i + ngram] for i in range(len(words) - ngram + 1)]
    again = sum(gram in grams[:i] for i, gram in enumerate(grams))
    share = again / len(grams) if grams else 0
    assert value(Repetition(ngram), " ".join(words)) == pytest.approx(-share)


def test_repetition_refuses_no_words():
    """An n-gram has at least one."""
    with pytest.raises(
        UsageError, match="Repetition: ngram is 0; it must be a whole number of at least 1"
    ):
        Repetition(0)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("a " * 500_000, 1.0),
        ("哈" * 350_000, 1.0),
        ("a" * 1_000_000, 0.0),
        (" ".join(map(str, range(150_000))), 0.0),
    ],
    ids=["words", "signs", "one word", "distinct"],
)
def test_a_megabyte_of_repetition_takes_a_moment(text: str, share: float):
    """A completion may be all repetition; that is what the part is for."""
    with bounded():
        assert value(Repetition(), text) == pytest.approx(-share, abs=1e-4)


# ------------------------------------------------------------------------------------------ Format

THINK = "<think>...</think> <answer>...</answer>"


@pytest.mark.parametrize(
    ("template", "text", "holds"),
    [
        # "..." is any text that is not blank
        (THINK, "<think>1 + 1</think> <answer>2</answer>", True),
        (THINK, "<think>1 +\n1</think> <answer>\x002\ud800</answer>", True),
        (THINK, "<think> \n </think> <answer>2</answer>", False),
        # a space is any white space or none
        (THINK, "<think>1</think> so <answer>2</answer>", False),
        # no gap: nothing in between
        ("<a>...</a><b>...</b>", "<a>1</a> <b>2</b>", False),
        ("<a>...</a><b>...</b>", "<a>1</a><b>2</b>", True),
        # each literal just as often as in the template
        (THINK, "<think>say <answer></think> <answer>2</answer>", False),
        ("** ... **", "** bold **", True),
        ("** ... **", "** bold ** and **", False),
        ("** ... **", "** bold", False),
        ("Answer: ... Answer: ...", "Answer: 1 Answer: 2", True),
        ("Answer: ... Answer: ...", "Answer: 1", False),
        ("\\boxed{...}", "\\boxed{2}", True),
        ("\\boxed{...}", "\\boxed{\\frac{1}{2}}", False),
        # in their order
        (THINK, "<answer>2</answer> <think>1</think>", False),
        # nothing before or after, unless the template says so
        (THINK, "<think>1</think> <answer>2</answer> Done.", False),
        ("...Answer: ...", "Let me think.\nAnswer: 2", True),
        ("...Answer: ...", "Answer: 2", True),
        ("...Answer: ...", "Answer:", True),
        ("... Answer: 2", "Answer: 2", True),
        ("Answer: 2", "Answer:\n2", True),
        ("Answer: 2", "Answer: 3", False),
        (THINK, "", False),
    ],
)
def test_a_template_says_what_stands_where(template: str, text: str, holds: bool):
    """Each rule of the docstring."""
    assert value(Format(template), text) == float(holds)


FILLING = st.text("xy. \n", max_size=4)
TAGS = ("<a>", "</a>", "<b>", "</b>")


@given(
    FILLING,
    FILLING,
    st.text(" \n\t", max_size=2),
    st.sampled_from(("", "z", *TAGS)),
    st.integers(0, 4),
)
def test_a_template_holds_for_what_it_was_filled_with(
    first: str, second: str, gap: str, extra: str, place: int
):
    """Two fillings that are not blank, white space in the gap, and no literal once more anywhere."""
    pieces = ["<a>" + first + "</a>", gap, "<b>" + second + "</b>"]
    text = "".join(pieces)
    assert value(Format("<a>...</a> <b>...</b>"), text) == bool(first.strip() and second.strip())
    cuts = (0, len("<a>"), len(pieces[0]), len(pieces[0] + gap), len(text))
    spoilt = text[: cuts[place]] + extra + text[cuts[place] :]
    inside = extra == "" or (extra == "z" and place == 1)
    if not inside:
        assert value(Format("<a>...</a> <b>...</b>"), spoilt) == 0


@pytest.mark.parametrize("form", ["", "...", " ... ...  "])
def test_a_template_without_literals_holds_for_everything(form: str):
    """So it says nothing."""
    with pytest.raises(UsageError, match="a template needs literal text around each"):
        Format(form)


@pytest.mark.parametrize("form", [None, 5, b"<think>...", ["<think>"]])
def test_a_form_is_a_predicate_or_a_template(form: Any):
    """Not a pattern, not a list of tags."""
    with pytest.raises(
        UsageError, match=r"give a function str -> bool, or a template with '\.\.\.'"
    ):
        Format(form)


@pytest.mark.parametrize(
    ("form", "text", "held"), [(str.isascii, "abc", 1.0), (str.isascii, "é", 0.0), (len, "ab", 1.0)]
)
def test_a_predicate_may_say_it_in_its_own_way(form: Any, text: str, held: float):
    """Whatever is true holds: a match object, a length."""
    assert value(Format(form), text) == held


@pytest.mark.parametrize(
    "text", ["<think>" * 150_000, "<think>" + "x" * 1_000_000, "</answer>" * 110_000]
)
def test_a_megabyte_of_tags_takes_a_moment(text: str):
    """Where a regular expression would go back and forth."""
    with bounded(0.5):
        assert value(Format(THINK), text) == 0.0


# -------------------------------------------------------------------------------- group-level parts


def of_group(
    part: rlvr.GroupPart, completions: list[Completion], verdicts: list[Verdict]
) -> list[float | None]:
    """Each completion's value, through the composer; None where it was unscored."""
    reward = Correct() * 0 + part
    observations = [reward.observe(TASK, c, v) for c, v in zip(completions, verdicts, strict=True)]
    return [score.parts.get(part.name) for score in reward.combine(TASK, completions, observations)]


@pytest.mark.parametrize(
    ("lengths", "verdicts", "values"),
    [
        ([10, 20, 30], [WRONG, RIGHT, WRONG], [0.0, 0.0, -0.5]),  # short and wrong earns nothing
        ([10, 25, 30], [RIGHT, WRONG, RIGHT], [0.5, -0.25, -0.5]),
        (
            [10, 20, 30],
            [OURS, RIGHT, RIGHT],
            [None, 0.5, -0.5],
        ),  # the lost one is not compared with
        ([10, 30], [Verdict("wrong", 0.9), Verdict("unparsed")], [0.0, -0.5]),
    ],
)
def test_relative_length_compares_siblings(
    lengths: list[int], verdicts: list[Verdict], values: list[float | None]
):
    """Kimi k1.5 (arXiv:2501.12599): 0.5 - (L - min) / (max - min), and never more than 0 for a wrong one."""
    assert of_group(RelativeLength(), [Completion("", n) for n in lengths], verdicts) == values


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from((RIGHT, WRONG, OURS))), min_size=1, max_size=7
    )
)
def test_relative_length_by_exact_fractions(members: list[tuple[int, Verdict]]):
    """Over the scored ones alone, whatever their number and order."""
    scored = [length for length, verdict in members if verdict is not OURS]
    expected: list[float | None] = []
    for length, verdict in members:
        if verdict is OURS:
            expected.append(None)
            continue
        span = max(scored) - min(scored)
        share = Fraction(1, 2) - Fraction(length - min(scored), span) if span else Fraction(0)
        expected.append(float(share if verdict is RIGHT else min(share, 0)))
    lengths, verdicts = zip(*members, strict=True)
    values = of_group(RelativeLength(), [Completion("", n) for n in lengths], list(verdicts))
    assert values == pytest.approx(expected)


def test_relative_length_needs_every_length():
    """But those of lost completions, which are not read."""
    with pytest.raises(
        rlvr.RewardError, match="part 'relative_length' of task 'task-7' reads length_tokens"
    ):
        of_group(RelativeLength(), [Completion("", 1), Completion("")], [RIGHT, RIGHT])
    assert of_group(RelativeLength(), [Completion("", 1), Completion("")], [RIGHT, OURS]) == [
        0.0,
        None,
    ]


@pytest.mark.parametrize(
    ("answers", "values"),
    [
        (["x = 2", "X=2", "x=3"], [1, 1, 0]),  # spaces and case do not count
        (["0.5", "1/2", "3"], [1, 1, 1]),  # but the form does
    ],
)
def test_majority_is_the_groups_own_answer(answers: list[str | None], values: list[float]):
    """TTRL (arXiv:2504.16084): no reference is looked at, so that WRONG counts like CORRECT."""
    verdicts = [Verdict("unparsed" if a is None else "wrong", answer=a) for a in answers]
    assert of_group(Majority(), [Completion("")] * len(answers), verdicts) == values


@given(st.lists(st.sampled_from(["4", "5", "6", None, OURS]), min_size=1, max_size=8))
def test_majority_is_what_no_other_answer_beats(answers: list):
    """Ties all count; no answer is no vote, and what was lost has none."""
    verdicts = [a if a is OURS else Verdict("wrong", answer=a) for a in answers]
    voters = [a for a in answers if a not in (None, OURS)]
    expected = [
        None
        if a is OURS
        else float(a is not None and all(voters.count(a) >= voters.count(b) for b in voters))
        for a in answers
    ]
    assert of_group(Majority(), [Completion("")] * len(answers), verdicts) == expected


def test_majority_takes_a_key():
    """Here 0.5 and 1/2 are one answer."""
    verdicts = [Verdict("wrong", answer=a) for a in ("0.5", "1/2", "3")]
    assert of_group(Majority(key=Fraction), [Completion("")] * 3, verdicts) == [1, 1, 0]
    assert of_group(Majority(key={"3": 3}.get), [Completion("")] * 3, verdicts) == [
        0,
        0,
        1,
    ]  # None: no answer
    with pytest.raises(
        UsageError, match="Majority: key is 'strip'; give a function of the answer's text"
    ):
        Majority(key="strip")


# -------------------------------------------------------------------------------------- all of them


@functools.cache
def parts() -> list[rlvr.Reward]:
    """One of each; `Language` reads its tables, which takes a second."""
    of_one = [Format(THINK), Format(str.isascii), Overlong(100, 20), Repetition(2), Length(100)]
    return [*of_one, Language("en"), RelativeLength(), Majority()]


def test_parts_travel():
    """To workers, inside an environment."""
    for part in parts():
        assert pickle.loads(pickle.dumps(part)) == part
        assert len({part, pickle.loads(pickle.dumps(part))}) == 1, part


def test_a_part_takes_another_name():
    """Two of a kind in one reward need two."""
    for part in parts():
        again = type(part)(**(vars(part) | {"name": "again"}))
        assert (part + again).names == (part.name, "again")


@given(
    st.text() | st.text(st.characters(categories=["Cs", "Cc", "Mn", "Lo", "Zs"])),
    st.integers(0),
    st.sampled_from(Outcome),
)
def test_whatever_the_completion_a_part_stays_inside_its_bounds(
    text: str, tokens: int, outcome: Outcome
):
    """`observe` would raise."""
    reward = sum(parts()[2:6]) + parts()[0]
    verdict = Verdict(outcome)
    seen = reward.observe(TASK, Completion(text, tokens), verdict)
    assert len(seen.values) == (0 if outcome is Outcome.UNSCORED else 5)
