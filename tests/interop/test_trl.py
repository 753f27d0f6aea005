"""TRL's side of the adapters: what a trainer gets from an environment, and what we get from a reward function."""

import pickle
import subprocess
import sys
from types import SimpleNamespace

import pytest

import rlvr
from rlvr.interop import from_trl, to_trl
from rlvr.interop.adapter import TASK
from tests.environments import Measured, Siblings, Trials

QUESTION = {"question": ["What is 1200 + 34?"], "answer": ["#### 1,234"]}


@pytest.fixture(scope="module")
def reward():
    """`Trials` for TRL, three tasks, one worker."""
    with to_trl(Trials(), tasks=3, workers=1) as reward:
        yield reward


def asked(reward, texts: list[str], **more) -> list[float | None]:
    """One completion for each of the data set's first tasks."""
    dataset = reward.dataset
    columns = {TASK: dataset[TASK][: len(texts)]}
    return reward(prompts=dataset["prompt"][: len(texts)], completions=texts, **columns, **more)


def test_the_trainers_columns_lead_back_to_the_task(reward):
    """The data set carries each task whole, so that the process that scores needs no environment's data."""
    assert reward.dataset.column_names == ["prompt", TASK]
    assert asked(reward, ["0", "1", "0"]) == [1.0, 1.0, 0.0]
    assert reward.reward_funcs == [reward]
    assert reward.__name__ == Trials.id


def test_our_failure_is_none_and_harms_no_sibling(reward):
    """None is TRL's word for "leave it out"; 0 would teach the policy that it was wrong."""
    assert asked(reward, ["0", "@kill", "2"]) == [1.0, None, 1.0]


def test_a_reply_that_the_template_begins_is_rewarded_whole():
    """TRL counts a prefilled `<think>` to the prompt; a reward for the format would pay every completion 0."""

    class Thinks(rlvr.Environment):
        id = "thinks-v1"
        reward = rlvr.Format("<think>...</think> <answer>...</answer>")

        def task(self, index):
            return rlvr.Task(str(index), "?", reference="x")

        def verify(self, task, completion):
            return rlvr.Verdict("correct")

    said = ["Two.</think> <answer>2</answer>"]
    for beginning, total in (("", 0.0), ("<think>\n", 1.0)):
        with to_trl(Thinks(), tasks=1, workers=0, beginning=beginning) as made:
            assert asked(made, said) == [total]
    with pytest.raises(rlvr.UsageError, match="beginning is int 1; give the text"):
        to_trl(Thinks(), beginning=1)


def test_a_trl_that_counts_none_as_zero_is_not_told_none(reward, monkeypatch):
    """Before 1.6 TRL sums None as 0: our failure would be the policy's."""
    from rlvr.interop import trl

    monkeypatch.setattr(trl, "version", lambda _: "1.5.2")
    assert asked(reward, ["0", "1"]) == [1.0, 1.0]
    with pytest.raises(rlvr.Unscored, match=r"TRL 1.5.2 counts that as 0.*trl>=1.6.*unscored=0.0"):
        asked(reward, ["0", "@raise"])
    with to_trl(Trials(), tasks=1, workers=0, unscored=-1.0) as told:
        assert asked(told, ["@raise"]) == [-1.0]


def test_messages_are_read_to_the_assistants_last_words(reward):
    """TRL hands conversational completions out as messages, with tool calls in between and blocks as content."""
    said = [
        [{"role": "assistant", "content": "0"}],
        [
            {"role": "assistant", "content": "wait", "tool_calls": []},
            {"role": "tool", "content": "9"},
            {"role": "assistant", "content": "1"},
        ],
        [{"role": "assistant", "content": [{"type": "text", "text": "2"}]}],
    ]
    assert asked(reward, said) == [1.0, 1.0, 1.0]
    assert asked(reward, [[{"role": "assistant", "content": None}]]) == [0.0]


