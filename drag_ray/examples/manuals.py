"""The embedded corpus of manuals: reference manuals of installed packages, as PDFs, with questions.

Nobody wrote this text for a benchmark. A page is an entry without the first sentence of its docstring; the
question is that sentence, the evidence every page whose entry is summarised by it.

The packages repeat themselves: the four polars frames, pandas' Series and DataFrame, numpy's polynomial
families. Knowing one such page is knowing the others, so near-duplicates are put into one group, on one side of a split.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from drag_ray.corpus.split import compute_components
from drag_ray.errors import ConfigError
from drag_ray.examples.manual_chapters import MAX_EVIDENCE_PAGES, QUESTIONS_NAME, gather_chapters, take_chapters, write_chapters
from drag_ray.examples.manual_entries import ManualEntry, read_entries
from drag_ray.storage import artifacts

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


_MIN_BODY_CHARS = 80
_QUESTION_WORDS = range(4, 41)
_REFERENCES = ("see ", "alias ", "refer ", "in-place version", "out-of-place version")


def build_manuals(out_dir: Path, packages: Sequence[str], limit_pages: int = 0) -> None:
    """Write `out_dir/<package>/<module>.pdf`, one page an entry, and `out_dir/questions.jsonl`.

    With a limit, every package gives an even share of the pages, whole modules as far as they fit.

    Raises:
        ConfigError: a package cannot be imported, or has no documented names.
    """
    manual: list[ManualEntry] = []
    for position, package in enumerate(packages):
        entries = read_entries(package)
        if not entries:
            raise ConfigError(
                f"corpus.manual_packages: {package!r} has no public names with docstrings. Take it out of the list."
            )
        # What earlier packages left over goes to the later ones.
        share = -(-(limit_pages - len(manual)) // (len(packages) - position))
        manual += take_chapters(entries, share) if limit_pages else entries
    chapters = gather_chapters(manual).items()
    places = write_chapters(out_dir, {f"{entries[0].package}/{module}.pdf": entries for module, entries in chapters})
    artifacts.write_jsonl(out_dir / QUESTIONS_NAME, _phrase_questions(manual, places))


def _phrase_questions(entries: Sequence[ManualEntry], places: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    groups = compute_groups(entries)
    same_sentence: dict[str, list[int]] = defaultdict(list)
    for index, entry in enumerate(entries):
        same_sentence[normalise(entry.sentence)].append(index)
    rows: list[dict[str, Any]] = []
    for indices in same_sentence.values():
        if not any(_is_askable(entries[index]) for index in indices) or len(indices) > MAX_EVIDENCE_PAGES:
            continue
        first = entries[indices[0]]
        rows.append(
            {
                "id": f"manual-{first.name}",
                "question": first.sentence,
                "evidence": [places[entries[index].name] for index in indices],
                "answers": [entries[index].name for index in indices],
                "category": first.package,
                "group": groups[indices[0]],
            }
        )
    return rows


def _is_askable(entry: ManualEntry) -> bool:
    refers = entry.sentence.lower().startswith(_REFERENCES)
    return len(entry.body) >= _MIN_BODY_CHARS and len(entry.sentence.split()) in _QUESTION_WORDS and not refers
