"""The trained model and its token log-probabilities.  Axes: B rows, T
completion tokens, V vocabulary."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, overload

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor, nn

from rlvr.errors import DataError, RlvrError, UsageError
from rlvr.samplers.chat import ChatMode, ChatSettings, recorded_format
from rlvr.samplers.decoding import evaluation_mode
from rlvr.samplers.local import LocalSampler
from rlvr.samplers.packed_attention import use_packed_attention
from rlvr.samplers.protocol import Tokenized
from rlvr.samplers.tokenization import Tokenization, end_token_ids
from rlvr.train.batches import Padded, buckets, pad, ragged_to_padded
from rlvr.train.context_parallel import ContextGroup
from rlvr.train.loading import (
    empty_model,
    load_model,
    load_tokenizer,
    require_finite_weights,
    without_bars,
    write_index,
)
from rlvr.train.logprobs import LogitsTransform, token_logprobs
from rlvr.train.lora import Lora, add_lora, has_lora, unwrap_model
from rlvr.train.packing import Packed, pack, packed_hidden_states, packs, require_packing
from rlvr.train.prompt_sharing import (
    SharedPrompts,
    hidden_states_sharing_prompts,
    shared_prompts,
    supports_prompt_sharing,
    worth_sharing_prompts,
)
from rlvr.train.ranks import Ranks, skeleton
from rlvr.train.shares import WeightFiles, empty_of_folder, small_twin
from rlvr.train.tensor_parallel import split_layers, whole_head
from rlvr.types import StateDict

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["Compare", "Policy", "RootModule"]

Compare = Callable[[Padded, Tensor, Any], Tensor]
"""(micro-batch, last hidden state before each completion token [N, H], head) → a
number of each token [N]."""


class RootModule(nn.Module):  # type: ignore[misc]  # torch has no types here
    """The root module: the only way from the trainer into the model.  Its forward is a micro-batch.

    What shards or wraps a module (`fully_shard`, `DistributedDataParallel`, `torch.compile`) is
    applied to this one. Such a wrapper gathers weights when the root's forward begins; a submodule
    that is called past the root would meet weights that are not there.  So layers and head are
    reached in here alone.

    Args:
        model: a causal language model of transformers; shared, not copied.
        logits: how the model makes logits from the head's output.

    Attributes:
        model, logits: see above.
        context: the ranks that read packs together; None where each reads its own.
    """

    def __init__(self, model: PreTrainedModel, logits: LogitsTransform) -> None:
        super().__init__()
        self.model, self.logits = model, logits
        self.context: ContextGroup | None = None

    def forward(
        self,
        batch: Padded,
        temperature: float = 1.0,
        with_entropy: bool = False,
        compare: Compare | None = None,
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"] | None]:
        """The numbers of the completion tokens of a micro-batch, see `numbers`.

        Args:
            batch: padded, packed, or with shared prompts; of a pack this rank's share is computed
                where there is a context group.
            temperature, with_entropy, compare: see `numbers`.
        """
        context = self.context
        # What is kept of a teacher without gradients is looked up by any rank's tokens.
        is_reusable = compare is not None and not torch.is_grad_enabled()
        if context is None or is_reusable or not isinstance(batch, Packed):
            return self.numbers(batch, temperature, with_entropy, compare)
        share = context.share(batch)
        first, second = self.numbers(share, temperature, with_entropy, compare)
        joined = None if second is None else context.join(second, share)
        return context.join(first, share), joined

    def numbers(
        self,
        batch: Padded,
        temperature: float,
        with_entropy: bool,
        compare: Compare | None,
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"] | None]:
        """Log-probabilities of the completion tokens, and their entropies or None.

        Args:
            batch: padded, packed, or with shared prompts.
            temperature: at which the completions were sampled.
            with_entropy: compute the entropies too.
            compare: computes another number of each token, which is returned instead of the
                entropies.
        """
        # The head whole: with tensor parallelism its rows lie on several ranks.
        head, states = whole_head(self.model), self.states(batch)
        logprobs, entropies = token_logprobs(
            states,
            head.weight,
            batch.targets,
            bias=head.bias,
            logits=self.logits,
            temperature=temperature,
            with_entropy=with_entropy,
        )
        return logprobs, entropies if compare is None else compare(batch, states, head)

    def states(self, batch: Padded) -> Float[Tensor, "N H"]:
        """The last hidden state before each completion token, from which the token is predicted.

        Args:
            batch: padded, packed, or with shared prompts.
        """
        if isinstance(batch, SharedPrompts):
            return hidden_states_sharing_prompts(self.model, batch)
        if isinstance(batch, Packed):
            read = packed_hidden_states(self.model, batch)
        else:
            read = self.model.base_model(
                input_ids=batch.input_ids, use_cache=False
            ).last_hidden_state
        # [B · L, H] → [N, H]: only states that predict a completion token go through the head.
        return read.flatten(0, 1).index_select(0, batch.sources)


class Policy:
    """A causal language model of transformers with its tokenizer.

    Dropout and the jitter of routers are switched off permanently: with them, sampler and trainer
    would compute different log-probabilities from the same weights.

    Args:
        model: a transformers model on its device, with or without a LoRA adapter of peft; its
            weights are trained in their type.
        tokenizer: the model's, of transformers.
        chat: how text prompts are sent (see `Tokenization`); `load` begins with what the folder
            recorded.
        autocast: compute in this type, such as torch.bfloat16 with float32 weights; None: in that
            of the weights.
        gradient_checkpointing: recompute the layers in the backward pass: a third more time, far
            less memory.
        packing: put the rows of a micro-batch side by side instead of padding them, which saves
            what the padding costs (see `rlvr.train.packing`).
        share_prompts: read a prompt once for all its completions where that gives the same numbers.
            The number of passes through the layers then depends on the rows: shards agree on it;
            switch it off under a wrapper of your own whose processes have to make as many.
        max_tokens: most tokens of a micro-batch, padding included.
        overhead_tokens: the cost of starting a micro-batch, in tokens (see `buckets`).
        twin: a smaller model of the same kind, with weights, on which is tried how logits are made
            and whether rows can be packed; read only where `model` has no weights (it is on the
            "meta" device).  None makes one of the model's config, as wide as the model.

    Attributes:
        model: the model, as it was given.
        root: the module that micro-batches go through.  A wrapper of it, such as
            `DistributedDataParallel`, may take its place; `fully_shard` works in place.
        lora: the adapter, which alone is trained; None where all weights are.
        tokenization: turns prompts into tokens and completions into text.

    Raises:
        UsageError: the model computes its logits in a way that the blockwise log-probabilities do
            not support, cannot be packed though `packing` is on, or has an adapter that is not
            plain LoRA.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        chat: ChatSettings | ChatMode | bool = "auto",
        autocast: torch.dtype | None = None,
        gradient_checkpointing: bool = False,
        packing: bool = False,
        share_prompts: bool = True,
        max_tokens: int = 16384,
        overhead_tokens: int = 256,
        twin: PreTrainedModel | None = None,
    ) -> None:
        model = unwrap_model(model)
        self.model, self.tokenizer = model, tokenizer
        self.lora = Lora(model) if has_lora(model) else None
        self.tokenization = Tokenization(tokenizer, end_token_ids(model, tokenizer), chat=chat)
        self.autocast, self.max_tokens, self.overhead_tokens = autocast, max_tokens, overhead_tokens
        self._files: WeightFiles | None = None
        self._device: torch.device | None = None  # where it computes, if weights rest elsewhere
        self._whole: Policy | None = None
        if packing:
            # Before the trial below, which needs the attention that keeps rows apart.
            use_packed_attention(model)
        tried = model
        # On the meta device: each rank reads its share of the weights later.
        if model.device.type == "meta":  # without weights: its kind is tried
            tried = small_twin(model) if twin is None else twin
        else:
            require_finite_weights(model)
        _disable_dropout(model)
        self._logits = _find_logits_transform(tried)
        self.root = RootModule(model, self._logits)
        self.packing = packing
        if packing:
            require_packing(tried)
        if gradient_checkpointing:
            # then the older name gives a warning
            newer = hasattr(model, "activation_checkpointing_enable")
            enable = (
                model.activation_checkpointing_enable
                if newer
                else model.gradient_checkpointing_enable
            )
            # Reentrant checkpointing passes no gradient on where a
            # layer's inputs need none, as behind frozen embeddings.
            enable({"use_reentrant": False})
        # With checkpointing, layers keep no cache, which prompt sharing needs.
        self._shares_prompts = (
            share_prompts
            and not packing
            and not gradient_checkpointing
            and supports_prompt_sharing(model, tried)
        )
        # layers checkpoint only in training mode; nothing else differs in it
        model.train(gradient_checkpointing)
        self.ranks = Ranks()
        self._skeleton: PreTrainedModel | None = None
        self._load_whole: Callable[[], Policy] = lambda: self
        self._fill: Callable[[Policy], None] | None = None  # gives shares their values

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        attention: str | None = None,
        in_shares: bool = False,
        **options: Any,
    ) -> Self:
        """Load a model from the hub, or from a folder that `save` or `save_pretrained` wrote.

        Args:
            name: folder or hub id; the folder of a LoRA adapter gives its base with the adapter
                merged.
            dtype: type of the weights.  Train in float32, with `autocast` for speed: bfloat16
                weights lose small steps.
            device: where the model goes.
            attention: implementation of attention, such as "sdpa" or "flash_attention_2"; None for
                the default.
            in_shares: read the weights when they are sharded, each rank its rows; whole until then
                only where that cannot be, as of an adapter, an id on the hub, or files that
                transformers converts.
            options: those of `Policy`.

        Warns:
            RuntimeWarning: prompts are sent in another way than the folder recorded.

        Raises:
            UsageError: there is no such model, or it cannot be used; see `rlvr.train.loading`.
        """
        saved_format = recorded_format(name)
        # What the folder recorded, unless the settings ask for something else.
        options["chat"] = ChatSettings.of(options.get("chat", "auto")).after(saved_format)
        lazy = (
            empty_of_folder(Path(name), dtype=dtype, attention=attention)
            if in_shares and (Path(name) / "config.json").is_file()
            else None
        )
        if lazy is None:
            model, tokenizer = load_model(name, dtype=dtype, device=device, attention=attention)
            policy = cls(model, tokenizer, **options)
        else:
            policy = cls(lazy[0], load_tokenizer(name), **options)
            policy._read_later(lazy[1], torch.device(device))
            policy._load_whole = partial(
                cls.load, name, dtype=dtype, device=device, attention=attention, **options
            )
        used = policy.tokenization.format
        if saved_format is not None and not used.sends_as(saved_format):
            warnings.warn(
                f"prompts go as {used}, and {name} was saved with {saved_format}: its answers may "
                f"be worse",
                RuntimeWarning,
                stacklevel=2,
            )
        return policy

    def _read_later(self, files: WeightFiles, device: torch.device) -> None:
        """Have the weights read when they are sharded."""
        self._files, self._device = files, device

        def fill(policy: Policy) -> None:
            files.fill(policy.model, policy.ranks)
            self._files = None

        self._fill = fill

    def whole(self) -> Policy:
        """The policy with whole weights before `shard`: itself, or one that is loaded for the time
        until then."""
        if self._files is None:
            return self
        self._whole = self._whole or self._load_whole()
        return self._whole

    def add_lora(
        self, *, rank: int, alpha: float | None = None, targets: Sequence[str] = (), seed: int = 0
    ) -> None:
        """Freeze the weights and train a new LoRA adapter beside them (see
        `rlvr.train.lora.add_lora`).

        Args:
            rank: of the adapter's products, at least 1.
            alpha: the products are scaled by alpha / rank; None for twice the rank.
            targets: endings of the names of layers; empty for all linear layers but the head.
            seed: fixes the adapter's first weights.
        """
        self.lora = add_lora(self.model, rank=rank, alpha=alpha, targets=targets, seed=seed)
        # Modules that the adapter adds begin in training mode.
        self.model.train(self.model.training)

    def shard(self, ranks: Ranks, *, whole: bool = False) -> None:
        """Shard the weights over the ranks, in place; every rank has to have the same ones.

        From then on `logprobs` without gradients, `weights`, `save` and `frozen_copy` are calls
        that all ranks make together: each computes its share of the rows.  With gradients each
        computes the rows that it gives.

        Args:
            ranks: with one of them nothing changes.
            whole: leave all weights on every rank, as shards have no second derivatives; each then
                computes all rows that it gives, and gradients are not summed.
        """
        if ranks.world == 1:
            return
        if whole:
            whole_policy = self.whole()
            # Whole weights on every rank: what was to be read in shares is loaded now.
            self.model, self.root, self.ranks = whole_policy.model, whole_policy.root, ranks
            self._files = self._fill = self._whole = None
            return
        if self.lora is not None:
            self.lora.fingerprint()  # while the frozen weights are whole
        self._device = self.device  # offloaded weights rest elsewhere
        # Before sharding: copies of the policy are made from it, without weights.
        self._skeleton = skeleton(self.model)
        # Ranks that share prompts would make different numbers of passes, in each of which weights
        # are gathered; on a CPU the ranks agree on the number before.
        self._shares_prompts &= self._device.type == "cpu" and ranks.together == 1
        # A critic's head computes in float32, whatever the layers do.
        critic_modules = [module for module in self.root.children() if module is not self.model]
        # First by tensor, then by data: FSDP shards what a rank has of a layer.
        if ranks.tensor_mesh is not None:
            split_layers(self.root, self.model, ranks.tensor_mesh)
        if ranks.context_mesh is not None:
            self.root.context = ContextGroup(ranks.context_mesh)
        ranks.shard(self.root, _layers(self.model), exact=critic_modules, dtype=self.autocast)
        self.ranks = ranks
        if self._fill is not None:
            # Values come last: until here the shares had shapes alone.
            self._fill(self)
        self._whole = None

    @property
    def is_sharded(self) -> bool:
        """Whether each rank has a share of the weights, which passes through the model gather."""
        return self._skeleton is not None

    def shares(self) -> list[Tensor]:
        """The parameters, each as this rank's share of it; the whole of it if not sharded."""
        if self.is_sharded:
            self.root.reshard()  # a pass without gradients leaves the root's whole
        return list(self.model.parameters())

    def summary(self) -> str:
        """A sum for each tensor, which other weights would not have, or checksums of their files;
        before `shard`."""
        if self._files is not None:
            return self._files.summary()
        return " ".join(
            f"{name} {float(p.detach().double().sum())}"
            for name, p in self.model.named_parameters()
        )

    def weights(self) -> Iterator[dict[str, Tensor]]:
        """The model's state dict in buckets of whole tensors; tied ones come once.

        On ranks but the first the buckets are empty, and all ranks have to go through them
        together.
        """
        state = self.model.state_dict()
        for names in _buckets(self.model, state):
            gathered = {name: self.ranks.gather(state[name]) for name in names}
            yield {name: value for name, value in gathered.items() if value is not None}

    def save(self, folder: str | Path) -> None:
        """Write weights, configs and tokenizer, as `load` and transformers read them.

        With LoRA these are the merged weights in float32; the adapter alone goes into the folder
        `adapter` in it.  On several ranks all make this call, and the first one writes.

        Args:
            folder: where they go; it is made.

        Raises:
            RlvrError: the disk is full, or failed.
        """
        folder = Path(folder)
        try:
            with without_bars():
                self._save_weights(folder)
                if self.lora is not None:
                    self._save_adapter(self.lora, folder / "adapter")
        except SafetensorError as error:  # the disk's own error is only in its text
            raise RlvrError(f"the model cannot be written to {folder}: {error}") from error
        self._save_tokenizer(folder)

    def _save_tokenizer(self, folder: Path) -> None:
        if self.ranks.first:
            self.tokenizer.save_pretrained(folder)
            self.tokenization.format.save(folder)

    def _save_adapter(self, lora: Lora, folder: Path) -> None:
        gathered = {name: self.ranks.gather(p) for name, p in lora.state_dict().items()}
        if self.ranks.first:
            lora.save(folder, gathered)
        self._save_tokenizer(folder)

    def _save_weights(self, folder: Path) -> None:
        """Write the configs, and each bucket as a file of safetensors; several have an index."""
        written: list[Path] = []
        for bucket in self.weights():
            if self.ranks.first:
                # Without weights: transformers writes the
                # config, and the given tensors as they are.
                plain = empty_model(self.model, torch.float32 if self.lora else self.model.dtype)
                part = bucket if self.lora is None else self.lora.merge(bucket)
                # One file for each bucket: transformers must not split it again.
                plain.save_pretrained(folder, state_dict=part, max_shard_size="999TB")
                written.append(folder / f"bucket-{len(written):05}.safetensors")
                (folder / "model.safetensors").rename(written[-1])
        if len(written) == 1:
            # As transformers itself names a single file, which needs no index.
            written[0].rename(folder / "model.safetensors")
        elif written:
            write_index(folder, written)

    def save_description(self, folder: str | Path) -> None:
        """Write configs and tokenizer without weights: an engine is made of these, and given the
        weights then.

        Args:
            folder: where they go; it is made.
        """
        self.model.config.save_pretrained(folder)
        self.model.generation_config.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def state_dict(self) -> StateDict:
        """What training changes: all weights, or with LoRA the adapter's and a fingerprint of the
        others."""
        if self.lora is None:
            weights: dict[str, Any] = self.model.state_dict()
            return weights
        return {"adapter": self.lora.state_dict(), "base": self.lora.fingerprint()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Take over what `state_dict` returned.

        Args:
            state: what `state_dict` returned.

        Raises:
            DataError: the weights beside the adapter are others now, or there was no adapter.
        """
        if self.lora is None:
            self.model.load_state_dict(self.ranks.spread(state, self.model.state_dict()))
            return
        if "adapter" not in state:
            raise DataError(
                "this checkpoint is of all weights, and an adapter is trained now; give a new "
                "folder"
            )
        if state["base"] != self.lora.fingerprint():
            raise DataError(
                "the model's weights are not those that this adapter was trained beside; give the "
                "model with which the run began"
            )
        self.lora.load_state_dict(self.ranks.spread(state["adapter"], self.lora.state_dict()))

    @property
    def device(self) -> torch.device:
        """The device that computes."""
        device: torch.device = self._device or self.model.device
        return device

    def frozen_copy(self) -> Policy:
        """The policy as it is now, for a reference: a copy that is never trained, or with LoRA this
        one as it began."""
        if self.lora is not None:
            return _AdapterAtRest(self)
        twin = self.copy_all()
        twin.model.requires_grad_(False).eval()
        twin.shard(self.ranks, whole=not self.is_sharded)
        return twin

    def in_another_layout(self) -> Policy:
        """The same weights, whose rows lie otherwise: in smaller micro-batches, padded, each with
        its own prompt.

        In float32 where this one computes in another type, but with flash attention, which knows no
        float32.
        """
        twin = copy.copy(self)
        twin.packing = twin._shares_prompts = False
        # Half: other micro-batches, and so another order of sums.
        twin.max_tokens = max(1, self.max_tokens // 2)
        kind = str(getattr(self.model.config, "_attn_implementation", ""))
        if not kind.startswith("flash"):
            twin.autocast = None
        return twin

    def copy_all(self) -> Policy:
        """A policy with weights of its own; frozen weights are the same tensors.

        If this one is sharded, it gets them when it is sharded too, share by share.
        """
        twin = copy.copy(self)
        twin.ranks = Ranks()
        if self.is_sharded:
            twin._skeleton, twin.model = None, copy.deepcopy(self._skeleton)
            twin._fill = self._give
            twin.lora = None if self.lora is None else Lora(twin.model)
        else:
            # Frozen tensors in deepcopy's memo are not copied: with LoRA a copy is small.
            shared_tensors = {id(p): p for p in self.model.parameters() if not p.requires_grad}
            twin.model = copy.deepcopy(self.model, dict(shared_tensors))
        twin.root = RootModule(twin.model, self._logits)
        return twin

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _give(self, twin: Policy) -> None:
        """Copy this rank's shares into those of a policy that is sharded alike."""
        # Ranks hold the same places of both, so no message is needed.
        for twin_share, own_share in zip(twin.shares(), self.shares(), strict=True):
            twin_share.copy_(own_share)

    def sampler(self, **options: Any) -> LocalSampler:
        """A sampler with these weights and this precision.

        Args:
            options: those of `LocalSampler`.
        """
        if self.is_sharded:
            raise UsageError(
                "this policy is sharded over several ranks, and a sampler in one of them needs "
                "whole weights: make it before `shard`, with weights of its own (dtype=…)"
            )
        return LocalSampler(
            self.whole().model, self.tokenization, **{"autocast": self.autocast, **options}
        )

    def micro_batches(self, rows: Sequence[Tokenized]) -> list[list[int]]:
        """Indices of the rows in each micro-batch, of at most `max_tokens` tokens and with little
        padding.

        Args:
            rows: what is split.
        """
        return self._split(_lengths(rows))

    def plan(self, rows: Sequence[Tokenized]) -> list[tuple[list[int], bool]]:
        """This rank's micro-batches: (indices of the rows, whether they count), as many as every
        other rank has.

        Args:
            rows: of all ranks, the same on each; at least one.
        """
        return self.ranks.plan(_lengths(rows), self._split)

    def _split(self, lengths: Sequence[int]) -> list[list[int]]:
        if self.packing:
            return packs(lengths, max_tokens=self.max_tokens)
        return buckets(lengths, max_tokens=self.max_tokens, overhead_tokens=self.overhead_tokens)

    @overload
    def logprobs(
        self,
        rows: Sequence[Tokenized],
        temperature: float = 1.0,
        *,
        with_entropy: Literal[False] = False,
    ) -> Float[Tensor, "B T"]: ...

    @overload
    def logprobs(
        self, rows: Sequence[Tokenized], temperature: float = 1.0, *, with_entropy: Literal[True]
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]: ...

    def logprobs(
        self, rows: Sequence[Tokenized], temperature: float = 1.0, *, with_entropy: bool = False
    ) -> Float[Tensor, "B T"] | tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Log-probabilities of the completions' tokens under softmax(logits / temperature), in
        rows' order.

        T is the longest completion; shorter ones are padded with zeros.  Rows go through the model
        in micro-batches. With gradients on, the activations of all micro-batches are kept until
        backward: to keep one at a time, call this for each of `micro_batches` and go backward in
        between.

        Args:
            rows: B rollouts or samples.
            temperature: at which the completions were sampled.
            with_entropy: return (logprobs, entropy in nats at each token) instead; both carry
                gradients.

        Raises:
            UsageError: there are no rows, or a row has no prompt.
        """
        if not rows:
            raise UsageError("there are no rows to score; give at least one")
        # One width for all micro-batches, so that they can be joined.
        T = max(len(row.completion_ids) for row in rows)
        if self.is_sharded and not torch.is_grad_enabled():
            # Without gradients rows are divided over the ranks, and summed up for all.
            shared = self._of_all_ranks(rows, T, temperature, with_entropy)
            return (shared[0], shared[1]) if with_entropy else shared[0]
        # With gradients the caller has taken the rows
        # from `plan`, and all ranks make as many passes.
        parts = [list(range(len(rows)))] if self.is_sharded else self.micro_batches(rows)
        batches_values = [
            self._of_batch([rows[i] for i in part], T, temperature, with_entropy) for part in parts
        ]
        # `argsort` of the order of computation puts rows back in the order given.
        place = torch.tensor([i for part in parts for i in part], device=self.device).argsort()
        logprobs, *entropy = (
            torch.cat(values)[place] for values in zip(*batches_values, strict=True)
        )
        return (logprobs, entropy[0]) if with_entropy else logprobs

    def _of_all_ranks(
        self, rows: Sequence[Tokenized], width: int, temperature: float, with_entropy: bool
    ) -> list[Tensor]:
        """[B, T] of all rows, of which each rank has computed its share; 0 + x is exact."""
        totals: list[Tensor] = []
        for part, counts in self.plan(rows):
            computed = self._of_batch([rows[i] for i in part], width, temperature, with_entropy)
            totals = totals or [values.new_zeros(len(rows), width) for values in computed]
            if counts:
                for values, part_values in zip(totals, computed, strict=True):
                    # A filler's values are dropped: another rank has that row.
                    values[part] = part_values
        return [self.ranks.sum(values) for values in totals]

    def compare(
        self, rows: Sequence[Tokenized], temperature: float, compare: Compare
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Log-probabilities of one micro-batch, and what is computed from its hidden states.

        Args:
            rows: of the micro-batch.
            temperature: at which the completions were sampled.
            compare: computes it, inside of the root module, where weights are whole.
        """
        width = max(len(row.completion_ids) for row in rows)
        logprobs, compared = self._of_batch(rows, width, temperature, False, compare)
        return logprobs, compared

    def _of_batch(
        self,
        rows: Sequence[Tokenized],
        width: int,
        temperature: float,
        with_entropy: bool,
        compare: Compare | None = None,
    ) -> list[Tensor]:
        """[rows, width] of one micro-batch: logprobs, and entropies or what is compared if asked
        for."""
        batch = self.micro_batch(rows)
        # Shares are gathered in this type; autocast would keep a copy of each in it beside them.
        casts = self.autocast is not None and not self.is_sharded
        with torch.autocast(self.device.type, self.autocast, enabled=casts):
            outputs = self.root(batch, temperature, with_entropy, compare)
        return [ragged_to_padded(values, batch, width) for values in outputs if values is not None]

    def micro_batch(self, rows: Sequence[Tokenized]) -> Padded:
        """Rows as the tensors that go through the model together: packed, with shared prompts, or
        padded.

        Args:
            rows: of one micro-batch.
        """
        if self.packing:
            return pack(rows, device=self.device)
        padded = pad(rows, device=self.device)
        shares = self._shares_prompts and worth_sharing_prompts(rows)
        if self._shares_prompts and self.is_sharded:  # passes gather weights: all make as many
            shares = not self.ranks.any(not shares or padded.width < 2)
        return shared_prompts(rows, padded) if shares else padded


def _layers(model: PreTrainedModel) -> list[nn.Module]:
    """The layers of a transformers model: what it says must stay together on a device, else its
    longest list."""
    kinds = set(getattr(model, "_no_split_modules", None) or ())
    if layers := [
        module for module in model.base_model.modules() if type(module).__name__ in kinds
    ]:
        return layers
    lists = [module for module in model.base_model.modules() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=len, default=[]))


