"""The question as the query: what a user without any of this would type."""

from dataclasses import dataclass

from drag_ray.baselines.baseline import Baseline, BaselineContext, build_query_reply
from drag_ray.engine.generate import GenerateFn


@dataclass(frozen=True)
class RawQuestion(Baseline):
    """Searches for the question."""

    name = "question"
    summary = "the question, word for word"

    def build_reply(self, context: BaselineContext) -> GenerateFn:
        """Replies that say the question again."""
        return build_query_reply(str, context.agent)
