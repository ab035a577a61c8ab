"""Put the candidates of a question in order, window by window, as V-Retrver does: the reranking of what a search finds.

The candidates are pages: those that the question names, or the first that the index finds for it. A rollout is one list, its
turns are the windows, and after each turn stands the whole list in the order that it has then. A reply that cannot be read leaves
the order as it was. An agent with tools may look closer before it orders a window: its calls are turns as well.

A long list is ordered from its end to its beginning, so that what is good climbs to the front, as in RankGPT (Sun et al.,
https://arxiv.org/abs/2304.09542); in V-Retrver windows of 20 move by 10 over the first 50: [30, 50), [20, 40), [10, 30), [0, 20).
"""

import re
from collections.abc import Sequence
from typing import TypeVar

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchResult, rank_hits
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.ranking import RankingProtocol, read_order
from drag_ray.agent.shown_images import Content, image_part, join_text, list_parts, text_part
from drag_ray.agent.tasks import find_page
from drag_ray.agent.tasks.task import NameImage, Setting, Task
from drag_ray.engine.generate import Message
from drag_ray.storage.json_text import parse_json
from drag_ray.tools.images.rollout_images import name_image
from drag_ray.types import Hit, Page, Question, Trajectory, Turn

_Item = TypeVar("_Item")


def plan_windows(num_candidates: int, size: int, step: int) -> list[tuple[int, int]]:
    """The windows of a list as (start, stop), 0-based and without the stop, in the order in which they are ordered.

    The last one is the front of the list, whatever the list's length; a list of `size` or fewer is one window, and one with
    nothing to order has none.

    Args:
        num_candidates: of the list.
        size: candidates of a window, at least 2.
        step: by how much the next window is nearer to the front, from 1 to `size`.
    """
    if num_candidates < 2:
        return []
    starts = [*range(num_candidates - size, 0, -step), 0]
    return [(start, min(start + size, num_candidates)) for start in starts]


def apply_order(candidates: Sequence[_Item], window: tuple[int, int], order: Sequence[int]) -> list[_Item]:
    """The list with one window of it in another order.

    Args:
        candidates: the whole list.
        window: its (start, stop).
        order: numbers of the window's candidates from 1, best first. A number counts once, numbers that no candidate has do not
            count, and candidates that are not named follow in the order that they had.
    """
    start, stop = window
    inside = list(candidates[start:stop])
    places = [number - 1 for number in dict.fromkeys(order) if 1 <= number <= len(inside)]
    named = set(places)
    places += [place for place in range(len(inside)) if place not in named]
    return [*candidates[:start], *(inside[place] for place in places), *candidates[stop:]]


INSTRUCTIONS = (
    "You are given a query and numbered candidates. Compare each candidate with the query and put the candidates in order, "
    "the one that fits the query best first."
)

_CANDIDATES = "\n\nCandidates:"
_NUMBER = re.compile(r"\n\n\(\d+\) (?:image_\d+\n)?")


