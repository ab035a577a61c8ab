"""Options of the evaluate stage."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from drag_ray.agent.config import AgentConfig
from drag_ray.baselines.config import BestOfConfig, PassageConfig, Rm3Config
from drag_ray.config import BaseConfig, Sections
from drag_ray.engine.config import EngineConfig
from drag_ray.rollout.config import RolloutConfig


class EvaluateConfig(BaseConfig):
    """Which policies are compared, on how many held-out questions."""

    limit: int = Field(default=0, ge=0)
    """test questions to take, drawn at random; 0 takes all"""
    baselines: tuple[str, ...] = ("question",)
    """policies to compare with; question: the question is the query; question_keywords: without its stop words; rm3: expanded
    by terms of the pages that it finds; hyde: a passage that the base model writes; query2doc: the question and a passage; drawn:
    a query that the base model draws; best_of: of several the one that this run's reward model likes best. A run whose finetune
    stage made a reward model compares drawn and best_of unasked"""
    rm3: Rm3Config = Rm3Config()
    """options of rm3"""
    passage: PassageConfig = PassageConfig()
    """options of hyde and query2doc"""
    best_of: BestOfConfig = BestOfConfig()
    """options of best_of and drawn"""
    adapters: tuple[str, ...] = ()
    """adapters to compare with the base model, as name=folder; when empty, that of this run's finetune stage, as `tuned`"""
    merged: bool = True
    """without a GPU, evaluate this run's adapter merged into the model: a dynamic adapter is several times slower there"""
    num_resamples: int = Field(default=10_000, ge=100)
    """bootstrap resamples and permutations"""
    num_examples: int = Field(default=5, ge=0)
    """examples in the report of each kind: better, worse, equal"""


@dataclass(frozen=True)
class EvaluateSections(Sections):
    """What the evaluate stage receives."""

    seed: int
    agent: AgentConfig
    engine: EngineConfig
    rollout: RolloutConfig
    evaluate: EvaluateConfig

    def list_sources(self) -> dict[str, Path]:
        """The adapters that are compared."""
        folders = (entry.partition("=")[2] for entry in self.evaluate.adapters)
        return self.engine.list_sources() | {f"evaluate.adapters {folder}": Path(folder) for folder in folders if folder}
