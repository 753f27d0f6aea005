"""Training on several ranks: two gloo processes on this machine, against one process."""

import contextlib
import json
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig

from rlvr.algo.judge.verify import verify
from rlvr.algo.papers import NAMES, load_algorithm
from rlvr.data.rollouts import read_rollouts
from rlvr.data.step_files import read_step
from rlvr.errors import UsageError
from rlvr.samplers.protocol import TokenRow
from rlvr.train import checkpoint
from rlvr.train.config import Config
from rlvr.train.conformance import conforms
from rlvr.train.context_parallel import ContextGroup, require_context
from rlvr.train.packing import pack
from rlvr.train.policy import Policy
from rlvr.train.ranks import Ranks
from rlvr.train.tensor_parallel import require_tensor_plan
from rlvr.train.tiny import tiny
from tests.json_lines import read_json_lines
from tests.ranks.worker import main_into, start_forks
from tests.train.bandit import CHARSET

WORKER = Path(__file__).with_name("worker.py")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def start(world: int, *args: object, restarts: int = 0) -> subprocess.Popen:
    """So many ranks; one of them is a process without torchrun."""
    launcher = (*TORCHRUN, world, "--max-restarts", restarts) if world > 1 else ()
    command = [sys.executable, "-W", "ignore", *launcher, WORKER, *args]
    return subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(WORKER.parent.parent.parent),
            "MALLOC_MMAP_THRESHOLD_": "65536",  # what is freed is given back, so that peaks repeat
        },
    )


def finish(process: subprocess.Popen, timeout_s: float = 300) -> str:
    """Its output; the process has to end well."""
    try:
        said, _ = process.communicate(timeout=timeout_s)
    finally:
        kill(process)
    assert process.returncode == 0, ends_of(said)
    return said


def ends_of(said: str) -> str:
    """The first failure is that of the rank which the others then miss."""
    return said if len(said) < 9000 else f"{said[:6000]}\n…\n{said[-3000:]}"


def kill(process: subprocess.Popen) -> None:
    """All of its processes, by SIGKILL."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.ranks.worker"])


def fork(world: int, log: Path, *args: object) -> list[BaseProcess]:
    """The same as forks, for what concerns neither torchrun nor the memory of a fresh process."""
    return start_forks("forkserver", world, main_into, log, *map(str, args))


def join(ranks: list[BaseProcess], log: Path, timeout_s: float = 300) -> tuple[list[int], str]:
    """Exit codes and output, once all have ended; where one fails, the others do not wait for it."""
    until = time.monotonic() + timeout_s
    while living := [rank.sentinel for rank in ranks if rank.exitcode is None]:
        ended = multiprocessing.connection.wait(living, until - time.monotonic())
        if not ended:
            end(ranks)
    return [rank.exitcode for rank in ranks], log.read_text()


def end(ranks: list[BaseProcess]) -> None:
    """SIGKILL to all at once."""
    for rank in ranks:
        rank.kill()
    for rank in ranks:
        rank.join()


def forked(world: int, folder: Path, *args: object) -> str:
    """The output of ranks, which have to end well."""
    log = folder / "said.log"
    log.unlink(missing_ok=True)
    codes, said = join(fork(world, log, *args), log)
    assert codes == [0] * world, ends_of(said)
    return said


def train(world: int, folder: Path, **settings: object) -> str:
    folder.mkdir(exist_ok=True)
    return forked(world, folder.parent, "run", folder, json.dumps(settings))


def learned(folder: Path, step: int) -> dict:
    return checkpoint.load_checkpoint(checkpoint.path_of(folder / "checkpoints", step))["learner"]


def same(a, b) -> bool:
    """Bit-equal trees."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_ranks_add_up_to_the_gradient_of_one_process(tmp_path):
    """In float64 to 1e-12 of each gradient's norm, with a reference and rows that the world size does not divide.

    Norm and logged numbers too; what `whole` and `frozen_copy` give computes what the sharded policy does.
    On shards, with an adapter, and on grids of 2 x 2 ranks that compute layers or read rows together.
    A run that goes from such a grid to one rank, and to a grid of 1 x 2, is that of one rank to 1e-6,
    and its files of steps verify.  Sketches of the gradient are those of one process.
    """
    said = finish(start(1, "gradients", tmp_path), timeout_s=900)
    found = [line.split(": ")[1] for line in said.splitlines() if "gradients differ by" in line]
    grids = ["2 x 2, full, tied False", "2 x 2, full, tied True", "2 x 2, full, tied True"]
    shards = ["2 x 1, full, tied True", "3 x 1, full, tied False", "2 x 1, lora, tied False"]
    assert found == [*shards, *grids, "1 x 3, lora, tied False"]
    assert said.count("differs by") == 3
    assert "alarm: lr" not in said  # of the mean of a rank's own weights
    wanted = learned(tmp_path / "alone", 3)["policy"]
    for by in ("tensor", "context"):
        weights = learned(tmp_path / by, 3)["policy"]
        for name, value in wanted.items():
            torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-6)
        steps = sorted((tmp_path / by / "steps").iterdir())
        assert [{one.status for one in verify(read_step(file))} for file in steps] == [
            {"equal"}
        ] * 3


