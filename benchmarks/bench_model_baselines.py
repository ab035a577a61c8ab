"""Baselines that a model writes, HyDE and Query2doc, beside those that need none, through the evaluate stage.

python benchmarks/bench_model_baselines.py [--sets medquad fairytaleqa embedded] [--questions 200] [--model embedded]

Each set is indexed and evaluated as a user would do it, with `python jobs/index.py` and `python jobs/evaluate.py`, before
anything is trained: the base model as an agent of one search with the demo's prompt, and every baseline, on the same held-out
questions.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench_effect import OF_OTHER_MODELS
from public_sets import DATA_DIR
from record import write_result

from drag_ray.baselines.registry import BASELINES
from drag_ray.corpus.config import COMMANDS

ROOT = Path(__file__).parent.parent
NAMES = [name for name, kind in BASELINES.items() if not issubclass(kind, OF_OTHER_MODELS)]
"""All but those that choose by what was collected, as nothing is, and those of models that embed or rank."""
_AGENT = ["--config", str(ROOT / "jobs" / "configs" / "demo.toml"), "--agent.max-iterations", "1"]


def name_source(name: str, data_dir: Path) -> list[str]:
    """The index stage's options for a set."""
    if name == "embedded":
        return ["--corpus.documents", COMMANDS, "--corpus.questions", COMMANDS]
    folder = data_dir / name
    return ["--corpus.documents", str(folder / "pages.jsonl.gz"), "--corpus.questions", str(folder / "questions.jsonl")]


def measure(name: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Every policy's figures on one set."""
    run_dir = ["--run-dir", str(folder / "run")]
    run_job("index", [*run_dir, *name_source(name, options.data_dir)])
    limits = ["--evaluate.limit", str(options.questions), "--engine.model", options.model]
    run_job("evaluate", [*_AGENT, *run_dir, *limits, "--evaluate.baselines", json.dumps(NAMES)])
    comparison = json.loads((folder / "run" / "evaluate" / "comparison.json").read_text())
    rows = {
        row["name"]: row["metrics"] for row in comparison["rows"] if row["name"] in ("hit_at_1", "hit_at_3", "hit_at_10", "mrr")
    }
    return {"questions": comparison["num_questions"], "measures": rows}


def run_job(stage: str, arguments: list[str]) -> None:
    """Run one job and stop if it fails."""
    subprocess.run([sys.executable, str(ROOT / "jobs" / f"{stage}.py"), *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="folder of the public sets")
    parser.add_argument("--sets", nargs="+", default=["medquad", "fairytaleqa", "embedded"])
    parser.add_argument("--questions", type=int, default=200, help="held-out questions of each set")
    parser.add_argument("--model", default="embedded", help="as engine.model")
    options = parser.parse_args()
    results = {}
    for name in options.sets:
        if name != "embedded" and not (options.data_dir / name).is_dir():
            print(f"left out: {options.data_dir / name} is not there")
            continue
        with tempfile.TemporaryDirectory(prefix="drag-ray-bench-") as folder:
            results[name] = measure(name, options, Path(folder))
    print(json.dumps(results, indent=1))
    write_result("model_baselines", {"model": options.model, "sets": results})


if __name__ == "__main__":
    main()
