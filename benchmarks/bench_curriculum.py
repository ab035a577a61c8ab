"""A shipped curriculum to its end, by models that see pages: supervised training, rejection sampling, reinforcement learning.

PYTHONPATH=.:tests/support/cases:tests/support/models:tests/support/servers
    python benchmarks/bench_curriculum.py --recipe v_retrver|opensearch_vl [--shapes tiny]

Ten pages with pictures and seven training questions, with few samples of each, on one GPU, by the pipeline with
`jobs/configs/RECIPE_curriculum.toml`. The model has the shapes of Qwen3-VL-8B, but for its words, and random weights; a scripted
teacher writes what the first round learns. So this measures stages and no quality.

`results/curriculum_RECIPE.json` has of each stage seconds, counts, the most GPU memory (of everything on that GPU) and, where
tokens are drawn or trained, tokens a second; and the steps of reinforcement learning: how far engine and trainer are apart
(`engine_kl`, nats a token), the questions that were drawn and learned from, and the images. It is written whenever a stage has
ended. The exit status is 1 if one failed; `failed` says why.

`--letters` rewards letters in reinforcement learning, for a model that did not learn to write an order, whose noise would earn
nothing.
"""

import argparse
import json
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_finetune_speed import GpuMemory
from curricula import check_curriculum, run_curriculum, write_documents, write_policy
from qwen3_vl_shapes import SHAPES_8B, drop_words, write_model, write_random_weights
from record import RESULTS_DIR, make_folder, write_result

import drag_ray
from drag_ray.engine.models.canary import read_canary
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.finetune.training_folder import CURVE_NAME, read_curve
from drag_ray.pipeline.stages import STAGES
from drag_ray.rl.learning import ROWS_NAME, STEPS_DIR_NAME
from drag_ray.storage.artifacts import MANIFEST_NAME, is_begun, require_manifest
from drag_ray.storage.json_text import parse_json

NUM_ROUNDS = {"v_retrver": 2, "opensearch_vl": 1}
TINY = "tiny"
LETTERS = "tests.support.cases.own_rewards:reward_letters"
_PAGE_POINTS = (298, 420)  # A6, which is 621 x 876 pixels: about 520 tokens


class Progress(GpuMemory):
    """Notes the stages of a run as they end, each with the most memory since the one before, and writes the result."""

    def __init__(self, run_dir: Path, options: argparse.Namespace) -> None:
        self._run_dir, self._options = run_dir, options
        self._stages: dict[str, dict[str, Any]] = {}

    def look(self) -> None:
        """Write the result again if a stage has ended."""
        super().look()
        if ended := [path for path in self._list_ended() if str(path) not in self._stages]:
            for path in ended:
                self._stages[str(path)] = describe_stage(self._run_dir / path) | {"gpu_memory_gib": self.peak_gib}
                print(path, json.dumps(self._stages[str(path)]), flush=True)
            self.peak_gib = 0.0
            self.write()

    def write(self, failure: str = "") -> None:
        """Write what there is, with the stage that failed."""
        begun = [str(path) for path in self._list_begun() if str(path) not in self._stages]
        failed = {"failed": {"stages": begun, "message": failure}} if failure else {}
        options = {name: value for name, value in vars(self._options).items() if name != "out"}
        found = {"stages": self._stages, "rl": describe_learning(self._run_dir), **failed, "options": options}
        write_result(f"curriculum_{self._options.recipe}", found, folder=self._options.out)

    def _list_begun(self) -> Iterator[Path]:
        places = (path for pattern in ("*", "rounds/*/*") for path in self._run_dir.glob(pattern))
        return (path.relative_to(self._run_dir) for path in places if path.name in STAGES and is_begun(path))

    def _list_ended(self) -> list[Path]:
        ended = [path for path in self._list_begun() if (self._run_dir / path / MANIFEST_NAME).exists()]
        return sorted(ended, key=lambda path: require_manifest(self._run_dir / path, "").finished_at)


