"""Ways to train a query writer at equal terms: supervised, by preferences, from recorded rollouts, and while collecting.

python benchmarks/bench_rl.py --out FOLDER --set medquad=benchmarks/effect/rl/medquad.toml [--method rl] [--seed 0]
    [--model FOLDER] [--name rl_rloo] [--options='{"rl": {"steps": 40}}'] [--limit 1000] [--every 8]
python benchmarks/bench_rl.py --table FOLDER [--result rl]

The first command trains once, in FOLDER/SET/NAME-SEED, and asks the test questions, which are of other documents: `rl` is the
stage of that name, `recipe` the rounds of a configuration's curriculum (an adapter each), `grpo` one round of reinforcement
learning from recorded rollouts, `base` trains nothing. It writes FOLDER/SET-NAME-SEED.json with the rank of the best evidence
page of each test question in the first search, the seconds of each stage and, of `rl`, the curve; and what each policy finds,
as `bench_rankers.py --additions` reads it, in FOLDER/additions/SET-NAME-SEED/POLICY. What is there is not made again. With
`--every 8` the policies after 8, 16, ... steps of `rl` are asked too. Of `rl`,
FOLDER/speed/SET-NAME-SEED.json has samples a second and how busy the GPUs were; `--limit -1` asks no questions and writes that
alone. The second command writes `results/rl.json`, or another: means over seeds, with differences to the untrained model and to
the question over documents, and the recall of the pages that a reader would be given.
`--set NAME=FILE` names a configuration of benchmarks/effect. One process takes one GPU or more: see
CUDA_VISIBLE_DEVICES.
"""

import argparse
import math
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from ask_writer import write_pages
from bench_rankers import MEASURES, UNION, compare_values, measure, open_collection, search_words
from public_sets import DATA_DIR
from record import make_folder, write_result
from run_effect import GpuWatch

import drag_ray
from drag_ray.api.run import Run
from drag_ray.evaluate.statistics.intervals import holm
from drag_ray.finetune.training_folder import read_curve
from drag_ray.rl import course
from drag_ray.rl.learning import list_policies, locate_policy
from drag_ray.stage_runs import provenance
from drag_ray.storage import artifacts
from drag_ray.storage.json_text import parse_json
from drag_ray.types import Evidence, Question

QUESTION, BASE = "question", "base"
METHODS = ("rl", "recipe", "grpo", BASE)
KEPT = ("hit3", "mrr")
"""Measures that differences are kept of, which Holm's correction is over."""
SECONDS = ("rollout_seconds", "train_seconds", "step_seconds")
CURVE = (
    *("step", "reward", "spread", "kl", "entropy", "engine_kl", "clipped", "eval_reward"),
    *("rollouts", "lag", *SECONDS),
)


def keep_policies(every: int) -> None:
    """Let a training leave its policies after each so many steps, all but few of which it would drop."""
    drop = course.drop_policies
    course.drop_policies = lambda stage_dir, kept: drop(
        stage_dir, {*kept, *(step for step in list_policies(stage_dir) if step % every == 0)}
    )


def list_kept(run: Run, every: int) -> dict[str, Path]:
    """The policies after each so many steps, by name."""
    stage_dir = run.locate("rl")
    steps = [step for step in list_policies(stage_dir) if step and step % every == 0]
    return {f"step{step:03}": locate_policy(stage_dir, step) for step in steps}


def train(run: Run, method: str) -> dict[str, Path]:
    """Train, and give the adapters by name."""
    if method == BASE:
        return {}
    if method == "rl":
        run.rl()
        return {"rl": run.locate("rl") / "adapter"}
    if method == "grpo":
        for stage in ("collect", "process", "format", "finetune"):
            run.run_stage(stage)
        return {"grpo": run.locate("finetune") / "adapter"}
    run.pipeline(evaluate={"limit": 1, "baselines": [QUESTION], "adapters": []})
    found = sorted(run.folder.glob("rounds/*/finetune/adapter"))
    return {f"round{number}": path for number, path in enumerate(found, start=1)}


def read_stages(run: Run) -> dict[str, float]:
    """The seconds of each stage."""
    found = {path.parent: artifacts.read_manifest(path.parent) for path in sorted(run.folder.glob("**/manifest.json"))}
    return {str(path.relative_to(run.folder)): round(of.duration_s, 1) for path, of in found.items() if of}


def read_ranks(run: Run) -> tuple[list[str], list[str], dict[str, list[int]]]:
    """Questions, their documents, and for each policy the rank in the first search; 0 where it was not found."""
    results = drag_ray.read_results(run.folder).sort("question_id")
    ranks = {str(name): of["first_search_rank"].fill_null(0).to_list() for (name,), of in results.group_by("policy")}
    first = results.filter(pl.col("policy") == QUESTION)
    return first["question_id"].to_list(), first["file"].to_list(), ranks


def share(made: Path, index: Path) -> None:
    """Copy an index for other trainings, of which some may be doing so now: whole or not at all, and the first one's."""
    scratch = Path(shutil.copytree(made, index.with_name(f".index-{os.getpid()}")))
    try:
        scratch.rename(index)
    except OSError:  # another was first
        shutil.rmtree(scratch)


