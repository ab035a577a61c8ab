"""The weight of a question's word beside an added one, found for each policy on questions that are not evaluated.

With the query mode `expand` and one turn a reply does not depend on that weight, so every one of the weights to choose among
costs a search and no token.  The questions are those that the format stage keeps for validation, of which no row is trained
on, or some of the train split before anything is trained (see `questions`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from drag_ray.agent.environment import PageIndex
from drag_ray.agent.keywords import choose_words
from drag_ray.evaluate.policies.retriever_rescoring import find_only_search, replace_found
from drag_ray.evaluate.results import compute_result
from drag_ray.types import Question, Trajectory, Turn


@dataclass(frozen=True)
class FoundWeight:
    """The weight of a policy, and what each weight reached.

    Attributes:
        weight: the one with the highest mean reciprocal rank; of equal ones the highest, which trusts the question most.
        num_questions: that it was found on.
        mrr: by weight.
    """

    weight: float
    num_questions: int
    mrr: Mapping[float, float]


def find_question_weight(trajectories: Sequence[Trajectory], weights: Sequence[float], index: PageIndex) -> FoundWeight | None:
    """The best of some weights for a policy, by its rollouts of the validation questions.

    None where it does not matter: no rollout of the policy expands its question.
    """
    if not any(_find_expansion(trajectory) for trajectory in trajectories):
        return None
    mrr = {weight: _compute_mrr([weigh_question(rollout, weight, index) for rollout in trajectories]) for weight in weights}
    best = max(weights, key=lambda weight: (mrr[weight], weight))
    return FoundWeight(best, len(trajectories), mrr)


def apply_found_weights(
    trajectories: Mapping[str, Sequence[Trajectory]], validation: Sequence[Question], weights: Sequence[float], index: PageIndex
) -> tuple[dict[str, list[Trajectory]], dict[str, FoundWeight]]:
    """The rollouts of the questions that are evaluated, with the weight that was found for their policy, and these weights.

    Args:
        trajectories: of each policy, on both kinds of questions.
        validation: questions to find the weights on; nothing is changed where there are none.
        weights: to choose among.
        index: that the rollouts searched.
    """
    ids = {question.id for question in validation}
    kept: dict[str, list[Trajectory]] = {}
    found: dict[str, FoundWeight] = {}
    for policy, rollouts in trajectories.items():
        kept[policy] = [rollout for rollout in rollouts if rollout.question_id not in ids]
        best = find_question_weight([rollout for rollout in rollouts if rollout.question_id in ids], weights, index)
        if best:
            found[policy] = best
            kept[policy] = [weigh_question(rollout, best.weight, index) for rollout in kept[policy]]
    return kept, found


def weigh_question(trajectory: Trajectory, weight: float, index: PageIndex) -> Trajectory:
    """The rollout as it would have been with another weight of the question: the reply is the same, the search is made anew.

    A rollout that does not expand its question, or has not searched, stays as it is.
    """
    turn = _find_expansion(trajectory)
    if not turn or trajectory.question_search.weight == weight:
        return trajectory
    words = choose_words(trajectory.question, trajectory.question_search.words)
    found = index.search_expanded(trajectory.question, turn.query, weight, trajectory.depth, words)
    again = replace_found(trajectory, found)
    return replace(again, question_search=replace(again.question_search, weight=weight))


def _find_expansion(trajectory: Trajectory) -> Turn | None:
    """The turn that searched for the question and more."""
    return find_only_search(trajectory) if trajectory.question_search.mode == "expand" else None


def _compute_mrr(trajectories: Sequence[Trajectory]) -> float:
    return sum(compute_result(trajectory).reciprocal_rank for trajectory in trajectories) / len(trajectories)
