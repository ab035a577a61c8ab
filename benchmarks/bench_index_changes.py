"""The index stage on documents that change: the first build beside the one after some of them have changed.

python benchmarks/bench_index_changes.py [--sets md:1000 md:10000 pdf:1000] [--num-cpus 2]
python benchmarks/bench_index_changes.py --sets md:1000 --embedding FOLDER
python benchmarks/bench_index_changes.py --sets scan:20

A set is so many documents of ten pages of 300 words, drawn by Zipf's law from 30,000 words: texts (md), PDFs with a text layer
(pdf), or PDFs whose pages are pictures, which OCR has to read (scan; the extra `ocr`). The stage runs as a job runs it, on a
local Ray; then a share of the documents is written anew with other words, and it runs again. With `--embedding` the pages have
vectors too, which the stage makes on a GPU if there is one. CPU seconds are those of this process and of Ray's: where others
work on the machine, they tell more than those of the clock.
"""

import argparse
import contextlib
import random
import string
import tempfile
from itertools import accumulate
from pathlib import Path
from typing import Any

import psutil
from PIL import Image, ImageDraw, ImageFont
from record import make_folder, write_result
from reportlab.pdfgen.canvas import Canvas

from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.corpus.config import CorpusConfig
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_stage
from drag_ray.pipeline.stages import STAGES
from drag_ray.search.config import EmbeddingConfig
from drag_ray.storage.artifacts import Manifest

_PAGES, _LINES, _LINE_WORDS = 10, 30, 10
_WEIGHTS = list(accumulate(1 / rank for rank in range(1, 30_001)))
_COUNTS = ("pages", "pages_by_ocr", "windows", "kept_documents", "read_documents", "removed_documents")
_SCAN = "scan"
_SCAN_SIZE, _SCAN_DPI = (1654, 2339), 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["md:1000", "md:10000", "pdf:1000"], help="suffix:number of documents")
    parser.add_argument("--changed-share", type=float, default=0.01, help="of the documents")
    parser.add_argument("--page-images", action="store_true", help="keep page images too, as index_changes_images")
    parser.add_argument("--embedding", default="", help="a model's folder: vectors of the pages too, as index_changes_vectors")
    parser.add_argument("--num-cpus", type=int, default=2, help="of the local Ray")
    parser.add_argument("--scratch-dir", type=make_folder, default=None, help="where the sets are made; 1 GB for 100,000 pages")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    for name in options.sets:
        suffix, _, number = name.partition(":")
        with tempfile.TemporaryDirectory(dir=options.scratch_dir) as scratch, connect(ClusterConfig(num_cpus=options.num_cpus)):
            results.append(measure(Path(scratch), suffix, int(number), options))
        print(results[-1], flush=True)
    is_scanned = any(one["documents_are"] == _SCAN for one in results)
    endings = {"_vectors": options.embedding, "_images": options.page_images, "_ocr": is_scanned}
    name = "index_changes" + "".join(ending for ending, is_measured in endings.items() if is_measured)
    model = {"embedding": Path(options.embedding).name} if options.embedding else {}
    write_result(name, {"changed_share": options.changed_share, "num_cpus": options.num_cpus, **model, "sets": results})


def measure(scratch: Path, suffix: str, num_documents: int, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of both builds, and what the second one counts."""
    generator = random.Random(0)
    words = ["".join(generator.choices(string.ascii_lowercase, k=generator.randint(3, 9))) for _ in range(30_000)]
    ending = "pdf" if suffix == _SCAN else suffix
    paths = [scratch / "documents" / str(number % 100) / f"{number}.{ending}" for number in range(num_documents)]
    for path in paths:
        write_document(path, suffix, words, generator)
    corpus = CorpusConfig(documents=str(scratch / "documents"), page_images=options.page_images)
    config = RunConfig(run_dir=scratch / "run", corpus=corpus, embedding=EmbeddingConfig(model=options.embedding))
    first, first_cpu_s = build(config)
    for path in generator.sample(paths, max(1, round(options.changed_share * num_documents))):
        write_document(path, suffix, words, generator)
    again, again_cpu_s = build(config)
    return {
        "documents_are": suffix,
        "documents": num_documents,
        **{name: again.counts[name] for name in _COUNTS if name in again.counts},
        "first_s": round(first.duration_s, 1),
        "again_s": round(again.duration_s, 1),
        "share_of_first": round(again.duration_s / first.duration_s, 3),
        "first_cpu_s": round(first_cpu_s, 1),
        "again_cpu_s": round(again_cpu_s, 1),
        "cpu_share_of_first": round(again_cpu_s / first_cpu_s, 3),
    }


def build(config: RunConfig) -> tuple[Manifest, float]:
    """The index, and the CPU seconds that it took."""
    before = count_cpu_s()
    return run_stage(STAGES["index"], config), count_cpu_s() - before


def count_cpu_s() -> float:
    """The CPU seconds of this process and of all below it, those that have ended included."""
    own, seconds = psutil.Process(), 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has just ended
            seconds += sum(process.cpu_times()[:4])
    return seconds


def write_document(path: Path, suffix: str, words: list[str], generator: random.Random) -> None:
    """A document of ten pages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = iter(generator.choices(words, cum_weights=_WEIGHTS, k=_PAGES * _LINES * _LINE_WORDS))
    pages = [[" ".join(next(drawn) for _ in range(_LINE_WORDS)) for _ in range(_LINES)] for _ in range(_PAGES)]
    if suffix == _SCAN:
        first, *others = map(draw_page, pages)
        first.save(path, save_all=True, append_images=others, resolution=_SCAN_DPI)
    elif suffix == "pdf":
        canvas = Canvas(str(path))
        for lines in pages:
            for number, line in enumerate(lines):
                canvas.drawString(50, 800 - 20 * number, line)
            canvas.showPage()
        canvas.save()
    else:
        path.write_text("\f".join("\n\n".join(lines) for lines in pages))


def draw_page(lines: list[str]) -> Image.Image:
    """The picture of a page, of A4 at 200 dots an inch."""
    page = Image.new("L", _SCAN_SIZE, "white")
    ImageDraw.Draw(page).multiline_text((120, 120), "\n".join(lines), "black", ImageFont.load_default(28), spacing=32)
    return page


if __name__ == "__main__":
    main()
