"""A page on which a person looks at questions beside the pages that answer them, and says which are kept."""

import logging
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drag_ray.cluster.interruption import wait_for_a_signal
from drag_ray.config import build
from drag_ray.corpus import image_store, question_images
from drag_ray.corpus.config import COMMANDS, CorpusConfig
from drag_ray.corpus.image_store import ImageStores
from drag_ray.corpus.readers.document_process import open_process
from drag_ray.corpus.readers.pdf import render_page
from drag_ray.corpus.verdicts import VERDICT, Verdict, is_seen, read_verdicts
from drag_ray.errors import ArtifactError, DataError, ServeError
from drag_ray.questions.review import ReviewItem, format_agreement
from drag_ray.search.searcher import Searcher
from drag_ray.serve.ingress.guard import build_answer, check_is_local
from drag_ray.serve.ingress.key import hash_key
from drag_ray.serve.ingress.limits import RefusalError
from drag_ray.serve.web_page import PRIVATE_HEADERS, answer_page
from drag_ray.storage.appended_lines import append_line
from drag_ray.storage.artifacts import require_manifest
from drag_ray.storage.file_access import make_private
from drag_ray.tools.images.rollout_images import name_image
from drag_ray.types import Page, Question

HOST = "127.0.0.1"
VERDICTS_PATH = Path("review", "verdicts.jsonl")
"""in the folder of a run"""
_COOKIE = "drag_ray_review"
_MAX_BODY_BYTES = 100_000
_DPI = 110.0
_MAX_PIXELS = 2_000_000

_logger = logging.getLogger(__name__)


class Review:
    """The questions of a run that are looked at, and the verdicts on them."""

    def __init__(self, run_dir: Path, items: Sequence[ReviewItem]) -> None:
        self.items = items
        self.path = run_dir / VERDICTS_PATH
        self.verdicts = read_verdicts(self.path)
        self._index_dir = run_dir / "index"
        self._drawing = threading.Lock()  # a process draws one page at a time
        self._searcher = Searcher(self._index_dir / "search_index")

    def list_questions(self) -> list[dict[str, Any]]:
        """The questions as the page shows them, each with the verdict on it if there is one. That a filter has left one out is
        not told: who knows it is no judge of the filter."""
        return [self._describe(item) for item in self.items]

    def _describe(self, item: ReviewItem) -> dict[str, Any]:
        question = item.question
        asked, answer = question.question, " / ".join(question.answers)
        images = list(map(name_image, range(len(question.images))))
        said = self.verdicts[question.id] if is_seen(question, self.verdicts) else None
        edited = said if said and said.verdict == "edit" else None
        return {
            "id": question.id,
            "asked": asked,
            "answered": answer,
            "question": edited.question if edited else asked,
            "answer": edited.answer if edited else answer,
            "pages": [*images, *(f"{page.file}, page {page.page_number}" for page in question.evidence)],
            "verdict": said.verdict if said else "",
        }

    def note(self, place: int, verdict: Verdict) -> None:
        """Keep a verdict on the question at a place; it is on the disk then. Raises DataError where it is on another question and
        ArtifactError where it cannot be written."""
        question = self._find(place)
        if verdict.id != question.id or (verdict.verdict == "edit" and not verdict.question.strip()):
            raise DataError(
                f"a verdict on {verdict.id[:80]!r}, expected one on {question.id!r}, with a question if it is edited."
            )
        verdict = replace(verdict, asked=question.question)
        make_private(self.path.parent)
        append_line(self.path, asdict(verdict))
        self.verdicts[verdict.id] = verdict

    def read_page(self, place: int, number: int) -> Page:
        """The image or, after these, the evidence page, counted from 0, of the question at a place. Raises DataError where the
        index does not have it."""
        question = self._find(place)
        shown = [*question.images, *question.evidence]
        if number >= len(shown):
            raise DataError(f"question {place}: has {len(shown)} pages, got {number}.")
        evidence = shown[number]
        if isinstance(evidence, str):
            return Page(name_image(number), 1, 1, "", image=evidence)
        page = self._searcher.find_page(evidence.file, evidence.page_number)
        if page is None:
            raise DataError(f"{evidence.file}, page {evidence.page_number}: not in the index.")
        return page

    def draw_page(self, page: Page) -> bytes:
        """The JPEG of a page: of the index or, of a PDF whose file is still there, as it is drawn now. Raises DataError where
        there is neither, or it cannot be drawn."""
        if page.image:
            stores = [self._index_dir / name for name in (image_store.DIR_NAME, question_images.DIR_NAME)]
            return ImageStores(stores).find(page.image).read(page.image)
        path = self._documents / page.file
        if path.suffix.lower() != ".pdf" or not path.resolve().is_relative_to(self._documents) or not path.is_file():
            raise DataError(f"{page.file}: there is no picture of its pages. See corpus.page_images.")
        process = open_process(self._corpus.document_memory_gib, self._corpus.document_cpu_s)
        with self._drawing:
            return process.run(render_page, path, page.page_number, _DPI, _MAX_PIXELS)

    def _find(self, place: int) -> Question:
        if place >= len(self.items):
            raise DataError(f"question {place}: there are {len(self.items)}.")
        return self.items[place].question

    @cached_property
    def _corpus(self) -> CorpusConfig:
        options = require_manifest(self._index_dir).origin["config"]["corpus"]
        needed = ("documents", "document_memory_gib", "document_cpu_s")
        return build(CorpusConfig, {name: options[name] for name in needed if name in options})

    @cached_property
    def _documents(self) -> Path:
        """The folder of the documents, if they are files."""
        named = self._corpus.documents
        return (self._index_dir / "documents" if named == COMMANDS else Path(named).expanduser()).resolve()


