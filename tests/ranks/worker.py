"""One of several processes that train together; see tests/ranks/test_ranks.py.

torchrun --nproc-per-node 2 tests/ranks/worker.py gradients full|lora tied|untied
torchrun --nproc-per-node 2 tests/ranks/worker.py run FOLDER '{"steps": 4}'
"""

import json
import sys
from pathlib import Path

import torch

from rlvr.samplers.protocol import TokenRow
from rlvr.train.config import Config
from rlvr.train.credit import Batch
from rlvr.train.learner import Learner
from rlvr.train.policy import Policy
from rlvr.train.ranks import Ranks
from rlvr.train.tiny import tiny
from tests.train.bandit import CHARSET, Bandit, Turns, trainer

ROWS = [
    TokenRow([1, 5 + i % 3, 6], [7 + (i + k) % 9 for k in range(2 + 3 * (i % 4))]) for i in range(7)
]


def batch() -> Batch:
    """Seven rows, so that no number of ranks divides them; one without a gradient."""
    width = max(len(row.completion_ids) for row in ROWS)
    mask = torch.zeros(len(ROWS), width, dtype=torch.bool)
    for i, row in enumerate(ROWS):
        mask[i, : len(row.completion_ids)] = True
    draw = torch.Generator().manual_seed(0)
    advantages = torch.where(mask, torch.randn(len(ROWS), 1, generator=draw), 0.0)
    advantages[2] = 0.0
    behaviour = torch.where(mask, -2.5 + 0.1 * torch.randn(mask.shape, generator=draw), 0.0)
    return Batch(ROWS, mask, behaviour, advantages)


def learner(ranks: Ranks, trained: str, tied: bool) -> Learner:
    """In float64, with a KL penalty in the loss, and small micro-batches."""
    model, tokenizer = tiny(CHARSET, hidden=16, heads=2, layers=2, tied=tied, dtype=torch.float64)
    policy = Policy(model, tokenizer, share_prompts=False, max_tokens=24)
    if trained == "lora":
        policy.add_lora(rank=2)
        with torch.no_grad():  # as after some steps: a fresh adapter is 0
            for i, p in enumerate(policy.lora.parameters.values()):
                p.copy_(torch.linspace(-0.3, 0.3, p.numel(), dtype=p.dtype).roll(i).view_as(p))
    config = Config(env="x", model="x", run=Path("x"), algorithm="grpo", lr=1e-2, grad_clip=0.5)
    return Learner(policy, config, ranks)


def gradients(one: Learner) -> tuple[dict[str, torch.Tensor], dict[str, float], float]:
    prepared = one.prepared(batch())
    numbers, _ = one.backward(prepared, one.rows_with_gradient(prepared))
    found = {name: p.grad for name, p in one.policy.model.named_parameters() if p.requires_grad}
    norm = float(torch.nn.utils.clip_grad_norm_(one.parameters, 1e9))
    return (
        {name: g.full_tensor() if hasattr(g, "full_tensor") else g for name, g in found.items()},
        numbers,
        norm,
    )


def compare(trained: str, tied: bool) -> None:
    with Ranks.of_environment(torch.device("cpu")) as ranks:
        wanted, their_numbers, their_norm = gradients(learner(Ranks(), trained, tied))
        together = learner(ranks, trained, tied)
        found, numbers, norm = gradients(together)
        assert found.keys() == wanted.keys()
        worst = max(
            ((found[n] - g).norm() / g.norm().clamp(min=1e-300)).item() for n, g in wanted.items()
        )
        assert worst < 1e-12, worst
        assert abs(norm - their_norm) < 1e-12 * their_norm
        assert numbers.keys() == their_numbers.keys()
        assert all(abs(numbers[n] - v) < 1e-12 for n, v in their_numbers.items()), (
            numbers,
            their_numbers,
        )
        steps = together.update(together.prepared(batch()), [range(4), range(4, 7)], on_bad=print)
        assert steps["updates"] == 2.0
        whole = together.policy.whole()
        frozen = together.policy.frozen()
        if trained == "full":  # what `frozen` and `whole` give are the policy as it is now
            with torch.no_grad():
                now, then = together.policy.logprobs(ROWS), frozen.logprobs(ROWS)
            assert torch.equal(now, then)
        if ranks.first:
            sampler = whole.sampler()
            assert sampler.positions
            with torch.no_grad():
                alone = whole.logprobs(ROWS)
        with torch.no_grad():
            shared = together.policy.logprobs(ROWS)
        if ranks.first:
            torch.testing.assert_close(alone, shared, rtol=1e-10, atol=1e-10)
            print(f"gradients differ by {worst:.1e} at most")


class Fails(Bandit):
    """Breaks down after some tasks."""

    def task(self, index: int):
        if index >= 8:
            raise RuntimeError("the data are gone")
        return super().task(index)


def run(folder: str, settings: dict) -> None:
    made = settings.pop("policy", None)
    env = {"fails": Fails, "turns": Turns}.get(settings.pop("env", None), Bandit)()
    policy = Policy(*tiny(CHARSET, hidden=16, heads=2, layers=2), **(made or {}))
    with trainer(Path(folder), env=env, made=policy, quietly=False, **settings) as training:
        if settings.get("steps") == training.step:  # opens the run, and writes it again
            training.save()
        training.run()


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "gradients":
        compare(sys.argv[2], sys.argv[3] == "tied")
    else:
        run(sys.argv[2], json.loads(sys.argv[3]))
