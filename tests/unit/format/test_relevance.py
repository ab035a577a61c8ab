"""Rows for a reranker: the evidence of each question, and pages that are found for it and are none."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import polars as pl
import pytest
from factories import build_page, build_question, build_search, build_trajectory
from small_index import write_index

from drag_ray.errors import DataError
from drag_ray.format.config import FormatConfig
from drag_ray.format.examples import SupervisedExample
from drag_ray.format.leaks import PageChecker
from drag_ray.format.rows.relevance import FORMAT, PageRow, build_rows
from drag_ray.format.tables import ScoredPart
from drag_ray.types import Evidence

TEXTS = [
    "The rotor may turn at 340 rpm. " + "It is made of steel. " * 40,
    "The rotor of the pump is steel.",
    "The rotor is oiled.",
    "",
    "Fuel filter.",
]
QUESTION = build_question(question="How fast may the rotor turn?", evidence=(Evidence("a.pdf", 1), Evidence("a.pdf", 4)))
SIDES = pl.DataFrame({"question_id": ["q1"], "side": ["train"]})


@pytest.fixture
def part(tmp_path: Path, process: Callable[..., ScoredPart]) -> ScoredPart:
    pages = [build_page(file="a.pdf", page_number=number, text=text) for number, text in enumerate(TEXTS, 1)]
    write_index(tmp_path / "index", pages, [])
    rollouts = [build_trajectory(build_search("a", 1), question=QUESTION, sample_index=number) for number in range(2)]
    return replace(process(*rollouts), index_dir=tmp_path / "index")


def test_evidence_and_pages_that_are_found_and_are_none_stand_beside_each_other(part: ScoredPart) -> None:
    rows = build_rows(part, FormatConfig(relevance_chars=60))
    pages = {row["page_number"]: row for row in rows.iter_rows(named=True)}
    assert {number: row["is_evidence"] for number, row in pages.items()} == {1: True, 2: False, 3: False}  # 4 has no text
    assert len(pages) == rows.height  # a question of several rollouts is asked once
    assert "340 rpm" in pages[1]["passage"]
    assert len(pages[1]["passage"]) <= 60
    assert pages[2]["passage"] == TEXTS[1]
    examples = {number: FORMAT.to_example(cast(PageRow, page)) for number, page in pages.items()}
    answers = {number: example.messages[-1] for number, example in examples.items() if isinstance(example, SupervisedExample)}
    assert [answers[number]["content"] for number in (1, 2, 3)] == ["yes", "no", "no"]


def test_so_many_pages_are_drawn_and_the_same_ones_again(part: ScoredPart) -> None:
    drawn = [build_rows(part, FormatConfig(relevance_pages=1, seed=seed)) for seed in (0, 0, 1, 2, 3, 4, 5, 6, 7)]
    assert [rows["is_evidence"].sum() for rows in drawn] == [1] * 9
    assert {rows.height for rows in drawn} == {2}
    assert drawn[0].equals(drawn[1])
    assert len({rows.filter(~pl.col("is_evidence"))["page_number"].item() for rows in drawn}) == 2


def test_without_an_index_there_are_none(part: ScoredPart) -> None:
    assert build_rows(replace(part, index_dir=None), FormatConfig()).is_empty()


def test_a_page_that_is_called_what_it_is_not_is_caught(part: ScoredPart) -> None:
    rows = build_rows(part, FormatConfig())
    PageChecker(part, SIDES).check(rows, "train", "train.parquet")
    swapped = rows.with_columns(is_evidence=~pl.col("is_evidence"))
    with pytest.raises(DataError, match=r"train\.parquet: row 1 of question 'q1' leaks: its page is not what it says"):
        PageChecker(part, SIDES).check(swapped, "train", "train.parquet")
    with pytest.raises(DataError, match="its question is not on the validation side"):
        PageChecker(part, SIDES).check(rows, "validation", "validation.parquet")
