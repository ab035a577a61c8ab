"""How numbers and what they come to are written, the same wherever they are read."""

import math

from drag_ray.evaluate.criterion import Criterion
from drag_ray.evaluate.differences import Difference, Finding
from drag_ray.evaluate.effort import Ratio
from drag_ray.evaluate.measure import Unit
from drag_ray.evaluate.pass_at_k import PassRate
from drag_ray.evaluate.rows import Metric, Row
from drag_ray.evaluate.turns import TurnSuccess

NO_VALUE = "-"


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


def write_ratio(ratio: Ratio) -> str:
    """A ratio with its interval in four significant digits; `-` for no value."""
    if ratio.value is None:
        return NO_VALUE
    interval = "" if ratio.low is None or ratio.high is None else f"[{ratio.low:.4g}..{ratio.high:.4g}]"
    return join_parts(f"{ratio.value:.4g}", interval)


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


def join_parts(*parts: str) -> str:
    """The parts of a cell that there are."""
    return " ".join(part for part in parts if part)


def write_num_needed(num_needed: int) -> str:
    """`about 3,400`: rounded up to two digits, for it is a guess from what was seen."""
    step = 10 ** max(0, math.floor(math.log10(num_needed)) - 1)
    return f"about {math.ceil(num_needed / step) * step:,}"


def write_finding(difference: Difference, criterion: Criterion) -> str:
    """What a difference of the family comes to, empty for others."""
    if difference.finding is None:
        return ""
    if difference.finding is not Finding.UNSURE:
        return f"{criterion.more if difference.finding is Finding.MORE else criterion.less}, surely"
    if difference.value == 0:
        return "cannot tell: no difference was seen"
    if difference.num_needed is None:
        return "cannot tell"
    return f"cannot tell: would need {write_num_needed(difference.num_needed)} questions"
