"""The embed stage: the pages of an index that stands -> their vectors, by a model that the run has trained or that is named."""

import logging
import shutil
from pathlib import Path
from typing import Any

from drag_ray.embed.config import EmbedSections
from drag_ray.errors import ConfigError, DataError
from drag_ray.finetune.training_folder import find_encoder, find_reranker
from drag_ray.index import vector_parts
from drag_ray.search.config import EmbeddingConfig
from drag_ray.search.index import read_fingerprint
from drag_ray.search.vectors import DIR_NAME, MODEL_DIR_NAME, read_vectors_record
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage.artifacts import replaced_folder

_logger = logging.getLogger(__name__)


def run(sections: EmbedSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Embed all pages of the index with the embedding model that finetune has trained, or with `embedding.model`.

    Writes `vectors/`, which take the place of the index's own wherever this stage is read, and `model/`, a copy of a model that
    was trained: the vectors stay of use when it is trained again. Going on after a kill keeps the parts that were finished.

    Returns:
        Counts: windows, and dimensions of their vectors.

    Raises:
        ConfigError: there is no model, or none that embeds texts.
        DataError: no page has text.
    """
    from drag_ray.engine.encoders.embedding import Embedder  # PyTorch takes seconds to import

    config = _choose_model(sections.embedding, inputs.find("finetune"), folder.path.resolve() / MODEL_DIR_NAME)
    Embedder(config, "meta")
    _logger.info(f"embedding pages with {config.model}")
    search_dir = inputs["index"] / "search_index"
    num_windows = vector_parts.embed_texts(config, search_dir, folder)
    if not num_windows:
        raise DataError(
            f"{inputs['index']}: no page has text, so there is nothing to embed. Build the index with --corpus.ocr always, or "
            "embed pictures of its pages (image_embedding.model)."
        )
    shutil.rmtree(folder.path / vector_parts.DIR_NAME)
    record = read_vectors_record(folder.path / DIR_NAME, read_fingerprint(search_dir))
    return {"windows": num_windows, "dimensions": record.dimensions}


def _choose_model(config: EmbeddingConfig, finetune_dir: Path | None, own_dir: Path) -> EmbeddingConfig:
    """With the model that was trained, copied into the stage's folder, where there is one."""
    encoder_dir = find_encoder(finetune_dir)
    if encoder_dir and not find_reranker(finetune_dir):
        with replaced_folder(own_dir) as scratch:
            shutil.copytree(encoder_dir, scratch, dirs_exist_ok=True)
        return config.model_copy(update={"model": str(own_dir)})
    if config.model:
        return config
    trained = f"{finetune_dir} holds no embedding model" if finetune_dir else "the run has trained none"
    raise ConfigError(
        f"embedding.model: names no model, and {trained}. Name one (--embedding.model FOLDER), or train one: python "
        "jobs/finetune.py --scope embedder --finetune.method embed, which --scope embedder or --reads finetune=embedder/finetune "
        "reads."
    )
