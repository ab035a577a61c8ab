"""vLLM's own OpenAI-compatible application around one engine, with the search routes, behind the guard.

The one place that knows how vLLM builds it.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from drag_ray.corpus.picture import MAX_PIXELS
from drag_ray.engine.vllm import build_engine_args, count_adapter_places
from drag_ray.serve.adapters.adapter_registry import CallRegistry
from drag_ray.serve.adapters.engine_adapters import EngineAdapters, build_table
from drag_ray.serve.ingress.guard import Guard, Rules
from drag_ray.serve.ingress.limits import Limits
from drag_ray.serve.ingress.queues import REQUESTS_PER_SEQUENCE, Admission, Preparation, end_turns_at
from drag_ray.serve.ingress.stream_pacing import StreamPacing
from drag_ray.serve.routes import add_adapter_routes, add_search_routes, open_adapter_folders, open_search_service
from drag_ray.serve.settings import AppSettings

NO_MEDIA_DOMAINS = ["none: send images as data: URLs"]
"""vLLM takes an empty list for every domain. This one names none, for no host name holds a colon, and stands in the refusal."""

_ANY_NUMBER = 1_000_000


async def build_openai_app(
    settings: AppSettings, adapters: EngineAdapters, call_registry: CallRegistry, count_replicas: Callable[[], int]
) -> tuple[Any, Any]:
    """Start an engine and build the application that serves it.

    Args:
        settings: what is served.
        adapters: takes the engine's adapters over, and loads those of the settings.
        call_registry: loads and unloads adapters for requests.
        count_replicas: how many answer behind the same address.

    Returns:
        (application, engine): an ASGI application behind the guard, and the engine for health checks and shutdown.
    """
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM

    engine_args = build_serving_args(settings)
    # The batches of `vllm serve`: on an H100 or H200 they hold four times the tokens of the class's own default.
    engine = AsyncLLM.from_engine_args(engine_args, usage_context=UsageContext.OPENAI_API_SERVER)
    supported_tasks = await engine.get_supported_tasks()
    guard = build_guarded_app(settings, engine_args.model, supported_tasks, adapters, call_registry)
    _, init_app_state, _ = _import_server()
    state = guard.app.state
    await init_app_state(engine, state, state.args, supported_tasks)
    by_name = state.openai_serving_models.lora_requests
    adapters.start(engine, by_name)
    await adapters.hold(build_table(settings.adapters), needs_all=True)
    state.search_service = open_search_service(settings, engine, by_name, adapters.use)
    end_turns_at(engine)
    guard.app = StreamPacing(Preparation(guard.app), count_replicas, partial(_pack_events, engine))
    return guard, engine


def _pack_events(engine: Any, num_tokens: int) -> None:
    """Have events of streams that begin from now on hold so many tokens, but for their first and last: vLLM's option
    `stream_interval`, which it reads for each request."""
    engine.output_processor.stream_interval = num_tokens


def build_serving_args(settings: AppSettings) -> Any:
    """vLLM's `AsyncEngineArgs` for an engine that requests reach: closed to media from elsewhere, with room for adapters where
    there are any or may be.

    An engine with that room runs its kernels for adapters in every layer, for requests to the base model too. Where no CUDA graph
    holds them, as in steps that read prompts, launching them takes longer than the step.
    """
    config = settings.serve
    adapters: dict[str, Any] = {}
    if settings.adapters or config.adapter_dirs:
        adapters = {
            "enable_lora": True,
            "max_lora_rank": settings.max_lora_rank,
            "max_loras": count_adapter_places(config.adapter_places),
            # An adapter that left main memory would be read again from a folder that may have changed.
            "max_cpu_loras": _ANY_NUMBER,
        }
    return build_engine_args(
        settings.engine,
        served_model_name=[config.served_name],
        **adapters,
        reasoning_parser=settings.parsers.reasoning,
        allowed_media_domains=NO_MEDIA_DOMAINS,
        allowed_local_media_path="",
        disable_log_stats=True,  # kept for each token, to be read at a route that the guard closes
        override_generation_config={"max_new_tokens": config.max_tokens},  # where a request sets no length
    )


def build_guarded_app(
    settings: AppSettings, model: str, supported_tasks: Any, adapters: EngineAdapters, call_registry: CallRegistry
) -> Guard:
    """vLLM's application with all of its routes, behind the guard; it answers once `init_app_state` has given it an engine."""
    os.environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = str(False)  # that is for the routes of `add_adapter_routes`
    os.environ.pop("VLLM_API_KEY", None)  # one key, the guard's
    os.environ["VLLM_MAX_IMAGE_PIXELS"] = str(MAX_PIXELS)
    config, reads_calls = settings.serve, bool(settings.parsers.tool_calls)
    build_app, _, make_arg_parser = _import_server()
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(["--model", model])
    arguments.served_model_name = [config.served_name]
    arguments.enable_auto_tool_choice = reads_calls
    arguments.tool_call_parser = settings.parsers.tool_calls or None
    arguments.structured_outputs_config.reasoning_parser = settings.parsers.reasoning
    arguments.allowed_origins = []  # no web page reads an answer
    arguments.disable_fastapi_docs = True
    app = build_app(arguments, supported_tasks)
    add_search_routes(app)
    if config.adapter_dirs:
        add_adapter_routes(app, open_adapter_folders(settings, model), call_registry)

    def has_died() -> bool:
        return app.state.engine_client.errored

    limits = Limits(config, settings.allows_prompt_logprobs)
    rules = Rules(settings.key, limits, loads_adapters=bool(config.adapter_dirs), reads_calls=reads_calls)
    max_ongoing = REQUESTS_PER_SEQUENCE * settings.engine.max_num_seqs
    return Guard(app, rules, adapters.use, has_died, Admission(max_ongoing, config.max_queued_requests, config.max_wait_s))


def _import_server() -> tuple[Any, Any, Any]:
    """(build_app, init_app_state, make_arg_parser), which vLLM moved after 0.26."""
    try:
        from vllm.entrypoints.launchers.api_server.app_state import init_app_state
        from vllm.entrypoints.launchers.app import build_app
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    except ImportError:
        from vllm.entrypoints.openai.api_server import build_app, init_app_state
        from vllm.entrypoints.openai.cli_args import make_arg_parser  # pyright: ignore[reportMissingImports]
    return build_app, init_app_state, make_arg_parser
