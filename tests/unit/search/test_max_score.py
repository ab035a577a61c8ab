"""Skipping common words changes no ranking."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tantivy import Query

from drag_ray.search import max_score
from drag_ray.search.query import Budget, build_query, read_weights, weigh_terms
from drag_ray.search.ranker import Ranker, Ranking
from drag_ray.search.syntax import And, Bag, Boost, Not, Or, Pattern, Term

WriteIndex = Callable[..., Path]
NUM_WORDS = 120


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory, write_index: WriteIndex) -> Ranker:
    """1,500 pages whose words follow Zipf's law, with repetitions of whole pages."""
    random = np.random.default_rng(1)
    shares = 1 / np.arange(1, NUM_WORDS + 1)
    texts = [
        " ".join(f"w{word}" for word in random.choice(NUM_WORDS, size=random.integers(5, 60), p=shares / shares.sum()))
        for _ in range(1_200)
    ]
    return Ranker(write_index(tmp_path_factory.mktemp("max_score"), texts + texts[:300]))


def rank_all(ranker: Ranker, weights: dict[str, float], top_k: int) -> Ranking:
    budget = Budget(60_000)
    query = build_query(weigh_terms(weights), ranker._reader, budget)
    return ranker._rank(ranker._run(query), top_k, budget)


@pytest.fixture
def num_skips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Skips even where it does not pay; holds the number of essential terms of each attempt."""
    monkeypatch.setattr(max_score, "_MIN_POSTINGS", -1)
    monkeypatch.setattr(max_score, "_LOOKUP_COST", 0.0)
    skips: list[int] = []
    nest = max_score._nest

    def nest_and_note(terms: list[max_score._Term], num_essential: int) -> Query:
        skips.append(num_essential)
        return nest(terms, num_essential)

    monkeypatch.setattr(max_score, "_nest", nest_and_note)
    return skips


@pytest.mark.parametrize("top_k", [1, 3, 10, 100, 1_500])
def test_rankings_are_those_of_reading_everything(ranker: Ranker, num_skips: list[int], top_k: int) -> None:
    random = np.random.default_rng(top_k)
    for _ in range(30):
        words = random.choice(NUM_WORDS, size=random.integers(1, 9), replace=False)
        weights = {f"w{word}": float(random.choice([1.0, 1.0, 2.0, 0.3])) for word in words}
        found = ranker.rank_terms(weights, top_k)
        assert found == [(pytest.approx(score, rel=1e-5), row) for score, row in rank_all(ranker, weights, top_k)]
    assert len(num_skips) > 15


def test_only_bags_of_words_have_weights() -> None:
    assert read_weights(Or((Term("a"), Boost(Term("b"), 2.0), Term("a")))) == {"a": 2.0, "b": 2.0}
    assert read_weights(Term("a")) == {"a": 1.0}
    assert read_weights(Bag({"a": 0.5, "b": 2.0})) == {"a": 0.5, "b": 2.0}
    assert read_weights(Bag({"a": 0.5, "b": 0.0})) is None
    for node in (None, And((Term("a"), Term("b"))), Or((Term("a"), Not(Term("b")))), Pattern("a*"), Or((Boost(Term("a"), 0.0),))):
        assert read_weights(node) is None


def test_unknown_terms_add_nothing_and_weights_of_terms_that_are_one_add_up(ranker: Ranker) -> None:
    assert ranker.rank_terms({"missing": 1.0, "w1": 1.0}, 5) == ranker.rank_terms({"w1": 1.0}, 5)
    assert ranker.rank_terms({"missing": 1.0, "lost": 2.0}, 5) == []
    assert weigh_terms({"a\ud800": 1.0, "a": 2.0}) == Bag({"a": 3.0})
    assert weigh_terms({}) is None
