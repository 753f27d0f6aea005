"""The records: what each refuses, with the value and the rule in the message, and what it makes of the rest."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial, wraps
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlvr
from rlvr import Completion, Group, Outcome, Rollout, Score, Task, Turn, Verdict, Verifier
from rlvr.errors import brief
from rlvr.types import as_verifier, plain, plain_reference, verified

CHAT = [{"role": "user", "content": "1 + 1?"}]
TASK = Task("sum/1", "1 + 1?", reference="2", meta={"level": 1})
RIGHT = Verdict(Outcome.CORRECT, why="same-number: both are 2", answer="2", detail={"boxes": 1})


def rollout(**changes: Any) -> Rollout:
    """Three completion tokens, the middle one the environment's."""
    fields = {
        "task": TASK,
        "text": "2",
        "prompt_ids": [5, 6],
        "completion_ids": [7, 8, 9],
        "completion_mask": [True, False, True],
        "behaviour_logprobs": [-0.1, 0.0, -0.2],
        "weights_version": 0,
    }
    return Rollout(**(fields | changes))


# --------------------------------------------------------------------------------- what they refuse


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": ""}, r"Task.id is ''; it must be a non-empty string"),
        ({"id": 7}, r"Task.id is 7"),
        (
            {"prompt": None},
            r"task 't': prompt is NoneType None; it must be a string or a non-empty list of messages",
        ),
        ({"prompt": []}, r"prompt is list \[\]"),
        ({"prompt": [{"role": "user"}]}, r"prompt is list \[\{'role': 'user'\}\]"),
        ({"prompt": ["hello"]}, r"prompt is list \['hello'\]"),
        ({"prompt": CHAT[0]}, r"prompt is dict"),
        ({"prompt": b"hello"}, r"prompt is bytes"),
        ({"meta": None}, r"task 't': meta is NoneType None; it must be a mapping"),
        ({"meta": "level 1"}, r"meta is str 'level 1'"),
    ],
)
def test_a_task_has_an_id_a_prompt_and_a_mapping(fields: dict, message: str):
    """What a row of a file could have put there by mistake."""
    with pytest.raises(TypeError, match=message):
        Task(**({"id": "t", "prompt": "p"} | fields))


def test_a_long_value_is_cut_in_the_message():
    """A prompt of a million characters in the wrong place would drown the rule."""
    with pytest.raises(TypeError) as caught:
        Completion(["x" * 1_000_000])
    assert len(str(caught.value)) < 150
    assert "…" in str(caught.value)


@pytest.mark.parametrize(
    "prompt", ["", "1 + 1?", CHAT, tuple(CHAT), [{"role": "user", "content": None}]]
)
def test_a_prompt_is_a_text_or_messages(prompt: Any):
    """An empty text stands for a recorded row that came without its prompt."""
    assert Task("t", prompt).prompt == prompt


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"text": None}, TypeError, r"the completion is NoneType None; it must be a string"),
        ({"text": b"2"}, TypeError, r"the completion is bytes b'2'"),
        ({"text": ["2"]}, TypeError, r"the completion is list \['2'\]"),
        (
            {"length_tokens": -1},
            ValueError,
            r"length_tokens is -1; it must be a whole number of tokens, or None",
        ),
        ({"length_tokens": 2.0}, ValueError, r"length_tokens is 2\.0"),
        ({"length_tokens": float("nan")}, ValueError, r"length_tokens is nan"),
        ({"length_tokens": "2"}, ValueError, r"length_tokens is '2'"),
        ({"length_tokens": True}, ValueError, r"length_tokens is True"),
        ({"truncated": 1}, TypeError, r"truncated is 1; it must be True or False"),
        ({"truncated": None}, TypeError, r"truncated is None"),
    ],
)
def test_a_completion_is_text_with_a_length(fields: dict, error: type[Exception], message: str):
    """A length that was a float or a flag once was something else."""
    with pytest.raises(error, match=message):
        Completion(**({"text": "2"} | fields))


@pytest.mark.parametrize("text", ["", "\x00", "\ud800", "a" * 1_000_000])
def test_any_text_is_a_completion(text: str):
    """What the model wrote is never our error."""
    assert Completion(text).text == text


