"""Every command answers `--help` quickly, documents each of its options, and says what is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cpu_time import run_quickly

from drag_ray.cli.main import main
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.stages import STAGES

ROOT = Path(__file__).parents[2]
JOBS = sorted(path.stem for path in (ROOT / "jobs").glob("*.py"))
HEAVY = ("ray", "torch", "vllm", "transformers", "trl", "peft", "polars", "tantivy")
ASK_FOR_HELP = """
import contextlib, io, json, runpy, sys
import drag_ray.pipeline.runner, drag_ray.pipeline.run_config

paths, helped = sys.argv[1:], []
for path in paths:
    sys.argv = [path, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        runpy.run_path(path, run_name="__main__")
    helped += [path] if "--run-dir" in said.getvalue() else []
print(json.dumps(helped))
print(json.dumps(list(sys.modules)))
"""
"""The jobs that list their options, and what that has imported."""


def test_there_is_a_job_for_each_command() -> None:
    assert set(JOBS) == {*STAGES, "serve", "pipeline", "learn", "trial"}


@pytest.mark.seconds
def test_help_is_quick() -> None:
    assert "--run-dir" in run_quickly("jobs/pipeline.py", "--help", cwd=ROOT)  # it has the options of all others


def test_every_option_has_a_text() -> None:
    assert [name for name, text in _option_texts().items() if not text] == []


def _option_texts() -> dict[str, str | None]:
    texts: dict[str, str | None] = {}
    for section, field in RunConfig.model_fields.items():
        inner = getattr(field.annotation, "model_fields", None)
        if inner is None:
            texts[section] = field.description
        else:
            texts |= {f"{section}.{name}": option.description for name, option in inner.items()}
    return texts


def test_jobs_are_short() -> None:
    assert all(len((ROOT / "jobs" / f"{job}.py").read_text().splitlines()) <= 40 for job in JOBS)


@pytest.mark.seconds
def test_help_of_every_job_imports_nothing_heavy() -> None:
    paths = [f"jobs/{job}.py" for job in JOBS]
    done = subprocess.run([sys.executable, "-c", ASK_FOR_HELP, *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    helped, imported = map(json.loads, done.stdout.splitlines())
    assert helped == paths
    assert not set(HEAVY) & set(imported)


@pytest.mark.seconds
def test_what_starts_a_training_does_without_pytorch() -> None:
    code = "import sys, drag_ray.finetune.stage; print({'torch', 'peft', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_an_unknown_command_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["colect"]) == 2
    assert "Known commands: index, questions, tune, collect" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [("collect", "ray", "train"), ("serve", "ray", "serve"), ("collect", "vllm.v1.engine", "cpu"), ("index", "cv2", "ocr")],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(
    command: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr("drag_ray.cli.main._run", run)
    assert main([command]) == 1
    assert f"pip install 'drag-ray[{extra}]'" in capsys.readouterr().err


def test_a_part_of_ray_that_lacks_a_package_is_explained_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> None:
        raise ImportError("Can't import ray.train") from ModuleNotFoundError("No module named 'pandas'", name="pandas")

    monkeypatch.setattr("drag_ray.cli.main._run", run)
    assert main(["finetune"]) == 1
    assert "the package 'pandas' is not installed. Run: pip install 'drag-ray[train]'." in capsys.readouterr().err


def test_a_module_of_no_extra_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'theirs'", name="theirs")

    monkeypatch.setattr("drag_ray.cli.main._run", run)
    with pytest.raises(ModuleNotFoundError, match="theirs"):
        main(["collect"])


def test_memory_that_is_used_up_anywhere_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> None:
        raise MemoryError("Unable to allocate 8 GiB\nTraceback")

    monkeypatch.setattr("drag_ray.cli.main._run", run)
    assert main(["process"]) == 1
    told = "memory is used up (Unable to allocate 8 GiB). End other programs, or take a machine with more."
    assert capsys.readouterr().err == f"drag-ray process: {told}\n"


def test_a_wrong_option_ends_with_status_two_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", "--agent.top-k", "0"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("drag-ray collect: command line: agent.top_k:")
    assert "Traceback" not in error
