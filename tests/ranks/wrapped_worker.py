"""One of two processes: the policy's root under DDP, against the same rows in one process.

torchrun --nproc-per-node 2 tests/ranks/wrapped_worker.py tied|untied full|lora
"""

import gc
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rlvr.samplers.protocol import TokenRow
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

ROWS = [TokenRow([1, 5 + i, 6], [7 + (i + k) % 9 for k in range(2 + 3 * i)]) for i in range(4)]


def made(tied: bool) -> Policy:
    """As many passes through the layers on every rank: prompts are not shared."""
    model, tokenizer = tiny(
        "0123456789+-= abcxy", hidden=32, layers=3, kv_heads=2, tied=tied, dtype=torch.float64
    )
    return Policy(model, tokenizer, share_prompts=False)


def loss(policy: Policy, rows) -> torch.Tensor:
    """A sum over tokens, so that the ranks' losses add up."""
    logprobs, entropy = policy.logprobs(rows, 0.7, with_entropy=True)
    return (logprobs * torch.arange(1, logprobs.shape[1] + 1)).sum() + 0.1 * entropy.sum()


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    found = {name: p.grad for name, p in policy.model.named_parameters() if p.requires_grad}
    return {name: g for name, g in found.items() if g is not None}


def main(tied: bool, trained: str) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    compare(tied, trained)
    gc.collect()  # a wrapper that outlives the group can hang where it is freed
    dist.barrier()
    dist.destroy_process_group()


def compare(tied: bool, trained: str) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    alone, policy = made(tied), made(tied)
    if trained == "lora":
        for one in (alone, policy):
            one.add_lora(rank=2)
            with torch.no_grad():  # as after some steps: a fresh adapter is 0
                for i, p in enumerate(one.lora.parameters.values()):
                    p.copy_(torch.linspace(-0.3, 0.3, p.numel(), dtype=p.dtype).roll(i).view_as(p))
    loss(alone, ROWS).backward()
    wanted = gradients(alone)
    policy.root = DistributedDataParallel(policy.root)
    if trained == "lora":
        with torch.no_grad(), policy.lora.off():
            off = policy.logprobs(ROWS)
        torch.testing.assert_close(off, made(tied).logprobs(ROWS).detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        policy.logprobs(ROWS).detach(), alone.logprobs(ROWS).detach(), rtol=1e-10, atol=1e-10
    )
    (loss(policy, ROWS[rank::world]) * float(world)).backward()  # it takes means
    found = gradients(policy)
    worst = max(
        ((found[n] - g).norm() / g.norm().clamp(min=1e-300)).item() for n, g in wanted.items()
    )
    assert found.keys() == wanted.keys()
    assert worst < 1e-12, worst
    if rank == 0:
        print(f"{'tied' if tied else 'untied'} {trained}: gradients differ by {worst:.1e} at most")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1] == "tied", sys.argv[2])
    # Without the interpreter's own end, in which threads of gloo abort the process now and then: all is checked by now.
    sys.stdout.flush()
    os._exit(0)
