"""Documents that an earlier index has read are kept where their bytes and how they are read are the same."""

import importlib.metadata
import logging
import os
import random
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from PIL import Image

from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import DIR_NAME as IMAGES_DIR_NAME
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.readers import document_parts
from drag_ray.corpus.readers.documents import list_documents, read_document
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.errors import ArtifactError
from drag_ray.index import kept_documents
from drag_ray.index.kept_documents import TABLE_NAME, KeptDocuments, describe_reading, find_kept
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import compute_identity
from drag_ray.pipeline.stages import STAGES
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity

Change = Callable[[Path], object]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.md").write_text("# Rotor\n\n[spar](sub/b.txt)")
    (folder / "sub" / "b.txt").write_text("spar\fof two pages")
    (folder / "z.jsonl").write_text('{"file": "a.md", "page": 1, "text": "of the table"}\n{half a line\n')
    for colour in ("red", "blue"):
        Image.new("RGB", (40, 30), colour).save(folder / f"{colour}.png")
    (folder / "broken.pdf").write_bytes(b"%PDF")
    return folder


def change_nothing(root: Path) -> None:
    pass


def build(
    root: Path, stage_dir: Path, earlier_dir: Path | None = None, meanwhile: Change = change_nothing, **options: Any
) -> KeptDocuments:
    """Read documents as the stage does, without Ray, and finish the folder.

    Args:
        meanwhile: done when the documents are known and not yet read.
    """
    config = CorpusConfig(documents=str(root), page_images=True, ocr="off", **options)
    documents, _ = list_documents(root)
    identity = Identity("index", {}, {"documents": stage_dir.name})
    reading = describe_reading(config, identity, root)
    reader = PageReader(config, ImageStore(stage_dir / IMAGES_DIR_NAME))
    read = partial(read_document, root=root, reader=reader)
    with StageFolder(stage_dir, identity) as folder:
        kept = find_kept(documents, root, earlier_dir, reading)
        changed = kept.list_changed()
        planned = document_parts.plan_parts(list(changed), lambda path: 1)
        parts = {document_parts.build_part_path(stage_dir / ".parts", part, changed): part for part in planned}
        meanwhile(root)
        for path, part in parts.items():
            document_parts.write_part(path, part, read)
        rows = kept.gather(list(parts), stage_dir / ".parts")
        pages, _ = document_parts.merge_rows(rows)
        kept.write(rows, pages, stage_dir, reading)
        build_index(stage_dir / "pages.parquet", stage_dir / "search_index", SearchConfig(), pages=pages)
        folder.finish({})
    return kept


def read_table(stage_dir: Path) -> list[dict[str, Any]]:
    """The rows, but for the states of the files, which say when they were written."""
    return pl.read_parquet(stage_dir / TABLE_NAME).drop("state").to_dicts()


def change_much(root: Path) -> None:
    (root / "a.md").write_text("# Another rotor")
    (root / "blue.png").unlink()
    (root / "0.txt").write_text("the first of all")
    (root / "sub" / "b.txt").touch()


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (change_nothing, (5, 1, 0)),
        (change_much, (3, 3, 1)),
        (lambda root: (root / "red.png").rename(root / "green.png"), (4, 2, 1)),
        (lambda root: (root / "red.png").write_bytes((root / "blue.png").read_bytes()), (4, 2, 0)),
        (lambda root: (root / "a.md").unlink(), (4, 1, 1)),
    ],
    ids=["nothing", "much", "a name", "a twin", "the first of two"],
)
def test_what_is_kept_and_read_is_what_is_read_from_nothing(
    root: Path, tmp_path: Path, change: Change, counts: tuple[int, int, int]
) -> None:
    build(root, tmp_path / "first")
    change(root)
    kept = build(root, tmp_path / "second", tmp_path / "first")
    assert tuple(kept.count().values()) == counts
    assert kept.count().keys() == {"kept_documents", "read_documents", "removed_documents"}
    build(root, tmp_path / "anew")
    assert read_table(tmp_path / "second") == read_table(tmp_path / "anew")
    stores = [ImageStore(tmp_path / name / IMAGES_DIR_NAME) for name in ("second", "anew")]
    assert stores[0].list_keys() == stores[1].list_keys()
    for key in stores[0].list_keys():
        stores[0].open(key)
    pages = [pl.read_parquet(tmp_path / name / "pages.parquet") for name in ("second", "anew")]
    assert pages[0].equals(pages[1])


def test_documents_that_have_moved_are_named_where_they_are(root: Path, tmp_path: Path) -> None:
    inner = root / root.relative_to("/")  # the name of the folder within a path from it
    inner.mkdir(parents=True)
    (inner / "spar.jsonl").write_text("{half a line\n")
    build(root, tmp_path / "first")
    moved = root.rename(tmp_path / "moved")
    kept = build(moved, tmp_path / "second", tmp_path / "first")
    assert kept.count()["kept_documents"] == 6
    build(moved, tmp_path / "anew")
    assert read_table(tmp_path / "second") == read_table(tmp_path / "anew")


def test_one_file_alone_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("rotor")
    build(file, tmp_path / "first")
    assert build(file, tmp_path / "second", tmp_path / "first").count()["kept_documents"] == 1
    documents = tmp_path / "documents"
    documents.mkdir()
    file.rename(documents / "a.md")
    assert build(documents, tmp_path / "third", tmp_path / "first").count()["kept_documents"] == 1
    assert {row["place"] for row in read_table(tmp_path / "third")} == {str(documents / "a.md")}


