"""`rlvr filter` counts what is sent: with the chat template where the tokenizer has one."""

import json

import pytest

from tests.json_lines import write_json_lines
from tests.samplers.test_chat import tokenizer


@pytest.fixture
def kept(say, tmp_path):
    """The prompts that are left with at most 100 tokens, by a tokenizer of one token per character."""
    tokenizer("chatml").save_pretrained(tmp_path / "model")
    rows = [{"prompt": "x" * n, "reference": n} for n in (20, 70, 120)]
    rows.append({"prompt": f"<|im_start|>user\n{'x' * 70}<|im_end|>\n", "reference": 1})
    write_json_lines(tmp_path / "in.jsonl", rows)

    def run(*flags):
        out = tmp_path / "out.jsonl"
        code, said = say("filter", tmp_path / "in.jsonl", "-o", out, "--max-tokens", 100, "--overwrite",
                         "--tokenizer", tmp_path / "model", "--processes", 0, *flags)  # fmt: skip
        assert code == 0, said
        return [json.loads(line)["reference"] for line in out.read_text().splitlines()]

    return run


def test_tokens_of_the_template_count(kept, say):
    """Its system prompt and headers take 42 of the 100; a prompt that has its template gets no second one."""
    assert kept() == [20, 1]
    assert "prompts: the chat template" in say.err
    assert kept("--chat", "off") == [20, 70, 1]
    assert kept("--system", "y" * 70) == [1]
