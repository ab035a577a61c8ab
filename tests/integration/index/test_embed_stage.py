"""The pages of an index are embedded again, by a model that the run has trained or by another one."""

import json
import shutil
from pathlib import Path

import embedding_models
import pytest
from embedding_models import write_cross_encoder, write_embedding_model

from drag_ray.agent.retrieval import find_vectors, is_of_trained_model, open_dense
from drag_ray.config import override
from drag_ray.engine.models.relevance import EmbedderNote, RerankerNote, write_note
from drag_ray.errors import ConfigError, DataError, SearchIndexError
from drag_ray.index import vector_parts
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import compute_identity, run_stage
from drag_ray.pipeline.stages import STAGES
from drag_ray.search.index import read_fingerprint
from drag_ray.search.searcher import Searcher
from drag_ray.search.vectors import PageVectors
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity, Manifest, read_manifest
from drag_ray.types import Hits

pytestmark = pytest.mark.usefixtures("local_ray", "rows_in_process")

TEXTS = ("rotor speed limit", "fuel pump", "wing spar load " * 6, "", "rotor oil")


def configure(folder: Path, texts: tuple[str, ...] = TEXTS, model: str = "") -> RunConfig:
    """A run with an index of these pages, without vectors."""
    path = folder / "documents" / "pages.jsonl"
    path.parent.mkdir(exist_ok=True)
    rows = [{"file": "manual", "page": number, "text": text} for number, text in enumerate(texts, start=1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = override(RunConfig(run_dir=folder / "run"), {"corpus": {"documents": str(path.parent), "questions": ""}})
    run_stage(STAGES["index"], config)
    return override(config, {"embedding": {"model": model, "window_tokens": 8, "overlap_tokens": 2}})


def finish_training(run_dir: Path, seed: int) -> None:
    """As finetune leaves an embedding model."""
    with StageFolder(run_dir / "finetune", Identity("finetune", {"seed": seed}, {})) as folder:
        write_embedding_model(folder.path / "encoder", seed=seed)
        folder.finish({})


def note_index(model: Path, run_dir: Path) -> None:
    """As finetune leaves a model that was trained for the index of a run."""
    write_note(model, EmbedderNote(index_fingerprint=read_fingerprint(run_dir / "index" / "search_index")))


def embed(config: RunConfig) -> Manifest:
    return run_stage(STAGES["embed"], config)


def stop(*_: object) -> None:
    raise RuntimeError("stopped")


def search(run_dir: Path) -> Hits:
    searcher = Searcher(run_dir / "index" / "search_index")
    vectors_dir = find_vectors(run_dir / "index", run_dir / "embed", "dense", "agent.retrieval")
    return open_dense(searcher, vectors_dir).search("fuel pump", 5)


def test_pages_are_embedded_again_with_each_model_that_is_trained_and_the_index_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_parts, "_MAX_PAGES", 2)
    config, run_dir = configure(tmp_path), tmp_path / "run"
    before = read_manifest(run_dir / "index")
    finish_training(run_dir, seed=1)
    assert embed(config).counts == {"windows": 7, "dimensions": 16}
    first = search(run_dir)
    assert (first[0].page_number, first[0].score, len(first)) == (2, 1.0, 4)
    assert not (run_dir / "embed" / "vector_parts").exists()
    assert not (run_dir / "index" / "vectors").exists()
    made = (run_dir / "embed" / "vectors" / "vectors.npy").stat().st_mtime_ns
    embed(config)
    assert (run_dir / "embed" / "vectors" / "vectors.npy").stat().st_mtime_ns == made

    finish_training(run_dir, seed=2)
    assert search(run_dir) == first  # until there are others
    assert is_of_trained_model(run_dir / "embed" / "vectors", read_fingerprint(run_dir / "index" / "search_index"))
    open_ones = PageVectors(run_dir / "embed" / "vectors", Searcher(run_dir / "index" / "search_index").record.fingerprint)
    probe = open_ones.record.probe
    with monkeypatch.context() as patched:
        patched.setattr(vector_parts, "merge_parts", stop)
        with pytest.raises(RuntimeError, match="stopped"):
            embed(config)
    assert search(run_dir) == first  # while they are made
    embed(config)
    assert not (run_dir / ".embed.next").exists()
    assert len(open_ones.rank(open_ones._vectors[0], 5)) == 4  # who has opened them goes on with them
    assert search(run_dir)[1:] != first[1:]
    assert json.loads((run_dir / "embed" / "vectors" / "vectors.json").read_text())["probe"] != probe
    assert len(list((run_dir / "_previous").glob("embed-*"))) == 1
    assert read_manifest(run_dir / "index") == before

    shutil.move(run_dir, tmp_path / "elsewhere")
    assert search(tmp_path / "elsewhere")[0].page_number == 2


def test_a_model_of_other_dimensions_may_be_named_and_the_index_keeps_its_own_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(tmp_path, model=str(write_embedding_model(tmp_path / "model", seed=1)))
    note_index(tmp_path / "model", tmp_path / "run")
    assert run_stage(STAGES["index"], config).counts["windows"] == 7  # with vectors it is the index that the model is for
    with StageFolder(tmp_path / "run" / "finetune", Identity("finetune", {}, {})) as folder:
        folder.finish({})  # a policy
    monkeypatch.setitem(embedding_models._SHAPE, "hidden_size", 24)
    pooling = {"pooling_mode": "mean", "word_embedding_dimension": 24}
    other = write_embedding_model(tmp_path / "other", seed=3, pooling=pooling)
    assert embed(override(config, {"embedding": {"model": str(other)}})).counts["dimensions"] == 24
    assert not (tmp_path / "run" / "embed" / "model").exists()
    for stage, model in {"embed": other, "index": tmp_path / "model"}.items():
        record = json.loads((tmp_path / "run" / stage / "vectors" / "vectors.json").read_text())
        assert record["embedding"]["model"] == str(model)
    assert search(tmp_path / "run")[0].page_number == 2


def test_what_cannot_be_embedded_is_refused_and_nothing_is_published(tmp_path: Path) -> None:
    config, run_dir = configure(tmp_path), tmp_path / "run"
    with pytest.raises(ConfigError, match=r"names no model, and the run has trained none\. Name one .*--finetune\.method embed"):
        embed(config)
    with StageFolder(run_dir / "finetune", Identity("finetune", {}, {})) as folder:
        write_note(write_cross_encoder(folder.path / "encoder"), RerankerNote())
        folder.finish({})
    with pytest.raises(ConfigError, match=r"finetune holds no embedding model\. Name one"):
        embed(config)
    for model in (write_cross_encoder(tmp_path / "ranker"), tmp_path / "documents"):
        with pytest.raises(ConfigError, match=r"embedding\.model"):
            embed(override(config, {"embedding": {"model": str(model)}}))
    silent = configure(tmp_path, ("", " "), str(write_embedding_model(tmp_path / "model")))
    with pytest.raises(DataError, match=r"no page has text, so there is nothing to embed\. Build the index with --corpus\.ocr"):
        embed(silent)
    assert read_manifest(run_dir / "embed") is None


def test_a_model_embeds_the_index_that_it_was_trained_for_and_others_where_that_is_said(tmp_path: Path) -> None:
    model = write_embedding_model(tmp_path / "model")
    config = configure(tmp_path, model=str(model))
    note_index(model, tmp_path / "run")
    assert embed(config).counts["windows"] == 7
    before = compute_identity(STAGES["embed"], config)
    grown = configure(tmp_path, (*TEXTS, "oil filter"), str(model))
    with pytest.raises(SearchIndexError, match=r"vectors of the index \w+, this one is \w+\. Embed .*python jobs/embed\.py"):
        search(tmp_path / "run")
    assert compute_identity(STAGES["embed"], grown).fingerprint != before.fingerprint  # so it embeds them again
    refused = r"was trained for another index .* --embedding\.other-index embeds it so"
    with pytest.raises(ConfigError, match=refused):
        embed(grown)
    assert embed(override(grown, {"embedding": {"other_index": True}})).counts["windows"] == 8
    assert embed(grown).counts["windows"] == 8  # said once
    with pytest.raises(ConfigError, match=refused):
        run_stage(STAGES["index"], grown)
