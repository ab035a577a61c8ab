"""Numbers, p-values, intervals and what they come to as text, the same wherever they are read."""

import math
from collections.abc import Sequence
from dataclasses import astuple

from drag_ray.baselines.rerank import Rerank
from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.config import TEST
from drag_ray.evaluate.deployment import START, Deployment
from drag_ray.evaluate.effort import Ratio, TurnSuccess
from drag_ray.evaluate.measure import Criterion, Unit
from drag_ray.evaluate.policies.policy import BASE_NAME
from drag_ray.evaluate.report.context import ReportContext
from drag_ray.evaluate.statistics.differences import SIGN_FLIP, Difference, Finding
from drag_ray.evaluate.statistics.intervals import FEW_CLUSTERS, POWER
from drag_ray.evaluate.statistics.pass_at_k import PassRate
from drag_ray.evaluate.statistics.rows import Metric, Row, count_tests

NO_VALUE = "-"
_INCIDENTS = (
    "questions without a rollout (counted as nothing found)",
    "failed rollouts (counted as nothing found)",
    "rollouts without a search (counted as nothing found)",
    "rollouts that added nothing to the question",
    "searches that raised an error",
    "replies without a readable action",
    "answers on which the judge gave no verdict",
)
"""In the order of the fields of `Incidents`."""


def write_label(row: Row) -> str:
    """The name of a measure as it heads a line of a table."""
    return f"{row.label}{' %' if row.unit.is_percent else ''}{'' if row.higher_is_better else ' (less is better)'}"


def write_number(value: float | None, unit: Unit, *, signed: bool = False) -> str:
    """A mean: shares in percent, scores with three decimals, counts with two; `-` for no value."""
    if value is None:
        return NO_VALUE
    scale, digits = {Unit.SHARE: (100, 1), Unit.RATE: (100, 1), Unit.SCORE: (1, 3), Unit.COUNT: (1, 2)}[unit]
    # Adding 0 turns a rounded -0.0 into 0.0.
    number = round(scale * value, digits) + 0.0
    return f"{number:{'+' if signed else ''}.{digits}f}"


def write_interval(record: Metric | Difference | TurnSuccess | PassRate, unit: Unit, *, signed: bool = False) -> str:
    """The interval as `low..high`, empty when there is none."""
    if record.low is None or record.high is None:
        return ""
    return f"{write_number(record.low, unit, signed=signed)}..{write_number(record.high, unit, signed=signed)}"


def write_cell(value: float | None, record: Metric | Difference | TurnSuccess | PassRate, unit: Unit, *more: str) -> str:
    """A value with its interval in brackets, both signed where they are of a difference, and what else there is to say."""
    signed = isinstance(record, Difference | TurnSuccess)
    interval = write_interval(record, unit, signed=signed)
    return " ".join(part for part in (write_number(value, unit, signed=signed), interval and f"[{interval}]", *more) if part)


def write_metric(metric: Metric, row: Row, num_questions: int) -> str:
    """A value of a policy, with the number of questions that it is over where those are fewer."""
    return write_cell(metric.value, metric, row.unit, f"n={metric.n}" if metric.n < num_questions else "")


def write_difference(difference: Difference, row: Row) -> str:
    """A difference with its p-value, and with what it is to where that is not the value of the reference elsewhere."""
    reference = f"reference {write_number(difference.reference_value, row.unit)}" if row.name == "success_at_equal_pages" else ""
    return write_cell(difference.value, difference, row.unit, write_test(difference), reference)


def write_ratio(ratio: Ratio) -> str:
    """A ratio with its interval in four significant digits; `-` for no value."""
    if ratio.value is None:
        return NO_VALUE
    interval = "" if ratio.low is None or ratio.high is None else f" [{ratio.low:.4g}..{ratio.high:.4g}]"
    return f"{ratio.value:.4g}{interval}"


