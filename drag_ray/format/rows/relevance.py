"""Rows that teach which pages answer a question: its evidence, and pages that a search finds and that are none.

{"question_id": "q1", "question": "How fast may the rotor turn?", "file": "pump.pdf", "page_number": 3,
 "passage": "The rotor's limit is 340 rpm ...", "is_evidence": true}

Pages without evidence are drawn among the best that a search finds for the question, where those are that a reranker has to tell
from the right one. A page that nobody named as evidence may answer a question all the same; of many drawn ones few do, fewer with
a margin, and what nearly duplicates the evidence is never taken.

With a teacher (`format.teacher`) each row has its score too, and questions without evidence have rows, of which nobody says what
answers them.
"""

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any, NotRequired

import polars as pl

from drag_ray.agent.environment import PageIndex
from drag_ray.agent.retrieval import find_vectors, open_page_index
from drag_ray.agent.tasks import SEARCHING
from drag_ray.corpus.near_duplicates import Shingles, compute_shingles, is_similar
from drag_ray.engine.models.relevance import write_judgement
from drag_ray.format.columns import Row, SupervisedExample, to_schema
from drag_ray.format.config import FormatConfig
from drag_ray.format.row_format import RowFormat
from drag_ray.format.tables import ScoredPart
from drag_ray.search.page_reranker import cut_passage
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hit


class PageRow(Row):
    """A question, the part of a page that is most about it, and whether the page is evidence; None where nobody says."""

    question_id: str
    question: str
    file: str
    page_number: int
    passage: str
    is_evidence: bool | None
    score: NotRequired[float]
    """of the teacher, if there is one"""


def build_rows(part: ScoredPart, config: FormatConfig) -> pl.DataFrame:
    """For each question its evidence and `relevance_pages` others; none where the trajectories came without an index.

    In place of the evidence stands the best page that is found where a question has none, which only a teacher is asked. Raises
    ConfigError where there are no vectors, which `relevance_retrieval` needs, or their model is gone, and SearchIndexError where
    they are damaged, or of another index or model.
    """
    is_asked = pl.lit(True) if config.teacher.model else pl.col("evidence").list.len() > 0
    questions = part.trajectories.filter(pl.col("task").is_in(SEARCHING) & is_asked)
    asked = questions.unique("question_id", keep="first", maintain_order=True).select("question_id", "question", "evidence")
    if asked.is_empty() or part.index_dir is None:
        return pl.DataFrame(schema=pl.Schema(to_schema(PageRow)))
    retrieval = config.relevance_retrieval
    vectors_dir = find_vectors(part.index_dir, part.embed_dir, retrieval, "format.relevance_retrieval")
    searcher = Searcher(part.index_dir / "search_index")
    index = open_page_index(searcher, retrieval, vectors_dir, config.relevance_dense_weight)
    rows = [row for one in asked.iter_rows(named=True) for row in _list_pages(one, searcher, index, config)]
    return pl.DataFrame(rows, schema=pl.Schema(to_schema(PageRow)))


def _list_pages(asked: dict[str, Any], searcher: Searcher, index: PageIndex, config: FormatConfig) -> Iterator[PageRow]:
    question = asked["question"]
    named = [Evidence(**page) for page in asked["evidence"]]
    hits = index.search(question, config.relevance_depth)
    evidence = [page for page in named if searcher.find_page(page.file, page.page_number)]
    first = evidence if named else [hit.page for hit in hits[:1]]
    shingles = [compute_shingles(searcher.text(page)) for page in first]
    found = find_others(hits, named or first, config)
    others = [page for page in found if not _repeats(searcher.text(page), shingles)]
    draw = random.Random(f"{config.seed} {asked['question_id']}")
    for page in [*first, *draw.sample(others, min(config.relevance_pages, len(others)))]:
        passage = cut_passage(searcher, page, question, config.relevance_chars)
        if passage.strip():  # of a page that is a picture there is nothing to read
            yield PageRow(
                question_id=asked["question_id"],
                question=question,
                file=page.file,
                page_number=page.page_number,
                passage=passage,
                is_evidence=page in named if named else None,
            )


def find_others(hits: Sequence[Hit], evidence: Sequence[Evidence], config: FormatConfig) -> list[Evidence]:
    """The pages of a ranking that are no evidence, from `relevance_first` on, without those within `relevance_margin`."""
    own = [hit.score for hit in hits if hit.page in evidence]
    most = (1 - config.relevance_margin) * max(own) if own and config.relevance_margin else math.inf
    return [hit.page for hit in hits if hit.page not in evidence and hit.rank >= config.relevance_first and hit.score <= most]


def _repeats(text: str, evidence: Sequence[Shingles]) -> bool:
    shingles = compute_shingles(text)
    return len(shingles) > 0 and any(len(other) > 0 and is_similar(shingles, other) for other in evidence)


def to_example(row: PageRow) -> SupervisedExample:
    """The answer yes or no to whether the page answers the question."""
    messages = write_judgement(row["question"], row["passage"], is_relevant=bool(row["is_evidence"]))
    return SupervisedExample(messages, [len(messages) - 1])


FORMAT = RowFormat(
    row=PageRow,
    summary="question and page -> whether the page is evidence (reranker: question, passage, is_evidence)",
    build_rows=build_rows,
    to_example=to_example,
)
