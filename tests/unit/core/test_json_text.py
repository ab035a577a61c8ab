"""JSON from elsewhere that is nested more deeply than Python can follow is an error of the project, which names the file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drag_ray.cli.main import main
from drag_ray.engine.conversation import read_conversation
from drag_ray.engine.models.model_files import read_object
from drag_ray.errors import DamageError, DataError, DragRayError
from drag_ray.finetune.outcome import CURVE_NAME, read_curve
from drag_ray.finetune.tokenized_rows import read_rows
from drag_ray.search.index import INDEX_NAME, read_fingerprint
from drag_ray.stage_runs.store import StageStore
from drag_ray.storage.artifacts import MANIFEST_NAME, read_manifest
from drag_ray.storage.checksums import parse_list
from drag_ray.storage.json_text import parse_json
from drag_ray.storage.object_store import StorageConfig

DEEP = ("[" * 100_000, '{"a": ' * 100_000, "[" * 100_000 + "]" * 100_000)


DOORS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "manifest": (MANIFEST_NAME, lambda path: read_manifest(path.parent)),
    "learning curve": (CURVE_NAME, lambda path: read_curve(path.parent)),
    "model": ("config.json", lambda path: read_object(path, "a model")),
    "index": (INDEX_NAME, lambda path: read_fingerprint(path.parent)),
}


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
@pytest.mark.parametrize("door", DOORS)
def test_a_file_of_a_run_is_named(door: str, text: str, tmp_path: Path) -> None:
    name, read = DOORS[door]
    (tmp_path / name).write_text(text)
    with pytest.raises(DragRayError) as raised:
        read(tmp_path / name)
    assert str(tmp_path / name) in str(raised.value)


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_it_is_json_that_cannot_be_read(text: str) -> None:
    with pytest.raises(json.JSONDecodeError, match="nested too deeply"):
        parse_json(text)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_list(text)


def test_training_rows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(DEEP[0])
    with pytest.raises(DataError, match="nested too deeply"):
        list(read_rows(tmp_path / "train.jsonl"))
    deep_tools = {"prompt": [], "completion": [{"role": "assistant", "content": "a"}], "tools": DEEP[0]}
    with pytest.raises(DataError, match="nested too deeply"):
        read_conversation(deep_tools)


def test_a_command_on_such_a_run_ends_with_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage_dir = tmp_path / "run" / "collect"
    stage_dir.mkdir(parents=True)
    (stage_dir / MANIFEST_NAME).write_text(DEEP[0])
    assert main(["verify", str(tmp_path / "run")]) == 1
    assert f"{stage_dir}: damaged: manifest.json" in capsys.readouterr().err


def test_a_store_with_such_a_manifest_is_not_pulled(tmp_path: Path) -> None:
    store, manifest = StageStore(StorageConfig(uri=f"file://{tmp_path}/store")), tmp_path / "store/stages/collect" / MANIFEST_NAME
    manifest.parent.mkdir(parents=True)
    almost = (f'{{"sha256": "", "a": {"[" * depth}{"]" * depth}}}' for depth in range(700, 1000))  # can be read, not hashed
    for text in (*almost, DEEP[0]):
        manifest.write_text(text)
        with pytest.raises(DamageError, match=r"stages/collect/manifest\.json: not a manifest"):
            store.pull("collect", tmp_path / "run")
