"""The serve stage with a real vLLM engine, the embedded model and an adapter, asked by OpenAI's own client."""

import asyncio
import json
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, cast

import grpc
import httpx
import httpx2
import mcp
import openai
import polars as pl
import psutil
import pytest
import torch
from endpoint_process import RAY_TOKEN, Endpoint, serve_run
from mcp.client.streamable_http import streamable_http_client
from openai.types.chat import ChatCompletionMessageFunctionToolCall
from peft import LoraConfig, get_peft_model
from ports import ask_grpc, list_ports
from process_environments import READABLE, list_reporting
from safetensors.torch import load_file, save_file

import drag_ray
from drag_ray import schemas
from drag_ray.agent.config import AgentConfig, Example
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.record import AgentRecord, write_record
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.cli.main import main
from drag_ray.engine.config import EndpointConfig, EngineConfig
from drag_ray.engine.endpoints.endpoint import EndpointEngine
from drag_ray.engine.endpoints.spending import Spending
from drag_ray.engine.models.adapter import read_base_model, write_base_model
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.engine.models.model_files import ADAPTER_WEIGHTS_NAME
from drag_ray.engine.models.pretrained import load_model
from drag_ray.feedback.events import Mark, ShownSearch
from drag_ray.feedback.ledger import Ledger
from drag_ray.feedback.log import read_events, read_secret
from drag_ray.feedback.search_ids import SearchIds
from drag_ray.finetune.outputs.publication import merge_adapter
from drag_ray.search.config import SYNTAX_HELP, SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.metadata import Metadata
from drag_ray.search.searcher import Searcher
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity, write_parquet
from drag_ray.types import ActionKind, Evidence, Page, Question, Trajectory

API_KEY = "planted-key-of-this-test"
LIMITED_KEY = "planted-key-of-one-group"
PATIENCE_S = 600
"""What a reply may take: CPUs differ tenfold, and another test runs beside this one."""
FEW_TOKENS = 3
QUESTION: Any = [{"role": "user", "content": "Name a colour."}]

