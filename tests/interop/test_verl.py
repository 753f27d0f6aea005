"""verl's and OpenRLHF's side of the adapters: their calling conventions, and what our failures become there."""

import asyncio
import json
import pickle
import random
import sys
import time
from types import SimpleNamespace

import pytest

import rlvr
from rlvr.data.formats import read_rows
from rlvr.errors import UsageError
from rlvr.interop import to_gymnasium, to_openrlhf, to_trl, to_verl
from rlvr.interop.adapter import TASK, Adapter, task_as_json
from rlvr.interop.openrlhf import completion_in_query, remote_reply
from rlvr.interop.verl import VerlStopped
from tests.environments import Desk, Digits, Measured, Siblings, Trials
from tests.scoring.test_services import service_of


@pytest.fixture(scope="module")
def both():
    """Two environments behind one `compute_score`."""
    with to_verl(Trials(), Digits(), workers=1, unscored=-1.0) as reward:
        yield reward


def sent(env: rlvr.Environment, index: int) -> dict:
    return {"extra_info": {TASK: task_as_json(env.task(index))}, "ground_truth": None}


def test_every_reply_has_the_same_keys(both):
    """verl makes an array of each key of the first reply; a key that is missing later crashes it, or loses data."""
    replies = [
        both(data_source="Trials", solution_str="3", **sent(Trials(), 3)),
        both(data_source="Digits", solution_str="four", **sent(Digits(), 3)),
        both(
            data_source="Digits",
            solution_str="@raise",
            **sent(Digits(), 3),
            reward_router_address="…",
        ),
    ]
    assert len({tuple(reply) for reply in replies}) == 1
    assert [reply["score"] for reply in replies] == [1.0, 0.0, -1.0]
    assert [reply["acc"] for reply in replies] == [1.0, 0.0, 0.0]
    assert [reply["unscored"] for reply in replies] == [0.0, 0.0, 1.0]
    assert all(type(value) in (float, str) for reply in replies for value in reply.values())
    assert "reward" not in replies[0]  # verl keeps its own under that key


def test_our_failure_stops_verl_unless_told_otherwise():
    """It cannot mask a completion; a reward of 0 that the user did not choose would be false."""
    with (
        to_verl(Trials(), workers=1) as reward,
        pytest.raises(rlvr.Unscored, match=r"as asked.*unscored=0.0"),
    ):
        reward("Trials", "@raise", None, sent(Trials(), 0)["extra_info"])
    for bad in (float("nan"), "0"):
        with pytest.raises(rlvr.UsageError, match="finite"):
            to_verl(Trials(), unscored=bad)


def test_the_manager_limited_makes_no_reward_of_our_failure(monkeypatch):
    """It catches every Exception and gives 0; so where one was made the error is none.  Its code is verl 0.9.1's."""

    class RateLimitedRewardManager:
        _class_initialized = True

        async def run_single(self, compute_score, extra):
            try:
                return await compute_score("Trials", "@raise", None, extra)
            except Exception:  # noqa: BLE001  as verl's does
                return {"reward_score": 0.0}

    name = "verl.experimental.reward_loop.reward_manager.limited"
    extra = sent(Trials(), 0)["extra_info"]
    with to_verl(Trials(), workers=1) as reward:
        assert (
            asyncio.run(RateLimitedRewardManager().run_single(reward.acompute_score, extra))[
                "reward_score"
            ]
            == 0
        )
        monkeypatch.setitem(
            sys.modules, name, SimpleNamespace(RateLimitedRewardManager=RateLimitedRewardManager)
        )
        with pytest.raises(VerlStopped, match=r"as asked.*unscored=0.0"):
            asyncio.run(RateLimitedRewardManager().run_single(reward.acompute_score, extra))
        with pytest.raises(VerlStopped, match="as asked"):
            reward("Trials", "@raise", None, extra)


