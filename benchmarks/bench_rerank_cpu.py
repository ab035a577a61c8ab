"""Milliseconds in which a cross-encoder puts the pages of a question in order on a CPU, by its number format, and how well.

python benchmarks/bench_rerank_cpu.py MODEL INDEX [--questions 300] [--pages 20] [--page-chars 300] [--threads 2] [--openvino]

The formats take turns question by question. Other work on the machine makes an order wait but costs it little CPU time: both are
kept. INDEX is the folder of an index stage, whose training questions are asked. `--openvino` has OpenVINO take turns too, in its
own number format and in 8 bits (nncf, calibrated on the pages of other questions); it needs the packages openvino and nncf.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
import torch
from record import write_result
from scipy.stats import spearmanr
from transformers.modeling_outputs import SequenceClassifierOutput

from drag_ray.engine.encoders.reranker import Reranker, load_reranker
from drag_ray.search.config import RerankConfig
from drag_ray.search.page_reranker import cut_passage
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence

CALIBRATION = 100
"""Questions whose first page OpenVINO chooses its 8 bits by."""
DTYPES = ("float32", "bfloat16", "int8")
assert set(DTYPES) < set(get_args(RerankConfig.model_fields["dtype"].annotation))


class Clock:
    """Milliseconds of what is called: until it is over, and of all cores together."""

    def __init__(self) -> None:
        self.waited: list[float] = []
        self.computed: list[float] = []

    def time(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function, note its times and return its result."""
        started, computed = time.perf_counter(), time.process_time()
        found = function(*arguments)
        self.waited.append((time.perf_counter() - started) * 1000)
        self.computed.append((time.process_time() - computed) * 1000)
        return found

    def summarise(self) -> dict[str, float]:
        """The least, the median and the 95th percentile that it took, and the median of CPU time."""
        least, median, late = np.percentile(self.waited, [0, 50, 95])
        return {
            "least_ms": round(least, 1),
            "median_ms": round(median, 1),
            "p95_ms": round(late, 1),
            "median_cpu_ms": round(float(np.median(self.computed)), 1),
        }


class OpenVinoClassifier(torch.nn.Module):
    """Stands in a cross-encoder where its model of transformers was, and has OpenVINO run it.

    Args:
        model: the classifier of transformers, in float32.
        tokenizer: its own.
        calibration: pairs of a question and a page with which 8 bits are chosen; without any the model stays as it is.
        threads: that it may use.
    """

    def __init__(self, model: Any, tokenizer: Any, calibration: Sequence[tuple[str, str]], threads: int) -> None:
        super().__init__()
        import openvino  # pyright: ignore[reportMissingImports]

        self.config = model.config
        read = partial(tokenizer, padding=True, truncation=True, return_tensors="pt")
        converted: Any = openvino.convert_model(
            model.eval(), example_input=dict(read([["a question", "a page"], ["one", "two"]]))
        )
        self._names = [port.get_any_name() for port in converted.inputs]
        if calibration:
            import nncf  # pyright: ignore[reportMissingImports]

            pairs = [{name: value.numpy() for name, value in read([list(pair)]).items()} for pair in calibration]
            converted = nncf.quantize(
                converted, nncf.Dataset(pairs), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(pairs)
            )
        options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
        self._compiled: Any = openvino.Core().compile_model(converted, "CPU", options)

    def forward(self, **inputs: Any) -> SequenceClassifierOutput:
        """The logits, (n, labels)."""
        found = self._compiled({name: inputs[name].numpy() for name in self._names})
        logits: Any = torch.from_numpy(found[0].copy())
        return SequenceClassifierOutput(logits=logits)


def open_openvino(options: argparse.Namespace, calibration: Sequence[tuple[str, str]]) -> Reranker:
    """The reranker in float32 with its model run by OpenVINO."""
    reranker: Any = load_reranker(RerankConfig(model=options.model, dtype="float32", page_chars=options.page_chars))
    encoder = reranker._model
    encoder[0].model = OpenVinoClassifier(encoder[0].model, encoder.tokenizer, calibration, options.threads)
    return reranker


