"""Agents that own their loop: any program that takes a base URL is one episode.

task ─▶ program ⇄ HTTP ⇄ AgentEndpoint ⇄ Sampler     tokens and log-probabilities of every request
            └─▶ its answer ─▶ verify ─▶ Score ─▶ Rollout, with branches where it talked in several
                ways

env            `AgentEnv`: an environment whose episodes are runs of a program
programs       what a program is: a function, a command, or code in a session
sandboxed      the program in a session, whose requests are carried over by calls
endpoint       the server in front of the sampler, with a key for each episode
wires          Chat Completions, Responses and Messages as one request
messages       the wire format of chat completions
conversations  requests as rows of tokens: one that extends a former one reuses its tokens
sampling       the one thread that works with the sampler
tools          the tools of an episode, by call and by MCP

Contract: `programs.AgentProgram`, a function of an `AgentCall`; a new kind is a class that is one.
Sees `http` and all below; `cli` and recipes see it.  Needs the extra `serve`.
Goes wrong: the end of an episode while requests are under way (who closes, who waits), and whose
fault an error is: before the first completion ours (UNSCORED), later the policy's (WRONG).
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