PAGES = [
    Page("iam.pdf", 4, 9, "list-groups-for-user: the groups that a user belongs to. Users and groups of IAM."),
    Page("kms.pdf", 2, 3, "list-retirable-grants: the grants that a principal can retire."),
]
ASKED = "To see which users are in a group (IAM)"
EXAMPLE = Example(question="To view the grants that a principal can retire (KMS)", query="list retirable grants")
TRAINED_AGENT = AgentConfig(query_mode="expand", max_iterations=1, max_tokens=24, thinking=False, examples=(EXAMPLE,))
OWN_AGENT = AgentConfig(query_mode="rewrite", max_iterations=2, max_tokens=32, top_k=1, examples=(EXAMPLE,))


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder whose finetune stage left an adapter with weights that change what the model writes, with a small index."""
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
    write_record(adapter_dir, AgentRecord(agent=TRAINED_AGENT))
    write_index(folder, PAGES)
    return folder


def write_index(folder: Path, pages: Sequence[Page]) -> None:
    """The index stage of a run, which may have another one of these pages: each file is for the group of its name."""
    with StageFolder(folder / "index", Identity("index", {"pages": len(pages)}, {}), keeps_earlier=True) as index:
        write_parquet(index.path / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
        table = pl.DataFrame({"file": sorted(page.file for page in pages)}).with_columns(group=pl.col("file").str.head(3))
        build_index(index.path / "pages.parquet", index.path / "search_index", SearchConfig(), Metadata(table, "group"))
        index.finish({})


@pytest.fixture(scope="module")
def endpoint(run_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    key_path = tmp_path_factory.mktemp("keys") / "keys.toml"
    keys = {API_KEY: ["*"], LIMITED_KEY: ["kms"]}
    key_path.write_text("".join(f'[[keys]]\nkey = "{key}"\ngroups = {json.dumps(groups)}\n' for key, groups in keys.items()))
    key_path.chmod(0o600)
    options = {
        "serve.api-key-file": key_path,
        "serve.index-check-s": 0.2,
        "run-dir": run_dir,
        "cluster.num-cpus": 2,
        "engine.max-model-len": 512,
        "agent.query-mode": OWN_AGENT.query_mode,
        "agent.max-iterations": OWN_AGENT.max_iterations,
        "agent.max-tokens": OWN_AGENT.max_tokens,
        "agent.top-k": OWN_AGENT.top_k,
        "agent.examples": json.dumps([example.model_dump() for example in OWN_AGENT.examples]),
        "engine.max-num-seqs": 4,
        "engine.enforce-eager": True,  # `serve_faults` and `serve_scaling` have engines that compile
        "serve.adapter-dirs": run_dir / "finetune",
        "serve.max-body-mib": 1,
        "serve.max-tokens": 64,
        "serve.max-sequences": 4,
        "serve.max-queued-requests": 4,
        "serve.max-wait-s": 0.05,  # less than replies of 32 tokens take: who has to wait is refused
        "serve.tool-call-parser": "hermes",
        "serve.feedback.enabled": True,
        "serve.trial.challenger": "question",
        "serve.trial.share": 1,
    }
    with serve_run(options, SPT_NOENV=READABLE["SPT_NOENV"]) as endpoint:
        yield endpoint


@pytest.fixture
def client(endpoint: Endpoint) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{endpoint.url}/v1", api_key=API_KEY, timeout=PATIENCE_S, max_retries=0)


def test_both_models_answer_and_differ(client: openai.OpenAI) -> None:
    replies = {}
    for model in ("base", "tuned"):
        # Few tokens: later ones are near ties, which a prompt that is in the cache decides in another way.
        reply = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=FEW_TOKENS, temperature=0)
        assert reply.model == model
        assert reply.usage is not None
        assert 1 <= reply.usage.completion_tokens <= FEW_TOKENS
        replies[model] = reply.choices[0].message.content
        said = client.responses.create(model=model, input="Name a colour.", max_output_tokens=FEW_TOKENS, temperature=0)
        assert said.output_text == replies[model]
    assert replies["base"] != replies["tuned"]


def test_a_streamed_reply_arrives_in_parts_and_reads_like_the_whole(client: openai.OpenAI) -> None:
    options: Any = {"model": "base", "messages": QUESTION, "max_tokens": FEW_TOKENS, "temperature": 0}
    parts = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**options, stream=True)]
    assert len([part for part in parts if part]) > 1
    assert "".join(parts) == client.chat.completions.create(**options).choices[0].message.content


async def test_many_streams_at_once_are_whole_and_each_ends_with_its_last_event(endpoint: Endpoint) -> None:
    client = openai.AsyncOpenAI(base_url=f"{endpoint.url}/v1", api_key=API_KEY, timeout=PATIENCE_S, max_retries=0)

    async def count(number: int) -> None:
        messages: Any = [{"role": "user", "content": f"Count from {number} on."}]
        options: Any = {"model": "base", "messages": messages, "max_tokens": 24, "stream_options": {"include_usage": True}}
        stream = await client.chat.completions.create(**options, logprobs=True, stream=True)
        *chunks, last = [chunk async for chunk in stream]
        choices = [chunk.choices[0] for chunk in chunks]
        tokens = [token.token for choice in choices if choice.logprobs for token in choice.logprobs.content or []]
        assert last.usage is not None
        assert last.usage.completion_tokens == len(tokens)
        assert [choice.finish_reason is None for choice in choices] == [True] * (len(choices) - 1) + [False]

    await asyncio.gather(*(count(number) for number in range(4)))  # as many as may wait


def test_a_call_of_a_function_is_read_out_of_the_reply(client: openai.OpenAI) -> None:
    """So small a model is made to write one, in the form that `agent.protocol` tools teaches."""
    protocol = get_protocol("tools")
    call = re.escape(protocol.render_search("QUERY")).replace("QUERY", "[a-z]{3,12}")
    options: Any = {
        "model": "tuned",
        "messages": QUESTION,
        "tools": protocol.list_functions(),
        "tool_choice": "auto",
        "temperature": 0,
    }
    reply = client.chat.completions.create(**options, extra_body={"structured_outputs": {"regex": call}})
    [called] = reply.choices[0].message.tool_calls or []
    assert isinstance(called, ChatCompletionMessageFunctionToolCall)
    assert called.function.name == "search_documents"
    assert re.fullmatch(r'{"query": "[a-z]{3,12}"}', called.function.arguments)
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == (None, "tool_calls")


@pytest.mark.parametrize(("model", "agent"), [("base", OWN_AGENT), ("tuned", TRAINED_AGENT)])
def test_a_search_asks_each_model_as_it_was_trained(client: openai.OpenAI, model: str, agent: AgentConfig) -> None:
    """The reference is the model's reply, by vLLM's own route, to the agent's own prompt."""
    answer: Any = client.post("/search", cast_to=object, body={"question": ASKED, "model": model})
    reply = client.chat.completions.create(
        model=model,
        messages=cast(Any, Prompts(agent).opening(ASKED)),
        max_tokens=agent.max_tokens,
        temperature=0,
        stop=list(get_protocol(agent.protocol).stop),
        extra_body={"include_stop_str_in_output": True},
    )
    action = get_protocol(agent.protocol).parse(reply.choices[0].message.content or "")
    assert answer["query"] == (action.query if action.kind is ActionKind.SEARCH else None)
    assert (answer["model"], answer["query_mode"]) == (model, agent.query_mode)
    assert (answer["pages"][0]["file"], answer["pages"][0]["page_number"]) == ("iam.pdf", 4)


