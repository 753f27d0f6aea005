"""Steps of the trainer in files: the judge recomputes them, whatever the algorithm and its parts."""

import dataclasses

import numpy as np
import pytest
import torch

from rlvr.algo.judge.verify import verify
from rlvr.algo.papers import NAMES, load_algorithm
from rlvr.cli.entry import main
from rlvr.data.step_files import StepFile, read_step
from rlvr.train import step_recorder
from rlvr.train.gradient_sketch import sketch_of, weights_digest
from tests.processes import in_turn
from tests.train.bandit import trainer

PARTS = {
    "grpo, every part": (
        "grpo",
        {
            "correction": "token:truncate:2,sequence:mask:0.5:2",
            "entropy": 0.01,
            "entropy_share": 0.5,
            "kl_weighted": True,
            "subset_size": 3,
        },
    ),
    "grpo, masked": ("grpo", {"overlong": "mask", "masked_vote": False, "clip_dual": 3.0}),
    "grpo, adaptive": ("grpo", {"kl_rule": "ppo", "kl_target": 0.01}),
    "ppo": ("ppo", {}),
    "vineppo": ("vineppo", {}),
    "dapo, by group": ("dapo", {"aggregation": "group_token_mean"}),
    "ppo, beside the group's": ("ppo", {"group_weight": 0.5, "group_size": 4}),
    "grpo, likelihood and novelty": ("grpo", {"likelihood": 0.1, "novelty": 0.5}),
    "gspo, two epochs": ("gspo", {"epochs": 2}),
    "reinforce_pp": ("reinforce_pp", {}),
    "reinforce, moving average": ("reinforce", {}),
}
RUNS = [
    name
    for name in NAMES
    if load_algorithm(name).examples is None
    # A teacher, steps with rewards, or parts of a reward are what these need; the last two have no weights per token.
    and name not in ("distill", "grpo_process", "gdpo", "gkd", "sdft", "trpo")
]


def steps_of(folder, name: str, numbers, **settings):
    """The files of a short run of two updates or epochs a step, if the algorithm has several."""
    algorithm = load_algorithm(name, **numbers)
    if algorithm.dynamic_sampling:
        algorithm = dataclasses.replace(algorithm, dynamic_sampling=False)
    settings = {"prompts": 4, "group_size": 4, "steps": 2, "step_files": 1} | settings
    with trainer(folder, algorithm=algorithm, **settings) as made:
        before = weights_digest(made.policy.model)
        made.run()
        after = weights_digest(made.policy.model)
    files = sorted((folder / "steps").iterdir())
    return files, before, after


@pytest.mark.parametrize("case", in_turn(PARTS, 3))
def test_steps_with_parts_verify(case: str, tmp_path):
    """Each quantity is what the judge makes of those before it."""
    files, before, after = steps_of(tmp_path / "run", *PARTS[case])
    assert [file.name for file in files] == [f"step-0000000{n}.safetensors" for n in (1, 2)]
    for file in files:
        step = read_step(file)
        assert step.updates
        assert np.abs(step.arrays["update0.weights"]).max() > 0
        findings = verify(step)
        assert [str(one) for one in findings if one.status != "equal"] == []
    assert read_step(files[0]).head["weights_before"] == before
    assert read_step(files[-1]).head["weights_after"] == after


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_steps_of_every_algorithm_verify(name: str, tmp_path):
    """At the paper's numbers."""
    for file in steps_of(tmp_path / "run", name, {})[0]:
        findings = verify(read_step(file))
        assert [str(one) for one in findings if one.status != "equal"] == []


def test_rows_that_no_update_has_are_named(tmp_path):
    """Unless an update was left out, as that of numbers that are not finite is."""
    step = read_step(steps_of(tmp_path / "run", "grpo", {}, steps=1)[0][0])
    head = {**step.head, "updates": []}
    arrays = {name: array for name, array in step.arrays.items() if not name.startswith("update")}
    token = int(np.flatnonzero(arrays["advantages"])[0])
    [departs] = [one for one in verify(StepFile(head, arrays)) if one.status == "departs"]
    row = int(np.searchsorted(arrays["offsets"], token, side="right")) - 1
    assert (departs.quantity, departs.row) == ("updates", row)
    skipped = StepFile({**head, "skipped": True}, arrays)
    assert {one.status for one in verify(skipped)} == {"equal"}


