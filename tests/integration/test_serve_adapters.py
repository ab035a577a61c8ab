"""Two engines behind one endpoint, whose adapters come and go while requests are under way.

The reference of every reply is PEFT: the log-probabilities that the adapter gives its tokens.
"""

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from adapters import compute_logprobs, make_adapter
from endpoint_process import Endpoint, serve_run
from waiting import wait_until

# test_serve_stage has an adapter that comes, is replaced and goes at one engine, test_engine_adapters many in one engine that are
# asked together; that what all engines do waits for requests and leaves none behind, unit/serve/test_adapters.py shows.
pytestmark = pytest.mark.slow

PROMPT = list(range(1000, 1040))
"""Tokens; more than a block of vLLM's prefix cache, which a new adapter must not take over from an old one."""
NUM_TOKENS = 6
LONG = 64
SEEDS = {"first": 1, "second": 2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder from which adapters may be loaded."""
    folder = tmp_path_factory.mktemp("adapters")
    for name, seed in SEEDS.items():
        make_adapter(folder / name, seed)
    return folder


def build_options(run_dir: Path, folders: Path, **serve: Any) -> dict[str, Any]:
    engine = {"max-model-len": 512, "max-num-seqs": 8, "dtype": "float32", "enforce-eager": True}
    serve |= {"adapter-dirs": folders, "max-tokens": LONG}
    sections = {"engine": engine, "serve": {name.replace("_", "-"): value for name, value in serve.items()}}
    options = {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
    return {"run-dir": run_dir, "cluster.num-cpus": 4, **options}


def open_client(endpoint: Endpoint) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{endpoint.url}/v1", api_key="none", timeout=300, max_retries=0)


@pytest.fixture(scope="module")
def client(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    kill = True  # test_serve_stage sees to a good end
    with serve_run(build_options(tmp_path_factory.mktemp("run"), folders, num_replicas=2), kill) as endpoint:
        yield open_client(endpoint)


@dataclass(frozen=True)
class Reply:
    """The tokens of a reply and the log-probabilities that the engine had for them."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


def complete(client: openai.OpenAI, model: str) -> Reply:
    body = {"return_token_ids": True, "ignore_eos": True}
    completion: Any = client.completions.create(
        model=model, prompt=PROMPT, max_tokens=NUM_TOKENS, temperature=0, logprobs=0, extra_body=body
    )
    [choice] = completion.choices
    return Reply(tuple(choice.token_ids), tuple(choice.logprobs.token_logprobs))


def load(client: openai.OpenAI, name: str, folder: Path, replaces: bool = False) -> None:
    body = {"lora_name": name, "lora_path": str(folder), "load_inplace": replaces}
    client.post("/load_lora_adapter", cast_to=str, body=body)


def unload(client: openai.OpenAI, name: str) -> None:
    client.post("/unload_lora_adapter", cast_to=str, body={"lora_name": name})


@cache
def compute_reference(token_ids: tuple[int, ...], seed: int | None) -> torch.Tensor:
    """The log-probabilities that the tokens of a reply should have, of the adapter of a seed, or of none."""
    with tempfile.TemporaryDirectory() as folder:
        return compute_logprobs("" if seed is None else make_adapter(Path(folder), seed), PROMPT, token_ids)


def is_of(reply: Reply, seed: int | None) -> bool:
    return torch.allclose(torch.tensor(reply.logprobs), compute_reference(reply.token_ids, seed), atol=2e-3, rtol=0)


def test_each_of_many_interleaved_requests_is_answered_by_the_adapter_that_it_names(client: openai.OpenAI, folders: Path) -> None:
    for name in SEEDS:
        load(client, name, folders / name)
    assert [model.id for model in client.models.list()] == ["base", "first", "second"]
    names = ["first", "base", "second"] * 4
    with ThreadPoolExecutor(len(names)) as pool:
        replies = list(pool.map(lambda name: complete(client, name), names))
    assert len({(name, reply.token_ids) for name, reply in zip(names, replies, strict=True)}) == 3
    assert len({reply.token_ids for reply in replies}) == 3
    for name, reply in zip(names, replies, strict=True):
        assert is_of(reply, SEEDS.get(name)), name


def test_an_adapter_is_replaced_under_load_and_no_request_is_dropped_or_answered_by_both(
    client: openai.OpenAI, folders: Path
) -> None:
    """The new weights lie where the old ones lay, as after another training."""
    done = threading.Event()

    def keep_asking() -> list[Reply]:
        replies = []
        while not done.is_set():
            replies.append(complete(client, "first"))
        return replies

    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(keep_asking) for _ in range(3)]
        time.sleep(1)
        make_adapter(folders / "first", 3)
        load(client, "first", folders / "first", replaces=True)
        after = [complete(client, "first") for _ in range(4)]
        done.set()
        under_way = [reply for replies in asking for reply in replies.result()]
    assert all(is_of(reply, 3) for reply in after)
    assert all(is_of(reply, SEEDS["first"]) or is_of(reply, 3) for reply in under_way)
    assert any(is_of(reply, SEEDS["first"]) for reply in under_way)


