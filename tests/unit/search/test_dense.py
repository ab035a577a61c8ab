"""Dense and hybrid search over vectors made by hand, a dimension for each of a few words, and the fusion of rankings."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from drag_ray.errors import SearchIndexError
from drag_ray.search.dense import DenseSearcher, HybridSearcher, fuse_rankings, fuse_scores
from drag_ray.search.searcher import Searcher
from drag_ray.search.vectors import PROBE, PageVectors, VectorsRecord, write_vectors
from drag_ray.types import Hit

WORDS = {"rotor": 0, "propeller": 0, "fuel": 1, "petrol": 1, "wing": 2, "page": 3, "says": 3}
"""Words of one meaning share a dimension."""
TEXTS = ["rotor speed", "fuel pump", "wing spar and fuel", "", "wing rotor"]


class Embedding:
    """Counts of meanings, made to length 1; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.asked.append(list(texts))
        counts = np.full((len(texts), 4), 1e-3, np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                if word in WORDS:
                    counts[row, WORDS[word]] += 1
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


@pytest.fixture
def embed() -> Embedding:
    return Embedding()


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory, write_index: Callable[..., Path]) -> Searcher:
    return Searcher(write_index(tmp_path_factory.mktemp("dense"), TEXTS))


@pytest.fixture(scope="module")
def vectors(searcher: Searcher) -> PageVectors:
    embed = Embedding()
    rows = [row for row, text in enumerate(TEXTS) if text]
    parts = [(np.array(rows), embed([TEXTS[row] for row in rows]))]
    record = VectorsRecord(searcher.record.fingerprint, len(rows), 4, {"model": "words"}, embed([PROBE])[0].tolist())
    write_vectors(parts, searcher.index_dir.parent / "vectors", record)
    return PageVectors(searcher.index_dir.parent / "vectors", searcher.record.fingerprint)


def list_files(hits: Sequence[object]) -> list[str]:
    return [hit.file for hit in hits]  # type: ignore[attr-defined]


def test_pages_of_the_index_are_found_by_meaning(searcher: Searcher, vectors: PageVectors, embed: Embedding) -> None:
    dense = DenseSearcher(searcher, vectors, embed)
    assert searcher.search("petrol", 5) == []
    hits = dense.search("petrol", 5)
    assert list_files(hits[:2]) == ["file01.pdf", "file02.pdf"]
    assert [hit.rank for hit in hits] == [1, 2, 3, 4]  # the page without text is not found
    assert hits[0].score == pytest.approx(1, abs=1e-4)
    assert hits[1].score == pytest.approx(2**-0.5, abs=2e-3)
    assert dense.page(hits[0]).text == "fuel pump"
    assert len(dense.search("petrol", 2)) == 2


def test_a_text_is_embedded_once_and_many_at_once(searcher: Searcher, vectors: PageVectors, embed: Embedding) -> None:
    dense = DenseSearcher(searcher, vectors, embed)
    dense.prepare(["rotor", "fuel", "rotor"])
    dense.prepare(["fuel"])
    first = dense.search("fuel", 3)
    dense.search("wing", 3)
    dense.search("wing", 3)
    assert embed.asked == [[PROBE], ["rotor", "fuel"], ["wing"]]
    assert first == DenseSearcher(searcher, vectors, Embedding()).search("fuel", 3)


def test_blank_text_finds_nothing_and_top_k_0_is_an_error(searcher: Searcher, vectors: PageVectors, embed: Embedding) -> None:
    dense = DenseSearcher(searcher, vectors, embed)
    assert dense.search(" \n", 3) == []
    for asked in (dense, HybridSearcher(searcher, dense)):
        with pytest.raises(SearchIndexError, match="top_k 0: must be at least 1"):
            asked.search("fuel", 0)


