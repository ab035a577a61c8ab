"""What each part of the recipe brings: the recipe without it."""

from figure_cells import p_value, read_results, short, to_item, to_paragraph, to_table
from figure_quality import EFFECT_MEASURES, LARGE, find_effect
from figure_words import signed, tested_difference

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


def write_terms() -> str:
    """What the table is of."""
    results = read_results("ablation")
    return to_paragraph(
        f"""{results["model"]} on {results["set"]}, {results["questions"]:,} training questions, {results["samples"]} samples of
        each, one round of SFT, and the {results["rows"][0]["n"]:,} held-out questions; one seed (`ablation.json`,
        `bench_ablation.py`). The difference to the recipe is that of the MRR, with its 95 % interval by document and p after Holm
        over all measures of the table:"""
    )


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


def write_words() -> str:
    """What the table says, as items of a list."""
    results = read_results("ablation")
    rows = {row["name"]: row for row in results["rows"]}
    turns, prompt = results["turns"], results["prompt"]
    prompted, base = (find_effect("medquad", policy, LARGE, "prompt") for policy in ("prompted", "base"))
    items = (
        f"""**Proposals** are what gains: without them the model learns from its own wins, and nothing of that is sure to help
        (MRR {short(rows["no proposals"]["mrr"])}, {short(rows["untrained"]["mrr"])} untrained). Nor do more samples help: 1, 4
        and 8 of a question come to {short(rows["no proposals, 1 sample"]["mrr"])}, {short(rows["no proposals"]["mrr"])} and
        {short(rows["no proposals, 8 samples"]["mrr"])}.""",
        f"""**The gain over the question as what is learned from** gained nothing here: what shows evidence at all gives more rows
        and an MRR of {short(rows["no gain"]["mrr"])} (p = {p_value(rows["no gain"]["vs_recipe"]["mrr"][4])}).""",
        f"""**Ranks to the depth that is evaluated** bring {signed(-rows["depth"]["vs_recipe"]["mrr"][0])} MRR
        (p = {p_value(rows["depth"]["vs_recipe"]["mrr"][4])}) and, at rank 10, nothing.""",
        f"""**The question within the search** is worth {signed(rows["untrained"]["mrr"] - rows["rewrite untrained"]["mrr"])} MRR
        before training. Trained on their own wins alone, whole queries and additions come equally far
        ({short(rows["rewrite"]["mrr"])} and {short(rows["no proposals"]["mrr"])}); proposals are for additions.""",
        f"""**A second turn** adds nothing: within three pages {short(turns["tuned 1"]["success"])} of the questions succeed in
        the first turn and {short(turns["tuned 2"]["success"])} in two.""",
        f"""**A better prompt** (GEPA, {prompt["rollouts"]:,} rollouts, {prompt["seconds"]} s, {prompt["accepted"]} of
        {prompt["proposals"]} proposals accepted, the model its own reflection model) found
        {short(prompt["score"])} instead of {short(prompt["own_score"])} on its validation questions, and no more than the prompt
        it came from on the held-out ones (MRR {short(prompted["mrr"])} and {short(base["mrr"])} with a question weight of 2;
        `effect.json`, run `prompt`).""",
    )
    return "\n".join(map(to_item, items))
