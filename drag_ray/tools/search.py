"""Searching the collection. The rollout itself carries it out: what it finds is what a rollout is measured by."""

from drag_ray.tools.function import Arguments, Function


class SearchArguments(Arguments):
    """The query."""

    query: str
    """Words that the right page is likely to contain."""


TOOL = Function(
    name="search_documents",
    description="Search the document collection and see the best pages.",
    arguments=SearchArguments,
)
