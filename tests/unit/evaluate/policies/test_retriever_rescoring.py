"""Results of policies by words and by vectors at once, searched again for the replies that they gave."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from embedding_models import write_cross_encoder, write_embedding_model, write_page_vectors
from factories import asked_at, build_question, build_search, build_trajectory, build_turn
from small_index import index_texts

from drag_ray.agent.environment import compute_evidence_rank
from drag_ray.baselines.dense import Dense, Hybrid
from drag_ray.baselines.question import RawQuestion
from drag_ray.baselines.rerank import Rerank, RerankedConfig
from drag_ray.engine.encoders.embedding import Embedder
from drag_ray.engine.models.relevance import EmbedderNote, write_note
from drag_ray.evaluate.policies.reranked_policies import order_by_vectors, time_questions
from drag_ray.evaluate.policies.retriever_rescoring import add_variants, search_by_both
from drag_ray.evaluate.results import compute_result
from drag_ray.evaluate.stage import choose_retrievers, find_trained_retrievers
from drag_ray.search.config import EmbeddingConfig
from drag_ray.search.dense import fuse_rankings
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence

TEXTS = ["rotor speed limit", "rotor load and load", "fuel pump filter", "speed of the wing", "wing spar and oil"]
QUESTION = build_question(id="q", question="rotor speed", evidence=(Evidence("a.pdf", 5),))


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    return index_texts(tmp_path_factory.mktemp("index"), TEXTS, "a.pdf")


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory, searcher: Searcher) -> Hybrid:
    folder: Path = tmp_path_factory.mktemp("vectors")
    write_page_vectors(searcher, write_embedding_model(folder / "embedding"), folder / "vectors")
    return Hybrid(folder / "vectors")


def test_what_a_policy_finds_is_reranked_whatever_finds_it(hybrid: Hybrid) -> None:
    baselines = {"question": RawQuestion(), "hybrid": hybrid, "rerank": Rerank()}
    assert list(choose_retrievers(baselines, "bm25")) == ["question", "hybrid", "rerank"]
    assert list(choose_retrievers(baselines, "dense")) == ["question", "rerank"]


def test_vectors_of_a_trained_model_are_known_by_its_note_or_by_its_copy_beside_them(searcher: Searcher, tmp_path: Path) -> None:
    fingerprint = searcher.record.fingerprint
    for stage in ("index", "embed"):
        write_page_vectors(searcher, write_embedding_model(tmp_path / stage / "named"), tmp_path / stage / "vectors")
    embedded, own = tmp_path / "embed" / "vectors", tmp_path / "index" / "vectors"
    baselines = {"dense": Dense(embedded), "hybrid": Hybrid(embedded), "index_dense": Dense(own), "question": RawQuestion()}
    assert find_trained_retrievers(baselines, fingerprint) == []
    write_note(tmp_path / "index" / "named", EmbedderNote(index_fingerprint=fingerprint))
    assert find_trained_retrievers(baselines, fingerprint) == ["index_dense"]
    (tmp_path / "embed" / "model").mkdir()
    assert find_trained_retrievers(baselines, fingerprint) == ["dense", "hybrid", "index_dense"]


def test_the_time_of_a_search_by_vectors_is_that_of_embedding_the_question_too(
    searcher: Searcher, hybrid: Hybrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[str] = []
    embed_queries = Embedder.embed_queries

    def embed_slowly(embedder: Embedder, texts: Sequence[str]) -> Any:
        embedded.extend(texts)
        time.sleep(0.05)
        return embed_queries(embedder, texts)

    monkeypatch.setattr(Embedder, "embed_queries", embed_slowly)
    found = time_questions(hybrid, searcher.index_dir, ["rotor", "fuel pump", "oil"])
    assert embedded[1:] == ["rotor", "fuel pump", "oil"]
    assert (found.num_questions, found.num_pages, found.device, found.gpu_gib) == (2, 0, "2 CPU cores", 0.0)
    assert found.median_ms >= 50


def test_the_start_of_a_reranker_orders_what_the_search_finds_by_its_vectors(searcher: Searcher, tmp_path: Path) -> None:
    start, model = write_embedding_model(tmp_path / "start", seed=1), write_cross_encoder(tmp_path / "trained")
    reranker = Rerank(RerankedConfig(model=str(model), start=str(start), depth=3))
    asked = [replace(QUESTION, id=f"q{number}", evidence=(Evidence("a.pdf", number),)) for number in range(1, 6)]
    ranks = order_by_vectors(reranker, searcher.index_dir, asked, 2)
    embedder = Embedder(EmbeddingConfig(model=str(start), window_tokens=32, overlap_tokens=0))
    numbers = [hit.page_number for hit in searcher.search(QUESTION.question, 3)]
    cosines = embedder.embed_pages([TEXTS[number - 1] for number in numbers]) @ embedder.embed_queries([QUESTION.question])[0]
    first, second, third = (numbers[place] for place in (-cosines).argsort())
    assert [first, second, third] != numbers
    expected = {f"q{number}": None for number in range(1, 6)} | {f"q{first}": 1, f"q{second}": 2}
    assert ranks == expected  # the third is beyond the depth of the results


def test_the_start_of_a_reranker_has_no_rank_where_the_search_finds_no_page(searcher: Searcher, tmp_path: Path) -> None:
    start, model = write_embedding_model(tmp_path / "start"), write_cross_encoder(tmp_path / "trained")
    reranker = Rerank(RerankedConfig(model=str(model), start=str(start), depth=3))
    alone = replace(QUESTION, id="alone", question="zebra", evidence=(Evidence("a.pdf", 1),))
    assert order_by_vectors(reranker, searcher.index_dir, [alone], 2) == {"alone": None}
    asked = [alone, replace(QUESTION, evidence=(Evidence("a.pdf", 3),), question="fuel")]
    assert order_by_vectors(reranker, searcher.index_dir, asked, 2) == {"alone": None, "q": 1}  # that of its own page


def test_what_a_policy_adds_is_searched_by_both_and_costs_no_token(searcher: Searcher, hybrid: Hybrid) -> None:
    turn = build_search("spar^2 oil", evidence_rank=None, hits=())
    rollout = build_trajectory(turn, question=QUESTION, query_mode="expand", question_weight=2.0)
    rewritten = build_trajectory(turn, question=QUESTION, query_mode="rewrite")
    added = search_by_both(
        {"question": [], "base": [rollout], "tuned": [rewritten]}, ["base", "tuned"], [], hybrid, searcher.index_dir
    )
    assert list(added) == ["base+hybrid", "tuned+hybrid"]
    index = hybrid.open_searcher(searcher)
    [expanded], [whole] = added["base+hybrid"], added["tuned+hybrid"]
    assert expanded.turns[0].ranking.hits == tuple(index.search_expanded("rotor speed", "spar^2 oil", 2.0, rollout.depth))
    assert whole.turns[0].ranking.hits == tuple(index.search("spar^2 oil", rollout.depth))
    assert expanded.turns[0].ranking.hits != whole.turns[0].ranking.hits != ()
    assert expanded.turns[0].ranking.evidence_rank == compute_evidence_rank(expanded.turns[0].ranking.hits, QUESTION.evidence)
    assert expanded.turns[0].reply.num_completion_tokens == turn.reply.num_completion_tokens


def test_a_reply_that_cannot_be_read_leaves_it_at_the_question_by_both(searcher: Searcher, hybrid: Hybrid) -> None:
    rollout = build_trajectory(build_turn(), question=QUESTION, query_mode="expand", **asked_at(None))
    [again] = search_by_both({"base": [rollout]}, ["base"], [], hybrid, searcher.index_dir)["base+hybrid"]
    hits = tuple(hybrid.open_searcher(searcher).search("rotor speed", rollout.depth))
    assert again.question_search.hits == hits
    assert compute_result(again).searches.first_search_rank == compute_evidence_rank(hits, QUESTION.evidence) is not None


def test_a_policy_of_several_turns_is_not_searched_again_and_that_is_said(
    searcher: Searcher, hybrid: Hybrid, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    rollout = build_trajectory(build_search(), build_search(), question=QUESTION)
    assert search_by_both({"base": [rollout]}, ["base"], [], hybrid, searcher.index_dir) == {}
    assert "base: took several turns" in caplog.text


def test_what_a_baseline_with_weighted_terms_searches_for_is_fused_with_the_vectors_of_the_question(
    searcher: Searcher, hybrid: Hybrid
) -> None:
    rollout = build_trajectory(build_search("spar^2 oil^1", evidence_rank=None, hits=()), question=QUESTION, query_mode="rewrite")
    failed = build_trajectory(question=QUESTION, query_mode="rewrite", error="no")
    rollouts = {"question": [rollout], "rm3": [rollout, failed], "base": [replace(rollout)]}
    added = search_by_both(rollouts, [], ["rm3"], hybrid, searcher.index_dir)
    assert list(added) == ["rm3+hybrid"]
    by_words = searcher.search_terms({"spar": 2.0, "oil": 1.0}, 100)
    by_vectors = hybrid.open_dense(searcher, []).search("rotor speed", 100)
    expected = tuple(fuse_rankings([by_words, by_vectors])[: rollout.depth])
    again, left = added["rm3+hybrid"]
    assert again.turns[0].ranking.hits == expected
    assert again.turns[0].ranking.evidence_rank == compute_evidence_rank(expected, QUESTION.evidence) is not None
    assert left == failed


def test_where_none_is_searched_again_nothing_is_embedded(searcher: Searcher) -> None:
    rollouts = {"question": [build_trajectory(build_search("rotor"), question=QUESTION)]}
    assert search_by_both(rollouts, [], [], Hybrid(Path("gone")), searcher.index_dir) == {}


def test_what_was_searched_again_stands_after_its_policy_and_a_baseline_in_its_place() -> None:
    old, new = ([build_trajectory(build_search(query), question=build_question(id="q"))] for query in ("rotor", "wing"))
    given = {"question": old, "rerank": old, "base": old, "tuned": old}
    found = {"base+rerank": new, "rerank": new, "base+hybrid": new, "tuned+hybrid": new}
    placed = add_variants(given, found)
    expected = ["question", "rerank", "base", "base+rerank", "base+hybrid", "tuned", "tuned+hybrid"]
    assert list(placed) == expected
    assert [name for name, rollouts in placed.items() if rollouts == new] == [
        "rerank",
        "base+rerank",
        "base+hybrid",
        "tuned+hybrid",
    ]
    assert all(placed[name] == old for name in ("question", "base", "tuned"))