def test_parts_and_outcomes_are_logged(reward):
    """The trainer knows one number per function; what it is made of goes through its two hooks."""
    table, metrics = {}, {}
    hooks = {"log_extra": table.__setitem__, "log_metric": metrics.__setitem__}
    asked(reward, ["0", "7", "@kill"], **hooks, trainer_state=SimpleNamespace(global_step=1))
    assert metrics[f"{Trials.id}/outcomes/correct"] == pytest.approx(1 / 3)
    assert metrics[f"{Trials.id}/outcomes/unscored"] == pytest.approx(1 / 3)
    assert metrics[f"{Trials.id}/parts/correct"] == 0.5  # of the two that were scored
    assert table["outcome"] == ["correct", "wrong", "unscored"]
    assert table["answer"] == ["0", "7", ""]
    assert len(table["why"]) == 3


def test_a_data_set_of_the_users_own_is_read_by_the_environment():
    """A data set needs no rewriting: `task_from` knows its columns, and `reference` is a column that any may have."""
    with to_trl(rlvr.make("gsm8k-v4"), workers=1) as reward:
        completions = ["\\boxed{1234}"]
        assert reward(prompts=["…"], completions=completions, **QUESTION) == [1.0]
        assert reward(prompts=["…"], completions=completions, reference=["99"]) == [0.0]
        with pytest.raises(rlvr.DataError, match="solution"):
            reward(prompts=["…"], completions=completions, solution=["1234"])


def test_lengths_come_from_the_token_ids():
    """The trainer knows them; nothing is tokenised a second time.  12 tokens of at most 10 cost a whole point."""
    with to_trl(Measured(), tasks=2, workers=1) as reward:
        assert asked(reward, ["0", "1"], completion_ids=[[5] * 12, [5] * 5]) == [0.0, 1.0]
        with pytest.raises(rlvr.UsageError, match="length"):
            asked(reward, ["0"])


def test_columns_are_lists_arrays_or_data_set_columns_of_one_length(reward):
    """A column that is dropped in silence makes another task of the row."""
    import numpy as np

    dataset = reward.dataset
    assert (
        reward(prompts=dataset["prompt"], completions=["0", "1", "2"], rlvr_task=dataset[TASK])
        == [1.0] * 3
    )
    assert reward(prompts=["?"] * 2, completions=["3", "4"], reference=np.array([3, 5])) == [
        1.0,
        0.0,
    ]
    for bad, says in (
        ({"reference": [3]}, "'reference' has 1 entries for 2"),
        ({"prompts": ["?"], "reference": [3, 3]}, "'prompts' has 1 entries"),
        ({"completion_ids": [[1]], "reference": [3, 3]}, "'completion_ids' has 1"),
    ):
        with pytest.raises(rlvr.DataError, match=says):
            reward(**{"prompts": ["?"] * 2, "completions": ["3", "4"], **bad})


def test_a_reward_that_compares_needs_whole_groups():
    """Half a group compared with itself is another reward, and no error would say so."""
    task = to_trl(Siblings(), tasks=1, workers=0, group_size=2).dataset[TASK][0]
    call = {"prompts": [""] * 4, "completions": ["0"] * 4, TASK: [task] * 4}
    ids = [[1], [1] * 3, [1] * 9, [1] * 9]
    with to_trl(
        Siblings(), group_size=2, workers=1
    ) as reward:  # one task drawn twice: two groups of two
        assert reward(**call, completion_ids=ids) == [1.5, 0.5, 1.0, 1.0]
    with (
        to_trl(Siblings(), group_size=3, workers=1) as reward,
        pytest.raises(rlvr.UsageError, match="whole groups"),
    ):
        reward(**call, completion_ids=ids)
    with (
        to_trl(Siblings(), workers=1) as reward,
        pytest.raises(rlvr.UsageError, match="group_size"),
    ):
        reward(**call, completion_ids=ids)
    with pytest.raises(rlvr.UsageError, match="group_size is 0"):
        to_trl(Siblings(), group_size=0)


def test_groups_are_told_by_their_reference_too():
    """Rows of a user's own share an id, and questions about images a prompt: siblings are of one reference."""
    with to_trl(Siblings(), group_size=2, workers=1) as reward:
        totals = reward(
            prompts=["What is in the picture?"] * 4,
            completions=["1", "2", "1", "1"],
            completion_ids=[[1], [1], [1] * 3, [1]],
            reference=["1", "2", "1", "2"],
        )
    assert totals == [1.5, 1.0, 0.5, 0.0]  # the second task's two are equally long