def describe_stage(folder: Path) -> dict[str, Any]:
    """Seconds and counts of a finished stage, which have the tokens a second of a training, and those of all replies that it
    drew."""
    manifest = require_manifest(folder, "")
    found: dict[str, Any] = {"seconds": round(manifest.duration_s, 1), "counts": manifest.counts}
    drawn = manifest.counts.get("completion_tokens")
    return found | ({"drawn_tokens_per_s": round(drawn / manifest.duration_s, 1)} if drawn else {})


def describe_learning(run_dir: Path) -> dict[str, Any]:
    """The steps of reinforcement learning, what its rows hold, and what became of its adapter.

    The trainer refuses a row whose prompt is not that of the engine, token by token and image by image: `compared_rows` are those
    that it could tell so of. An engine refuses an adapter whose canary it finds otherwise: `evaluated_with_canary`.
    """
    stage_dir = run_dir / "rl"
    if not (stage_dir / CURVE_NAME).exists():
        return {}
    paths = sorted((stage_dir / STEPS_DIR_NAME).glob(f"*/{ROWS_NAME}"))
    rows = [parse_json(line) for path in paths for line in path.read_bytes().splitlines()]
    images = [key for row in rows for key in row.get("images") or ()]  # no row has the column if none shows any
    adapter = stage_dir / "adapter"
    is_evaluated = (run_dir / "evaluate" / MANIFEST_NAME).exists()
    policies = set(drag_ray.read_results(run_dir)["policy"]) if is_evaluated else set[str]()
    return {
        "steps": read_curve(stage_dir),
        **{"rows": len(rows), "compared_rows": sum(bool(row.get("prompt_digest")) for row in rows)},
        **{"shown_images": len(images), "different_images": len(set(images))},
        "is_published": adapter.exists(),
        "evaluated_with_canary": "rl" in policies and read_canary(adapter) is not None,
    }


def build_sections(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The options of a run on a GPU, in place of those for a small model on CPUs."""
    sections = {"process": {"reward": LETTERS}} if options.letters else {}
    if options.shapes == TINY:
        return sections
    precision = {"device": "gpu", "dtype": "bfloat16"}
    return sections | {
        "engine": precision | {"gpu_memory_utilization": options.gpu_memory_utilization},
        "finetune": precision | {"learning_rate": 5e-5, "gradient_checkpointing": True},
    }


def run(folder: Path, options: argparse.Namespace) -> None:
    """Run the curriculum in an empty folder. What fails is written and raised."""
    name, is_tiny = f"{options.recipe}_curriculum", options.shapes == TINY
    progress = Progress(folder / "run", options)
    try:
        with progress:
            if is_tiny:
                model = write_policy(folder / "model")
            else:
                model = write_model(folder / "model", embedded_model_dir(), drop_words(SHAPES_8B))
                write_random_weights(model)
            print(f"model: {sum(path.stat().st_size for path in model.iterdir()) / 2**30:.2f} GiB", flush=True)
            write_documents(folder, (200, 200) if is_tiny else _PAGE_POINTS)
            learning = {"learning_rate": 3e-3 if is_tiny else 2e-4, "epochs": options.epochs}
            run_dir = run_curriculum(folder, model, name, "", learning, **build_sections(options))
            check_curriculum(run_dir, name, NUM_ROUNDS[options.recipe])
    except BaseException:
        progress.look()
        progress.write(traceback.format_exc(limit=-1))
        raise
    progress.look()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=sorted(NUM_ROUNDS), required=True)
    parser.add_argument("--shapes", choices=["8b", TINY], default="8b")
    parser.add_argument("--letters", action="store_true", help="reinforcement learning rewards letters")
    parser.add_argument("--epochs", type=int, default=6, help="of the training of each round")
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.3, help="as engine.gpu_memory_utilization")
    parser.add_argument("--out", type=make_folder, default=RESULTS_DIR, help="folder of the result")
    options = parser.parse_args()
    drag_ray.show_messages()
    with tempfile.TemporaryDirectory(prefix="drag-ray-bench-") as folder:
        run(Path(folder), options)


if __name__ == "__main__":
    main()
