"""Tables of what is found: the demo, baselines, training methods, public sets."""

from collections.abc import Iterator, Sequence
from typing import Any

from figure_cells import p_value, percent, read_results, short, signed, to_table, write_test

_DETECTABLE = (1.96 + 0.84) / (2 * 1.96)
"""Of the width of a 95 % interval: the true difference that a test at 5 % finds with 80 % power."""


def take_value(results: Any, measure: str, policy: str) -> float:
    """A metric of a policy in a comparison."""
    return results["measures"][measure]["metrics"][policy]["value"]


def write_demo() -> str:
    """Text of the demo's report."""
    results = read_results("demo")
    names = {
        "question": "question, words (BM25)",
        "question_keywords": "question, key words",
        "rm3": "RM3",
        "neighbours": "question + words of pages of similar questions (`neighbours`)",
        "features": "question, pages reordered by `features`",
        "base": "SmolLM2-135M as query writer",
        "tuned": "the same, tuned",
        "rerank": "**question, reranked by the trained cross-encoder**",
        "tuned+rerank": "tuned query writer, reranked by the same",
    }
    hits = ("hit_at_1", "hit_at_3", "hit_at_10")

    def write_difference(measure: str, reference: str) -> str:
        differences = results["measures"][measure]["differences"]
        found = next(one for one in differences if (one["policy"], one["reference"]) == ("tuned", reference))
        scale, digits = (1, 3) if measure == "mrr" else (100, 1)
        value, low, high = (f"{scale * found[name]:+.{digits}f}" for name in ("value", "low", "high"))
        return f"{value} [{low}, {high}], {write_test(found['p_value'], found['adjusted_p_value'])}"

    rows = [
        [text, *(percent(take_value(results, hit, name)) for hit in hits), f"{take_value(results, 'mrr', name):.3f}"]
        for name, text in names.items()
        if name in results["measures"]["mrr"]["metrics"]
    ]
    for reference, text in (("question", "the question"), ("base", "its untrained base")):
        rows.append([f"tuned above {text}", *(write_difference(measure, reference) for measure in (*hits, "mrr"))])
    deployment = results["deployment"]
    for reference in deployment["rows"][0]["differences"]:
        above = f"`{reference['reference']}`"
        rows.append([f"`{deployment['candidate']}` above {above}", *_write_above(deployment["rows"], reference["reference"])])
    asked = deployment["start"][0]["metrics"]["start"]["n"]
    start = f"its start, all-MiniLM-L6-v2, of {asked} questions"
    rows.append([f"`{deployment['candidate']}` above {start}", *_write_above(deployment["start"], "start")])
    return to_table(["first search", "Hit@1", "Hit@3", "Hit@10", "MRR"], rows)


def _write_above(measures: Any, reference: str) -> list[str]:
    """The candidate's differences to another policy, of the measures that are tested."""
    cells = {"hit_at_1": "", "hit_at_3": "", "hit_at_10": "", "mrr": ""}
    for row in measures:
        found = next(one for one in row["differences"] if one["reference"] == reference)
        scale, digits = (1, 3) if row["name"] == "mrr" else (100, 1)
        value, low, high = (f"{scale * found[name]:+.{digits}f}" for name in ("value", "low", "high"))
        cells[row["name"]] = f"{value} [{low}, {high}], {write_test(found['p_value'], found['adjusted_p_value'])}"
    return [*cells.values()]


LARGE = "Qwen2.5-Coder-1.5B-Instruct"
EFFECT_MEASURES = ("hit1", "hit3", "hit10", "mrr")
SMALL = "embedded"
RERANKER_RUN, LISTWISE_RUN, AGAIN_RUN, FEWER_RUN = "reranker", "listwise", "again", "8000_pages"
"""The evaluations that have a reranker, by themselves in `effect.json`: of one that learned each answer by itself, and of one
that learned all pages of a question at once, that once more with the same seed, and with fewer pages."""


def find_effect(collection: str, policy: str, model: str = "", run: str = "", seed: int = 0) -> Any:
    """The row of a policy on a collection; None if there is none."""
    rows = read_results("effect")["rows"]
    key = (collection, run, policy, model, seed)
    return next((row for row in rows if tuple(row[name] for name in ("set", "run", "policy", "model", "seed")) == key), None)


def find_reranked(collection: str, policy: str, model: str = LARGE, run: str = LISTWISE_RUN, seed: int = 0) -> Any:
    """The row of a policy in the evaluation that has the reranker; None if there is none."""
    return find_effect(collection, policy, model, run, seed) or find_effect(collection, policy, "", run, seed)


