"""The copy of an index on a node: made once whoever asks, whole or not at all, and found again."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from drag_ray import schemas
from drag_ray.errors import ArtifactError, SearchIndexError
from drag_ray.search import node_copy
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.node_copy import copy_to_node
from drag_ray.search.searcher import Searcher
from drag_ray.storage import artifacts
from drag_ray.types import Page


def build(folder: Path, *texts: str) -> Path:
    pages = [Page("a.pdf", number, len(texts), text) for number, text in enumerate(texts, start=1)]
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(folder / "pages.parquet", folder / "search_index", SearchConfig())
    return folder / "search_index"


def test_a_copy_finds_what_the_index_finds_without_it(tmp_path: Path) -> None:
    index_dir, node_dir = build(tmp_path / "run", "rotor speed", "tail rotor torque"), tmp_path / "node"
    expected = Searcher(index_dir).search("torque", 2)
    copy = copy_to_node(index_dir, node_dir)
    assert copy.parent == node_dir
    shutil.rmtree(tmp_path / "run")
    assert Searcher(copy).search("torque", 2) == expected


def test_processes_of_a_node_copy_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Path] = []

    def note(index_dir: Path, copy: Path) -> None:
        copied.append(copy)
        genuine(index_dir, copy)

    genuine = node_copy._copy  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(node_copy, "_copy", note)
    index_dir = build(tmp_path / "run", "rotor speed")
    with ThreadPoolExecutor(8) as threads:
        copies = set(threads.map(lambda _: copy_to_node(index_dir, tmp_path / "node"), range(8)))
    assert len(copies) == len(copied) == 1
    rebuilt = build(tmp_path / "run", "rotor speed", "spar")
    assert copy_to_node(rebuilt, tmp_path / "node") not in copies


def test_what_is_damaged_on_its_way_leaves_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copytree(source: Path, target: Path, *inner: Any, **options: Any) -> None:
        genuine(source, target, *inner, **options)
        if not inner:  # not of a folder within
            pages = target / "pages.arrow"
            data = bytearray(pages.read_bytes())
            data[len(data) // 2] ^= 0xFF
            pages.write_bytes(data)

    genuine = shutil.copytree
    monkeypatch.setattr(node_copy.shutil, "copytree", copytree)
    index_dir = build(tmp_path / "run", "rotor speed")
    with pytest.raises(SearchIndexError, match=r"search_index: damaged, or on its way here: pages\.arrow"):
        copy_to_node(index_dir, tmp_path / "node")
    assert [path.name for path in (tmp_path / "node").iterdir() if not path.name.startswith(".")] == []


def test_what_cannot_be_copied_is_told(tmp_path: Path) -> None:
    with pytest.raises(SearchIndexError, match=r"checksums\.jsonl: cannot be read"):
        copy_to_node(tmp_path / "nothing", tmp_path / "node")
    index_dir = build(tmp_path / "run", "rotor speed")
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match=r"file: cannot be written \(File exists\)"):
        copy_to_node(index_dir, tmp_path / "file")