def write_p_value(p_value: float | None, at_floor: bool = False) -> str:
    """`p=0.0123` with two significant digits, `p<0.0001` below that, `p≤0.0008` for the least that the test can give."""
    if p_value is None:
        return ""
    if at_floor:
        return f"p≤{p_value:.2g}"
    if p_value < 0.0001:
        return "p<0.0001"
    return f"p={p_value:.4f}" if p_value < 0.001 else f"p={p_value:.2g}"


def write_test(difference: Difference) -> str:
    """The corrected p-value; where there is none, the other one, named as `raw`."""
    if difference.adjusted_p_value is not None:
        return write_p_value(difference.adjusted_p_value, difference.is_at_floor)
    return f"raw {write_p_value(difference.p_value, difference.is_at_floor)}" if difference.p_value is not None else ""


def write_num_needed(num_needed: int) -> str:
    """`about 3,400`: rounded up to two digits, for it is a guess from what was seen."""
    step = 10 ** max(0, math.floor(math.log10(num_needed)) - 1)
    return f"about {math.ceil(num_needed / step) * step:,}"


def write_finding(difference: Difference, criterion: Criterion) -> str:
    """The finding of a difference of the family, empty for others."""
    if difference.finding is None:
        return ""
    if difference.finding is not Finding.UNSURE:
        return criterion.more if difference.finding is Finding.MORE else criterion.less
    if difference.value == 0:
        return "not significant: no difference observed"
    if difference.num_needed is None:
        return "not significant"
    return f"not significant: would need {write_num_needed(difference.num_needed)} questions"


def write_split(comparison: Comparison, context: ReportContext) -> str:
    """The split of the questions, with a warning where choices may have been made by them."""
    if comparison.split != TEST:
        return "VALIDATION questions: choices made on them bias these results upwards. The test questions were not used."
    if not context.num_exposures:
        return "TEST questions."
    earlier = f"Earlier evaluations of this run asked them {context.num_exposures} times"
    return f"TEST questions. {earlier}; choices made on these are biased in their favour."


def write_settings(comparison: Comparison, context: ReportContext) -> list[str]:
    """The settings of search, sampling, judging and tests, with warnings where intervals are too narrow."""
    weights = ", ".join(f"{policy} {found.weight:g}" for policy, found in context.question_weights.items())
    num_weighed = [found.num_questions for found in context.question_weights.values()]
    sentences = [
        f"N = {comparison.num_questions} questions ({comparison.split}), top_k = {comparison.top_k}, depth = {comparison.depth}; "
        f"search operator {context.search_operator}, analyzer {context.analyzer}; sampling {context.sampling}, seeds "
        f"{', '.join(map(str, context.seeds)) or 'none'}.",
        f"Question weights, found on {num_weighed[0]} questions of the train part: {weights}." if weights else "",
        f"Pictures: {context.pictures}." if context.pictures else "",
        context.judge,
        _write_clusters(comparison),
        "Intervals do not include the variation between trainings." if comparison.baseline == BASE_NAME else "",
        _write_family(comparison),
    ]
    return [sentence for sentence in sentences if sentence]


def _write_clusters(comparison: Comparison) -> str:
    sizes, over, warning = comparison.clusters, "questions from different documents", ""
    if sizes.largest > 1:
        over = f"{sizes.num_clusters} clusters of questions on the same documents, the largest of {sizes.largest}, "
        over += f"together worth {sizes.num_effective:.0f} of equal size"
        warning = " WARNING: with so few clusters the intervals are too narrow." if sizes.num_effective < FEW_CLUSTERS else ""
    if sizes.num_clusters == 1:
        return "All questions are about one document: nothing tells how much another would differ, so there are no intervals."
    drawn = f"{comparison.num_resamples:,} resamples, seed {comparison.seed}"
    return f"{comparison.confidence:.0%} bootstrap intervals ({drawn}) over {over}.{warning}"


