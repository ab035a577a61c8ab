"""Sentences of the recipe: where there is something to learn, and how few rows were too few."""

from figure_cells import read_results, short, to_item, to_paragraph
from figure_quality import find_effect
from figure_words import p_value


def write_recipe_room() -> str:
    """What baselines that learn without a model say about a collection, as items of a list."""
    templates, neighbours, question = (
        short(find_effect("medquad", name)["hit1"]) for name in ("templates", "neighbours", "question")
    )
    tried, without = (find_effect("fairytaleqa", name) for name in ("templates", "question"))
    items = (
        f"""They do far better than the question (medquad: Hit@1 {templates} with `templates`, {neighbours} with `neighbours`,
        {question} without): questions come in a few forms, and there is much to learn. They are also the bar: a tuned model that
        stays below them need not be deployed.""",
        """`neighbours` does worse than the question and `templates` finds nothing to add (the embedded commands): what there is
        to gain is in single questions, and takes a model that knows the subject.""",
        f"""Questions that were taken from the pages (the manuals' are the first sentences of their entries) are searched best as
        they stand: of the manuals' kinds of questions none gains by words, and on fairytaleqa the few that gain in training do
        not on other questions (MRR {short(tried["mrr"])} with `templates`, {short(without["mrr"])} without; p =
        {p_value(tried["vs_question"]["mrr"][3])}).""",
    )
    return "\n".join(map(to_item, items))


def write_recipe_hybrid() -> str:
    """What a tuned model adds to a search by words and by vectors."""
    results = read_results("recipe_medquad_reranker")["test"]
    found = results["policies"]

    def say(name: str) -> str:
        return f"{short(found[name]['hit3'][0])} and {short(found[name]['mrr'][0])}"

    return to_paragraph(
        f"""With SmolLM2-135M on medquad ({results["questions"]:,} held-out questions, `recipe_medquad_reranker.json`) Hit@3 and
        MRR are {say("hybrid")} for the question by words and by vectors, {say("base+hybrid")} with what the untrained model
        adds, {say("tuned+hybrid")} with what the tuned one adds, and {say("tuned")} without the vectors; at rank 10 all three
        that have the vectors are within half a point. `templates` is {say("templates")}; fused with the vectors too, which an
        evaluation does since (`templates+hybrid`), it was not measured."""
    )


def write_few_rows_item() -> str:
    """What more rows did for a model of 135M parameters, as an item of a list."""
    rows = read_results("recipe_medquad_smollm2")["counts"]["rounds/1/finetune"]["rows"]
    tuned = find_effect("medquad", "tuned", "embedded")
    return to_item(
        f"""**Few rows for a model of 135M on medquad**: with some hundred of them (`benchmarks/effect/small/medquad.toml`, two
        CPU cores; an earlier run, not kept) many replies could not be read, and it lost to the question at rank 10.
        With {rows:,} rows (`recipe_medquad_smollm2.json`, `effect.json`) it comes to an MRR of {short(tuned["mrr"])}, as far as
        the 1.5B model and `templates`, and is above the question at rank 10 too."""
    )
