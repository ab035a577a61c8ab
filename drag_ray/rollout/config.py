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
    """actors, each a process that works on one call at a time; others wait, in their own agent.tool_timeout_s"""
    num_cpus: float = Field(default=1, ge=0)
    """CPUs that each reserves"""
    num_gpus: float = Field(default=0, ge=0)
    """GPUs that each reserves, or which part of one; set rollout.num_engines to what is left then"""


class RolloutConfig(BaseConfig):
    """Options of the spread of rollouts over engines. None of it changes what comes out, unless rollouts fail."""

    num_engines: int = Field(default=0, ge=0)
    """number of engines; 0 takes as many as fit on the GPUs, or one without a GPU"""
    engines_per_gpu: int = Field(default=1, ge=1)
    """engines that share a GPU and engine.gpu_memory_utilization, for small models with which one engine keeps a CPU core busy
    while the GPU waits"""
    max_engines: int = Field(default=0, ge=0)
    """largest number of engines: the pool starts with num_engines and grows while the cluster has or gets the resources; 0
    keeps num_engines"""
    keep_engines: bool = True
    """keep a pipeline's engines running between its stages, and asleep while it trains; otherwise each stage starts its own"""
    workers_per_engine: int = Field(default=0, ge=0)
    """processes that search and keep records for a kept engine, because a small model on a GPU is faster than a single process; 0
    uses one for every 2 CPU cores of the engine, at most 8"""
    concurrent_rollouts: int = Field(default=256, ge=1)
    """concurrent rollouts of an engine"""
    chunk_rollouts: int = Field(default=0, ge=0)
    """rollouts that are assigned to an engine at once; the samples of a question stay together, and more rollouts need more
    memory. 0 uses 8, or a hundredth of concurrent_rollouts if that is more"""
    tool_hosts: tuple[ToolHostConfig, ...] = ()
    """slow or crash-prone tools to run in separate actors for all engines; the others run in threads of the calling processes"""
    node_dir: Path | None = None
    """folder on each node's own disk; the first engine copies the index there, and all engines of the node search that copy.
    Without it they search the index in the run's folder, which is slow at first on a network disk. A node that does not see the
    run's folder also stores data from storage.uri there. Only this user can read it, and nothing is removed"""
    flush_s: float = Field(default=5.0, ge=0)
    """seconds between writes of finished trajectories; unwritten ones are repeated after a kill"""
    max_tries: int = Field(default=3, ge=1)
    """attempts at a rollout before it is set aside; a later start with more attempts tries it again"""
    max_failure_rate: float = Field(default=0.2, ge=0, le=1)
    """share of failed rollouts above which the stage stops, checked from 20 rollouts on, or does not count as finished"""

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
    """let a judge assess the answers to questions with gold answers: evaluate reports semantic accuracy in addition to ANLS*,
    process uses the verdict instead of ANLS*"""
    engine: EngineConfig = EngineConfig()
    """the engine of the judge, as the section `engine`: an endpoint, or a local model, which takes a GPU if there is one"""
    max_tokens: int = Field(default=1024, ge=16)
    """tokens of a verdict, with the reasoning before it"""

    def list_sources(self) -> dict[str, Path]:
        """The adapter of a judge that is asked."""
        return {"judge.engine.adapter": Path(self.engine.adapter)} if self.enabled and self.engine.adapter else {}
