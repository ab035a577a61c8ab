"""The formats of training rows, one module each: its row, what it is made of and what other trainers get of it.

`format.row_format.load_format` gives the format of a name.
"""

from typing import TYPE_CHECKING, Literal

OF_TURNS = ("sft_query", "sft_trajectory", "sft_context", "rejection", "dpo", "reward", "rl_steps")
"""Formats that teach a policy its turns, in the order in which a reader of the options sees them."""
OF_PAGES = ("relevance",)
"""Formats whose rows are questions with pages, and no part of any conversation."""
FORMATS = (*OF_TURNS, *OF_PAGES)

if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Literal[FORMATS]