def _lengths(rows: Sequence[Tokenized]) -> list[int]:
    return [len(row.prompt_ids) + len(row.completion_ids) for row in rows]


# Few large messages gather the weights of all ranks faster than one for each tensor, and a rank
# has memory for this much of whole weights beside its shard.
_BUCKET_BYTES: Final = 256 * 2**20


def _buckets(model: PreTrainedModel, state: Mapping[str, Tensor]) -> Iterator[list[str]]:
    """Names of a state dict by bucket, without tied ones; a layer and its adapter stay together."""
    once, all_names = (
        {name for name, _ in model.named_parameters(remove_duplicate=without)}
        for without in (True, False)
    )
    bucket, size = list[str](), 0
    layers = groupby(
        # Tied tensors have two names, of which the first
        # stays; buffers are not among the parameters.
        (name for name in state if name in once or name not in all_names),
        # A layer's name without what its adapter adds.
        lambda name: re.split(r"\.(?:base_layer|lora_)", name)[0],
    )
    for _, names in layers:
        layer = list(names)
        layer_bytes = sum(state[name].numel() * state[name].element_size() for name in layer)
        if bucket and size + layer_bytes > _BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
        bucket, size = [*bucket, *layer], size + layer_bytes
    yield bucket


class _AdapterAtRest(Policy):
    """A policy with its adapter switched off, or with the adapter's weights of an
    earlier time; for a reference."""

    def __init__(self, policy: Policy) -> None:
        vars(self).update(vars(policy))
        self._policy = policy
        assert policy.lora is not None
        self._weights: Mapping[str, Tensor] | None = (
            # An adapter that changes nothing yet can be switched
            # off; one that was loaded has to be kept as it began.
            None if policy.lora.is_new else policy.lora.state_dict()
        )

    def _of_batch(
        self,
        rows: Sequence[Tokenized],
        width: int,
        temperature: float,
        with_entropy: bool,
        compare: Compare | None = None,
    ) -> list[Tensor]:
        lora = self._policy.lora
        assert lora is not None
        with lora.off() if self._weights is None else lora.holding(self._weights):
            return self._policy._of_batch(rows, width, temperature, with_entropy, compare)

    def state_dict(self) -> dict[str, object]:
        return {} if self._weights is None else {"adapter": self._weights}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        lora = self._policy.lora
        assert lora is not None
        adapter = state.get("adapter")
        self._weights = None if adapter is None else self.ranks.spread(adapter, lora.state_dict())