def write_effect() -> str:
    """Results without a trained model and with one; a star where they differ significantly from the question."""

    def write_cell(row: Any) -> str:
        if row is None:
            return ""
        tests = row["vs_question"] or {}
        return " ".join(short(row[name]) + ("*" if name in tests and tests[name][-1] < 0.01 else "") for name in EFFECT_MEASURES)

    policies = (
        ("question", "question", ""),
        ("`question_keywords`", "question_keywords", ""),
        ("`rm3`", "rm3", ""),
        ("`neighbours`", "neighbours", ""),
        ("`templates`", "templates", ""),
        ("`features`", "features", ""),
        ("SmolLM2-135M as query writer", "base", "embedded"),
        ("the same, tuned: SFT", "tuned", "embedded"),
        (f"HyDE, {LARGE}", "hyde", LARGE),
        ("Query2doc, the same model", "query2doc", LARGE),
        ("the same model as query writer", "base", LARGE),
        ("the same, tuned: SFT", "round1", LARGE),
        ("SFT, then DPO", "round2", LARGE),
        ("SFT on rows of fewer questions", "tuned", LARGE),
        ("question, vectors (`dense`)", "dense", ""),
        ("question, words and vectors (`hybrid`)", "hybrid", ""),
    )
    sets = ("medquad", "fairytaleqa", "manuals")
    rows = [[text, *(write_cell(find_effect(name, policy, model)) for name in sets)] for text, policy, model in policies]
    return to_table(["Hit@1 / Hit@3 / Hit@10 / MRR", *sets], rows)


def write_recipe() -> str:
    """Two rounds on a GPU."""
    rows_of = read_results("recipe_medquad_all_questions")["counts"]
    policies = (
        ("question, words (BM25)", "question", ""),
        ("HyDE", "hyde", LARGE),
        ("Query2doc", "query2doc", LARGE),
        ("untrained query writer", "base", LARGE),
        ("`templates`", "templates", ""),
        (f"round 1: SFT on {rows_of['rounds/1/finetune']['rows']:,} rows", "round1", LARGE),
        (f"round 2: DPO on {rows_of['rounds/2/finetune']['rows']:,} pairs of round 1's own replies", "round2", LARGE),
    )

    def write_row(text: str, row: Any) -> list[str]:
        tokens = row["tokens_per_question"]
        return [text, *(short(row[name]) for name in EFFECT_MEASURES), f"{tokens:.0f}" if tokens else ""]

    rows = [write_row(text, find_effect("medquad", policy, model)) for text, policy, model in policies]
    tuned = find_effect("medquad", "round2", LARGE)
    for text, policy, model in (("the question", "question", ""), ("its base", "base", LARGE), ("`templates`", "templates", "")):
        other = find_effect("medquad", policy, model)
        rows.append(
            [
                f"round 2 above {text}",
                *(f"{tuned[name] - other[name]:+.3f}".replace("0.", ".", 1) for name in EFFECT_MEASURES),
                "",
            ]
        )
    return to_table(["", "Hit@1", "Hit@3", "Hit@10", "MRR", "tokens a question"], rows)


def write_methods() -> str:
    """Results of each training method; the base model is the mean of the evaluations."""
    files = {name: read_results(f"{name}_round_gpus") for name in ("sft", "rl", "dpo")}
    hits = ("hit_at_1", "hit_at_3", "hit_at_10")

    def write_row(text: str, trained: str, policies: Sequence[tuple[Any, str]], counts_errors: bool = True) -> list[str]:
        def mean(measure: str) -> float:
            return sum(take_value(results, measure, policy) for results, policy in policies) / len(policies)

        return [text, trained, *(percent(mean(hit)) for hit in hits), f"{mean('num_format_errors'):.2f}" if counts_errors else ""]

    def write_tuned(name: str, text: str) -> list[str]:
        results = files[name]
        seconds = f"{results['stage_seconds']['finetune']:.0f} s"
        rows = f"{results['stage_counts']['finetune']['rows']:,}"
        return write_row(text.replace("ROWS", rows), seconds, [(results, "tuned")])

    rows = [
        write_row("base, greedy", "", [(results, "base") for results in files.values()]),
        write_tuned("sft", "`sft_query`, ROWS rows, two epochs"),
        write_tuned("rl", "`grpo`, ROWS replies"),
        write_tuned("dpo", "`dpo`, ROWS pairs"),
        write_row("the raw question as the query", "", [(files["sft"], "question")], counts_errors=False),
    ]
    header = ["", "trained", "Hit@1", "Hit@3", "Hit@10", "unreadable replies a question, of two"]
    return to_table(header, rows)


