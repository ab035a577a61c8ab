"""Queries that the base model draws, and of several the one that a reward model likes best (best of n, as in
https://arxiv.org/abs/2112.09332). Both ask as the agent does: a reward model is judged by its choice beside no choice.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import Field

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.baselines.baseline import Baseline, BaselineContext, Need, Sources
from drag_ray.config import BaseConfig
from drag_ray.engine.generate import GenerateFn
from drag_ray.engine.sampling import PresetName

if TYPE_CHECKING:
    from drag_ray.baselines.best_reply import ScoreFn


class BestOfConfig(BaseConfig):
    """Queries that the base model draws for the run's reward model to choose from (best_of, drawn)."""

    samples: int = Field(default=8, ge=2)
    """queries of which the reward model chooses one"""
    preset: PresetName = "default"
    """how they are drawn"""


@dataclass(frozen=True)
class Drawn(Baseline):
    """Searches for the first of the queries that `best_of` draws."""

    name = "drawn"
    summary = "one query that the base model draws, with the sampling of best_of"
    section = ("best_of", BestOfConfig)
    need = Need.ENGINE
    asks_as_agent = True
    judges_reward_model = True

    options: BestOfConfig = field(default_factory=BestOfConfig)

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """With the run's options."""
        return cls(sources.options.take(BestOfConfig))

    @property
    def preset(self) -> str:
        return self.options.preset

    def build_reply(self, context: BaselineContext) -> GenerateFn:
        """The agent's own replies."""
        from drag_ray.baselines.best_reply import draw_first

        return draw_first(context.require_engine())


@dataclass(frozen=True)
class BestOf(Drawn):
    """Searches for the query that the model in the folder `reward_model` likes best."""

    name = "best_of"
    summary = (
        "of several queries that the base model draws, the one that this run's reward model likes best; nothing is searched "
        "before, and the tokens that count are its own"
    )
    need = Need.REWARD_MODEL

    reward_model: Path | None = None

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """With the run's options and its reward model."""
        return cls(sources.options.take(BestOfConfig), sources.reward_model)

    def build_reply(self, context: BaselineContext) -> GenerateFn:
        """The best of the agent's own replies."""
        from drag_ray.baselines.best_reply import BestReply

        protocol = get_protocol(context.agent.protocol)
        draws = (context.require_engine(), protocol, self.options.samples)
        return BestReply(*draws, self._load_score, may_be_empty=context.agent.expands)

    def _load_score(self) -> "ScoreFn":
        from drag_ray.engine.reward_model import RewardModel

        assert self.reward_model, "best_of needs a reward model"
        return RewardModel(self.reward_model).score
