"""TRL's whole GRPOTrainer on given tokens, by `rollout_func`; a tiny random model gives the log-probabilities."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "TRANSFORMERS_VERBOSITY": "error"}
warnings.filterwarnings("ignore")

from step_io import Step, main, stand_in  # noqa: E402  beside this file, in a peer's interpreter

stand_in(())

import numpy as np  # noqa: E402
import torch  # noqa: E402
import trl  # noqa: E402
from datasets import Dataset  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402
from trl_watch import watch  # noqa: E402

__all__ = ["CONVENTIONS", "run"]

CONVENTIONS = {
    "std": "sample",  # grpo_trainer.py: torch.std, and nanstd before
    "eps": 1e-4,  # grpo_trainer.py: advantages / (std_rewards + 1e-4)
    "bound": float("inf"),  # no log ratio is clamped there
}
_VOCABULARY = 40
_LOSSES = {"dapo": "dapo", "grpo": "grpo", "dr_grpo": "dr_grpo", "gspo": "grpo"}


def _tokenizer(pad: str) -> Any:
    words = {"<pad>": 0, "<eos>": 1} | {f"t{i}": i for i in range(2, _VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t2"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, eos_token="<eos>", padding_side="left"
    )


def _model(folder: Path, tokenizer: Any) -> Any:
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
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)


def run(step: Step) -> tuple[str, dict[str, Any]]:
    """Train one batch of a case.

    Args:
        step: the case; it gets advantages, and each optimiser step.
    """
    prompts = [" ".join(f"t{int(one)}" for one in ids) for ids in step.rows("prompt_ids")]
    rows = [ids.tolist() for ids in step.rows("token_ids")]
    case, numbers = step.case, step.numbers
    tokenizer = _tokenizer("<eos>" if case.get("pad_is_end") else "<pad>")
    if case["given"]:
        raise NotImplementedError("the whole trainer computes log-probabilities and masks itself")
    scores = {
        (p, tuple(ids)): s for p, ids, s in zip(prompts, rows, step.arrays["score"], strict=True)
    }

    def rollout(asked: list[str], trainer: Any = None, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"prompt_ids": [], "completion_ids": [], "logprobs": []}
        count: dict[str, int] = {}
        for prompt in asked:
            own = [ids for one, ids in zip(prompts, rows, strict=True) if one == prompt]
            ids = own[count.get(prompt, 0)]
            count[prompt] = count.get(prompt, 0) + 1
            found["prompt_ids"].append(tokenizer(prompt).input_ids)
            found["completion_ids"].append(ids)
            found["logprobs"].append([0.0] * len(ids))
        return found

    def reward(prompts: Any = None, completion_ids: Any = None, **more: Any) -> list[float]:
        return [
            float(scores[p, tuple(int(one) for one in ids)])
            for p, ids in zip(prompts, completion_ids, strict=True)
        ]

    with tempfile.TemporaryDirectory() as folder:
        kl = numbers.get("kl")
        arguments = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=case["micro"],
            gradient_accumulation_steps=case["accumulate"],
            steps_per_generation=len(rows) // case["micro"],
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
            max_steps=len(rows) // case["micro"] // case["accumulate"],
            max_grad_norm=0.0,
            report_to=[],
            use_cpu=True,
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
        updates: list[Any] = []
        watch(trainer, updates.append)
        draw = torch.Generator().manual_seed(5)
        with torch.no_grad():  # away from the reference
            for parameter in trainer.model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=draw) * 0.03)
        trainer.train()
        _record(step, rows, updates, tokenizer.pad_token_id)
        _add_alone(step, rows, trainer.model)
    conventions = dict(CONVENTIONS)
    if numbers.get("kl") and getattr(arguments, "use_bias_correction_kl", False):
        conventions["kl_ratio"] = "token"  # its help: as in DeepSeek-V3.2, whose ratio is a token's
    return f"trl {trl.__version__}", conventions


def _record(step: Step, rows: list[list[int]], updates: list[Any], pad: int) -> None:
    """Advantages, reference and old log-probabilities of the batch, and each optimiser step."""
    lengths = [len(ids) for ids in rows]
    values_by_name = {
        name: [np.zeros(n, np.float32) for n in lengths] for name in ("advantages", "old", "ref")
    }
    mask = [np.zeros(n, bool) for n in lengths]
    for update in updates:
        order, logprobs, weights = [], [], []
        for inputs, values in update:
            for i, ids in enumerate(inputs["completion_ids"].tolist()):
                row = next(
                    r
                    for r, completion in enumerate(rows)
                    if ids[: len(completion)] == completion
                    and all(one == pad for one in ids[len(completion) :])
                )
                n = lengths[row]
                order.append(row)
                logprobs.append(values[i, :n].detach().numpy())
                weights.append(values.grad[i, :n].numpy())
                advantages = inputs["advantages"][i]
                values_by_name["advantages"][row][:] = float(
                    advantages if advantages.dim() == 0 else advantages[0]
                )
                mask[row][:] = inputs["completion_mask"][i, :n].bool().numpy()
                old = inputs.get("old_per_token_logps")
                values_by_name["old"][row] = (values.detach() if old is None else old)[
                    i, :n
                ].numpy()
                if inputs.get("ref_per_token_logps") is not None:
                    values_by_name["ref"][row] = inputs["ref_per_token_logps"][i, :n].numpy()
        step.add_update(order, logprobs, weights)
    step.arrays["mask"] = np.concatenate(mask)
    step.arrays["advantages"] = np.concatenate(values_by_name["advantages"])
    step.arrays["behaviour_logprobs"] = np.concatenate(values_by_name["old"])
    if step.numbers.get("kl"):
        step.arrays["ref_logprobs"] = np.concatenate(values_by_name["ref"])


def _add_alone(step: Step, rows: list[list[int]], model: Any) -> None:
    """Log-probabilities of one row at a time, unpadded, at the case's temperature, in both precisions;
    the learning rate is 0, so the model is that of all updates."""
    prompts, temperature = step.rows("prompt_ids"), step.case.get("temperature", 1.0)
    for name, dtype in (("alone_float32", torch.float32), ("alone", torch.float64)):
        model = model.to(dtype).eval()
        found = []
        for prompt, ids in zip(prompts, rows, strict=True):
            tokens = torch.tensor([[*prompt.tolist(), *ids]])
            with torch.no_grad():
                logits = model(input_ids=tokens).logits[0, len(prompt) - 1 : -1] / temperature
            logprobs = logits.log_softmax(dim=-1)
            found.append(logprobs.gather(1, torch.tensor(ids)[:, None])[:, 0].double().numpy())
        for number in range(len(step.updates)):
            order = step.arrays[f"update{number}.computed"].tolist()
            step.arrays[f"update{number}.{name}"] = np.concatenate([found[row] for row in order])


if __name__ == "__main__":
    main(run)
