"""Whether an engine writes with an adapter, by the probabilities that it gives."""

import math
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from drag_ray.errors import ServeError
from drag_ray.serve.served_effect import check_effect


class FakeEngine:
    """Gives every token the next of these log-probabilities, one a reading."""

    def __init__(self, *readings: float) -> None:
        self._readings = list(readings)
        self.adapters: list[Any] = []

    def get_tokenizer(self) -> Any:
        return lambda text: {"input_ids": list(range(5))}

    async def generate(self, prompt: Any, params: Any, request_id: str, lora_request: Any) -> AsyncGenerator[Any]:
        assert (params.prompt_logprobs, params.max_tokens) == (0, 1)
        self.adapters.append(lora_request)
        value = self._readings.pop(0)
        given = [{token: SimpleNamespace(logprob=value)} for token in prompt["prompt_token_ids"][1:]]
        yield SimpleNamespace(prompt_logprobs=[None, *given])


async def test_an_adapter_that_changes_more_than_the_engine_by_itself_is_taken() -> None:
    engine = FakeEngine(-1.0, -1.2, -1.01)
    await check_effect(engine, "adapter")
    assert engine.adapters == [None, "adapter", None]


@pytest.mark.parametrize("readings", [(-1.0, -1.0, -1.0), (-1.0, -1.000001, -1.0), (-1.0, -1.1, -1.2)])
async def test_one_that_changes_nothing_or_no_more_than_chance_does_is_refused(readings: tuple[float, ...]) -> None:
    with pytest.raises(ServeError, match="it changes nothing"):
        await check_effect(FakeEngine(*readings), "adapter")


async def test_one_with_which_the_model_gives_no_numbers_is_refused() -> None:
    with pytest.raises(ServeError, match="no numbers"):
        await check_effect(FakeEngine(-1.0, math.nan, -1.0), "adapter")
