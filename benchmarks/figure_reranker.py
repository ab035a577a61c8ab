"""What a trained reranker finds beside searches that need none, and what it cost."""

from typing import Any

from figure_cells import read_results, short, to_paragraph, to_table
from figure_quality import EFFECT_MEASURES, LARGE, RERANKER_RUN, find_reranked
from figure_words import p_value, signed

_SETS = ("medquad", "manuals", "fairytaleqa")
_POLICIES = {
    "the question by words (BM25)": "question",
    "its key words": "question_keywords",
    "Query2doc": "query2doc",
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
    sets = read_results("trained_reranker")["sets"]
    asked = ", ".join(f"{name} {find_reranked(name, 'question')['n']:,}" for name in _SETS)
    trained = ", ".join(f"{sets[name]['rows']:,}" for name in _SETS)
    one = sets["medquad"]["reading"]
    return to_paragraph(
        f"""All held-out questions ({asked}), the first search, ten places; {LARGE} for all that a model writes or reads,
        all-MiniLM-L6-v2 for vectors (`effect.json`, run `{RERANKER_RUN}`; one seed). The reranker was trained on {trained} rows
        of the train part (medquad's are the first of a file) and reads the best {one["depth"]} pages that are found by both
        (fairytaleqa: by words), {one["page_chars"]:,} characters of each, in windows of {one["window_tokens"]} tokens (since then
        at once). 95 % intervals by document, p after Holm over all comparisons of the file:"""
    )


def write_table() -> str:
    """What each search finds, and how far the reranked question is above the question and above the best that is untrained."""

    def write_cell(row: Any) -> str:
        return " ".join(short(row[name]) for name in EFFECT_MEASURES) if row else ""

    cells = [[text, *(write_cell(find_reranked(name, policy)) for name in _SETS)] for text, policy in _POLICIES.items()]
    for key, text in (("vs_question", "question"), ("vs_best_untrained", "best untrained")):
        for measure, name in (("hit3", "Hit@3"), ("hit10", "Hit@10"), ("mrr", "MRR")):
            rows = [find_reranked(one, "rerank") for one in _SETS]
            cells.append([f"reranked above the {text}, {name}", *(_write_difference(row[key][measure]) for row in rows)])
    best = [find_reranked(one, "rerank")["best_untrained"] for one in _SETS]
    cells.append(["the best untrained (MRR)", *(f"`{name}`" for name in best)])
    return to_table(["Hit@1 Hit@3 Hit@10 MRR", *_SETS], cells)


def write_words() -> str:
    """What the table says, and what it costs."""
    sets = read_results("trained_reranker")["sets"]
    untrained = {row["policy"]: row for row in read_results("equal_terms")["rows"] if row["set"] == "fairytaleqa"}
    training = ", ".join(f"{sets[name]['stage_s']} s" for name in _SETS)
    reading = ", ".join(f"{sets[name]['reading']['seconds'] / sets[name]['reading']['questions']:.2f} s" for name in _SETS)
    pages = ", ".join(f"{sets[name]['reading']['pages'] / sets[name]['reading']['questions']:.0f}" for name in _SETS)
    gains = {
        name: find_reranked("medquad", f"{name}+rerank")["mrr"] - find_reranked("medquad", "rerank")["mrr"]
        for name in ("base", "tuned")
    }
    return to_paragraph(
        f"""On all three sets the reranked question is above everything that was not trained, and nothing that a policy adds to
        the question before it is read adds much to that (medquad: MRR {signed(gains["base"])} untrained, {signed(gains["tuned"])}
        tuned). The same model without that training puts the pages in a worse order than they had (fairytaleqa: MRR
        {short(untrained["rerank"]["mrr"])}, `equal_terms.json`). Training took {training} on one H200 in the order of the
        table, reading {reading} a question for {pages} pages of it, of all its policies (`trained_reranker.json`). A
        reranker that somebody else has trained was not measured beside it; nor were other seeds."""
    )


def write_doubt_words() -> str:
    """What became of rerankers that had not learned, and how that is seen."""
    results = read_results("trained_reranker")
    losses = {(row["set"], row["model"].partition("-")[0]): row for row in results["earlier"]}
    small, manuals = losses["medquad", "SmolLM2"], losses["manuals", "Qwen2.5"]
    large, again = (results["sets"][name] for name in ("medquad", "manuals"))
    found = {name: short(results["earlier_test"][name]["hit3"]) for name in ("hybrid", "rerank")}
    return to_paragraph(
        f"""Not every training succeeds. The loss counts an answer and what ends it, so with one page of evidence to four others a
        reranker that knows nothing ends at .250. After {large["rows"]:,} rows of medquad the 1.5B model is at
        {short(large["eval_loss_after"])}, SmolLM2-135M at {short(small["eval_loss_after"])}: its order of what is found by both
        had a Hit@3 of {found["rerank"]}, the order that they had {found["hybrid"]}. On the manuals the 1.5B model came to
        {short(manuals["eval_loss_after"])} in an earlier run whose {manuals["rows"]:,} rows were the first of a file in the order
        of its questions, so those of the first packages alone, and to {short(again["eval_loss_after"])} with all
        {again["rows"]:,}, which hold the beginning of a long page too. Since then `finetune.limit` draws questions. `finetune`
        says so where the loss stays near that of the shares alone."""
    )


def _write_difference(found: Any) -> str:
    value, low, high, _, adjusted = found
    return f"{signed(value)} [{signed(low)}, {signed(high)}], p = {p_value(adjusted)}"
