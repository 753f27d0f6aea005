r"""Time to sample rollouts, beside `generate` of transformers,
as the Markdown table of docs/benchmarks/trainer.md.

    OMP_NUM_THREADS=1 python -m benchmarks.sampler_speed

Both draw 64 rollouts, 8 of each of 8 prompts, from one Qwen2 of a million random weights in
float32, and each rollout ends after as many tokens as the table of lengths says: ours by its limit,
theirs by a stopping criterion, so that the model itself ends none.  `generate` is given every
prompt 8 times, as TRL gives it, and both give logprobs.

Sides take turns, so that a slow minute of the machine falls on both; a ratio is of one round,
its median of all.
"""

import argparse
import datetime
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch
import transformers

from rlvr.samplers.local import LocalSampler
from rlvr.samplers.protocol import Request, Sampling
from rlvr.samplers.tokenization import Tokenization
from rlvr.train.tiny import tiny

PROMPTS, GROUP, LONGEST, MEAN = 8, 8, 192, 44
CHARSET = "0123456789+-=abcdefgh\n ;:()"


def skewed() -> list[int]:
    """64 lengths of mean 44, most of them short, one of 192."""
    draws = np.random.default_rng(0).exponential(size=PROMPTS * GROUP)
    lengths = np.sort(np.clip(draws / draws.mean() * MEAN, 4, LONGEST)).round().astype(int)
    lengths[-1] = LONGEST
    lengths[lengths < 60] += round((MEAN * len(lengths) - lengths.sum()) / (lengths < 60).sum())
    return list(np.random.default_rng(1).permutation(lengths).tolist())


def ours(
    model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], lengths: Sequence[int]
) -> Callable[[], int]:
    tokenization = Tokenization(tokenizer, end_ids=())
    sampling = Sampling(max_tokens=LONGEST)

    def run() -> int:
        sampler, finished, tokens = LocalSampler(model, tokenization), 0, 0
        for i, n in enumerate(lengths):
            sampler.submit(Request(i, tuple(prompts[i // GROUP]), sampling, seed=i, limit=n))
        while finished < len(lengths):
            for _, sample in sampler.poll():
                finished, tokens = finished + 1, tokens + len(sample.completion_ids)
        return tokens

    return run


def theirs(
    model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], lengths: Sequence[int]
) -> Callable[[], int]:
    width = max(map(len, prompts))
    ids = torch.zeros(len(lengths), width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for i in range(len(lengths)):
        prompt = prompts[i // GROUP]
        ids[i, width - len(prompt) :], mask[i, width - len(prompt) :] = torch.tensor(prompt), 1
    due = torch.tensor(lengths)

    class Due(transformers.StoppingCriteria):  # type: ignore[misc]
        def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
            return input_ids.shape[1] - width >= due

    config = transformers.GenerationConfig(
        do_sample=True, top_k=0, max_new_tokens=LONGEST, pad_token_id=0, eos_token_id=None,
        return_dict_in_generate=True, output_logits=True,
    )  # fmt: skip

    @torch.inference_mode()
    def run() -> int:
        out = model.generate(
            ids, attention_mask=mask, generation_config=config, stopping_criteria=[Due()]
        )
        for logits, token in zip(out.logits, out.sequences[:, width:].T, strict=True):
            logits.float().log_softmax(-1).gather(1, token[:, None])
        return int(torch.clamp(due, max=out.sequences.shape[1] - width).sum())

    return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, choices=range(1, 51), metavar="N")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = tiny(CHARSET, hidden=128, layers=4, heads=4)
    model.generation_config.eos_token_id = (
        None  # else an end token that is drawn by chance ends theirs
    )
    torch.manual_seed(0)
    print(
        f"{datetime.date.today()}; "
        f"torch {torch.__version__}, transformers {transformers.__version__}, Python",
        end=" ",
    )
    print(
        f"{platform.python_version()}; "
        f"{model.num_parameters():,} weights, one thread of {os.cpu_count()} cores;",
        end=" ",
    )
    print(f"median (least–greatest) of {args.repeats} rounds.\n")
    print(
        "| 64 rollouts | rlvr, s | `generate`, s | time, × rlvr | rlvr, "
        "tokens/s |\n|---|--:|--:|--:|--:|"
    )
    for lengths_named, lengths in {
        f"skewed: mean {MEAN}, longest {LONGEST}": skewed(),
        f"uniform: all of {MEAN}": [MEAN] * PROMPTS * GROUP,
    }.items():
        for prompts_named, widths in {
            "prompts of 12": [12] * PROMPTS,
            "prompts of 8 to 15": range(8, 16),
        }.items():
            prompts = [[1, *[5 + i] * (width - 1)] for i, width in enumerate(widths)]
            sides = [side(model, tokenizer, prompts, lengths) for side in (ours, theirs)]
            assert [run() for run in sides] == [sum(lengths)] * 2  # and both are warm
            took: list[list[float]] = [[], []]
            for _ in range(args.repeats):
                for run, times in zip(sides, took, strict=True):
                    start = perf_counter()
                    run()
                    times.append(perf_counter() - start)
            shown = [f"{statistics.median(x):.3f} ({min(x):.3f}–{max(x):.3f})" for x in took]
            ratio = statistics.median(b / a for a, b in zip(*took, strict=True))
            rate = sum(lengths) / statistics.median(took[0])
            print(
                f"| {lengths_named}; {prompts_named} | {shown[0]} | {shown[1]} | "
                f"{ratio:.2f} | {rate:,.0f} |"
            )


if __name__ == "__main__":
    main()
