"""The agent behind the endpoint: the code of a collection, with the serving engine and the run's index."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import PageIndex, SearchEnvironment
from drag_ray.agent.rollout import NoteTurn, Rollouts
from drag_ray.agent.shown_images import Content, ShownImage, label_images
from drag_ray.agent.spans import RolloutTracer
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.agent.tasks import ORDERING
from drag_ray.cluster.metrics import RequestRecorder
from drag_ray.cluster.telemetry import TelemetryConfig
from drag_ray.corpus import image_store
from drag_ray.corpus.image_store import ImageStore
from drag_ray.engine.generate import Generation, Request
from drag_ray.errors import BudgetError, ConfigError, DataError, EngineDiedError, SearchIndexError
from drag_ray.search.config import SYNTAX_HELP
from drag_ray.search.searcher import Searcher
from drag_ray.serve.config import QUESTION_ALONE
from drag_ray.serve.ingress.key import Groups
from drag_ray.serve.ingress.limits import ENGINE_HAS_DIED, Limits, RefusalError
from drag_ray.serve.search.champions import Champions
from drag_ray.serve.search.messages import (
    AskAnswer,
    AskRequest,
    Describer,
    PageAnswer,
    QuestionRequest,
    SearchAnswer,
    SearchRequest,
    TurnAnswer,
    draw,
)
from drag_ray.serve.search.request_images import EndpointImages, RequestImages, SentImages
from drag_ray.serve.search.retrieval import Retrieval
from drag_ray.serve.search.served_index import ServedIndex
from drag_ray.serve.served_models import ServedModel, ServedModels
from drag_ray.types import ActionKind, Evidence, Hit, Hits, Page, Question, StopReason, Trajectory, Turn

if TYPE_CHECKING:
    from PIL.Image import Image

DrawFn = Callable[[Request, Any], Awaitable[Generation]]
"""From a request and vLLM's `LoRARequest`, or None, to the reply. Raises what a `GenerateFn` does."""

_NO_PICTURES = (
    "images: the model `question` compares them with pictures of pages, and the index has no vectors of these, or their model is "
    "gone; the endpoint's log says which. Build it with --corpus.page-images --image-embedding.model FOLDER, or ask a model that "
    "sees images."
)
_SEES_NONE = "images: the served models read only text. Start the endpoint with a model that sees images (engine.model)"
_BY_PICTURES = ", or search with the model `question`, by what the pictures of pages are like"
_HUNG_UP = 499
"""The status of a request whose client did not wait, as nginx counts it."""

_logger = logging.getLogger(__name__)


