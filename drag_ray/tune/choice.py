"""The choice among first stages: by the questions of one part, taken where the gain holds on those of another.

The configured search stays unless another one is better on the choosing part and significantly better on the checking part,
where nothing was chosen: the interval of its gain, by a paired bootstrap over documents, is above 0. A reranker reads fewer
pages where on both parts nearly all that it could find is among them: what a page costs it is the same at any rank.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from drag_ray.agent.config import AgentConfig
from drag_ray.evaluate.statistics.intervals import ClusteredQuestion, Floats, Ints, Resampling, number_clusters
from drag_ray.tune.first_stages import UNION, FirstStage, find_configured
from drag_ray.types import Question

MIN_QUESTIONS = 50
"""With fewer questions nothing is chosen."""
MIN_DOCUMENTS = 5
"""With fewer documents, or groups of them, on the checking part an interval over them says nothing."""
HIT_CUTOFFS = (1, 3, 10)
RECALL_CUTOFFS = (20, 50)
DEPTHS = (5, 10, 20, 50)
"""Pages that a reranker may do with, where it could read more."""
MOST_LOST = 0.02
"""Recall that reading fewer pages may cost, at the upper end of its interval."""
MIN_SURE = 150
"""Questions of a part, with fewer of which it says nothing of so small a loss: that of 3 in n may have come to none by chance."""


@dataclass(frozen=True)
class Part:
    """Questions that were searched."""

    questions: Sequence[Question]
    ranks: Mapping[FirstStage, Sequence[tuple[int, ...]]]

    @cached_property
    def clusters(self) -> Ints:
        """The cluster of each question, a document or a group of them."""
        asked = [ClusteredQuestion(one.id, one.evidence[0].file, one.group) for one in self.questions]
        return number_clusters(asked)

    def compute_reciprocal_ranks(self, stage: FirstStage, depth: int) -> Floats:
        """1 / rank of the best evidence page, 0 beyond `depth`. Shape (num_questions,)."""
        return np.array([1 / ranks[0] if ranks and ranks[0] <= depth else 0.0 for ranks in self.ranks[stage]], np.float64)

    def compute_hits(self, stage: FirstStage, depth: int) -> Floats:
        """1 with evidence among the first `depth` pages, else 0. Shape (num_questions,)."""
        return np.array([float(bool(ranks) and ranks[0] <= depth) for ranks in self.ranks[stage]], np.float64)

    def compute_recalls(self, stage: FirstStage, depth: int) -> Floats:
        """The share of the evidence pages that is among the first `depth`. Shape (num_questions,)."""
        counted = zip(self.ranks[stage], self.questions, strict=True)
        return np.array([sum(rank <= depth for rank in ranks) / len(asked.evidence) for ranks, asked in counted], np.float64)

    def measure(self, stage: FirstStage, mrr_depth: int) -> dict[str, float | None]:
        """The means of the table's measures; None of no question."""
        values = {f"hit_at_{depth}": self.compute_hits(stage, depth) for depth in HIT_CUTOFFS}
        values |= {"mrr": self.compute_reciprocal_ranks(stage, mrr_depth)}
        values |= {f"recall_at_{depth}": self.compute_recalls(stage, depth) for depth in RECALL_CUTOFFS}
        return {name: float(found.mean()) if len(found) else None for name, found in values.items()}


@dataclass(frozen=True)
class Decision:
    """A choice between the first stage that was there and the best other one.

    Attributes:
        measure: what it rests on.
        kept: the first stage that was there.
        best: the one that is best on the choosing part; the same where none is better.
        gain: of `best` over `kept` on the checking part, with its interval; None where they are the same or nothing can be told.
    """

    measure: str
    kept: FirstStage
    best: FirstStage
    gain: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def holds(self) -> bool:
        """True if the gain is significant."""
        return self.low is not None and self.low > 0

    @property
    def taken(self) -> FirstStage:
        """The first stage that is chosen."""
        return self.best if self.holds else self.kept


@dataclass(frozen=True)
class DepthDecision:
    """A choice between the pages that a reranker may read, and fewer.

    Attributes:
        most: what it may read.
        fewest: the least of `DEPTHS` that loses no more than `MOST_LOST` on the choosing part; `most` where each loses more.
        recalls: on the checking part, at `most` and at each lesser one of `DEPTHS`.
        lost: recall that `fewest` loses on the checking part; None where nothing is to be checked.
        high: the upper end of its interval.
    """

    most: int
    fewest: int
    recalls: Mapping[int, float]
    lost: float | None = None
    high: float | None = None

    @property
    def taken(self) -> int:
        """The depth that is chosen."""
        return self.fewest if self.high is not None and self.high <= MOST_LOST else self.most