def test_the_agent_s_turns_are_streamed_and_the_adapter_is_asked_where_no_model_is_named(endpoint: Endpoint) -> None:
    body, headers = {"question": ASKED, "stream": True}, {"Authorization": f"Bearer {API_KEY}"}
    with httpx.stream("POST", f"{endpoint.url}/v1/ask", json=body, headers=headers, timeout=PATIENCE_S) as response:
        lines = [line for line in response.iter_lines() if line]
    names, data = lines[::2], [json.loads(line.removeprefix("data: ")) for line in lines[1::2]]
    assert names == ["event: turn"] * (len(names) - 1) + ["event: answer"]
    assert data[-1]["model"] == "tuned"
    assert data[-1]["turns"] == data[:-1]


async def test_the_tools_of_the_endpoint_find_what_its_routes_find(endpoint: Endpoint, client: openai.OpenAI) -> None:
    asked = {"question": ASKED, "model": "base", "top_k": OWN_AGENT.depth + 1}  # too many to choose: one greedy reply
    expected: Any = client.post("/search", cast_to=object, body=asked)
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {API_KEY}"}, timeout=PATIENCE_S)
    async with http, mcp.Client(streamable_http_client(f"{endpoint.url}/mcp", http_client=http)) as tools:
        found = await tools.call_tool("search", asked)
        assert found.structured_content == {**expected, "search_id": ""}  # feedback is for people
        page = await tools.call_tool("read_page", {"file": "iam.pdf", "page_number": 4})
        assert page.structured_content
        assert page.structured_content["text"] == PAGES[0].text
        missing = await tools.call_tool("read_page", {"file": "iam.pdf", "page_number": 5})
        assert missing.is_error


def test_feedback_is_kept_beside_the_run_with_a_pseudonym_of_who_gave_it(
    endpoint: Endpoint, client: openai.OpenAI, run_dir: Path
) -> None:
    asked = {"question": ASKED, "model": "question", "session": "a session of this test"}
    found: Any = client.post("/search", cast_to=object, body=asked)
    body = {"search_id": found["search_id"], "action": "right", "file": "iam.pdf", "page_number": 4}
    told: Any = client.post("/feedback", cast_to=object, body=body)
    assert told["rank"] == 1
    names = SearchIds(read_secret(run_dir / "feedback"))
    events, client_name = list(read_events(run_dir / "feedback")), names.name_client("127.0.0.1")
    [search] = [event for event in events if isinstance(event, ShownSearch) and event.id == found["search_id"][:12]]
    [mark] = [event for event in events if isinstance(event, Mark)]
    assert (search.question, search.client, mark.client, mark.search) == (ASKED, client_name, client_name, search.id)
    page = httpx.get(endpoint.url + "/")
    assert (page.status_code, "TAKES_FEEDBACK = true" in page.text) == (200, True)


