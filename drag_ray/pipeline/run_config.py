"""The options of a whole run: every stage's section in one place, and where each stage's folder is."""

from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationInfo, field_validator, model_validator

from drag_ray.agent.config import AgentConfig
from drag_ray.cluster.connection import ClusterConfig
from drag_ray.cluster.ledger import CostConfig
from drag_ray.cluster.telemetry import TelemetryConfig
from drag_ray.collect.config import CollectConfig
from drag_ray.config import BaseConfig, Sections
from drag_ray.corpus.config import CorpusConfig
from drag_ray.engine.config import EngineConfig
from drag_ray.evaluate.config import EvaluateConfig
from drag_ray.feedback.config import LearnConfig
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.format.config import FormatConfig
from drag_ray.pipeline.stages import STAGES
from drag_ray.process.config import ProcessConfig
from drag_ray.questions.config import QuestionsConfig
from drag_ray.rl.config import RlConfig
from drag_ray.rollout.config import RolloutConfig
from drag_ray.search.config import EmbeddingConfig, ImageEmbeddingConfig, SearchConfig
from drag_ray.serve.config import ServeConfig
from drag_ray.stage_runs.address import is_name
from drag_ray.storage.object_store import StorageConfig
from drag_ray.tune.config import TuneConfig

SectionsT = TypeVar("SectionsT", bound=Sections)


class RunConfig(BaseConfig):
    """Everything that can be set. A configuration file holds any part of it."""

    run_dir: Path = Path("runs/default")
    """folder of the run, with a subfolder for each stage"""
    scope: str = ""
    """folder within the run for the stages, for example rounds/2; the index is the run's own"""
    name: str = ""
    """name of this instance of the stage, where a run has several: its folder is then, for example, finetune/NAME"""
    reads: tuple[str, ...] = ()
    """instances of stages to read, as stage=address, for example finetune=finetune/dpo or finetune=rounds/2/finetune; by
    default the one in the same scope"""
    verify: bool = False
    """read every byte of the finished stages, not only sizes, small files and samples of large ones; damaged stages run again"""
    rounds: int = Field(default=0, ge=0, le=100)
    """rounds of collecting and training, each from the policy of the previous one; the round that is best on the validation
    questions is evaluated. 0: one pass over the stages"""
    curriculum: tuple[dict[str, Any], ...] = ()
    """options that change between rounds, in sections as in this file: the first entry for the first round, the last one for
    all later rounds, for example [{finetune = {method = "sft"}}, {finetune = {method = "dpo", learning_rate = 5e-5}}]"""
    train_reranker: Literal["", "cross_encoder", "llm"] = ""
    """also train a reranker in the pipeline, on the questions of its first collection, and evaluate it with the policy;
    cross_encoder: a small encoder (finetune.cross_encoder) that CPUs can serve; llm: an adapter of engine.model; empty: none"""
    reranker: dict[str, Any] = Field(default_factory=dict)
    """options of the reranker's rows and training that differ from the run's, in sections as in this file, for example
    {finetune = {limit = 8000}}"""
    train_embedder: bool = False
    """also train an embedding model in the pipeline, on the questions of its first collection, and embed the pages again with
    it (stage `embed`); the reranker's rows and the evaluation use its vectors"""
    embedder: dict[str, Any] = Field(default_factory=dict)
    """options of the embedding model's rows, training and windows that differ from the run's, in sections as in this file, for
    example {finetune = {embed = {model = "intfloat/e5-base-v2"}}}"""
    tune_search: bool = False
    """choose how pages are searched before anything else (stage `tune`), and use the choice for those options that are not
    set: retrieval, question_words and dense_weight of `agent`, relevance_retrieval and relevance_dense_weight of `format`, and
    retrieval of `evaluate.rerank`"""
    reinforce: bool = False
    """end the pipeline's training with reinforcement learning (stage `rl`), from the adapter of the best round, and evaluate
    the result as `rl`; its options are the run's own, because `curriculum` changes those of rounds only"""
    seed: int = 0
    """seed of sampling and resampling"""
    cluster: ClusterConfig = ClusterConfig()
    storage: StorageConfig = StorageConfig()
    cost: CostConfig = CostConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    corpus: CorpusConfig = CorpusConfig()
    search: SearchConfig = SearchConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    image_embedding: ImageEmbeddingConfig = ImageEmbeddingConfig()
    agent: AgentConfig = AgentConfig()
    engine: EngineConfig = EngineConfig()
    rollout: RolloutConfig = RolloutConfig()
    questions: QuestionsConfig = QuestionsConfig()
    tune: TuneConfig = TuneConfig()
    collect: CollectConfig = CollectConfig()
    process: ProcessConfig = ProcessConfig()
    format: FormatConfig = FormatConfig()
    finetune: FinetuneConfig = FinetuneConfig()
    rl: RlConfig = RlConfig()
    serve: ServeConfig = ServeConfig()
    learn: LearnConfig = LearnConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    @field_validator("run_dir", mode="before")
    @classmethod
    def _is_named(cls, value: Any) -> Any:
        if not str(value).strip():
            raise ValueError("a folder, for example runs/mine, or . for the current one")
        return value

    @field_validator("name", "scope")
    @classmethod
    def _is_a_path_in_the_run(cls, value: str, info: ValidationInfo) -> str:
        parts = value.split("/") if value else []
        if not all(map(is_name, parts)) or (info.field_name == "name" and len(parts) > 1):
            raise ValueError("expected letters, digits, - and _, in a scope also / between such names")
        if taken := sorted(STAGES.keys() & set(parts)):
            raise ValueError(f"{taken[0]!r} is the name of a stage; choose another")
        return value

    @field_validator("train_reranker", mode="before")
    @classmethod
    def _says_which(cls, value: Any) -> Any:
        if isinstance(value, bool) or value in ("true", "false"):
            raise ValueError("say which: cross_encoder, llm (what true was), or an empty text for none (what false was)")
        return value

    @field_validator("reads")
    @classmethod
    def _names_stages(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        for entry in entries:
            if entry.partition("=")[0] not in STAGES:
                raise ValueError(f"{entry!r} is not stage=address, for example finetune=finetune/dpo")
        return entries

    @model_validator(mode="after")
    def _learns_from_what_is_collected(self) -> "RunConfig":
        writer = self.collect.teacher or self.engine
        if writer.backend == "openai" and self.finetune.chosen_method.needs_tokens:
            raise ValueError(
                f"finetune.method {self.finetune.method} learns from the tokens that the policy drew, which an endpoint does not "
                "tell: choose sft, dpo or reward, or collect with the backend vllm"
            )
        return self

    @property
    def writes_questions(self) -> bool:
        """True if the pipeline has questions written (the stage `questions`): none are given."""
        return not self.corpus.questions

    def take(self, sections: type[SectionsT]) -> SectionsT:
        """The sections that a stage receives."""
        return sections(**{name: getattr(self, name) for name in sections.list_names()})
