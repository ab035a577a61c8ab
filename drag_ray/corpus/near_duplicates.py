"""Near-duplicates among evidence pages: found by the index stage, recorded in a table, looked up wherever questions are split."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl
import pyarrow as pa

from drag_ray import schemas
from drag_ray.corpus.page_similarity import compute_shingles, find_similar
from drag_ray.storage.artifacts import write_parquet
from drag_ray.types import Evidence, Question

TABLE_NAME = "near_duplicates.parquet"

NearDuplicates = Mapping[Evidence, Sequence[int]]
"""Numbers of each page that was compared. Two pages nearly duplicate each other if they share a number, and only then."""

NO_NEAR_DUPLICATES: NearDuplicates = MappingProxyType({})


def find_near_duplicates(pages: pa.Table, evidence: Collection[Evidence]) -> NearDuplicates:
    """Compare the texts of those pages of a `PAGES` table that are evidence.

    Pages nearly duplicate each other if the Jaccard similarity of their texts' shingles is at least 0.8; `page_similarity` says
    how they are compared. Their pictures are not looked at. The result depends on nothing but the pages. A page of 2,000
    characters takes 0.5 ms and 13 KB, and each pair that is worth comparing 10 µs: the cost grows with the square of the number
    of pages that are alike but not the same.
    """
    copies: dict[bytes, list[Evidence]] = defaultdict(list)
    numbers: dict[Evidence, list[int]] = {}
    for page, text in _select_texts(pages, evidence):
        numbers[page] = []
        shingles = compute_shingles(text)
        if len(shingles):
            copies[shingles.tobytes()].append(page)
    similar = find_similar([np.frombuffer(key, np.uint64) for key in copies])
    same = list(copies.values())
    for number, alike in enumerate(chain(same, (same[left] + same[right] for left, right in similar))):
        if len(alike) > 1:
            for page in alike:
                numbers[page].append(number)
    return numbers


def count_near_duplicates(near_duplicates: NearDuplicates) -> int:
    """How many pages nearly duplicate another one."""
    return sum(bool(numbers) for numbers in near_duplicates.values())


def list_evidence(questions: Iterable[Question]) -> dict[Evidence, None]:
    """Each evidence page of the questions once, in their order."""
    return dict.fromkeys(page for question in questions for page in question.evidence)


def write_near_duplicates(index_dir: Path, near_duplicates: NearDuplicates) -> None:
    """Write the table into the folder of the index stage."""
    rows = [(page.file, page.page_number, numbers) for page, numbers in near_duplicates.items()]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    write_parquet(index_dir / TABLE_NAME, pa.table(columns, schema=schemas.NEAR_DUPLICATES))


def read_near_duplicates(index_dir: Path, questions: Iterable[Question]) -> NearDuplicates:
    """The near-duplicates among the evidence of the questions and of those of the index.

    They are as recorded, or found now if a page of the questions was not evidence when they were: questions may come from
    elsewhere.

    Raises:
        DataError: a table of the index stage is missing or unreadable.
    """
    table = schemas.read_table(index_dir / TABLE_NAME, schemas.NEAR_DUPLICATES)
    rows = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
    recorded = {Evidence(file, page_number): numbers for file, page_number, numbers in rows}
    wanted = list_evidence(questions)
    if wanted.keys() <= recorded.keys():
        return recorded
    pages = schemas.read_table(index_dir / "pages.parquet", schemas.PAGES, ["file", "page_number", "text"])
    return find_near_duplicates(pages, {**recorded, **wanted})


def _select_texts(pages: pa.Table, evidence: Collection[Evidence]) -> Iterable[tuple[Evidence, str]]:
    keys = {"file": [page.file for page in evidence], "page_number": [page.page_number for page in evidence]}
    wanted = pl.DataFrame(keys, schema={"file": pl.String, "page_number": pl.Int32})
    frame = pl.DataFrame(pages.select(["file", "page_number", "text"]))
    chosen = frame.join(wanted, on=["file", "page_number"], how="semi", maintain_order="left")
    return ((Evidence(file, page_number), text) for file, page_number, text in chosen.iter_rows())
