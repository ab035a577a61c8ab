"""The options of a whole run: every stage's section in one place, and where each stage's folder is."""

import dataclasses
from pathlib import Path
from typing import TypeVar

from drag_ray.agent.config import AgentConfig
from drag_ray.cluster import ClusterConfig
from drag_ray.collect.config import CollectConfig
from drag_ray.config import BaseConfig
from drag_ray.corpus.config import CorpusConfig
from drag_ray.engine.config import EngineConfig
from drag_ray.evaluate.config import EvaluateConfig
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.format.config import FormatConfig
from drag_ray.process.config import ProcessConfig
from drag_ray.rollout.config import RolloutConfig
from drag_ray.search.config import SearchConfig
from drag_ray.serve.config import ServeConfig

SectionsT = TypeVar("SectionsT")


class RunConfig(BaseConfig):
    """Everything that can be set. A configuration file holds any part of it."""

    run_dir: Path = Path("runs/default")
    """folder of the run; each stage has a folder of its own in it"""
    verify: bool = False
    """look at every byte of the finished stages, not only at sizes, small files and samples of large ones; what is damaged is
    done again"""
    seed: int = 0
    """seed of sampling and resampling"""
    cluster: ClusterConfig = ClusterConfig()
    corpus: CorpusConfig = CorpusConfig()
    search: SearchConfig = SearchConfig()
    agent: AgentConfig = AgentConfig()
    engine: EngineConfig = EngineConfig()
    rollout: RolloutConfig = RolloutConfig()
    collect: CollectConfig = CollectConfig()
    process: ProcessConfig = ProcessConfig()
    format: FormatConfig = FormatConfig()
    finetune: FinetuneConfig = FinetuneConfig()
    serve: ServeConfig = ServeConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    def take(self, sections: type[SectionsT]) -> SectionsT:
        """The sections that a stage receives: a dataclass whose fields are named as those here."""
        return sections(**{field.name: getattr(self, field.name) for field in dataclasses.fields(sections)})  # type: ignore[arg-type]

    def stage_dir(self, stage: str) -> Path:
        """The folder of a stage."""
        return self.run_dir / stage
