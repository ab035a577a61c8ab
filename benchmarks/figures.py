"""Writes the figures of README.md and docs/ from `results/`, and says which sentences tell of results that have changed.

    python benchmarks/figures.py            # writes the figures
    python benchmarks/figures.py --check    # writes nothing, and says which files are not as this would write them
    python benchmarks/figures.py --accept   # marks all sentences as read

A figure stands between `<!-- figures: NAME -->` and `<!-- end -->`. It is a function of one of the `figure_` modules that reads
what was measured and returns a table; FIGURES names it.

Sentences with measured numbers are written by people, between `<!-- measured: RESULT@HASH, ... -->` and `<!-- end -->`: the files
of `results/` that they tell of, each with the beginning of its SHA-256 when they were last read. Whoever measures again reads
them, mends them and accepts.
"""

import argparse
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import figure_ablation
import figure_cluster
import figure_collection
import figure_dtype
import figure_equal_terms
import figure_kept
import figure_learning_curve
import figure_load
import figure_machines
import figure_quality
import figure_rankers
import figure_reranker
import figure_rl
import figure_scaling
import figure_speed
import figure_tools
import figure_tune
import figure_versions
import figure_written
from figure_cells import RESULTS_DIR

ROOT = Path(__file__).parents[1]
_FIGURE = re.compile(r"(?<=<!-- figures: )([\w-]+)( -->\n\n)((?:(?!<!--).)*)(?=<!-- end -->)", re.DOTALL)
_SENTENCES = re.compile(r"(?<=<!-- measured: )([\w@, ]+)(?= -->)")

FIGURES: dict[str, Callable[[], str]] = {
    "demo": figure_quality.write_demo,
    "effect": figure_quality.write_effect,
    "learning-curve": figure_learning_curve.write_table,
    "ablation": figure_ablation.write_table,
    "recipe": figure_quality.write_recipe,
    "methods": figure_quality.write_methods,
    "embedded-questions": figure_quality.write_embedded_questions,
    "search-quality": figure_quality.write_search_quality,
    "key-words": figure_quality.write_key_words,
    "model-baselines": figure_quality.write_model_baselines,
    "search-speed": figure_speed.write_search_speed,
    "collection": figure_collection.write_collection,
    "collection-images": figure_collection.write_collection_images,
    "collection-scaling": figure_collection.write_collection_scaling,
    "collection-scaling-images": figure_collection.write_collection_scaling_images,
    "finetune": figure_speed.write_finetune,
    "finetune-packing": figure_speed.write_finetune_packing,
    "finetune-beside": figure_speed.write_finetune_beside,
    "finetune-parts": figure_speed.write_finetune_parts,
    "serving": figure_speed.write_serving,
    "rerank": figure_speed.write_rerank,
    "collect-load": figure_load.write_collect_load,
    "scaling-time": figure_scaling.write_scaling_time,
    "scaling-limits": figure_scaling.write_scaling_limits,
    "autoscaling": figure_cluster.write_autoscaling,
    "simulation": figure_cluster.write_simulation,
    "lost-nodes": figure_cluster.write_lost_nodes,
    "serve-load": figure_load.write_serve_load,
    "reader-fuzz": figure_load.write_reader_fuzz,
    "fault-injection": figure_load.write_fault_injection,
    "kills": figure_load.write_kills,
    "effect-transfer": figure_quality.write_effect_transfer,
    "serving-waves": figure_speed.write_serving_waves,
    "serving-parts": figure_speed.write_serving_parts,
    "serving-ingress": figure_speed.write_serving_ingress,
    "collect-tools": figure_tools.write_collect_tools,
    "rankers": figure_rankers.write_table,
    "rankers-features": figure_rankers.write_features,
    "rankers-few": figure_rankers.write_few,
    "rankers-reader": figure_rankers.write_reader,
    "rankers-starts": figure_rankers.write_starts,
    "rankers-curve": figure_rankers.write_curve,
    "rankers-embedder": figure_rankers.write_embedder,
    "rankers-transfer": figure_rankers.write_transfer,
    "written-effect": figure_written.write_effect,
    "written-reader": figure_written.write_read,
    "written-filters": figure_written.write_filters,
    "written-likeness": figure_written.write_likeness,
    "written-kinds": figure_written.write_kinds,
    "reranker": figure_reranker.write_table,
    "rl-minutes": figure_rl.write_minutes,
    "kept": figure_kept.write_table,
    "kept-headline": figure_kept.write_headline,
    "evaluate-tools": figure_tools.write_evaluate_tools,
    "tune-first-stages": figure_tune.write_first_stages,
    "tune-settings": figure_tune.write_settings,
    "tune-depth": figure_tune.write_depth,
    "learning-curve-model-terms": figure_learning_curve.write_model_terms,
    "learning-curve-model": figure_learning_curve.write_model_table,
    "learning-curve-reranker": figure_learning_curve.write_reranker_table,
    "equal-terms": figure_equal_terms.write_equal_terms,
    "cpu-dtype": figure_dtype.write_table,
    "pinned-versions": figure_versions.write_pinned_versions,
    "measured-versions": figure_versions.write_measured_versions,
    "machines": figure_machines.write_machines,
}
"""Every figure by its name."""


def list_files() -> list[Path]:
    """The files that can hold figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def list_figures(text: str) -> list[str]:
    """The names of the figures of a text."""
    return [match[1] for match in _FIGURE.finditer(text)]


def write_figures(text: str) -> str:
    """A text with its figures as they are now; KeyError for a name that is none."""
    return _FIGURE.sub(lambda match: f"{match[1]}{match[2]}{FIGURES[match[1]]()}\n\n", text)


def accept_sentences(text: str) -> str:
    """A text whose sentences are marked as read beside the results as they are now.

    Raises:
        FileNotFoundError: there is no such result.
    """
    return _SENTENCES.sub(lambda match: ", ".join(mark_result(mark.partition("@")[0]) for mark in match[1].split(", ")), text)


def mark_result(name: str) -> str:
    """`NAME@HASH` of a file of `results/`."""
    return f"{name}@{hashlib.sha256((RESULTS_DIR / f'{name}.json').read_bytes()).hexdigest()[:8]}"


def list_unread(text: str) -> list[str]:
    """The marks of sentences whose results have changed since they were read."""
    marks = [mark for match in _SENTENCES.finditer(text) for mark in match[1].split(", ")]
    return [mark for mark in dict.fromkeys(marks) if mark != mark_result(mark.partition("@")[0])]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the figures of README.md and docs/ from benchmarks/results/.")
    parser.add_argument("--check", action="store_true", help="write nothing; the exit status is 1 if a file would change")
    parser.add_argument("--accept", action="store_true", help="mark the sentences between markers as read")
    stale, num_unread = list[Path](), 0
    arguments = parser.parse_args()
    check = arguments.check
    for path in list_files():
        text = path.read_text(encoding="utf-8")
        written = write_figures(accept_sentences(text) if arguments.accept else text)
        for mark in list_unread(written):
            num_unread += 1
            print(f"{path.relative_to(ROOT)}: {mark} has changed; read the sentences with this mark, then run with --accept")
        if written != text:
            stale.append(path)
            if not check:
                path.write_text(written, encoding="utf-8")
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'not what `make figures` writes' if check else 'written'}")
    raise SystemExit(bool(check and (stale or num_unread)))


if __name__ == "__main__":
    main()