def test_every_algorithm_trains_alike_on_ranks(tmp_path):
    """Two steps with each name at its own numbers, to 1e-6."""
    teacher = tmp_path / "teacher"
    Policy(*tiny(CHARSET, hidden=16, heads=2, layers=1, seed=5)).save(teacher)
    said = forked(2, tmp_path, "names", teacher, ",".join(NAMES))
    assert [line.split()[0] for line in said.splitlines() if "differs by" in line] == list(NAMES)


def test_every_part_of_an_update_is_the_same_on_ranks(tmp_path):
    """Critic, adaptive coefficients, entropy's target and share, selection and mixing.

    Weights and states to 1e-6: a critic's values are float32.
    """
    said = forked(2, tmp_path, "parts")
    assert said.count("differs by") == 6


OF_OTHERS = """
from rlvr.algo.papers.gkd import GKD


class OfOthers(GKD):
    def loss(self, inputs):
        return inputs.divergence * len(inputs.mask)
"""


def test_two_ranks_judge_their_own_steps(tmp_path):
    """The first rank has the rows of both; nothing departs, and the files verify."""
    train(2, tmp_path / "run", algorithm="grpo", steps=2, verify_every=1, step_files=1)
    text = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8")
    assert "departs/" not in text
    files = sorted((tmp_path / "run" / "steps").iterdir())
    assert len(files) == 2
    for file in files:
        assert {one.status for one in verify(read_step(file))} == {"equal"}


def test_a_check_tries_two_ranks(tmp_path):
    """A loss that depends on the number of rows beside it is another one there; with a teacher, which each loads."""
    (tmp_path / "mine.py").write_text(OF_OTHERS)
    for name, said in ((f"{tmp_path}/mine.py:OfOthers", "the gradient is off by"), ("gkd", "")):
        found = conforms(load_algorithm(name), on_ranks=True)[-1]
        assert found.rule == "the gradient is the same on two ranks"
        assert found.fault.startswith(said)
        assert bool(found.fault) == bool(said)


def saved_model(folder: Path, tied: bool) -> Policy:
    """Large enough to be seen in a process's memory."""
    made = Policy(*tiny(CHARSET, hidden=512, heads=2, layers=12, tied=tied))
    made.save(folder)
    return made


def test_no_rank_holds_a_second_copy(tmp_path):
    """By /proc, of two ranks, in one start of them.

    To save or to sync: a checkpoint adds less than two layers and the writers' buffers, on the first rank, too.
    In bfloat16, whole or with an adapter, while gradients and log-probabilities stay near those of
    float32, and the shares are float32.  To load: its shares and a tensor, not the model.
    """
    saved_model(tmp_path / "model", tied=True)
    said = finish(start(2, "memory", tmp_path / "run", tmp_path / "model"))
    assert said.count("of a model of") == 8
    for trained in ("full", "lora"):
        assert said.count(f"{trained}: cosine of gradients") == 2
    assert said.count("MiB adds") == 6


def test_each_of_three_ranks_reads_its_rows_alone(tmp_path):
    """By /proc, of a model in several files."""
    made = saved_model(tmp_path, tied=False)
    made.model.save_pretrained(tmp_path, max_shard_size="100MB")
    (tmp_path / "model.safetensors").unlink(missing_ok=True)
    assert finish(start(3, "load", tmp_path)).count("MiB adds") == 3


def test_weights_that_are_not_finite_on_one_rank_are_refused_by_all(tmp_path):
    """One line with the tensor's name, and no wait for the others."""
    made = Policy(*tiny(CHARSET, hidden=16, heads=2, layers=2))
    with torch.no_grad():
        made.model.get_output_embeddings().weight[-1, 3] = float("nan")
    made.save(tmp_path)
    log = tmp_path / "said.log"
    codes, said = join(fork(2, log, "load", tmp_path), log)
    assert 0 not in codes
    assert said.count("embed_tokens.weight are not finite") == 2, said[-2000:]


