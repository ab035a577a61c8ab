"""The results of each policy on each question, computed from its trajectories."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from drag_ray.agent.answers import compute_anls, compute_citation_score
from drag_ray.agent.scores import find_best_rank, list_ranked_turns, list_ranks
from drag_ray.agent.tasks import ORDERING
from drag_ray.errors import DataError
from drag_ray.evaluate.question_result import (
    NO_TRAJECTORY,
    AnswerScore,
    QuestionResult,
    RolloutUsage,
    SearchScore,
    ToolUse,
    classify_hops,
    is_within,
)
from drag_ray.recipes.v_retrver.task import describe_modalities
from drag_ray.search.page_table import FileNames
from drag_ray.types import ActionKind, Evidence, Hit, Question, Trajectory, Turn


def compute_result(trajectory: Trajectory) -> QuestionResult:
    """The values of one trajectory. Raises DataError: the trajectory has no evidence page, so that nothing can be found, and no
    answer that it is to give."""
    if not (trajectory.evidence or trajectory.answers):
        raise DataError(
            f"question {trajectory.question_id!r}: its trajectory has no evidence page and no known answer, expected one of "
            "them. Evaluate questions with known pages or, in the task answer, with known answers."
        )
    return QuestionResult(
        **_describe_question(trajectory.question_id, trajectory),
        top_k=trajectory.top_k,
        depth=trajectory.depth,
        error=trajectory.error,
        num_format_errors=sum(turn.action is ActionKind.INVALID for turn in trajectory.turns),
        knows_question=bool(trajectory.question_search.hits),
        question_rank=trajectory.question_search.rank,
        modalities=describe_modalities(trajectory) if trajectory.task in ORDERING else "",
        task=trajectory.task,
        usage=_sum_usage(trajectory),
        searches=_score_searches(trajectory),
        answer=_score_answer(trajectory),
    )


def _describe_question(question_id: str, asked: Question | Trajectory) -> dict[str, Any]:
    return {
        "question_id": question_id,
        "file": asked.evidence[0].file if asked.evidence else "",
        "group": asked.group,
        "category": asked.category,
        "hops": classify_hops(asked.evidence),
        "num_evidence": len(set(asked.evidence)),
    }


def _sum_usage(trajectory: Trajectory) -> RolloutUsage:
    return RolloutUsage(
        num_iterations=len(trajectory.turns),
        num_prompt_tokens=sum(turn.reply.num_prompt_tokens for turn in trajectory.turns),
        num_completion_tokens=sum(turn.reply.num_completion_tokens for turn in trajectory.turns),
        duration_s=trajectory.duration_s,
        tool_uses=_sum_tools(trajectory.turns),
    )


def _score_searches(trajectory: Trajectory) -> SearchScore:
    turns = () if trajectory.error else trajectory.turns  # of a rollout that failed no ranking counts
    searches, ranks = list_ranked_turns(trajectory) if turns else [], list_ranks(trajectory)
    falls_back = bool(ranks) and not searches
    rankings = [turn.ranking.hits if turn in searches else () for turn in turns]
    first_ranking = searches[0].ranking.hits if searches else ()
    solved = (
        n for n, turn in enumerate(turns, 1) if turn in searches and is_within(turn.ranking.evidence_rank, trajectory.top_k)
    )
    success = next(solved, None)
    if falls_back:
        rankings, first_ranking = [trajectory.question_search.hits], trajectory.question_search.hits
        success = max(1, len(turns)) if is_within(trajectory.question_search.rank, trajectory.top_k) else None
    sequence = build_page_sequence(rankings, trajectory.top_k)
    made = [turn for turn in trajectory.turns if turn.action is ActionKind.SEARCH]
    queries = [" ".join(turn.query.lower().split()) for turn in made]
    return SearchScore(
        num_searches=len(made),
        num_failed_searches=sum(bool(turn.error) for turn in made),
        num_partial_searches=sum(turn.ranking.is_partial for turn in made),
        num_empty_queries=queries.count(""),
        num_repeated_queries=len(queries) - len(set(queries)),
        falls_back=falls_back,
        iterations_to_success=success,
        first_search_rank=ranks[0] if ranks else None,
        evidence_ranks=tuple(hit.rank for hit in first_ranking if hit.page in trajectory.evidence),
        best_rank=find_best_rank(ranks),
        sequence_rank=sequence.find_rank(trajectory.evidence, trajectory.depth),
        shown_by_turn=sequence.shown_by_turn,
    )


def _sum_tools(turns: Sequence[Turn]) -> tuple[ToolUse, ...]:
    """The calls by tool, in the order of their names."""
    called = [turn for turn in turns if turn.action is ActionKind.TOOL]
    by_tool = {name: [turn for turn in called if turn.call.tool == name] for name in sorted({turn.call.tool for turn in called})}
    return tuple(
        ToolUse(name, len(calls), sum(bool(turn.call.error) for turn in calls), sum(turn.call.duration_s for turn in calls))
        for name, calls in by_tool.items()
    )


def _score_answer(trajectory: Trajectory) -> AnswerScore:
    if trajectory.error:
        return AnswerScore(0.0 if trajectory.answers else None)
    anls = compute_anls(trajectory.final_answer.text, trajectory.answers) if trajectory.answers else None
    evidence, names = trajectory.evidence, FileNames(page.file for page in trajectory.evidence)
    cited = [replace(page, file=names.find(page.file) or page.file) for page in trajectory.final_answer.citations]
    documents = compute_citation_score([page.file for page in cited], [page.file for page in evidence])
    return AnswerScore(anls, page_citation=compute_citation_score(cited, evidence), document_citation=documents)


def compute_results(
    trajectories: Mapping[str, Sequence[Trajectory]], questions: Sequence[Question]
) -> dict[str, list[QuestionResult]]:
    """The values of each policy on each question, in the order of `questions`.

    A question without a trajectory is not left out: it gets a result with the error `NO_TRAJECTORY`.

    Raises:
        DataError: there are no trajectories or no questions, a question has two trajectories, a trajectory belongs to no
            question or saw other evidence, or top_k, depth or search index differ between trajectories.
    """
    top_k, depth = _check_comparable(trajectories)
    if not questions:
        raise DataError("no questions to evaluate, expected at least one. Choose another split.")
    results = {}
    for policy, rollouts in trajectories.items():
        by_question = _index_by_question(policy, rollouts, questions)
        results[policy] = [
            compute_result(by_question[question.id]) if question.id in by_question else _fail(question, top_k, depth)
            for question in questions
        ]
    return _share_modalities(results)


def _share_modalities(results: dict[str, list[QuestionResult]]) -> dict[str, list[QuestionResult]]:
    """The same, with what some policy was shown of a question for those too whose rollout failed before, or is missing."""
    known = {result.question_id: result.modalities for rows in results.values() for result in rows if result.modalities}
    if not known:
        return results
    return {name: [replace(row, modalities=known.get(row.question_id, "")) for row in rows] for name, rows in results.items()}


def find_question_ranks(results: Mapping[str, Sequence[QuestionResult]]) -> list[int | None] | None:
    """The rank of the evidence where each question is searched as it stands, None beyond `depth`; nothing if no policy knows."""
    by_question = list(zip(*results.values(), strict=True))
    if not any(result.knows_question for rows in by_question for result in rows):
        return None
    # It is the same for all policies but those whose rollout failed before they knew.
    return [next((result.question_rank for result in rows if result.knows_question), None) for rows in by_question]


def _check_comparable(trajectories: Mapping[str, Sequence[Trajectory]]) -> tuple[int, int]:
    for policy, rollouts in trajectories.items():
        if not rollouts:
            raise DataError(f"policy {policy!r}: no trajectories, expected one a question. Run it again.")
    settings = {
        (rollout.top_k, rollout.depth, rollout.provenance.index_fingerprint): policy
        for policy, rollouts in trajectories.items()
        for rollout in rollouts
    }
    if len(settings) != 1:
        found = "; ".join(f"{policy}: top_k={s[0]}, depth={s[1]}, index={s[2]}" for s, policy in settings.items())
        raise DataError(
            f"the policies cannot be compared, expected one top_k, depth and search index for all, got {found or 'none'}. "
            "Run them again on one index with the same options."
        )
    top_k, depth, _ = next(iter(settings))
    return top_k, depth


def _index_by_question(policy: str, rollouts: Sequence[Trajectory], questions: Sequence[Question]) -> dict[str, Trajectory]:
    evidence = {question.id: set(question.evidence) for question in questions}
    by_question: dict[str, Trajectory] = {}
    for rollout in rollouts:
        place = f"policy {policy!r}, trajectory {rollout.id!r}"
        if rollout.question_id not in evidence:
            raise DataError(f"{place}: question {rollout.question_id!r} is not among the {len(questions)} evaluated questions.")
        if set(rollout.evidence) != evidence[rollout.question_id]:
            raise DataError(
                f"{place}: its evidence is not that of question {rollout.question_id!r}. The question set has changed "
                "since; run the policy again."
            )
        if rollout.question_id in by_question:
            raise DataError(f"{place}: a second trajectory of question {rollout.question_id!r}, expected one a question.")
        by_question[rollout.question_id] = rollout
    return by_question


def _fail(question: Question, top_k: int, depth: int) -> QuestionResult:
    return QuestionResult(
        **_describe_question(question.id, question),
        top_k=top_k,
        depth=depth,
        error=NO_TRAJECTORY,
        answer=AnswerScore(0.0 if question.answers else None),
    )


@dataclass(frozen=True, slots=True)
class PageSequence:
    """Distinct pages: those that a rollout shows, search by search, then those further down its first ranking.

    So a rollout of one search has its ranking for a sequence. `shown_by_turn` counts the pages shown up to each turn.
    """

    pages: tuple[Evidence, ...]
    shown_by_turn: tuple[int, ...]

    def find_rank(self, evidence: Collection[Evidence], depth: int) -> int | None:
        """The 1-based place of the first page of `evidence`, None beyond `depth`."""
        return next((place for place, page in enumerate(self.pages[:depth], start=1) if page in evidence), None)


def build_page_sequence(rankings: Sequence[Sequence[Hit]], top_k: int) -> PageSequence:
    """The sequence of a rollout with these rankings, one a turn, empty where the turn found nothing or did not search.

    Each shows its first `top_k` pages.
    """
    pages: dict[Evidence, None] = {}
    shown_by_turn = []
    for hits in rankings:
        pages |= _list_pages(hits[:top_k])
        shown_by_turn.append(len(pages))
    first = next((hits for hits in rankings if hits), ())
    return PageSequence(tuple(pages | _list_pages(first)), tuple(shown_by_turn))


def _list_pages(hits: Sequence[Hit]) -> dict[Evidence, None]:
    return dict.fromkeys(hit.page for hit in hits)
