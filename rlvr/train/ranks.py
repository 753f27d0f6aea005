"""Several processes that train one model, started by torchrun: FSDP2 shards its weights,
gradients and optimiser.

rank 0: collect, score ─▶ broadcast batch ─▶ every rank: its rows ─▶ gradients summed
   ▲                                                                        ▼
   │                                                           every rank: its shard's step
   └────────── whole weights, in buckets, to rank 0's sampler ◀─────────────┘

Gathering weights for a layer is a message that all ranks have to take part in, so all make the same
number of passes through the model: every rank computes the plans of all of them from the same
batch, and one with less to do makes passes that count for nothing.  With one rank every method is
the identity, and torch.distributed is not used.
"""

from __future__ import annotations

import copy
import hashlib
import heapq
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor import zeros as distributed_zeros

from rlvr.errors import RlvrError, UsageError
from rlvr.workers.thread import DaemonThread

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from transformers import PreTrainedModel


__all__ = ["RankLost", "Ranks", "skeleton"]

_T = TypeVar("_T")

_DATA: Final = "data"
_TENSOR: Final = "tensor"
_CONTEXT: Final = "context"

_PATIENCE: Final = timedelta(days=7)
"""Ranks wait for rank 0 while it collects, which may take hours.  A rank that ends closes its
connections, and the others then fail at once: no timeout is needed for that."""

_CONNECT: Final = timedelta(minutes=5)
"""Ranks wait for each other to begin.  One that never comes has to be an
error, and not a wait of days."""


