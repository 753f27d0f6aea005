"""One of several processes that train together; see tests/ranks/test_ranks.py.

python tests/ranks/worker.py gradients FOLDER
torchrun --nproc-per-node 2 tests/ranks/worker.py parts
torchrun --nproc-per-node 2 tests/ranks/worker.py memory FOLDER MODEL
torchrun --nproc-per-node 2 tests/ranks/worker.py load MODEL
torchrun --nproc-per-node 2 tests/ranks/worker.py names TEACHER grpo,dapo
torchrun --nproc-per-node 2 tests/ranks/worker.py run FOLDER '{"steps": 4}'
"""

import faulthandler
import gc
import json
import multiprocessing
import os
import socket
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GPT2Config, MistralConfig, Qwen3MoeConfig

from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.base import Algorithm
from rlvr.algo.parts import Correction, EntropyTarget, Kl, Mixing
from rlvr.samplers.protocol import TokenRow
from rlvr.train import checkpoint
from rlvr.train.config import Config
from rlvr.train.credit import Batch
from rlvr.train.gradient_sketch import sketch
from rlvr.train.learner import Learner
from rlvr.train.policy import Policy
from rlvr.train.preferences import Example, Examples
from rlvr.train.ranks import Ranks
from rlvr.train.tiny import tiny
from rlvr.train.trained_rows import TrainedRow
from rlvr.types import Rollout, Task
from tests.train.bandit import CHARSET, Bandit, Turns, trainer

ROWS = [
    Rollout(
        Task(f"t/{i}", "1=", reference=str(i)),
        "",
        [1, 5 + i % 3, 6],
        [7 + (i + k) % 9 for k in range(length)],
        [True] * length,
        [0.0] * length,
        0,
    )
    for i, length in enumerate([2, 5, 8, 11, 2, 5, 8])
]


COMPLETION_FIELDS = ("completion_ids", "completion_mask", "behaviour_logprobs")


def batch(rows: list[Rollout] = ROWS) -> Batch:
    """Seven rows, so that no number of ranks divides them; one without a gradient."""
    width = max(len(row.completion_ids) for row in rows)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        mask[i, : len(row.completion_ids)] = True
    draw = torch.Generator().manual_seed(0)
    advantages = torch.where(mask, torch.randn(len(rows), 1, generator=draw), 0.0)
    advantages[2] = 0.0
    behaviour = torch.where(mask, -2.5 + 0.1 * torch.randn(mask.shape, generator=draw), 0.0)
    outcomes = torch.arange(len(rows)) % 2.0
    group = torch.arange(len(rows))
    return Batch(rows, mask, behaviour, advantages, outcomes=outcomes, group=group)


def learner(ranks: Ranks, trained: str, tied: bool, **options: object) -> Learner:
    """In float64, with a KL penalty in the loss, and small micro-batches; packs that are read together
    are computed twice."""
    model, tokenizer = tiny(CHARSET, hidden=16, heads=2, layers=2, tied=tied, dtype=torch.float64)
    packs = {"packing": True, "gradient_checkpointing": tied} if ranks.context_mesh else {}
    how = {"share_prompts": False, "max_tokens": 24} | packs | options
    policy = Policy(model, tokenizer, **how)
    if trained == "lora":
        policy.add_lora(rank=2)
        with torch.no_grad():  # as after some steps: a fresh adapter is 0
            for i, p in enumerate(policy.lora.parameters.values()):
                p.copy_(torch.linspace(-0.3, 0.3, p.numel(), dtype=p.dtype).roll(i).view_as(p))
    config = Config(env="x", model="x", run=Path("x"), algorithm="grpo", lr=1e-2, grad_clip=0.5)
    return Learner(policy, config, ranks)


def gradients(
    one: Learner, rows: list[Rollout] = ROWS
) -> tuple[dict[str, torch.Tensor], dict[str, float], float]:
    prepared = one.prepared(batch(rows))
    numbers, _ = one.backward(prepared, one.rows_with_gradient(prepared))
    found = {name: p.grad for name, p in one.policy.model.named_parameters() if p.requires_grad}
    norm = float(torch.nn.utils.clip_grad_norm_(one.parameters, 1e9))
    return (
        {name: g.full_tensor() if hasattr(g, "full_tensor") else g for name, g in found.items()},
        numbers,
        norm,
    )


