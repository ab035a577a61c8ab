"""A loss of power at any moment: a manifest never outlives its data."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from lost_power import list_losses, record_states
from pydantic import TypeAdapter

from drag_ray import schemas
from drag_ray.errors import DragRayError, SearchIndexError
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index, check_files, read_record
from drag_ray.stage_runs import damage
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts, checksums
from drag_ray.storage.appended_lines import append_line, read_lines
from drag_ray.storage.artifacts import Identity, new_folder
from drag_ray.types import Page

pytestmark = pytest.mark.seconds


def run_stage(run_dir: Path, text: str = "row", value: int = 1) -> None:
    with StageFolder(run_dir / "format", Identity("format", {"value": value}, {})) as folder:
        (folder.path / "rows").mkdir(exist_ok=True)
        artifacts.write_parquet(folder.path / "rows" / "part.parquet", pa.table({"a": [text] * 50}))
        (folder.path / "native").write_text(text * 50)  # as libraries write, which sync nothing
        folder.finish({"rows": 50})


def find_lies(run_dir: Path) -> str:
    """Describe files that a manifest vouches for and that are missing or damaged."""
    try:
        manifest = artifacts.read_manifest(run_dir / "format")
    except DragRayError:
        return "a manifest that cannot be read"
    found = damage.find_damage(run_dir / "format", whole=True) if manifest else []
    return checksums.describe_damage(found)


def find_index_lies(folder: Path) -> str:
    index_dir = folder / "index"
    if not index_dir.exists():
        return ""
    try:
        read_record(index_dir)
        check_files(index_dir)
    except SearchIndexError as error:
        return str(error)
    listed = checksums.parse_list((index_dir / checksums.LIST_NAME).read_text())
    return checksums.describe_damage(checksums.find_damage(index_dir, listed, whole=True))


def lose_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], object], find: Callable[[Path], str]
) -> tuple[int, list[str]]:
    """Count the states that may be left of an act in the folder `run`, and describe those that are wrong."""
    root = tmp_path / "run"
    states = record_states(root, monkeypatch, lambda: act(root))
    lies: list[str] = []
    num_states = 0
    for number, write in list_losses(states, num_random=1):
        num_states += 1
        write(tmp_path / "left")
        lie = find(tmp_path / "left")
        if lie:
            lies.append(f"after {number} of {len(states)}: {lie}")
    return num_states, lies


def begin_stage(run_dir: Path) -> None:
    with StageFolder(run_dir / "format", Identity("format", {"value": 1}, {})) as folder:
        artifacts.write_text(folder.path / "part", "x")


def write_pages(folder: Path) -> None:
    pages = [Page(f"{word}.pdf", 1, 1, word) for word in ("rotor", "spar")]
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))


def build(folder: Path) -> None:
    build_index(folder / "pages.parquet", folder / "index", SearchConfig())


@pytest.mark.parametrize(
    ("prepare", "act", "find", "min_states"),
    [
        pytest.param(lambda _: None, run_stage, find_lies, 200, id="a new stage"),
        pytest.param(begin_stage, run_stage, find_lies, 1, id="a stage that goes on where it was"),
        pytest.param(run_stage, lambda run_dir: run_stage(run_dir, "other", 2), find_lies, 1, id="a stage of other options"),
        pytest.param(write_pages, build, find_index_lies, 100, id="an index"),
    ],
)
def test_what_is_vouched_for_is_there_whenever_power_is_lost(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[Path], object],
    act: Callable[[Path], object],
    find: Callable[[Path], str],
    min_states: int,
) -> None:
    (tmp_path / "run").mkdir()
    prepare(tmp_path / "run")
    num_states, lies = lose_power(tmp_path, monkeypatch, act, find)
    assert lies == []
    assert num_states > min_states


def mend(run_dir: Path) -> None:
    """Do a finished stage again in its folder, as one does of which files are damaged."""
    identity = Identity("format", {"value": 1}, {})
    with StageFolder(run_dir / "format", identity, damage.find_damage(run_dir / "format"), repairs_in_place=True) as folder:
        artifacts.write_parquet(folder.path / "rows" / "part.parquet", pa.table({"a": ["other"] * 50}))
        folder.finish({"rows": 50})


def test_a_stage_that_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    run_stage(tmp_path / "run")
    part = Path("format", "rows", "part.parquet")
    (tmp_path / "run" / part).write_bytes(b"damaged")

    def find(run_dir: Path) -> str:
        lie = find_lies(run_dir)
        if not lie and (run_dir / part).exists() and (run_dir / part).read_bytes() == b"damaged":
            return "damage that nobody knows of"
        # Until the damaged file is away, the manifest of before says that it is damaged.
        return "" if lie.startswith(("rows/part.parquet: has 7 bytes", "rows/part.parquet: is missing")) else lie

    assert lose_power(tmp_path, monkeypatch, mend, find)[1] == []


def test_appended_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run" / "lines.jsonl"
    path.parent.mkdir()
    append_line(path, 0)

    def find(folder: Path) -> str:
        return "" if read_lines(folder / "lines.jsonl", TypeAdapter(int)) in ([0], [0, 1], [0, 1, 2]) else "other lines"

    assert lose_power(tmp_path, monkeypatch, lambda _: [append_line(path, number) for number in (1, 2)], find)[1] == []


@pytest.mark.parametrize("forgotten", ["files", "folders"])
def test_what_is_not_synced_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: str) -> None:
    """The proof that the test would fail."""
    sync = artifacts.sync
    monkeypatch.setattr(artifacts, "sync", lambda path: None if path.is_dir() == (forgotten == "folders") else sync(path))
    (tmp_path / "run").mkdir()
    assert lose_power(tmp_path, monkeypatch, run_stage, find_lies)[1]


def test_a_folder_that_was_finished_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()

    def act() -> None:
        with new_folder(tmp_path / "run" / "store", "") as scratch:
            (scratch / "table").write_text("rows")

    states = record_states(tmp_path / "run", monkeypatch, act)
    for _, write in list_losses(states[-1:], num_random=3):
        write(tmp_path / "left")
        assert (tmp_path / "left" / "store" / "table").read_text() == "rows"
