"""Replicas of vLLM's application, each with an engine, and the actor that keeps the list of adapters, as Ray Serve runs them."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from logging.handlers import MemoryHandler
from typing import Any, TypeVar

import ray
from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.config import AutoscalingConfig, BackpressureConfig, DeploymentActorConfig
from ray.serve.schema import LoggingConfig

from drag_ray.serve.adapters.engine_adapters import AdapterRegistry, AdapterTable, EngineAdapters, build_table
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.ingress.queues import REQUESTS_PER_SEQUENCE
from drag_ray.serve.openai_app import build_openai_app
from drag_ray.serve.settings import AppSettings

_logger = logging.getLogger(__name__)


@contextmanager
def keep_targets(logger: logging.Logger) -> Generator[None]:
    """Give the handlers of a logger that pass lines on to another handler their targets again.

    vLLM sets up logging when it is imported, with `dictConfig`, which closes all handlers that there are. A `MemoryHandler` has
    no target from then on and keeps what is logged for ever: Ray Serve's, which logs a line a request, 1.7 KB each.
    """
    targets = [(handler, handler.target) for handler in logger.handlers if isinstance(handler, MemoryHandler)]
    try:
        yield
    finally:
        for handler, target in targets:
            handler.setTarget(target)


APP_NAME, _DEPLOYMENT_NAME = "drag_ray", "openai"
_DRAIN_TIMEOUT_S = 600
"""Of an ending engine, for its running requests."""
_REGISTRY_NAME = "adapters"
_RETRY_AFTER_S = 1
_NUM_BESIDE = 512
"""Requests at a replica beside those that its engine has and those that wait for it: looks at its health, and what it refuses."""

ReplicaT = TypeVar("ReplicaT")


def _takes_requests(replica: type[ReplicaT]) -> type[ReplicaT]:
    """`serve.ingress`, with types: the replica builds the application that requests reach."""
    return serve.ingress()(replica)


@serve.deployment(name=_DEPLOYMENT_NAME)
@_takes_requests
class OpenAIDeployment:
    """One replica: one engine with the base model and its adapters."""

    def __init__(self, settings: AppSettings) -> None:
        self._settings = settings
        self._adapters = EngineAdapters(settings.serve.served_name)
        self._engine: Any = None

    async def __serve_build_asgi_app__(self) -> Any:
        """Called by Ray Serve once the replica is there; the engine starts here, in the replica's event loop."""
        with keep_targets(logging.getLogger("ray.serve")):
            asgi_app, self._engine = await build_openai_app(self._settings, self._adapters, _call_registry, _count_replicas)
        return asgi_app

    async def check_health(self) -> None:
        """Raise if the engine's process has died, for Ray Serve to replace the replica; update its adapters.

        It is called before the first request, too, and so a replica that starts late has the adapters that were loaded before.
        """
        if self._engine is None:
            return
        await self._engine.check_health()
        try:
            await self._adapters.hold(await _call_registry("catch_up", self._adapters.table))
        except (RayError, ValueError) as error:  # Ray Serve is about to start the registry anew
            _logger.warning("the list of adapters cannot be had at this moment: %s", error)

    async def call_adapters(self, method: str, *arguments: Any) -> Any:
        """Call a method of this engine's `EngineAdapters`."""
        return await getattr(self._adapters, method)(*arguments)

    def __del__(self) -> None:
        if self._engine is not None:
            self._engine.shutdown()


@ray.remote
class _RegistryActor(AdapterRegistry):
    def __init__(self, table: AdapterTable, places: int | None) -> None:
        super().__init__(table, places, _call_replicas)


def _count_replicas() -> int:
    return max(1, serve.get_replica_context().world_size or 1)


async def _call_registry(method: str, *arguments: Any) -> Any:
    registry = serve.get_deployment_actor(_REGISTRY_NAME)
    try:
        return await getattr(registry, method).remote(*arguments)
    except RayTaskError as error:
        raise error.cause from None


async def _call_replicas(method: str, *arguments: Any) -> list[Any]:
    handle = serve.get_deployment_handle(_DEPLOYMENT_NAME, APP_NAME)
    try:
        return await handle.broadcast("call_adapters", method, *arguments).results_async()
    except RayTaskError as error:
        raise error.cause from None


def build_application(settings: AppSettings, use_gpu: bool) -> serve.Application:
    """The endpoint's application, for `serve.run`."""
    config, engine = settings.serve, settings.engine
    registry = DeploymentActorConfig(
        name=_REGISTRY_NAME,
        actor_class=_RegistryActor,
        init_args=(build_table(settings.adapters), None if use_gpu else config.adapter_places),
        actor_options={"num_cpus": 0},
    )
    deployment = OpenAIDeployment.options(
        **_build_scaling(config, engine.max_num_seqs),
        ray_actor_options={"num_gpus": engine.tensor_parallel_size} if use_gpu else {"num_cpus": 1},
        logging_config=LoggingConfig(log_level="INFO"),  # a line a request
        deployment_actors=[registry],
        # Requests wait at the replica (`ingress.queues`), where looks at its health pass them: Ray Serve has one queue for all.
        max_ongoing_requests=REQUESTS_PER_SEQUENCE * engine.max_num_seqs + config.max_queued_requests + _NUM_BESIDE,
        max_queued_requests=_NUM_BESIDE,
        backpressure_config=BackpressureConfig(status_code=429, retry_after_s=_RETRY_AFTER_S),
        graceful_shutdown_timeout_s=_DRAIN_TIMEOUT_S,
    )
    return deployment.bind(replace(settings, allows_prompt_logprobs=use_gpu))


def _build_scaling(config: ServeConfig, max_num_seqs: int) -> dict[str, Any]:
    if config.max_replicas <= config.num_replicas:
        return {"num_replicas": config.num_replicas}
    return {
        "autoscaling_config": AutoscalingConfig(
            min_replicas=config.num_replicas,
            initial_replicas=max(1, config.num_replicas),  # what is wrong with an engine is known when the endpoint starts
            max_replicas=config.max_replicas,
            target_ongoing_requests=config.target_ongoing_requests or max_num_seqs,
            upscale_delay_s=config.upscale_delay_s,
            downscale_delay_s=config.downscale_delay_s,
        )
    }
