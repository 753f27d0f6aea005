"""Rewards compose by arithmetic: bounds hold, entries sum to the total, and whatever goes wrong is named."""

import copy
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

import rlvr
from rlvr import Completion, Correct, Outcome, Part, Reward, RewardError, Task, UsageError, Verdict
from rlvr.verifiers.math import GSM8K, MathVerifier
from tests.rewards.parts import (
    OURS,
    RIGHT,
    TEXT,
    WRONG,
    A,
    B,
    C,
    Column,
    Given,
    Tokens,
    refusal,
    scored,
)

# ------------------------------------------------------------------------------------------ by hand


def test_each_part_says_what_it_added():
    """1 + 0.1 * 0.5 - 2 * 0.25 = 0.55."""
    score = scored(Correct() + 0.1 * A - 2 * B, {"a": 0.5, "b": 0.25})
    assert score.parts == {"correct": 1.0, "a": 0.05, "b": -0.5}
    assert score.total == pytest.approx(0.55)
    assert score.verdict is RIGHT


def test_partial_credit_is_the_verdicts_value():
    """WRONG with a value of 0.25 earns 0.25, and stays wrong."""
    score = scored(2 * Correct(), verdict=Verdict("wrong", 0.25))
    assert (score.total, score.verdict.outcome) == (0.5, Outcome.WRONG)


def test_a_gate_takes_what_it_does_not_let_through():
    """2 * 0.75 through a gate half open: 1.5 came, 0.75 went."""
    assert scored((2 * A).gate(by=B), {"a": 0.75, "b": 0.5}).parts == {"a": 1.5, "gate:b": -0.75}
    assert scored(C.gate(by=B), {"c": -2, "b": 0}).parts == {"c": -2.0, "gate:b": 2.0}


@pytest.mark.parametrize(
    ("value", "total", "entry"), [(-2, -1, 1), (-1, -1, 0), (0.5, 0.5, 0), (3, 2, -1)]
)
def test_a_clip_gives_or_takes_what_is_beyond(value: float, total: float, entry: float):
    """-2 and 3 limited to [-1, 2]."""
    score = scored(C.clip(-1, 2), {"c": value})
    assert (score.total, score.parts) == (total, {"c": value, "clip:-1:2": entry})


def test_a_gate_may_be_composed():
    """1 - 0.25 = 0.75 of 0.8."""
    score = scored(A.gate(by=1 - B), {"a": 0.8, "b": 0.25})
    assert score.total == pytest.approx(0.6)
    assert score.parts == pytest.approx({"a": 0.8, "gate:constant+b": -0.2})


def test_one_part_may_stand_in_a_sum_and_as_a_gate():
    """It is looked at once, and means the same in both places."""
    reward = A + C.gate(by=A)
    assert [leaf.name for leaf in reward.leaves] == ["a", "c"]
    assert scored(reward, {"a": 0.5, "c": 3}).parts == {"a": 0.5, "c": 3.0, "gate:a": -1.5}


def test_constants_add_up():
    """Each reward brought to [-1, 1] by itself: (2a - 1) + (2b - 1), one entry for both constants."""
    reward = (2 * A - 1) + (2 * B - 1)
    assert (reward.names, reward.bounds) == (("a", "constant", "b"), (-2.0, 2.0))
    assert scored(reward, {"a": 1, "b": 0.25}).parts == {"a": 2.0, "constant": -2.0, "b": 0.5}
    assert scored(2 * (A + 1) - 1, {"a": 0.5}).parts == {"a": 1.0, "constant": 1.0}
    assert scored((2 + A).gate(by=1 - B), {"a": 1, "b": 1}).total == 0.0


def test_equal_clips_and_gates_share_an_entry():
    """Limited to 0.5, 0.75 loses 0.25 and 3 loses 2.5; a gate half open takes half of 1 and half of 2."""
    clipped = A.clip(0, 0.5) + C.clip(0, 0.5)
    assert scored(clipped, {"a": 0.75, "c": 3}).parts == {
        "a": 0.75,
        "clip:0:0.5": -0.25 - 2.5,
        "c": 3.0,
    }
    gated = A.gate(by=B) + C.gate(by=B)
    assert scored(gated, {"a": 1, "c": 2, "b": 0.5}).parts == {
        "a": 1.0,
        "gate:b": -0.5 - 1.0,
        "c": 2.0,
    }


