"""The serve stage with a real vLLM engine, the embedded model and an adapter, asked by OpenAI's own client."""

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
import torch
from peft import LoraConfig, get_peft_model
from ray import serve

from drag_ray.cluster import ClusterConfig, connect
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.embedded import embedded_model_dir
from drag_ray.errors import ServeError
from drag_ray.finetune.adapter import read_base_model, write_base_model
from drag_ray.finetune.model import load_model
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.stage import run

API_KEY = "a-key"
QUESTION: Any = [{"role": "user", "content": "Name a colour."}]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder whose finetune stage left an adapter with weights that change what the model writes."""
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    adapted = get_peft_model(
        load_model(embedded_model_dir(), "bfloat16"), LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    )
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    adapter_dir = folder / "finetune" / "adapter"
    adapted.save_pretrained(str(adapter_dir))
    write_base_model(adapter_dir, read_base_model(str(embedded_model_dir()), name="embedded"))
    return folder


def _make_config(run_dir: Path, **options: Any) -> SimpleNamespace:
    return SimpleNamespace(
        serve=ServeConfig(**{"api_key": API_KEY, "device": "cpu", **options}),
        engine=EngineConfig(model="embedded", max_model_len=512, max_num_seqs=4),
        stage_dir=lambda name: run_dir / name,
    )


@pytest.fixture(scope="module")
def endpoint(run_dir: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with connect(ClusterConfig(num_cpus=2)):
        yield run(_make_config(run_dir, port=port), block=False)
        serve.shutdown()


@pytest.fixture
def client(endpoint: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{endpoint}/v1", api_key=API_KEY, timeout=120, max_retries=0)


def test_base_and_adapter_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["base", "tuned"]


def test_both_models_answer_and_differ(client: openai.OpenAI) -> None:
    replies = {}
    for model in ("base", "tuned"):
        reply = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=8, temperature=0)
        assert reply.model == model
        assert reply.usage is not None
        assert 1 <= reply.usage.completion_tokens <= 8
        replies[model] = reply.choices[0].message.content
    assert replies["base"] != replies["tuned"]


def test_a_streamed_reply_arrives_in_parts_and_reads_like_the_whole(client: openai.OpenAI) -> None:
    options: Any = {"model": "base", "messages": QUESTION, "max_tokens": 8, "temperature": 0}
    parts = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**options, stream=True)]
    assert len([part for part in parts if part]) > 1
    assert "".join(parts) == client.chat.completions.create(**options).choices[0].message.content


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="nobody"):
        client.chat.completions.create(model="nobody", messages=QUESTION)


def test_a_request_without_the_key_is_refused(endpoint: str) -> None:
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{endpoint}/v1", api_key="wrong", max_retries=0).models.list()


def test_an_adapter_is_loaded_while_the_endpoint_runs(endpoint: str, client: openai.OpenAI, run_dir: Path) -> None:
    client.post("/load_lora_adapter", cast_to=str, body={"lora_name": "later", "lora_path": str(run_dir / "finetune/adapter")})
    assert "later" in [model.id for model in client.models.list()]
    with pytest.raises(openai.APIStatusError):
        client.post("/load_lora_adapter", cast_to=str, body={"lora_name": "bad", "lora_path": str(run_dir / "nowhere")})
    with urllib.request.urlopen(f"{endpoint}/health") as response:  # a bad adapter does not take the engine down
        assert response.status == 200


def test_a_port_in_use_is_refused_before_an_engine_starts(endpoint: str, run_dir: Path) -> None:
    port = int(endpoint.rpartition(":")[2])
    with pytest.raises(ServeError, match=rf"port {port} on 127.0.0.1 is in use"):
        run(_make_config(run_dir, port=port), block=False)
    with urllib.request.urlopen(f"{endpoint}/health") as response:
        assert response.status == 200
