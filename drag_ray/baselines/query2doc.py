"""Query2doc: Wang, Yang and Wei, Query2doc: Query Expansion with Large Language Models (2023), in its form for BM25.

The question five times, then a passage, is the query; the prompt for the passage shows training questions with their pages.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from drag_ray.baselines.baseline import Sources
from drag_ray.baselines.passages import Analyze, PassageBaseline, PassageConfig
from drag_ray.baselines.weights import expand_terms
from drag_ray.engine.generate import Message
from drag_ray.storage.file_access import reading

_REQUEST = "Write a passage that answers the given query.\n\nQuery: {question}\nPassage:"
_QUESTION_REPEATS = 5


@dataclass(frozen=True, slots=True)
class PassageExample:
    """A training question with the beginning of a page that answers it."""

    question: str
    passage: str


@dataclass(frozen=True)
class Query2doc(PassageBaseline):
    """Searches for the question and a passage that the engine writes, shown `examples`."""

    name = "query2doc"
    summary = "the question and a passage that the base model writes, having seen pages of training questions alone"

    examples: tuple[PassageExample, ...] = ()

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """With the run's options, and examples from its index."""
        options = sources.options.take(PassageConfig)
        drawn = (options.num_examples, options.example_chars, sources.seed)
        return cls(options, read_examples(sources.index_dir, *drawn, sources.written_dir))

    def build_messages(self, question: str) -> tuple[Message, ...]:
        """The paper's request, with the examples as earlier turns of a conversation."""
        messages: list[Message] = []
        for example in self.examples:
            messages.append({"role": "user", "content": _REQUEST.format(question=example.question)})
            messages.append({"role": "assistant", "content": example.passage})
        messages.append({"role": "user", "content": _REQUEST.format(question=question)})
        return tuple(messages)

    def weigh_terms(self, question: str, passage: str, analyze: Analyze) -> dict[str, float]:
        """The terms of the question, `_QUESTION_REPEATS` times, and of the passage, with their counts."""
        return expand_terms(analyze(question), _QUESTION_REPEATS, Counter(analyze(passage)))


def read_examples(
    index_dir: Path, num_examples: int, passage_chars: int, seed: int, written_dir: Path | None = None
) -> tuple[PassageExample, ...]:
    """Training questions of a run (see `read_run_questions`), drawn at random, each with how its first evidence page begins.

    Raises:
        DataError: the questions cannot be read.
        ArtifactError: the pages cannot be read.
    """
    import polars as pl

    from drag_ray.corpus.questions import draw_questions, read_split

    if not num_examples:
        return ()
    train = read_split(index_dir, "train", written_dir)
    examples: list[PassageExample] = []
    pages_path = index_dir / "pages.parquet"
    for question in draw_questions(train, num_examples, seed) if train else []:
        page = question.evidence[0]
        is_page = (pl.col("file") == page.file) & (pl.col("page_number") == page.page_number)
        with reading(pages_path):
            [text] = pl.scan_parquet(pages_path, glob=False).filter(is_page).select("text").collect()["text"]
        examples.append(PassageExample(question.question, " ".join(text.split())[:passage_chars]))
    return tuple(examples)