def start_forks(how: str, world: int, call: Callable[..., None], *given: object) -> list:
    """A call in so many ranks, forked: importing torch takes longer than all that they do."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    fork = multiprocessing.get_context(how)
    ranks = [
        fork.Process(target=as_rank, args=(rank, world, port, call, given)) for rank in range(world)
    ]
    for process in ranks:
        process.start()
    return ranks


def forked(world: int, call: Callable[..., None], *given: object) -> None:
    ranks = start_forks("fork", world, call, *given)
    for process in ranks:
        process.join()
    assert [process.exitcode for process in ranks] == [0] * world


def as_rank(rank: int, world: int, port: int, call: Callable[..., None], given: tuple) -> None:
    places = {"RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port, "MASTER_ADDR": "127.0.0.1"}
    os.environ.update({name: str(value) for name, value in places.items()})
    call(*given)


def compare(trained: str, tied: bool, by: str = "tensor", together: int = 1) -> None:
    """What is sharded is freed first: if it outlives the process group, it can abort the process."""
    with Ranks.of_environment(torch.device("cpu"), **{by: together}) as ranks:
        compare_on(ranks, trained, tied)
        gc.collect()


def share_prompts(trained: str) -> None:
    """A prompt is read once on ranks too: passes gather weights, so that all make as many, also
    where a rank's rows would have one pass alone.  Log-probabilities of before are float32."""
    shared = [replace(row, prompt_ids=[1, 5, 6] * 4) for row in ROWS]
    short = {name: getattr(shared[0], name)[:1] for name in COMPLETION_FIELDS}
    with Ranks.of_environment(torch.device("cpu")) as ranks:
        for rows, layout in (
            (shared, "SharedPrompts"),
            ([shared[3], *(replace(row, **short) for row in shared[1:])], "Padded"),
        ):
            wanted, _, norm = gradients(learner(Ranks(), trained, True), rows)
            sharing = learner(ranks, trained, True, max_tokens=256, share_prompts=True)
            layouts = list[str]()

            def noted(part: list[Rollout], make=sharing.policy.micro_batch, kept=layouts) -> object:
                kept.append(type(found := make(part)).__name__)
                return found

            sharing.policy.micro_batch = noted
            found, _, _ = gradients(sharing, rows)
            assert {*layouts} == {layout}, layouts
            for name, gradient in wanted.items():
                torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-6 * norm)
        gc.collect()


def compare_all(folder: str) -> None:
    """Shards, an adapter, and grids; a grid's checkpoint opens on one rank, and on a grid again."""
    cases = [(2, "full", True), (3, "full", False), (2, "lora", False)]
    cases += [(4, "full", False, "tensor", 2), (4, "full", True, "tensor", 2)]
    cases += [(4, "full", True, "context", 2), (3, "lora", False, "context", 3)]
    for world, trained, tied, *groups in cases:
        forked(world, compare, trained, tied, *groups)
    for world, trained in ((2, "full"), (3, "lora")):
        forked(world, share_prompts, trained)
    Policy(*tiny(CHARSET, hidden=16, heads=2, layers=1, seed=5)).save(f"{folder}/teacher")
    forked(2, read_together, f"{folder}/teacher")
    settings = {"checkpoint_every": 1, "step_files": 1, "verify_every": 1, "dtype": "float64"}
    forked(1, run, f"{folder}/alone", settings | {"steps": 3})
    for by in ("tensor", "context"):
        for world, together, steps in ((4, 2, 1), (1, 1, 2), (2, 2, 3)):
            mine = settings | {"steps": steps, f"{by}_parallel": together}
            forked(world, run, f"{folder}/{by}", mine)


def read_together(teacher: str) -> None:
    """Models with windows, learned positions, experts; a critic, and teachers whose distributions are compared."""
    sizes = {"vocab_size": 23, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    experts = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}
    gpt2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    exact, single = (torch.float64, 1e-12), (torch.float32, 1e-5)  # experts have no float64
    configs = [
        (MistralConfig(**sizes, **heads, sliding_window=4), *exact),
        (GPT2Config(vocab_size=23, bos_token_id=1, eos_token_id=2, **gpt2), *exact),
        (Qwen3MoeConfig(**sizes, **heads, **experts), *single),
    ]
    with Ranks.of_environment(torch.device("cpu"), context=2) as ranks:
        for config, dtype, allowed in configs:
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(config, dtype=dtype)
            policy = Policy(model, tiny(CHARSET, hidden=8)[1], packing=True, max_tokens=24)
            with torch.no_grad():
                alone = policy.logprobs(ROWS)
                policy.shard(ranks)
                together = policy.logprobs(ROWS)
            torch.testing.assert_close(together, alone, rtol=0, atol=allowed)
        for name in ("ppo", "gkd", "sdft"):
            compare_one(ranks, load_algorithm(name), teacher)
        gc.collect()


