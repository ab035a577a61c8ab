"""The tables of small rankers at equal terms (`bench_rankers.py`)."""

from statistics import median
from typing import Any

from figure_cells import RESULTS_DIR, percent, read_results, short, spread, tested_difference, to_table

_RANKINGS = {
    "words (BM25)": "question",
    "`features` over words": "features",
    "vectors (`dense`), untrained": "dense",
    "words and vectors (`hybrid`), untrained": "hybrid",
    "vectors of a trained embedder": "tuned_dense",
    "words and vectors of a trained embedder": "tuned_hybrid",
    "**a trained cross-encoder** over words": "ce@20",
    "trained cross-encoder with its best `weight`": "ce_blend@20",
    "the same over words and vectors": "ce_hybrid_blend@20",
}
_MOVED = {
    "cross-encoder alone": "ce@20",
    "with its `weight`": "ce_blend@20",
    "words and vectors of the embedder": "tuned_hybrid",
}


_READ = {
    "words (BM25)": "question",
    "vectors (`dense`), untrained": "dense",
    "words and vectors (`hybrid`), untrained": "hybrid",
    "`features`": "features",
    "vectors of a trained embedder": "tuned_dense",
    "vectors of a trained embedder, distilled": "tuned_dense_distilled",
    "words and vectors of a trained embedder": "tuned_hybrid",
    "a trained cross-encoder": "ce@20",
    "a trained cross-encoder, distilled from the reader": "ce_distilled@20",
    "cross-encoder and `features`": "ce_stacked@20",
    "cross-encoder and `features`, distilled from the reader": "ce_distilled_stacked@20",
    "a trained reader (1.5B)": "reader@20",
    "reader and `features`": "reader_stacked@20",
}
_ALSO_READ = ("financebench", "manuals")
_READ_PAIRS = {
    "reader above cross-encoder, both with `features`": "reader_stacked@20",
    "distilled above labels alone: cross-encoder": "ce_distilled@20",
    "with `features`": "ce_distilled_stacked@20",
    "embedder": "tuned_dense_distilled",
}
_WITH_ADDITIONS = {
    "words and vectors of a trained embedder": ("tuned_hybrid", "tuned_hybrid_added"),
    "a trained cross-encoder": ("ce@20", "ce_added"),
    "cross-encoder and `features`": ("ce_stacked@20", "ce_added_stacked"),
    "a trained reader (1.5B)": ("reader@20", "reader_added", "reader_base"),
    "reader and `features`": ("reader_stacked@20", "reader_added_stacked", "reader_base_stacked"),
    "a trained reader, writer trained by `rl`": ("reader@20", "reader_rl"),
    "reader and `features`, writer trained by `rl`": ("reader_stacked@20", "reader_rl_stacked"),
}
"""Rankings without and with the pages that a query writer adds, an untrained one unless the row says another."""
_ON_CPU = {
    "words": "question",
    "vectors, trained or not": "dense",
    "words and vectors": "hybrid",
    "`features` of words": "features",
    "cross-encoder over words, `int8`": "ce_int8",
    "the same in `float32`": "ce_float32",
    "reader": "reader",
}
_STARTS = {
    "vectors, untrained": "dense",
    "words and vectors, untrained": "hybrid",
    "vectors, trained": "tuned_dense",
    "words and vectors, trained": "tuned_hybrid",
    "cross-encoder": "ce@20",
    "cross-encoder and `features`": "ce_stacked@20",
}
_READERS = {
    "`features`": "features",
    "cross-encoder and `features`": "ce_stacked@20",
    "reader": "reader@20",
    "reader and `features`, each half": "reader_features@20",
    "the same, factors learned": "reader_stacked@20",
}
_EMBEDDERS = {
    "question by words": "question",
    "`dense`, untrained": "dense",
    "`hybrid`, untrained": "hybrid",
    "`features`": "features",
    "vectors of a trained embedder": "tuned_dense",
    "words and these vectors": "tuned_hybrid",
}
_CURVE = {
    "question by words": "question",
    "`dense`": "dense",
    "`hybrid`": "hybrid",
    "`features`": "features",
    "`features` of `hybrid`": "features_hybrid",
    "cross-encoder alone": "ce@20",
    "with its best `weight`": "ce_blend@20",
    "with `features`, each half": "ce_features@20",
}


def write_table() -> str:
    """Hit@1 and MRR of each ranking on each set, and how far the cross-encoder is above the question."""
    sets = read_results("rankers")["sets"]
    rows = [[text, *(_write_cell(found["rankings"].get(name)) for found in sets)] for text, name in _RANKINGS.items()]
    for name, reference in (("ce_blend@20", "question"), ("ce_blend@20", "features"), ("tuned_hybrid", "question")):
        text = next(text for text, ranking in _RANKINGS.items() if ranking == name)
        above = [tested_difference(found["rankings"][name][f"above_{reference}"]["mrr"]) for found in sets]
        rows.append([f"{text}: above `{reference}`, MRR", *above])
    rows.append(["trainings", *(str(len(found["seeds"])) for found in sets)])
    return to_table(["Hit@1 MRR", *(f"{found['set']} ({found['questions']:,} questions)" for found in sets)], rows)


