"""Requests to the search routes."""

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drag_ray import removed
from drag_ray.engine.sampling import PresetName
from drag_ray.search.config import RetrievalName
from drag_ray.serve.access.limits import RefusalError, parse_body

MAX_TOP_K = 100
_MAX_PROBLEMS = 10


class QuestionRequest(BaseModel):
    """A question to a model. What is left out is as the model was trained, which for sampling means as it was evaluated."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    question: str = Field(min_length=1)
    model: str = ""
    """name of the base model or of an adapter; empty for the endpoint's first adapter, or the base model where it has none"""
    preset: PresetName | None = None
    """sampling preset"""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """of replies that are drawn; equal seeds draw equal replies"""
    question_weight: float | None = Field(default=None, gt=0, le=100, allow_inf_nan=False)
    """how much a word of the question counts beside an added one, for a model that adds words to it"""
    retrieval: RetrievalName | None = None
    """what finds the pages: words, vectors, or both; serve.retrieval where nothing is said"""
    rerank: bool | None = None
    """whether a model orders them anew; it does wherever serve.rerank.model names one, where nothing is said"""


class SearchRequest(QuestionRequest):
    """A question whose pages are wanted."""

    reranker: str = ""
    """name of a served model that was trained to put candidates in order (agent.task rerank), which orders what was found anew"""
    top_k: int | None = Field(default=None, ge=1, le=MAX_TOP_K)
    """pages to return; as many as the evaluation looks at (agent.depth) where nothing is said"""


class AskRequest(QuestionRequest):
    """A question whose answer is wanted."""

    stream: bool = False
    """send each turn as soon as it is over, as server-sent events"""
    show_images: bool = False
    """send with each turn what its tool showed, small, as data: URLs"""


RequestT = TypeVar("RequestT", bound=BaseModel)


def read_request(request_type: type[RequestT], body: bytes) -> RequestT:
    """The request in a body; null is as good as nothing.

    Raises:
        RefusalError: it is not JSON, or holds other keys or values than it may; names each of them.
    """
    try:
        return request_type.model_validate({name: value for name, value in parse_body(body).items() if value is not None})
    except ValidationError as error:
        raise RefusalError(400, describe_problems(error)) from None


def describe_problems(error: ValidationError) -> str:
    """The first problems of a request, key by key."""
    located = [(".".join(map(str, problem["loc"])), problem["msg"]) for problem in error.errors()]
    problems = [f"{key[:80]}: {removed.FIELDS.get(key, message)}" for key, message in located]
    more = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
    return "; ".join(problems[:_MAX_PROBLEMS]) + more + "."
