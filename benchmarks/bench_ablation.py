"""Effect of each part of a recipe: the recipe without it, on the same held-out questions: `results/ablation.json`.

A row is a policy of a finished evaluation, NAME=FOLDER:POLICY. The first is the recipe, and with it the others are compared:
for each measure the difference, the ends of its interval by document, its p-value, and that corrected (Holm) over all of them.

python benchmarks/bench_ablation.py "the recipe=runs/a/evaluate:tuned" "without proposals=runs/b/evaluate:tuned" ...
"""

import argparse
from pathlib import Path
from typing import Any

from bench_effect import CONFIDENCE, MEASURES, NUM_RESAMPLES, SEED, correct, take_differences, take_value
from record import write_result

from drag_ray.evaluate.evaluation_folder import read_results
from drag_ray.evaluate.measures import build_measures
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.statistics.intervals import Resampling, compute_clusters
from drag_ray.evaluate.statistics.rows import build_rows
from drag_ray.storage.artifacts import require_manifest

KEY = "vs_recipe"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", type=read_row, metavar="NAME=FOLDER:POLICY", help="policies; the first is the recipe")
    rows = dict(parser.parse_args().rows)
    write_result("ablation", {"rows": compare(rows)})


def read_row(text: str) -> tuple[str, list[QuestionResult]]:
    """The name of a row, and what its policy has found, in the order of the questions."""
    name, _, place = text.partition("=")
    folder, _, policy = place.rpartition(":")
    if not (name and folder and policy):
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=FOLDER:POLICY")
    require_manifest(Path(folder), "python jobs/evaluate.py")
    results = read_results(Path(folder))
    if policy not in results:
        raise argparse.ArgumentTypeError(f"{text!r}: that evaluation has {', '.join(results)}")
    return name, sorted(results[policy], key=lambda row: row.question_id)


def compare(results: dict[str, list[QuestionResult]]) -> list[dict[str, Any]]:
    """The rows, each compared with the first."""
    recipe = next(iter(results))
    measures = [measure for measure in build_measures(results) if measure.name in MEASURES.values()]
    clusters = compute_clusters(results[recipe])
    pairs = [(name, recipe) for name in results if name != recipe]
    measured = {
        row.name: row for row in build_rows(results, pairs, measures, Resampling(clusters, CONFIDENCE, NUM_RESAMPLES, SEED))
    }
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "n": len(clusters),
            **{key: take_value(measured[measure], name) for key, measure in MEASURES.items()},
            KEY: take_differences(measured, name, recipe),
        }
        for name in results
    ]
    correct(rows, [KEY])
    return rows


if __name__ == "__main__":
    main()
