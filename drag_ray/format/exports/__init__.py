"""The trainers that training rows are written for besides TRL, one module each: their files, and their names for things.

`format.exporter.load_exporter` gives the exporter for a trainer.
"""

from typing import TYPE_CHECKING, Literal

EXPORTS = ("llama_factory", "ms_swift")
"""The trainers."""

if TYPE_CHECKING:
    ExportName = str
else:
    ExportName = Literal[EXPORTS]
