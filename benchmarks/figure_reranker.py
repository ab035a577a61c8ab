"""What a trained reranker finds beside searches that need none, and what it cost."""

from typing import Any, NamedTuple

from figure_cells import read_results, short, to_paragraph, to_table
from figure_quality import (
    AGAIN_RUN,
    EFFECT_MEASURES,
    FEWER_RUN,
    LARGE,
    LISTWISE_RUN,
    RERANKER_RUN,
    SMALL,
    find_effect,
    find_reranked,
    list_trainings,
    write_range,
)
from figure_words import signed, tested_difference


class Column(NamedTuple):
    """The evaluation of a set with a model's reranker."""

    collection: str
    model: str

    @property
    def name(self) -> str:
        return f"{self.collection}, {'1.5B' if self.model == LARGE else '135M'}"

    def find(self, policy: str) -> Any:
        return find_reranked(self.collection, policy, self.model)


COLUMNS = (
    Column("medquad", LARGE),
    Column("medquad", SMALL),
    Column("manuals", LARGE),
    Column("manuals", SMALL),
    Column("fairytaleqa", LARGE),
)
_POLICIES = {
    "the question by words (BM25)": "question",
    "its key words": "question_keywords",
    "`templates`": "templates",
    "the question by vectors (`dense`)": "dense",
    "by both (`hybrid`)": "hybrid",
    "`templates`, by both": "templates+hybrid",
    "question + what the model adds": "base",
    "the same by both": "base+hybrid",
    "question + what the tuned model adds": "tuned",
    "that by both": "tuned+hybrid",
    "**the question, reranked**": "rerank",
    "question + what the model adds, reranked": "base+rerank",
    "question + what the tuned model adds, reranked": "tuned+rerank",
}


def write_terms() -> str:
    """What the table is of."""
    results = read_results("trained_reranker")
    asked = ", ".join(f"{name} {find_reranked(name, 'question')['n']:,}" for name in ("medquad", "manuals", "fairytaleqa"))
    trained = ", ".join(f"{_find_training(column)['pages']:,}" for column in COLUMNS)
    one = results["large"]["medquad"]["reading"]
    return to_paragraph(
        f"""All held-out questions ({asked}), the first search, ten places; {LARGE} (1.5B) and SmolLM2-135M-Instruct (135M) for
        all that a model writes or reads, all-MiniLM-L6-v2 for vectors (`effect.json`). The rerankers were trained on {trained}
        pages of questions of the train part, in the order of the columns, and read the best {one["depth"]} pages that are found
        by both (fairytaleqa: by words), {one["page_chars"]:,} characters of each. 95 % intervals by document, p after Holm over
        all comparisons of the file:"""
    )


def write_table() -> str:
    """What each search finds, and how far the reranked question is above the question and above the best that is untrained."""

    def write_cell(row: Any) -> str:
        return " ".join(short(row[name]) for name in EFFECT_MEASURES) if row else ""

    cells = [[text, *(write_cell(column.find(policy)) for column in COLUMNS)] for text, policy in _POLICIES.items()]
    reranked = [column.find("rerank") for column in COLUMNS]
    for key, text in (("vs_question", "question"), ("vs_best_untrained", "best untrained")):
        for measure, name in (("hit3", "Hit@3"), ("hit10", "Hit@10"), ("mrr", "MRR")):
            cells.append([f"reranked above the {text}, {name}", *(tested_difference(row[key][measure]) for row in reranked)])
    cells.append(["the best untrained (MRR)", *(f"`{row['best_untrained']}`" for row in reranked)])
    return to_table(["Hit@1 Hit@3 Hit@10 MRR", *(column.name for column in COLUMNS)], cells)


def write_words() -> str:
    """What the table says, and what it costs."""
    untrained = {row["policy"]: row for row in read_results("equal_terms")["rows"] if row["set"] == "fairytaleqa"}
    trainings = [_find_training(column) for column in COLUMNS]
    training = ", ".join(f"{one['stage_s']} s" for one in trainings)
    reading = ", ".join(f"{one['reading']['seconds'] / one['reading']['pages'] * 1000:.1f}" for one in trainings)
    trained = list_trainings("rerank")
    base, tuned = (
        ", ".join(signed(row["mrr"] - alone["mrr"]) for row, alone in zip(list_trainings(f"{name}+rerank"), trained, strict=True))
        for name in ("base", "tuned")
    )
    again = " and ".join(
        f"{short(found['hit3'])} and {short(found['mrr'])} on {name}"
        for name in ("medquad", "fairytaleqa")
        for found in [find_reranked(name, "rerank", seed=1)]
    )
    repeated, fewer = find_reranked("medquad", "rerank", run=AGAIN_RUN), find_reranked("manuals", "rerank", run=FEWER_RUN, seed=1)
    return to_paragraph(
        f"""In every column the reranked question is above everything that was not trained, at ranks 1 and 3 by far. A policy
        before the reranker lowered the MRR in each of three trainings (medquad, 1.5B: {tuned} tuned, {base} untrained), so the
        question is what to rerank. Over these trainings, two seeds and one of them twice, Hit@1, Hit@3 and MRR are
        {write_range(trained, "hit1")}, {write_range(trained, "hit3")} and {write_range(trained, "mrr")} (mean and range): the
        table's first column is the best of them, and its intervals leave the variance of training out. The test questions of
        fairytaleqa are of so few documents that their intervals come out too narrow, and all of these test questions were in
        view while the reranker was made. On medquad 135M parameters do as well as 1.5B, on the manuals they do not. The
        same model without that training puts the pages in a worse order than they had (fairytaleqa: MRR
        {short(untrained["rerank"]["mrr"])}, `equal_terms.json`). Training took {training} on one H200 in the order of the columns
        (those of 135M shared it with another training), reading {reading} ms a page, the start of its processes with it
        (`trained_reranker.json`). With another seed, and for medquad other training questions, Hit@3 and MRR of the 1.5B model's
        were {again}; with the same seed once more {short(repeated["hit3"])} and {short(repeated["mrr"])} on medquad, as no two
        trainings on a GPU are the same; and with another seed and 8,000 pages in place of all {short(fewer["hit3"])} and
        {short(fewer["mrr"])} on the manuals. A reranker that somebody else has trained was not measured beside it."""
    )


