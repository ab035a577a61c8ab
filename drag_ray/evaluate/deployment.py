"""The policy to deploy: the best of a few candidates that were named before anything was asked, or the best untrained one.

A verdict over all pairs of policies hides what is plain: corrected for hundreds of differences a gain of ten points is unsure.
So the candidates follow from what the run has trained, and are tested, corrected together, against two others alone: the
question, and the best of the untrained ones, which is found on the same questions and so looks better than it is.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from drag_ray.baselines.question import RawQuestion
from drag_ray.baselines.rerank import Rerank
from drag_ray.evaluate.measure import Criterion, Measure
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.statistics.differences import Finding
from drag_ray.evaluate.statistics.intervals import Resampling, compute_clusters
from drag_ray.evaluate.statistics.rows import Row, build_rows, correct_rows

TESTED = ("hit_at_1", "mrr")
START = "start"
"""The vectors of the model that a reranker was trained from."""


@dataclass(frozen=True, slots=True)
class Latency:
    """The time from a question to its pages, for one question at a time.

    Attributes:
        num_questions: those that were timed.
        num_pages: those that a model reads for each; 0 without such a model.
        device: where it reads, or where pages are found.
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
        candidate: the one with the highest MRR of those that are significantly better than the best untrained one, or of all.
        best_untrained: the untrained policy with the highest MRR.
        rows: Hit@1 and MRR, with the candidate's differences, corrected together with those of all candidates.
        candidates: named before.
        latency: of the candidate; None where it was not timed.
        start: Hit@1 and MRR of a reranker and of `START`, on the questions that the latter was asked; none without it.
    """

    candidate: str
    best_untrained: str
    rows: tuple[Row, ...]
    candidates: tuple[str, ...]
    latency: Latency | None = None
    start: tuple[Row, ...] = ()

    @property
    def is_candidate_better(self) -> bool:
        """True if the candidate is significantly above the best untrained policy by one measure and below by none."""
        findings = {row.difference(self.candidate, self.best_untrained).finding for row in self.rows}
        return Finding.MORE in findings and Finding.LESS not in findings

    @property
    def policy(self) -> str:
        """The one to deploy."""
        return self.candidate if self.is_candidate_better else self.best_untrained


def choose_candidates(policies: Collection[str], subject: str, retrievers: Collection[str]) -> tuple[str, ...]:
    """The candidates of policies: the question in the order of a reranker and by trained vectors, which need no language model to
    write, or else the trained writer."""
    return tuple(name for name in policies if name == Rerank.name or name in retrievers) or (subject,)


def compare_candidates(
    results: Mapping[str, Sequence[QuestionResult]],
    candidates: tuple[str, ...],
    trained: Collection[str],
    measures: Sequence[Measure],
    criterion: Criterion,
    resampling: Resampling,
) -> Deployment | None:
    """Test the candidates.

    Returns:
        None where the measures are not those of searches, or the question was not searched as it stands.
    """
    tested = [measure for measure in measures if measure.name in TESTED]
    learned = {Rerank.name, *trained}  # neither a policy nor what stands beside it may be of these
    untrained = [policy for policy in results if policy not in candidates and learned.isdisjoint(policy.split("+"))]
    if RawQuestion.name not in untrained or len(tested) < len(TESTED) or not set(TESTED) <= set(criterion.tested):
        return None

    def compute_rank(policy: str) -> float:
        return sum(result.reciprocal_rank for result in results[policy])

    best = max(untrained, key=compute_rank)
    references = list(dict.fromkeys((RawQuestion.name, best)))
    chosen = {policy: results[policy] for policy in (*candidates, *references)}
    pairs = [(candidate, reference) for candidate in candidates for reference in references]
    rows = build_rows(chosen, pairs, tested, resampling)
    corrected = correct_rows(rows, replace(criterion, tested=TESTED), candidates, 0, resampling)
    found: list[Deployment] = []
    for candidate in candidates:
        own = (replace(row, differences=tuple(d for d in row.differences if d.policy == candidate)) for row in corrected)
        found.append(Deployment(candidate, best, tuple(own), candidates))
    return max(found, key=lambda deployment: (deployment.is_candidate_better, compute_rank(deployment.candidate)))


def compare_with_start(
    results: Sequence[QuestionResult],
    ranks: Mapping[str, int | None],
    measures: Sequence[Measure],
    criterion: Criterion,
    resampling: Resampling,
) -> tuple[Row, ...]:
    """Test a reranker against what it was before training.

    Args:
        results: of the reranker.
        ranks: of the evidence by its start, for some of the questions.
        resampling: of all questions; those that have ranks are drawn by their own documents.
    """
    own = [result for result in results if result.question_id in ranks]
    if not own:
        return ()
    searches = (replace(result.searches, first_search_rank=ranks[result.question_id]) for result in own)
    start = [replace(result, searches=found) for result, found in zip(own, searches, strict=True)]
    drawn = replace(resampling, clusters=compute_clusters(own))
    tested = [measure for measure in measures if measure.name in TESTED]
    rows = build_rows({Rerank.name: own, START: start}, [(Rerank.name, START)], tested, drawn)
    return correct_rows(rows, replace(criterion, tested=TESTED), [Rerank.name], 0, drawn)
