"""Options of the format stage."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from drag_ray.config import BaseConfig, Sections
from drag_ray.errors import ConfigError
from drag_ray.format.exports import ExportName
from drag_ray.format.rows import OF_PAGES, OF_TURNS, FormatName
from drag_ray.search.config import ReaderConfig, RetrievalName

_FLOOR = 0.1
"""of a weight, as in the agentic retrieval fine-tuning (DRAG) reference, from which all schemes but `gain` are"""
WEIGHTS: dict[str, Callable[[Callable[[str], Any]], Any]] = {
    "none": lambda column: column("gain") ** 0,  # 1
    "gain": lambda column: column("gain").clip(_FLOOR),
    "rank_score": lambda column: column("rank_score").clip(_FLOOR),
    "rank_sq": lambda column: (column("rank_score") ** 2).clip(_FLOOR),
    "inv_effort": lambda column: column("cumulative_effort").clip(_FLOOR),
    "binary": lambda column: 0.5 + 0.5 * (column("evidence_rank") == 1),
}
"""The weight of a row in the loss, of the columns that tell what became of its query. They are Polars' (`selection.row_weight`),
which the command line does without."""

if TYPE_CHECKING:
    WeightScheme = str
else:
    WeightScheme = Literal[tuple(WEIGHTS)]


class TeacherConfig(ReaderConfig):
    """A reader of pages, whose scores small rankers learn."""

    section: ClassVar[str] = "format.teacher"

    device: Literal["auto", "cpu", "gpu"] = "auto"
    """device of the teacher: the cluster's GPUs or its CPUs; auto takes GPUs if there are any"""


class FormatConfig(BaseConfig):
    """Options of the training rows: which are written, and from which searches."""

    formats: tuple[FormatName, ...] = Field(default=OF_TURNS, min_length=1)
    """formats of training rows to write; by default all that teach turns, without relevance, which searches again"""
    validation_fraction: float = Field(default=0.1, ge=0.0, lt=1.0)
    """share of the questions whose rows are kept for validation"""
    split_by: Literal["question", "document"] = "question"
    """what training never shares with validation and evaluation; question: evidence pages; document: evidence files too"""
    hinted: bool = True
    """include queries found with a hint (collect.hinted_samples), without reasoning, in formats of single queries"""
    proposed: bool = True
    """include queries proposed by baselines (collect.proposals) in formats of single queries and of pairs"""
    include_reasoning: bool = True
    """train on the reasoning before a query; formats with whole conversations always keep it as it was recorded"""
    max_searches_per_question: int = Field(default=4, ge=0)
    """best distinct successful queries or conversations that are kept of a question; 0 keeps all"""
    targets: Literal["gain", "found", "all"] = "gain"
    """single queries to train on; gain: those that beat the question by more than min_gain; found: all that show evidence among
    the first top_k, DRAG's rule (with weights rank_score); all: also those without evidence (its include-failed). Conversations
    (sft_trajectory, rejection) always have to beat the question"""
    min_gain: float = Field(default=0.0, ge=0.0, lt=1.0)
    """gain over the question that a target query has to exceed, in the utility 1 / log2(1 + rank) of the best evidence page, 0
    beyond agent.depth"""
    max_pairs_per_question: int = Field(default=8, ge=0)
    """preference pairs that are kept of a question; 0 keeps all"""
    min_margin: float = Field(default=0.1, gt=0.0, le=1.0)
    """smallest difference of gains between the sides of a preference pair; from rank 3 to 2 the gain is 0.13"""
    relevance_pages: int = Field(default=4, ge=1)
    """pages without evidence of each question in the rows for a reranker (relevance)"""
    relevance_retrieval: RetrievalName = "bm25"
    """search that finds these pages; use the one whose results the reranker will order"""
    relevance_dense_weight: float | None = Field(default=None, ge=0.0, le=1.0)
    """hybrid: weight of the vector score, as agent.dense_weight; without it ranks are fused"""
    relevance_first: int = Field(default=1, ge=1)
    """first rank of the pages among which they are drawn"""
    relevance_depth: int = Field(default=20, ge=1)
    """last rank of these"""
    relevance_margin: float = Field(default=0.0, ge=0.0, lt=1.0)
    """above 0, leave out pages that score more than 1 - this times the evidence, because they may answer the question too.
    Near-duplicates of the evidence are always left out"""
    relevance_chars: int = Field(default=1500, ge=50)
    """longest passage of such a row, in characters; a longer page is cut to its beginning and the part with most of the
    question's rare words (as rerank.page_chars). 1,500 are some 384 tokens of English (rerank.window_tokens)"""
    teacher: TeacherConfig = Field(
        default=TeacherConfig(),
        description="the model that scores the passages of relevance, if one is named; of questions without evidence too",
    )
    baseline: Literal["mean", "others", "optimal"] = "mean"
    """value with which the return of a reply is compared in rl_steps; mean: that of its peers, itself included; others: that
    of the other peers; optimal: the return of the best policy within a distance that costs 1 a nat, log(mean(exp(return)))"""
    weights: WeightScheme = "gain"
    """weight of a supervised row: 1, its gain over the question, its rank score, the square of the rank score, its cumulative
    effort score (each at least 0.1), or 1 at rank 1 and 0.5 below"""
    exports: tuple[ExportName, ...] = ()
    """other trainers for which rows are also written, into the folder `exports`"""
    seed: int = 0
    """seed of the validation split"""


@dataclass(frozen=True)
class FormatSections(Sections):
    """The sections of the format stage."""

    format: FormatConfig

    def list_unread(self) -> tuple[str, ...]:
        """The vectors, where no pages are looked for by them."""
        return () if "relevance" in self.format.formats and self.format.relevance_retrieval != "bm25" else ("embed",)

    def list_sources(self) -> dict[str, Path]:
        """The teacher, if it lies in a folder."""
        folder = Path(self.format.teacher.model).expanduser()
        return {"format.teacher.model": folder} if self.format.teacher.model and folder.is_dir() else {}

    def check(self) -> None:
        """ConfigError where a teacher is named and has nothing to score."""
        if self.format.teacher.model and not set(OF_PAGES) & set(self.format.formats):
            raise ConfigError(
                f"format.teacher.model {self.format.teacher.model!r}: scores rows of the format {', '.join(OF_PAGES)}, and "
                f"format.formats has {', '.join(self.format.formats)}. Name {OF_PAGES[0]} there too, or leave the teacher out."
            )
