"""Searching the collection, and giving the final answer, which ends a rollout: functions that the rollout itself carries out.

What a search finds is what a rollout is measured by. No option names the answer: it is always there.
"""

from pydantic import Field

from drag_ray.tools.function import Arguments, Function


class SearchArguments(Arguments):
    """The query."""

    query: str
    """Words that the right page is likely to contain."""


TOOL = Function(
    name="search_documents", description="Search the document collection and see the best pages.", arguments=SearchArguments
)


class _Citation(Arguments):
    file: str
    page: int


class AnswerArguments(Arguments):
    """The answer with its pages."""

    answer: str
    """The answer, as short as possible."""
    citations: list[_Citation] = Field(default_factory=list)
    """The pages that the answer is taken from."""


ANSWER = Function(name="provide_answer", description="Give the final answer to the question.", arguments=AnswerArguments)
