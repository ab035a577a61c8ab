"""Parts of an index's vectors: cut by rows, written whole, merged in order."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedding_models import write_clip_model, write_embedding_model
from factories import build_page
from PIL import Image
from small_index import open_index

from drag_ray.cluster.tasks import Step
from drag_ray.corpus.image_store import ImageStore
from drag_ray.engine.encoders.embedding import Embedder, ImageEmbedder
from drag_ray.engine.models.relevance import EMBEDDER_NOTE_NAME, EmbedderNote, write_note
from drag_ray.errors import ConfigError, DataError
from drag_ray.index import vector_parts
from drag_ray.index.vector_parts import PictureEmbedder, WindowEmbedder, count_pages, merge_parts, plan_parts, read_part
from drag_ray.search.config import EmbeddingConfig, ImageEmbeddingConfig
from drag_ray.search.index import PAGES_NAME
from drag_ray.search.vectors import PROBE, PageVectors
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity

TEXTS = ["wing spar load", "", "fuel pump oil filter rotor speed limit wing spar", "rotor", "oil"]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingConfig:
    model_dir = write_embedding_model(tmp_path_factory.mktemp("models") / "tiny")
    return EmbeddingConfig(model=str(model_dir), window_tokens=8, overlap_tokens=2)


@pytest.fixture(scope="module")
def index_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pages = [build_page(page_number=number, text=text) for number, text in enumerate(TEXTS, start=1)]
    return open_index(tmp_path_factory.mktemp("pages"), pages).index_dir


def test_parts_are_named_and_cut_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_parts, "_MAX_PAGES", 4)
    parts = plan_parts(Path("parts"), range(9))
    assert [(path.name.partition("-")[0], part) for path, part in parts.items()] == [
        ("0000000000", range(4)),
        ("0000000004", range(4, 8)),
        ("0000000008", range(8, 9)),
    ]
    assert list(parts) == sorted(parts)
    assert not {*plan_parts(Path("parts"), [0, 2, 4, 8])} & {*parts}


@pytest.mark.seconds
def test_merged_parts_hold_each_window_with_the_row_of_its_page(tmp_path: Path, config: EmbeddingConfig, index_dir: Path) -> None:
    embedder = WindowEmbedder(config, index_dir / PAGES_NAME)
    paths = [tmp_path / "parts" / f"{number}.npz" for number in range(3)]
    for path, rows in zip(paths, (range(2), range(2, 4), range(4, 5)), strict=True):
        assert embedder({"path": str(path), "rows": list(rows)}) == {
            "pages": len(rows),
            "kind": "",
            "error": "",
        }
    assert merge_parts(paths, tmp_path / "vectors", "abc", config) == 5
    alone = Embedder(config)
    windows = [(row, window) for row, text in enumerate(TEXTS) for window in alone.cut(text)]
    assert np.load(tmp_path / "vectors" / "rows.npy").tolist() == [row for row, _ in windows] == [0, 2, 2, 3, 4]
    expected = alone.embed_pages([window for _, window in windows])
    assert np.load(tmp_path / "vectors" / "vectors.npy") == pytest.approx(expected, abs=1e-6)
    record = PageVectors(tmp_path / "vectors", "abc").record
    assert EmbeddingConfig(**record.embedding) == config
    assert record.probe == pytest.approx(alone.embed_queries([PROBE])[0].tolist(), abs=1e-6)


def test_a_model_that_was_trained_for_another_index_is_refused_unless_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = write_embedding_model(tmp_path / "model")
    config = EmbeddingConfig(model=str(model))
    vector_parts.check_trained_for(config, "abc")  # nobody has trained it
    for trained_for in ("", "abc"):
        write_note(model, EmbedderNote(index_fingerprint=trained_for))
        vector_parts.check_trained_for(config, "abc")
    write_note(model, EmbedderNote(index_fingerprint="0123"))
    said = r"embedding\.model .* was trained for another index \(0123\) than is embedded \(abc\)"
    with pytest.raises(ConfigError, match=rf"{said}.* or train one for this index\..* --embedding\.other-index embeds it so"):
        vector_parts.check_trained_for(config, "abc")
    assert not caplog.messages
    vector_parts.check_trained_for(config.model_copy(update={"other_index": True}), "abc")
    assert "was trained for another index (0123)" in caplog.text
    (model / EMBEDDER_NOTE_NAME).write_text("[]")
    with pytest.raises(DataError, match=r"drag_ray_embedder\.json: not the file that finetune writes into a model's folder"):
        vector_parts.check_trained_for(config, "abc")


def test_pages_without_text_make_a_part_without_vectors(tmp_path: Path, config: EmbeddingConfig, index_dir: Path) -> None:
    WindowEmbedder(config, index_dir / PAGES_NAME).write(tmp_path / "part.npz", range(1, 2))
    part = read_part(tmp_path / "part.npz")
    assert (part.rows.shape, part.vectors.shape, part.probe.shape) == ((0,), (0, 16), (16,))
    assert merge_parts([tmp_path / "part.npz"], tmp_path / "vectors", "abc", config) == 0
    assert PageVectors(tmp_path / "vectors", "abc").rank(part.probe, 3) == []


def test_a_part_that_cannot_be_made_says_why_and_leaves_no_file(tmp_path: Path, index_dir: Path) -> None:
    config = EmbeddingConfig(model=str(tmp_path / "nowhere"))
    row = WindowEmbedder(config, index_dir / PAGES_NAME)({"path": str(tmp_path / "part.npz"), "rows": [0, 1]})
    with pytest.raises(ConfigError, match=r"^embedding\.model '"):
        count_pages(row)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def pictured(tmp_path: Path) -> tuple[Path, list[str]]:
    """An index of three pages, of which the second has no picture, and the keys of the pictures of the others."""
    store = ImageStore(tmp_path / "page_images")
    keys = [store.write(Image.new("RGB", (40, 60), colour)) for colour in ("red", "blue")]
    pages = [build_page(page_number=number, image=key) for number, key in enumerate((keys[0], "", keys[1]), start=1)]
    open_index(tmp_path, pages)
    return tmp_path, keys


@pytest.mark.seconds
def test_each_picture_of_a_page_has_one_vector_with_the_row_of_its_page(pictured: tuple[Path, list[str]]) -> None:
    folder, keys = pictured
    config = ImageEmbeddingConfig(model=str(write_clip_model(folder / "model")), batch_size=1)
    embedder = PictureEmbedder(config, folder / "search_index" / PAGES_NAME, folder / "page_images")
    paths = [folder / "parts" / f"{number}.npz" for number in range(2)]
    for path, rows in zip(paths, (range(2), range(2, 3)), strict=True):
        assert embedder({"path": str(path), "rows": list(rows)}) == {
            "pages": len(rows),
            "kind": "",
            "error": "",
        }
    assert merge_parts(paths, folder / "image_vectors", "abc", config) == 2
    alone = ImageEmbedder(config)
    store = ImageStore(folder / "page_images")
    vectors = PageVectors(folder / "image_vectors", "abc")
    for row, key in ((0, keys[0]), (2, keys[1])):
        [expected] = alone.embed_images([store.open(key)])
        assert vectors.rank(expected, 1) == [(1.0, row)]
    assert ImageEmbeddingConfig(**vectors.record.embedding) == config
    vectors.check_model(alone.embed_texts([PROBE])[0])


def test_pages_without_pictures_make_a_part_without_vectors(pictured: tuple[Path, list[str]]) -> None:
    folder, _ = pictured
    config = ImageEmbeddingConfig(model=str(write_clip_model(folder / "model")))
    PictureEmbedder(config, folder / "search_index" / PAGES_NAME, folder / "page_images").write(folder / "1.npz", range(1, 2))
    part = read_part(folder / "1.npz")
    assert (part.rows.shape, part.vectors.shape) == ((0,), (0, 16))


def test_a_damaged_picture_is_named_with_its_page_and_leaves_no_file(pictured: tuple[Path, list[str]]) -> None:
    folder, keys = pictured
    (folder / "page_images" / keys[1]).write_bytes(b"no picture")
    config = ImageEmbeddingConfig(model=str(write_clip_model(folder / "model")))
    embedder = PictureEmbedder(config, folder / "search_index" / PAGES_NAME, folder / "page_images")
    row = embedder({"path": str(folder / "part.npz"), "rows": [0, 1, 2]})
    with pytest.raises(
        DataError, match=rf"^\S+{keys[1]}: the picture of manual\.pdf#3 is missing or damaged.* Run: rm -r {folder},"
    ):
        count_pages(row)
    assert not (folder / "part.npz").exists()


def finish_vectors(stage_dir: Path, config: EmbeddingConfig, texts: list[str], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Embed the pages of an index in this process; returns the rows that the model was given."""
    pages = [build_page(page_number=number, text=text) for number, text in enumerate(texts, start=1)]
    embedded: list[int] = []

    def map_here(steps: list[Step], rows: list[dict[str, Any]], *_: object) -> Iterator[dict[str, Any]]:
        embedder = steps[0].made(*steps[0].arguments)
        for row in rows:
            embedded.extend(row["rows"])
            yield embedder(row)

    monkeypatch.setattr(vector_parts, "map_rows", map_here)
    identity = Identity("index", {"embedding": config.model_dump(mode="json")}, {"documents": repr(texts)})
    with StageFolder(stage_dir, identity, keeps_earlier=True) as folder:
        index_dir = open_index(folder.path, pages).index_dir
        counts = {"windows": vector_parts.embed_texts(config, index_dir, folder)}
        shutil.rmtree(folder.path / vector_parts.DIR_NAME, ignore_errors=True)
        folder.finish(counts)
    return embedded


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("texts", "embedded"),
    [
        (["a new one", *TEXTS[:3], "oil", "fuel", "wing spar load", "rotor"], [0, 2, 5]),
        (TEXTS[::-1], [3]),
        (["fuel", *TEXTS, "fuel pump"], [0, 2, 6]),
    ],
    ids=["grown", "in another order", "at both ends"],
)
def test_pages_whose_text_the_earlier_index_has_keep_their_vectors(
    tmp_path: Path, config: EmbeddingConfig, monkeypatch: pytest.MonkeyPatch, texts: list[str], embedded: list[int]
) -> None:
    monkeypatch.setattr(vector_parts, "_MAX_PAGES", 2)
    monkeypatch.setattr(vector_parts, "_BATCH_KEPT", 2)
    assert finish_vectors(tmp_path / "index", config, TEXTS, monkeypatch) == [0, 1, 2, 3, 4]
    assert finish_vectors(tmp_path / "index", config, texts, monkeypatch) == embedded  # an empty page has no vector to keep
    finish_vectors(tmp_path / "anew", config, texts, monkeypatch)
    for name in ("rows.npy", "keys.npy"):
        made, expected = (np.load(tmp_path / stage / "vectors" / name).tolist() for stage in ("index", "anew"))
        assert made == expected
    made, expected = (np.load(tmp_path / stage / "vectors" / "vectors.npy") for stage in ("index", "anew"))
    assert made == pytest.approx(expected, abs=1e-6)
    assert finish_vectors(tmp_path / "index", config, [text for text in texts if text], monkeypatch) == []


