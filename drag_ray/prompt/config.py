"""Options of the prompt stage."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from drag_ray.agent.config import AgentConfig
from drag_ray.config import BaseConfig, Sections
from drag_ray.engine.config import EngineConfig
from drag_ray.rollout.config import RolloutConfig
from drag_ray.storage.artifacts import read_manifest


class PromptConfig(BaseConfig):
    """Options of the optimisation of the base model's instructions (GEPA, https://arxiv.org/abs/2507.19457)."""

    rollouts: int = Field(default=0, ge=0)
    """rollouts at most, all questions of all proposals together; 0 takes as many as the run's collection has made, so that
    training and prompt optimisation cost the same"""
    minibatch_size: int = Field(default=8, ge=1)
    """training questions that a proposal is made from; it is kept for validation if it does better than its parent on them"""
    validation_questions: int = Field(default=50, ge=1)
    """training questions that the best proposal is chosen by, at most half of them; no proposal is made from them"""
    max_tokens: int = Field(default=1024, ge=1)
    """tokens of a proposal, with the thinking before it"""
    page_chars: int = Field(default=300, ge=0)
    """characters of the right page that the model sees with each question when it proposes"""


@dataclass(frozen=True)
class PromptSections(Sections):
    """The sections of the prompt stage."""

    seed: int
    agent: AgentConfig
    engine: EngineConfig
    rollout: RolloutConfig
    prompt: PromptConfig

    def list_unread(self) -> tuple[str, ...]:
        """The collection says no more than how many rollouts it has made, and vectors are not searched by words."""
        return (*(("collect",) if self.prompt.rollouts else ()), *(("embed",) if self.agent.retrieval == "bm25" else ()))

    def list_code(self) -> list[Path]:
        """The modules of the agent's tools."""
        return self.agent.list_tool_sources()


def count_collected(collect_dir: Path | None) -> int:
    """The rollouts that a collection has brought to an end, proposals of baselines and hinted ones among them; 0 without one.

    Raises:
        DamageError: its manifest cannot be read.
    """
    manifest = read_manifest(collect_dir) if collect_dir else None
    return sum(manifest.counts.get(name, 0) for name in ("finished", "hinted")) if manifest else 0
