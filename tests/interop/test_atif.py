"""Episodes as ATIF: steps in order, calls with their replies, tokens where they are known."""

import pytest

import rlvr
from rlvr.errors import DataError
from rlvr.interop import to_atif
from rlvr.types import Rollout, Score, Verdict
from rlvr.types import Turn as PolicyTokens

EPISODE = {
    "turns": [
        {
            "text": "I add.",
            "calls": [
                {
                    "name": "add",
                    "arguments": {"x": 1},
                    "reply": "2",
                    "error": False,
                    "id": "c1",
                    "seconds": 0.1,
                }
            ],
            "user": None,
        },
        {"text": "Is it 2?", "calls": [], "user": "Yes."},
        {"text": "2", "calls": [], "user": None},
    ],
    "end": "answer",
    "final": {"n": 1},
}
RECORD = {
    "task": "t/0",
    "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}],
    "completion": "2",
    "episode": EPISODE,
    "total": 1.0,
    "outcome": "correct",
    "why": "same",
}


def test_a_recorded_episode():
    """A user's words between two turns are a step of their own; steps are numbered from 1."""
    made = to_atif(RECORD, model="m", tools=[{"type": "function"}])
    assert (made["schema_version"], made["session_id"]) == ("ATIF-v1.7", "t/0")
    steps = made["steps"]
    assert [step["source"] for step in steps] == [
        "system",
        "user",
        "agent",
        "agent",
        "user",
        "agent",
    ]
    assert [step["step_id"] for step in steps] == [1, 2, 3, 4, 5, 6]
    assert steps[2]["tool_calls"][0]["function_name"] == "add"
    assert steps[2]["observation"] == {"results": [{"source_call_id": "c1", "content": "2"}]}
    assert made["extra"]["reward"] == 1.0
    assert made["agent"]["tool_definitions"] == [{"type": "function"}]


def test_a_single_reply_and_what_was_unscored():
    made = to_atif(
        {**RECORD, "episode": None, "prompt": "1 + 1?", "total": None, "outcome": "unscored"}
    )
    assert [step["message"] for step in made["steps"]] == ["1 + 1?", "2"]
    assert (made["extra"]["reward"], made["extra"]["outcome"]) == (None, "unscored")


def test_a_rollout_has_the_tokens_of_its_turns():
    """Of five tokens, two are the first turn's, one is a reply, two are the last turn's."""
    turns = (PolicyTokens(0, 2), PolicyTokens(3, 5))
    episode = rlvr.EpisodeRecord.from_dict(
        {**EPISODE, "turns": [EPISODE["turns"][0], EPISODE["turns"][2]]}
    )
    score = Score(1.0, {"correct": 1.0}, Verdict("correct", why="same"))
    made = to_atif(
        Rollout(
            rlvr.Task("t/0", "1 + 1?"),
            "2",
            [9],
            [1, 2, 3, 4, 5],
            [True, True, False, True, True],
            [-0.1, -0.2, 0.0, -0.3, -0.4],
            0,
            score=score,
            turns=turns,
            episode=episode,
        )
    )
    metrics = [step["metrics"] for step in made["steps"] if step["source"] == "agent"]
    assert [one["completion_token_ids"] for one in metrics] == [[1, 2], [4, 5]]
    assert metrics[1]["logprobs"] == [-0.3, -0.4]


def test_what_is_no_episode_is_refused():
    with pytest.raises(DataError, match="neither a rollout nor a record"):
        to_atif({"completion": "2"})


def test_harbor_reads_it():
    trajectories = pytest.importorskip("harbor.models.trajectories.trajectory")
    trajectories.Trajectory.model_validate(to_atif(RECORD, model="m"))
