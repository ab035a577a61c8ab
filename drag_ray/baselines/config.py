"""Options of the baselines that have any."""

from pydantic import Field

from drag_ray.config import BaseConfig
from drag_ray.engine.sampling import PresetName


class Rm3Config(BaseConfig):
    """Pseudo-relevance feedback. Names and defaults are those of Anserini and Pyserini."""

    fb_docs: int = Field(default=10, ge=1)
    """best pages for the question that are taken for relevant"""
    fb_terms: int = Field(default=10, ge=1)
    """terms of these pages that join the query"""
    original_query_weight: float = Field(default=0.5, ge=0, le=1)
    """share of the question's own terms in the query's weights"""
    max_doc_share: float = Field(default=0.1, gt=0, le=1)
    """terms in a larger share of all pages than this do not join the query"""


class PassageConfig(BaseConfig):
    """Passages that the base model writes for a question (hyde, query2doc)."""

    max_tokens: int = Field(default=128, ge=1)
    """tokens of a passage, and of the thinking before it where the model thinks"""
    question_repeats: int = Field(default=5, ge=1)
    """query2doc: times that the question stands before the passage in the query"""
    num_examples: int = Field(default=4, ge=0)
    """query2doc: training questions with their pages that the prompt shows"""
    example_chars: int = Field(default=400, ge=1)
    """query2doc: characters of a page that an example shows"""


class BestOfConfig(BaseConfig):
    """Queries that the base model draws for the run's reward model to choose from (best_of, drawn)."""

    samples: int = Field(default=8, ge=2)
    """queries of which the reward model chooses one"""
    preset: PresetName = "default"
    """how they are drawn"""
