"""Near-duplicates among manual entries, which must stay on one side of a split.

The packages repeat themselves: the four polars frames, pandas' Series and DataFrame, numpy's polynomial
families.  Knowing one such page is knowing the others, so near-duplicates are put into one group.
"""

import re
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from drag_ray.corpus.components import compute_components
from drag_ray.examples.manual_entries import ManualEntry

_SHINGLE_WORDS = 3
_MIN_JACCARD = 0.5
# A shingle on more pages than this is boilerplate (`axis int default None`): it tells nothing and costs most of the time.
_MAX_SHINGLE_PAGES = 60
_WORD = re.compile(r"[a-z]+")


def compute_groups(entries: Sequence[ManualEntry]) -> list[str]:
    """The group of each entry: the name of the first of its near-duplicates.

    Near-duplicates have the same first sentence, or the same last name in one namespace family (`Series.str.cat` and
    `Index.str.cat` of pandas), or bodies whose word 3-shingles have a Jaccard similarity of at least 0.5, own
    names and boilerplate aside.  The relation is taken as transitive.
    """
    keys: list[list[object]] = [
        [("sentence", normalise(entry.sentence) or entry.name), ("name", entry.package, entry.name.rpartition(".")[2])]
        for entry in entries
    ]
    for left, right in _find_similar_bodies(entries):
        keys[left].append(("bodies", left, right))
        keys[right].append(("bodies", left, right))
    return [entries[first].name for first in compute_components(keys)]


def normalise(text: str) -> str:
    """Lower-case words of letters, one space apart."""
    return " ".join(_WORD.findall(text.lower()))


def _find_similar_bodies(entries: Sequence[ManualEntry]) -> list[tuple[int, int]]:
    """Pairs of entries whose bodies are similar, by exact counts of common shingles in a sparse product."""
    columns: dict[tuple[str, ...], int] = {}
    rows, places = [], []
    for row, entry in enumerate(entries):
        shingles = {columns.setdefault(shingle, len(columns)) for shingle in _compute_shingles(entry)}
        rows.extend([row] * len(shingles))
        places.extend(shingles)
    ones = np.ones(len(rows), dtype=np.int32)
    matrix = sparse.csr_array((ones, (rows, places)), shape=(len(entries), max(len(columns), 1)))
    informative = np.flatnonzero(np.asarray(matrix.sum(axis=0)).ravel() <= _MAX_SHINGLE_PAGES)
    matrix = matrix[:, informative]
    sizes = np.asarray(matrix.sum(axis=1)).ravel()
    common = sparse.coo_array(sparse.triu(matrix @ matrix.T, k=1))
    left, right = common.coords
    similar = common.data >= _MIN_JACCARD * (sizes[left] + sizes[right] - common.data)
    return list(zip(left[similar].tolist(), right[similar].tolist(), strict=True))


def _compute_shingles(entry: ManualEntry) -> set[tuple[str, ...]]:
    own_words = set(_WORD.findall(entry.name.lower()))
    words = [word for word in _WORD.findall(f"{entry.sentence} {entry.body}".lower()) if word not in own_words]
    return {tuple(words[start : start + _SHINGLE_WORDS]) for start in range(len(words) - _SHINGLE_WORDS + 1)}
