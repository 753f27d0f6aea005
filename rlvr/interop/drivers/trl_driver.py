"""TRL's whole GRPOTrainer on given tokens, by `rollout_func`; a tiny random model
gives the log-probabilities."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "TRANSFORMERS_VERBOSITY": "error"}
warnings.filterwarnings("ignore")

# beside this file, in a peer's interpreter
from step_io import Step, TrainerConventions, main, stand_in_for  # noqa: E402

stand_in_for(())

import numpy as np  # noqa: E402
import torch  # noqa: E402
import trl  # noqa: E402
from datasets import Dataset  # noqa: E402
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers  # noqa: E402
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402
from trl_watch import Update, watch_updates  # noqa: E402

__all__ = ["CONVENTIONS", "run"]

CONVENTIONS = {
    "std": "sample",  # grpo_trainer.py: torch.std, and nanstd before
    "eps": 1e-4,  # grpo_trainer.py: advantages / (std_rewards + 1e-4)
    "bound": float("inf"),  # no log ratio is clamped there
}
_VOCABULARY = 40
_Micro: TypeAlias = tuple[int, Mapping[str, torch.Tensor], torch.Tensor, torch.Tensor]
_LOSSES = {"dapo": "dapo", "grpo": "grpo", "dr_grpo": "dr_grpo", "gspo": "grpo"}


def _tokenizer(case: dict[str, object]) -> PreTrainedTokenizerFast:
    """A word for each id; with `retokenised` the text of 39 is read as 38."""
    words = {"<pad>": 0, "<eos>": 1} | {f"t{i}": i for i in range(2, _VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t2"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if case.get("retokenised"):
        tokenizer.normalizer = normalizers.Replace("t39", "t38")
    pad = "<eos>" if case.get("pad_is_end") else "<pad>"
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, eos_token="<eos>", padding_side="left"
    )


def _model(folder: Path, tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=_VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        architectures=["Qwen2ForCausalLM"],
    )
    tokenizer.save_pretrained(folder)
    config.save_pretrained(folder)
    weights = Qwen2ForCausalLM(config).state_dict()
    torch.save(weights, folder / "pytorch_model.bin")  # save_pretrained writes on one rank alone
    return Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)


def run(step: Step) -> tuple[str, TrainerConventions]:
    """Train one batch of a case.

    Args:
        step: the case; it gets advantages, and each optimiser step.
    """
    prompts = [" ".join(f"t{int(token_id)}" for token_id in ids) for ids in step.rows("prompt_ids")]
    rows = [ids.tolist() for ids in step.rows("token_ids")]
    masks = [mask.astype(int).tolist() for mask in step.rows("mask")]
    case, numbers = step.case, step.numbers
    tokenizer, ranks = _tokenizer(case), case.get("ranks", 1)
    if case["given"]:
        raise NotImplementedError("the whole trainer computes log-probabilities and masks itself")
    scores = {
        (p, tuple(ids)): s for p, ids, s in zip(prompts, rows, step.arrays["score"], strict=True)
    }

    def rollout(asked: list[str], trainer: object = None, **more: object) -> dict[str, list]:
        outputs: dict[str, list] = {"prompt_ids": [], "completion_ids": [], "logprobs": []}
        count: dict[str, int] = {}
        for prompt in asked:
            prompt_rows = [row for row, row_prompt in enumerate(prompts) if row_prompt == prompt]
            row = prompt_rows[count.get(prompt, 0)]
            ids = rows[row]
            count[prompt] = count.get(prompt, 0) + 1
            outputs["prompt_ids"].append(tokenizer(prompt).input_ids)
            outputs["completion_ids"].append(ids)
            outputs["logprobs"].append([0.0] * len(ids))
            if not case.get("masks_truncated"):
                outputs.setdefault("env_mask", []).append(masks[row])
        return outputs

    def reward(
        prompts: Sequence[str] = (), completion_ids: Sequence[list[int]] = (), **more: object
    ) -> list[float]:
        return [
            float(scores[p, tuple(int(token_id) for token_id in ids)])
            for p, ids in zip(prompts, completion_ids, strict=True)
        ]

    with tempfile.TemporaryDirectory() as folder:
        kl = numbers.get("kl")
        arguments = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=case["micro"],
            gradient_accumulation_steps=case["accumulate"],
            steps_per_generation=len(rows) // case["micro"] // ranks,
            num_generations=case["siblings"],
            max_completion_length=case["longest"],
            temperature=case.get("temperature", 1.0),
            loss_type=_LOSSES[numbers["name"]],
            importance_sampling_level="sequence" if numbers["name"] == "gspo" else "token",
            epsilon=numbers["clip"]["low"],
            epsilon_high=numbers["clip"]["high"],
            beta=kl["coefficient"] if kl else 0.0,
            mask_truncated_completions=case.get("masks_truncated", False),
            learning_rate=0.0,
            max_steps=len(rows) // case["micro"] // case["accumulate"] // ranks,
            max_grad_norm=0.0,
            report_to=[],
            use_cpu=True,
            ddp_backend="gloo" if ranks > 1 else None,
            bf16=False,
            logging_steps=100,
            save_strategy="no",
            shuffle_dataset=False,
            disable_tqdm=True,
            gradient_checkpointing=False,
        )
        model = _model(Path(folder) / "model", tokenizer)
        trainer = GRPOTrainer(
            model,
            reward_funcs=[reward],
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": list(dict.fromkeys(prompts))}),
            processing_class=tokenizer,
            rollout_func=rollout,
        )
        updates: list[Update] = []
        watch_updates(trainer, updates.append)
        draw = torch.Generator().manual_seed(5)
        with torch.no_grad():  # away from the reference
            for parameter in trainer.model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=draw) * 0.03)
        trainer.train()
        _record(step, rows, _of_all_ranks(updates, ranks), tokenizer.pad_token_id)
        step.add_alone(trainer.model)
    conventions = dict(CONVENTIONS)
    if numbers.get("kl") and getattr(arguments, "use_bias_correction_kl", False):
        conventions["kl_ratio"] = "token"  # its help: as in DeepSeek-V3.2, whose ratio is a token's
    return f"trl {trl.__version__}", conventions


def _of_all_ranks(updates: list[Update], ranks: int) -> list[list[_Micro]]:
    """(rank, what the loss read, log-probabilities, slopes) of each update's micro-batches; ranks
    average their gradients."""
    names = (
        "completion_ids completion_mask tool_mask advantages old_per_token_logps "
        "ref_per_token_logps"
    )
    mine = [
        [
            (
                {name: inputs[name] for name in names.split() if inputs.get(name) is not None},
                values.detach(),
                values.grad / ranks,
            )
            for inputs, values in update
        ]
        for update in updates
    ]
    every = [mine] * ranks
    if ranks > 1:
        torch.distributed.all_gather_object(every, mine)
    return [
        [(rank, *micro) for rank, micros in enumerate(update) for micro in micros]
        for update in zip(*every, strict=True)
    ]


def _record(step: Step, rows: list[list[int]], updates: list[list[_Micro]], pad: int) -> None:
    """Tokens, advantages, reference and old log-probabilities as the trainer had them, and each
    optimiser step."""
    names = {"advantages": "advantages", "old": "behaviour_logprobs", "ref": "ref_logprobs"}
    arrays = {name: [np.zeros(len(ids), np.float32) for ids in rows] for name in names}
    tokens, mask = (
        [np.array(ids, np.int32) for ids in rows],
        [np.zeros(len(ids), bool) for ids in rows],
    )
    for update in updates:
        order, logprobs, weights, micros, ranks = [], [], [], [], []
        for micro, (rank, inputs, values, slopes) in enumerate(update):
            for i, ids in enumerate(inputs["completion_ids"].tolist()):
                row = _most_alike(rows, order, ids, pad)
                n = len(rows[row])
                order.append(row)
                micros.append(micro)
                ranks.append(rank)
                logprobs.append(values[i, :n].numpy())
                weights.append(slopes[i, :n].numpy())
                used = inputs["completion_mask"] * inputs.get("tool_mask", 1)
                tokens[row][:], mask[row][:] = ids[:n], used[i, :n].bool()
                arrays["advantages"][row][:] = float(inputs["advantages"][i].reshape(-1)[0])
                arrays["old"][row] = inputs.get("old_per_token_logps", values)[i, :n].numpy()
                if "ref_per_token_logps" in inputs:
                    arrays["ref"][row] = inputs["ref_per_token_logps"][i, :n].numpy()
        step.add_update(order, logprobs, weights, micro=micros, rank=ranks)
    step.arrays |= {"token_ids": np.concatenate(tokens), "mask": np.concatenate(mask)}
    for name, array in names.items():
        if name != "ref" or step.numbers.get("kl"):
            step.arrays[array] = np.concatenate(arrays[name])


def _most_alike(rows: list[list[int]], taken: list[int], ids: list[int], pad: int) -> int:
    """The row that padded tokens are of; a trainer may have changed some of them."""

    def alike(row: int) -> int:
        padded = rows[row] + [pad] * (len(ids) - len(rows[row]))
        return sum(a == b for a, b in zip(ids, padded, strict=False))

    return max((row for row in range(len(rows)) if row not in taken), key=alike)


if __name__ == "__main__":
    main(run)
