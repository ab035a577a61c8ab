"""Options of the questions stage, and the names of what it leaves."""

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from drag_ray.config import BaseConfig, Sections
from drag_ray.corpus.config import CorpusConfig
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.sampling import PresetName
from drag_ray.rollout.config import RolloutConfig
from drag_ray.search.config import EmbeddingConfig

ROWS_NAME = "questions.jsonl"
REJECTED_NAME = "rejected.jsonl"
PAGES_NAME = "left_out_pages.jsonl"
JOURNAL_NAME = "drafts.jsonl"

KindName = Literal["fact", "procedure", "user", "table", "figure", "pages", "documents", "comparison", "path"]
FilterName = Literal[
    "self_reference",
    "language",
    "copied",
    "rank",
    "answerable",
    "needs_all",
    "closed_book",
    "other_pages",
    "one_search",
    "near_duplicate",
    "same_meaning",
]
RewritingName = Literal["anchored", "fuzzy"]

WALKS: dict[KindName, tuple[int, bool]] = {
    "pages": (2, True),
    "documents": (2, False),
    "comparison": (2, False),
    "path": (3, False),
}
"""Of the kinds that are asked over several pages: how many, and whether these are of one file."""


class QuestionsConfig(BaseConfig):
    """Options of the questions that a model writes from pages."""

    limit: int = Field(default=1000, ge=0)
    """questions to write, before the filters; 0: one for each page. They are even over files and topics, and pages get
    another kind if there are more questions than pages"""
    topics: int = Field(default=20, ge=1)
    """groups of pages with like words that questions are spread over, as they are over files; never more than a tenth of the
    pages, and than 1,000. 1: over files alone"""
    kinds: tuple[KindName, ...] = Field(default=("fact", "procedure", "user"), min_length=1)
    """kinds of questions, which alternate over the pages. Over one page: a stated fact (fact), how something is done
    (procedure), either in words other than the page's (user), what stands in a table, where the text has one (table), or what a
    figure shows, where the writer sees the page's picture (figure). Over several linked pages that are all needed: two of one
    document (pages), two of different documents (documents), a comparison of these (comparison), or three of different
    documents, one leading to the next (path)"""
    examples: tuple[Annotated[str, Field(pattern=r"[^\W_]")], ...] = Field(default=(), max_length=20)
    """some real questions of users, each with a word or more, whose style is imitated"""
    styles: tuple[Annotated[str, Field(pattern=r"\S", max_length=200)], ...] = Field(default=(), max_length=100)
    """who asks, or in what style, for example "a nurse in a hurry" or "three key words": one is drawn for each draft"""
    language: str = Field(default="", pattern="^([a-z]{2,3})?$")
    """ISO 639 code of the language to ask in, for example de: pages in another one get no questions. Empty: each page's own"""
    samples: int = Field(default=1, ge=1, le=16)
    """drafts of each question; above 1, those kept and those rejected make pairs to train the writer on (drag-ray pairs)"""
    writer: EngineConfig | None = None
    """engine that writes and answers instead of `engine`, for example {backend = "openai", model = "...", endpoint = {address
    = "..."}}"""
    preset: PresetName = "default"
    """sampling preset of the questions; answers that filters ask for are greedy"""
    max_tokens: int = Field(default=512, ge=16)
    """tokens of a reply, with the reasoning before it"""
    page_view: Literal["text", "image"] = "text"
    """form in which pages are shown to the writer: text, or image (corpus.page_images), which shows more than the text layer"""
    page_chars: int = Field(default=6000, ge=100)
    """characters of a page's text that the model is shown; a half or a quarter of them if they do not fit"""
    min_words: int = Field(default=30, ge=1)
    """smallest number of words that a page needs to get questions, without lines that many pages repeat"""
    filters: tuple[FilterName, ...] = tuple(name for name in get_args(FilterName) if name != "one_search")
    """filters that reject a question: it refers to "this page" (self_reference); it is in another language than asked or, without
    questions.language, than its pages (language); it copies more than eight words of the page in a row (copied); the index finds
    the page too early with it, or not at all (rank); the model answers differently when it sees the page again (answerable), or
    equally without one of several pages (needs_all); it answers without the page (closed_book); more than three other pages
    answer it too, fewer being evidence as well (other_pages); the first page that the question finds answers it (one_search, off
    by default, because rankers learn from such questions); it nearly repeats another one (near_duplicate), or means nearly the
    same (same_meaning, with an embedding.model)"""
    anchor_images: bool = False
    """in questions over several pages, show the picture of the first page (corpus.page_images) instead of its name, if the answer
    is on another page and the filters accept the question; otherwise the question stays unchanged"""
    fuzzy: bool = False
    """replace a name in each kept question with a description from the pages, if the filters accept the result and no further
    page answers it; otherwise it stays unchanged"""
    min_rank: int = Field(default=1, ge=1)
    """first rank of the page, searched with the question itself, at which a question is kept: 2 rejects questions that need no
    better search (filter rank)"""
    max_rank: int = Field(default=100, ge=1, le=1000)
    """last rank at which a question is kept (filter rank)"""
    difficulty: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict[str, float])
    """shares of the kept questions by that rank, for example {"1" = 0.3, "2-10" = 0.5, "11-" = 0.2}; what exceeds them, or is at
    another rank, is left out. Empty: no shares"""
    max_cosine: float = Field(default=0.95, gt=0, lt=1)
    """cosine of the vectors of two questions from which on they mean the same (filter same_meaning)"""

    @model_validator(mode="after")
    def _ranks_are_a_range(self) -> "QuestionsConfig":
        if self.min_rank > self.max_rank:
            raise ValueError(f"min_rank {self.min_rank} is above max_rank {self.max_rank}; no question could be kept")
        if self.difficulty and "rank" not in self.filters:
            raise ValueError("difficulty goes by the rank of the page, which the filter rank looks for; name it in filters")
        if any(low > high for low, high in self.bands) or any(one[1] >= other[0] for one, other in pairwise(sorted(self.bands))):
            raise ValueError(f"difficulty has the ranks {', '.join(self.difficulty)}, of which none may be in two bands or none")
        if any(low > self.max_rank or high < self.min_rank for low, high in self.bands):
            raise ValueError(
                f"difficulty has ranks beyond those that are kept, {self.min_rank} to {self.max_rank}; see min_rank and max_rank"
            )
        if "figure" in self.kinds and self.page_view != "image":
            raise ValueError('kinds has figure, which the writer has to see; set page_view = "image" or leave it out')
        return self

    @property
    def bands(self) -> list[tuple[int, int]]:
        """The first and the last rank of each band of `difficulty`."""
        return [_read_band(band, self.max_rank) for band in self.difficulty]


