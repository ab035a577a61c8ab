"""Start of an endpoint's engine."""

from typing import Any

import pytest
from app_settings import build_app_settings

from drag_ray.engine.config import EngineConfig
from drag_ray.serve.openai_app import build_openai_app


class _StartedError(Exception):
    """Ends a start where the engine would begin."""


@pytest.mark.seconds  # of vLLM's imports
async def test_an_engine_takes_the_batches_of_vllms_own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM

    def start(engine_args: Any, **options: Any) -> None:
        raise _StartedError(engine_args.max_num_seqs, options)

    monkeypatch.setattr(AsyncLLM, "from_engine_args", start)
    settings = build_app_settings(EngineConfig(max_model_len=512, max_num_seqs=7))
    unused: Any = None
    with pytest.raises(_StartedError) as started:
        await build_openai_app(settings, unused, unused, unused)
    assert started.value.args == (7, {"usage_context": UsageContext.OPENAI_API_SERVER})