def build_app(review: Review, key: str) -> Starlette:
    """The application of the page. It answers this machine, and of its browsers the one that was opened with the key."""

    async def show(request: Request) -> Response:
        return answer_page("serve/review.html.j2")

    async def list_questions(request: Request) -> Response:
        return JSONResponse(review.list_questions())

    async def show_text(request: Request) -> Response:
        return PlainTextResponse(review.read_page(**request.path_params).text)

    async def show_picture(request: Request) -> Response:
        page = review.read_page(**request.path_params)
        return Response(await run_in_threadpool(review.draw_page, page), media_type="image/jpeg")

    async def note(request: Request) -> Response:
        review.note(request.path_params["place"], VERDICT.validate_json(await _read_body(request)))
        return PlainTextResponse(format_agreement(review.items, review.verdicts))

    page = "/questions/{place:int}/pages/{number:int}"
    routes = [
        Route("/", show),
        Route("/questions", list_questions),
        Route(f"{page}.txt", show_text),
        Route(f"{page}.jpg", show_picture),
        Route("/questions/{place:int}/verdict", note, methods=["POST"]),
    ]
    handlers = {DataError: _explain(404), ValidationError: _explain(400), ArtifactError: _explain(500)}
    return Starlette(routes=routes, middleware=[Middleware(_Entrance, key=key)], exception_handlers=handlers)


def serve_review(review: Review, port: int) -> None:
    """Serve the page on this machine until Ctrl-C, and print its address. Raises ServeError: the port is taken."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with listener:
        try:
            listener.bind((HOST, port))
            listener.listen()
        except (OSError, OverflowError) as error:  # of a number that is no port
            problem = getattr(error, "strerror", error)
            raise ServeError(f"port {port} of {HOST} cannot be used ({problem}). Name another one: --port 0") from None
        key = secrets.token_urlsafe()
        server = uvicorn.Server(uvicorn.Config(build_app(review, key), log_level="warning", lifespan="off"))
        _logger.info(f"{len(review.items)} questions: http://{HOST}:{listener.getsockname()[1]}/?key={key}")
        _logger.info(f"Ctrl-C ends it; verdicts are in {review.path}")
        # In a thread it leaves signals alone.
        thread = threading.Thread(target=server.run, args=([listener],), name="review")
        thread.start()
        wait_for_a_signal()
        server.should_exit = True
        thread.join()


class _Entrance:
    """ASGI middleware: answers who has the key, which the first request brings in its address and the others in a cookie."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = hash_key(key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope)
        try:
            check_is_local(scope, request.headers)
        except RefusalError as refusal:
            await build_answer(refusal)(scope, receive, send)
            return
        cookie = f"{_COOKIE}_{scope['server'][1]}"  # browsers send the cookies of all ports of a host
        given = request.query_params.get("key", "")
        if given and self._key.matches(given.encode()):
            answer: Response = RedirectResponse("/", 303)
            answer.set_cookie(cookie, given, httponly=True, samesite="strict")
        elif self._key.matches(request.cookies.get(cookie, "").encode()):
            await self._app(scope, receive, partial(_send_private, send))
            return
        else:
            answer = PlainTextResponse("Open the address that `drag-ray review` has printed, with its key.", 403)
        await answer(scope, receive, partial(_send_private, send))


async def _send_private(send: Send, message: Message) -> None:
    """Send a message with the headers of what is private."""
    if message["type"] == "http.response.start":
        MutableHeaders(scope=message).update(PRIVATE_HEADERS)
    await send(message)


async def _read_body(request: Request) -> bytes:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > _MAX_BODY_BYTES:
            raise HTTPException(413, f"a verdict has at most {_MAX_BODY_BYTES} bytes.")
    return bytes(data)


def _explain(status: int) -> Callable[[Request, Exception], Response]:
    return lambda request, error: PlainTextResponse(str(error), status)
