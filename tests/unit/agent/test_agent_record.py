"""What an adapter's folder says of how it is asked."""

import json
from pathlib import Path
from typing import Any

import pytest

from drag_ray.agent.config import AgentConfig, Example
from drag_ray.agent.record import RECORD_NAME, AgentRecord, read_record, write_record
from drag_ray.errors import DataError


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    agent = AgentConfig(query_mode="expand", question_weight=4, examples=(Example(question="Who rows?", query="oar^2"),))
    write_record(tmp_path, AgentRecord(agent=agent, preset="low_temp"))
    assert read_record(tmp_path) == AgentRecord(agent=agent, preset="low_temp")


def test_an_adapter_of_elsewhere_says_nothing(tmp_path: Path) -> None:
    assert read_record(tmp_path) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"agent": {"top_k": 0}}', '{"agent": {}, "preset": "hot"}', '{"agent": {"new": 1}}']
)
def test_a_record_that_cannot_be_read_is_named_and_not_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORD_NAME).write_text(text)
    with pytest.raises(DataError, match=RECORD_NAME):
        read_record(tmp_path)


def test_options_that_came_later_have_their_defaults(tmp_path: Path) -> None:
    (tmp_path / RECORD_NAME).write_text(json.dumps({"agent": {"top_k": 5}}))
    assert read_record(tmp_path) == AgentRecord(agent=AgentConfig(top_k=5))


def test_an_adapter_brings_no_code_and_is_refused_where_its_tools_are_not_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "hostile_tool.py").write_text("from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\nTOOL = 3\n")
    agent: dict[str, Any] = {
        "protocol": "tools",
        "max_iterations": 3,
        "tools": ["search", "grep"],
        "tool_modules": ["hostile_tool"],
    }
    agent["mcp_servers"] = [{"name": "hostile", "command": ["touch", str(tmp_path / "hostile_tool.ran")]}]
    agent["python_interpreter"] = {"memory_mib": 60000}
    agent["super_resolution"] = {"model": str(tmp_path / "hostile.onnx")}
    (tmp_path / RECORD_NAME).write_text(json.dumps({"agent": agent}))
    record = read_record(tmp_path)
    assert record
    assert record.agent.python_interpreter == AgentConfig().python_interpreter
    assert record.agent.super_resolution == AgentConfig().super_resolution
    assert (record.agent.tools, record.agent.tool_modules, record.agent.mcp_servers) == (("search", "grep"), (), ())
    (tmp_path / RECORD_NAME).write_text(json.dumps({"agent": {**agent, "tools": ["search", "hostile"]}}))
    with pytest.raises(DataError, match="not to be had here"):
        read_record(tmp_path)
    assert not (tmp_path / "hostile_tool.ran").exists()
