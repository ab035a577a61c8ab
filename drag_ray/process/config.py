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
    """a search succeeds with an evidence page among this many first pages; 0 takes the number that the policy was shown"""
    filters: tuple[FilterName, ...] = FILTERS
    """replies that nothing is trained on: cut at the token limit, searching where the answer was asked for, going round in
    circles, naming a document file, naming an answer that a hint told, the same as another sample's in the same state, or the
    same but for order, case and punctuation and with the same result"""
    reward: str = "gain"
    """what a reply is worth to reinforcement learning; gain: what it improves on the best so far, the question at first, less
    costs; candidates: the share of the evidence that it adds to the pages of the question and of the searches before, as they are
    given to a model that reads them, less costs; v_retrver (task rerank) and opensearch_vl (task answer): as those systems have
    it, see docs/tools.md; package.module:function: what a function of yours gives each reply, see docs/extend.md"""
    candidate_depth: int = Field(default=20, ge=1)
    """with the reward candidates: pages that are taken of each search, as far as they were recorded (agent.depth)"""
    answer_weight: float = Field(default=0.0, ge=0.0)
    """weight of the answer's ANLS*, or of what the judge says of it, in its reward"""
    judge: JudgeConfig = JudgeConfig()
    """who says what answers are worth, where the letters differ; with the reward opensearch_vl of searches too"""
    max_judge_failure_rate: float = Field(default=0.2, ge=0, le=1)
    """the stage stops when more than this share of the requests to the judge fails; answers without a verdict are left out"""
    search_cost: float = Field(default=0.05, ge=0.0)
    """what each search after the first takes from its reward"""
    repeat_cost: float = Field(default=0.2, ge=0.0)
    """what a search takes from its reward for its repeated words: this times their share"""
    invalid_cost: float = Field(default=0.2, ge=0.0)
    """what a reply costs that cannot be read, that was cut at its token limit, or that searches where the answer was asked for"""
    allow_mixed: bool = False
    """take trajectories of several agent configurations or search indexes as one set"""
    part_mib: int = Field(default=16, ge=1)
    """MiB of conversations, about, that a process has in memory at once; a larger set is dealt out by question to parts"""

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
        """The file of the user's function.

        Raises:
            ConfigError: the function cannot be had.
        """
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