class SearchService:
    """Searches, asks and reads pages. Safe for many requests at once in one event loop, which no search holds up.

    `images` are what the engine and the tools of requests see, None where the model sees none; `champions` know who answers
    requests that name nobody, None for the default model."""

    def __init__(
        self,
        searcher: Searcher,
        retrieval: Retrieval,
        models: ServedModels,
        draw: DrawFn,
        limits: Limits,
        recorder: RequestRecorder | None = None,
        tracer: RolloutTracer | None = None,
        images: EndpointImages | None = None,
        champions: Champions | None = None,
    ) -> None:
        self._champions = champions
        self.index = ServedIndex(searcher, retrieval)
        self._models = models
        self._draw = draw
        self._limits = limits
        self._recorder = recorder or RequestRecorder()
        self._tracer = tracer or RolloutTracer(TelemetryConfig(), "vllm", {})
        self._images = images
        self._sent = SentImages(searcher.index_dir.parent)
        self._pictures = ImageStore(searcher.index_dir.parent / image_store.DIR_NAME)

    @property
    def takes_images(self) -> Literal["", "model", "question"]:
        """The use of images in questions: for models, which see them, or for the search without one alone; empty for none."""
        return "model" if self._images else "question" if self.index.retrieval.pictures else ""

    async def limit_to(self, groups: Groups) -> "SearchService":
        """The service for the key of a request: its searches, tools and pages are of the documents that the key may see. Raises
        RefusalError (see `ServedIndex.limit_to`)."""
        return self._over(await self.index.limit_to(groups))

    def _over(self, index: ServedIndex) -> "SearchService":
        service = copy(self)
        service.index = index
        return service

    async def search(self, request: SearchRequest, tool: str = "search") -> SearchAnswer:
        """The pages that a model's first search finds, or those of the question alone. Raises RefusalError where the question is
        too long, there is no such model, the index cannot be searched in this way, or the search failed. `tool`: what the request
        is recorded as."""
        if request.filter is not None:
            narrowed = self._over(await self.index.narrow(request.filter))
            return await narrowed.search(request.model_copy(update={"filter": None}))
        request = self._champions.resolve(request) if self._champions else request
        alone = request.model == QUESTION_ALONE
        used = self._models.base_name if alone else request.model
        with self._begin_images() as images, self._record(tool) as counts, self._use_model(request, used) as (model, agent):
            top_k = request.top_k or agent.depth
            retrieval = request.retrieval or self.index.retrieval.choose_name(agent)
            index = self.index.retrieval.choose(retrieval, agent.dense_weight)
            rerank_depth = self.index.retrieval.choose_depth(request.wants_rerank, top_k)
            order_depth = self._choose_order_depth(request.reranker)
            depth = max(agent.depth, top_k, rerank_depth, order_depth)
            sent = await self._read_images(request, not alone or bool(order_depth), alone)
            keys = await images.hold(sent) if images else ()
            if alone:
                name, query, hits = QUESTION_ALONE, None, await self._search_alone(index, request.question, sent, depth)
                if sent:
                    retrieval = f"{retrieval}+pictures" if request.question.strip() else "pictures"
            else:
                rollouts = self._build_rollouts(index, model, agent, depth, max_turns=1, images=images)
                task = _build_task(request, model, keys)
                trajectory = await self._run(rollouts, task, lambda turn, _: _count_turn(counts, turn))
                _check(trajectory, keys)
                name, query, hits = model.name, _read_query(trajectory), _list_hits(trajectory)
            if rerank_depth:
                hits = await asyncio.to_thread(self.index.retrieval.rerank, request.question, hits[:rerank_depth])
            if order_depth:
                hits = await self._order(request, index, hits[:depth], keys, images, lambda turn, _: _count_tokens(counts, turn))
            describer = Describer(self.index.searcher, agent, request.question, retrieval, bool(rerank_depth or order_depth))
            answer = await asyncio.to_thread(describer.describe_search, name, query, hits[:top_k])
            counts["request_pages"] += len(answer.pages)
        return answer

    def _choose_order_depth(self, reranker: str) -> int:
        """Pages that a served model is to put in order; 0 where none is asked to. Raises RefusalError where there is no such
        model, or it was not trained for it."""
        if not reranker:
            return 0
        with self._models.use(reranker) as model:
            agent = model.record.agent
        if agent.task not in ORDERING:
            fitting = " or ".join(ORDERING)
            raise RefusalError(
                400, f"reranker {reranker[:80]!r}: its task is {agent.task}, expected a model of the task {fitting}."
            )
        return agent.rerank.candidates

    async def _order(
        self,
        request: SearchRequest,
        index: PageIndex,
        hits: Sequence[Hit],
        keys: tuple[str, ...],
        images: RequestImages | None,
        note: NoteTurn,
    ) -> list[Hit]:
        """The same pages, the first of them in the order that the reranker gives them window by window."""
        candidates = tuple(hit.page for hit in hits)
        with self._use_model(request, request.reranker) as (model, agent):
            rollouts = self._build_rollouts(index, model, agent, max(agent.depth, len(hits)), max_turns=0, images=images)
            trajectory = await self._run(rollouts, _build_task(request, model, keys, candidates), note)
            _check(trajectory, keys)
        scores = {(hit.file, hit.page_number): hit.score for hit in hits}
        return [replace(hit, score=scores[hit.file, hit.page_number]) for hit in _list_hits(trajectory)]

    async def ask(self, request: AskRequest) -> AsyncGenerator[TurnAnswer | AskAnswer]:
        """Each turn of the agent as soon as it is over, and then the answer. Who stops to listen ends the agent's work. Raises
        RefusalError as `search`, also after some turns."""
        if request.filter is not None:
            narrowed = self._over(await self.index.narrow(request.filter))
            async with aclosing(narrowed.ask(request.model_copy(update={"filter": None}))) as answers:
                async for answer in answers:
                    yield answer
            return
        request = self._champions.resolve(request) if self._champions else request
        with (
            self._begin_images() as images,
            self._record("ask") as counts,
            self._use_model(request, request.model) as (model, agent),
        ):
            retrieval = request.retrieval or self.index.retrieval.choose_name(agent)
            index = self.index.retrieval.choose(retrieval, agent.dense_weight)
            rerank_depth = self.index.retrieval.choose_depth(request.wants_rerank, agent.depth)
            if rerank_depth:
                index = self.index.retrieval.order_by_question(index, request.question, rerank_depth)
            sent = await self._read_images(request, by_model=True)
            keys = await images.hold(sent) if images else ()
            describer = Describer(self.index.searcher, agent, request.question, retrieval, bool(rerank_depth))
            taken: asyncio.Queue[tuple[Turn, tuple[ShownImage, ...]] | None] = asyncio.Queue()
            rollouts = self._build_rollouts(index, model, agent, agent.depth, agent.max_iterations, images)

            def note_turn(turn: Turn, observation: Content) -> None:
                is_shown = request.show_images and turn.action is ActionKind.TOOL
                taken.put_nowait((turn, label_images(observation) if is_shown else ()))

            running = asyncio.create_task(self._run(rollouts, _build_task(request, model, keys), note_turn))
            running.add_done_callback(lambda _: taken.put_nowait(None))
            turns: list[TurnAnswer] = []
            try:
                while noted := await taken.get():
                    turns.append(await asyncio.to_thread(describer.describe_turn, *noted, images))
                    _count_turn(counts, noted[0])
                    counts["request_pages"] += len(turns[-1].pages)
                    yield turns[-1]
                _check(trajectory := await running, keys)
                yield await asyncio.to_thread(describer.describe_answer, trajectory, turns)
            finally:
                running.cancel()

    async def read_page(self, file: str, page_number: int, edge: int | None = None) -> PageAnswer:
        """The text of a page, and where `edge` is given its picture, if there is one, of at most so many pixels an edge. Raises
        RefusalError where the index does not have it."""
        with self._record("read_page"):
            page = await asyncio.to_thread(self.index.searcher.find_page, file, page_number)
            if page is None:
                raise RefusalError(404, f"{file[:200]!r}, page {page_number}: not in the index. Pages are counted from 1.")
            picture = await asyncio.to_thread(self._draw_page, page, edge) if edge and page.image else ""
        return PageAnswer(
            file=page.file, page_number=page.page_number, total_pages=page.total_pages, text=page.text, image=picture
        )

    def _draw_page(self, page: Page, edge: int) -> str:
        """The picture of a page of the index as a data: URL; empty where its file is lost or damaged, which the log says."""
        try:
            return draw(self._pictures.open(page.image), edge)
        except DataError as error:
            _logger.error("a picture of a page cannot be shown: %s", error)
            return ""

    def _begin_images(self) -> AbstractContextManager[RequestImages | None]:
        """The images of a request, until its end; None where the endpoint has none."""
        return self._images.begin() if self._images else nullcontext()

    async def _read_images(self, request: QuestionRequest, by_model: bool, by_vectors: bool = False) -> list["Image"]:
        """The images that a request sends, for a model, or for the vectors of page pictures. Raises RefusalError where the
        endpoint can make no use of them, or one is no picture within the limits."""
        if request.images and by_vectors and not self.index.retrieval.pictures:
            raise RefusalError(400, _NO_PICTURES)
        if request.images and by_model and not self._images:
            raise RefusalError(400, f"{_SEES_NONE}{_BY_PICTURES if self.index.retrieval.pictures else ''}.")
        return await self._sent.read(request.images)

    async def _search_alone(self, index: PageIndex, question: str, sent: Sequence["Image"], depth: int) -> Hits:
        """The hits of a question, and of the images that are sent with it, by themselves. Raises RefusalError where the index
        cannot be read, which the endpoint's log says."""
        try:
            if sent:
                return await asyncio.to_thread(self.index.retrieval.search_pictures, sent, question, index, depth)
            return await asyncio.to_thread(index.search, question, depth)
        except (SearchIndexError, ConfigError) as error:
            raise _refuse(error) from None

    @contextmanager
    def _record(self, tool: str) -> Generator[Counter[str]]:
        """Record a request when it is over, with what was counted meanwhile."""
        started, status = time.perf_counter(), 200
        counts: Counter[str] = Counter()
        try:
            yield counts
        except RefusalError as refusal:
            status = refusal.status
            raise
        except (asyncio.CancelledError, GeneratorExit):
            status = _HUNG_UP
            raise
        except Exception:
            status = 500
            raise
        finally:
            self._recorder.add_request(tool, status, time.perf_counter() - started, counts)

    @contextmanager
    def _use_model(self, request: QuestionRequest, name: str) -> Generator[tuple[ServedModel, AgentConfig]]:
        """The model of this name and its agent: as it was trained, but for what the request says."""
        self._limits.check_question(request.question)
        with self._models.use(name) as model:
            agent = model.record.agent
            changes: dict[str, Any] = {"max_tokens": min(agent.max_tokens, self._limits.config.max_tokens)}
            if request.question_weight is not None:
                changes["question_weight"] = request.question_weight
            yield model, agent.model_copy(update=changes)

    def _build_rollouts(
        self, index: PageIndex, model: ServedModel, agent: AgentConfig, depth: int, max_turns: int, images: RequestImages | None
    ) -> Rollouts:
        async def generate(request: Request) -> Generation:
            async with self._limits.limit_reply():
                return await self._draw(request, model.adapter)

        record = self.index.searcher.record
        environment = SearchEnvironment(index, agent.top_k, depth)
        search = (environment, record.fingerprint, SYNTAX_HELP[record.syntax])
        policy, pages = Policy(model.name), self.index.searcher
        return Rollouts(agent, policy, generate, *search, max_turns=max_turns, pages=pages, images=images)

    async def _run(self, rollouts: Rollouts, task: RolloutTask, note_turn: NoteTurn = lambda *_: None) -> Trajectory:
        try:
            return await self._tracer.run(rollouts, task, note_turn)
        except EngineDiedError as error:
            _logger.error("%s", error)
            raise RefusalError(503, ENGINE_HAS_DIED) from error
        except BudgetError as error:
            raise RefusalError(504, str(error)) from None


