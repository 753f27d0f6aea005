"""An MCP server for tests: over stdio, or, with a port as its argument, over HTTP."""

import logging
import os
import sys
import time

from mcp.server import MCPServer

logging.disable(logging.CRITICAL)
server = MCPServer("desk")


@server.tool()
def add(x: int, y: int = 0) -> str:
    """Add two numbers."""
    return str(x + y)


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no such thing")


@server.tool()
def die() -> str:
    """End the process."""
    os._exit(3)


@server.tool()
def hang() -> str:
    """Sleep."""
    time.sleep(60)
    return ""


if len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run("stdio")