@pytest.mark.filterwarnings("ignore")  # verl's own, and of the libraries below it
def test_the_real_manager_limited_neither(monkeypatch):
    """The same with the class of an installed verl."""
    pytest.importorskip("verl", reason="verl is not installed")
    import numpy as np
    import torch
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager.limited import RateLimitedRewardManager

    item = {
        "data_source": "Trials",
        "reward_model": {"ground_truth": None},
        "extra_info": sent(Trials(), 0)["extra_info"],
    }
    data = DataProto(
        TensorDict(
            {"responses": torch.ones(1, 2), "attention_mask": torch.ones(1, 2, dtype=torch.long)}, 1
        ),
        {name: np.array([value], dtype=object) for name, value in item.items()},
    )
    tokenizer = SimpleNamespace(decode=lambda ids, **_: "@raise")

    async def run(reward):
        manager = RateLimitedRewardManager(OmegaConf.create({"reward": {}}), tokenizer, reward)
        return await manager.run_single(data)

    with to_verl(Trials(), workers=1) as reward, pytest.raises(VerlStopped, match="as asked"):
        asyncio.run(run(reward))
    monkeypatch.setattr(RateLimitedRewardManager, "_class_initialized", False)


def test_the_parquet_file_comes_back_as_the_same_task(both, tmp_path):
    """What verl reads from its columns has to lead to the verdict that Python gives; prompts are chat messages."""
    path = both.to_parquet(tmp_path / "train.parquet", tasks=2)
    rows = [line.row for line in read_rows(path)]
    assert [row["data_source"] for row in rows] == ["Trials", "Trials", "Digits", "Digits"]
    assert rows[1]["prompt"] == [{"role": "user", "content": "Say 1."}]
    assert rows[1]["reward_model"] == {"style": "rule", "ground_truth": "1"}
    replies = both.batch(
        [row["data_source"] for row in rows],
        ["0", "1", "0", "9"],
        [row["reward_model"]["ground_truth"] for row in rows],
        [row["extra_info"] for row in rows],
    )
    assert [reply["score"] for reply in replies] == [1.0, 1.0, 1.5, 0.5]


def test_a_reference_of_the_users_own_is_enough():
    """Data sets made for verl carry `ground_truth` alone, under any name."""
    with to_verl(rlvr.make("gsm8k-v4"), workers=1) as reward:
        assert reward("openai/gsm8k", "\\boxed{72}", "72", {"index": 3})["score"] == 1.0
        assert reward("openai/gsm8k", "\\boxed{72}", "#### 72")["score"] == 1.0
        with pytest.raises(rlvr.DataError, match="reference"):
            reward("openai/gsm8k", "\\boxed{72}", "many")


def test_what_cannot_be_told_is_refused():
    """Wrong wiring shows at once, with the fix, and never as a strange reward."""
    with (
        to_verl(Trials(), Digits(), workers=1) as reward,
        pytest.raises(rlvr.UsageError, match=r"'gsm8k'.*Trials, Digits"),
    ):
        reward("gsm8k", "0", "0")
    with pytest.raises(rlvr.UsageError, match="share an id"):
        to_verl(Trials(), Trials())
    with (
        to_verl(Measured(), workers=1) as reward,
        pytest.raises(rlvr.UsageError, match="count_tokens"),
    ):
        reward("Measured", "0", None, sent(Measured(), 0)["extra_info"])
    with pytest.raises(rlvr.UsageError, match="one completion at a time"):
        to_openrlhf(Siblings())
    with pytest.raises(rlvr.UsageError, match="group_size is -1"):
        to_verl(Siblings(), group_size=-1)
    with to_verl(Trials(), workers=0) as reward:
        for sources, references in ((["x"], ["1", "2"]), (["x", "y"], ["1"])):
            with pytest.raises(rlvr.DataError, match=r"1 .* for 2 solution_strs"):
                reward.batch(sources, ["1", "2"], references, [None, None])


def test_lengths_are_counted_by_the_caller_where_the_trainer_gives_text_alone():
    """7 words of at most 10, the last 5 of which are charged for: 2/5 of a point."""
    with to_verl(Measured(), workers=1, count_tokens=lambda text: len(text.split())) as reward:
        reply = reward("Measured", "7" + " ." * 6, "7", sent(Measured(), 7)["extra_info"])
        assert reply["part/overlong"] == pytest.approx(-0.4)


def test_a_batch_with_interleaved_references_keeps_to_them():
    """A `ground_truth` alone tells a task, since nothing else of the row reaches us."""
    with to_verl(Siblings(), group_size=2, workers=1, count_tokens=len) as reward:
        replies = reward.batch(["x"] * 4, ["1", "2", "1", "3"], ["1", "2", "1", "2"], [None] * 4)
    assert [reply["acc"] for reply in replies] == [1.0, 1.0, 1.0, 0.0]


