"""Options of the corpus: the documents, the questions and their split."""

from typing import Any, Literal, Self, cast, get_args

from pydantic import Field, model_validator

from drag_ray.config import BaseConfig
from drag_ray.search.config import ColumnType
from drag_ray.storage.object_store import NameOrUri

SplitBy = Literal["question", "document"]
COMMANDS = "commands"
"""The embedded corpus: the command reference of the AWS CLI, and the tasks that its examples solve as questions."""


class CorpusConfig(BaseConfig):
    """Documents, questions and their split."""

    documents: NameOrUri = COMMANDS
    """`commands` for the embedded corpus, or a file or folder of PDFs, images (.png, .jpg, .tif), texts (.txt, .md, .html, .docx)
    and page tables (.jsonl, .jsonl.gz, .parquet). A place in an object store (s3://, gs://, abfs://, hdfs://) is copied to the
    stage's folder for reading"""
    questions: NameOrUri = COMMANDS
    """`commands` for the questions of the embedded corpus, or a JSONL or Parquet file, which may be in an object store with its
    images among the documents. Empty (the default for your own documents): a pipeline writes questions from the pages (stage
    `questions`)"""
    metadata: NameOrUri = ""
    """a table (.csv, .jsonl, .parquet) that describes documents: a column `file`, which names a document as its pages do, and any
    others, by which searches can be filtered (docs/documents.md); may be in an object store"""
    metadata_types: tuple[str, ...] = ()
    """types of columns of that table as name=type: text, number, date, boolean or list (of texts); other cells are set aside. The
    type of other columns follows from all of their cells"""
    access_column: str = ""
    """column of that table with the groups that may see a document (text, or list of texts): an endpoint shows each key the
    documents of its groups only (docs/security.md)"""
    allow_unanswerable: bool = False
    """also accept questions without evidence; they are rolled out, but neither trained on nor evaluated, except in the task
    answer"""
    ocr: Literal["auto", "off", "always"] = "auto"
    """auto: OCR reads images, and PDF pages whose text layer holds fewer than 100 letters and digits although the page shows
    something, or cannot match the visible page; off: only text layers are used, and such pages are listed; always: OCR reads
    every page of a PDF or image"""
    page_images: bool = False
    """keep an image of every page of a PDF or image, for models that see pages"""
    page_image_dpi: int = Field(default=150, ge=36, le=600)
    """resolution of page images in dots per inch"""
    page_image_max_pixels: int = Field(default=2_000_000, ge=10_000)
    """largest number of pixels of a page image or a question's image; a larger page is rendered at a lower resolution"""
    page_words: int = Field(default=300, ge=1)
    """words of a page of a text (.txt, .md, .html, .docx) without page breaks; texts with page breaks are divided at these"""
    document_memory_gib: float = Field(default=4.0, ge=0.5)
    """GiB of memory for a process that reads documents; a document that needs more is set aside"""
    document_cpu_s: float = Field(default=600.0, gt=0)
    """CPU seconds for a document of up to 32 pages, and for each 32 pages of a larger one; a page with OCR takes 9. Reading stops
    after three parts exceed a limit. The wall clock limit is ten times as long, plus two minutes for the start. All parts of a
    document may take sixty times as long together, with OCR 4,000 pages; the parts after that are set aside"""
    document_pages: int = Field(default=10_000, ge=1)
    """largest number of pages of a PDF, TIFF or text; a document that claims more is set aside"""
    limit_pages: int = Field(default=0, ge=0)
    """largest number of pages to index; 0 takes all"""
    test_fraction: float = Field(default=0.3, ge=0, le=1)
    """share of the questions that go to the test split"""
    split_by: SplitBy = "question"
    """units that stay in one split; question: questions that share a page or a near-duplicate of it; document: also those that
    share a file"""
    seed: int = 0
    """seed of the split"""

    @property
    def column_types(self) -> dict[str, ColumnType]:
        """The types of columns by their names, as `metadata_types` says."""
        return {name: cast(ColumnType, kind) for name, _, kind in (column.rpartition("=") for column in self.metadata_types)}

    @model_validator(mode="after")
    def _has_columns_of_a_table(self) -> Self:
        if not self.metadata and (self.metadata_types or self.access_column):
            raise ValueError("metadata_types and access_column are of columns of corpus.metadata, and no such table is named")
        for column in self.metadata_types:
            name, _, kind = column.rpartition("=")
            if not name or kind not in get_args(ColumnType):
                raise ValueError(f"metadata_types {column!r} is not name=type, with one of {', '.join(get_args(ColumnType))}")
            if name == self.access_column and kind not in ("text", "list"):
                raise ValueError(f"metadata_types {column!r}: access_column holds names of groups, which are text or list")
        return self

    @model_validator(mode="before")
    @classmethod
    def _has_no_questions_of_other_documents(cls, options: Any) -> Any:
        if isinstance(options, dict) and "documents" in options and "questions" not in options:
            documents: Any = options["documents"]
            return options | {"questions": documents if documents == COMMANDS else ""}
        return options
