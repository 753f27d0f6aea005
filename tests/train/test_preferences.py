"""Training on preferences: losses by hand, gradients that know nothing of batching, files, and where a run goes on."""

import contextlib
import dataclasses
import itertools
import math
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import rlvr
from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.base import Algorithm
from rlvr.cli import main
from rlvr.errors import DataError, UsageError
from rlvr.train import checkpoint
from rlvr.train.config import Config
from rlvr.train.learner import Learner
from rlvr.train.loop import Trainer
from rlvr.train.parts import Reference
from rlvr.train.policy import Policy
from rlvr.train.preferences import (
    Example,
    ExampleLosses,
    Examples,
    examples_of_file,
    examples_of_groups,
    mismatch_rows,
)
from rlvr.train.tiny import tiny
from rlvr.train.trained_rows import TrainedRow
from tests.json_lines import write_json_lines
from tests.rounding import additions, assert_same
from tests.train.bandit import CHARSET, policy
from tests.train.test_resume import differences, logged

LOSSES = {
    "dpo": {"loss": "dpo"},
    "dpo-mean": {"loss": "dpo", "length": "mean"},
    "conservative": {"loss": "dpo", "smoothing": 0.2},
    "robust": {"loss": "dpo", "smoothing": 0.2, "reading": "robust"},
    "dpo-sft": {"loss": "dpo", "sft_weight": 0.5},
    "hinge": {"loss": "slic"},
    "ipo": {"loss": "ipo", "length": "sum"},
    "ipo-mean": {"loss": "ipo", "length": "mean"},
    "kto": {"loss": "kto", "right_weight": 1.5},
    "rft": {"loss": "rft"},
}


def algorithm(*, loss: str = "dpo", **changes) -> Algorithm:
    return load_algorithm(loss, **({} if loss == "rft" else {"beta": 0.3}) | changes)


def learner(name: str, tmp_path: Path, **options) -> Learner:
    """Of a policy in float64 with a reference of other weights, so that no gain is 0."""
    made = Policy(*tiny(CHARSET, hidden=16, heads=2, layers=1, dtype=torch.float64), **options)
    found = Learner(made, config(tmp_path, algorithm=algorithm(**LOSSES[name])))
    if (reference := found.part(Reference)) is not None:
        other = tiny(CHARSET, hidden=16, heads=2, layers=1, dtype=torch.float64, seed=9)[0]
        reference.policy.model.load_state_dict(other.state_dict())
    return found


def assert_same_numbers(numbers: dict[str, float], others: dict[str, float], *, terms: int) -> None:
    """Up to rounding: they are means of sums of a row's log-probabilities or of rewards, whose sizes are below 100."""
    assert numbers.keys() == others.keys()
    for key, number in numbers.items():
        assert_same(torch.tensor(number), torch.tensor(others[key]), terms=terms, size=100.0)


def config(run: Path, **settings) -> Config:
    settings = {
        "model": "tiny",
        "env": "bandit",
        "lr": 1e-2,
        "max_tokens": 8,
        "eval_every": None,
    } | settings
    return Config(run=run, **settings)


def examples(pairs: bool = True) -> Examples:
    """Six examples of unequal lengths and weights; one row has an environment's reply in its midst."""
    draw, found = torch.Generator().manual_seed(3), []

    def row(n: int) -> TrainedRow:
        ids = torch.randint(4, 17, (n,), generator=draw).tolist()
        return TrainedRow([1, 4 + n], ids, [not (n == 5 and t in (1, 2)) for t in range(n)])

    for i, (a, b) in enumerate([(3, 2), (5, 4), (1, 6), (2, 2), (4, 1), (6, 5)]):
        rows = (row(a), row(b)) if pairs else (row(a),)
        found.append(Example(rows, right=pairs or i % 2 == 0, weight=(1.0, 0.5)[i % 2]))
    return Examples(found)


def of(name: str) -> Examples:
    return examples(pairs=name not in ("kto", "rft"))


