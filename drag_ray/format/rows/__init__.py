"""The formats of training rows, one module each: its row, what it is made of and what other trainers get of it.

`format.row_format.load_format` gives the format of a name.
"""

from typing import TYPE_CHECKING, Literal

FORMATS = (
    "sft_query",
    "sft_trajectory",
    "sft_context",
    "rejection",
    "dpo",
    "kto",
    "reward",
    "rl_steps",
)
"""The formats, in the order in which a reader of the options sees them."""

if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Literal[FORMATS]
