"""Policies side by side on the same questions: what is compared with what, and what went wrong."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from drag_ray.baselines.question import RawQuestion
from drag_ray.baselines.rerank import Rerank
from drag_ray.errors import DataError
from drag_ray.evaluate.config import TEST
from drag_ray.evaluate.deployment import Deployment, Latency, choose_candidates, compare_candidates, compare_with_start
from drag_ray.evaluate.effort import NO_PRICES, Effort, Prices, TurnSuccess, compute_efforts, compute_turns
from drag_ray.evaluate.measure import Criterion, Measure, Unit, choose_criterion, find_task, leave_unasked
from drag_ray.evaluate.measures import build_measures, build_recalls, build_strata
from drag_ray.evaluate.question_result import NO_TRAJECTORY, QuestionResult, compute_reciprocal_rank, is_within
from drag_ray.evaluate.results import find_question_ranks
from drag_ray.evaluate.statistics.intervals import ClusterSizes, Resampling, compute_cluster_sizes, compute_clusters
from drag_ray.evaluate.statistics.rows import Row, build_rows, correct_rows

_CUTOFFS = (1, 3, 10)


@dataclass(frozen=True, slots=True)
class Headroom:
    """One measure of the first searches: that of the best single policy, and that of an oracle which knows for each question
    whose search ranks the evidence best.

    What an oracle over more policies finds is more, by luck as well: it is a bound, not a promise.
    """

    name: str
    label: str
    unit: Unit
    best_policy: str
    best: float
    oracle: float

    @property
    def gain(self) -> float:
        """The difference of the two."""
        return self.oracle - self.best


def compute_headroom(
    results: Mapping[str, Sequence[QuestionResult]], question_ranks: Sequence[int | None] | None
) -> tuple[Headroom, ...]:
    """Hit@1, Hit@3, Hit@10 (those within the depth) and MRR of the best policy and of the oracle over all.

    The question searched as it stands takes part, whether it is among the policies or not.
    """
    ranks: dict[str, Sequence[int | None]] = {
        policy: [result.searches.first_search_rank for result in rows] for policy, rows in results.items()
    }
    if question_ranks:
        ranks.setdefault(RawQuestion.name, question_ranks)
    best_ranks = [min((rank for rank in found if rank), default=None) for found in zip(*ranks.values(), strict=True)]
    depth = next(iter(results.values()))[0].depth
    measures: list[tuple[str, str, Unit, Callable[[int | None], float]]] = [
        (f"hit_at_{k}", f"Hit@{k}", Unit.SHARE, lambda rank, k=k: float(is_within(rank, k))) for k in _CUTOFFS if k <= depth
    ]
    measures.append(("mrr", "MRR", Unit.SCORE, compute_reciprocal_rank))
    found = []
    for name, label, unit, compute in measures:
        means = {policy: sum(map(compute, policy_ranks)) / len(best_ranks) for policy, policy_ranks in ranks.items()}
        best_policy = max(means, key=lambda policy: means[policy])
        found.append(
            Headroom(name, label, unit, best_policy, means[best_policy], sum(map(compute, best_ranks)) / len(best_ranks))
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Incidents:
    """Incidents in the rollouts of a policy. The first three are disjoint and count as nothing found."""

    num_missing: int
    num_errors: int
    num_without_search: int
    num_fallbacks: int
    num_failed_searches: int
    num_format_errors: int
    num_unjudged: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that the console and the report show in numbers.

    `task` is that of the subject; what the verdict rests on follows from it.
    `strata` holds the primary measure on parts of the questions, `recalls` the recall of lists that were put in order, both of
    differences that of the subject to the baseline alone.
    `subject` is the policy whose gain is in question, `split` what the questions are of (see `questions`). `turns` has those that
    search more than once. `first_search_ranks` holds the rank of the evidence in the first search, aligned with `question_ids`,
    None beyond `depth`. `deployment` is what to deploy, None where that cannot be said.
    """

    task: str
    split: str
    baseline: str
    subject: str
    policies: tuple[str, ...]
    top_k: int
    depth: int
    confidence: float
    num_resamples: int
    seed: int
    clusters: ClusterSizes
    rows: tuple[Row, ...]
    strata: tuple[Row, ...]
    recalls: tuple[Row, ...]
    turns: dict[str, tuple[TurnSuccess, ...]]
    efforts: dict[str, Effort]
    room: tuple[Headroom, ...]
    incidents: dict[str, Incidents]
    question_ids: tuple[str, ...]
    first_search_ranks: dict[str, tuple[int | None, ...]]
    prices: Prices = NO_PRICES
    deployment: Deployment | None = None

    @property
    def criterion(self) -> Criterion:
        """The criterion of the task."""
        return choose_criterion(self.task)

    @property
    def primary(self) -> Row:
        """The measure that the verdict rests on."""
        return self.row(self.criterion.primary)

    @property
    def num_questions(self) -> int:
        return len(self.question_ids)

    def row(self, name: str) -> Row:
        """The row of the measure `name`; KeyError when it is not reported."""
        return {row.name: row for row in self.rows}[name]

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON-serialisable data, the values of single questions left out."""
        data = asdict(self)
        del data["question_ids"], data["first_search_ranks"]
        return {"num_questions": self.num_questions, **data}


def compare(
    results: Mapping[str, Sequence[QuestionResult]],
    baseline: str,
    subject: str = "",
    *,
    split: str = TEST,
    trained: Collection[str] = (),
    retrievers: Collection[str] = (),
    latencies: Mapping[str, Latency] = MappingProxyType({}),
    start_ranks: Mapping[str, int | None] = MappingProxyType({}),
    prices: Prices = NO_PRICES,
    confidence: float = 0.95,
    num_resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare every policy with `baseline` and `subject` with every other policy.

    Args:
        results: of each policy, for the same questions in the same order (see `compute_results`).
        baseline: the policy that the others are measured against.
        subject: the policy whose gain is in question; the last one that is not the baseline when empty.
        split: what the questions are of, for the record.
        trained: the policies whose model was trained, beside the subject.
        retrievers: the baselines that search by the vectors of a trained model.
        latencies: of the baselines that were timed.
        start_ranks: those of the evidence before `rerank` was trained, of some questions by their ids.
        confidence, num_resamples, seed: as of `Resampling`.

    Raises:
        DataError: a policy is unknown, there is nothing to compare, or top_k and depth differ; there is no such task as the
            subject's.
    """
    subject = subject or next((name for name in reversed(list(results)) if name != baseline), "")
    _check_comparable(results, baseline, subject)
    task = find_task(results[subject])
    criterion = choose_criterion(task)
    aligned = {policy: leave_unasked(rows, criterion) for policy, rows in results.items()}
    some = aligned[baseline]
    question_ranks = find_question_ranks(aligned)
    resampling = Resampling(compute_clusters(some), confidence, num_resamples, seed)
    measures = build_measures(aligned, criterion.primary)
    rows, strata, recalls = _build_tables(aligned, baseline, subject, criterion, measures, resampling)
    candidates = choose_candidates(aligned, subject, retrievers)
    deployment = compare_candidates(aligned, candidates, {*trained, *retrievers, subject}, measures, criterion, resampling)
    if deployment:
        start = compare_with_start(aligned.get(Rerank.name, ()), start_ranks, measures, criterion, resampling)
        deployment = replace(deployment, latency=latencies.get(deployment.candidate), start=start)
    return Comparison(
        task=task,
        split=split,
        baseline=baseline,
        subject=subject,
        policies=tuple(aligned),
        top_k=some[0].top_k,
        depth=some[0].depth,
        confidence=confidence,
        num_resamples=num_resamples,
        seed=seed,
        clusters=compute_cluster_sizes(resampling.clusters),
        rows=rows,
        strata=strata,
        recalls=recalls,
        turns=compute_turns(aligned, question_ranks, resampling),
        efforts=compute_efforts(aligned, criterion, prices, resampling),
        room=compute_headroom(aligned, question_ranks),
        incidents={policy: _count_incidents(policy_results) for policy, policy_results in aligned.items()},
        question_ids=tuple(result.question_id for result in some),
        first_search_ranks={policy: tuple(r.searches.first_search_rank for r in rs) for policy, rs in aligned.items()},
        prices=prices,
        deployment=deployment,
    )


