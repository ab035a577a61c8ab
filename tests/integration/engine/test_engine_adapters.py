"""One engine writes with the base model and with several adapters at the same time: each request with the one that it names."""

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from adapters import compute_logprobs
from vision_engine import SharedEngine, VisionEngine, configure

from drag_ray.engine.generate import Generation, Request
from drag_ray.engine.models.canary import Canary
from drag_ray.engine.sampling import PRESETS

REQUEST = Request(({"role": "user", "content": "Where do gulls sleep?"},), PRESETS["greedy"], max_tokens=12, seed=0)
TOKENS = [260, 3081, 42, 970, 1500, 77, 501, 333]


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


async def score_while_it_changes(engine: SharedEngine, model: str, adapters: Sequence[str], folder: Path) -> list[list[float]]:
    """Score tokens with the adapter of a folder, with another one there by now, and when the engine was given that."""
    shutil.copytree(adapters[0], folder)
    await engine.begin(configure(model), [str(folder)])
    found = [await engine.score(TOKENS, str(folder))]
    shutil.copytree(adapters[1], folder, dirs_exist_ok=True)
    found.append(await engine.score(TOKENS, str(folder)))
    await engine.begin(configure(model), [str(folder)])
    found.append(await engine.score(TOKENS, str(folder)))
    await engine.begin(configure(model), adapters)
    return found


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


def test_an_engine_that_has_an_older_adapter_than_its_folder_is_found_by_the_canary(
    vision_engine: VisionEngine, model: str, tmp_path: Path
) -> None:
    found = vision_engine.call(score_while_it_changes, model, vision_engine.adapters, tmp_path / "adapter")
    older, newer = (compute_logprobs(name, TOKENS[:1], TOKENS[1:], model).tolist() for name in vision_engine.adapters[:2])
    assert found[0] == pytest.approx(older, abs=2e-3)
    assert found[2] == pytest.approx(newer, abs=2e-3)
    canary = Canary(TOKENS, newer, {"the policy of the step before": older})
    assert [bool(canary.find_difference(values)) for values in found] == [True, True, False]
