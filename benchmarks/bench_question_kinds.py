"""Comparison of kinds of written questions by how much a ranker learns from them in seconds on a CPU.

python benchmarks/bench_question_kinds.py --written FOLDER [--sets medquad] [--seeds 0,1,2] [--result question_kinds]

From FOLDER/SET, as the stage `questions` leaves it, equally many questions are drawn of each group: those that its filters keep,
the same with what one of them leaves out or before one of the rewritings, and of all that were written those of a kind, and
those with which the search finds the page first or later. Groups of fewer than 50 are left out. The baseline
`features` learns from them, and puts in order what real questions of the set find by words. These are over other documents and
are none of the test of `bench_rankers.py`, so that what is chosen by them can still be tested.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from bench_rankers import (
    MEASURES,
    Collection,
    compare_values,
    measure,
    open_collection,
    rank,
    read_written,
    reorder,
    search_words,
    split,
)
from public_sets import DATA_DIR
from record import write_result

from drag_ray.baselines import feature_training
from drag_ray.baselines.page_features import FeatureScorer
from drag_ray.corpus.questions import draw_questions
from drag_ray.corpus.split import find_overlaps
from drag_ray.evaluate.statistics.intervals import holm
from drag_ray.questions.config import JOURNAL_NAME, KindName, RewritingName
from drag_ray.questions.drafts import DRAFT
from drag_ray.storage.appended_lines import read_lines
from drag_ray.types import Hits, Question

SETS = ("medquad", "fairytaleqa", "ohr_bench")
"""With enough documents that no real question is asked of."""
NUM_ASKED, NUM_LEARNED, DEPTH = 600, 500, 20
LEAST = 50
"""Questions of a group: fewer teach little, and every group would have to be as small."""
RANKS = {"found first": (1, 1), "found second or later": (2, 100)}
ALL, KEPT = "all that were written", "kept by the filters"
FILTERS = {
    "self_reference": "self_reference",
    "copied": "copied",
    "language": "other_language",
    "rank": "not_found",
    "answerable": "unanswerable",
    "needs_all": "one_page",
    "closed_book": "known",
    "other_pages": "ambiguous",
    "near_duplicate": "near_duplicate",
    "same_meaning": "same_meaning",
}
"""With the reason that each notes, of which none leaves out one of all."""
OFF = "one_search"
"""The filter that is off by default, with the reason of the same name: what it leaves out counts as kept."""


def group(written: Sequence[Question], kept: Sequence[Question], collection: Collection) -> dict[str, list[Question]]:
    """The questions of each group."""
    places = rank(written, search_words(written, collection.searcher))
    of_kind = {kind: [question for question in written if question.category == f"written_{kind}"] for kind in get_args(KindName)}
    found = {
        name: [question for question, place in zip(written, places, strict=True) if low <= place <= high]
        for name, (low, high) in RANKS.items()
    }
    return {ALL: list(written), KEPT: list(kept), **of_kind, **found}


def undo(folder: Path, kept: Sequence[Question]) -> dict[str, list[Question]]:
    """The questions as they were before each rewriting and those after it, where there were any; anchoring comes first."""
    drafts = {draft.id: draft for draft in read_lines(folder / JOURNAL_NAME, DRAFT)} if (folder / JOURNAL_NAME).exists() else {}
    groups: dict[str, list[Question]] = {}
    for kind in get_args(RewritingName):
        before = dict[str, Question]()
        for one in (drafts[question.id] for question in kept if question.id in drafts):
            done = next((done for done in one.rewritings if done.kind == kind and not done.refused), None)
            if done:
                shown = "" if kind == "anchored" else one.image
                before[one.id] = replace(one, question=done.question, image=shown).to_question()
        if before:
            groups[f"kept without `{kind}`"] = [before.get(question.id, question) for question in kept]
        print(f"{kind}: {len(before)} of {len(kept)}", flush=True)
    return groups


def teach(
    learned: Sequence[Question],
    number: int,
    asked: Sequence[Question],
    found: Sequence[Hits],
    collection: Collection,
    seeds: Sequence[int],
) -> np.ndarray:
    """The measures of each asked question with the order of `features`, which learns from so many of some questions in a draw for
    each seed, (seeds, questions, measures)."""
    measures = list[np.ndarray]()
    for seed in seeds:
        drawn = draw_questions(learned, number, seed)
        model = feature_training.fit(drawn, collection.searcher, DEPTH, collection.searcher, seed)
        scorer = FeatureScorer(model, collection.searcher) if model.weights else None
        measures.append(measure(rank(asked, reorder(asked, found, [{}] * len(found), DEPTH, 0.0, scorer))))
    return np.stack(measures)


def run_set(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """The table of a set."""
    collection = open_collection(options, name, options.out)
    own, test, near = split(collection)
    asked = draw_questions(own, NUM_ASKED, 0)
    leave_out = partial(find_overlaps, evaluation=[*asked, *test], split_by="document", near_duplicates=near)
    written = read_written(options.written / name, also=(OFF, *FILTERS.values()))
    overlaps = leave_out(written)

    def read(*reasons: str) -> list[Question]:
        return [one for one in read_written(options.written / name, also=reasons) if one.id not in overlaps]

    kept = read(OFF)
    groups = group(read(OFF, *FILTERS.values()), kept, collection)
    groups |= {f"kept without `{name}`": more for name, of in FILTERS.items() if len(more := read(OFF, of)) > len(kept)}
    groups |= {f"kept with `{OFF}`": read()} if len(read()) < len(kept) else {}
    groups |= undo(options.written / name, kept)
    others = leave_out(own)
    groups["the set's own"] = [question for question in own if question.id not in others and question not in asked]
    counts = {key: len(of) for key, of in groups.items()}
    groups = {key: of for key, of in groups.items() if len(of) >= LEAST}
    if KEPT not in groups:
        raise SystemExit(f"{name}: too few questions over documents that are not asked about: {counts}")
    number = min(NUM_LEARNED, *map(len, groups.values()))
    found = search_words(asked, collection.searcher)
    values = {key: teach(of, number, asked, found, collection, options.seeds) for key, of in groups.items()}
    question = measure(rank(asked, found))[None]
    rows = compare_values({"question": question, **values}, [one.evidence[0].file for one in asked], [ALL, KEPT])
    for key, row in rows.items():
        print(name, f"{key:24}", len(groups.get(key, ())), row["mrr"], row.get(f"above_{ALL}", {}).get("mrr"), flush=True)
    return {"asked": len(asked), "learned": number, "written": counts, "rankings": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--written", type=Path, required=True, help="folder of the questions stages of a writer by set")
    parser.add_argument("--out", type=Path, default=Path("runs/question_kinds"), help="folder of the indexes")
    parser.add_argument("--sets", type=lambda text: text.split(","), default=SETS)
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="folder of the public sets")
    parser.add_argument("--seeds", type=lambda text: [*map(int, text.split(","))], default=[0, 1, 2])
    parser.add_argument("--result", default="question_kinds", help="name of the result")
    options = parser.parse_args()
    tables = {name: run_set(options, name) for name in options.sets}
    differences = [
        found
        for table in tables.values()
        for row in table["rankings"].values()
        for key, of in row.items()
        if key.startswith("above_")
        for found in of.values()
    ]
    for found, adjusted in zip(differences, holm([one[3] for one in differences]), strict=True):
        found.append(adjusted)
    write_result(options.result, {"measures": MEASURES, "sets": tables})


if __name__ == "__main__":
    main()
