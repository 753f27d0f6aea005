"""A run and its folders know how prompts were sent, and what comes after sends them so too."""

import json

import pytest

import rlvr
from rlvr.data.rollouts import read_rollouts
from rlvr.samplers.chat import ChatFormat, recorded_format
from rlvr.train.alarm import Alarms
from rlvr.train.policy import Policy
from rlvr.train.setup import say_prompts
from rlvr.train.tiny import tiny
from tests.commands import refusal_of
from tests.rewards.parts import refusal
from tests.train.bandit import CHARSET, run_to_end, trainer

ENV = "tests.train.bandit:Bandit"
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% if think %}{{ think }}{% endif %}{% endif %}"
)


def with_template(**options) -> Policy:
    return Policy(*made(), **options)


def made():
    letters = "".join(sorted({*CHARSET, *"[]assistantusersystemthik<>/"}))
    model, tokenizer = tiny(letters, hidden=16, heads=2, layers=1)
    tokenizer.chat_template = TEMPLATE
    return model, tokenizer


@pytest.fixture
def model(tmp_path):
    """A folder with a tiny instruct model, as it comes from elsewhere."""
    policy = with_template()
    policy.save(tmp_path / "model")
    (tmp_path / "model" / "rlvr_chat.json").unlink()
    return tmp_path / "model"


@pytest.fixture
def train(say, tmp_path, model):
    """One step of training with further flags; gives the code and what was said."""

    def run(*flags: object) -> tuple[int, str]:
        return say("train", "--env", ENV, "--model", model, "--run", tmp_path / "run", "--prompts", 2,
                   "--group-size", 2, "--max-tokens", 2, "--workers", 0, "--eval-tasks", 2, "--algorithm", "grpo",
                   "--steps", 1, "--rollouts-every", 1, *flags)  # fmt: skip

    return run


def evaluated(say, model, *flags):
    code, said = say(
        "eval", ENV, "--model", model, "--limit", 2, "--max-tokens", 2, "--workers", 0, *flags
    )
    assert code == 0, said
    return say.err


@pytest.mark.filterwarnings("always:prompts go as:RuntimeWarning")
def test_a_run_its_model_and_its_evaluation_send_prompts_alike(train, say, tmp_path):
    """A model trained with the template scored 0.083 by default flags and 0.896 with --chat, and nothing warned."""
    code, said = train("--template-option", "think=a", "--system", "is")
    assert code == 0, said
    assert any(line.startswith("prompts: the chat template ") for line in say.err.splitlines())
    assert "0 of 40" not in say.err
    used = recorded_format(tmp_path / "run")
    assert (used.sent, used.system, used.options, used.beginning) == (
        "template",
        "is",
        {"think": "a"},
        "a",
    )
    assert recorded_format(tmp_path / "run" / "model") == used
    [file] = (tmp_path / "run" / "rollouts").iterdir()
    rows = read_rollouts(file, range(4))
    assert rows
    assert all(row["completion"].startswith("a") for row in rows)  # as the template begins replies
    said = evaluated(say, tmp_path / "run" / "model")
    assert "think=" in said
    assert "as recorded in" in said
    assert "warning" not in said
    for flag, told in (("--no-chat", "raw texts"), ("--template-option=think=b", 'think="b"')):
        said = evaluated(say, tmp_path / "run" / "model", flag)
        [warning] = [line for line in said.splitlines() if line.startswith("warning")]
        assert told in warning
        assert 'think="a"' in warning


def test_a_run_goes_on_as_it_began(train, say, tmp_path):
    """Without flags as before; with another value it would be another run."""
    assert train("--chat")[0] == 0
    for flags in ((), ("--chat", "on"), ("--chat", "auto")):
        assert train(*flags)[0] == 0
        assert "continuing after step 1" in say.err
    for flags in (("--chat", "off"), ("--system", "is")):
        assert "holds a run whose prompts go as the chat template" in refusal_of(*train(*flags))


def test_a_run_of_before_goes_on_raw_and_says_so(train, say, tmp_path):
    """Its settings have no "auto", and its policy learned from raw texts."""
    assert train("--chat", "off")[0] == 0
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    config["settings"]["chat"] = False
    del config["settings"]["system"], config["settings"]["template_options"]
    path.write_text(json.dumps(config))
    for folder in (tmp_path / "run", tmp_path / "run" / "model"):
        (folder / "rlvr_chat.json").unlink()
    assert "counts as raw" in evaluated(say, tmp_path / "run" / "model")
    code, said = train()
    assert code == 0, said
    assert any(line.startswith("prompts: raw texts; as in ") for line in say.err.splitlines())
    assert "counts as raw" in say.err
    assert train("--chat")[0] == 2


def test_prompts_that_have_the_template_are_counted(tmp_path):
    """They go as they are, and the first line says how many."""

    class Mixed(rlvr.Environment):
        size = 3

        def task(self, index):
            return rlvr.Task(
                f"t/{index}", "[user]1<eos>[assistant]" if index else "1", reference=""
            )

        def verify(self, task, completion):
            return rlvr.Verdict("wrong", why="")

    lines = []
    say_prompts(with_template(), Mixed(), lines.append)
    assert "2 of 3 begin with the template's own tokens and go as they are" in lines[0]


def test_a_template_of_another_tokenizer_cannot_continue_a_run(tmp_path):
    """A policy that is given brings its own template, which the run's folder remembers."""
    run_to_end(tmp_path / "run", made=with_template(), steps=1)
    other = made()
    other[1].chat_template = TEMPLATE.replace("[", "<")
    assert "here they would go as" in refusal(
        lambda: trainer(tmp_path / "run", made=Policy(*other), steps=1)
    )


def test_a_first_step_that_never_ends_says_what_would_end_it():
    """After three hours of three steps each it is late to hear that the end token is another one."""
    alarms = Alarms(3, ChatFormat("template", template="abc", end_tokens=("<eos>",)))
    [line] = alarms.check({"truncated": 1.0, "updates": 1.0})
    assert "no completion ended by itself" in line
    assert "'<eos>'" in line
    assert alarms.check({"truncated": 1.0, "updates": 1.0}) == []
    assert len(alarms.check({"truncated": 1.0, "updates": 1.0})) == 1
    assert Alarms(3).check({"truncated": 0.9, "updates": 1.0}) == []
