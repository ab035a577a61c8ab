"""A collection whose policy looks at page images with tools: its throughput, and the time of each tool apart.

python benchmarks/bench_collect_tools.py --tokenizer DIR                    Qwen3-VL-8B's shapes on a GPU
python benchmarks/bench_collect_tools.py --shapes tiny --seconds 20 --concurrency 4 --max-num-seqs 4         to rehearse

The collect stage's own path (Ray Data, an engine in an actor, searches, tools, journal) over pages that are drawn here. Weights
are random, so calls are replayed: the engine draws as many tokens as a reply of the script (`replayed_calls.py`) has, and that
reply with its own token ids stands in their place. So prompts, images and observations are those of a real rollout, and every
call is carried out: a search that shows pictures of pages, grep, view_page, crop, zoom, rotate, sharpen and select_images.

No rollout is begun after `--seconds`. Rates are of that time, tools and shares of all rollouts. What a run has left in its
`--folder` that was cut short is read with `--read`.
"""

import argparse
import contextlib
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
from bench_collect_images import write_pages
from bench_collect_throughput import Load, measure
from qwen3_vl_shapes import SHAPES_8B, SHAPES_TINY, write_model
from record import write_result
from replayed_calls import NUM_TURNS, TOOLS, ReplayedCallsEngine
from scripted_collection import SAMPLES, build_question, build_word

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy
from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.corpus import image_store
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.errors import BudgetError
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.folder import TRAJECTORIES_DIR_NAME
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import run_plan
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.storage import artifacts
from drag_ray.types import Evidence, Page, Question

PAGES_A_FILE = 50
SHAPES = {"8b": SHAPES_8B, "tiny": SHAPES_TINY}
TINY_PIXELS = 256 * 256
"""of an image as a model of two layers is shown it, so that a CPU can rehearse"""


def locate(number: int) -> tuple[str, int]:
    """File and page of a page by its number."""
    return f"manual{number // PAGES_A_FILE}.pdf", number % PAGES_A_FILE + 1


def write_index(folder: Path, num_pages: int) -> None:
    """Pages with pictures of 960 x 1280 pixels and a word of their own, as the index stage names what it leaves."""
    keys = write_pages(folder / image_store.DIR_NAME, 0, num_pages)
    pages = [
        Page(*locate(number), PAGES_A_FILE, f"The {build_word(number)} of the pump.", image=key)
        for number, key in enumerate(keys)
    ]
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(folder / "pages.parquet", folder / "search_index", SearchConfig())


