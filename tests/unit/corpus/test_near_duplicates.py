from pathlib import Path

import pyarrow as pa
import pytest

from drag_ray import schemas
from drag_ray.corpus.near_duplicates import (
    count_near_duplicates,
    find_near_duplicates,
    read_near_duplicates,
    write_near_duplicates,
)
from drag_ray.errors import DataError
from drag_ray.storage import artifacts
from drag_ray.types import Evidence, Page, Question

ROTOR = "The main rotor turns at three hundred and forty revolutions a minute at rated power, and never faster than that " * 2
FUEL = "Fuel flows from the two wing tanks through the selector valve and the filter to the pump that the engine drives by a belt"
TEXTS = {1: ROTOR, 2: FUEL, 3: ROTOR.upper(), 4: f"{ROTOR} See chapter nine.", 5: "Blank", 6: "Blank", 7: ROTOR}


def build_pages(texts: dict[int, str]) -> pa.Table:
    pages = [Page("a.pdf", number, len(texts), text) for number, text in texts.items()]
    return schemas.to_table(pages, schemas.PAGES)


def list_pages(*numbers: int) -> list[Evidence]:
    return [Evidence("a.pdf", number) for number in numbers]


def test_pages_share_a_number_if_they_nearly_duplicate_each_other_and_only_then() -> None:
    found = find_near_duplicates(build_pages(TEXTS), list_pages(1, 2, 3, 4, 5, 6))
    assert list(found) == list_pages(1, 2, 3, 4, 5, 6)
    pairs = {
        (one.page_number, other.page_number)
        for one, numbers in found.items()
        for other, others in found.items()
        if one.page_number < other.page_number and set(numbers) & set(others)
    }
    assert pairs == {(1, 3), (1, 4), (3, 4)}
    assert count_near_duplicates(found) == 3


def test_a_chain_is_not_one_set_of_near_duplicates() -> None:
    words = [f"w{number}" for number in range(60)]
    texts = {1: words[:44], 2: words[:50], 3: words[:57]}
    found = find_near_duplicates(build_pages({number: " ".join(text) for number, text in texts.items()}), list_pages(1, 2, 3))
    first, second, third = (set(found[page]) for page in list_pages(1, 2, 3))
    assert (first & second, second & third) == (second - third, second - first)
    assert not first & third


def test_what_was_found_is_read_again(tmp_path: Path) -> None:
    found = find_near_duplicates(build_pages(TEXTS), list_pages(1, 2, 3))
    write_near_duplicates(tmp_path, found)
    questions = [Question("q", "?", tuple(list_pages(1, 3)))]
    assert read_near_duplicates(tmp_path, questions) == found


def test_evidence_that_the_index_stage_did_not_compare_is_compared_with_all_of_it(tmp_path: Path) -> None:
    artifacts.write_parquet(tmp_path / "pages.parquet", build_pages(TEXTS))
    write_near_duplicates(tmp_path, find_near_duplicates(build_pages(TEXTS), list_pages(1, 2)))
    elsewhere = Question("q", "?", (*list_pages(7), Evidence("lost.pdf", 1)))
    found = read_near_duplicates(tmp_path, [elsewhere])
    one, fuel, other = (found[page] for page in list_pages(1, 2, 7))
    assert (one, list(fuel)) == (other, [])
    assert len(one) == 1


def test_no_evidence_makes_an_empty_table(tmp_path: Path) -> None:
    write_near_duplicates(tmp_path, find_near_duplicates(build_pages(TEXTS), []))
    assert read_near_duplicates(tmp_path, []) == {}


def test_a_missing_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"near_duplicates\.parquet: no such file"):
        read_near_duplicates(tmp_path, [])
