"""The question as the query, as a user without any of this would type it, or its key words; of candidates, their order."""

import random
from dataclasses import dataclass

from drag_ray.agent.keywords import write_keywords
from drag_ray.agent.protocols.ranking import RankingProtocol, write_order
from drag_ray.agent.tasks import ORDERING
from drag_ray.baselines.baseline import Baseline, BaselineContext, WriteAdditions, build_query_reply
from drag_ray.engine.generate import GenerateFn, Generation, Request
from drag_ray.search.weighted_words import write_weight


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


def draw_keywords(question: str, random_numbers: random.Random) -> str:
    """Some of the key words of the question: each with a chance of a half, and of those every fourth counts double, as in
    `verb^2`; all where none was drawn.
    """
    words = write_keywords(question).split()
    drawn = [word for word in words if random_numbers.random() < 1 / 2]
    return " ".join(write_weight(word, 2 if random_numbers.random() < 1 / 4 else 1) for word in drawn or words)


@dataclass(frozen=True)
class QuestionKeywords(Baseline):
    """Searches for the key words of the question."""

    name = "question_keywords"
    summary = "the question without stop words"
    proposes = True
    draws = True

    def build_reply(self, context: BaselineContext) -> GenerateFn:
        """Replies that say the key words."""
        return build_query_reply(write_keywords, context.agent)

    def build_additions(self, context: BaselineContext) -> WriteAdditions:
        """Some of the key words again: they weigh more than the other words of the question (see `draw_keywords`)."""

        async def write(question: str, request: Request) -> str:
            return draw_keywords(question, random.Random(request.seed))

        return write
