"""What native code does over damaged files: it raises this and that, or panics, which `except Exception` does not catch."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from drag_ray.errors import DragRayError, SearchIndexError

_PANIC = "PanicException"
"""Rust's panic in Python. It derives from BaseException, and its class cannot be imported."""


class _OpenIndex(Protocol):
    index_dir: Path


Index = TypeVar("Index", bound=_OpenIndex)
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def guard(
    ask: Callable[Concatenate[Index, Arguments], Answer],
) -> Callable[Concatenate[Index, Arguments], Answer]:
    """A method that reads an index: whatever it meets in damaged files becomes a SearchIndexError."""

    @wraps(ask)
    def guarded(index: Index, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        try:
            return ask(index, *args, **kwargs)
        except BaseException as error:
            if not _may_be_damage(error):
                raise
            raise SearchIndexError(
                f"{index.index_dir}: cannot be read ({type(error).__name__}: {error}); its files may be damaged. "
                "This looks at every byte and builds it again if they are: python jobs/index.py --verify"
            ) from None

    return guarded


def _may_be_damage(error: BaseException) -> bool:
    is_raised = isinstance(error, ValueError | LookupError | ArithmeticError | OSError) and not isinstance(error, DragRayError)
    return is_raised or type(error).__name__ == _PANIC
