"""Questions to look into: what two policies did on each, side by side."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from drag_ray.evaluate.measure import ANSWER_ACCURACY, Criterion, leave_unasked
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.transcripts.thumbnails import ThumbnailStore
from drag_ray.transcripts.transcript import Transcript, build_transcript, to_page
from drag_ray.types import Evidence, Hit, Trajectory

_NUM_EXAMPLES = 50
"""Of each outcome."""
_PICTURE_BYTES = 10_000_000
"""A page that both policies were shown stands in the report twice."""


class Outcome(StrEnum):
    """An example's outcome by what the task is judged by, the rank of the evidence or the answer: subject beside baseline."""

    WON = "won"
    """The subject is better."""
    LOST = "lost"
    """The baseline is."""
    BOTH_FAILED = "both failed"
    """Neither has evidence within the depth, or answers at all like what is known."""
    EVEN = "even"
    """Both are as good."""


@dataclass(frozen=True, slots=True)
class Side:
    """A policy's side of an example: the rank of the evidence in its first search, its transcript, None without a rollout, and
    where it `is_answer` that is judged, the ANLS* of that, None for a policy that was never to answer.

    A policy that did not search, but `falls_back` on the question, has the rank of that.
    """

    policy: str
    rank: int | None
    falls_back: bool
    transcript: Transcript | None
    is_answer: bool = False
    anls: float | None = None

    def describe(self) -> str:
        """Its grade, higher is better."""
        if self.is_answer:
            return "no answer" if self.anls is None else f"ANLS* {self.anls:.3f}"
        return f"rank {self.rank}" if self.rank else "absent"

    @property
    def is_good(self) -> bool:
        """True if that is worth anything."""
        return bool(self.anls if self.is_answer else self.rank)

    def list_hits(self) -> Iterator[Hit]:
        """All that it was shown, search by search, and at last what it fell back on."""
        if self.transcript is None:
            return
        for exchange in self.transcript.exchanges:
            yield from exchange.shown
        if self.falls_back:
            yield from self.list_fallback()

    def list_fallback(self) -> tuple[Hit, ...]:
        """The pages that the question itself shows."""
        rollout = self.transcript.trajectory if self.transcript else None
        return rollout.question_search.hits[: rollout.top_k] if rollout else ()


@dataclass(frozen=True, slots=True)
class Example:
    """One question with the baseline's side and the subject's."""

    question_id: str
    question: str
    outcome: Outcome
    sides: tuple[Side, Side]

    def list_shown(self) -> Iterator[Evidence | str]:
        """The pages that either policy was shown, and the keys of the images that its tools returned."""
        for side in self.sides:
            yield from map(to_page, side.list_hits())
            yield from side.transcript.list_images() if side.transcript else ()


@dataclass(frozen=True, slots=True)
class Examples:
    """The questions that are shown, and how many there are of each outcome, shown or not; outcomes without any are left out."""

    shown: Sequence[Example] = ()
    counts: Mapping[Outcome, int] = field(default_factory=dict[Outcome, int])


def draw_pictures(examples: Examples, thumbnails: ThumbnailStore) -> dict[Evidence | str, str]:
    """Small pictures of the pages that were shown, and of the images by their keys, as data URIs; where they are too many, the
    last examples go without.
    """
    shown = list(dict.fromkeys(item for example in examples.shown for item in example.list_shown()))
    of_pages = thumbnails.find((page for page in shown if isinstance(page, Evidence)), Path())
    pictures = of_pages | thumbnails.locate((key for key in shown if isinstance(key, str)), Path())
    drawn = thumbnails.draw((pictures[item].key for item in shown if item in pictures), _PICTURE_BYTES)
    return {item: drawn[picture.key] for item, picture in pictures.items() if picture.key in drawn}


def choose_examples(
    trajectories: Mapping[str, Sequence[Trajectory]],
    results: Mapping[str, Sequence[QuestionResult]],
    criterion: Criterion,
    baseline: str,
    subject: str,
    num_each: int = _NUM_EXAMPLES,
) -> Examples:
    """Up to `num_each` questions of each outcome, those whose id has the lowest SHA-256, so that none is picked; in the order of
    the outcomes, then of the hash.
    """
    after = {result.question_id: result for result in results[subject]}
    judged = {
        before.question_id: _judge(criterion.grade(before), criterion.grade(after[before.question_id]))
        for before in results[baseline]
    }
    order = sorted(judged, key=lambda id: hashlib.sha256(id.encode()).digest())
    chosen = [id for outcome in Outcome for id in [id for id in order if judged[id] is outcome][:num_each]]
    sides = {policy: leave_unasked(results[policy], criterion) for policy in (baseline, subject)}
    by_id = {policy: {result.question_id: result for result in rows} for policy, rows in sides.items()}
    rollouts = {policy: {t.question_id: t for t in trajectories[policy] if t.question_id in judged} for policy in by_id}

    def build_side(policy: str, id: str) -> Side:
        result, rollout = by_id[policy][id], rollouts[policy].get(id)
        transcript = build_transcript(policy, rollout) if rollout else None
        is_answer = criterion.primary == ANSWER_ACCURACY
        return Side(
            policy, result.searches.first_search_rank, result.searches.falls_back, transcript, is_answer, result.answer.anls
        )

    def find_question(id: str) -> str:
        return next((some[id].question for some in rollouts.values() if id in some), id)

    shown = [Example(id, find_question(id), judged[id], (build_side(baseline, id), build_side(subject, id))) for id in chosen]
    counts = Counter(judged.values())
    return Examples(shown, {outcome: counts[outcome] for outcome in Outcome if counts[outcome]})


def _judge(before: float, after: float) -> Outcome:
    if before == after:
        return Outcome.EVEN if before else Outcome.BOTH_FAILED
    return Outcome.WON if after > before else Outcome.LOST
