"""Baselines whose query is made of a passage that the engine writes for the question, HyDE and Query2doc.

Their queries count: a term weighs as often as it occurs, as in the bag of words of these papers' search engine.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from pydantic import Field

from drag_ray.agent.keywords import write_keywords
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.baselines.baseline import BaselineContext, Sources, TermBaseline, WriteAdditions
from drag_ray.baselines.weights import expand_terms, write_weights
from drag_ray.config import BaseConfig
from drag_ray.engine.generate import THINK_END, GenerateFn, Generation, Message, Request
from drag_ray.storage.file_access import reading

_NUM_ADDED_WORDS = 8
"""Words of a passage that are proposed to a collection."""
_HYDE_REQUEST = "Please write a passage to answer the question.\nQuestion: {question}\nPassage:"
_QUERY2DOC_REQUEST = "Write a passage that answers the given query.\n\nQuery: {question}\nPassage:"
_QUESTION_REPEATS = 5
"""Query2doc: how often the terms of the question count."""
_NUM_EXAMPLES = 4
"""Query2doc: training questions with their pages that the prompt shows."""
_EXAMPLE_CHARS = 400
"""Of a page that an example shows."""
_NO_TAGS = str.maketrans("<>", "  ")

Analyze = Callable[[str], list[str]]
"""From a text to the terms that the index has of it."""


class PassageConfig(BaseConfig):
    """Passages that the base model writes for a question (hyde, query2doc)."""

    max_tokens: int = Field(default=128, ge=1)
    """tokens of a passage, and of the thinking before it where the model thinks"""


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


@dataclass(frozen=True)
class Hyde(PassageBaseline):
    """HyDE: Gao, Ma, Lin and Callan, Precise Zero-Shot Dense Retrieval without Relevance Labels (2022). A passage is the query.

    The paper averages the embeddings of several passages; a keyword index has no such mean, so here it is one passage.
    """

    name = "hyde"
    summary = "a passage that the base model writes for the question, having seen no page"

    def build_messages(self, question: str) -> tuple[Message, ...]:
        """The paper's request for a web search."""
        return ({"role": "user", "content": _HYDE_REQUEST.format(question=question)},)

    def weigh_terms(self, question: str, passage: str, analyze: Analyze) -> dict[str, float]:
        """The terms of the passage with their counts."""
        return dict(Counter(analyze(passage)))


@dataclass(frozen=True, slots=True)
class PassageExample:
    """A training question with the beginning of a page that answers it."""

    question: str
    passage: str


@dataclass(frozen=True)
class Query2doc(PassageBaseline):
    """Query2doc: Wang, Yang and Wei, Query2doc: Query Expansion with Large Language Models (2023), in its form for BM25.

    The question five times, then a passage, is the query; the prompt for the passage shows `examples`, training questions with
    their pages.
    """

    name = "query2doc"
    summary = "the question and a passage that the base model writes after seeing only pages of training questions"

    examples: tuple[PassageExample, ...] = ()

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """With the run's options, and examples from its index."""
        return cls(sources.options.take(PassageConfig), read_examples(sources.index_dir, sources.seed, sources.written_dir))

    def build_messages(self, question: str) -> tuple[Message, ...]:
        """The paper's request, with the examples as earlier turns of a conversation."""
        messages: list[Message] = []
        for example in self.examples:
            messages.append({"role": "user", "content": _QUERY2DOC_REQUEST.format(question=example.question)})
            messages.append({"role": "assistant", "content": example.passage})
        messages.append({"role": "user", "content": _QUERY2DOC_REQUEST.format(question=question)})
        return tuple(messages)

    def weigh_terms(self, question: str, passage: str, analyze: Analyze) -> dict[str, float]:
        """The terms of the question, `_QUESTION_REPEATS` times, and of the passage, with their counts."""
        return expand_terms(analyze(question), _QUESTION_REPEATS, Counter(analyze(passage)))


def read_examples(index_dir: Path, seed: int, written_dir: Path | None = None) -> tuple[PassageExample, ...]:
    """Training questions of a run (see `read_run_questions`), drawn at random, each with how its first evidence page begins.

    Raises:
        DataError: the questions cannot be read.
        ArtifactError: the pages cannot be read.
    """
    import polars as pl

    from drag_ray.corpus.questions import draw_questions, read_split

    train = read_split(index_dir, "train", written_dir)
    examples: list[PassageExample] = []
    pages_path = index_dir / "pages.parquet"
    for question in draw_questions(train, _NUM_EXAMPLES, seed) if train else []:
        page = question.evidence[0]
        is_page = (pl.col("file") == page.file) & (pl.col("page_number") == page.page_number)
        with reading(pages_path):
            [text] = pl.scan_parquet(pages_path, glob=False).filter(is_page).select("text").collect()["text"]
        examples.append(PassageExample(question.question, " ".join(text.split())[:_EXAMPLE_CHARS]))
    return tuple(examples)
