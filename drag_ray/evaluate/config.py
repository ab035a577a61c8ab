"""Options of the evaluate stage."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from drag_ray import removed
from drag_ray.agent.config import AgentConfig
from drag_ray.baselines.dense import Dense
from drag_ray.baselines.features import Features
from drag_ray.baselines.question import RawQuestion
from drag_ray.baselines.registry import BASELINES, BaselineName, BaselineSections, describe_baselines
from drag_ray.baselines.rerank import Rerank, RerankedConfig
from drag_ray.config import Sections
from drag_ray.corpus.image_degradation import DegradationConfig
from drag_ray.engine.config import EngineConfig
from drag_ray.errors import ConfigError
from drag_ray.rollout.config import JudgeConfig, RolloutConfig

TEST: Literal["test"] = "test"
VALIDATION: Literal["validation"] = "validation"


class EvaluateConfig(BaselineSections):
    """Options of the comparison: its policies and held-out questions; the options of the baselines are sections of it."""

    split: Literal["test", "validation"] = TEST
    """questions to evaluate; test: the test split; validation: the part of the train split that the format stage excludes from
    the training rows, for choices between trained models"""
    limit: int = Field(default=0, ge=0)
    """questions to take, drawn at random; 0 takes all"""
    verdicts: str = ""
    """file of verdicts on the test questions (`drag-ray review`): only kept questions are evaluated, as edited; empty for the
    whole split"""
    baselines: tuple[BaselineName, ...] = Field(
        default=(RawQuestion.name,), description=f"policies to compare with; {describe_baselines()}"
    )
    question_weights: tuple[float, ...] = ()
    """candidate weights of the question (see agent.question_weight). Each expanding policy gets the weight with the best result
    on the validation questions, or on 500 of the train split if nothing was trained. Empty: agent.question_weight for all"""
    adapters: tuple[str, ...] = ()
    """adapters to compare with the base model, as name=folder; when empty, that of this run's finetune stage, as `tuned`"""
    judge: JudgeConfig = JudgeConfig()
    """judge of answers that differ from the gold answer in their letters"""
    degradation: DegradationConfig = DegradationConfig()
    """degradation of pictures, to measure what it costs each policy"""
    models: dict[str, EngineConfig] = Field(default_factory=dict)
    """further models to compare, by name, each with its own engine, for example the endpoint {teacher = {backend = "openai",
    model = "...", endpoint = {address = "..."}}}. Costs use the prices of that endpoint"""
    merged: bool = True
    """without a GPU, evaluate this run's adapter merged into the model: a dynamic adapter is several times slower there"""
    prompt_price: float = Field(default=0.0, ge=0)
    """price of a million prompt tokens, in any currency, for the cost of a solved question; 0: unknown. An endpoint's own
    prices have precedence"""
    completion_price: float = Field(default=0.0, ge=0)
    """price of a million completion tokens; 0: unknown"""

    @field_validator("baselines", mode="before")
    @classmethod
    def _names_the_successor(cls, baselines: Any) -> Any:
        for name, instead in removed.BASELINES.items():
            if isinstance(baselines, Collection) and name in baselines:
                raise ValueError(f"{name!r} is no baseline any more: {instead}")
        return baselines


@dataclass(frozen=True)
class EvaluateSections(Sections):
    """The sections of the evaluate stage."""

    seed: int
    agent: AgentConfig
    engine: EngineConfig
    rollout: RolloutConfig
    evaluate: EvaluateConfig

    def list_sources(self) -> dict[str, Path]:
        """The adapters that are compared, that of the judge, the model that orders rankings anew and the one that it was trained
        from, if they lie in folders, and the verdicts on questions."""
        folders = [entry.partition("=")[2] for entry in self.evaluate.adapters]
        folders += [model.adapter for model in self.evaluate.models.values()]
        adapters = {f"evaluate.adapters {folder}": Path(folder) for folder in folders if folder}
        options = self.evaluate.take(RerankedConfig)
        named = {"model": options.model, "start": options.start} if Rerank.name in self.evaluate.baselines else {}
        places = {f"evaluate.rerank.{key}": Path(model).expanduser() for key, model in named.items() if model}
        rerankers = {option: place for option, place in places.items() if place.is_dir()}
        verdicts = {"evaluate.verdicts": Path(self.evaluate.verdicts).expanduser()} if self.evaluate.verdicts else {}
        return self.engine.list_sources() | adapters | self.evaluate.judge.list_sources() | rerankers | verdicts

    def check(self) -> None:
        """ConfigError where weights of the question are to be found, and searches are made without them; or where verdicts are
        named, and no test questions are asked."""
        if self.evaluate.verdicts and self.evaluate.split != TEST:
            raise ConfigError(
                "evaluate.verdicts: they are on test questions, and evaluate.split is 'validation'. Leave one of them out."
            )
        if self.agent.retrieval != "bm25" and self.evaluate.question_weights:
            raise ConfigError(
                "evaluate.question_weights: searches by words only, and agent.retrieval is "
                f"{self.agent.retrieval!r}. Leave it out."
            )

    def list_unread(self) -> tuple[str, ...]:
        """The rows of training tell nothing about the test questions, unless something is to be found with the others; vectors
        are not searched by words."""
        learns_factors = {Features.name, Rerank.name} <= set(self.evaluate.baselines)
        needs_rows = self.evaluate.split != TEST or self.evaluate.question_weights or learns_factors
        return (*(() if needs_rows else ("format",)), *(() if self._searches_vectors() else ("embed",)))

    def _searches_vectors(self) -> bool:
        chosen = [BASELINES[name] for name in self.evaluate.baselines]
        options = [self.evaluate.take(baseline.section[1]) for baseline in chosen if baseline.section]
        searched = [self.agent.retrieval, *(getattr(section, "retrieval", "bm25") for section in options)]
        return any(issubclass(baseline, Dense) for baseline in chosen) or any(retrieval != "bm25" for retrieval in searched)

    def list_code(self) -> list[Path]:
        """The modules of the agent's tools."""
        return self.agent.list_tool_sources()