def run_once(options: argparse.Namespace) -> None:
    """Train once and write what came of it."""
    of, config = options.set
    name = options.name or options.method
    output, folder = options.out / f"{of}-{name}-{options.seed}.json", options.out / of / f"{name}-{options.seed}"
    (options.out / "speed").mkdir(exist_ok=True)
    if output.exists():
        return
    given = dict(options.options)
    if options.model:
        given["engine"] = {"model": options.model} | given.get("engine", {})
    seeded = {"seed": options.seed, "finetune": {"seed": options.seed} | given.pop("finetune", {})}
    run = drag_ray.open_run(folder, config=config, **seeded, **given)
    index = options.out / of / "index"
    if index.exists() and not (folder / "index").exists():
        shutil.copytree(index, folder / "index")
    started = time.perf_counter()
    with run:
        run.index()
        if not index.exists():
            share(folder / "index", index)
        indexed = time.perf_counter()
        with GpuWatch() as gpus:
            if options.every:
                keep_policies(options.every)
            adapters = train(run, options.method)
        ended, trained = time.time(), time.perf_counter()
        curve = read_curve(run.locate("rl")) if options.method == "rl" else []
        if curve:
            artifacts.write_json(options.out / "speed" / output.name, describe_speed(run, curve, gpus, ended))
        if options.limit < 0:
            return
        compared = adapters | (list_kept(run, options.every) if options.every else {})
        named = tuple(f"{key}={path}" for key, path in compared.items())
        asked = {"adapters": named, "baselines": [QUESTION], "limit": options.limit, "question_weights": []}
        run.evaluate(evaluate=asked, engine={"adapter": ""})
        for policy in (BASE, *adapters):
            write_pages(options.out / "additions" / f"{of}-{name}-{options.seed}" / policy / f"{of}.json", run, policy)
    questions, files, ranks = read_ranks(run)
    record = {
        **{"set": of, "method": name, "seed": options.seed, "model": run.config.engine.model.rpartition("/")[2]},
        **{"machine": provenance.read_machine(), "commit": provenance.read_commit()},
        "seconds": {"index": indexed - started, "train": trained - indexed, "evaluate": time.perf_counter() - trained},
        **{"stages": read_stages(run), "options": options.options},
        "curve": [{key: point[key] for key in CURVE if key in point} for point in curve],
        **{"questions": questions, "files": files, "ranks": ranks},
    }
    artifacts.write_json(output, record)
    print(of, name, options.seed, {key: np.mean(measure(ranks[key]), axis=0).round(4).tolist() for key in sorted(ranks)})


def describe_speed(run: Run, curve: list[dict[str, Any]], gpus: GpuWatch, ended: float) -> dict[str, Any]:
    """Samples a second and the busy share of each GPU, over the steps after the first two, of which the first has the start."""
    steps = [point for point in curve if "step_seconds" in point][2:]
    if not steps:
        raise SystemExit("three steps of rl or more are needed to see how fast they are (rl.steps)")
    sums = {key: round(sum(point.get(key, 0) for point in steps), 2) for key in ("rollouts", "tokens", *SECONDS)}
    shares = [gpus.compute_share(number, ended - sums["step_seconds"], ended) for number in range(gpus.num_gpus)]
    return {
        **{"model": run.config.engine.model.rpartition("/")[2], "max_lag": run.config.rl.max_lag, "steps": len(steps)},
        **{"machine": provenance.read_machine(), "commit": provenance.read_commit(), "sums": sums},
        **{"samples_per_second": round(sums["rollouts"] / sums["step_seconds"], 2), "gpu_busy": shares},
        "curve": [{key: point[key] for key in (*CURVE, "tokens") if key in point} for point in steps],
    }


