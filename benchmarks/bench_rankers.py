"""Small rankers at equal terms: search by words, by vectors and by both, beside encoders trained for the collection.

python benchmarks/bench_rankers.py --out FOLDER --sets medquad [--train 100,400,1500,all] [--seeds 0,1,2] [--device gpu]
    [--methods ce] [--teacher FOLDER] [--additions FOLDER,rl=FOLDER]
    [--reader FOLDER --methods reader,ce,ce_distilled,embed,embed_distilled [--unlabelled 2000]]
    [--written FOLDER [--every-document] [--kinds fact,user] [--also unanswerable,known]]
python benchmarks/bench_rankers.py --transfer FOLDER [--sets medquad]
python benchmarks/bench_rankers.py --table FOLDER [--result rankers]
python benchmarks/bench_rankers.py --latency FOLDER --result rankers_cpu [--sets medquad] [--start MODEL --embedder MODEL]

The first command trains on some questions of a set, for each number of them and each seed, and asks the same test questions,
of other documents. It writes one file for each, with the rank of the best evidence page of every test question; what is there
is not made again. With `--teacher` all encoders learn the scores of that model too; with `--reader` a causal model is trained to
read pages (finetune method `rerank`), and those called `_distilled` learn its scores, with `--unlabelled` of so many further
questions too, of which nobody says what answers them. With `--written` they learn from the
questions of FOLDER/SET, as the stage `questions` leaves them, in place of the set's own: over the same documents, or over those
of the test questions too, of some kinds alone, or also those that its filters have left out for some reasons. The second asks
the test questions of each set with what the least seed has trained on every other. The third writes `results/rankers.json`, or
another one. The fourth times each search and ranker on two threads of a CPU, question by question. It trains nothing: a
cross-encoder takes as long with a new head as with a trained one, and a search by vectors with random ones of all pages' windows.

Rankings: `question` (BM25), `dense`, `hybrid` (fused), `features` and `features_hybrid` (a log-linear model of a few features,
learned from the same questions, puts the 20 best in order), `tuned_dense` and `tuned_hybrid` (an embedder trained on pages that
hybrid mines), `ce@N` (a cross-encoder trained on pages that BM25 mines reads BM25's N best) and `ce_hybrid@N` (the same of
hybrid, or of `union`: the 20 best by words and the 20 best by vectors). `_blend` weighs its scores and those of the search,
with a weight that the validation questions choose; `_features` weighs its scores and those of the features alike; `_stacked`
adds both with the factors that the validation questions teach, as an evaluation does. `reader` reads what `ce` does. `_added`
has beside the 20 best of the search those that a query writer adds (`ask_writer.py` or `bench_rl.py`, `--additions`; further ones
end with the name that is given there). `--methods`
names what is trained; with what reads BM25's pages alone no features of hybrid are learned. One process takes one GPU; for
several, start one for each with CUDA_VISIBLE_DEVICES.
"""

import argparse
import math
import os
import shutil
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import polars as pl
import torch
from bench_rerank_cpu import Clock
from public_sets import DATA_DIR, build_searcher, read_page_set, require
from record import write_result

from drag_ray import schemas
from drag_ray.agent.tasks import SEARCHING
from drag_ray.baselines import feature_training
from drag_ray.baselines.page_features import FeatureScorer
from drag_ray.cluster.metrics import StageRecorder
from drag_ray.corpus.near_duplicates import NearDuplicates, find_near_duplicates
from drag_ray.corpus.questions import draw_questions, read_questions
from drag_ray.corpus.split import find_overlaps, split_questions
from drag_ray.engine.encoders.embedding import Embedder
from drag_ray.engine.encoders.reranker import Reranker, load_reranker
from drag_ray.engine.models.adapter import ADAPTER_WEIGHTS_NAME
from drag_ray.engine.models.embedded import MINILM
from drag_ray.engine.models.model_files import WEIGHTS_NAME
from drag_ray.engine.models.model_folder import locate_model, resolve_model, resolve_name
from drag_ray.evaluate.statistics.intervals import bootstrap_means, compute_interval, compute_sign_flip_p_values, holm
from drag_ray.finetune import encoder_trainer, trainer
from drag_ray.finetune.config import FinetuneConfig, TrainJob
from drag_ray.finetune.methods.cross_encoder import CrossEncoder
from drag_ray.finetune.outputs.publication import publish_adapter, publish_encoder
from drag_ray.finetune.rows.training_rows import tokenize_training_rows
from drag_ray.finetune.training_folder import ADAPTER_DIR_NAME, ENCODER_DIR_NAME, Description
from drag_ray.format.config import FormatConfig
from drag_ray.format.rows.relevance import build_rows
from drag_ray.format.split import TRAIN, VALIDATION, assign_sides
from drag_ray.format.tables import ScoredPart
from drag_ray.questions.config import REJECTED_NAME, ROWS_NAME
from drag_ray.questions.drafts import DRAFT
from drag_ray.search import vectors
from drag_ray.search.config import EmbeddingConfig, Factors, RerankConfig
from drag_ray.search.dense import DenseSearcher, HybridSearcher, fuse_rankings
from drag_ray.search.page_reranker import PageRanker, ScoreHits, cut_passage, put_in_order
from drag_ray.search.ranker import Ranking
from drag_ray.search.searcher import Searcher
from drag_ray.storage.appended_lines import read_lines
from drag_ray.storage.json_text import parse_json
from drag_ray.types import Evidence, Hit, Hits, Question

