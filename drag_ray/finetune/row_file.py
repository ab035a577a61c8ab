"""Files of rows to train on, as the format stage writes them."""

import json
from collections.abc import Iterator
from pathlib import Path

from drag_ray.engine.conversation import Row
from drag_ray.errors import DataError


def read_rows(path: Path, limit: int = 0) -> Iterator[Row]:
    """The rows of a file, one after the other.

    Args:
        path: a row a line, in JSON.
        limit: of how many; 0 takes all.

    Raises:
        DataError: there is no such file, or it holds something else. It does not name the file.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if limit and number > limit:
                    return
                yield json.loads(line)
    except FileNotFoundError:
        raise DataError("no such file. Run: python jobs/format.py") from None
    except ValueError as error:
        raise DataError(f"not one JSON object a line ({error}). Run: python jobs/format.py") from None