def test_sum_of_a_list_is_the_sum():
    """Python starts at 0, which is no part."""
    assert sum([A, B, C]) == A + B + C
    assert sum([A]) is A


def test_a_long_sum_still_works():
    """Sixty parts, each 1/60."""
    reward = sum((1 / 60) * Given(f"p{i}") for i in range(60))
    assert len(reward.names) == 60
    assert scored(reward, {f"p{i}": 1 for i in range(60)}).total == pytest.approx(1)


# ---------------------------------------------------------------------------------- broken promises


BAD = [
    math.nan, math.inf, -math.inf, 1.0000001, -0.1, 2, "1", None, 1j, [0.5], Decimal("0.5"), 10**5000,
    np.float64("nan"), np.float32("inf"), np.array([0.5]), np.array(2.0),
]  # fmt: skip


@pytest.mark.parametrize("value", BAD, ids=lambda value: type(value).__name__)
def test_a_part_that_breaks_its_promise_is_named(value: Any):
    """Never turned into a number: which part, of which task, what it gave and what it may."""
    with pytest.raises(
        RewardError, match=r"part 'a' of task 'task-7' gave .*, not a number in \[0, 1\]"
    ):
        scored(Correct() + 0.1 * A, {"a": value})


@pytest.mark.parametrize("value", BAD, ids=lambda value: type(value).__name__)
def test_a_group_level_part_that_breaks_its_promise_is_named(value: Any):
    """The same, one stage later."""
    with pytest.raises(
        RewardError, match=r"part 'column' of task 'task-7' gave .*, not a number in \[0, 1\]"
    ):
        scored(Correct() + Column((value,)))


