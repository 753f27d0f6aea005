"""Step files of other trainers' own runs: what they record is what the judge recomputes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rlvr.algo.judge.verify import verify
from rlvr.data.step_files import read_step
from rlvr.errors import UsageError
from rlvr.interop.step_recorders import record_trl, record_verl
from rlvr.train.tiny import tiny

trl = pytest.importorskip("trl")
pytestmark = pytest.mark.filterwarnings("ignore")  # TRL's and transformers' own


def grpo_trainer(folder, **settings):
    """TRL's trainer with a tiny random model; the reward of a completion is how many digits below 5 it has."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM

    model, tokenizer = tiny("0123456789ab= ", hidden=16, heads=2, layers=1, seed=0)
    model.save_pretrained(folder / "model")  # TRL reads it again for its reference
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    tokenizer.padding_side = "left"
    arguments = {
        "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "steps_per_generation": 2,
        "num_generations": 4, "max_completion_length": 6, "max_steps": 4, "learning_rate": 1e-2, "beta": 0.04,
        "loss_type": "grpo", "report_to": [], "use_cpu": True, "bf16": False, "save_strategy": "no",
        "disable_tqdm": True, "logging_steps": 100, "max_grad_norm": 0.1,
    } | settings  # fmt: skip

    def reward(completions, **more):
        counts = [float(sum(one in "01234" for one in text)) for text in completions]
        return [None if count == 0 else count for count in counts]

    return trl.GRPOTrainer(
        model,
        reward_funcs=[reward],
        args=trl.GRPOConfig(output_dir=str(folder / "out"), **arguments),
        train_dataset=Dataset.from_dict({"prompt": [f"{i}=" for i in range(40)]}),
        processing_class=tokenizer,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"loss_type": "dr_grpo", "scale_rewards": "none", "beta": 0.0, "num_iterations": 2},
        {"loss_type": "bnpo", "beta": 0.0, "gradient_accumulation_steps": 2},
    ],
    ids=["grpo", "dr_grpo, twice", "bnpo"],
)
def test_trls_own_run_verifies(tmp_path, settings):
    """Advantages and the weight of each token, in both updates on a batch."""
    trainer = grpo_trainer(tmp_path, **settings)
    record_trl(trainer, tmp_path / "steps")
    trainer.train()
    files = sorted((tmp_path / "steps").iterdir())
    updates = 2 * settings.get("num_iterations", 1)
    updates //= settings.get("gradient_accumulation_steps", 1)
    weights = []
    for file in files:
        step = read_step(file)
        assert len(step.updates) == updates
        weights += [step.arrays[f"update{n}.weights"] for n in range(updates)]
        departs = [str(one) for one in verify(step) if one.status != "equal"]
        assert departs == []
    assert max(np.abs(one).max() for one in weights) > 0


@pytest.mark.slow
def test_what_cannot_be_recorded_is_refused(tmp_path):
    trainer = grpo_trainer(tmp_path, scale_rewards="batch")
    with pytest.raises(UsageError, match="scale_rewards is 'batch'"):
        record_trl(trainer, tmp_path)
    trainer.args.scale_rewards, trainer.args.loss_type = "group", "vespo"
    with pytest.raises(UsageError, match="loss_type is 'vespo'"):
        record_trl(trainer, tmp_path)
    with pytest.raises(UsageError, match="every"):
        record_trl(trainer, tmp_path, every=0)


def verl_batch(**changes):
    """Two groups of two, padded on both sides; the second row has a tool's reply in it."""
    lengths = [3, 4, 2, 4]
    present = torch.zeros(4, 7, dtype=torch.long)
    for row, length in enumerate(lengths):
        present[row, 3 - row % 3 : 3 + length] = 1
    mask = present[:, 3:].clone()
    mask[1, 1] = 0
    scores = torch.tensor([1.0, 0.0, 1.0, 0.5])
    rewards = torch.zeros(4, 4)
    for row, length in enumerate(lengths):
        rewards[row, length - 1] = scores[row]
    groups = scores.view(2, 2)
    made = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-6)
    tensors = {
        "prompts": torch.arange(12).view(4, 3),
        "responses": torch.arange(16).view(4, 4),
        "attention_mask": present,
        "response_mask": mask,
        "token_level_rewards": rewards,
        "old_log_probs": -torch.rand(4, 4),
        "advantages": made.view(4, 1) * mask,
    } | changes
    uid = np.array(["a", "a", "b", "b"], object)
    tensors = {name: value for name, value in tensors.items() if value is not None}
    return SimpleNamespace(batch=tensors, non_tensor_batch={"uid": uid})


def test_verls_advantages_verify(tmp_path):
    """Also where they are wrong: by a tenth, at one row."""
    file = tmp_path / "step.safetensors"
    record_verl(verl_batch(), file, step=7)
    step = read_step(file)
    assert [str(one) for one in verify(step)] == ["advantages: equal"]
    assert step.head["step"] == 7
    np.testing.assert_array_equal(step.arrays["offsets"], [0, 3, 7, 9, 13])
    assert not step.arrays["mask"][4]
    wrong = verl_batch()
    wrong.batch["advantages"][2] *= 1.1
    record_verl(wrong, file)
    [finding] = verify(read_step(file))
    assert (finding.status, finding.row) == ("departs", 2)


def test_a_verl_batch_that_lacks_something_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no advantages; record it after compute_advantage"):
        record_verl(verl_batch(advantages=None), tmp_path / "a")
    with pytest.raises(UsageError, match="algorithm is 'gae'"):
        record_verl(verl_batch(), tmp_path / "a", algorithm="gae")
    batch = verl_batch()
    batch.non_tensor_batch = {}
    with pytest.raises(UsageError, match="no uid"):
        record_verl(batch, tmp_path / "a")
    assert not (tmp_path / "a").exists()