def test_numbers_of_numpy_become_pythons():
    """A sampler counts with numpy, and a record has to be JSON."""
    assert type(Completion("2", np.int64(3)).length_tokens) is int
    assert type(Verdict("wrong", np.float32(0.5)).value) is float
    assert Verdict("wrong", np.float32(0.5)).value == 0.5


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (
            {"outcome": "right"},
            ValueError,
            r"'right'; it must be one of 'correct', 'wrong', 'unparsed', 'unscored'",
        ),
        ({"outcome": True}, ValueError, r"the outcome is True; it must be one of"),
        ({"outcome": None}, ValueError, r"the outcome is None"),
        (
            {"value": 1.1},
            ValueError,
            r"a verdict's value is float 1\.1; it must be a number in \[0, 1\]",
        ),
        ({"value": "0.5"}, ValueError, r"str '0\.5'"),
        ({"value": 10**5000}, ValueError, r"int too long to be shown"),
        (
            {"outcome": "unparsed", "value": 0.5},
            ValueError,
            r"unparsed has value 0\.5; only an answer can earn credit",
        ),
        ({"why": None}, TypeError, r"a verdict's why is NoneType None; it must be a string"),
        (
            {"answer": 42},
            TypeError,
            r"a verdict's answer is int 42; it must be the text of it, or None",
        ),
        ({"detail": [1]}, TypeError, r"a verdict's detail is list \[1\]; it must be a mapping"),
    ],
)
def test_a_verdict_is_an_outcome_with_credit(fields: dict, error: type[Exception], message: str):
    """A verifier's slip is found where it was made, not where the answer is counted."""
    with pytest.raises(error, match=message):
        Verdict(**({"outcome": "wrong"} | fields))


@given(st.sampled_from(Outcome), st.none() | st.floats() | st.sampled_from([0, 1, 0.5]))
def test_the_credit_follows_from_the_outcome(outcome: Outcome, value: float | None):
    """By default all or nothing; WRONG may carry a part, CORRECT less than all, the others none."""
    answered = outcome in (Outcome.CORRECT, Outcome.WRONG)
    if value is None or (0 <= value <= 1 and (answered or value == 0)):
        verdict = Verdict(outcome.value) if value is None else Verdict(outcome.value, value)
        default = float(outcome is Outcome.CORRECT)
        assert (verdict.outcome, verdict.value) == (outcome, default if value is None else value)
        assert verdict.correct == (outcome is Outcome.CORRECT)
    else:
        with pytest.raises(ValueError, match="value"):
            Verdict(outcome, value)


def test_the_reason_is_what_stands_before_the_colon():
    """It is counted, so it must not hold the answer."""
    assert RIGHT.reason == "same-number"
    assert Verdict("wrong", why="other-number").reason == "other-number"
    assert Verdict("wrong").reason == ""


@pytest.mark.parametrize(
    ("total", "parts", "outcome", "message"),
    [
        (None, {}, "wrong", r"a score of None with outcome wrong: None goes with unscored"),
        (0.0, {}, "unscored", r"a score of 0\.0 with outcome unscored: None goes with unscored"),
        (
            None,
            {"correct": 0.0},
            "unscored",
            r"an unscored completion has parts \{'correct': 0\.0\}; it can have none",
        ),
        (float("nan"), {}, "wrong", r"a score of float nan; it must be a finite number"),
        (float("-inf"), {}, "wrong", r"a score of float -inf"),
        ("1", {}, "correct", r"a score of str '1'"),
        (
            1.0,
            {},
            "correct",
            r"a score of 1\.0 has the parts dict \{\}; they must be finite, and their sum the total",
        ),
        (1.0, {"a": 1.0, "b": 1e-8}, "correct", r"and their sum the total"),
        (1.0, {"a": float("nan")}, "correct", r"they must be finite"),
        (1.0, {"a": float("inf"), "b": float("-inf")}, "correct", r"they must be finite"),
        (1.0, {"a": float("inf")}, "correct", r"they must be finite"),
    ],
)
def test_a_score_is_finite_or_absent(total: Any, parts: dict, outcome: str, message: str):
    """Our failure must not be averaged as if it were a reward."""
    with pytest.raises(ValueError, match=message):
        Score(total, parts, Verdict(outcome))


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(-1000, 1000), min_size=1),
    st.integers(-2, 2),
)
def test_a_total_is_the_sum_of_its_parts(thousandths: dict[str, int], off: int):
    """Held against whole numbers: floats may miss by rounding, and by no thousandth."""
    parts = {name: number / 1000 for name, number in thousandths.items()}
    total = (sum(thousandths.values()) + off) / 1000
    if off == 0:
        assert Score(total, parts, RIGHT).total == total
    else:
        with pytest.raises(ValueError, match="and their sum the total"):
            Score(total, parts, RIGHT)