def _disable_dropout(model: nn.Module) -> None:
    """Set the rates of dropout modules to 0, and those of dropout and jitter that layers keep as
    plain numbers."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            if isinstance(value, float) and ("dropout" in name or "jitter" in name):
                setattr(module, name, 0.0)


@torch.no_grad()  # type: ignore[untyped-decorator]
def _find_logits_transform(model: PreTrainedModel) -> LogitsTransform:
    """How the model makes logits from the head's output: tries what its config names on a few
    tokens.

    The head's output is scaled up meanwhile, so that a cap shows even if a fresh model's logits are
    near 0.

    Raises:
        UsageError: none of them gives the model's logits.
    """
    config = model.config.get_text_config()
    head = model.get_output_embeddings()
    # Four tokens are enough: a transformation acts on each logit alone.
    ids = torch.arange(4, device=model.device).remainder(config.vocab_size).unsqueeze(0)
    with evaluation_mode(model):
        states = getattr(
            model.base_model(input_ids=ids, use_cache=False), "last_hidden_state", None
        )
        if head is not None and states is not None:
            # Scaled to 100, where a cap such as Gemma's of
            # 30 shows; the hook scales what the model sees.
            factor = 100.0 / float(head(states).abs().max().clamp(min=1e-6))
            hook = head.register_forward_hook(lambda _, inputs, out: out * factor)
            expected, plain = (
                model(input_ids=ids, use_cache=False).logits.float(),
                head(states).float(),
            )
            hook.remove()
            # A few roundings of the largest logit.
            rounding = 8 * torch.finfo(states.dtype).eps * plain.abs().max()
            for candidate in _candidates(config):
                transformed = candidate.apply_(plain.clone())
                if (
                    transformed.shape == expected.shape
                    and (transformed - expected).abs().max() <= rounding
                ):
                    return candidate
    raise UsageError(
        f"{type(model).__name__} makes its logits from the last hidden states in a way that rlvr "
        "does not know, so its log-probabilities would be wrong; use a model with a linear head, "
        "scaled or soft-capped at most"
    )


def _candidates(config: PretrainedConfig) -> list[LogitsTransform]:
    """No change, Gemma's cap, the factors of Cohere and Falcon-H1, the divisor of Granite."""
    cap = getattr(config, "final_logit_softcapping", None)
    factors = [getattr(config, name, None) for name in ("logit_scale", "lm_head_multiplier")]
    divisor = getattr(config, "logits_scaling", None)
    scales = [1.0, *(float(f) for f in factors if f), *([1.0 / divisor] if divisor else [])]
    return [
        LogitsTransform(scale, softcap)
        for softcap in ([cap, None] if cap else [None])
        for scale in scales
    ]
