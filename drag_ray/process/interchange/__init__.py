"""The formats in which trajectories go to other programs and come back, one module each.

`process.interchange_format.load_interchange` gives the format of a name.
"""

from typing import TYPE_CHECKING, Literal

INTERCHANGES = ("drag", "atif", "madqa", "v_retrver")
"""The formats; the first one is that of `drag-ray import` and `drag-ray export` unless another one is named."""

ELSEWHERE = {"v_retrver": "recipes.v_retrver.interchange"}

if TYPE_CHECKING:
    InterchangeName = str
else:
    InterchangeName = Literal[INTERCHANGES]
