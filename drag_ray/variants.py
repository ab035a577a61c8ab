"""Variants: packages with a module for each of several ways to do one thing, whose `__init__` names them.

The names are a plain tuple, from which the type of an option follows, so that a command line knows them without loading what the
modules need. To add a variant is to add a module and its name. A variant whose module is in another package, as those of
`recipes`, has its place in ELSEWHERE. A package of variants looks so:

    FORMATS = ("sft_query", "dpo")
    if TYPE_CHECKING:
        FormatName = str
    else:
        FormatName = Literal[FORMATS]
    ELSEWHERE = {"dpo": "recipes.some_system.dpo"}
"""

import importlib
from types import ModuleType
from typing import Any

from drag_ray.errors import ConfigError


def load_variant(package: ModuleType, name: str) -> Any:
    """The module of a variant.

    Args:
        package: whose `__init__` names the variant.
        name: one of its names.
    """
    place = getattr(package, "ELSEWHERE", {}).get(name)
    return importlib.import_module(f"drag_ray.{place}" if place else f"{package.__name__}.{name}")


def import_own(name: str, option: str, use: str) -> ModuleType:
    """A module of the user's, which an option names.

    Args:
        name: as Python imports it.
        option: and its value, for the message.
        use: what the processes do that import it.

    Raises:
        ConfigError: it cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever a user's module does while it is imported
        raise ConfigError(
            f"{option}: {name} cannot be imported ({type(error).__name__}: {error}). Every process that {use} must find it on "
            "its import path."
        ) from error
