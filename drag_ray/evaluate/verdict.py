"""What the comparison says, in words, whichever way it went."""

from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.measures import PRIMARY_MEASURE, Unit
from drag_ray.evaluate.notation import write_interval, write_number, write_p_value
from drag_ray.evaluate.rows import Difference


def is_clear(difference: Difference, confidence: float) -> bool:
    """True if the interval excludes 0 and the test agrees with it."""
    if difference.low is None or difference.high is None or difference.p_value is None:
        return False
    return (difference.low > 0 or difference.high < 0) and difference.p_value < 1 - confidence


def write_verdict(comparison: Comparison) -> list[str]:
    """One sentence on the primary measure for the subject against each other policy, the baseline first."""
    others = [policy for policy in comparison.policies if policy not in (comparison.baseline, comparison.subject)]
    row = comparison.row(PRIMARY_MEASURE)
    return [
        _write_sentence(row.difference(comparison.subject, reference), comparison) for reference in (comparison.baseline, *others)
    ]


def _write_sentence(difference: Difference, comparison: Comparison) -> str:
    gained = difference.num_higher - difference.num_lower
    count = f"{abs(gained)} {'more' if gained > 0 else 'fewer'} first {'hit' if abs(gained) == 1 else 'hits'}"
    amount = count if gained else "as many first hits"
    facts = (
        f"({write_number(difference.value, Unit.SHARE, signed=True)} points, "
        f"{comparison.confidence:.0%} interval {write_interval(difference, Unit.SHARE, signed=True)}, "
        f"{write_p_value(difference.p_value)})"
    )
    over = f"over {comparison.num_questions} questions {facts}"
    policy, reference = difference.policy, difference.reference
    if not is_clear(difference, comparison.confidence):
        reason = ", a difference that chance alone can make" if gained else ""
        return f"{policy} does not beat {reference}: {amount} {over}{reason}."
    if gained > 0:
        return f"{policy} finds {amount} than {reference} {over}."
    return f"{policy} is worse than {reference}: {amount} {over}."