@pytest.mark.parametrize("change", [lambda vectors: vectors[:, ::-1], lambda vectors: vectors[:, :3]])
def test_another_model_than_the_one_of_the_pages_is_refused(
    searcher: Searcher, vectors: PageVectors, embed: Embedding, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    with pytest.raises(SearchIndexError, match="the embedding model 'words' is no longer the one that made these vectors"):
        DenseSearcher(searcher, vectors, lambda texts: change(embed(texts)))


def test_hybrid_search_fuses_both_rankings_to_its_depth(searcher: Searcher, vectors: PageVectors, embed: Embedding) -> None:
    dense = DenseSearcher(searcher, vectors, embed)
    query = "propeller of the wing"
    both = [searcher.search(query, 4), dense.search(query, 4)]
    assert list_files(both[0]) != list_files(both[1])
    hybrid = HybridSearcher(searcher, dense, depth=4)
    assert hybrid.search(query, 3) == fuse_rankings(both)[:3]
    shallow = HybridSearcher(searcher, dense, depth=1)
    assert shallow.search(query, 1) == fuse_rankings([ranking[:1] for ranking in both])[:1]
    assert len(shallow.search(query, 3)) == 3  # at least as deep as what is asked for
    assert hybrid.page(hybrid.search(query, 1)[0]).text == "wing rotor"


def test_with_a_weight_hybrid_search_fuses_scores(searcher: Searcher, vectors: PageVectors, embed: Embedding) -> None:
    dense = DenseSearcher(searcher, vectors, embed)
    both = [searcher.search("wing rotor", 4), dense.search("wing rotor", 4)]
    hybrid = HybridSearcher(searcher, dense, depth=4).weigh(0.3)
    assert hybrid.search("wing rotor", 3) == fuse_scores(both[0], both[1], 0.3, 4)[:3]
    assert list_files(hybrid.weigh(1.0).search("wing rotor", 4)) == list_files(both[1])
    assert hybrid.weigh(None).search("wing rotor", 4) == fuse_rankings(both)[:4]


def test_what_is_added_to_a_question_is_searched_with_it_and_its_weights_left_to_the_words(
    searcher: Searcher, vectors: PageVectors, embed: Embedding
) -> None:
    dense = DenseSearcher(searcher, vectors, embed)
    assert dense.search_expanded("fuel", "wing^2 spar", 3, 4) == dense.search("fuel wing spar", 4)
    assert dense.search_expanded("fuel", "", 3, 4) == dense.search("fuel", 4)
    words = searcher.search_expanded("fuel", "wing^2 spar", 3, 5)
    expected = fuse_rankings([words, dense.search("fuel wing spar", 5)])[:3]
    assert HybridSearcher(searcher, dense, depth=5).search_expanded("fuel", "wing^2 spar", 3, 3) == expected


def rank(*names: str) -> list[Hit]:
    return [Hit(name, 1, place, 100.0 - place) for place, name in enumerate(names, start=1)]


def test_a_page_has_the_sum_of_its_reciprocal_ranks() -> None:
    fused = fuse_rankings([rank("a", "b", "c"), rank("c", "a", "d")])
    assert [(hit.file, hit.rank) for hit in fused] == [("a", 1), ("c", 2), ("b", 3), ("d", 4)]
    assert [hit.score for hit in fused] == pytest.approx([1 / 61 + 1 / 62, 1 / 63 + 1 / 61, 1 / 62, 1 / 63])


def test_a_page_has_the_mean_of_its_standardised_scores_counted_from_the_lowest_of_each_ranking() -> None:
    words, dense = [Hit("a", 1, 1, 12.0), Hit("b", 1, 2, 8.0)], [Hit("c", 1, 1, 0.9), Hit("a", 1, 2, 0.5)]
    # Full rankings of two: 1 and -1, so 2 and 0 from the lowest.
    assert [(hit.file, hit.score) for hit in fuse_scores(words, dense, 0.25, 2)] == [("a", 1.5), ("c", 0.5), ("b", 0.0)]
    # Words find no third page, so others have a score of 0 there.
    deviation = (((12 - 20 / 3) ** 2 + (8 - 20 / 3) ** 2 + (20 / 3) ** 2) / 3) ** 0.5
    fused = {hit.file: hit.score for hit in fuse_scores(words, dense, 0.25, 3)}
    assert fused == {"a": pytest.approx(9 / deviation), "b": pytest.approx(6 / deviation), "c": pytest.approx(0.5)}
    assert fuse_scores([], [], 0.5, 3) == []
    assert [hit.file for hit in fuse_scores([], dense, 0.5, 3)] == ["c", "a"]


def test_equal_scores_are_in_order_of_the_pages() -> None:
    first, second = Hit("b", 1, 1, 5.0), Hit("a", 7, 1, 0.1)
    assert [(hit.file, hit.page_number) for hit in fuse_rankings([[first], [second], [Hit("a", 3, 1, 9.0)]])] == [
        ("a", 3),
        ("a", 7),
        ("b", 1),
    ]
    assert [hit.file for hit in fuse_rankings([rank("c", "a", "b"), []])] == ["c", "a", "b"]
    assert fuse_rankings([]) == fuse_rankings([[], []]) == []