def test_a_score_is_made_of_its_parts_and_a_verdict():
    """Up to rounding: 0.1 + 0.2 is not 0.3, and a clip takes back nearly all of 1e12."""
    assert Score(0.3, {"a": 0.1, "b": 0.2}, RIGHT).total == 0.3
    assert Score(1.0, {"a": 1e12 + 0.3, "clip:0:1": 1.0 - (1e12 + 0.3)}, RIGHT).total == 1.0
    for parts in (None, [1.0], {"a": "1"}, {"a": None}):
        with pytest.raises(
            TypeError, match=r"a score's parts are .*; they must map names to numbers"
        ):
            Score(1.0, parts, RIGHT)
    for verdict in (None, "correct", True):
        with pytest.raises(TypeError, match=r"a score's verdict is .*; it must be a Verdict"):
            Score(1.0, {"a": 1.0}, verdict)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"completion_ids": [7, 8]},
            r"task 'sum/1': a rollout's lengths must agree, and they are .*'completion_ids': 2",
        ),
        (
            {"turns": [Turn(1, 1)]},
            r"turn \[1, 1\) is empty, overlaps the one before, or leaves the completion's 3",
        ),
    ],
)
def test_a_rollout_has_one_entry_per_token(changes: dict, message: str):
    """A log-probability too few would train every later token on its neighbour's."""
    with pytest.raises(ValueError, match=message):
        rollout(**changes)


@given(st.tuples(*[st.integers(0, 2)] * 3))
def test_lengths_agree_or_are_refused(lengths: tuple[int, int, int]):
    """Token ids, mask and log-probabilities."""
    ids, mask, logprobs = lengths
    fields = {
        "completion_ids": [7] * ids,
        "completion_mask": [True] * mask,
        "behaviour_logprobs": [-0.1] * logprobs,
    }
    if len(set(lengths)) == 1:
        assert len(rollout(**fields).completion_ids) == ids
    else:
        with pytest.raises(ValueError, match="lengths must agree"):
            rollout(**fields)


@given(st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 4)), max_size=3))
def test_turns_are_in_order_and_apart(spans: list[tuple[int, int]]):
    """Each token in one turn at most, in the order of the turns; gaps are the environment's replies."""
    places = [place for start, end in spans for place in range(start, end)]
    fits = all(start < end for start, end in spans) and all(0 <= place < 3 for place in places)
    turns = [Turn(*span) for span in spans]
    if fits and places == sorted(set(places)):
        assert list(rollout(turns=turns).turns) == turns
    else:
        with pytest.raises(ValueError, match="is empty, overlaps the one before, or leaves"):
            rollout(turns=turns)


def test_a_rollouts_completion_counts_the_policys_own_tokens():
    """Three tokens, one of them the environment's: a length reward sees two."""
    seen = rollout(truncated=True, completion_mask=np.array([True, False, True])).completion
    assert seen == Completion("2", length_tokens=2, truncated=True)


def test_a_group_is_of_one_task():
    """Its rollouts are judged against each other."""
    with pytest.raises(ValueError, match=r"task 'sum/1': a group needs at least one rollout"):
        Group(TASK, [])
    with pytest.raises(
        ValueError, match=r"a rollout of task 'sum/2' stands in the group of 'sum/1'"
    ):
        Group(TASK, [rollout(), rollout(task=Task("sum/2", "2 + 2?"))])
    assert len(Group(TASK, [rollout(), rollout()]).rollouts) == 2


# -------------------------------------------------------------------------------- what they promise


RECORDS = [
    TASK,
    Completion("2", 3, True),
    RIGHT,
    Score(1.0, {"correct": 1.0}, RIGHT),
    Score(None, {}, Verdict("unscored", why="worker-died")),
    Turn(0, 1, 0.5),
    rollout(score=Score(1.0, {"correct": 1.0}, RIGHT), turns=[Turn(0, 1)]),
    Group(TASK, [rollout()]),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_travel(record: Any):
    """To workers and back, and into checkpoints."""
    assert pickle.loads(pickle.dumps(record)) == record
    assert copy.deepcopy(record) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_are_frozen(record: Any):
    """Also against a misspelt field, which slots refuse."""
    name = record.__dataclass_fields__.copy().popitem()[0]
    with pytest.raises(FrozenInstanceError):
        setattr(record, name, None)
    with pytest.raises((AttributeError, TypeError)):  # TypeError before Python 3.12
        record.misspelt = 1


def test_a_changed_copy_is_checked_again():
    """`replace` goes through the same door."""
    with pytest.raises(ValueError, match="only an answer can earn credit"):
        replace(RIGHT, outcome=Outcome.UNPARSED)


# ---------------------------------------------------------------------------------------- verifiers


class Same:
    """The shortest verifier that is an object."""

    id = "same-v1"

    def verify(self, completion: str, reference: Any) -> Verdict:
        return Verdict("correct" if completion == reference else "wrong", why="compared")


class Nameless:
    """One that forgot its id."""

    def verify(self, completion: str, reference: Any) -> Verdict:
        return Verdict("correct")


def test_a_verifier_is_recognised_by_its_shape():
    """Nothing to inherit from."""
    same = Same()
    assert isinstance(same, Verifier)
    assert as_verifier(same) is same


def exactly(completion: str, reference: Any) -> bool:
    return completion == reference


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (True, "correct"),
        (False, "wrong"),
        (np.True_, "correct"),
        (np.isclose(1.0, 2.0), "wrong"),
        (np.array(True), "correct"),
        (Verdict("unparsed", why="no-answer"), "unparsed"),
    ],
)
def test_a_function_is_a_verifier(said: Any, outcome: str):
    """It says yes or no, with numpy's booleans too, or gives a whole verdict."""
    assert as_verifier(lambda completion, reference: said).verify("2", "2").outcome == outcome