def _read_band(band: str, last: int) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d{0,3})(-(?:[1-9]\d{0,3})?)?", band)
    if not found:
        raise ValueError(f'difficulty has the ranks {band!r}, expected them as "1", "2-10" or "11-"')
    first, rest = found.groups()
    return int(first), int(first if rest is None else rest[1:] or max(last, int(first)))


@dataclass(frozen=True)
class QuestionsSections(Sections):
    """The sections of the questions stage."""

    seed: int
    corpus: CorpusConfig
    engine: EngineConfig
    rollout: RolloutConfig
    questions: QuestionsConfig
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)

    @property
    def writer(self) -> EngineConfig:
        """The engine that writes."""
        return self.questions.writer or self.engine

    @property
    def compares_meaning(self) -> bool:
        """True if questions are compared by their vectors."""
        return bool(self.embedding.model) and "same_meaning" in self.questions.filters

    def dump(self) -> dict[str, Any]:
        """As `Sections.dump`, with the engine that writes as the engine, and the embedding model where it is asked."""
        options = super().dump()
        embedding = options.pop("embedding")
        if self.compares_meaning:
            options["embedding"] = {name: embedding[name] for name in READ_OF_EMBEDDING}
        return options | {"engine": options["questions"].pop("writer") or options["engine"]}

    def list_sources(self) -> dict[str, Path]:
        """The adapter that the model writes with, and the folder of the embedding model."""
        folder = Path(self.embedding.model).expanduser()
        compared = {"embedding.model": folder} if self.compares_meaning and folder.is_dir() else {}
        return self.writer.list_sources() | compared


READ_OF_CORPUS = ("test_fraction", "seed")
"""What the stage reads of its corpus: the rest is in the index already."""
READ_OF_EMBEDDING = ("model", "query_prompt", "dtype")
"""What it reads of the embedding model: it cuts no pages."""