def test_a_copy_in_another_process_scores_alike(reward, tmp_path):
    """TRL's asynchronous trainer spawns, data loaders fork; a class from a script must come along, workers must not."""
    script = """
import multiprocessing, rlvr
from rlvr.interop import to_trl

class Here(rlvr.Environment):
    def task(self, index): return rlvr.Task(f"here/{index}", "?", reference=index)
    def verify(self, task, completion):
        right = completion == str(task.reference)
        return rlvr.Verdict(rlvr.Outcome.CORRECT if right else rlvr.Outcome.WRONG, why="compared")

def score(reward):
    print(reward(prompts=["?"] * 2, completions=["3", "4"], reference=[3, 3]), flush=True)

if __name__ == "__main__":
    reward = to_trl(Here(), workers=1)
    score(reward)
    for method in ("spawn", "fork"):
        process = multiprocessing.get_context(method).Process(target=score, args=(reward,))
        process.start()
        process.join()
"""
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run(
        [sys.executable, tmp_path / "train.py"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == ["[1.0, 0.0]"] * 3, done.stderr
    with pickle.loads(pickle.dumps(reward)) as copy:
        assert copy(prompts=["?"], completions=["3"], reference=[3]) == [1.0]


def test_endless_tasks_need_a_number():
    """A generator never ends, and neither would the data set."""
    with pytest.raises(rlvr.UsageError, match="tasks=10_000"):
        _ = to_trl(Trials(), workers=1).dataset


def test_what_trl_calls_a_reward_becomes_a_part_and_a_verifier():
    """One object for both: the upper bound is CORRECT, and less is credit in proportion."""

    def stars(completions, solution, **kwargs):
        return [
            float(c[0]["content"].count("*")) if s == "x" else None
            for c, s in zip(completions, solution, strict=True)
        ]

    part = from_trl(stars, bounds=(0, 4))
    task = rlvr.Task("a", "?", reference="x")
    env = rlvr.Environment.from_rows([], reward=rlvr.Correct(part) + 0.5 * part)
    assert env.score(task, "****").total == 3.0
    half = env.score(task, "**")
    assert (half.total, half.verdict.outcome, half.verdict.value) == (1.5, rlvr.Outcome.WRONG, 0.5)
    with rlvr.Scorer(env, workers=0) as scorer:
        assert (
            scorer.score(rlvr.Task("b", "?", reference="y"), "*").verdict.outcome
            is rlvr.Outcome.UNSCORED
        )
        assert scorer.score(task, "*****").verdict.outcome is rlvr.Outcome.UNSCORED


@pytest.mark.parametrize(
    ("said", "reason"), [("no number", "crash"), ("nan", "odd-score"), ("inf", "odd-score")]
)
def test_a_completion_cannot_buy_itself_out(said: str, reason: str):
    """Where raising is UNSCORED, a policy learns to make the function raise whenever it does not know the answer."""

    def number(completions, **_):
        return [float(completions[0][0]["content"])]

    task = rlvr.Task("a", "?", reference="1")
    part = from_trl(number)
    verdict = part.verify(said, "1")
    assert (verdict.outcome, verdict.value, verdict.reason) == (rlvr.Outcome.WRONG, 0.0, reason)
    assert part.value(task, rlvr.Completion(said), verdict) == 0.0
    env = rlvr.Environment.from_rows([], reward=rlvr.Correct(from_trl(number, failure="unscored")))
    with rlvr.Scorer(env, workers=0) as scorer:
        assert scorer.score(task, said).verdict.outcome is rlvr.Outcome.UNSCORED


def test_no_opinion_is_unscored_without_a_traceback():
    """The function said so; nothing failed, and asking again would not help."""
    calls = []
    env = rlvr.Environment.from_rows(
        [], reward=rlvr.Correct(from_trl(lambda **_: calls.append(1) or [None], name="f"))
    )
    with rlvr.Scorer(env, workers=0) as scorer:
        verdict = scorer.score(rlvr.Task("a", "?"), "x").verdict
    assert (verdict.outcome, verdict.why, verdict.detail) == (
        rlvr.Outcome.UNSCORED,
        "no-opinion: f gave None",
        {},
    )
    assert len(calls) == 1


def test_wiring_that_cannot_work_is_nobodys_wrong_answer():
    """A missing column would make every completion WRONG."""

    def needs(completions, level, **_):
        return [1.0]

    with pytest.raises(rlvr.UsageError, match="'level'"):
        from_trl(needs).verify("x", "y")
    shadowing = rlvr.Task("a", "?", reference="1", meta={"prompts": 3})
    part = from_trl(lambda **_: [1.0])
    with pytest.raises(rlvr.UsageError, match="'prompts'"):
        part.value(shadowing, rlvr.Completion("x"), rlvr.Verdict("correct"))
    with pytest.raises(rlvr.RewardError, match="a list of one value"):
        from_trl(lambda **_: 1.0).verify("x", "y")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, "1", [1.0, 1.0]], ids=str)
