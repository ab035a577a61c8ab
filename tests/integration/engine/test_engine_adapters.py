"""One engine writes with the base model and with several adapters at the same time: each request with the one that it names."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import psutil
import pytest
import torch
from adapters import compute_logprobs
from vision_engine import SharedEngine, VisionEngine, configure

from drag_ray.engine.generate import Generation, Request
from drag_ray.engine.sampling import PRESETS

REQUEST = Request(({"role": "user", "content": "Where do gulls sleep?"},), PRESETS["greedy"], max_tokens=12, seed=0)


async def write(
    engine: SharedEngine, model: str, adapters: Sequence[str], names: Sequence[str]
) -> tuple[list[str], list[Generation]]:
    """Reply to the request with each of these adapters, all at the same time, and again after a rest in which they change places.

    The engine's processes come first.
    """
    replies = list(await asyncio.gather(*(engine(replace(REQUEST, adapter=name)) for name in names)))
    titles = [" ".join(child.cmdline()[:1]) for child in psutil.Process().children(recursive=True)]
    await engine.rest()  # on a CPU nothing is freed, but the engine stops, and goes on when it is woken
    await engine.wake()
    await engine.begin(configure(model), adapters[::-1])
    replies += await asyncio.gather(*(engine(replace(REQUEST, adapter=name)) for name in names))
    return [title for title in titles if title.startswith("VLLM::")], replies


@pytest.fixture(scope="module")
def replies(vision_engine: VisionEngine) -> list[tuple[str, Generation]]:
    """Each reply with the adapter that it was asked of."""
    names = ["", *vision_engine.adapters] * 4
    titles, replies = vision_engine.call(write, vision_engine.model, vision_engine.adapters, names)
    assert titles == ["VLLM::EngineCore"]  # with one thread the model is there too
    return list(zip(names * 2, replies, strict=True))


def test_every_reply_is_that_of_its_own_adapter(replies: list[tuple[str, Generation]], model: str) -> None:
    written = {name: [reply for asked, reply in replies if asked == name] for name, _ in replies}
    assert len({tuple(same[0].completion_token_ids) for same in written.values()}) == 4
    for adapter, same in written.items():
        assert len({reply.completion_token_ids for reply in same}) == 1
        expected = compute_logprobs(adapter, same[0].prompt_token_ids, same[0].completion_token_ids, model)
        torch.testing.assert_close(torch.tensor(same[0].completion_logprobs), expected, atol=2e-3, rtol=0)
