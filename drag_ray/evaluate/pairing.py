"""The command `drag-ray compare`: policies of two finished evaluations, compared on the questions that both have asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drag_ray.errors import DataError
from drag_ray.evaluate.comparison import Comparison, compare
from drag_ray.evaluate.effort import Prices
from drag_ray.evaluate.evaluation_folder import Outcome, read_outcome, write_comparison
from drag_ray.evaluate.judged_results import apply_judgements
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.report.context import ReportContext, join_contexts
from drag_ray.evaluate.results import compute_results
from drag_ray.evaluate.scoring import CONFIDENCE
from drag_ray.rollout.judgements import Judgements
from drag_ray.transcripts.thumbnails import open_thumbnails
from drag_ray.types import Question, Trajectory

_INDEX = "search index"


@dataclass(frozen=True, slots=True)
class Side:
    """Policies of one evaluation, in its folder or that of its run; the subject of its own comparison when none is named."""

    path: Path
    policies: tuple[str, ...] = ()


def compare_evaluations(
    first: Side, second: Side, prices: Prices, num_resamples: int = 10_000, report_dir: Path | None = None
) -> tuple[Comparison, ReportContext]:
    """The policies of `second` against those of `first`: its first policy is the subject, the first of `first` the baseline.

    Policies are called by the letter of their evaluation and their name there, as `A:tuned`.

    Args:
        prices: of tokens; those that were recorded of a policy where they are not known, and of one with its own in any case.
        report_dir: where the whole report is written, if it is.

    Raises:
        ArtifactError: an evaluation has not finished, or the report cannot be written.
        DamageError: one is not as it was written.
        DataError: they have no question in common or other evidence for one, other top_k or depth, or no such policy.
    """
    sides = {"A": first, "B": second}
    outcomes = {label: read_outcome(side.path) for label, side in sides.items()}
    questions = _find_common(outcomes)
    chosen = {label: _choose_policies(label, outcomes[label], side.policies) for label, side in sides.items()}
    trajectories, results = _score(outcomes, chosen, questions)
    baseline, subject = (next(iter(some)) for some in chosen.values())
    splits = dict.fromkeys(outcome.comparison["split"] for outcome in outcomes.values())
    comparison = compare(
        results,
        baseline,
        subject,
        split=" and ".join(splits),
        prices=Prices(prices.prompt, prices.completion, _find_own_prices(prices, outcomes, chosen)),
        confidence=CONFIDENCE,
        num_resamples=num_resamples,
    )
    contexts = {label: outcome.context for label, outcome in outcomes.items()}
    context = join_contexts(contexts, "Two evaluations", _summarise(outcomes, len(questions)))
    if report_dir:
        thumbnails = open_thumbnails(*(outcome.path for outcome in outcomes.values()))
        write_comparison(report_dir, comparison, results, trajectories, context, thumbnails)
    return comparison, context


def _score(
    outcomes: Mapping[str, Outcome], chosen: Mapping[str, Mapping[str, Sequence[Trajectory]]], questions: Sequence[Question]
) -> tuple[dict[str, list[Trajectory]], dict[str, list[QuestionResult]]]:
    """The rollouts of each chosen policy for these questions, and what they come to."""
    ids = {question.id for question in questions}
    trajectories: dict[str, list[Trajectory]] = {}
    results: dict[str, list[QuestionResult]] = {}
    judgements = _read_shared_judgements(outcomes)
    for label, some in chosen.items():
        kept = {name: [rollout for rollout in rollouts if rollout.question_id in ids] for name, rollouts in some.items()}
        trajectories |= kept
        # Each evaluation by itself, since they may have searched different indexes.
        scored = compute_results(kept, questions)
        results |= apply_judgements(scored, kept, judgements[label]) if judgements else scored
    return trajectories, results


def _find_own_prices(
    prices: Prices, outcomes: Mapping[str, Outcome], chosen: Mapping[str, Mapping[str, Sequence[Trajectory]]]
) -> dict[str, Prices]:
    """The price of each policy, whose evaluations may have reckoned at different ones."""
    filled = {label: prices.fill(outcome.prices) for label, outcome in outcomes.items()}
    found = {name: filled[label].find(name.removeprefix(f"{label}:")) for label, some in chosen.items() for name in some}
    return {name: Prices(own.prompt, own.completion) for name, own in found.items() if own.are_known}


def _read_shared_judgements(outcomes: Mapping[str, Outcome]) -> dict[str, Judgements]:
    """The judgements of the answers of each; nothing unless one judge has said it, since two measure different things."""
    found = {label: judgements for label, outcome in outcomes.items() if (judgements := outcome.read_judgements())}
    judges = {judge for judgements in found.values() for judge in judgements.list_judges()}
    return found if len(found) == len(outcomes) and len(judges) == 1 else {}


def _find_common(outcomes: Mapping[str, Outcome]) -> list[Question]:
    first, second = outcomes.values()
    ids = {question.id for question in second.questions}
    common = [question for question in first.questions if question.id in ids]
    if not common:
        raise DataError(
            f"{first.path} and {second.path} have no question in common (such as {first.questions[0].id!r} and "
            f"{second.questions[0].id!r}), expected evaluations of the same questions."
        )
    return common


def _choose_policies(label: str, outcome: Outcome, names: Sequence[str]) -> dict[str, Sequence[Trajectory]]:
    for name in names:
        if name not in outcome.trajectories:
            raise DataError(f"{outcome.path}: no policy {name!r}, expected some of {', '.join(outcome.trajectories)}.")
    return {f"{label}:{name}": outcome.trajectories[name] for name in names or (outcome.subject,)}


def _summarise(outcomes: Mapping[str, Outcome], num_questions: int) -> str:
    paths = [f"{label} is {outcome.path}." for label, outcome in outcomes.items()]
    sizes = " and ".join(f"{len(outcome.questions):,} of {label}" for label, outcome in outcomes.items())
    shared = f"Compared on the {num_questions:,} common questions, of {sizes}."
    indexes = {outcome.context.fingerprints.get(_INDEX) for outcome in outcomes.values()}
    other = "They searched different indexes, so a difference may be that of the search." if len(indexes) > 1 else ""
    return " ".join([*paths, shared, *([other] if other else [])])