def measure_order(ranks: list[int]) -> dict[str, float]:
    """Hit@1, Hit@3 and the mean reciprocal rank of ranks, of which 0 is none."""
    hits = {f"hit@{k}": round(float(np.mean([0 < rank <= k for rank in ranks])), 4) for k in (1, 3)}
    return {**hits, "mrr": round(float(np.mean([1 / rank if rank else 0 for rank in ranks])), 4)}


def correlate(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's correlation of two lists of scores."""
    found: Any = spearmanr(one, other)
    return float(found.statistic)


def open_format(options: argparse.Namespace, dtype: str) -> Reranker:
    """The reranker in a number format of ours."""
    return load_reranker(RerankConfig.model_validate({"model": options.model, "dtype": dtype, "page_chars": options.page_chars}))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Time and order of each format."""
    torch.set_num_threads(options.threads)
    searcher = Searcher(Path(options.index) / "search_index")
    every = pl.read_parquet(Path(options.index) / "questions.parquet").filter(pl.col("split") == "train").sort("id")
    asked = random.Random(1).sample(every.to_dicts(), min(options.questions, every.height))
    opens = {dtype: partial(open_format, options, dtype) for dtype in DTYPES}
    if options.openvino:
        others = sorted(set(map(str, every["question"])) - {question["question"] for question in asked})[:CALIBRATION]
        pairs = [
            (text, cut_passage(searcher, hit.page, text, options.page_chars))
            for text in others
            for hit in searcher.search(text, 1)
        ]
        opens |= {"openvino": partial(open_openvino, options, []), "openvino_int8": partial(open_openvino, options, pairs)}
    rerankers, load_s = dict[str, Reranker](), dict[str, float]()
    for dtype, open_reranker in opens.items():
        started = time.process_time()
        rerankers[dtype] = open_reranker()
        load_s[dtype] = round(time.process_time() - started, 1)
        rerankers[dtype].score("a question", ["a page"] * options.pages)
    clocks = {name: Clock() for name in ("search", "cut", *opens)}
    scores: dict[str, list[np.ndarray]] = {dtype: [] for dtype in opens}
    ranks: dict[str, list[int]] = {name: [] for name in ("search", *opens)}
    for question in asked:
        text, wanted = question["question"], {Evidence(**page) for page in question["evidence"]}
        pages = [hit.page for hit in clocks["search"].time(searcher.search, text, options.pages)]
        if not pages:
            continue
        cut = clocks["cut"].time(
            lambda pages, text: [cut_passage(searcher, page, text, options.page_chars) for page in pages], pages, text
        )
        for dtype, reranker in rerankers.items():
            scores[dtype].append(np.array(clocks[dtype].time(reranker.score, text, cut)))
        orders = {"search": range(len(pages))} | {dtype: np.argsort(-scores[dtype][-1], kind="stable") for dtype in opens}
        for name, order in orders.items():
            ranks[name].append(next((rank for rank, place in enumerate(order, 1) if pages[place] in wanted), 0))
    pairs = {dtype: zip(scores["float32"], scores[dtype], strict=True) for dtype in opens}
    return {
        "pages": options.pages,
        "page_chars": options.page_chars,
        "threads": options.threads,
        "questions": len(ranks["search"]),
        "search": clocks["search"].summarise() | measure_order(ranks["search"]),
        "cut": clocks["cut"].summarise(),
        **{
            dtype: clocks[dtype].summarise()
            | measure_order(ranks[dtype])
            | {
                "load_cpu_s": load_s[dtype],
                "spearman": round(float(np.mean([correlate(*pair) for pair in pairs[dtype] if len(pair[0]) > 1])), 4),
            }
            for dtype in opens
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("index")
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--page-chars", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--openvino", action="store_true", help="measure OpenVINO too")
    options = parser.parse_args()
    write_result("rerank_cpu", measure(options))


if __name__ == "__main__":
    main()
