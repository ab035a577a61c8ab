"""Results of a final recipe on questions that were kept apart, over several trainings: `results/kept.json`.

python benchmarks/bench_kept.py --questions FOLDER medquad=EVALUATE,EVALUATE,EVALUATE [fairytaleqa=...]

FOLDER is that of `draw_kept.py`; a set's evaluations are those of runs that differ in their seeds alone. A value is the mean over
the trainings, with the least and the highest beside it. A difference is that of the questions' means over the trainings: its
interval and p-value (Holm over the file) are over documents, and leave the variance of training to the range.

`apart` are the questions with at most 50 right pages, none of which shares half of its five-word shingles with an evidence page
of a training question: what is found of them was not read in training.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench_effect import CONFIDENCE, MEASURES, NUM_RESAMPLES, SEED, is_trained, is_without_language_model
from public_sets import DATA_DIR, read_page_set, require
from record import write_result

from drag_ray.baselines.question import RawQuestion
from drag_ray.corpus.questions import read_questions
from drag_ray.evaluate.evaluation_folder import read_comparison, read_results
from drag_ray.evaluate.measures import build_measures
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.statistics.intervals import (
    Floats,
    bootstrap_means,
    compute_cluster_sizes,
    compute_clusters,
    compute_interval,
    compute_sign_flip_p_values,
    holm,
)
from drag_ray.storage.artifacts import require_manifest
from drag_ray.types import Page, Question

_SHINGLE_WORDS, _SHARED, _MANY_PAGES = 5, 0.5, 50

Evaluations = Sequence[Mapping[str, Sequence[QuestionResult]]]
"""The results of each training by policy, all in one order of the questions."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="SET=EVALUATE,...", help="finished evaluate stages of each set")
    parser.add_argument("--questions", type=Path, required=True, help="folder that draw_kept.py has written to")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="folder of the public sets")
    given = parser.parse_args()
    sets: dict[str, Any] = {}
    for entry in given.sets:
        name, _, text = entry.partition("=")
        folders = [Path(folder) for folder in text.split(",")]
        questions, _ = read_questions(given.questions / f"{name}.jsonl")
        pages = read_page_set(require(given.data_dir / name)).pages
        sets[name] = measure_set(folders, find_apart(questions, pages))
        print(name, sets[name], flush=True)
    correct(sets)
    write_result("kept", {"sets": sets}, measured_here=False)


def measure_set(folders: Sequence[Path], apart: set[str]) -> dict[str, Any]:
    """The table of a set, of all of its questions and of those that are `apart`."""
    manifests = [require_manifest(folder, "python jobs/evaluate.py") for folder in folders]
    evaluations = [read_sorted(folder) for folder in folders]
    ids = [[row.question_id for row in evaluation[RawQuestion.name]] for evaluation in evaluations]
    if any(one != ids[0] for one in ids):
        raise SystemExit(f"{folders[0].parent}: its evaluations asked other questions than one another")
    kept = {"all": set(ids[0]), "apart": apart & set(ids[0])}
    return {
        "trainings": len(folders),
        "seeds": [read_comparison(folder)["seed"] for folder in folders],
        "machine": read_comparison(folders[0])["context"]["machine"],
        "model": Path(manifests[0].origin["config"]["engine"]["model"]).name,
        **{name: compare([select(one, chosen) for one in evaluations]) for name, chosen in kept.items()},
    }


def read_sorted(folder: Path) -> dict[str, list[QuestionResult]]:
    """The results of an evaluation by policy, in the order of the questions' ids."""
    return {policy: sorted(rows, key=lambda row: row.question_id) for policy, rows in read_results(folder).items()}


def select(results: Mapping[str, Sequence[QuestionResult]], ids: set[str]) -> dict[str, list[QuestionResult]]:
    """The results of some questions."""
    return {policy: [row for row in rows if row.question_id in ids] for policy, rows in results.items()}


