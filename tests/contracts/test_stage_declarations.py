"""A stage depends on what it declares: the folders that it reads, the options that it receives, the packages that it uses."""

import ast
import inspect
import re
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import get_type_hints

import pytest

import drag_ray
from drag_ray.pipeline import runner
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import compute_identity
from drag_ray.pipeline.stages import SERVE, STAGES, Stage
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs

ROOT = Path(drag_ray.__file__).parent
ALL = [*STAGES.values(), SERVE]
by_stage = pytest.mark.parametrize("stage", ALL, ids=lambda stage: stage.name)


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def list_asked(stage: Stage) -> set[str]:
    """The stages whose folders the code of a stage asks its inputs for."""
    asked = set()
    knowing = [
        path for path in (ROOT / stage.name).rglob("*.py") if "from drag_ray.stage_runs.inputs import Inputs" in path.read_text()
    ]
    for path in knowing:
        for node in ast.walk(parse(path)):
            match node:
                case ast.Subscript(value=ast.Name(id="inputs"), slice=ast.Constant(value=str(name))):
                    asked.add(name)
                case ast.Call(func=ast.Attribute(value=ast.Name(id="inputs"), attr="find"), args=[ast.Constant(value=str(name))]):
                    asked.add(name)
    return asked


@by_stage
def test_a_stage_reads_what_it_declares_and_declares_what_it_reads(stage: Stage) -> None:
    assert list_asked(stage) == {*stage.reads, *stage.optional_inputs}


@by_stage
def test_a_stage_receives_its_sections_and_no_other_options(stage: Stage) -> None:
    module = __import__(stage.module, fromlist=["run"])
    received = [get_type_hints(module.run)[name] for name in inspect.signature(module.run).parameters]
    assert received[:2] == [stage.sections, Inputs]
    assert stage is SERVE or received[2:] == [StageFolder]


@by_stage
def test_a_stage_knows_no_run_in_which_it_could_find_other_folders(stage: Stage) -> None:
    """Nor can it get there from its own folder; only what was set aside of its own work lies beside it."""
    climbing = set()
    for path in (ROOT / stage.name).rglob("*.py"):
        for node in ast.walk(parse(path)):
            match node:
                case ast.Attribute(value=ast.Attribute(value=ast.Name(id="folder"), attr="path"), attr="parent" | "parents"):
                    climbing.add(path.name)
                case ast.Attribute(value=ast.Name(id="stage_dir"), attr="parent" | "parents"):
                    climbing.add(path.name)
    assert climbing <= {"reuse.py"}


def test_an_input_that_is_not_declared_cannot_be_asked_for(tmp_path: Path) -> None:
    inputs = Inputs({"index": tmp_path, "finetune": None})
    assert (inputs["index"], inputs.find("finetune")) == (tmp_path, None)
    with pytest.raises(KeyError):
        inputs["collect"]
    with pytest.raises(KeyError):
        inputs.find("collect")
    with pytest.raises(AssertionError, match="need not have been started"):
        inputs["finetune"]


_CARRIERS = {"numpy", "polars", "pyarrow", "pydantic", "scipy", "opencv-python", "opencv-python-headless"}
"""What holds tables, arrays, sets and options, and makes nothing else of them; OpenCV has several names, with rapidocr."""


def test_another_version_of_what_reads_documents_has_them_read_again() -> None:
    owners = packages_distributions()
    imported = {
        owner
        for path in (ROOT / "corpus").rglob("*.py")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        for owner in owners.get(name.partition(".")[0], [])
    }
    spelled = {re.sub(r"[-_.]+", "-", owner).lower() for owner in imported} - {"drag-ray"} - _CARRIERS
    assert spelled <= set(STAGES["index"].packages)
    assert {"lxml", "pillow", "pypdfium2", "markdown-it-py", "rapidocr"} <= spelled


def test_the_version_of_a_reader_is_part_of_what_the_index_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig(run_dir=tmp_path)
    before = compute_identity(STAGES["index"], config)
    for changed, runs_again in {"lxml": True, "pypdfium2": True, "trl": False, "reportlab": False}.items():
        monkeypatch.setattr(runner, "version", lambda name, changed=changed: "9.9" if name == changed else version(name))
        assert (compute_identity(STAGES["index"], config).fingerprint != before.fingerprint) is runs_again
