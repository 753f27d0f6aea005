"""Prompts to tokens, and on from there turn by turn."""

import pytest

from rlvr.samplers.tokenization import Tokenization, end_token_ids
from rlvr.train.tiny import character_tokenizer, tiny
from tests.rewards.parts import refusal

CHARSET = "[]abceghinorstu ?!"
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
ASK = [{"role": "user", "content": "hi"}]


@pytest.fixture
def tokenizer():
    """One token per character; the end token closes every turn, as in most templates."""
    tokenizer = character_tokenizer(CHARSET)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def test_a_text_is_taken_as_it_is(tokenizer):
    """With the special token that the tokenizer puts before it, so that no prompt is empty."""
    tokenization = Tokenization(tokenizer, end_ids=[2], chat="off")
    assert tokenizer.decode(tokenization.encode("a cat")) == "<bos>a cat"
    assert tokenization.encode("") == [tokenizer.bos_token_id]


def test_messages_go_by_the_template(tokenizer):
    """It has written its special tokens itself: a second <bos> would be one that training never showed."""
    assert (
        tokenizer.decode(Tokenization(tokenizer, end_ids=[2]).encode(ASK))
        == "<bos>[user]hi<eos>[assistant]"
    )


def test_a_text_may_be_the_users_message(tokenizer):
    """What a chat model expects of tasks whose prompts are texts."""
    assert Tokenization(tokenizer, end_ids=[2], chat="on").encode("hi") == Tokenization(
        tokenizer, end_ids=[2]
    ).encode(ASK)


def test_the_next_turn_continues_the_last(tokenizer):
    """Whatever way the policy's turn ended, all tokens together are what the template writes for the whole chat."""
    tokenization = Tokenization(tokenizer, end_ids=[2])
    chat = [*ASK, {"role": "assistant", "content": "go"}, {"role": "tool", "content": "boo"}]
    whole = tokenization.encode(chat)
    prompt = tokenization.encode(ASK)
    open_turn = tokenizer("go", add_special_tokens=False).input_ids
    for turn in (open_turn, [*open_turn, 2]):  # cut off, and with its end token
        before = [*prompt, *turn]
        assert [*before, *tokenization.encode(chat[2:], after=before)] == whole


def test_a_text_in_between_is_taken_as_it_is(tokenizer):
    """A tool's output within a turn: no <bos>, no marks, with chat on neither."""
    for chat in ("off", "on"):
        assert (
            tokenizer.decode(
                Tokenization(tokenizer, end_ids=[2], chat=chat).encode("boo", after=[1, 5])
            )
            == "boo"
        )
    assert Tokenization(tokenizer, end_ids=[2]).encode("", after=[1, 5]) == []


def test_a_text_is_without_end_tokens_even_if_the_tokenizer_knows_nothing_of_them(tokenizer):
    """Generation configs name end tokens that are ordinary ones to the tokenizer, here the question mark."""
    question, a = tokenizer.convert_tokens_to_ids(["?", "a"])
    assert Tokenization(tokenizer, end_ids=[2, question]).decode([a, a, question, 2]) == "aa"
    assert Tokenization(tokenizer, end_ids=[2]).decode([1, a, question, 2]) == "a?"


def test_what_cannot_be_encoded_is_said():
    """Chats without a template, prompts without a token, templates that forget what was said."""
    bare = character_tokenizer(CHARSET)
    assert "no chat template" in refusal(lambda: Tokenization(bare, end_ids=[2]).encode(ASK))
    assert "no chat template" in refusal(lambda: Tokenization(bare, end_ids=[2], chat="on"))
    bare.backend_tokenizer.post_processor = None
    assert "has no tokens" in refusal(lambda: Tokenization(bare, end_ids=[2]).encode(""))
    bare.chat_template = "{{ messages[-1].content }}"
    assert "cannot continue a chat" in refusal(
        lambda: Tokenization(bare, end_ids=[2]).encode(ASK, after=[5])
    )


def test_end_tokens_come_from_both_sides():
    """Instruct models often name two in the generation config, and the tokenizer a third."""
    model, tokenizer = tiny(CHARSET, hidden=8, heads=1)
    assert end_token_ids(model, tokenizer) == [2]
    for said, ends in (([7, 9], [2, 7, 9]), (7, [2, 7]), (None, [2])):
        model.generation_config.eos_token_id = said
        assert end_token_ids(model, tokenizer) == ends
