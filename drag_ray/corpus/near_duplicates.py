"""Near-duplicates among evidence pages: found by the index stage, recorded in a table, looked up wherever questions are split.

A text counts as the set of its shingles, all runs of three words in it (Broder, "On the resemblance and containment of
documents", 1997), whatever their case, punctuation and spacing. Of two texts that differ in one word in their middle,
three-word shingles show the likeness from 29 words on. Runs of five, as in the deduplication of training text (Lee et al.,
"Deduplicating training data makes language models better", 2022, from where the threshold of 0.8 is), show it from 49 on, and
pages can be shorter. Each Chinese, Japanese or Korean character counts as a word.

A text of fewer than `MIN_WORDS` words has no shingles, and is taken to be like no other. It is a blank page, a heading, a page
that shows something which no text layer holds; many pages have the same few words, and those do not say that the pages
are the same.

Pairs to compare come from MinHash signatures in locality-sensitive hashing (Leskovec, Rajaraman and Ullman, "Mining of Massive
Datasets", 3.4). They only propose: what is returned was decided by the Jaccard similarity itself.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from drag_ray import schemas
from drag_ray.search.analyzer import CJK
from drag_ray.search.normal_form import normalise
from drag_ray.storage.artifacts import write_parquet
from drag_ray.types import Evidence, Question

MIN_JACCARD = 0.8
"""From this Jaccard similarity on, texts nearly duplicate each other."""
MIN_WORDS = 20
"""A text with fewer words is not compared."""
_SHINGLE_WORDS = 3
_WORD = re.compile(rf"[{CJK}]|[^\W_{CJK}]+")
# Texts with a similarity of 0.8 share no band once in 20 million times, with 0.85 never in practice.
_NUM_BANDS = 32
_BAND_ROWS = 4
# Each shingle is hashed by every permutation at once: this bounds the memory for pages of any length.
_BATCH_SHINGLES = 4_096

Shingles = NDArray[np.uint64]


def compute_shingles(text: str) -> Shingles:
    """The set of shingles of a text (see `hash_runs`); none of a short text."""
    words = list_words(text)
    return hash_runs(words, _SHINGLE_WORDS) if len(words) >= MIN_WORDS else np.empty(0, np.uint64)


def list_words(text: str) -> list[str]:
    """The words of a text in order, in the normal form and without case; a Chinese, Japanese or Korean character is one."""
    return _WORD.findall(normalise(text).casefold())


def hash_runs(words: Sequence[str], length: int) -> Shingles:
    """The set of all runs of so many words: 64-bit hashes of them, each once, in ascending order."""
    runs = zip(*(words[start:] for start in range(length)), strict=False)
    digests = (hashlib.blake2b(" ".join(run).encode(), digest_size=8).digest() for run in runs)
    return np.unique(np.frombuffer(b"".join(digests), "<u8"))


def find_similar(sets: Sequence[Shingles]) -> Iterator[tuple[int, int]]:
    """Places of each two sets with a Jaccard similarity of `MIN_JACCARD` or more, the smaller place first.

    No set may be empty. They should differ, as the number of pairs is the square of the number of sets that are alike.
    """
    if not sets:
        return
    from datasketch import MinHash, MinHashLSH  # with much of SciPy: only who compares pages need wait for it

    num_permutations = _NUM_BANDS * _BAND_ROWS
    empty = MinHash(num_perm=num_permutations, scheme="affine64", hashfunc=int)
    bands = MinHashLSH(num_perm=num_permutations, params=(_NUM_BANDS, _BAND_ROWS))
    numbers = _number_shingles(sets)
    is_own = np.zeros(max(int(own.max()) for own in numbers) + 1, np.bool_)
    for place, shingles in enumerate(sets):
        signature = empty.copy()
        for start in range(0, len(shingles), _BATCH_SHINGLES):
            signature.update_batch(shingles[start : start + _BATCH_SHINGLES].tolist())
        proposed = sorted(key for key in bands.query(signature) if isinstance(key, int))
        if proposed:
            is_own[numbers[place]] = True
            alike = _compare(is_own, len(shingles), [numbers[other] for other in proposed])
            is_own[numbers[place]] = False
            yield from ((proposed[of], place) for of in np.flatnonzero(alike))
        bands.insert(place, signature)


def _number_shingles(sets: Sequence[Shingles]) -> list[NDArray[np.int64]]:
    """The sets with small numbers in place of the hashes, equal for equal ones."""
    _, numbers = np.unique(np.concatenate(sets), return_inverse=True)
    return np.split(numbers, np.cumsum([len(shingles) for shingles in sets])[:-1])


def _compare(is_own: NDArray[np.bool_], own_size: int, others: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Marks of those other sets that are similar to the one that `is_own` marks; all at once, for many pages may be alike."""
    sizes = np.array([len(other) for other in others])
    common = np.add.reduceat(is_own[np.concatenate(others)], np.cumsum(sizes) - sizes, dtype=np.int64)
    return common / (own_size + sizes - common) >= MIN_JACCARD


