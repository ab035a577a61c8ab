"""The tables of questions that a model has written (`bench_written.py`, `bench_question_kinds.py`)."""

from typing import Any

from figure_cells import percent, read_results, short, spread, tested_difference, to_table

_LEARNED = {
    "own": "the set's own",
    "written": "written by 1.5B",
    "every_document": "the same, over the test's documents too",
    "unfiltered": "the same, without filters",
    "small_writer": "written by 0.5B",
    "examples": "written by 1.5B after 12 real questions",
}
_RANKINGS = {
    "`features`": "features",
    "cross-encoder alone": "ce@20",
    "both": "ce_stacked@20",
    "vectors of an embedder": "tuned_dense",
}
_READ = {
    "cross-encoder and `features`": "ce_stacked@20",
    "vectors of an embedder": "tuned_dense",
    "reader alone": "reader@20",
    "reader and `features`": "reader_stacked@20",
}
_LEFT_OUT = {
    "not readable": ("left_out_unreadable", "left_out_failed"),
    "mentions the page": ("left_out_self_reference",),
    "copied": ("left_out_copied",),
    "not found": ("left_out_not_found",),
    "answered differently": ("left_out_unanswerable",),
    "fewer pages are enough": ("left_out_one_page",),
    "known": ("left_out_known",),
    "ambiguous": ("left_out_ambiguous",),
    "one search is enough": ("left_out_one_search",),
    "repeated": ("left_out_near_duplicate",),
}
_READ_ALONE = {"written_ohr_bench": "400", "written_financebench": "all"}
"""Results of readers of one set, and which of those of `rankers_curve` learned from as many real questions."""
_WRITERS = {"q15": "1.5B", "q05": "0.5B", "all15": "1.5B, kinds over pages"}


def write_effect() -> str:
    """The MRR of rankers that learned from questions of each kind, and how far both are above the best untrained search."""
    sets = dict(read_results("written")["sets"])
    for name, table in _read_sets("written_small_writer").items():
        variants = sets[name]["variants"]
        small = _to_variant(table, variants["own"]["rankings"])
        sets[name] = {**sets[name], "variants": {**variants, "small_writer": small}}
    rows = [
        _write_row(f"{name}, best untrained: `{of['best_untrained']}` {_write_untrained(of)}" if key == "own" else "", key, found)
        for name, of in sets.items()
        for key, found in of["variants"].items()
    ]
    return to_table(
        ["asked of", "learned from", "questions", *_RANKINGS, "both above the best untrained", "share of the own gain"], rows
    )


def write_read() -> str:
    """The MRR of rankers, a reader among them, that learned from questions of each kind, and how far it is above the best."""
    rows, sets = [], dict(read_results("written_reader")["sets"])
    for result, train in _READ_ALONE.items():
        for name, table in _read_sets(result).items():
            real = next(of for of in read_results("rankers_curve")["sets"] if (of["set"], of["train"]) == (name, train))
            own = _to_variant(real, {})
            for row in own["rankings"].values():
                row["of_gain"] = 1.0 if row["above_best"]["mrr"][1] > 0 else None
            untrained = {key: {"mrr": row["mrr"][0]} for key, row in table["rankings"].items()}
            about = {"best_untrained": table["best_untrained"], "untrained": untrained}
            sets[name] = {**about, "variants": {"own": own, "written": _to_variant(table, own["rankings"])}}
    for name, of in sets.items():
        for key, found in of["variants"].items():
            rankings, reader = found["rankings"], found["rankings"].get("reader@20")
            rows.append(
                [
                    f"{name}, best untrained: `{of['best_untrained']}` {_write_untrained(of)}" if key == "own" else "",
                    _LEARNED[key],
                    f"{found['train_questions']:,}",
                    *(spread(rankings[ranking]["mrr"]) if ranking in rankings else "" for ranking in _READ.values()),
                    tested_difference(reader["above_best"]["mrr"]) if reader else "",
                    f"{100 * reader['of_gain']:.0f} %" if reader and reader["of_gain"] is not None else "",
                ]
            )
    header = ["asked of", "learned from", "questions", *_READ, "reader alone above the best untrained", "share of the own gain"]
    return to_table(header, rows)