SETS = ("medquad", "fairytaleqa", "ohr_bench", "financebench", "squad_v1_dev")
DEPTH, UNION = 100, 20
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
PAGE_CHARS, TOKENS, NEGATIVES, TEST_FRACTION = 1_000, 256, 4, 0.3
TIMED = 100
MOST_EVIDENCE = 10
"""Right pages of a question to train on: a cross-encoder reads all at once, and some of medquad have hundreds."""
EMBED_OPTIONS = {"batch_size": 32, "learning_rate": 5e-5}
"""More questions in a batch than a cross-encoder has are more pages to tell apart."""
READER_OPTIONS = {"batch_size": 4, "learning_rate": 2e-4, "merge": False, "lora_dropout": 0.0}
"""As the recipe trains it; a batch is of questions with all their pages."""
PLAN = {
    "reader": ("rerank", "bm25"),
    "ce": ("cross_encoder", "bm25"),
    "ce_distilled": ("cross_encoder", "bm25"),
    "ce_hybrid": ("cross_encoder", "hybrid"),
    "embed": ("embed", "hybrid"),
    "embed_distilled": ("embed", "hybrid"),
}
"""Method of the stage finetune, and the search that its rows are mined by."""
WITHOUT_READER = ["ce", "ce_hybrid", "embed"]
PAIRS = {
    "reader_stacked@20": "ce_stacked@20",
    "ce_distilled@20": "ce@20",
    "ce_distilled_stacked@20": "ce_stacked@20",
    "tuned_dense_distilled": "tuned_dense",
    "tuned_hybrid_added": "tuned_hybrid",
    "ce_added_stacked": "ce_stacked@20",
    "reader_added_stacked": "reader_stacked@20",
    "reader_base": "reader@20",
    "reader_rl": "reader_base",
    "reader_recipe": "reader_base",
    "reader_rl_stacked": "reader_base_stacked",
}
"""Rankings, and those that each is compared with beside what all are."""
UNTRAINED = ("question", "dense", "hybrid")
MEASURES = ("hit1", "hit3", "hit10", "mrr")
CONFIDENCE, NUM_RESAMPLES = 0.95, 300_000
"""No p-value is below one in that many, and Holm's correction multiplies it by the number of differences in the file."""

Run = Callable[..., Any]
"""`map`, in this process or over several."""
Pages = list[Evidence]
Scores = list[dict[Evidence, float]]
"""Of the pages that were read for each question."""


@dataclass(frozen=True)
class Collection:
    """A public set with its index, which may have vectors already."""

    name: str
    folder: Path
    questions: list[Question]
    searcher: Searcher

    def embed(
        self,
        model: str,
        folder: Path,
        on_gpu: bool,
        keep: bool = False,
        dtype: Literal["float32", "bfloat16"] = "float32",
        drawn: bool = False,
    ) -> tuple[DenseSearcher, float | None]:
        """Searcher of the vectors that a model makes of all pages, or of as many drawn at random, and pages a second; None where
        vectors are there and kept."""
        config = EmbeddingConfig(model=model, window_tokens=TOKENS, batch_size=256 if on_gpu else 32, dtype=dtype)
        embedder = Embedder(config, "cuda" if on_gpu else "cpu")
        fingerprint, speed = self.searcher.record.fingerprint, None
        if not (keep and vectors.has_vectors(folder)):
            speed = self._write_vectors(embedder, config, folder, drawn)
        return DenseSearcher(self.searcher, vectors.PageVectors(folder, fingerprint), embedder.embed_queries), speed

    def _write_vectors(self, embedder: Embedder, config: EmbeddingConfig, folder: Path, drawn: bool) -> float:
        pages = self.searcher.to_hits(Ranking((0.0, row) for row in range(self.searcher.num_pages)))
        cut = [(row, window) for row, page in enumerate(pages) for window in embedder.cut(self.searcher.text(page))]
        probe = embedder.embed_queries([vectors.PROBE])[0]
        started = time.perf_counter()
        embedded = (
            np.random.default_rng(0).standard_normal((len(cut), embedder.dimensions), np.float32) / embedder.dimensions**0.5
            if drawn
            else embedder.embed_pages([window for _, window in cut])
        )
        seconds = time.perf_counter() - started
        options = config.model_copy(update={"model": resolve_name(config.model)}).model_dump(mode="json")
        fingerprint = self.searcher.record.fingerprint
        record = vectors.VectorsRecord(fingerprint, len(embedded), embedder.dimensions, options, probe.tolist())
        vectors.write_vectors([(np.array([row for row, _ in cut]), embedded)], folder, record)
        return round(self.searcher.num_pages / seconds, 1)


def open_collection(options: argparse.Namespace, name: str, out: Path) -> Collection:
    """Index a set under `out`, or open what is there."""
    found = read_page_set(require(options.data_dir / name))
    folder = out / "index" / name
    if not (folder / "search_index").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        build_searcher(found.pages, folder)
    return Collection(name, folder, found.questions, Searcher(folder / "search_index"))


def split(collection: Collection) -> tuple[list[Question], list[Question], NearDuplicates]:
    """Questions for training and for the test, which share no document, and what their pages nearly duplicate."""
    pages = schemas.read_table(collection.folder / "pages.parquet", schemas.PAGES)
    near = find_near_duplicates(pages, {page for question in collection.questions for page in question.evidence})
    free = [replace(question, split="") for question in collection.questions]
    kept, _ = split_questions(free, TEST_FRACTION, 0, "document", near)
    train, test = ([question for question in kept if question.split == side] for side in ("train", "test"))
    return [question for question in train if len(question.evidence) <= MOST_EVIDENCE], test, near


# Work of processes beside the GPU: passages, and rows of training.


@cache
def open_searcher(folder: Path) -> Searcher:
    """The index of a set, once in each process."""
    return Searcher(folder / "search_index")


def cut_pages(folder: Path, question: str, pages: Pages) -> list[str]:
    """The passages of some pages that a cross-encoder reads for a question."""
    return [cut_passage(open_searcher(folder), page, question, PAGE_CHARS) for page in pages]


