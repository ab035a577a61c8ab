"""The engine protocol of the agent: a coroutine from a conversation to a reply."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from drag_ray.engine.sampling import Sampling

Message = dict[str, Any]
"""{"role": "system" | "user" | "assistant" | "tool", "content": text, or a list of text and image parts}.

An image part, {"type": "image", "image": key}, names a picture in the store of page images.
"""


def list_images(messages: Sequence[Message]) -> list[str]:
    """The keys of all images of a conversation in their order."""
    contents = (message["content"] for message in messages if isinstance(message["content"], list))
    return [part["image"] for parts in contents for part in parts if part["type"] == "image"]


def join_text(message: Message) -> str:
    """A written message as text, with `<image>` where an image stands."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join("<image>" if part["type"] == "image" else part["text"] for part in content)


THINK, THINK_END = "<think>", "</think>"
UNFINISHED_REASONING = f"the reasoning did not end ({THINK_END})"


def split_reasoning(text: str) -> tuple[str, str | None]:
    """The reasoning and the rest of a reply; the rest is None if the reply ends within its reasoning.

    A reply may begin within the reasoning without saying so: then the chat template opened it, and what is there up to the
    first end is reasoning.
    """
    start, end = text.find(THINK), text.find(THINK_END)
    if start < 0 and end < 0:
        return "", text
    if end < 0:
        return text[start + len(THINK) :].strip(), None
    if 0 <= start < end:
        return text[start + len(THINK) : end].strip(), text[:start] + text[end + len(THINK_END) :]
    return text[:end].strip(), text[end + len(THINK_END) :]


def render_reasoning(reasoning: str) -> str:
    """The reasoning before an action; nothing for none."""
    return f"{THINK}{reasoning}{THINK_END}\n" if reasoning else ""


@dataclass(frozen=True, slots=True)
class ImageSource:
    """Opens an image (PIL) by its key; `per_prompt` is the largest number of images that a prompt may hold."""

    open: Callable[[str], Any]
    per_prompt: int


@dataclass(frozen=True, slots=True)
class Request:
    """One reply to draw.

    `stop` strings end it and stay part of it; equal seeds draw equal replies; `tools` are the functions that the
    model's chat template shows to it, or the system prompt where it is behind an endpoint; `form` is the structure that the reply
    is drawn in, as vLLM's `structural_tag`, or empty; `adapter` is the folder of the LoRA
    adapter to write with, one of the engine's, or empty.
    """

    messages: tuple[Message, ...]
    sampling: Sampling
    max_tokens: int
    seed: int
    stop: tuple[str, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    form: str = ""
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that the engine read and wrote for a reply."""

    num_prompt_tokens: int
    num_completion_tokens: int


@dataclass(frozen=True, slots=True)
class Generation:
    """A drawn reply with the token ids as the engine had them; none where it tells no more than `reported_usage`.

    `finish_reason` is `stop` or `length`.

    `completion_logprobs` holds the log-probability of each completion token, or nothing if they were not asked for.
    `in_reasoning` is true where the chat template ends the prompt with <think>, so that the reply begins within the reasoning.
    In `prompt_token_ids` one token stands for each image; `prompt_digest` is of all tokens (see `compute_prompt_digest`), empty
    where they are not known.
    """

    text: str
    prompt_token_ids: tuple[int, ...]
    completion_token_ids: tuple[int, ...]
    finish_reason: str
    completion_logprobs: tuple[float, ...] = ()
    in_reasoning: bool = False
    reported_usage: Usage | None = None
    prompt_digest: str = ""

    @property
    def full_text(self) -> str:
        """The reply with the mark of the reasoning that it goes on with, if the prompt opened that."""
        return THINK + self.text if self.in_reasoning else self.text

    @property
    def usage(self) -> Usage:
        """Tokens read and written: as the engine reports them, otherwise the number of the ids."""
        return self.reported_usage or Usage(len(self.prompt_token_ids), len(self.completion_token_ids))


def compute_prompt_digest(token_ids: Sequence[int], images: Sequence[str]) -> str:
    """A hash of all tokens of a prompt and of the images in it, the same on every machine, by which training checks that it shows
    a model the tokens that the engine showed it.

    Args:
        token_ids: those that fill the places of images among them, which are as many as the model's processor cuts an image into.
        images: their keys, which are hashes of what they show.
    """
    import numpy as np

    digest = hashlib.sha256(np.asarray(token_ids, dtype="<i4").tobytes())
    for key in images:
        digest.update(key.encode())
    return digest.hexdigest()[:32]


class GenerateFn(Protocol):
    """Draws one reply. Many calls run at once; the caller need not know where."""

    async def __call__(self, request: Request) -> Generation:
        """Draw the reply.

        Raises:
            PromptTooLongError: prompt and reply do not fit into the model's context.
            RolloutError: the engine could not answer.
            BudgetError: what replies may cost is spent.
        """
        ...