class RankLost(RlvrError):
    """Another rank has failed, so this one cannot go on; the other's message says why."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that train together.

    Attributes:
        rank: its number; rank 0 collects, scores, writes and prints.
        world: number of processes.
        device: "cpu" or "cuda", where they compute, for the messages.
        offload: whether shares rest in the machine's memory, and not on the device.
        mesh: what tensors are sharded over: all ranks; or (data, tensor), where the ranks of a row
            compute the same rows together, each with its part of every layer.
        grid: (data, tensor) or (data, context), where the ranks of a line compute the same rows of
            a batch together; (data,) where each computes its own.
    """

    rank: int = 0
    world: int = 1
    device: str = "cpu"
    offload: bool = False
    mesh: DeviceMesh | None = None
    grid: DeviceMesh | None = None

    @classmethod
    @contextmanager
    def of_environment(
        cls,
        device: torch.device,
        *,
        offload: bool = False,
        tensor: int = 1,
        context: int = 1,
    ) -> Iterator[Ranks]:
        """The ranks that torchrun has started, connected while inside; one rank without torchrun.

        Args:
            device: of this process's model.
            offload: see `Ranks`.
            tensor: ranks that compute each layer together.
            context: ranks that read the same rows together; one of the two is 1.

        Raises:
            UsageError: the environment says that there are several processes, but not which one
                this is; they do not find each other; or `tensor` or `context` does not divide them.
        """
        count = os.environ.get("WORLD_SIZE") or "1"
        by, together = (_CONTEXT, context) if context > 1 else (_TENSOR, tensor)
        if together > 1 and count.isdecimal() and int(count) % together:
            raise UsageError(
                f"{by}_parallel is {together}, which does not divide the {count} processes that "
                f"train together; start a multiple of {together} with torchrun"
            )
        if count == "1":
            yield cls()
            return
        # Before connecting, which takes five minutes to fail.
        if missing := [
            name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)
        ]:
            raise UsageError(
                f"WORLD_SIZE is {count}, and {', '.join(missing)} is not set; start several "
                "processes with torchrun --nproc-per-node N -m -- rlvr train …, or unset "
                "WORLD_SIZE for one"
            )
        rank = os.environ["RANK"]
        if not (count.isdecimal() and rank.isdecimal() and int(rank) < int(count)):
            raise UsageError(
                f"RANK is {rank!r} and WORLD_SIZE {count!r}; they must be whole numbers, and the "
                f"ranks begin with 0; "
                "start several processes with torchrun --nproc-per-node N -m -- rlvr train …"
            )
        # A program of the user's may have connected already; then it also disconnects.
        is_starting = not dist.is_initialized()
        if is_starting:
            try:
                # Sums of offloaded shares, such as a gradient's norm, go between CPUs.
                on_gpus = "cpu:gloo,cuda:nccl" if offload else "nccl"
                _connect(on_gpus if device.type == "cuda" else "gloo")
            except RuntimeError as error:  # torch's errors of stores and back ends are such
                where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
                why = next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
                raise UsageError(
                    f"rank {rank} of {count} does not find the others at {where} ({why}); start "
                    "all of them, and nothing else on this port"
                ) from error
        try:
            with _ending_with_launcher():
                world, kind = dist.get_world_size(), device.type
                shape = (world // together, together) if together > 1 else (world,)
                names = (_DATA, by)[: len(shape)]
                grid = init_device_mesh(kind, shape, mesh_dim_names=names)
                mesh = grid
                # A context group shares rows, not layers.
                if context > 1:
                    mesh = init_device_mesh(kind, (world,), mesh_dim_names=(_DATA,))
                yield cls(dist.get_rank(), world, kind, offload, mesh, grid)
        finally:
            if is_starting:
                dist.destroy_process_group()

    @property
    def first(self) -> bool:
        """True for the rank that collects, writes and prints."""
        return self.rank == 0

    def from_first(self, thing: _T | None) -> _T:
        """What rank 0 gives, on every rank.

        Args:
            thing: on rank 0; not looked at elsewhere.  It is pickled.
        """
        if self.world > 1:
            box = [thing if self.first else None]
            with _lost():
                dist.broadcast_object_list(box, src=0, device=torch.device(self.device))
            thing = box[0]
        return thing  # type: ignore[return-value]

    def from_all(self, thing: _T) -> list[_T]:
        """What each rank gives, in their order, on every rank.

        Args:
            thing: of this rank.  It is pickled.
        """
        things = [thing] * self.world
        if self.world > 1:
            with _lost():
                dist.all_gather_object(things, thing)
        return things

    @property
    def tensor_mesh(self) -> DeviceMesh | None:
        """The ranks that compute the same rows as this one, each a part of every layer; None for
        none."""
        return self._row_of(_TENSOR)

    @property
    def context_mesh(self) -> DeviceMesh | None:
        """The ranks that read the same rows as this one, each some of their tokens; None for
        none."""
        return self._row_of(_CONTEXT)

    def _row_of(self, name: str) -> DeviceMesh | None:
        names = () if self.grid is None else self.grid.mesh_dim_names or ()
        return self.grid[name] if self.grid is not None and name in names else None

    @property
    def together(self) -> int:
        """Number of ranks that compute the same rows."""
        mesh = self.tensor_mesh or self.context_mesh
        return 1 if mesh is None else mesh.size()

    def of_all_rows(self, thing: _T) -> list[_T]:
        """What each rank that has rows of its own gives, in their order, on every rank.

        Args:
            thing: of this rank.  It is pickled.
        """
        return self.from_all(thing)[:: self.together]

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks that have rows of their own, in place.

        Args:
            values: of the same shape on every rank.
        """
        if self.grid is None:
            return values
        # Over the data dimension: ranks that compute the same rows together would count them twice.
        return self._reduced(values, dist.ReduceOp.SUM, self.grid.get_group(_DATA))

    def largest(self, values: Tensor) -> Tensor:
        """The greatest of all ranks, in place.

        Args:
            values: of the same shape on every rank.
        """
        return self._reduced(values, dist.ReduceOp.MAX) if self.world > 1 else values

    @property
    def home(self) -> str:
        """The kind of device on which shares rest."""
        return "cpu" if self.offload else self.device

    def _reduced(self, values: Tensor, how: object, group: ProcessGroup | None = None) -> Tensor:
        # NCCL sums tensors on GPUs only.
        on_device = values.to(self.device)
        with _lost():
            dist.all_reduce(on_device, how, group)
        return values.copy_(on_device)

    def any(self, flag: bool) -> bool:
        """True on every rank if it is on one.

        Args:
            flag: of this rank.
        """
        return bool(self.largest(torch.tensor(float(flag)))) if self.world > 1 else flag

    def require_same(self, what: str, text: str) -> None:
        """Refuse ranks that would train different things: their weights would be shards of
        different models.

        Args:
            what: named in the error.
            text: has to be that of rank 0.

        Raises:
            UsageError: it is another one.
        """
        if self.world == 1:
            return
        own_digest = hashlib.sha256(text.encode()).hexdigest()
        differs = self.from_first(own_digest) != own_digest
        # `any`: all ranks raise, or the others would wait for one that has ended.
        if self.any(differs):
            raise UsageError(
                f"the ranks do not have the same {what}; start all of them with the same command"
            )

    def shares(self, costs: Sequence[int]) -> list[list[int]]:
        """The rows of each rank: the most expensive first, each to the rank with the least so far.

        The greatest share is at most 4/3 of the best possible one (Graham 1969, LPT).

        Args:
            costs: of each row, such as its tokens.
        """
        groups = range(self.world // self.together)
        loads, by_rank = [(0, group) for group in groups], [list[int]() for _ in groups]
        # Ties by index, so that every rank computes the same shares.
        for i in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
            load, rank = heapq.heappop(loads)
            by_rank[rank].append(i)
            heapq.heappush(loads, (load + costs[i], rank))
        return [sorted(share) for share in by_rank]

    def plan(
        self, costs: Sequence[int], split: Callable[[Sequence[int]], list[list[int]]]
    ) -> list[tuple[list[int], bool]]:
        """This rank's micro-batches, as many as every other rank has: (rows, whether they count).

        Args:
            costs: of each row; at least one row.
            split: indices of some costs, by micro-batch.
        """
        plans = []
        # Of every rank's share, from numbers that all have: no message is needed.
        for share in self.shares(costs):
            parts = split([costs[i] for i in share]) if share else []
            plans.append([[share[i] for i in part] for part in parts])
        mine, largest = plans[self.rank // self.together], max(map(len, plans))
        # Filler passes compute the cheapest row, and count for nothing.
        cheapest = min(range(len(costs)), key=lambda i: costs[i])
        return [(part, True) for part in mine] + [([cheapest], False)] * (largest - len(mine))

    def shard(
        self,
        root: nn.Module,
        layers: Sequence[nn.Module],
        *,
        exact: Sequence[nn.Module] = (),
        dtype: torch.dtype | None = None,
    ) -> None:
        """Shard a module over the ranks, in place: each layer, then the rest with the root.

        Args:
            root: whose forward is the only way in.  Of parameters on the meta device the shares
                have no values yet.
            layers: what is gathered one at a time.
            exact: parts that compute in the type of their weights.
            dtype: what the others are gathered in and compute in; gradients are summed in float32.
                None: in the type of their weights.

        Raises:
            UsageError: torch cannot shard it.
        """
        from torch.distributed.fsdp import (
            CPUOffloadPolicy,
            FSDPModule,
            MixedPrecisionPolicy,
            fully_shard,
        )

        assert self.mesh is not None
        # Over the data dimension; tensor parallelism has divided layers already.
        options: dict[str, Any] = {"mesh": self.mesh[_DATA]}
        if self.offload:
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=self.device == "cuda")
        mixed = MixedPrecisionPolicy()
        if dtype is not None:
            # Sums of bfloat16 gradients over many ranks would lose small ones.
            mixed = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        try:
            # Inner modules first: FSDP2 gives a parameter to the innermost module that was sharded.
            for part in exact:
                fully_shard(part, **options)
            for layer in layers:
                fully_shard(layer, mp_policy=mixed, **options)
            fully_shard(root, mp_policy=mixed, **options)
        except (AssertionError, ValueError, RuntimeError) as error:
            why = str(error).strip().splitlines()[0]
            raise UsageError(
                f"this model cannot be sharded over {self.world} ranks: {why[:300]}"
            ) from error
        for part in root.modules():
            # sums, not means: the loss is divided by the whole batch already
            if isinstance(part, FSDPModule):
                # gloo has no other reduction with a factor
                part.set_force_sum_reduction_for_comms(True)
                part.set_gradient_divide_factor(1.0)
        with torch.no_grad():  # shares of what has no values yet; buffers have theirs
            root._apply(lambda t: torch.empty_like(t, device=self.home) if t.is_meta else t)

    def gather(self, tensor: Tensor) -> Tensor | None:
        """The whole of a tensor; on ranks but the first None.  One that is not sharded is given
        back as it is.

        Args:
            tensor: the same one on every rank.
        """
        if not isinstance(tensor, DTensor):
            return tensor if self.first else None
        with _lost():
            # On the device, as NCCL knows no CPU tensors.
            full: Tensor = tensor.detach().to(self.device).full_tensor()
        return full if self.first else None

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor of zeros, sharded over these ranks as `shard` does; a whole one with one rank.

        Args:
            shape: of the whole.
            dtype: its type.
        """
        if self.mesh is None:
            return torch.zeros(tuple(shape), dtype=dtype)
        # Along dimension 0, as FSDP2 shards parameters.
        tensor: Tensor = distributed_zeros(
            *shape, dtype=dtype, device_mesh=self.mesh, placements=[Shard(0)] * self.mesh.ndim
        )
        return tensor.to(self.home)

    def spread(self, tree: object, like: object) -> Any:
        """A tree of tensors with whole ones as shards.

        Args:
            tree: the same on every rank.
            like: a tree of which a tensor is sharded as the one in its place is to be; a single
                tensor stands for all in its branch of the same shape.  Shards that lie otherwise
                are gathered, one at a time.
        """
        if isinstance(tree, Mapping):
            inner = like if isinstance(like, Mapping) else dict.fromkeys(tree, like)
            return {name: self.spread(value, inner.get(name)) for name, value in tree.items()}
        if isinstance(tree, DTensor):
            if not isinstance(like, DTensor) or tree.placements == like.placements:
                return tree
            tree = tree.to(self.device).full_tensor()
        if isinstance(tree, Tensor) and isinstance(like, DTensor) and tree.shape == like.shape:
            on_device = tree.to(self.device)
            # `src_data_rank=None`, no broadcast: every rank has the same whole tensor.
            return distribute_tensor(
                on_device, like.device_mesh, like.placements, src_data_rank=None
            ).to(like.device)
        return tree

    def load_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        state: Mapping[str, object],
        parameters: Sequence[object],
    ) -> None:
        """Give an optimiser of sharded parameters the state of another one.

        Args:
            optimizer: of the parameters.
            state: its `state_dict`.
            parameters: in the optimiser's order.
        """
        # AdamW's means lie like their parameters; its step counts are no shards.
        means = self.spread(state["state"], dict(enumerate(parameters)))
        optimizer.load_state_dict({**state, "state": means})