def _write_family(comparison: Comparison) -> str:
    rows = [row for row in comparison.rows if any(d.adjusted_p_value is not None for d in row.differences)]
    tested = [d for row in rows for d in row.differences if d.adjusted_p_value is not None]
    if not rows:
        return f"Nothing is tested: no other policy has what {comparison.subject} is judged by, or none has a value."
    tests = {difference.test for row in rows for difference in row.differences}
    kind = "sign flips of whole clusters" if tests == {SIGN_FLIP} else "exact McNemar for shares, sign flips for the rest"
    levels = dict.fromkeys(f"{level:.2g}" for level in sorted(d.level for d in tested))
    return (
        f"p-values: paired tests ({kind}), Holm over {count_tests(comparison.rows, comparison.top_k)} tests of "
        f"{comparison.subject} against {', '.join(dict.fromkeys(d.reference for d in tested))} on "
        f"{', '.join(row.label for row in rows)}; raw ones are not corrected. Detectable: with {POWER:.0%} power at level "
        f"{' to '.join([*levels][:: max(1, len(levels) - 1)])} (raw {1 - comparison.confidence:.2g})."
    )


def write_incidents(comparison: Comparison) -> list[str]:
    """One line for each policy whose rollouts have something to report."""
    found = {
        policy: [f"{words}: {count}" for words, count in zip(_INCIDENTS, astuple(incidents), strict=True) if count]
        for policy, incidents in comparison.incidents.items()
    }
    return [f"{policy} had {', '.join(counts)}." for policy, counts in found.items() if counts]


def write_verdict(comparison: Comparison) -> list[str]:
    """The policy to deploy in one sentence, and its significance in another; without a candidate, those of `write_gain`."""
    return _write_deployment(comparison.deployment) if comparison.deployment else write_gain(comparison)


def write_gain(comparison: Comparison) -> list[str]:
    """A sentence on the primary measure for the subject against the baseline; a subject that searches more than once has another,
    on all that it shows."""
    sentences = [_write_sentence(comparison.primary, comparison.baseline, comparison)]
    if comparison.subject in comparison.turns:
        sentences.append(_write_equal_pages(comparison, comparison.baseline))
    return sentences


def _write_deployment(deployment: Deployment) -> list[str]:
    """The policy to deploy with its measures and its cost; the candidate compared with the others."""
    policy, candidate = deployment.policy, deployment.candidate
    known = [row for row in deployment.rows if policy in row.metrics]
    values = ", ".join(f"{row.label} {_write_value(row.metrics[policy].value, row.unit)}" for row in known)
    cost = ""
    if policy == candidate and (latency := deployment.latency):
        memory = f" and {latency.gpu_gib:g} GiB of its memory" if latency.gpu_gib else ""
        cost = (
            f"; a question takes {latency.median_ms:,.0f} ms (median of {latency.num_questions}, one at a time) "
            f"{f'with {latency.num_pages} pages read ' if latency.num_pages else ''}on {latency.device}{memory}"
        )
    untrained = f"{deployment.best_untrained}, the best without a trained neural model"
    named, tested = (policy, "It") if policy == candidate else (untrained, f"The candidate {candidate}")
    references = {d.reference: d.reference for row in deployment.rows for d in row.differences}
    if policy == candidate:
        references[deployment.best_untrained] = f"{untrained},"
    compared = [_write_candidate(deployment.rows, candidate, reference, name) for reference, name in references.items()]
    return [f"Deploy {named}: {values}{cost}.", f"{tested} is {'; and '.join(compared)}.", *_write_start(deployment)]


def _write_start(deployment: Deployment) -> list[str]:
    """A reranker beside what it was before training."""
    if not deployment.start:
        return []
    num_questions = max(row.metrics[START].n for row in deployment.start)
    values = " and ".join(f"{row.label} {_write_value(row.metrics[START].value, row.unit)}" for row in deployment.start)
    compared = _write_candidate(deployment.start, Rerank.name, START, "them")
    return [
        f"The vectors of the model that {Rerank.name} was trained from order the same pages of {num_questions} of these "
        f"questions with {values}; {Rerank.name} is {compared}."
    ]


