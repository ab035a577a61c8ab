"""Options of the format stage."""

from typing import Literal

from pydantic import Field

from drag_ray.config import BaseConfig

FormatName = Literal["sft_query", "sft_trajectory", "sft_context", "dpo", "reward"]


class FormatConfig(BaseConfig):
    """Which training rows are written, and from which searches."""

    formats: tuple[FormatName, ...] = Field(default=("sft_query", "sft_trajectory", "sft_context", "dpo", "reward"), min_length=1)
    """kinds of training rows to write"""
    validation_fraction: float = Field(default=0.1, ge=0.0, lt=1.0)
    """share of the questions whose rows are kept for validation"""
    include_reasoning: bool = True
    """train on the reasoning before a query; sft_trajectory always keeps the conversation as it was recorded"""
    max_searches_per_question: int = Field(default=4, ge=0)
    """best distinct successful queries that are kept of a question; 0 keeps all"""
    min_rank_score: float = Field(default=0.0, ge=0.0, le=1.0)
    """lowest rank score of a query to train towards; a query that finds nothing never counts"""
    max_pairs_per_question: int = Field(default=8, ge=0)
    """preference pairs that are kept of a question; 0 keeps all"""
    min_margin: float = Field(default=0.3, gt=0.0, le=1.0)
    """least difference of rank scores between the two sides of a preference pair"""
    seed: int = 0
    """seed of the validation split"""
