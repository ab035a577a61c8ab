"""The question as the query: what a user without any of this would type; of candidates, the order that they have."""

from dataclasses import dataclass

from drag_ray.agent.protocols.ranking import RankingProtocol, write_order
from drag_ray.agent.tasks import ORDERING
from drag_ray.baselines.baseline import Baseline, BaselineContext, build_query_reply
from drag_ray.engine.generate import GenerateFn, Generation, Request


@dataclass(frozen=True)
class RawQuestion(Baseline):
    """Searches for the question."""

    name = "question"
    summary = "the question, word for word; in the task rerank the candidates in the order that they have"
    keeps_candidates = True

    def build_reply(self, context: BaselineContext) -> GenerateFn:
        """Replies that say the question again, or change no order."""
        if context.agent.task in ORDERING:
            return _keep_order
        return build_query_reply(str, context.agent)


async def _keep_order(request: Request) -> Generation:
    return Generation(RankingProtocol().render_search(write_order([])), (), (), "stop")
