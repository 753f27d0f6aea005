"""Ready tools: Python and bash in a sandbox session, search over texts, and those of an MCP server.

def setup(self, task):
    return rlvr.tools.sandbox().session("python")

def tools(self, state):
    return [*super().tools(state), rlvr.tools.python(state)]
"""

from rlvr.tools.programs import bash, python, sandbox
from rlvr.tools.retrieval import Corpus, search
from rlvr.tools.servers import Server, mcp

__all__ = ["Corpus", "Server", "bash", "mcp", "python", "sandbox", "search"]
