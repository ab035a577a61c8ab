"""Requests to the search routes, and their answers."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from drag_ray import removed
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.shown_images import ShownImage
from drag_ray.corpus.question_images import MAX_IMAGES
from drag_ray.engine.sampling import PresetName
from drag_ray.feedback.events import Action
from drag_ray.feedback.search_ids import MAX_ID_CHARS
from drag_ray.search.config import ColumnType, RetrievalName
from drag_ray.search.searcher import Searcher
from drag_ray.search.weighted_words import strip_weights
from drag_ray.serve.ingress.limits import RefusalError
from drag_ray.tools.images.rollout_images import ImageSource
from drag_ray.types import ActionKind, Evidence, Hit, Trajectory, Turn

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_TOP_K = 100
MAX_SESSION_CHARS = 128
_MAX_PROBLEMS = 10
_PICTURE_EDGE = 640
"""pixels of the longer edge of an image that is sent"""
_PICTURE_QUALITY = 75


class _Request(BaseModel):
    """Root of all that the search routes are asked."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class QuestionRequest(_Request):
    """A question to a model. What is left out is as the model was trained, which for sampling means as it was evaluated."""

    images: list[str] = Field(default=[], max_length=MAX_IMAGES)
    """what is asked about, as data: URLs of pictures; for a model that sees images, or for the vectors of page pictures"""
    question: str = Field(default="", validate_default=True, min_length=0)  # a limit has it checked to be Unicode
    """empty only beside images"""
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
    """whether they are put in another order; where nothing is said they are wherever serve.rerank names what does, unless there
    are images, which that does not see"""
    session: str = Field(default="", max_length=MAX_SESSION_CHARS)
    """name of the client's own for what belongs together, kept as a pseudonym; feedback alone makes something of it"""
    filter: dict[str, Any] | None = None
    """what the metadata of their documents are to meet (see `search.metadata`)"""

    @field_validator("filter")
    @classmethod
    def _is_flat(cls, conditions: dict[str, Any] | None) -> dict[str, Any] | None:
        for condition in (conditions or {}).values():
            for part in condition.values() if isinstance(condition, dict) else [condition]:
                if any(isinstance(value, dict | list) for value in (part if isinstance(part, list) else [part])):
                    raise ValueError("a condition is a value, a list of values, or operators with a value or a list of values")
        return conditions

    @field_validator("question")
    @classmethod
    def _asks_something(cls, question: str, others: ValidationInfo) -> str:
        if not question and not others.data.get("images"):
            raise ValueError("expected a text, or images beside it")
        return question

    @field_validator("rerank")
    @classmethod
    def _has_text_to_order_by(cls, rerank: bool | None, others: ValidationInfo) -> bool | None:
        if rerank and not others.data.get("question", "?").strip():
            raise ValueError("pages are put in another order by the text of the question, which is empty")
        return rerank

    @property
    def wants_rerank(self) -> bool | None:
        """`rerank`, or what it is where nothing is said: no beside images, and otherwise the endpoint's to say."""
        return bool(self.rerank and self.question.strip()) if self.images else self.rerank


class SearchRequest(QuestionRequest):
    """A question whose pages are wanted. With the model `question` no model writes anything: the pages are what the question
    finds by itself, put in order as others are."""

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


class PageRequest(_Request):
    """A page whose text is wanted, and its picture where the index has one."""

    file: str = Field(min_length=1)
    page_number: int = Field(ge=1, lt=2**31)
    edge: int | None = Field(default=None, ge=16, le=4096)
    """pixels of the longer edge of the picture, at most; none where nothing is said"""


class FeedbackRequest(_Request):
    """An action on a page of a search, or the word that its question was asked again."""

    search_id: str = Field(max_length=MAX_ID_CHARS)
    """as the search was answered with"""
    action: Action
    """a page was opened, or marked right or wrong; or the question was asked again"""
    file: str = ""
    page_number: int = Field(default=1, ge=1, lt=2**31)
    rank: int | None = Field(default=None, ge=1)
    """where the page was shown; the search id says so too, and it is refused if they differ"""
    next_search_id: str = Field(default="", max_length=MAX_ID_CHARS)
    """of the search that asked again"""


