"""Ready tools: Python and bash in a sandbox session, search over texts, and those of an MCP server.

    from rlvr.environment import ready_tools

    def setup(self, task):
        return ready_tools.sandbox().session("python")

    def tools(self, state):
        return [*super().tools(state), ready_tools.python(state)]

programs   code in a session of the sandbox
retrieval  search by BM25
servers    the tools of an MCP server, one connection per episode

Contract: `rlvr.environment.tools.Tool`; a new one is a function that gives a `Tool`.
Sees `sandbox`, the rest of the room and below; `scoring` and above see it.
Goes wrong: a server that dies is our failure (UNSCORED), a call that does not fit is the policy's
(a reply); a session that nothing closes.
"""

from rlvr.environment.ready_tools.programs import bash, python, sandbox
from rlvr.environment.ready_tools.retrieval import Corpus, search
from rlvr.environment.ready_tools.servers import Server, mcp

__all__ = ["Corpus", "Server", "bash", "mcp", "python", "sandbox", "search"]
