"""Record of an adapter's folder: the options of the agent that it was trained with."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from drag_ray.agent import record as record_module
from drag_ray.agent.config import AgentConfig, Example
from drag_ray.agent.record import RECORD_NAME, AgentRecord, read_record, write_record
from drag_ray.errors import DataError

HOST = AgentConfig()
OPEN_HOST = AgentConfig(protocol="tools", tools=("search", "read_page", "visit"), max_iterations=4, image_searches=2)


def read(folder: Path, agent: dict[str, Any], host: AgentConfig = HOST) -> AgentConfig:
    (folder / RECORD_NAME).write_text(json.dumps({"agent": agent}))
    record = read_record(folder, host)
    assert record
    return record.agent


def test_a_record_is_read_as_it_was_written_where_the_host_allows_it_with_defaults_for_later_options(tmp_path: Path) -> None:
    agent = AgentConfig(query_mode="expand", question_weight=4, examples=(Example(question="Who rows?", query="oar^2"),))
    write_record(tmp_path, AgentRecord(agent=agent, preset="low_temp"))
    assert read_record(tmp_path, HOST) == AgentRecord(agent=agent, preset="low_temp")
    assert read(tmp_path, OPEN_HOST.model_dump(mode="json"), OPEN_HOST) == OPEN_HOST
    assert read(tmp_path, {"top_k": 2}) == AgentConfig(top_k=2)


def test_an_adapter_of_elsewhere_says_nothing_and_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    assert read_record(tmp_path, HOST) is None
    os.mkfifo(tmp_path / "pipe")
    for target in (Path("/dev/zero"), tmp_path / "pipe", tmp_path):
        (tmp_path / RECORD_NAME).symlink_to(target)
        with pytest.raises(DataError, match="no file"):
            read_record(tmp_path, HOST)
        (tmp_path / RECORD_NAME).unlink()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"agent": {"top_k": 0}}',
        '{"agent": {}, "preset": "hot"}',
        '{"agent": {"new": 1}}',
        '{"agent": {}, "index_fingerprint": "\\u001b[31mred"}',  # a terminal is shown it
        '{"agent": ' * 10_000,
        '{"agent": {"instructions": "' + "x" * 2**20 + '"}}',
        '{"agent": {"task": "answer", "max_iterations": 3}}',  # which the host's one reply leaves no place for
    ],
)
def test_a_record_that_cannot_be_used_is_named_and_not_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORD_NAME).write_text(text)
    with pytest.raises(DataError, match=RECORD_NAME):
        read_record(tmp_path, HOST)


@pytest.mark.parametrize("tool", ["visit", "python_interpreter", "web_search", "grep", "hostile"])
def test_tools_are_those_that_the_host_names_too(tmp_path: Path, tool: str, caplog: pytest.LogCaptureFixture) -> None:
    asked = {"protocol": "tools", "max_iterations": 3, "tools": ["read_page", tool, "search"]}
    assert read(tmp_path, asked).tools == ("search",)
    assert f"tools ('search',), not ('read_page', '{tool}', 'search')" in caplog.text
    assert read(tmp_path, asked, OPEN_HOST).tools == (
        ("read_page", "visit", "search") if tool == "visit" else ("read_page", "search")
    )


def test_numbers_are_at_most_the_hosts_and_the_log_says_what_was_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    million = 1_000_000
    names = ("max_iterations", "top_k", "depth", "max_images", "page_chars", "max_tokens", "tool_timeout_s", "observation_chars")
    windows = {"candidates": million, "window": million, "step": million - 1}
    cut = read(tmp_path, {"rerank": windows, "max_tool_errors": 0, **dict.fromkeys(names, million)})
    assert cut == HOST
    assert "max_iterations 1, not 1000000" in caplog.text
    assert "max_tool_errors 3, not 0" in caplog.text
    assert read(tmp_path, {"max_tokens": 7, "max_iterations": million, "image_searches": 0}, OPEN_HOST) == AgentConfig(
        max_tokens=7, max_iterations=4, image_searches=2
    )
    assert read(tmp_path, {"image_searches": 1, "text_searches": 3}, OPEN_HOST).image_searches == 1


def test_a_reranker_orders_as_many_pages_as_the_hosts_windows_go_over(tmp_path: Path) -> None:
    rerank = {"task": "rerank", "depth": 1_000, "rerank": {"candidates": 1_000}}
    agent = read(tmp_path, rerank)
    assert (agent.depth, agent.rerank.candidates) == (50, 50)


def test_whatever_two_agents_say_what_is_read_is_an_agent_within_the_hosts(tmp_path: Path) -> None:
    hosts = (HOST, OPEN_HOST, AgentConfig(task="rerank", depth=20, rerank={"candidates": 20, "window": 5, "step": 4}))  # pyright: ignore[reportArgumentType]
    for host in hosts:
        for noted in hosts:
            agent = read(tmp_path, noted.model_dump(mode="json"), host)
            assert set(agent.tools) <= {"search", *host.tools}
            assert agent.max_iterations <= host.max_iterations
            assert agent.rerank.window <= host.rerank.window


def test_every_option_is_the_hosts_unless_it_is_decided_otherwise() -> None:
    groups = (
        record_module.HOW_IT_IS_ASKED,
        record_module.AT_MOST_THE_HOSTS,
        record_module.ZERO_IS_ANY_NUMBER,
        record_module.NARROWED,
    )
    decided = [name for group in groups for name in group]
    assert len(decided) == len(set(decided))
    sections = {"python_interpreter", "super_resolution", "visit", "web_search"}
    assert AgentConfig.model_fields.keys() - set(decided) == {"tool_modules", "mcp_servers", *sections}


def test_an_adapter_brings_no_code_and_no_options_of_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "hostile_tool.py").write_text("from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\nTOOL = 3\n")
    agent: dict[str, Any] = {
        "protocol": "tools",
        "max_iterations": 3,
        "tools": ["search", "visit", "hostile"],
        "tool_modules": ["hostile_tool"],
        "visit": {"allow_private": True},
    }
    agent["mcp_servers"] = [{"name": "hostile", "command": ["touch", str(tmp_path / "hostile_tool.ran")]}]
    agent["python_interpreter"] = {"memory_mib": 60000}
    agent["super_resolution"] = {"model": str(tmp_path / "hostile.onnx")}
    read_agent = read(tmp_path, agent, OPEN_HOST)
    assert (read_agent.tools, read_agent.tool_modules, read_agent.mcp_servers) == (("search", "visit"), (), ())
    for name in ("python_interpreter", "super_resolution", "visit", "web_search"):
        assert getattr(read_agent, name) == getattr(OPEN_HOST, name)
    assert not (tmp_path / "hostile_tool.ran").exists()


def test_what_an_older_version_noted_of_tools_does_not_matter(tmp_path: Path) -> None:
    of_tools = {"web_search": {"num_results": 9, "results_field": "items"}, "visit": {"timeout_s": 9}}
    assert read(tmp_path, {"top_k": 2, **of_tools, "python_interpreter": {"num_parallel": 2}}) == AgentConfig(top_k=2)
