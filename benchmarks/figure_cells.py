"""Parts of tables of figures: results, cells and the notation of numbers."""

import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

RESULTS_DIR = Path(__file__).parent / "results"
_FLOORS = tuple(1 / (num_resamples + 1) for num_resamples in (10_000, 100_000, 300_000))
"""The least p-values that the tests of the results can give."""


@cache
def read_record(name: str) -> Any:
    """`results/NAME.json`: the numbers with the machine that gave them."""
    return json.loads((RESULTS_DIR / f"{name}.json").read_text(encoding="utf-8"))


def read_results(name: str) -> Any:
    """The numbers of `results/NAME.json`."""
    return read_record(name)["results"]


def name_gpu(record: Any) -> str:
    """The kind of GPU that a record was measured on: `H100`."""
    return str(record["machine"]["gpus"][0]).removeprefix("NVIDIA ").partition(" ")[0]


def to_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells as a table of Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("|" + "".join(f" {cell} |" if cell else " |" for cell in line) for line in lines).replace(" --- ", "---")


def to_paragraph(text: str) -> str:
    """Sentences in lines of the length that the documentation has."""
    return textwrap.fill(" ".join(text.split()), 140, break_long_words=False, break_on_hyphens=False)


def short(value: float, digits: int = 3) -> str:
    """A number between 0 and 1 without its zero, for example .298."""
    return f"{value:.{digits}f}".removeprefix("0")


def spread(found: Sequence[float]) -> str:
    """[mean, least, highest] of trainings as text."""
    mean, low, high = found
    return short(mean) if low == high else f"{short(mean)} [{short(low)}, {short(high)}]"


def percent(value: float) -> str:
    """A share, for example 56.8 %."""
    return f"{100 * value:.1f} %"


def p_value(value: float) -> str:
    """A p-value in the style of the text, for example .0009."""
    if round(value, 2) >= 1:
        return "1"
    return f"{value:.{1 if value < 0.01 else 2}g}".removeprefix("0")


def write_test(raw: float, adjusted: float) -> str:
    """The p-value after Holm, for example p = .02, or p ≤ .004 where no resample was as extreme, so that it is an upper bound."""
    return f"p {'≤' if any(math.isclose(raw, floor, rel_tol=1e-4) for floor in _FLOORS) else '='} {p_value(adjusted)}"


def signed(value: float) -> str:
    """A difference of scores, for example +.013."""
    return f"{value:+.3f}".replace("0.", ".", 1)


def tested_difference(found: Any) -> str:
    """[difference, low, high, p, p after Holm] as text."""
    value, low, high, raw, adjusted = found
    return f"{signed(value)} [{signed(low)}, {signed(high)}], {write_test(raw, adjusted)}"
