"""reasoning-gym behind our contract: seeds, credit, crashes, and the families we refuse."""

import json
import re
import time
from itertools import islice
from pathlib import Path

import pytest

import rlvr
from rlvr.interop import from_reasoning_gym
from rlvr.interop.reasoning_gym import RUNS_ANSWERS, measured_holes
from rlvr.scoring.records import provenance, record
from rlvr.testing import check_environment

MEASURED, MEASURED_VERSION = measured_holes()["families"], measured_holes()["reasoning_gym"]
HOLES, PARTIAL_HOLES = (
    {family: found[kind] for family, found in MEASURED.items() if found[kind]}
    for kind in ("holes", "partial_holes")
)


class Broken:
    """A scorer that does what the answer says."""

    def score_answer(self, answer: str, entry: dict) -> float:
        entry["metadata"].clear()  # it may change what it is given
        if answer == "hang":
            while True:
                pass
        if answer == "hoard":
            return len(bytearray(10 << 30))
        if answer == "raise":
            raise ValueError("no number")
        return {"nan": float("nan"), "two": 2.0, "none": None, "half": 0.5}.get(
            answer, float(answer == entry["answer"])
        )


@pytest.fixture
def broken(monkeypatch):
    """The family `gcd` with that scorer, in this process, where its limits are tried without a worker."""
    from rlvr.interop import reasoning_gym

    handle = reasoning_gym._scoring()
    entry = {"question": "?", "answer": "7", "metadata": {"seed": 1}}
    monkeypatch.setattr(reasoning_gym, "_make_puzzle", lambda *_: (Broken(), entry))
    monkeypatch.setattr(reasoning_gym, "_ask_worker", lambda request, wall_s: handle(request))
    return lambda answer, **options: (env := from_reasoning_gym("gcd", **options)).verify(
        env.task(0), f"<answer>{answer}</answer>"
    )


@pytest.mark.slow
@pytest.mark.parametrize("left_out", [("repeats", "episodes"), ()], ids=str)
def test_a_family_keeps_our_contract(left_out: tuple[str, ...]):
    """What every environment here has to keep, and a group scored in a worker."""
    env = from_reasoning_gym("chain_sum", max_terms=3)
    check_environment(
        env, tasks=3, skip=["split-overlap", *left_out]
    )  # of sums this short there are not many
    task = env.task(0)
    with rlvr.Scorer(env, workers=1) as scorer:
        totals = [
            score.total
            for score in scorer.score_group(task, [env.example(task), "<answer>x</answer>", "?"])
        ]
    assert totals == [1.0, 0.0, 0.0]


def test_neighbouring_tasks_and_splits_share_nothing():
    """reasoning-gym seeds by addition: its seed 1 has at index 0 what its seed 0 has at index 1."""
    prompts = [
        [t.prompt for t in islice(from_reasoning_gym("chain_sum", split=s).tasks(), 50)]
        for s in ("train", "test")
    ]
    assert len(set(prompts[0]) & set(prompts[1])) <= 3  # some sums of two numbers, by chance
    assert len(set(prompts[0])) == 50


def test_the_answer_is_what_stands_in_the_tags():
    """Outside the thinking part, and whatever is said of tags afterwards."""
    env = from_reasoning_gym("gcd")
    task = env.task(0)
    right = f"<answer> {task.reference}\n</answer>"
    for text, why in (
        (right, "full-marks"),
        (f"<think><answer>0</answer></think>{right}", "full-marks"),
        (f"{right} so {right} </answer> between <answer> tags", "full-marks"),
        (f"<answer>0</answer> or {right}", "hedged: 2 answers in one statement differ"),
        (f"<think>{right}</think>", "no-answer"),
        (f"<think>{right}", "unfinished-thinking"),
        (f"{task.reference}", "no-answer"),
        ("<answer> </answer>", "empty-box"),
        (f"<answer>{task.reference} or maybe 7</answer>", "not-full-marks"),
    ):
        assert env.verify(task, text).why == why, text


