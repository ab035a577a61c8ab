"""A pipeline that trains an embedding model and a reranker of its candidates, with the models that come with the packages."""

from pathlib import Path

import pytest

from drag_ray.api.run import Run
from drag_ray.config import load, override
from drag_ray.engine.models.embedded import MINILM
from drag_ray.evaluate.evaluation_folder import read_comparison
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.search.index import read_fingerprint
from drag_ray.search.vectors import read_vectors_record
from drag_ray.storage.artifacts import require_manifest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("local_ray"), pytest.mark.timeout(1800)]
CONFIG = Path(__file__).parents[3] / "jobs" / "configs" / "small.toml"
ORDER = ("index", "collect", "embedder/format", "embedder/finetune", "embedder/embed", "reranker/format", "reranker/finetune")
TRAINING = {"epochs": 1, "batch_size": 4, "checkpoint_steps": 100}
RANKERS = {
    "train_embedder": True,
    "train_reranker": "cross_encoder",
    "embedding": {"model": MINILM, "window_tokens": 64, "overlap_tokens": 8},
    "agent": {"max_iterations": 1},
    "collect": {"limit": 40, "samples_per_question": 1, "proposals": []},
    "embedder": {"finetune": {**TRAINING, "embed": {"max_tokens": 64}}},
    "reranker": {
        "format": {"relevance_retrieval": "hybrid"},
        "finetune": {**TRAINING, "cross_encoder": {"model": MINILM, "max_tokens": 64}},
    },
    "evaluate": {
        "limit": 6,
        "baselines": ["question", "dense", "hybrid", "rerank"],
        "rerank": {"retrieval": "hybrid", "depth": 10},
    },
}
"""Small: what is seen is the order of the stages, and by whose vectors each of them searches."""


def test_an_embedder_is_trained_before_the_reranker_that_reads_what_it_finds(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    config = override(load(RunConfig, ["--config", str(CONFIG), "--run-dir", str(run_dir)]), RANKERS)
    finished = Run(config).pipeline()
    times = [require_manifest(run_dir / name).finished_at for name in (*ORDER, "evaluate")]
    assert times == sorted(times)
    fingerprint = read_fingerprint(run_dir / "index" / "search_index")
    trained = read_vectors_record(run_dir / "embedder" / "embed" / "vectors", fingerprint)
    own = read_vectors_record(run_dir / "index" / "vectors", fingerprint)
    assert trained.probe != own.probe
    assert "embed" not in finished["embedder/format"].origin["reads"]
    for name in ("reranker/format", "evaluate"):
        assert finished[name].origin["reads"]["embed"] == "embedder/embed"
    [ranks] = [row["metrics"] for row in read_comparison(run_dir)["rows"] if row["name"] == "mrr"]
    searches = {"question", "dense", "hybrid", "index_dense", "index_hybrid", "rerank"}
    assert ranks.keys() >= searches
    assert all(ranks[name]["value"] > 0 for name in searches)