async def test_a_key_of_a_group_finds_and_reads_its_documents_alone(endpoint: Endpoint) -> None:
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {LIMITED_KEY}"}, timeout=PATIENCE_S)
    async with http, mcp.Client(streamable_http_client(f"{endpoint.url}/mcp", http_client=http)) as tools:
        for asked in ({"model": "question"}, {"model": "base"}, {"model": "tuned", "filter": {}}):
            answer = await http.post(f"{endpoint.url}/v1/search", json={"question": ASKED, **asked})
            found = await tools.call_tool("search", {"question": ASKED, **asked})
            assert found.structured_content
            assert {page["file"] for told in (answer.json(), found.structured_content) for page in told["pages"]} <= {"kms.pdf"}
        assert (await tools.call_tool("read_page", {"file": "iam.pdf", "page_number": 4})).is_error
        assert not (await tools.call_tool("read_page", {"file": "kms.pdf", "page_number": 2})).is_error
        refused = await http.post(f"{endpoint.url}/v1/ask", json={"question": ASKED, "filter": {"group": "iam"}})
        assert (refused.status_code, "no column" in refused.text) == (400, True)
        assert (await http.get(f"{endpoint.url}/v1/index")).json()["pages"] == 1


async def test_a_newer_index_is_searched_without_a_restart_and_no_request_fails(endpoint: Endpoint, run_dir: Path) -> None:
    more = [Page(f"new{number}.pdf", 1, 1, "users and groups of a new page") for number in range(3)]
    headers, is_over = {"Authorization": f"Bearer {API_KEY}"}, False
    totals: set[int] = set()

    async def ask(client: httpx.AsyncClient) -> None:
        while not is_over:
            answer = await client.post(
                f"{endpoint.url}/v1/search", json={"question": "users of a page or grants", "model": "question"}
            )
            assert answer.status_code == 200, answer.text
            totals.add(len(answer.json()["pages"]))

    async with httpx.AsyncClient(headers=headers, timeout=PATIENCE_S) as client:
        asking = [asyncio.create_task(ask(client)) for _ in range(8)]
        for pages in ([*PAGES, *more], [*PAGES, more[0]], PAGES):
            await asyncio.to_thread(write_index, run_dir, pages)
            while (await client.get(f"{endpoint.url}/v1/index")).json()["pages"] != len(pages):
                assert not any(task.done() for task in asking)
                await asyncio.sleep(0.1)
        is_over = True
        await asyncio.gather(*asking)
    assert totals == {2, 3, 5}


def test_a_trial_has_real_requests_and_a_promotion_is_taken_without_a_restart(client: openai.OpenAI, run_dir: Path) -> None:
    found: Any = client.post("/search", cast_to=object, body={"question": ASKED})
    searches = {event.id: event for event in read_events(run_dir / "feedback") if isinstance(event, ShownSearch)}
    part, trial = searches[found["search_id"][:12]].part, Ledger(run_dir).trial
    assert part
    assert trial
    assert (part.trial, part.has_failed, len(part.teams)) == (trial.id, False, len(found["pages"]))
    assert found["model"] == "tuned"
    for action, model in ((["--promote", "--force"], "question"), (["--rollback"], "tuned")):
        assert main(["trial", str(run_dir), *action]) == 0
        deadline = time.monotonic() + PATIENCE_S
        while (answer := cast(Any, client.post("/search", cast_to=object, body={"question": ASKED})))["model"] != model:
            assert time.monotonic() < deadline, answer["model"]
            time.sleep(0.2)


