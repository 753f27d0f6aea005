"""A taskset of verifiers, as prime-rl asks it; the scores come from services."""

import asyncio

import pytest

pytest.importorskip("verifiers.v1", reason="verifiers is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # theirs

import verifiers.v1 as vf  # noqa: E402
from verifiers.v1.errors import TaskError  # noqa: E402
from verifiers.v1.types import AssistantMessage, UserMessage  # noqa: E402

from rlvr.interop import to_verifiers  # noqa: E402
from tests.peers.digits import UNSCORED, completion_of  # noqa: E402


def trace_of(one, text):
    trace = vf.Trace(
        task=vf.TraceTask(type=type(one).__name__, data=one.data, key=one.key, hash=one.hash),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        is_completed=True,
        ok=True,
    )
    said = UserMessage(content=one.data.prompt_text), AssistantMessage(content=text)
    trace.nodes += [
        vf.MessageNode(parent=place - 1 if place else None, message=message, sampled=place == 1)
        for place, message in enumerate(said)
    ]
    return trace


def test_the_rewards_of_traces_are_those_of_the_command(service, env, totals):
    """The service is killed midway; what we fail at is an error of the task, whose reward stays None."""

    async def scored(tasks):
        rewards = {}
        for one in tasks:
            index = one.data.idx
            if index == 250:
                await asyncio.to_thread(service.replace)
            trace = trace_of(one, completion_of(index))
            if index in UNSCORED:
                with pytest.raises(TaskError, match="the verifier failed"):
                    await one.score(trace)
            else:
                await one.score(trace)
            found = trace.rewards["total"]
            rewards[index] = None if found is None else found.value
        return rewards

    assert asyncio.run(scored(to_verifiers(env, scorer=service.url))) == totals
    assert service.kills == 1
