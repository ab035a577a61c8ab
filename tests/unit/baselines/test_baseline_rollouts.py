"""Every baseline as a rollout: what it asks for, what is recorded, what it sees."""

import asyncio
import pickle

import pytest
from embedding_models import write_cross_encoder, write_embedding_model, write_page_vectors
from factories import build_question
from scripted_engine import ScriptedEngine
from small_index import index_texts

from drag_ray.agent.config import AgentConfig, Example, RerankOptions
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.baselines.baseline import Baseline
from drag_ray.baselines.dense import Dense, Hybrid, IndexDense, IndexHybrid
from drag_ray.baselines.passages import Hyde, PassageConfig, PassageExample, Query2doc
from drag_ray.baselines.question import RawQuestion
from drag_ray.baselines.registry import BASELINES
from drag_ray.baselines.rerank import Rerank, RerankedConfig
from drag_ray.baselines.rollouts import BaselineOptions, build_rollouts
from drag_ray.engine.encoders.embedding import Embedder
from drag_ray.engine.generate import GenerateFn, Request
from drag_ray.errors import PromptTooLongError
from drag_ray.search.dense import fuse_rankings
from drag_ray.search.searcher import Searcher
from drag_ray.search.vectors import PROBE
from drag_ray.types import ActionKind, Evidence, StopReason, Trajectory

QUESTION = build_question(question="How fast may the rotor turn?", evidence=(Evidence("manual.pdf", 2),))
PASSAGE = "The rotor may turn at <b>340</b> revolutions; 340 is its limit. </think> Rotor limits"
DRAWN = "<search>rotor limits</search>"
EXAMPLE = PassageExample("Where is the fuel pump?", "The fuel pump is behind the tank.")
PREPARED: dict[str, Baseline] = {
    **{name: baseline() for name, baseline in BASELINES.items()},
    "hyde": Hyde(PassageConfig(max_tokens=77)),
    "query2doc": Query2doc(PassageConfig(max_tokens=77), (EXAMPLE,)),
}


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    folder = tmp_path_factory.mktemp("policies")
    texts = ["rotor rotor blade fast", "rotor limit 340 revolutions", "fuel pump", "turn left", "a may day"]
    searcher = index_texts(folder, texts)
    write_page_vectors(searcher, write_embedding_model(folder / "model"), folder / "vectors")
    write_cross_encoder(folder / "cross_encoder", seed=3)
    return searcher


def prepare(searcher: Searcher) -> dict[str, Baseline]:
    vectors_dir = searcher.index_dir.parent / "vectors"
    rerank = Rerank(RerankedConfig(model=str(searcher.index_dir.parent / "cross_encoder"), depth=3))
    return {
        **PREPARED,
        **{baseline.name: baseline(vectors_dir) for baseline in (Dense, IndexDense, Hybrid, IndexHybrid)},
        "rerank": rerank,
    }


def ask(name: str, searcher: Searcher, engine: GenerateFn | None = None, **agent: object) -> Trajectory:
    config = AgentConfig(**{"top_k": 2, "max_tokens": 9, **agent})  # type: ignore[arg-type]
    options = pickle.loads(pickle.dumps(BaselineOptions(config, prepare(searcher))))  # as on its way to a worker
    rollouts = build_rollouts(name, options, searcher, engine, Policy("tiny", "adapter"))
    return asyncio.run(rollouts.run(RolloutTask(QUESTION, 0, "greedy", 7, baseline=name)))


def write(request: Request) -> str:
    """A passage where one is asked for, else what the agent asks for: a search."""
    if "assage" in request.messages[-1]["content"]:
        return PASSAGE
    return get_protocol("tools").render_search("rotor limits") if request.tools else DRAWN


@pytest.mark.parametrize("protocol", ["tags", "tools"])
@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.seconds
def test_a_baseline_searches_once_and_is_scored_like_any_policy(name: str, protocol: str, searcher: Searcher) -> None:
    trajectory = ask(name, searcher, ScriptedEngine(write), protocol=protocol)
    assert trajectory.error == ""
    assert trajectory.id == f"{QUESTION.id}/greedy/0/{name}"
    uses_engine = BASELINES[name].uses_engine
    assert (trajectory.provenance.model, trajectory.provenance.adapter) == (
        (f"{name}:tiny", "adapter") if uses_engine else (name, "")
    )
    [turn] = trajectory.turns
    assert turn.action is ActionKind.SEARCH
    assert trajectory.stop_reason is StopReason.MAX_ITERATIONS
    assert [hit.page_number for hit in turn.ranking.hits].index(2) + 1 == turn.ranking.evidence_rank
    assert turn.ranking.rank_score == {1: 1.0, 2: 0.5}.get(turn.ranking.evidence_rank or 0, 0.0)
    assert trajectory.provenance.index_fingerprint == searcher.record.fingerprint


@pytest.mark.parametrize(("name", "query"), [("question", QUESTION.question), ("question_keywords", "fast rotor turn")])
def test_the_question_is_the_query_whatever_the_agent_is_shown(name: str, query: str, searcher: Searcher) -> None:
    examples = (Example(question="Where is the fuel?", query="fuel"),)
    assert ask(name, searcher, examples=examples).turns[0].query == query


