"""Find the page of the collection that answers a question, by what is searched for."""

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import ExpandedQuestion, SearchResult
from drag_ray.agent.keywords import choose_words
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.shown_images import Content
from drag_ray.agent.tasks.task import NameImage, Setting, Task
from drag_ray.engine.generate import Message
from drag_ray.types import ActionKind, Question, Turn

DEFAULT_INSTRUCTIONS = (
    "You answer questions from a collection of documents that you can only reach through a keyword search engine. "
    "The answer is in the documents. Search with the words that the right page is likely to contain, "
    "read the pages that come back, and search again with better words if they do not hold the answer."
)
EXPAND_INSTRUCTIONS = (
    "You help to find the page of a collection of documents that answers a question. {} words of the question are searched in "
    "any case. Write what to add to them: words that the right page is likely to contain and the question does not. "
    "A word may count more than others, as in word^2. If no word would help, add nothing."
)


class SearchEpisode:
    """Searches until it answers."""

    asks_for_answer = True

    def __init__(self, setting: Setting, question: Question, name_image: NameImage | None) -> None:
        self._setting = setting
        self._question = question
        self._name_image = name_image
        self.max_turns = setting.max_turns

    def open(self, prompts: Prompts) -> list[Message]:
        """The task, the examples and the question."""
        return prompts.opening(self._question.question, self._question.images)

    async def search(self, query: str) -> tuple[SearchResult, Content]:
        """The pages that it finds."""
        searched = to_search(self._setting.config, self._question, query)
        found = await self._setting.environment.search(searched, self._question.evidence)
        return found, self._setting.prompts.found_pages(found.shown, self._name_image)

    def follow_call(self, observation: Content) -> Content:
        """That alone."""
        return observation

    def remind(self, problem: str) -> Content:
        """The format."""
        return self._setting.prompts.format_reminder(problem)

    def is_complete(self, turn: Turn) -> bool:
        """With the answer."""
        return turn.action is ActionKind.ANSWER


def to_search(config: AgentConfig, question: Question, query: str = "") -> str | ExpandedQuestion:
    """The search for what the policy writes as `query`; without one, the question itself."""
    if config.expands:
        words = choose_words(question.question, config.question_words)
        return ExpandedQuestion(question.question, query, config.question_weight, words)
    return query or question.question


async def ask(setting: Setting, question: Question) -> SearchResult:
    """The ranking of the question itself."""
    return await setting.environment.search_question(to_search(setting.config, question), question.evidence)


async def begin(setting: Setting, question: Question, asked: SearchResult, name_image: NameImage | None) -> SearchEpisode:
    """A rollout, whatever the question itself finds."""
    return SearchEpisode(setting, question, name_image)


def choose_instructions(config: AgentConfig) -> str:
    """The instructions of the query mode, with the words of the question that need not be added."""
    if not config.expands:
        return DEFAULT_INSTRUCTIONS
    return EXPAND_INSTRUCTIONS.format("All" if config.question_words == "all" else "The key")


def count_shown(config: AgentConfig) -> tuple[int, int]:
    """The pages of the searches that stay in the prompt, and the question once."""
    return (config.image_searches or config.max_iterations - 1) * config.top_k, 1


TASK = Task(
    summary="find the page that answers a question",
    ask=ask,
    begin=begin,
    choose_instructions=choose_instructions,
    choose_wanted=lambda config: "words to add" if config.expands else "words to search for",
    check=lambda config: None,
    count_shown=count_shown,
)
