"""How prompts are sent: by the chat template where the tokenizer has one, and the same ever after."""

import json
from dataclasses import replace

import pytest

from rlvr.collect.prefixes import step_boundaries
from rlvr.errors import DataError
from rlvr.samplers.chat import ChatFormat, ChatSettings, prompts_line, recorded_format
from rlvr.samplers.protocol import Request, Sampling
from rlvr.samplers.tokenization import Tokenization
from rlvr.samplers.vllm_shared import EngineAnswer, sample_of
from rlvr.train.tiny import character_tokenizer
from rlvr.types import Rollout, Task
from tests.rewards.parts import refusal

CHATML = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking %}<think>\n{% endif %}{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
INST = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
)  # fmt: skip
TEMPLATES = {"chatml": CHATML, "llama": LLAMA, "inst": INST, "thinking": THINKING}
ASK = [{"role": "user", "content": "hi"}]


def tokenizer(name):
    """One token per character and special token; it puts <bos> first, as Llama's does."""
    made = character_tokenizer("".join(map(chr, [10, *range(32, 127)])))
    made.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    made.chat_template = TEMPLATES.get(name)
    return made


def tokens(name, **chat):
    made = tokenizer(name)
    return Tokenization(made, [made.eos_token_id], chat=ChatSettings(**chat))


def shown(tokenization, prompt="hi"):
    return tokenization.tokenizer.decode(tokenization.encode(prompt))


@pytest.mark.parametrize("name", ["chatml", "llama", "inst", "thinking"])
def test_a_template_is_used_where_there_is_one(name):
    """An instruct model that gets its prompt raw answers something else, and nothing warns."""
    auto = tokens(name)
    assert auto.format.sent == "template"
    assert auto.encode("hi") == tokens(name, mode="on").encode("hi") == auto.encode(ASK)
    assert shown(tokens(name, mode="off")) == "<bos>hi"


def test_a_base_model_stays_raw():
    """Without a template nothing changes, up to the last token, and the first line says why."""
    raw = tokens("none")
    assert (shown(raw), raw.end_ids, raw.format.sent) == ("<bos>hi", {2}, "raw")
    assert prompts_line(raw.format) == "prompts: raw texts; the tokenizer has no chat template"
    assert "no chat template" in refusal(lambda: tokens("none", mode="on"))
    for asked in ({"system": "x"}, {"options": {"a": 1}}):
        assert "no chat template" in refusal(lambda asked=asked: tokens("none", **asked))
        assert "prompts go raw" in refusal(lambda asked=asked: tokens("llama", mode="off", **asked))


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [("chatml", 0, "<|im_end|>"), ("llama", 1, "<|eot_id|>"), ("inst", 1, "<eos>")],
)
def test_a_prompt_begins_once_and_ends_with_the_templates_token(name, start, end):
    """The template has written <bos> itself, and the model was taught to end by the template's own token."""
    made = tokens(name)
    assert made.encode("hi").count(made.tokenizer.bos_token_id) == start
    assert made.end_ids == {2, made.tokenizer.convert_tokens_to_ids(end)}
    assert made.closing_id == made.tokenizer.convert_tokens_to_ids(end)


@pytest.mark.parametrize("name", ["chatml", "llama", "inst", "thinking"])
def test_a_text_with_the_templates_own_tokens_goes_as_it_is(name):
    """A prompt that was rendered before gives the tokens of the template: no second header, one <bos>."""
    made = tokens(name)
    rendered = made.tokenizer.apply_chat_template(ASK, tokenize=False, add_generation_prompt=True)
    for text in (rendered, rendered.removeprefix("<bos>")):
        assert made.goes_as_it_is(text)
        assert made.encode(text) == made.encode("hi")
    assert not made.goes_as_it_is(" " + rendered)
    assert not made.goes_as_it_is("hi")
    assert not tokens(name, mode="off").goes_as_it_is(rendered)


