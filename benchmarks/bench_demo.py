"""Keep what a run of the whole loop measured: stage times and counts from the manifests, the table from the report's comparison.

make demo && python benchmarks/bench_demo.py [--run-dir runs/demo] [--name demo] [--whole-s SECONDS]
"""

import argparse
import json
from pathlib import Path

from record import write_result

from drag_ray.pipeline.stages import STAGES
from drag_ray.storage import artifacts

_RERANKER = ("reranker/format", "reranker/finetune")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run-dir", type=Path, default=Path("runs/demo"), help="folder of a finished run")
    parser.add_argument("--name", default="demo", help="name of the result")
    parser.add_argument("--whole-s", type=float, help="seconds of `make demo` in a fresh clone without caches, if it was timed")
    options = parser.parse_args()
    run_dir: Path = options.run_dir
    stages = [name for name, stage in STAGES.items() if not stage.switch or (run_dir / name).is_dir()]
    stages += [name for name in _RERANKER if (run_dir / name).is_dir()]
    manifests = {name: artifacts.require_manifest(run_dir / name) for name in stages}
    comparison = json.loads((run_dir / "evaluate" / "comparison.json").read_text())
    write_result(
        options.name,
        {
            **({"whole_s": options.whole_s} if options.whole_s else {}),
            "stage_seconds": {name: manifest.duration_s for name, manifest in manifests.items()},
            "stage_counts": {name: manifest.counts for name, manifest in manifests.items()},
            "verdict": comparison["verdict"],
            "deployment": comparison["deployment"],
            "questions": comparison["num_questions"],
            "top_k": comparison["top_k"],
            "depth": comparison["depth"],
            "measures": {
                row["name"]: {"metrics": row["metrics"], "differences": row["differences"]} for row in comparison["rows"]
            },
        },
    )


if __name__ == "__main__":
    main()