def gradient(made: Learner, given: Examples) -> tuple[torch.Tensor, dict[str, float]]:
    made.optimizer.zero_grad()
    numbers = made.part(ExampleLosses).backward(given)
    return torch.cat([p.grad.flatten() for p in made.policy.model.parameters()]), numbers


# ---------------------------------------------------------------------------------------- exactness


def by_hand(name: str, made: Learner, given: Examples, full_logprobs) -> float:
    """The loss from whole logits, row by row, in Python's floats."""
    chosen = {"beta": 0.3, "length": "sum", "smoothing": 0.0, "sft_weight": 0.0, **LOSSES[name]}
    reference = made.part(Reference)
    before = (made if reference is None else reference).policy.model

    def logprobs(model, row: TrainedRow) -> list[float]:
        [found] = full_logprobs(model, [row])
        return [float(x) for x, kept in zip(found, row.completion_mask, strict=True) if kept]

    def gain(row: TrainedRow) -> float:
        differences = [
            a - b
            for a, b in zip(logprobs(made.policy.model, row), logprobs(before, row), strict=True)
        ]
        return sum(differences) / (len(differences) if chosen["length"] == "mean" else 1)

    def soft(x: float) -> float:
        return math.log1p(math.exp(-x))  # -log σ(x)

    rows, weights = given.rows, [one.weight for one in given.rows]
    firsts = [one.rows[0] for one in rows]
    tokens = sum(w * sum(row.completion_mask) for w, row in zip(weights, firsts, strict=True))
    nll = (
        -sum(
            w * sum(logprobs(made.policy.model, row))
            for w, row in zip(weights, firsts, strict=True)
        )
        / tokens
    )
    if name == "rft":
        return nll
    if name == "kto":
        mixed = [
            TrainedRow(row.prompt_ids, *other[1:])
            for row, other in zip(firsts, firsts[1:] + firsts[:1], strict=True)
        ]
        z = max(0.0, sum(map(gain, mixed)) / len(mixed))
        losses = [1.5 / (1 + math.exp(0.3 * (gain(one.rows[0]) - z))) if one.right else
                  1 / (1 + math.exp(0.3 * (z - gain(one.rows[0])))) for one in rows]  # fmt: skip
    else:
        ahead = [gain(one.rows[0]) - gain(one.rows[1]) for one in rows]
        e = chosen["smoothing"]
        losses = {
            "dpo": [soft(0.3 * x) for x in ahead],
            "slic": [max(0.0, 1 - 0.3 * x) for x in ahead],
            "ipo": [(x - 1 / 0.6) ** 2 for x in ahead],
        }[chosen["loss"]]
        if name == "conservative":
            losses = [(1 - e) * soft(0.3 * x) + e * soft(-0.3 * x) for x in ahead]
        if name == "robust":
            losses = [((1 - e) * soft(0.3 * x) - e * soft(-0.3 * x)) / (1 - 2 * e) for x in ahead]
    mean = sum(w * one for w, one in zip(weights, losses, strict=True)) / sum(weights)
    return mean + chosen["sft_weight"] * nll


@pytest.mark.parametrize("name", LOSSES)
@torch.no_grad()
def test_the_loss_is_the_one_by_hand(name: str, tmp_path: Path, full_logprobs):
    """From tokens to the number, with weights, masks and both lengths; the learner's logged loss."""
    made, given = learner(name, tmp_path), of(name)
    with torch.enable_grad():
        numbers = made.part(ExampleLosses).backward(given)
    assert numbers["loss"] == pytest.approx(by_hand(name, made, given, full_logprobs), abs=1e-6)


@pytest.mark.parametrize("name", ["dpo", "rft"])
def test_a_sampling_temperature_does_not_change_a_loss_of_examples(name: str, tmp_path: Path):
    """Papers and TRL read the model itself: --temperature 0.6, meant for evaluations, fine-tuned softmax(z / 0.6)."""
    plain, cool = learner(name, tmp_path), learner(name, tmp_path)
    cool.config = config(tmp_path, algorithm=cool.algorithm, temperature=0.6).resolve()
    (a, numbers), (b, others) = gradient(plain, of(name)), gradient(cool, of(name))
    assert torch.equal(a, b)
    assert numbers == others


