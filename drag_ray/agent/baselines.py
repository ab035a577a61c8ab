"""Policies that write their query without a model: what a trained policy has to beat."""

from collections.abc import Callable

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocol import get_protocol
from drag_ray.engine.generate import GenerateFn, Generation, Request

QueryWriter = Callable[[str], str]
"""From a question to the query that is searched."""


def write_question(question: str) -> str:
    """The question itself, word for word."""
    return question


BASELINES: dict[str, QueryWriter] = {"question": write_question}


def build_generate(writer: QueryWriter, config: AgentConfig) -> GenerateFn:
    """A `GenerateFn` whose every reply searches for what `writer` makes of the question."""
    prompts, protocol = Prompts(config), get_protocol(config.protocol)

    async def generate(request: Request) -> Generation:
        query = writer(prompts.question_of(request.messages))
        return Generation(protocol.render_search(query), (), (), "stop")

    return generate
