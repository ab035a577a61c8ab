"""Options of feedback: what an endpoint keeps, what is learned from it, and what is tried on it."""

from typing import Literal

from pydantic import Field

from drag_ray.config import BaseConfig
from drag_ray.search.config import RetrievalName

TrialMode = Literal["interleave", "shadow"]
VoiceKind = Literal["client", "session"]


class FeedbackConfig(BaseConfig):
    """Table of searches, and of what people say about them, in the folder `feedback` of the run."""

    enabled: bool = False
    """store searches and accept feedback on them (`/v1/feedback`). Off by default, because it stores the users' questions"""
    text: bool = True
    """keep the questions and queries themselves; without, only ids and pages are kept, from which no question can be learned"""
    retention_days: int = Field(default=90, ge=1, le=3650)
    """days after which stored searches and feedback are removed"""


class LearnConfig(BaseConfig):
    """Terms on which a question is made of feedback."""

    voices: VoiceKind = "client"
    """who counts once: an address, or each session that a client names, where all come from one address, as behind a proxy.
    Whoever means harm can name any number of sessions"""
    min_voices: int = Field(default=3, ge=1)
    """voices that must have opened a page before it is evidence, where nobody has marked it"""
    min_relevance: float = Field(default=0.5, gt=0, le=1)
    """share of those who looked at the page, by its place in the ranking, that must have opened it"""
    max_alone: int = Field(default=20, ge=0)
    """pages accepted as evidence with the support of a single voice, for each voice; raise it if there are few users"""


class TrialConfig(BaseConfig):
    """A trial of a challenger on real requests, beside the champion, which is what answers them now. It has the requests that
    name no model, or `champion`, and leave retrieval, order and sampling to the endpoint."""

    challenger: str = ""
    """name of the served model that is tried, or `question` for none; empty for no trial"""
    champion: str = ""
    """name of the served model that answers now, or `question`; empty: the endpoint's first adapter. A promoted challenger
    replaces it"""
    retrieval: RetrievalName | None = None
    """search of the challenger; empty: that of the endpoint"""
    rerank: bool | None = None
    """rerank the challenger's pages by serve.rerank; empty: as the endpoint does"""
    reranker: str = ""
    """served model of the task rerank that puts the challenger's pages in order; empty for none"""
    share: float = Field(default=0.5, gt=0, le=1)
    """share of these requests that takes part"""
    mode: TrialMode = "interleave"
    """interleave shows pages of both, drawn in turns, and the test decides by which are opened and marked; shadow shows the
    champion's and notes the ranks that the challenger gives them, by which nothing is decided"""
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    """chance that a challenger that is no better is found to be, however often anybody looks"""
    margin: float = Field(default=0.1, gt=0, lt=0.5)
    """how far from 1/2 the share of voices that the challenger wins may be, on either side, for the two to count as equal"""
    searches: int = Field(default=1, ge=1, le=99)
    """searches by which a voice votes, its first ones on which it prefers either; raise it, to an odd number, where few people
    search often"""
    voices: VoiceKind = "client"
    """who votes once: an address, or each session that a client names, where all come from one address, as behind a proxy.
    Whoever means harm can name any number of sessions"""