@pytest.mark.parametrize("settings", [{}, {"lora_rank": 2}], ids=["full", "LoRA"])
def test_a_run_goes_on_to_the_last_bit_and_opens_on_another_number_of_ranks(tmp_path, settings):
    """2 ranks: stopped and resumed is uninterrupted.  Written by 2, by 1 and by 2 again: the same bits.

    The tokens of kept rollouts too, with log-probabilities that both ranks computed.
    """
    settings = settings | {
        "checkpoint_every": 1,
        "keep": 9,
        "prompts": 3,
        "rollouts_every": 1,
        "step_files": 1,
    }
    train(2, tmp_path / "a", steps=3, **settings)
    train(2, tmp_path / "b", steps=2, **settings)
    train(2, tmp_path / "b", steps=3, **settings)
    assert same(learned(tmp_path / "a", 3), learned(tmp_path / "b", 3))
    rows, again = (
        read_rollouts(tmp_path / run / "rollouts" / "step-00000003.parquet", range(12))
        for run in "ab"
    )
    assert rows == again
    assert all(len(row["tokens"]) == len(row["advantages"]) for row in rows)
    taught = [row for row in rows if row["advantage"]]
    assert taught
    for row in taught:
        assert row["logprobs"] == pytest.approx(row["behaviour_logprobs"], abs=1e-3)
    before = learned(tmp_path / "a", 3)
    for world in (1, 2):
        path = checkpoint.path_of(tmp_path / "a" / "checkpoints", 3)
        stamp = path.stat().st_mtime_ns
        train(world, tmp_path / "a", steps=3, **settings)
        assert path.stat().st_mtime_ns > stamp
        assert same(before, learned(tmp_path / "a", 3)), world
    train(1, tmp_path / "a", steps=4, **settings)
    metrics = read_json_lines(tmp_path / "a" / "metrics.jsonl")
    assert [row["step"] for row in metrics] == [1, 2, 3, 4]
    assert (tmp_path / "a" / "model" / "model.safetensors").is_file()


TURNS = {"env": "turns", "max_tokens": 40, "stop": ["7", "a"], "max_rows": 5}


@pytest.mark.parametrize(
    "settings",
    [{"max_staleness": 1, "prompts": 3}, {"max_staleness": 3, "prompts": 2, **TURNS}],
    ids=["off", "flight"],
)
def test_a_run_killed_at_any_moment_goes_on_as_if_nothing_had_been(tmp_path, settings):
    """kill -9 of all ranks, five times over the run; one step off, and with episodes that outlast several updates."""
    settings = settings | {"steps": 9, "checkpoint_every": 1}
    train(2, tmp_path / "a", **settings)
    moments = random.Random(0)
    for _ in range(5):
        ranks = fork(2, tmp_path / "said.log", "run", tmp_path / "b", json.dumps(settings))
        reached = newest(tmp_path / "b")
        until = time.monotonic() + 120
        while (
            all(rank.is_alive() for rank in ranks)
            and time.monotonic() < until
            and newest(tmp_path / "b") == reached
        ):
            time.sleep(0.01)
        time.sleep(moments.random() * 0.3)
        end(ranks)
    train(2, tmp_path / "b", **settings)
    assert same(learned(tmp_path / "a", 9), learned(tmp_path / "b", 9))


def until_saved(process: subprocess.Popen, folder: Path) -> None:
    """Wait for the first checkpoint."""
    until = time.monotonic() + 200
    while process.poll() is None and not newest(folder) and time.monotonic() < until:
        time.sleep(0.02)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_costs_one_restart(tmp_path, rank):
    """torchrun's store still has the addresses of the dead, which the new ranks must not wait for."""
    settings = {"steps": 30, "checkpoint_every": 3}
    train(2, tmp_path / "a", **settings)
    process = start(2, "run", tmp_path / "b", json.dumps(settings), restarts=1)
    until_saved(process, tmp_path / "b")
    ranks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    [pid] = [
        int(pid) for pid in ranks if f"\0RANK={rank}\0" in Path(f"/proc/{pid}/environ").read_text()
    ]
    os.kill(pid, signal.SIGKILL)
    assert "continuing after step" in finish(process)
    assert same(learned(tmp_path / "a", 30), learned(tmp_path / "b", 30))


