"""Reciprocal rank fusion, beside sums by hand."""

import pytest

from drag_ray.search.hybrid import fuse_rankings
from drag_ray.types import Hit


def rank(*names: str) -> list[Hit]:
    return [Hit(name, 1, place, 100.0 - place) for place, name in enumerate(names, start=1)]


def test_a_page_has_the_sum_of_its_reciprocal_ranks() -> None:
    fused = fuse_rankings([rank("a", "b", "c"), rank("c", "a", "d")])
    assert [(hit.file, hit.rank) for hit in fused] == [("a", 1), ("c", 2), ("b", 3), ("d", 4)]
    assert [hit.score for hit in fused] == pytest.approx([1 / 61 + 1 / 62, 1 / 63 + 1 / 61, 1 / 62, 1 / 63])


def test_the_constant_says_how_much_the_first_ranks_stand_out() -> None:
    rankings = [rank("a", "b", "c"), rank("d", "b", "e")]
    assert fuse_rankings(rankings, k=60)[0].file == "b"
    assert [hit.file for hit in fuse_rankings(rankings, k=0)][:2] == ["a", "b"]  # 1 and 1/2 + 1/2: as good


def test_equal_scores_are_in_order_of_the_pages() -> None:
    first, second = Hit("b", 1, 1, 5.0), Hit("a", 7, 1, 0.1)
    assert [(hit.file, hit.page_number) for hit in fuse_rankings([[first], [second], [Hit("a", 3, 1, 9.0)]])] == [
        ("a", 3),
        ("a", 7),
        ("b", 1),
    ]


def test_one_ranking_keeps_its_order_and_none_gives_nothing() -> None:
    assert [hit.file for hit in fuse_rankings([rank("c", "a", "b"), []])] == ["c", "a", "b"]
    assert fuse_rankings([]) == fuse_rankings([[], []]) == []