def test_what_the_dashboard_shows_is_exported(endpoint: Endpoint, client: openai.OpenAI) -> None:
    answer: Any = client.post("/search", cast_to=object, body={"question": ASKED, "model": "base"})
    dashboard = (Path(drag_ray.__file__).parent / "serve" / "dashboard.json").read_text()
    wanted = set(re.findall(r"ray_(?:drag_ray|serve)_\w+", dashboard))
    if not answer["query"]:  # so small a model may write none; a counter is exported from its first step on
        wanted -= {"ray_drag_ray_request_queries_total"}
    [discovery] = endpoint.ray_dir.rglob("session_2*/prom_metrics_service_discovery.json")
    [address] = {target for entry in json.loads(discovery.read_text()) for target in entry["targets"][:1]}
    deadline = time.monotonic() + 180  # they are reported every few seconds
    missing = wanted
    while missing:
        assert time.monotonic() < deadline, missing
        time.sleep(1)
        lines = httpx.get(f"http://{address}/metrics", timeout=60).text.splitlines()
        found = [line for line in lines if not line.startswith("ray_drag_ray") or 'tool="search"' in line]
        missing = wanted - {line.partition("{")[0] for line in found}


def test_bad_questions_are_refused_and_the_engine_lives_on(client: openai.OpenAI) -> None:
    for body, error in (
        ({"question": ASKED, "model": "nobody"}, openai.NotFoundError),
        ({"question": "word " * 400}, openai.BadRequestError),  # more than the model's context
    ):
        for path in ("/search", "/ask"):
            with pytest.raises(error):
                client.post(path, cast_to=object, body=body)
    answer: Any = client.post("/search", cast_to=object, body={"question": ASKED})
    assert answer["pages"]


def test_a_request_without_the_key_is_refused(endpoint: Endpoint) -> None:
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{endpoint.url}/v1", api_key="wrong", max_retries=0).models.list()
    for method, path in (("GET", "/v1/models"), ("POST", "/v1/search"), ("POST", "/v1/ask"), ("POST", "/v1/load_lora_adapter")):
        assert httpx.request(method, endpoint.url + path, json={}).status_code == 401
    for path, content in (("/health", b""), ("/live", b""), ("/-/healthz", b"success")):
        answer = httpx.get(endpoint.url + path)
        assert (answer.status_code, answer.content) == (200, content)


def test_nothing_else_of_vllm_and_ray_serve_answers(endpoint: Endpoint) -> None:
    for method, path in (("POST", "/invocations"), ("GET", "/metrics"), ("GET", "/docs"), ("GET", "/-/routes")):
        for headers in ({}, {"Authorization": f"Bearer {API_KEY}"}):
            response = httpx.request(method, endpoint.url + path, json={}, headers=headers)
            assert (response.status_code, response.json()["error"]["code"]) == (404, 404), path


def test_a_request_for_too_much_is_told_the_limit(client: openai.OpenAI) -> None:
    for options, limit in (({"max_tokens": 65}, "serve.max_tokens"), ({"echo": True}, "prompt_logprobs, echo")):
        with pytest.raises(openai.BadRequestError, match=limit):
            client.chat.completions.create(model="base", messages=QUESTION, extra_body=options)
    with pytest.raises(openai.APIStatusError, match=r"serve\.max_body_mib") as error:
        client.completions.create(model="base", prompt="a" * 2**20)
    assert error.value.status_code == 413
    reply = client.chat.completions.create(model="base", messages=QUESTION, extra_body={"ignore_eos": True})
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 64  # where no length is asked for


