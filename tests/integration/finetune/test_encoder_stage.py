"""Encoders that the finetune stage trains on a local Ray, one of them through a killed worker, and what is searched with them."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from embedding_models import WORDS, write_cross_encoder, write_embedding_model
from nano_training import kill_a_worker_after_the_first_checkpoint, make_config, write_split

from drag_ray.agent.retrieval import find_vectors, open_dense
from drag_ray.config import override
from drag_ray.engine.encoders.reranker import load_reranker
from drag_ray.finetune.training_folder import find_reranker
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_code, run_stage
from drag_ray.pipeline.stages import STAGES
from drag_ray.search.config import RerankConfig
from drag_ray.search.searcher import Searcher
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity

pytestmark = pytest.mark.usefixtures("local_ray")
THINGS = WORDS[:10]
PAGES = [f"{thing} {THINGS[place - 1]}" for place, thing in enumerate(THINGS)]
NUM_STEPS = 120


def write_judged(run_dir: Path) -> None:
    """Write rows in which a question about a thing is answered by the page that names it first of two things."""
    rows = [
        {"question": f"query: {thing}", "passage": passage, "is_evidence": passage == page}
        for place, (thing, page) in enumerate(zip(THINGS, PAGES, strict=True))
        for passage in (page, THINGS[place - 2], THINGS[place - 3])
    ]
    write_split(run_dir, "relevance", [*rows, *rows], len(rows))


def train(config: RunConfig) -> list[dict[str, Any]]:
    """Run the stage; returns its curve."""
    with StageFolder(config.run_dir / "finetune", Identity("finetune", {}, {})) as folder:
        folder.finish(run_code(STAGES["finetune"], config, folder))
    return [json.loads(line) for line in (config.run_dir / "finetune" / "curve.jsonl").read_text().splitlines()]


def configure(run_dir: Path, method: str, model: Path, checkpoint_steps: int) -> RunConfig:
    own: dict[str, Any] = {method: {"model": str(model), "max_tokens": 16}}
    return make_config(
        run_dir,
        model,
        method=method,
        epochs=NUM_STEPS / 2,
        batch_size=5,
        learning_rate=1e-2,
        checkpoint_steps=checkpoint_steps,
        **own,
    )


@pytest.mark.slow
def test_a_cross_encoder_goes_on_after_its_worker_was_killed_and_ranks_what_it_learned(tmp_path: Path) -> None:
    write_judged(tmp_path)
    config = configure(tmp_path, "cross_encoder", write_cross_encoder(tmp_path / "start"), checkpoint_steps=10)
    killed: list[dict[str, str]] = []
    killer = threading.Thread(target=kill_a_worker_after_the_first_checkpoint, args=(tmp_path, killed))
    killer.start()
    curve = train(config)
    killer.join()
    assert len(killed) == 1
    assert [point["step"] for point in curve if "loss" in point] == list(range(1, NUM_STEPS + 1))  # each once, none lost
    losses = [point["eval_loss"] for point in curve if "eval_loss" in point]
    assert losses[-1] < 0.5 * losses[0]
    folder = find_reranker(tmp_path / "finetune")
    assert folder
    reranker = load_reranker(RerankConfig(model=str(folder)))
    scores = reranker.score("query: wing", [PAGES[THINGS.index("wing")], "rotor"])
    assert scores[0] > scores[1]


def test_an_embedding_model_is_trained_and_an_index_is_searched_by_its_vectors(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    documents = tmp_path / "documents" / "pages.jsonl"
    documents.parent.mkdir()
    rows = [{"file": "manual", "page": number, "text": text} for number, text in enumerate(PAGES, start=1)]
    documents.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = configure(run_dir, "embed", write_embedding_model(tmp_path / "start"), checkpoint_steps=60)
    own = {
        "corpus": {"documents": str(documents.parent), "questions": ""},
        "embedding": {"window_tokens": 8, "overlap_tokens": 2},
    }
    config = override(config, own)
    run_stage(STAGES["index"], config)
    write_judged(run_dir)
    curve = train(config)
    losses = [point["eval_loss"] for point in curve if "eval_loss" in point]
    assert losses[-1] < 0.5 * losses[0]
    run_stage(STAGES["embed"], config)
    searcher = Searcher(run_dir / "index" / "search_index")
    dense = open_dense(searcher, find_vectors(run_dir / "index", run_dir / "embed", "dense", "agent.retrieval"))
    firsts = [dense.search(f"query: {thing}", 1)[0].page_number for thing in THINGS]
    assert sum(first == number for number, first in enumerate(firsts, start=1)) >= 5  # of ten, by chance one