@pytest.mark.parametrize(
    "value",
    [
        1,
        True,
        0.5,
        np.float64(0.5),
        np.float32(0.5),
        np.int64(1),
        np.True_,
        np.array(0.5),
        Fraction(1, 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_of_any_make_become_floats(value: Any):
    """numpy's, whole ones, truth values: what is recorded is a Python float."""
    score = scored(A, {"a": value})
    assert score.total == float(value)
    assert type(score.total) is float
    assert type(scored(Column((value,))).parts["column"]) is float


def test_what_numpy_rounds_beyond_the_bounds_is_beyond():
    """float32(0.1) is 0.10000000149: compared as itself, not as numpy compares."""
    with pytest.raises(
        RewardError, match=r"gave float 0\.10000000149.*, not a number in \[0, 0\.1\]"
    ):
        scored(Given("a", 0.0, 0.1), {"a": np.float32(0.1)})


def test_a_group_level_part_gives_one_value_for_each():
    """Two values for one completion: whose is the second?"""
    with pytest.raises(
        RewardError, match=r"part 'column' of task 'task-7' gave 2 values for 1 completions"
    ):
        scored(Column((0.5, 0.5)))


def test_a_length_that_nobody_recorded_is_asked_for():
    """Rewards never tokenise again."""
    task, unknown = Task("task-7", "prompt"), Completion("some text")
    with pytest.raises(
        RewardError,
        match=r"part 'tokens' of task 'task-7' reads length_tokens, .*pass Completion\(",
    ):
        (Correct() + Tokens()).observe(task, unknown, RIGHT)
    assert (Correct() + Tokens()).needs_length
    assert not Correct().needs_length
    assert scored(Tokens()).total == 3


def test_bounds_that_are_none_are_refused():
    """Whatever they would let through: found when composed, or on the first score of a part alone."""
    message = "the bounds .*; they must be finite and in order"
    for low, high in [(0.0, math.inf), (math.nan, 1.0), (1.0, 0.0)]:
        broken = Given("a", low, high)
        for build in (
            lambda broken=broken: broken + 1,
            lambda broken=broken: scored(broken, {"a": 0.5}),
        ):
            with pytest.raises(UsageError, match=message):
                build()
    with pytest.raises(UsageError, match=message):
        1e200 * (1e200 * A)
    with pytest.raises(UsageError, match=message):
        1e308 * A + 1e308 * B


# ---------------------------------------------------------------------------------- bad expressions


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: math.nan * A, "float nan * a: a reward is scaled by a finite number; to multiply two, use gate"),
        (lambda: A * math.inf, "float inf * a"),
        (lambda: A * B, "b * a: a reward is scaled by a finite number; to multiply two, use gate"),
        (lambda: "2" * A, "str '2' * a"),
        (lambda: None * A, "NoneType None * a"),
        (lambda: A + math.nan, "float nan cannot be added to a reward; a reward or a finite number can"),
        (lambda: A + "b", "str 'b' cannot be added"),
        (lambda: "b" + A, "str 'b' cannot be added"),
        (lambda: A - "b", "str 'b' cannot be added"),
        (lambda: "b" - A, "str 'b' cannot be added"),
        (lambda: A + None, "NoneType None cannot be added"),
        (lambda: A + Correct, "cannot be added to a reward"),
        (lambda: sum([A, None]), "NoneType None cannot be added"),
        (lambda: A.gate(by=C), "a gated by c(low=-2.0, high=3.0): a gate lies in [0, 1], this one in [-2, 3]; clip it"),
        (lambda: A.gate(by=2 * B), "this one in [0, 2]"),
        (lambda: A.gate(by=-1 * B), "this one in [-1, 0]"),
        (lambda: A.gate(by=0.5), "a gated by float 0.5: a gate is a reward; to scale by a number, write 0.5 * …"),
        (lambda: A.gate(by=B).gate(by=B), "gated by b twice; gate it once"),
        (lambda: A.clip(1, 0), "a clipped to [1, 0]: the limits must be finite numbers and in order"),
        (lambda: A.clip(0, math.inf), "a clipped to [0, inf]"),
        (lambda: A.clip(math.nan, 1), "a clipped to [nan, 1]"),
        (lambda: A.clip("0", 1), "a clipped to ['0', 1]"),
        (lambda: A.clip(None, 1), "a clipped to [None, 1]"),
        (lambda: A.clip(0, 1).clip(0, 1), "a.clip(0, 1) is already clipped to [0, 1]; once will do"),
        (lambda: A + A, "two parts are named 'a'; give one of them another name=…, or scale one part instead"),
        (lambda: A + C + 2 * A, "two parts are named 'a'"),
        (lambda: A + Given("a", 0, 5), "two different parts are named 'a'; give one of them another name=…"),
        (lambda: A.gate(by=Given("a", 0, 0.5)), "two different parts are named 'a'"),
        (lambda: Correct() + Correct(str.__eq__), "two different parts are named 'correct'"),
        (lambda: Given("constant") + 1, "two parts are named 'constant'; give one of them another name=…"),
        (lambda: Given("gate:b") + A.gate(by=B), "two parts are named 'gate:b'"),
    ],
)  # fmt: skip
def test_what_cannot_be_composed_says_why(build: Callable[[], Any], message: str):
    """Value, rule and fix, when it is written and not when it is scored."""
    assert message in refusal(build)


def test_numpys_numbers_scale_and_add():
    """They come first in `factor * reward`, and must not take the reward for an array."""
    assert np.float64(0.5) * A == 0.5 * A
    assert np.float32(0.5) * A == A * np.float32(0.5) == 0.5 * A
    assert np.int64(2) * A == 2 * A
    assert np.float64(0.5) + A == 0.5 + A
    assert np.float64(0.5) - A == 0.5 - A
    with pytest.raises(
        UsageError, match=r"ndarray array.* \* a: a reward is scaled by a finite number"
    ):
        np.array([0.5, 1.0]) * A


