"""Small evaluations shared by tests."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from factories import build_answer, build_hits, build_question, build_search, build_trajectory, change

from drag_ray.evaluate.comparison import Comparison, compare
from drag_ray.evaluate.report.context import ReportContext
from drag_ray.evaluate.results import compute_results
from drag_ray.types import Evidence, Question, Trajectory, Turn

CONTEXT = ReportContext(search_operator="or", analyzer="en_stem", sampling="greedy", seeds=(0,))

Ranks = Mapping[str, Sequence[int | None]]


def build_questions(num_questions: int, num_documents: int | None = None) -> list[Question]:
    """Questions q0, q1, ...: each on a document of its own, or dealt out over `num_documents`."""
    documents = [number % num_documents if num_documents else number for number in range(num_questions)]
    return [
        build_question(id=f"q{number}", evidence=(Evidence(f"manual-{document}.pdf", 7),))
        for number, document in enumerate(documents)
    ]


def build_search_for(question: Question, query: str, rank: int | None) -> Turn:
    """A search with the question's evidence at `rank`, or without it."""
    return build_search(query, evidence_rank=rank, hits=build_hits(rank, evidence=question.evidence[0]))


def build_rollouts(ranks: Ranks, num_documents: int | None = None) -> dict[str, list[Trajectory]]:
    """One rollout a question: a first search with the evidence at the given rank, then an answer."""
    questions = build_questions(len(next(iter(ranks.values()))), num_documents)
    return {
        policy: [
            build_trajectory(build_search_for(question, f"{policy} query {number}", rank), build_answer(), question=question)
            for number, (question, rank) in enumerate(zip(questions, policy_ranks, strict=True))
        ]
        for policy, policy_ranks in ranks.items()
    }


def build_answering(answers: Mapping[str, Sequence[str]], ranks: Sequence[int | None] = (), task: str = "answer") -> Comparison:
    """Policies that find the same, at `ranks` or else first, and answer so; the right answer is 340 rpm."""
    num_questions = len(next(iter(answers.values())))
    questions = build_questions(num_questions)
    rollouts = {
        policy: [change(rollout, final_answer=answer, task=task) for rollout, answer in zip(policy_rollouts, given, strict=True)]
        for (policy, policy_rollouts), given in zip(
            build_rollouts(dict.fromkeys(answers, ranks or [1] * num_questions)).items(), answers.values(), strict=True
        )
    }
    return compare(compute_results(rollouts, questions), next(iter(answers)), num_resamples=500)


def build_comparison(
    ranks: Ranks, baseline: str = "base", num_resamples: int = 500, num_documents: int | None = None, **options: Any
) -> Comparison:
    questions = build_questions(len(next(iter(ranks.values()))), num_documents)
    results = compute_results(build_rollouts(ranks, num_documents), questions)
    return compare(results, baseline, num_resamples=num_resamples, **options)


def build_searching(
    rival: str = "question", baseline: str = "base", subject: str = "", knows_question: bool = True
) -> Comparison:
    """Three questions on which `base` searches twice, showing 3 and then 5 pages, and `rival` once.

    The first is found by both at once. The second is found by the second search of `base`, which shows two new pages, and by the
    fifth page of `rival`. The third is found by the ninth page of each. The question as it stands finds what `rival` finds.
    """
    questions = build_questions(3)
    rollouts: dict[str, list[Trajectory]] = {rival: [], "base": []}
    for question, (first, second, rank) in zip(questions, [(1, 1, 1), (None, 2, 5), (9, 9, 9)], strict=True):
        again = build_hits(second, evidence=question.evidence[0])
        # Of the second search's top 3 the first was shown before, and the evidence if it was found before.
        renamed = tuple(
            hit if hit.rank == 1 or hit.file != "other.pdf" else replace(hit, page_number=50 + hit.rank) for hit in again
        )
        searches = [build_search_for(question, "one", first), build_search("two", evidence_rank=second, hits=renamed)]
        alone = change(build_search_for(question, "question", rank), completion_token_ids=())
        asked: dict[str, Any] = {"question_hits": alone.ranking.hits, "question_rank": rank} if knows_question else {}
        rollouts["base"].append(build_trajectory(*searches, question=question, **asked))
        rollouts[rival].append(build_trajectory(alone, question=question, **asked))
    return compare(compute_results(rollouts, questions), baseline, subject, num_resamples=200)