def test_a_pickled_compute_score_scores_alike(both):
    """verl's manager `remote` hands the function to an actor."""
    with pickle.loads(pickle.dumps(both)) as copy:
        assert copy("Digits", "3", **sent(Digits(), 3)) == both("Digits", "3", **sent(Digits(), 3))
    counting = to_verl(Measured(), workers=0, count_tokens=lambda text: 10 * len(text))
    with pickle.loads(pickle.dumps(counting)) as copy:
        assert copy("Measured", "7", "7")["part/overlong"] == -1.0


@pytest.mark.parametrize("name", ["reference", "meta"])
def test_what_would_come_back_from_json_as_another_is_refused(name: str):
    """A tuple comes back as a list and the key 3 as "3": the verdict there would be another than here."""
    assert (
        json.loads(task_as_json(rlvr.Task("a", ({"role": "user", "content": "?"},))))["prompt"][0][
            "content"
        ]
        == "?"
    )
    for value in ({"k": (1, 2)}, {3: 4}, {"k": float("nan")}, {"k": {1, 2}}):
        with pytest.raises(rlvr.DataError, match=r"task 'a'.*JSON"):
            task_as_json(rlvr.Task("a", "?", **{name: value}))


# ----------------------------------------------------------------------------------------- OpenRLHF


@pytest.fixture(scope="module")
def shaped():
    """`Digits` for OpenRLHF."""
    with to_openrlhf(Digits(), workers=1, unscored=-1.0) as reward:
        yield reward


def test_openrlhf_gets_tensors_of_one_value_each(shaped):
    """`rewards` moves the policy, `scores` filters groups, `extra_logs` is for people; each of shape [queries]."""
    env = Digits()
    labels = [row["label"] for row in shaped.rows(tasks=3)]
    prompts = [f"<|user|>{env.task(i).prompt}<|assistant|>" for i in range(3)]
    queries = [
        f"<s>{prompt}{said}<|im_end|>"
        for prompt, said in zip(prompts, ["0", "one", "@raise"], strict=True)
    ]
    reply = shaped(queries, prompts, labels)
    assert reply["rewards"].tolist() == [1.5, 0.0, -1.0]
    assert reply["scores"].tolist() == [1.0, 0.0, 0.0]
    assert reply["extra_logs"]["part/format"].tolist() == [0.5, 0.0, 0.0]
    assert reply["extra_logs"]["unscored"].tolist() == [0.0, 0.0, 1.0]
    assert shaped(queries[:1], prompts[:1], ["0"])["rewards"].tolist() == [
        1.5
    ]  # a label of the user's own
    assert {str(reply[name].dtype) for name in ("rewards", "scores")} == {"torch.float64"}


def test_a_remote_reply_is_json(shaped):
    """What the HTTP service sends is what the function gives, as lists."""
    request = {"query": ["Say 1.1"], "prompts": ["Say 1."], "labels": ["1"]}
    reply = json.loads(json.dumps(remote_reply(shaped.scorer, request)))
    assert (reply["rewards"], reply["scores"], reply["extra_logs"]["correct"]) == (
        [1.5],
        [1.0],
        [1.0],
    )
    assert (
        remote_reply(shaped.scorer, {"queries": [], "prompts": [], "labels": []})["rewards"] == []
    )
    assert remote_reply(shaped.scorer, {**request, "query": ["Say 1.1</s>"]})["rewards"] == [1.5]


