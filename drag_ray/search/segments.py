"""The segments that an index is merged from, kept beside it: that of changed pages is merged from them and from a few new ones.

    search_index_segments/
      *.idx, *.term, ...  segments of the first build, and those that later ones have added; none of these files ever changes
      meta.json           lists them, as Tantivy does; .managed.json too
      labels.npy          the labels of the pages of the index, int64, in their order
      stale.json          what in them is gone (see `Stale`)
      checksums.jsonl     the sizes and hashes of all these

Merging takes a tenth of the time of indexing. Segments are sorted by labels: those of pages are in the order of the pages, with
room between them for pages to come, and none is given twice. A merge leaves out pages that are gone, but estimates from rounded
lengths the tokens of the rest, which scores depend on. Their number is put right, so that an index is the same however it came
about.
"""

import json
import mmap
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from drag_ray.search.analyzer import build_analyzer
from drag_ray.search.page_table import map_pages
from drag_ray.search.shards import NUM_SHARDS, build_shards, count_pages, link_folder, merge_segments, open_index
from drag_ray.storage import artifacts
from drag_ray.storage.json_text import parse_json

STALE_NAME = "stale.json"
_LABELS_NAME = "labels.npy"
_GAP = 2**32
"""Between the labels of neighbours at first: new pages find room between the same two some 30 times."""
_MAX_ADDED, _MAX_STALE_SHARE = 64, 0.1
"""How often segments are added, and the share of stale pages, before all is indexed again."""
_MAX_RUNS = 10_000
"""How many runs of stale pages may be between others: Tantivy looks for each at all pages, so that with more it is no faster."""
_MAX_SEGMENT_PAGES = 16_000
"""To Tantivy's merge policy, segments up to this size are of one level."""
_TOKENS_BYTES = 8
_FIELD, _TEXT_FIELD = slice(2, 6), bytes(4)
"""The number of the first field in a list of them, and that of the text."""
_KEY = ["file", "page_number"]


@dataclass(frozen=True)
class Stale:
    """The pages in kept segments that are gone.

    Attributes:
        labels: ascending.
        tokens: how many they have together.
        num_added: how often segments were added.
    """

    labels: list[int]
    tokens: int = 0
    num_added: int = 0


@dataclass(frozen=True)
class Update:
    """The difference of the pages of an index from those in kept segments.

    Attributes:
        kept_dir: the folder of the segments; None where there are none.
        labels: of all pages, ascending.
        new: the rows of pages that are to be indexed.
        stale: what of the segments is gone then.
    """

    kept_dir: Path | None
    labels: np.ndarray
    new: np.ndarray
    stale: Stale


def plan_first(num_pages: int) -> Update:
    """All pages are to be indexed."""
    return Update(None, np.arange(num_pages, dtype=np.int64) * _GAP, np.arange(num_pages), Stale([]))


def plan_update(pages_path: Path, earlier_pages_path: Path, kept_dir: Path, analyzer_name: str) -> Update | None:
    """Compare the texts of pages with those of an earlier index; None where it is better to index all.

    Args:
        pages_path: the page table.
        earlier_pages_path: that of the earlier index.
        kept_dir: its segments.
    """
    pages, earlier = (_read_pages(path).with_row_index(name) for path, name in ((pages_path, "row"), (earlier_pages_path, "old")))
    if not (kept_dir / _LABELS_NAME).exists():  # segments of an earlier version
        return None
    known = np.load(kept_dir / _LABELS_NAME)
    joined = pages.join(earlier, on=_KEY, how="inner", maintain_order="left").filter(pl.col("text") == pl.col("text_right"))
    rows, old = (joined[name].to_numpy().astype(np.int64) for name in ("row", "old"))
    gone = np.setdiff1d(np.arange(earlier.height), old)
    before = Stale(**parse_json((kept_dir / STALE_NAME).read_text()))
    stale = np.union1d(np.array(before.labels, np.int64), known[gone])
    labels = _label(pages.height, rows, known[old], np.union1d(known, stale))
    is_of_it = count_pages(kept_dir) == earlier.height + len(before.labels)
    if not is_of_it or labels is None or len(stale) > _MAX_STALE_SHARE * pages.height or before.num_added == _MAX_ADDED:
        return None
    if len(_find_runs(stale, labels)) > _MAX_RUNS:
        return None
    new = np.setdiff1d(np.arange(pages.height), rows)
    analyzer = build_analyzer(analyzer_name)
    tokens = before.tokens + sum(len(analyzer.analyze(text)) for text in earlier["text"].gather(gone))
    return Update(kept_dir, labels, new, Stale(stale.tolist(), tokens, before.num_added + 1))


