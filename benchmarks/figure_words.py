"""Sentences about what was found and how long it took, with the numbers of the results in them."""

from typing import Any

from figure_cells import (
    p_value,
    short,
    to_table,
    write_test,
)
from figure_quality import LARGE, find_effect

_DETECTABLE = (1.96 + 0.84) / (2 * 1.96)
"""Of the width of a 95 % interval: the true difference that a test at 5 % finds with 80 % power."""


def points(value: float) -> str:
    """A difference of shares in points, for example +29.6."""
    return f"{100 * value:+.1f}".replace("+0.", "+.").replace("-0.", "-.")


def signed(value: float) -> str:
    """A difference of scores, for example +.013."""
    return f"{value:+.3f}".replace("0.", ".", 1)


def tested_difference(found: Any) -> str:
    """[difference, low, high, p, p after Holm] as text."""
    value, low, high, raw, adjusted = found
    return f"{signed(value)} [{signed(low)}, {signed(high)}], {write_test(raw, adjusted)}"


def write_effect_transfer() -> str:
    """What the adapter that was trained on manuals finds on other sets."""
    rows = []
    for name in ("medquad", "fairytaleqa", "ohr_bench", "financebench"):
        tuned, base = (find_effect(f"{name}, trained on manuals", policy, LARGE) for policy in ("manuals", "base"))
        value, low, high, alone, _ = tuned["vs_question"]["mrr"]
        rows.append(
            [
                *(name, f"{tuned['n']:,}", short(tuned["mrr"] - value), short(base["mrr"]), short(tuned["mrr"])),
                f"{signed(value)} [{signed(low)}, {signed(high)}], p = {p_value(alone)}",
                f"{points(tuned['vs_question']['hit10'][0])}",
                short(_DETECTABLE * (high - low)),
            ]
        )
    header = ["", "N", "question", "base", "trained on manuals", "above the question", "Hit@10, points", "detectable"]
    return to_table(header, rows)
