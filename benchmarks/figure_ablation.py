"""Figures of an ablation: the recipe without each of its parts."""

from figure_cells import read_results, short, tested_difference, to_table
from figure_quality import EFFECT_MEASURES

_ROWS = {
    "recipe": "the recipe",
    "no gain": "learn every search that shows evidence among the first three, weighted by its rank",
    "depth": "ranks beyond 3 are worth nothing",
    "two turns": "two turns, of which the first search counts here",
    "no proposals": "without proposals",
    "no proposals, 1 sample": "without proposals, 1 sample of a question",
    "no proposals, 8 samples": "without proposals, 8 samples of a question",
    "rewrite": "the model writes the whole query, without proposals",
    "rewrite untrained": "the whole query, untrained",
    "untrained": "the additions, untrained",
}


def write_table() -> str:
    """A row for each part that is left out."""
    results = read_results("ablation")
    by_name = {row["name"]: row for row in results["rows"]}
    cells: list[list[str]] = []
    for name, text in _ROWS.items():
        row, trained = by_name[name], results["training"].get(name)
        difference = row["vs_recipe"]
        cells.append(
            [
                text,
                f"{trained['rows']:,}" if trained else "",
                *(short(row[measure]) for measure in EFFECT_MEASURES),
                tested_difference(difference["mrr"]) if difference else "",
            ]
        )
    return to_table(["", "training rows", "Hit@1", "Hit@3", "Hit@10", "MRR", "to the recipe"], cells)
