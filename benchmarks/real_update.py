r"""Log-probabilities and gradient of one update of a real model, beside plain transformers:
CPU seconds.

    OMP_WAIT_POLICY=passive python -m benchmarks.real_update MODEL --repeats 3

64 rows of a prompt of 45 tokens and a completion of 4 to 16.  *Shared*: 8 prompts for 8 rows each,
as groups have them; *padded*: 64 prompts.  Plain transformers pads all rows of a micro-batch, takes
the logits of the completions alone (`logits_to_keep`), and is given the micro-batch that is the
fastest for it.  Sides take turns.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from benchmarks.trainer_vs_trl import about
from rlvr.samplers.protocol import TokenRow
from rlvr.train.policy import Policy

PROMPT, ROWS, LONGEST = 45, 64, 16
PLAIN_ROWS = (8, 16, 32, 64)


def drawn(prompts: int, vocabulary: int) -> list[TokenRow]:
    """Rows of drawn tokens, the same number for each prompt."""
    random = torch.Generator().manual_seed(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(vocabulary, (count,), generator=random).tolist())

    contexts = [tokens(PROMPT) for _ in range(prompts)]
    lengths = torch.randint(4, LONGEST + 1, (ROWS,), generator=random).tolist()
    return [
        TokenRow(contexts[i * prompts // ROWS], tokens(length)) for i, length in enumerate(lengths)
    ]


def ours(policy: Policy, rows: Sequence[TokenRow]) -> None:
    """The gradient of the mean log-probability, micro-batch by micro-batch."""
    count = sum(len(row.completion_ids) for row in rows)
    for part in policy.micro_batches(rows):
        (policy.logprobs([rows[i] for i in part]).sum() / count).backward()


def plain(model: torch.nn.Module, rows: Sequence[TokenRow], together: int) -> None:
    """The same as a script on transformers would compute it, completions padded on the right."""
    count = sum(len(row.completion_ids) for row in rows)
    for first in range(0, len(rows), together):
        part = rows[first : first + together]
        width = max(len(row.completion_ids) for row in part)
        ids = torch.zeros(len(part), PROMPT + width, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(part):
            both = (*row.prompt_ids, *row.completion_ids)
            ids[i, : len(both)], mask[i, : len(both)] = torch.tensor(both), 1
        logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=width + 1).logits[:, :-1]
        logprobs = logits.log_softmax(-1).gather(2, ids[:, PROMPT:, None])[..., 0]
        ((logprobs * mask[:, PROMPT:]).sum() / count).backward()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    policy = Policy.load(args.model)
    model = policy.model
    shared, padded = (drawn(n, policy.model.config.vocab_size) for n in (8, 64))

    def gradient(step: Callable[[], None]) -> tuple[float, Tensor]:
        model.zero_grad(set_to_none=True)
        began = time.process_time()
        step()
        spent = time.process_time() - began
        return spent, torch.cat([p.grad.flatten() for p in model.parameters()])

    model.train()
    tried = {n: gradient(lambda n=n: plain(model, padded, n))[0] for n in PLAIN_ROWS}
    together = min(tried, key=lambda n: tried[n])
    sides = {
        "shared": (lambda: ours(policy, shared), lambda: plain(model, shared, together)),
        "padded": (lambda: ours(policy, padded), lambda: plain(model, padded, together)),
    }
    print(about("torch", "transformers"))
    print(f"{torch.get_num_threads()} threads; plain transformers with {together} rows at a time\n")
    print(
        "| rows | CPU s | of plain transformers | ratio | gradients apart, "
        "of the norm |\n|---|--:|--:|--:|--:|"
    )
    for name, (own, other) in sides.items():
        seen = []
        for _ in range(args.repeats):
            (own_s, own_gradient), (other_s, other_gradient) = gradient(own), gradient(other)
            apart = (own_gradient - other_gradient).norm() / other_gradient.norm()
            seen.append((own_s, other_s, own_s / other_s, float(apart)))
        middle = [statistics.median(values) for values in zip(*seen, strict=True)]
        print(
            f"| {name} | {middle[0]:.2f} | {middle[1]:.2f} | {middle[2]:.2f} | "
            f"{max(s[3] for s in seen):.1e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