def _read_sets(name: str) -> dict[str, Any]:
    """The tables of a result of `bench_rankers.py --table`, by set."""
    return {of["set"]: of for of in read_results(name)["sets"]}


def _to_variant(table: Any, own: Any) -> dict[str, Any]:
    """Such a table as `bench_written.py` writes one, with the share of the gain that own questions have."""
    rankings: dict[str, Any] = {}
    for key, row in table["rankings"].items():
        above = row.get(f"above_{table['best_untrained']}")
        gain, low, *_ = own[key]["above_best"]["mrr"] if key in own else (0.0, 0.0)
        if above:
            of_gain = round(above["mrr"][0] / gain, 3) if low > 0 else None
            rankings[key] = {**row, "above_best": above, "of_gain": of_gain}
    return {"train_questions": table["train_questions"], "rankings": rankings}


def _write_untrained(table: Any) -> str:
    return short(table["untrained"][table["best_untrained"]]["mrr"])


def _write_row(asked: str, key: str, found: Any) -> list[str]:
    both = found["rankings"]["ce_stacked@20"]
    return [
        asked,
        _LEARNED[key],
        f"{found['train_questions']:,}",
        *(spread(found["rankings"][name]["mrr"]) if name in found["rankings"] else "" for name in _RANKINGS.values()),
        tested_difference(both["above_best"]["mrr"]),
        "" if both["of_gain"] is None else f"{100 * both['of_gain']:.0f} %",
    ]


def write_filters() -> str:
    """Outcomes of the drafts of each writer on each set, and the cost of a question that was kept."""
    found = {(writer, name): of for writer, sets in read_results("written")["writers"].items() for name, of in sets.items()}
    more = read_results("written_counts")["writers"]
    found = {(writer, name): of for writer, sets in more.items() for name, of in sets.items()} | found
    columns = {text: keys for text, keys in _LEFT_OUT.items() if any(of.get(key) for of in found.values() for key in keys)}
    rows = [
        [
            name,
            _WRITERS[writer],
            f"{counts['drafts']:,}",
            *(f"{sum(counts.get(key, 0) for key in keys):,}" for keys in columns.values()),
            f"{counts['questions']:,} ({percent(counts['questions'] / counts['drafts'])})",
            f"{counts['tokens_per_question']:,.0f}",
        ]
        for writer in _WRITERS
        for (by, name), counts in sorted(found.items())
        if by == writer
    ]
    return to_table(["set", "writer", "drafts", *columns, "kept", "tokens a kept one"], rows)


def write_likeness() -> str:
    """Difficulty of written and real questions, and the share of their words on the page."""
    rows = []
    for name, table in read_results("written")["sets"].items():
        groups = {"real, of the test": table["asked"], "written, kept": table["variants"]["written"]["asked"]}
        if "unfiltered" in table["variants"]:
            groups["written, all"] = table["variants"]["unfiltered"]["asked"]
        rows += [
            [
                name if number == 0 else "",
                text,
                short(of["hit1"]),
                short(of["mrr"]),
                f"{of['words']:.1f}",
                percent(of["words_on_page"]),
            ]
            for number, (text, of) in enumerate(groups.items())
        ]
    return to_table(["set", "questions", "Hit@1", "MRR", "words, without stop words", "of these on the page"], rows)


def write_kinds() -> str:
    """The MRR of `features` that learned from equally many questions of each group."""
    sets = dict(read_results("question_kinds")["sets"])
    sets |= {f"{name}, kinds over pages": of for name, of in read_results("question_kinds_pages")["sets"].items()}
    groups = dict.fromkeys(group for of in sets.values() for group in of["rankings"])
    rows = [[group, *(_write_taught(table["rankings"].get(group)) for table in sets.values())] for group in groups]
    header = [f"{name}, {table['learned']:,} questions" for name, table in sets.items()]
    return to_table(["learned from", *header], rows)


def _write_taught(row: Any) -> str:
    if row is None:
        return ""
    above = row.get("above_all that were written")
    return f"{short(row['mrr'][0])}" + (f", {tested_difference(above['mrr'])}" if above else "")
