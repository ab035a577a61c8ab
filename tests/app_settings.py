"""What the engine of an endpoint serves in tests: a base model without adapters, within small limits."""

from typing import Any

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.record import AgentRecord
from drag_ray.engine.config import EngineConfig
from drag_ray.serve.access.limits import Limits
from drag_ray.serve.openai_app import AppSettings

LIMITS = Limits(max_body_mib=1, max_tokens=100, max_sequences=8, max_question_chars=40)


def build_app_settings(engine: EngineConfig, agent: AgentConfig | None = None, **options: Any) -> AppSettings:
    """Settings of a base model; further ones are `options`."""
    return AppSettings(
        engine=engine,
        served_name="base",
        adapters={},
        adapter_places=1,
        max_lora_rank=16,
        limits=LIMITS,
        agent=AgentRecord(agent=agent or AgentConfig()),
        **options,
    )
