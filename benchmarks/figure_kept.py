"""The table of a recipe on questions that were kept apart (`bench_kept.py`)."""

from collections.abc import Iterable
from typing import Any

from figure_cells import read_results, short, to_paragraph, to_table
from figure_words import tested_difference

_MEASURES = {"hit1": "Hit@1", "hit3": "Hit@3", "hit10": "Hit@10", "mrr": "MRR"}
_POLICIES = {
    "the question by words (BM25)": "question",
    "its key words": "question_keywords",
    "the question by vectors (`dense`)": "dense",
    "by both (`hybrid`)": "hybrid",
    "`templates`, by both": "templates+hybrid",
    "`features`, of what both find": "features",
    "question + what the tuned model adds": "tuned",
    "question + what the tuned model adds, by both": "tuned+hybrid",
    "**the question, reranked**": "rerank",
}


def write_headline() -> str:
    """Hit@1 and MRR of what a newcomer would compare."""
    sets = read_results("kept")["sets"]
    policies = [(text, policy) for text, policy in _POLICIES.items() if policy not in ("question_keywords", "dense")]
    rows = [
        [text, *(_write_cell(found["all"]["policies"][policy], ("hit1", "mrr")) for found in sets.values())]
        for text, policy in policies
    ]
    return to_table(["Hit@1 MRR", *(f"{name} ({found['all']['questions']:,} questions)" for name, found in sets.items())], rows)


def write_table() -> str:
    """The values of each policy on all questions of a set, and on those whose pages training has not read."""
    sets = read_results("kept")["sets"]
    parts = [
        (f"{name}, {part} ({found[part]['questions']:,})", found[part])
        for name, found in sets.items()
        for part in ("all", "apart")
        if part == "all" or found[part]["questions"] < found["all"]["questions"]
    ]
    rows = [[text, *(_write_cell(found["policies"][policy]) for _, found in parts)] for text, policy in _POLICIES.items()]
    for measure, name in _MEASURES.items():
        above = (found["policies"]["rerank"]["above_best_without_language_model"][measure] for _, found in parts)
        rows.append([f"reranked above the best without a language model, {name}", *(tested_difference(one) for one in above)])
    rows.append(["the best without a language model (MRR)", *(f"`{found['best']}`" for _, found in parts)])
    return to_table(["Hit@1 Hit@3 Hit@10 MRR", *(name for name, _ in parts)], rows)


def write_words() -> str:
    """The terms of the table."""
    trained = ", ".join(f"{name} {found['trainings']}" for name, found in read_results("kept")["sets"].items())
    return to_paragraph(
        f"""A fifth of the documents of a set's train part were drawn with a fixed seed (`draw_kept.py`) and their questions kept
        apart: no choice of this project was made on them. The recipe was trained on the others, as `jobs/configs/recipe.toml` has
        it with one round, from Qwen2.5-Coder-1.5B-Instruct. Trainings that differ in their seeds alone: {trained}; of several, a
        value is their mean with the least and the highest. Those called `apart` have at most 50 right pages, none of which
        shares half of its five-word shingles with an evidence page of a training question (all of fairytaleqa's). The questions
        of fairytaleqa are of so few documents ({_count_documents("fairytaleqa")} of one size would be worth as much) that its
        intervals come out too narrow. Intervals (95 %) and p (Holm over the
        file) are over documents and leave the variance of training out (`kept.json`):"""
    )


def _write_cell(row: Any, measures: Iterable[str] = tuple(_MEASURES)) -> str:
    values = (row[measure] for measure in measures)
    return " ".join(short(mean) if low == high else f"{short(mean)} [{short(low)}, {short(high)}]" for mean, low, high in values)


def _count_documents(name: str) -> str:
    """How many documents of one size the questions of a set are worth."""
    return f"{read_results('kept')['sets'][name]['all']['worth_clusters']:.0f}"