def test_ranks_end_with_their_launcher(tmp_path):
    """torchrun gets SIGKILL, as by a scheduler: its ranks save their step and end."""
    settings = {"steps": 10_000, "checkpoint_every": 10_000}
    process = start(2, "run", tmp_path / "a", json.dumps(settings))
    log, until = tmp_path / "a" / "metrics.jsonl", time.monotonic() + 200
    while not (log.is_file() and log.stat().st_size) and time.monotonic() < until:
        time.sleep(0.05)
    process.kill()
    said, _ = process.communicate(timeout=120)  # until the last rank has closed its output
    assert "stopped after step" in said, said[-2000:]
    assert newest(tmp_path / "a")


def newest(folder: Path) -> str:
    """The newest checkpoint of a run; an empty text for none."""
    return max((path.name for path in (folder / "checkpoints").glob("*.pt")), default="")


def test_a_rank_that_fails_ends_all_within_seconds(tmp_path):
    """And not after gloo's half hour.  Rank 0 breaks down while the other waits for its batch.

    The other says that a rank has ended, if torchrun does not end it first.
    """
    process = start(2, "run", tmp_path / "a", json.dumps({"steps": 50, "env": "fails"}))
    said, _ = process.communicate(timeout=240)
    kill(process)
    assert process.returncode != 0
    assert "the data are gone" in said


def test_a_signal_stops_all_ranks_at_the_same_step(tmp_path):
    """torchrun passes SIGTERM on; the step is finished and saved, and the run goes on from there."""
    settings = {"steps": 10_000, "checkpoint_every": 10_000}
    process = start(2, "run", tmp_path / "a", json.dumps(settings))
    log, until = tmp_path / "a" / "metrics.jsonl", time.monotonic() + 200
    while (
        not (log.is_file() and log.stat().st_size) and time.monotonic() < until
    ):  # then both are in their loop
        time.sleep(0.05)
    process.terminate()
    said, _ = process.communicate(timeout=120)
    kill(process)
    assert "stopped after step" in said, said[-2000:]
    assert len(list((tmp_path / "a" / "checkpoints").glob("*.pt"))) == 1


def test_several_processes_that_cannot_find_each_other_are_refused(monkeypatch):
    """Before a model is loaded."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with (
        pytest.raises(
            UsageError,
            match=r"WORLD_SIZE is 2, and RANK, .* is not set; start several processes with",
        ),
        Ranks.of_environment(torch.device("cpu")),
    ):
        pass


def test_a_rank_that_never_comes_is_an_error_and_no_wait_of_days(monkeypatch):
    """The first of two, alone: it says whom it has not found, and where."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    places = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in places.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("rlvr.train.ranks._CONNECT", timedelta(seconds=1))
    with (
        pytest.raises(UsageError, match=rf"rank 0 of 2 does not find the others at .*:{port} "),
        Ranks.of_environment(torch.device("cpu")),
    ):
        pass


@pytest.mark.parametrize(
    ("rank", "world"), [("2", "2"), ("-1", "2"), ("x", "2"), ("0", "x"), ("0", "0")]
)
def test_a_rank_that_there_cannot_be_is_refused(monkeypatch, rank, world):
    """At once: the others would wait for one that never comes."""
    given = {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29555"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(
            UsageError,
            match=rf"RANK is '{rank}' and WORLD_SIZE '{world}'; they must be whole numbers",
        ),
        Ranks.of_environment(torch.device("cpu")),
    ):
        pass


@pytest.mark.parametrize("by", ["tensor", "context"])
@pytest.mark.parametrize("world", ["1", "3"])
def test_ranks_that_cannot_be_a_grid_are_refused(monkeypatch, world, by):
    monkeypatch.setenv("WORLD_SIZE", world)
    said = f"{by}_parallel is 2, which does not divide the {world} processes .* start a multiple"
    connected = Ranks.of_environment(torch.device("cpu"), **{by: 2})
    with pytest.raises(UsageError, match=said), connected:
        pass


@pytest.mark.parametrize(
    ("packing", "attention", "said"),
    [
        (False, "sdpa", "and packing is off; switch packing on"),
        (True, "eager", "and attention is 'eager'; leave attention out"),
        (True, "sdpa", "attends in chunks, which they cannot; leave it out"),
    ],
)
def test_models_whose_rows_ranks_cannot_read_together_are_refused(packing, attention, said):
    model = SimpleNamespace(config=SimpleNamespace(_attn_implementation=attention))
    require_context(model, packing, 1)
    with pytest.raises(UsageError, match=f"context_parallel is 2: .*{said}"):
        require_context(model, packing, 2)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("lengths", [[2], [7, 3, 11], [9] * 6])
