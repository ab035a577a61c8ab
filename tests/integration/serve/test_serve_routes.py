"""vLLM's application behind the guard, route by route, and what its engine arguments let a request fetch.

The application is the real one, without an engine: a route that is let through fails for want of one, and one that is not
gets the guard's 404. A new vLLM with a new route fails here until somebody has decided about it.
"""

import asyncio
import base64
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from app_settings import build_app_settings
from embedded_tokenizer import write_tokenizer
from qwen3_vl_shapes import SHAPES_TINY, write_model
from starlette.testclient import TestClient
from web_servers import reply, serve

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.serve.adapters.engine_adapters import EngineAdapters
from drag_ray.serve.ingress.guard import Guard
from drag_ray.serve.ingress.key import hash_key
from drag_ray.serve.openai_app import build_guarded_app, build_serving_args
from drag_ray.serve.settings import AppSettings

KEY = "a-key-for-this-test-alone"
OPEN = {("GET", "/health")}
PAGE = ("GET", "/")
WITH_KEY = {
    ("GET", "/v1/models"),
    ("GET", "/v1/index"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/search"),
    ("POST", "/v1/ask"),
    ("POST", "/v1/page"),
    ("POST", "/mcp"),
    ("POST", "/mcp/"),
}
WITH_ADAPTER_DIRS = {("POST", "/v1/load_lora_adapter"), ("POST", "/v1/unload_lora_adapter")}
CLOSED = {
    ("GET", "/load"),
    ("GET", "/version"),
    ("GET", "/kv_event_sources"),
    ("GET", "/metrics"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/v1/systemone"),
    ("GET", "/ping"),
    ("POST", "/ping"),
    ("POST", "/invocations"),
    ("POST", "/v1/chat/completions/batch"),
    ("GET", "/v1/responses/{response_id}"),
    ("POST", "/v1/responses/{response_id}/cancel"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/generative_scoring"),
    ("POST", "/scale_elastic_ep"),
    ("POST", "/is_scaling_elastic_ep"),
    ("POST", "/v1/chat/completions/render"),
    ("POST", "/v1/messages/render"),
    ("POST", "/v1/completions/render"),
    ("POST", "/v1/responses/render"),
    ("POST", "/v1/chat/completions/derender"),
    ("POST", "/v1/completions/derender"),
    ("POST", "/inference/v1/generate"),
    ("POST", "/inference/v1/abort_requests"),
}
NEVER_BUILT = [("GET", path) for path in ("/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc")]


async def call_no_registry(method: str, *arguments: Any) -> None:
    raise AssertionError("nothing is to be loaded")


def make_settings(model: str = "embedded", key: str = "", adapter_dirs: tuple[str, ...] = ()) -> AppSettings:
    engine = EngineConfig(model=model, max_model_len=512)
    return build_app_settings(engine, keys=(hash_key(key),) if key else (), adapter_dirs=adapter_dirs)


def build(**options: Any) -> Guard:
    settings = make_settings(**options)
    adapters = EngineAdapters(settings.serve.served_name)
    return build_guarded_app(settings, str(embedded_model_dir()), ("generate",), adapters, call_no_registry)


def list_routes(app: Any) -> set[tuple[str, str]]:
    """(method, path) of all routes; what is mounted counts as one that is read."""
    return {(method, route.path) for route in app.routes for method in getattr(route, "methods", None) or ("GET",)}


def ask(app: Any, method: str, path: str, headers: dict[str, str]) -> Any:
    client = TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1), raise_server_exceptions=False)
    return client.request(method, path, json={}, headers=headers)


@pytest.mark.parametrize("adapter_dirs", [(), ("/adapters",)])
def test_every_route_of_vllm_is_known_and_open_closed_or_behind_the_key(adapter_dirs: tuple[str, ...]) -> None:
    app = build(key=KEY, adapter_dirs=adapter_dirs)
    allowed = WITH_KEY | (WITH_ADAPTER_DIRS if adapter_dirs else set())
    closed = CLOSED | (set() if adapter_dirs else WITH_ADAPTER_DIRS)
    added = ("HEAD", "/v1/index")  # by Starlette, to what answers GET
    assert ask(app, *added, {"Authorization": f"Bearer {KEY}"}).status_code == 405
    routes = list_routes(app.app) - {added}
    assert routes - allowed - closed - OPEN == {PAGE, ("HEAD", "/")}
    assert routes >= allowed | OPEN
    assert ask(app, *PAGE, {}).status_code == 200
    given_key = {"Authorization": f"Bearer {KEY}"}
    for method, path in [*closed, *NEVER_BUILT]:
        for headers in ({}, given_key):
            answer = ask(app, method, path, headers)
            assert answer.status_code == 404, path
            assert f"{method} {path} is not a route of this endpoint" in answer.json()["error"]["message"]
    for method, path in allowed:
        assert ask(app, method, path, {}).status_code == 401, path
        assert ask(app, method, path, given_key).status_code not in (401, 403, 404), path
    if adapter_dirs:
        assert ask(app, "POST", "/v1/load_lora_adapter", given_key).status_code == 400  # what a route refuses is an answer
    for method, path in OPEN:
        assert ask(app, method, path, {}).status_code == 500, path  # let through: it looks for an engine


def test_answers_carry_nothing_that_lets_a_web_page_read_them() -> None:
    app = build(key=KEY)
    headers = {"Authorization": f"Bearer {KEY}", "Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    for method, path in [*WITH_KEY, ("OPTIONS", "/v1/chat/completions")]:
        assert not [name for name in ask(app, method, path, headers).headers if name.startswith("access-control")]


def test_an_engine_has_room_for_adapters_where_some_are_served_or_may_be(tmp_path: Path) -> None:
    base = make_settings()
    assert not build_serving_args(base).enable_lora
    assert build_serving_args(replace(base, adapters={"tuned": str(tmp_path)})).max_loras == 2
    assert build_serving_args(make_settings(adapter_dirs=(str(tmp_path),))).enable_lora


@pytest.fixture(scope="module")
def vision_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_model(folder, write_tokenizer(folder), SHAPES_TINY)


def test_a_request_makes_the_endpoint_fetch_nothing_and_unpack_no_huge_picture(vision_model: Path, tmp_path: Path) -> None:
    from PIL import Image
    from vllm.renderers.chat_utils import parse_chat_messages_async

    model_config = build_serving_args(make_settings(str(vision_model))).create_model_config()

    async def show(url: str) -> Any:
        messages: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
        _, pending, _ = await parse_chat_messages_async(messages, model_config, "openai")
        return await pending if asyncio.iscoroutine(pending) else pending

    path = tmp_path / "page.png"
    Image.new("RGB", (32, 32)).save(path)
    with serve() as server:
        address = f"127.0.0.1:{server.port}"
        server.replies |= {"/image.png": reply(status="404 None"), "/moved": reply(status="302 Found", Location="/image.png")}
        for url in (f"http://{address}/image.png", f"http://{address}/moved", f"HTTP://{address}/", f"http://none@{address}/"):
            with pytest.raises(ValueError, match="none: send images as data: URLs"):
                asyncio.run(show(url))
        assert not server.requests
    with pytest.raises(RuntimeError, match="Cannot load local files"):
        asyncio.run(show(path.as_uri()))
    build()  # the limit is the application's
    large = io.BytesIO()
    Image.new("1", (8_000, 7_000)).save(large, "PNG")
    with pytest.raises(ValueError, match="exceed the maximum of 50000000 pixels"):
        asyncio.run(show(f"data:image/png;base64,{base64.b64encode(large.getvalue()).decode()}"))
    assert asyncio.run(show(f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"))
