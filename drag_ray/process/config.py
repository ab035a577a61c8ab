"""Options of the process stage."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from drag_ray.config import BaseConfig, Sections
from drag_ray.process import CANDIDATES, FILTERS, REWARDS
from drag_ray.rollout.config import JudgeConfig

if TYPE_CHECKING:
    FilterName = str
else:
    FilterName = Literal[FILTERS]
_FUNCTION = re.compile(r"\w+(\.\w+)*:\w+")


class ProcessConfig(BaseConfig):
    """Options of the scores of trajectories, and of the replies that are kept out of training."""

    top_k: int = Field(default=0, ge=0)
    """first pages among which an evidence page makes a search successful; 0 takes the number that the policy was shown"""
    filters: tuple[FilterName, ...] = FILTERS
    """replies to exclude from training: cut at the token limit, searching where the answer was asked for, repetitive, naming a
    document file, naming an answer from a hint, equal to another sample's in the same state, or equal but for order, case and
    punctuation with the same result"""
    reward: str = "gain"
    """value of a reply for reinforcement learning; gain: its improvement on the best result so far (first the question's),
    less costs; candidates: the share of the evidence that it adds to the candidates of a reranker, which are the pages of the
    question and of earlier searches, less costs; v_retrver (task rerank) and opensearch_vl (task answer): those systems'
    rewards, see docs/tools.md; package.module:function: a function of your own, see docs/extend.md"""
    candidate_depth: int = Field(default=20, ge=1)
    """reward candidates: pages that each search contributes, within the recorded ones (agent.depth)"""
    answer_weight: float = Field(default=0.0, ge=0.0)
    """weight of the answer's ANLS*, or of the judge's verdict, in its reward"""
    judge: JudgeConfig = JudgeConfig()
    """judge of answers that differ from the gold answer in their letters; with the reward opensearch_vl of searches too. The
    stage stops if more than a fifth of the requests fail; answers without a verdict are left out"""
    search_cost: float = Field(default=0.05, ge=0.0)
    """deduction from the reward of each search after the first"""
    repeat_cost: float = Field(default=0.2, ge=0.0)
    """deduction from the reward of a search for repeated words: this times their share"""
    invalid_cost: float = Field(default=0.2, ge=0.0)
    """deduction for a reply that cannot be read, was cut at its token limit, or searches instead of answering"""
    allow_mixed: bool = False
    """accept trajectories of several agent configurations or search indexes as one set"""

    @field_validator("reward")
    @classmethod
    def _names_a_reward(cls, reward: str) -> str:
        if reward not in REWARDS and not _FUNCTION.fullmatch(reward):
            raise ValueError(f"expected {', '.join(REWARDS)}, or a function of yours as package.module:function")
        return reward

    @property
    def function(self) -> str:
        """The name of the user's function that rewards; empty for a reward of this package."""
        return self.reward if ":" in self.reward else ""

    def list_code(self) -> list[Path]:
        """The file of the user's function. Raises ConfigError where the function cannot be had."""
        if not self.function:
            return []
        from drag_ray.process.reward_function import find_reward_source  # which loads Polars

        return [find_reward_source(self.function)]

    @property
    def read_depth(self) -> int:
        """Pages of each ranking that the reward looks at; 0 where it looks at ranks alone."""
        return self.candidate_depth if self.reward == CANDIDATES else 0


@dataclass(frozen=True)
class ProcessSections(Sections):
    """The sections of the process stage."""

    process: ProcessConfig

    def list_sources(self) -> dict[str, Path]:
        """The adapter of the judge."""
        return self.process.judge.list_sources()

    def list_code(self) -> list[Path]:
        """The module of the user's reward."""
        return self.process.list_code()

    def check(self) -> None:
        """ConfigError where the user's reward cannot be had; asked before anything is collected."""
        self.list_code()