def write_embedded_questions() -> str:
    """The raw question on the embedded corpus."""
    corpus = read_results("search_quality")["embedded_corpus"]
    found = {name: corpus[name]["question"] for name in ("all", "test")}
    rows = [
        [f"{name} {row['questions']:,}", *(percent(row[f"hit@{k}"]) for k in (1, 3, 10)), short(row["mrr@10"])]
        for name, row in found.items()
    ]
    return to_table(["questions", "Hit@1", "Hit@3", "Hit@10", "MRR@10"], rows)


def write_search_quality() -> str:
    """Public sets beside bm25s."""
    results = read_results("search_quality")
    retrieval = {"SciFact": "scifact_train", "Cranfield": "cranfield", "CISI": "cisi"}

    def write_policies(found: Any) -> Iterator[str]:
        for policy in ("question", "question_keywords", "rm3"):
            yield " / ".join(short(found[policy][measure]) for measure in ("hit@1", "hit@3", "mrr@10"))

    sets = [
        ("medquad Hit@1 / Hit@3 / MRR@10", results["page_sets"]["medquad"]),
        ("fairytaleqa", results["page_sets"]["fairytaleqa"]),
        ("embedded corpus, test", results["embedded_corpus"]["test"]),
    ]
    rows: list[list[str]] = []
    for (text, key), (name, found) in zip(retrieval.items(), sets, strict=True):
        ours, bm25s = (results["retrieval_sets"][key][engine]["ndcg@10"] for engine in ("drag_ray", "bm25s"))
        rows.append([f"{text} nDCG@10", short(ours), short(bm25s), name, *write_policies(found)])
    return to_table(["", "ours", "bm25s", "", "ours, question", "key words", "RM3"], rows)


def write_key_words() -> str:
    """Results of the question and of its key words on each page set."""
    results = read_results("search_quality")
    sets = {**results["page_sets"], "the embedded corpus": results["embedded_corpus"]["all"]}
    rows: list[list[str]] = []
    for name, found in sets.items():
        question, key = found["question"], found["question_keywords"]
        cells = [" ".join(short(one[measure]) for measure in ("hit@1", "hit@3", "hit@10", "mrr@10")) for one in (question, key)]
        gain = f"{key['mrr@10'] - question['mrr@10']:+.3f}".replace("0.", ".", 1)
        rows.append([name, f"{question['questions']:,}", *cells, gain])
    return to_table(["Hit@1 Hit@3 Hit@10 MRR", "questions", "question", "key words", "MRR"], rows)


def write_model_baselines() -> str:
    """HyDE and Query2doc with the embedded model."""
    sets = read_results("model_baselines")["sets"]
    policies = {
        "question": "question",
        "question_keywords": "key words",
        "rm3": "RM3",
        "hyde": "HyDE",
        "query2doc": "Query2doc",
        "base": "base model",
    }
    names = {"medquad": "medquad", "fairytaleqa": "fairytaleqa", "embedded": "embedded corpus"}

    def write_cell(measures: Any, policy: str) -> str:
        return " / ".join(short(measures[measure][policy]["value"]) for measure in ("hit_at_1", "hit_at_3", "mrr"))

    rows = [[text, *(write_cell(sets[name]["measures"], policy) for policy in policies)] for name, text in names.items()]
    return to_table(["", *policies.values()], rows)


def points(value: float) -> str:
    """A difference of shares in points, for example +29.6."""
    return f"{100 * value:+.1f}".replace("+0.", "+.").replace("-0.", "-.")


def write_effect_transfer() -> str:
    """Results of the adapter that was trained on manuals on other sets."""
    rows = []
    for name in ("medquad", "fairytaleqa", "ohr_bench", "financebench"):
        tuned, base = (find_effect(f"{name}, trained on manuals", policy, LARGE) for policy in ("manuals", "base"))
        value, low, high, alone, _ = tuned["vs_question"]["mrr"]
        rows.append(
            [
                *(name, f"{tuned['n']:,}", short(tuned["mrr"] - value), short(base["mrr"]), short(tuned["mrr"])),
                f"{signed(value)} [{signed(low)}, {signed(high)}], p = {p_value(alone)}",
                f"{points(tuned['vs_question']['hit10'][0])}",
                short(_DETECTABLE * (high - low)),
            ]
        )
    header = ["", "N", "question", "base", "trained on manuals", "above the question", "Hit@10, points", "detectable"]
    return to_table(header, rows)
