"""Native code over damaged files raises errors of many kinds, or panics, which `except Exception` does not catch."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from drag_ray.errors import DragRayError, SearchIndexError
from drag_ray.storage.file_access import explain_memory

_PANIC = "PanicException"
"""Rust's panic in Python. It derives from BaseException, and its class cannot be imported."""


class _OpenIndex(Protocol):
    index_dir: Path


Index = TypeVar("Index", bound=_OpenIndex)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def guard(
    method: Callable[Concatenate[Index, Arguments], Result],
) -> Callable[Concatenate[Index, Arguments], Result]:
    """A method that reads an index, with its errors over damaged files, and of memory, as SearchIndexErrors."""

    @wraps(method)
    def guarded(index: Index, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return method(index, *args, **kwargs)
        except MemoryError as error:
            raise SearchIndexError(f"{index.index_dir}: cannot be read: {explain_memory(error)}") from error
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