def test_more_requests_than_can_wait_and_those_that_wait_too_long_are_told_to_come_back_and_health_waits_for_none(
    endpoint: Endpoint, client: openai.OpenAI
) -> None:
    def ask(number: int) -> str:
        try:
            options: Any = {"max_tokens": 32, "stream": number % 2 == 1, "extra_body": {"ignore_eos": True}}
            list(client.completions.create(model="base", prompt="One", **options))
        except openai.APIStatusError as error:
            problem = error.response.json()["error"]
            return f"{problem['type']} {problem['code']}, {error.response.headers['retry-after']} s"
        return "answered"

    with ThreadPoolExecutor(48) as pool:
        asked = [pool.submit(ask, number) for number in range(48)]
        wait(asked, return_when=FIRST_COMPLETED)  # who is refused is so before any reply is written: the engine has all it takes
        is_healthy = [httpx.get(f"{endpoint.url}{path}").status_code for path in ("/health", "/live")]
        is_busy = not all(future.done() for future in asked)
    outcomes = Counter(future.result() for future in asked)
    assert (is_healthy, is_busy) == ([200, 200], True)
    assert outcomes.pop("answered") >= 16  # four for each that the engine decodes at a time
    assert outcomes.keys() <= {"RateLimitError 429, 2 s", "ServiceUnavailableError 503, 5 s"}
    assert outcomes["ServiceUnavailableError 503, 5 s"] > 0


def test_an_adapter_of_a_named_folder_is_loaded_replaced_and_unloaded_while_the_endpoint_runs(
    endpoint: Endpoint, client: openai.OpenAI, run_dir: Path, tmp_path: Path
) -> None:
    """The new weights lie where the old ones lay, as after another training."""

    def load(path: Path, replaces: bool = False) -> None:
        body = {"lora_name": "later", "lora_path": str(path), "load_inplace": replaces}
        client.post("/load_lora_adapter", cast_to=str, body=body)

    def write(model: str) -> list[float]:
        """The log-probabilities of a reply to a prompt of more than a block of vLLM's prefix cache."""
        options: Any = {"messages": QUESTION, "max_tokens": FEW_TOKENS, "temperature": 0, "logprobs": True}
        [choice] = client.chat.completions.create(model=model, **options).choices
        assert choice.logprobs
        return [token.logprob for token in choice.logprobs.content or []]

    shutil.copytree(run_dir / "finetune" / "adapter", tmp_path / "adapter")
    with pytest.raises(openai.PermissionDeniedError, match=r"serve\.adapter_dirs"):
        load(tmp_path / "adapter")
    with pytest.raises(openai.BadRequestError, match="no such file"):
        load(run_dir / "finetune" / "nowhere")
    later = shutil.copytree(tmp_path / "adapter", run_dir / "finetune" / "later")
    load(later)
    assert "later" in [model.id for model in client.models.list()]
    base, tuned = write("base"), write("tuned")
    assert write("later") == pytest.approx(tuned, abs=0.02) != base
    weights = load_file(later / ADAPTER_WEIGHTS_NAME)
    save_file({name: -tensor if "lora_B" in name else tensor for name, tensor in weights.items()}, later / ADAPTER_WEIGHTS_NAME)
    load(later, replaces=True)
    replaced = write("later")
    assert all(replaced != pytest.approx(others, abs=0.02) for others in (tuned, base))
    client.post("/unload_lora_adapter", cast_to=str, body={"lora_name": "later"})
    assert "later" not in [model.id for model in client.models.list()]
    with pytest.raises(openai.NotFoundError):
        write("later")


def test_the_port_of_a_replica_is_the_only_one_beyond_this_machine_and_asks_for_the_token(endpoint: Endpoint) -> None:
    reachable = [port for port in list_ports(endpoint.driver) if port.address != "127.0.0.1"]
    assert [port.process.name()[:17] for port in reachable] == ["ray::ServeReplica"]
    ask = "ray.serve.ASGIService/HandleRequest"
    assert ask_grpc(reachable[0].number, ask) == ask_grpc(reachable[0].number, ask, "0" * 64) == grpc.StatusCode.UNAUTHENTICATED
    assert ask_grpc(reachable[0].number, ask, RAY_TOKEN) != grpc.StatusCode.UNAUTHENTICATED


def test_no_process_of_the_endpoint_reports_its_use(endpoint: Endpoint) -> None:
    names, reporting = list_reporting(endpoint.driver)
    assert {"VLLM::EngineCore", "raylet"} <= names
    assert any(name.startswith("ray::ServeReplica") for name in names)
    assert not reporting
    answer = httpx.get(f"{endpoint.dashboard}/usage_stats_enabled", headers={"Authorization": f"Bearer {RAY_TOKEN}"})
    assert answer.json()["data"]["usageStatsEnabled"] is False