def _count_turn(counts: Counter[str], turn: Turn) -> None:
    counts["request_queries"] += turn.action is ActionKind.SEARCH and bool(turn.query)
    _count_tokens(counts, turn)


def _count_tokens(counts: Counter[str], turn: Turn) -> None:
    counts["request_prompt_tokens"] += turn.reply.num_prompt_tokens
    counts["request_completion_tokens"] += turn.reply.num_completion_tokens


def _read_query(trajectory: Trajectory) -> str | None:
    """The query of the first turn; None where that holds no search."""
    turn = trajectory.turns[0]
    return turn.query if turn.action is ActionKind.SEARCH else None


def _refuse(problem: object) -> RefusalError:
    """The refusal of a search that failed; what of the endpoint's own went wrong is said in its log alone."""
    _logger.error("a search failed: %s", problem)
    return RefusalError(500, "the search failed; see the endpoint's log.")


def _list_hits(trajectory: Trajectory) -> Sequence[Hit]:
    """Hits of the first search, or the last order of candidates; hits of the question where no reply held any."""
    turns = trajectory.turns[::-1] if trajectory.task in ORDERING else trajectory.turns[:1]
    return next((turn.ranking.hits for turn in turns if turn.action is ActionKind.SEARCH), trajectory.question_search.hits)


def _build_task(
    request: QuestionRequest, model: ServedModel, keys: tuple[str, ...], candidates: tuple[Evidence, ...] = ()
) -> RolloutTask:
    question = Question(id="request", question=request.question, evidence=(), images=keys, candidates=candidates)
    return RolloutTask(question, 0, request.preset or model.record.preset, request.seed)


def _check(trajectory: Trajectory, keys: tuple[str, ...]) -> None:
    """RefusalError where a rollout, with images of these keys, failed."""
    if not trajectory.error:
        return
    if trajectory.stop_reason is StopReason.CONTEXT_LENGTH:
        raise RefusalError(400, f"{trajectory.error}. Ask a shorter question{', or send fewer images' if keys else ''}.")
    raise _refuse(trajectory.error)
