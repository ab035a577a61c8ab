"""Options of the search index, of the vectors beside it, and of what orders its rankings anew."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from pydantic import Field, FiniteFloat, model_validator

from drag_ray.config import BaseConfig
from drag_ray.storage.object_store import NameOrUri

AnalyzerName = Literal[
    "english",
    "plain",
    "cjk",
    "arabic",
    "danish",
    "dutch",
    "finnish",
    "french",
    "german",
    "greek",
    "hungarian",
    "italian",
    "norwegian",
    "portuguese",
    "romanian",
    "russian",
    "spanish",
    "swedish",
    "tamil",
    "turkish",
]
RetrievalName = Literal["bm25", "dense", "hybrid"]
Syntax = Literal["words", "query"]
Operator = Literal["or", "and"]
ColumnType = Literal["text", "number", "date", "boolean", "list"]
"""Of what a user says of documents."""

SYNTAX_HELP: dict[str, str] = {
    "words": "",
    "query": 'Search words may be combined: "exact phrase", AND, OR, NOT, brackets, prefix* and wild?card.',
}
"""What a model is told of each language; of plain words there is nothing to tell."""


class SearchConfig(BaseConfig):
    """Options of the analysis of pages and the language of queries.

    Ranking is BM25 with k1 = 1.2 and b = 0.75, which Tantivy fixes. A pair chosen by training questions puts evidence a little
    higher in some collections; what reads pages gains several times as much (`benchmarks/results/tune.json`).
    """

    analyzer: AnalyzerName = "english"
    """conversion of text to terms: a language name (lower case, stop words removed where Tantivy has a list, Snowball stems),
    plain (lower case only), or cjk (unigrams and bigrams of Chinese, Japanese and Korean characters, other words whole)"""
    syntax: Syntax = "words"
    """meaning of operators in a query; words: none, a query is a bag of words; query: "phrases", AND, OR, NOT, brackets,
    prefix* and wild?cards"""
    operator: Operator = "or"
    """or: a page may match any word and BM25 ranks; and: a page must hold every word"""
    max_query_ms: int = Field(default=300, ge=1)
    """estimated milliseconds that a query may cost on one core; the most expensive parts of a costlier one are left out, broad
    patterns first, and its turn records that (`partial_search`)"""


class EmbeddingConfig(BaseConfig):
    """Vectors of the pages, for the baselines dense and hybrid: what many would use instead of training."""

    model: NameOrUri = ""
    """a model of sentence-transformers, as a folder, a Hugging Face name or a place in an object store (see engine.model); empty
    for an index without vectors"""
    window_tokens: int = Field(default=256, ge=8)
    """tokens of the windows into which pages are cut, including those that the model adds; a page scores as its best window"""
    overlap_tokens: int = Field(default=64, ge=0)
    """tokens that a window shares with the one before it"""
    query_prompt: str = ""
    """text that the model expects before a query, for example "query: "; empty uses the one of the model's folder"""
    page_prompt: str = ""
    """text that the model expects before a page; empty uses the one of the model's folder"""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """number format of the model's weights; the vectors are float32"""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """where pages are embedded; auto takes GPUs if the cluster has one when the stage starts. Queries are embedded on CPUs"""
    batch_size: int = Field(default=32, ge=1)
    """windows that the model reads at once"""
    other_index: bool = False
    """embed an index with a model that finetune trained for another one; on another collection its vectors can find far less
    than words do. An index that has grown counts as another one"""

    @model_validator(mode="after")
    def _moves_on(self) -> Self:
        if self.overlap_tokens >= self.window_tokens:
            raise ValueError(
                f"overlap_tokens is {self.overlap_tokens}, which must be less than window_tokens ({self.window_tokens})"
            )
        return self


class ImageEmbeddingConfig(BaseConfig):
    """Vectors of the pictures of pages (corpus.page_images), for the tool image_search and searches with images."""

    model: NameOrUri = ""
    """a model that embeds texts and images (CLIP, SigLIP and the like): a folder, a Hugging Face name or a place in an object
    store (see engine.model); empty for an index without such vectors"""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """number format of the model's weights; the vectors are float32"""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """where pictures are embedded; auto takes GPUs if the cluster has one when the stage starts. Searches run on CPUs"""
    batch_size: int = Field(default=16, ge=1)
    """pictures that the model sees at once"""


RELEVANCE_INSTRUCTION = "Given a question, find the page of the document collection that answers it"


class ReaderConfig(BaseConfig):
    """A model that reads the question and a page at once.

    Attributes:
        section: what messages call these options.
    """

    section: ClassVar[str] = "rerank"

    model: NameOrUri = ""
    """a cross-encoder (a sequence classifier), or a causal model, which is asked whether the page answers the question; a folder,
    a Hugging Face name or a place in an object store (see engine.model). Or the folder of an adapter trained with the method
    rerank, which records its base model and prompt"""
    base: NameOrUri = ""
    """base model of an adapter; empty uses the one recorded in the adapter's folder, but never fetches it from an object store,
    because adapters are untrusted"""
    instruction: str = RELEVANCE_INSTRUCTION
    """task description in the prompt of a causal model"""
    dtype: Literal["float32", "bfloat16", "float16", "int8"] = "float32"
    """number format of the model's weights; int8 runs a cross-encoder on a CPU with ONNX Runtime, which is faster; its scores
    depend a little on the pages of a batch"""
    device: Literal["auto", "cpu", "gpu"] = "cpu"
    """device of the model; auto uses a GPU if there is one. An endpoint's model shares the GPU with the engine (lower
    engine.gpu_memory_utilization); an evaluation's uses all GPUs of the cluster after the engines have finished"""
    batch_size: int = Field(default=16, ge=1)
    """windows that the model reads at once"""


@dataclass(frozen=True)
class Factors:
    """Factors of the scores of features and of a model, where both were learned to be added as they are."""

    features: FiniteFloat
    model: FiniteFloat


class RerankConfig(ReaderConfig):
    """A model that reads the question and a page at once, and orders anew what another search finds first."""

    other_index: bool = False
    """let an endpoint use a reranker that was trained for another index, or has no note for which, as models of the Hub; on
    another collection it can order pages far worse than the search. An index that has grown counts as another one; an evaluation
    warns instead of refusing"""
    weight: float | None = Field(default=None, ge=0.0, le=1.0)
    """weight of the model's score; the rest is that of the search, both standardised over the pages that the model reads; 1, the
    default, uses only the model. With the baseline `features` these have the rest, and by default an evaluation learns both
    weights on validation questions"""
    depth: int = Field(default=50, ge=1)
    """best pages of a ranking that the model reads, at least as many as are requested"""
    page_chars: int | None = Field(default=None, ge=0)
    """characters of a page that the model reads at once: of a longer one the beginning and the part with most of the
    question's rare words; 0 reads all of it, in windows. The default is that of its rows (format.relevance_chars) for a
    trained reranker, and 0 for others"""
    window_tokens: int = Field(default=384, ge=8)
    """tokens of the windows of a page that is read whole, of which a sixth is that of the window before; it scores as its best
    window"""
