"""Agents that own their loop: any program that takes a base URL is one episode.

task ─▶ program ⇄ HTTP ⇄ AgentEndpoint ⇄ Sampler          tokens and log-probabilities of every request
            └─▶ its answer ─▶ verify ─▶ Score ─▶ Rollout, with branches where it talked in several ways

Needs the extra `serve`.
"""

from rlvr.agents.endpoint import AgentEndpoint, AgentEpisode
from rlvr.agents.env import AgentEnv
from rlvr.agents.programs import AgentCall, AgentFailed, Command
from rlvr.agents.sandboxed import SandboxAgent

__all__ = [
    "AgentCall",
    "AgentEndpoint",
    "AgentEnv",
    "AgentEpisode",
    "AgentFailed",
    "Command",
    "SandboxAgent",
]
