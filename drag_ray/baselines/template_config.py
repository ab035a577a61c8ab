"""Options of the templates."""

from pydantic import Field

from drag_ray.config import BaseConfig


class TemplateConfig(BaseConfig):
    """Words for each kind of question."""

    least_questions: int = Field(default=30, ge=5)
    """smallest number of training questions of a kind; a rarer kind joins the most similar one with which it shares a third of
    its words"""
    tried_questions: int = Field(default=100, ge=2)
    """training questions of a kind on which words are tried, at most two thirds of them; as many others check the result"""
    num_words: int = Field(default=8, ge=1)
    """largest number of words of a kind"""
    num_candidates: int = Field(default=24, ge=1)
    """words that are tried, of those that distinguish the pages of its questions"""
    question_weight: float = Field(default=2.0, gt=0)
    """weight of a word of the question relative to an added one"""
    max_questions: int = Field(default=20_000, ge=1)
    """largest number of training questions that are used"""
