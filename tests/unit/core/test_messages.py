"""Messages of the package, and JSON from elsewhere that is nested more deeply than Python can follow."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import drag_ray
from drag_ray.cli.main import main
from drag_ray.engine.conversation import read_conversation
from drag_ray.engine.models.model_files import read_object
from drag_ray.errors import DamageError, DataError, DragRayError
from drag_ray.finetune.rows.tokenized_rows import read_rows
from drag_ray.finetune.training_folder import CURVE_NAME, read_curve
from drag_ray.messages import about, format_json
from drag_ray.search.index import INDEX_NAME, read_fingerprint
from drag_ray.stage_runs.store import StageStore
from drag_ray.storage.artifacts import MANIFEST_NAME, read_manifest
from drag_ray.storage.checksums import parse_list
from drag_ray.storage.json_text import parse_json
from drag_ray.storage.object_store import StorageConfig

_logger = logging.getLogger("drag_ray.tested")


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The logger of the package as in a program that has done nothing yet."""
    logger = logging.getLogger("drag_ray")
    handlers, level, propagates = logger.handlers, logger.level, logger.propagate
    logger.handlers, logger.propagate = [], True
    logger.setLevel(logging.NOTSET)
    yield logger
    logger.handlers, logger.propagate = handlers, propagates
    logger.setLevel(level)


def test_messages_are_records_until_they_are_shown(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    _logger.info("before")
    drag_ray.show_messages()
    drag_ray.show_messages()
    _logger.info("after, 100 %")
    _logger.warning("damaged")
    assert capsys.readouterr() == ("after, 100 %\n", "damaged\n")
    logger.setLevel(logging.WARNING)
    drag_ray.show_messages()
    _logger.info("done")
    assert capsys.readouterr() == ("", "")


def test_a_library_that_sets_up_the_root_logger_has_no_line_shown_twice() -> None:
    program = (
        "import logging, drag_ray; drag_ray.show_messages(); logging.basicConfig(); logging.getLogger('drag_ray.x').info('once')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("once\n", "")


def test_lines_of_json_tell_what_it_is_about(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAG_RAY_LOG_FORMAT", "json")
    drag_ray.show_messages()
    with about(run="mine", stage="collect"):
        with about(question="q1"):
            _logger.warning('%s says "no"\nand ends', "it")
        try:
            raise ValueError("lost")
        except ValueError as error:
            _logger.error("failed", exc_info=error)
    _logger.info("done")
    out, err = capsys.readouterr()
    warned, failed = map(json.loads, err.splitlines())
    assert datetime.fromisoformat(warned.pop("time")).tzinfo is not None
    assert warned == {
        **{"level": "WARNING", "logger": "drag_ray.tested", "message": 'it says "no"\nand ends'},
        **{"run": "mine", "stage": "collect", "question": "q1"},
    }
    assert "question" not in failed
    assert failed["error"].endswith("ValueError: lost")
    assert json.loads(out).keys() == {"time", "level", "logger", "message"}


def test_what_others_say_commands_no_terminal(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    drag_ray.show_messages()
    _logger.warning("the endpoint says: \x1b]0;owned\x07 \x9b31m \u202egnp.exe\n\tand more")
    assert capsys.readouterr().err == "the endpoint says: \ufffd]0;owned\ufffd \ufffd31m \ufffdgnp.exe\n\tand more\n"
    value = {"said": "\x1b[31m \x9b \u202e naïve 文"}
    line = format_json(value)
    assert json.loads(line) == value
    assert "naïve 文" in line
    assert not set("\x1b\x9b\u202e") & set(line)


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


def test_training_rows_and_runs_with_such_json_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.jsonl").write_text(DEEP[0])
    with pytest.raises(DataError, match="nested too deeply"):
        list(read_rows(tmp_path / "train.jsonl"))
    deep_tools = {"prompt": [], "completion": [{"role": "assistant", "content": "a"}], "tools": DEEP[0]}
    with pytest.raises(DataError, match="nested too deeply"):
        read_conversation(deep_tools)
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
