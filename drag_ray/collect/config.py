"""Options of the collect stage."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from drag_ray.agent.config import AgentConfig, PromptSet
from drag_ray.agent.tasks import ORDERING
from drag_ray.baselines.registry import ProposerName, ProposerSections
from drag_ray.cluster.telemetry import TelemetryConfig
from drag_ray.config import Sections, check_files
from drag_ray.corpus.image_degradation import DegradationConfig
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.sampling import SamplingName
from drag_ray.errors import ConfigError
from drag_ray.rollout.config import RolloutConfig

_ID_FILES = ("include_ids", "exclude_ids")


class CollectConfig(ProposerSections):
    """The rollouts to run; the options of the baselines that propose are sections of it."""

    include_ids: str = ""
    """file with the ids of the training questions to use, one per line; unknown ids are refused"""
    exclude_ids: str = ""
    """file of ids, one a line, of questions to leave out; ids that are no training questions are counted"""
    limit: int = Field(default=0, ge=0)
    """training questions to take, drawn at random after inclusion and exclusion; 0 takes all"""
    presets: tuple[SamplingName, ...] = Field(default=("default",), min_length=1)
    """sampling presets; every question is sampled with each: greedy, low_temp, default, high_temp, full, creative, diverse, or
    numbers, temperature:top_p or temperature:top_p:repetition_penalty, for example 0.8:0.95:1.1"""
    samples_per_question: int = Field(default=4, ge=1)
    """rollouts of a question for each preset"""
    enough_successes: int = Field(default=0, ge=0)
    """distinct winning queries (evidence ranked first, or better than by the question itself) after which a question gets no
    further samples; 0 takes all samples. Samples then run in small rounds, so that the result depends on the seeds and not on
    timing"""
    prompt_sets: tuple[PromptSet, ...] = ()
    """alternative openings of the conversation, used in turn with the agent's own for more varied queries; training uses the
    agent's own opening"""
    proposals: tuple[ProposerName, ...] = ()
    """baselines whose additions to the question are searched as further training examples. These rows are off-policy, and
    reinforcement learning ignores them"""
    teacher: EngineConfig | None = None
    """engine that writes instead of the policy, for example {backend = "openai", model = "...", endpoint = {address = "..."}};
    engine.model then learns from its trajectories. Reinforcement learning cannot, because it needs the policy's own tokens"""
    degradation: DegradationConfig = DegradationConfig()
    """degradation of pictures, so that the policy learns to restore them"""
    hinted_samples: int = Field(default=0, ge=0)
    """further rollouts of questions whose evidence no sample found. Their prompt shows the page (STaR), the training prompt does
    not; see format.hinted"""


@dataclass(frozen=True)
class CollectSections(Sections):
    """The sections of the collect stage."""

    seed: int
    agent: AgentConfig
    engine: EngineConfig
    rollout: RolloutConfig
    collect: CollectConfig
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)

    @property
    def writer(self) -> EngineConfig:
        """The engine that writes: the teacher's, where there is one."""
        return self.collect.teacher or self.engine

    def dump(self) -> dict[str, Any]:
        """As `Sections.dump`, with the engine that writes as the engine: another student does not change a teacher's rollouts."""
        options = super().dump()
        engine = options["collect"].pop("teacher") or options["engine"]
        chosen = {name: value for name, value in options["collect"].items() if value or name not in _ID_FILES}
        return options | {"engine": engine, "collect": chosen}

    def list_sources(self) -> dict[str, Path]:
        """The adapter that the model writes with, and the files of ids."""
        return self.writer.list_sources() | self._list_id_files()

    def _list_id_files(self) -> dict[str, Path]:
        named = {f"collect.{name}": getattr(self.collect, name) for name in _ID_FILES}
        return {option: Path(path).expanduser() for option, path in named.items() if path}

    def check(self) -> None:
        """ConfigError where there is something to write that the task has no place for, or that is searched otherwise, or a file
        of ids is missing."""
        settings = self.collect
        check_files(self._list_id_files())
        if settings.proposals and self.agent.retrieval != "bm25":
            raise ConfigError(
                f"collect.proposals: baselines search by words only, and agent.retrieval is {self.agent.retrieval!r}: their "
                "results cannot be compared. Remove one of the options."
            )
        if self.agent.task not in ORDERING:
            return
        examples = any(prompt_set.examples for prompt_set in settings.prompt_sets)
        given = {
            "collect.proposals": settings.proposals,
            "collect.hinted_samples": settings.hinted_samples,
            "examples in collect.prompt_sets": examples,
        }
        if options := [option for option, value in given.items() if value]:
            raise ConfigError(f"{options[0]}: help with searches, and the task rerank writes orders. Leave that out.")

    def list_unread(self) -> tuple[str, ...]:
        """The vectors, where the agent searches by words alone."""
        return ("embed",) if self.agent.retrieval == "bm25" else ()

    def list_code(self) -> list[Path]:
        """The modules of the agent's tools."""
        return self.agent.list_tool_sources()