def test_no_two_losses_have_the_same_gradient(tmp_path: Path):
    """A trainer that fell back to one loss for every name would be seen here."""
    found = {name: gradient(learner(name, tmp_path), of(name))[0] for name in LOSSES}
    for one, other in itertools.combinations(found, 2):
        assert (found[one] - found[other]).abs().max() > 1e-6, (one, other)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    "options",
    [
        {"packing": True, "max_tokens": 24},
        pytest.param({"max_tokens": 20, "overhead_tokens": 0}, marks=pytest.mark.slow),
    ],
)
def test_the_gradient_does_not_depend_on_batching(name: str, options: dict, tmp_path: Path):
    """One example at a time, or packed: the same, as denominators and KTO's z are of the mini-batch."""
    whole, small = learner(name, tmp_path), learner(name, tmp_path, **options)
    given = of(name)
    assert len(small.part(ExampleLosses).micro_batches([one.tokens for one in given.rows])) > 1
    (a, numbers), (b, others) = gradient(whole, given), gradient(small, given)
    terms = additions(whole.policy.model, sum(one.tokens for one in given.rows))
    assert_same(a, b, terms=terms)
    assert_same_numbers(numbers, others, terms=terms)


def test_what_an_environment_said_is_not_preferred(tmp_path: Path):
    """Other masked tokens would be other inputs; but their own log-probabilities are in no sum."""
    made, given = learner("dpo", tmp_path), examples()
    _, numbers = gradient(made, given)
    seen = [
        [row._replace(completion_mask=[True] * len(row.completion_ids)) for row in one.rows]
        for one in given.rows
    ]
    unmasked = Examples(
        [
            dataclasses.replace(one, rows=tuple(rows))
            for one, rows in zip(given.rows, seen, strict=True)
        ]
    )
    assert abs(gradient(made, unmasked)[1]["logprob_chosen"] - numbers["logprob_chosen"]) > 0.1


# ------------------------------------------------------------------------------------ from rollouts


def group(*outcomes: str) -> rlvr.Group:
    task = rlvr.Task("t", "?")

    def rollout(i: int, outcome: str) -> rlvr.Rollout:
        verdict = rlvr.Verdict(outcome, why="given", answer=str(i) if outcome == "wrong" else None)
        total = None if outcome == "unscored" else float(outcome == "correct")
        score = rlvr.Score(total, {} if total is None else {"correct": total}, verdict)
        return rlvr.Rollout(task=task, text=f"{outcome} {i}", prompt_ids=[1], completion_ids=[4 + i, 2],
                            completion_mask=[True] * 2, behaviour_logprobs=[-1.0] * 2, weights_version=0,
                            truncated=False, score=score)  # fmt: skip

    return rlvr.Group(task, [rollout(i, outcome) for i, outcome in enumerate(outcomes)])


def test_groups_give_pairs_labels_or_right_completions():
    """One right, two wrong, one unscored, one without an answer: the last two are in nothing."""
    groups = [
        group("correct", "wrong", "unscored", "wrong", "unparsed"),
        group("correct"),
        group("wrong"),
    ]
    pairs, report = examples_of_groups(groups, load_algorithm("dpo"), 0, 1)
    assert {tuple(row.completion_ids[0] for row in one.rows) for one in pairs.rows} == {
        (4, 5),
        (4, 7),
    }
    assert [one.weight for one in pairs.rows] == [0.5, 0.5]
    assert report.metrics()["pair_tasks"] == 1.0
    labels, _ = examples_of_groups(groups, load_algorithm("kto"), 0, 1)
    assert sorted((one.rows[0].completion_ids[0], one.right) for one in labels.rows) == [
        (4, False), (4, True), (4, True), (5, False), (7, False),
    ]  # fmt: skip
    right, _ = examples_of_groups(groups, load_algorithm("rft"), 0, 1)
    assert [(len(one.rows), one.right) for one in right.rows] == [(1, True), (1, True)]


