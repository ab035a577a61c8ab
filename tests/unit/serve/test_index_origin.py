"""What is said of adapters and evaluations of another index than is served."""

import logging
from pathlib import Path

import pytest
from serve_cases import TRAINED

from drag_ray.agent.record import RECORD_NAME, read_record
from drag_ray.errors import DataError
from drag_ray.evaluate.context import ReportContext
from drag_ray.evaluate.outcome import COMPARISON_NAME
from drag_ray.search.index import read_fingerprint
from drag_ray.search.searcher import Searcher
from drag_ray.serve.adapters.adapter_files import describe_other_index, say_other_origins
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity

OTHER = "0123456789abcdef"


def evaluate(folder: Path, fingerprint: str) -> Path:
    context = ReportContext("or", "english", "greedy", (0,), fingerprints={"search index": fingerprint} if fingerprint else {})
    with StageFolder(folder, Identity("evaluate", {}, {})) as stage:
        artifacts.write_json(stage.path / COMPARISON_NAME, {"context": context.to_dict()})
        stage.finish({})
    return folder


def test_what_was_made_with_another_index_is_said_and_nothing_of_the_rest(
    searcher: Searcher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = searcher.record.fingerprint
    assert read_fingerprint(searcher.index_dir) == served
    given = {"old": OTHER, "own": served, "unknown": ""}
    records = {name: TRAINED.model_copy(update={"index_fingerprint": fingerprint}) for name, fingerprint in given.items()}
    with caplog.at_level(logging.WARNING):
        say_other_origins(str(searcher.index_dir), records, evaluate(tmp_path / "own", served))
        say_other_origins(str(searcher.index_dir), {}, evaluate(tmp_path / "earlier", ""))
        say_other_origins("", records, tmp_path / "unread")
    [said] = caplog.messages
    assert said.startswith(f"the adapter 'old' was trained with another index ({OTHER}) than is served ({served})")
    caplog.clear()
    say_other_origins(str(searcher.index_dir), {}, evaluate(tmp_path / "other", OTHER))
    assert caplog.messages[0].startswith(f"{tmp_path / 'other'} evaluated with another index")
    assert describe_other_index(OTHER, "") == ""


def test_what_a_note_says_of_its_index_is_a_fingerprint_and_nothing_else(tmp_path: Path) -> None:
    artifacts.write_json(tmp_path / RECORD_NAME, TRAINED.model_dump(mode="json") | {"index_fingerprint": "\x1b[31mred"})
    with pytest.raises(DataError, match="not a note"):
        read_record(tmp_path, TRAINED.agent)
