"""Files that grow by a line of JSON at a time, so that a process that is killed loses no more than the line that it writes."""

import contextlib
import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from drag_ray.storage.artifacts import sync
from drag_ray.storage.file_access import reading, writing

_logger = logging.getLogger(__name__)
T = TypeVar("T")


def append_line(path: Path, value: Any) -> None:
    """Write `value` as a line at the end of the file; otherwise as `append_lines`."""
    append_lines(path, [value])


def append_lines(path: Path, values: Iterable[Any]) -> None:
    """Write values as lines at the end of the file; they are on the disk then. Raises ArtifactError where no space is left, or
    the file cannot be written; it is as it was then."""
    with writing(path), path.open("ab") as stream:
        end = stream.tell()
        try:
            stream.write("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode())
            stream.flush()
            os.fsync(stream.fileno())
            if end == 0:
                sync(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):  # else another line would follow on the half of this one
                stream.close()
            with contextlib.suppress(OSError):
                os.truncate(path, end)
            raise


def read_lines(path: Path, kind: TypeAdapter[T]) -> list[T]:
    """The values of a file, none where there is none; what follows the last whole line is cut off it. Raises ArtifactError where
    the file cannot be read.

    Args:
        path: the file.
        kind: of a line. One that is of no such kind is passed over, with a warning.
    """
    if not path.is_file():
        return []
    with reading(path):
        data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        with writing(path):
            os.truncate(path, len(whole))
    return list(parse_lines(path, whole.splitlines(), kind))


def parse_lines(path: Path, lines: Iterable[bytes], kind: TypeAdapter[T], first: int = 1) -> Iterator[T]:
    """The values of some lines of a file. One that is of another kind is passed over, with a warning that names it.

    Args:
        path: the file.
        lines: some of its lines.
        kind: of a line.
        first: the number of the first of them in the file, counted from 1.
    """
    for number, line in enumerate(lines, first):
        try:
            yield kind.validate_json(line, strict=True)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False, include_context=False)[0]["msg"]
            _logger.warning(f"{path}: line {number} is skipped: it is not in the format of this file ({problem})")
