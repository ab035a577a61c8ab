"""A server of tools, good ones and bad ones, over standard input and output; run as a program."""

import base64
import io
import os
import time

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ImageContent, TextContent
from PIL import Image

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


@server.tool(structured_output=False)
def draw(width: int, data: str = "") -> list[TextContent | ImageContent]:
    """Draws a red picture, or says that these bytes are one."""
    stream = io.BytesIO()
    Image.new("RGB", (width, 100), "red").save(stream, "PNG")
    picture = data or base64.b64encode(stream.getvalue()).decode()
    return [TextContent(type="text", text="drawn"), ImageContent(type="image", data=picture, mime_type="image/png")]


@server.tool()
def tell(name: str) -> str:
    """The value of an environment variable here."""
    return os.environ.get(name, "nothing")


if __name__ == "__main__":
    server.run("stdio")