def write_features() -> str:
    """The MRR of features, of a cross-encoder and of both, by the number of questions that they learn from."""
    found = sorted(read_results("rankers_features")["sets"], key=lambda one: (one["set"], one["train_questions"]))
    rows = [
        [
            one["set"],
            f"{one['train_questions']:,}",
            *(spread(one["rankings"][name]["mrr"]) for name in (*_CURVE.values(),)),
            tested_difference(one["rankings"]["ce_features@20"]["above_features"]["mrr"]),
        ]
        for one in found
    ]
    return to_table(["set", "questions to learn from", *_CURVE, "both above `features`"], rows)


def write_few() -> str:
    """The MRR of features, of a cross-encoder that reads few questions often, and of both with factors that are learned."""
    found = sorted(read_results("rankers_few")["sets"], key=lambda one: (one["set"], one["train_questions"]))
    rows = [
        [
            one["set"],
            f"{one['train_questions']:,}",
            f"{one['options']['epochs']:g}",
            *(spread(one["rankings"][name]["mrr"]) for name in (one["best_untrained"], "features", "ce@20", "ce_stacked@20")),
            tested_difference(one["rankings"]["ce_stacked@20"]["above_features"]["mrr"]),
            str(len(one["seeds"])),
        ]
        for one in found
    ]
    header = [
        "set",
        "questions",
        "epochs",
        "best untrained",
        "`features`",
        "cross-encoder alone",
        "both",
        "both above `features`",
    ]
    return to_table([*header, "trainings"], rows)


def write_reader() -> str:
    """Hit@1, 3 and 10 and MRR with a reader and with what learned its scores, the differences, and what each costs."""
    sets, curve = _find_read_sets(), read_results("rankers_curve")["sets"]
    rows = [[text, *(_write_measures(found["rankings"].get(name)) for found in sets)] for text, name in _READ.items()]
    for text, names in _WITH_ADDITIONS.items():
        rows.append([f"with a writer's pages: {text}", *(_write_added(found, curve, names) for found in sets)])
    for text, name in _READ_PAIRS.items():
        rows.append([f"{text}, MRR", *(_write_pair(found["rankings"].get(name)) for found in sets)])
    for text, of, key in (
        ("milliseconds a question on a GPU, cross-encoder", "times", "rerank_ms_20"),
        ("the same, reader", "reader_times", "rerank_ms_20"),
    ):
        rows.append([text, *(f"{median(one[key] for one in found[of]):.0f}" for found in sets)])
    on_cpu = {one["set"]: one["times"] for one in _find_sets("rankers_cpu")}
    for text, name in _ON_CPU.items() if on_cpu else ():
        timed = (on_cpu.get(found["set"], {}).get(name) for found in sets)
        told = (f"{one['median_ms']:.1f}" if one else "" for one in timed)
        rows.append([f"milliseconds a question on two CPU cores, {text}", *told])
    for text, name in (("seconds of training, cross-encoder", "ce"), ("the same, reader", "reader")):
        rows.append([text, *(f"{median(one[name]['train_s'] for one in found['training']):.0f}" for found in sets)])
    for text, name in (("megabytes of trained weights, cross-encoder", "ce"), ("the same, reader (an adapter)", "reader")):
        rows.append([text, *(f"{found['training'][0][name]['megabytes']:.0f}" for found in sets)])
    agreement = [[one["bm25"] for one in found["teacher_agreement"] if one] for found in sets]
    told = (percent(median(of)) if of else "" for of in agreement)
    rows.append(["validation questions whose evidence the reader scores best", *told])
    rows.append(["trainings", *(str(len(found["seeds"])) for found in sets)])
    header = ["Hit@1 Hit@3 Hit@10 MRR", *(f"{found['set']} ({found['questions']:,} questions)" for found in sets)]
    return to_table(header, [[cell or "-" for cell in row] for row in rows])


