"""Tools of the policy: one module a tool, which declares it as its TOOL, or makes it from the agent's options (`make_tool`).

`tools.registry` finds a tool by its name, a user's own and those of MCP servers too.
"""

TOOLS = (
    "search",
    "read_page",
    "grep",
    "layout_parsing",
    "view_page",
    "image_search",
    "crop",
    "zoom",
    "rotate",
    "perspective_correct",
    "sharpen",
    "super_resolution",
    "select_images",
    "python_interpreter",
    "visit",
    "web_search",
)
"""The tools that ship, as `agent.tools` names them."""