def compare_on(ranks: Ranks, trained: str, tied: bool) -> None:
    one_process = learner(Ranks(), trained, tied)
    wanted, their_numbers, their_norm = gradients(one_process)
    together = learner(ranks, trained, tied)
    found, numbers, norm = gradients(together)
    parts = np.array(ranks.from_all(sketch(together.policy.model)))
    sketched = sketch(one_process.policy.model)
    np.testing.assert_allclose(parts.sum(0), sketched, rtol=0, atol=1e-6 * norm)
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
    weights = {name: v for bucket in together.policy.weights() for name, v in bucket.items()}
    frozen = together.policy.frozen_copy()
    if trained == "full":  # what `frozen_copy` and `weights` give are the policy as it is now
        with torch.no_grad():
            now, then = together.policy.logprobs(ROWS), frozen.logprobs(ROWS)
        assert torch.equal(now, then)
    if ranks.first:
        whole = learner(Ranks(), trained, tied).policy
        sampler = whole.sampler(dtype=torch.float64)
        sampler.sync([weights], 1)
        with torch.no_grad():
            alone = Policy(sampler.model, whole.tokenizer).logprobs(ROWS)
    with torch.no_grad():
        shared = together.policy.logprobs(ROWS)
    if ranks.first:
        torch.testing.assert_close(alone, shared, rtol=1e-10, atol=1e-10)
        shape = f"{ranks.world // ranks.together} x {ranks.together}"
        print(f"gradients differ by {worst:.1e} at most: {shape}, {trained}, tied {tied}")


PARTS = {
    "ppo": {},
    "ppo_kl": {},
    "kl_cov": {"share": 0.2},
    "magistral": {"entropy_target": EntropyTarget(nats=9.0)},
    "gspo": {"entropy_share": 0.5, "correction": (Correction(),)},
    "grpo": {
        "kl": Kl("k3", 0.1, "loss", rule="ppo", target=0.01),
        "mixing": Mixing(every_steps=1, share=0.5),
    },
}
"""Algorithms that have every part between them, but for the trust region."""


def compare_parts() -> None:
    """Two steps with every part, on all ranks and on one; the parts' states too, which then open on the ranks."""
    with Ranks.of_environment(torch.device("cpu")) as ranks:
        compare_parts_on(ranks)
        gc.collect()


def compare_parts_on(ranks: Ranks) -> None:
    for name, changes in PARTS.items():
        algorithm = replace(load_algorithm(name), **changes)
        _, found = compare_one(ranks, algorithm)
        state = whole(found.state_dict())
        found.load_state_dict(state)
        assert farthest(state, whole(found.state_dict())) == 0.0
        if name == "ppo":  # with a critic, so two models
            offloaded = whole(taught(replace(ranks, offload=True), algorithm).state_dict())
            assert farthest(state, offloaded) == 0.0


def whole(tree: object) -> object:
    """The tree with whole tensors in the place of shards; a copy."""
    if isinstance(tree, dict):
        return {key: whole(one) for key, one in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map(whole, tree))
    if isinstance(tree, torch.Tensor):
        return (tree.full_tensor() if hasattr(tree, "full_tensor") else tree).clone()
    return tree


def compare_one(ranks: Ranks, algorithm: Algorithm, teacher: str = "") -> list[Learner]:
    """The learners of one rank and of all, after the same two steps."""
    both = [taught(one, algorithm, teacher) for one in (Ranks(), ranks)]
    alone, together = (whole(one.state_dict()) for one in both)
    worst = farthest(together, alone)
    # A head is float32, and AdamW moves even what rounding leaves of a gradient.
    assert worst < (2e-5 if "head" in algorithm.needs else 1e-6), (algorithm.label, worst)
    if ranks.first:
        print(f"{algorithm.label} differs by {worst:.1e} at most")
    return both


def compare_names(teacher: str, names: list[str]) -> None:
    """Two steps with each algorithm at its own numbers, on all ranks and on one."""
    with Ranks.of_environment(torch.device("cpu")) as ranks:
        for name in names:
            compare_one(ranks, load_algorithm(name), teacher)
        gc.collect()


def examples(kind: str) -> Examples:
    """Seven, of unequal lengths and weights, so that no number of ranks divides them."""
    rows = [TrainedRow(row.prompt_ids, row.completion_ids, row.completion_mask) for row in ROWS]
    found = []
    for i, row in enumerate(rows):
        sides = (row, rows[(i + 3) % 7]) if kind == "pairs" else (row,)
        steps = ((1, 1.0, 4.0), (2, 3.0, 4.0)) if kind == "steps" else ()
        found.append(Example(sides, kind == "pairs" or i % 2 == 0, (1.0, 0.5)[i % 2], steps=steps))
    return Examples(found)


