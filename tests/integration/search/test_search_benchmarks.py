"""The parts of the search benchmarks that a wrong number would come from."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from bench_search_speed import compare_with, rotate
from factories import build_page
from search_engines import ENGINES
from search_scale import CHANGED_SHARE, write_copies

TEXTS = ["the rotor turns at 340 revolutions", "fuel pumps and fuel tanks", "a turning blade of the rotor", "weather"] * 3
PAGES = [build_page(page_number=number, text=text) for number, text in enumerate(TEXTS, start=1)]


@pytest.mark.parametrize("name", ["drag_ray", "whoosh", "sqlite_fts5"])
def test_an_engine_stems_joins_by_or_and_fetches_the_page(name: str, tmp_path: Path) -> None:
    engine = ENGINES[name]()
    engine.prepare(PAGES, tmp_path)
    engine.build(PAGES, tmp_path)
    search = engine.open(tmp_path)
    found = search("Which fuels does the pump take?", 3)
    assert sorted(found) == [("manual.pdf", number, "fuel pumps and fuel tanks") for number in (2, 6, 10)]
    assert len(search("rotors and fuel", 12)) == 9
    assert search("unheard", 3) == []


def test_copies_change_a_share_of_the_words_and_nothing_of_the_first_copy(tmp_path: Path) -> None:
    write_copies(PAGES, 1_000, tmp_path / "pages.parquet")
    table = pq.read_table(tmp_path / "pages.parquet")
    assert table.num_rows == 1_000
    texts = table["text"].to_pylist()
    assert texts[: len(TEXTS)] == TEXTS
    assert len(set(zip(table["file"].to_pylist(), table["page_number"].to_pylist(), strict=True))) == 1_000
    pairs = [
        (word, other)
        for row, text in enumerate(texts[len(TEXTS) :])
        for word, other in zip(text.split(), TEXTS[row % len(TEXTS)].split(), strict=True)
    ]
    changed = sum(word != other for word, other in pairs) / len(pairs)
    assert changed == pytest.approx(CHANGED_SHARE, abs=0.03)
    assert {word for word, _ in pairs} <= {word for text in TEXTS for word in text.split()}


def test_ratios_are_taken_within_a_round() -> None:
    ratios = compare_with("slow", {"slow": [1.0, 2.0, 4.0], "fast": [10.0, 40.0, 20.0]})
    assert ratios["fast"] == {"median": 10.0, "min": 5.0, "max": 20.0}
    assert [rotate("abc", number) for number in range(3)] == [list("abc"), list("bca"), list("cab")]