def test_a_text_that_begins_with_a_word_of_the_template_is_put_into_it():
    """SmolLM2 opens a turn with its <bos>, and behind that stands the word "system", as in many a task."""
    made = tokenizer("chatml")
    made.bos_token = "<|im_start|>"
    assert Tokenization(made, [2]).template.starts == ("<|im_start|>",)


def test_the_templates_own_system_prompt_is_said():
    """Qwen and SmolLM2 add one that no flag asked for; --system replaces it, and an empty one removes it."""
    assert tokens("chatml").format.added_system == "Be kind."
    assert [tokens(name).format.added_system for name in ("llama", "inst")] == ["", ""]
    assert "'Be kind.'" in prompts_line(tokens("chatml").format)
    said = tokens("chatml", system="Be brief.")
    assert shown(said).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi")
    assert "Be kind" not in prompts_line(said.format)
    assert "Be brief" in prompts_line(said.format)
    own = [{"role": "system", "content": "Mine."}, *ASK]
    assert said.encode(own) == tokens("chatml").encode(own)
    assert "Be kind" not in shown(tokens("chatml", system=""))


def test_a_system_prompt_that_would_not_be_shown_is_refused():
    """A template raises for it, or leaves it out: then the run would not be what was asked for."""
    assert "refuses system messages (no system)" in refusal(lambda: tokens("inst", system="x"))
    made = tokenizer("llama")
    made.chat_template = "{{ messages[-1].content }}"
    silent = refusal(lambda: Tokenization(made, [2], chat=ChatSettings(system="x")))
    assert "leaves out system messages" in silent


def test_options_reach_the_template():
    """A misspelt one would do nothing, so the template has to read it."""
    made = tokens("chatml", options={"enable_thinking": True})
    assert shown(made).endswith("<|im_start|>assistant\n<think>\n")
    assert "enable_thinking=true" in str(made.format)
    said = refusal(lambda: tokens("chatml", options={"enable_thinkin": True}))
    assert "enable_thinking" in said
    assert "set by rlvr" in refusal(lambda: tokens("chatml", options={"messages": []}))


@pytest.mark.parametrize(
    ("name", "options", "beginning"),
    [
        ("chatml", {}, ""),
        ("chatml", {"enable_thinking": True}, "<think>\n"),
        ("thinking", {}, "<think>\n"),
        ("llama", {}, ""),
        ("inst", {}, ""),
    ],
)
def test_the_beginning_that_a_template_gives_a_reply_is_part_of_it(name, options, beginning):
    """Format("<think>...</think>") paid 0 for every completion of a model whose template writes "<think>"."""
    made = tokens(name, options=options)
    prompt = made.encode("hi")
    assert made.format.beginning == made.beginning(prompt) == beginning
    assert made.beginning([*prompt, 40]) == made.beginning([40]) == "" or not beginning
    reply = made.tokenizer("a</think>b", add_special_tokens=False).input_ids
    for text in ("a</think>b", beginning + "a</think>b"):  # without it, and as it was recorded
        assert made.encode_reply(text, prompt) == reply


@pytest.mark.parametrize("name", ["chatml", "llama"])
def test_the_tokens_of_a_chat_are_those_of_its_turns(name):
    """However a turn ended, all tokens together are what the template writes for the whole chat."""
    made = tokens(name)
    chat = [*ASK, {"role": "assistant", "content": "go"}, {"role": "user", "content": "on"}]
    turn = made.tokenizer("go", add_special_tokens=False).input_ids
    for reply in (turn, [*turn, made.closing_id]):
        before = [*made.encode(ASK), *reply]
        assert [*before, *made.encode(chat[2:], after=before)] == made.encode(chat)


def test_later_turns_have_the_templates_beginning_too():
    """An episode's second turn is opened as the first was."""
    made = tokens("thinking")
    before = [*made.encode("hi"), 40, made.closing_id]
    context = [*before, *made.encode(ASK, after=before)]
    assert made.beginning(context) == "<think>\n"


