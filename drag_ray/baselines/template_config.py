"""Options of the templates."""

from pydantic import Field

from drag_ray.config import BaseConfig


class TemplateConfig(BaseConfig):
    """Words for each kind of question."""

    least_questions: int = Field(default=30, ge=5)
    """training questions of a kind; rarer ones are taken for the likest other kind where the two share a third of their words"""
    tried_questions: int = Field(default=100, ge=2)
    """training questions of a kind that words are tried out on, at most two thirds of them; as many others are for checking"""
    num_words: int = Field(default=8, ge=1)
    """words of a kind at most"""
    num_candidates: int = Field(default=24, ge=1)
    """words that are tried, of those that set the pages of its questions apart"""
    question_weight: float = Field(default=2.0, gt=0)
    """how much a word of the question counts beside an added one"""
    max_questions: int = Field(default=20_000, ge=1)
    """training questions that are looked at, at most"""
