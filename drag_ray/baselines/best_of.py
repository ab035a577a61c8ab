"""Best of n (as in https://arxiv.org/abs/2112.09332): of several searches for a question the one that is expected to find most.

It stands beside every policy that a model writes for, and chooses among what that policy would search.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import Field

from drag_ray.agent.config import AgentConfig
from drag_ray.baselines.baseline import Baseline, BaselineContext, Need, Sources
from drag_ray.baselines.gain_model import GainModel, read_gain_model
from drag_ray.config import BaseConfig
from drag_ray.engine.generate import GenerateFn
from drag_ray.engine.sampling import PresetName

if TYPE_CHECKING:
    from drag_ray.agent.choice import ChooseFn
    from drag_ray.baselines.candidates import CandidateReader, ScoreFn
    from drag_ray.search.searcher import Searcher


class BestOfConfig(BaseConfig):
    """Searches to choose among by the gain that is expected of them."""

    samples: int = Field(default=8, ge=1)
    """replies that the policy writes for a question: one is greedy, the others are drawn. Beside them there are the question
    itself and its list fused with that of the greedy reply; the question is left as it is unless a gain is expected"""
    preset: PresetName = "default"
    """how they are drawn"""
    max_questions: int = Field(default=2000, ge=1)
    """training questions, drawn at random, that the model of gain is fitted to, at most: their queries are searched again"""


@dataclass(frozen=True)
class BestOf(Baseline):
    """Searches for what `gain_model` expects most of; with its defaults it leaves it at the question."""

    name = "best_of"
    summary = (
        "beside every policy: of its greedy reply, of replies that it draws, the question, and the fusion of the first and the "
        "last, the one that a model of gain expects most of, by the lists of pages that they find and by what a reward model "
        "says of the texts, if this run has one; the model is fitted to the format stage's rows for `reward`"
    )
    section = ("best_of", BestOfConfig)
    need = Need.POLICY
    asks_as_agent = True

    options: BestOfConfig = field(default_factory=BestOfConfig)
    gain_model: GainModel = field(default_factory=GainModel)
    reward_model: Path | None = None

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """With the run's options and the models that it has.

        Raises:
            DataError: there is no model of gain that can be read.
        """
        assert sources.gain_model, "best_of needs a model of gain"
        return cls(sources.options.take(BestOfConfig), read_gain_model(sources.gain_model), sources.reward_model)

    @property
    def preset(self) -> str:
        return self.options.preset

    def describe(self) -> str:
        """With how the model of gain did on the validation questions."""
        return f"{self.summary} ({describe_figures(self.gain_model)})"

    def build_reply(self, context: BaselineContext) -> GenerateFn:
        """The policy's own replies."""
        return context.require_engine()

    def build_choose(self, context: BaselineContext) -> "ChooseFn":
        """The best of these replies and of the question."""
        from drag_ray.baselines.best_reply import BestReply

        reader = self.build_reader(context.searcher, context.agent)
        return BestReply(context.require_engine(), context.agent, reader, self.options.samples, self.gain_model)

    def build_reader(self, searcher: "Searcher", agent: AgentConfig) -> "CandidateReader":
        """What searches for replies of an agent and describes what is found."""
        from drag_ray.baselines.candidates import REWARD_FEATURE, CandidateReader

        return CandidateReader(searcher, agent, self._load_score if REWARD_FEATURE in self.gain_model.features else None)

    def _load_score(self) -> "ScoreFn":
        assert self.reward_model, "a model of gain that reads rewards needs a reward model"
        return _load_reward_model(self.reward_model)


@lru_cache(1)
def _load_reward_model(folder: Path) -> "ScoreFn":
    """One for all readers of a process."""
    from drag_ray.engine.reward_model import RewardModel

    return RewardModel(folder).score


def describe_figures(model: GainModel) -> str:
    """How a model of gain was fitted and what choosing by it gained on validation questions, in words."""
    figures = model.figures
    fitted = f"fitted to {figures.get('candidates', 0):.0f} searches for {figures.get('questions', 0):.0f} questions"
    if not figures.get("validation_questions"):
        return f"{fitted}; without validation questions nothing is known of its worth, and every question stays as it is"
    if not model.features:
        return f"{fitted}; choosing gains nothing on validation questions, so every question stays as it is"
    return (
        f"{fitted}; on {figures['validation_questions']:.0f} validation questions choosing gains "
        f"{figures['chosen_gain']:+.4f} of the {figures['oracle_gain']:+.4f} that are there, the policy's first reply alone "
        f"{figures['first_gain']:+.4f}: utility over the question's, better on {figures['wins']:.0f} and worse on "
        f"{figures['losses']:.0f}"
    )