@pytest.mark.parametrize(("opening", "beginning"), [(":", ""), ("<think>\n", "<think>\n")])
def test_an_opening_that_no_given_turn_has_is_a_header_unless_it_is_a_tag(opening, beginning):
    """Some templates mark only the turn that is to be sampled; [INST] has no header at all."""
    made = tokenizer("inst")
    made.chat_template = f"{INST}{{% if add_generation_prompt %}}{opening}{{% endif %}}"
    assert Tokenization(made, [2]).format.beginning == beginning


def test_texts_of_engines_and_steps_have_the_beginning():
    """vLLM's samples as the local ones; and a step's tokens are counted behind what was not sampled."""
    made = tokens("thinking")
    prompt, ids = made.encode("hi"), made.tokenizer("a\nb", add_special_tokens=False).input_ids
    request = Request(0, tuple(prompt), Sampling(max_tokens=9), seed=0, limit=9)
    answer = EngineAnswer(ids, [0.0] * len(ids), [0] * len(ids), "stop")
    sample = sample_of(request, made, answer)
    assert sample.text == "<think>\na\nb"
    again = sample_of(replace(request, context=(40,)), made, answer)
    assert again.text == "a\nb"  # of a context that the template did not open
    rollout = Rollout(Task("t", "hi"), sample.text, prompt, ids, [True] * 3, [0.0] * 3, 0)
    assert step_boundaries(rollout, made) == (0, 2, 3)


def test_what_was_used_is_kept(tmp_path):
    """A folder says how its model was trained, and nothing else has to be remembered."""
    used = tokens("chatml", system="S", options={"enable_thinking": True}).format
    used.save(tmp_path)
    assert recorded_format(tmp_path) == used
    assert used.sends_as(recorded_format(tmp_path))
    assert ChatSettings().after(used) == ChatSettings("on", "S", {"enable_thinking": True})
    assert ChatSettings("off").after(used) == ChatSettings("off")
    assert ChatSettings(system="T").after(used).system == "T"
    assert recorded_format(tmp_path / "none") is None
    (tmp_path / "rlvr_chat.json").write_text('{"sent": "both"}')
    with pytest.raises(DataError, match="cannot be read as a chat format"):
        recorded_format(tmp_path)


@pytest.mark.parametrize(("chat", "sent"), [(False, "raw"), (True, "template"), (None, "raw")])
def test_a_folder_of_before_counts_as_raw_and_says_so(tmp_path, chat, sent):
    """Its model was trained on raw texts, unless its settings say that `chat` was on."""
    (tmp_path / "model" / "adapter").mkdir(parents=True)
    settings = {} if chat is None else {"chat": chat}
    (tmp_path / "config.json").write_text(json.dumps({"settings": settings}))
    for folder in (tmp_path, tmp_path / "model", tmp_path / "model" / "adapter"):
        found = recorded_format(folder)
        assert found.sent == sent
        assert "before templates were recorded" in found.why
    settings = ChatSettings().after(recorded_format(tmp_path / "model"))
    made = tokenizer("llama")
    line = prompts_line(Tokenization(made, [2], chat=settings).format)
    assert "counts as" in line
    assert ("raw texts" in line) == (sent == "raw")


def test_formats_differ_where_prompts_do():
    """Of the template, the system prompt and the options; an old record does not know its template."""
    used = tokens("chatml").format
    assert used.sends_as(ChatFormat("template"))
    assert not used.sends_as(ChatFormat("raw"))
    others = [tokens("llama"), tokens("chatml", system="S"), tokens("chatml", mode="off")]
    assert not any(used.sends_as(other.format) for other in others)


def test_a_mode_may_be_the_old_switch():
    """Settings of before "auto" have true and false."""
    assert (ChatSettings.of(True).mode, ChatSettings.of(False).mode) == ("on", "off")
    assert "must be 'auto', 'on' or 'off'" in refusal(lambda: ChatSettings.of("yes"))