def _connect(backend: str) -> None:
    """Have the ranks find each other, for a short time; from then on they wait for each other for
    as long as it takes.

    torchrun's store lives on when ranks are started again, with the addresses of those that have
    ended: each start has names of its own there.
    """
    store, rank, world = next(dist.rendezvous("env://", timeout=_CONNECT))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    run_store = dist.PrefixStore(f"rlvr/{attempt}", store)
    dist.init_process_group(backend, store=run_store, rank=rank, world_size=world, timeout=_CONNECT)
    dist.barrier()  # NCCL connects with the first message
    dist.distributed_c10d._set_pg_timeout(_PATIENCE)
    store.set_timeout(_PATIENCE)


@contextmanager
def _ending_with_launcher() -> Iterator[None]:
    """SIGTERM to this process, as torchrun sends it, if torchrun itself is killed: nothing else
    would end its ranks."""
    # Without torchrun there is no launcher to outlive.
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield
        return
    launcher, over = os.getppid(), threading.Event()

    def watch() -> None:
        while not over.wait(1.0):
            # A process whose parent has died gets another one.
            if os.getppid() != launcher:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    DaemonThread(watch, name="launcher", owner="ranks")
    try:
        yield
    finally:
        over.set()


@contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except (dist.DistError, RuntimeError) as error:
        # The first line of torch's text; the rest is a C++ stack.
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise RankLost(
            f"another rank has ended, and its own message says why ({why[:200]})"
        ) from error


def skeleton(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of a model without weights: its parameters are on the meta device, its buffers are
    copied.

    Args:
        model: a torch module.
    """
    empty = {
        id(p): nn.Parameter(torch.empty_like(p, device="meta"), requires_grad=p.requires_grad)
        for p in model.parameters()
    }
    return copy.deepcopy(model, empty)  # what the memo has is not copied
