"""A tiny transformers model with random weights, and a tokenizer with one token per
character; for tests and demos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config

from rlvr.errors import UsageError
from rlvr.validate import require_one_of, require_whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["character_tokenizer", "tiny"]

_SPECIAL: Final = {
    "pad_token": "<pad>",
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "unk_token": "<unk>",
}
_CONFIGS: Final = {"qwen2": Qwen2Config, "llama": LlamaConfig}


def tiny(
    charset: str,
    *,
    words: Sequence[str] = (),
    hidden: int = 128,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int | None = None,
    max_length_tokens: int = 1024,
    family: Literal["qwen2", "llama"] = "qwen2",
    tied: bool = True,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """A causal language model with random weights, and its tokenizer.  The same arguments give the
    same weights.

    The MLP is four times as wide as `hidden`.  The seed leaves torch's global generator as it was.

    Args:
        charset: every character that the model can read and write, each once.
        words: longer texts that are one token each, wherever they stand.
        hidden: width of the residual stream, a multiple of 2 · `heads`.
        layers: number of transformer blocks.
        heads: attention heads.
        kv_heads: key and value heads, a divisor of `heads`; None for as many.
        max_length_tokens: most tokens of prompt and completion together.
        family: architecture of the model.
        tied: use one matrix for the embedding and the head.
        dtype: of the weights.
        seed: fixes the weights.

    Raises:
        UsageError: the sizes do not fit each other, or there is no such family.
    """
    tokenizer = character_tokenizer(charset, words)
    kv_heads = heads if kv_heads is None else kv_heads
    sizes = {"hidden": hidden, "layers": layers, "heads": heads, "kv_heads": kv_heads}
    for name, size in {**sizes, "max_length_tokens": max_length_tokens}.items():
        require_whole(name, size, 1)
    # rotary embeddings turn pairs, so a head's width is even
    if hidden % (2 * heads) or heads % kv_heads:
        raise UsageError(
            f"hidden={hidden}, heads={heads}, kv_heads={kv_heads}: each head needs an even width, "
            "and kv_heads must divide heads; try hidden=128, heads=4, kv_heads=2"
        )
    config = _CONFIGS[require_one_of("family", family, _CONFIGS)](
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=max_length_tokens,
        tie_word_embeddings=tied,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    # The global generator is put back: making a model must not change what is drawn after it.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return model.eval(), tokenizer


def character_tokenizer(charset: str, words: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """A tokenizer with one token per character.  It puts `<bos>` first; each byte of another
    character becomes `<unk>`.

    Its tokens are written as bytes, as byte-level BPE does: transformers reads the tokenizers of
    some types of models, qwen2 among them, by that rule, whatever their files say.

    Ids: 0 `<pad>`, 1 `<bos>`, 2 `<eos>`, 3 `<unk>`, then the charset in its order, then the words.

    Args:
        charset: the characters, each once.
        words: longer texts that are one token each, wherever they stand; of several that begin
            alike, the longest.

    Raises:
        UsageError: there are no characters, or one of them stands twice; a word is shorter than two
            characters, or stands twice.
    """
    twice = sorted({c for c in charset if charset.count(c) > 1})
    if not charset or twice:
        raise UsageError(
            f"the charset {charset!r} is empty or repeats {twice}; give each character once"
        )
    short = sorted({word for word in words if len(word) < 2 or list(words).count(word) > 1})
    if short:
        raise UsageError(
            f"the words {short} are shorter than two characters, or stand twice; give each once"
        )
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    letters = [c if ord(c) > 127 else as_bytes.pre_tokenize_str(c)[0][0] for c in charset]
    vocabulary = {token: i for i, token in enumerate([*_SPECIAL.values(), *letters])}
    # No merges: each character stays a token.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=_SPECIAL["unk_token"]))
    changed = [(letter, c) for letter, c in zip(letters, charset, strict=True) if letter != c]
    tokenizer.pre_tokenizer = as_bytes
    tokenizer.decoder = decoders.Sequence(
        [*(decoders.Replace(letter, c) for letter, c in changed), decoders.Fuse()]
    )
    bos = _SPECIAL["bos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, vocabulary[bos])]
    )
    built = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **_SPECIAL
    )
    wide = [c for c in charset if ord(c) > 127]  # of several bytes, and yet one token each
    built.add_tokens([AddedToken(text, normalized=False) for text in [*wide, *words]])
    return built
