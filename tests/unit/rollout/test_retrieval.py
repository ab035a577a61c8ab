"""Agents whose searches are answered by words, by vectors and by both, with a tiny embedding model of random weights."""

from pathlib import Path

import pytest
from embedding_models import write_embedding_model, write_page_vectors
from factories import build_question
from rollout_workers import build_worker, run_chunks
from scripted_engine import ScriptedEngine
from small_index import write_index

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy
from drag_ray.config import load
from drag_ray.engine.config import EngineConfig
from drag_ray.errors import ConfigError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.stages import STAGES
from drag_ray.rollout import journal
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.options import WorkerOptions, build_options
from drag_ray.rollout.plan import build_plan, cut_chunks
from drag_ray.search.config import EmbeddingConfig, RetrievalName
from drag_ray.search.dense import DenseSearcher, HybridSearcher
from drag_ray.search.searcher import Searcher
from drag_ray.search.vectors import PageVectors
from drag_ray.serve.search.retrieval import Retrieval
from drag_ray.types import Evidence, Page

TEXTS = ("rotor speed limit", "fuel pump", "wing spar load", "oil filter", "rotor oil")
QUESTION = build_question(question="fuel and the rotor", evidence=(Evidence("p4.pdf", 1),))


@pytest.fixture(scope="module")
def index_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    write_index(folder, [Page(f"p{number}.pdf", 1, 1, text) for number, text in enumerate(TEXTS)], [])
    write_page_vectors(Searcher(folder / "search_index"), write_embedding_model(folder / "model"), folder / "vectors")
    return folder


def open_dense(index_dir: Path) -> DenseSearcher:
    from drag_ray.engine.encoders.embedding import Embedder

    searcher = Searcher(index_dir / "search_index")
    vectors = PageVectors(index_dir / "vectors", searcher.record.fingerprint)
    return DenseSearcher(searcher, vectors, Embedder(EmbeddingConfig(**vectors.record.embedding)).embed_queries)


@pytest.mark.parametrize("retrieval", ["bm25", "dense", "hybrid"])
@pytest.mark.parametrize("query_mode", ["expand", "rewrite"])
def test_what_the_model_writes_and_its_question_are_searched_as_the_agent_says(
    index_dir: Path, tmp_path: Path, retrieval: RetrievalName, query_mode: str
) -> None:
    agent = AgentConfig.model_validate({"retrieval": retrieval, "query_mode": query_mode, "depth": 5})
    journal.begin_attempt(tmp_path)
    options = WorkerOptions(
        run_dir=tmp_path,
        index_dir=index_dir / "search_index",
        agent=agent,
        engine=EngineConfig(),
        policies={"": Policy("model")},
        concurrent_rollouts=1,
        flush_s=0,
        vectors_dir=index_dir / "vectors",
    )
    worker = build_worker(options, ScriptedEngine(lambda request: "<search>oil^2 spar</search>"))
    run_chunks(worker, cut_chunks(build_plan([QUESTION], ("default",), 1, run_seed=0), 1))
    [trajectory] = map(schemas.to_trajectory, journal.read_trajectories(tmp_path).to_pylist())
    dense = open_dense(index_dir)
    searcher = Searcher(index_dir / "search_index")
    index = {"bm25": searcher, "dense": dense, "hybrid": HybridSearcher(searcher, dense)}[retrieval]
    if agent.expands:
        found = index.search_expanded(QUESTION.question, "oil^2 spar", 2, 5)
        asked = index.search_expanded(QUESTION.question, "", 2, 5)
    else:
        found, asked = index.search("oil^2 spar", 5), index.search(QUESTION.question, 5)
    places = [[hit.file for hit in hits] for hits in (found, asked)]
    assert [[hit.file for hit in hits] for hits in (trajectory.turns[0].ranking.hits, trajectory.question_search.hits)] == places
    by_words = searcher.search_expanded(QUESTION.question, "", 2, 5) if agent.expands else searcher.search(QUESTION.question, 5)
    assert (places[1] == [hit.file for hit in by_words]) == (retrieval == "bm25")
    assert trajectory.turns[0].ranking.evidence_rank == places[0].index("p4.pdf") + 1


def test_an_index_without_vectors_is_refused_before_an_engine_starts(index_dir: Path, tmp_path: Path) -> None:
    write_index(tmp_path, [Page("a.pdf", 1, 1, "rotor")], [])
    agent, rest = AgentConfig(retrieval="hybrid"), (EngineConfig(), RolloutConfig())
    with pytest.raises(ConfigError, match=r"agent.retrieval 'hybrid': .* has no vectors .*jobs/index\.py --embedding\.model"):
        build_options(agent, *rest, tmp_path, tmp_path / "run")
    assert build_options(agent, *rest, index_dir, tmp_path / "run").agent.retrieval == "hybrid"


@pytest.mark.parametrize(
    ("stage", "option", "problem"),
    [
        ("collect", ("--collect.proposals", "rm3"), r"collect\.proposals: baselines search by words only"),
        ("evaluate", ("--evaluate.question-weights", "1"), r"evaluate\.question_weights: searches by words"),
    ],
)
def test_what_searches_by_words_alone_is_not_mixed_with_it(stage: str, option: tuple[str, str], problem: str) -> None:
    config = load(RunConfig, ["--agent.retrieval", "dense", *option])
    with pytest.raises(ConfigError, match=problem):
        config.take(STAGES[stage].sections).check()


def test_an_endpoint_searches_as_an_agent_was_trained_to(index_dir: Path) -> None:
    retrieval = Retrieval(Searcher(index_dir / "search_index"), default="dense")
    assert retrieval.choose_name(AgentConfig(retrieval="hybrid")) == "hybrid"
    assert retrieval.choose_name(AgentConfig()) == "dense"