def summarise(of: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """The table of a set: each method's adapters over its seeds, beside the question and the untrained model, on the test
    questions that all were asked."""
    asked = set[str].intersection(*(set(one["questions"]) for one in found))
    found = [keep_asked(one, asked) for one in found]
    files = found[0]["files"]
    values = {name: np.stack([measure(one["ranks"][name]) for one in found]) for name in (QUESTION, BASE)}
    trainings: dict[str, list[dict[str, Any]]] = {}
    for one in found:
        for policy in sorted(set(one["ranks"]) - {QUESTION, BASE}):
            name = one["method"] if policy in METHODS else f"{one['method']} {policy}"
            trainings.setdefault(name, []).append(one | {"own": one["ranks"][policy]})
    values |= {name: np.stack([measure(one["own"]) for one in ones]) for name, ones in trainings.items()}
    rows = compare_values(values, files, [BASE, QUESTION])
    for name, ones in trainings.items():
        rows[name] |= {
            "seeds": [one["seed"] for one in ones],
            "seconds": [{key: round(value) for key, value in one["seconds"].items()} for one in ones],
            "options": {key: value for key, value in ones[0]["options"].items() if key != "corpus"},
            "curves": [one["curve"] for one in ones if one["curve"] and name == one["method"]],
        }
    models = sorted({one["model"] for one in found})
    return {"questions": len(files), "documents": len(set(files)), "models": models, "rows": rows}


def keep_asked(one: dict[str, Any], asked: set[str]) -> dict[str, Any]:
    """A training's outcome on some of its questions, in the order of their names."""
    places = sorted((name, place) for place, name in enumerate(one["questions"]) if name in asked)
    ranks = {policy: [own[place] for _, place in places] for policy, own in one["ranks"].items()}
    return one | {"files": [one["files"][place] for _, place in places], "ranks": ranks}


def count_candidates(folder: Path, data_dir: Path) -> dict[str, Any]:
    """The share of questions with evidence among the 20 best of words and what a policy finds, how many pages these are, and the
    share among as many of words alone."""
    table: dict[str, Any] = {}
    adding = {path: path.parent for path in sorted((folder / "additions").glob("*/*/*.json"))}
    for of in sorted({path.stem for path in adding}):
        pages = {own.parent.name + " " + own.name: read_pages(path) for path, own in adding.items() if path.stem == of}
        collection = open_collection(argparse.Namespace(data_dir=data_dir), of, folder / "candidates")
        asked = set[str].intersection(*map(set, pages.values()))
        questions = [question for question in collection.questions if question.id in asked]
        first = [[hit.page for hit in hits] for hits in search_words(questions, collection.searcher)]
        rows = {"words": (shared := [own[:UNION] for own in first])}
        for name, own in pages.items():
            both = [list(dict.fromkeys(best + own[q.id])) for best, q in zip(shared, questions, strict=True)]
            number = sum(map(len, both)) / len(both)
            rows |= {name: both, f"{name}, as many of words": [best[: math.ceil(number)] for best in first]}
        table[of] = {name: describe_candidates(questions, found) for name, found in rows.items()}
    return table


def read_pages(path: Path) -> dict[str, list[Evidence]]:
    """Read the pages that a policy finds for each question, as `ask_writer.write_pages` leaves them."""
    pages = parse_json(path.read_text(encoding="utf-8"))["pages"]
    return {question: [Evidence(*page) for page in own] for question, own in pages.items()}


def describe_candidates(questions: Sequence[Question], found: Sequence[Sequence[Evidence]]) -> dict[str, float]:
    """The share of questions with evidence among some pages, and the mean number of pages."""
    held = [bool(set(question.evidence) & set(own)) for question, own in zip(questions, found, strict=True)]
    return {"recall": round(float(np.mean(held)), 4), "pages": round(float(np.mean([len(own) for own in found])), 1)}


def write_table(folder: Path, result: str, data_dir: Path) -> None:
    """Write what is there as a result."""
    found = [parse_json(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    sets = {of: summarise(of, [one for one in found if one["set"] == of]) for of in sorted({one["set"] for one in found})}
    rows = [row for table in sets.values() for name, row in table["rows"].items() if name not in (QUESTION, BASE)]
    differences = [of for row in rows for key in row if key.startswith("above_") for name, of in row[key].items() if name in KEPT]
    for difference, adjusted in zip(differences, holm([one[3] for one in differences]), strict=True):
        difference.append(adjusted)
    for of, table in sets.items():
        for name, row in table["rows"].items():
            print(of, name, *(f"{key} {row[key]}" for key in MEASURES), row.get("above_base", {}).get("mrr"))
    speed = {path.stem: parse_json(path.read_text(encoding="utf-8")) for path in sorted((folder / "speed").glob("*.json"))}
    candidates = count_candidates(folder, data_dir)
    for of, ones in candidates.items():
        print(of, *(f"\n  {name}: {one}" for name, one in ones.items()))
    summary = {"machine": found[0]["machine"], "sets": sets, "speed": speed, "candidates": candidates}
    write_result(result, summary, measured_here=False)


def read_set(text: str) -> tuple[str, Path]:
    """A name and its configuration, of the command line."""
    name, _, path = text.partition("=")
    if not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=FILE, of a configuration of benchmarks/effect")
    return name, Path(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command = parser.add_mutually_exclusive_group(required=True)
    command.add_argument("--out", type=make_folder, help="folder to train in; what is there is not made again")
    command.add_argument("--table", type=Path, metavar="OUT", help="write what is there as a result")
    parser.add_argument("--result", default="rl", help="name of that result")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="folder of the public sets, for the table")
    parser.add_argument("--set", type=read_set, metavar="NAME=FILE")
    parser.add_argument("--method", choices=METHODS, default="rl")
    parser.add_argument("--name", default="", help="what the training is called; the method by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="", help="folder or name, above that of the configuration")
    parser.add_argument("--options", type=parse_json, default={}, help="of the run, above those of the configuration: JSON")
    parser.add_argument("--every", type=int, default=0, help="steps between further policies that are asked; 0 asks none")
    parser.add_argument("--limit", type=int, default=0, help="test questions, drawn; 0 takes all, -1 only looks at speed")
    options = parser.parse_args()
    if options.table:
        write_table(options.table, options.result, options.data_dir)
    elif options.set:
        drag_ray.show_messages()
        run_once(options)
    else:
        parser.error("--out needs --set NAME=FILE")


if __name__ == "__main__":
    main()
