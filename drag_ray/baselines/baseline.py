"""A baseline: a policy that a trained one has to beat, defined in a module of its own and named in `registry`.

The command line takes its options from these modules, so they import what is slow to import (Polars, Tantivy, PyTorch) where
they use it.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.baselines.weights import WeightedSearcher
from drag_ray.config import BaseConfig
from drag_ray.engine.generate import GenerateFn, Generation, Request
from drag_ray.types import Question

if TYPE_CHECKING:
    from drag_ray.agent.environment import PageSearcher
    from drag_ray.search.searcher import Searcher

OptionsT = TypeVar("OptionsT", bound=BaseConfig)

WriteAdditions = Callable[[str, Request], Awaitable[str]]
"""From a question, and the request for a reply to it, to words that are worth searching for together with it."""


class OptionSections(BaseConfig):
    """The options of all baselines, in sections of one type each; `registry.BaselineSections` has them as its fields."""

    def take(self, section: type[OptionsT]) -> OptionsT:
        """The section of this type; KeyError if there is none."""
        for _, value in self:
            if isinstance(value, section):
                return value
        raise KeyError(section.__name__)


@dataclass(frozen=True)
class Sources:
    """The sources that baselines are prepared from: their options, and folders of the run, with the reranker that it has trained.
    `embed_dir` and `written_dir` are those of the stages `embed` and `questions`, where these are read."""

    options: OptionSections
    index_dir: Path
    seed: int
    reranker: Path | None = None
    embed_dir: Path | None = None
    dense_weight: float | None = None
    written_dir: Path | None = None

    def draw_questions(self, limit: int) -> list[Question]:
        """Training questions of the run, drawn at random; all for a limit of 0. Raises DataError: there are none."""
        from drag_ray.corpus.questions import draw_split

        return draw_split(self.index_dir, "train", limit, self.seed, written_dir=self.written_dir)


@dataclass(frozen=True)
class BaselineContext:
    """The context in which a baseline builds its replies, in the process that rolls out: the agent whose prompts and protocol it
    shares, the index, and the engine where it needs one."""

    agent: AgentConfig
    searcher: "Searcher"
    engine: GenerateFn | None = None

    def require_engine(self) -> GenerateFn:
        """The engine of a baseline that needs one."""
        assert self.engine is not None, "this baseline needs an engine"
        return self.engine


class Baseline(ABC):
    """A baseline with its options and all that it has read: it crosses process borders. Without arguments it has its defaults."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """what is searched, and what is known of the collection by then"""
    section: ClassVar[tuple[str, type[BaseConfig]] | None] = None
    """name and type of its options, which several baselines may share"""
    uses_engine: ClassVar[bool] = False
    """the base model's engine writes for it"""
    keeps_candidates: ClassVar[bool] = False
    """where the agent puts candidates in order, it leaves them in the order that they have, and does not search"""
    proposes: ClassVar[bool] = False
    """a collection can take additions to the question from it, beside the policy's own"""
    draws: ClassVar[bool] = False
    """what it proposes depends on the seed, so that there is more than one proposal of it"""

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """The baseline with the options of a run, and with what it reads before any rollout.

        Raises:
            DataError: that cannot be read.
            ConfigError: the index lacks what the baseline searches.
        """
        return cls()

    def describe(self) -> str:
        """A description of its search, for the report."""
        return self.summary

    def open_searcher(self, searcher: "Searcher", questions: Sequence[str] = ()) -> "PageSearcher":
        """The searcher of its queries: the index, unless the baseline searches in a way of its own.

        Args:
            questions: that are going to be asked, as far as that is known.
        """
        return searcher

    @abstractmethod
    def build_reply(self, context: BaselineContext) -> GenerateFn:
        """The writer of its replies, each of which is one search."""

    def build_additions(self, context: BaselineContext) -> WriteAdditions:
        """The writer of its additions to a question, in words and not in terms of the index, where it `proposes`."""
        raise NotImplementedError(self.name)


class TermBaseline(Baseline):
    """A baseline whose queries are those of `weights`: terms of the index with weights."""

    def open_searcher(self, searcher: "Searcher", questions: Sequence[str] = ()) -> WeightedSearcher:
        """The index, asked for weighted terms."""
        return WeightedSearcher(searcher)


def build_query_reply(write_query: Callable[[str], str], agent: AgentConfig) -> GenerateFn:
    """Replies that search for what `write_query` makes of the question."""
    prompts, protocol = Prompts(agent), get_protocol(agent.protocol)

    async def reply(request: Request) -> Generation:
        query = write_query(prompts.question_of(request.messages))
        return Generation(protocol.render_search(query), (), (), "stop")

    return reply
