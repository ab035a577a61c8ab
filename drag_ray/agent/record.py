"""The agent that an adapter was trained for, in a file beside its weights: who serves the adapter asks as it was trained."""

from pathlib import Path

from pydantic import Field, ValidationError

from drag_ray.agent.config import AgentConfig
from drag_ray.artifacts import write_json
from drag_ray.config import BaseConfig
from drag_ray.engine.sampling import PresetName
from drag_ray.errors import ConfigError, DataError

RECORD_NAME = "drag_ray_agent.json"
_OF_THE_HOST = ("tool_modules", "mcp_servers", "python_interpreter", "super_resolution", "visit", "web_search")
"""Options that say what runs, and what it may do."""


class AgentRecord(BaseConfig):
    """How a policy is asked, and how its replies are drawn."""

    agent: AgentConfig
    """prompts, action format and query mode, as the policy was collected with and learned from"""
    preset: PresetName = "greedy"
    """sampling preset; greedy is how the evaluation asks, so that its numbers hold where the policy is served"""
    index_fingerprint: str = Field(default="", pattern="^[0-9a-f]{0,64}$")
    """of the search index that it was trained for; empty where that is not known"""

    def weigh(self, question_weight: float) -> "AgentRecord":
        """The same with another weight of the question."""
        return self.model_copy(update={"agent": self.agent.model_copy(update={"question_weight": question_weight})})


def write_record(adapter_dir: Path, record: AgentRecord) -> None:
    """Note in an adapter's folder how it is asked."""
    write_json(adapter_dir / RECORD_NAME, record.model_dump(mode="json"))


def read_record(adapter_dir: Path, host: AgentConfig | None = None) -> AgentRecord | None:
    """How an adapter is asked; None for one of elsewhere, which does not say.

    Args:
        host: the reader's own agent, whose modules, servers and options of tools hold. Those that the note names are neither
            imported nor started, and what it lets a tool do does not count: adapters come from anywhere.

    Raises:
        DataError: the note cannot be read, or names tools that are not to be had here.
    """
    path = adapter_dir / RECORD_NAME
    try:
        record = AgentRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise DataError(
            f"{path}: not the note that finetune leaves in an adapter's folder ({error}). Run finetune again, or take it away to "
            "have the adapter asked with the options of `agent`."
        ) from None
    host = host or AgentConfig()
    agent = record.agent.model_copy(update={name: getattr(host, name) for name in _OF_THE_HOST})
    try:
        agent.load_tools()
    except ConfigError as error:
        raise DataError(f"{path}: the adapter calls tools that are not to be had here. {error}") from None
    return record.model_copy(update={"agent": agent})
