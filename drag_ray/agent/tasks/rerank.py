"""Put the candidates of a question in order, window by window, as V-Retrver does: the reranking of what a search finds.

The candidates are pages: those that the question names, or the first that the index finds for it. A rollout is one list, its
turns are the windows, and after each turn stands the whole list in the order that it has then. A reply that cannot be read leaves
the order as it was.
"""

import json
import re
from collections.abc import Sequence

from drag_ray.agent.choice import Choice
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchResult, rank_hits
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.ranking import RankingProtocol, read_order
from drag_ray.agent.shown_images import Content, image_part, join_text, list_parts, text_part
from drag_ray.agent.tasks import find_page
from drag_ray.agent.tasks.task import NameImage, Setting, Task
from drag_ray.agent.tasks.windows import apply_order, plan_windows
from drag_ray.engine.generate import Message
from drag_ray.types import Hit, Page, Question, Trajectory, Turn

INSTRUCTIONS = (
    "You are given a query and numbered candidates. Compare each candidate with the query and put the candidates in order, "
    "the one that fits the query best first."
)


_CANDIDATES = "\n\nCandidates:"
_NUMBER = re.compile(r"\n\n\(\d+\) ")


class RerankEpisode:
    """One list, of which every reply orders a window.

    Args:
        setting: of the policy.
        question: its query.
        asked: the candidates in the order that is to be improved, and what follows them.
        pages: those of the candidates that are ordered.
    """

    asks_for_answer = False

    def __init__(self, setting: Setting, question: Question, asked: SearchResult, pages: Sequence[Page]) -> None:
        self._setting = setting
        self._question = question
        self._hits = asked.hits
        self._pages = list(pages)
        options = setting.config.rerank
        self._windows = plan_windows(len(pages), options.window, options.step) or [(0, len(pages))]
        self._num_done = 0
        self.max_turns = len(self._windows)

    def open(self, prompts: Prompts) -> list[Message]:
        """The task and the first window."""
        return [{"role": "system", "content": prompts.system}, {"role": "user", "content": self._show(0)}]

    async def search(self, query: str, choice: Choice | None, name_image: NameImage | None) -> tuple[SearchResult, Content]:
        """The whole list after the order of this window, and the next window."""
        order = read_order(query) or []
        window = self._windows[self._num_done]
        self._pages = apply_order(self._pages, window, order)
        found = rank_hits(apply_order(self._hits, window, order), self._question.evidence, self._setting.config.top_k)
        self._hits = found.hits
        self._num_done += 1
        return found, self._show(self._num_done)

    def remind(self, problem: str) -> Content:
        """The format, with the next window."""
        self._num_done += 1
        reminder = text_part(f"{self._setting.prompts.format_reminder(problem)}\n\n")
        return join_text([reminder, *list_parts(self._show(self._num_done))])

    def is_complete(self, turn: Turn) -> bool:
        """With the window at the front."""
        return self._num_done >= len(self._windows)

    def _show(self, place: int) -> Content:
        """The query with the candidates of a window, each as its page's text or picture, numbered from 1."""
        if place == len(self._windows):
            return ""  # nothing is told after the last one
        start, stop = self._windows[place]
        parts = [text_part("Query: ")]
        parts += [image_part(key) for key in self._question.images]
        parts.append(text_part(f"{self._question.question}{_CANDIDATES}"))
        for number, page in enumerate(self._pages[start:stop], start=1):
            parts += [text_part(f"\n\n({number}) "), *self._setting.prompts.show_page(page)]
        return join_text(parts)


def describe_modalities(trajectory: Trajectory) -> str:
    """What the query of a list is and what the candidates of its first window are, as in M-BEIR's tasks: "text to image".

    Each is text, image or mixed; empty for a rollout that showed none.
    """
    try:
        parts = list_parts(json.loads(trajectory.messages)[1]["content"])
        place = next(place for place, part in enumerate(parts) if _CANDIDATES in part.get("text", ""))
        first = parts[place]["text"].partition(f"{trajectory.question}{_CANDIDATES}")[2]
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration):  # one that failed early, or is from elsewhere
        return ""
    candidates = [text_part(first), *parts[place + 1 :]]
    has_text = any(_NUMBER.sub("", part["text"]).strip() for part in candidates if part["type"] == "text")
    query = _name_modality(bool(trajectory.question), has_image=_has_image(parts[:place]))
    return f"{query} to {_name_modality(has_text, has_image=_has_image(candidates))}"


def _has_image(parts: Sequence[dict[str, str]]) -> bool:
    return any(part["type"] == "image" for part in parts)


def _name_modality(has_text: bool, has_image: bool) -> str:
    return "mixed" if has_text and has_image else "image" if has_image else "text"


async def ask(setting: Setting, question: Question) -> SearchResult:
    """The candidates that the question names, in its order, or else what the index finds for it."""
    if not question.candidates:
        return await find_page.ask(setting, question)
    hits = tuple(Hit(page.file, page.page_number, rank, 0.0) for rank, page in enumerate(question.candidates, start=1))
    return rank_hits(hits[: setting.environment.depth], question.evidence, setting.config.top_k)


async def begin(setting: Setting, question: Question, asked: SearchResult) -> RerankEpisode:
    """A rollout, for which the pages of its candidates are read.

    Raises:
        SearchIndexError: the index does not have one of them.
    """
    pages = await setting.environment.read_pages(asked.hits[: setting.config.rerank.candidates])
    return RerankEpisode(setting, question, asked, pages)


def check(config: AgentConfig) -> None:
    """ValueError unless the whole list is recorded, and nothing is asked for that the windows have no place for."""
    if config.depth < config.rerank.candidates:
        raise ValueError(
            f"depth {config.depth} is below rerank.candidates {config.rerank.candidates}; it must be at least as large"
        )
    if config.tools != ("search",):
        raise ValueError("the task rerank has no tools; leave out agent.tools")
    if config.examples:
        raise ValueError("the task rerank has no examples; leave out agent.examples")


TASK = Task(
    summary="put candidates in order",
    scored_by="ranking",
    ask=ask,
    begin=begin,
    choose_instructions=lambda config: INSTRUCTIONS,
    choose_wanted=lambda config: "the numbers of all candidates",
    check=check,
    protocol=RankingProtocol.name,
)
