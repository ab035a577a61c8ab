"""Worth of questions that a model has written: rankers trained on them beside rankers trained on a set's own questions.

python benchmarks/bench_written.py own=FOLDER,FOLDER written=FOLDER,FOLDER ... --questions FOLDER [--result written]

A name stands for folders that `bench_rankers.py --out` has filled, the first for trainings on the sets' own questions; the test
questions of a set are the same in all, real ones over documents of their own. Each ranking is compared with the best search
that needs no training, with the same ranking of the first name, and with that of the second. `of_gain` is the part of what own
questions gain in MRR above the best untrained search, where that gain is significant. `--questions` names what the writers left:
FOLDER/WRITER/SET with the manifest of each stage `questions`, whose counts are kept too; alone it writes these.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench_rankers import MEASURES, UNTRAINED, compare_values, find_best_untrained, measure, read_outputs
from record import write_result

from drag_ray.evaluate.statistics.intervals import holm
from drag_ray.storage.artifacts import read_manifest
from drag_ray.storage.json_text import parse_json

RANKINGS = ("features", "ce@20", "ce_stacked@20", "tuned_dense", "tuned_hybrid", "reader@20", "reader_stacked@20")
KEPT = ("hit1", "mrr")
"""Measures that differences are kept of, which Holm's correction is over."""


def read_variant(text: str) -> tuple[str, list[Path]]:
    """A name and its folders, of the command line."""
    name, _, folders = text.partition("=")
    if not folders:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=FOLDER,FOLDER as `bench_rankers.py --out` fills them")
    return name, [Path(folder) for folder in folders.split(",")]


def collect(outputs: Iterable[dict[str, Any]], ranking: str) -> np.ndarray | None:
    """The measures of a ranking, (trainings, questions, measures), each seed once; None where it was not asked."""
    by_seed = {one["seed"]: one["ranks"][ranking] for one in outputs if ranking in one["ranks"]}
    return np.stack([measure(by_seed[seed]) for seed in sorted(by_seed)]) if by_seed else None


def compare_set(variants: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """The table of a set: each ranking of each name."""
    own, written, *_ = variants
    first = variants[own][0]
    files, searches = first["files"], {name: measure(first["ranks"][name])[None] for name in UNTRAINED}
    best = find_best_untrained(searches)
    found = {
        (name, ranking): values
        for name, outputs in variants.items()
        for ranking in RANKINGS
        if (values := collect(outputs, ranking)) is not None
    }
    rows = compare_values({"best": searches[best], **{" ".join(key): of for key, of in found.items()}}, files, ["best"])
    del rows["best"]
    for ranking in RANKINGS:
        same = {" ".join(key): values for key, values in found.items() if key[1] == ranking}
        for reference in (own, written):
            beside = f"{reference} {ranking}"
            if beside not in same:
                continue
            for name, row in compare_values(same, files, [beside]).items():
                rows[name][f"above_{reference}"] = row.get(f"above_{beside}", {})
    table: dict[str, Any] = {}
    for name, outputs in variants.items():
        own_rows = {ranking: rows[f"{name} {ranking}"] for ranking in RANKINGS if (name, ranking) in found}
        for ranking, row in own_rows.items():
            row["trainings"] = len(found[name, ranking])
            gain, low, *_ = rows[f"{own} {ranking}"]["above_best"]["mrr"]
            row["of_gain"] = round(row["above_best"]["mrr"][0] / gain, 3) if low > 0 else None
        about = {key: outputs[0][key] for key in ("train_questions", "validation_questions", "written")}
        table[name] = {**about, "asked": outputs[0]["asked"]["train"], "rankings": own_rows}
    untrained = {name: dict(zip(MEASURES, of.mean((0, 1)).round(4).tolist(), strict=True)) for name, of in searches.items()}
    about = {"questions": len(files), "documents": len(set(files)), "asked": first["asked"]["test"]}
    return {**about, "untrained": untrained, "best_untrained": best, "variants": table}


def read_counts(folder: Path) -> dict[str, dict[str, Any]]:
    """The counts of each writer's stage by set."""
    paths = sorted(folder.glob("*/*/manifest.json"))
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        if manifest := read_manifest(path.parent):
            of_set = {key: count for key, count in manifest.counts.items() if count}
            found.setdefault(path.parents[1].name, {})[path.parent.name] = of_set
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", type=read_variant, metavar="NAME=FOLDER,FOLDER")
    parser.add_argument("--questions", type=Path, required=True, help="folder of the questions stages by writer and set")
    parser.add_argument("--result", default="written", help="name of the result")
    options = parser.parse_args()
    counts = read_counts(options.questions)
    if not options.variants:
        write_result(options.result, {"writers": counts})
        return
    outputs = {name: [one for folder in folders for one in read_outputs(folder)] for name, folders in options.variants}
    own, written = ({one["set"] for one in outputs[name]} for name, _ in options.variants[:2])
    sets = sorted(own & written)
    tables = {}
    for of in sets:
        own = {name: [one for one in found if one["set"] == of] for name, found in outputs.items()}
        tables[of] = compare_set({name: found for name, found in own.items() if found})
    rows = [row for table in tables.values() for variant in table["variants"].values() for row in variant["rankings"].values()]
    differences = [
        found for row in rows for key, of in row.items() if key.startswith("above_") for name, found in of.items() if name in KEPT
    ]
    for found, adjusted in zip(differences, holm([one[3] for one in differences]), strict=True):
        found.append(adjusted)
    for row in rows:
        row |= {key: {name: of[name] for name in KEPT if name in of} for key, of in row.items() if key.startswith("above_")}
    for name, table in tables.items():
        print(name, table["best_untrained"], table["untrained"][table["best_untrained"]]["mrr"])
        for variant, found in table["variants"].items():
            for ranking, row in found["rankings"].items():
                print(
                    f"  {variant:12} {found['train_questions']:5} {ranking:14} {row['mrr']} {row['of_gain']}",
                    row["above_best"]["mrr"],
                )
    first = next(path for folder in options.variants[0][1] for path in sorted(folder.glob("*.json")))
    machine = parse_json(first.read_text(encoding="utf-8"))["machine"]
    write_result(options.result, {"machine": machine, "writers": counts, "sets": tables}, measured_here=False)


if __name__ == "__main__":
    main()
