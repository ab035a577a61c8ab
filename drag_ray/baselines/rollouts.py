"""The rollouts that baselines make: one search a question, through the agent's own environment.

They make them to be compared with the policy (`build_rollouts`), or as examples that it learns from (`build_proposals`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from drag_ray.agent.config import AgentConfig, RerankOptions
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import Policy
from drag_ray.agent.tasks import ORDERING
from drag_ray.baselines.baseline import Baseline, BaselineContext
from drag_ray.engine.generate import GenerateFn, Generation, Request
from drag_ray.search.config import SYNTAX_HELP
from drag_ray.search.searcher import Searcher

_NO_POLICY = Policy("")


@dataclass(frozen=True)
class BaselineOptions:
    """Options that the baselines of an evaluation are made from; it crosses process borders."""

    agent: AgentConfig
    baselines: Mapping[str, Baseline]


def build_rollouts(
    name: str,
    options: BaselineOptions,
    searcher: Searcher,
    generate: GenerateFn | None = None,
    policy: Policy = _NO_POLICY,
    questions: Sequence[str] = (),
) -> Rollouts:
    """The rollouts of a baseline. Raises SearchIndexError: what the baseline searches cannot be opened."""
    baseline = options.baselines[name]
    agent = _choose_agent(baseline, options.agent)
    reader = baseline.open_searcher(searcher, questions)
    environment = SearchEnvironment(searcher, agent.top_k, agent.depth, searcher=reader)
    context = BaselineContext(agent, searcher, generate)
    return Rollouts(
        agent,
        _name_policy(name, baseline, policy),
        baseline.build_reply(context),
        environment,
        searcher.record.fingerprint,
        max_turns=1,
        pages=searcher,
    )


def build_proposals(
    name: str, options: BaselineOptions, searcher: Searcher, generate: GenerateFn | None = None, policy: Policy = _NO_POLICY
) -> Rollouts:
    """The rollouts of a baseline that the policy may learn from: in its prompt, its protocol and its way to write a query.

    Arguments as for `build_rollouts`.
    """
    baseline, agent = options.baselines[name], options.agent
    prompts, protocol = Prompts(agent), get_protocol(agent.protocol)
    write_additions = baseline.build_additions(BaselineContext(agent, searcher, generate))

    async def reply(request: Request) -> Generation:
        question = prompts.question_of(request.messages)
        addition = await write_additions(question, request)
        query = addition if agent.expands else f"{question} {addition}".strip()
        return Generation(protocol.render_search(query), (), (), "stop")

    return Rollouts(
        agent,
        _name_policy(name, baseline, policy),
        reply,
        SearchEnvironment(searcher, agent.top_k, agent.depth),
        searcher.record.fingerprint,
        SYNTAX_HELP[searcher.record.syntax],
        max_turns=1,
        pages=searcher,
    )


def _choose_agent(baseline: Baseline, agent: AgentConfig) -> AgentConfig:
    if baseline.keeps_candidates and agent.task in ORDERING:
        return agent.model_copy(update={"rerank": RerankOptions(candidates=2, window=2, step=1)})  # one reply keeps any list
    # It writes whole queries.
    return agent.model_copy(update={"task": "find_page", "query_mode": "rewrite", "max_iterations": 1})


def _name_policy(name: str, baseline: Baseline, policy: Policy) -> Policy:
    return replace(policy, model=f"{name}:{policy.model}") if baseline.uses_engine else Policy(name)
