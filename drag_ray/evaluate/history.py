"""The history of rounds of training on the validation questions: a table, and which round is best.

Rounds need not collect from the same questions, so what one holds out for validation another may have trained on, and the
averages of two sets of questions say nothing of two policies. They are compared on what all held out and none trained on.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from drag_ray.baselines.question import RawQuestion
from drag_ray.errors import DataError
from drag_ray.evaluate.measure import ANSWER_ACCURACY, Measure, choose_criterion, find_task
from drag_ray.evaluate.measures import build_measures
from drag_ray.evaluate.policies.policy import BASE_NAME
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.finetune.training_folder import TUNED_NAME

_FOUND = {"hit1": "hit_at_1", "hit3": "hit_at_3", "hit10": "hit_at_10", "mrr": "mrr"}
_ANSWERED = {"accuracy": ANSWER_ACCURACY, "anls": "anls"}
_LABELS = {"mrr": "MRR", "anls": "ANLS*"}
"""Of the measures that rounds are chosen by."""


@dataclass(frozen=True)
class RoundEvaluation:
    """The questions that a round was validated and trained on, with its results.

    Attributes:
        number: 1-based.
        method: how the round trained.
        results: of its policy, the base model and the question itself, by name, for each of its validation questions.
        trained: ids of the questions whose rows it trained on.
    """

    number: int
    method: str
    results: Mapping[str, Sequence[QuestionResult]]
    trained: Collection[str]


@dataclass(frozen=True, slots=True)
class RoundResult:
    """A round's policy on the validation questions, with the base model and the question itself beside it.

    Each of the three holds hit1, hit3, hit10 and mrr of the first search as fractions, None where the depth does not reach; where
    the task is judged by answers, accuracy and anls before them, None for the question, which does not answer. `ranked_by` is the
    one of them by which the best round is chosen.
    """

    number: int
    method: str
    num_questions: int
    tuned: dict[str, float | None]
    base: dict[str, float | None]
    question: dict[str, float | None]
    ranked_by: str = "mrr"

    @property
    def chosen_by(self) -> str:
        """The label of that measure."""
        return _LABELS[self.ranked_by]


def compare_rounds(evaluations: Sequence[RoundEvaluation]) -> list[RoundResult]:
    """The results of rounds on the questions that all of them held out and none of them trained on. Raises DataError: there is no
    such question."""
    held_out = [{result.question_id for result in evaluation.results[TUNED_NAME]} for evaluation in evaluations]
    common = set[str].intersection(*held_out).difference(*(evaluation.trained for evaluation in evaluations))
    if not common:
        raise DataError(
            f"rounds 1 to {len(evaluations)}: no question was held out for validation by all of them and trained on by none, so "
            "the best round cannot be chosen. Let all rounds collect from the same questions (collect.limit) with the same "
            "validation questions (format.validation_fraction, format.seed)."
        )
    return [_describe(evaluation, common) for evaluation in evaluations]


def _describe(evaluation: RoundEvaluation, common: Collection[str]) -> RoundResult:
    kept = {
        policy: [result for result in results if result.question_id in common] for policy, results in evaluation.results.items()
    }
    criterion = choose_criterion(find_task(kept[TUNED_NAME]))
    measures = {measure.name: measure for measure in build_measures(kept, criterion.primary)}
    names = (_ANSWERED if criterion.primary == ANSWER_ACCURACY else {}) | _FOUND

    def read(policy: str) -> dict[str, float | None]:
        known = {name for name in measures if policy != RawQuestion.name or not measures[name].needs_model}
        return {key: _average(measures[name], kept[policy]) if name in known else None for key, name in names.items()}

    read_all = (read(policy) for policy in (TUNED_NAME, BASE_NAME, RawQuestion.name))
    return RoundResult(evaluation.number, evaluation.method, len(common), *read_all, ranked_by=criterion.ranked_by)


def _average(measure: Measure, results: Sequence[QuestionResult]) -> float | None:
    values = [value for result in results if (value := measure.compute(result)) is not None]
    return sum(values) / len(values) if values else None


def choose_best(history: Sequence[RoundResult]) -> RoundResult:
    """The round whose policy has the highest MRR, or ANLS* of its answers, of equals the first, which cost less."""
    return max(history, key=lambda result: (result.tuned[result.ranked_by] or 0.0, -result.number))


def format_history(history: Sequence[RoundResult]) -> str:
    """The history as a table to print, with the base model and the question first."""
    head = f"{'':<12}{'method':<8}" + "".join(f"{name:>9}" for name in history[0].tuned)
    lines = [f"{history[0].num_questions} validation questions", head]
    policies = [("question", "", history[0].question), ("base", "", history[0].base)]
    policies += [(f"round {result.number}", result.method, result.tuned) for result in history]
    for label, method, metrics in policies:
        values = ("-" if metrics[name] is None else f"{metrics[name]:.3f}" for name in history[0].tuned)
        lines.append(f"{label:<12}{method:<8}" + "".join(f"{value:>9}" for value in values))
    return "\n".join(lines)
