"""The notebook of the documentation shows what its cells give."""

import re
from pathlib import Path

import polars as pl
import pytest
from notebook_cells import read_cells, run_cells
from small_run import write_small_run

import drag_ray
from drag_ray.transcripts.transcript import Transcript


def test_every_cell_was_executed_in_order_and_without_an_error() -> None:
    cells = read_cells("code")
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "execute_result"}
    assert not [output for output in outputs if output.get("name") == "stderr"]


def test_no_path_of_the_machine_that_executed_it_is_in_it() -> None:
    shown = str([cell["outputs"] for cell in read_cells("code")])
    assert re.findall(r"/(?:tmp|root|home|work|usr|opt|var)/", shown) == []


def test_its_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_small_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    shown = run_cells(with_engine=False)
    assert {type(item) for item in shown} == {type(None), int, pl.DataFrame, Transcript, drag_ray.Report}