def test_a_functions_name_is_its_id():
    """So that records say who judged."""
    verifier = as_verifier(exactly)
    assert verifier.id == "exactly-v0"
    assert verifier.verify("2", "2").why == "said-true"
    assert pickle.loads(pickle.dumps(verifier)) == verifier


@pytest.mark.parametrize("said", [None, 1, 0.5, "yes", np.float64(1.0), np.array([True, False])])
def test_a_function_says_yes_or_no(said: Any):
    """1, "yes" or nothing at all is more likely a mistake than a verdict."""
    verifier = as_verifier(lambda completion, reference: said)
    with pytest.raises(
        rlvr.UsageError, match=r"function-v0 returned .*; a verifier returns a Verdict, or True or"
    ):
        verifier.verify("2", "2")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Same, r"is no verifier: give an object .* such as MathVerifier\(\) with its parentheses"),
        ("math-v4", r"'math-v4' is no verifier"),
        (True, r"True is no verifier"),
        (
            Nameless(),
            r"Nameless object .* is no verifier yet: it needs an id, a name and version such as 'math-v4'",
        ),
    ],
)
def test_what_is_no_verifier_is_refused_at_once(given: Any, message: str):
    """And not when the first completion is scored, as UNSCORED."""
    with pytest.raises(rlvr.UsageError, match=message):
        as_verifier(given)


# --------------------------------------------------------------------------- verifiers and the task


class Repeats:
    """Says whether the completion is the prompt."""

    id = "repeats-v1"

    def verify(self, completion: str, reference: Any, task: Task | None = None) -> Verdict:
        return Verdict("wrong" if task and completion == task.prompt else "correct", why="compared")


def takes_task(completion: str, reference: Any, *, task: Task) -> bool:
    return task is TASK


def passes_on(function: Callable[..., bool]) -> Callable[..., bool]:
    @wraps(function)
    def outer(*args: Any, **kwargs: Any) -> bool:
        return function(*args, **kwargs)

    return outer


def hides(function: Callable[..., bool]) -> Callable[..., bool]:
    @wraps(function)
    def outer(completion: str, reference: Any) -> bool:
        return not function(completion, reference, task=TASK)

    return outer


class Calls:
    def __call__(self, completion: str, reference: Any, task: Any = None) -> bool:
        return task is TASK


@pytest.mark.parametrize(
    "function", [takes_task, partial(takes_task), passes_on(takes_task), Calls()]
)
def test_a_verifier_that_names_the_task_gets_it(function: Callable[..., bool]):
    """As a function, a partial, behind a decorator, or as an object; so does one with `verify`."""
    assert verified(as_verifier(function), "2", TASK).correct
    assert not verified(Repeats(), "1 + 1?", TASK).correct
    assert verified(Repeats(), "2", TASK).correct


@pytest.mark.parametrize(
    "function",
    [
        lambda completion, reference: completion == reference,
        lambda completion, reference, strict=False: not strict,
        lambda completion, reference, **rest: not rest,
        lambda completion, reference, *rest: not rest,
        lambda completion, reference, task=None, /: task is None,
        partial(lambda completion, reference, task: task == "mine", task="mine"),
        passes_on(exactly),
    ],
)
def test_a_verifier_of_two_arguments_goes_on_working(function: Callable[..., bool]):
    """Only an argument with the name `task` means the task; a partial's own value of it stays."""
    assert verified(as_verifier(function), "2", TASK).correct