def taught(ranks: Ranks, algorithm: Algorithm, teacher: str = "") -> Learner:
    model, tokenizer = tiny(CHARSET, hidden=16, heads=2, layers=2, dtype=torch.float64)
    packs = {"packing": True} if ranks.context_mesh else {}
    policy = Policy(model, tokenizer, share_prompts=False, max_tokens=24, **packs)
    more = {"env": "x"} if algorithm.examples is None else {"pairs": Path("p")}
    more |= {"teacher": teacher} if algorithm.needs_teacher else {}
    config = Config(model="x", run=Path("x"), algorithm=algorithm, lr=1e-2, **more)
    made = Learner(policy, config, ranks)
    if algorithm.examples is not None:
        for step in range(2):
            made.learn(examples(algorithm.examples) if ranks.first else None, step)
            made.end_step(step)
        return made
    for step in range(2):
        prepared = made.prepared(batch())
        if prepared.values is not None:
            prepared = replace(prepared, returns=prepared.values + 1.0)
        made.update(prepared, [range(4), range(4, 7)], on_bad=print)
        made.end_step(step)
    return made


def farthest(a: object, b: object) -> float:
    """The greatest difference of two trees' numbers."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), (a.keys(), b.keys())
        return max((farthest(a[key], b[key]) for key in a), default=0.0)
    if isinstance(a, list | tuple):
        return max(map(farthest, a, b), default=0.0)
    if isinstance(a, torch.Tensor):
        assert bool((a - b).isfinite().all())
        return float((a - b).abs().max())
    return 0.0 if a == b else abs(a - b)


def memory(folder: str, model: str) -> None:
    """What rests in memory, each measured after what was before it is freed."""
    with Ranks.of_environment(torch.device("cpu")) as ranks:
        for measure in (
            partial(peaks_on, ranks, Path(folder)),
            partial(halves_on, ranks, "full"),
            partial(halves_on, ranks, "lora"),
            partial(load_on, ranks, Path(model)),
        ):
            measure()
            gc.collect()


def peaks_on(ranks: Ranks, folder: Path) -> None:
    policy = Policy(*tiny(CHARSET, hidden=512, heads=2, layers=12))
    config = Config(env="x", model="x", run=Path("x"), algorithm="grpo")
    made = Learner(policy, config, ranks)
    moments = ((p, {"exp_avg": torch.zeros_like(p)}) for p in made.parameters)
    made.optimizer.state.update(moments)
    size = sum(p.numel() * p.element_size() for p in made.parameters) / 2**20
    layer = size / 12
    save = partial(checkpoint.save, folder, 1, {"learner": made.state_dict()}, keep=1, ranks=ranks)
    found = {
        "checkpoint": added_mib(save),
        "buckets": added_mib(lambda: deque(policy.weights(), maxlen=0)),
        "model": added_mib(lambda: policy.save(folder / "model")),
    }
    numbers = {name: round(value) for name, value in found.items()}
    print(f"rank {ranks.rank} of a model of {size:.0f} MiB: {numbers}")
    assert size > 100
    assert found["checkpoint"] < 2 * layer + 32, numbers
    most = size if ranks.first else 0.0  # its buckets: all of a model that is smaller than one
    assert max(found["buckets"], found["model"]) < most + 2 * layer + 32, numbers


def load(folder: str) -> None:
    """What a model's loading adds to a rank's memory, and that its weights are those of the files."""
    with Ranks.of_environment(torch.device("cpu")) as ranks:
        load_on(ranks, Path(folder))
        gc.collect()


def load_on(ranks: Ranks, folder: Path) -> None:
    made: list[Policy] = []

    def loaded() -> None:
        made.append(Policy.load(folder, in_shares=True))
        made[0].shard(ranks)

    added = added_mib(loaded)
    wanted = {k: v for file in folder.glob("*.safetensors") for k, v in load_file(file).items()}
    sizes = [value.numel() * 4 / 2**20 for value in wanted.values()]
    seen = 0
    for bucket in made[0].weights():
        assert all(torch.equal(value, wanted[name]) for name, value in bucket.items())
        seen += len(bucket)
    assert seen == (len(wanted) if ranks.first else 0)
    print(f"rank {ranks.rank} of a model of {sum(sizes):.0f} MiB adds {added:.0f}")
    assert added < sum(sizes) / ranks.world + max(sizes) + 48, added
    rows = [TokenRow([1, 5], [6, 7, 8]), TokenRow([1], [9])]
    with torch.no_grad():
        shared = made[0].logprobs(rows)
        alone = Policy.load(folder).logprobs(rows)
    assert float((shared - alone).abs().max()) < 1e-5


def halves_on(ranks: Ranks, trained: str) -> None:
    def made(autocast: torch.dtype | None, hidden: int = 512) -> Policy:
        policy = Policy(*tiny(CHARSET, hidden=hidden, heads=2, layers=12), autocast=autocast)
        if trained == "lora":
            policy.add_lora(rank=4)
            torch.manual_seed(0)
            with torch.no_grad():
                for p in policy.lora.parameters.values():
                    p.normal_(std=0.02)
        return policy

    def gradients(learner: Learner) -> list[torch.Tensor]:
        learner.backward(batch(), list(range(len(ROWS))))
        over = learner.ranks
        return [over.from_first(over.gather(p.grad)) for p in learner.parameters]

    config = Config(env="x", model="x", run=Path("x"), algorithm="reinforce_pp", temperature=1.0)
    with torch.no_grad():  # what the first pass of all adds is libraries
        Learner(made(torch.bfloat16, hidden=16), config, ranks).policy.logprobs(ROWS)
    learner = Learner(made(torch.bfloat16), config, ranks)
    policy = learner.policy
    size = sum(p.numel() for p in policy.model.parameters()) * 4 / 2**20
    with torch.no_grad():
        added = added_mib(lambda: policy.logprobs(ROWS))
        now = policy.logprobs(ROWS)
    rough = gradients(learner)
    alone = Learner(made(None), config, Ranks())
    with torch.no_grad():
        off = float((now - alone.policy.logprobs(ROWS)).abs().max())
    exact = gradients(alone)
    dots = sum(float((a * b).sum()) for a, b in zip(exact, rough, strict=True))
    norms = [sum(float(one.square().sum()) for one in each) ** 0.5 for each in (exact, rough)]
    cosine = dots / norms[0] / norms[1]
    print(f"rank {ranks.rank} of a model of {size:.0f} MiB adds {added:.0f}, off by {off:.1e}")
    print(f"{trained}: cosine of gradients {cosine:.5f}, norms {norms}")
    assert 0 < off < 0.05
    assert cosine > 0.98
    assert abs(norms[1] / norms[0] - 1) < 0.05
    assert added < size / 4, added  # copies of all weights in bfloat16 would be a half
    assert all(p.dtype == torch.float32 for p in learner.parameters)


def added_mib(call: Callable[[], object]) -> float:
    """What a call takes at its peak beyond what there is before it, by /proc."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = status_mib("VmRSS")
    call()
    return status_mib("VmHWM") - before