def _read_pages(path: Path) -> pl.DataFrame:
    return pl.DataFrame(map_pages(path).select([*_KEY, "text"]))


def _label(num_pages: int, rows: np.ndarray, labels: np.ndarray, used: np.ndarray) -> np.ndarray | None:
    """The labels of all pages: those of the pages at `rows`, and new ones that are in order with them; None where none are left.

    Args:
        used: all labels that were ever given, ascending.
    """
    ends = np.concatenate([[-1], rows, [num_pages]])
    lower = np.concatenate([[used[0] - _GAP * num_pages], labels])
    place = np.searchsorted(used, lower, "right")
    upper = np.append(used, used[-1] + _GAP * num_pages)[place]
    room = np.diff(ends)  # one more than the new pages between two that have labels
    step = (upper - lower) // room
    run = np.searchsorted(rows, np.arange(num_pages), "right")
    return None if (step < 1).any() else lower[run] + step[run] * (np.arange(num_pages) - ends[run])


def build_merged(
    texts: pa.ChunkedArray, update: Update, dirs: tuple[Path, Path], analyzer_name: str, documents: Sequence[int] = ()
) -> bool:
    """Write the segments of an index, those that are kept and those of the new pages, and merge them into it.

    Args:
        texts: of all pages.
        dirs: the folders of the segments, and of the index.
        documents: the places of the documents of all pages, where they have metadata.

    Returns:
        False where Tantivy has not made one segment of them: then all pages are to be indexed.
    """
    folder, tantivy_dir = dirs
    new = pa.chunked_array([pl.Series(texts).gather(update.new).to_arrow()]) if update.kept_dir else texts
    places = [documents[row] for row in update.new] if len(documents) else ()
    num_shards = max(NUM_SHARDS, -(-len(new) // _MAX_SEGMENT_PAGES))
    build_shards(new, update.labels[update.new], folder, analyzer_name, num_shards, places, update.kept_dir)
    artifacts.write_json(folder / STALE_NAME, asdict(update.stale))
    np.save(folder / _LABELS_NAME, update.labels)
    link_folder(folder, tantivy_dir)
    merge_segments(tantivy_dir, analyzer_name, _find_runs(np.array(update.stale.labels, np.int64), update.labels))
    searcher = open_index(tantivy_dir, analyzer_name).searcher()
    if (searcher.num_segments, searcher.num_docs) != (1, len(texts)):
        return False
    if update.stale.labels:
        [path] = tantivy_dir.glob("*.idx")
        _write_tokens(path, _count_tokens(folder) - update.stale.tokens)
    return True


def _find_runs(stale: np.ndarray, labels: np.ndarray) -> list[tuple[int, int]]:
    """The first and last of the stale labels between which no page has its own."""
    breaks = np.flatnonzero(np.diff(np.searchsorted(labels, stale))) + 1
    return [(int(run[0]), int(run[-1])) for run in np.split(stale, breaks) if len(run)]


def _count_tokens(folder: Path) -> int:
    """The tokens of the pages in all segments of a folder."""
    return sum(map(_read_tokens, folder.glob("*.idx")))


def _read_tokens(path: Path) -> int:
    """The number that a file of postings begins with, unless no page has a term: then the text is not in its list of fields."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        end = _find_end(content)
        [length] = struct.unpack("<I", content[end - 4 : end])
        first = content[end - 4 - length : end - 4][_FIELD]
        return int.from_bytes(content[:_TOKENS_BYTES], "little") if first == _TEXT_FIELD else 0


def _find_end(content: mmap.mmap) -> int:
    """The end of what comes before the JSON that each file of Tantivy ends with, its length and a mark in four bytes each."""
    return len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]


def _write_tokens(path: Path, tokens: int) -> None:
    """Write the number of tokens into a file of postings, and its checksum into the JSON at its end."""
    with path.open("r+b") as stream:
        stream.write(tokens.to_bytes(_TOKENS_BYTES, "little"))
        stream.flush()
        with mmap.mmap(stream.fileno(), 0) as content:
            end, mark = _find_end(content), content[-4:]
            footer = parse_json(content[end:-8].decode())
            with memoryview(content) as view:
                footer["crc"] = zlib.crc32(view[:end])
        written = json.dumps(footer, separators=(",", ":")).encode()
        stream.seek(end)
        stream.truncate()
        stream.write(written + struct.pack("<I", len(written)) + mark)