def is_similar(left: Shingles, right: Shingles) -> bool:
    """True if two sets, of which neither is empty, have a Jaccard similarity of `MIN_JACCARD` or more."""
    smaller, larger = sorted((len(left), len(right)))
    if smaller / larger < MIN_JACCARD:  # the similarity is no greater than that
        return False
    num_common = len(np.intersect1d(left, right, assume_unique=True))
    return num_common / (smaller + larger - num_common) >= MIN_JACCARD


TABLE_NAME = "near_duplicates.parquet"

NearDuplicates = Mapping[Evidence, Sequence[int]]
"""Numbers of each page that was compared. Two pages nearly duplicate each other if they share a number, and only then."""

NO_NEAR_DUPLICATES: NearDuplicates = MappingProxyType({})


def find_near_duplicates(pages: pa.Table | pl.DataFrame, evidence: Collection[Evidence]) -> NearDuplicates:
    """Compare the texts of those pages of a `PAGES` table that are evidence.

    Pages nearly duplicate each other if the Jaccard similarity of their texts' shingles is at least 0.8; the module says how they
    are compared. Their pictures are not looked at. The result depends on nothing but the pages. A page of 2,000 characters takes
    0.5 ms and 13 KB, and each pair that is worth comparing 10 µs: the cost grows with the square of the number of pages that are
    alike but not the same.
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
    """Number of pages with a near-duplicate."""
    return sum(bool(numbers) for numbers in near_duplicates.values())


def list_evidence(questions: Iterable[Question]) -> dict[Evidence, None]:
    """Each evidence page of the questions once, in their order."""
    return dict.fromkeys(page for question in questions for page in question.evidence)


def write_near_duplicates(stage_dir: Path, near_duplicates: NearDuplicates) -> None:
    """Write the table into the folder of the stage that made the questions."""
    rows = [(page.file, page.page_number, numbers) for page, numbers in near_duplicates.items()]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    write_parquet(stage_dir / TABLE_NAME, pa.table(columns, schema=schemas.NEAR_DUPLICATES))


def read_near_duplicates(index_dir: Path, questions: Iterable[Question], written_dir: Path | None = None) -> NearDuplicates:
    """The near-duplicates among the evidence of the questions and of those of the index.

    They are as recorded, or found now if a page of the questions was not evidence when they were: questions may come from
    elsewhere.

    Args:
        written_dir: the folder of the stage `questions`, where it is read: its table counts where that of the index is empty.

    Raises:
        DataError: a table is missing or unreadable.
    """
    table = schemas.read_table(index_dir / TABLE_NAME, schemas.NEAR_DUPLICATES)
    if written_dir and not table.num_rows:
        table = schemas.read_table(written_dir / TABLE_NAME, schemas.NEAR_DUPLICATES)
    rows = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
    recorded = {Evidence(file, page_number): numbers for file, page_number, numbers in rows}
    wanted = list_evidence(questions)
    if wanted.keys() <= recorded.keys():
        return recorded
    pages = schemas.read_table(index_dir / "pages.parquet", schemas.PAGES, ["file", "page_number", "text"])
    return find_near_duplicates(pages, {**recorded, **wanted})


def _select_texts(pages: pa.Table | pl.DataFrame, evidence: Collection[Evidence]) -> Iterable[tuple[Evidence, str]]:
    keys = {"file": [page.file for page in evidence], "page_number": [page.page_number for page in evidence]}
    wanted = pl.DataFrame(keys, schema={"file": pl.String, "page_number": pl.Int32})
    frame = pl.DataFrame(pages.select(["file", "page_number", "text"]))
    chosen = frame.join(wanted, on=["file", "page_number"], how="semi", maintain_order="left")
    return ((Evidence(file, page_number), text) for file, page_number, text in chosen.iter_rows())