def collect(arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Roll out, and leave trajectories and the times of requests in `folder`; returns what the driver took."""
    shapes, is_tiny = SHAPES[arguments.shapes], arguments.shapes == "tiny"
    limit = {"max_pixels": TINY_PIXELS} if is_tiny else {}
    model = write_model(folder / "model", arguments.tokenizer or embedded_model_dir(), shapes, **limit)
    write_index(folder / "index", arguments.pages)
    engine = EngineConfig(
        model=str(model),
        load_format="dummy",
        dtype="float32" if is_tiny else "bfloat16",
        max_model_len=16_384,
        max_num_seqs=arguments.max_num_seqs,
        image_cache_gib=2 if is_tiny else 16,
        encoder_cache_gib=arguments.encoder_cache_gib,
        enforce_eager=is_tiny,
        logprobs=False,
        seeds=False,
    )
    settings = RolloutConfig(concurrent_rollouts=arguments.concurrency, num_engines=1, chunk_rollouts=SAMPLES)
    run_dir, seconds, thoughts = folder / "run", arguments.seconds, arguments.thoughts
    options = WorkerOptions(
        run_dir=run_dir,
        index_dir=folder / "index" / "search_index",
        agent=AgentConfig(
            protocol="tools",
            tools=TOOLS,
            query_mode="rewrite",
            page_view="image",
            max_iterations=NUM_TURNS,
            max_tokens=512,
            thinking=False,
        ),
        engine=engine,
        policies={"": Policy(engine.model)},
        concurrent_rollouts=settings.concurrent_rollouts,
        flush_s=2,
        image_dirs=(folder / "index" / image_store.DIR_NAME,),
        build_engine=lambda config, images, adapters: ReplayedCallsEngine(config, images, folder, seconds, thoughts),
    )
    questions = [
        Question(f"q{number}", build_question(number), (Evidence(*locate(number)),), split="train")
        for number in range(arguments.pages)
    ]
    plan = build_plan(questions, ("default",), SAMPLES, run_seed=0)
    with connect(ClusterConfig()), Load() as load, contextlib.suppress(BudgetError):
        run_plan(plan, options, settings, "collecting")
    return load.describe()


def summarise(folder: Path, seconds: float) -> dict[str, Any]:
    """The figures of what a collection has left in `folder`; its rates are of the first `seconds`."""
    requests = [json.loads(line) for path in folder.glob("requests-*.jsonl") for line in path.read_text().splitlines()]
    of_turns = ("action", "error", "search_s", "generate_s", "tool", "tool_s", "tool_error")
    files = map(pq.ParquetFile, (folder / "run" / TRAJECTORIES_DIR_NAME).glob("*.parquet"))
    rollouts = pl.concat([pl.DataFrame(schemas.read_columns(file, ("duration_s", "error"), of_turns)) for file in files])
    turns = rollouts.select("turns").explode("turns").unnest("turns")
    searches = turns.filter(pl.col("action") == "search").select(tool=pl.lit("search"), tool_s="search_s", tool_error="error")
    calls = pl.concat([searches, turns.filter(pl.col("tool") != "").select("tool", "tool_s", "tool_error")])
    spent = {
        "engine": sum(ended - began for began, ended, _ in requests),  # `generate_s` of the first turns has the warm-up in it
        "search": float(searches["tool_s"].sum()),
        "tools": float(turns["tool_s"].sum()),
    }
    spent["rest"] = float(rollouts["duration_s"].sum()) - float(turns["generate_s"].sum()) - spent["search"] - spent["tools"]
    return {
        **compute_rates(requests, seconds),
        "rollouts": len(rollouts),
        "failed": int((rollouts["error"] != "").sum()),
        "turns": len(turns),
        "share_of_rollout_time": {name: round(value / sum(spent.values()), 5) for name, value in spent.items()},
        "tools": describe_calls(calls),
        "whole": measure(folder),
    }


def compute_rates(requests: list[tuple[float, float, int]], seconds: float) -> dict[str, float]:
    """Requests and tokens that the engine answered in the first `seconds`, and requests that it worked on then, on average.

    Args:
        requests: begin and end of each, and the tokens of the reply.
    """
    start = min(began for began, _, _ in requests)
    end = min(start + seconds, max(ended for _, ended, _ in requests))
    answered = [num_tokens for _, ended, num_tokens in requests if ended <= end]
    under_way_s = sum(max(0.0, min(ended, end) - began) for began, ended, _ in requests)
    return {
        "seconds": round(end - start, 2),
        "requests": len(answered),
        "requests_per_s": round(len(answered) / (end - start), 3),
        "output_tokens_per_s": round(sum(answered) / (end - start), 1),
        "requests_under_way": round(under_way_s / (end - start), 2),
    }


def describe_calls(calls: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Of each tool the calls, those that failed, and their time, in the order of the script."""
    tools = calls.group_by("tool").agg(
        calls=pl.len(),
        errors=(pl.col("tool_error") != "").sum(),
        mean_ms=(pl.col("tool_s").cast(pl.Float64).mean() * 1e3).round(2),
        p95_ms=(pl.col("tool_s").cast(pl.Float64).quantile(0.95) * 1e3).round(2),
    )
    rows = {row.pop("tool"): row for row in tools.to_dicts()}
    return {name: rows[name] for name in TOOLS if name in rows}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", choices=SHAPES, default="8b")
    parser.add_argument("--tokenizer", type=Path, help="folder of a tokenizer; the embedded model's by default")
    parser.add_argument("--pages", type=int, default=400, help=f"pages, each with a question that is asked {SAMPLES} times")
    parser.add_argument("--seconds", type=float, default=90, help="no rollout is begun after this time")
    parser.add_argument("--thoughts", type=int, default=5, help="sentences of 14 tokens before each call")
    parser.add_argument("--concurrency", type=int, default=48, help="rollouts that the engine works on at the same time")
    parser.add_argument("--max-num-seqs", type=int, default=48)
    parser.add_argument("--encoder-cache-gib", type=float, default=8, help="as engine.encoder_cache_gib")
    parser.add_argument("--folder", type=Path, help="where the collection is kept; a temporary folder by default")
    parser.add_argument("--read", action="store_true", help="of what is in --folder, without a run")
    parser.add_argument("--name", default="collect_tools", help="name of the result")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.shapes == "8b" and not shutil.which("nvidia-smi") and not arguments.read:
        print("skipped: there is no GPU; --shapes tiny rehearses without one")
        return
    with tempfile.TemporaryDirectory(prefix="drag-ray-bench-") as scratch:
        folder = (arguments.folder or Path(scratch)).resolve()
        started = time.time()
        load = {} if arguments.read else collect(arguments, folder)
        figures = summarise(folder, arguments.seconds) | load | {"wall_s": round(time.time() - started, 1)}
    options = {name: value for name, value in vars(arguments).items() if not isinstance(value, Path)}
    write_result(arguments.name, {**figures, "options": options})
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