def test_a_remote_reply_refuses_what_the_function_refuses():
    """It is the same promise, by another door."""
    request = {"query": ["Say 1.@raise"], "prompts": ["Say 1."], "labels": ["1"]}
    with (
        rlvr.Scorer(Siblings(), workers=0) as scorer,
        pytest.raises(rlvr.UsageError, match="one completion at a time"),
    ):
        remote_reply(scorer, request)
    with rlvr.Scorer(Trials(), workers=0) as scorer:
        with pytest.raises(rlvr.UsageError, match="finite"):
            remote_reply(scorer, request, unscored=float("nan"))
        with pytest.raises(rlvr.DataError, match="must map"):
            remote_reply(scorer, [request])


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({}, "'query'"),
        ({"query": "Say 1.1", "prompts": ["Say 1."], "labels": ["1"]}, "'query'"),
        ({"query": ["Say 1.1"], "prompts": [], "labels": ["1"]}, "as many of each"),
        ({"query": ["Say 1.1"], "prompts": [["Say"]], "labels": ["1"]}, "must be texts"),
        ({"query": ["Say 1.1"], "prompts": ["Say 1."], "labels": [None]}, "label_key"),
        ({"query": ["1."], "prompts": ["Say 1."], "labels": ["1"]}, "prompt_max_len"),
    ],
    ids=["empty", "a-text", "unequal", "messages", "no-label", "cut-short"],
)
def test_a_request_that_is_none_says_so(shaped, request_: dict, says: str):
    """A server has to answer something that can be acted on."""
    with pytest.raises(rlvr.DataError, match=says):
        remote_reply(shaped.scorer, request_)


def test_the_prompt_is_cut_off_whole():
    """What is left of it would count as the model's own words, the boxes of few-shot examples first of all."""
    prompt = "Q: 1 + 1?  A: \\boxed{2}\nQ: 2 + 2?\nA:"
    assert (
        completion_in_query(f"<pad><pad><s>{prompt} \\boxed{{4}}</s><pad>", prompt) == " \\boxed{4}"
    )
    assert completion_in_query(prompt + prompt, prompt) == prompt  # who repeats it has said it
    assert (
        completion_in_query("<s> Q: 1 + 1? A: \\boxed{2} Q: 2 + 2? A: 4", prompt) == " 4"
    )  # the tokenizer eats white space
    assert completion_in_query(prompt, prompt) == ""
    assert completion_in_query("anything", "") == "anything"
    for query in (
        prompt[5:] + " 4",
        f"{prompt[5:]} wrong. {prompt} 4",
        f"{prompt[5:]}\n {prompt.replace(' ', '  ')} 4",
    ):
        with pytest.raises(
            rlvr.DataError, match="does not hold its prompt"
        ):  # it was cut short, and the model repeats it
            completion_in_query(query, prompt)


def test_the_services_groups_are_told_by_their_label_too():
    """One prompt with two references is two tasks, whose completions must not be compared."""
    from rlvr.http.serve.openrlhf import items_of

    class Voting(Trials):
        reward = rlvr.Correct() + rlvr.Majority()

    asked = {"query": ["Q1", "Q2", "Q3"], "prompts": ["Q"] * 3, "labels": ["1", "2", "1"]}
    one, two, three = (item.task.id for item in items_of(Voting(), asked))
    assert one == three != two


def test_a_hundred_thousand_end_tokens_are_no_load():
    """A model that found out how to make us copy its text once for each of them would stop the run."""
    start = time.process_time()
    assert completion_in_query("p7" + "<pad>\n" * 100_000, "p") == "7"
    assert time.process_time() - start < 2


def test_any_completion_survives_the_cut():
    """Whatever the model says between prompt and end token is what is scored, to the letter."""
    rng = random.Random(0)
    for _ in range(200):
        prompt = "".join(rng.choices("ab \n<>|", k=rng.randrange(1, 12)))
        said = "".join(rng.choices("ab \n<>|", k=rng.randrange(12)))
        assert completion_in_query(f"{prompt}{said}<|im_end|>", prompt) == said


@pytest.mark.parametrize("adapted", [to_trl, to_verl, to_openrlhf, to_gymnasium])
def test_services_score_instead_of_workers_here(adapted):
    """Every adapter takes `scorer=`, as the command does; a copy in another process asks the same services."""
    env = Trials()
    with service_of(env) as url, adapted(env, scorer=url) as made:
        parts = [made, getattr(made, "_judge", None), *getattr(made, "_adapters", {}).values()]
        [adapter] = [one for one in parts if isinstance(one, Adapter)]
        again = pickle.loads(pickle.dumps(adapter))
        for one in (adapter, again):
            assert one.scorer.score(env.task(3), "3").total == 1.0
            assert one.scorer.workers == 1  # of the service
            assert one.scorer.processes == (0, 0)  # here
        again.close()


def test_several_turns_have_no_scorer_elsewhere():
    """A service scores completions alone."""
    with pytest.raises(UsageError, match="several turns"):
        to_gymnasium(Desk(), scorer="http://127.0.0.1:9")