def test_a_hedge_is_two_answers_in_one_statement():
    """Who says the instruction again, or corrects himself, has one answer; as with boxes."""
    env = from_reasoning_gym("gcd")
    task = env.task(0)
    right, wrong = f"<answer>{task.reference}</answer>", "<answer>0</answer>"
    for text, why in (
        (f"I put it between <answer> and </answer> tags: {right}", "full-marks"),
        (f"{right} It stands between `<answer>` and `</answer>`, as asked.", "full-marks"),
        (f"First I get {wrong}.\n\nBut that is no divisor, so it is {right}", "full-marks"),
        (f"It is {right}.\n\nNo, that is not right: {wrong}", "not-full-marks"),
        (f"{wrong} or {right}", "hedged: 2 answers in one statement differ"),
        (f"{wrong}\n\n{right}", "hedged: 2 answers in one statement differ"),
        (f"{right}. {wrong} {right}", "hedged: 2 answers in one statement differ"),
        (f"{wrong}, no, wait, {right}", "full-marks"),
        (f"{right}, no, wait, {wrong}", "not-full-marks"),
        ("between <answer> and </answer>", "no-answer"),
        ("<answer>and</answer>", "no-answer"),
    ):
        assert env.verify(task, text).why == why, text
    assert env.verify(task, "<answer>0</answer>" * 20_000 + right).reason == "hedged"


def test_partial_credit_is_a_choice(broken):
    """By default anything less than full marks is worth nothing: in many families a list of guesses earns some."""
    assert broken("half").value == 0.0
    half = broken("half", strict=False, force=True)
    assert (half.outcome, half.value, half.detail) == (
        rlvr.Outcome.WRONG,
        0.5,
        {"reasoning_gym": 0.5},
    )
    assert broken("7").outcome is rlvr.Outcome.CORRECT


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("raise", "crash"),
        ("nan", "odd-score"),
        ("two", "odd-score"),
        ("none", "odd-score"),
        ("9" * 200_000, "too-long"),
    ],
)
def test_a_scorer_that_fails_makes_the_answer_wrong(broken, answer: str, reason: str):
    """It is the answer that made it fail; UNSCORED would let a policy buy itself out."""
    verdict = broken(answer)
    assert (verdict.outcome, verdict.reason) == (rlvr.Outcome.WRONG, reason)


@pytest.mark.slow
def test_a_scorer_that_hangs_is_killed_and_the_answer_wrong(monkeypatch):
    """The limit is in CPU seconds, so that a busy machine does not decide a verdict."""
    from rlvr.interop import reasoning_gym
    from rlvr.workers import WorkerPool

    def scoring():
        entry = {"question": "?", "answer": "7", "metadata": {}}
        reasoning_gym._make_puzzle = lambda *_: (Broken(), entry)
        return reasoning_gym._scoring()

    entry = {"question": "?", "answer": "7", "metadata": {}}
    monkeypatch.setattr(reasoning_gym, "_make_puzzle", lambda *_: (None, entry))
    monkeypatch.setattr(reasoning_gym, "_CPU_S", 0.3)
    with WorkerPool(scoring, memory_mib=512, quiet=True) as pool:
        monkeypatch.setattr(reasoning_gym, "_workers", lambda: pool)
        env = from_reasoning_gym("gcd")
        for answer in ("hang", "hoard"):
            verdict = env.verify(env.task(0), f"<answer>{answer}</answer>")
            assert (verdict.outcome, verdict.reason) == (rlvr.Outcome.WRONG, "limit"), verdict
        assert env.verify(env.task(0), "<answer>7</answer>").correct


def test_a_scorer_that_sleeps_cannot_make_its_answer_unscored():
    """Our own limit comes well before the Scorer's, whose kill would be UNSCORED."""
    env = rlvr.make("reasoning-gym-v4", family="n_queens", force="run-model-code", wall_s=1.6)
    with rlvr.Scorer(env, workers=1) as scorer:
        scorer.score(env.task(0), "")  # starting a worker takes time of its own
        start = time.monotonic()
        verdict = scorer.score(
            env.task(0), "<answer>__import__('time').sleep(1000)</answer>"
        ).verdict
        assert time.monotonic() - start < rlvr.scoring.WALL_S
    assert (verdict.outcome, verdict.reason) == (rlvr.Outcome.WRONG, "limit"), verdict
    assert from_reasoning_gym("gcd").wall_s < rlvr.scoring.WALL_S / 2
    with pytest.raises(rlvr.UsageError, match="wall_s is -1"):
        rlvr.make("reasoning-gym-v4", family="gcd", wall_s=-1)