def _write_candidate(rows: Sequence[Row], candidate: str, reference: str, name: str) -> str:
    """The candidate beside another policy, which is called so, by each of the measures: those that come to the same together."""
    words = {Finding.MORE: "significantly above", Finding.LESS: "significantly below"}
    found: dict[str, list[str]] = {}
    for row in rows:
        difference = row.difference(candidate, reference)
        needed = f", would need {write_num_needed(difference.num_needed)} questions" if difference.num_needed else ""
        said = words.get(difference.finding or Finding.UNSURE, "not significantly different from")
        found.setdefault(said, []).append(f"{write_label(row)} ({write_difference(difference, row)}{needed})")
    by_finding = [(said, " and ".join(cells)) for said, cells in found.items()]
    return " and ".join(f"{said} {name if place == 0 else 'it'} by {cells}" for place, (said, cells) in enumerate(by_finding))


def _write_value(value: float | None, unit: Unit) -> str:
    return f"{write_number(value, unit)}{' %' if unit.is_percent else ''}"


def _write_sentence(row: Row, reference: str, comparison: Comparison) -> str:
    difference, criterion = row.difference(comparison.subject, reference), comparison.criterion
    policy = difference.policy
    compared = f"{policy} and {reference}"
    if difference.value is None:
        return f"Cannot compare {compared}: {_write_missing(row, difference)}."
    gained = difference.num_higher - difference.num_lower
    count = f"{abs(gained)} {'more' if gained > 0 else 'fewer'} {criterion.counted}{'' if abs(gained) == 1 else 's'}"
    amount = count if gained else f"as many {criterion.counted}s"
    seen = f"{amount} over {row.metrics[policy].n} {comparison.split} questions {_write_facts(difference, comparison)}"
    if difference.finding in (Finding.MORE, Finding.LESS):
        found = criterion.more if difference.finding is Finding.MORE else criterion.less
        return f"{policy} {found} than {reference}: {seen}."
    return f"No significant difference between {compared}: {seen}{_write_power(difference)}."


def _write_missing(row: Row, difference: Difference) -> str:
    """The reason why the two have no difference, as where a baseline that needs no model does not answer."""
    values = {name: row.metrics[name] for name in (difference.policy, difference.reference)}
    return " and ".join(
        f"{name} has {'no' if metric.value is None else 'an'} {row.label.lower()}"
        + ("" if metric.value is None else f" of {_write_value(metric.value, row.unit)} over {metric.n} questions")
        for name, metric in values.items()
    )


def _write_facts(difference: Difference, comparison: Comparison) -> str:
    return (
        f"({write_number(difference.value, Unit.SHARE, signed=True)} points, "
        f"{comparison.confidence:.0%} interval {write_interval(difference, Unit.SHARE, signed=True)}, {write_test(difference)})"
    )


def _write_power(difference: Difference) -> str:
    """The difference that these questions would have shown, and how many would show what was seen."""
    if difference.detectable is None:
        return ""
    detectable = write_number(difference.detectable, Unit.SHARE)
    shown = f"; a true difference of {detectable} points would be detected with {POWER:.0%} power"
    if difference.num_needed is None:
        return shown
    return f"{shown}, one as small as the observed one with {write_num_needed(difference.num_needed)} questions"


def _write_equal_pages(comparison: Comparison, reference: str) -> str:
    policy = comparison.subject
    success = comparison.row("success_at_equal_pages")
    difference = success.difference(policy, reference)
    num_pages = comparison.row("pages_shown").metrics[policy].value
    return (
        f"With all its searches {policy} shows {write_number(num_pages, Unit.COUNT)} pages a question and finds the evidence of "
        f"{write_number(success.metrics[policy].value, Unit.SHARE)} %; {reference} with as many pages of "
        f"{write_number(difference.reference_value, Unit.SHARE)} % {_write_facts(difference, comparison)}."
    )
