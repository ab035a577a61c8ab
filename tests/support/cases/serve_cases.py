"""An endpoint over a small index and a scripted engine, behind the guard."""

import json
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn
from scripted_engine import ScriptedEngine
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.testclient import TestClient

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.record import AgentRecord
from drag_ray.agent.spans import RolloutTracer
from drag_ray.cluster.metrics import REQUEST_COUNTS, RequestRecorder
from drag_ray.engine.generate import Generation, Request
from drag_ray.search.searcher import Searcher
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.ingress.guard import FEEDBACK_ROUTES, PAGE_ROUTES, Guard, Rules
from drag_ray.serve.ingress.key import hash_key
from drag_ray.serve.ingress.limits import Limits
from drag_ray.serve.openai_app import add_feedback_route, add_page_route, add_search_routes
from drag_ray.serve.search.champions import Champions
from drag_ray.serve.search.feedback_service import FeedbackService
from drag_ray.serve.search.request_images import EndpointImages
from drag_ray.serve.search.retrieval import Retrieval
from drag_ray.serve.search.search_service import SearchService
from drag_ray.serve.search.trials import TrialService
from drag_ray.serve.served_models import ServedModels

OWN = AgentRecord(agent=AgentConfig(query_mode="rewrite", top_k=1, max_iterations=3, max_tokens=50))
TRAINED = AgentRecord(agent=AgentConfig(query_mode="expand", max_iterations=1, max_tokens=7, top_k=1), preset="diverse")
LIMITS = Limits(ServeConfig(max_body_mib=1, max_tokens=40, max_sequences=8, max_question_chars=60))


def follow(*replies: str) -> Callable[[Request], str]:
    """A script of replies by turn."""
    return lambda request: replies[sum(message["role"] == "assistant" for message in request.messages)]


class Served(RequestRecorder):
    """An endpoint whose engine replies with `script`; it notes with which adapter a request was drawn, and what is recorded."""

    def __init__(
        self,
        searcher: Searcher | None,
        tuned_dir: Path,
        script: Callable[[Request], str],
        retrieval: Retrieval | None = None,
        tracer: RolloutTracer | None = None,
        images: EndpointImages | None = None,
        own: AgentRecord = OWN,
        limits: Limits = LIMITS,
        delay_s: float = 0.0,
        feedback: FeedbackService | None = None,
        champions: Champions | None = None,
        share: float = 1.0,
    ) -> None:
        self.engine = ScriptedEngine(script, delay_s)
        self.drawn_with: list[str] = []
        self.recorded: list[tuple[str, int, dict[str, int]]] = []
        self.adapters = {"tuned": SimpleNamespace(lora_name="tuned", lora_path=str(tuned_dir))}
        self.app = Starlette()
        add_search_routes(self.app)
        self._optional_routes = PAGE_ROUTES | (FEEDBACK_ROUTES if feedback else set())
        self._takes_feedback = feedback is not None
        if feedback:
            champions = champions or Champions(tuned_dir)
            add_feedback_route(self.app, feedback, TrialService(feedback, champions, share))
        self.app.add_route("/v1/models", lambda request: JSONResponse({"data": []}))  # vLLM's
        self.used: list[str] = []
        self.used_at_draw: list[str] = []
        models = ServedModels(self.adapters, "base", "tuned", own, self._use_model)
        self.service = None
        if searcher:
            found_by = retrieval or Retrieval(searcher)
            self.service = SearchService(searcher, found_by, models, self._draw, limits, self, tracer, images, champions)
        self.app.state.live_index = SimpleNamespace(service=self.service, problem="") if searcher else None

    def guard(self, key: str = "") -> Guard:
        add_page_route(self.app, bool(key), self._takes_feedback)
        return Guard(self.app, Rules([hash_key(key)] if key else [], LIMITS, self._optional_routes))

    @contextmanager
    def listen(self, key: str = "") -> Generator[str]:
        """Listen on a port of this machine; yields the address."""
        server = uvicorn.Server(uvicorn.Config(self.guard(key), port=0, log_level="warning"))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()

    def add_request(self, tool: str, status: int, duration_s: float, counts: Mapping[str, int]) -> None:
        assert 0 < duration_s < 60
        assert set(counts) <= set(REQUEST_COUNTS)
        self.recorded.append((tool, status, {name.removeprefix("request_"): count for name, count in counts.items()}))

    @contextmanager
    def _use_model(self, name: str) -> Generator[None]:
        self.used.append(name)
        yield
        self.used.remove(name)

    async def _draw(self, request: Request, adapter: Any) -> Generation:
        self.used_at_draw = list(self.used)
        self.drawn_with.append(adapter.lora_name if adapter else "")
        return await self.engine(request)

    def post(self, path: str, **body: Any) -> Any:
        return TestClient(self.guard(), base_url="http://localhost", client=("127.0.0.1", 1)).post(path, content=json.dumps(body))


Serve = Callable[..., Served]