# ------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize(
    ("reward", "text"),
    [
        (Correct() + 0.1 * A + 0.5 * B, "correct + 0.1 * a + 0.5 * b"),
        (A - B, "a - 1 * b"),
        (A - 1, "a - 1"),
        (1 - A, "1 - 1 * a"),
        (A - (B + C), "a - 1 * (b + c(low=-2.0, high=3.0))"),
        (
            rlvr.Overlong(512, 128) + rlvr.Format(str.isascii),
            "overlong(max_tokens=512, cache=128) + format(form=str.isascii)",
        ),
        (2 * (A + B), "2 * (a + b)"),
        (A.gate(by=B), "a.gate(by=b)"),
        ((A + B).gate(by=1 - B), "(a + b).gate(by=1 - 1 * b)"),
        ((2 * A).clip(0, 1), "(2 * a).clip(0, 1)"),
        (2 * A.clip(0, 1), "2 * a.clip(0, 1)"),
        (A.gate(by=B).clip(-0.5, 0.5), "a.gate(by=b).clip(-0.5, 0.5)"),
        (1e-9 * A, "1e-09 * a"),
        (Correct(MathVerifier()), "correct(math-verifier-v5)"),
        (
            0.5 * Correct(MathVerifier(policy=GSM8K, markers=("####",)), name="strict"),
            "0.5 * strict(math-verifier-v5, policy=MathPolicy(percent='ignore', units='ignore', convert_units=False, "
            "rounding='exact', decimal='point', symbolic=False), "
            "markers=('####',))",
        ),
        (Correct(str.__eq__), "correct(str.__eq__)"),
        (rlvr.Majority(key=Fraction), "majority(key=Fraction)"),
    ],
)
def test_a_reward_reads_as_it_is_written(reward: Reward, text: str):
    """Records carry this text: a changed setting of a part must not read the same."""
    assert str(reward) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((2 * A).clip(0, 1), 2 * A.clip(0, 1)),
        (0.1234567 * A, 0.1234568 * A),
        (A + 0.1234567, A + 0.1234568),
        (A.clip(0, 0.1234567), A.clip(0, 0.1234568)),
        (2 * (A + B), 2 * A + B),
        (A - (B + C), A - B + C),
        (Correct(), Correct(MathVerifier())),
        (Correct(MathVerifier()), Correct(MathVerifier(policy=GSM8K))),
        (Correct(MathVerifier()), Correct(MathVerifier(markers=("A:",)))),
        (Correct(str.__eq__), Correct(str.__ne__)),
        (
            Correct(lambda completion, reference: True),
            Correct(lambda completion, reference: False),
        ),
        (Correct(partial(int.__eq__, 1)), Correct(partial(int.__eq__, 2))),
    ],
)
def test_rewards_that_differ_read_differently(one: Reward, other: Reward):
    """A run must not be continued under another reward because both looked alike."""
    assert str(one) != str(other)


def test_what_is_written_holds_in_every_process():
    """Without the address of anything: a run goes on only under a reward that reads the same."""
    assert (
        str(Correct(partial(refusal, error=1)))
        == "correct(functools.partial(<function refusal>, error=1))"
    )


def test_there_is_no_minus_zero():
    """It equals 0 and does not read like it, in a table or in JSON."""
    score = scored(-1 * A - 2 * B, {"a": 0, "b": 0})
    assert (str(score.total), str(score.parts["a"]), str((-A).bounds)) == (
        "0.0",
        "0.0",
        "(-1.0, 0.0)",
    )
    assert str(scored(C.gate(by=B), {"c": -2, "b": 0}).total) == "0.0"


def test_two_close_clips_are_two():
    """With six digits both would be called clip:0:0.123457."""
    assert len((A.clip(0, 0.1234568).clip(0, 0.1234567)).names) == 3


# ----------------------------------------------------------------------------------------- verdicts


class Judge:
    """A verifier that always says the same."""

    id = "judge-v1"

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict

    def verify(self, completion: str, reference: Any) -> Verdict:
        return self.verdict


def test_the_first_correct_gives_the_verdict():
    """Its verifier is not asked again; further ones are asked for their own."""
    reward = A + Correct(Judge(WRONG)) + 0.5 * Correct(Judge(RIGHT), name="strict")
    assert reward.primary.verifier.verdict is WRONG
    score = scored(reward, {"a": 1}, verdict=RIGHT)
    assert score.parts == {"a": 1.0, "correct": 1.0, "strict": 0.5}