def test_a_document_that_changes_while_it_is_read_is_read_again(root: Path, tmp_path: Path) -> None:
    text = (root / "a.md").read_text()
    build(root, tmp_path / "first", meanwhile=lambda root: (root / "a.md").write_text("half of it"))
    (root / "a.md").write_text(text)
    assert build(root, tmp_path / "second", tmp_path / "first").count()["read_documents"] == 2
    build(root, tmp_path / "anew")
    assert [row["text"] for row in read_table(tmp_path / "second")] == [row["text"] for row in read_table(tmp_path / "anew")]


def test_documents_whose_bytes_cannot_be_compared_are_read_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (root / "sparse.txt").open("wb") as stream:
        stream.truncate(2**40)  # hashing it would take an hour
    monkeypatch.setattr("drag_ray.index.kept_documents._MAX_HASHED_BYTES", len("spar\fof two pages"))
    build(root, tmp_path / "first")
    assert build(root, tmp_path / "second", tmp_path / "first").count()["kept_documents"] == 1
    build(root, tmp_path / "anew")
    assert read_table(tmp_path / "second") == read_table(tmp_path / "anew")


def test_bytes_are_compared_unless_nobody_has_written_the_file_since(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    digest = kept_documents._digest

    def note(path: Path) -> str:
        hashed.append(path.name)
        return digest(path)

    monkeypatch.setattr(kept_documents, "_digest", note)
    build(root, tmp_path / "0")
    build(root, tmp_path / "1", tmp_path / "0")
    assert len(hashed) == 12  # they were written a moment before, and may be again within the same tick of the clock
    monkeypatch.setattr(kept_documents, "_SETTLED_NS", 0)
    build(root, tmp_path / "2", tmp_path / "1")
    hashed.clear()
    build(root, tmp_path / "3", tmp_path / "2")
    assert hashed == []
    state = (root / "a.md").stat()
    (root / "a.md").write_text("# Motor\n\n[spar](sub/b.txt)")  # as many bytes
    os.utime(root / "a.md", ns=(state.st_atime_ns, state.st_mtime_ns))
    kept = build(root, tmp_path / "4", tmp_path / "3")
    assert hashed == ["a.md"]
    assert kept.count()["read_documents"] == 2
    build(root, tmp_path / "anew")
    assert read_table(tmp_path / "4") == read_table(tmp_path / "anew")


def test_a_full_disk_is_said(root: Path, tmp_path: Path) -> None:
    (root / "long.txt").write_text(random.Random(0).randbytes(200_000).hex())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    build(root, tmp_path / "first")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(ArtifactError, match=r"second/\S+: cannot be written .*Free some space"):
            build(root, tmp_path / "second", tmp_path / "first")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert artifacts.read_manifest(tmp_path / "second") is None


def test_documents_are_kept_without_the_packages_that_do_ocr(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.metadata.Distribution.from_name

    def find_others(name: str) -> importlib.metadata.Distribution:
        if name in ("rapidocr", "onnxruntime"):
            raise importlib.metadata.PackageNotFoundError(name)
        return find(name)

    monkeypatch.setattr(importlib.metadata.Distribution, "from_name", find_others)
    config = RunConfig(corpus=CorpusConfig(documents=str(root)))
    described = describe_reading(config.corpus, compute_identity(STAGES["index"], config), root)
    assert described["rapidocr"] == ""
    assert described["lxml"] == importlib.metadata.version("lxml")
    # As indexes say it in which these were options: their documents are kept.
    former = {"corpus.ocr_min_chars": 100, "corpus.document_text_mib": 64, "corpus.document_total_cpu_s": 36_000.0}
    assert described.items() >= former.items()


def test_a_document_that_has_lost_an_image_is_read_again(root: Path, tmp_path: Path) -> None:
    build(root, tmp_path / "first")
    store = ImageStore(tmp_path / "first" / IMAGES_DIR_NAME)
    (store.root / store.list_keys()[0]).unlink()
    build(root, tmp_path / "second", tmp_path / "first")
    assert len(ImageStore(tmp_path / "second" / IMAGES_DIR_NAME).list_keys()) == 2


def damage(folder: Path) -> None:
    path = folder / TABLE_NAME
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "options", "reason"),
    [
        (damage, {}, "is missing (as in an index of an earlier version) or was changed"),
        (lambda folder: (folder / TABLE_NAME).unlink(), {}, "is missing (as in an index of an earlier version)"),
        (change_nothing, {"page_words": 10, "page_image_dpi": 72}, "another corpus.page_image_dpi, corpus.page_words"),
    ],
    ids=["damaged", "missing", "other options"],
)
def test_an_earlier_index_that_is_of_no_use_is_said_and_all_are_read(
    root: Path, tmp_path: Path, spoil: Change, options: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    build(root, tmp_path / "first")
    spoil(tmp_path / "first")
    with caplog.at_level(logging.INFO):
        kept = build(root, tmp_path / "second", tmp_path / "first", **options)
    assert kept.count() == {"kept_documents": 0, "read_documents": 6, "removed_documents": 0}
    assert "All documents are read: " in caplog.text
    assert reason in caplog.text


def test_options_that_no_document_is_read_by_keep_them(root: Path, tmp_path: Path) -> None:
    build(root, tmp_path / "first")
    others = {"limit_pages": 3, "seed": 5, "test_fraction": 0.5}
    assert build(root, tmp_path / "second", tmp_path / "first", **others).count()["kept_documents"] == 5
