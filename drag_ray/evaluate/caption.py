"""What qualifies the numbers of a comparison, in words."""

from collections.abc import Mapping, Sequence

from drag_ray.evaluate.clusters import FEW_CLUSTERS
from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.config import TEST
from drag_ray.evaluate.context import ReportContext
from drag_ray.evaluate.criterion import FIRST_HIT_RATE
from drag_ray.evaluate.differences import SIGN_FLIP
from drag_ray.evaluate.family import count_tests
from drag_ray.evaluate.policies import BASE_NAME
from drag_ray.evaluate.rows import Row
from drag_ray.evaluate.significance import POWER


def write_split(comparison: Comparison, context: ReportContext) -> str:
    """On which questions the numbers are, and what they are good for."""
    if comparison.split == TEST:
        said = "TEST questions: no model was trained on them or should be chosen by them."
        if not context.num_exposures:
            return said
        earlier = "an evaluation" if context.num_exposures == 1 else f"{context.num_exposures} evaluations"
        return f"{said} {earlier.capitalize()} of this run asked them before: what was chosen in view of that is flattered here."
    return (
        "VALIDATION questions, held out of the train split: good for choosing among models, and flattering to the one that was "
        "chosen by them. The test questions were not asked."
    )


def write_caption(comparison: Comparison, context: ReportContext) -> str:
    """One paragraph with everything that qualifies the numbers."""
    seeds = ", ".join(str(seed) for seed in context.seeds) or "none"
    is_trained = comparison.baseline == BASE_NAME
    return " ".join(
        [
            f"N = {comparison.num_questions} questions ({comparison.split}),",
            f"top_k = {comparison.top_k}, depth = {comparison.depth};",
            f"search operator {context.search_operator}, analyzer {context.analyzer};",
            f"sampling {context.sampling}, seeds {seeds}.",
            *_describe_weights(context),
            *([f"Pictures: {context.pictures}."] if context.pictures else []),
            *([context.judge] if context.judge else []),
            *_describe_clusters(comparison),
            *(["They are over questions alone: how much another training would differ they leave out."] if is_trained else []),
            _describe_tests(comparison),
        ]
    )


def _describe_weights(context: ReportContext) -> list[str]:
    """What a word of the question counts for each policy, where that was found."""
    found = context.question_weights
    if not found:
        return []
    weights = ", ".join(f"{policy} {weight.weight:g}" for policy, weight in found.items())
    num_questions = next(iter(found.values())).num_questions
    found_on = f"{num_questions} questions of the train part"
    return [f"A word of the question counts as found best on {found_on} for each policy: {weights}."]


def _describe_clusters(comparison: Comparison) -> list[str]:
    intervals = (
        f"{comparison.confidence:.0%} bootstrap intervals over {{}} "
        f"({comparison.num_resamples:,} resamples, seed {comparison.seed})."
    )
    sizes = comparison.clusters
    if sizes.largest == 1:
        return [f"No two questions share a document. {intervals.format('questions')}"]
    sentences = [
        f"Questions of one document, or of the documents of one group, are a cluster: {sizes.num_clusters} of them, the largest "
        f"of {sizes.largest} questions, together worth {sizes.num_effective:.0f} of equal size. "
        f"{intervals.format('clusters')}"
    ]
    if sizes.num_effective < FEW_CLUSTERS:
        sentences.append("So few clusters make intervals too narrow: take them for less than they say.")
    return sentences


def _describe_tests(comparison: Comparison) -> str:
    rows = [row for row in comparison.rows if any(d.adjusted_p_value is not None for d in row.differences)]
    if not rows:
        return f"Nothing is tested: no other policy has what {comparison.subject} is judged by, or none has it."
    references = [d.reference for d in rows[0].differences if d.adjusted_p_value is not None]
    tests = {difference.test for row in rows for difference in row.differences}
    kind = "sign flips of whole clusters" if tests == {SIGN_FLIP} else "exact McNemar for shares, sign flips for the rest"
    repeated = ", of which equal ones count once" if FIRST_HIT_RATE in comparison.criterion.tested else ""
    num_tests = count_tests(comparison.rows, comparison.top_k)
    return (
        f"p-values are of paired tests ({kind}), corrected together (Holm) over {num_tests} tests: {comparison.subject} against "
        f"{', '.join(references)} on {', '.join(row.label for row in rows)}{repeated}. Those marked raw "
        "are not corrected and decide nothing. Detectable is the true difference that the test would find with "
        f"{POWER:.0%} power, by the error of the intervals, at the level that the correction leaves it beside the others "
        f"({_describe_levels(rows)}; raw {1 - comparison.confidence:.2g}). The questions that would be needed are for a true "
        "difference as large as the one seen, if they are of other documents, with as many to each."
    )


def _describe_levels(rows: Sequence[Row]) -> str:
    levels = [d.level for row in rows for d in row.differences if d.adjusted_p_value is not None]
    low, high = (f"{level:.2g}" for level in (min(levels), max(levels)))
    return low if low == high else f"{low} to {high}"


def write_incidents(comparison: Comparison) -> list[str]:
    """One sentence for each policy with something to say about its rollouts."""
    sentences = []
    for policy, incidents in comparison.incidents.items():
        nothing_found = _list_counts(
            {
                "failed rollouts": incidents.num_errors,
                "questions without a rollout": incidents.num_missing,
                "rollouts without a search": incidents.num_without_search,
            }
        )
        on_the_way = _list_counts(
            {
                "rollouts that left it at the question": incidents.num_fallbacks,
                "searches that raised an error": incidents.num_failed_searches,
                "replies without a readable action": incidents.num_format_errors,
                "answers on which the judge gave no verdict": incidents.num_unjudged,
            }
        )
        parts = [f"{nothing_found} (counted as nothing found)" if nothing_found else "", on_the_way]
        if any(parts):
            sentences.append(f"{policy} had {'; '.join(part for part in parts if part)}.")
    return sentences


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{words}: {count}" for words, count in counts.items() if count)
