"""Options of the tune stage."""

from dataclasses import dataclass

from pydantic import Field

from drag_ray.agent.config import AgentConfig
from drag_ray.config import BaseConfig, Sections


class TuneConfig(BaseConfig):
    """Options of the choice of a search, by training questions."""

    limit: int = Field(default=1000, ge=0)
    """training questions, drawn at random: one half to choose by, the other to check the choice; 0 takes all"""
    depth: int = Field(default=50, ge=1, le=100)
    """pages that a reranker may read for each question: `tune` chooses its search by the recall at this depth, and fewer pages
    where they lose next to nothing of it. Equal to evaluate.rerank.depth"""


@dataclass(frozen=True)
class TuneSections(Sections):
    """The sections of the tune stage."""

    seed: int
    agent: AgentConfig
    tune: TuneConfig


READ_OF_AGENT = ("task", "query_mode", "question_words", "retrieval", "dense_weight", "depth")
"""What the stage reads of its agent: others change nothing of what a question itself finds."""
