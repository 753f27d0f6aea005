"""Environments: the base class, episodes, options, and the registry of ids.

base                 `Environment`: task, verify, reward; and the adapters of one reply
task_source, seeds   where tasks come from; the hash that seeds one
options, registry    options and their checks; environments by versioned id, place or mixture
episode              what a policy does with one task, turn by turn
tools, call_formats  tools from signatures; how models write calls, a reader for each format
ready_tools          Python and bash in a sandbox session, search, an MCP server's
tool_episode         an episode with tools or a simulated user: state, thread, budgets, record
graded_episode       one whose remaining files are judged in a fresh box
mixture              several environments as one
reading              when, and for how long, a reference is read
stepping             reset, step, close over any episode
plain                a class with `task` and `verify` and no base of ours
deprecated           kinds of before 0.2.0

Contract: `Environment.task(index)` and `verify(task, completion)`, both pure; `open(task)` gives an
`Episode`.
Sees `rewards`, `data`, `workers` and the ground, ready tools also `sandbox`; `scoring` sees it.
Goes wrong: what a completion can cause must be a verdict, never UNSCORED; state that outlives its
episode; a verdict that depends on process, thread or hash seed.
"""

from rlvr.environment.base import Environment, RowsEnv, require_environment, require_one_reply
from rlvr.environment.episode import Episode, EpisodeFailed, EpisodeLimits
from rlvr.environment.mixture import Curriculum, Mixture, Share
from rlvr.environment.registry import environment_ids, load, make, register
from rlvr.environment.seeds import seeded
from rlvr.environment.tools import Tool, tool

__all__ = [
    "Curriculum",
    "Environment",
    "Episode",
    "EpisodeFailed",
    "EpisodeLimits",
    "Mixture",
    "RowsEnv",
    "Share",
    "Tool",
    "environment_ids",
    "load",
    "make",
    "register",
    "require_environment",
    "require_one_reply",
    "seeded",
    "tool",
]
