"""What the comparison says, in words, whichever way it went."""

from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.differences import Difference, Finding
from drag_ray.evaluate.measure import Unit
from drag_ray.evaluate.notation import write_interval, write_num_needed, write_number, write_test
from drag_ray.evaluate.policies import is_without_language_model
from drag_ray.evaluate.rows import Row
from drag_ray.evaluate.significance import POWER


def write_verdict(comparison: Comparison) -> list[str]:
    """One sentence on the primary measure for the subject against each other policy, the baseline first.

    A subject that searches more than once has another for each, on all that it shows.
    """
    others = [policy for policy in comparison.policies if policy not in (comparison.baseline, comparison.subject)]
    references = [comparison.baseline, *others]
    sentences = [_write_sentence(comparison.primary, reference, comparison) for reference in references]
    sentences += _write_best_without_language_model(comparison)
    if comparison.subject in comparison.turns:
        sentences += [_write_equal_pages(comparison, reference) for reference in references]
    return sentences


def _write_best_without_language_model(comparison: Comparison) -> list[str]:
    """What a policy with a language model has to beat to be worth its cost; nothing where the question alone is there, or where
    none of them is measured, as by answers that they do not give."""
    row, subject = comparison.primary, comparison.subject
    found = {policy: row.metrics[policy].value for policy in comparison.policies}
    values = {name: value for name, value in found.items() if is_without_language_model(name) and value is not None}
    if len(values) < 2:
        return []
    best = max(values, key=lambda name: values[name])
    had = "" if subject in values else f", where {subject} has {_write_value(found[subject], row.unit)}"
    return [f"Best without a language model is {best}: {row.label.lower()} {_write_value(values[best], row.unit)}{had}."]


def write_room(comparison: Comparison) -> str:
    """How much the best of all first searches for each question finds beyond the best policy."""
    gains = (
        f"{room.label} {_write_value(room.oracle, room.unit)} where {room.best_policy}, the best policy, has "
        f"{_write_value(room.best, room.unit)}"
        for room in comparison.room
    )
    return (
        f"Room: who knew for each question which of these first searches is best, or the question itself, would have "
        f"{'; '.join(gains)}. Choosing among these searches cannot gain more."
    )


def _write_value(value: float | None, unit: Unit) -> str:
    return f"{write_number(value, unit)}{' %' if unit.is_percent else ''}"


def _write_sentence(row: Row, reference: str, comparison: Comparison) -> str:
    difference, criterion = row.difference(comparison.subject, reference), comparison.criterion
    policy = difference.policy
    if difference.value is None:
        return f"Cannot tell whether {policy} {criterion.more} than {reference}: {_write_missing(row, difference)}."
    gained = difference.num_higher - difference.num_lower
    count = f"{abs(gained)} {'more' if gained > 0 else 'fewer'} {criterion.counted}{'' if abs(gained) == 1 else 's'}"
    amount = count if gained else f"as many {criterion.counted}s"
    seen = f"{amount} over {row.metrics[policy].n} {comparison.split} questions {_write_facts(difference, comparison)}"
    if difference.finding is Finding.MORE:
        return f"{policy} {criterion.more} than {reference}, surely: {seen}."
    if difference.finding is Finding.LESS:
        return f"{policy} {criterion.less} than {reference}, surely: {seen}."
    reason = ", a difference that chance alone can make" if gained else ""
    return f"Cannot tell whether {policy} {criterion.more} than {reference}: {seen}{reason}{_write_power(difference)}."


def _write_missing(row: Row, difference: Difference) -> str:
    """Why the two have no difference, as where a baseline that needs no model does not answer."""
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
    """What these questions would have shown, and how many would show what was seen."""
    if difference.detectable is None:
        return ""
    shown = f"; a true one of {write_number(difference.detectable, Unit.SHARE)} points would be found with {POWER:.0%} power"
    if difference.num_needed is None:
        return shown
    return f"{shown}, one as small as that seen with {write_num_needed(difference.num_needed)} questions"


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