def test_rm3_records_the_weighted_terms_that_it_searched(searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drag_ray.baselines.rm3._MAX_PAGE_SHARE", 1)
    [turn] = ask("rm3", searcher).turns
    weights = dict(part.split("^") for part in turn.query.split())
    assert sum(map(float, weights.values())) == pytest.approx(1, abs=1e-4)
    assert {"rotor", "blade", "limit"} <= set(weights)
    assert [hit.page_number for hit in turn.ranking.hits] == [
        hit.page_number for hit in searcher.search_terms({term: float(weight) for term, weight in weights.items()}, 10)
    ]


def test_dense_and_hybrid_ask_the_question_of_the_vectors(searcher: Searcher) -> None:
    words, dense, hybrid = (ask(name, searcher).turns[0] for name in ("question", "dense", "hybrid"))
    assert words.query == dense.query == hybrid.query == QUESTION.question
    assert all(-1 <= hit.score <= 1 for hit in dense.ranking.hits)
    assert len(dense.ranking.hits) == 5 > len(words.ranking.hits)
    assert hybrid.ranking.hits == tuple(fuse_rankings([words.ranking.hits, dense.ranking.hits]))


@pytest.mark.parametrize("retrieval", ["bm25", "hybrid"])
def test_reranking_finds_what_the_named_search_finds_before_it_is_put_in_order(retrieval: str, searcher: Searcher) -> None:
    found_by = Hybrid(searcher.index_dir.parent / "vectors") if retrieval == "hybrid" else RawQuestion()
    reader = Rerank(RerankedConfig(model="any", depth=2), found_by).open_searcher(searcher)
    expected = found_by.open_searcher(searcher).search(QUESTION.question, 2)
    assert reader.search(QUESTION.question, 2) == expected
    by_words = searcher.search(QUESTION.question, 2)
    assert ({hit.page_number for hit in expected} == {hit.page_number for hit in by_words}) == (retrieval == "bm25")


def test_questions_that_are_known_are_embedded_at_once(searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    embed = Embedder.embed_queries
    monkeypatch.setattr(Embedder, "embed_queries", lambda embedder, texts: asked.append(list(texts)) or embed(embedder, texts))
    options = BaselineOptions(AgentConfig(top_k=2), prepare(searcher))
    rollouts = build_rollouts("dense", options, searcher, questions=[QUESTION.question, "Where is fuel?"])
    asyncio.run(rollouts.run(RolloutTask(QUESTION, 0, "greedy", 7, baseline="dense")))
    assert asked == [[PROBE], [QUESTION.question, "Where is fuel?"]]


def test_hyde_searches_the_passage_and_keeps_it_as_its_reasoning(searcher: Searcher) -> None:
    engine = ScriptedEngine(lambda _: "It turns at 340 revolutions, 340!")
    [turn] = ask("hyde", searcher, engine).turns
    assert turn.reasoning == "It turns at 340 revolutions, 340!"
    assert turn.query == "340^2 revolut^1 turn^1"
    assert bytes(turn.reply.completion_token_ids).decode() == "It turns at 340 revolutions, 340!"
    [request] = engine.requests
    assert (request.max_tokens, request.stop, len(request.messages)) == (77, (), 1)


def test_query2doc_shows_examples_and_counts_the_question_five_times(searcher: Searcher) -> None:
    engine = ScriptedEngine(lambda _: "340 rotor")
    [turn] = ask("query2doc", searcher, engine).turns
    assert turn.query == "rotor^6 fast^5 how^5 may^5 turn^5 340^1"
    assert [message["content"] for message in engine.requests[0].messages][1] == EXAMPLE.passage


@pytest.mark.parametrize("name", BASELINES)
def test_no_baseline_is_told_the_evidence(name: str, searcher: Searcher) -> None:
    engine = ScriptedEngine(write)
    trajectory = ask(name, searcher, engine)
    seen = trajectory.messages + "".join(message["content"] for request in engine.requests for message in request.messages)
    assert "manual.pdf" not in seen


def test_a_failing_engine_is_an_error_of_its_rollout(searcher: Searcher) -> None:
    def fail(_: object) -> str:
        raise PromptTooLongError("too long")

    trajectory = ask("hyde", searcher, ScriptedEngine(fail))
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.CONTEXT_LENGTH, "too long")


def test_where_candidates_are_put_in_order_the_question_stands_for_the_order_that_they_have(searcher: Searcher) -> None:
    agent = AgentConfig(task="rerank", rerank=RerankOptions(candidates=4, window=2, step=1), top_k=1)
    listed = tuple(Evidence("manual.pdf", number) for number in (5, 3, 2, 1))
    named = build_question(question="How fast may the rotor turn?", evidence=(Evidence("manual.pdf", 2),), candidates=listed)
    rollouts = build_rollouts("question", BaselineOptions(agent, PREPARED), searcher)
    kept = asyncio.run(rollouts.run(RolloutTask(named, 0, "greedy", 0)))
    found = asyncio.run(rollouts.run(RolloutTask(QUESTION, 0, "greedy", 0)))
    assert [hit.page_number for hit in kept.turns[-1].ranking.hits] == [5, 3, 2, 1]
    assert (len(kept.turns), kept.turns[-1].ranking.evidence_rank, kept.question_search.rank, kept.error) == (1, 3, 3, "")
    assert [turn.ranking.hits for turn in found.turns] == [found.question_search.hits]
    assert found.question_search.hits == tuple(searcher.search(QUESTION.question, agent.depth))
