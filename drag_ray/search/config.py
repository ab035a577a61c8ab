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

    Ranking is BM25 with k1 = 1.2 and b = 0.75. Tantivy fixes both, and its Python binding has no way to set them. A pair that is
    chosen by training questions puts evidence a little higher in some collections and finds no more of it among the first 50
    pages (`benchmarks/results/tune.json`); what reads pages gains several times as much. On retrieval sets the best pair over
    k1 from 0.6 to 2 and b from 0.3 to 1 (measured with bm25s, same terms) would add to nDCG@10 0.004 on SciFact's training
    questions, 0.009 on Cranfield and 0.011 on CISI.
    """

    analyzer: AnalyzerName = "english"
    """how text becomes terms: a language name (lower case, stop words removed where Tantivy has a list, Snowball stems),
    plain (lower case alone), or cjk (unigrams and bigrams of Chinese, Japanese and Korean characters, other words whole)"""
    syntax: Syntax = "words"
    """what the operators in a query mean; words: nothing, a query is a bag of words; query: "phrases", AND, OR, NOT, brackets,
    prefix* and wild?cards"""
    operator: Operator = "or"
    """or: a page may match any word and BM25 ranks; and: a page must hold every word"""
    max_query_ms: int = Field(default=300, ge=1)
    """milliseconds that a query may cost by estimate, on one core; of one that costs more the dearest parts are left out, broad
    patterns first, and its turn says so (`partial_search`)"""
    num_shards: int = Field(default=8, ge=1, le=256)
    """parts of the corpus that are indexed in parallel; rankings do not depend on it, and from 8 on the parts are merged"""


class EmbeddingConfig(BaseConfig):
    """Vectors of the pages, for the baselines dense and hybrid: what many would use instead of training."""

    model: NameOrUri = ""
    """a model of sentence-transformers, as a folder, a Hugging Face name or a place in an object store (see engine.model); empty
    for an index without vectors"""
    window_tokens: int = Field(default=256, ge=8)
    """tokens of the windows that pages are cut into, counting those that the model adds; a page is as good as its best one"""
    overlap_tokens: int = Field(default=64, ge=0)
    """tokens that a window shares with the one before it"""
    query_prompt: str = ""
    """text that the model expects before a query, for example "query: "; empty takes what the model's folder says"""
    page_prompt: str = ""
    """text that the model expects before a page; empty takes what the model's folder says"""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """number format of the model's weights; the vectors are float32"""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """where pages are embedded; auto takes GPUs if the cluster has one when the stage starts. Queries are embedded on CPUs"""
    batch_size: int = Field(default=32, ge=1)
    """windows that the model reads at once"""
    other_index: bool = False
    """embed an index with a model that finetune has trained for another one: of another collection its vectors can find far less
    than words do. An index that has grown is another one too"""

    @model_validator(mode="after")
    def _moves_on(self) -> Self:
        check_overlap(self.overlap_tokens, self.window_tokens)
        return self


class ImageEmbeddingConfig(BaseConfig):
    """Vectors of the pictures of pages (corpus.page_images), for the tool image_search and searches with images."""

    model: NameOrUri = ""
    """a model that embeds texts and images alike (CLIP, SigLIP and their like), as a folder, a Hugging Face name or a place in
    an object store (see engine.model); empty for an index without such vectors"""
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
    """a cross-encoder (a model that classifies sequences), or a causal model, which is asked whether the page answers the
    question; as a folder, a Hugging Face name or a place in an object store (see engine.model). Or the folder of the adapter that
    finetune has trained with the method rerank, which knows its base model and what it is told"""
    base: NameOrUri = ""
    """the base model, where the model is an adapter; empty takes the one that the adapter's folder names, but none in an object
    store: such a folder may come from anywhere, and is not to have anything fetched"""
    instruction: str = RELEVANCE_INSTRUCTION
    """what a causal model is told of its task"""
    dtype: Literal["float32", "bfloat16", "float16", "int8"] = "float32"
    """number format of the model's weights; int8: of a cross-encoder on a CPU, which ONNX Runtime runs in less time, and whose
    scores depend a little on the pages read at once"""
    device: Literal["auto", "cpu", "gpu"] = "cpu"
    """where it runs; auto takes a GPU where there is one. An endpoint's stands beside the engine, which has to leave it room
    (engine.gpu_memory_utilization); an evaluation's has all GPUs of the cluster, once the engines have written"""
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
    """let an endpoint use one that was trained for another index: of another collection it can order pages far worse than the
    search does. An index that has grown is another one too; an evaluation says whether it is as good there, and asks nothing"""
    weight: float | None = Field(default=None, ge=0.0, le=1.0)
    """what its score counts beside that of the search, which has the rest, both standardised over the pages that it reads; 1: it
    alone, which is the default. Where there are features (the baseline `features`), these have the rest, and by default an
    evaluation learns on validation questions what each counts"""
    depth: int = Field(default=50, ge=1)
    """best pages that it reads of a ranking, at least as many as are wanted of it"""
    page_chars: int | None = Field(default=None, ge=0)
    """characters that it reads of a page: of a longer one how it begins and the part with most of the question's rare words, at
    once; 0 for all of it, in windows. Without it as many as its rows had (format.relevance_chars) for a reranker that finetune
    has trained, and all for others"""
    window_tokens: int = Field(default=384, ge=8)
    """tokens of the windows that a page is cut into where all of it is read; it is as good as its best one"""
    overlap_tokens: int = Field(default=64, ge=0)
    """tokens that a window shares with the one before it"""

    @model_validator(mode="after")
    def _moves_on(self) -> Self:
        check_overlap(self.overlap_tokens, self.window_tokens)
        return self


def check_overlap(overlap_tokens: int, window_tokens: int) -> None:
    """ValueError unless windows of so many tokens move on."""
    if overlap_tokens >= window_tokens:
        raise ValueError(f"overlap_tokens is {overlap_tokens}, which must be less than window_tokens ({window_tokens})")