def test_a_policy_that_waits_for_its_critic_departs_from_nothing(tmp_path):
    """Its first step has rows with advantages and no update."""
    files, _, _ = steps_of(tmp_path / "run", "ppo", {"critic_warmup": 1})
    steps = [read_step(file) for file in files]
    assert [bool(step.updates) for step in steps] == [False, True]
    assert {one.status for step in steps for one in verify(step)} == {"equal"}


def test_recording_changes_nothing(tmp_path):
    """A run with files has the weights of one without, and only the steps that are asked for."""
    _, _, plain = steps_of(tmp_path / "plain", "grpo", {}, step_files=2, steps=3)
    with trainer(tmp_path / "other", algorithm="grpo", prompts=4, group_size=4, steps=3) as made:
        made.run()
        assert weights_digest(made.policy.model) == plain
    names = [file.name for file in (tmp_path / "plain" / "steps").iterdir()]
    assert sorted(names) == ["step-00000001.safetensors", "step-00000003.safetensors"]
    assert not (tmp_path / "other" / "steps").exists()


def test_the_command_verifies_shows_and_compares(tmp_path, capsys):
    """Exit code 1 where a number departs or files differ."""
    files, _, _ = steps_of(tmp_path / "run", "grpo", {})
    first, second = map(str, files)
    assert main(["step", "verify", first]) == 0
    assert "update 0: weights: equal" in capsys.readouterr().out
    assert main(["step", "show", first]) == 0
    assert "algorithm grpo" in capsys.readouterr().out
    assert main(["step", "diff", first, first]) == 0
    assert main(["step", "diff", first, second]) == 1
    assert "token_ids" in capsys.readouterr().out
    assert main(["step", "diff", first]) == 2


def test_a_digest_is_computed_once_between_two_updates(tmp_path, monkeypatch):
    """That after a step is the one before the next, as nothing writes the weights between them."""
    computed = []

    def count(model):
        computed.append(weights_digest(model))
        return computed[-1]

    monkeypatch.setattr(step_recorder, "weights_digest", count)
    files, before, after = steps_of(tmp_path / "run", "grpo", {})
    heads = [read_step(file).head for file in files]
    assert [(head["weights_before"], head["weights_after"]) for head in heads] == [
        tuple(computed[:2]),
        tuple(computed[1:]),
    ]
    assert (computed[0], computed[-1], len(computed)) == (before, after, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_digest_sees_each_change(dtype):
    """Also two signs in one row, a change of order, and a weight past the last whole row."""
    model = torch.nn.Linear(1030, 3, bias=False, dtype=dtype)
    weights, digests = model.weight, [weights_digest(model)]
    with torch.no_grad():
        for change in (
            lambda: weights[0, :2].neg_(),
            lambda: weights.copy_(weights.flip(1)),
            lambda: weights[2, 1029].neg_(),
        ):
            change()
            digests.append(weights_digest(model))
    assert len(set(digests)) == len(digests)


def test_a_sketch_is_linear_and_keeps_angles():
    """Sketches of shards add up; a cosine is kept to a few hundredths, as 4,096 numbers allow."""
    draw = torch.Generator().manual_seed(0)
    a, noise = (torch.randn(300_000, generator=draw) for _ in range(2))
    whole = sketch_of([(0, a)], len(a))
    parts = [
        sketch_of([(start, a[start:stop])], len(a))
        for start, stop in ((0, 7), (7, 70_000), (70_000, 300_000))
    ]
    np.testing.assert_allclose(sum(parts), whole, atol=1e-3)
    b = 0.6 * a + 0.8 * noise
    other = sketch_of([(0, b)], len(b))
    cosine = whole @ other / np.linalg.norm(whole) / np.linalg.norm(other)
    true = float(a @ b / a.norm() / b.norm())
    assert cosine == pytest.approx(true, abs=4 / 4096**0.5)
