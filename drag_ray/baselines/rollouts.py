"""The rollouts that baselines make: one search a question, through the agent's own environment.

They make them to be compared with the policy (`build_rollouts`), or as examples that it learns from (`build_proposals`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.rollout import Policy, Rollouts
from drag_ray.baselines.baseline import Baseline, BaselineContext
from drag_ray.engine.generate import GenerateFn, Generation, Request
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
    name: str,
    options: BaselineOptions,
    searcher: Searcher,
    generate: GenerateFn | None = None,
    model: str = "",
    questions: Sequence[str] = (),
) -> Rollouts:
    """The rollouts of a baseline.

    Args:
        name: one of `options.baselines`.
        options: the agent and the baselines.
        searcher: the index.
        generate: the engine that writes, if the baseline needs one.
        model: the engine's model, for the record.
        questions: that are going to be asked, as far as that is known.

    Raises:
        SearchIndexError: what the baseline searches cannot be opened.
    """
    baseline = options.baselines[name]
    # It writes whole queries, unless it asks as the agent does.
    mode = options.agent.query_mode if baseline.asks_as_agent else "rewrite"
    agent = options.agent.model_copy(update={"max_iterations": 1, "query_mode": mode})
    reader = baseline.open_searcher(searcher, questions)
    environment = SearchEnvironment(searcher, agent.top_k, agent.depth, searcher=reader)
    return Rollouts(
        agent,
        Policy(f"{name}:{model}" if baseline.uses_engine() else name),
        baseline.build_reply(BaselineContext(agent, searcher, generate)),
        environment,
        searcher.record.fingerprint,
        SYNTAX_HELP[searcher.record.syntax] if baseline.asks_as_agent else "",
    )


def build_proposals(
    name: str, options: BaselineOptions, searcher: Searcher, generate: GenerateFn | None = None, model: str = ""
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
        Policy(f"{name}:{model}" if baseline.uses_engine() else name),
        reply,
        SearchEnvironment(searcher, agent.top_k, agent.depth),
        searcher.record.fingerprint,
        SYNTAX_HELP[searcher.record.syntax],
        max_turns=1,
    )
