"""The index stage on documents that change: the first build beside the one after some of them have changed.

python benchmarks/bench_index_changes.py [--sets md:1000 md:10000 pdf:1000]

A set is so many documents of ten pages of 300 words, drawn by Zipf's law from 30,000 words. The stage runs as a job runs it, on
two CPUs of a local Ray; then a share of the documents is written anew with other words, and it runs again.
"""

import argparse
import random
import string
import tempfile
from itertools import accumulate
from pathlib import Path
from typing import Any

from record import make_folder, write_result
from reportlab.pdfgen.canvas import Canvas

from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.corpus.config import CorpusConfig
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_stage
from drag_ray.pipeline.stages import STAGES

_PAGES, _LINES, _LINE_WORDS = 10, 30, 10
_WEIGHTS = list(accumulate(1 / rank for rank in range(1, 30_001)))
_COUNTS = ("pages", "kept_documents", "read_documents", "removed_documents")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["md:1000", "md:10000", "pdf:1000"], help="suffix:number of documents")
    parser.add_argument("--changed-share", type=float, default=0.01, help="of the documents")
    parser.add_argument("--page-images", action="store_true", help="keep page images too, as index_changes_images")
    parser.add_argument("--scratch-dir", type=make_folder, default=None, help="where the sets are made; 1 GB for 100,000 pages")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    for name in options.sets:
        suffix, _, number = name.partition(":")
        with tempfile.TemporaryDirectory(dir=options.scratch_dir) as scratch, connect(ClusterConfig(num_cpus=2)):
            results.append(measure(Path(scratch), suffix, int(number), options))
        print(results[-1], flush=True)
    name = "index_changes_images" if options.page_images else "index_changes"
    write_result(name, {"changed_share": options.changed_share, "sets": results})


def measure(scratch: Path, suffix: str, num_documents: int, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of both builds, and what the second one counts."""
    generator = random.Random(0)
    words = ["".join(generator.choices(string.ascii_lowercase, k=generator.randint(3, 9))) for _ in range(30_000)]
    paths = [scratch / "documents" / str(number % 100) / f"{number}.{suffix}" for number in range(num_documents)]
    for path in paths:
        write_document(path, words, generator)
    corpus = CorpusConfig(documents=str(scratch / "documents"), page_images=options.page_images)
    config = RunConfig(run_dir=scratch / "run", corpus=corpus)
    first = run_stage(STAGES["index"], config)
    for path in generator.sample(paths, max(1, round(options.changed_share * num_documents))):
        write_document(path, words, generator)
    again = run_stage(STAGES["index"], config)
    return {
        "suffix": suffix,
        "documents": num_documents,
        **{name: again.counts[name] for name in _COUNTS},
        "first_s": round(first.duration_s, 1),
        "again_s": round(again.duration_s, 1),
        "share_of_first": round(again.duration_s / first.duration_s, 3),
    }


def write_document(path: Path, words: list[str], generator: random.Random) -> None:
    """A document of ten pages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = iter(generator.choices(words, cum_weights=_WEIGHTS, k=_PAGES * _LINES * _LINE_WORDS))
    pages = [[" ".join(next(drawn) for _ in range(_LINE_WORDS)) for _ in range(_LINES)] for _ in range(_PAGES)]
    if path.suffix == ".pdf":
        canvas = Canvas(str(path))
        for lines in pages:
            for number, line in enumerate(lines):
                canvas.drawString(50, 800 - 20 * number, line)
            canvas.showPage()
        canvas.save()
    else:
        path.write_text("\f".join("\n\n".join(lines) for lines in pages))


if __name__ == "__main__":
    main()
