"""Writes the figures of README.md and docs/ from `results/`, between `<!-- figures: NAME -->` and `<!-- end -->`.

    python benchmarks/figures.py            # writes them
    python benchmarks/figures.py --check    # says which files are not as this would write them

A figure is a function of one of the `figure_` modules that reads what was measured and returns Markdown; FIGURES names it.
"""

import argparse
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
import figure_quality
import figure_recipe
import figure_reranker
import figure_scaling
import figure_sizes
import figure_speed
import figure_terms
import figure_tools
import figure_versions
import figure_words

ROOT = Path(__file__).parents[1]
_FIGURE = re.compile(r"(?<=<!-- figures: )([\w-]+)( -->\n\n)(.*?)(?=\n\n<!-- end -->)", re.DOTALL)

FIGURES: dict[str, Callable[[], str]] = {
    "demo": figure_quality.write_demo,
    "demo-times": figure_quality.write_demo_times,
    "effect": figure_quality.write_effect,
    "learning-curve-terms": figure_learning_curve.write_terms,
    "learning-curve": figure_learning_curve.write_table,
    "learning-curve-words": figure_learning_curve.write_words,
    "ablation-terms": figure_ablation.write_terms,
    "ablation": figure_ablation.write_table,
    "ablation-words": figure_ablation.write_words,
    "recipe": figure_quality.write_recipe,
    "methods": figure_quality.write_methods,
    "embedded-questions": figure_quality.write_embedded_questions,
    "search-quality": figure_quality.write_search_quality,
    "key-words": figure_quality.write_key_words,
    "model-baselines": figure_quality.write_model_baselines,
    "search-speed": figure_speed.write_search_speed,
    "search-ratios": figure_speed.write_search_ratios,
    "process-format": figure_speed.write_process_format,
    "yields": figure_quality.write_yields,
    "collection": figure_collection.write_collection,
    "collection-images": figure_collection.write_collection_images,
    "collection-scaling": figure_collection.write_collection_scaling,
    "collection-scaling-images": figure_collection.write_collection_scaling_images,
    "finetune": figure_speed.write_finetune,
    "serving": figure_speed.write_serving,
    "rerank": figure_speed.write_rerank,
    "collect-load": figure_load.write_collect_load,
    "scaling-time": figure_scaling.write_scaling_time,
    "scaling-limits": figure_scaling.write_scaling_limits,
    "scaling-bend": figure_scaling.write_scaling_bend,
    "autoscaling": figure_cluster.write_autoscaling,
    "simulation": figure_cluster.write_simulation,
    "lost-nodes": figure_cluster.write_lost_nodes,
    "serve-load": figure_load.write_serve_load,
    "reader-fuzz": figure_load.write_reader_fuzz,
    "query-fuzz": figure_load.write_query_fuzz,
    "hostile-queries": figure_load.write_hostile_queries,
    "fault-injection": figure_load.write_fault_injection,
    "kills": figure_load.write_kills,
    "demo-terms": figure_words.write_demo_terms,
    "demo-room": figure_words.write_demo_room,
    "manuals-item": figure_words.write_manuals_item,
    "fairytaleqa-item": figure_words.write_fairytaleqa_item,
    "judge-cost": figure_words.write_judge_cost,
    "search-scale": figure_speed.write_search_scale,
    "demo-words": figure_words.write_demo_words,
    "effect-large": figure_words.write_effect_large,
    "effect-small": figure_words.write_effect_small,
    "effect-fairytaleqa": figure_words.write_effect_fairytaleqa,
    "effect-manuals": figure_words.write_effect_manuals,
    "effect-manuals-rl": figure_words.write_effect_manuals_rl,
    "effect-transfer": figure_words.write_effect_transfer,
    "methods-words": figure_words.write_methods_words,
    "recipe-words": figure_words.write_recipe_words,
    "recipe-times": figure_words.write_recipe_times,
    "collection-words": figure_collection.write_collection_words,
    "image-cores": figure_collection.write_image_cores,
    "scaling-words": figure_collection.write_scaling_words,
    "engine-killed": figure_speed.write_engine_killed,
    "stream-pacing": figure_speed.write_stream_pacing,
    "serving-waves": figure_speed.write_serving_waves,
    "preparation": figure_speed.write_preparation,
    "serving-parts": figure_speed.write_serving_parts,
    "effect-terms": figure_terms.write_effect_terms,
    "methods-terms": figure_terms.write_methods_terms,
    "embedded-terms": figure_terms.write_embedded_terms,
    "model-baselines-terms": figure_terms.write_model_baselines_terms,
    "recipe-terms": figure_terms.write_recipe_terms,
    "search-speed-terms": figure_speed.write_search_speed_terms,
    "finetune-terms": figure_speed.write_finetune_terms,
    "serving-terms": figure_speed.write_serving_terms,
    "collection-images-terms": figure_collection.write_collection_images_terms,
    "collection-scaling-terms": figure_collection.write_collection_scaling_terms,
    "collection-scaling-images-terms": figure_collection.write_collection_scaling_images_terms,
    "collection-scaling-shorter": figure_collection.write_collection_scaling_shorter,
    "engines-sharing": figure_collection.write_engines_sharing,
    "collect-tools-terms": figure_tools.write_collect_tools_terms,
    "collect-tools": figure_tools.write_collect_tools,
    "collect-tools-words": figure_tools.write_collect_tools_words,
    "reranker-terms": figure_reranker.write_terms,
    "reranker": figure_reranker.write_table,
    "reranker-words": figure_reranker.write_words,
    "kept-words": figure_kept.write_words,
    "kept": figure_kept.write_table,
    "kept-headline": figure_kept.write_headline,
    "reranker-loss": figure_reranker.write_loss_words,
    "reranker-transfer": figure_reranker.write_transfer_words,
    "evaluate-tools-terms": figure_tools.write_evaluate_tools_terms,
    "evaluate-tools": figure_tools.write_evaluate_tools,
    "evaluate-tools-words": figure_tools.write_evaluate_tools_words,
    "collect-load-words": figure_load.write_collect_load_words,
    "collect-load-terms": figure_load.write_collect_load_terms,
    "serve-load-terms": figure_load.write_serve_load_terms,
    "serve-load-words": figure_load.write_serve_load_words,
    "recipe-room": figure_recipe.write_recipe_room,
    "recipe-hybrid": figure_recipe.write_recipe_hybrid,
    "recipe-reranker-times": figure_recipe.write_recipe_reranker_times,
    "recipe-rounds": figure_recipe.write_rounds_words,
    "learning-curve-model-terms": figure_learning_curve.write_model_terms,
    "learning-curve-model": figure_learning_curve.write_model_table,
    "learning-curve-model-words": figure_learning_curve.write_model_words,
    "learning-curve-reranker": figure_learning_curve.write_reranker_table,
    "learning-curve-reranker-words": figure_learning_curve.write_reranker_words,
    "few-rows-item": figure_recipe.write_few_rows_item,
    "scaling-terms": figure_scaling.write_scaling_terms,
    "scaling-start": figure_scaling.write_scaling_start,
    "scaling-process": figure_scaling.write_scaling_process,
    "equal-terms-terms": figure_equal_terms.write_equal_terms_terms,
    "equal-terms": figure_equal_terms.write_equal_terms,
    "equal-terms-words": figure_equal_terms.write_equal_terms_words,
    "cpu-dtype": figure_dtype.write_table,
    "cpu-dtype-words": figure_dtype.write_words,
    "install-size": figure_sizes.write_install_size,
    "pinned-versions": figure_versions.write_pinned_versions,
    "measured-versions": figure_versions.write_measured_versions,
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
    return _FIGURE.sub(lambda match: f"{match[1]}{match[2]}{FIGURES[match[1]]()}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the figures of README.md and docs/ from benchmarks/results/.")
    parser.add_argument("--check", action="store_true", help="write nothing; the exit status is 1 if a file would change")
    stale: list[Path] = []
    check = parser.parse_args().check
    for path in list_files():
        text = path.read_text(encoding="utf-8")
        written = write_figures(text)
        if written != text:
            stale.append(path)
            if not check:
                path.write_text(written, encoding="utf-8")
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'not what `make figures` writes' if check else 'written'}")
    raise SystemExit(bool(stale and check))


if __name__ == "__main__":
    main()