def status_mib(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(field)) / 1024


class Fails(Bandit):
    """Breaks down after some tasks."""

    def task(self, index: int):
        if index >= 8:
            raise RuntimeError("the data are gone")
        return super().task(index)


def run(folder: str, settings: dict) -> None:
    made, dtype = settings.pop("policy", None), settings.pop("dtype", "float32")
    env = {"fails": Fails, "turns": Turns}.get(settings.pop("env", None), Bandit)()
    model = tiny(CHARSET, hidden=16, heads=2, layers=2, dtype=getattr(torch, dtype))
    packs = {"packing": True} if "context_parallel" in settings else {}
    policy = Policy(*model, **(made or packs))
    with trainer(Path(folder), env=env, made=policy, quietly=False, **settings) as training:
        if settings.get("steps") == training.steps_done:  # opens the run, and writes it again
            training.save()
        training.run()


def main(argv: list[str]) -> None:
    """What the command line says, as one of the ranks of the environment."""
    torch.set_num_threads(1)
    kind, *args = argv
    if kind == "run":
        run(args[0], json.loads(args[1]))
    elif kind == "names":
        compare_names(args[0], args[1].split(","))
    else:
        {
            "parts": compare_parts,
            "memory": memory,
            "load": load,
            "gradients": compare_all,
        }[kind](*args)
    # Without the interpreter's own end, in which threads of gloo abort the process now and then: all is checked by now.
    sys.stdout.flush()
    os._exit(0)


def main_into(log: Path, *argv: str) -> None:
    """The same in a fork, whose output goes into a file."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.enable()  # a rank that gloo or torch aborts says where it was
    main(list(argv))


if __name__ == "__main__":
    main(sys.argv[1:])
