"""The policy to deploy: the candidate that was named before anything was asked, or the best one that needs no training.

A verdict over all pairs of policies hides what is plain: corrected for hundreds of differences a gain of ten points is unsure.
So the candidate follows from what the run has trained, and is tested against two others alone: the question, and the best of the
untrained ones, which is found on the same questions and so looks better than it is.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from drag_ray.baselines.question import RawQuestion
from drag_ray.baselines.rerank import Rerank
from drag_ray.evaluate.measure import Criterion, Measure
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.statistics.differences import Finding
from drag_ray.evaluate.statistics.intervals import Resampling
from drag_ray.evaluate.statistics.rows import Row, build_rows, correct_rows

TESTED = ("hit_at_1", "mrr")


@dataclass(frozen=True, slots=True)
class Latency:
    """The time from a question to its pages, for one question at a time.

    Attributes:
        median_ms: over the questions.
        num_questions: so many were timed.
        num_pages: so many a model reads for each.
        device: where it reads.
        gpu_gib: GPU memory of the model and what it reads; 0 on a CPU.
    """

    median_ms: float
    num_questions: int
    num_pages: int
    device: str
    gpu_gib: float


@dataclass(frozen=True, slots=True)
class Deployment:
    """The policy to deploy.

    Attributes:
        candidate: named before.
        best_untrained: the untrained policy with the highest MRR.
        rows: Hit@1 and MRR of the three, with the candidate's differences, corrected together.
        latency: of the candidate; None where it was not timed.
    """

    candidate: str
    best_untrained: str
    rows: tuple[Row, ...]
    latency: Latency | None = None

    @property
    def is_candidate_better(self) -> bool:
        """True if the candidate is surely above the best untrained policy by one of the measures, and surely below by none."""
        findings = {row.difference(self.candidate, self.best_untrained).finding for row in self.rows}
        return Finding.MORE in findings and Finding.LESS not in findings

    @property
    def policy(self) -> str:
        """The one to deploy."""
        return self.candidate if self.is_candidate_better else self.best_untrained


def choose_candidate(policies: Collection[str], subject: str) -> str:
    """The candidate of policies: pages that a model reads for the question, which needs no language model to write, or else the
    trained writer."""
    return Rerank.name if Rerank.name in policies else subject


def is_untrained(policy: str, trained: Collection[str]) -> bool:
    """True if neither a policy nor what stands beside it is a language model or a reranker that was trained."""
    return {Rerank.name, *trained}.isdisjoint(policy.split("+"))


def compare_candidate(
    results: Mapping[str, Sequence[QuestionResult]],
    candidate: str,
    trained: Collection[str],
    measures: Sequence[Measure],
    criterion: Criterion,
    resampling: Resampling,
) -> Deployment | None:
    """Test the candidate.

    Args:
        results: of each policy, for the same questions in the same order.
        candidate: one of them.
        trained: the policies that were trained.
        measures: that are reported.
        criterion: of the task.
        resampling: of intervals and tests.

    Returns:
        None where the measures are not those of searches, or the question was not searched as it stands.
    """
    tested = [measure for measure in measures if measure.name in TESTED]
    untrained = [policy for policy in results if policy != candidate and is_untrained(policy, trained)]
    if RawQuestion.name not in untrained or len(tested) < len(TESTED) or not set(TESTED) <= set(criterion.tested):
        return None
    best = max(untrained, key=lambda policy: sum(result.reciprocal_rank for result in results[policy]))
    references = list(dict.fromkeys((RawQuestion.name, best)))
    chosen = {policy: results[policy] for policy in (candidate, *references)}
    rows = build_rows(chosen, [(candidate, reference) for reference in references], tested, resampling)
    corrected = correct_rows(rows, replace(criterion, tested=TESTED), candidate, 0, resampling)
    return Deployment(candidate, best, corrected)
