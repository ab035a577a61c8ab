"""The baselines by name, and the rollouts that they make: one search a question, through the agent's own environment."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.rollout import Policy, Rollouts
from drag_ray.baselines.best_of import BestOf, ScoreFn
from drag_ray.baselines.config import BestOfConfig, PassageConfig, Rm3Config
from drag_ray.baselines.keywords import write_keywords
from drag_ray.baselines.passages import (
    PassageExample,
    build_hyde_messages,
    build_query2doc_messages,
    extract_passage,
    weigh_hyde,
    weigh_query2doc,
)
from drag_ray.baselines.rm3 import RelevanceModel
from drag_ray.baselines.weights import WeightedSearcher, write_weights
from drag_ray.engine.generate import GenerateFn, Generation, Request
from drag_ray.search.config import SYNTAX_HELP
from drag_ray.search.searcher import Searcher

BASELINES = {
    "question": "the question, word for word",
    "question_keywords": "the question without stop words",
    "rm3": "the question, expanded by terms of the pages that it finds: it reads the index, and never the evidence",
    "hyde": "a passage that the base model writes for the question, having seen no page",
    "query2doc": "the question and a passage that the base model writes, having seen pages of training questions alone",
    "drawn": "one query that the base model draws, with the sampling of best_of",
    "best_of": "of several queries that the base model draws, the one that this run's reward model likes best; nothing is "
    "searched before, and the tokens that count are its own",
}
"""What is searched, and what is known of the collection by then."""
WITHOUT_MODEL = ("question", "question_keywords", "rm3")
_WITH_PASSAGE = ("hyde", "query2doc")
WITH_REWARD_MODEL = ("drawn", "best_of")
"""What a reward model is judged by: its choice, beside no choice."""
WITH_MODEL = (*_WITH_PASSAGE, *WITH_REWARD_MODEL)
_WEIGHTED = ("rm3", *_WITH_PASSAGE)


@dataclass(frozen=True)
class BaselineOptions:
    """What the baselines of an evaluation are made from; it crosses process borders. `reward_model` is best_of's, a folder."""

    agent: AgentConfig
    rm3: Rm3Config
    passage: PassageConfig
    examples: tuple[PassageExample, ...]
    best_of: BestOfConfig = field(default_factory=BestOfConfig)
    reward_model: Path | None = None


def build_rollouts(
    name: str, options: BaselineOptions, searcher: Searcher, generate: GenerateFn | None = None, model: str = ""
) -> Rollouts:
    """The rollouts of a baseline.

    Args:
        name: one of `BASELINES`.
        options: the agent whose question, format, top_k and depth it shares, and its own options.
        searcher: the index.
        generate: the engine that writes; needed by `WITH_MODEL`.
        model: the engine's model, for the record.
    """
    agent = options.agent.model_copy(update={"max_iterations": 1})
    search_help = ""
    if name in WITH_REWARD_MODEL:
        assert generate is not None, f"{name} needs an engine"
        reply = _build_drawn_reply(name, options, generate)
        search_help = SYNTAX_HELP[searcher.record.syntax]  # it asks as the agent does
    elif name in _WITH_PASSAGE:
        assert generate is not None, f"{name} needs an engine"
        reply = _build_passage_reply(name, options, searcher, generate, agent)
    else:
        reply = _build_query_reply(_choose_writer(name, options, searcher), agent)
    environment = SearchEnvironment(WeightedSearcher(searcher) if name in _WEIGHTED else searcher, agent.top_k, agent.depth)
    policy = Policy(f"{name}:{model}" if name in WITH_MODEL else name)
    return Rollouts(agent, policy, reply, environment, searcher.record.fingerprint, search_help)


def _choose_writer(name: str, options: BaselineOptions, searcher: Searcher) -> Callable[[str], str]:
    """From a question to the query that is searched."""
    if name == "rm3":
        relevance_model = RelevanceModel(searcher, options.rm3)
        return lambda question: write_weights(relevance_model.expand(question))
    return write_keywords if name == "question_keywords" else str


def _build_query_reply(write_query: Callable[[str], str], agent: AgentConfig) -> GenerateFn:
    """Replies that search for what `write_query` makes of the question."""
    prompts, protocol = Prompts(agent), get_protocol(agent.protocol)

    async def reply(request: Request) -> Generation:
        query = write_query(prompts.question_of(request.messages))
        return Generation(protocol.render_search(query), (), (), "stop")

    return reply


def _build_drawn_reply(name: str, options: BaselineOptions, generate: GenerateFn) -> BestOf:
    """Replies of the agent itself: one draw, or the best of several."""
    samples = options.best_of.samples if name == "best_of" else 1
    return BestOf(generate, get_protocol(options.agent.protocol), samples, partial(_load_score, options))


def _load_score(options: BaselineOptions) -> ScoreFn:
    from drag_ray.engine.reward_model import RewardModel

    assert options.reward_model, "best_of needs a reward model"
    return RewardModel(options.reward_model).score


def _build_passage_reply(
    name: str, options: BaselineOptions, searcher: Searcher, generate: GenerateFn, agent: AgentConfig
) -> GenerateFn:
    """Replies whose reasoning is the passage that the engine wrote, and whose query is made of it.

    Their token ids are the engine's: of the request for a passage, and of the passage.
    """
    prompts, protocol, passages = Prompts(agent), get_protocol(agent.protocol), options.passage

    async def reply(request: Request) -> Generation:
        question = prompts.question_of(request.messages)
        messages = build_hyde_messages(question) if name == "hyde" else build_query2doc_messages(question, options.examples)
        written = await generate(Request(messages, request.sampling, passages.max_tokens, request.seed))
        passage = extract_passage(written.text)
        if name == "hyde":
            weights = weigh_hyde(passage, searcher.analyze)
        else:
            weights = weigh_query2doc(question, passage, passages.question_repeats, searcher.analyze)
        return replace(written, text=protocol.render_search(write_weights(weights), passage))

    return reply
