"""Environments with tools in TRL and in Gymnasium: the same actions make the same calls and earn the same totals."""

from __future__ import annotations

import json

import pytest

import rlvr
from rlvr.errors import UsageError
from rlvr.interop import to_gymnasium, to_trl_environment
from tests.environments import Desk, Sums, call
from tests.interop.episodes import EPISODES, Seen, ours, seen


def in_gymnasium(calls, answer, env):
    made = to_gymnasium(env)
    made.reset(options={"index": 3})
    for name, arguments in calls:
        made.step(f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>")
    _, reward, terminated, _, info = made.step(answer)
    made.close()
    assert terminated
    return seen(info["record"]), reward, info["score"].verdict.outcome


def in_trl(calls, answer, env):
    """As `GRPOTrainer` does it: reset with a row, methods by their names, then the reward function."""
    made = to_trl_environment(env, tasks=4)
    instance, kept = made.environment_factory(), []
    assert instance.reset(**made.dataset[3]) is None
    for name, arguments in calls:
        getattr(instance, name)(**arguments)
    env.seen = kept.append
    said = [{"role": "assistant", "content": answer}]
    [total] = made.reward_funcs[0](
        completions=[said], environments=[instance], prompts=[""], trainer_state=None
    )
    [episode] = kept
    return seen(episode), total, env.score(env.task(3), env.completion_of(episode)).verdict.outcome


@pytest.mark.parametrize("number", range(len(EPISODES)))
def test_the_same_actions_make_the_same_calls_and_totals(number):
    calls, answer = EPISODES[number]
    found = [play(calls, answer, Seen()) for play in (ours, in_gymnasium, in_trl)]
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]) == len(calls)


def test_the_schema_that_trl_shows_is_ours():
    from transformers.utils import get_json_schema

    env = Desk()
    with env.open(env.task(0)) as running:
        [wanted] = running.schemas
    instance = to_trl_environment(env, tasks=1).environment_factory()
    shown = get_json_schema(instance.add)["function"]
    assert (shown["name"], shown["description"]) == ("add", wanted["function"]["description"])
    kinds = {name: one["type"] for name, one in shown["parameters"]["properties"].items()}
    assert kinds == {
        name: one["type"] for name, one in wanted["function"]["parameters"]["properties"].items()
    }
    assert shown["parameters"]["required"] == wanted["function"]["parameters"]["required"] == ["x"]


def test_our_failures_have_no_reward():
    """A tool that raises, a state that cannot be opened: None, which TRL leaves out, never 0."""

    class Broken(Desk):
        @rlvr.tool
        def add(self, state, x: int, y: int = 0) -> str:
            """Add."""
            raise RuntimeError("no disk")

    class Shut(Desk):
        def setup(self, task):
            if task.reference > 1:  # the first task is looked at for its tools
                raise RuntimeError("no machine")

    for env in (Broken(), Shut()):
        made = to_trl_environment(env, tasks=4)
        instance = made.environment_factory()
        instance.reset(**made.dataset[3])
        assert instance.add(x=1) == "error: the environment failed"
        said = [{"role": "assistant", "content": "4"}]
        assert made.reward_funcs[0](completions=[said], environments=[instance]) == [None]


def test_what_trl_cannot_run_is_refused():
    class Asks(Desk):
        def user(self, task, transcript):
            return "more?"

    class Odd(Desk):
        @rlvr.tool
        def reset(self, state, x: int) -> str:
            """Reset."""
            return ""

    for env, said in ((Sums(), "no tools"), (Asks(), "user")):
        with pytest.raises(UsageError, match=said):
            to_trl_environment(env, tasks=1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # TRL's own, and of the libraries below it
def test_the_trainer_of_trl_runs_it(tmp_path, monkeypatch):
    """Its own loop: rendering the tools, parsing the call, the reply, and the reward; tokens are scripted."""
    trl = pytest.importorskip("trl")
    from transformers import AutoModelForCausalLM, Qwen2Config

    from tests.samplers.test_tool_templates import tokenization

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    tokenizer = tokenization("qwen3").tokenizer
    model = AutoModelForCausalLM.from_config(
        Qwen2Config(vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                    num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=4096)
    )  # fmt: skip
    kept = []
    env = Seen()
    env.seen = kept.append

    class Scripted(trl.GRPOTrainer):
        def _generate_single_turn(
            self, prompt_ids, images, multimodal_fields, num_generations, has_tool_images=False
        ):
            texts = []
            for number, ids in enumerate(prompt_ids):
                told = "<tool_response>" in tokenizer.decode(ids)
                text = f"{number % 2 + 1}" if told else call("add", x=0, y=1)
                texts.append(tokenizer(f"{text}<|im_end|>")["input_ids"])
            return texts, [[-1.0] * len(ids) for ids in texts]

    made = to_trl_environment(env, tasks=1)
    trainer = Scripted(
        model=model,
        processing_class=tokenizer,
        environment_factory=made.environment_factory,
        reward_funcs=made.reward_funcs,
        train_dataset=made.dataset,
        args=trl.GRPOConfig(
            output_dir=str(tmp_path), max_steps=1, num_generations=2, per_device_train_batch_size=2, use_cpu=True,
            max_completion_length=256, max_tool_calling_iterations=3, report_to=[], bf16=False, logging_steps=1,
        ),
    )  # fmt: skip
    trainer.train()
    assert [(seen(one)[0], one.answer) for one in kept] == [
        (("add", {"x": 0, "y": 1}, "1", False), a) for a in "12"
    ]
    assert trainer.state.log_history[0]["reward"] == 0.5