def compare(evaluations: Evaluations) -> dict[str, Any]:
    """Each policy's values, and how far it is above the question and the best policy that runs no language model."""
    first = evaluations[0]
    clusters = compute_clusters(first[RawQuestion.name])
    values = {policy: np.stack([to_array(evaluation[policy]) for evaluation in evaluations]) for policy in first}
    best = max((policy for policy in values if is_without_language_model(policy)), key=lambda name: values[name].mean((0, 1))[3])
    rows = {}
    for policy, of_trainings in values.items():
        means, found = of_trainings.mean(axis=1), of_trainings.mean(axis=0)
        references = {"question": RawQuestion.name, "best_without_language_model": best} if is_trained(policy) else {}
        rows[policy] = {
            **{
                name: [round(float(x), 4) for x in (c.mean(), c.min(), c.max())]
                for name, c in zip(MEASURES, means.T, strict=True)
            },
            **{
                f"above_{key}": subtract(found, values[reference].mean(axis=0), clusters) for key, reference in references.items()
            },
        }
    sizes = compute_cluster_sizes(clusters)
    return {"questions": len(clusters), "worth_clusters": round(sizes.num_effective, 1), "best": best, "policies": rows}


def to_array(rows: Sequence[QuestionResult]) -> Floats:
    """The measures of each question. Shape (num_questions, 4)."""
    measures = {measure.name: measure for measure in build_measures({"": rows})}
    return np.array([[measures[name].compute(row) for name in MEASURES.values()] for row in rows], dtype=np.float64)


def subtract(values: Floats, reference: Floats, clusters: Any) -> dict[str, list[float]]:
    """[difference, low, high, p] of each measure."""
    drawn = bootstrap_means(values - reference, clusters, NUM_RESAMPLES // 10, SEED)
    p_values = compute_sign_flip_p_values(reference, values, clusters, NUM_RESAMPLES, SEED)
    found = {}
    for place, name in enumerate(MEASURES):
        low, high = compute_interval(drawn[:, place], CONFIDENCE) or (0.0, 0.0)
        numbers = (float((values - reference)[:, place].mean()), low, high)
        found[name] = [*(round(number, 4) for number in numbers), float(p_values[place])]
    return found


def correct(sets: Mapping[str, Any]) -> None:
    """Put Holm's p-value beside the raw one of each difference of the file."""
    rows = [row for found in sets.values() for part in ("all", "apart") for row in found[part]["policies"].values()]
    differences = [one for row in rows for key in row if key.startswith("above_") for one in row[key].values()]
    for found, adjusted in zip(differences, holm([one[3] for one in differences]), strict=True):
        found.append(adjusted)


def find_apart(questions: Sequence[Question], pages: Sequence[Page]) -> set[str]:
    """The ids of the test questions that share little text with what training has read, and have few right pages."""
    texts = {(page.file, page.page_number): page.text for page in pages}
    holding: defaultdict[int, list[int]] = defaultdict(list)
    trained = {(one.file, one.page_number) for question in questions if question.split == "train" for one in question.evidence}
    for number, place in enumerate(sorted(trained & set(texts))):
        for shingle in shingle_page(texts[place]):
            holding[shingle].append(number)

    def is_read(place: tuple[str, int]) -> bool:
        shingles = shingle_page(texts.get(place, ""))
        shared = Counter(number for shingle in shingles for number in holding.get(shingle, ()))
        return bool(shared) and max(shared.values()) >= _SHARED * len(shingles)

    return {
        question.id
        for question in questions
        if question.split == "test"
        and len(question.evidence) <= _MANY_PAGES
        and not any(is_read((one.file, one.page_number)) for one in question.evidence)
    }


def shingle_page(text: str) -> set[int]:
    """The hashes of each five words that follow one another."""
    words = text.lower().split()
    return {hash(tuple(words[start : start + _SHINGLE_WORDS])) for start in range(len(words) - _SHINGLE_WORDS + 1)}


if __name__ == "__main__":
    main()
