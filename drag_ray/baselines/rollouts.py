"""The rollouts that baselines make: one search a question, through the agent's own environment."""

from collections.abc import Mapping
from dataclasses import dataclass

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.rollout import Policy, Rollouts
from drag_ray.baselines.baseline import Baseline, BaselineContext
from drag_ray.baselines.weights import WeightedSearcher
from drag_ray.engine.generate import GenerateFn
from drag_ray.search.config import SYNTAX_HELP
from drag_ray.search.searcher import Searcher


@dataclass(frozen=True)
class BaselineOptions:
    """What the baselines of an evaluation are made from; it crosses process borders.

    Attributes:
        agent: whose question, format, top_k and depth they share.
        baselines: by name, prepared.
    """

    agent: AgentConfig
    baselines: Mapping[str, Baseline]


def build_rollouts(
    name: str, options: BaselineOptions, searcher: Searcher, generate: GenerateFn | None = None, model: str = ""
) -> Rollouts:
    """The rollouts of a baseline.

    Args:
        name: one of `options.baselines`.
        options: the agent and the baselines.
        searcher: the index.
        generate: the engine that writes, if the baseline needs one.
        model: the engine's model, for the record.
    """
    baseline = options.baselines[name]
    agent = options.agent.model_copy(update={"max_iterations": 1})
    environment = SearchEnvironment(WeightedSearcher(searcher) if baseline.weighted_terms else searcher, agent.top_k, agent.depth)
    return Rollouts(
        agent,
        Policy(f"{name}:{model}" if baseline.uses_engine() else name),
        baseline.build_reply(BaselineContext(agent, searcher, generate)),
        environment,
        searcher.record.fingerprint,
        SYNTAX_HELP[searcher.record.syntax] if baseline.asks_as_agent else "",
    )