RequestT = TypeVar("RequestT", bound=BaseModel)


def read_request(request_type: type[RequestT], fields: Mapping[str, Any]) -> RequestT:
    """The request of these fields; null is as good as nothing. Raises RefusalError where it holds other keys or values than it
    may; names the first of them."""
    try:
        return request_type.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        raise RefusalError(400, _describe_problems(error, request_type)) from None


def _describe_problems(error: ValidationError, request_type: type[BaseModel]) -> str:
    """The first problems of a request, key by key."""
    located = [(".".join(map(str, problem["loc"])), problem["msg"]) for problem in error.errors()]
    has_unknown = any(problem["type"] == "extra_forbidden" for problem in error.errors())
    known = f" The fields are {', '.join(request_type.model_fields)}." if has_unknown else ""
    problems = [f"{key[:80]}: {removed.FIELDS.get(key, message)}" for key, message in located]
    more = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
    return "; ".join(problems[:_MAX_PROBLEMS]) + more + "." + known


class Answer(BaseModel):
    """Root of all that the search routes answer with."""

    model_config = ConfigDict(frozen=True)


class FoundPage(Answer):
    """A page of a ranking: its 1-based number and rank, its score, and the part of it that is about the query.

    The score is that of BM25, the cosine of the best vector, that of the fusion of both rankings, or that of the model that
    ordered the ranking anew. For a key of some groups it is 1 / rank: BM25 says on how many pages of all documents a word is.
    """

    rank: int
    file: str
    page_number: int
    score: float
    snippet: str

    @property
    def page(self) -> Evidence:
        """The page by its name, without its place in the ranking."""
        return Evidence(self.file, self.page_number)


class Citation(Answer):
    """A page that an answer names. A model can name one that is not there: such a page does not exist and has no snippet."""

    file: str
    page_number: int
    exists: bool
    snippet: str


class PageAnswer(Answer):
    """The text of a page, and its picture as a data: URL; empty where there is none or none is asked for."""

    file: str
    page_number: int
    total_pages: int
    text: str
    image: str = ""


class FeedbackAnswer(Answer):
    """The mark that was kept: it is on the disk."""

    object: Literal["feedback"] = "feedback"
    action: Action
    rank: int


class SearchAnswer(Answer):
    """The pages for a question.

    `query` is what the model wrote: words to search for, or in the mode `expand` words that were searched with the question, none
    if it is empty. Where the model's reply held no search, or none was asked, it is null, and the pages are what the question
    itself finds.
    `retrieval` is what found them: `bm25`, `dense`, `hybrid`, `pictures`, or one of the first three with `+pictures`. `reranked`
    says whether a model has ordered them anew. `search_id` is what feedback names the search by; empty where none is taken.
    """

    object: Literal["search"] = "search"
    search_id: str = ""
    model: str
    question: str
    query: str | None
    query_mode: Literal["rewrite", "expand"]
    retrieval: str
    reranked: bool
    pages: list[FoundPage]


class ShownPicture(Answer):
    """An image that a tool showed: its name and what it is, and a small JPEG of it as a data: URL."""

    label: str
    url: str


class TurnAnswer(Answer):
    """One turn of the agent: its action, the query that it searched for and the pages that it was shown, or the reply where no
    action can be read in it.

    Of a call of a tool there are its name, its arguments as JSON, and what went wrong with it, empty if nothing did; and what it
    showed, where the request asks for that.
    """

    type: Literal["turn"] = "turn"
    step: int
    action: ActionKind
    reasoning: str
    query: str
    pages: list[FoundPage]
    reply: str = ""
    tool: str = ""
    arguments: str = ""
    tool_error: str = ""
    images: list[ShownPicture] = []