def test_families_with_holes_are_refused_by_name():
    """The list is measured; who knows better says so."""
    name, (why, *_) = next(iter(HOLES.items()))
    with pytest.raises(rlvr.UsageError, match="is refused") as refused:
        from_reasoning_gym(name)
    assert why in str(refused.value)
    assert from_reasoning_gym("jugs", force=True).task(0).prompt
    paid = next(family for family in PARTIAL_HOLES if family not in HOLES)
    with pytest.raises(rlvr.UsageError, match="is refused"):
        from_reasoning_gym(paid, strict=False)
    assert from_reasoning_gym(paid).task(0).prompt


def test_the_refused_run_answers_as_python():
    """The worst hole of all stands in the table: these families evaluate what the model wrote."""
    runs = {family for family, why in HOLES.items() if RUNS_ANSWERS in why}
    assert {"countdown", "intermediate_integration", "n_queens", "simple_integration"} <= runs
    for force in (False, True):
        with pytest.raises(
            rlvr.UsageError, match=r"on this machine, outside any sandbox.*'run-model-code'"
        ):
            from_reasoning_gym("countdown", force=force)
    assert from_reasoning_gym("countdown", force="run-model-code").task(0).prompt
    with pytest.raises(rlvr.UsageError, match="force is"):
        from_reasoning_gym("countdown", force="please")


def test_scorers_that_pass_over_a_not_are_refused():
    """They read what they can use and leave the rest, a "not" among it."""
    for family in ("kakurasu", "knights_knaves", "quantum_lock", "survo"):
        assert "'not right' gets full marks" in HOLES[family], family


def test_what_nobody_has_measured_is_refused(monkeypatch):
    """Another version has other scorers; a table of holes says nothing about them."""
    from rlvr.interop import reasoning_gym

    monkeypatch.setattr(reasoning_gym, "version", lambda _: "0.2.0")
    with pytest.raises(
        rlvr.UsageError, match=rf"version 0\.2\.0.*{re.escape(MEASURED_VERSION)}.*force=True"
    ):
        from_reasoning_gym("gcd")
    assert from_reasoning_gym("gcd", force=True).task(0).prompt
    monkeypatch.undo()
    monkeypatch.setattr(
        reasoning_gym, "measured_holes", lambda: {**measured_holes(), "families": {}}
    )
    with pytest.raises(rlvr.UsageError, match="'gcd' is refused"):
        from_reasoning_gym("gcd")


def test_the_page_says_how_many_are_refused():
    """As the table that refuses them does."""
    page = (Path(__file__).parents[2] / "docs/using/reasoning_gym.md").read_text()
    runs = [len(MEASURED), len(HOLES), len({*PARTIAL_HOLES} - {*HOLES})]
    said = f"reasoning-gym {MEASURED_VERSION}: of its {runs[0]} families {runs[1]} are refused, and {runs[2]} more if"
    assert said in " ".join(page.split())


def test_bad_options_say_what_is_wrong():
    """One line, with the value and what there is."""
    for family, settings, says in (
        ("gdc", {}, "no family 'gdc'; it has ab, "),
        ("gcd", {"seed": 3}, "without seed and size"),
        ("gcd", {"max_numbres": 3}, "max_numbres"),
        ("gcd", {"min_numbers": 9, "max_numbers": 2}, "refuses"),
    ):
        with pytest.raises(rlvr.UsageError, match=says):
            from_reasoning_gym(family, **settings)


def test_a_record_is_replayed():
    """Family and settings are options, the seed stands in the task: nothing else is needed."""
    env = rlvr.make("reasoning-gym-v4", family="gcd", settings={"max_numbers": 4})
    rows = [
        {"task": 0, "completion": env.example(env.task(0))},
        {"task": 1, "completion": "<answer>0</answer>"},
    ]
    run = provenance(env, "reasoning-gym-v4")
    records = [record(scored, run) for scored in rlvr.score(env, rows, workers=0)]
    assert [one["outcome"] for one in records] == ["correct", "wrong"]
    assert not any(rlvr.replay([json.loads(json.dumps(one)) for one in records], workers=0))
    with pytest.raises(rlvr.DataError, match="'task'"):
        list(rlvr.score(env, [{"reference": "1", "completion": "1"}], workers=0))
