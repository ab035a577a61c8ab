"""Baselines whose query is made of a passage that the engine writes for the question.

Their queries count: a term weighs as often as it occurs, as in the bag of words of these papers' search engine.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

from pydantic import Field

from drag_ray.agent.keywords import write_keywords
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.baselines.baseline import BaselineContext, Sources, TermBaseline, WriteAdditions
from drag_ray.baselines.weights import write_weights
from drag_ray.config import BaseConfig
from drag_ray.engine.generate import GenerateFn, Generation, Message, Request
from drag_ray.engine.reasoning import THINK_END

_NUM_ADDED_WORDS = 8
"""Words of a passage that are proposed to a collection."""
_NO_TAGS = str.maketrans("<>", "  ")

Analyze = Callable[[str], list[str]]
"""From a text to the terms that the index has of it."""


class PassageConfig(BaseConfig):
    """Passages that the base model writes for a question (hyde, query2doc)."""

    max_tokens: int = Field(default=128, ge=1)
    """tokens of a passage, and of the thinking before it where the model thinks"""
    num_examples: int = Field(default=4, ge=0)
    """query2doc: training questions with their pages that the prompt shows"""
    example_chars: int = Field(default=400, ge=1)
    """query2doc: characters of a page that an example shows"""


@dataclass(frozen=True)
class PassageBaseline(TermBaseline):
    """Asks the engine for a passage, and searches for terms of it."""

    section = ("passage", PassageConfig)
    uses_engine = True
    proposes = True
    draws = True

    options: PassageConfig = field(default_factory=PassageConfig)

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """With the run's options."""
        return cls(sources.options.take(PassageConfig))

    @abstractmethod
    def build_messages(self, question: str) -> tuple[Message, ...]:
        """The request for a passage."""

    @abstractmethod
    def weigh_terms(self, question: str, passage: str, analyze: Analyze) -> dict[str, float]:
        """The query: terms with their weights."""

    def build_reply(self, context: BaselineContext) -> GenerateFn:
        """Replies whose reasoning is the passage that the engine wrote, and whose query is made of it.

        Their token ids are the engine's: of the request for a passage, and of the passage.
        """
        generate, analyze = context.require_engine(), context.searcher.analyze
        prompts, protocol = Prompts(context.agent), get_protocol(context.agent.protocol)

        async def reply(request: Request) -> Generation:
            question = prompts.question_of(request.messages)
            written = await self._write_passage(generate, question, request)
            passage = extract_passage(written.text)
            query = write_weights(self.weigh_terms(question, passage, analyze))
            return replace(written, text=protocol.render_search(query, passage))

        return reply

    def build_additions(self, context: BaselineContext) -> WriteAdditions:
        """The first key words of a passage that are not in the question, each once."""
        generate, analyze = context.require_engine(), context.searcher.analyze

        async def write(question: str, request: Request) -> str:
            passage = extract_passage((await self._write_passage(generate, question, request)).text)
            words = dict.fromkeys(write_keywords(passage).lower().split())
            own = set(analyze(question))
            return " ".join([word for word in words if not own.issuperset(analyze(word))][:_NUM_ADDED_WORDS])

        return write

    async def _write_passage(self, generate: GenerateFn, question: str, request: Request) -> Generation:
        messages, max_tokens = self.build_messages(question), self.options.max_tokens
        return await generate(replace(request, messages=messages, max_tokens=max_tokens, stop=(), tools=()))


def extract_passage(text: str) -> str:
    """The passage in a reply: on one line, without the thinking before it, and without tags, which it could be mistaken for."""
    return " ".join(text.rpartition(THINK_END)[2].translate(_NO_TAGS).split())