def test_a_decorator_that_takes_two_arguments_gets_two():
    """Its signature says otherwise, since it copies that of what it decorates."""
    assert not verified(as_verifier(hides(takes_task)), "2", TASK).correct


# --------------------------------------------------------------------------------------- references


@pytest.mark.parametrize(
    ("given", "plain_value"),
    [
        (np.float64(8.0), 8.0),
        (np.float32(0.1), 0.1),
        (np.float16(0.1), 0.1),
        (np.int64(5), 5),
        (np.array(2.5), 2.5),
        (np.True_, True),
        (Decimal("1.50"), "1.50"),
        (Fraction(4, 2), 2),
        (Fraction(-1, 3), "-1/3"),
        ([np.int8(3), (Fraction(1, 2),)], [3, ("1/2",)]),
        ({"inputs": [np.int64(1)], "tests": ["a"]}, {"inputs": [1], "tests": ["a"]}),
    ],
)
def test_a_reference_has_pythons_own_numbers(given: Any, plain_value: Any):
    """`np.float64(8.0)` would be compared as the text of its repr; a float32's 0.1 means 0.1."""
    found = Task("t", "p", given).reference
    assert found == plain_value
    assert repr(found) == repr(plain_value)


def test_any_other_reference_is_the_verifiers():
    """Nothing is copied that has no such number in it."""
    for reference in ({"inputs": ["1"]}, [1, "a"], {1, 2}, Outcome.CORRECT, object()):
        assert Task("t", "p", reference).reference is reference


@pytest.mark.parametrize(
    "given", [1j, np.complex64(1j), Decimal("nan"), np.datetime64("2020-01-01"), [1, 2j]]
)
def test_a_reference_that_no_record_can_hold_is_refused(given: Any):
    """One error, for one task: it says what the reference is."""
    with pytest.raises(
        rlvr.DataError, match=r"task 't': the reference is .*; a number in it must be one that"
    ):
        Task("t", "p", given)


def test_references_are_plain_before_anything_reads_them():
    """From a row, by an environment, and by a verifier alone."""
    for name in ("math-v4", "gsm8k-v4", "arithmetic-v1"):
        env = rlvr.make(name)
        [scored] = rlvr.score(
            env, [{"reference": np.float64(8.0), "completion": r"\boxed{8}"}], workers=0
        )
        assert scored.score.total == 1.0, name
    assert plain_reference(np.float64(8.0)) == 8.0


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    "error",
    [
        rlvr.MissingDependency("py3langid", "language"),
        rlvr.WorkerError("ValueError", "no digits", "Traceback …"),
        rlvr.WorkerDied("killed by SIGKILL"),
        rlvr.UsageError("no such option"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_between_processes(error: Exception):
    """One that cannot be unpickled hangs or breaks the pool that brings it home."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_errors_say_what_to_do():
    """The fix stands in the message; the traceback of a worker stays beside it."""
    assert str(rlvr.MissingDependency("x", "gym")) == (
        "x is not installed; get it with: pip install -c constraints.txt '.[gym]' in a checkout of rlvr, "
        "or pip install 'PATH/TO/WHEEL[gym]'"
    )
    error = rlvr.WorkerError("ValueError", "no digits", "Traceback …")
    assert (str(error), error.kind, error.traceback) == (
        "ValueError: no digits",
        "ValueError",
        "Traceback …",
    )
    assert str(rlvr.WorkerError("MemoryError", "")) == "MemoryError"


def test_every_error_of_ours_is_an_rlvr_error():
    """`except RlvrError` is the whole promise; usage errors are ValueErrors as well, missing parts ImportErrors."""
    ours = [
        value
        for value in vars(rlvr).values()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert len(ours) == 13
    assert all(issubclass(error, rlvr.RlvrError) for error in ours)
    assert issubclass(rlvr.DataError, ValueError)
    assert issubclass(rlvr.MissingDependency, ImportError)
    assert not issubclass(rlvr.RewardError, rlvr.Unscored)


def test_brief_shows_any_value():
    """Its type and its beginning, also of a number that Python refuses to print."""
    assert brief("ab") == "str 'ab'"
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert brief(deep) == "list too long to be shown"
    assert brief(10**5000) == "int too long to be shown"
    assert len(brief("x" * 1000)) == len("str ") + 60 + 1


def test_plain_takes_scalars_out_of_their_wrapping():
    """Arrays stay arrays."""
    assert type(plain(np.float32(0.5))) is float
    assert plain(np.True_) is True
    assert plain("x") == "x"
    assert plain(np.array([1.0])).shape == (1,)
