"""Files that grow by a line of JSON at a time, so that a process that is killed loses no more than the line that it writes."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from drag_ray.artifacts import sync
from drag_ray.file_access import reading, writing


def append_line(path: Path, value: Any) -> None:
    """Write `value` as a line at the end of the file; it is on the disk then.

    Raises:
        ArtifactError: no space is left, or the file cannot be written; it is as it was then.
    """
    with writing(path), path.open("ab") as stream:
        end = stream.tell()
        try:
            stream.write((json.dumps(value, ensure_ascii=False) + "\n").encode())
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


def read_lines(path: Path) -> list[Any]:
    """The values of a file, none where there is none; what follows the last whole line is cut off it.

    Raises:
        ArtifactError: the file cannot be read.
    """
    if not path.is_file():
        return []
    with reading(path):
        data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        with writing(path):
            os.truncate(path, len(whole))
    return [json.loads(line) for line in whole.splitlines()]
