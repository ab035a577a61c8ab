"""The agent that an adapter was trained for, in a file beside its weights: who serves the adapter asks as it was trained."""

import logging
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, field_validator

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.tasks import ORDERING
from drag_ray.config import BaseConfig
from drag_ray.engine.sampling import PresetName
from drag_ray.errors import ConfigError, DataError
from drag_ray.storage.artifacts import write_json
from drag_ray.tools.config import ToolOptions

RECORD_NAME = "drag_ray_agent.json"
_MAX_BYTES = 2**20
"""of a note, with its instructions and examples"""

HOW_IT_IS_ASKED = frozenset(
    ("task", "protocol", "query_mode", "question_weight", "question_words", "retrieval", "dense_weight", "page_view")
    + ("forced_calls", "thinking", "instructions", "examples")
)
"""Options that hold as an adapter's note has them: words for the model, and choices that give it no right."""
AT_MOST_THE_HOSTS = frozenset(
    ("rerank", "max_iterations", "top_k", "depth", "max_images", "page_chars", "max_tokens", "tool_timeout_s")
    + ("observation_chars",)
)
"""Numbers, of which the smaller one holds; in a section, of each number in it."""
ZERO_IS_ANY_NUMBER = frozenset(("image_searches", "text_searches", "max_tool_errors"))
"""Numbers, of which the smaller one holds, but for 0."""
NARROWED = frozenset(("tools",))
"""Lists, of which what the host has holds. What stands in none of these four, such as an option that is new, is the host's."""

_logger = logging.getLogger(__name__)


class AgentRecord(BaseConfig):
    """The record of a policy: how it is asked, and how its replies are drawn."""

    agent: AgentConfig
    """prompts, action format and query mode, as the policy was collected with and learned from"""
    preset: PresetName = "greedy"
    """sampling preset; greedy is how the evaluation asks, so that its numbers hold where the policy is served"""
    index_fingerprint: str = Field(default="", pattern="^[0-9a-f]{0,64}$")
    """of the search index that it was trained for; empty where that is not known"""

    @field_validator("agent", mode="before")
    @classmethod
    def _leaves_tools_to_the_host(cls, agent: Any) -> Any:
        """Options of tools are the reader's own, so what an older version noted of them does not matter."""
        of_tools = {field.name for field in fields(ToolOptions)}
        return {name: value for name, value in agent.items() if name not in of_tools} if isinstance(agent, dict) else agent

    def weigh(self, question_weight: float) -> "AgentRecord":
        """The same with another weight of the question."""
        return self.model_copy(update={"agent": self.agent.model_copy(update={"question_weight": question_weight})})


def write_record(adapter_dir: Path, record: AgentRecord) -> None:
    """Note in an adapter's folder how it is asked."""
    write_json(adapter_dir / RECORD_NAME, record.model_dump(mode="json"))


def read_record(adapter_dir: Path, host: AgentConfig) -> AgentRecord | None:
    """The record of an adapter; None for one of elsewhere, which does not say. Raises DataError where the note cannot be read, or
    calls tools that are not to be had here. `host`: the reader's own agent. The note of an adapter, which may come from anywhere,
    allows nothing that this does not: its tools are those that both have, its numbers are at most the host's, and modules,
    servers and options of tools are the host's. The log says what was cut."""
    path = adapter_dir / RECORD_NAME
    if not path.exists():
        return None
    try:
        record = AgentRecord.model_validate_json(_read_note(path))
        agent, cuts = _bound(record.agent, host)
        agent.load_tools()
    except (OSError, ValueError, ConfigError) as error:  # pydantic's is a ValueError
        raise DataError(
            f"{path}: not a usable record of an adapter's agent options ({error}). Give options of `agent` that allow "
            "what it needs, run finetune again, or remove the file to use the adapter with the options of `agent`."
        ) from None
    if cuts:
        _logger.warning(f"{path}: the adapter is allowed what `agent` allows here: {', '.join(cuts)}")
    return record.model_copy(update={"agent": agent})


def _read_note(path: Path) -> bytes:
    if not path.is_file():
        raise ValueError("it is no file")
    with path.open("rb") as stream:
        text = stream.read(_MAX_BYTES + 1)
    if len(text) > _MAX_BYTES:
        raise ValueError(f"it is larger than {_MAX_BYTES:,} bytes")
    return text


def _bound(noted: AgentConfig, host: AgentConfig) -> tuple[AgentConfig, list[str]]:
    """The agent as far as a note may set it, and what was cut."""
    values = {name: getattr(noted if name in HOW_IT_IS_ASKED else host, name) for name in AgentConfig.model_fields}
    limits = dict(values)
    if noted.task in ORDERING:  # its lists are as long as the host lets windows go over
        limits["depth"] = max(host.depth, host.rerank.candidates)
    for name in AT_MOST_THE_HOSTS:
        values[name] = _take_less(getattr(noted, name), limits[name])
    for name in ZERO_IS_ANY_NUMBER:
        values[name] = min(getattr(noted, name) or math.inf, limits[name] or math.inf)
        values[name] = 0 if values[name] == math.inf else values[name]
    for name in NARROWED:  # searching is what every agent is served for
        values[name] = tuple(item for item in getattr(noted, name) if item in ("search", *limits[name]))
    bounded = sorted(AT_MOST_THE_HOSTS | ZERO_IS_ANY_NUMBER | NARROWED)
    cuts = [f"{name} {values[name]}, not {asked}" for name in bounded if (asked := getattr(noted, name)) != values[name]]
    return AgentConfig.model_validate(values), cuts


def _take_less(noted: Any, limit: Any) -> Any:
    if not isinstance(noted, BaseModel):
        return min(noted, limit)
    return noted.model_copy(update={name: _take_less(value, getattr(limit, name)) for name, value in noted})