def test_shares_of_a_pack_are_its_tokens(size, lengths):
    """Each token and each completion token on one rank, of any number; what fills up is a row of its own."""
    pack_of = pack([TokenRow(range(3, 4 + n // 2), range(n - n // 2)) for n in lengths])
    shares = []
    for rank in range(size):
        mesh = SimpleNamespace(get_group=str, size=lambda: size, get_local_rank=lambda r=rank: r)
        shares.append(ContextGroup(mesh).share(pack_of))
    sizes = {share.input_ids.shape[1] for share in shares}
    assert len(sizes) == 1
    places = torch.cat([share.own for share in shares])
    assert places.sort().values.tolist() == list(range(len(pack_of.targets)))
    for share in shares:
        for name in ("targets", "rows", "columns"):
            assert getattr(share, name).tolist() == getattr(pack_of, name)[share.own].tolist()
        read, whole = share.input_ids[0][share.sources], pack_of.input_ids[0][pack_of.sources]
        assert read.tolist() == whole[share.own].tolist()
    tokens = sum(int(share.input_ids.sum()) for share in shares)
    assert tokens == int(pack_of.input_ids.sum())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, r"4, which does not divide the model's 6 \(num_attention_heads\); give a divisor"),
        ({"num_attention_heads": 4}, r"model's 2 \(num_key_value_heads\)"),
        ({"num_attention_heads": 4, "num_key_value_heads": 4}, r"model's 98 \(intermediate_size\)"),
        (
            {"tp_plan": {}},
            "transformers has none for the model type 'llama'; leave tensor_parallel",
        ),
        ({"tp_plan": {"layers": "packed_colwise"}}, "one with packed_colwise, which .* not tried"),
    ],
)
def test_models_that_ranks_cannot_compute_together_are_refused(change, said):
    sizes = {
        "hidden_size": 48,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "intermediate_size": 98,
    } | change
    plan = sizes.pop("tp_plan", {"layers.*.mlp.up_proj": "colwise"})
    config = LlamaConfig(**sizes)
    with pytest.raises(UsageError, match=said):
        require_tensor_plan(SimpleNamespace(config=config, tp_plan=plan), 4)


def test_an_old_transformers_is_refused_by_its_version(monkeypatch):
    """It is asked for where layers are split alone: a run without that works with older ones.

    Through our module's name: transformers runs its own `__init__` again when it loads a model,
    and `sys.modules` has another object from then on.
    """
    monkeypatch.setattr("rlvr.train.tensor_parallel.transformers.__version__", "5.17.0")
    require_tensor_plan(None, 1)
    with pytest.raises(UsageError, match=r"needs transformers 5.19 or later, and 5.17.0 is inst"):
        require_tensor_plan(None, 2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lora_rank": 2}, "tensor_parallel is 2, and a LoRA adapter needs whole layers"),
        ({"algorithm": "trpo"}, "tensor_parallel is 2, and a trust region needs whole layers"),
        ({"offload": "cpu"}, "tensor_parallel is 2, and offload is 'cpu', .*; give one of them"),
    ],
)
def test_what_needs_whole_layers_is_refused_on_a_mesh(tmp_path, settings, said):
    config = {"env": "x", "model": "x", "run": tmp_path, "algorithm": "grpo"} | settings
    with pytest.raises(UsageError, match=said):
        Config(**config, tensor_parallel=2).resolve()


@pytest.mark.parametrize("other", [{"tensor_parallel": 2}, {"algorithm": "trpo"}])
def test_what_cannot_be_beside_a_context_group_is_refused(tmp_path, other):
    config = {"env": "x", "model": "x", "run": tmp_path, "algorithm": "grpo"} | other
    with pytest.raises(UsageError, match=r"context_parallel is 2, and beside .*; give one of them"):
        Config(**config, context_parallel=2).resolve()


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_every_rank_makes_as_many_passes(world):
    """And every row is computed once, whatever the world size divides."""
    costs = [5, 9, 1, 7, 7, 3, 2]

    def split(those):
        return [[i] for i in range(len(those))]

    plans = [Ranks(rank, world).plan(costs, split) for rank in range(world)]
    assert len({len(plan) for plan in plans}) == 1
    assert sorted(i for plan in plans for part, counts in plan if counts for i in part) == list(
        range(7)
    )
    assert all(part == [2] for plan in plans for part, counts in plan if not counts)  # the cheapest
    assert Ranks(0, 3).shares([1]) == [[0], [], []]
