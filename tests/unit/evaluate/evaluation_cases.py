"""Small evaluations shared by the tests of this folder."""

from collections.abc import Mapping, Sequence

from factories import build_answer, build_question, build_search, build_trajectory

from drag_ray.evaluate.comparison import Comparison, compare
from drag_ray.evaluate.context import ReportContext
from drag_ray.evaluate.results import compute_results
from drag_ray.types import Trajectory

CONTEXT = ReportContext(search_operator="or", analyzer="en_stem", sampling="greedy", seeds=(0,))

Ranks = Mapping[str, Sequence[int | None]]


def build_rollouts(ranks: Ranks) -> dict[str, list[Trajectory]]:
    """One rollout a question: a first search with the evidence at the given rank, then an answer."""
    return {
        policy: [
            build_trajectory(
                build_search(f"{policy} query {number}", evidence_rank=rank),
                build_answer(),
                question=build_question(id=f"q{number}"),
            )
            for number, rank in enumerate(policy_ranks)
        ]
        for policy, policy_ranks in ranks.items()
    }


def build_comparison(ranks: Ranks, baseline: str = "base", num_resamples: int = 500) -> Comparison:
    num_questions = len(next(iter(ranks.values())))
    questions = [build_question(id=f"q{number}") for number in range(num_questions)]
    return compare(compute_results(build_rollouts(ranks), questions), baseline, num_resamples=num_resamples)
