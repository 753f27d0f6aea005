"""TRL's `GRPOTrainer` asks its reward function as in a step; the scores come from services."""

import math

import pytest

pytest.importorskip("trl", reason="TRL is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from rlvr.interop import to_trl
from tests.peers.digits import COUNT, completion_of

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
STEP = 50


def trainer_of(reward, folder):
    words = {"[UNK]": 0, "[EOS]": 1}
    backend = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="[EOS]", pad_token="[EOS]", unk_token="[UNK]"
    )
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = LlamaConfig(vocab_size=2, num_attention_heads=1, num_key_value_heads=1, **sizes)
    args = GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=2, num_generations=2, use_cpu=True,
        report_to=[], bf16=False,
    )  # fmt: skip
    given = {"reward_funcs": reward.reward_funcs, "train_dataset": reward.dataset}
    assert isinstance(reward.dataset, Dataset)
    model = LlamaForCausalLM(config)
    return GRPOTrainer(model=model, processing_class=tokenizer, args=args, **given)


def test_the_trainers_rewards_are_those_of_the_command(service, env, totals, tmp_path):
    """The service is killed midway; what we fail at is TRL's "no reward" (NaN), which it masks."""
    rewards = []
    with to_trl(env, scorer=service.url) as reward:
        trainer, rows = trainer_of(reward, tmp_path), list(reward.dataset)
        for start in range(0, COUNT, STEP):
            if start == COUNT // 2:
                service.replace()
            inputs = rows[start : start + STEP]
            texts = [completion_of(start + n) for n in range(STEP)]
            rewards += trainer._calculate_rewards(
                inputs, [row["prompt"] for row in inputs], texts, [[1]] * STEP
            )[:, 0].tolist()
    assert service.kills == 1
    assert {i: None if math.isnan(r) else r for i, r in enumerate(rewards)} == totals
