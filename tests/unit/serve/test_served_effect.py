"""Whether an engine writes with an adapter, by the probabilities that it gives."""

import math
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from drag_ray.errors import ServeError
from drag_ray.serve.adapters.engine_adapters import check_effect


class FakeEngine:
    """Gives two tokens these log-probabilities, one reading after the other; a reading may be of other tokens."""

    def __init__(self, *readings: float | dict[int, float]) -> None:
        self._readings = [reading if isinstance(reading, dict) else {1: reading, 2: reading - 1} for reading in readings]
        self.adapters: list[Any] = []

    def get_tokenizer(self) -> Any:
        return lambda text: {"input_ids": list(range(5))}

    async def generate(self, prompt: Any, params: Any, request_id: str, lora_request: Any) -> AsyncGenerator[Any]:
        assert (params.logprobs, params.max_tokens, params.prompt_logprobs) == (20, 1, None)
        self.adapters.append(lora_request)
        given = {token: SimpleNamespace(logprob=value) for token, value in self._readings.pop(0).items()}
        yield SimpleNamespace(outputs=[SimpleNamespace(logprobs=[given])])


async def test_an_adapter_that_changes_more_than_the_engine_by_itself_is_taken() -> None:
    engine = FakeEngine(-1.0, -1.2, -1.01)
    await check_effect(engine, "adapter")
    assert engine.adapters == [None, "adapter", None]
    await check_effect(FakeEngine(-1.0, {8: -1.0, 9: -2.0}, -1.0), "adapter")  # it expects something else altogether


@pytest.mark.parametrize("readings", [(-1.0, -1.0, -1.0), (-1.0, -1.000001, -1.0), (-1.0, -1.1, -1.2)])
async def test_one_that_changes_nothing_or_no_more_than_chance_does_is_refused(readings: tuple[float, ...]) -> None:
    with pytest.raises(ServeError, match="it changes nothing"):
        await check_effect(FakeEngine(*readings), "adapter")


async def test_one_with_which_the_model_gives_no_numbers_is_refused() -> None:
    with pytest.raises(ServeError, match="no numbers"):
        await check_effect(FakeEngine(-1.0, math.nan, -1.0), "adapter")
