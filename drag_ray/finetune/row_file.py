"""Files of rows to train on, as the format stage writes them."""

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from drag_ray.engine.conversation import Row
from drag_ray.errors import DataError
from drag_ray.storage.json_text import parse_json


def read_rows(path: Path, limit: int = 0, seed: int = 0) -> Iterator[Row]:
    """The rows of a file, one after the other.

    Args:
        path: a row a line, in JSON.
        limit: of how many; 0 takes all. Of more those of drawn questions are taken, all of a question but for the last: a file
            is in the order of its questions, whose first ones may all be of one kind.
        seed: of the draw.

    Raises:
        DataError: there is no such file, or it holds something else. It does not name the file.
    """
    drawn = _draw_places(path, limit, seed) if limit else None
    for place, row in enumerate(_parse_lines(path)):
        if drawn is None or place in drawn:
            yield row


def _draw_places(path: Path, limit: int, seed: int) -> set[int]:
    """Places of rows in the file; a row that names no question is one by itself."""
    by_question: dict[object, list[int]] = defaultdict(list)
    for place, row in enumerate(_parse_lines(path)):
        by_question[row.get("question_id", place) if isinstance(row, dict) else place].append(place)
    questions = list(by_question)
    random.Random(seed).shuffle(questions)
    return set([place for question in questions for place in by_question[question]][:limit])


def _parse_lines(path: Path) -> Iterator[Row]:
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield parse_json(line)
    except FileNotFoundError:
        raise DataError("no such file. Run: python jobs/format.py") from None
    except ValueError as error:
        raise DataError(f"not one JSON object a line ({error}). Run: python jobs/format.py") from None
