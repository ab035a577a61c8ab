"""A server of tools, good ones and bad ones, over standard input and output; run as a program."""

import os
import time

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server: MCPServer[object] = MCPServer("tools", log_level="ERROR")


@server.tool()
def add(first: int, second: int) -> str:
    """Adds two numbers."""
    return str(first + second)


@server.tool()
def refuse() -> str:
    """Refuses."""
    raise ToolError("not today")


@server.tool()
def die() -> str:
    """Ends the server."""
    os._exit(1)


@server.tool()
def hang() -> str:
    """Does not answer."""
    time.sleep(60)
    return ""


@server.tool()
def flood() -> str:
    """Answers a lot."""
    return "x" * 5_000_000


@server.tool()
def tell(name: str) -> str:
    """What an environment variable holds here."""
    return os.environ.get(name, "nothing")


if __name__ == "__main__":
    server.run("stdio")
