"""Prompts: the texts of the task, the protocol, the query language and the examples, put together here and nowhere else.

The texts stand with what they are of (`agent.tasks`, `agent.protocols`, `search.config`). Nothing here knows the evidence of a
question; hints are given.
"""

from collections.abc import Callable, Sequence
from typing import Any

from drag_ray.agent import tasks
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.protocols.written_call import build_call_form
from drag_ray.agent.shown_images import Content, image_part, join_text, list_parts, text_part
from drag_ray.engine.generate import Message
from drag_ray.tools.images.rollout_images import name_image
from drag_ray.types import CAPTION, Hit, Page
from drag_ray.variants import load_variant

_QUESTION_PREFIX = "Question: "


class Prompts:
    """The messages of a conversation for one agent configuration.

    Attributes:
        system: the system prompt.
        shown_functions: what the chat template shows beside the messages, in OpenAI's form.
        reply_form: what every reply is drawn in (see `build_call_form`); empty for any.

    Args:
        config: the agent.
        search_help: what the model is told of the language of queries.
    """

    def __init__(self, config: AgentConfig, search_help: str = "") -> None:
        self._config = config
        self._search_help = search_help
        self._protocol = get_protocol(config.protocol_name)
        self._functions = config.load_tools().functions
        self.shown_functions = list_shown_functions(config)
        self.reply_form = build_call_form(self.shown_functions) if config.forced_calls else ""
        self._task = load_variant(tasks, config.task).TASK
        self.system = self._build_system()

    def opening(self, question: str, images: Sequence[str] = ()) -> list[Message]:
        """The conversation before the first reply: the task, the examples as if they had been asked, and the question. `images`:
        keys of the images that the question is asked about; they stand before it, by their names."""
        messages: list[Message] = [{"role": "system", "content": self.system}]
        for example in self._config.examples:
            messages.append({"role": "user", "content": _QUESTION_PREFIX + example.question})
            messages.append({"role": "assistant", "content": self._protocol.render_search(example.query)})
        messages.append({"role": "user", "content": _ask_about(images, _QUESTION_PREFIX + question)})
        return messages

    def question_of(self, messages: Sequence[Message]) -> str:
        """The question that a conversation began with, for policies that write their query without a model."""
        asked = list_parts(messages[self._question_place]["content"])[-1]["text"]
        return asked.lstrip("\n").removeprefix(_QUESTION_PREFIX)

    def preceded_by_hint(self, messages: Sequence[Message], hint: str) -> list[Message]:
        """A conversation with a hint before its question, to ask with and never to keep.

        The question stays last, as in the examples: a small model that reads a page there goes on with the page.
        """
        place = self._question_place
        question = messages[place]
        content = join_text([text_part(f"{hint}\n\n"), *list_parts(question["content"])])
        return [*messages[:place], {**question, "content": content}, *messages[place + 1 :]]

    @property
    def _question_place(self) -> int:
        return 1 + 2 * len(self._config.examples)

    def found_pages(self, pages: Sequence[tuple[Hit, Page]], name: Callable[[str], str] | None = None) -> Content:
        """The message after a search: file, page number and text or picture of each page, best first.

        A page without a picture is shown by its text. `name`: gives a picture, by its key, the name that tools know it by; None
        where there are no such tools.
        """
        if not pages:
            return "No page matches these words."
        parts: list[dict[str, str]] = [text_part("Pages found:")]
        for hit, page in pages:
            shown = self.show_page(page)
            called = f", {name(page.image)}" if name and shown[0]["type"] == "image" else ""
            parts += [text_part(f"\n\n[{hit.rank}] {hit.file}#{hit.page_number}{called}\n"), *shown]
        return join_text(parts)

    def show_page(self, page: Page) -> list[dict[str, str]]:
        """The picture of a page with its caption, where these are shown and it has one, or its text."""
        text = text_part(page.text[: self._config.page_chars])
        if self._config.page_view == "text" or not page.image:
            return [text]
        return [image_part(page.image), *([text] if page.text_source == CAPTION and page.text else [])]

    def called_tool(self, text: str, images: Sequence[tuple[str, str, str]]) -> Content:
        """The message after the call of a tool: its text, then name, caption and picture of each image. `images`: name, key and
        caption of each."""
        parts = [text_part(text)]
        for name, key, caption in images:
            parts += [text_part(f"\n\n{name}: {caption}\n"), image_part(key)]
        return join_text(parts)

    def format_reminder(self, problem: str) -> str:
        """The answer to an unreadable reply."""
        return f"That reply could not be read: {problem}. {self._instruct(thinking=False)}"

    def followed_by_final_request(self, content: Content) -> Content:
        """The last message before the last reply."""
        return join_text([*list_parts(content), text_part(f"\n\n{self._protocol.final_request}")])

    def _build_system(self) -> str:
        search_help = "" if self._task.protocol else self._search_help
        parts = (choose_instructions(self._config), self._instruct(self._config.thinking), search_help)
        return "\n\n".join(part for part in parts if part)

    def _instruct(self, thinking: bool) -> str:
        may_answer = self._config.max_iterations > 1
        wanted = self._task.choose_wanted(self._config)
        return self._protocol.instructions(thinking, wanted, may_answer=may_answer, functions=self._functions)


def list_shown_functions(config: AgentConfig) -> tuple[dict[str, Any], ...]:
    """Functions that the chat template shows beside messages, in OpenAI's form; nothing where the system prompt says it all.
    Raises ConfigError where a tool cannot be had."""
    return get_protocol(config.protocol_name).list_functions(config.load_tools().functions)


def choose_instructions(config: AgentConfig) -> str:
    """The first paragraph of the system prompt, the task: as the options say, or that of the task itself."""
    return config.instructions or load_variant(tasks, config.task).TASK.choose_instructions(config)


def _ask_about(images: Sequence[str], question: str) -> Content:
    """The question after its images, each under its name."""
    parts: list[dict[str, str]] = []
    for place, key in enumerate(images):
        parts += [text_part(f"{name_image(place)}:\n"), image_part(key), text_part("\n\n")]
    return join_text([*parts, text_part(question)])