# -------------------------------------------------------------------------------------- from a file


def digits(path: Path) -> Path:
    """The first digit of the prompt is right, the one after it is wrong."""
    return write_json_lines(path, [{"prompt": f"{d}{e}=", "chosen": f"{d}", "rejected": f"{e}"}
                          for d, e in itertools.permutations(range(4), 2)])  # fmt: skip


def offline(run: Path, pairs: Path, **settings) -> Trainer:
    settings = {
        "env": "",
        "algorithm": "dpo",
        "steps": 6,
        "prompts": 5,
        "checkpoint_every": 1,
        "keep": 9,
    } | settings
    return Trainer(
        config(run, pairs=pairs, **settings),
        policy=policy(),
        console=Console(quiet=True, stderr=True),
    )


@pytest.mark.parametrize(
    "name", ["dpo", pytest.param("ipo", marks=pytest.mark.slow), "kto", "rft", "sft"]
)
def test_a_file_is_learnt_and_a_stopped_run_goes_on_to_the_last_bit(name: str, tmp_path: Path):
    """Six steps in one piece, or two and four: the same weights, optimiser, reference and log."""
    pairs = digits(tmp_path / "pairs.jsonl")
    settings = {"algorithm": name, "prompts": 16, "updates": 2}
    if (
        name == "kto"
    ):  # of few rows its loss moves with the reference point: steps have the whole file
        settings |= {"prompts": 24}
    with offline(tmp_path / "whole", pairs, **settings) as whole:
        whole.run()
    with offline(tmp_path / "parts", pairs, **settings | {"steps": 2}) as first:
        first.run()
    with offline(tmp_path / "parts", pairs, **settings) as second:
        assert second.steps_done == 2
        second.run()
    states = [
        checkpoint.load_checkpoint(run / "checkpoints" / "step-00000006.pt")
        for run in (tmp_path / "whole", tmp_path / "parts")
    ]
    assert differences(*states) == []
    assert logged(tmp_path / "whole") == logged(tmp_path / "parts")
    rows = logged(tmp_path / "whole")
    assert rows[-1]["loss"] < rows[0]["loss"]


def test_a_stop_is_saved_at_whatever_question_it_is_seen(tmp_path: Path, monkeypatch):
    """As in the loop that collects."""
    answers = iter([False, False, True, True])
    monkeypatch.setattr(
        checkpoint, "stop_requested", lambda say: contextlib.nullcontext(lambda: next(answers))
    )
    with offline(tmp_path / "run", digits(tmp_path / "pairs.jsonl"), checkpoint_every=100) as made:
        made.run()
        assert made.steps_done == 2
    assert (tmp_path / "run" / "checkpoints" / "step-00000002.pt").is_file()


def test_examples_do_not_come_from_a_pipe(tmp_path: Path):
    """It is read once: the digest of its bytes would take the rows away."""
    os.mkfifo(pipe := tmp_path / "pairs.jsonl")
    with pytest.raises(UsageError, match=r"is a pipe, .* write it to a file"):
        offline(tmp_path / "run", pipe).run()


def test_another_file_is_another_run(tmp_path: Path):
    """The file's contents belong to the settings."""
    pairs = digits(tmp_path / "pairs.jsonl")
    with offline(tmp_path / "run", pairs, steps=1) as first:
        first.run()
    pairs.write_text(
        pairs.read_text(encoding="utf-8").replace('"chosen": "3"', '"chosen": "2"'),
        encoding="utf-8",
    )
    with pytest.raises(UsageError, match="sha256"):
        offline(tmp_path / "run", pairs, steps=2)