def test_the_port_of_an_engine_keeps_the_rules_of_the_endpoint(endpoint: Endpoint, client: openai.OpenAI) -> None:
    client.models.list()
    ports = list_ports(endpoint.driver)
    [port] = [
        port.number for port in ports if port.process.name().startswith("ray::ServeRepl") and 30_000 <= port.number <= 31_000
    ]
    [proxy] = [one for one in endpoint.driver.children(recursive=True) if one.name().startswith("ray::ProxyActor")]
    # The proxy passes requests on to the engine by HTTP.
    assert port in [link.raddr.port for link in proxy.net_connections("tcp") if link.raddr]
    answers = {path: httpx.get(f"http://127.0.0.1:{port}{path}").status_code for path in ("/health", "/v1/models")}
    assert answers == {"/health": 200, "/v1/models": 401}
    for path in ("/-/routes", "/-/healthz", "/metrics", "/docs"):
        assert httpx.get(f"http://127.0.0.1:{port}{path}").status_code == 404


def test_the_key_stands_in_nothing_that_the_run_leaves_or_shows(endpoint: Endpoint, run_dir: Path) -> None:
    assert API_KEY not in endpoint.output
    assert "$DRAG_RAY_API_KEY" in endpoint.output
    files = [path for folder in (endpoint.ray_dir, run_dir) for path in folder.rglob("*") if path.is_file()]
    assert any("replica" in path.name for path in files)
    assert [path for path in files if API_KEY.encode() in path.read_bytes()] == []
    assert [found for found in psutil.process_iter(["cmdline"]) if API_KEY in " ".join(found.info["cmdline"] or [])] == []
    for path in (
        "/api/serve/applications/",
        "/api/jobs/",
        "/api/v0/actors?detail=1",
        "/api/v0/workers?detail=1",
        "/nodes?view=summary",
    ):
        answer = httpx.get(endpoint.dashboard + path, headers={"Authorization": f"Bearer {RAY_TOKEN}"}, timeout=30)
        assert answer.status_code == 200, path
        assert API_KEY not in answer.text, path


