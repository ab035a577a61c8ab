"""Retrieval tuned by training questions before anything is trained: what each choice gains on test questions of other documents.

python benchmarks/bench_tune.py --out FOLDER [--sets medquad] [--words financebench,ohr_bench] [--additions FOLDER]

Each choice is made by half of some training questions and checked by the other half, as the stage `tune` does; its gain is that
on the test questions of `bench_rankers.py`, with an interval over documents. FOLDER keeps indexes, vectors and what was measured
of a set, which is not measured again.

1. The stage's own choice among words, vectors and both, beside plain BM25 and beside both always.
2. k1 and b of BM25, which Tantivy fixes, by a scorer over the terms that the index has.
3. The first line of a page, or the name of its file, counted one to three times more than it stands there, by the same scorer.
4. What words, vectors and both in turn find to a depth: the share of the evidence, and of the questions with one evidence page,
   which is the MRR of a reader that makes no mistake.
5. Searching for the question alone, without what a query writer adds (`ask_writer.py`, `--additions`), where its first page is
   far ahead of the second. The writer was asked test questions alone, so that half of their documents is searched with the
   threshold that the other half chooses; and without any choice, where it is ahead most, for half of all questions.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from bench_rankers import SETS, Collection, compare_values, measure, open_collection, rank, read_additions, read_outputs, split
from public_sets import DATA_DIR
from record import write_result
from scipy import sparse

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.keywords import choose_words
from drag_ray.corpus.near_duplicates import NearDuplicates
from drag_ray.corpus.questions import draw_questions
from drag_ray.corpus.split import assign_splits
from drag_ray.engine.models.embedded import MINILM
from drag_ray.evaluate.statistics.intervals import Floats, holm
from drag_ray.search import vectors
from drag_ray.search.dense import FUSED_DEPTH
from drag_ray.search.ranker import Ranking
from drag_ray.search.searcher import Searcher
from drag_ray.tune.choice import Part, choose
from drag_ray.tune.config import TuneConfig
from drag_ray.tune.first_stages import UNION, FirstStage, RankEvidence, find_ranks, list_first_stages
from drag_ray.types import Hits, Question

MEASURES = ("hit1", "hit3", "hit10", "mrr", "recall20", "recall50")
MRR = MEASURES.index("mrr")
TRAIN, TEST = 1_500, 800
"""Questions at most."""
K1, B = (0.4, 0.6, 0.9, 1.2, 1.6, 2.0, 3.0), (0.0, 0.25, 0.4, 0.6, 0.75, 0.9, 1.0)
DEPTHS = (10, 20, 50, 100)
LINE_CHARS = 200
"""Of a first line: a page may be one paragraph."""
WRITER_DEPTH, SHARES = 10, (0.0, 0.25, 0.5, 0.75, 1.0)

Ranks = Sequence[tuple[int, ...]]
"""Of the evidence of each question, ascending."""
Parts = Mapping[str, Sequence[Question]]
"""Questions to choose by, to check by, and to test with."""


class Setting(NamedTuple):
    """BM25 with these parameters, where parts of a page count so many times more."""

    k1: float = 1.2
    b: float = 0.75
    line: int = 0
    file: int = 0


GRID = [Setting(k1, b) for k1 in K1 for b in B]
BOOSTS = [Setting(**{part: times}) for part in ("line", "file") for times in (1, 2, 3)]


class Counts(NamedTuple):
    """The count of each term of the questions in each page, and the number of terms of each page."""

    terms: sparse.csr_array
    lengths: Floats


class Bm25:
    """BM25 in Lucene's form over the terms of an index, of those that some questions have."""

    def __init__(self, searcher: Searcher, questions: Iterable[Question]) -> None:
        self._pages = searcher.to_hits(Ranking((0.0, row) for row in range(searcher.num_pages)))
        self._analyze = searcher.analyze
        asked = {term for question in questions for term in searcher.analyze(question.question)}
        self._numbers = {term: number for number, term in enumerate(sorted(asked))}
        texts = [searcher.text(page) for page in self._pages]
        self._text = self._count(texts)
        self._line = self._count(text.lstrip().partition("\n")[0][:LINE_CHARS] for text in texts)
        self._file = self._count(re.sub(r"[\W_]+", " ", page.file.removesuffix(".pdf")) for page in self._pages)

    def rank(self, questions: Sequence[Question], setting: Setting) -> list[tuple[int, ...]]:
        """The ranks of the evidence among the first `FUSED_DEPTH` pages; equal scores in the order of the index."""
        k1, b, line, file = setting
        counts = sparse.csr_array(self._text.terms + line * self._line.terms + file * self._file.terms)
        lengths = self._text.lengths + line * self._line.lengths + file * self._file.lengths
        held = np.bincount(counts.indices, minlength=len(self._numbers))
        idf = np.log1p((len(self._pages) - held + 0.5) / (held + 0.5))
        norms = np.repeat(k1 * (1 - b + b * lengths / lengths.mean()), np.diff(counts.indptr))
        counts.data = idf[counts.indices] * counts.data / (counts.data + norms)
        by_term = counts.T.tocsr()
        found: list[tuple[int, ...]] = []
        for start in range(0, len(questions), 256):
            some = questions[start : start + 256]
            scores = (self._count(question.question for question in some).terms @ by_term).toarray()
            best = np.sort(np.argpartition(-scores, FUSED_DEPTH, axis=1)[:, :FUSED_DEPTH], axis=1)
            for question, rows, own in zip(some, best, scores, strict=True):
                ordered = rows[np.argsort(-own[rows], kind="stable")]
                found.append(find_ranks([self._pages[row].page for row in ordered if own[row] > 0], question.evidence))
        return found

    def _count(self, texts: Iterable[str]) -> Counts:
        lengths, rows, columns, values = list[int](), list[int](), list[int](), list[int]()
        for row, terms in enumerate(map(self._analyze, texts)):
            own = {self._numbers[term]: times for term, times in Counter(terms).items() if term in self._numbers}
            lengths.append(len(terms))
            rows += [row] * len(own)
            columns += own
            values += own.values()
        cells = (np.array(values, np.float64), (rows, columns))
        return Counts(sparse.csr_array(cells, shape=(len(lengths), len(self._numbers))), np.array(lengths, np.float64))