def test_completions_end_with_the_end_token_unless_they_were_truncated(tmp_path: Path):
    """Without it a policy learns never to stop; and a completion that is too long is left out, not cut."""
    rows = [
        {"prompt": "1", "chosen": "1", "rejected": "23", "rejected_truncated": True},
        {"prompt": "1", "chosen": "0123456789", "rejected": "2"},
    ]
    tokens = policy().tokenization
    found, left_out = examples_of_file(
        write_json_lines(tmp_path / "p.jsonl", rows), load_algorithm("dpo"), tokens, max_tokens=5
    )
    [one] = found.rows
    end = tokens.tokenizer.eos_token_id
    assert [list(row.completion_ids) for row in one.rows] == [[5, end], [6, 7]]
    assert list(one.rows[0].prompt_ids) == tokens.encode("1")
    assert left_out == 1
    with pytest.raises(DataError, match="more than max_tokens=1"):
        examples_of_file(tmp_path / "p.jsonl", load_algorithm("dpo"), tokens, max_tokens=1)


def test_the_command_line_trains_on_a_file(tmp_path: Path, capsys: pytest.CaptureFixture):
    """From a saved model to a saved model, without an environment."""
    policy().save(tmp_path / "model")
    argv = ["train", "--algorithm", "dpo", "--pairs", str(digits(tmp_path / "p.jsonl")), "--model"]
    argv += [
        str(tmp_path / "model"),
        "--run",
        str(tmp_path / "run"),
        "--steps",
        "1",
        "--prompts",
        "2",
    ]
    assert main(argv) == 0
    assert (tmp_path / "run" / "model" / "config.json").is_file()
    assert "1 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm": "grpo"}, "it is of algorithms of pairs, labels or texts"),
        ({"pairs": None}, "env is missing"),
        ({"algorithm": "sft", "pairs": None}, "sft is trained on a file; give pairs"),
        ({"algorithm": "dpo", "pairs": "one-sided"}, "has no rejected"),
        ({"algorithm": "kto", "pairs": "one-sided"}, "no prompt or no completion|has no rejected"),
    ],
)
def test_what_cannot_be_trained_is_refused(changes: dict, said: str, tmp_path: Path):
    """One error, before a model is touched."""
    write_json_lines(tmp_path / "one-sided", [{"prompt": "1", "chosen": "1"}])
    given = digits(tmp_path / "p.jsonl")
    if "pairs" in changes:
        given = changes["pairs"] and tmp_path / changes["pairs"]
    with pytest.raises(UsageError, match=said):
        offline(tmp_path / "run", given, algorithm=changes.get("algorithm", "dpo"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: algorithm(loss="dpoo"), "there is no algorithm 'dpoo'; did you mean 'dpo'"),
        (lambda: algorithm(beta=0.0), "beta is 0"),
        (lambda: algorithm(smoothing=0.5), "smoothing is 0.5"),
        (lambda: algorithm(loss="ipo", smoothing=0.1), "smoothing is no number of ipo.*dpo has it"),
        (lambda: algorithm(loss="kto", length="mean"), "length is no number of kto"),
        (lambda: algorithm(loss="kto", sft_weight=0.1), "sft_weight is no number of kto"),
        (lambda: algorithm(entropy=0.1), "entropy is no number of dpo"),
    ],
)
def test_numbers_that_cannot_work_are_refused(make, said: str):
    """By name."""
    with pytest.raises(UsageError, match=said):
        make()


@given(st.lists(st.integers(0, 5), max_size=24))
def test_ktos_rows_are_of_other_tasks(prompts):
    """The neighbour's row was of the same task for two rows in three; now none is, if there are two tasks."""
    partners = mismatch_rows([[one] for one in prompts])
    assert len(partners) == (len(prompts) if len(set(prompts)) > 1 else 0)
    assert all(prompts[i] != prompts[k] for i, k in enumerate(partners))
    if partners and 2 * max(map(prompts.count, prompts)) <= len(prompts):
        assert sorted(partners) == list(range(len(prompts)))
