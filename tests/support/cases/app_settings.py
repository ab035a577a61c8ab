"""Settings of an endpoint in tests: a base model without adapters, within small limits."""

from typing import Any

from drag_ray.agent.config import AgentConfig
from drag_ray.engine.config import EngineConfig
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.settings import AppSettings


def build_app_settings(engine: EngineConfig, agent: AgentConfig | None = None, **options: Any) -> AppSettings:
    """Settings of a base model; further ones are `options`, those of the section `serve` among them."""
    limits = {"max_body_mib": 1, "max_tokens": 100, "max_sequences": 8, "max_question_chars": 40, "adapter_places": 1}
    given = {name: options.pop(name) for name in set(options) & set(ServeConfig.model_fields)}
    return AppSettings(ServeConfig.model_validate(limits | given), engine, agent or AgentConfig(), **options)
