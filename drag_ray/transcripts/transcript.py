"""A trajectory as it is read: turn by turn, with what the policy was told in between."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from drag_ray.agent.protocols.ranking import read_order
from drag_ray.agent.scores import list_ranked_turns
from drag_ray.agent.shown_images import ShownImage, label_images
from drag_ray.agent.tasks import ORDERING
from drag_ray.engine.generate import join_text
from drag_ray.storage.json_text import parse_json
from drag_ray.transcripts.thumbnails import Picture, ThumbnailStore
from drag_ray.transcripts.webpage import render_page
from drag_ray.types import ActionKind, Evidence, Hit, Trajectory, Turn

_NOTEBOOK_BYTES = 2_000_000
"""of pictures in the output of a cell, which a notebook keeps in its file"""


@dataclass(frozen=True, slots=True)
class Shown:
    """A message to the policy: its text, with `<image>` in the place of each image, and the images."""

    role: str
    text: str
    images: tuple[ShownImage, ...] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """A turn and the message that answered it, None after the last one. `shown` of the hits were shown to the policy."""

    turn: Turn
    observation: Shown | None
    shown: tuple[Hit, ...]
    rest: tuple[Hit, ...]

    def describe_rank(self, depth: int) -> str:
        """The outcome of a search, in words."""
        turn = self.turn
        if turn.ranking.evidence_rank:
            where = f"evidence at rank {turn.ranking.evidence_rank}" + ("" if turn.ranking.rank_score > 0 else ", not shown")
        else:
            where = f"no evidence among the first {depth}" if turn.ranking.hits else "no hit"
        left_out = ", without the costly parts of the query (search.max_query_ms)" if turn.ranking.is_partial else ""
        return f"{where}{left_out}, reward {turn.ranking.rank_score:.2f}"


@dataclass(frozen=True, slots=True, repr=False)
class Transcript:
    """One trajectory with its policy's name, its opening messages and its exchanges."""

    policy: str
    trajectory: Trajectory
    opening: tuple[Shown, ...]
    exchanges: tuple[Exchange, ...]
    thumbnails: ThumbnailStore | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Short, as lists of them are looked at; a notebook shows them whole."""
        return f"Transcript({self.trajectory.id!r}, {self.describe_outcome()})"

    def _repr_html_(self) -> str:
        """As a notebook shows it, with small pictures, as many as `_NOTEBOOK_BYTES` hold."""
        pictures = self._draw_pictures(self.thumbnails) if self.thumbnails else {}
        return render_page("transcripts/notebook.html.j2", transcript=self, pictures=pictures, to_page=to_page)

    def _draw_pictures(self, thumbnails: ThumbnailStore) -> dict[Evidence | str, Picture]:
        found = thumbnails.find(self.list_pages(), Path()) | thumbnails.locate(self.list_images(), Path())
        drawn = thumbnails.draw((picture.key for picture in found.values()), _NOTEBOOK_BYTES)
        return {shown: replace(picture, uri=drawn[picture.key]) for shown, picture in found.items() if picture.key in drawn}

    def list_pages(self) -> Iterator[Evidence]:
        """The pages that it has pictures of, the evidence first."""
        yield from self.trajectory.evidence
        for exchange in self.exchanges:
            yield from map(to_page, exchange.shown)

    def list_images(self) -> Iterator[str]:
        """The keys of the images that the question and the tools showed."""
        told = (exchange.observation for exchange in self.exchanges if exchange.turn.action is ActionKind.TOOL)
        for message in (*self.opening, *told):
            yield from (image.key for image in message.images) if message else ()

    @property
    def outcome(self) -> str:
        """`errors`, `found` or `not-found`."""
        if self.trajectory.error:
            return "errors"
        return "found" if any(turn.ranking.rank_score > 0 for turn in list_ranked_turns(self.trajectory)) else "not-found"

    @property
    def orders(self) -> bool:
        """True if its replies put candidates in order."""
        return self.trajectory.task in ORDERING

    @property
    def name(self) -> str:
        """The trajectory's id behind that of its policy."""
        return name_rollout(self.policy, self.trajectory.id)

    def describe_action(self, turn: Turn) -> str:
        """The reply's action, in a word."""
        return "order" if self.orders and turn.action is ActionKind.SEARCH else turn.action.value

    def describe_question(self) -> str:
        """The evidence's rank for the question alone, or in the initial order, in words; empty without hits."""
        trajectory = self.trajectory
        if not trajectory.question_search.hits:
            return ""
        rank = trajectory.question_search.rank
        found = f"evidence at rank {rank}" if rank else f"no evidence among the first {trajectory.depth}"
        return f"{'the order before' if self.orders else 'the question alone'}: {found}"

    def describe_query(self, turn: Turn) -> str:
        """A turn's search: a query, or the question with what was added to it; or the order of a window's candidates."""
        if self.orders:
            order = ", ".join(map(str, read_order(turn.query) or []))
            return f"the window in the order {order}" if order else "the window as it was"
        if self.trajectory.question_search.mode != "expand":
            return turn.query
        words = "question" if self.trajectory.question_search.words == "all" else "key words"
        return f"{words}^{self.trajectory.question_search.weight:g} + {turn.query or 'nothing'}"

    def describe_call(self, turn: Turn) -> str:
        """A turn's call: the tool with its arguments."""
        return f"{turn.call.tool} {turn.call.arguments}"

    def describe_outcome(self) -> str:
        """The rollout's outcome, in words."""
        ranks = [turn.ranking.evidence_rank for turn in list_ranked_turns(self.trajectory) if turn.ranking.evidence_rank]
        outcome = {"errors": "failed", "not-found": "not found"}.get(self.outcome, self.outcome)
        return outcome + (f", {'rank' if self.orders else 'best rank'} {min(ranks)}" if ranks else "")

    def describe_size(self) -> str:
        """Turns, tokens that the policy wrote, and seconds."""
        turns = self.trajectory.turns
        num_tokens = sum(turn.reply.num_completion_tokens for turn in turns)
        return f"{len(turns)} turn{'s' * (len(turns) != 1)}, {num_tokens:,} tokens, {self.trajectory.duration_s:.1f} s"

    def is_evidence(self, page: Hit | Evidence) -> bool:
        """True for a page that counts as right."""
        return Evidence(page.file, page.page_number) in self.trajectory.evidence


