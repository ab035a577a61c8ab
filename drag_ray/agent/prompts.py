"""Everything that the model is told, in one place. Nothing here knows the evidence of a question; hints are given."""

from collections.abc import Sequence
from typing import Any

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.engine.generate import Message, list_images
from drag_ray.types import Hit, Page

Content = str | list[dict[str, str]]
"""A message's content: text, or parts, some of which are images."""

DEFAULT_INSTRUCTIONS = (
    "You answer questions from a collection of documents that you can only reach through a keyword search engine. "
    "The answer is in the documents. Search with the words that the right page is likely to contain, "
    "read the pages that come back, and search again with better words if they do not hold the answer."
)
EXPAND_INSTRUCTIONS = (
    "You help to find the page of a collection of documents that answers a question. All words of the question are searched in "
    "any case. Write what to add to them: words that the right page is likely to contain and the question does not. "
    "A word may count more than others, as in word^2. If no word would help, add nothing."
)
_WANTED = {"rewrite": "words to search for", "expand": "words to add"}
_QUESTION_PREFIX = "Question: "


class Prompts:
    """The messages of a conversation for one agent configuration.

    Attributes:
        shown_functions: what the chat template shows beside the messages, in OpenAI's form.

    Args:
        config: the agent.
        search_help: what the model is told of the language of queries.
    """

    def __init__(self, config: AgentConfig, search_help: str = "") -> None:
        self._config = config
        self._search_help = search_help
        self._protocol = get_protocol(config.protocol)
        self._functions = config.load_tools().functions
        self.shown_functions = list_shown_functions(config)
        self._system = self._build_system()

    def opening(self, question: str) -> list[Message]:
        """The conversation before the first reply: the task, the examples as if they had been asked, and the question."""
        messages = [{"role": "system", "content": self._system}]
        for example in self._config.examples:
            messages.append({"role": "user", "content": _QUESTION_PREFIX + example.question})
            messages.append({"role": "assistant", "content": self._protocol.render_search(example.query)})
        messages.append({"role": "user", "content": _QUESTION_PREFIX + question})
        return messages

    def question_of(self, messages: Sequence[Message]) -> str:
        """The question that a conversation began with, for policies that write their query without a model."""
        return messages[self._question_place]["content"].removeprefix(_QUESTION_PREFIX)

    def preceded_by_hint(self, messages: Sequence[Message], hint: str) -> list[Message]:
        """A conversation with a hint before its question, to ask with and never to keep.

        The question stays last, as in the examples: a small model that reads a page there goes on with the page.
        """
        place = self._question_place
        question = messages[place]
        return [*messages[:place], {**question, "content": f"{hint}\n\n{question['content']}"}, *messages[place + 1 :]]

    @property
    def _question_place(self) -> int:
        return 1 + 2 * len(self._config.examples)

    def found_pages(self, pages: Sequence[tuple[Hit, Page]]) -> Content:
        """What is shown after a search: file, page number and text or picture of each page, best first.

        A page without a picture is shown by its text.
        """
        if not pages:
            return "No page matches these words."
        parts: list[dict[str, str]] = [_text_part("Pages found:")]
        for hit, page in pages:
            heading = f"\n\n[{hit.rank}] {hit.file}#{hit.page_number}\n"
            if self._config.page_view == "image" and page.image:
                parts += [_text_part(heading), {"type": "image", "image": page.image}]
            else:
                parts.append(_text_part(heading + page.text[: self._config.page_chars]))
        return _join_text(parts)

    def format_reminder(self, problem: str) -> str:
        """What an unreadable reply is answered with."""
        return f"That reply could not be read: {problem}. {self._instruct(thinking=False)}"

    def followed_by_final_request(self, content: Content) -> Content:
        """The last message before the last reply."""
        parts = content if isinstance(content, list) else [_text_part(content)]
        return _join_text([*parts, _text_part(f"\n\n{self._protocol.final_request}")])

    def _build_system(self) -> str:
        parts = (choose_instructions(self._config), self._instruct(self._config.thinking), self._search_help)
        return "\n\n".join(part for part in parts if part)

    def _instruct(self, thinking: bool) -> str:
        may_answer = self._config.max_iterations > 1
        wanted = _WANTED[self._config.query_mode]
        return self._protocol.instructions(thinking, wanted, may_answer=may_answer, functions=self._functions)


def list_shown_functions(config: AgentConfig) -> tuple[dict[str, Any], ...]:
    """What the chat template shows beside an agent's messages, in OpenAI's form; nothing where the system prompt says it all.

    Raises:
        ConfigError: a tool cannot be had.
    """
    return get_protocol(config.protocol).list_functions(config.load_tools().functions)


def choose_instructions(config: AgentConfig) -> str:
    """The first paragraph of the system prompt, the task: as the options say, or by the query mode."""
    return config.instructions or (EXPAND_INSTRUCTIONS if config.expands else DEFAULT_INSTRUCTIONS)


def hide_old_images(messages: Sequence[Message], image_searches: int) -> list[Message]:
    """A conversation as the model is shown it: images of all but the latest `image_searches` messages with images are left out.

    What a page was called stays. With 0 every image stays. Collection asks with these messages and training must learn from
    them, so that a model never learns from an image that it was not shown.
    """
    with_images = [place for place, message in enumerate(messages) if list_images([message])]
    hidden = set(with_images[:-image_searches]) if image_searches else set()
    return [_without_images(message) if place in hidden else message for place, message in enumerate(messages)]


def _without_images(message: Message) -> Message:
    return {**message, "content": _join_text([part for part in message["content"] if part["type"] != "image"])}


def _text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _join_text(parts: Sequence[dict[str, str]]) -> Content:
    """Neighbouring text parts as one; without an image the content is plain text."""
    joined: list[dict[str, str]] = []
    for part in parts:
        if joined and part["type"] == joined[-1]["type"] == "text":
            joined[-1] = _text_part(joined[-1]["text"] + part["text"])
        else:
            joined.append(part)
    return joined[0]["text"] if len(joined) == 1 and joined[0]["type"] == "text" else joined
