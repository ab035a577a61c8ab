"""Options of feedback: what an endpoint keeps, and what is learned from it."""

from typing import Literal

from pydantic import Field

from drag_ray.config import BaseConfig


class FeedbackConfig(BaseConfig):
    """Table of searches, and of what people say about them, in the folder `feedback` of the run."""

    enabled: bool = False
    """keep searches and take feedback on them (`/v1/feedback`). It is off because it stores what people ask"""
    text: bool = True
    """keep the questions and queries themselves; without, only ids and pages are kept, from which no question can be learned"""
    retention_days: int = Field(default=90, ge=1, le=3650)
    """days after which what was kept is removed"""


class LearnConfig(BaseConfig):
    """Terms on which a question is made of feedback."""

    voices: Literal["client", "session"] = "client"
    """who counts once: an address, or each session that a client names, where all come from one address, as behind a proxy.
    Whoever means harm can name any number of sessions"""
    min_voices: int = Field(default=3, ge=1)
    """voices that must have opened a page before it is evidence, where nobody has marked it"""
    min_relevance: float = Field(default=0.5, gt=0, le=1)
    """share of those who looked at the page, by its place in the ranking, that must have opened it"""
    max_alone: int = Field(default=20, ge=0)
    """pages that are evidence by the word of one voice alone, of each voice; raise it where few people ask"""
