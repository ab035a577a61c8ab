"""Options of the corpus: which documents, which questions, and how the questions are split."""

from typing import Literal

from pydantic import Field

from drag_ray.config import BaseConfig


class CorpusConfig(BaseConfig):
    """Documents, questions and their split."""

    documents: str = "manuals"
    """`manuals` for the embedded corpus, or a file or a folder with PDFs and page tables (.jsonl, .jsonl.gz, .parquet)"""
    questions: str = "manuals"
    """`manuals` for the questions of the embedded corpus, or a JSONL or Parquet file; empty for none"""
    manual_packages: tuple[str, ...] = Field(default=("numpy", "pandas", "polars", "pyarrow", "torch"), min_length=1)
    """packages whose reference manuals make up the embedded corpus"""
    limit_pages: int = Field(default=0, ge=0)
    """pages to index at most; the manuals then give each package an even share; 0 takes all"""
    limit_questions: int = Field(default=0, ge=0)
    """questions to keep at most, drawn with `seed`; 0 keeps all"""
    test_fraction: float = Field(default=0.3, ge=0, le=1)
    """share of the questions that go to the test split"""
    split_by: Literal["question", "document"] = "question"
    """what never spans the split: questions that share a page, or questions that share a file"""
    seed: int = 0
    """draws the limited questions and the split"""