def write_loss_words() -> str:
    """Why all pages of a question are learned at once."""
    results = read_results("trained_reranker")
    before = results["answers"]
    losses = {(row["set"], row["model"].partition("-")[0]): row for row in before["earlier"]}
    small, test = losses["medquad", "SmolLM2"], before["earlier_test"]
    either = ", ".join(
        f"{name} {short(old['hit3'])} and {short(old['mrr'])}, now {short(new['hit3'])} and {short(new['mrr'])}"
        for name in before["sets"]
        for old, new in [(find_reranked(name, "rerank", run=RERANKER_RUN), find_reranked(name, "rerank"))]
    )
    some, all_pages = results["large_seed_43"]["medquad"], results["large_all_pages"]["medquad"]
    one, steps = results["small"]["medquad"], 100
    early, pages = one["loss_by_20_steps"][steps // 20 - 1], round(steps * one["pages"] / one["steps"])
    tried = {
        name: ", ".join(
            f"{row['learning_rate']:g} with rank {row['lora_r']} {short(row['eval_loss_after'])}"
            for row in results["tried"]
            if row["set"] == name
        )
        for name in ("medquad", "manuals")
    }
    return to_paragraph(
        f"""All pages of a question are learned at once because a small model learned nothing otherwise. With each answer learned
        by itself, as monoT5 does it, SmolLM2-135M ended after {small["rows"]:,} pages of medquad where it knew no more than how
        many pages are evidence, and its order of what is found by both had a Hit@3 of {short(test["rerank"]["hit3"])} (the order
        that they had: {short(test["hybrid"]["hit3"])}). With all pages
        of a question at once its loss was {short(early)} after {pages:,} pages, where who knows nothing is at 1.61. The 1.5B
        model does as well either way (Hit@3 and MRR with each answer by itself: {either}; on medquad the pages were others, the
        first of the file then, those of drawn questions now). More pages of medquad make its loss on validation questions less,
        {short(some["eval_loss_after"])} with {some["pages"]:,} and {short(all_pages["eval_loss_after"])} with all
        {all_pages["pages"]:,} in {all_pages["stage_s"]} s in place of {some["stage_s"]}; on test questions that was not measured.
        Of two ways to train the
        small one that was taken whose loss on validation questions was less (learning rate with rank of the adapter: medquad
        {tried["medquad"]}; manuals {tried["manuals"]}). `finetune` says so where the loss stays near that of who knows
        nothing, the logarithm of the number of pages."""
    )


def write_transfer_words() -> str:
    """What rerankers do to the pages of a collection that they were not trained for."""

    def say(collection: str, trained: str, model: str) -> str:
        row = find_effect(f"{collection}, reranker of {trained}", "rerank", model, LISTWISE_RUN)
        return tested_difference(row["vs_question"]["hit3"])

    asked = {name: find_effect(name, "question") for name in ("ohr_bench", "financebench")}
    return to_paragraph(
        f"""A reranker belongs to the collection that it was trained for. On ohr_bench ({asked["ohr_bench"]["n"]} questions, whose
        search alone has a Hit@3 of {short(asked["ohr_bench"]["hit3"])}) that of medquad changed Hit@3 by
        {say("ohr_bench", "medquad", LARGE)}, that of the manuals (135M) by {say("ohr_bench", "manuals", SMALL)}; on financebench
        ({asked["financebench"]["n"]} questions, {short(asked["financebench"]["hit3"])}) by
        {say("financebench", "medquad", LARGE)}, and {say("financebench", "manuals", SMALL)} (`effect.json`). Its folder notes the
        index that it was trained for, and evaluation and endpoint say so where another one is searched. A policy does no such
        harm elsewhere ([benchmarks](../benchmarks.md)): its question stays in the search."""
    )


def _find_training(column: Column) -> Any:
    """What is known of the training of a column's reranker; `pages` are those that it learned from."""
    return read_results("trained_reranker")["large" if column.model == LARGE else "small"][column.collection]