def test_an_adapter_with_which_engines_write_as_without_it_is_refused_and_takes_no_place(
    client: openai.OpenAI, folders: Path
) -> None:
    """Its files are sound; its scale is so small that nothing of it is left."""
    idle = Path(make_adapter(folders / "idle", 4))
    config = json.loads((idle / "adapter_config.json").read_text())
    (idle / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": 1e-20}))
    for _ in range(5):  # more often than an engine has places
        with pytest.raises(openai.BadRequestError, match="it changes nothing"):
            load(client, "idle", idle)
    assert "idle" not in [model.id for model in client.models.list()]
    assert is_of(complete(client, "base"), None)


def test_unloading_waits_for_the_requests_that_use_the_adapter_and_refuses_new_ones(client: openai.OpenAI) -> None:
    ended: dict[str, float] = {}

    def note_end(name: str) -> Any:
        return lambda _: ended.update({name: time.monotonic()})

    with ThreadPoolExecutor(5) as pool:
        streams: list[Future[int]] = []
        for _ in range(4):
            streams.append(pool.submit(stream_long, client, "second"))
            streams[-1].add_done_callback(note_end("the last request"))
        time.sleep(1)
        unloading = pool.submit(unload, client, "second")
        unloading.add_done_callback(note_end("unloading"))
        time.sleep(1)
        with pytest.raises(openai.NotFoundError):
            complete(client, "second")
        assert is_of(complete(client, "base"), None)
        unloading.result()
        assert [stream.result() for stream in streams] == [LONG] * 4
    # The endpoint knows of an end before its client has read it. They wait for many seconds.
    assert ended["unloading"] > ended["the last request"] - 1
    assert [model.id for model in client.models.list()] == ["base", "first"]


def stream_long(client: openai.OpenAI, model: str) -> int:
    """Tokens of a long reply."""
    options: Any = {"ignore_eos": True, "return_token_ids": True}
    parts = client.completions.create(model=model, prompt=PROMPT, max_tokens=LONG, temperature=0, stream=True, extra_body=options)
    return sum(len(part.choices[0].token_ids) for part in parts if part.choices)  # type: ignore[attr-defined]


def test_engines_come_and_go_with_the_requests_of_which_none_is_dropped(folders: Path, tmp_path: Path) -> None:
    """The second engine starts after the adapter was loaded, and one of both ends while it writes."""
    make_adapter(folders / "kept", 5)
    scaling = {"max_replicas": 2, "target_ongoing_requests": 1, "upscale_delay_s": 0, "downscale_delay_s": 1}
    with serve_run(build_options(tmp_path, folders, **scaling)) as endpoint:
        client = open_client(endpoint)
        load(client, "kept", folders / "kept")
        replies: list[Reply] = []
        done = threading.Event()

        def keep_asking(until: threading.Event) -> None:
            while not until.is_set():
                replies.append(complete(client, "kept"))

        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(keep_asking, done) for _ in range(4)]
            wait_until(lambda: endpoint.count_engines() == 2, 300)
            time.sleep(10)
            done.set()
            for asked in asking:
                asked.result()
        ended = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            asking = [pool.submit(keep_asking, ended)]
            wait_until(lambda: endpoint.count_engines() == 1, 300)
            time.sleep(5)
            ended.set()
            asking[0].result()
    assert len(replies) > 20
    assert all(is_of(reply, 5) for reply in replies)
