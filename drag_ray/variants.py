"""Variants: packages with a module for each of several ways to do one thing, whose `__init__` names them.

The names are a plain tuple, from which the type of an option follows, so that a command line knows them without loading what the
modules need. To add a variant is to add a module and its name. A package of variants looks so:

    FORMATS = ("sft_query", "dpo")
    if TYPE_CHECKING:
        FormatName = str
    else:
        FormatName = Literal[FORMATS]
"""

import importlib
from types import ModuleType
from typing import Any


def load_variant(package: ModuleType, name: str) -> Any:
    """The module of a variant.

    Args:
        package: whose `__init__` names the variant; the source of a stage that imports it is that of its variants too.
        name: one of its names.
    """
    return importlib.import_module(f"{package.__name__}.{name}")
