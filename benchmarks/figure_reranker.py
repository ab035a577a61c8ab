"""Results of a trained reranker beside searches that need none, and its cost."""

from typing import Any, NamedTuple

from figure_cells import short, tested_difference, to_table
from figure_quality import (
    EFFECT_MEASURES,
    LARGE,
    SMALL,
    find_reranked,
)


class Column(NamedTuple):
    """The evaluation of a set with a model's reranker."""

    collection: str
    model: str

    @property
    def name(self) -> str:
        return f"{self.collection}, {'1.5B' if self.model == LARGE else '135M'}"

    def find(self, policy: str) -> Any:
        return find_reranked(self.collection, policy, self.model)


COLUMNS = (
    Column("medquad", LARGE),
    Column("medquad", SMALL),
    Column("manuals", LARGE),
    Column("manuals", SMALL),
    Column("fairytaleqa", LARGE),
)
_POLICIES = {
    "question, words (BM25)": "question",
    "question, key words": "question_keywords",
    "`templates`": "templates",
    "question, vectors (`dense`)": "dense",
    "question, words and vectors (`hybrid`)": "hybrid",
    "`templates`, words and vectors": "templates+hybrid",
    "untrained query writer": "base",
    "untrained query writer, words and vectors": "base+hybrid",
    "tuned query writer": "tuned",
    "tuned query writer, words and vectors": "tuned+hybrid",
    "**question, reranked**": "rerank",
    "untrained query writer, reranked": "base+rerank",
    "tuned query writer, reranked": "tuned+rerank",
}


def write_table() -> str:
    """Results of each search, and the lead of the reranked question over the question and over the best that is untrained."""

    def write_cell(row: Any) -> str:
        return " ".join(short(row[name]) for name in EFFECT_MEASURES) if row else ""

    cells = [[text, *(write_cell(column.find(policy)) for column in COLUMNS)] for text, policy in _POLICIES.items()]
    reranked = [column.find("rerank") for column in COLUMNS]
    for key, text in (("vs_question", "question"), ("vs_best_untrained", "best untrained")):
        for measure, name in (("hit3", "Hit@3"), ("hit10", "Hit@10"), ("mrr", "MRR")):
            cells.append([f"reranked above the {text}, {name}", *(tested_difference(row[key][measure]) for row in reranked)])
    cells.append(["the best untrained (MRR)", *(f"`{row['best_untrained']}`" for row in reranked)])
    return to_table(["Hit@1 Hit@3 Hit@10 MRR", *(column.name for column in COLUMNS)], cells)
