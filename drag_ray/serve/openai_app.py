"""vLLM's own OpenAI-compatible application around one engine. The one place that knows how vLLM builds it."""

import os
from dataclasses import dataclass
from typing import Any

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.vllm import build_engine_args


@dataclass(frozen=True)
class AppSettings:
    """What one engine serves. `adapters` are folders by name; `max_lora_rank` is one of vLLM's ranks."""

    engine: EngineConfig
    served_name: str
    adapters: dict[str, str]
    max_lora_rank: int
    api_key: str
    can_load_adapters: bool


async def build_openai_app(settings: AppSettings) -> tuple[Any, Any]:
    """Start an engine and build the application that serves it.

    Returns:
        (application, engine): an ASGI application with all of vLLM's routes, and the engine for health checks and shutdown.
    """
    os.environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = str(settings.can_load_adapters)
    build_app, init_app_state, make_arg_parser = _import_server()
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.engine.async_llm import AsyncLLM

    max_loras = max(2, len(settings.adapters))
    engine_args = build_engine_args(
        settings.engine,
        served_model_name=[settings.served_name],
        enable_lora=True,
        max_lora_rank=settings.max_lora_rank,
        max_loras=max_loras,
        max_cpu_loras=2 * max_loras,
    )
    engine = AsyncLLM.from_engine_args(engine_args)
    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(["--model", engine_args.model])
    arguments.served_model_name = [settings.served_name]
    arguments.lora_modules = _to_lora_modules(settings.adapters)
    arguments.api_key = [settings.api_key] if settings.api_key else None
    supported_tasks = await engine.get_supported_tasks()
    app = build_app(arguments, supported_tasks)
    await init_app_state(engine, app.state, arguments, supported_tasks)
    return app, engine


def _to_lora_modules(adapters: dict[str, str]) -> list[Any]:
    from vllm.entrypoints.openai.models.protocol import LoRAModulePath

    return [LoRAModulePath(name=name, path=path) for name, path in adapters.items()]


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