def test_a_failure_of_a_further_verifier_is_no_zero():
    """UNSCORED is ours: it must not be added up as if the answer had been wrong."""
    with pytest.raises(
        rlvr.Unscored,
        match=r"part 'strict' of task 'task-7': its verifier returned UNSCORED \(lost\)",
    ):
        scored(Correct() + Correct(Judge(OURS), name="strict"))


def test_a_further_verifier_returns_a_verdict():
    """A class with verify -> bool is an easy slip."""
    with pytest.raises(
        UsageError, match=r"part 'strict': its verifier returned bool True; it must be a Verdict"
    ):
        scored(Correct() + Correct(Judge(True), name="strict"))


def test_only_the_first_correct_may_go_without_a_verifier():
    """The second would have nothing to say."""
    with pytest.raises(
        UsageError, match="part 'again': only the first Correct may go without a verifier"
    ):
        scored(Correct() + Correct(name="again"))


def test_a_reward_without_correct_has_no_primary():
    """Then the environment's own verify gives the verdict, and adds nothing."""
    assert A.primary is None
    assert scored(A, {"a": 0.5}, verdict=WRONG).total == 0.5


def test_unscored_passes_through():
    """No part is asked, no total is made up, and nothing can be added to it."""
    score = scored(Correct() + A, {"a": math.nan}, verdict=OURS)
    assert (score.total, score.parts, score.verdict) == (None, {}, OURS)


def test_unscored_siblings_are_not_compared():
    """Two of four were lost: a group-level part sees the other two, and its values go to them."""
    task, verdicts = Task("task-7", "prompt"), [OURS, RIGHT, OURS, WRONG]
    reward = Correct() + Column((0.25, 0.75))
    observations = [reward.observe(task, TEXT, verdict) for verdict in verdicts]
    scores = reward.combine(task, [TEXT] * 4, observations)
    assert [score.total for score in scores] == [None, 1.25, None, 0.75]
    assert reward.group_level
    assert not A.group_level


def test_a_group_of_unscored_completions_has_no_scores():
    """Nothing is left to compare."""
    task, reward = Task("task-7", "prompt"), Correct() + Column(())
    assert [
        s.total for s in reward.combine(task, [TEXT] * 2, [reward.observe(task, TEXT, OURS)] * 2)
    ] == [None, None]
    assert reward.combine(task, [], []) == []


# --------------------------------------------------------------------------------------- as objects


def test_rewards_are_values():
    """Equal when written alike, usable as keys, and copies are equal."""
    reward = Correct() + 0.1 * A.gate(by=B)
    assert reward == Correct() + 0.1 * A.gate(by=B)
    assert len({reward, Correct() + 0.1 * A.gate(by=B)}) == 1
    assert copy.deepcopy(reward) == reward


def test_composing_leaves_the_parts_alone():
    """`reward + x` is another reward."""
    reward = A + B
    reward.clip(0, 1), reward * 2, reward + C, -reward
    assert reward == A + B
    assert reward.names == ("a", "b")


def test_threads_see_the_same():
    """The plan is made once, by the first thread that needs it."""
    reward = Correct() + 0.5 * A - B.clip(0.25, 0.5)
    with ThreadPoolExecutor(8) as pool:
        totals = list(pool.map(lambda i: scored(reward, {"a": 0.5, "b": i / 64}).total, range(64)))
    assert totals == [1.25 - min(max(i / 64, 0.25), 0.5) for i in range(64)]


def test_a_part_of_the_users_own():
    """As in the docstring of `Part`."""

    @dataclass(frozen=True)
    class Polite(Part):
        name: str = "polite"
        bounds: ClassVar = (0.0, 1.0)

        def value(self, task: Task, completion: Completion, verdict: Verdict) -> float:
            return float("please" in completion.text)

    task = Task("t", "Ask for tea.")
    reward = 0.5 * Polite()
    assert reward.observe(task, Completion("Tea, please."), RIGHT).values == {"polite": 1.0}
    assert reward.observe(task, Completion("Tea!"), RIGHT).values == {"polite": 0.0}
