"""Options of the rl stage."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from drag_ray.agent.config import AgentConfig
from drag_ray.config import BaseConfig, Sections
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models.adapter import list_unserved
from drag_ray.engine.sampling import PRESETS, PresetName
from drag_ray.errors import ConfigError
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.losses import LOSSES
from drag_ray.finetune.named import check_named
from drag_ray.format.config import FormatConfig
from drag_ray.process.config import ProcessConfig
from drag_ray.rollout.config import RolloutConfig

READ_OF_FORMAT = ("validation_fraction", "split_by", "seed")
"""What the stage reads of its format: the baseline is that of the loss."""
UNREAD_OF_FINETUNE = (
    *("method", "epochs", "gradient_accumulation", "checkpoint_steps", "lora_dropout", "limit", "deepspeed", "min_workers"),
    *("arguments", "part_learning_rates", "data", "validation_data"),
)
LIMITS = (
    *("max_kl", "min_entropy", "max_engine_kl", "max_without_search", "max_repetitive", "max_copied"),
    *("max_cut", "max_clipped", "max_decline"),
)
"""Options that only say when the stage stops: started again with others it goes on."""


class RlConfig(BaseConfig):
    """Options of reinforcement learning while collecting. What a step learns, and how, say `finetune` and `finetune.grpo`."""

    steps: int = Field(default=100, ge=1)
    """number of steps; each rolls out questions with the current policy and trains on the rollouts"""
    questions_per_step: int = Field(default=16, ge=1)
    """questions of a step whose samples differ in their rewards"""
    samples_per_question: int = Field(default=8, ge=2)
    """rollouts of each question, which are compared with each other"""
    refills: int = Field(default=2, ge=0)
    """times in a step that questions whose samples all have the same reward are replaced"""
    preset: PresetName = "full"
    """sampling preset; a preset other than full does not sample from the distribution that is trained"""
    updates: int = Field(default=1, ge=1)
    """optimizer updates in a step, each with its share of the replies"""
    max_lag: int = Field(default=0, ge=0)
    """largest number of steps by which the policy of the replies may be older than the trained one, for which the loss corrects;
    above 0 engines and trainer work concurrently, 0 alternates. A single GPU needs 0 if engines have more than half of its
    memory"""
    validation_steps: int = Field(default=10, ge=0)
    """steps between greedy validations on 100 of the validation questions (format.validation_fraction, format.split_by), drawn
    at random; the best policy is published. 0 never validates, and publishes the last"""
    max_kl: float = Field(default=1.0, gt=0)
    """limit of the distance of the policy from its start, in nats a token, in the median of three steps; beyond it the stage
    stops"""
    min_entropy: float = Field(default=0.01, ge=0)
    """limit of the entropy of replies, in nats a token; below it the stage stops, because the policy no longer explores"""
    max_engine_kl: float = Field(default=0.1, gt=0)
    """limit of the distance between an engine's recorded probabilities and the policy's own, in nats a token, larger by as
    much for each step of lag; beyond it the stage stops, because an adapter has not reached the engine"""
    max_without_search: float = Field(default=0.95, ge=0, le=1)
    """share of a step's rollouts without a search or tool call above which the stage stops"""
    max_repetitive: float = Field(default=0.5, ge=0, le=1)
    """share of a step's replies that go round in circles above which the stage stops"""
    max_copied: float = Field(default=1.0, ge=0, le=1)
    """share of a step's searches that hold the whole question above which the stage stops; 1, the default, never stops it: where
    the question finds most, copies earn most"""
    max_cut: float = Field(default=0.9, ge=0, le=1)
    """share of a step's replies cut at agent.max_tokens above which the stage stops"""
    max_clipped: float = Field(default=0.5, ge=0, le=1)
    """share of a step's learned tokens beyond the clipped ratio of the loss above which the stage stops"""
    max_decline: float = Field(default=0.5, gt=0)
    """standard deviations of a question's reward by which the reward in validation may fall below that of the start; beyond it
    the stage stops"""


@dataclass(frozen=True)
class RlSections(Sections):
    """The sections of the rl stage."""

    seed: int
    agent: AgentConfig
    engine: EngineConfig
    rollout: RolloutConfig
    process: ProcessConfig
    format: FormatConfig
    finetune: FinetuneConfig
    rl: RlConfig

    @property
    def training(self) -> FinetuneConfig:
        """The options of its training, whose method is `grpo`."""
        return self.finetune.model_copy(update={"method": "grpo"})

    @property
    def rows(self) -> FormatConfig:
        """The options of its training rows, whose baseline is that of the loss."""
        return self.format.model_copy(update={"baseline": LOSSES[self.finetune.grpo.loss].baseline})

    def dump(self) -> dict[str, Any]:
        """As `Sections.dump`, with the method that is trained with."""
        return super().dump() | {"finetune": self.training.model_dump(mode="json")}

    def find_start(self) -> Path | None:
        """The folder of the adapter whose weights are trained on; None for a new adapter."""
        return Path(self.engine.adapter).resolve() if self.engine.adapter and self.finetune.start == "policy" else None

    def list_sources(self) -> dict[str, Path]:
        """The adapter that it starts from."""
        return self.engine.list_sources() if self.find_start() else {}

    def list_code(self) -> list[Path]:
        """The modules of the agent's tools and of the user's reward."""
        return [*self.agent.list_tool_sources(), *self.process.list_code()]

    def list_unread(self) -> tuple[str, ...]:
        """The vectors, where the agent searches by words alone."""
        return ("embed",) if self.agent.retrieval == "bm25" else ()

    def check(self) -> None:
        """ConfigError where there is nothing to learn from, or nobody to say what it is worth."""
        if self.engine.backend == "openai":
            raise ConfigError(
                f"engine.backend openai: rl trains weights and learns from drawn tokens, and {self.engine.model!r} keeps both "
                "behind its endpoint. Set the backend to vllm."
            )
        check_named("lora", self.finetune.lora)
        unread = ("parts", "part_learning_rates", "quantization", "arguments")
        if given := [name for name in unread if getattr(self.finetune, name) != getattr(FinetuneConfig(), name)]:
            raise ConfigError(
                f"finetune.{given[0]}: rl trains an adapter, of the base model as it is, in steps of its own. Leave it out."
            )
        if unserved := list_unserved(self.finetune.lora):
            raise ConfigError(
                f"finetune.lora: {unserved[0]}: engines cannot write with such an adapter, as those of rl do. Leave it out."
            )
        temperature = PRESETS[self.rl.preset].temperature
        if not temperature:
            raise ConfigError(
                f"rl.preset {self.rl.preset!r}: draws the same reply each time, so replies cannot be compared. Use full."
            )
        compares_with_engine = self.rl.max_lag > 0 or self.finetune.grpo.loss == "oapl"
        if temperature != 1 and compares_with_engine:
            raise ConfigError(
                f"rl.preset {self.rl.preset!r}: with rl.max_lag, and with the loss oapl, a reply is compared with the policy "
                "that drew it, whose log-probabilities engines record at temperature 1. Take full."
            )
        if self.process.judge.enabled:
            raise ConfigError("process.judge.enabled: rl scores rollouts only by evidence and answers. Leave the judge out.")
        self.process.list_code()
        if not self.engine.logprobs and compares_with_engine:
            raise ConfigError(
                "engine.logprobs off: with rl.max_lag, and with the loss oapl, training needs the log-probabilities of the "
                "policy that drew a reply. Turn it on."
            )
