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

ELSEWHERE = {
    **{name: f"tools.images.{name}" for name in ("crop", "zoom", "rotate")},
    "select_images": "recipes.v_retrver.select_images",
    **{
        name: f"recipes.opensearch_vl.{name}"
        for name in ("layout_parsing", "image_search", "perspective_correct", "sharpen", "super_resolution")
    },
}
"""Modules of those that have their place in another package."""
