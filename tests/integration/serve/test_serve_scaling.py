"""Engines of an endpoint come with its requests, know the adapters that were loaded before, and go to none."""

import asyncio
from pathlib import Path

import httpx
import pytest
from adapters import make_adapter
from endpoint_process import Endpoint, serve_run
from waiting import wait_until

ASKED = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 32, "min_tokens": 32}


async def wait_for_engines(endpoint: Endpoint, number: int) -> None:
    await asyncio.to_thread(wait_until, lambda: endpoint.count_engines() == number, 400)


async def ask(endpoint: Endpoint, client: httpx.AsyncClient, model: str) -> int:
    """The status of the answer, whose error is that of OpenAI."""
    answer = await client.post(f"{endpoint.url}/v1/chat/completions", json={"model": model, **ASKED})
    assert answer.status_code == 200 or answer.json()["error"]["code"] == answer.status_code
    return answer.status_code


async def keep_asking(endpoint: Endpoint, client: httpx.AsyncClient, enough: asyncio.Event) -> list[int]:
    """The statuses of one request after the other."""
    statuses: list[int] = []
    while not enough.is_set():
        statuses.append(await ask(endpoint, client, "kept"))
    return statuses


@pytest.mark.slow
async def test_engines_come_with_load_and_go_to_none_and_the_first_to_ask_starts_one(tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "adapters" / "kept", 5)
    options = {
        "run-dir": tmp_path,
        "serve.adapter-dirs": tmp_path / "adapters",
        "cluster.num-cpus": 2,
        "engine.max-model-len": 512,
        "engine.max-num-seqs": 4,
        "serve.num-replicas": 0,
        "serve.max-replicas": 2,
        "serve.target-ongoing-requests": 1,
        "serve.upscale-delay-s": 1,
        "serve.downscale-delay-s": 5,
    }
    with serve_run(options) as endpoint:
        assert "starting 1 engine(s) on CPU" in endpoint.output
        await wait_for_engines(endpoint, 0)
        async with httpx.AsyncClient(timeout=300) as client:
            assert await ask(endpoint, client, "base") == 503  # and one starts
            await wait_for_engines(endpoint, 1)
            loaded = await client.post(f"{endpoint.url}/v1/load_lora_adapter", json={"lora_name": "kept", "lora_path": adapter})
            assert loaded.status_code == 200, loaded.text
            grown, shrunk = asyncio.Event(), asyncio.Event()
            asking = [asyncio.create_task(keep_asking(endpoint, client, until)) for until in (*[grown] * 3, shrunk)]
            await wait_for_engines(endpoint, 2)
            await asyncio.sleep(5)
            grown.set()
            await wait_for_engines(endpoint, 1)  # of both one ends while requests go on
            shrunk.set()
            assert {status for statuses in await asyncio.gather(*asking) for status in statuses} == {200}
        await wait_for_engines(endpoint, 0)