def test_vectors_of_another_model_or_that_are_damaged_are_not_kept(
    tmp_path: Path, config: EmbeddingConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    finish_vectors(tmp_path / "index", config, TEXTS, monkeypatch)
    other = config.model_copy(update={"overlap_tokens": 3})
    with caplog.at_level("INFO"):
        assert finish_vectors(tmp_path / "index", other, TEXTS[:2], monkeypatch) == [0, 1]
        assert "vectors was made by another model or with other options" in caplog.text
        keys = tmp_path / "index" / "vectors" / "keys.npy"
        keys.write_bytes(keys.read_bytes()[:-1] + b"x")
        assert finish_vectors(tmp_path / "index", other, TEXTS[:3], monkeypatch) == [0, 1, 2]
    assert "Embedding all pages: " in caplog.text
    assert "keys.npy: holds other bytes than were written" in caplog.text


def test_what_is_kept_is_read_a_batch_at_a_time(tmp_path: Path, config: EmbeddingConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_parts, "_BATCH_KEPT", 4)
    texts = [f"rotor {number}" for number in range(30)]
    finish_vectors(tmp_path / "index", config, texts, monkeypatch)
    sizes: list[int] = []

    def note(parts: Iterator[tuple[np.ndarray, np.ndarray]], *arguments: Any) -> None:
        found = list(parts)
        sizes.extend(len(rows) for rows, _ in found)
        write_vectors(iter(found), *arguments)

    write_vectors = vector_parts.write_vectors
    monkeypatch.setattr(vector_parts, "write_vectors", note)
    texts = ["fuel", *texts[:20], "pump", *texts[20:], "oil"]
    assert finish_vectors(tmp_path / "index", config, texts, monkeypatch) == [0, 21, 32]
    assert np.load(tmp_path / "index" / "vectors" / "rows.npy").tolist() == list(range(33))
    assert max(sizes) <= 4 + 3


@pytest.mark.seconds
def test_vectors_of_another_model_of_the_same_name_are_not_kept(
    tmp_path: Path, config: EmbeddingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = config.model_copy(update={"model": str(write_embedding_model(tmp_path / "model"))})
    finish_vectors(tmp_path / "index", named, TEXTS, monkeypatch)
    shutil.rmtree(tmp_path / "model")
    write_embedding_model(tmp_path / "model", seed=1)
    texts = ["fuel", *TEXTS]
    assert finish_vectors(tmp_path / "index", named, texts, monkeypatch) == [0, 2, *range(6)]
    finish_vectors(tmp_path / "anew", named, texts, monkeypatch)
    made, expected = (np.load(tmp_path / stage / "vectors" / "vectors.npy") for stage in ("index", "anew"))
    assert made == pytest.approx(expected, abs=1e-6)
