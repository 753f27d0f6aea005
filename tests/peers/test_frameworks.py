"""Programs of five frameworks, unchanged: 64 episodes at once, over three wires; a tool is called in each."""

import json
import re
from collections.abc import Callable

import pytest

import rlvr
from rlvr.agents import AgentCall, AgentEnv
from rlvr.collect import Groups, Sampling, ScriptedSampler
from rlvr.collect.flight import sample_groups
from rlvr.types import Outcome
from tests.environments import Desk

EPISODES = 64


def policy(context, number, seed):
    """Calls `add`, and then says its reply: by the framework's own tool for answers where it has one."""
    asked = re.search(r"Add (\d+) and 1\.", context)
    replies = re.findall(r"^(?:tool: .*?|user: Observation:\n)(\d+)", context, re.MULTILINE)
    if not replies:
        return call("add", x=int(asked[1]), y=1)
    if "final_answer" in context:
        return call("final_answer", answer=replies[-1])
    return (
        call("final_result", total=int(replies[-1])) if "final_result" in context else replies[-1]
    )


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def adder(agent: AgentCall) -> Callable[[int, int], str]:
    """The environment's tool as the function that each framework makes a tool of."""

    def add(x: int, y: int) -> str:
        """Add two numbers.

        Args:
            x: the first.
            y: the second.
        """
        return agent.call("add", {"x": x, "y": y})

    return add


async def langgraph(agent):
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    made = ChatOpenAI(model="m", base_url=agent.base_url, api_key=agent.api_key)
    graph = create_react_agent(made, [adder(agent)])
    found = await graph.ainvoke({"messages": [("user", agent.prompt)]})
    return found["messages"][-1].content


def _pydantic_ai(agent, **settings):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=agent.base_url, api_key=agent.api_key)
    return Agent(OpenAIChatModel("m", provider=provider), tools=[adder(agent)], **settings)


async def pydantic_ai(agent):
    return (await _pydantic_ai(agent).run(agent.prompt)).output


async def pydantic_ai_typed(agent):
    from pydantic import BaseModel

    class Sum(BaseModel):
        total: int

    return str((await _pydantic_ai(agent, output_type=Sum).run(agent.prompt)).output.total)


async def openai_agents(agent):
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=agent.base_url, api_key=agent.api_key)
    model = agents.OpenAIResponsesModel(model="m", openai_client=client)
    made = agents.Agent(name="adder", model=model, tools=[agents.function_tool(adder(agent))])
    return (await agents.Runner.run(made, agent.prompt)).final_output


def anthropic(agent):
    import anthropic as library

    base_url = agent.base_url.removesuffix("/v1")
    client = library.Anthropic(base_url=base_url, api_key=agent.api_key)
    runner = client.beta.messages.tool_runner(
        max_tokens=500,
        model="m",
        tools=[library.beta_tool(adder(agent))],
        messages=[{"role": "user", "content": agent.prompt}],
    )
    return runner.until_done().content[0].text


def smolagents(agent):
    import smolagents as library

    model = library.OpenAIServerModel("m", api_base=agent.base_url, api_key=agent.api_key)
    made = library.ToolCallingAgent(
        tools=[library.tool(adder(agent))], model=model, verbosity_level=0
    )
    return str(made.run(agent.prompt))


PROGRAMS = {
    langgraph: "langgraph",
    pydantic_ai: "pydantic_ai",
    pydantic_ai_typed: "pydantic_ai",
    openai_agents: "agents",
    anthropic: "anthropic",
    smolagents: "smolagents",
}
"""What plays, and the package that it needs."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_framework_ends_all_its_episodes_right(program):
    """No episode is UNSCORED, and each has the environment's own record of its call."""
    pytest.importorskip(PROGRAMS[program], reason=f"{PROGRAMS[program]} is not installed")
    env = AgentEnv(env=Desk(), program=program)
    settings = {"sampling": Sampling(max_tokens=10_000), "group_size": 1, "step_s": 300.0}
    sampler = ScriptedSampler(policy)
    with Groups(env, sampler, scorer=rlvr.Scorer(env, workers=0), **settings) as groups:
        found = list(sample_groups(groups, [(i, i) for i in range(EPISODES)]))
    rollouts = [rollout for _, group in found for rollout in group.rollouts]
    assert [rollout.score.verdict.outcome for rollout in rollouts] == [Outcome.CORRECT] * EPISODES
    assert all([made.name for made in rollout.episode.calls] == ["add"] for rollout in rollouts)
