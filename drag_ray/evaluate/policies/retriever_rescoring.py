"""Rollouts as they would have been with another search for the same reply.

Where a rollout has one turn, its reply does not depend on what is found, so another search costs no token.

Who can search by vectors does not choose between them and a policy: beside `hybrid`, the question searched by words and by
vectors at once, as an endpoint does with that retrieval, stands what each policy adds to it, searched by both; and what baselines
add that write no sentence, as `templates` does, so that a policy is compared with them on equal terms.

With the query mode `expand` the weight of the question's words is found for each policy on questions that are not evaluated:
those that the format stage keeps for validation, of which no row is trained on, or some of the train split before anything is
trained.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from drag_ray.agent.environment import PageIndex, score_ranking
from drag_ray.agent.keywords import choose_words
from drag_ray.baselines.dense import Hybrid
from drag_ray.baselines.rerank import Rerank
from drag_ray.baselines.weights import WeightedSearcher
from drag_ray.cluster.tasks import map_parts
from drag_ray.evaluate.policies.policy import name_beside
from drag_ray.evaluate.results import compute_result
from drag_ray.search.dense import join_expanded
from drag_ray.search.searcher import Searcher
from drag_ray.types import ActionKind, Hits, Question, Ranking, Trajectory, Turn

_logger = logging.getLogger(__name__)

_NUM_AT_ONCE = 512
"""rollouts that a process searches for: it opens the index for them, and the model of its vectors"""

Search = Callable[[Sequence[Trajectory]], Sequence[Hits | None]]
"""From rollouts to what another search finds for each; None where there is nothing to search for."""


@dataclass(frozen=True)
class SearchAsAsked:
    """The searches of rollouts, made as a baseline searches.

    Attributes:
        baseline: prepared.
        depth: pages that are found at least; as many as a rollout keeps where those are more.
    """

    baseline: Hybrid | Rerank
    index_dir: Path
    depth: int = 0

    def __call__(self, rollouts: Sequence[Trajectory]) -> list[Hits | None]:
        """A `Search`. Raises what `open` does."""
        find = self.open(list(dict.fromkeys(map(_write_asked, rollouts))))
        return [find(rollout) for rollout in rollouts]

    def open(self, asked: Sequence[str] = ()) -> Callable[[Trajectory], Hits | None]:
        """Open the search for one rollout.

        Args:
            asked: texts that are going to be searched for, as far as that is known.

        Raises:
            SearchIndexError: vectors that it needs are damaged, or of another index or model.
            ConfigError: their model is gone.
        """
        index = self.baseline.open_searcher(Searcher(self.index_dir), asked)
        return lambda rollout: search_as_asked(rollout, index, max(self.depth, rollout.depth))


@dataclass(frozen=True)
class SearchTermsBeside:
    """Searches with the weighted terms of rollouts, fused with those by the vectors of their questions."""

    hybrid: Hybrid
    index_dir: Path

    def __call__(self, rollouts: Sequence[Trajectory]) -> list[Hits | None]:
        """A `Search`; None for a rollout that failed. Errors are those of `SearchAsAsked`."""
        searcher = Searcher(self.index_dir)
        index = self.hybrid.open_searcher(searcher, list(dict.fromkeys(rollout.question for rollout in rollouts)))
        words = WeightedSearcher(searcher)

        def find(rollout: Trajectory) -> Hits | None:
            turn = find_only_search(rollout)
            return turn and index.search_beside(partial(words.search, turn.query), rollout.question, rollout.depth)

        return list(map(find, rollouts))


def search_by_both(
    trajectories: Mapping[str, Sequence[Trajectory]],
    policies: Sequence[str],
    weighting: Sequence[str],
    hybrid: Hybrid,
    index_dir: Path,
) -> dict[str, list[Trajectory]]:
    """The trajectories after `rescore_with_retriever`, as `NAME+hybrid`, on all CPUs of the nodes that see the index.

    Args:
        policies: the names of those that a model writes for.
        weighting: the names of baselines that search for terms with weights. Vectors are of sentences, so what their terms find
            is fused with what the vectors find for the question.
        hybrid: prepared, with the vectors of the index.

    Raises:
        SearchIndexError: the vectors are damaged, or of another index or model.
        ConfigError: their model is gone.
    """

    def search_on_cluster(search: Search, rollouts: Sequence[Trajectory]) -> list[Hits | None]:
        return list(map_parts(search, rollouts, _NUM_AT_ONCE, index_dir))

    found: dict[str, list[Trajectory]] = {}
    for names, search in ((policies, SearchAsAsked(hybrid, index_dir)), (weighting, SearchTermsBeside(hybrid, index_dir))):
        found |= rescore_with_retriever(trajectories, names, Hybrid.name, partial(search_on_cluster, search))
    return found


def rescore_with_retriever(
    trajectories: Mapping[str, Sequence[Trajectory]], policies: Sequence[str], name: str, search: Search
) -> dict[str, list[Trajectory]]:
    """The replies of each policy with another search, as `POLICY+name`.

    A policy that has taken a second turn in any rollout is left out: that turn depends on what the first has found.
    """
    once = [policy for policy in policies if all(len(rollout.turns) <= 1 for rollout in trajectories[policy])]
    if several := [policy for policy in policies if policy not in once]:
        _logger.info(f"{', '.join(several)}: took several turns, so what they find with {name} is not known without asking anew")
    if not once:
        return {}
    found = iter(search([rollout for policy in once for rollout in trajectories[policy]]))
    return {
        name_beside(policy, name): [
            rollout if hits is None else replace_found(rollout, hits)
            for rollout, hits in zip(trajectories[policy], found, strict=False)  # as many as are his
        ]
        for policy in once
    }


def add_variants(
    trajectories: Mapping[str, list[Trajectory]], found: Mapping[str, list[Trajectory]]
) -> dict[str, list[Trajectory]]:
    """All of them, each `POLICY+name` after its policy, in their order; one that is there already is replaced."""
    placed: dict[str, list[Trajectory]] = {}
    for policy, rollouts in trajectories.items():
        placed[policy] = found.get(policy, rollouts)
        placed |= {name: again for name, again in found.items() if name.rpartition("+")[0] == policy}
    return placed


def search_as_asked(trajectory: Trajectory, index: PageIndex, depth: int) -> Hits | None:
    """The hits of an index for a rollout's only search, or, where it left its question as it is, for the question; None where it
    failed, and where nothing was searched for."""
    turn = find_only_search(trajectory)
    if turn is None and (trajectory.error or not trajectory.question_search.hits):
        return None
    if trajectory.question_search.mode == "expand":
        words = choose_words(trajectory.question, trajectory.question_search.words)
        query = turn.query if turn else ""
        return index.search_expanded(trajectory.question, query, trajectory.question_search.weight, depth, words)
    return index.search(turn.query if turn else trajectory.question, depth)


def _write_asked(trajectory: Trajectory) -> str:
    """The text that is embedded for a rollout."""
    turn = find_only_search(trajectory)
    if turn and trajectory.question_search.mode == "rewrite":
        return turn.query
    return join_expanded(trajectory.question, turn.query if turn else "")


def find_only_search(trajectory: Trajectory) -> Turn | None:
    """The turn of a rollout that has searched once and done nothing else; None of any other."""
    if len(trajectory.turns) != 1 or trajectory.error:
        return None
    [turn] = trajectory.turns
    return turn if turn.action is ActionKind.SEARCH and not turn.error else None


def replace_found(trajectory: Trajectory, hits: Hits) -> Trajectory:
    """The rollout with other pages for its only search, or for its question where it has none."""
    turn = find_only_search(trajectory)
    earlier = turn.ranking if turn else Ranking()
    found = replace(earlier, hits=tuple(hits), is_partial=hits.is_partial)
    ranking = score_ranking(found, trajectory.evidence, trajectory.top_k)
    if turn:
        return replace(trajectory, turns=(replace(turn, ranking=ranking),))
    search = replace(trajectory.question_search, hits=ranking.hits, rank=ranking.evidence_rank)
    return replace(trajectory, question_search=search)


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