def to_page(hit: Hit) -> Evidence:
    """The page of a hit."""
    return Evidence(hit.file, hit.page_number)


def name_rollout(policy: str, rollout_id: str) -> str:
    """Unique id of a rollout among several policies."""
    return f"{policy}:{rollout_id}" if policy else rollout_id


def build_transcript(policy: str, trajectory: Trajectory, thumbnails: ThumbnailStore | None = None) -> Transcript:
    """The transcript of a trajectory. What is missing of its conversation is missing in the transcript. `thumbnails`: where the
    pictures are that a notebook shows."""
    messages = _read_messages(trajectory.messages)
    turns = trajectory.turns
    opening = messages[: turns[0].num_prompt_messages] if turns else messages
    exchanges = []
    for turn in turns:
        place = turn.num_prompt_messages + 1
        observation = messages[place] if place < len(messages) and messages[place].role != "assistant" else None
        shown = tuple(hit for hit in turn.ranking.hits if hit.rank <= trajectory.top_k)
        exchanges.append(Exchange(turn, observation, shown, turn.ranking.hits[len(shown) :]))
    return Transcript(policy, trajectory, tuple(opening), tuple(exchanges), thumbnails)


def _read_messages(text: str) -> list[Shown]:
    try:
        return [Shown(message["role"], join_text(message), label_images(message["content"])) for message in parse_json(text)]
    except (ValueError, KeyError, TypeError):  # a record of a rollout that failed early, or from elsewhere
        return []