class RerankEpisode:
    """One list, of which every reply orders a window, or looks closer at it.

    Args:
        setting: of the policy.
        question: its query.
        asked: the candidates in the order that is to be improved, and what follows them.
        pages: those of the candidates that are ordered.
        name: gives a picture that is shown its name; None where no tool takes pictures.
    """

    asks_for_answer = False

    def __init__(
        self, setting: Setting, question: Question, asked: SearchResult, pages: Sequence[Page], name: NameImage | None
    ) -> None:
        self._setting = setting
        self._name_image = name
        self._question = question
        self._hits = asked.ranking.hits
        self._pages = list(pages)
        options = setting.config.rerank
        self._windows = plan_windows(len(pages), options.window, options.step) or [(0, len(pages))]
        self._num_done = self._num_calls = 0
        self._max_calls = setting.config.max_iterations - 1 if setting.config.called_tools else 0
        self.max_turns = len(self._windows) * (self._max_calls + 1)
        self._first = self._show()

    def open(self, prompts: Prompts) -> list[Message]:
        """The task and the first window."""
        return [{"role": "system", "content": prompts.system}, {"role": "user", "content": self._first}]

    async def search(self, query: str) -> tuple[SearchResult, Content]:
        """The whole list after the order of this window, and the next window."""
        order = read_order(query) or []
        window = self._windows[self._num_done]
        self._pages = apply_order(self._pages, window, order)
        found = rank_hits(apply_order(self._hits, window, order), self._question.evidence, self._setting.config.top_k)
        self._hits = found.ranking.hits
        return found, self._show_next()

    def follow_call(self, observation: Content) -> Content:
        """Result of the call, with the request for the order before a window's last reply; the next window after one that called
        again."""
        self._num_calls += 1
        if self._num_calls < self._max_calls:
            return observation
        if self._num_calls == self._max_calls:
            return self._setting.prompts.followed_by_final_request(observation)
        return join_text([*list_parts(observation), text_part("\n\n"), *list_parts(self._show_next())])

    def remind(self, problem: str) -> Content:
        """The format, with the next window."""
        reminder = text_part(f"{self._setting.prompts.format_reminder(problem)}\n\n")
        return join_text([reminder, *list_parts(self._show_next())])

    def is_complete(self, turn: Turn) -> bool:
        """With the window at the front."""
        return self._num_done >= len(self._windows)

    def _show_next(self) -> Content:
        self._num_done += 1
        self._num_calls = 0
        return "" if self._num_done == len(self._windows) else self._show()  # nothing is told after the last one

    def _show(self) -> Content:
        """The query with the candidates of the window, each as its page's text or picture, numbered from 1."""
        start, stop = self._windows[self._num_done]
        parts = [text_part("Query: ")]
        for place, key in enumerate(self._question.images):
            # The rollout has named these already, as they are first.
            name = f"{name_image(place)}\n" if self._name_image and not self._num_done else self._name(key)
            parts += [text_part(name), image_part(key)]
        parts.append(text_part(f"{self._question.question}{_CANDIDATES}"))
        for number, page in enumerate(self._pages[start:stop], start=1):
            shown = self._setting.prompts.show_page(page)
            name = self._name(page.image) if shown[0]["type"] == "image" else ""
            parts += [text_part(f"\n\n({number}) {name}"), *shown]
        return join_text([part for part in parts if part.get("text") != ""])

    def _name(self, key: str) -> str:
        return f"{self._name_image(key)}\n" if self._name_image else ""


def describe_modalities(trajectory: Trajectory) -> str:
    """The modalities of a list's query and of the candidates of its first window, as in M-BEIR's tasks: "text to image".

    Each is text, image or mixed; empty for a rollout that showed none.
    """
    try:
        parts = list_parts(parse_json(trajectory.messages)[1]["content"])
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


async def begin(setting: Setting, question: Question, asked: SearchResult, name: NameImage | None) -> RerankEpisode:
    """A rollout, for which the pages of its candidates are read. Raises SearchIndexError where the index does not have one of
    them."""
    pages = await setting.environment.read_pages(asked.ranking.hits[: setting.config.rerank.candidates])
    return RerankEpisode(setting, question, asked, pages, name)


def check(config: AgentConfig) -> None:
    """ValueError unless the whole list is recorded, and nothing is asked for that the windows have no place for."""
    if config.depth < config.rerank.candidates:
        raise ValueError(
            f"depth {config.depth} is below rerank.candidates {config.rerank.candidates}; it must be at least as large"
        )
    if config.called_tools and "search" in config.tools:
        raise ValueError("the task rerank does not search; leave search out of agent.tools")
    if config.examples:
        raise ValueError("the task rerank has no examples; leave out agent.examples")


def count_shown(config: AgentConfig) -> tuple[int, int]:
    """The candidates of the windows that stay in the prompt, the first one among them, and the query with each."""
    options = config.rerank
    num_windows = len(plan_windows(options.candidates, options.window, options.step))
    if config.image_searches:
        num_windows = min(num_windows, config.image_searches + 1)
    return num_windows * min(options.window, options.candidates), num_windows


TASK = Task(
    summary="put candidates in order",
    ask=ask,
    begin=begin,
    choose_instructions=lambda config: INSTRUCTIONS,
    choose_wanted=lambda config: "the numbers of all candidates",
    check=check,
    count_shown=count_shown,
    protocol=RankingProtocol.name,
)
