"""Without any extra the core searches, reads what stages have left, and each command works or says what it needs."""

import json
import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from requirements import read_parts
from small_run import write_small_run

from drag_ray.cli.endpoint_commands import ENDPOINT_COMMANDS
from drag_ray.cli.file_commands import FILE_COMMANDS
from drag_ray.pipeline.stages import STAGES

ROOT = Path(__file__).parents[2]
WITHOUT_THE_REST = """
import sys, tempfile
from pathlib import Path

BLOCKED = set(sys.argv[1].split(","))

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is no part of the core", name=name)

sys.meta_path.insert(0, Blocker())
"""
SEARCH = """
import pyarrow as pa
import pyarrow.parquet as pq
from drag_ray import schemas
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.searcher import Searcher
import drag_ray.corpus.readers.page_reader, drag_ray.corpus.readers.pdf, drag_ray.corpus.questions, drag_ray.corpus.split

with tempfile.TemporaryDirectory() as folder:
    pages = Path(folder, "pages.parquet")
    rows = [{field.name: None for field in schemas.PAGES} | {"file": "a.pdf", "page_number": n, "total_pages": 2, "text": text}
            for n, text in ((1, "the rotor turns"), (2, "the tail is long"))]
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.PAGES), pages)
    build_index(pages, Path(folder, "index"), SearchConfig())
    print([(hit.file, hit.page_number) for hit in Searcher(Path(folder, "index")).search("rotor", top_k=3)])
"""
READ = """
import drag_ray

run = drag_ray.open_run("runs/small")
read = [run.read_questions(), run.read_trajectories(), run.read_results(), run.read_measures(), run.read_transcripts(),
        run.read_status(), run.verify(), run.open_searcher().search("images", top_k=1)]
print([len(found) > 0 for found in read])
"""
LACKING = """
said = []
for ask in (run.collect, run.pipeline, run.serve, run.open_agent,
            lambda: drag_ray.load_reward_model("model"), lambda: drag_ray.score("runs/small", report="report")):
    try:
        ask()
    except drag_ray.errors.MissingPackageError as error:
        said.append(str(error).partition("drag-ray[")[2].partition("]")[0])
print(said)
"""
RUN_COMMAND_LINES = """
import contextlib, io, json
from drag_ray.cli.main import main

said = []
for line in json.loads(sys.argv[2]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        status = main(line.split())
    said.append(errors.getvalue() if status else "works")
print(json.dumps(said))
"""
NOBODY = "--url http://127.0.0.1:9"
COMMAND_LINES = {
    "index --config jobs/configs/small.toml": "train",
    "questions --run-dir runs/small": "train",
    "tune --run-dir runs/small": "train",
    "collect --config jobs/configs/small.toml": "train",
    "process --config jobs/configs/small.toml": "train",
    "format --config jobs/configs/small.toml": "/process: no manifest.json",
    "finetune --config jobs/configs/small.toml": "/format: no manifest.json",
    "rl --config jobs/configs/small.toml": "train",
    "embed --config jobs/configs/small.toml": "train",
    "evaluate --config jobs/configs/small.toml": "train",
    "pipeline --config jobs/configs/small.toml": "train",
    "serve --config jobs/configs/small.toml": "serve",
    f"search rows {NOBODY}": "no endpoint answers",
    f"ask rows {NOBODY}": "no endpoint answers",
    f"mcp {NOBODY}": "serve",
    f"canary adapter {NOBODY}": "train",
    "show runs/small": "works",
    "show runs/small --html page.html": "works",
    "inspect candidates.jsonl": "train",
    "export trajectories.jsonl --run-dir runs/small": "works",
    "export predictions --to madqa --run-dir runs/small": "works",
    "import trajectories.jsonl --run-dir runs/imported": "works",
    "import candidates.jsonl --from v_retrver --run-dir runs/candidates": "works",
    "score runs/small": "works",
    "score runs/small/collect": "works",
    "score runs/small --report report": "train",
    "compare runs/small runs/small": "works",
    "verify runs/small": "works",
    "status runs/small": "works",
    "cost runs/small": "no finished stage has recorded its cost",
    "review runs/small --port 0": "serve",
    "kinds runs/small": "/questions: no manifest.json",
    "pairs runs/small pairs.jsonl": "/questions: no manifest.json",
    "learn runs/small": "no feedback",
    "trial runs/small": "no trial",
    "drift runs/small": "no feedback",
    "merge adapter merged": "train",
    "push runs/small {store}": "works",
    "pull {store} runs/pulled": "works",
}
"""What each command comes to: it works, it misses an extra, or it says something else that has nothing to do with packages."""


def run_without_the_rest(code: str, folder: Path, *arguments: str) -> str:
    """The output of a program where the core alone is installed."""
    parts = {part: {canonicalize_name(Requirement(text).name) for text in texts} for part, texts in read_parts().items()}
    heavy = set().union(*(parts[part] for part in ("train", "serve", "ocr", "demo", "cpu", "gpu"))) - parts["core"]
    modules = {module for module, names in packages_distributions().items() if heavy & set(map(canonicalize_name, names))}
    assert {"torch", "ray", "vllm", "transformers", "trl", "rapidocr", "openai"} <= modules
    command = [sys.executable, "-c", WITHOUT_THE_REST + code, ",".join(modules), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.seconds
def test_the_core_searches_without_any_other_package(tmp_path: Path) -> None:
    assert run_without_the_rest(SEARCH, tmp_path) == "[('a.pdf', 1)]"


@pytest.mark.seconds
def test_the_core_reads_what_stages_have_left_and_from_python_what_it_lacks_is_named_with_its_extra(tmp_path: Path) -> None:
    write_small_run(tmp_path)
    read, lacking = run_without_the_rest(READ + LACKING, tmp_path).splitlines()
    assert read == str([True] * 8)
    assert lacking == str(["train", "train", "serve", "cpu", "train", "train"])


@pytest.mark.seconds
def test_on_the_core_each_command_works_or_says_which_extra_it_needs(tmp_path: Path) -> None:
    commands = {line.partition(" ")[0] for line in COMMAND_LINES}
    assert commands == {*STAGES, "pipeline", "serve", *ENDPOINT_COMMANDS, *FILE_COMMANDS}
    write_small_run(tmp_path)
    lines = [line.format(store=(tmp_path / "store").as_uri()) for line in COMMAND_LINES]
    all_said = json.loads(run_without_the_rest(RUN_COMMAND_LINES, tmp_path, json.dumps(lines)))
    for (line, expected), said in zip(COMMAND_LINES.items(), all_said, strict=True):
        if expected in ("train", "serve"):
            expected = f"is not installed. Run: pip install 'drag-ray[{expected}]'.\n"
        assert expected in said, line
