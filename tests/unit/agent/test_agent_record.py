"""What an adapter's folder says of how it is asked."""

import json
from pathlib import Path

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
