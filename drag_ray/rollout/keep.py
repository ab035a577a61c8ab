"""The place where records of rollouts are kept: here, or on another node, which sees the folder of the run."""

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")


class Keep(Protocol):
    """Calls a function where the folder of the run is."""

    def __call__(self, function: Callable[[*_Args], _Result], *args: *_Args) -> _Result:
        """Call the function there and give what it returns, or raises."""
        ...


def keep_here(function: Callable[[*_Args], _Result], *args: *_Args) -> _Result:
    """A `Keep` of a node that sees the folder."""
    return function(*args)
