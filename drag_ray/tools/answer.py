"""Giving the final answer, which ends a rollout. No option names it: it is always there."""

from pydantic import Field

from drag_ray.tools.function import Arguments, Function


class _Citation(Arguments):
    file: str
    page: int


class AnswerArguments(Arguments):
    """The answer with its pages."""

    answer: str
    """The answer, as short as possible."""
    citations: list[_Citation] = Field(default_factory=list)
    """The pages that the answer is taken from."""


ANSWER = Function(
    name="provide_answer",
    description="Give the final answer to the question.",
    arguments=AnswerArguments,
)
