"""What the agent knows of an engine: a coroutine from a conversation to a reply."""

from dataclasses import dataclass
from typing import Any, Protocol

from drag_ray.engine.sampling import Sampling

Message = dict[str, str]
"""{"role": "system" | "user" | "assistant" | "tool", "content": text}"""


@dataclass(frozen=True, slots=True)
class Request:
    """One reply to draw.

    `stop` strings end it and stay part of it; equal seeds draw equal replies; `tools` are the functions that the
    model's chat template shows to it.
    """

    messages: tuple[Message, ...]
    sampling: Sampling
    max_tokens: int
    seed: int
    stop: tuple[str, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Generation:
    """A drawn reply with the token ids as the engine had them. `finish_reason` is `stop` or `length`.

    `completion_logprobs` holds the log-probability of each completion token, or nothing if they were not asked for.
    """

    text: str
    prompt_token_ids: tuple[int, ...]
    completion_token_ids: tuple[int, ...]
    finish_reason: str
    completion_logprobs: tuple[float, ...] = ()


class GenerateFn(Protocol):
    """Draws one reply. Many calls run at once; the caller need not know where."""

    async def __call__(self, request: Request) -> Generation:
        """Draw the reply.

        Raises:
            PromptTooLongError: prompt and reply do not fit into the model's context.
            RolloutError: the engine could not answer.
        """
        ...