def divide(questions: Sequence[Question], near: NearDuplicates) -> tuple[list[Question], list[Question]]:
    """Two halves that share no document."""
    divided = assign_splits([replace(question, split="") for question in questions], 0.5, 0, "document", near)
    return [one for one in divided if one.split == "train"], [one for one in divided if one.split == "test"]


def measure_evidence(questions: Sequence[Question], ranks: Ranks) -> Floats:
    """The measures of each question, (questions, measures)."""
    part = Part(questions, {FirstStage("bm25"): ranks})
    recalls = [part.compute_recalls(FirstStage("bm25"), depth) for depth in (20, 50)]
    return np.column_stack([measure([own[0] if own else 0 for own in ranks]), *recalls])


def compare(questions: Sequence[Question], values: Mapping[str, Floats], references: Sequence[str]) -> dict[str, Any]:
    """Each ranking's means, and how far it is above some, with intervals and p-values over documents."""
    files = [question.evidence[0].file for question in questions]
    names = MEASURES[: next(iter(values.values())).shape[1]]
    rows = compare_values({key: own[None] for key, own in values.items()}, files, references, names)
    return {key: row | {name: row[name][0] for name in names} for key, row in rows.items()}


def try_first_stages(collection: Collection, parts: Parts, has_vectors: bool) -> dict[str, Any]:
    """The choice of the stage tune, and the results of it and of each depth."""
    agent = AgentConfig()
    stages = list_first_stages(agent, has_vectors)
    search = RankEvidence(collection.folder, agent, stages)
    found = {
        name: Part(questions, dict(zip(stages, zip(*search(questions), strict=True), strict=True)))
        for name, questions in parts.items()
    }
    choice = choose((found["choosing"], found["checking"]), stages, agent, TuneConfig().depth, seed=0)
    named = {"words": FirstStage("bm25", "all"), "key_words": FirstStage("bm25", "key")}
    if has_vectors:
        named |= {"dense": FirstStage("dense", "all"), "hybrid": FirstStage("hybrid", "key")}
    named |= {"tuned": choice.shown, "candidates": choice.candidates}
    test = found["test"]
    values = {name: measure_evidence(test.questions, test.ranks[stage]) for name, stage in named.items()}
    by_depth = [("words", FirstStage("bm25", "all")), ("dense", FirstStage("dense", "all")), ("union", FirstStage(UNION, "all"))]
    return {
        "shown": choice.shown.describe(),
        "candidates": choice.candidates.describe(),
        "decisions": [asdict(one) | {"best": one.best.describe(), "kept": one.kept.describe()} for one in choice.decisions],
        "rankings": compare(test.questions, values, [name for name in ("words", "hybrid") if name in named]),
        "depth": {
            name: {
                depth: [round(float(compute(stage, depth).mean()), 4) for compute in (test.compute_recalls, test.compute_hits)]
                for depth in DEPTHS
            }
            for name, stage in by_depth
            if stage in stages
        },
    }


def try_settings(scorer: Bm25, settings: Sequence[Setting], parts: Parts) -> dict[str, Any]:
    """The setting that is best on the choosing questions, and what it gains on the others over BM25 as it is."""

    def measure_part(name: str, setting: Setting) -> Floats:
        return measure_evidence(parts[name], scorer.rank(parts[name], setting))

    tried = {own: round(float(measure_part("choosing", own)[:, MRR].mean()), 4) for own in [Setting(), *settings]}
    compared = {"default": Setting(), "best": max(tried, key=tried.__getitem__)}
    gains = {
        name: compare(parts[name], {key: measure_part(name, own) for key, own in compared.items()}, ["default"])
        for name in ("checking", "test")
    }
    return {"best": compared["best"]._asdict(), "choosing": [[*own, mrr] for own, mrr in tried.items()], **gains}