def _check_comparable(results: Mapping[str, Sequence[QuestionResult]], baseline: str, subject: str) -> None:
    if len(results) < 2:
        raise DataError(f"a comparison needs at least two policies, got {', '.join(results) or 'none'}.")
    for role, name in (("baseline", baseline), ("subject", subject)):
        if name not in results:
            raise DataError(f"{role} {name!r}: no such policy, expected one of {', '.join(results)}.")
    if baseline == subject:
        raise DataError(f"policy {baseline!r} is both baseline and subject, expected two policies.")
    settings = {(result.top_k, result.depth) for policy_results in results.values() for result in policy_results}
    if len(settings) != 1:
        raise DataError(f"results of several (top_k, depth): {sorted(settings)}, expected one for all policies.")


def _build_tables(
    aligned: Mapping[str, Sequence[QuestionResult]],
    baseline: str,
    subject: str,
    criterion: Criterion,
    measures: Sequence[Measure],
    resampling: Resampling,
) -> tuple[tuple[Row, ...], tuple[Row, ...], tuple[Row, ...]]:
    """The rows, strata and recalls of a `Comparison`: all policies against the baseline and the subject against all of them; then
    the subject alone, on parts of the questions and in lists that were put in order."""
    pairs = [(policy, baseline) for policy in aligned if policy != baseline]
    pairs += [(subject, policy) for policy in aligned if policy not in (subject, baseline)]
    [primary] = [measure for measure in measures if measure.name == criterion.primary]
    rows = build_rows(aligned, pairs, measures, resampling)
    corrected = correct_rows(rows, criterion, [subject], aligned[baseline][0].top_k, resampling)
    alone = [(subject, baseline)]
    strata = build_rows(aligned, alone, build_strata(aligned, primary), resampling)
    return corrected, strata, build_rows(aligned, alone, build_recalls(aligned), resampling)


def _count_incidents(results: Sequence[QuestionResult]) -> Incidents:
    return Incidents(
        num_missing=sum(result.error == NO_TRAJECTORY for result in results),
        num_errors=sum(result.error not in ("", NO_TRAJECTORY) for result in results),
        num_without_search=sum(not (r.error or r.searches.falls_back or r.searches.num_searches) for r in results),
        num_fallbacks=sum(result.searches.falls_back for result in results),
        num_failed_searches=sum(result.searches.num_failed_searches for result in results),
        num_format_errors=sum(result.num_format_errors for result in results),
        num_unjudged=sum(result.answer.is_unjudged for result in results),
    )