def test_what_is_no_reward_is_refused(value):
    """NaN among rewards spoils a whole batch in silence."""
    part = from_trl(lambda **_: value if isinstance(value, list) else [value], failure="unscored")
    with pytest.raises(rlvr.RewardError):
        part.verify("?", "x")


def test_what_cannot_be_called_for_one_completion_is_refused():
    """Token ids are not kept."""
    with pytest.raises(rlvr.UsageError, match="Overlong"):
        from_trl(lambda completion_ids, **_: [1.0])
    for bounds in ((1, 0), (0, 1, 2), ("a", "b"), 1, (0, float("nan"))):
        with pytest.raises(rlvr.UsageError, match="bounds"):
            from_trl(lambda **_: [1.0], bounds=bounds)
    for other, says in (
        (max, "does not say what it takes"),
        (lambda completions: [1.0], r"\*\*kwargs"),
    ):
        with pytest.raises(rlvr.UsageError, match=says):
            from_trl(other)
    with pytest.raises(rlvr.UsageError, match="failure is 'wrnog'"):
        from_trl(lambda **_: [1.0], failure="wrnog")


class Even(rlvr.Environment):
    """Say something of even length: random weights manage that, so that there is something to learn from."""

    def task(self, index: int) -> rlvr.Task:
        return rlvr.Task(f"even/{index}", f"Speak {index}.")

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        if completion[:1] in "0123":
            raise RuntimeError("a failure of ours")
        even = len(completion) % 2 == 0
        return rlvr.Verdict(rlvr.Outcome.CORRECT if even else rlvr.Outcome.WRONG, why="counted")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # torch's and transformers' own
@pytest.mark.parametrize("conversational", [False, True])
def test_a_real_trainer_learns_from_it(tmp_path, conversational: bool):
    """`GRPOTrainer` itself, with a model of one layer: None stays out of its mean, and the parts are logged."""
    import torch
    from trl import GRPOConfig, GRPOTrainer

    from rlvr.train.tiny import tiny

    model, tokenizer = tiny("0123abcde .Spk", hidden=32, layers=1, heads=2)
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    before = model.lm_head.weight.detach().clone()
    args = GRPOConfig(
        output_dir=str(tmp_path), num_generations=16, per_device_train_batch_size=16, max_steps=2, logging_steps=1,
        max_completion_length=6, use_cpu=True, bf16=False, report_to=[], save_strategy="no", learning_rate=1e-2,
        disable_tqdm=True,
    )  # fmt: skip
    with to_trl(Even(), tasks=4, conversational=conversational, workers=1) as reward:
        given = {"reward_funcs": reward.reward_funcs, "train_dataset": reward.dataset}
        trainer = GRPOTrainer(model=model, processing_class=tokenizer, args=args, **given)
        trainer.train()
    first, second = trainer.state.log_history[:2]
    assert 0 < first["Even/outcomes/unscored"] < 1
    assert 0 < first["Even/outcomes/correct"] < 1
    for logged in (first, second):
        scored = 1 - logged["Even/outcomes/unscored"]
        assert logged["rewards/Even/mean"] == pytest.approx(
            logged["Even/outcomes/correct"] / scored, abs=1e-5
        )
        assert logged["Even/parts/correct"] == pytest.approx(logged["rewards/Even/mean"], abs=1e-5)
    assert not torch.equal(before, model.lm_head.weight)
    assert model.lm_head.weight.isfinite().all()