class AskAnswer(Answer):
    """The end of the agent's work: the answer, empty where it gave none, the pages that it cites, and its turns.

    `retrieval`, `reranked` and `search_id` are as in `SearchAnswer`.
    """

    type: Literal["answer"] = "answer"
    search_id: str = ""
    model: str
    question: str
    answer: str
    citations: list[Citation]
    stop_reason: str
    retrieval: str
    reranked: bool
    turns: list[TurnAnswer]


class IndexAnswer(Answer):
    """The index that is searched at this moment: since when, its pages, the columns of documents that a filter may ask of, and
    what kept a newer one from taking its place, empty if nothing did. For a key of some groups the fingerprint is empty."""

    object: Literal["index"] = "index"
    fingerprint: str
    opened_at: str
    pages: int
    filters: dict[str, ColumnType]
    problem: str


@dataclass(frozen=True)
class Describer:
    """Writes answers about one question to one agent. Its methods read the index, so call them beside the event loop."""

    _searcher: Searcher
    _agent: AgentConfig
    _question: str
    _retrieval: str
    _reranked: bool

    def describe_search(self, model: str, query: str | None, hits: Sequence[Hit]) -> SearchAnswer:
        """A search with what a model wrote, None for nothing, and the pages that are to be returned."""
        return SearchAnswer(
            model=model,
            question=self._question,
            query=query,
            query_mode=self._agent.query_mode,
            retrieval=self._retrieval,
            reranked=self._reranked,
            pages=self._describe_pages(hits, query or ""),
        )

    def describe_turn(self, turn: Turn, shown: Sequence[ShownImage] = (), images: ImageSource | None = None) -> TurnAnswer:
        """A turn of a rollout, with what its tool showed and is to be sent, from its `images`."""
        return TurnAnswer(
            step=turn.step,
            action=turn.action,
            reasoning=turn.reasoning,
            query=turn.query,
            pages=self._describe_pages(turn.ranking.hits[: self._agent.top_k], turn.query),
            reply=turn.raw_text if turn.action is ActionKind.INVALID else "",
            tool=turn.call.tool,
            arguments=turn.call.arguments,
            tool_error=turn.call.error,
            images=[ShownPicture(label=image.label, url=draw(images.open(image.key))) for image in shown] if images else [],
        )

    def describe_answer(self, trajectory: Trajectory, turns: list[TurnAnswer]) -> AskAnswer:
        """A rollout at its end."""
        answer = trajectory.final_answer
        pages = [(cited, self._searcher.find_page(cited.file, cited.page_number)) for cited in dict.fromkeys(answer.citations)]
        return AskAnswer(
            model=trajectory.provenance.model,
            question=self._question,
            answer=answer.text,
            citations=[
                Citation(
                    file=page.file if page else cited.file,
                    page_number=cited.page_number,
                    exists=page is not None,
                    snippet=self._searcher.snippet(cited, answer.text).text if page else "",
                )
                for cited, page in pages
            ],
            stop_reason=trajectory.stop_reason.value,
            retrieval=self._retrieval,
            reranked=self._reranked,
            turns=turns,
        )

    def _describe_pages(self, hits: Sequence[Hit], query: str) -> list[FoundPage]:
        # What is added may weigh more or less, as in `prognosis^2`; the number is not searched for.
        asked = f"{self._question} {strip_weights(query)}" if self._agent.expands else query or self._question
        return [
            FoundPage(
                rank=hit.rank,
                file=hit.file,
                page_number=hit.page_number,
                score=1 / hit.rank if self._searcher.is_limited else hit.score,
                snippet=self._searcher.snippet(hit, asked).text,
            )
            for hit in hits
        ]


def draw(image: "Image", edge: int = _PICTURE_EDGE) -> str:
    """A JPEG of at most so many pixels an edge, as a data: URL."""
    image.thumbnail((edge, edge))
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=_PICTURE_QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
