"""Options of running rollouts, whichever stage they are for: how they are spread, and how much may fail."""

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from drag_ray.config import BaseConfig
from drag_ray.engine.config import EngineConfig

_LEAST_CHUNK = 8
_CHUNKS_AT_ONCE = 100
"""Chunks that fill an engine's slots with their first rollouts."""


class ToolHostConfig(BaseConfig):
    """Actors that run a tool, so that no engine's process does."""

    tool: str
    """name of the tool, or of the MCP server, as in agent.tools"""
    num_actors: int = Field(default=1, ge=1)
    """actors, each a process"""
    num_cpus: float = Field(default=1, ge=0)
    """CPUs that each reserves"""
    num_gpus: float = Field(default=0, ge=0)
    """GPUs that each reserves, or which part of one; set rollout.num_engines to what is left then"""
    calls_at_once: int = Field(default=1, ge=1)
    """calls that each works on at the same time; more of them wait, in their own agent.tool_timeout_s"""


class RolloutConfig(BaseConfig):
    """Options of the spread of rollouts over engines. None of it changes what comes out, unless rollouts fail."""

    num_engines: int = Field(default=0, ge=0)
    """engines; 0 takes as many as fit on the GPUs that there are, or one where there is no GPU"""
    engines_per_gpu: int = Field(default=1, ge=1)
    """engines that share a GPU and engine.gpu_memory_utilization: for models so small that one engine keeps a CPU core busy while
    the GPU waits"""
    max_engines: int = Field(default=0, ge=0)
    """engines at most: the pool starts with num_engines and grows while the cluster has or gets what more need; 0 keeps it"""
    keep_engines: bool = True
    """a pipeline's engines stay up between its stages, and rest while it trains; otherwise each stage starts its own engines"""
    workers_per_engine: int = Field(default=0, ge=0)
    """processes that search and keep records for an engine which a pipeline keeps: a small model on a GPU is faster than one of
    them; 0 takes one for every 2 CPU cores that there are for an engine, 8 at most"""
    concurrent_rollouts: int = Field(default=256, ge=1)
    """rollouts that an engine works on at the same time"""
    chunk_rollouts: int = Field(default=0, ge=0)
    """rollouts that an engine is given at once; the samples of a question stay together, whatever their number; 0 takes 8, or a
    hundredth of concurrent_rollouts where that is more: everything that is given at once costs memory"""
    tool_hosts: tuple[ToolHostConfig, ...] = ()
    """tools that are slow or may end their process, each on actors of its own, for all engines; the others run in threads of the
    processes that call them"""
    node_dir: Path | None = None
    """a folder on each node's own disk, to which its first engine copies the index and from where all of them search it; without
    one they search it where the run is, which from a network disk takes time at first. A node that does not see the run's folder
    has there what it fetches from storage.uri. All of it is in a folder of this user's alone, and nothing is removed"""
    flush_s: float = Field(default=5.0, ge=0)
    """seconds between writes of finished trajectories; what is not yet written is done again after a kill"""
    max_tries: int = Field(default=3, ge=1)
    """tries of a rollout that fails; then it is set aside, until the stage is started again with more"""
    max_failure_rate: float = Field(default=0.2, ge=0, le=1)
    """the run stops when more than this share of its rollouts fails, looked at from 20 on, and does not count as done when more
    than this share of all failed"""

    @property
    def chunk_size(self) -> int:
        """Rollouts of a chunk."""
        return self.chunk_rollouts or max(_LEAST_CHUNK, self.concurrent_rollouts // _CHUNKS_AT_ONCE)

    @field_validator("node_dir")
    @classmethod
    def _is_absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError(
                f"{str(value)!r} is not absolute: it has to mean the same in each process of a node, as /tmp/drag_ray"
            )
        return value

    @field_validator("tool_hosts")
    @classmethod
    def _has_each_once(cls, value: tuple[ToolHostConfig, ...]) -> tuple[ToolHostConfig, ...]:
        names = [config.tool for config in value]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"tool_hosts has {', '.join(twice)} twice; raise num_actors instead")
        return value

    @model_validator(mode="after")
    def _most_is_no_less(self) -> "RolloutConfig":
        if 0 < self.max_engines < self.num_engines:
            raise ValueError(f"max_engines {self.max_engines} is below num_engines {self.num_engines}; leave it 0 or raise it")
        return self


class JudgeConfig(BaseConfig):
    """A model that says whether an answer means what a gold answer means, where the letters differ."""

    enabled: bool = False
    """have the answers of questions that have gold answers judged: evaluate tells semantic accuracy beside ANLS*, process takes
    what the judge says in the place of ANLS*"""
    engine: EngineConfig = EngineConfig()
    """the engine of the judge, as the section `engine`: an endpoint, or a local model, which takes a GPU if there is one"""
    max_tokens: int = Field(default=1024, ge=16)
    """tokens of a verdict, with the reasoning before it"""

    def list_sources(self) -> dict[str, Path]:
        """The adapter of a judge that is asked."""
        return {"judge.engine.adapter": Path(self.engine.adapter)} if self.enabled and self.engine.adapter else {}