@contextmanager
def open_pool(num_workers: int) -> Generator[Run]:
    """A `map` over processes, this one alone with one worker."""
    if num_workers == 1:
        yield map
        return
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # else each process multiplies vectors on all cores, and all wait for each other
    with ProcessPoolExecutor(num_workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        yield pool.map


class Passages:
    """Passages of pages, cut once for each question."""

    def __init__(self, collection: Collection, run: Run) -> None:
        self._folder = collection.folder
        self._run = run
        self._cut: dict[tuple[str, Evidence], str] = {}

    def read(self, reranker: Reranker, questions: Sequence[Question], pages: Sequence[Pages]) -> Scores:
        """The scores of these pages of each question, all read at once."""
        new = [[page for page in own if (q.id, page) not in self._cut] for q, own in zip(questions, pages, strict=True)]
        cut = self._run(cut_pages, repeat(self._folder), [q.question for q in questions], new)
        for q, own, texts in zip(questions, new, cut, strict=True):
            self._cut |= {(q.id, page): text for page, text in zip(own, texts, strict=True)}
        asked = [(q, [self._cut[q.id, page] for page in own]) for q, own in zip(questions, pages, strict=True)]
        written = [reranker.writer.write(q.question, texts) for q, texts in asked]
        return [dict(zip(own, found, strict=True)) for own, found in zip(pages, reranker.read(written), strict=True)]


# Rankings.


def search_words(questions: Sequence[Question], searcher: Searcher) -> list[Hits]:
    """Pages found by words."""
    return [searcher.search(question.question, DEPTH) for question in questions]


def search_vectors(questions: Sequence[Question], by_words: Sequence[Hits], dense: DenseSearcher) -> dict[str, Sequence[Hits]]:
    """Pages found by words, by vectors, and by both, as `HybridSearcher` fuses them."""
    dense.prepare([question.question for question in questions])
    by_vectors = [dense.search(question.question, DEPTH) for question in questions]
    fused = [Hits(fuse_rankings(pair)[:DEPTH]) for pair in zip(by_words, by_vectors, strict=True)]
    return {"question": by_words, "dense": by_vectors, "hybrid": fused}


def join(found: Mapping[str, Sequence[Hits]], depth: int) -> list[Hits]:
    """The best by words and the best by vectors, in the order of their fusion."""
    pairs = zip(found["question"], found["dense"], strict=True)
    return [Hits(fuse_rankings([one[:depth], other[:depth]])) for one, other in pairs]


def take(hits: Hits, depth: int) -> Pages:
    """The best pages."""
    return [hit.page for hit in hits[:depth]]


def reorder(
    questions: Sequence[Question],
    rankings: Sequence[Hits],
    scores: Scores,
    depth: int,
    weight: float | Factors = 1.0,
    features: ScoreHits | None = None,
) -> list[Hits]:
    """The best pages of each ranking by scores, below a weight of 1 by those of the search or of features too, and then the
    others."""
    ordered: list[Hits] = []
    for question, found, own in zip(questions, rankings, scores, strict=True):
        top = Hits(found[:depth])
        first = features(question.question, top) if features else None
        ordered.append(Hits([*put_in_order(top, own, depth, weight, first), *found[depth:]]))
    return ordered


def rank(questions: Sequence[Question], rankings: Sequence[Hits]) -> list[int]:
    """The rank of the best evidence page for each question, 0 where it is not found."""
    pairs = zip(questions, rankings, strict=True)
    return [next((hit.rank for hit in hits if hit.page in question.evidence), 0) for question, hits in pairs]


def measure(ranks: Sequence[int]) -> np.ndarray:
    """The measures of each question, (questions, measures)."""
    array = np.array(ranks, np.float64)
    found = array > 0
    return np.stack([*(found & (array <= k) for k in (1, 3, 10)), np.where(found, 1 / np.maximum(array, 1), 0.0)], axis=1)


def rank_reread(
    name: str,
    questions: Sequence[Question],
    first: Sequence[Hits],
    scores: Scores,
    weights: Mapping[int, float],
    features: ScoreHits | None = None,
    factors: Mapping[int, Factors] | None = None,
) -> dict[str, list[int]]:
    """The ranks by a cross-encoder alone, blended with the search before it, and with features, for each depth of the weights."""
    ranks: dict[str, list[int]] = {}
    for depth, weight in weights.items():
        ranks[f"{name}@{depth}"] = rank(questions, reorder(questions, first, scores, depth))
        ranks[f"{name}_blend@{depth}"] = rank(questions, reorder(questions, first, scores, depth, weight))
        if features:
            ranks[f"{name}_features@{depth}"] = rank(questions, reorder(questions, first, scores, depth, 0.5, features))
            learned = (factors or {}).get(depth) or 1.0
            ranks[f"{name}_stacked@{depth}"] = rank(questions, reorder(questions, first, scores, depth, learned, features))
    return ranks


# Training.


def build_training_rows(
    questions: Sequence[Question], folder: Path, retrieval: str, options: argparse.Namespace, seed: int, run: Run
) -> pl.DataFrame:
    """Rows of relevance of some questions, mined by a search, in as many parts as there are workers; of those without evidence,
    if there are any, for a teacher."""
    given = {"relevance_pages": NEGATIVES, "relevance_retrieval": retrieval, "relevance_chars": PAGE_CHARS, "seed": seed}
    has_all = all(question.evidence for question in questions)
    config = FormatConfig.model_validate({**given, "teacher": {"model": "" if has_all else options.reader}})
    table = pl.DataFrame(
        {
            "question_id": [question.id for question in questions],
            "question": [question.question for question in questions],
            "evidence": [[{"file": e.file, "page_number": e.page_number} for e in question.evidence] for question in questions],
            "task": [SEARCHING[0]] * len(questions),
        }
    )
    parts = table.iter_slices(math.ceil(len(table) / options.workers))
    return pl.concat(run(build_rows, (ScoredPart(pl.DataFrame(), part, folder) for part in parts), repeat(config)))


def add_scores(rows: pl.DataFrame, teacher: Reranker) -> pl.DataFrame:
    """The rows with the scores of a teacher, as the format stage has them scored."""
    asked = rows.select("question", "passage").iter_rows()
    scores = teacher.read([teacher.writer.write(question, [passage]) for question, passage in asked])
    return rows.with_columns(score=pl.Series([score for [score] in scores], dtype=pl.Float64))


def measure_agreement(rows: pl.DataFrame, validation: set[str]) -> float | None:
    """The share of validation questions of which a teacher scores evidence best, of those with other pages too."""
    score, is_evidence = pl.col("score"), pl.col("is_evidence")
    labelled = rows.filter(pl.col("question_id").is_in(list(validation)), is_evidence.n_unique().over("question_id") == 2)
    agrees = labelled.group_by("question_id").agg(score.filter(is_evidence).max() > score.filter(~is_evidence).max())
    return round(float(agrees["score"].sum()) / len(agrees), 4) if len(agrees) else None


def train(
    method: str, rows: pl.DataFrame, validation: set[str], folder: Path, options: argparse.Namespace, seed: int
) -> dict[str, Any]:
    """Train into `folder`/encoder, a reader into `folder`/adapter, as the stage finetune publishes it; returns what it took."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    paths = {side: folder / f"{side}.jsonl" for side in (TRAIN, VALIDATION)}
    held_out = pl.col("question_id").is_in(list(validation))
    rows.filter(~held_out).write_ndjson(paths[TRAIN])
    rows.filter(held_out).write_ndjson(paths[VALIDATION])
    start = {"embed": options.embedder, "rerank": options.reader}.get(method, options.start)
    given = {"method": method, "epochs": options.epochs, "batch_size": 8, "learning_rate": 1e-4, "seed": seed}
    own = {"model": start, "max_tokens": TOKENS, **({"negatives": NEGATIVES} if method == "embed" else {})}
    extra: dict[str, Any] = dict({"embed": EMBED_OPTIONS, "rerank": READER_OPTIONS}.get(method, {}))
    if method != "rerank" and options.learning_rate:
        extra["learning_rate"] = options.learning_rate
    section = {} if method == "rerank" else {method: own}
    config = FinetuneConfig.model_validate({**given, **extra, "checkpoint_steps": 1_000_000, **section})
    job = TrainJob(
        config,
        resolve_model(start),
        paths[TRAIN],
        paths[VALIDATION],
        (),
        options.on_gpu,
        num_workers=1,
        num_threads=torch.get_num_threads(),
    )
    checkpoint = folder / "checkpoint"
    trainers = trainer if method == "rerank" else encoder_trainer
    outcome = trainers.train(
        job, tokenize_training_rows(job), lambda _, saved: shutil.copytree(saved, checkpoint), None, StageRecorder()
    )
    torch.cuda.empty_cache()
    described = Description(config, outcome["counts"], {}, None, {"relevance_chars": PAGE_CHARS}, outcome.get("probe"))
    if method == "rerank":
        publish_adapter(checkpoint, start, described, None, folder)
    else:
        publish_encoder(checkpoint, start, described, folder)
    shutil.rmtree(checkpoint)
    weights = folder / (
        f"{ADAPTER_DIR_NAME}/{ADAPTER_WEIGHTS_NAME}" if method == "rerank" else f"{ENCODER_DIR_NAME}/{WEIGHTS_NAME}"
    )
    losses = [point["eval_loss"] for point in outcome["curve"] if "eval_loss" in point]
    return {
        **outcome["counts"],
        "train_s": outcome["curve"][-1]["seconds"],
        "tokens": outcome["curve"][-1].get("tokens"),
        "eval_losses": [round(loss, 4) for loss in losses],
        "megabytes": round(weights.stat().st_size / 1e6, 1),
    }


def open_reranker(folder: Path, on_gpu: bool) -> Reranker:
    """A trained cross-encoder or reader, as a search has it."""
    if (folder / ADAPTER_DIR_NAME).is_dir():
        return open_reader(str(folder / ADAPTER_DIR_NAME), on_gpu)
    where = {"device": "gpu", "batch_size": 256} if on_gpu else {"device": "cpu"}
    return load_reranker(RerankConfig.model_validate({"model": str(folder / ENCODER_DIR_NAME), **where}))


def open_reader(model: str, on_gpu: bool) -> Reranker:
    """A large model that reads what the rows hold of pages."""
    where = {"device": "gpu", "batch_size": 64, "dtype": "bfloat16"} if on_gpu else {"device": "cpu"}
    return load_reranker(RerankConfig.model_validate({"model": model, "page_chars": PAGE_CHARS, **where}))


def time_reading(
    reranker: Reranker, searcher: Searcher, questions: Sequence[Question], first: Sequence[Hits], depths: Sequence[int]
) -> dict[str, float]:
    """Median milliseconds a question, asked one by one: of the model alone, and with what is cut out of pages for it."""
    ranker = PageRanker(searcher, reranker.score, PAGE_CHARS)
    found: dict[str, float] = {}
    for depth in depths:
        alone, whole = list[float](), list[float]()
        for question, hits in list(zip(questions, first, strict=True))[:TIMED]:
            top = Hits(hits[:depth])
            texts = [cut_passage(searcher, hit, question.question, PAGE_CHARS) for hit in top]
            alone.append(clock(partial(reranker.score, question.question, texts)))
            whole.append(clock(partial(ranker.rerank, question.question, top, depth)))
        found |= {f"model_ms_{depth}": round(1e3 * median(alone), 2), f"rerank_ms_{depth}": round(1e3 * median(whole), 2)}
    return found


def clock(call: Callable[[], object]) -> float:
    """The seconds of a call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


# The commands.


def run_set(options: argparse.Namespace, name: str, run: Run) -> None:
    """Train and ask for each number of questions and seed that has no output yet."""
    outputs = {f"{name}-{size}-seed{seed}": (size, seed) for size in options.train for seed in options.seeds}
    missing = {output: asked for output, asked in outputs.items() if not (options.out / f"{output}.json").exists()}
    if not missing:
        return
    bench = SetBench(options, open_collection(options, name, options.out), run)
    for output, (size, seed) in missing.items():
        if "all" in options.train and size != "all" and int(size) >= len(bench.questions):
            continue
        write_result(output, {"train": size, "seed": seed, **bench.measure(size, seed, output)}, folder=options.out)


class SetBench:
    """A set with its split, and what is found for its test questions without training."""

    def __init__(self, options: argparse.Namespace, collection: Collection, run: Run) -> None:
        self._options, self._collection, self._run = options, collection, run
        self.questions, self._all_test, self._near = split(collection)
        if options.written:
            self._take_written(read_written(options.written / collection.name, options.kinds, options.also))
        self._test = draw_questions(self._all_test, options.test, 0)
        self._dense, self._pages_s = collection.embed(
            options.embedder, collection.folder / vectors.DIR_NAME, options.on_gpu, keep=True
        )
        self._found = search_vectors(self._test, search_words(self._test, collection.searcher), self._dense)
        self._additions = {key: read_additions(folder, collection.name, self._test) for key, folder in options.additions}
        self._passages = Passages(collection, run)
        print(f"{collection.name}: {len(self.questions)} questions to train on, {len(self._test)} to ask", flush=True)

    def _take_written(self, written: Sequence[Question]) -> None:
        """Train on these; without `--every-document` on none that overlaps with a test question."""
        pages = schemas.read_table(self._collection.folder / "pages.parquet", schemas.PAGES)
        places = {page for question in (*written, *self._all_test) for page in question.evidence}
        self._near = find_near_duplicates(pages, places)
        left_out = () if self._options.every_document else find_overlaps(written, self._all_test, "document", self._near)
        self.questions = [question for question in written if question.id not in left_out]

    def measure(self, size: str, seed: int, output: str) -> dict[str, Any]:
        """Train the three encoders on so many questions, and rank the evidence of the test questions by all."""
        started = time.perf_counter()
        options, folder = self._options, self._options.out / "models" / output
        drawn = draw_questions(self.questions, 0 if size == "all" else int(size), seed)
        sides = assign_sides(drawn, self._all_test, FormatConfig(split_by="document", seed=seed), self._near)
        validation = [question for question in drawn if sides[question.id] == VALIDATION]
        plan = {name: of for name, of in PLAN.items() if name in options.methods}
        names, searches = {question.id for question in validation}, {by for _, by in plan.values()}
        rows = {by: build_training_rows(drawn, self._collection.folder, by, options, seed, self._run) for by in searches}
        if options.teacher:
            teacher = open_reader(options.teacher, options.on_gpu)
            rows = {by: add_scores(own, teacher) for by, own in rows.items()}
        mined = time.perf_counter() - started
        training, scored, agreement = dict[str, Any](), dict[str, pl.DataFrame](), dict[str, float | None]()
        if "reader" in plan:
            training["reader"] = train("rerank", rows["bm25"], names, folder / "reader", options, seed)
            reader = open_reranker(folder / "reader", options.on_gpu)
            further = self._draw_unlabelled(drawn, seed)
            for by in {by for name, (_, by) in plan.items() if is_distilled(name)}:
                more = build_training_rows(further, self._collection.folder, by, options, seed, self._run) if further else None
                scored[by] = add_scores(rows[by] if more is None else pl.concat([rows[by], more]), reader)
            agreement = {by: measure_agreement(own, names) for by, own in scored.items()}
            del reader
        for name, (method, by) in plan.items():
            if name != "reader":
                learned = scored[by] if is_distilled(name) else rows[by]
                training[name] = train(method, learned, names, folder / name, options, seed)
        ranks = {name: rank(self._test, hits) for name, hits in self._found.items()}
        pages_s = [self._pages_s]
        for name in plan.keys() & {"embed", "embed_distilled"}:
            ranks |= self._rank_by_vectors(folder / name, name.removeprefix("embed"), pages_s)
        bases = ["question", *(["hybrid"] if "ce_hybrid" in plan else [])]
        features = {base: self._learn_features(drawn, base, seed, ranks) for base in bases}
        recall = {name: [share(own, depth) for depth in options.depths] for name, own in ranks.items()}
        recall["union"] = [share(rank(self._test, join(self._found, depth)), 2 * depth) for depth in options.depths]
        weights, times = dict[str, dict[int, float]](), dict[str, dict[str, float]]()
        factors = dict[str, dict[int, Factors]]()
        for name, (method, by) in plan.items():
            if method == "embed":
                continue
            base = "hybrid" if by == "hybrid" else "question"
            reranker = open_reranker(folder / name, options.on_gpu)
            weights[name], factors[name] = self._choose_weights(reranker, validation, base, features[base])
            ranks |= self._rank_by_reading(reranker, name, base, weights[name], features[base], factors[name])
            if base == "question":
                ranks |= self._rank_added(reranker, name, features[base], factors[name][options.depths[0]])
            if name in ("ce", "reader"):  # the others are of the same size as the first
                times[name] = time_reading(reranker, self._collection.searcher, self._test, self._found[base], options.depths)
            del reranker
            torch.cuda.empty_cache()
        return {
            "set": self._collection.name,
            "pages": self._collection.searcher.num_pages,
            "options": {
                **{key: getattr(options, key).rpartition("/")[2] for key in ("start", "embedder")},
                **{key: getattr(options, key) for key in ("epochs", "device", "learning_rate")},
            },
            "teacher": Path(options.teacher).name,
            "unlabelled": options.unlabelled,
            "written": options.written
            and {"by": options.written.name, **{key: getattr(options, key) for key in ("every_document", "kinds", "also")}},
            "asked": {
                "train": describe(drawn, self._collection.searcher),
                "test": describe(self._test, self._collection.searcher),
            },
            "train_questions": len(drawn) - len(validation),
            "validation_questions": len(validation),
            "measures": {name: summarise(own) for name, own in ranks.items()},
            "recall": {"depths": options.depths, **recall},
            "weights": weights,
            "factors": {name: {key: asdict(own) for key, own in found.items()} for name, found in factors.items()},
            "training": training,
            "teacher_agreement": agreement,
            "times": times.get("ce", {}),
            "reader_times": times.get("reader", {}),
            "pages_s": pages_s,
            "mine_s": round(mined, 1),
            "whole_s": round(time.perf_counter() - started, 1),
            "question_ids": [question.id for question in self._test],
            "files": [question.evidence[0].file for question in self._test],
            "ranks": ranks,
        }

    def _learn_features(
        self, questions: Sequence[Question], base: str, seed: int, ranks: dict[str, list[int]]
    ) -> ScoreHits | None:
        """The scores by features that are learned from these questions, with the ranks that they give alone; None where there is
        nothing to learn."""
        searcher = self._collection.searcher
        index = searcher if base == "question" else HybridSearcher(searcher, self._dense)
        self._dense.prepare([question.question for question in questions])
        model = feature_training.fit(questions, index, self._options.depths[0], searcher, seed)
        score = FeatureScorer(model, searcher) if model.weights else None
        name, first = "features" if base == "question" else f"features_{base}", self._found[base]
        ordered = reorder(self._test, first, [{}] * len(first), self._options.depths[0], 0.0, score)
        ranks[name] = rank(self._test, ordered)
        return score

    def _rank_by_vectors(self, folder: Path, ending: str, pages_s: list[float | None]) -> dict[str, list[int]]:
        """The ranks with a trained embedder, named with this ending; adds the pages a second of that."""
        model = str(folder / ENCODER_DIR_NAME)
        tuned, embedded_s = self._collection.embed(model, folder / vectors.DIR_NAME, self._options.on_gpu)
        pages_s.append(embedded_s)
        found = search_vectors(self._test, self._found["question"], tuned)
        ranks = {f"tuned_{name}{ending}": rank(self._test, found[name]) for name in ("dense", "hybrid")}
        for key, additions in self._additions.items():
            both = zip(found["hybrid"], additions, strict=True)
            ranks[f"tuned_hybrid_{key}{ending}"] = rank(self._test, [Hits(fuse_rankings(pair)) for pair in both])
        return ranks

    def _draw_unlabelled(self, drawn: Sequence[Question], seed: int) -> list[Question]:
        """Further questions, of which nobody says what answers them."""
        names = {question.id for question in drawn}
        others = [question for question in self.questions if question.id not in names]
        number = self._options.unlabelled
        return [replace(question, evidence=()) for question in draw_questions(others, number, seed)] if number else []

    def _rank_added(self, reranker: Reranker, name: str, features: ScoreHits | None, factors: Factors) -> dict[str, list[int]]:
        """The ranks with a model that reads what the search finds and what each query writer adds."""
        joined = {
            key: [add_pages(own, more) for own, more in zip(self._found["question"], additions, strict=True)]
            for key, additions in self._additions.items()
        }
        wanted = [dict.fromkeys(page for hits in of for page in take(hits, DEPTH)) for of in zip(*joined.values(), strict=True)]
        scores = self._passages.read(reranker, self._test, [list(pages) for pages in wanted]) if joined else []
        ranks = {f"{name}_{key}": rank(self._test, reorder(self._test, own, scores, DEPTH)) for key, own in joined.items()}
        if features:
            for key, own in joined.items():
                stacked = reorder(self._test, own, scores, DEPTH, factors, features)
                ranks[f"{name}_{key}_stacked"] = rank(self._test, stacked)
        return ranks

    def _choose_weights(
        self, reranker: Reranker, questions: Sequence[Question], base: str, features: ScoreHits | None
    ) -> tuple[dict[int, float], dict[int, Factors]]:
        """By validation questions for each depth the weight with the best MRR, the least of equal ones, and the factors beside
        features."""
        depths, first = self._options.depths, search_words(questions, self._collection.searcher)
        if base != "question":
            first = search_vectors(questions, first, self._dense)[base]
        scores = self._passages.read(reranker, questions, [take(hits, depths[-1]) for hits in first])

        def compute_mrr(weight: float, depth: int) -> float:
            return measure(rank(questions, reorder(questions, first, scores, depth, weight)))[:, 3].sum()

        def learn(depth: int) -> Factors:
            tops = [Hits(hits[:depth]) for hits in first]
            judged = [
                (question, top, features(question.question, top), [own[hit.page] for hit in top])
                for question, top, own in zip(questions, tops, scores, strict=True)
                if features and top
            ]
            return feature_training.fit_factors(judged) or feature_training.FEATURES_ALONE

        return {depth: max(WEIGHTS, key=partial(compute_mrr, depth=depth)) for depth in depths}, {d: learn(d) for d in depths}

    def _rank_by_reading(
        self,
        reranker: Reranker,
        name: str,
        base: str,
        weights: Mapping[int, float],
        features: ScoreHits | None,
        factors: Mapping[int, Factors],
    ) -> dict[str, list[int]]:
        """The ranks with a cross-encoder that reads what a search finds, after hybrid also the union."""
        first = self._found[base]
        union = join(self._found, UNION) if base == "hybrid" else [Hits()] * len(first)
        wanted = [
            dict.fromkeys(take(one, self._options.depths[-1]) + take(more, DEPTH)) for one, more in zip(first, union, strict=True)
        ]
        scores = self._passages.read(reranker, self._test, [list(pages) for pages in wanted])
        ranks = rank_reread(name, self._test, first, scores, weights, features, factors)
        if base == "hybrid":
            ranks[f"{name}@union"] = rank(self._test, reorder(self._test, union, scores, DEPTH))
        return ranks


def read_additions(folder: Path, name: str, questions: Sequence[Question]) -> list[Hits]:
    """Read the pages that a query writer has found for each question."""
    found = parse_json((folder / f"{name}.json").read_text(encoding="utf-8"))["pages"]
    return [Hits(Hit(file, number, place, 1 / place) for place, (file, number) in enumerate(found[q.id], 1)) for q in questions]


def name_additions(text: str) -> tuple[str, Path]:
    """The name in rankings and the folder of `--additions`."""
    name, _, folder = text.rpartition("=")
    return name or "added", Path(folder)


def add_pages(found: Hits, additions: Hits) -> Hits:
    """The best that a search finds, and then what a query writer adds, each page with its place in that search if it has one."""
    by_page = {hit.page: hit for hit in found}
    top = {hit.page: hit for hit in found[:UNION]}
    more = {hit.page: by_page.get(hit.page, replace(hit, rank=DEPTH + hit.rank, score=0.0)) for hit in additions}
    return Hits((top | {page: hit for page, hit in more.items() if page not in top}).values())


def is_distilled(name: str) -> bool:
    """True for what learns the scores of the reader."""
    return name.endswith("_distilled")


def read_written(folder: Path, kinds: Sequence[str] = (), also: Sequence[str] = ()) -> list[Question]:
    """The questions that a stage `questions` has left in a folder, and those that its filters have left out for some reasons; of
    some kinds alone where these are named."""
    written, _ = read_questions(folder / ROWS_NAME)
    written += [draft.to_question() for draft in read_lines(folder / REJECTED_NAME, DRAFT) if draft.reason in also]
    categories = {f"written_{kind}" for kind in kinds}
    return [question for question in written if not categories or question.category in categories]


def describe(questions: Sequence[Question], searcher: Searcher) -> dict[str, float]:
    """Difficulty and wording of questions: measures of searches with them, words, and the share of these on a page that
    answers."""
    words = [set(searcher.analyze(question.question)) for question in questions]
    held = [
        max(len(own & set(searcher.analyze(searcher.text(page)))) for page in question.evidence)
        for own, question in zip(words, questions, strict=True)
    ]
    shares = [number / len(own) for number, own in zip(held, words, strict=True) if own]
    return {
        **summarise(rank(questions, search_words(questions, searcher))),
        "words": round(sum(map(len, words)) / len(words), 2),
        "words_on_page": round(sum(shares) / len(shares), 4),
    }


def summarise(ranks: Sequence[int]) -> dict[str, float]:
    """The means of the measures."""
    return dict(zip(MEASURES, measure(ranks).mean(axis=0).round(4).tolist(), strict=True))


def share(ranks: Sequence[int], depth: int) -> float:
    """The share of questions with an evidence page that far."""
    return round(sum(0 < place <= depth for place in ranks) / len(ranks), 4)


def read_outputs(folder: Path) -> list[dict[str, Any]]:
    """The results of all trainings in a folder, or of all transfers, by their names."""
    return [parse_json(path.read_text(encoding="utf-8"))["results"] for path in sorted(folder.glob("*.json"))]


def transfer(options: argparse.Namespace, run: Run) -> None:
    """Ask the test questions of each set with what the least seed has trained on the others, on all questions of smaller ones."""
    size = options.train[0]
    outputs = [one for one in read_outputs(options.transfer) if one["train"] in (size, "all")]
    sources = {one["set"]: one for one in sorted(outputs, key=lambda one: (one["train"] == size, -one["seed"]))}
    for name in (name for name in options.sets if name in sources):
        missing = {
            f"{source}-on-{name}-{size}": one
            for source, one in sources.items()
            if source != name and not (options.transfer / "transfer" / f"{source}-on-{name}-{size}.json").exists()
        }
        if not missing:
            continue
        collection = open_collection(options, name, options.transfer)
        passages = Passages(collection, run)
        by_id = {question.id: question for question in collection.questions}
        test = [by_id[key] for key in sources[name]["question_ids"]]
        first = search_words(test, collection.searcher)
        for output, source in missing.items():
            folder = options.transfer / "models" / f"{source['set']}-{source['train']}-seed{source['seed']}"
            depth, ranks = options.depths[0], {"question": rank(test, first)}
            for ranker in (key for key in source["weights"] if PLAN[key][1] == "bm25"):
                scores = passages.read(
                    open_reranker(folder / ranker, options.on_gpu), test, [take(hits, depth) for hits in first]
                )
                ranks |= rank_reread(ranker, test, first, scores, {depth: source["weights"][ranker][str(depth)]})
            for embedder in (path.parent for path in sorted(folder.glob(f"embed*/{ENCODER_DIR_NAME}"))):
                tuned, _ = collection.embed(str(embedder / ENCODER_DIR_NAME), collection.folder / "transferred", options.on_gpu)
                found = search_vectors(test, first, tuned)
                ending = embedder.name.removeprefix("embed")
                ranks |= {f"tuned_{key}{ending}": rank(test, found[key]) for key in ("dense", "hybrid")}
            about = {"source": source["set"], "set": name, "train": source["train"], "seed": source["seed"], "ranks": ranks}
            measures = {key: summarise(own) for key, own in ranks.items()}
            write_result(output, {**about, "measures": measures}, folder=options.transfer / "transfer")


def time_on_cpu(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Milliseconds of a question by each search, and with what puts its best pages in order; all take turns."""
    collection, depth = open_collection(options, name, options.latency), options.depths[0]
    train, test, _ = split(collection)
    searcher, asked = collection.searcher, draw_questions(test, options.test, 0)
    kind = Path(options.embedder).name
    by_vectors = [
        collection.embed(options.embedder, collection.folder / f"drawn-{kind}", False, keep=True, drawn=True)[0] for _ in range(2)
    ]  # each embeds a question for itself
    model = feature_training.fit(draw_questions(train, TIMED, 0), searcher, depth, searcher, 0)
    folder = options.latency / "models" / Path(options.start).name
    untrained = CrossEncoder(model=options.start, max_tokens=TOKENS).load(str(locate_model(options.start, "--start")), "cpu")
    untrained.save_pretrained(str(folder))
    config = {"model": str(folder), "page_chars": PAGE_CHARS}
    readers = {dtype: load_reranker(RerankConfig.model_validate({**config, "dtype": dtype})) for dtype in ("float32", "int8")}
    rankers = {"features": PageRanker(searcher, features=FeatureScorer(model, searcher))} | {
        f"ce_{dtype}": PageRanker(searcher, reader.score, PAGE_CHARS) for dtype, reader in readers.items()
    }
    calls: dict[str, Callable[[str], Hits]] = {
        "question": lambda text: searcher.search(text, depth),
        "dense": lambda text: by_vectors[0].search(text, depth),
        "hybrid": lambda text: HybridSearcher(searcher, by_vectors[1]).search(text, depth),
        **{key: lambda text, of=of: of.rerank(text, searcher.search(text, depth), depth) for key, of in rankers.items()},
    }
    clocks = {key: Clock() for key in calls}
    for place, question in enumerate(asked):
        for key, call in calls.items():
            (clocks[key] if place else Clock()).time(call, question.question)  # the first opens what is to be open
    times = {key: of.summarise() for key, of in clocks.items()}
    return {"set": name, "pages": searcher.num_pages, "questions": len(asked) - 1, "depth": depth, "times": times}


def tabulate(folder: Path, name: str) -> None:
    """Write the result of this name, and print it."""
    outputs = read_outputs(folder)
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in outputs:
        groups.setdefault((one["set"], one["train"]), []).append(one)
    tables = [summarise_trainings(trained) for trained in groups.values()]
    moved = []
    for one in read_outputs(folder / "transfer"):
        own = next(other for other in outputs if other["set"] == one["set"])
        ranks = {**{name: own["ranks"][name] for name in UNTRAINED}, **one["ranks"]}
        about = {key: one[key] for key in ("source", "set", "train", "seed")}
        moved.append({**about, **compare([ranks], own["files"])})
    rows = [row for table in (*tables, *moved) for row in table["rankings"].values()]
    differences = [found for row in rows for key, of in row.items() if key.startswith("above_") for found in of.values()]
    for found, adjusted in zip(differences, holm([one[3] for one in differences]), strict=True):
        found.append(adjusted)
    for table in (*tables, *moved):
        print(*(table.get(key, "") for key in ("source", "set", "train")), "best untrained:", table["best_untrained"])
        for ranking, row in table["rankings"].items():
            print(
                f"  {ranking:22}",
                *(f"{key} {row[key]}" for key in MEASURES),
                row.get(f"above_{table['best_untrained']}", {}).get("mrr", ""),
            )
    machines = [parse_json(path.read_text(encoding="utf-8"))["machine"] for path in sorted(folder.glob("*.json"))[:1]]
    write_result(name, {"machine": machines[0], "sets": tables, "transfer": moved}, measured_here=False)


def summarise_trainings(trained: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The table of a set and a number of questions, over the seeds."""
    first = trained[0]
    about = {key: first[key] for key in ("set", "train", "pages", "options", "train_questions", "recall")} | {
        key: first.get(key) for key in ("written", "asked")
    }
    costs = {key: [one[key] for one in trained] for key in ("weights", "training", "times", "pages_s")}
    costs |= {key: [one[key] for one in trained if key in one] for key in ("teacher_agreement", "reader_times", "factors")}
    return {
        **about,
        "seeds": [one["seed"] for one in trained],
        **compare([one["ranks"] for one in trained], first["files"]),
        **costs,
    }


def compare(ranks: Sequence[Mapping[str, Sequence[int]]], files: Sequence[str]) -> dict[str, Any]:
    """Each ranking's [mean, least, highest] over trainings, and how far it is above the question, the best untrained one, and
    `features` where that was asked."""
    names = dict.fromkeys(name for one in ranks for name in one)
    values = {name: np.stack([measure(one[name]) for one in ranks if name in one]) for name in names}
    best = find_best_untrained(values)
    references = dict.fromkeys(("question", best, *({"features"} & values.keys())))
    rows = compare_values(values, files, tuple(references))
    for name, other in PAIRS.items():
        if {name, other} <= values.keys():
            pair = compare_values({key: values[key] for key in (name, other)}, files, [other])
            rows[name]["above_pair"] = pair[name][f"above_{other}"]
    return {"questions": len(files), "documents": len(set(files)), "best_untrained": best, "rankings": rows}


def find_best_untrained(values: Mapping[str, np.ndarray]) -> str:
    """The untrained search with the highest MRR."""
    return max(UNTRAINED, key=lambda name: values[name].mean((0, 1))[3])


def compare_values(
    values: Mapping[str, np.ndarray], files: Sequence[str], references: Sequence[str], measures: Sequence[str] = MEASURES
) -> dict[str, dict[str, Any]]:
    """Each ranking's [mean, least, highest] over trainings, and how far it is above some of them.

    A difference, [value, low, high, p], is that of the questions' means over the trainings; its interval and p-value are over
    documents, and leave the variance of training to the range.

    Args:
        values: of each ranking, (trainings, questions, measures); as many trainings of each as there are.
        files: the document of each question.
        references: rankings that all others are compared with.
        measures: their names.
    """
    clusters = np.unique(files, return_inverse=True)[1].astype(np.int64)
    rows: dict[str, dict[str, Any]] = {}
    for name, of_trainings in values.items():
        means = of_trainings.mean(axis=1).T
        rows[name] = {
            key: [round(float(x), 4) for x in (m.mean(), m.min(), m.max())] for key, m in zip(measures, means, strict=True)
        }
    for reference in references:
        key = f"above_{reference}"
        names = [name for name in values if name != reference]
        asked = np.concatenate([values[name].mean(axis=0) for name in names], axis=1)
        given = np.tile(values[reference].mean(axis=0), len(names))
        drawn = bootstrap_means(asked - given, clusters, NUM_RESAMPLES // 10, 0)
        p_values = compute_sign_flip_p_values(given, asked, clusters, NUM_RESAMPLES, 0)
        for column, (name, of) in enumerate((name, of) for name in names for of in measures):
            low, high = compute_interval(drawn[:, column], CONFIDENCE) or (0.0, 0.0)
            numbers = [float((asked - given)[:, column].mean()), low, high]
            rows[name].setdefault(key, {})[of] = [*(round(number, 4) for number in numbers), float(p_values[column])]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command = parser.add_mutually_exclusive_group(required=True)
    command.add_argument("--out", type=Path, help="folder to write trainings to; what is there is not made again")
    command.add_argument("--transfer", type=Path, metavar="OUT", help="ask with models that were trained on other sets")
    command.add_argument("--table", type=Path, metavar="OUT", help="write what is there as a result")
    command.add_argument("--latency", type=Path, metavar="OUT", help="time searches and rankers on two threads of a CPU")
    parser.add_argument("--result", default="rankers", help="name of that result")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=WITHOUT_READER, help="what to train")
    parser.add_argument("--sets", type=lambda text: text.split(","), default=SETS)
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="folder of the public sets")
    parser.add_argument(
        "--train", type=lambda text: text.split(","), default=["1500"], help="questions, those for validation too"
    )
    parser.add_argument(
        "--depths", type=lambda text: [*map(int, text.split(","))], default=[20, 50], help="pages that are read, the fewest first"
    )
    parser.add_argument("--test", type=int, default=1_000, help="test questions at most")
    parser.add_argument("--seeds", type=lambda text: [*map(int, text.split(","))], default=[0, 1, 2])
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--learning-rate", type=float, help="of the encoders, in place of 1e-4 and, of embedders, 5e-5")
    parser.add_argument("--start", default=MINILM, help="model that cross-encoders start from: a folder")
    parser.add_argument("--embedder", default=MINILM, help="embedding model, trained and as it is: a folder")
    parser.add_argument("--teacher", default="", help="model whose scores of the passages are learned too: a folder")
    parser.add_argument("--reader", default="", help="causal model that is trained to read pages: a folder")
    parser.add_argument("--unlabelled", type=int, default=0, help="further questions that the reader scores, without labels")
    parser.add_argument(
        "--additions",
        type=lambda text: [name_additions(part) for part in text.split(",")],
        default=[],
        help="folders of what query writers find, as ask_writer.py leaves it, each after NAME= where it is not called added",
    )
    parser.add_argument("--written", type=Path, help="folder of questions that a model has written, to train on")
    parser.add_argument("--every-document", action="store_true", help="of these also those over documents of test questions")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=[], help="of these only some kinds")
    parser.add_argument("--also", type=lambda text: text.split(","), default=[], help="reasons of filters that leave out none")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes beside the GPU")
    options = parser.parse_args()
    options.on_gpu = options.device == "gpu"
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]  # trainers take all
    if ("reader" in options.methods) != bool(options.reader) or (any(map(is_distilled, options.methods)) and not options.reader):
        parser.error("--reader names the model of the method reader, whose scores those called _distilled learn: name both")
    if options.table:
        tabulate(options.table, options.result)
        return
    if options.latency:
        torch.set_num_threads(2)
        starts = {key: getattr(options, key).rpartition("/")[2] for key in ("start", "embedder")}
        found = list[dict[str, Any]]()
        for name in options.sets:
            found.append(time_on_cpu(options, name))
            write_result(
                options.result, {"options": starts, "sets": found}
            )  # what is there is kept where the next is interrupted
        return
    with open_pool(options.workers) as run:
        if options.transfer:
            transfer(options, run)
            return
        for name in options.sets:
            run_set(options, name, run)


if __name__ == "__main__":
    main()