def skip_additions(collection: Collection, test: Sequence[Question], near: NearDuplicates, folder: Path) -> dict[str, Any]:
    """The question alone, always what the writer searches, and this unless the question's first page is far ahead."""
    halves = divide(test, near)
    questions = [question for half in halves for question in half]
    search = collection.searcher.search_expanded
    alone = [search(one.question, "", 1.0, WRITER_DEPTH, choose_words(one.question, "key")) for one in questions]
    own, added = (measure(rank(questions, hits)) for hits in (alone, read_additions(folder, collection.name, questions)))
    lead = np.array([compute_lead(hits) for hits in alone])
    first = np.arange(len(questions)) < len(halves[0])
    skipped = np.zeros(len(questions), bool)
    thresholds: list[float] = []
    for chosen_by in (first, ~first):
        tried = [*np.quantile(lead[chosen_by], np.arange(0, 1, 0.05)), np.inf]
        mrr = [np.where(lead >= least, own[:, MRR], added[:, MRR])[chosen_by].mean() for least in tried]
        thresholds.append(float(tried[int(np.argmax(mrr))]))
        skipped |= (lead >= thresholds[-1]) & ~chosen_by
    place = np.argsort(np.argsort(-lead, kind="stable"))
    by_share = {share: np.where(place < share * len(place), own[:, MRR], added[:, MRR]) for share in SHARES}
    values = {"question": own, "writer": added, "unless_ahead": np.where(skipped[:, None], own, added)}
    values["half"] = np.where((place < len(place) / 2)[:, None], own, added)
    return {
        "questions": len(questions),
        "thresholds": [least if np.isfinite(least) else None for least in thresholds],
        "skipped": round(float(skipped.mean()), 4),
        "mrr_by_share": {share: round(float(mrr.mean()), 4) for share, mrr in by_share.items()},
        "mrr_of_better": round(float(np.maximum(own, added)[:, MRR].mean()), 4),
        "rankings": compare(questions, values, ["question", "writer"]),
    }


def compute_lead(hits: Hits) -> float:
    """The lead of the first page over the second, as a share of its score; 1 where there is no second one, 0 where there is
    none."""
    scores = [hit.score for hit in hits[:2]]
    return 1 - sum(scores[1:]) / scores[0] if scores else 0.0


def run_set(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """All of a set."""
    collection = open_collection(options, name, options.out)
    train, test, near = split(collection)
    choosing, checking = divide(draw_questions(train, TRAIN, 0), near)
    parts = {"choosing": choosing, "checking": checking, "test": draw_questions(test, TEST, 0)}
    has_vectors = name not in options.words
    if has_vectors:
        folder = collection.folder / vectors.DIR_NAME
        collection.embed(MINILM, folder, torch.cuda.is_available(), keep=True, dtype=options.dtype)
    scorer = Bm25(collection.searcher, [question for part in parts.values() for question in part])
    return {
        "set": name,
        "pages": collection.searcher.num_pages,
        "embedder": f"{MINILM}, {options.dtype}" if has_vectors else None,
        "questions": {part: len(questions) for part, questions in parts.items()},
        "documents": {part: len({one.evidence[0].file for one in questions}) for part, questions in parts.items()},
        "first_stages": try_first_stages(collection, parts, has_vectors),
        "bm25": try_settings(scorer, GRID, parts),
        "boosts": try_settings(scorer, BOOSTS, parts),
        "skip": skip_additions(collection, test, near, options.additions)
        if options.additions and (options.additions / f"{name}.json").exists()
        else None,
    }


def add_holm(found: Sequence[dict[str, Any]]) -> None:
    """Add to each difference in MRR that a choice makes on test questions its p-value after Holm, over all of these."""
    gains = [one[of]["test"]["best"]["above_default"]["mrr"] for one in found for of in ("bm25", "boosts")]
    chosen = [
        one[of]["rankings"][name]
        for one in found
        for of, name in (("first_stages", "tuned"), ("skip", "unless_ahead"))
        if one[of]
    ]
    gains += [gain["mrr"] for row in chosen for key, gain in row.items() if key.startswith("above_")]
    for gain, adjusted in zip(gains, holm([gain[3] for gain in gains]), strict=True):
        gain.append(adjusted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to keep indexes and vectors in")
    parser.add_argument("--sets", type=lambda text: text.split(","), default=SETS)
    parser.add_argument("--words", type=lambda text: text.split(","), default=[], help="sets that are searched by words alone")
    parser.add_argument("--additions", type=Path, help="folder of what a query writer finds, as ask_writer.py leaves it")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="folder of the public sets")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the embedding model")
    options = parser.parse_args()
    for name in options.sets:
        if not (options.out / "tune" / f"{name}.json").exists():
            write_result(name, run_set(options, name), folder=options.out / "tune")
    found = read_outputs(options.out / "tune")
    add_holm(found)
    write_result("tune", {"sets": found})


if __name__ == "__main__":
    main()
