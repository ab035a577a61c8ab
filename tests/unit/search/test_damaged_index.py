"""Damaged index files: an index that is to be opened is looked at first, and whatever is met later is an error of ours."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drag_ray.errors import SearchIndexError
from drag_ray.search import ranker
from drag_ray.search.page_table import PageTable
from drag_ray.search.searcher import Searcher
from drag_ray.storage import checksums
from drag_ray.types import Page

WriteIndex = Callable[..., Path]
QUERIES = ("w1 w2 w3", "w7", '"w10 w11"', "w1*", "w? NOT w3")


@pytest.fixture(scope="module")
def index_dir(tmp_path_factory: pytest.TempPathFactory, write_index: WriteIndex) -> Path:
    words = random.Random(0)
    texts = [" ".join(f"w{words.randrange(60)}" for _ in range(20)) for _ in range(300)]
    pages = [Page(f"{number // 10:02}.pdf", number % 10 + 1, 10, text) for number, text in enumerate(texts)]
    return write_index(tmp_path_factory.mktemp("damaged"), pages)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the damage were in a part of a large file that a quick look does not see."""
    monkeypatch.setattr(ranker, "check_files", lambda index_dir: None)


@pytest.fixture(params=["arrow", "fast", "fieldnorm", "idx", "pos", "store", "term", "json"])
def victim(request: pytest.FixtureRequest, index_dir: Path) -> Iterator[Path]:
    """One file of each kind, which is whole again after the test."""
    path = next(path for path in sorted(index_dir.rglob(f"*.{request.param}")) if path.name != "index.json")
    data = path.read_bytes()
    yield path
    write_anew(path, data)


def write_anew(path: Path, data: bytes) -> None:
    """Leave what is mapped of the file as it is."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]


def ask(searcher: Searcher, errors: list[str]) -> None:
    """Everything that reads the index; anything but a SearchIndexError gets through."""
    for query in QUERIES:
        try:
            for hit in searcher.search(query, 5):
                searcher.page(hit)
                searcher.snippet(hit, query)
            searcher.search("w9", 3, files=["03.pdf"])
            searcher.search_terms({"w5": 2.0}, 3)
            searcher.doc_freq("w6")
        except SearchIndexError as error:
            errors.append(str(error))


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_a_damaged_file_is_named_before_the_index_is_opened(index_dir: Path, victim: Path, damage: str) -> None:
    data = victim.read_bytes()
    if damage == "delete":
        victim.unlink()
    else:
        write_anew(victim, flip(data, len(data) // 2) if damage == "flip" else data[:-1])
    with pytest.raises(SearchIndexError, match=rf"{victim.name}: .* written.*jobs/index\.py --verify"):
        Searcher(index_dir)


@pytest.mark.seconds
@pytest.mark.usefixtures("unchecked")
def test_no_flipped_byte_lets_a_native_panic_out(index_dir: Path, victim: Path) -> None:
    data = victim.read_bytes()
    errors: list[str] = []
    # Where the file describes itself, at its beginning and its end, and some places between.
    for place in {*range(0, 40, 3), *range(len(data) // 2, len(data), len(data) // 20), *range(len(data) - 60, len(data), 3)}:
        write_anew(victim, flip(data, place))
        try:
            searcher = Searcher(index_dir, syntax="query")
        except SearchIndexError as error:
            errors.append(str(error))
        else:
            ask(searcher, errors)
    assert errors or victim.suffix in (".fieldnorm", ".pos", ".store")
    assert any("PanicException" in error for error in errors) or victim.suffix != ".fast"


@pytest.mark.usefixtures("unchecked")
def test_no_damage_under_an_open_index_lets_a_native_panic_out(index_dir: Path, victim: Path) -> None:
    errors: list[str] = []
    searcher = Searcher(index_dir, syntax="query")
    with victim.open("r+b") as stream:  # the file that is mapped
        stream.write(b"\xff" * victim.stat().st_size)
    ask(searcher, errors)
    assert errors or victim.suffix in (".arrow", ".fieldnorm", ".store", ".json", ".term")
    assert all("python jobs/index.py --verify" in error for error in errors)


def test_a_page_table_with_damaged_offsets_is_refused_and_not_read_past_its_end(index_dir: Path) -> None:
    """Counting the files over such offsets would end the process."""
    path = index_dir / "pages.arrow"
    data = path.read_bytes()
    offsets = b"".join(place.to_bytes(8, "little") for place in range(0, 30, 6))  # of the first names, of six characters each
    place = data.index(offsets) + 16
    write_anew(path, data[:place] + (2**40).to_bytes(8, "little") + data[place + 8 :])
    try:
        with pytest.raises(SearchIndexError, match="cannot be read"):
            PageTable(path)
    finally:
        write_anew(path, data)


def test_an_index_without_its_list_of_files_is_refused(tmp_path: Path, write_index: WriteIndex) -> None:
    index_dir = write_index(tmp_path, ["rotor"])
    lines = (index_dir / checksums.LIST_NAME).read_text().splitlines(keepends=True)
    for content in ("{", '{"path": "pages.arrow"}', "", "".join(lines[:-1])):
        (index_dir / checksums.LIST_NAME).write_text(content)
        with pytest.raises(SearchIndexError, match=r"checksums\.jsonl.*jobs/index\.py"):
            Searcher(index_dir)
    (index_dir / checksums.LIST_NAME).unlink()
    with pytest.raises(SearchIndexError, match=r"checksums\.jsonl.*jobs/index\.py"):
        Searcher(index_dir)