def test_the_endpoint_is_an_engine_for_rollouts(endpoint: Endpoint, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy replies are those that its own route gives, with the tag that ends them and the number of their tokens."""
    monkeypatch.setenv("SERVED_KEY", API_KEY)
    terms = EndpointConfig(address=f"{endpoint.url}/v1", key_variable="SERVED_KEY", prompt_price=1.0)
    config = EngineConfig(backend="openai", model="base", endpoint=terms)
    spending = Spending(run_dir / "spending.jsonl", terms)
    searcher = Searcher(run_dir / "index" / "search_index")
    environment = SearchEnvironment(searcher, OWN_AGENT.top_k, OWN_AGENT.depth)
    question = Question("q1", ASKED, (Evidence("iam.pdf", 4),))
    asked = {"question": ASKED, "model": "base"}
    answer = httpx.post(
        f"{endpoint.url}/v1/ask", headers={"Authorization": f"Bearer {API_KEY}"}, json=asked, timeout=PATIENCE_S
    ).json()

    async def roll_out() -> Trajectory:
        engine = EndpointEngine(config, None, spending)
        syntax = SYNTAX_HELP[searcher.record.syntax]
        rollouts = Rollouts(OWN_AGENT, Policy("base"), engine, environment, "", syntax, pages=searcher)
        try:
            return await rollouts.run(RolloutTask(question, 0, "greedy", 0))
        finally:
            await engine.close()

    trajectory = asyncio.run(roll_out())
    assert trajectory.error == ""
    taken = [(turn.action, turn.query) for turn in trajectory.turns]
    assert taken == [(turn["action"], turn["query"]) for turn in answer["turns"]]
    assert taken[0] == (ActionKind.SEARCH, taken[0][1])
    counts = [(turn.reply.num_prompt_tokens, turn.reply.num_completion_tokens) for turn in trajectory.turns]
    assert all(num_prompt > 20 and 0 < num_completion <= OWN_AGENT.max_tokens for num_prompt, num_completion in counts)
    assert spending.compute_cost() == pytest.approx(sum(num_prompt for num_prompt, _ in counts) / 1e6)


@pytest.mark.slow
def test_the_canary_tells_the_adapter_from_the_base_model(
    endpoint: Endpoint, run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAG_RAY_API_KEY", API_KEY)
    command = ["canary", str(run_dir / "finetune" / "adapter"), "--url", endpoint.url]
    assert main(command) == 0
    assert "tuned is this adapter" in capsys.readouterr().out
    assert main([*command, "--model", "base"]) == 1
    assert re.search(r"is not this adapter.*and by 0\.0\d+ from the base model's", capsys.readouterr().err)


@pytest.mark.slow
def test_the_canary_tells_a_merged_model_from_the_base_model(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    merge_adapter(embedded_model_dir(), run_dir / "finetune" / "adapter", tmp_path / "merged")
    command = ["canary", str(run_dir / "finetune" / "adapter"), "--merged"]
    assert main([*command, str(tmp_path / "merged")]) == 0
    assert "merged is this adapter" in capsys.readouterr().out
    assert main([*command, str(embedded_model_dir())]) == 1
    assert re.search(r"is not this adapter.*and by 0\.0000 from the base model's", capsys.readouterr().err)


@pytest.mark.slow
def test_requests_are_told_to_come_back_while_an_engine_is_replaced(
    endpoint: Endpoint, record_property: Callable[[str, object], None]
) -> None:
    engines = [process for process in endpoint.driver.children(recursive=True) if "EngineCore" in " ".join(process.cmdline())]
    url, headers = f"{endpoint.url}/v1/chat/completions", {"Authorization": f"Bearer {API_KEY}"}
    body = {"model": "base", "messages": QUESTION, "max_tokens": 2}

    def ask_for_long() -> httpx.Response:
        return httpx.post(url, json={**body, "max_tokens": 64, "ignore_eos": True}, headers=headers, timeout=PATIENCE_S)

    def stream_for_long() -> str:
        options = {**body, "max_tokens": 64, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", url, json=options, headers=headers, timeout=PATIENCE_S) as response:
            lines = response.iter_lines()
            begun = [next(lines)]
            is_streaming.wait(60)
            return "\n".join([*begun, *lines])

    is_streaming = threading.Barrier(3)
    assert engines
    with ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(stream_for_long) for _ in range(2)]
        is_streaming.wait(60)
        for engine in engines:
            engine.suspend()  # what is asked now is under way when it dies, if it arrives in time, and comes too late if not
        asked = [pool.submit(ask_for_long) for _ in range(2)]
        time.sleep(1)
        killed_at = time.monotonic()
        for engine in engines:
            engine.kill()
    for stream in streams:  # what has begun ends with an error, all else is told to come back
        assert '"error"' in stream.result()
    for answer in (pending.result() for pending in asked):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "30"), answer.text
        assert answer.json()["error"]["type"] == "ServiceUnavailableError"
    answers: list[tuple[int, str | None]] = []
    deadline = time.monotonic() + 400
    while not answers or answers[-1][0] != 200:
        assert time.monotonic() < deadline, answers
        answer = httpx.post(url, json=body, headers=headers, timeout=PATIENCE_S)
        answers.append((answer.status_code, answer.headers.get("retry-after")))
        time.sleep(1)
    record_property("recovered_s", time.monotonic() - killed_at)
    assert set(answers[:-1]) == {(503, "30")}
    searched = httpx.post(f"{endpoint.url}/v1/search", json={"question": ASKED}, headers=headers, timeout=PATIENCE_S)
    assert searched.status_code == 200
    logs = "".join(path.read_text(errors="replace") for path in endpoint.ray_dir.rglob("worker-*.err"))
    for said in ("the engine has died: requests", "no engine runs: requests", "1 engine(s) run again"):
        assert said in logs
