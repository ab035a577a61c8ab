"""Passages that a model writes for a question, and the queries that are made of them.

hyde: Gao, Ma, Lin and Callan, Precise Zero-Shot Dense Retrieval without Relevance Labels (2022). The passage is the query.
    The paper averages the embeddings of several passages; a keyword index has no such mean, so here it is one passage.
query2doc: Wang, Yang and Wei, Query2doc: Query Expansion with Large Language Models (2023), in its form for BM25: the
    question five times, then the passage; the prompt shows training questions with their pages.

Both queries count: a term weighs as often as it occurs, as in the bag of words of these papers' search engine.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from drag_ray import schemas
from drag_ray.corpus.questions import draw_questions
from drag_ray.engine.generate import Message

_HYDE_REQUEST = "Please write a passage to answer the question.\nQuestion: {question}\nPassage:"
_QUERY2DOC_REQUEST = "Write a passage that answers the given query.\n\nQuery: {question}\nPassage:"
_THINK_END = "</think>"
_NO_TAGS = str.maketrans("<>", "  ")

Analyze = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class PassageExample:
    """A training question with the beginning of a page that answers it."""

    question: str
    passage: str


def build_hyde_messages(question: str) -> tuple[Message, ...]:
    """The paper's request for a web search."""
    return ({"role": "user", "content": _HYDE_REQUEST.format(question=question)},)


def build_query2doc_messages(question: str, examples: Sequence[PassageExample]) -> tuple[Message, ...]:
    """The paper's request, with the examples as earlier turns of a conversation."""
    messages = []
    for example in examples:
        messages.append({"role": "user", "content": _QUERY2DOC_REQUEST.format(question=example.question)})
        messages.append({"role": "assistant", "content": example.passage})
    messages.append({"role": "user", "content": _QUERY2DOC_REQUEST.format(question=question)})
    return tuple(messages)


def extract_passage(text: str) -> str:
    """The passage in a reply: on one line, without the thinking before it, and without tags, which it could be mistaken for."""
    return " ".join(text.rpartition(_THINK_END)[2].translate(_NO_TAGS).split())


def weigh_hyde(passage: str, analyze: Analyze) -> dict[str, float]:
    """The terms of the passage with their counts."""
    return dict(Counter(analyze(passage)))


def weigh_query2doc(question: str, passage: str, question_repeats: int, analyze: Analyze) -> dict[str, float]:
    """The terms of the question, `question_repeats` times, and of the passage, with their counts."""
    weights = Counter(analyze(passage))
    for term, count in Counter(analyze(question)).items():
        weights[term] += question_repeats * count
    return dict(weights)


def read_examples(index_dir: Path, num_examples: int, passage_chars: int, seed: int) -> tuple[PassageExample, ...]:
    """Training questions of an index stage, drawn at random, each with the beginning of its first evidence page.

    Raises:
        DataError: the questions or the pages cannot be read.
    """
    if not num_examples:
        return ()
    rows = schemas.read_table(index_dir / "questions.parquet", schemas.QUESTIONS).to_pylist()
    train = [schemas.to_question(row) for row in rows if row["split"] == "train"]
    examples = []
    for question in draw_questions(train, num_examples, seed) if train else []:
        page = question.evidence[0]
        is_page = (pl.col("file") == page.file) & (pl.col("page_number") == page.page_number)
        [text] = pl.scan_parquet(index_dir / "pages.parquet").filter(is_page).select("text").collect()["text"]
        examples.append(PassageExample(question.question, " ".join(text.split())[:passage_chars]))
    return tuple(examples)
