"""The model made from a config."""

import warnings

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from rlvr.train.loading import load_tokenizer
from rlvr.train.tiny import character_tokenizer, tiny
from tests.rewards.parts import refusal

CHARSET = "0123456789+= \n"


def test_a_text_comes_back_as_it_was():
    """Spaces and newlines too, which many tokenizers change; <bos> is put before it and taken off again."""
    tokenizer = character_tokenizer(CHARSET + "é")
    assert tokenizer.decode(tokenizer("é1 é\n").input_ids, skip_special_tokens=True) == "é1 é\n"
    ids = tokenizer("1 +  2\n=3").input_ids
    assert ids == [
        1,
        5,
        16,
        14,
        16,
        16,
        6,
        17,
        15,
        7,
    ]  # 0 is 4, + is 14, = is 15, the space 16, the newline 17
    assert tokenizer.decode(ids, skip_special_tokens=True) == "1 +  2\n=3"


def test_ids_stand_in_the_order_of_the_charset():
    """Four special tokens, then the characters: a checkpoint means the same tomorrow."""
    tokenizer = character_tokenizer("ba")
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == [
        "<pad>",
        "<bos>",
        "<eos>",
        "<unk>",
        "b",
        "a",
    ]
    assert tokenizer("abz").input_ids == [1, 5, 4, 3]  # z is unknown, and not left out


def test_saved_and_loaded_it_is_the_same_model(tmp_path):
    """The folder is one like any other: the Auto classes of transformers read it, spaces and
    words too; of a qwen2 not those between U+0080 and U+0143, which it takes for bytes."""
    tokenizer = character_tokenizer(CHARSET + "十", ["+ 4"])
    model, _ = tiny(CHARSET + "十_", hidden=32, seed=3)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again, text = (
        AutoModelForCausalLM.from_pretrained(tmp_path),
        AutoTokenizer.from_pretrained(tmp_path),
    )
    ids = tokenizer("12 + 4十= ", return_tensors="pt").input_ids
    assert ids[0].tolist() == [1, 5, 6, 16, 19, 18, 15, 16]
    assert text("12 + 4十= ").input_ids == ids[0].tolist()
    assert (text.bos_token, text.eos_token, text.pad_token) == ("<bos>", "<eos>", "<pad>")
    assert text.decode(ids[0], skip_special_tokens=True) == "12 + 4十= "
    assert torch.equal(again(ids).logits, model(ids).logits)
    assert again.generation_config.eos_token_id == tokenizer.eos_token_id == 2


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_a_tokenizer_that_is_read_otherwise_is_said(tmp_path, family):
    """transformers makes a qwen2's rules itself; a folder that was saved with others loses spaces."""
    tiny("12 ", hidden=32, family=family)[0].save_pretrained(tmp_path)
    saved = Tokenizer(models.BPE({"<unk>": 0, "1": 1, "2": 2, " ": 3}, [], unk_token="<unk>"))
    saved.enable_padding(length=100)  # which is no other reading
    saved.enable_truncation(40)
    PreTrainedTokenizerFast(tokenizer_object=saved, unk_token="<unk>").save_pretrained(tmp_path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        load_tokenizer(tmp_path)
    found = [str(warning.message) for warning in said if "tokenizer.json" in str(warning.message)]
    assert len(found) == (family == "qwen2")
    for line in found:
        assert "as ['1', '2', '1', '1'], the tokenizer.json of" in line


def test_the_seed_fixes_the_weights_and_nothing_else():
    """A recipe that makes a model must not change what is drawn after it."""
    torch.manual_seed(5)
    undisturbed = torch.rand(1)
    torch.manual_seed(5)
    (one, _), (same, _), (other, _) = (tiny(CHARSET, hidden=32, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), undisturbed)
    weights = [model.get_input_embeddings().weight for model in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_sizes_are_what_was_asked_for():
    """Qwen2 has biases at q, k and v, Llama has none; 32 wide, 2 layers, tied or not."""
    for family, biases in (("qwen2", 32 + 16 + 16), ("llama", 0)):
        layer = (
            32 * 32 + 32 * 32 + 2 * 32 * 16 + biases + 3 * 32 * 128 + 2 * 32
        )  # q and o, k and v, MLP, norms
        model, tokenizer = tiny(CHARSET, hidden=32, heads=4, kv_heads=2, family=family)
        assert model.num_parameters() == 2 * layer + 32 + len(tokenizer) * 32
        untied, _ = tiny(CHARSET, hidden=32, heads=4, kv_heads=2, family=family, tied=False)
        assert untied.num_parameters() == 2 * layer + 32 + 2 * len(tokenizer) * 32


def test_sizes_that_no_transformer_has_are_refused():
    """The error names the value; from inside the model it would be a shape."""
    assert "hidden=30" in refusal(lambda: tiny(CHARSET, hidden=30))
    assert "kv_heads=3" in refusal(lambda: tiny(CHARSET, kv_heads=3))
    assert "layers is 0" in refusal(lambda: tiny(CHARSET, layers=0))
    assert "'gpt5'" in refusal(lambda: tiny(CHARSET, family="gpt5"))
    assert "repeats ['a']" in refusal(lambda: tiny("aba"))
    assert "empty" in refusal(lambda: character_tokenizer(""))