@dataclass(frozen=True)
class Choice:
    """The first stages that are chosen.

    Attributes:
        shown: what finds the pages that a policy is shown and measured by.
        candidates: what finds the pages that a reranker reads.
        decisions: that led there.
        depth: how many of the candidates a reranker is to read; None where nothing could be chosen.
        reason: why nothing could be chosen; empty where it could.
    """

    shown: FirstStage
    candidates: FirstStage
    decisions: Sequence[Decision] = ()
    depth: DepthDecision | None = None
    reason: str = ""

    def to_options(self, agent: AgentConfig) -> dict[str, Any]:
        """The options to set, in sections; none where nothing could be chosen."""
        if self.reason:
            return {}
        options: dict[str, Any] = {"retrieval": self.shown.retrieval}
        if agent.expands:
            options["question_words"] = self.candidates.words
        rows: dict[str, Any] = {"relevance_retrieval": self.candidates.retrieval}
        weights = [stage.dense_weight for stage in (self.shown, self.candidates) if stage.retrieval == "hybrid"]
        if weights and weights[0] is not None:  # one weight holds for both
            options["dense_weight"] = rows["relevance_dense_weight"] = weights[0]
        reads: dict[str, Any] = {"retrieval": self.candidates.retrieval}
        if self.depth and self.depth.taken < self.depth.most:
            reads["depth"] = self.depth.taken
        return {"agent": options, "format": rows, "evaluate": {"rerank": reads}}


def choose(parts: tuple[Part, Part], stages: Sequence[FirstStage], agent: AgentConfig, depth: int, seed: int) -> Choice:
    """Choose the words of the question by the MRR that they have alone, then what is shown by its MRR, and what a reranker reads
    by its recall at `depth`, and how much of it.
    """
    configured = find_configured(agent)
    if reason := find_reason(*parts):
        return Choice(configured, configured, reason=reason)

    def by_mrr(part: Part, stage: FirstStage) -> Floats:
        return part.compute_reciprocal_ranks(stage, agent.depth)

    def by_recall(part: Part, stage: FirstStage) -> Floats:
        return part.compute_recalls(stage, depth)

    by_words = [stage for stage in stages if stage.retrieval == "bm25"]
    own_words = FirstStage("bm25", agent.question_words if agent.expands else "all")
    words = decide("MRR", by_mrr, by_words, own_words, parts, seed)
    chosen = words.taken.words
    usable = [stage for stage in stages if stage.retrieval != UNION and stage.words == chosen]
    shown = decide("MRR", by_mrr, usable, configured._replace(words=chosen), parts, seed)
    if shown.taken.retrieval == "hybrid":  # one weight holds for both
        usable = [stage for stage in usable if stage.retrieval != "hybrid" or stage == shown.taken]
    read = decide(f"recall@{depth}", by_recall, usable, shown.taken, parts, seed)
    decisions = (*([words] if len(by_words) > 1 else []), shown, read)
    return Choice(shown.taken, read.taken, decisions, decide_depth(read.taken, depth, parts, seed))


def find_reason(choosing: Part, checking: Part) -> str:
    """The reason why nothing can be chosen by these parts; empty where it can."""
    num_questions, num_documents = len(choosing.questions) + len(checking.questions), len(np.unique(checking.clusters))
    if num_questions < MIN_QUESTIONS:
        return f"{num_questions} training questions with evidence are too few to choose by, expected {MIN_QUESTIONS}"
    if not choosing.questions or num_documents < MIN_DOCUMENTS:
        return (
            f"the {num_questions} training questions are of too few documents: {num_documents} could be kept apart to check a "
            f"choice by, expected {MIN_DOCUMENTS}"
        )
    return ""


def decide(
    measure: str,
    compute: Callable[[Part, FirstStage], Floats],
    stages: Sequence[FirstStage],
    kept: FirstStage,
    parts: tuple[Part, Part],
    seed: int,
) -> Decision:
    """Choose the first stage with the best mean on the choosing part; of equal ones that which is there, then the earlier one."""
    choosing, checking = parts
    best = max([kept, *stages], key=lambda stage: round(float(compute(choosing, stage).mean()), 9))
    if best == kept:
        return Decision(measure, kept, kept)
    return Decision(measure, kept, best, *_estimate(compute(checking, best) - compute(checking, kept), checking, seed))


def decide_depth(stage: FirstStage, most: int, parts: tuple[Part, Part], seed: int) -> DepthDecision:
    """Choose the least depth that loses next to nothing of what the first `most` pages of a first stage hold."""

    def estimate_loss(part: Part, depth: int) -> tuple[float, float | None]:
        lost, _, high = _estimate(part.compute_recalls(stage, most) - part.compute_recalls(stage, depth), part, seed)
        return lost, high

    choosing, checking = parts
    lesser = [depth for depth in DEPTHS if depth < most]
    recalls = {depth: float(checking.compute_recalls(stage, depth).mean()) for depth in (*lesser, most)}
    if min(len(choosing.questions), len(checking.questions)) >= MIN_SURE:
        for depth in lesser:
            high = estimate_loss(choosing, depth)[1]
            if high is not None and high <= MOST_LOST:
                return DepthDecision(most, depth, recalls, *estimate_loss(checking, depth))
    return DepthDecision(most, most, recalls)


def _estimate(differences: Floats, part: Part, seed: int) -> tuple[float, float | None, float | None]:
    """The mean of differences of the questions of a part, and its interval by a bootstrap over documents."""
    drawn = Resampling(part.clusters, seed=seed)
    low, high = drawn.compute_interval(drawn.draw_means(differences[:, None])[:, 0]) or (None, None)
    return float(differences.mean()), low, high