def write_starts() -> str:
    """The MRR of both encoders by the model that they start from, and what each costs."""
    found = [*_find_read_sets(), *_find_sets("rankers_mpnet")]
    rows = [
        [
            one["set"],
            one["options"]["start"].replace("embedded-minilm", "all-MiniLM-L6-v2"),
            *(_write_mrr(one["rankings"], name) for name in _STARTS.values()),
            f"{median(times['rerank_ms_20'] for times in one['times']):.0f}",
            *(f"{median(of[name]['train_s'] for of in one['training']):.0f}" for name in ("embed", "ce")),
            f"{one['training'][0]['ce']['megabytes']:.0f}",
            str(len(one["seeds"])),
        ]
        for one in sorted(found, key=lambda one: one["set"])
    ]
    costs = ["cross-encoder, ms on a GPU", "training the embedder, s", "training the cross-encoder, s", "MB"]
    return to_table(["set", "start", *_STARTS, *costs, "trainings"], rows)


def _find_read_sets() -> list[Any]:
    """The sets on which readers and encoders were trained on the same questions; of two results of a set the one with models that
    learned the reader's scores."""
    curve = (found for found in read_results("rankers_curve")["sets"] if found["set"] in _ALSO_READ)
    others = {found["set"]: found for found in curve if "ce@20" in found["rankings"]}
    others |= {found["set"]: found for found in _find_sets("rankers_manuals")}
    return [*read_results("rankers_reader")["sets"], *others.values()]


def _find_sets(name: str) -> list[Any]:
    """Those of a result; none where it was not measured yet."""
    return read_results(name)["sets"] if (RESULTS_DIR / f"{name}.json").exists() else []


def _write_added(column: Any, curve: Any, names: Any) -> str:
    """With the most questions of those that it was measured with; where these are not the column's, they are named, with what it
    has without the pages."""
    without, *added = names
    measured = [
        (one["train_questions"], one["rankings"][without], one["rankings"][name])
        for one in (*curve, column)
        for name in added
        if one["set"] == column["set"] and name in one["rankings"]
    ]
    if not measured:
        return ""
    number, other, row = max(measured, key=lambda found: found[0])
    is_columns = number == column["train_questions"]
    return _write_measures(row) + ("" if is_columns else f" ({number:,} questions, without {short(other['mrr'][0])})")


def _write_measures(row: Any) -> str:
    return " ".join([*(short(row[name][0]) for name in ("hit1", "hit3", "hit10")), spread(row["mrr"])]) if row else ""


def _write_pair(row: Any) -> str:
    return tested_difference(row["above_pair"]["mrr"]) if row else ""


def write_curve() -> str:
    """The MRR of readers by the number of questions, alone and with features, and with the pages that a query writer adds."""
    sets = [*read_results("rankers_curve")["sets"], *read_results("rankers_reader")["sets"]]
    found = sorted(sets, key=lambda one: (one["set"], one["train_questions"]))
    rows = [
        [
            one["set"],
            f"{one['train_questions']:,}",
            *(_write_mrr(one["rankings"], name) for name in (one["best_untrained"], *_READERS.values())),
            tested_difference(one["rankings"]["reader_features@20"]["above_features"]["mrr"]),
            _write_mrr(one["rankings"], "reader_added") or _write_mrr(one["rankings"], "reader_base"),
            str(len(one["seeds"])),
        ]
        for one in found
    ]
    header = ["set", "questions", "best untrained", *_READERS, "each half above `features`", "reader with what a writer adds"]
    return to_table([*header, "trainings"], rows)


def write_embedder() -> str:
    """The MRR of vectors of embedders by the number of questions that these have learned from."""
    names = ("rankers_embedder", "rankers_embedder_all", "rankers_reader")
    sets = [one for name in names for one in read_results(name)["sets"]]
    rows = [
        [
            one["set"],
            f"{one['train_questions']:,}",
            *(_write_mrr(one["rankings"], name) for name in _EMBEDDERS.values()),
            tested_difference(one["rankings"]["tuned_hybrid"]["above_question"]["mrr"]),
            str(len(one["seeds"])),
        ]
        for one in sorted(sets, key=lambda one: (one["set"], one["train_questions"]))
    ]
    header = ["set", "questions", *_EMBEDDERS, "words and these vectors above the question"]
    return to_table([*header, "trainings"], rows)


def _write_mrr(rankings: Any, name: str) -> str:
    """Nothing where a ranking was not made."""
    return spread(rankings[name]["mrr"]) if name in rankings else ""


def write_transfer() -> str:
    """The MRR of what was trained on one set and asked of another, and how far it is above the question there."""
    rows = [
        [found["source"], found["set"], short(found["rankings"]["question"]["mrr"][0])]
        + [_write_moved(found["rankings"][name]) for name in _MOVED.values()]
        for found in read_results("rankers")["transfer"]
    ]
    return to_table(["trained on", "asked of", "question by words, MRR", *_MOVED], rows)


def _write_cell(row: Any) -> str:
    return " ".join(spread(row[measure]) for measure in ("hit1", "mrr")) if row else ""


def _write_moved(row: Any) -> str:
    return f"{short(row['mrr'][0])}, {tested_difference(row['above_question']['mrr'])}"
