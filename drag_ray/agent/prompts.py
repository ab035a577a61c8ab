"""Everything that the model is told, in one place. Nothing here knows the evidence of a question."""

from collections.abc import Sequence

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocol import get_protocol
from drag_ray.engine.generate import Message
from drag_ray.types import Hit, Page

DEFAULT_INSTRUCTIONS = (
    "You answer questions from a collection of documents that you can only reach through a keyword search engine. "
    "The answer is in the documents. Search with the words that the right page is likely to contain, "
    "read the pages that come back, and search again with better words if they do not hold the answer."
)
_QUESTION_PREFIX = "Question: "


class Prompts:
    """The messages of a conversation for one agent configuration."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._protocol = get_protocol(config.protocol)
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
        return messages[1 + 2 * len(self._config.examples)]["content"].removeprefix(_QUESTION_PREFIX)

    def found_pages(self, pages: Sequence[tuple[Hit, Page]]) -> str:
        """What is shown after a search: file, page number and text of each page, best first."""
        if not pages:
            return "No page matches these words."
        shown = [f"[{hit.rank}] {hit.file}#{hit.page_number}\n{page.text[: self._config.page_chars]}" for hit, page in pages]
        return "Pages found:\n\n" + "\n\n".join(shown)

    def format_reminder(self, problem: str) -> str:
        """What an unreadable reply is answered with."""
        return f"That reply could not be read: {problem}. {self._protocol.instructions(thinking=False)}"

    def followed_by_final_request(self, content: str) -> str:
        """The last message before the last reply."""
        return f"{content}\n\n{self._protocol.final_request}"

    def _build_system(self) -> str:
        return f"{self._config.instructions or DEFAULT_INSTRUCTIONS}\n\n{self._protocol.instructions(self._config.thinking)}"
